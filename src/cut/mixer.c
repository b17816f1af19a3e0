/* mixer.c - the rows of mixer.h. */
#include "cut/mixer.h"

#include <math.h>

/* ---- grouped-query attention */
static double gqa_width(const Dims *d) { return (double)d->head_dim; }
static double gqa_both(const Dims *d) { return 2 * (double)d->head_dim; }
static double gqa_weights(const Dims *d) {
    double q = d->out_gate ? 3 : 2;
    return (double)d->hidden * (double)d->head_dim * (q * (double)d->heads + 2 * (double)d->kv_heads);
}
static double gqa_cache(const Dims *d, int tp) { return 2 * ceil((double)d->kv_heads / tp) * (double)d->head_dim; }
static double gqa_kept(const Dims *d, bool drop_up) {
    (void)drop_up;
    double heads = (double)d->heads, q = heads * (double)d->head_dim, kv = (double)d->kv_heads * (double)d->head_dim;
    return 2 * (q + 2 * kv) + (d->qk_norm ? 2 * (q + kv) : 0) + 4 * heads + 2 * q;
}
static double gqa_kernels(const Dims *d) { return 13 + (d->qk_norm ? 2 : 0); }
static void gqa_sent(const Dims *d, int tp, bool expands, MixerSent *out) {
    (void)expands;
    double h = (double)d->hidden, kv = gqa_cache(d, tp);
    *out = (MixerSent){ .tp = h, .tp_back = h, .tp_back_sums = h, .cp = kv, .cp_back = 2 * kv };
}

/* ---- multi-head latent attention */
static double mla_score(const Dims *d) { return (double)(d->nope_dim + d->rope_dim); }
static double mla_value(const Dims *d) { return (double)d->v_dim; }
static double mla_absorbed(const Dims *d) { return (double)(2 * d->kv_lora + d->rope_dim); }
static double mla_weights(const Dims *d) {
    double h = (double)d->hidden, heads = (double)d->heads, qk = mla_score(d), q_lora = (double)d->q_lora;
    double q = d->q_lora ? h * q_lora + q_lora * heads * qk : h * heads * qk;
    double kv = h * (double)(d->kv_lora + d->rope_dim) + (double)d->kv_lora * heads * (double)(d->nope_dim + d->v_dim);
    return q + kv + heads * (double)d->v_dim * h;
}
static double mla_cache(const Dims *d, int tp) {
    (void)tp;
    return (double)(d->kv_lora + d->rope_dim);
}
static double mla_kept(const Dims *d, bool drop_up) {
    double heads = (double)d->heads;
    double latents = 4 * (double)(d->q_lora + d->kv_lora) + 2 * (double)d->rope_dim; /* before and after their norm */
    double up = drop_up ? 0 : 2 * heads * (2 * mla_score(d) + mla_value(d));
    return latents + up + 4 * heads + 2 * heads * mla_value(d); /* softmax sums, output */
}
static double mla_kernels(const Dims *d) {
    (void)d;
    return 22;
}

/* The query's latent is gathered where there is one, since it is narrower than the hidden state. */
static void mla_sent(const Dims *d, int tp, bool expands, MixerSent *out) {
    double query = (double)(d->q_lora ? d->q_lora : d->hidden), key = mla_cache(d, tp);
    double heads = ceil((double)d->heads / tp), wide = heads * (mla_score(d) + mla_value(d));
    *out = (MixerSent){ .tp = query + key,
                        .tp_back = query,
                        .tp_back_sums = query + key,
                        .cp = key,
                        .cp_back = expands ? 2 * wide : 2 * key + (double)d->kv_lora };
}

/* ---- delta nets: what a token costs does not grow either; 7 products of a key's and a value's width a head */
static double none(const Dims *d) {
    (void)d;
    return 0;
}
static double dn_weights(const Dims *d) {
    double k = (double)d->dn_k, v = (double)d->dn_v, heads = (double)d->dn_heads;
    return (double)d->hidden * (2 * k + 3 * v + 2 * heads) + (double)d->dn_conv * (2 * k + v)
           + 3.5 * heads * (double)(d->dn_dk * d->dn_dv);
}
static double dn_cache(const Dims *d, int tp) {
    (void)d, (void)tp;
    return 0;
}
static double dn_kept(const Dims *d, bool drop_up) {
    (void)drop_up;
    return 2 * (2 * (double)d->dn_k + 3 * (double)d->dn_v) + 4 * (4 * (double)d->dn_heads);
}
static double dn_kernels(const Dims *d) {
    (void)d;
    return 18;
}
static void dn_sent(const Dims *d, int tp, bool expands, MixerSent *out) {
    (void)tp, (void)expands;
    double h = (double)d->hidden;
    *out = (MixerSent){ .tp = h, .tp_back = h, .tp_back_sums = h };
}

const MixerCost mixer_cost[MIXERS] = {
    [MIXER_GQA] = { gqa_weights, gqa_width, gqa_width, gqa_both, gqa_cache, gqa_kept, gqa_kernels, .sent = gqa_sent },
    [MIXER_MLA] = { mla_weights, mla_score, mla_value, mla_absorbed, mla_cache, mla_kept, mla_kernels, .repeated = true,
                    .sent = mla_sent },
    [MIXER_DELTA] = { dn_weights, none, none, none, dn_cache, dn_kept, dn_kernels, .sent = dn_sent },
};
