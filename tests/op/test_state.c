/* test_state.c - gates and the ops of layers with a state against double, their backward against differences; and the
 * bits of a sequence that comes in pieces, with its state between them, on every instruction set. */
#include "optest.h"

enum {
    T = 9,
    KEYS = 2,
    HEADS = 4,
    DK = 5,
    DV = 6,
    TAPS = 3,
    MOST = 8,
    CUT = 4
}; /* sequences of CUT and T - CUT rows */
static const int32_t at[] = { 0, CUT, T };

/* A function of inputs in double: which, and how it makes 'out'. */
typedef struct Fn Fn;
struct Fn {
    double *in[MOST];
    int64_t n[MOST];
    const float *c[2]; /* weights of the loss, of both outputs */
    int64_t n_out[2];
    void (*make)(const Fn *f, double *out[2]);
};
static double loss(void *arg) {
    const Fn *f = arg;
    double *out[2], sum = 0;
    for (int k = 0; k < 2; k++) out[k] = calloc((size_t)f->n_out[k] + 1, sizeof(double));
    f->make(f, out);
    for (int k = 0; k < 2; k++) {
        for (int64_t i = 0; i < f->n_out[k]; i++) sum += (double)f->c[k][i] * out[k][i];
        free(out[k]);
    }
    return sum;
}
static double sigma(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x * sigma(x); }

typedef struct {
    Rig r;
    Fn f;
    Tensor t[MOST], out[2], dout[2];
    const char *name;
} Try;
static void try_open(Try *x, const char *name, void (*make)(const Fn *, double *[2])) {
    memset(x, 0, sizeof *x);
    rig_open(&x->r, 2, ISA_BEST, 8 << 20);
    x->f.make = make, x->name = name;
}
static void input(Try *x, int i, int64_t rows, int64_t cols, float scale) {
    float *v = rnds(&x->r.m, rows * cols, (uint64_t)(i + 1) * 7, scale);
    x->t[i] = rig_put_ld(&x->r, DT_F32, rows, cols, rows > 1 ? cols + i : cols, v);
    x->f.in[i] = doubles(&x->r.m, v, x->f.n[i] = rows * cols);
}
static void output(Try *x, int k, int64_t rows, int64_t cols) {
    x->f.c[k] = rnds(&x->r.m, rows * cols, (uint64_t)k + 90, 1), x->f.n_out[k] = rows * cols;
    x->out[k] = rig_put_ld(&x->r, DT_F32, rows, cols, cols + 1, NULL);
    x->dout[k] = rig_put(&x->r, DT_F32, rows, cols, x->f.c[k]);
}
static Tensor like(Try *x, int i) { return rig_put(&x->r, DT_F32, x->t[i].rows, x->t[i].cols, NULL); }
static void forward_is(Try *x) {
    double *out[2];
    for (int k = 0; k < 2; k++) out[k] = MEM_ARRAY(&x->r.m, double, (size_t)x->f.n_out[k] + 1);
    x->f.make(&x->f, out);
    for (int k = 0; k < 2 && x->f.n_out[k]; k++) {
        double w = worst(rig_get(&x->r, x->out[k]), out[k], x->f.n_out[k]);
        EXPECT(w < 2e-6, "%s: output %d is %.1e off", x->name, k, w);
    }
}
static void gradient_is(Try *x, int i, Tensor got) {
    double w = worst(rig_get(&x->r, got), differences(&x->r.m, x->f.in[i], x->f.n[i], loss, &x->f), x->f.n[i]);
    EXPECT(w < 5e-6, "%s: the gradient of input %d is %.1e off", x->name, i, w);
}

