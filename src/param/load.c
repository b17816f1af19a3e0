/* load.c - a folder's tensors into memory: pieces are converted on all threads and put, and the pages they came from are
 * let go, so one copy stays resident. */
#include "param/param.h"
#include "param/source.h"

enum { PIECE = 1 << 19, LANES = 64 }; /* elements a piece; pieces converted at a time, at most */

typedef struct {
    const SourceItem *item;
    Tensor to;
    int64_t from, n;
    char *stage;
    int64_t bad; /* the first that is not finite, or -1 */
} Piece;

static void convert_piece(void *arg, int index, int worker) {
    (void)worker;
    Piece *c = (Piece *)arg + index;
    convert_from(c->stage, c->to.dtype, &c->item->src, c->from, c->n);
    c->bad = convert_not_finite(c->stage, c->to.dtype, c->n); /* now, while it is in the cache */
}

/* Converted pieces are put one after another: op_put belongs to the thread that owns the device. */
static bool put_pieces(Dev *d, const Sources *s, Piece *pieces, int n, Err *err) {
    threads_run(d->threads, n, convert_piece, pieces);
    for (int i = 0; i < n; i++) {
        const Piece *c = &pieces[i];
        if (c->bad >= 0) return sources_not_finite(s, c->item, c->from + c->bad, c->to.dtype, err);
        op_put(d, tensor_cols(c->to, c->from, c->n), c->stage);
    }
    return true;
}

static int lanes_of(int threads) { return 2 * threads < LANES ? 2 * threads : LANES; }

size_t params_load_bytes(int threads) { return (size_t)lanes_of(threads) * PIECE * 4; }

static bool load_bytes(Params *p, Dev *d, Sources *s, Err *err) {
    int lanes = lanes_of(threads_count(d->threads)), n = 0;
    char *stage = mem_push(&s->mem, (size_t)lanes * PIECE * 4);
    Piece pieces[LANES];
    size_t done = 0;
    for (size_t j = 0; j < s->n; j++) {
        const SourceItem *it = &s->at[j];
        Tensor all = param(p, it->desc->id, it->layer);
        if (!all.data) continue; /* a frozen row, and only the trainable ones are wanted */
        int64_t rows = it->src.rows, count = rows * it->src.cols;
        Tensor to = tensor_shape(tensor_rows(all, it->expert * rows, rows), 1, count);
        for (int64_t from = 0; from < count; from += PIECE) {
            pieces[n] = (Piece){ .item = it,
                                 .to = to,
                                 .from = from,
                                 .n = count - from < PIECE ? count - from : PIECE,
                                 .stage = stage + (size_t)n * PIECE * 4 };
            if (++n < lanes) continue;
            TRY(put_pieces(d, s, pieces, n, err));
            for (n = 0; done < j; done++) st_done_with(&s->files, s->at[done].st);
        }
    }
    TRY(put_pieces(d, s, pieces, n, err));
    for (; done < s->n; done++) st_done_with(&s->files, s->at[done].st);
    return true;
}

bool params_load(Params *p, Dev *d, const char *dir, Err *err) {
    Sources s;
    TRY(sources_open(&s, p->model, dir, err));
    bool ok = load_bytes(p, d, &s, err);
    sources_close(&s);
    return ok;
}

DType params_disk_dtype(const char *dir) {
    Mem mem = { 0 };
    Err err;
    StFiles f;
    bool all = st_open(&f, dir, &mem, &err);
    for (size_t i = 0; all && i < f.n; i++) all = f.at[i].n_dims < 2 || f.at[i].dtype == DT_BF16;
    st_close(&f);
    mem_free(&mem);
    return all ? DT_BF16 : DT_F32;
}
