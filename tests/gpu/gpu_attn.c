/* gpu_attn.c - attention on a GPU, through the front doors.  The same sequences packed together, each alone, in
 * random chunks over shuffled pages, and row by row in decode batches of 1 to 300 have the same bits; values and
 * gradients against double; the same backward twice has the same bytes. */
#include "gpu/attn_shapes.h"

static int keys_seen(const Shape *s, int seq, int pos) { return s->all ? s->len[seq] : pos + 1; }

/* p and dp of one row, normalised; the log of the sum */
static double row_weights(const Shape *s, const Made *m, int seq, int pos, int h, double *p) {
    double top = -1e300, sum = 0;
    int n_keys = keys_seen(s, seq, pos);
    int64_t r = m->at[seq] + pos, g = h / (s->heads / s->kv);
    for (int j = 0; j < n_keys; j++) {
        const float *q = m->q + r * m->wq + h * s->dk, *k = m->k + (m->at[seq] + j) * m->wk + g * s->dk;
        p[j] = 0;
        for (int c = 0; c < s->dk; c++) p[j] += (double)q[c] * (double)k[c];
        p[j] *= (double)m->a.scale, top = fmax(top, p[j]);
    }
    for (int j = 0; j < n_keys; j++) p[j] = exp(p[j] - top), sum += p[j];
    for (int j = 0; j < n_keys; j++) p[j] /= sum;
    return top + log(sum);
}
/* sampled rows against double: distance of o over length of o, largest distance of lse */
static void values(const Shape *s, const Made *m) {
    float *o = floats(m->a.o), *lse = rig_get(&rig, m->a.lse);
    double *p = MEM_ARRAY(&rig.m, double, (size_t)m->T), off = 0, all = 0, worst_lse = 0;
    for (int i = 0; i < 60; i++) {
        int seq = pick(s->n), pos = pick(s->len[seq]), h = pick(s->heads);
        int64_t r = m->at[seq] + pos, g = h / (s->heads / s->kv);
        double l = row_weights(s, m, seq, pos, h, p);
        int n_keys = keys_seen(s, seq, pos);
        worst_lse = fmax(worst_lse, fabs(l - (double)lse[r * s->heads + h]));
        for (int c = 0; c < s->dv; c++) {
            double x = 0, y = (double)o[r * m->wo + h * s->dv + c];
            for (int j = 0; j < n_keys; j++) x += p[j] * (double)m->v[(m->at[seq] + j) * m->ldv + g * s->dv + c];
            off += (x - y) * (x - y), all += x * x;
        }
    }
    double e = sqrt(off / all);
    EXPECT(e < (act == DT_F32 ? 1e-6 : 3e-3), "%s: o is off by %.2e", s->name, e);
    EXPECT(worst_lse < (act == DT_F32 ? 1e-5 : 1e-4), "%s: lse is off by %.2e", s->name, worst_lse);
}

/* ---- the same bits, however it is cut ---------------------------------------------------------------------------- */
typedef struct {
    char *o, *lse;
    size_t row; /* bytes of a row of o */
} Bits;
static bool same(const Bits *b, const char *got, int64_t row, int64_t n) {
    return !memcmp(got, b->o + (size_t)row * b->row, (size_t)n * b->row);
}
static void alone(const Shape *s, const Made *m, const Bits *want) {
    for (int i = 0; i < s->n; i++) {
        Attn a = m->a;
        int32_t at[2] = { 0, s->len[i] };
        a.q = tensor_rows(a.q, m->at[i], s->len[i]), a.k = tensor_rows(a.k, m->at[i], s->len[i]);
        a.v = tensor_rows(a.v, m->at[i], s->len[i]);
        a.o = put(s->len[i], m->wo, 0, NULL), a.lse = rig_put(&rig, DT_F32, s->len[i], s->heads, NULL);
        a.seqs = (Seqs){ 1, s->len[i], put_i32(1, 2, at) };
        attend(s, &a);
        size_t n = (size_t)(s->len[i] * s->heads) * 4;
        EXPECT(same(want, rig_get(&rig, a.o), m->at[i], s->len[i])
                   && !memcmp(rig_get(&rig, a.lse), want->lse + (size_t)(m->at[i] * s->heads) * 4, n),
               "%s: a sequence of %d alone has other bits", s->name, s->len[i]);
    }
}

