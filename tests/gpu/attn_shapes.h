/* attn_shapes.h - what tests of attention on a GPU share: shapes, tensors of them, and a sequence that is alone. */
#ifndef TESTS_GPU_ATTN_SHAPES_H
#define TESTS_GPU_ATTN_SHAPES_H

#include "op/optest.h"

typedef struct {
    const char *name;
    int heads, kv, dk, dv;
    bool latent;
    int page, n, len[12];
    float peak; /* scale of q: flat to peaked attention */
    bool all;   /* no mask */
} Shape;

static Rig rig; /* one device a process: seconds of a GPU are dear */
static DType act;
static inline void open_gpu(DType a) {
    Err err;
    act = a;
    CHECK(dev_open_cuda(&rig.d, (CudaOpts){ .threads = 4, .act = a, .raw = gpu_test_few }, NULL, &err), "%s", err.msg);
    rig.a = dev_arena(&rig.d, "test", (size_t)(gpu_test_few ? 96 : 6144) << 20);
    rig.d.tmp = dev_arena(&rig.d, "tmp", (size_t)(gpu_test_few ? 48 : 1024) << 20);
}
static inline void clear(const char *what) {
    EXPECT(rig_torn(&rig) == 0, "%s: guard bytes behind a tensor, or between its rows, were written", what);
    EXPECT(rig.d.tmp.used == 0, "%s: tmp is not empty", what);
    rig.n = 0, rig.a.used = 0;
    mem_free(&rig.m);
}
static inline void attend(const Shape *s, const Attn *a) { (s->all ? op_attend_all : op_attend)(&rig.d, a); }
static inline void attend_bwd(const Shape *s, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    (s->all ? op_attend_all_bwd : op_attend_bwd)(&rig.d, dq, dk, dv, dO, a);
}
static uint64_t seed = 1;
static inline int pick(int n) { return (int)(mix(++seed) % (uint64_t)n); }

/* ---- tensors: floats on the host that are what the device holds -------------------------------------------------- */
static inline float *noise(int64_t n, float scale) {
    float *x = MEM_ARRAY(&rig.m, float, (size_t)n + 1);
    ++seed;
    for (int64_t i = 0; i < n; i++) { /* near normal: tails matter to a softmax */
        x[i] = 0;
        for (uint64_t k = 0; k < 4; k++) x[i] += rnd(seed, (uint64_t)i * 4 + k, scale * .866f);
    }
    if (act == DT_BF16) bf16s(&rig.m, x, n);
    return x;
}
static inline Tensor put(int64_t rows, int64_t cols, int64_t gap, const float *x) {
    const void *from = x;
    if (x && act == DT_BF16) from = bf16s(&rig.m, mem_copy(&rig.m, x, (size_t)(rows * cols) * 4), rows * cols);
    return rig_put_ld(&rig, act, rows, cols, cols + gap, from);
}
static inline Tensor put_i32(int64_t rows, int64_t cols, const int32_t *x) {
    return rig_put(&rig, DT_I32, rows, cols, x);
}
static inline float *floats(Tensor t) {
    int64_t n = t.rows * t.cols;
    uint16_t *h = rig_get(&rig, t);
    if (t.dtype == DT_F32) return (float *)(void *)h;
    float *x = MEM_ARRAY(&rig.m, float, (size_t)n + 1);
    for (int64_t i = 0; i < n; i++) {
        uint32_t u = (uint32_t)h[i] << 16;
        memcpy(&x[i], &u, 4);
    }
    return x;
}

/* ---- a shape made ------------------------------------------------------------------------------------------------ */
typedef struct {
    Attn a;
    float *q, *k, *v;
    int64_t wq, wk, wv, wo, ldv; /* columns; of v on the host */
    int32_t at[13];
    int T;
} Made;
static inline Made make(const Shape *s, int64_t gap) {
    Made m = { .wq = (int64_t)s->heads * s->dk,
               .wk = (int64_t)s->kv * s->dk,
               .wv = (int64_t)s->kv * s->dv,
               .wo = (int64_t)s->heads * s->dv };
    int longest = 0;
    for (int i = 0; i < s->n; i++)
        m.at[i + 1] = m.at[i] + s->len[i], longest = s->len[i] > longest ? s->len[i] : longest;
    m.T = m.at[s->n];
    m.q = noise(m.T * m.wq, s->peak), m.k = noise(m.T * m.wk, 1), m.v = s->latent ? m.k : noise(m.T * m.wv, 1);
    m.ldv = s->latent ? m.wk : m.wv;
    Tensor k = put(m.T, m.wk, gap, m.k);
    m.a = (Attn){ .q = put(m.T, m.wq, gap, m.q),
                  .k = k,
                  .v = s->latent ? tensor_cols(k, 0, s->dv) : put(m.T, m.wv, gap, m.v),
                  .o = put(m.T, m.wo, gap, NULL),
                  .lse = rig_put(&rig, DT_F32, m.T, s->heads, NULL),
                  .seqs = { s->n, longest, put_i32(1, s->n + 1, m.at) },
                  .heads = s->heads,
                  .kv_heads = s->kv,
                  .dk = s->dk,
                  .dv = s->dv,
                  .scale = 1 / sqrtf((float)s->dk) };
    return m;
}

/* rows [from, from + n) of a host array, to row 'to' of another */
static inline void rows_in(float *x, int64_t to, const float *y, int64_t from, int64_t n, int64_t w) {
    memcpy(x + to * w, y + from * w, (size_t)(n * w) * 4);
}
static const char *const name[] = { "dq", "dk", "dv" };
/* The last sequence forward and backward, whose bits are those of all together; d: their gradients. */
static inline void last_alone(const Shape *s, const Made *m, Tensor tdo, const Tensor *d) {
    int n = s->len[s->n - 1], r0 = m->at[s->n - 1];
    int32_t at[2] = { 0, n };
    int64_t width[3] = { m->wq, m->wk, m->wv };
    Attn a = m->a;
    Tensor one[3] = { put(n, m->wq, 0, NULL), put(n, m->wk, 0, NULL), put(n, m->wv, 0, NULL) };
    a.q = tensor_rows(a.q, r0, n), a.k = tensor_rows(a.k, r0, n), a.v = tensor_rows(a.v, r0, n);
    a.o = put(n, m->wo, 8, NULL), a.lse = rig_put(&rig, DT_F32, n, s->heads, NULL);
    a.seqs = (Seqs){ 1, n, put_i32(1, 2, at) };
    attend(s, &a);
    EXPECT(!memcmp(rig_get(&rig, a.o), rig_get(&rig, tensor_rows(m->a.o, r0, n)), tensor_bytes(act, n, m->wo)),
           "%s: o of a sequence alone has other bits", s->name);
    attend_bwd(s, one[0], one[1], one[2], tensor_rows(tdo, r0, n), &a);
    for (int i = 0; i < 3; i++)
        EXPECT(!memcmp(rig_get(&rig, one[i]), rig_get(&rig, tensor_rows(d[i], r0, n)), tensor_bytes(act, n, width[i])),
               "%s: %s of a sequence alone has other bits", s->name, name[i]);
}

/* each(SHAPES, RUN): of those whose names hold what the command line asks for */
static const char *asked_for = "";
#define each(shapes, run)                                                                                              \
    for (size_t i = 0; i < COUNT(shapes); i++)                                                                         \
        if (strstr(shapes[i].name, asked_for)) run(&shapes[i])

#endif
