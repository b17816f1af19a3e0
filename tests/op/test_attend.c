/* test_attend.c - rule 4: attention over packed sequences and over pages.  Values and gradients against
 * double; packed == paged in chunks of 1, 7, 64, 100 over shuffled pages of 16, 48, 64, 128; every
 * instruction set, thread count and tile. */
#include "optest.h"

typedef struct {
    int heads, kv, dk, dv, n, len[8];
    bool latent; /* v is the first dv columns of k */
    bool all;    /* attend_all: no mask */
} Shape;
static void attend(Rig *r, const Shape *s, const Attn *a) { (s->all ? op_attend_all : op_attend)(&r->d, a); }
static void attend_bwd(Rig *r, const Shape *s, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    (s->all ? op_attend_all_bwd : op_attend_bwd)(&r->d, dq, dk, dv, dO, a);
}
static int total(const Shape *s) {
    int t = 0;
    for (int i = 0; i < s->n; i++) t += s->len[i];
    return t;
}

/* In double: o, and loss = sum c . o */
typedef struct {
    const Shape *s;
    double *q, *k, *v, scale;
    const float *c;
} Fn;
static void eval(const Fn *f, double *o, double *lse) {
    const Shape *s = f->s;
    int at = 0;
    for (int i = 0; i < s->n; at += s->len[i++])
        for (int t = 0; t < s->len[i]; t++)
            for (int h = 0; h < s->heads; h++) {
                int g = h / (s->heads / s->kv);
                double sc[4096], m = -1e300, z = 0;
                int last = s->all ? s->len[i] - 1 : t;
                for (int j = 0; j <= last; j++) {
                    sc[j] = 0;
                    for (int d = 0; d < s->dk; d++)
                        sc[j] += f->q[((at + t) * s->heads + h) * s->dk + d] * f->k[((at + j) * s->kv + g) * s->dk + d];
                    sc[j] *= f->scale, m = fmax(m, sc[j]);
                }
                for (int j = 0; j <= last; j++) z += exp(sc[j] - m);
                for (int d = 0; d < s->dv; d++) {
                    double x = 0;
                    for (int j = 0; j <= last; j++)
                        x += exp(sc[j] - m) / z
                             * (s->latent ? f->k[((at + j) * s->kv + g) * s->dk + d]
                                          : f->v[((at + j) * s->kv + g) * s->dv + d]);
                    o[((at + t) * s->heads + h) * s->dv + d] = x;
                }
                if (lse) lse[(at + t) * s->heads + h] = m + log(z);
            }
}
static double loss(void *arg) {
    const Fn *f = arg;
    Mem m = { 0 };
    int n = total(f->s) * f->s->heads * f->s->dv;
    double *o = MEM_ARRAY(&m, double, (size_t)n), l = 0;
    eval(f, o, NULL);
    for (int i = 0; i < n; i++) l += (double)f->c[i] * o[i];
    mem_free(&m);
    return l;
}

typedef struct {
    Attn a;
    float *q, *k, *v, *c;
} Made;
static Made make(Rig *r, const Shape *s) {
    int T = total(s);
    int32_t at[9] = { 0 }, longest = 0;
    for (int i = 0; i < s->n; i++) at[i + 1] = at[i] + s->len[i], longest = s->len[i] > longest ? s->len[i] : longest;
    Made m = { .q = rnds(&r->m, T * s->heads * s->dk, 1, 2),
               .k = rnds(&r->m, T * s->kv * s->dk, 2, 2),
               .v = rnds(&r->m, T * s->kv * s->dv, 3, 2),
               .c = rnds(&r->m, T * s->heads * s->dv, 4, 1) };
    Tensor k = rig_put_ld(r, DT_F32, T, s->kv * s->dk, s->kv * s->dk + 2, m.k);
    m.a = (Attn){
        .q = rig_put_ld(r, DT_F32, T, s->heads * s->dk, s->heads * s->dk + 5, m.q),
        .k = k,
        .v = s->latent ? tensor_cols(k, 0, s->dv) : rig_put(r, DT_F32, T, s->kv * s->dv, m.v),
        .o = rig_put_ld(r, DT_F32, T, s->heads * s->dv, s->heads * s->dv + 3, NULL),
        .lse = rig_put(r, DT_F32, T, s->heads, NULL),
        .seqs = { s->n, longest, rig_put(r, DT_I32, 1, s->n + 1, at) },
        .heads = s->heads,
        .kv_heads = s->kv,
        .dk = s->dk,
        .dv = s->dv,
        .scale = 0.3f,
    };
    return m;
}