/* The heads of one rank at a time (E2): columns of the same tensors, and kv heads of which a
 * rank has its own, or a share of one. */
static void by_rank(const Shape *s, const Made *m, const Bits *want) {
    int group = s->heads / s->kv, wrong = 0;
    Tensor o = put(m->T, m->wo, 0, NULL);
    for (int tp = 2; tp <= 32 && s->heads % tp == 0; tp *= 2) {
        if (s->kv % tp && tp % s->kv) continue;
        for (int rank = 0; rank < tp; rank++) {
            Attn a = m->a;
            int64_t n = s->heads / tp, h0 = rank * n, kv = s->kv >= tp ? s->kv / tp : 1, k0 = h0 / group;
            a.heads = (int)n, a.kv_heads = (int)kv, a.lse = TENSOR_NONE;
            a.q = tensor_cols(a.q, h0 * s->dk, n * s->dk), a.o = tensor_cols(o, h0 * s->dv, n * s->dv);
            a.k = tensor_cols(a.k, k0 * s->dk, kv * s->dk), a.v = tensor_cols(a.v, k0 * s->dv, kv * s->dv);
            attend(s, &a);
        }
        wrong += !same(want, rig_get(&rig, o), 0, m->T);
        op_zero(&rig.d, o);
    }
    EXPECT(wrong == 0, "%s: heads cut over ranks have other bits, %d times", s->name, wrong);
}

