/* reference.h - the layers once more in double, from their equations: loops over rows, nothing shared with src/layer
 * but the names of the weights.  MLA is the unabsorbed form: keys and values of every head are made from the latent. */
#ifndef TESTS_LAYER_REFERENCE_H
#define TESTS_LAYER_REFERENCE_H

#include "arch/arch.h"

#include <math.h>
#include <string.h>

typedef struct {
    const ModelDesc *m;
    int moe;            /* has this layer experts? */
    double *w[P_COUNT]; /* its weights; NULL: there is none */
    int64_t T;
    int seqs;
    const int32_t *at;    /* [seqs+1] */
    const double *cossin; /* [T,dim] */
    int64_t dim;
    double scale;
    Mem *mem; /* emptied after every call */
} Ref;

static double *ref_new(const Ref *r, int64_t rows, int64_t cols) {
    return MEM_ARRAY(r->mem, double, (size_t)(rows * cols + 1));
}

static void ref_norm(double *y, int64_t y_ld, const double *x, int64_t x_ld, const double *g, int64_t rows, int64_t n,
                     double eps) {
    for (int64_t t = 0; t < rows; t++) {
        double sum = 0;
        for (int64_t i = 0; i < n; i++) sum += x[t * x_ld + i] * x[t * x_ld + i];
        for (int64_t i = 0; i < n; i++) y[t * y_ld + i] = x[t * x_ld + i] * g[i] / sqrt(sum / (double)n + eps);
    }
}

/* y [T,out] = x [T,in] w' + b; w [out,in] */
static void ref_linear(double *y, const double *x, const double *w, const double *b, int64_t T, int64_t in,
                       int64_t out) {
    for (int64_t t = 0; t < T; t++)
        for (int64_t o = 0; o < out; o++) {
            double sum = b ? b[o] : 0;
            for (int64_t i = 0; i < in; i++) sum += x[t * in + i] * w[o * in + i];
            y[t * out + o] = sum;
        }
}

/* cossin: dim/2 cosines, then dim/2 sines */
static void ref_rope(const Ref *r, double *x, int64_t heads, int64_t width, int64_t from) {
    int64_t half = r->dim / 2;
    for (int64_t t = 0; t < r->T; t++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t i = 0; i < half; i++) {
                double *at = x + (t * heads + h) * width + from, c = r->cossin[t * r->dim + i],
                       s = r->cossin[t * r->dim + half + i];
                double *a = at + (r->m->d.rope.pairs ? 2 * i : i), *b = r->m->d.rope.pairs ? a + 1 : a + half, was = *a;
                *a = was * c - *b * s;
                *b = *b * c + was * s;
            }
}

/* o [T,N*dv]; q [T,N*dk], k [T,K*dk], v [T,K*dv]: every row looks at its own sequence up to itself */
static void ref_attend(const Ref *r, double *o, const double *q, const double *k, const double *v, int64_t N, int64_t K,
                       int64_t dk, int64_t dv) {
    memset(o, 0, (size_t)(r->T * N * dv) * sizeof *o);
    for (int s = 0; s < r->seqs; s++)
        for (int64_t t = r->at[s]; t < r->at[s + 1]; t++)
            for (int64_t h = 0; h < N; h++) {
                double p[512], sum = 0, most = -INFINITY;
                int64_t kh = h / (N / K);
                for (int64_t u = r->at[s]; u <= t; u++) {
                    double dot = 0;
                    for (int64_t i = 0; i < dk; i++) dot += q[(t * N + h) * dk + i] * k[(u * K + kh) * dk + i];
                    p[u - r->at[s]] = dot * r->scale;
                    most = fmax(most, dot * r->scale);
                }
                for (int64_t u = r->at[s]; u <= t; u++) sum += p[u - r->at[s]] = exp(p[u - r->at[s]] - most);
                for (int64_t u = r->at[s]; u <= t; u++)
                    for (int64_t i = 0; i < dv; i++)
                        o[(t * N + h) * dv + i] += p[u - r->at[s]] / sum * v[(u * K + kh) * dv + i];
            }
}

