/* gpu_tiles.c - products, whose tiles are counted out (op/cuda/sm90/gemm.cuh): the same bits for every kind and edge of
 * a product alone, again, while other kernels hold up to 40 of the multiprocessors, in a list that is replayed, and on
 * two devices at once.
 *   gpu_tiles [-- bits]    bits: only what one device gives, as one number: to be held against that of a card with
 *                          fewer multiprocessors, whose tiles are others */
#include "op/optest.h"

#include "../../bench/waiting.h"
#include "base/hash.h"
#include "op/op_fused.h"

enum { FIRST, SECOND, THIRD, SIDES };
typedef struct {
    Dev d[SIDES];
    Arena a;
    Mem m;
    Waiting w;
    bool alone; /* one device, no waiting */
    uint64_t seed, hash;
    char *want, *got;
} All;
enum { MOST = 128 << 20 }; /* bytes of a result */

static void put_noise(All *q, int side, Tensor x, uint64_t seed) {
    op_normals(&q->d[side], x, (Normals){ .seed = seed, .ld = x.cols, .std = 1 });
}
static Tensor noise(All *q, DType t, int64_t rows, int64_t cols) {
    Tensor x = tensor_push(&q->a, t, rows, cols);
    put_noise(q, FIRST, x, ++q->seed);
    return x;
}
typedef struct {
    Tensor y, x, w, b, dx, dw, lp, ent, dlp, dent, part;
    Tensor ys[3], dys[3], ws[3], bs[3];
    Leaves in, out, outs[3];
    Seqs ex;
    HeadMap map;
    Head head;
} Run;
typedef void Call(Dev *d, const Run *r);
static void linear(Dev *d, const Run *r) { op_linear(d, r->y, r->x, r->w, r->b, r->in); }
static void linear3(Dev *d, const Run *r) { op_linear3(d, r->ys, r->x, r->ws, r->bs, leaves_one(r->x.cols)); }
static void linear_dx(Dev *d, const Run *r) { op_linear_dx(d, r->dx, r->y, r->w, r->out); }
static void linear_dx3(Dev *d, const Run *r) { op_linear_dx3(d, r->dx, r->part, r->dys, r->ws, r->outs); }
static void linear_dw(Dev *d, const Run *r) { op_linear_dw(d, r->dw, TENSOR_NONE, r->y, r->x); }
static void linear_dw_first(Dev *d, const Run *r) { op_linear_dw_first(d, r->dw, TENSOR_NONE, r->y, r->x); }
static void grouped(Dev *d, const Run *r) { op_grouped(d, r->y, r->x, r->w, r->ex, r->in); }
static void grouped_dx(Dev *d, const Run *r) { op_grouped_dx(d, r->dx, r->y, r->w, r->ex, r->out); }
static void grouped_dx2(Dev *d, const Run *r) {
    op_grouped_dx2(d, r->dx, r->part, r->dys[0], r->ws[0], r->dys[1], r->ws[1], r->ex, leaves_one(r->dys[0].cols));
}
static void grouped_dw(Dev *d, const Run *r) { op_grouped_dw(d, r->dw, r->y, r->x, r->ex); }
static void grouped_dw_first(Dev *d, const Run *r) { op_grouped_dw_first(d, r->dw, r->y, r->x, r->ex); }
static void headwise(Dev *d, const Run *r) { op_headwise(d, r->y, r->x, r->w, r->map); }
static void headwise_dw(Dev *d, const Run *r) { op_headwise_dw(d, r->dw, r->y, r->x, r->map); }
static void score(Dev *d, const Run *r) { op_logprob(d, &r->head); }
static void back(Dev *d, const Run *r) { op_logprob_bwd(d, r->dx, r->dw, r->dlp, r->dent, &r->head); }

static size_t bytes_of(Tensor x) { return tensor_bytes(x.dtype, x.rows, x.cols); }
static char *bits(All *q, int side, Call *call, const Run *r, Tensor out, char *to) {
    put_noise(q, side, out, 77); /* the same: some are added to */
    call(&q->d[side], r);
    op_get(&q->d[side], to, out);
    return to;
}
static void held(All *q, const char *what, Call *call, const Run *r, Tensor out) {
    static const int waits[] = { 0, 0, 2, 16, 40 };
    const size_t n = bytes_of(out);
    CHECK(n <= MOST, "%s: %zu bytes", what, n);
    bits(q, FIRST, call, r, out, q->want);
    q->hash = hash_ids(q->hash, (int32_t *)(void *)q->want, n / 4);
    for (size_t i = 0; i < COUNT(waits) && !q->alone; i++) {
        waiting_begin(&q->w, waits[i]);
        bool same = !memcmp(q->want, bits(q, SECOND, call, r, out, q->got), n);
        if (waits[i]) waiting_end(&q->w);
        EXPECT(same, "%s [%ld,%ld] of %ld rows, %ld to %ld, beside %d that wait: other bits", what, (long)out.rows,
               (long)out.cols, (long)r->x.rows, (long)r->x.cols, (long)r->y.cols, waits[i]);
    }
    if (q->alone) test_passed++;
}

