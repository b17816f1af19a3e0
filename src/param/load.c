/* load.c - a folder's tensors into memory, this rank's slice of each.  What lies in the file as it will lie
 * in memory is looked through on all threads and put from where the file is mapped, or, on a device that
 * has room for it (dev_room), copied there on all threads and put from there while the next pieces are
 * copied; float8 is put as it is and made wide on a device that has scratch for it; the rest is converted
 * on all threads into a stage and put from there.  The pages that bytes came from are let go, so one copy
 * stays resident.  Of a matrix cut by columns a piece is the middles of some rows. */
#include "param/param.h"
#include "param/source.h"

#include <math.h>
#include <string.h>

enum {
    PIECE = 1 << 18,
    LANES = 64,
    AHEAD = 9,
    BLOCK = F8_BLOCK
}; /* elements a piece; pieces looked at at a time, at most; as many times that are known; float8's blocks */

typedef enum { STAGED, AS_IT_IS, FLOAT8 } How;
typedef struct {
    const SourceItem *item;
    Tensor to;                    /* [1,n]: where it goes */
    int64_t row, col, rows, cols; /* of the item's matrix */
    char *stage;
    char *room;     /* the device's, for its bytes as they are; or NULL */
    How how;        /* all but STAGED: whole rows, which lie one behind the other */
    int64_t bad;    /* the first that is not finite, or -1 */
    uint64_t sum;   /* of the bytes in the file, where it is wanted: */
    uint64_t *into; /* its parameter's, to which it is added; or NULL */
} Piece;

static int64_t blocks_of(int64_t n) { return (n + BLOCK - 1) / BLOCK; }
/* Where an element is, or the block that it is in. */
static const char *element(const Source *s, int64_t row, int64_t col) {
    return s->data + dtype_bytes(s->dtype, source_row(s, row) * s->cols + col);
}
static const char *in_file(const Piece *c) { return element(&c->item->src, c->row, c->col); }
/* Of n columns from col on: all bytes of the blocks that they are in. */
static int64_t bytes_across(const Source *s, int64_t col, int64_t n) {
    int64_t each = dtype_block(s->dtype).elements;
    return n ? (int64_t)dtype_bytes(s->dtype, (col + n - 1) / each * each + each - col / each * each) : 0;
}
static size_t raw_bytes(const Piece *c) { return (size_t)(c->rows * bytes_across(&c->item->src, c->col, c->cols)); }
/* Of a piece that is not STAGED: its bytes, which look_at_piece brought. */
static const char *place_of(const Piece *c) { return c->room ? c->room : in_file(c); }

/* No NaN, and scales that make nothing infinite: what is not so tame is converted, which finds the place. */
static bool tame_f8(const Piece *c) {
    const Source *s = &c->item->src;
    const char *p = place_of(c);
    int bad = 0;
    for (int64_t i = 0; i < c->rows * c->cols; i++) bad |= (p[i] & 0x7F) == 0x7F;
    int64_t from = c->row / BLOCK * blocks_of(s->cols), to = blocks_of(c->row + c->rows) * blocks_of(s->cols);
    for (int64_t i = from; !bad && i < to; i++) {
        float x;
        convert_f32(&x, DT_F32, s->scale + i * (int64_t)dtype_size(s->scale_dtype), s->scale_dtype, 1);
        bad = !(fabsf(x) < 1e35f); /* 448 times as much is still a number */
    }
    return !bad;
}

static How how_of(const Dev *d, const Source *s, DType to, int64_t cols) {
    if (cols != s->cols || s->turn || dtype_blocks(s->dtype)) return STAGED;
    if (s->dtype == to) return (uintptr_t)s->data % dtype_size(to) ? STAGED : AS_IT_IS;
    size_t scratch = arena_round(PIECE) + arena_round((size_t)(blocks_of(s->rows) * blocks_of(s->cols)) * 4);
    bool room = scratch <= d->tmp.size - d->tmp.used && blocks_of(s->rows) * blocks_of(s->cols) <= PIECE;
    return s->dtype == DT_F8E4M3 && room ? FLOAT8 : STAGED;
}

