/* state.c - ops that remember: short filters over a sequence's rows, and the delta rule as the plain recurrence, which
 * gives a token the same bits however its sequence came in pieces.  Every element is one chain: taps from the oldest,
 * sums over dk and over tokens ascending. */
#include "op/cpu/cpu.h"

#include <math.h>
#include <string.h>

static int64_t row_at(const Seqs *s, int i) { return *i32_row(s->at, i); }
/* Where sequence i of the call keeps what this op remembers, NULL: nowhere; *fresh: nothing is remembered yet. */
static float *slot_of(const Remembered *r, int i, bool *fresh) {
    *fresh = !r->state.data || *i32_row(r->start, i) == 0;
    return r->state.data ? f32_row(r->state, *i32_row(r->slot, i)) + r->from : NULL;
}

/* ---- filters: a unit is some columns of one sequence */
enum { TAPS = 16, COLS = 64 };
typedef struct {
    Tensor y, x, w, dy, dw;
    Remembered r;
} Conv;
static float tap(Tensor w, int64_t c, int64_t i) {
    if (w.dtype == DT_F32) return f32_row(w, c)[i];
    uint32_t u = (uint32_t)((const uint16_t *)w.data)[c * w.ld + i] << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
/* sums over taps of row t, columns c0..c0+n: rows before the sequence's r0 are in 'old' (oldest first, wide apart). */
static void filtered(float *z, const Conv *p, const float (*w)[COLS], const float *old, int64_t wide, int64_t r0,
                     int64_t t, int64_t c0, int64_t n) {
    int64_t taps = p->w.cols;
    memset(z, 0, (size_t)n * 4);
    for (int64_t i = 0; i < taps; i++) {
        int64_t row = t - (taps - 1) + i;
        const float *x = row >= r0 ? f32_row(p->x, row) + c0 : old ? old + (row - r0 + taps - 1) * wide : NULL;
        for (int64_t c = 0; c < n; c++) z[c] = fmaf(w[i][c], x ? x[c] : 0, z[c]);
    }
}
static void weights(float (*w)[COLS], Tensor from, int64_t c0, int64_t n) {
    for (int64_t i = 0; i < from.cols; i++)
        for (int64_t c = 0; c < n; c++) w[i][c] = tap(from, c0 + c, i);
}
static void conv_units(const void *arg, int64_t u0, int64_t u1, const Kern *k, float *work) {
    const Conv *p = arg;
    int64_t blocks = (p->x.cols + COLS - 1) / COLS, C = p->x.cols, keep = p->w.cols - 1;
    float w[TAPS][COLS], z[COLS], one[COLS];
    (void)work;
    for (int c = 0; c < COLS; c++) one[c] = 1;
    for (int64_t u = u0; u < u1; u++) {
        int i = (int)(u / blocks);
        int64_t c0 = u % blocks * COLS, n = C - c0 < COLS ? C - c0 : COLS, r0 = row_at(&p->r.seqs, i),
                r1 = row_at(&p->r.seqs, i + 1);
        bool fresh;
        float *slot = slot_of(&p->r, i, &fresh);
        if (r0 == r1) continue;
        if (slot) slot += c0;
        weights(w, p->w, c0, n);
        for (int64_t t = r0; t < r1; t++) {
            filtered(z, p, (const float(*)[COLS])w, fresh ? NULL : slot, C, r0, t, c0, n);
            k->silu_mul(f32_row(p->y, t) + c0, z, one, n);
        }
        for (int64_t j = 0; slot && j < keep; j++) { /* ascending: what moves up is read before it is written */
            int64_t row = r1 - keep + j;
            if (row >= r0) memcpy(slot + j * C, f32_row(p->x, row) + c0, (size_t)n * 4);
            else if (fresh) memset(slot + j * C, 0, (size_t)n * 4);
            else memcpy(slot + j * C, slot + (j + r1 - r0) * C, (size_t)n * 4);
        }
    }
}
void cpu_conv(Dev *d, Tensor y, Tensor x, Tensor w, const Remembered *r) {
    Conv p = { .y = y, .x = x, .w = w, .r = *r };
    int64_t units = r->seqs.n * ((x.cols + COLS - 1) / COLS);
    if (units) cpu_rows(d, units, (double)x.rows / r->seqs.n * COLS * (double)w.cols / 4, conv_units, &p);
}
static void conv_bwd_cols(const void *arg, int64_t u0, int64_t u1, const Kern *k, float *work) {
    const Conv *p = arg;
    int64_t C = p->x.cols, taps = p->w.cols;
    float w[TAPS][COLS], dw[TAPS][COLS], z[COLS], one[COLS], none[COLS], dz[COLS];
    (void)work;
    for (int c = 0; c < COLS; c++) one[c] = 1;
    for (int64_t u = u0; u < u1; u++) {
        int64_t c0 = u * COLS, n = C - c0 < COLS ? C - c0 : COLS;
        weights(w, p->w, c0, n);
        if (p->dw.data) weights(dw, p->dw, c0, n);
        for (int i = 0; i < p->r.seqs.n; i++) {
            int64_t r0 = row_at(&p->r.seqs, i), r1 = row_at(&p->r.seqs, i + 1);
            for (int64_t t = r0; t < r1; t++) memset(f32_row(p->y, t) + c0, 0, (size_t)n * 4);
            for (int64_t t = r0; t < r1; t++) {
                filtered(z, p, (const float(*)[COLS])w, NULL, C, r0, t, c0, n);
                k->silu_bwd(dz, none, f32_row(p->dy, t) + c0, z, one, n);
                for (int64_t j = 0; j < taps; j++) {
                    int64_t row = t - (taps - 1) + j;
                    if (row < r0) continue;
                    float *dx = f32_row(p->y, row) + c0;
                    const float *x = f32_row(p->x, row) + c0;
                    for (int64_t c = 0; c < n; c++)
                        dx[c] = fmaf(w[j][c], dz[c], dx[c]), dw[j][c] = fmaf(dz[c], x[c], p->dw.data ? dw[j][c] : 0);
                }
            }
        }
        for (int64_t j = 0; p->dw.data && j < taps; j++)
            for (int64_t c = 0; c < n; c++) f32_row(p->dw, c0 + c)[j] = dw[j][c];
    }
}
void cpu_conv_bwd(Dev *d, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w, const Remembered *r) {
    Conv p = { .y = dx, .x = x, .w = w, .dy = dy, .dw = dw, .r = *r };
    cpu_rows(d, (x.cols + COLS - 1) / COLS, (double)x.rows * COLS * (double)w.cols, conv_bwd_cols, &p);
}

/* ---- the delta rule: a unit is one head of one sequence */
typedef struct {
    Tensor o;
    Delta x;
} Job;
typedef struct {
    const float *q, *k, *v;
    float a, beta; /* e^g */
} Token;
static Token token_of(const Delta *x, int64_t t, int h, const Kern *kern) {
    int key = h / (x->heads / x->keys);
    Token y = { f32_row(x->q, t) + (int64_t)key * x->dk, f32_row(x->k, t) + (int64_t)key * x->dk,
                f32_row(x->v, t) + (int64_t)h * x->dv, 0, f32_row(x->beta, t)[h] };
    float g = f32_row(x->g, t)[h];
    if (g >= -87) kern->exp(&y.a, &g, 1); /* else 0 */
    return y;
}
/* S to the next token: H = e^g S, diff = v - H'k, S = H + k (beta diff)'. */
static void step(float *S, float *diff, float *u, const Token *y, int dk, int dv, const Kern *kern) {
    memset(u, 0, (size_t)dv * 4);
    for (int i = 0; i < dk; i++) {
        float *row = S + (int64_t)i * dv;
        kern->scale(row, row, dv, y->a);
        kern->axpy(u, y->k[i], row, dv);
    }
    for (int j = 0; j < dv; j++) diff[j] = y->v[j] - u[j], u[j] = y->beta * diff[j];
    for (int i = 0; i < dk; i++) kern->axpy(S + (int64_t)i * dv, y->k[i], u, dv);
}
static void delta_units(const void *arg, int64_t u0, int64_t u1, const Kern *kern, float *work) {
    const Job *p = arg;
    const Delta *x = &p->x;
    int dk = x->dk, dv = x->dv;
    size_t bytes = (size_t)dk * (size_t)dv * 4;
    float *S = work, *diff = S + DELTA_MOST, *u = diff + DELTA_MOST;
    for (int64_t unit = u0; unit < u1; unit++) {
        int i = (int)(unit / x->heads), h = (int)(unit % x->heads);
        bool fresh;
        float *slot = slot_of(&x->r, i, &fresh);
        int64_t r0 = row_at(&x->r.seqs, i), r1 = row_at(&x->r.seqs, i + 1);
        if (r0 == r1) continue;
        if (slot) slot += (int64_t)h * dk * dv;
        if (fresh) memset(S, 0, bytes);
        else memcpy(S, slot, bytes);
        for (int64_t t = r0; t < r1; t++) {
            Token y = token_of(x, t, h, kern);
            float *o = f32_row(p->o, t) + (int64_t)h * dv;
            step(S, diff, u, &y, dk, dv, kern);
            memset(o, 0, (size_t)dv * 4);
            for (int j = 0; j < dk; j++) kern->axpy(o, y.q[j], S + (int64_t)j * dv, dv);
        }
        if (slot) memcpy(slot, S, bytes);
    }
}
void cpu_delta(Dev *d, Tensor o, const Delta *x) {
    Job p = { o, *x };
    int64_t units = (int64_t)x->r.seqs.n * x->heads;
    if (units) cpu_rows(d, units, (double)o.rows / x->r.seqs.n * x->dk * x->dv / 8, delta_units, &p);
}

/* Backward, from the last token on: S before each is made again from what was left every SPAN tokens.  dS comes from
 * the future; a key's gradients are the sum of its heads', ascending. */
enum { SPAN = 32, LANES_BACK = 8 };
typedef struct {
    Dev *d;
    DeltaGrad g;
    Tensor dO;
    Delta x;
    float *left; /* [LANES_BACK, spans, dk*dv] */
    int64_t spans;
} Back;
static int64_t spans_of(const Delta *x) { return x->r.seqs.longest / SPAN + 1; }
static void back_head(const Back *p, int64_t r0, int64_t r1, int h, bool first, float *left, const Kern *kern,
                      float *work) {
    const Delta *x = &p->x;
    int dk = x->dk, dv = x->dv, key = h / (x->heads / x->keys);
    int64_t n = (int64_t)dk * dv;
    float *before = work, *dS = before + (SPAN + 1) * (int64_t)DELTA_MOST, *diff = dS + DELTA_MOST,
          *u = diff + DELTA_MOST, *du = u + DELTA_MOST, *S = du + DELTA_MOST;
    memset(S, 0, (size_t)n * 4);
    for (int64_t t = r0; t < r1; t++) {
        if ((t - r0) % SPAN == 0) memcpy(left + (t - r0) / SPAN * n, S, (size_t)n * 4);
        Token y = token_of(x, t, h, kern);
        step(S, diff, u, &y, dk, dv, kern);
    }
    memset(dS, 0, (size_t)n * 4);
    for (int64_t s = (r1 - r0 - 1) / SPAN; s >= 0; s--) {
        int64_t t0 = r0 + s * SPAN, t1 = t0 + SPAN < r1 ? t0 + SPAN : r1;
        memcpy(before, left + s * n, (size_t)n * 4);
        for (int64_t t = t0; t + 1 < t1; t++) {
            float *next = before + (t + 1 - t0) * n;
            memcpy(next, before + (t - t0) * n, (size_t)n * 4);
            Token y = token_of(x, t, h, kern);
            step(next, diff, u, &y, dk, dv, kern);
        }
        for (int64_t t = t1 - 1; t >= t0; t--) {
            Token y = token_of(x, t, h, kern);
            const float *dO = f32_row(p->dO, t) + (int64_t)h * dv, *was = before + (t - t0) * n;
            float *dq = f32_row(p->g.q, t) + (int64_t)key * dk, *dk_ = f32_row(p->g.k, t) + (int64_t)key * dk,
                  *dv_ = f32_row(p->g.v, t) + (int64_t)h * dv, dg = 0;
            memcpy(S, was, (size_t)n * 4);
            step(S, diff, u, &y, dk, dv, kern);
            memset(du, 0, (size_t)dv * 4);
            for (int i = 0; i < dk; i++) {
                float *row = dS + (int64_t)i * dv;
                kern->axpy(row, y.q[i], dO, dv);
                kern->axpy(du, y.k[i], row, dv);
                float a = kern->dot(S + (int64_t)i * dv, dO, dv), b = kern->dot(row, u, dv);
                dq[i] = first ? a : dq[i] + a, dk_[i] = first ? b : dk_[i] + b;
            }
            f32_row(p->g.beta, t)[h] = kern->dot(du, diff, dv);
            for (int j = 0; j < dv; j++) dv_[j] = du[j] = y.beta * du[j];
            for (int i = 0; i < dk; i++) { /* H = e^g was */
                float *row = dS + (int64_t)i * dv;
                const float *w = was + (int64_t)i * dv;
                dk_[i] -= y.a * kern->dot(w, du, dv);
                kern->axpy(row, -y.k[i], du, dv);
                dg += kern->dot(row, w, dv);
                kern->scale(row, row, dv, y.a);
            }
            f32_row(p->g.g, t)[h] = y.a * dg;
        }
    }
}
static void back_lane(void *arg, int lane, int worker) {
    const Back *p = arg;
    const Delta *x = &p->x;
    int each = x->heads / x->keys;
    float *left = p->left + lane * p->spans * x->dk * x->dv;
    for (int64_t unit = lane; unit < (int64_t)x->r.seqs.n * x->keys; unit += LANES_BACK) {
        int i = (int)(unit / x->keys), key = (int)(unit % x->keys);
        int64_t r0 = row_at(&x->r.seqs, i), r1 = row_at(&x->r.seqs, i + 1);
        for (int h = key * each; r0 < r1 && h < (key + 1) * each; h++)
            back_head(p, r0, r1, h, h == key * each, left, cpu_kern(p->d), cpu_work(p->d, worker));
    }
}
size_t cpu_tmp_delta_bwd(Dev *d, const DeltaGrad *g, Tensor dO, const Delta *x) {
    (void)d, (void)g, (void)dO;
    return arena_round((size_t)(LANES_BACK * spans_of(x) * x->dk * x->dv) * 4);
}
void cpu_delta_bwd(Dev *d, const DeltaGrad *g, Tensor dO, const Delta *x) {
    _Static_assert((SPAN + 6) * DELTA_MOST <= CPU_WORK, "a span's states lie in a worker's scratch");
    size_t mark = arena_mark(&d->tmp);
    Back p = { .d = d, .g = *g, .dO = dO, .x = *x, .spans = spans_of(x) };
    p.left = arena_push(&d->tmp, (size_t)(LANES_BACK * p.spans * x->dk * x->dv) * 4);
    if (dO.rows) cpu_run(d, LANES_BACK, (double)dO.rows * x->heads * x->dk * x->dv, back_lane, &p);
    arena_pop(&d->tmp, mark);
}