typedef struct {
    Kv kv;
    int32_t *table;
    int columns; /* of the table: one more than is needed */
} Pool;
static Pool make_pool(const Shape *s, const Made *m) {
    int n = 0, first = 0;
    Pool p = { .kv = { .page = s->page, .kv_heads = s->kv, .dk = s->dk, .dv = s->dv, .latent = s->latent } };
    p.columns = (m->a.seqs.longest + s->page - 1) / s->page + 1;
    p.table = MEM_ARRAY(&rig.m, int32_t, (size_t)(s->n * p.columns));
    for (int i = 0; i < s->n; i++) n += (s->len[i] + s->page - 1) / s->page;
    int32_t *order = MEM_ARRAY(&rig.m, int32_t, (size_t)n);
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = pick(i + 1), x = order[i];
        order[i] = order[j], order[j] = x;
    }
    for (int i = 0; i < s->n; first += (s->len[i++] + s->page - 1) / s->page)
        memcpy(p.table + i * p.columns, order + first, (size_t)((s->len[i] + s->page - 1) / s->page) * 4);
    int64_t bytes = (int64_t)op_kv_bytes(&rig.d, &p.kv);
    unsigned char *dirt = mem_push(&rig.m, (size_t)(n * bytes));
    memset(dirt, 0xFF, (size_t)(n * bytes)); /* NaN: what lay in a page before must not matter */
    p.kv.pool = rig_put(&rig, DT_U8, n, bytes, dirt);
    return p;
}
/* Every sequence brings its next chunk of 1..300 (or 1..9) rows, until all have ended: prefill, all together. */
static void chunks(const Shape *s, const Made *m, const Pool *p, const Bits *want) {
    int done[12] = { 0 }, wrong = 0;
    for (int left = s->n; left > 0;) {
        int32_t at[13] = { 0 }, start[12], *table = MEM_ARRAY(&rig.m, int32_t, (size_t)(s->n * p->columns));
        int seq[12], n = 0, longest = 0, tensors = rig.n;
        size_t mark = arena_mark(&rig.a);
        for (int i = 0; i < s->n; i++) {
            int k = pick(4) || gpu_test_few ? 1 + pick(300) : 1 + pick(9);
            if (done[i] == s->len[i]) continue;
            if (k >= s->len[i] - done[i]) k = s->len[i] - done[i], left--;
            memcpy(table + n * p->columns, p->table + i * p->columns, (size_t)p->columns * 4);
            seq[n] = i, start[n] = done[i], at[n + 1] = at[n] + k, n++, done[i] += k;
            longest = k > longest ? k : longest;
        }
        int64_t R = at[n];
        float *q = MEM_ARRAY(&rig.m, float, (size_t)(R * m->wq)), *k = MEM_ARRAY(&rig.m, float, (size_t)(R * m->wk)),
              *v = MEM_ARRAY(&rig.m, float, (size_t)(R * m->wv));
        for (int i = 0; i < n; i++) {
            int64_t from = m->at[seq[i]] + start[i], rows = at[i + 1] - at[i];
            rows_in(q, at[i], m->q, from, rows, m->wq), rows_in(k, at[i], m->k, from, rows, m->wk);
            if (!s->latent) rows_in(v, at[i], m->v, from, rows, m->wv);
        }
        Paged pg = { { n, longest, put_i32(1, n + 1, at) }, put_i32(1, n, start), put_i32(n, p->columns, table) };
        Tensor o = put(R, m->wo, 0, NULL);
        op_kv_put(&rig.d, p->kv, put(R, m->wk, 0, k), s->latent ? TENSOR_NONE : put(R, m->wv, 0, v), pg);
        op_attend_kv(&rig.d, o, put(R, m->wq, 0, q), p->kv, pg, s->heads, m->a.scale);
        char *got = rig_get(&rig, o);
        for (int i = 0; i < n; i++)
            wrong += !same(want, got + (size_t)at[i] * want->row, m->at[seq[i]] + start[i], at[i + 1] - at[i]);
        EXPECT(rig_torn(&rig) == 0, "%s: guard bytes written by a chunk", s->name);
        rig.n = tensors;
        arena_pop(&rig.a, mark);
    }
    EXPECT(wrong == 0, "%s: %d chunks over pages of %d have other bits", s->name, wrong, s->page);
}
/* Captured, with its rows put before it: what comes early may only read what is older.  No row begins a page, which
 * would end what is there. */
