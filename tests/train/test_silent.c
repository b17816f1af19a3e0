/* test_silent.c - sequences without advantages: they cost no backward, the gradients are those of the others to the
 * bit, the metrics are as if they had been trained on, and they are not passed over where the loss has another term. */
#include "train/train_fixture.h"

#include <math.h>

enum { PAIRS = 8, ALL = 2 * PAIRS, ROOM = 64 };

/* A mini-batch in pairs of equal length, of which the second one (odd) is silent: without
 * those all counts are exactly half. */
typedef struct {
    Trainer t;
    TrainSeq seq[ALL];
    float *lp[ALL], *ent[ALL]; /* what the weights give */
    float adv[ALL][ROOM], old[ALL][ROOM], ref[ALL][ROOM], weight[ALL][ROOM];
    uint8_t pick[ALL][ROOM];
} Pairs;

static LossConf loss_of(LossKind kind, AggKind agg) {
    return (LossConf){ .kind = kind,
                       .agg = agg,
                       .clip_low = 0.2,
                       .clip_high = 0.28,
                       .clip_c = 3,
                       .tau_pos = 1,
                       .tau_neg = 1.05,
                       .cov_ratio = 0.1,
                       .cov_coef = 1,
                       .kl_kind = KL_K3,
                       .norm_len = 64 };
}

static void pairs_open(Pairs *b, const char *model, int64_t budget) {
    Err err;
    trainer_open(&b->t, model, (PolicyConf){ .micro_tokens = budget }, 2);
    for (int i = 0; i < ALL; i++) {
        int n = 12 + i / 2 * 5, prompt = 1 + i / 2 % 4;
        int32_t *tok = MEM_ARRAY(&b->t.mem, int32_t, (size_t)n);
        b->lp[i] = MEM_ARRAY(&b->t.mem, float, (size_t)n), b->ent[i] = MEM_ARRAY(&b->t.mem, float, (size_t)n);
        for (int k = 0; k < n; k++)
            tok[k] = (int32_t)(rng_u64(5, RNG_PLAN, 0, 0, (uint32_t)i, (uint32_t)k) % (uint64_t)b->t.desc.d.vocab);
        b->seq[i] = (TrainSeq){ .tokens = tok,
                                .n = n,
                                .prompt = prompt,
                                .draw = { i % 4 < 2 ? 1 : 0.8f, 1, 0, 0 },
                                .old = b->old[i],
                                .adv = b->adv[i],
                                .ref = b->ref[i],
                                .weight = b->weight[i],
                                .pick = b->pick[i] };
    }
    CHECK(policy_logprob(&b->t.policy, b->seq, ALL, b->lp, b->ent, &err), "%s", err.msg);
    for (int i = 0; i < ALL; i++)
        for (int k = 0; k < b->seq[i].n - b->seq[i].prompt; k++) {
            b->old[i][k] = b->lp[i][k] + 0.1f * (float)((i * 7 + k * 3) % 11 - 5); /* stale: ratios of 0.6 to 1.6 */
            b->ref[i][k] = b->lp[i][k] + 0.05f * (float)((i + k) % 7 - 3);
            b->weight[i][k] = 1 + 0.25f * (float)(k % 3);
            b->adv[i][k] = i % 2 ? 0 : (float)(i % 5 - 2 ? i % 5 - 2 : 1) * 0.7f;
            b->pick[i][k] = (i + k) % 5 == 0;
        }
}

static void set_adv(Pairs *b, int first, int step, float value) {
    for (int i = first; i < ALL; i += step)
        for (int k = 0; k < ROOM; k++) b->adv[i][k] = value;
}

static float *gradient(Pairs *b, const TrainSeq *seq, int n, const LossConf *c, UpdateStats *st) {
    Err err;
    int64_t size;
    CHECK(policy_update(&b->t.policy, seq, n, c, &ADAM, true, st, &err), "%s", err.msg);
    return flat_of(&b->t, b->t.policy.grads.flat, &size);
}

static int64_t grads_n(const Pairs *b) { return b->t.policy.grads.flat.cols; }

