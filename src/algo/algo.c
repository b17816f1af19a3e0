/* algo.c - the names of the methods, in one place for configuration, messages and metrics. */
#include "algo/algo.h"

#include <string.h>

/* clang-format off */
const Name adv_names[] = {
    { "grpo",              ADV_GRPO },           { "dr_grpo",                      ADV_DR_GRPO },
    { "rloo",              ADV_RLOO },           { "reinforce_plus_plus",          ADV_RPP },
    { "reinforce_plus_plus_baseline", ADV_RPP_BASELINE },
    { "remax",             ADV_REMAX },          { "opo",                          ADV_OPO },
    { "gpg",               ADV_GPG },            { "grpo_passk",                   ADV_PASSK },
    { "gae",               ADV_GAE },            { "pass_at_k",                    ADV_PASSK },
    { "grpo_vectorized",   ADV_GRPO },           { "rloo_vectorized",              ADV_RLOO_VECTORIZED },
    { "gdpo",              ADV_GDPO },           { "optimal_token_baseline",       ADV_OTB },
    { "tir_optimal_token_baseline", ADV_TIR_OTB },
    { "reinforce++",       ADV_RPP },            { "reinforce++_baseline",         ADV_RPP_BASELINE }, { 0 } };
const Name loss_names[] = {
    { "vanilla", LOSS_VANILLA }, { "gspo", LOSS_GSPO },   { "sapo", LOSS_SAPO },         { "gpg", LOSS_GPG },
    { "cispo",   LOSS_CISPO },   { "geo_mean", LOSS_GEO_MEAN }, { "kl_cov", LOSS_KL_COV },
    { "clip_cov", LOSS_CLIP_COV }, { "dppo_tv", LOSS_DPPO_TV }, { "dppo_kl", LOSS_DPPO_KL }, { "dro", LOSS_DRO },
    { "ppo",     LOSS_VANILLA }, { "gmpo", LOSS_GEO_MEAN },     { 0 } };
const Name agg_names[] = {
    { "token-mean",              AGG_TOKEN_MEAN },
    { "seq-mean-token-sum",      AGG_SEQ_MEAN_TOKEN_SUM },
    { "seq-mean-token-mean",     AGG_SEQ_MEAN_TOKEN_MEAN },
    { "seq-mean-token-sum-norm", AGG_SEQ_MEAN_TOKEN_SUM_NORM },
    { "token-sum",               AGG_TOKEN_SUM }, { 0 } };
const Name kl_names[] = {
    { "k1",  KL_K1 },  { "k2",  KL_K2 },  { "k3",  KL_K3 },  { "abs", KL_ABS },
    { "kl",  KL_K1 },  { "mse", KL_K2 },  { "low_var_kl", KL_K3 },
    { "k1+", KL_K1 | KL_STRAIGHT }, { "k3+", KL_K3 | KL_STRAIGHT }, { "low_var_kl+", KL_K3 | KL_STRAIGHT },
    { "kl+", KL_K1 | KL_STRAIGHT }, { "abs+", KL_ABS | KL_STRAIGHT }, { "k2+", KL_K2 }, { "mse+", KL_K2 }, { 0 } };
const Name tis_names[] = { { "off", TIS_OFF }, { "token", TIS_TOKEN }, { "sequence", TIS_SEQUENCE }, { 0 } };
/* clang-format on */

bool name_find(int *value, const Name *names, const char *name) {
    for (; names->name; names++)
        if (!strcmp(names->name, name)) return *value = names->value, true;
    return false;
}

const char *name_of(const Name *names, int value) {
    for (; names->name; names++)
        if (names->value == value) return names->name;
    return "?";
}

bool loss_is_sequence_mean(LossKind k) { return k == LOSS_SAPO || k == LOSS_GEO_MEAN; }
bool loss_picks(LossKind k) { return k == LOSS_KL_COV || k == LOSS_CLIP_COV; }

int64_t answer_len(const Answers *a, int64_t i) {
    if (!a->mask) return a->end[i] - a->at[i];
    int64_t len = 0;
    for (int64_t t = a->at[i]; t < a->end[i]; t++) len += a->mask[t] != 0;
    return len;
}

int64_t answers_end(const Answers *a) {
    int64_t end = 0;
    for (int64_t i = 0; i < a->n; i++) end = a->end[i] > end ? a->end[i] : end;
    return end;
}
