/* test_loss.c - every loss against finite differences of its own value, in one piece and in pieces, and what must be
 * zero.  The step is 1e-3 on float inputs: the quotient is good to about 1e-4 of the loss's scale.  Where a bound lies
 * inside the step left and right quotients disagree and the token is passed over; most must be usable. */
#include "algo/kl.h"
#include "algo/loss.h"
#include "base/rng.h"
#include "test.h"

#include <math.h>

enum { N = 7, T = 40 };
static const int64_t at[N + 1] = { 0, 9, 10, 17, 17, 26, 33, 40 }; /* one answer is empty */

typedef struct {
    float lp[T], old[T], adv[T], weight[T], ref[T], entropy[T];
    uint8_t mask[T], pick[T];
} Data;

static double unit(uint32_t seed, uint32_t what, int t) {
    return rng_unit(rng_u64(seed, RNG_INIT, what, (uint32_t)t, 0, 0));
}

static void fill(Data *d, uint32_t seed) {
    for (int t = 0; t < T; t++) {
        d->old[t] = (float)(-2 * unit(seed, 0, t));
        d->lp[t] = d->old[t] + (float)(1.2 * (unit(seed, 1, t) - 0.5));
        d->adv[t] = (float)(3 * (unit(seed, 2, t) - 0.5));
        d->weight[t] = (float)(0.2 + 1.5 * unit(seed, 3, t));
        d->ref[t] = d->old[t] + (float)(unit(seed, 4, t) - 0.5);
        d->entropy[t] = (float)(2 * unit(seed, 5, t));
        d->mask[t] = unit(seed, 6, t) < 0.85;
    }
}

static LossIn input(const Data *d) {
    return (LossIn){ .a = { N, at, at + 1, d->mask },
                     .lp = d->lp,
                     .old = d->old,
                     .adv = d->adv,
                     .weight = d->weight,
                     .ref = d->ref,
                     .entropy = d->entropy,
                     .pick = d->pick };
}

static double total(const Data *d, const LossConf *c, const LossCounts *counts) {
    float dlp[T], dent[T];
    LossSum s = { 0 };
    LossIn in = input(d);
    loss_piece(&s, dlp, dent, c, counts, &in);
    return loss_total(&s, c);
}

/* The quotient may be used only where the value is smooth over the step: left and right quotients agree. */
static bool slope_at(double *out, Data *d, float *x, const LossConf *c, const LossCounts *counts) {
    float keep = *x, h = 1e-3f;
    double mid = total(d, c, counts);
    *x = keep + h;
    double hp = (double)*x - keep, up = total(d, c, counts);
    *x = keep - h;
    double hm = (double)keep - *x, down = total(d, c, counts);
    *x = keep;
    double right = (up - mid) / hp, left = (mid - down) / hm;
    *out = (up - down) / (hp + hm);
    return fabs(right - left) < 0.02 * (fabs(right) + fabs(left)) + 1e-5;
}

static PickConf picks(const LossConf *c) {
    return (PickConf){ .kind = c->kind, .ratio = c->cov_ratio, .low = -0.5, .high = 0.5, .draw = 7 };
}