static void gradients(const Shape *s) {
    Rig r;
    rig_open(&r, 2, ISA_BEST, 16 << 20);
    int T = total(s), nq = T * s->heads * s->dk, nk = T * s->kv * s->dk, nv = T * s->kv * s->dv,
        no = T * s->heads * s->dv;
    Made m = make(&r, s);
    Fn f = { s, doubles(&r.m, m.q, nq), doubles(&r.m, m.k, nk), doubles(&r.m, m.v, nv), (double)0.3f, m.c };
    double *o = MEM_ARRAY(&r.m, double, (size_t)no), *lse = MEM_ARRAY(&r.m, double, (size_t)(T * s->heads));
    eval(&f, o, lse);
    attend(&r, s, &m.a);
    EXPECT_GRAD(&r, "attend", (float *)rig_get(&r, m.a.o), o, no, 2e-6);
    EXPECT_GRAD(&r, "attend's lse", (float *)rig_get(&r, m.a.lse), lse, T * s->heads, 2e-6);
    Tensor dq = rig_put_ld(&r, DT_F32, T, s->heads * s->dk, s->heads * s->dk + 1, NULL),
           dk = rig_put(&r, DT_F32, T, s->kv * s->dk, NULL);
    Tensor dv = rig_put_ld(&r, DT_F32, T, s->kv * s->dv, s->kv * s->dv + 2, NULL);
    attend_bwd(&r, s, dq, dk, dv, rig_put(&r, DT_F32, T, s->heads * s->dv, m.c), &m.a);
    float *gk = rig_get(&r, dk), *gv = rig_get(&r, dv);
    if (s->latent) /* k is both: its gradient is the sum */
        for (int i = 0; i < T * s->kv; i++)
            for (int d = 0; d < s->dv; d++) gk[i * s->dk + d] += gv[i * s->dv + d];
    EXPECT_GRAD(&r, "attend's dq", (float *)rig_get(&r, dq), differences(&r.m, f.q, nq, loss, &f), nq, 1e-5);
    EXPECT_GRAD(&r, "attend's dk", gk, differences(&r.m, f.k, nk, loss, &f), nk, 1e-5);
    if (!s->latent) EXPECT_GRAD(&r, "attend's dv", gv, differences(&r.m, f.v, nv, loss, &f), nv, 1e-5);
    rig_close(&r);
}

/* o, lse, dq, dk, dv as bytes */
static float *forward_backward(Rig *r, const Shape *s, size_t *bytes) {
    int T = total(s);
    Made m = make(r, s);
    Tensor t[5] = { m.a.o, m.a.lse, rig_put(r, DT_F32, T, s->heads * s->dk, NULL),
                    rig_put(r, DT_F32, T, s->kv * s->dk, NULL), rig_put(r, DT_F32, T, s->kv * s->dv, NULL) };
    attend(r, s, &m.a);
    attend_bwd(r, s, t[2], t[3], t[4], rig_put(r, DT_F32, T, s->heads * s->dv, m.c), &m.a);
    Buf b = { 0 };
    for (int i = 0; i < 5; i++) buf_put(&b, rig_get(r, t[i]), tensor_bytes(DT_F32, t[i].rows, t[i].cols));
    float *all = mem_copy(&r->m, b.data, b.n);
    *bytes = b.n;
    buf_free(&b);
    return all;
}
static void bits(const Shape *s) {
    static const int threads[] = { 1, 2, 3, 7 };
    Rig ref;
    rig_open(&ref, 1, ISA_C, 16 << 20);
    size_t n, m;
    float *want = forward_backward(&ref, s, &n);
    EACH_ISA(isa)
    for (size_t i = 0; i < COUNT(threads); i++) {
        Rig r;
        rig_open(&r, threads[i], isa, 16 << 20);
        float *got = forward_backward(&r, s, &m);
        EXPECT(m == n && !memcmp(got, want, n), "attend %d/%d heads of %d: isa %d, %d threads", s->heads, s->kv, s->dk,
               isa, threads[i]);
        rig_close(&r);
    }
    rig_close(&ref);
}