static Leaves cut(int64_t cols, int of) { return cols / 16 >= of ? leaves_all(of, cols / 16, 16) : leaves_one(cols); }
static void dense(All *q, int64_t T, int64_t O, int64_t I, int of, DType t) {
    const size_t mark = arena_mark(&q->a);
    const bool cuts = of > 1 && O % 16 == 0 && I % 16 == 0;
    Run r = { .x = noise(q, DT_BF16, T, I),
              .w = noise(q, DT_BF16, O, I),
              .b = noise(q, DT_F32, 1, O),
              .y = noise(q, DT_BF16, T, O),
              .dw = noise(q, DT_F32, O, I),
              .in = cuts ? cut(I, of) : leaves_one(I),
              .out = cuts ? cut(O, of) : leaves_one(O) };
    Run f = r, b = r;
    f.y = noise(q, t, T, O), b.dx = noise(q, t, T, I);
    held(q, "linear", linear, &f, f.y), held(q, "linear_dx", linear_dx, &b, b.dx);
    if (of == 1 && t == DT_BF16)
        held(q, "linear_dw", linear_dw, &r, r.dw), held(q, "linear_dw_first", linear_dw_first, &r, r.dw);
    arena_pop(&q->a, mark);
}
/* q, k and v: weights one behind the other */
static void joined(All *q, int64_t T, int64_t O, int64_t I) {
    const size_t mark = arena_mark(&q->a);
    const int64_t wide[] = { O, 64, 128 };
    Run r = { .x = noise(q, DT_BF16, T, I), .dx = noise(q, DT_BF16, T, I), .part = noise(q, DT_BF16, T, I) };
    Tensor w = noise(q, DT_BF16, O + 192, I), b = noise(q, DT_F32, 1, O + 192);
    Tensor y = noise(q, DT_BF16, 1, T * (O + 192)); /* one result */
    for (int64_t i = 0, at = 0; i < 3; at += wide[i++]) {
        r.ys[i] = tensor_over((char *)y.data + T * at * 2, DT_BF16, T, wide[i]);
        r.dys[i] = noise(q, DT_BF16, T, wide[i]);
        r.ws[i] = tensor_rows(w, at, wide[i]), r.bs[i] = tensor_cols(b, at, wide[i]), r.outs[i] = leaves_one(wide[i]);
    }
    held(q, "linear3", linear3, &r, y), held(q, "linear_dx3", linear_dx3, &r, r.dx);
    arena_pop(&q->a, mark);
}
/* Rows of experts: all the same, or of this list in turn; of one they are all. */
static void experts(All *q, int E, int each, int64_t O, int64_t I, int of) {
    static const int some[] = { 0, 129, 1, 0, 128, 300, 127, 0, 64, 7, 2000, 65 };
    const size_t mark = arena_mark(&q->a);
    int32_t *at = MEM_ARRAY(&q->m, int32_t, (size_t)E + 1);
    for (int e = 0; e < E; e++) at[e + 1] = at[e] + (each >= 0 ? each : some[e % (int)COUNT(some)]);
    const int64_t T = at[E];
    const bool cuts = of > 1 && O % 16 == 0 && I % 16 == 0;
    Run r = { .x = noise(q, DT_BF16, T, I),
              .w = noise(q, DT_BF16, 2 * E * O, I),
              .y = noise(q, DT_BF16, T, O),
              .dx = noise(q, DT_BF16, T, I),
              .part = noise(q, DT_BF16, T, I),
              .dw = noise(q, DT_F32, E * O, I),
              .ex = { E, (int)T, tensor_push(&q->a, DT_I32, 1, E + 1) },
              .in = cuts ? cut(I, of) : leaves_one(I),
              .out = cuts ? cut(O, of) : leaves_one(O) };
    op_put(&q->d[FIRST], r.ex.at, at);
    r.ws[0] = tensor_rows(r.w, 0, E * O), r.ws[1] = tensor_rows(r.w, E * O, E * O);
    r.w = r.ws[0], r.dys[0] = r.y, r.dys[1] = noise(q, DT_BF16, T, O);
    Run f = r;
    f.y = noise(q, DT_BF16, T, O);
    held(q, "grouped", grouped, &f, f.y), held(q, "grouped_dx", grouped_dx, &r, r.dx);
    if (of == 1) {
        held(q, "grouped_dx2", grouped_dx2, &r, r.dx), held(q, "grouped_dw", grouped_dw, &r, r.dw);
        held(q, "grouped_dw_first", grouped_dw_first, &r, r.dw);
    }
    arena_pop(&q->a, mark);
}
static void heads(All *q, int64_t T, int n, int in, int out, bool turned) {
    const size_t mark = arena_mark(&q->a);
    HeadMap m = { .heads = n, .in = in, .out = out, .turned = turned, .x_width = in + 8, .y_width = out + 16 };
    m.w_rows = turned ? in : out;
    Run r = { .x = noise(q, DT_BF16, T, (int64_t)n * m.x_width),
              .w = noise(q, DT_BF16, (int64_t)n * m.w_rows, turned ? out : in),
              .y = noise(q, DT_BF16, T, (int64_t)n * m.y_width),
              .dw = noise(q, DT_F32, (int64_t)n * m.w_rows, turned ? out : in),
              .map = m };
    held(q, "headwise_dw", headwise_dw, &r, r.dw), held(q, "headwise", headwise, &r, r.y);
    arena_pop(&q->a, mark);
}
static void head(All *q, int64_t T, int64_t V, int64_t H) {
    const size_t mark = arena_mark(&q->a);
    int32_t *ids = MEM_ARRAY(&q->m, int32_t, (size_t)T);
    for (int64_t t = 0; t < T; t++) ids[t] = (int32_t)(t * 7919 % V);
    Tensor two = noise(q, DT_F32, 2, T);
    Run r = { .dx = noise(q, DT_BF16, T, H),
              .dw = noise(q, DT_F32, V, H),
              .dlp = noise(q, DT_F32, T, 1),
              .dent = noise(q, DT_F32, T, 1) };
    r.head = (Head){ .h = noise(q, DT_BF16, T, H),
                     .w = noise(q, DT_BF16, V, H),
                     .ids = tensor_push(&q->a, DT_I32, T, 1),
                     .lp = tensor_over(two.data, DT_F32, T, 1),
                     .ent = tensor_over((float *)two.data + T, DT_F32, T, 1),
                     .stat = tensor_push(&q->a, DT_U8, T, HEAD_STAT) };
    op_put(&q->d[FIRST], r.head.ids, ids);
    held(q, "logprob", score, &r, two), held(q, "logprob_bwd, dh", back, &r, r.dx), held(q, "dw", back, &r, r.dw);
    arena_pop(&q->a, mark);
}