/* ---- gates */
static void gate_of(const Fn *f, double *out[2]) {
    int64_t cols = f->n[0] / T, g = f->n[1] / T;
    for (int64_t i = 0; i < f->n[0]; i++) out[0][i] = f->in[0][i] * sigma(f->in[1][g == 1 ? i / cols : i]);
}
static void gates(void) {
    for (int wide = 0; wide < 2; wide++) {
        Try x;
        try_open(&x, wide ? "gate" : "gate of a row", gate_of);
        input(&x, 0, T, 21, 2), input(&x, 1, T, wide ? 21 : 1, 3), output(&x, 0, T, 21);
        op_gate(&x.r.d, x.out[0], x.t[0], x.t[1]);
        forward_is(&x);
        Tensor da = like(&x, 0), dg = like(&x, 1);
        op_gate_bwd(&x.r.d, da, dg, x.dout[0], x.t[0], x.t[1]);
        gradient_is(&x, 0, da), gradient_is(&x, 1, dg);
        rig_close(&x.r);
    }
}
static void plus_of(const Fn *f, double *out[2]) {
    for (int64_t i = 0; i < f->n[0]; i++) out[0][i] = 1 + f->in[0][i];
}
static void plus(void) {
    Try x;
    try_open(&x, "plus_one", plus_of);
    input(&x, 0, 1, 37, 1), output(&x, 0, 1, 37);
    op_plus_one(&x.r.d, x.out[0], x.t[0]);
    forward_is(&x);
    rig_close(&x.r);
}

/* ---- filters */
static void conv_of(const Fn *f, double *out[2]) {
    int64_t C = f->n[0] / T;
    for (int64_t t = 0; t < T; t++)
        for (int64_t c = 0; c < C; c++) {
            double z = 0;
            for (int64_t i = 0, r0 = t < CUT ? 0 : CUT; i < TAPS; i++)
                if (t - TAPS + 1 + i >= r0) z += f->in[1][c * TAPS + i] * f->in[0][(t - TAPS + 1 + i) * C + c];
            out[0][t * C + c] = silu(z);
        }
}
static Remembered packed(Rig *r) { return (Remembered){ .seqs = { 2, T - CUT, rig_put(r, DT_I32, 3, 1, at) } }; }
static void filters(void) {
    Try x;
    try_open(&x, "conv", conv_of);
    input(&x, 0, T, 70, 1), input(&x, 1, 70, TAPS, 1), output(&x, 0, T, 70);
    Remembered r = packed(&x.r);
    op_conv(&x.r.d, x.out[0], x.t[0], x.t[1], &r);
    forward_is(&x);
    Tensor dx = like(&x, 0), dw = like(&x, 1);
    op_conv_bwd(&x.r.d, dx, dw, x.dout[0], x.t[0], x.t[1], &r);
    gradient_is(&x, 0, dx), gradient_is(&x, 1, dw);
    rig_close(&x.r);
}

/* ---- unit length; a norm with a gate behind it */
static double rho_of(const double *x, int64_t n, bool mean, double eps) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return 1 / sqrt((mean ? sum / (double)n : sum) + eps);
}
static void unit_of(const Fn *f, double *out[2]) {
    for (int64_t h = 0; h < T * HEADS; h++) {
        double rho = rho_of(f->in[0] + h * DK, DK, false, 1e-6);
        if (f->n_out[1]) out[1][h] = rho;
        for (int i = 0; i < DK; i++) out[0][h * DK + i] = f->in[0][h * DK + i] * rho * 0.5;
    }
}
static void units(void) {
    Try x;
    try_open(&x, "unit", unit_of);
    input(&x, 0, T, HEADS * DK, 1), output(&x, 0, T, HEADS * DK), output(&x, 1, T, HEADS);
    op_unit(&x.r.d, x.out[0], x.out[1], x.t[0], HEADS, 0.5f);
    forward_is(&x);
    Tensor dx = like(&x, 0);
    op_unit_bwd(&x.r.d, dx, x.dout[0], x.t[0], x.out[1], HEADS, 0.5f);
    x.f.n_out[1] = 0; /* no gradient comes through it */
    gradient_is(&x, 0, dx);
    rig_close(&x.r);
}
static void norm_gate_of(const Fn *f, double *out[2]) {
    for (int64_t h = 0; h < T * HEADS; h++) {
        double rho = rho_of(f->in[0] + h * DV, DV, true, 1e-3);
        if (f->n_out[1]) out[1][h] = rho;
        for (int i = 0; i < DV; i++)
            out[0][h * DV + i] = f->in[2][i] * f->in[0][h * DV + i] * rho * silu(f->in[1][h * DV + i]);
    }
}
static void gated_norms(void) {
    Try x;
    try_open(&x, "norm_gate", norm_gate_of);
    input(&x, 0, T, HEADS * DV, 1), input(&x, 1, T, HEADS * DV, 2), input(&x, 2, 1, DV, 1);
    output(&x, 0, T, HEADS * DV), output(&x, 1, T, HEADS);
    op_norm_gate(&x.r.d, x.out[0], x.out[1], x.t[0], x.t[1], x.t[2], HEADS, 1e-3f);
    forward_is(&x);
    Tensor dx = like(&x, 0), dz = like(&x, 1), dw = like(&x, 2);
    op_norm_gate_bwd(&x.r.d, dx, dz, dw, x.dout[0], x.t[0], x.t[1], x.t[2], x.out[1], HEADS);
    x.f.n_out[1] = 0;
    gradient_is(&x, 0, dx), gradient_is(&x, 1, dz), gradient_is(&x, 2, dw);
    rig_close(&x.r);
}

