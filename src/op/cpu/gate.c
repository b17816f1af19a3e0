/* gate.c - what stands around a layer with a state, row by row: gates, unit length, decays, a norm with a gate behind
 * it.  Sums over a head are rule 6's; sums over rows are one chain, cut by columns or heads. */
#include "base/mathx.h"
#include "op/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { PIECE = 1024 };

/* s = sigmoid(x), at most PIECE of them. */
static void sigmoids(float *s, const float *x, int64_t n, const Kern *k) {
    for (int64_t i = 0; i < n; i++) s[i] = x[i] > 88 ? -88 : x[i] < -88 ? 88 : -x[i];
    k->exp(s, s, n);
    for (int64_t i = 0; i < n; i++) s[i] = 1.0f / (1.0f + s[i]);
}
static int64_t piece_of(int64_t n, int64_t c) { return n - c < PIECE ? n - c : PIECE; }

typedef struct {
    Tensor y, dg, dy, a, g, rho, z, w;
    int heads;
    float x;
} Args;

/* ---- gate */
static void gate_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *s) {
    const Args *p = arg;
    for (int64_t r = r0; r < r1; r++) {
        float *y = f32_row(p->y, r);
        const float *a = f32_row(p->a, r), *g = f32_row(p->g, r);
        if (p->g.cols == 1 && p->a.cols != 1) {
            sigmoids(s, g, 1, k);
            k->scale(y, a, p->a.cols, s[0]);
            continue;
        }
        for (int64_t c = 0, n; c < p->a.cols; c += n) {
            sigmoids(s, g + c, n = piece_of(p->a.cols, c), k);
            for (int64_t i = 0; i < n; i++) y[c + i] = a[c + i] * s[i];
        }
    }
}
void cpu_gate(Dev *d, Tensor y, Tensor a, Tensor g) {
    Args p = { .y = y, .a = a, .g = g };
    cpu_rows(d, y.rows, (double)y.cols * 2, gate_rows, &p);
}
static void gate_bwd_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *s) {
    const Args *p = arg;
    for (int64_t r = r0; r < r1; r++) {
        float *da = f32_row(p->y, r), *dg = f32_row(p->dg, r);
        const float *a = f32_row(p->a, r), *g = f32_row(p->g, r), *dy = f32_row(p->dy, r);
        if (p->g.cols == 1 && p->a.cols != 1) {
            sigmoids(s, g, 1, k);
            float f = s[0];
            dg[0] = k->dot(dy, a, p->a.cols) * (f * (1.0f - f));
            k->scale(da, dy, p->a.cols, f);
            continue;
        }
        for (int64_t c = 0, n; c < p->a.cols; c += n) {
            sigmoids(s, g + c, n = piece_of(p->a.cols, c), k);
            for (int64_t i = 0; i < n; i++) {
                float e = dy[c + i];
                dg[c + i] = e * a[c + i] * (s[i] * (1.0f - s[i])), da[c + i] = e * s[i];
            }
        }
    }
}
void cpu_gate_bwd(Dev *d, Tensor da, Tensor dg, Tensor dy, Tensor a, Tensor g) {
    Args p = { .y = da, .dg = dg, .dy = dy, .a = a, .g = g };
    cpu_rows(d, a.rows, (double)a.cols * 3, gate_bwd_rows, &p);
}
void cpu_plus_one(Dev *d, Tensor y, Tensor x) {
    float *to = y.data;
    (void)d;
    if (x.dtype == DT_BF16) cpu_kern(d)->widen(to, x.data, y.cols);
    else if (y.cols) memcpy(to, x.data, (size_t)y.cols * 4);
    for (int64_t i = 0; i < y.cols; i++) to[i] = 1.0f + to[i];
}