static void decode_captured(const Shape *s, const Made *m, const Pool *p, const Bits *want, Paged pg, Tensor q,
                            Tensor o, const int32_t *row) {
    const int B = pg.rows.n;
    Tensor k[2], v[2] = { TENSOR_NONE, TENSOR_NONE }; /* others, and the right ones */
    for (int t = 0; t < 2; t++) {
        float *ks = noise(B * m->wk, 1), *vs = noise(B * m->wv, 1);
        for (int i = 0; i < B && t; i++) {
            rows_in(ks, i, m->k, row[i], 1, m->wk);
            if (!s->latent) rows_in(vs, i, m->v, row[i], 1, m->wv);
        }
        k[t] = put(B, m->wk, 0, ks);
        if (!s->latent) v[t] = put(B, m->wv, 0, vs);
    }
    void *step = NULL;
    int wrong = 0;
    for (int turn = 0; turn < 3; turn++) {
        op_kv_put(&rig.d, p->kv, k[0], v[0], pg), op_zero(&rig.d, o);
        if (!turn) {
            rig.d.ops->record(&rig.d);
            op_kv_put(&rig.d, p->kv, k[1], v[1], pg);
            op_attend_kv(&rig.d, o, q, p->kv, pg, s->heads, m->a.scale);
            step = rig.d.ops->recorded(&rig.d);
        }
        rig.d.ops->replay(&rig.d, step);
        char *got = rig_get(&rig, o);
        for (int i = 0; i < B; i++) wrong += !same(want, got + (size_t)i * want->row, row[i], 1);
    }
    rig.d.ops->forget(&rig.d, step);
    EXPECT(wrong == 0, "%s: %d rows of a noted decode batch of %d have other bits", s->name, wrong, B);
}
/* One row a sequence; sequences come more than once in a batch, so tables share pages. */
static void decode(const Shape *s, const Made *m, const Pool *p, const Bits *want, int B) {
    int32_t *at = MEM_ARRAY(&rig.m, int32_t, (size_t)B + 1), *start = MEM_ARRAY(&rig.m, int32_t, (size_t)B),
            *table = MEM_ARRAY(&rig.m, int32_t, (size_t)(B * p->columns)), *row = MEM_ARRAY(&rig.m, int32_t, (size_t)B);
    float *q = MEM_ARRAY(&rig.m, float, (size_t)(B * m->wq));
    int wrong = 0, tensors = rig.n;
    bool apart = true; /* as in a step: pages with new rows are one sequence's */
    size_t mark = arena_mark(&rig.a);
    for (int i = 0; i < B; i++) {
        int seq = pick(2) ? 0 : pick(s->n), len = s->len[seq], pos = pick(len);
        if (pick(2)) pos = 64 * pick(len / 64 + 1) + pick(5) - 2; /* around the ends of blocks and spans */
        pos = pos < 0 ? 0 : pos >= len ? len - 1 : pos;
        at[i + 1] = i + 1, start[i] = pos, row[i] = m->at[seq] + pos, apart &= pos % s->page != 0;
        for (int j = 0; j < i; j++) apart &= row[j] < m->at[seq] || row[j] >= m->at[seq] + len;
        memcpy(table + i * p->columns, p->table + seq * p->columns, (size_t)p->columns * 4);
        rows_in(q, i, m->q, row[i], 1, m->wq);
    }
    Paged pg = { { B, 1, put_i32(1, B + 1, at) }, put_i32(1, B, start), put_i32(B, p->columns, table) };
    Tensor o = put(B, m->wo, 0, NULL), queries = put(B, m->wq, 0, q);
    op_attend_kv(&rig.d, o, queries, p->kv, pg, s->heads, m->a.scale);
    char *got = rig_get(&rig, o);
    for (int i = 0; i < B; i++) wrong += !same(want, got + (size_t)i * want->row, row[i], 1);
    EXPECT(wrong == 0, "%s: %d rows of a decode batch of %d have other bits", s->name, wrong, B);
    if (apart) decode_captured(s, m, p, want, pg, queries, o, row);
    EXPECT(rig_torn(&rig) == 0, "%s: guard bytes written by decode", s->name);
    rig.n = tensors;
    arena_pop(&rig.a, mark);
}
static void exact(const Shape *s) {
    static const int batch[] = { 1, 2, 3, 7, 16, 31, 64, 100, 256, 300 };
    Made m = make(s, 8);
    attend(s, &m.a);
    Bits b = { rig_get(&rig, m.a.o), rig_get(&rig, m.a.lse), (size_t)m.wo * dtype_size(act) };
    values(s, &m);
    alone(s, &m, &b);
    by_rank(s, &m, &b);
    if (s->all) { /* no pages */
        clear(s->name);
        return;
    }
    Pool p = make_pool(s, &m);
    chunks(s, &m, &p, &b);
    for (size_t i = 0; i < COUNT(batch); i += gpu_test_few ? 4 : 1) decode(s, &m, &p, &b, batch[i]);
    clear(s->name);
}