/* ---- What was read, as a number that tells it from other bytes in that place: whichever way the bytes go from here,
 * and in whatever order the pieces come. */
static uint64_t sum_bytes(uint64_t h, const char *p, size_t n) {
    uint64_t a = h, b = n;
    for (; n >= 8; p += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, p, 8);
        a += w, b += a; /* b knows where w stood */
    }
    for (; n; p++, n--) a += (unsigned char)*p, b += a;
    return a * 0x9E3779B97F4A7C15u ^ (b + (b << 32 | b >> 32));
}
static uint64_t sum_of(const Piece *c) {
    const Source *s = &c->item->src;
    int64_t scale = (int64_t)dtype_size(s->scale_dtype);
    uint64_t h = (uint64_t)c->item->expert << 48 ^ (uint64_t)c->row << 20 ^ (uint64_t)c->col;
    if (c->cols == s->cols && !s->turn) h = sum_bytes(h, place_of(c), raw_bytes(c));
    else
        for (int64_t r = 0; r < c->rows; r++)
            h = sum_bytes(h, element(s, c->row + r, c->col), (size_t)bytes_across(s, c->col, c->cols));
    if (s->dtype != DT_F8E4M3) return h;
    int64_t from = c->col / BLOCK, to = blocks_of(c->col + c->cols);
    for (int64_t r = c->row / BLOCK; r < blocks_of(c->row + c->rows); r++)
        h = sum_bytes(h, s->scale + (r * blocks_of(s->cols) + from) * scale, (size_t)((to - from) * scale));
    return h;
}

typedef struct {
    const StFiles *files;
    Piece *piece; /* the first n are looked at; the disk reads those from .. to meanwhile */
    int n, from, to;
} Batch;
static void read_ahead(const Piece *c) {
    const Source *s = &c->item->src;
    int64_t first = c->row, last = c->row + c->rows - 1;
    if (s->turn) first -= first % s->turn, last += s->turn - 1 - last % s->turn; /* whole heads: their ends stay */
    const char *from = element(s, first, c->col);
    st_will_need(from, (size_t)(element(s, last, c->col) - from + bytes_across(s, c->col, c->cols)));
}
static void take_piece(const Batch *b, Piece *c) {
    const Source *s = &c->item->src;
    int64_t row_bytes = c->cols * (int64_t)dtype_size(c->to.dtype), n = c->rows * c->cols;
    c->bad = -1;
    if (c->room)
        st_copy(b->files, c->item->st, c->room, in_file(c), raw_bytes(c)); /* looked at there, while in the cache */
    if (c->how == AS_IT_IS) c->bad = convert_not_finite(place_of(c), c->to.dtype, n);
    if (c->how == FLOAT8 && !tame_f8(c)) c->how = STAGED;
    if (c->how != STAGED) return;
    if (c->cols == s->cols) convert_from(c->stage, c->to.dtype, s, c->row * s->cols, n);
    else
        for (int64_t r = 0; r < c->rows; r++)
            convert_from(c->stage + r * row_bytes, c->to.dtype, s, (c->row + r) * s->cols + c->col, c->cols);
    c->bad = convert_not_finite(c->stage, c->to.dtype, n); /* now, while it is in the cache */
}
static void look_at_piece(void *arg, int index, int worker) {
    (void)worker;
    const Batch *b = arg;
    Piece *c = b->piece + index;
    for (int k = b->from + index; k < b->to; k += b->n) read_ahead(b->piece + k);
    take_piece(b, c);
    if (c->into) c->sum = sum_of(c);
}