/* ---- unit length */
static void unit_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    int64_t w = p->a.cols / p->heads;
    (void)work;
    for (int64_t r = r0; r < r1; r++)
        for (int h = 0; h < p->heads; h++) {
            const float *x = f32_row(p->a, r) + h * w;
            float rho = 1.0f / sqrtf(k->dot(x, x, w) + 1e-6f);
            f32_row(p->rho, r)[h] = rho;
            k->scale(f32_row(p->y, r) + h * w, x, w, rho * p->x);
        }
}
void cpu_unit(Dev *d, Tensor y, Tensor rho, Tensor x, int heads, float scale) {
    Args p = { .y = y, .rho = rho, .a = x, .heads = heads, .x = scale };
    cpu_rows(d, x.rows, (double)x.cols, unit_rows, &p);
}
/* dx = rho scale (dy - u (u dy)), u = x rho */
static void unit_bwd_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    int64_t w = p->a.cols / p->heads;
    (void)work;
    for (int64_t r = r0; r < r1; r++)
        for (int h = 0; h < p->heads; h++) {
            const float *x = f32_row(p->a, r) + h * w, *dy = f32_row(p->dy, r) + h * w;
            float *dx = f32_row(p->y, r) + h * w, rho = f32_row(p->rho, r)[h], f = rho * p->x;
            float back = -(k->dot(x, dy, w) * rho * rho);
            for (int64_t i = 0; i < w; i++) dx[i] = f * fmaf(back, x[i], dy[i]);
        }
}
void cpu_unit_bwd(Dev *d, Tensor dx, Tensor dy, Tensor x, Tensor rho, int heads, float scale) {
    Args p = { .y = dx, .dy = dy, .rho = rho, .a = x, .heads = heads, .x = scale };
    cpu_rows(d, x.rows, (double)x.cols * 2, unit_bwd_rows, &p);
}

/* ---- decays: a few numbers a row, in double */
static double soft_plus(double x) { return x > 20 ? x : x < -700 ? 0 : mx_log(1 + mx_exp(x)); }
static double sigmoid(double x) { return x < -700 ? 0 : 1 / (1 + mx_exp(x > 700 ? -700 : -x)); }

typedef struct {
    Tensor g, beta, da, db, dA, ddt;
    Decay x;
} DecayArgs;
static void decay_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const DecayArgs *p = arg;
    (void)k, (void)work;
    for (int64_t r = r0; r < r1; r++)
        for (int64_t h = 0; h < p->g.cols; h++) {
            double z = (double)(f32_row(p->x.a, r)[h] + f32_row(p->x.dt, 0)[h]),
                   e = mx_exp((double)f32_row(p->x.log_a, 0)[h]);
            f32_row(p->g, r)[h] = (float)-(e * soft_plus(z));
            f32_row(p->beta, r)[h] = (float)sigmoid((double)f32_row(p->x.b, r)[h]);
        }
}
void cpu_decay(Dev *d, Tensor g, Tensor beta, const Decay *x) {
    DecayArgs p = { .g = g, .beta = beta, .x = *x };
    cpu_rows(d, g.rows, (double)g.cols * 60, decay_rows, &p);
}
static void decay_bwd_heads(const void *arg, int64_t h0, int64_t h1, const Kern *k, float *work) {
    const DecayArgs *p = arg;
    (void)k, (void)work;
    for (int64_t h = h0; h < h1; h++) {
        float dA = p->dA.data ? f32_row(p->dA, 0)[h] : 0, ddt = p->ddt.data ? f32_row(p->ddt, 0)[h] : 0;
        double e = mx_exp((double)f32_row(p->x.log_a, 0)[h]);
        for (int64_t r = 0; r < p->g.rows; r++) {
            double z = (double)(f32_row(p->x.a, r)[h] + f32_row(p->x.dt, 0)[h]), dg = (double)f32_row(p->g, r)[h],
                   s = sigmoid((double)f32_row(p->x.b, r)[h]);
            float dz = (float)(-dg * e * sigmoid(z));
            dA += (float)(-dg * e * soft_plus(z)), ddt += dz;
            f32_row(p->da, r)[h] = dz;
            f32_row(p->db, r)[h] = (float)((double)f32_row(p->beta, r)[h] * s * (1 - s));
        }
        if (p->dA.data) f32_row(p->dA, 0)[h] = dA;
        if (p->ddt.data) f32_row(p->ddt, 0)[h] = ddt;
    }
}
void cpu_decay_bwd(Dev *d, Tensor da, Tensor db, Tensor dA, Tensor ddt, Tensor dg, Tensor dbeta, const Decay *x) {
    DecayArgs p = { dg, dbeta, da, db, dA, ddt, *x };
    cpu_rows(d, dg.cols, (double)dg.rows * 120, decay_bwd_heads, &p);
}