/* ---- gradients --------------------------------------------------------------------------------------------------- */
static double distance(const float *x, const double *y, int64_t n) {
    double off = 0, all = 0;
    for (int64_t i = 0; i < n; i++) off += ((double)x[i] - y[i]) * ((double)x[i] - y[i]), all += y[i] * y[i];
    return sqrt(off / all);
}
static void row_gradients(const Shape *s, const Made *m, const float *dO, int seq, int pos, int h, double *p,
                          double *dq, double *dk, double *dv) {
    int64_t r = m->at[seq] + pos, g = h / (s->heads / s->kv);
    const float *d = dO + r * m->wo + h * s->dv, *q = m->q + r * m->wq + h * s->dk;
    double *dp = p + m->T, sum = 0;
    int n_keys = keys_seen(s, seq, pos);
    row_weights(s, m, seq, pos, h, p);
    for (int j = 0; j < n_keys; j++) {
        const float *v = m->v + (m->at[seq] + j) * m->ldv + g * s->dv;
        dp[j] = 0;
        for (int c = 0; c < s->dv; c++) dp[j] += (double)d[c] * (double)v[c];
        sum += p[j] * dp[j];
    }
    for (int j = 0; j < n_keys; j++) {
        int64_t y = m->at[seq] + j;
        double ds = p[j] * (dp[j] - sum) * (double)m->a.scale;
        for (int c = 0; c < s->dk; c++) {
            dq[r * m->wq + h * s->dk + c] += ds * (double)m->k[y * m->wk + g * s->dk + c];
            dk[y * m->wk + g * s->dk + c] += ds * (double)q[c];
        }
        for (int c = 0; c < s->dv; c++) dv[y * m->wv + g * s->dv + c] += p[j] * (double)d[c];
    }
}
static void gradients(const Shape *s) {
    Made m = make(s, 8);
    float *dO = noise(m.T * m.wo, 1);
    Tensor tdo = put(m.T, m.wo, 8, dO), d[2][3];
    int64_t width[3] = { m.wq, m.wk, m.wv };
    attend(s, &m.a);
    for (int turn = 0; turn < 2; turn++) {
        for (int i = 0; i < 3; i++) d[turn][i] = put(m.T, width[i], turn ? 8 : 0, NULL);
        attend_bwd(s, d[turn][0], d[turn][1], d[turn][2], tdo, &m.a);
    }
    double *want[3], *p = MEM_ARRAY(&rig.m, double, (size_t)m.T * 2);
    for (int i = 0; i < 3; i++) want[i] = MEM_ARRAY(&rig.m, double, (size_t)(m.T * width[i]));
    for (int seq = 0; seq < s->n; seq++)
        for (int pos = 0; pos < s->len[seq]; pos++)
            for (int h = 0; h < s->heads; h++) row_gradients(s, &m, dO, seq, pos, h, p, want[0], want[1], want[2]);
    for (int i = 0; i < 3; i++) {
        double e = distance(floats(d[0][i]), want[i], m.T * width[i]);
        EXPECT(e < (act == DT_F32 ? 2e-6 : 4e-3), "%s: %s is off by %.2e", s->name, name[i], e);
        EXPECT(!memcmp(rig_get(&rig, d[0][i]), rig_get(&rig, d[1][i]), (size_t)(m.T * width[i]) * dtype_size(act)),
               "%s: %s has other bits the second time", s->name, name[i]);
    }
    last_alone(s, &m, tdo, d[0]);
    clear(s->name);
}
static const Shape plain[] = {
    { "8/8", 4, 2, 8, 8, false, 16, 10, { 200, 1, 63, 64, 65, 129, 17, 333, 16, 15 }, 2 },
    { "16/24", 6, 2, 16, 24, false, 48, 10, { 200, 1, 63, 64, 65, 129, 17, 333, 16, 15 }, 2 },
    { "40/32 latent", 4, 1, 40, 32, true, 32, 10, { 200, 1, 63, 64, 65, 129, 17, 333, 16, 15 }, 2 },
    { "80/80", 3, 3, 80, 80, false, 16, 6, { 200, 1, 63, 64, 65, 129 }, 1 },
    { "192/128", 2, 2, 192, 128, false, 64, 6, { 200, 1, 63, 64, 65, 129 }, 1 },
};
static const Shape wide = { "576/512 plain", 2, 1, 576, 512, true, 64, 4, { 200, 1, 63, 65 }, 1 };
#define MIXED                                                                                                          \
    10, { 2000, 1, 127, 128, 129, 1023, 1025, 640, 1999, 333 }
