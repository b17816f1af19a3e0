/* test_policy.c - one update, however it is cut: budgets of micro-batches (E7), offloaded shares, recomputation,
 * threads; the loss against a naive sum in double; what is not finite changes nothing. */
#include "train/train_fixture.h"

#include <math.h>

static const char *const models[] = { "qwen3_moe", "deepseek_v3", "qwen2" };

static float *gradient(const char *name, int64_t budget, int64_t *n, UpdateStats *st) {
    Trainer t;
    Err err;
    trainer_open(&t, name, (PolicyConf){ .micro_tokens = budget }, 2);
    CHECK(policy_update(&t.policy, t.seq, TRAIN_SEQS, &PPO, &ADAM, true, st, &err), "%s", err.msg);
    EXPECT(st->max_micro <= budget, "%s: a micro-batch of %d tokens, the budget is %d", name, (int)st->max_micro,
           (int)budget);
    EXPECT(!st->stepped && st->loss.max_diff == 0, "%s: first update: largest difference %g", name, st->loss.max_diff);
    float *g = flat_of(&t, t.policy.grads.flat, n);
    trainer_close(&t);
    return g;
}

/* Budgets of 256, 1000 and 8192 tokens: within 2e-5 of each tensor's largest entry (sums in another order). */
static void budgets(const char *name) {
    static const int64_t budget[] = { 256, 1000, 8192 };
    float *g[3];
    int64_t n[3];
    UpdateStats st[3];
    for (int i = 0; i < 3; i++) g[i] = gradient(name, budget[i], &n[i], &st[i]);
    EXPECT(st[0].micros > st[1].micros && st[1].micros > st[2].micros, "%s: %d, %d, %d micro-batches", name,
           (int)st[0].micros, (int)st[1].micros, (int)st[2].micros);
    Trainer t;
    trainer_open(&t, name, (PolicyConf){ .micro_tokens = 256 }, 1);
    double worst = 0;
    for (int p = 0; p < t.policy.grads.n; p++) {
        const Param *x = &t.policy.grads.at[p];
        int64_t at = (const float *)x->t.data - (const float *)t.policy.grads.flat.data, k = x->t.rows * x->t.cols;
        double most = 0, diff = 0;
        for (int64_t i = at; i < at + k; i++) {
            most = fmax(most, fabs((double)g[2][i]));
            for (int b = 0; b < 2; b++) diff = fmax(diff, fabs((double)g[b][i] - (double)g[2][i]));
        }
        if (most > 0) worst = fmax(worst, diff / most);
    }
    EXPECT(worst < 2e-5, "%s: gradients differ by %g of a tensor's largest entry", name, worst);
    EXPECT(fabs(st[0].total - st[2].total) < 1e-6 * fmax(1, fabs(st[2].total)), "%s: losses %.9g and %.9g", name,
           st[0].total, st[2].total);
    trainer_close(&t);
    for (int i = 0; i < 3; i++) free(g[i]);
}

/* Others write where activations, gradients and parked states are. */
static void lend(Policy *p) {
    if (!p->c.room) return;
    block_for(&p->block, BLOCK_SYNC);
    size_t n = p->block.memory.size;
    char *junk = malloc(n);
    memset(junk, 0xFF, n); /* NaN */
    op_put(p->m->dev, tensor_over(p->block.memory.base, DT_U8, 1, (int64_t)n), junk);
    free(junk);
}

/* Weights after three updates, with old log-probs of the start: the ratios move. */
static float *three_updates(const char *name, PolicyConf c, int threads, int64_t *n) {
    Trainer t;
    Err err;
    UpdateStats st;
    c.micro_tokens = 512;
    trainer_open(&t, name, c, threads);
    for (int i = 0; i < 3; i++) {
        lend(&t.policy);
        CHECK(policy_update(&t.policy, t.seq, TRAIN_SEQS, &PPO, &ADAM, false, &st, &err), "%s", err.msg);
        EXPECT(st.stepped && (i == 0) == (st.loss.max_diff == 0), "%s: update %d: stepped %d, largest difference %g",
               name, i, st.stepped, st.loss.max_diff);
    }
    lend(&t.policy); /* parked states are read where they are */
    float *w = trained_of(&t, n);
    trainer_close(&t);
    return w;
}

/* However they are kept: the share on the host, recomputation and threads change no byte of
 * weights, masters and moments. */