/* How far apart, and the largest entry; a factor of 2 is exact. */
static double apart(const float *x, double factor, const float *y, int64_t n, double *most) {
    double worst = 0;
    *most = 0;
    for (int64_t i = 0; i < n; i++) {
        worst = fmax(worst, fabs(factor * (double)x[i] - (double)y[i]));
        *most = fmax(*most, fabs((double)y[i]));
    }
    return worst;
}

/* The loss of the whole mini-batch in one piece, from the log-probs that the policy tells. */
static LossSum by_hand(Pairs *b, const LossConf *c) {
    static float lp[ALL * ROOM], ent[ALL * ROOM], old[ALL * ROOM], adv[ALL * ROOM], ref[ALL * ROOM], weight[ALL * ROOM];
    static float dlp[ALL * ROOM], dent[ALL * ROOM];
    static uint8_t pick[ALL * ROOM];
    int64_t at[ALL + 1] = { 0 };
    for (int i = 0; i < ALL; i++) {
        int n = b->seq[i].n - b->seq[i].prompt;
        at[i + 1] = at[i] + n;
        for (int k = 0; k < n; k++) {
            int64_t t = at[i] + k;
            lp[t] = b->lp[i][k], ent[t] = b->ent[i][k], old[t] = b->old[i][k], adv[t] = b->adv[i][k];
            ref[t] = b->ref[i][k], weight[t] = b->weight[i][k], pick[t] = b->pick[i][k];
        }
    }
    LossIn in = { .a = { ALL, at, at + 1, NULL },
                  .lp = lp,
                  .old = old,
                  .adv = adv,
                  .ref = ref,
                  .weight = weight,
                  .entropy = ent,
                  .pick = pick };
    LossCounts counts = { 0 };
    LossSum sum = { 0 };
    loss_count(&counts, &in.a);
    loss_piece(&sum, dlp, dent, c, &counts, &in);
    return sum;
}

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * fmax(1, fabs(b)); }

static void same_metrics(const char *what, const LossSum *got, const LossSum *want) {
    EXPECT(near(got->pg, want->pg) && near(got->kl, want->kl) && near(got->entropy, want->entropy),
           "%s: loss %.15g, kl %.15g, entropy %.15g; by hand %.15g, %.15g, %.15g", what, got->pg, got->kl, got->entropy,
           want->pg, want->kl, want->entropy);
    EXPECT(got->clipped == want->clipped && got->clipped_low == want->clipped_low && got->tokens == want->tokens
               && got->max_diff == want->max_diff && near(got->ppo_kl, want->ppo_kl),
           "%s: clipped %g, %g of %d, ppo_kl %.15g, largest difference %.9g; by hand %g, %g of %d, %.15g, %.9g", what,
           got->clipped, got->clipped_low, (int)got->tokens, got->ppo_kl, got->max_diff, want->clipped,
           want->clipped_low, (int)want->tokens, want->ppo_kl, want->max_diff);
}

/* A loss whose slope carries the advantage. */
static void silent(Pairs *b, LossKind kind, AggKind agg, int64_t budget) {
    char what[64];
    snprintf(what, sizeof what, "%s, %s, %d tokens", name_of(loss_names, kind), name_of(agg_names, agg), (int)budget);
    LossConf c = loss_of(kind, agg);
    UpdateStats st, alone, through;
    TrainSeq teaching[PAIRS];
    double most;
    for (int i = 0; i < PAIRS; i++) teaching[i] = b->seq[2 * i];
    float *got = gradient(b, b->seq, ALL, &c, &st), *want = gradient(b, teaching, PAIRS, &c, &alone);
    EXPECT(st.silent == PAIRS && alone.silent == 0 && st.seqs == ALL, "%s: %d and %d of %d are silent", what, st.silent,
           alone.silent, st.seqs);
    EXPECT(st.max_micro <= budget, "%s: a micro-batch of %d tokens", what, (int)st.max_micro);
    EXPECT(near(st.flops, alone.flops * 4 / 3), "%s: %g operations, alone %g", what, st.flops, alone.flops);
    double off = apart(got, 2, want, grads_n(b), &most);
    EXPECT(off == 0 && most > 0, "%s: the teaching half alone differs by %g of %g", what, off, most);
    LossSum hand = by_hand(b, &c);
    same_metrics(what, &st.loss, &hand);

    /* The way through backward: advantages too small to be seen beside the others. */
    set_adv(b, 1, 2, 1e-22f);
    float *all = gradient(b, b->seq, ALL, &c, &through);
    off = apart(got, 1, all, grads_n(b), &most);
    EXPECT(through.silent == 0 && through.micros <= st.micros, "%s: %d silent with advantages", what, through.silent);
    double allowed = through.micros > 1 ? 2e-5 * most : 1e-18; /* one micro-batch: the same sums in the same order */
    EXPECT(off <= allowed, "%s: through backward the gradient differs by %g of %g", what, off, most);
    set_adv(b, 1, 2, 0);
    free(got), free(want), free(all);
}