/* A list that is replayed takes no more tiles than once; two devices take none of each other's. */
static void lists_and_two(All *q) {
    enum { T = 1000, O = 2112, I = 1024, E = 12, TIMES = 60 };
    static const int some[] = { 0, 129, 1, 0, 128, 300, 127, 0, 64, 7, 2000, 65 };
    int32_t at[E + 1] = { 0 };
    for (int e = 0; e < E; e++) at[e + 1] = at[e] + some[e];
    Run r[SIDES];
    char *want[3], *got = q->got;
    for (int s = 0; s < SIDES; s++) {
        uint64_t seed = q->seed;
        r[s] = (Run){ .x = noise(q, DT_BF16, at[E], I),
                      .w = noise(q, DT_BF16, E * O, I),
                      .y = noise(q, DT_BF16, at[E], O),
                      .dx = noise(q, DT_BF16, at[E], I),
                      .dw = noise(q, DT_F32, E * O, I),
                      .ex = { E, at[E], tensor_push(&q->a, DT_I32, 1, E + 1) },
                      .in = leaves_one(I),
                      .out = leaves_one(O) };
        op_put(&q->d[FIRST], r[s].ex.at, at);
        q->seed = s + 1 < SIDES ? seed : q->seed;
    }
    op_get(&q->d[FIRST], got, tensor_over(r[0].ex.at.data, DT_I32, 1, 1)); /* all is there */
    for (int s = 0; s < SIDES; s++) { /* all kernels are loaded, and the first's results are what is wanted */
        grouped(&q->d[s], &r[s]), grouped_dx(&q->d[s], &r[s]), grouped_dw_first(&q->d[s], &r[s]);
        op_get(&q->d[s], got, tensor_over(r[s].ex.at.data, DT_I32, 1, 1));
    }
    Tensor outs[] = { r[0].y, r[0].dx, r[0].dw };
    for (int i = 0; i < 3; i++) CHECK(bytes_of(outs[i]) <= MOST, "a result of %zu bytes", bytes_of(outs[i]));
    for (int i = 0; i < 3; i++)
        want[i] = MEM_ARRAY(&q->m, char, bytes_of(outs[i])), op_get(&q->d[FIRST], want[i], outs[i]);
    for (int k = 0; k < TIMES; k++)
        for (int s = SECOND; s < SIDES; s++)
            grouped(&q->d[s], &r[s]), grouped_dx(&q->d[s], &r[s]), grouped_dw_first(&q->d[s], &r[s]);
    for (int s = SECOND; s < SIDES; s++) {
        Tensor out[] = { r[s].y, r[s].dx, r[s].dw };
        for (int i = 0; i < 3; i++) {
            op_get(&q->d[s], got, out[i]);
            EXPECT(!memcmp(want[i], got, bytes_of(out[i])), "two devices at once, product %d of %d: other bits", i, s);
        }
    }
    Dev *d = &q->d[SECOND];
    const Run *c = &r[SECOND];
    for (int i = 0; i < 3; i++) put_noise(q, SECOND, (Tensor[]){ c->y, c->dx, c->dw }[i], 5);
    put_noise(q, SECOND, c->y, 5);
    d->ops->record(d);
    for (int k = 0; k < 3; k++) grouped(d, c), grouped_dx(d, c);
    void *list = d->ops->recorded(d);
    for (int k = 0; k < 5; k++) d->ops->replay(d, list);
    op_get(d, got, c->y);
    EXPECT(!memcmp(want[0], got, bytes_of(c->y)), "a list that is replayed, forward: other bits");
    op_get(d, got, c->dx);
    EXPECT(!memcmp(want[1], got, bytes_of(c->dx)), "a list that is replayed, dx: other bits");
    d->ops->forget(d, list);
}