/* Every sequence by itself has the bits that it has among others. */
static void alone(const Shape *s) {
    Rig r;
    rig_open(&r, 2, ISA_BEST, 16 << 20);
    int T = total(s), at = 0;
    Made m = make(&r, s);
    Tensor dq = rig_put(&r, DT_F32, T, s->heads * s->dk, NULL), dk = rig_put(&r, DT_F32, T, s->kv * s->dk, NULL),
           dv = rig_put(&r, DT_F32, T, s->kv * s->dv, NULL), dO = rig_put(&r, DT_F32, T, s->heads * s->dv, m.c);
    attend(&r, s, &m.a);
    attend_bwd(&r, s, dq, dk, dv, dO, &m.a);
    for (int i = 0; i < s->n; at += s->len[i++]) {
        int n = s->len[i];
        int32_t border[2] = { 0, n };
        Attn a = m.a;
        a.q = tensor_rows(a.q, at, n), a.k = tensor_rows(a.k, at, n), a.v = tensor_rows(a.v, at, n);
        a.o = rig_put(&r, DT_F32, n, s->heads * s->dv, NULL), a.lse = rig_put(&r, DT_F32, n, s->heads, NULL);
        a.seqs = (Seqs){ 1, n, rig_put(&r, DT_I32, 1, 2, border) };
        Tensor own[3] = { rig_put(&r, DT_F32, n, dq.cols, NULL), rig_put(&r, DT_F32, n, dk.cols, NULL),
                          rig_put(&r, DT_F32, n, dv.cols, NULL) };
        attend(&r, s, &a);
        attend_bwd(&r, s, own[0], own[1], own[2], tensor_rows(dO, at, n), &a);
        Tensor got[] = { a.o, a.lse, own[0], own[1], own[2] }, all[] = { m.a.o, m.a.lse, dq, dk, dv };
        for (int k = 0; k < 5; k++)
            EXPECT(!memcmp(rig_get(&r, got[k]), rig_get(&r, tensor_rows(all[k], at, n)),
                           tensor_bytes(DT_F32, n, got[k].cols)),
                   "sequence %d of %d alone: result %d differs", i, s->n, k);
    }
    rig_close(&r);
}