/* A term beside the advantage: nothing is passed over, and without any advantage there still is a gradient. */
static void not_silent(Pairs *b, const char *what, LossConf c) {
    UpdateStats st, none;
    float *g = gradient(b, b->seq, ALL, &c, &st);
    EXPECT(st.silent == 0, "%s: %d are passed over", what, st.silent);
    LossSum hand = by_hand(b, &c);
    same_metrics(what, &st.loss, &hand);
    float keep[ALL][ROOM];
    memcpy(keep, b->adv, sizeof keep);
    set_adv(b, 0, 1, 0);
    float *h = gradient(b, b->seq, ALL, &c, &none);
    EXPECT(none.silent == 0 && none.grad_norm > 0, "%s: without advantages %d are passed over, norm %g", what,
           none.silent, none.grad_norm);
    memcpy(b->adv, keep, sizeof keep);
    free(g), free(h);
}

/* While the weights are those that drew the answers, the sampler's numbers stand for the forward's. */
static void known(Pairs *b, LossKind kind) {
    const char *what = name_of(loss_names, kind);
    LossConf c = loss_of(kind, AGG_TOKEN_MEAN);
    float keep[ALL][ROOM];
    UpdateStats with, without;
    memcpy(keep, b->old, sizeof keep);
    for (int i = 0; i < ALL; i++) memcpy(b->old[i], b->lp[i], (size_t)(b->seq[i].n - b->seq[i].prompt) * 4);
    float *want = gradient(b, b->seq, ALL, &c, &without);
    for (int i = 0; i < ALL; i++) b->seq[i].ent = b->ent[i];
    float *got = gradient(b, b->seq, ALL, &c, &with);
    LossSum hand = by_hand(b, &c);
    EXPECT(!memcmp(got, want, (size_t)grads_n(b) * 4), "%s: the sampler's numbers change the gradient", what);
    EXPECT(with.silent == PAIRS && with.micros < without.micros && near(with.flops, without.flops * 3 / 4),
           "%s: %d silent, %d and %d micro-batches, %g and %g operations", what, with.silent, (int)with.micros,
           (int)without.micros, with.flops, without.flops);
    same_metrics(what, &with.loss, &hand);
    same_metrics(what, &without.loss, &hand);

    set_adv(b, 0, 2, 0); /* nobody teaches: nothing is computed */
    float *none = gradient(b, b->seq, ALL, &c, &with);
    EXPECT(with.silent == ALL && with.micros == 0 && with.grad_norm == 0 && with.loss.max_diff == 0 && with.finite,
           "%s: all silent: %d, %d micro-batches, norm %g", what, with.silent, (int)with.micros, with.grad_norm);
    hand = by_hand(b, &c);
    same_metrics(what, &with.loss, &hand);
    memcpy(b->old, keep, sizeof keep);
    for (int i = 0; i < ALL; i++) b->seq[i].ent = NULL;
    set_adv(b, 0, 2, 0.7f);
    free(got), free(want), free(none);
}

/* Masked tokens have no say: their advantages do not make a sequence teach, nor do zeros
 * beside one that counts hide it. */