static const Shape fast[] = {
    { "128, 8 of 1", 8, 1, 128, 128, false, 64, MIXED, 1 },
    { "128, 2 of 2", 2, 2, 128, 128, false, 128, MIXED, 4 },
    { "128, 7 of 1", 7, 1, 128, 128, false, 64, MIXED, 2 },
    { "64, 14 of 2", 14, 2, 64, 64, false, 64, MIXED, 1 },
    { "64, 12 of 4", 12, 4, 64, 64, false, 48, MIXED, 4 },
    { "128, 10 of 2", 10, 2, 128, 128, false, 16, MIXED, 8 },
    { "128, 40 of 2", 40, 2, 128, 128, false, 256, MIXED, 1 },
    { "mla 16", 16, 1, 576, 512, true, 64, 7, { 4500, 1, 63, 64, 65, 1023, 700 }, 1 },
    { "mla 20", 20, 1, 576, 512, true, 32, 5, { 2200, 1, 63, 65, 130 }, 2 },
    { "mla 128", 128, 1, 576, 512, true, 64, 4, { 2100, 1, 63, 65 }, 6 },
};
#define SHORT                                                                                                          \
    5, { 130, 1, 64, 65, 90 }
static const Shape back[] = {
    { "8/8", 4, 2, 8, 8, false, 16, SHORT, 2 },
    { "16/24", 6, 2, 16, 24, false, 16, SHORT, 2 },
    { "80/80", 3, 3, 80, 80, false, 16, SHORT, 1 },
    { "64, 14 of 2", 14, 2, 64, 64, false, 64, SHORT, 1 },
    { "64, 7 of 1", 7, 1, 64, 64, false, 64, 4, { 333, 17, 128, 200 }, 3 },
    { "128, 4 of 4", 4, 4, 128, 128, false, 64, SHORT, 1 },
    { "128, 10 of 2", 10, 2, 128, 128, false, 64, SHORT, 2 },
    { "128, 8 of 1", 8, 1, 128, 128, false, 64, 4, { 333, 17, 128, 200 }, 1 },
    { "192/128, 2 of 2", 2, 2, 192, 128, false, 64, SHORT, 1 },
    { "192/128, 6 of 2", 6, 2, 192, 128, false, 64, 4, { 333, 17, 128, 200 }, 2 },
    { "576/512", 2, 1, 576, 512, false, 64, 3, { 70, 1, 65 }, 1 },
};
/* dk and dv of the fast kernels in several spans of rows; as one chain of float32, as the plain ones have it, so many
 * heads of a group are beyond the bounds above */
static const Shape back_spans[] = {
    { "64, spans", 64, 1, 64, 64, false, 64, 3, { 280, 17, 150 }, 1 },
    { "128, spans", 32, 1, 128, 128, false, 64, 3, { 280, 17, 270 }, 1 },
};
/* Without a mask: windows of a tower, whole frames, and both.  Heads of 80 columns have
 * tensor cores, the others do not. */