/* The same sequences over pages, in chunks, must give the packed bits. */
static void pages(const Shape *s, int isa, int page, int chunk) {
    Rig r;
    rig_open(&r, 2, isa, 64 << 20);
    int T = total(s), most = 0;
    Made m = make(&r, s);
    op_attend(&r.d, &m.a);
    float *want = rig_get(&r, m.a.o), *got = MEM_ARRAY(&r.m, float, (size_t)(T * s->heads * s->dv));
    for (int i = 0; i < s->n; i++) most = s->len[i] > most ? s->len[i] : most;
    int per = (most + page - 1) / page, np = per * s->n;
    int32_t *table = MEM_ARRAY(&r.m, int32_t, (size_t)np);
    for (int i = 0; i < np; i++) table[i] = i;
    for (int i = np - 1; i > 0; i--) { /* shuffled, so that no two neighbours lie together */
        int j = (int)(mix((uint64_t)i) % (uint64_t)(i + 1));
        int32_t x = table[i];
        table[i] = table[j], table[j] = x;
    }
    Kv kv = { .page = page, .kv_heads = s->kv, .dk = s->dk, .dv = s->dv, .latent = s->latent };
    int64_t bytes = (int64_t)op_kv_bytes(&r.d, &kv);
    unsigned char *dirt = mem_push(&r.m, (size_t)(np * bytes));
    memset(dirt, 0xFF, (size_t)(np * bytes)); /* NaN everywhere that is not written */
    kv.pool = rig_put(&r, DT_U8, np, bytes, dirt);
    Tensor tt = rig_put(&r, DT_I32, s->n, per, table);
    for (int p0 = 0; p0 < most; p0 += chunk) { /* all sequences together, each its next chunk; short ones drop out */
        int32_t at[9] = { 0 }, start[8];
        Mem tmp = { 0 };
        int longest = 0, rows = 0;
        for (int i = 0; i < s->n; i++) {
            int n = s->len[i] - p0 < 0 ? 0 : s->len[i] - p0 < chunk ? s->len[i] - p0 : chunk;
            at[i + 1] = at[i] + n, start[i] = p0 < s->len[i] ? p0 : s->len[i], longest = n > longest ? n : longest;
        }
        rows = at[s->n];
        float *q = MEM_ARRAY(&tmp, float, (size_t)(rows * s->heads * s->dk)),
              *k = MEM_ARRAY(&tmp, float, (size_t)(rows * s->kv * s->dk));
        float *v = MEM_ARRAY(&tmp, float, (size_t)(rows * s->kv * s->dv));
        for (int i = 0, base = 0; i < s->n; base += s->len[i++]) {
            size_t n = (size_t)(at[i + 1] - at[i]) * 4;
            memcpy(q + at[i] * s->heads * s->dk, m.q + (base + start[i]) * s->heads * s->dk,
                   n * (size_t)(s->heads * s->dk));
            memcpy(k + at[i] * s->kv * s->dk, m.k + (base + start[i]) * s->kv * s->dk, n * (size_t)(s->kv * s->dk));
            memcpy(v + at[i] * s->kv * s->dv, m.v + (base + start[i]) * s->kv * s->dv, n * (size_t)(s->kv * s->dv));
        }
        size_t mark = arena_mark(&r.a);
        int nt = r.n;
        Paged pg = { { s->n, longest, rig_put(&r, DT_I32, 1, s->n + 1, at) }, rig_put(&r, DT_I32, s->n, 1, start), tt };
        Tensor o = rig_put(&r, DT_F32, rows, s->heads * s->dv, NULL);
        op_kv_put(&r.d, kv, rig_put(&r, DT_F32, rows, s->kv * s->dk, k),
                  s->latent ? TENSOR_NONE : rig_put(&r, DT_F32, rows, s->kv * s->dv, v), pg);
        op_attend_kv(&r.d, o, rig_put(&r, DT_F32, rows, s->heads * s->dk, q), kv, pg, s->heads, 0.3f);
        float *go = rig_get(&r, o);
        for (int i = 0, base = 0; i < s->n; base += s->len[i++])
            memcpy(got + (base + start[i]) * s->heads * s->dv, go + at[i] * s->heads * s->dv,
                   (size_t)((at[i + 1] - at[i]) * s->heads * s->dv) * 4);
        EXPECT(p0 > 0 || rig_torn(&r) == 0, "guard bytes written while paging");
        r.n = nt;
        arena_pop(&r.a, mark);
        mem_free(&tmp);
    }
    EXPECT(!memcmp(got, want, (size_t)(T * s->heads * s->dv) * 4),
           "attend_kv != attend: pages of %d, chunks of %d, isa %d, %d/%d heads of %d", page, chunk, isa, s->heads,
           s->kv, s->dk);
    if (np > 1) { /* a page copied is that page */
        op_kv_copy(&r.d, kv, table[0], table[1]);
        unsigned char *all = rig_get(&r, kv.pool);
        EXPECT(!memcmp(all + table[0] * bytes, all + table[1] * bytes, (size_t)bytes), "kv_copy");
    }
    rig_close(&r);
}

/* One long sequence among thousands of one token: the work is that of the rows, not of sequences times the longest
 * (which was too many tasks for the threads).  Each has the bits it has alone. */