static void masks(Pairs *b) {
    uint8_t mask[ALL][ROOM];
    LossConf c = loss_of(LOSS_VANILLA, AGG_TOKEN_MEAN);
    UpdateStats st;
    float keep[ALL][ROOM];
    memcpy(keep, b->adv, sizeof keep);
    memset(mask, 1, sizeof mask);
    for (int i = 0; i < ALL; i++) b->seq[i].mask = mask[i];
    mask[1][3] = 0, b->adv[1][3] = 5;   /* silent still */
    mask[3][2] = 0, b->adv[3][4] = 5;   /* teaches */
    memset(mask[0], 0, sizeof mask[0]); /* no token of it counts */
    free(gradient(b, b->seq, ALL, &c, &st));
    EXPECT(st.silent == PAIRS, "masks: %d are silent", st.silent);
    for (int i = 0; i < ALL; i++) b->seq[i].mask = NULL;
    memcpy(b->adv, keep, sizeof keep);
}

/* What is not finite is met in silent sequences, too. */
static void not_finite(Pairs *b) {
    LossConf c = loss_of(LOSS_GPG, AGG_TOKEN_MEAN);
    UpdateStats st;
    b->adv[3][1] = NAN;
    free(gradient(b, b->seq, ALL, &c, &st));
    EXPECT(!st.finite && st.silent == PAIRS - 1, "nan among zeros: finite %d, %d silent", st.finite, st.silent);
    b->adv[3][1] = 0, b->weight[3][1] = INFINITY;
    free(gradient(b, b->seq, ALL, &c, &st));
    EXPECT(!st.finite && st.silent == PAIRS, "an infinite weight: finite %d, %d silent", st.finite, st.silent);
    b->weight[3][1] = 1;
}

/* Nobody teaches: the optimizer still takes its step (decay and what is left of the moments),
 * with a gradient of zeros. */
static void all_silent(const char *model) {
    LossConf c = loss_of(LOSS_VANILLA, AGG_TOKEN_MEAN);
    float *w[2];
    int64_t n;
    for (int by_policy = 0; by_policy < 2; by_policy++) {
        Pairs b;
        Err err;
        UpdateStats st;
        pairs_open(&b, model, 200);
        CHECK(policy_update(&b.t.policy, b.seq, ALL, &c, &ADAM, false, &st, &err), "%s", err.msg);
        set_adv(&b, 0, 1, 0);
        if (by_policy) {
            CHECK(policy_update(&b.t.policy, b.seq, ALL, &c, &ADAM, false, &st, &err), "%s", err.msg);
            EXPECT(st.silent == ALL && st.finite && st.stepped && st.grad_norm == 0 && st.total == 0,
                   "all silent: %d, stepped %d, norm %g, loss %g", st.silent, st.stepped, st.grad_norm, st.total);
        } else {
            op_zero(&b.t.dev, b.t.policy.grads.flat);
            optim_step(&b.t.policy.opt, &b.t.model.w, &b.t.policy.grads, &b.t.model.par, &b.t.dev, &ADAM, 0);
        }
        w[by_policy] = flat_of(&b.t, b.t.model.w.flat, &n);
        EXPECT(b.t.policy.opt.step == 2, "all silent: %d steps", (int)b.t.policy.opt.step);
        trainer_close(&b.t);
    }
    EXPECT(!memcmp(w[0], w[1], (size_t)n * 4), "all silent: the weights are not those of a step without gradient");
    free(w[0]), free(w[1]);
}

/* What the sampler wrote of a silent answer is taken as it is; policy_compare sees that it is
 * wrong, by the smallest step. */
