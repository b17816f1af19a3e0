/* picture.c - where the tokens of pictures stand, in three positions each, and the tower's rows in the order
 * of its windows. */
#include "model/picture.h"

#include "param/convert.h"

#include <string.h>

/* ---- positions --------------------------------------------------------------------------------------------------- */

bool clip_rule_named(ClipRule *out, const char *program) {
    static const struct {
        const char *program;
        ClipRule rule;
    } rules[] = {
        { "transformers 4.57", { true, false, true } }, { "transformers 5.17", { true, true, true } },
        { "transformers 5.22", { false, true, true } }, { "vllm", { false, false, true } },
        { "verl megatron", { false, false, false } },
    };
    for (size_t i = 0; i < COUNT(rules); i++)
        if (!strncmp(program, rules[i].program, strlen(rules[i].program))) return *out = rules[i].rule, true;
    return false;
}

int picture_positions(int32_t (*pos)[3], int n, Spans pics, const Dims *d, ClipRule rule) {
    int32_t start = 0, largest = -1;
    int m = (int)d->vis.merge;
    for (int t = 0; t < n;) {
        if (!pics.n || t < pics.at->at) {
            pos[t][0] = pos[t][1] = pos[t][2] = start;
            largest = start > largest ? start : largest;
            t++, start++;
            continue;
        }
        const Picture *p = pics.at->picture;
        int h = p->grid.h / m, w = p->grid.w / m;
        double each = 1;
        if (p->clip)
            each = d->vis.per_second
                   * (!rule.seconds_known  ? 1
                      : rule.whole_seconds ? (double)(int)p->seconds
                                           : p->seconds);
        int32_t end = start;
        for (int k = 0; k < p->grid.t * h * w && t < n; k++, t++) {
            int32_t at[3] = { start + (int32_t)(k / (h * w) * each), start + k / w % h, start + k % w };
            for (int a = 0; a < 3; a++) pos[t][a] = at[a], end = at[a] > end ? at[a] : end;
        }
        largest = end > largest ? end : largest;
        start = rule.behind_side ? start + (h > w ? h : w) : end + 1;
        pics.at++, pics.n--;
    }
    return largest + 1 - n;
}

/* ---- the tower's order ------------------------------------------------------------------------------------------- */

static int window_side(const Dims *d) { return (int)(d->vis.window / d->vis.merge / d->vis.patch); } /* in blocks */

typedef void BlockVisit(void *user, int t, int y, int x, bool window_ends); /* block (y, x) of frame t */
static void each_block(const Picture *p, const Dims *d, BlockVisit *visit, void *user) {
    int side = window_side(d), h = p->grid.h / (int)d->vis.merge, w = p->grid.w / (int)d->vis.merge;
    for (int t = 0; t < p->grid.t; t++)
        for (int wy = 0; wy < h; wy += side)
            for (int wx = 0; wx < w; wx += side) {
                int y1 = wy + side < h ? wy + side : h, x1 = wx + side < w ? wx + side : w;
                for (int y = wy; y < y1; y++)
                    for (int x = wx; x < x1; x++) visit(user, t, y, x, y == y1 - 1 && x == x1 - 1);
            }
}

typedef struct {
    int h, w, n;
    int32_t *order;
} Ordering;
static void order_block(void *user, int t, int y, int x, bool window_ends) {
    Ordering *o = user;
    (void)window_ends;
    o->order[(t * o->h + y) * o->w + x] = o->n++;
}
void picture_order(int32_t *order, const Picture *p, const Dims *d) {
    Ordering o = { p->grid.h / (int)d->vis.merge, p->grid.w / (int)d->vis.merge, 0, order };
    each_block(p, d, order_block, &o);
}

/* ---- onto the device --------------------------------------------------------------------------------------------- */

void pictures_add(PicturesShape *s, const Picture *p, const Dims *d) {
    int side = window_side(d), m = (int)d->vis.merge, h = p->grid.h / m, w = p->grid.w / m;
    s->patches += grid_rows(p->grid);
    s->tokens += grid_tokens(p->grid, m);
    s->windows += p->grid.t * ((h + side - 1) / side) * ((w + side - 1) / side);
    s->frames += p->grid.t;
    s->longest = p->grid.h * p->grid.w > s->longest ? p->grid.h * p->grid.w : s->longest;
}