/* gspo's, cispo's and dppo's gradients are by definition not those of the value: stop-gradients, checked below. */
static void finite_differences(LossKind kind, AggKind agg, int kl) {
    Data d;
    double worst = 0;
    int used = 0, all = 0;
    for (uint32_t seed = 1; seed <= 4; seed++) {
        fill(&d, seed);
        LossConf c = { .kind = kind,
                       .agg = agg,
                       .clip_low = 0.2,
                       .clip_high = 0.28,
                       .clip_c = 3,
                       .tau_pos = 1,
                       .tau_neg = 1.05,
                       .cov_ratio = 0.2,
                       .cov_coef = 0.7,
                       .dro_beta = 0.5,
                       .entropy_coef = 0.01,
                       .kl_coef = 0.3,
                       .kl_kind = kl,
                       .norm_len = 9 };
        Mem mem = { 0 };
        Arena tmp = arena_in(&mem, "tmp", pick_scratch(T));
        Answers a = { N, at, at + 1, d.mask };
        PickConf pick = picks(&c);
        pick_by_covariance(d.pick, &pick, &a, NULL, N, d.adv, d.lp, &tmp);
        LossCounts counts = { 0 };
        loss_count(&counts, &a);
        float dlp[T], dent[T];
        LossSum s = { 0 };
        LossIn in = input(&d);
        loss_piece(&s, dlp, dent, &c, &counts, &in);
        for (int t = 0; t < T; t++) {
            double q;
            all += 2;
            if (!d.mask[t]) EXPECT(dlp[t] == 0 && dent[t] == 0, "a masked token has a gradient");
            if (slope_at(&q, &d, &d.lp[t], &c, &counts)) used++, worst = fmax(worst, fabs(q - dlp[t]));
            if (slope_at(&q, &d, &d.entropy[t], &c, &counts)) used++, worst = fmax(worst, fabs(q - dent[t]));
        }
        mem_free(&mem);
    }
    double scale = agg == AGG_TOKEN_SUM ? T : 1; /* sums have the rounding of so many means */
    EXPECT(worst < 1e-4 * scale, "%s/%s/%s: derivative off by %g", name_of(loss_names, kind), name_of(agg_names, agg),
           name_of(kl_names, kl), worst);
    EXPECT(used > all * 8 / 10, "%s: only %d of %d quotients could be used", name_of(loss_names, kind), used, all);
}

/* Any cut of the mini-batch into pieces gives each token the same bits, and sums that agree to rounding. */
static void pieces(LossKind kind, AggKind agg) {
    Data d;
    fill(&d, 9);
    LossConf c = { .kind = kind,
                   .agg = agg,
                   .clip_low = 0.2,
                   .clip_high = 0.28,
                   .clip_c = 3,
                   .tau_pos = 1,
                   .tau_neg = 1.05,
                   .cov_ratio = 0.2,
                   .cov_coef = 0.7,
                   .dro_beta = 0.5,
                   .entropy_coef = 0.01,
                   .kl_coef = 0.3,
                   .kl_kind = KL_K3,
                   .norm_len = 9 };
    Mem mem = { 0 };
    Arena tmp = arena_in(&mem, "tmp", pick_scratch(T));
    Answers a = { N, at, at + 1, d.mask };
    PickConf pick = picks(&c);
    pick_by_covariance(d.pick, &pick, &a, NULL, N, d.adv, d.old, &tmp);
    LossCounts counts = { 0 }, parts = { 0 };
    loss_count(&counts, &a);
    float one[T], two[T], ent[T];
    LossSum whole = { 0 }, sum = { 0 };
    LossIn in = input(&d);
    loss_piece(&whole, one, ent, &c, &counts, &in);
    static const int cut[] = { 0, 2, 3, 6, N };
    for (size_t p = 0; p + 1 < COUNT(cut); p++) {
        Answers piece = { cut[p + 1] - cut[p], at + cut[p], at + cut[p] + 1, d.mask };
        loss_count(&parts, &piece);
        LossIn part = in;
        part.a = piece;
        loss_piece(&sum, two, ent, &c, &counts, &part);
    }
    EXPECT(!memcmp(&counts, &parts, sizeof counts), "counts differ");
    EXPECT(!memcmp(one, two, sizeof one), "%s/%s: gradients depend on the pieces", name_of(loss_names, kind),
           name_of(agg_names, agg));
    EXPECT(fabs(loss_total(&whole, &c) - loss_total(&sum, &c)) < 1e-12 && whole.tokens == sum.tokens
               && whole.clipped == sum.clipped,
           "sums differ");
    mem_free(&mem);
}