static void compared(const char *model) {
    Trainer t;
    Err err;
    Exact x = { 0 };
    UpdateStats st;
    trainer_open(&t, model, (PolicyConf){ .micro_tokens = 512 }, 1);
    int64_t all = 0;
    for (int i = 0; i < TRAIN_SEQS; i++) {
        all += t.seq[i].n - t.seq[i].prompt, t.seq[i].ent = t.ent[i];
        if (i % 3) memset((float *)t.seq[i].adv, 0, (size_t)t.seq[i].n * 4);
    }
    CHECK(policy_compare(&t.policy, t.seq, TRAIN_SEQS, &x, &err), "%s", err.msg);
    EXPECT(x.tokens == all && x.max_diff == 0, "%s: %lld of %lld tokens, largest difference %g", model,
           (long long)x.tokens, (long long)all, x.max_diff);
    t.old[4][2] = nextafterf(t.old[4][2], 0); /* silent */
    LossConf loss = loss_of(LOSS_VANILLA, AGG_TOKEN_MEAN);
    CHECK(policy_update(&t.policy, t.seq, TRAIN_SEQS, &loss, &ADAM, true, &st, &err), "%s", err.msg);
    int64_t teach = 0;
    for (int i = 0; i < TRAIN_SEQS; i++)
        if (!(i % 3) && t.seq[i].adv[0] != 0) teach += t.seq[i].n - t.seq[i].prompt;
    EXPECT(st.compared == teach && st.loss.max_diff == 0, "%s: an update compares %lld tokens, of %lld that teach",
           model, (long long)st.compared, (long long)teach);
    x = (Exact){ 0 };
    CHECK(policy_compare(&t.policy, t.seq, TRAIN_SEQS, &x, &err), "%s", err.msg);
    EXPECT(x.max_diff > 0 && x.max_diff < 1e-5, "%s: a log-prob off by one step: %g", model, x.max_diff);
    uint8_t counts[512];
    CHECK(t.seq[4].n <= (int)sizeof counts, "an answer of %d tokens", t.seq[4].n);
    memset(counts, 1, sizeof counts);
    counts[2] = 0, t.seq[4].mask = counts, x = (Exact){ 0 };
    CHECK(policy_compare(&t.policy, t.seq, TRAIN_SEQS, &x, &err), "%s", err.msg);
    EXPECT(x.tokens == all - 1 && x.max_diff == 0, "%s: of %lld tokens %lld were compared, one does not count: %g",
           model, (long long)all, (long long)x.tokens, x.max_diff);
    t.seq[4].mask = NULL;
    t.old[4][2] = NAN, t.old[20][0] -= 1;
    CHECK(policy_compare(&t.policy, t.seq, TRAIN_SEQS, &x, &err), "%s", err.msg);
    EXPECT(isnan(x.max_diff), "%s: a log-prob that is no number: %g", model, x.max_diff);
    trainer_close(&t);
}

int main(void) {
    static const LossKind kinds[] = { LOSS_VANILLA, LOSS_GSPO, LOSS_SAPO, LOSS_GPG, LOSS_CISPO, LOSS_GEO_MEAN };
    static const AggKind aggs[] = { AGG_TOKEN_MEAN, AGG_SEQ_MEAN_TOKEN_SUM, AGG_SEQ_MEAN_TOKEN_MEAN,
                                    AGG_SEQ_MEAN_TOKEN_SUM_NORM };
    static const int64_t budgets[] = { 200, 1000 };
    static const char *const models[] = { "qwen3_moe", "deepseek_v3", "qwen2" };
    for (size_t m = 0; m < COUNT(models); m++) compared(models[m]);
    for (size_t m = 0; m < COUNT(models); m++)
        for (size_t s = 0; s < COUNT(budgets); s++) {
            Pairs b;
            pairs_open(&b, models[m], budgets[s]);
            for (size_t k = 0; k < COUNT(kinds); k++) {
                for (size_t a = 0; a < COUNT(aggs); a++)
                    if (a == k % COUNT(aggs) || kinds[k] == LOSS_VANILLA) silent(&b, kinds[k], aggs[a], budgets[s]);
            }
            LossConf entropy = loss_of(LOSS_VANILLA, AGG_TOKEN_MEAN), kl = entropy;
            entropy.entropy_coef = 0.01, kl.kl_coef = 0.1;
            not_silent(&b, "entropy bonus", entropy);
            not_silent(&b, "KL in the loss", kl);
            not_silent(&b, "kl_cov", loss_of(LOSS_KL_COV, AGG_TOKEN_MEAN));
            masks(&b);
            not_finite(&b);
            for (size_t k = 0; k < COUNT(kinds); k++) known(&b, kinds[k]);
            trainer_close(&b.t);
        }
    all_silent("qwen3");
    return test_end();
}