/* ---- decays */
static void decay_of(const Fn *f, double *out[2]) {
    for (int64_t i = 0; i < T * HEADS; i++) {
        double z = f->in[0][i] + f->in[3][i % HEADS];
        out[0][i] = -exp(f->in[2][i % HEADS]) * log1p(exp(z)), out[1][i] = sigma(f->in[1][i]);
    }
}
static void decays(void) {
    Try x;
    try_open(&x, "decay", decay_of);
    input(&x, 0, T, HEADS, 3), input(&x, 1, T, HEADS, 3), input(&x, 2, 1, HEADS, 1), input(&x, 3, 1, HEADS, 1);
    output(&x, 0, T, HEADS), output(&x, 1, T, HEADS);
    Decay y = { x.t[0], x.t[1], x.t[2], x.t[3] };
    op_decay(&x.r.d, x.out[0], x.out[1], &y);
    forward_is(&x);
    Tensor da = like(&x, 0), db = like(&x, 1), dA = like(&x, 2), ddt = like(&x, 3);
    op_decay_bwd(&x.r.d, da, db, dA, ddt, x.dout[0], x.dout[1], &y);
    gradient_is(&x, 0, da), gradient_is(&x, 1, db), gradient_is(&x, 2, dA), gradient_is(&x, 3, ddt);
    rig_close(&x.r);
}

/* ---- the delta rule: q, k, v, g, beta */
static void delta_of(const Fn *f, double *out[2]) {
    double S[DK][DV], u[DV];
    for (int h = 0; h < HEADS; h++)
        for (int t = 0; t < T; t++) {
            int key = h / (HEADS / KEYS);
            const double *q = f->in[0] + (t * KEYS + key) * DK, *k = f->in[1] + (t * KEYS + key) * DK,
                         *v = f->in[2] + (t * HEADS + h) * DV;
            double a = exp(f->in[3][t * HEADS + h]), beta = f->in[4][t * HEADS + h];
            for (int j = 0; j < DV; j++) {
                u[j] = v[j];
                for (int i = 0; i < DK; i++) {
                    S[i][j] = t == 0 || t == CUT ? 0 : S[i][j] * a;
                    u[j] -= k[i] * S[i][j];
                }
                double o = 0;
                for (int i = 0; i < DK; i++) S[i][j] += k[i] * beta * u[j], o += q[i] * S[i][j];
                out[0][(t * HEADS + h) * DV + j] = o;
            }
        }
}
static Delta delta_at(const Tensor *t, Remembered r) {
    return (Delta){ t[0], t[1], t[2], t[3], t[4], r, KEYS, HEADS, DK, DV };
}
static void below_zero(Try *x, int i) {
    float *v = rig_get(&x->r, x->t[i]);
    for (int64_t k = 0; k < x->f.n[i]; k++) x->f.in[i][k] = (double)(v[k] = -fabsf(v[k]));
    op_put(&x->r.d, x->t[i], v);
}
static void delta_inputs(Try *x) {
    input(x, 0, T, KEYS * DK, 1), input(x, 1, T, KEYS * DK, 0.5f), input(x, 2, T, HEADS * DV, 1);
    input(x, 3, T, HEADS, 1), input(x, 4, T, HEADS, 1), output(x, 0, T, HEADS * DV);
    below_zero(x, 3);
}
static void deltas(void) {
    Try x;
    try_open(&x, "delta", delta_of);
    delta_inputs(&x);
    Delta y = delta_at(x.t, packed(&x.r));
    op_delta(&x.r.d, x.out[0], &y);
    forward_is(&x);
    DeltaGrad g = { like(&x, 0), like(&x, 1), like(&x, 2), like(&x, 3), like(&x, 4) };
    op_delta_bwd(&x.r.d, &g, x.dout[0], &y);
    gradient_is(&x, 0, g.q), gradient_is(&x, 1, g.k), gradient_is(&x, 2, g.v), gradient_is(&x, 3, g.g);
    gradient_is(&x, 4, g.beta);
    rig_close(&x.r);
}