static void ref_gqa(const Ref *r, double *y, const double *x) {
    const Dims *d = &r->m->d;
    int64_t T = r->T, N = d->heads, K = d->kv_heads, D = d->head_dim, H = d->hidden;
    double *q = ref_new(r, T, N * D), *k = ref_new(r, T, K * D), *v = ref_new(r, T, K * D), *o = ref_new(r, T, N * D);
    ref_linear(q, x, r->w[P_Q], r->w[P_QB], T, H, N * D);
    ref_linear(k, x, r->w[P_K], r->w[P_KB], T, H, K * D);
    ref_linear(v, x, r->w[P_V], r->w[P_VB], T, H, K * D);
    if (d->qk_norm)
        ref_norm(q, D, q, D, r->w[P_QNORM], T * N, D, d->eps), ref_norm(k, D, k, D, r->w[P_KNORM], T * K, D, d->eps);
    ref_rope(r, q, N, D, 0), ref_rope(r, k, K, D, 0);
    ref_attend(r, o, q, k, v, N, K, D, D);
    ref_linear(y, o, r->w[P_O], r->w[P_OB], T, N * D, H);
}

static void ref_mla(const Ref *r, double *y, const double *x) {
    const Dims *d = &r->m->d;
    int64_t T = r->T, N = d->heads, n = d->nope_dim, e = d->rope_dim, u = d->v_dim, R = d->kv_lora, H = d->hidden;
    double *q = ref_new(r, T, N * (n + e)), *kva = ref_new(r, T, R + e), *lat = ref_new(r, T, R),
           *kv = ref_new(r, T, N * (n + u));
    double *k = ref_new(r, T, N * (n + e)), *v = ref_new(r, T, N * u), *o = ref_new(r, T, N * u);
    if (d->q_lora) {
        double *qa = ref_new(r, T, d->q_lora);
        ref_linear(qa, x, r->w[P_Q_A], r->w[P_Q_AB], T, H, d->q_lora);
        ref_norm(qa, d->q_lora, qa, d->q_lora, r->w[P_Q_A_NORM], T, d->q_lora, 1e-6);
        ref_linear(q, qa, r->w[P_Q_B], NULL, T, d->q_lora, N * (n + e));
    } else ref_linear(q, x, r->w[P_Q], NULL, T, H, N * (n + e));
    ref_linear(kva, x, r->w[P_KV_A], r->w[P_KV_AB], T, H, R + e);
    ref_norm(lat, R, kva, R + e, r->w[P_KV_A_NORM], T, R, 1e-6);
    ref_linear(kv, lat, r->w[P_KV_B], NULL, T, R, N * (n + u));
    ref_rope(r, q, N, n + e, n), ref_rope(r, kva, 1, R + e, R);
    for (int64_t t = 0; t < T; t++)
        for (int64_t h = 0; h < N; h++) {
            memcpy(k + (t * N + h) * (n + e), kv + (t * N + h) * (n + u), (size_t)n * sizeof *k);
            memcpy(k + (t * N + h) * (n + e) + n, kva + t * (R + e) + R, (size_t)e * sizeof *k);
            memcpy(v + (t * N + h) * u, kv + (t * N + h) * (n + u) + n, (size_t)u * sizeof *v);
        }
    ref_attend(r, o, q, k, v, N, N, n + e, u);
    ref_linear(y, o, r->w[P_O], r->w[P_OB], T, N * u, H);
}

typedef struct {
    const double *gate, *up, *down, *gate_b, *up_b, *down_b;
} RefMlp;
static void ref_swiglu(const Ref *r, double *y, const double *x, RefMlp w, int64_t T, int64_t ffn) {
    int64_t H = r->m->d.hidden;
    double *g = ref_new(r, T, ffn), *u = ref_new(r, T, ffn);
    ref_linear(g, x, w.gate, w.gate_b, T, H, ffn);
    ref_linear(u, x, w.up, w.up_b, T, H, ffn);
    for (int64_t i = 0; i < T * ffn; i++) g[i] = g[i] / (1 + exp(-g[i])) * u[i];
    ref_linear(y, g, w.down, w.down_b, T, ffn, H);
}