static const Shape unmasked[] = {
    { "80, windows", 16, 16, 80, 80, false, 16, 10, { 64, 64, 64, 48, 16, 64, 4, 64, 8, 60 }, 1, true },
    { "80, frames", 16, 16, 80, 80, false, 16, 4, { 1300, 333, 64, 129 }, 1, true },
    { "80, one long", 2, 2, 80, 80, false, 16, 3, { 3000, 1, 1100 }, 4, true },
    { "80, 6 of 2", 6, 2, 80, 80, false, 16, SHORT, 2, true },
    { "16/16, all", 3, 3, 16, 16, false, 16, SHORT, 1, true },
    { "16/24, 6 of 2, all", 6, 2, 16, 24, false, 16, SHORT, 1, true },
};
static const Shape unmasked_back[] = {
    { "80, windows", 4, 4, 80, 80, false, 16, 10, { 64, 64, 64, 48, 16, 64, 4, 64, 8, 60 }, 1, true },
    { "80, frames", 2, 2, 80, 80, false, 16, 4, { 333, 1, 64, 260 }, 1, true },
    { "80, 6 of 2", 6, 2, 80, 80, false, 16, SHORT, 2, true },
    { "16/16, all", 3, 3, 16, 16, false, 16, SHORT, 1, true },
    { "16/24, 6 of 2, all", 6, 2, 16, 24, false, 16, SHORT, 1, true },
};
/* Every kernel once, on shapes small enough for a sanitizer. */
static const Shape few[] = {
    { "128, few", 2, 1, 128, 128, false, 16, 3, { 1030, 1, 129 }, 1 },
    { "64, few", 3, 1, 64, 64, false, 64, 3, { 1030, 1, 129 }, 1 },
    { "mla, few", 2, 1, 576, 512, true, 64, 2, { 2060, 65 }, 1 },
    { "16/24, few", 6, 2, 16, 24, false, 48, 3, { 90, 1, 65 }, 2 },
    { "all, windows", 4, 4, 80, 80, false, 16, 4, { 64, 48, 64, 4 }, 1, true },
    { "all, frames", 2, 2, 80, 80, false, 16, 3, { 1100, 1, 129 }, 1, true },
};
static const Shape few_back[] = {
    { "128, few", 4, 2, 128, 128, false, 16, 3, { 150, 1, 67 }, 1 },
    { "64, few", 6, 2, 64, 64, false, 64, 3, { 250, 1, 67 }, 1 },
    { "64, few, spans", 64, 1, 64, 64, false, 64, 2, { 140, 3 }, 1 },
    { "192/128, few", 2, 2, 192, 128, false, 64, 3, { 150, 1, 67 }, 1 },
    { "16/24, few", 6, 2, 16, 24, false, 48, 3, { 70, 1, 33 }, 2 },
    { "all, few", 2, 2, 80, 80, false, 16, 3, { 150, 1, 67 }, 1, true },
};
/* ---- pieces of sequences, with all keys, as ranks have them ------------------------------------------------------ */
/* Two ranks have pieces {0, 3} and {1, 2} of four of every sequence.  o, lse and dq have the
 * bits of the whole; dk and dv of both ranks add up to it. */
