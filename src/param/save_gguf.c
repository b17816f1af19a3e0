/* save_gguf.c - a model's files as one GGUF file: metadata, then every matrix in the format that is asked for, straight
 * from the files piece by piece.  What has one dimension, a router and what a bias corrects stay F32, as everywhere.
 * Written beside and renamed. */
#include "file/gguf_tensors.h"
#include "param/blocks.h"
#include "param/gguf_meta.h"
#include "param/param.h"
#include "param/source.h"
#include "tensor/half.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 1 << 20 }; /* elements */

typedef struct {
    const ModelDesc *m;
    const GgufFamily *f;
    DType dtype;
    GgufOut out;
    Buf name;
    VEC(DType)
    item;       /* each parameter's format, as arch_each_param has them */
    int narrow; /* matrices whose rows are no whole blocks */
    bool ok;
    Err *err;
} Plan;

static void add_item(void *user, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    Plan *x = user;
    if (!x->ok) return;
    GgufName g;
    buf_clear(&x->name);
    arch_param_name(&x->name, desc, layer, expert);
    if (!gguf_name(&g, x->f, x->name.data)) {
        x->ok = err_set(x->err, "a GGUF file has no place for %s of a %s model", x->name.data, x->m->arch->name);
        return;
    }
    bool fits = cols % dtype_block(x->dtype).elements == 0;
    DType t = desc->vector || desc->frozen || g.whole ? DT_F32 : fits ? x->dtype : DT_F16;
    x->narrow += t == DT_F16 && !fits;
    VEC_PUSH(x->item, t);
    if (expert > 0) return; /* in the tensor of the first */
    int64_t dim[3] = { x->m->d.experts, rows, cols };
    if (g.all) gguf_put_tensor(&x->out, g.name, dtype_name(t), 3, dim);
    else gguf_put_tensor(&x->out, g.name, dtype_name(t), desc->vector ? 1 : 2, dim + (desc->vector ? 2 : 1));
}

/* ---- numbers */
typedef struct {
    Sources s;
    Threads *threads;
    int fd;
    const char *path;
    char *to;     /* a piece, as it is written */
    float *wide;  /* [workers]: a row each */
    int64_t *bad; /* of each row, where it is not finite, or -1 */
    const Source *src;
    Source turned; /* how rows stand in what is written */
    DType t;
    int64_t row, rows;
    uint64_t written;
    Err *err;
} Writing;

static int64_t encode(DType t, char *to, const float *x, int64_t n) {
    DTypeBlock b = dtype_block(t);
    int64_t bad = convert_not_finite(x, DT_F32, n);
    if (bad >= 0) return bad;
    for (int64_t i = 0; i < n; i += b.elements, to += b.bytes) {
        uint16_t h;
        if (t == DT_F32) memcpy(to, x + i, 4);
        else if (t == DT_BF16) h = f32_bf16(x[i]), memcpy(to, &h, 2);
        else if (t == DT_F16) h = f32_f16(x[i]), memcpy(to, &h, 2);
        else if (!block_write(t, to, x + i)) {
            for (int64_t k = bad = i; k < i + b.elements; k++)
                if (fabsf(x[k]) > fabsf(x[bad])) bad = k;
            return bad;
        }
        if ((t == DT_BF16 && (h & 0x7F80) == 0x7F80) || (t == DT_F16 && (h & 0x7C00) == 0x7C00)) return i;
    }
    return -1;
}

static void encode_row(void *arg, int index, int worker) {
    Writing *x = arg;
    int64_t cols = x->src->cols, from = source_row_back(&x->turned, x->row + index);
    float *wide = x->wide + worker * cols;
    convert_from(wide, DT_F32, x->src, from * cols, cols);
    x->bad[index] = encode(x->t, x->to + (size_t)index * dtype_bytes(x->t, cols), wide, cols);
}

static bool write_bytes(Writing *x, const char *p, size_t n) {
    x->written += n;
    while (n) {
        ssize_t k = write(x->fd, p, n);
        if (k < 0 && errno == EINTR) continue;
        if (k <= 0) return err_set(x->err, "%s: cannot write: %s", x->path, strerror(errno));
        p += k, n -= (size_t)k;
    }
    return true;
}