/* ---- y = w x rho silu(z), by head */
static void gain_of(float *to, Tensor w, const Kern *k) {
    if (w.dtype == DT_BF16) k->widen(to, w.data, w.cols);
    else memcpy(to, w.data, (size_t)w.cols * 4);
}
static void norm_gate_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    int64_t w = p->a.cols / p->heads;
    float *gain = work, *n = gain + w;
    gain_of(gain, p->w, k);
    for (int64_t r = r0; r < r1; r++)
        for (int h = 0; h < p->heads; h++) {
            const float *x = f32_row(p->a, r) + h * w, *z = f32_row(p->z, r) + h * w;
            float rho = 1.0f / sqrtf(k->dot(x, x, w) / (float)w + p->x);
            f32_row(p->rho, r)[h] = rho;
            for (int64_t i = 0; i < w; i++) n[i] = gain[i] * (x[i] * rho);
            k->silu_mul(f32_row(p->y, r) + h * w, z, n, w);
        }
}
void cpu_norm_gate(Dev *d, Tensor y, Tensor rho, Tensor x, Tensor z, Tensor w, int heads, float eps) {
    Args p = { .y = y, .rho = rho, .a = x, .z = z, .w = w, .heads = heads, .x = eps };
    cpu_rows(d, x.rows, (double)x.cols * 2, norm_gate_rows, &p);
}
static void norm_gate_bwd_rows(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    const Args *p = arg;
    int64_t w = p->a.cols / p->heads;
    float *gain = work, *n = gain + w, *dn = n + w, *y = dn + w;
    gain_of(gain, p->w, k);
    for (int64_t r = r0; r < r1; r++)
        for (int h = 0; h < p->heads; h++) {
            const float *x = f32_row(p->a, r) + h * w, *z = f32_row(p->z, r) + h * w, *dy = f32_row(p->dy, r) + h * w;
            float rho = f32_row(p->rho, r)[h];
            for (int64_t i = 0; i < w; i++) n[i] = x[i] * rho, y[i] = gain[i] * n[i];
            k->silu_bwd(f32_row(p->dg, r) + h * w, dn, dy, z, y, w); /* dn: of gain n */
            for (int64_t i = 0; i < w; i++) dn[i] *= gain[i];
            float mean = k->dot(n, dn, w) / (float)w, *dx = f32_row(p->y, r) + h * w;
            for (int64_t i = 0; i < w; i++) dx[i] = rho * fmaf(-mean, n[i], dn[i]);
        }
}
static void norm_gate_dw_cols(const void *arg, int64_t u0, int64_t u1, const Kern *k, float *s) {
    const Args *p = arg;
    int64_t w = p->a.cols / p->heads, c0 = u0 * 64, c1 = u1 * 64 < w ? u1 * 64 : w;
    float *dw = f32_row(p->w, 0);
    for (int64_t c = c0, n; c < c1; c += n) {
        n = piece_of(c1, c);
        for (int64_t r = 0; r < p->a.rows; r++)
            for (int h = 0; h < p->heads; h++) {
                int64_t at = h * w + c;
                const float *x = f32_row(p->a, r) + at, *z = f32_row(p->z, r) + at, *dy = f32_row(p->dy, r) + at;
                k->silu_mul(s, z, dy, n);
                for (int64_t i = 0; i < n; i++) dw[c + i] = fmaf(s[i], x[i] * f32_row(p->rho, r)[h], dw[c + i]);
            }
    }
}
void cpu_norm_gate_bwd(Dev *d, Tensor dx, Tensor dz, Tensor dw, Tensor dy, Tensor x, Tensor z, Tensor w, Tensor rho,
                       int heads) {
    Args p = { .y = dx, .dg = dz, .dy = dy, .a = x, .z = z, .w = w, .rho = rho, .heads = heads };
    cpu_rows(d, x.rows, (double)x.cols * 5, norm_gate_bwd_rows, &p);
    p.w = dw;
    int64_t units = (x.cols / heads + 63) / 64;
    if (dw.data) cpu_rows(d, units, (double)x.rows * (double)heads * 128, norm_gate_dw_cols, &p);
}