int gpu_tiles(int argc, char **argv) {
    static const int rows[] = { 1, 64, 65, 127, 128, 129, 256, 257, 300, 513, 1000, 2111, 4096 };
    static const int wide[][2] = { { 8, 8 },      { 72, 136 },   { 128, 64 },   { 136, 200 },
                                   { 256, 256 },  { 264, 1000 }, { 1000, 264 }, { 2112, 512 },
                                   { 512, 2112 }, { 2048, 8 },   { 3072, 1536 } };
    static All q;
    Err err;
    CudaOpts o = { .act = DT_BF16, .threads = 2 };
    q.alone = argc > 1 && !strcmp(argv[1], "bits");
    if (argc > 1 && !q.alone) return 2;
    CHECK(dev_open_cuda(&q.d[FIRST], o, NULL, &err), "%s", err.msg);
    const int sides = q.alone ? 1 : SIDES;
    for (int s = SECOND; s < sides; s++) CHECK(dev_open_cuda(&q.d[s], o, NULL, &err), "%s", err.msg);
    if (!q.alone) waiting_open(&q.w);
    q.a = dev_arena(&q.d[FIRST], "test", (size_t)2 << 30);
    for (int s = 0; s < sides; s++) q.d[s].tmp = dev_arena(&q.d[s], "tmp", (size_t)1 << 30);
    q.want = MEM_ARRAY(&q.m, char, MOST), q.got = MEM_ARRAY(&q.m, char, MOST);
    q.hash = HASH_START;
    for (size_t i = 0; i < COUNT(rows); i++)
        for (size_t k = 0; k < COUNT(wide); k++) {
            dense(&q, rows[i], wide[k][0], wide[k][1], 1, DT_BF16);
            if ((i + k) % 3 == 0) dense(&q, rows[i], wide[k][0], wide[k][1], 1, DT_F32);
            for (int of = 2; of <= 32; of *= 4)
                if ((i + k) % 4 == 1) dense(&q, rows[i], wide[k][0], wide[k][1], of, of == 8 ? DT_F32 : DT_BF16);
        }
    dense(&q, 200, 5000, 2000, 1, DT_BF16), dense(&q, 64, 5000, 2000, 1, DT_BF16); /* tall tiles of dw */
    dense(&q, 4096, 2112, 7168, 1, DT_BF16), dense(&q, 512, 4096, 3200, 1, DT_BF16);
    for (size_t i = 2; i < COUNT(rows); i += 2) joined(&q, rows[i], 1024, 512), joined(&q, rows[i], 512, 264);
    for (int of = 1; of <= 8; of *= 8) {
        experts(&q, 12, -1, 264, 512, of), experts(&q, 12, -1, 256, 1024, of), experts(&q, 1, 300, 512, 256, of);
        experts(&q, 40, -1, 128, 192, of), experts(&q, 300, 9, 128, 64, of), experts(&q, 7, 0, 128, 64, of);
        experts(&q, 8, 513, 768, 1024, of), experts(&q, 24, 32, 512, 512, of);
    }
    for (int i = 0; i < 2; i++) heads(&q, 1000, 16, 512, 128, i), heads(&q, 129, 3, 64, 200, i);
    head(&q, 300, 5000, 512), head(&q, 129, 40000, 128);
    if (!q.alone) lists_and_two(&q);
    if (q.alone) printf("bits %016llx on %d\n", (unsigned long long)q.hash, multiprocessors());
    for (int s = 0; s < sides; s++) dev_close(&q.d[s]);
    mem_free(&q.m);
    return test_end();
}