static void ref_mlp(const Ref *r, double *y, const double *x) {
    RefMlp w = { r->w[P_GATE], r->w[P_UP], r->w[P_DOWN], r->w[P_GATEB], r->w[P_UPB], r->w[P_DOWNB] };
    ref_swiglu(r, y, x, w, r->T, r->m->d.ffn);
}

/* The k largest of v[n] that are open get a mark. */
static void ref_top(bool *marked, const double *v, const bool *open, int64_t n, int64_t k) {
    memset(marked, 0, (size_t)n);
    while (k-- > 0) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++)
            if (!marked[i] && (!open || open[i]) && (best < 0 || v[i] > v[best])) best = i;
        marked[best] = true;
    }
}

static void ref_route(const Ref *r, double *weight, bool *pick, const double *logit) {
    const Dims *d = &r->m->d;
    int64_t E = d->experts, each = E / (d->groups > 1 ? d->groups : 1);
    double p[64], by[64], group[64], sum = 0;
    bool open[64], group_open[64];
    if (r->m->arch->route == ROUTE_SOFTMAX) {
        for (int64_t e = 0; e < E; e++) sum += p[e] = exp(logit[e]);
        for (int64_t e = 0; e < E; e++) p[e] /= sum;
    } else
        for (int64_t e = 0; e < E; e++) p[e] = 1 / (1 + exp(-logit[e]));
    for (int64_t e = 0; e < E; e++) by[e] = p[e] + (r->w[P_ROUTER_BIAS] ? r->w[P_ROUTER_BIAS][e] : 0), open[e] = true;
    if (d->groups > 1) { /* a group counts by its two best */
        for (int64_t g = 0; g < d->groups; g++) {
            bool two[64];
            ref_top(two, by + g * each, NULL, each, 2);
            group[g] = 0;
            for (int64_t e = 0; e < each; e++) group[g] += two[e] ? by[g * each + e] : 0;
        }
        ref_top(group_open, group, NULL, d->groups, d->group_topk);
        for (int64_t e = 0; e < E; e++) open[e] = group_open[e / each];
    }
    ref_top(pick, by, open, E, d->topk);
    sum = 0;
    for (int64_t e = 0; e < E; e++) sum += pick[e] ? p[e] : 0;
    for (int64_t e = 0; e < E; e++)
        weight[e] =
            !pick[e] ? 0
                     : (d->norm_topk ? p[e] / sum : p[e]) * (r->m->arch->route == ROUTE_SOFTMAX ? 1 : d->route_factor);
}

static void ref_moe(const Ref *r, double *y, const double *x) {
    const Dims *d = &r->m->d;
    int64_t T = r->T, H = d->hidden, F = d->expert_ffn, E = d->experts;
    double *logits = ref_new(r, T, E), *one = ref_new(r, 1, H), weight[64];
    bool pick[64];
    ref_linear(logits, x, r->w[P_ROUTER], NULL, T, H, E);
    memset(y, 0, (size_t)(T * H) * sizeof *y);
    for (int64_t t = 0; t < T; t++) {
        ref_route(r, weight, pick, logits + t * E);
        for (int64_t e = 0; e < E; e++) {
            if (!pick[e]) continue;
            RefMlp w = { r->w[P_E_GATE] + e * F * H, r->w[P_E_UP] + e * F * H, r->w[P_E_DOWN] + e * F * H };
            ref_swiglu(r, one, x + t * H, w, 1, F);
            for (int64_t i = 0; i < H; i++) y[t * H + i] += weight[e] * one[i];
        }
    }
    if (!d->shared) return;
    double *all = ref_new(r, T, H);
    RefMlp w = { r->w[P_S_GATE], r->w[P_S_UP], r->w[P_S_DOWN] };
    ref_swiglu(r, all, x, w, T, d->shared_ffn);
    for (int64_t i = 0; i < T * H; i++) y[i] += all[i];
}

#endif