/* gspo: d/dlp_t = -A s / (len N) inside the clip; cispo: -A clip(r); both ignore how the ratio itself would move. */
static void stop_gradients(void) {
    static const int64_t cut[] = { 0, 2 };
    float lp[] = { -1.f, -1.5f }, old[] = { -1.1f, -1.45f }, adv[] = { 2.f, 2.f }, dlp[2];
    LossIn in = { .a = { 1, cut, cut + 1, NULL }, .lp = lp, .old = old, .adv = adv };
    LossCounts n = { 0 };
    loss_count(&n, &in.a);
    LossConf c = { .kind = LOSS_GSPO, .clip_low = 0.2, .clip_high = 0.28, .clip_c = 3 };
    LossSum s = { 0 };
    loss_piece(&s, dlp, NULL, &c, &n, &in);
    double r = exp(((double)lp[0] - old[0] + (double)lp[1] - old[1]) / 2);
    EXPECT(fabs(s.pg + 2 * r) < 1e-6 && fabs(dlp[0] + r) < 1e-6 && dlp[0] == dlp[1], "gspo %g %g", s.pg, dlp[0]);
    c.kind = LOSS_CISPO;
    s = (LossSum){ 0 };
    loss_piece(&s, dlp, NULL, &c, &n, &in);
    EXPECT(fabs(dlp[0] + exp(0.1)) < 1e-6 && fabs(dlp[1] + exp(-0.05)) < 1e-6, "cispo %g %g", dlp[0], dlp[1]);
    lp[0] = 30; /* clipped from above: the weight stays 1.28, the gradient does not vanish */
    loss_piece(&s, dlp, NULL, &c, &n, &in);
    EXPECT(fabs(dlp[0] + 1.28) < 1e-6, "cispo clipped %g", dlp[0]);
    c.kind = LOSS_VANILLA;
    loss_piece(&s, dlp, NULL, &c, &n, &in);
    EXPECT(dlp[0] == 0, "ppo clipped %g", dlp[0]);
}

static void kl_controller(void) {
    double g;
    EXPECT(fabs(kl_token(&g, KL_K3, -1, -1)) == 0 && g == 0, "k3 at 0");
    EXPECT(kl_token(&g, KL_K3, -50, -1) == 10 && g == 0, "k3 is bounded");
    EXPECT(kl_token(&g, KL_K3 | KL_STRAIGHT, -1, -2) > 0.36 && g == 1, "k3+ has k2's slope");
    KlControl k = { true, 0.1, 0.05, 1000 };
    kl_control_step(&k, 1, 100); /* far above the target: +20 % of 100/1000 */
    EXPECT(fabs(k.coef - 0.1 * 1.02) < 1e-12, "%g", k.coef);
    kl_control_step(&k, 0.05, 100);
    EXPECT(fabs(k.coef - 0.1 * 1.02) < 1e-12, "on target nothing moves");
    k.coef = 0.1;
    kl_control_step(&k, 0, 8192); /* eight horizons: 1 - 0.2 * 8 would make the coefficient negative */
    EXPECT(fabs(k.coef - 0.001) < 1e-12, "%g", k.coef);
    kl_control_step(&k, 1, 2000);
    EXPECT(fabs(k.coef - 0.0014) < 1e-12, "%g", k.coef);
    kl_control_step(&k, NAN, 100);
    EXPECT(fabs(k.coef - 0.0014) < 1e-12, "a KL that is no number moves it to %g", k.coef);
    k.coef = 1.7e308;
    kl_control_step(&k, 1, 1000);
    EXPECT(isfinite(k.coef), "%g cannot be read again", k.coef);
    static const int64_t cut[] = { 0, 2, 3 };
    float reward[] = { 0, 1, 0.5f }, lp[] = { -1, -1, -3 }, ref[] = { -2, -1, -2 };
    Answers a = { 2, cut, cut + 1, NULL };
    double mean = kl_into_reward(reward, &a, KL_K1, 0.1, lp, ref);
    EXPECT(fabs(mean - (0.5 - 1) / 2) < 1e-12, "mean kl %g", mean);
    EXPECT(reward[0] == -0.1f && reward[1] == 1 && reward[2] == 0.6f, "rewards %g %g %g", reward[0], reward[1],
           reward[2]);
}