static void no_effect(const char *name, OptimTypes kept) {
    static const struct {
        const char *what;
        PolicyConf c;
        int threads;
    } other[] = {
        { "offload 0.3", { .offload = 0.3 }, 1 },
        { "offload 1", { .offload = 1 }, 2 },
        { "recompute selective", { .trained.recompute = RECOMPUTE_SELECTIVE }, 2 },
        { "recompute full, offload 0.7", { .trained.recompute = RECOMPUTE_FULL, .offload = 0.7 }, 3 },
        { "logits kept", { .trained.keep_logits = true }, 2 },
        { "memory that is lent", { .room = 1 << 20 }, 1 },
        { "parked states, offload 0.3", { .room = 64 << 20, .park_states = true, .offload = 0.3 }, 2 },
    };
    int64_t n, m;
    float *want = three_updates(name, (PolicyConf){ .states = kept }, 1, &n);
    for (size_t i = 0; i < COUNT(other); i++) {
        PolicyConf c = other[i].c;
        c.states = kept;
        float *got = three_updates(name, c, other[i].threads, &m);
        EXPECT(n == m && !memcmp(want, got, (size_t)n * 4), "%s: %s changes the weights", name, other[i].what);
        free(got);
    }
    free(want);
}

/* The loss as the formula says it, in double, from the log-probs that the policy tells. */
static void naive_loss(const char *name) {
    Trainer t;
    Err err;
    UpdateStats st;
    trainer_open(&t, name, (PolicyConf){ .micro_tokens = 300 }, 1);
    float *lp[TRAIN_SEQS];
    for (int i = 0; i < TRAIN_SEQS; i++) { /* stale data: ratios away from 1 */
        lp[i] = MEM_ARRAY(&t.mem, float, (size_t)t.seq[i].n);
        memcpy(lp[i], t.old[i], (size_t)(t.seq[i].n - t.seq[i].prompt) * 4);
        for (int k = 0; k < t.seq[i].n - t.seq[i].prompt; k++)
            t.old[i][k] += 0.5f * (float)((i * 7 + k * 3) % 11 - 5) / 5;
    }
    double pg = 0, ent = 0, tokens = 0;
    for (int i = 0; i < TRAIN_SEQS; i++)
        for (int k = 0; k < t.seq[i].n - t.seq[i].prompt; k++) {
            double r = exp((double)lp[i][k] - (double)t.old[i][k]), a = t.seq[i].adv[k],
                   c = r < 0.8    ? 0.8
                       : r > 1.28 ? 1.28
                                  : r;
            double l = fmax(-a * r, -a * c);
            pg += a < 0 ? fmin(l, -a * 3) : l;
            ent += t.ent[i][k];
            tokens++;
        }
    CHECK(policy_update(&t.policy, t.seq, TRAIN_SEQS, &PPO, &ADAM, true, &st, &err), "%s", err.msg);
    double want = pg / tokens - 0.01 * ent / tokens;
    EXPECT(fabs(st.total - want) < 1e-6 * fmax(1, fabs(want)), "%s: loss %.9g, by hand %.9g", name, st.total, want);
    EXPECT(st.loss.clipped > 0, "%s: nothing was clipped: this test would see little", name);
    trainer_close(&t);
}

static void not_finite(float bad, const char *what) {
    Trainer t;
    Err err;
    UpdateStats st;
    int64_t n;
    trainer_open(&t, "qwen3", (PolicyConf){ .micro_tokens = 512, .offload = 0.5 }, 1);
    float *before = trained_of(&t, &n), keep = t.seq[3].adv[0];
    ((float *)t.seq[3].adv)[0] = bad;
    CHECK(policy_update(&t.policy, t.seq, TRAIN_SEQS, &PPO, &ADAM, false, &st, &err), "%s", err.msg);
    float *after = trained_of(&t, &n);
    EXPECT(!st.finite && !st.stepped && t.policy.opt.step == 0, "%s in an advantage: finite %d, stepped %d", what,
           st.finite, st.stepped);
    EXPECT(!memcmp(before, after, (size_t)n * 4), "%s in an advantage: the weights moved", what);
    free(after);
    ((float *)t.seq[3].adv)[0] = keep; /* and the next update is what it would have been */
    CHECK(policy_update(&t.policy, t.seq, TRAIN_SEQS, &PPO, &ADAM, false, &st, &err), "%s", err.msg);
    EXPECT(st.finite && st.stepped && t.policy.opt.step == 1, "the update behind %s: finite %d, stepped %d", what,
           st.finite, st.stepped);
    free(before);
    trainer_close(&t);
}