/* One sequence of T rows in pieces of every size, in a slot that held something: filters and the delta rule. */
static void pieces(int isa) {
    Try x;
    enum { C = HEADS * DV, STATE = HEADS * DK * DV + (TAPS - 1) * C + 3 };
    try_open(&x, "pieces", delta_of);
    rig_close(&x.r);
    rig_open(&x.r, 2, isa, 8 << 20);
    delta_inputs(&x);
    Rig *r = &x.r;
    Tensor w = rig_put(r, DT_F32, C, TAPS, rnds(&r->m, C * TAPS, 5, 1)), y[2], soft[2];
    for (int k = 0; k < 2; k++) y[k] = rig_put(r, DT_F32, T, C, NULL), soft[k] = rig_put(r, DT_F32, T, C, NULL);
    Tensor state = rig_put(r, DT_F32, 3, STATE, rnds(&r->m, 3 * STATE, 6, 9));
    const int32_t slot = 1;
    for (int piece = T; piece >= 1; piece--) {
        int k = piece != T;
        for (int32_t t = 0; t < T; t += piece) {
            int32_t n = T - t < piece ? T - t : piece, rows[] = { 0, n };
            Remembered m = { .seqs = { 1, n, rig_put(r, DT_I32, 2, 1, rows) } };
            if (k) m.start = rig_put(r, DT_I32, 1, 1, &t), m.slot = rig_put(r, DT_I32, 1, 1, &slot), m.state = state;
            Tensor part[5];
            for (int i = 0; i < 5; i++) part[i] = tensor_rows(x.t[i], t, n);
            Delta e = delta_at(part, m);
            op_delta(&r->d, tensor_rows(y[k], t, n), &e);
            m.from = HEADS * DK * DV + 1;
            op_conv(&r->d, tensor_rows(soft[k], t, n), part[2], w, &m);
        }
        if (!k) continue;
        EXPECT(!memcmp(rig_get(r, y[0]), rig_get(r, y[1]), T * C * 4), "delta in pieces of %d differs", piece);
        EXPECT(!memcmp(rig_get(r, soft[0]), rig_get(r, soft[1]), T * C * 4), "filters in pieces of %d differ", piece);
    }
    static float first[2][T * C];
    static bool there;
    if (there)
        EXPECT(!memcmp(first[0], rig_get(r, y[0]), sizeof first[0])
                   && !memcmp(first[1], rig_get(r, soft[0]), sizeof first[1]),
               "instruction set %d gives other bits", isa);
    memcpy(first[0], rig_get(r, y[0]), sizeof first[0]), memcpy(first[1], rig_get(r, soft[0]), sizeof first[1]);
    there = true;
    rig_close(r);
}

int main(int argc, char **argv) {
    optest_begin(argc, argv);
    gates();
    plus();
    filters();
    units();
    gated_norms();
    decays();
    deltas();
    for (int isa = ISA_C; isa <= cpu_isa_best(); isa++) pieces(isa);
    return test_end();
}