/* The choice among some answers is the choice as if there were no others. */
static void pick_some(void) {
    Data d;
    fill(&d, 9);
    Mem mem = { 0 };
    Arena tmp = arena_in(&mem, "tmp", pick_scratch(T));
    Answers a = { N, at, at + 1, d.mask };
    static const int32_t which[] = { 4, 1, 2 };
    uint8_t pick[T], alone[T];
    memset(pick, 7, sizeof pick);
    PickConf c = { .kind = LOSS_KL_COV, .ratio = 0.2 };
    int64_t n = pick_by_covariance(pick, &c, &a, which, 3, d.adv, d.lp, &tmp), seen = 0, wrong = 0;
    /* the same three side by side, in the order of the tokens: ties and the share are theirs */
    static const int32_t rising[] = { 1, 2, 4 };
    float adv[T], lp[T];
    uint8_t mask[T];
    int64_t own[4] = { 0 };
    for (int i = 0; i < 3; i++) {
        own[i + 1] = own[i];
        for (int64_t t = at[rising[i]]; t < at[rising[i] + 1]; t++, own[i + 1]++)
            adv[own[i + 1]] = d.adv[t], lp[own[i + 1]] = d.lp[t], mask[own[i + 1]] = d.mask[t];
    }
    Answers b = { 3, own, own + 1, mask };
    int64_t m = pick_by_covariance(alone, &c, &b, NULL, 3, adv, lp, &tmp);
    for (int i = 0; i < 3; i++)
        for (int64_t t = at[rising[i]], u = own[i]; t < at[rising[i] + 1]; t++, u++)
            wrong += pick[t] != alone[u], seen += pick[t];
    for (int i = 0; i < N; i++)
        for (int64_t t = at[i]; i != 1 && i != 2 && i != 4 && t < at[i + 1]; t++) wrong += pick[t] != 7;
    EXPECT(n == m && n == seen && n > 1 && !wrong, "picked %d of three answers, alone %d; %d wrong", (int)n, (int)m,
           (int)wrong);
    mem_free(&mem);
}

/* clip_cov draws among those between the bounds: the same ones for the same key, others for another, none outside. */
static void pick_between(void) {
    Data d;
    fill(&d, 3);
    Mem mem = { 0 };
    Arena tmp = arena_in(&mem, "tmp", pick_scratch(T));
    Answers a = { N, at, at + 1, d.mask };
    uint8_t all[T], pick[2][T], skip[T] = { 0 };
    PickConf c = { .kind = LOSS_CLIP_COV, .ratio = 1, .low = -0.5, .high = 0.5 };
    int64_t candidates = pick_by_covariance(all, &c, &a, NULL, N, d.adv, d.lp, &tmp), outside = 0, tokens = 0;
    for (int t = 0; t < T; t++) tokens += d.mask[t];
    EXPECT(candidates > 4 && candidates < tokens, "%d of %d tokens are candidates", (int)candidates, (int)tokens);
    c.ratio = 0.1;
    for (int k = 0; k < 2; k++) {
        c.draw = k ? 12 : 11;
        int64_t n = pick_by_covariance(pick[k], &c, &a, NULL, N, d.adv, d.lp, &tmp);
        EXPECT(n == (int64_t)(0.1 * (double)tokens), "%d are picked", (int)n);
        for (int t = 0; t < T; t++) outside += pick[k][t] && !all[t];
    }
    EXPECT(!outside && memcmp(pick[0], pick[1], T), "%d outside; two keys pick the same", (int)outside);
    c.draw = 11, c.skip = skip, memcpy(skip, pick[0], T);
    pick_by_covariance(pick[1], &c, &a, NULL, N, d.adv, d.lp, &tmp);
    for (int t = 0; t < T; t++) outside += pick[1][t] && skip[t];
    EXPECT(!outside, "%d are picked that were to be skipped", (int)outside);
    c.skip = NULL, c.low = 1e9, c.high = 2e9;
    EXPECT(pick_by_covariance(pick[0], &c, &a, NULL, N, d.adv, d.lp, &tmp) == 0, "a token is picked where none is");
    mem_free(&mem);
}

int main(void) {
    static const int kls[] = { KL_K1, KL_K2, KL_K3, KL_ABS, KL_K2 };
    for (int agg = 0; agg <= AGG_TOKEN_SUM; agg++) {
        finite_differences(LOSS_VANILLA, (AggKind)agg, kls[agg]);
        finite_differences(LOSS_SAPO, (AggKind)agg, kls[agg]);
        finite_differences(LOSS_GPG, (AggKind)agg, kls[agg]);
        finite_differences(LOSS_GEO_MEAN, (AggKind)agg, kls[agg]);
        finite_differences(LOSS_KL_COV, (AggKind)agg, kls[agg]);
        finite_differences(LOSS_CLIP_COV, (AggKind)agg, kls[agg]);
        finite_differences(LOSS_DRO, (AggKind)agg, kls[agg]);
        for (int kind = 0; kind <= LOSS_DRO; kind++) pieces((LossKind)kind, (AggKind)agg);
    }
    stop_gradients();
    kl_controller();
    pick_some();
    pick_between();
    return test_end();
}