/* What of the file it is made of: elements, and for float8 the scales of the blocks that it touches. */
static int64_t bytes_of(const SourceItem *it, const Slice *s) {
    int64_t bytes = s->rows * bytes_across(&it->src, s->c0, s->cols);
    if (!bytes || it->src.dtype != DT_F8E4M3) return bytes;
    int64_t down = (s->r0 + s->rows - 1) / BLOCK - s->r0 / BLOCK + 1,
            across = (s->c0 + s->cols - 1) / BLOCK - s->c0 / BLOCK + 1;
    return bytes + down * across * (int64_t)dtype_size(it->src.scale_dtype);
}

/* The stage is free: nothing was converted. */
static void put_f8(Dev *d, const Piece *c) {
    const Source *s = &c->item->src;
    int64_t rows = blocks_of(s->rows), cols = blocks_of(s->cols);
    size_t mark = arena_mark(&d->tmp);
    Tensor codes = tensor_push(&d->tmp, DT_F8E4M3, 1, c->rows * c->cols),
           scale = tensor_push(&d->tmp, DT_F32, rows, cols);
    convert_f32(c->stage, DT_F32, s->scale, s->scale_dtype, rows * cols);
    op_put(d, scale, c->stage);
    op_put(d, codes, place_of(c));
    op_widen(d, c->to, codes, scale, c->row * s->cols + c->col, s->cols);
    arena_pop(&d->tmp, mark);
}

/* Pieces are put one after another: op_put belongs to the thread that owns the device.
 * Neighbours in the file go together. */
static bool put_pieces(Dev *d, const Sources *s, Batch b, Err *err) {
    Piece *pieces = b.piece;
    int n = b.n;
    threads_run(d->threads, n, look_at_piece, &b);
    for (int i = 0; i < n; i++)
        if (pieces[i].into) *pieces[i].into += pieces[i].sum;
    for (int i = 0, k; i < n; i = k) {
        const Piece *c = &pieces[i];
        int64_t at = (c->row + c->bad / c->cols) * c->item->src.cols + c->col + c->bad % c->cols, count = c->to.cols;
        if (c->bad >= 0) return sources_not_finite(s, c->item, at, c->to.dtype, err);
        for (k = i + 1; k < n && c->how == AS_IT_IS && pieces[k].how == AS_IT_IS && pieces[k].item == c->item; k++) {
            if (pieces[k].bad >= 0 || place_of(&pieces[k]) != place_of(&pieces[k - 1]) + raw_bytes(&pieces[k - 1]))
                break;
            count += pieces[k].to.cols;
        }
        if (c->how == FLOAT8) put_f8(d, c);
        else if (c->how == STAGED) op_put(d, c->to, c->stage);
        else op_put(d, tensor_over(c->to.data, c->to.dtype, 1, count), place_of(c));
    }
    return true;
}

static int lanes_of(int threads) { return 2 * threads < LANES ? 2 * threads : LANES; }

size_t params_load_bytes(int threads) { return (size_t)lanes_of(threads) * PIECE * 4; }

typedef struct {
    Dev *d;
    Sources *s;
    Piece piece[AHEAD * LANES];
    int n, lanes, asked; /* asked: of the pieces, those that the disk was told of */
    char *stage;
    size_t done; /* items whose pages were let go */
} Loading;

/* As many of the first n pieces as the device has room for get some: neighbours side by side,
 * another matrix on a new line of the cache. */