static void pieces(const Shape *s) {
    Made m = make(s, 8);
    Tensor tdo = put(m.T, m.wo, 8, noise(m.T * m.wo, 1)), dq = put(m.T, m.wq, 0, NULL), dk = put(m.T, m.wk, 0, NULL),
           dv = put(m.T, m.wv, 0, NULL), sum[2][2];
    bool learns = !s->latent;
    op_attend(&rig.d, &m.a);
    if (learns) op_attend_bwd(&rig.d, dq, dk, dv, tdo, &m.a);
    for (int rank = 0; rank < 2; rank++) {
        int32_t at[25] = { 0 }, from[24], start[24], row[24];
        int n = 0, longest = 0;
        for (int k = 0; k < 4; k++)
            for (int i = 0; i < s->n && (k == rank || k == 3 - rank); i++) {
                int p0 = s->len[i] * k / 4, p1 = s->len[i] * (k + 1) / 4;
                if (p0 == p1) continue;
                from[n] = m.at[i], start[n] = p0, row[n] = m.at[i] + p0, at[n + 1] = at[n] + p1 - p0, n++;
                longest = p1 - p0 > longest ? p1 - p0 : longest;
            }
        int64_t T = at[n];
        Attn a = m.a;
        a.q = put(T, m.wq, 8, NULL), a.o = put(T, m.wo, 8, NULL), a.lse = rig_put(&rig, DT_F32, T, s->heads, NULL);
        a.seqs = (Seqs){ n, longest, put_i32(1, n + 1, at) }, a.from = put_i32(n, 1, from),
        a.start = put_i32(n, 1, start);
        Tensor o = put(T, m.wo, 0, NULL), lse = rig_put(&rig, DT_F32, T, s->heads, NULL),
               own_do = put(T, m.wo, 8, NULL);
        Tensor own_dq = put(T, m.wq, 8, NULL), want = put(T, m.wq, 0, NULL);
        for (int i = 0; i < n; i++) {
            int64_t r = row[i], k = at[i + 1] - at[i];
            op_copy(&rig.d, tensor_rows(a.q, at[i], k), tensor_rows(m.a.q, r, k));
            op_copy(&rig.d, tensor_rows(own_do, at[i], k), tensor_rows(tdo, r, k));
            op_copy(&rig.d, tensor_rows(o, at[i], k), tensor_rows(m.a.o, r, k));
            op_copy(&rig.d, tensor_rows(lse, at[i], k), tensor_rows(m.a.lse, r, k));
            op_copy(&rig.d, tensor_rows(want, at[i], k), tensor_rows(dq, r, k));
        }
        op_attend(&rig.d, &a);
        EXPECT(!memcmp(rig_get(&rig, a.o), rig_get(&rig, o), tensor_bytes(act, T, m.wo)),
               "%s: o of pieces has other bits", s->name);
        EXPECT(!memcmp(rig_get(&rig, a.lse), rig_get(&rig, lse), tensor_bytes(DT_F32, T, s->heads)),
               "%s: lse of pieces has other bits", s->name);
        if (!learns) continue;
        sum[rank][0] = put(m.T, m.wk, 0, NULL), sum[rank][1] = put(m.T, m.wv, 8, NULL);
        size_t said = rig.d.ops->tmp.attend_bwd(&rig.d, own_dq, sum[rank][0], sum[rank][1], own_do, &a);
        rig.d.tmp.peak = 0;
        op_attend_bwd(&rig.d, own_dq, sum[rank][0], sum[rank][1], own_do, &a);
        EXPECT(rig.d.tmp.peak <= said, "%s: %zu bytes of tmp, %zu were said", s->name, rig.d.tmp.peak, said);
        EXPECT(!memcmp(rig_get(&rig, own_dq), rig_get(&rig, want), tensor_bytes(act, T, m.wq)),
               "%s: dq of pieces has other bits", s->name);
    }
    for (int i = 0; learns && i < 2; i++) {
        Tensor whole = i ? dv : dk;
        int64_t n = whole.rows * whole.cols;
        float *x = floats(whole), *a = floats(sum[0][i]), *b = floats(sum[1][i]);
        double off = 0, all = 0;
        for (int64_t j = 0; j < n; j++) {
            double e = (double)a[j] + (double)b[j] - (double)x[j];
            off += e * e, all += (double)x[j] * (double)x[j];
        }
        EXPECT(sqrt(off / all) < (act == DT_BF16 ? 6e-3 : 1e-6),
               "%s: %s of two ranks is %.1e of its norm off the whole", s->name, i ? "dv" : "dk", sqrt(off / all));
    }
    clear(s->name);
}

static void pieces_of(const Shape *s) {
    if (!s->all) pieces(s);
}
int gpu_attn_brief(int argc, char **argv);
int gpu_attn_brief(int argc, char **argv) {
    if (argc > 1) asked_for = argv[1];
    open_gpu(DT_BF16);
    each(few, exact);
    each(few_back, gradients);
    each(few_back, pieces_of);
    dev_close(&rig.d);
    return test_end();
}

int gpu_attn(int argc, char **argv) {
    if (argc > 1) asked_for = argv[1];
    for (int a = 0; a < 2; a++) {
        open_gpu(a ? DT_BF16 : DT_F32);
        each(plain, exact);
        each(back, gradients);
        each(back, pieces);
        each(unmasked, exact);
        each(unmasked_back, gradients);
        if (!a && strstr(wide.name, asked_for)) exact(&wide);
        if (!a) dev_close(&rig.d);
    }
    each(fast, exact);
    each(fast, pieces);
    each(back_spans, gradients);
    each(back_spans, pieces);
    dev_close(&rig.d);
    return test_end();
}