static void ragged(void) {
    enum { HEADS = 64, D = 16, SHORT = 9000, LONG = 3000, AT = 4000, N = SHORT + 1, T = SHORT + LONG };
    Rig r;
    rig_open(&r, 3, ISA_BEST, (size_t)T * HEADS * D * 4 * 5);
    int32_t *at = MEM_ARRAY(&r.m, int32_t, N + 1), one[2] = { 0, LONG };
    for (int i = 0; i < N; i++) at[i + 1] = at[i] + (i == AT ? LONG : 1);
    float *q = rnds(&r.m, (int64_t)T * HEADS * D, 1, 2), *k = rnds(&r.m, (int64_t)T * D, 2, 2),
          *v = rnds(&r.m, (int64_t)T * D, 3, 2);
    Attn a = { .q = rig_put(&r, DT_F32, T, HEADS * D, q),
               .k = rig_put(&r, DT_F32, T, D, k),
               .v = rig_put(&r, DT_F32, T, D, v),
               .o = rig_put(&r, DT_F32, T, HEADS * D, NULL),
               .lse = rig_put(&r, DT_F32, T, HEADS, NULL),
               .seqs = { N, LONG, rig_put(&r, DT_I32, 1, N + 1, at) },
               .heads = HEADS,
               .kv_heads = 1,
               .dk = D,
               .dv = D,
               .scale = 0.3f };
    Tensor dq = rig_put(&r, DT_F32, T, HEADS * D, NULL), dk = rig_put(&r, DT_F32, T, D, NULL),
           dv = rig_put(&r, DT_F32, T, D, NULL);
    op_attend(&r.d, &a);
    op_attend_bwd(&r.d, dq, dk, dv, a.q, &a);
    float *o = rig_get(&r, a.o), *gq = rig_get(&r, dq), *gk = rig_get(&r, dk), *gv = rig_get(&r, dv);
    int wrong = 0;
    for (int t = 0; t < T; t++) /* a token that sees itself alone: its value */
        for (int i = 0; i < HEADS * D && (t < AT || t >= AT + LONG); i++)
            wrong += o[t * HEADS * D + i] != v[t * D + i % D];
    EXPECT(!wrong, "%d numbers of sequences of one token are not their value", wrong);
    Attn b = a;
    b.q = tensor_rows(a.q, AT, LONG), b.k = tensor_rows(a.k, AT, LONG), b.v = tensor_rows(a.v, AT, LONG);
    b.o = tensor_rows(a.o, AT, LONG), b.lse = tensor_rows(a.lse, AT, LONG);
    b.seqs = (Seqs){ 1, LONG, rig_put(&r, DT_I32, 1, 2, one) };
    op_zero(&r.d, a.o);
    op_attend(&r.d, &b);
    op_attend_bwd(&r.d, tensor_rows(dq, AT, LONG), tensor_rows(dk, AT, LONG), tensor_rows(dv, AT, LONG), b.q, &b);
    size_t at_q = (size_t)AT * HEADS * D, n_q = (size_t)LONG * HEADS * D * 4, at_k = (size_t)AT * D,
           n_k = (size_t)LONG * D * 4;
    EXPECT(!memcmp((float *)rig_get(&r, a.o) + at_q, o + at_q, n_q), "the long sequence alone: o");
    EXPECT(!memcmp((float *)rig_get(&r, dq) + at_q, gq + at_q, n_q), "the long sequence alone: dq");
    EXPECT(!memcmp((float *)rig_get(&r, dk) + at_k, gk + at_k, n_k), "the long sequence alone: dk");
    EXPECT(!memcmp((float *)rig_get(&r, dv) + at_k, gv + at_k, n_k), "the long sequence alone: dv");
    rig_close(&r);
}
/* More kv heads than a round of the backward has counters for: heads go one by one. */
static void many_heads(void) {
    static const Shape s = { 33000, 33000, 1, 1, 2, { 3, 200 }, false };
    static Shape one = { 1, 1, 1, 1, 2, { 3, 200 }, false };
    Rig r;
    int T = total(&s);
    rig_open(&r, 2, ISA_BEST, (size_t)T * 33000 * 4 * 9);
    Made m = make(&r, &s);
    Tensor dq = rig_put(&r, DT_F32, T, s.heads, NULL), dk = rig_put(&r, DT_F32, T, s.heads, NULL),
           dv = rig_put(&r, DT_F32, T, s.heads, NULL);
    op_attend(&r.d, &m.a);
    op_attend_bwd(&r.d, dq, dk, dv, m.a.q, &m.a);
    for (int h = 0; h < s.heads; h += 3299) {
        Attn b = m.a;
        b.q = tensor_cols(m.a.q, h, 1), b.k = tensor_cols(m.a.k, h, 1), b.v = tensor_cols(m.a.v, h, 1);
        b.o = tensor_cols(m.a.o, h, 1), b.lse = tensor_cols(m.a.lse, h, 1), b.heads = b.kv_heads = one.heads;
        Tensor x[3] = { rig_put(&r, DT_F32, T, 1, NULL), rig_put(&r, DT_F32, T, 1, NULL),
                        rig_put(&r, DT_F32, T, 1, NULL) };
        op_attend_bwd(&r.d, x[0], x[1], x[2], b.q, &b);
        bool same = !memcmp(rig_get(&r, x[0]), rig_get(&r, tensor_cols(dq, h, 1)), (size_t)T * 4)
                    && !memcmp(rig_get(&r, x[1]), rig_get(&r, tensor_cols(dk, h, 1)), (size_t)T * 4)
                    && !memcmp(rig_get(&r, x[2]), rig_get(&r, tensor_cols(dv, h, 1)), (size_t)T * 4);
        EXPECT(same, "head %d of %d has another gradient alone", h, s.heads);
    }
    rig_close(&r);
}