static int take_room(Dev *d, Piece *p, int n) {
    size_t at[LANES], bytes = 0;
    int k = 0;
    for (; k < n; k++) {
        size_t one = p[k].how == STAGED ? 0 : raw_bytes(&p[k]);
        if (one && k && p[k].item != p[k - 1].item) bytes = arena_round(bytes);
        if (bytes + one > DEV_ROOM) break;
        at[k] = bytes, bytes += one;
    }
    char *room = bytes ? dev_room(d, bytes) : NULL;
    if (!room) return n;
    for (int i = 0; i < k; i++)
        if (p[i].how != STAGED) p[i].room = room + at[i];
    return k;
}
/* The first pieces, at most a lane each; those behind them move up. */
static bool put_some(Loading *x, Err *err) {
    int n = take_room(x->d, x->piece, x->n < x->lanes ? x->n : x->lanes), ahead = x->n - n;
    for (int i = 0; i < n; i++) x->piece[i].stage = x->stage + (size_t)i * PIECE * 4;
    TRY(put_pieces(x->d, x->s, (Batch){ &x->s->files, x->piece, n, x->asked > n ? x->asked : n, x->n }, err));
    size_t next = ahead ? (size_t)(x->piece[n].item - x->s->at) : n ? (size_t)(x->piece[n - 1].item - x->s->at) : 0;
    for (; x->done < next; x->done++) st_done_with(&x->s->files, x->s->at[x->done].st);
    memmove(x->piece, x->piece + n, (size_t)ahead * sizeof *x->piece);
    x->n = x->asked = ahead;
    return true;
}

/* Rows and columns of one matrix, to 'to' [rows,cols]: whole rows a piece, or parts of one that is longer than that. */
static bool load_part(Loading *x, size_t item, Tensor to, const Slice *s, uint64_t *sum, Err *err) {
    int64_t wide = s->cols < PIECE ? s->cols : PIECE, high = wide ? PIECE / wide : 1;
    for (int64_t r = 0; r < s->rows; r += high)
        for (int64_t c = 0; c < s->cols; c += wide) {
            int64_t rows = s->rows - r < high ? s->rows - r : high, cols = s->cols - c < wide ? s->cols - c : wide;
            Tensor flat = tensor_cols(tensor_shape(to, 1, s->rows * s->cols), r * s->cols + c, rows * cols);
            How how = how_of(x->d, &x->s->at[item].src, to.dtype, cols);
            x->piece[x->n] =
                (Piece){ &x->s->at[item], flat, s->r0 + r, s->c0 + c, rows, cols, NULL, NULL, how, -1, 0, sum };
            if (++x->n == AHEAD * x->lanes) TRY(put_some(x, err));
        }
    return true;
}

static bool load_bytes(Params *p, Dev *d, Sources *s, Err *err) {
    Loading *x = MEM_NEW(&s->mem, Loading);
    *x = (Loading){ .d = d, .s = s, .lanes = lanes_of(threads_count(d->threads)) };
    x->stage = mem_push(&s->mem, (size_t)x->lanes * PIECE * 4);
    bool sums = grid_ranks(&p->shard.g) > 1; /* else there is nobody to compare with */
    p->read = 0;
    for (int i = 0; i < p->n; i++) p->at[i].sum = 0;
    for (size_t j = 0; j < s->n; j++) {
        const SourceItem *it = &s->at[j];
        int at = p->index[it->layer][it->desc->id];
        if (at < 0) continue; /* another stage's; or a frozen row, and only the trainable ones are wanted */
        const Slice *slice = &p->at[at].slice;
        int64_t e = it->expert - slice->e0;
        if (e < 0 || e >= slice->experts) continue;
        TRY(load_part(x, j, tensor_rows(p->at[at].t, e * slice->rows, slice->rows), slice, sums ? &p->at[at].sum : NULL,
                      err));
        p->read += bytes_of(it, slice);
    }
    while (x->n) TRY(put_some(x, err));
    for (; x->done < s->n; x->done++) st_done_with(&s->files, s->at[x->done].st);
    return true;
}

bool params_load(Params *p, Dev *d, const char *dir, Err *err) {
    Sources s;
    TRY(sources_open(&s, p->model, dir, err));
    bool ok = load_bytes(p, d, &s, err);
    sources_close(&s);
    return ok;
}

DType params_config_dtype(const ModelDesc *m) {
    const Json *t = json_get(&m->config, "torch_dtype");
    if (!t) t = json_get(&m->config, "dtype");
    return json_is_str(t, "bfloat16") ? DT_BF16 : DT_F32;
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