static bool write_item(Writing *x, const SourceItem *it, DType t, int turn) {
    const Source *s = &it->src;
    int64_t high = s->cols && s->cols < PIECE ? PIECE / s->cols : 1;
    x->src = s, x->t = t, x->turned = (Source){ .turn = turn };
    for (x->row = 0; x->row < s->rows; x->row += x->rows) {
        x->rows = s->rows - x->row < high ? s->rows - x->row : high;
        threads_run(x->threads, (int)x->rows, encode_row, x);
        for (int64_t i = 0; i < x->rows; i++)
            if (x->bad[i] >= 0) {
                int64_t row = source_row_back(&x->turned, x->row + i);
                return sources_not_finite(&x->s, it, row * s->cols + x->bad[i], t, x->err);
            }
        TRY(write_bytes(x, x->to, (size_t)x->rows * dtype_bytes(t, s->cols)));
    }
    st_done_with(&x->s.files, it->st);
    return true;
}

static bool pad(Writing *x) {
    static const char zeros[GGUF_ALIGN] = { 0 };
    return write_bytes(x, zeros, (size_t)((GGUF_ALIGN - x->written % GGUF_ALIGN) % GGUF_ALIGN));
}

static bool write_all(Writing *x, const Plan *p, const Buf *header, const float *freqs) {
    const ModelDesc *m = p->m;
    int64_t wide = 1;
    for (size_t i = 0; i < x->s.n; i++)
        if (x->s.at[i].src.cols > wide) wide = x->s.at[i].src.cols;
    x->to = mem_push(&x->s.mem, (size_t)(wide > PIECE ? wide : PIECE) * 4);
    x->wide = MEM_ARRAY(&x->s.mem, float, (size_t)wide *(size_t)threads_count(x->threads));
    x->bad = MEM_ARRAY(&x->s.mem, int64_t, PIECE);
    TRY(write_bytes(x, header->data, header->n));
    for (size_t i = 0; i < x->s.n; i++) {
        const SourceItem *it = &x->s.at[i];
        if (it->expert <= 0) TRY(pad(x));
        bool turned = p->f->turned && (it->desc->id == P_Q || it->desc->id == P_K);
        TRY(write_item(x, it, p->item.at[i], turned ? (int)m->d.head_dim : 0));
    }
    TRY(pad(x));
    if (freqs) TRY(write_bytes(x, (const char *)freqs, (size_t)m->d.head_dim / 2 * 4) && pad(x));
    return true;
}

static bool write_file(Writing *x, const Plan *p, const Buf *header, const float *freqs, const char *path) {
    Buf tmp = { 0 }, dir = { 0 };
    const char *slash = strrchr(path, '/');
    buf_put(&dir, slash ? path : ".", slash ? (size_t)(slash - path) + (slash == path) : 1);
    x->fd = file_beside(&tmp, path), x->path = tmp.data;
    bool ok = x->fd >= 0 || err_set(x->err, "%s: cannot create: %s", tmp.data, strerror(errno));
    if (ok) {
        ok = write_all(x, p, header, freqs);
        if (ok && (fsync(x->fd) || rename(tmp.data, path)))
            ok = err_set(x->err, "%s: cannot write: %s", path, strerror(errno));
        if (!ok) unlink(tmp.data);
        close(x->fd);
        ok = ok && dir_sync(dir.data, x->err);
    }
    buf_free(&tmp);
    buf_free(&dir);
    return ok;
}

bool params_convert_gguf(const ModelDesc *m, Threads *threads, const char *path, DType t, Err *err) {
    Plan p = { .m = m, .f = gguf_family_of(m->arch->types[0]), .dtype = t, .ok = true, .err = err };
    Writing x = { .threads = threads, .err = err };
    float freqs[2048];
    Buf header = { 0 };
    bool ok = gguf_put_model(&p.out, m, dtype_name(t), err), scaled = ok && gguf_rope_freqs(m, freqs);
    if (ok) arch_each_param(m, add_item, &p);
    ok = ok && p.ok;
    if (ok && scaled) gguf_put_tensor(&p.out, "rope_freqs.weight", "F32", 1, (int64_t[]){ m->d.head_dim / 2 });
    if (ok && p.narrow && speaks())
        fprintf(stderr, "hone: %s: %d matrices have rows that are no whole blocks of %s: they are written as F16\n",
                path, p.narrow, dtype_name(t));
    gguf_put_all(&header, &p.out);
    if (ok && sources_open(&x.s, m, m->dir, err)) {
        CHECK(x.s.n == p.item.n, "%zu parameters, %zu planned", x.s.n, p.item.n);
        ok = write_file(&x, &p, &header, scaled ? freqs : NULL, path);
        sources_close(&x.s);
    } else ok = false;
    buf_free(&header);
    buf_free(&p.name);
    vec_free(p.item.at);
    return ok;
}