/* Kept sets travel with their tokens through any packing: log-probs, entropies and two updates with any threads. */
static void kept_sets(const char *name) {
    static const int64_t budget[] = { 256, 8192 };
    float *lp[2][TRAIN_SEQS], *ent[2][TRAIN_SEQS], *w[2];
    int64_t n;
    Trainer t[2];
    Err err;
    UpdateStats st;
    for (int b = 0; b < 2; b++) {
        trainer_open(&t[b], name, (PolicyConf){ .micro_tokens = budget[b], .truncated = true, .kept = true }, 1 + b);
        trainer_cut(&t[b]);
        for (int i = 0; i < TRAIN_SEQS; i++)
            lp[b][i] = MEM_ARRAY(&t[b].mem, float, TRAIN_MAX), ent[b][i] = MEM_ARRAY(&t[b].mem, float, TRAIN_MAX);
        CHECK(policy_logprob(&t[b].policy, t[b].seq, TRAIN_SEQS, lp[b], ent[b], &err), "%s", err.msg);
    }
    int differ = 0, bad = 0;
    for (int i = 0; i < TRAIN_SEQS; i++) {
        size_t bytes = (size_t)(t[0].seq[i].n - t[0].seq[i].prompt) * 4;
        differ += memcmp(lp[0][i], lp[1][i], bytes) || memcmp(ent[0][i], ent[1][i], bytes);
        for (size_t k = 0; k < bytes / 4; k++) /* over fewer ids each is likelier */
            bad += !(lp[0][i][k] <= 0) || !isfinite(lp[0][i][k]) || (i % 2 ? lp[0][i][k] != t[0].old[i][k] : false);
    }
    EXPECT(!differ && !bad, "%s: log-probs over kept sets: %d sequences differ by packing, %d tokens are wrong", name,
           differ, bad);
    for (int b = 0; b < 2; b++) { /* the same packing now: another only rounds */
        trainer_close(&t[b]);
        trainer_open(&t[b], name, (PolicyConf){ .micro_tokens = 512, .truncated = true, .kept = true }, 1 + b);
        trainer_cut(&t[b]);
        CHECK(policy_logprob(&t[b].policy, t[b].seq, TRAIN_SEQS, t[b].old, NULL, &err), "%s", err.msg);
        for (int u = 0; u < 2; u++) {
            CHECK(policy_update(&t[b].policy, t[b].seq, TRAIN_SEQS, &PPO, &ADAM, false, &st, &err), "%s", err.msg);
            EXPECT(st.stepped && (u == 0) == (st.loss.max_diff == 0), "%s: update %d over kept sets: difference %g",
                   name, u, st.loss.max_diff);
        }
        w[b] = trained_of(&t[b], &n);
    }
    EXPECT(!memcmp(w[0], w[1], (size_t)n * 4), "%s: threads change updates over kept sets", name);
    for (int b = 0; b < 2; b++) free(w[b]), trainer_close(&t[b]);
}

/* Told to stop before micro-batch k: nothing has changed, and the update behind it is what it would have been. */
static int micros_left;
static bool some_micros(void *user) { return (void)user, micros_left-- > 0; }

static void given_up(void) {
    Err err;
    UpdateStats st;
    int64_t n;
    float *want = NULL;
    for (int k = -1; k < 3; k++) { /* -1: never told to */
        Trainer t;
        trainer_open(&t, "qwen2", (PolicyConf){ .micro_tokens = 512, .offload = 0.4 }, 1);
        float *before = flat_of(&t, t.model.w.flat, &n);
        t.policy.c.go_on = k < 0 ? NULL : some_micros, micros_left = k;
        if (k >= 0) {
            CHECK(policy_update(&t.policy, t.seq, TRAIN_SEQS, &PPO, &ADAM, false, &st, &err), "%s", err.msg);
            float *after = flat_of(&t, t.model.w.flat, &n);
            EXPECT(st.given_up && !st.stepped && !t.policy.opt.step && !memcmp(before, after, (size_t)n * 4),
                   "given up before micro-batch %d: given up %d, stepped %d", k, st.given_up, st.stepped);
            free(after);
        }
        micros_left = 1000;
        CHECK(policy_update(&t.policy, t.seq, TRAIN_SEQS, &PPO, &ADAM, false, &st, &err), "%s", err.msg);
        float *got = flat_of(&t, t.model.w.flat, &n);
        EXPECT(st.stepped && !st.given_up && (k < 0 || !memcmp(want, got, (size_t)n * 4)),
               "the update behind one given up before micro-batch %d is another", k);
        if (k < 0) want = got;
        else free(got);
        free(before);
        trainer_close(&t);
    }
    free(want);
}

/* A sequence longer than the budget is refused by name, before anything is computed. */
static void too_long(void) {
    Trainer t;
    Err err = { { 0 } };
    UpdateStats st;
    trainer_open(&t, "llama", (PolicyConf){ .micro_tokens = 256 }, 1);
    int32_t *big = MEM_ARRAY(&t.mem, int32_t, 300);
    t.seq[2].tokens = big, t.seq[2].n = 300;
    EXPECT(!policy_update(&t.policy, t.seq, TRAIN_SEQS, &PPO, &ADAM, false, &st, &err) && strstr(err.msg, "300"),
           "too long a sequence: %s", err.msg);
    trainer_close(&t);
}

int main(void) {
    for (size_t i = 0; i < COUNT(models); i++) {
        budgets(models[i]);
        no_effect(models[i], (OptimTypes){ 0 });
        naive_loss(models[i]);
        kept_sets(models[i]);
    }
    not_finite(NAN, "nan");
    not_finite(INFINITY, "inf");
    too_long();
    given_up();
    for (size_t k = 1; k < COUNT(kept_as); k++) no_effect(k % 2 ? "qwen3_moe" : "deepseek_v3", kept_as[k].t);
    return test_end();
}