/* planted: keys taken in descending order are noticed */
static void planted(void) {
    Rig r;
    rig_open(&r, 1, ISA_BEST, 4 << 20);
    Shape s = { 1, 1, 16, 16, 1, { 40 }, false };
    Made m = make(&r, &s);
    op_attend(&r.d, &m.a);
    float *o = rig_get(&r, m.a.o);
    int differ = 0;
    for (int t = 1; t < 40; t++) {
        float sc[40], mx = -INFINITY, z = 0, x = 0;
        for (int j = 0; j <= t; j++) {
            sc[j] = 0;
            for (int d = 0; d < 16; d++) sc[j] = fmaf(m.q[t * 16 + d] * 0.3f, m.k[j * 16 + d], sc[j]);
            mx = fmaxf(mx, sc[j]);
        }
        for (int j = t; j >= 0; j--) z += expf(sc[j] - mx), x = fmaf(expf(sc[j] - mx), m.v[j * 16], x);
        differ += x * (1 / z) != o[t * 16];
    }
    EXPECT(differ > 0, "keys in descending order give the same bits");
    rig_close(&r);
}

int main(int argc, char **argv) {
    optest_begin(argc, argv);
    static const Shape small[] = { { 4, 2, 8, 12, 3, { 5, 9, 1 }, false },
                                   { 3, 3, 16, 16, 2, { 7, 3 }, false },
                                   { 2, 1, 20, 16, 2, { 6, 4 }, true } };
    static const Shape mid[] = {
        { 4, 2, 24, 20, 3, { 70, 1, 150 }, false }, { 6, 6, 16, 16, 2, { 65, 200 }, false },
        { 3, 1, 72, 64, 2, { 130, 40 }, true },     { 4, 2, 16, 16, 7, { 0, 0, 100, 0, 257, 1, 0 }, false },
        { 1, 1, 1, 1, 3, { 0, 1, 0 }, false },      { 2, 1, 8, 8, 2, { 0, 0 }, false }
    };
    static const Shape span = { 2, 1, 16, 16, 1, { 2200 }, false };
    static const int page[] = { 16, 48, 64, 128 }, chunk[] = { 1, 7, 64, 100 };
    if (argc == 2 && !strcmp(argv[1], "--bits")) { /* forward and backward on any number of threads, and no more */
        for (size_t i = 0; i < COUNT(mid); i++) bits(&mid[i]);
        return test_end();
    }
    /* the first two for gradients: small, since differences take a forward each, and one longer than a tile */
    static const Shape unmasked[] = { { 2, 2, 12, 12, 4, { 11, 6, 3, 1 }, .all = true },
                                      { 1, 1, 4, 5, 2, { 7, 70 }, .all = true },
                                      { 3, 3, 8, 16, 2, { 7, 70 }, .all = true },
                                      { 2, 2, 80, 80, 7, { 64, 0, 130, 16, 1, 257, 64 }, .all = true } };
    for (size_t i = 0; i < COUNT(small); i++) gradients(&small[i]);
    for (size_t i = 0; i < 2 && on_cpu(); i++) gradients(&unmasked[i]);
    for (size_t i = 0; i < COUNT(unmasked) && on_cpu(); i++) bits(&unmasked[i]), alone(&unmasked[i]);
    for (size_t i = 0; i < COUNT(mid); i++) {
        if (on_cpu()) bits(&mid[i]);
        for (int p = 0; p < 4; p++)
            for (int c = on_cpu() ? 0 : p; c < (on_cpu() ? 4 : p + 1); c++)
                pages(&mid[i], c == 1 ? ISA_AVX2 <= cpu_isa_best() ? ISA_AVX2 : ISA_C : ISA_BEST, page[p], chunk[c]);
    }
    pages(&span, ISA_BEST, 64, 100); /* more than one span of 2048 keys */
    pages(&span, ISA_BEST, 48, 513);
    pages(&span, ISA_BEST, 64,
          5); /* spans apart on two threads: few rows, many rows, and one sequence shorter than a span */
    pages(&(Shape){ 16, 1, 24, 16, 2, { 2100, 70 }, true }, ISA_BEST, 64, 6);
    ragged();
    many_heads();
    planted();
    return test_end();
}