size_t pictures_bytes(const PicturesShape *s, int64_t batch_tokens, const Dims *d) {
    return arena_round((size_t)s->patches * (size_t)d->vis.pixels * 4) + arena_round((size_t)s->patches * 8)
           + arena_round((size_t)(s->windows + 1) * 4) + arena_round((size_t)(s->frames + 1) * 4)
           + arena_round((size_t)batch_tokens * 4);
}

enum { STAGE_ROWS = 64 }; /* rows that are made into numbers at a time */
typedef struct {
    const Picture *p;
    const Dims *d;
    Dev *dev;
    Tensor pixels;
    float *stage;
    void *rounded; /* the stage in the device's numbers */
    int32_t (*pos)[2], *windows, *frames;
    int n_windows, n_frames, longest_window;
    int64_t row, put; /* rows seen; rows on the device */
} Putting;

static void flush(Putting *x) {
    int64_t n = x->row - x->put;
    convert_f32(x->rounded, x->pixels.dtype, x->stage, DT_F32, n * x->d->vis.pixels);
    if (n) op_put(x->dev, tensor_rows(x->pixels, x->put, n), x->rounded);
    x->put = x->row;
}

static void put_row(Putting *x, int64_t from, int row, int col) {
    const Picture *p = x->p;
    int64_t n = x->d->vis.pixels, plane = n / x->d->vis.in;
    float *to = x->stage + (x->row - x->put) * n;
    if (p->values) memcpy(to, p->values + from * n, (size_t)n * 4);
    else
        for (int64_t i = 0; i < n; i++) to[i] = p->table[i / plane][p->bytes[from * n + i]];
    x->pos[x->row][0] = row, x->pos[x->row][1] = col;
    if (++x->row - x->put == STAGE_ROWS) flush(x);
}

static void put_block(void *user, int t, int y, int x0, bool window_ends) {
    Putting *x = user;
    int m = (int)x->d->vis.merge, h = x->p->grid.h / m, w = x->p->grid.w / m;
    for (int k = 0; k < m * m; k++) /* the file's rows: frame, block row, block column, row and column in the block */
        put_row(x, (((int64_t)t * h + y) * w + x0) * m * m + k, y * m + k / m, x0 * m + k % m);
    if (!window_ends) return;
    int len = (int)x->row - x->windows[x->n_windows];
    x->longest_window = len > x->longest_window ? len : x->longest_window;
    x->windows[++x->n_windows] = (int32_t)x->row;
}

static Tensor put_i32(Dev *d, Arena *a, int64_t rows, int64_t cols, const void *from) {
    Tensor t = tensor_push(a, DT_I32, rows, cols);
    op_put(d, t, from);
    return t;
}

void pictures_put(Pictures *out, Dev *dev, Arena *a, const Picture *const *pics, int n, const Dims *d) {
    PicturesShape s = { 0 };
    Mem mem = { 0 };
    for (int i = 0; i < n; i++) pictures_add(&s, pics[i], d);
    *out = (Pictures){ .patches = s.patches, .tokens = s.tokens };
    out->pixels = tensor_push(a, dev->act, s.patches, d->vis.pixels);
    Putting x = { .d = d,
                  .dev = dev,
                  .pixels = out->pixels,
                  .stage = mem_array(&mem, STAGE_ROWS * (size_t)d->vis.pixels, 4),
                  .rounded = mem_array(&mem, STAGE_ROWS * (size_t)d->vis.pixels, dtype_size(dev->act)),
                  .pos = mem_array(&mem, (size_t)s.patches, 8),
                  .windows = MEM_ARRAY(&mem, int32_t, (size_t)s.windows + 1),
                  .frames = MEM_ARRAY(&mem, int32_t, (size_t)s.frames + 1) };
    for (int i = 0; i < n; i++) {
        x.p = pics[i];
        for (int t = 0; t < x.p->grid.t; t++, x.n_frames++)
            x.frames[x.n_frames + 1] = x.frames[x.n_frames] + x.p->grid.h * x.p->grid.w;
        each_block(x.p, d, put_block, &x);
    }
    flush(&x);
    out->pos = put_i32(dev, a, s.patches, 2, x.pos);
    out->windows = (Seqs){ s.windows, x.longest_window, put_i32(dev, a, s.windows + 1, 1, x.windows) };
    out->frames = (Seqs){ s.frames, s.longest, put_i32(dev, a, s.frames + 1, 1, x.frames) };
    mem_free(&mem);
}
