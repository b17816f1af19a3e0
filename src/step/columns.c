/* columns.c - a step's answers side by side, the reference's log-probs beside the sampler's, and the advantages. */
#include "step/run.h"
#include "algo/shape.h"

#include <string.h>

void flatten(Run *r) {
    const Config *c = &r->job.c;
    Flat *f = &r->flat;
    const Rollouts *o = &r->sampler.roll;
    for (int i = 0; i < rollouts_n(o); i++) {
        const Rollout *a = &o->at[i];
        int n = answer_n(a);
        int64_t at = a->lp - o->lp; /* dynamic sampling has moved rows, not their columns */
        f->at[i] = at, f->end[i] = at + n;
        f->group[i] = a->prompt;
        f->score[i] = a->score + overlong(c, n);
        memset(f->reward + at, 0, (size_t)n * 4);
        int last = n - 1; /* the reward is the last sampled token's */
        while (a->mask && last > 0 && !a->mask[last]) last--;
        if (n) f->reward[at + last] = (float)f->score[i];
        f->seq[i] = (TrainSeq){ .tokens = a->tokens,
                                .n = a->n,
                                .prompt = a->n_prompt,
                                .draw = r->sampler.opts.draw,
                                .kept = a->kept,
                                .old = a->lp,
                                .adv = f->adv + at,
                                .ent = a->ent,
                                .mask = a->mask,
                                .spans = o->prompt[a->prompt].spans };
        if (r->ref.on) f->seq[i].ref = f->ref + at;
    }
}

Answers answers_of(const Run *r) {
    return (Answers){ rollouts_n(&r->sampler.roll), r->flat.at, r->flat.end, r->sampler.roll.mask };
}

int with_answer(TrainSeq *out, float **column, const Flat *f, int from, int n) {
    int k = 0;
    for (int i = from; i < from + n; i++)
        if (f->seq[i].n > f->seq[i].prompt) {
            if (column) column[k] = f->column[i];
            out[k++] = f->seq[i];
        }
    return k;
}

/* A policy's log-probs of every answer into a column, in pieces of at most 'most' sequences. */
static bool column_of(Run *r, Policy *p, float *column, int most, Err *err) {
    Mem mem = { 0 };
    int n = rollouts_n(&r->sampler.roll);
    TrainSeq *seq = MEM_ARRAY(&mem, TrainSeq, (size_t)n);
    float **col = MEM_ARRAY(&mem, float *, (size_t)n);
    for (int i = 0; i < n; i++) r->flat.column[i] = column + r->flat.at[i];
    int k = with_answer(seq, col, &r->flat, 0, n);
    bool ok = true;
    for (int i = 0; ok && i < k; i += most)
        ok = policy_logprob(p, seq + i, k - i < most ? k - i : most, col + i, NULL, err);
    mem_free(&mem);
    return ok;
}

/* Truncated importance weights: how much likelier the trainer's weights make a token than the weights that
 * drew it did.  In one process both are the same weights and the same arithmetic, so every weight is
 * exactly 1; the metrics show it. */
static bool staleness_weights(Run *r, Err *err) {
    const Config *c = &r->job.c;
    Flat *f = &r->flat;
    if (c->algo.tis == TIS_OFF) return true;
    TRY(column_of(r, &r->job.policy, f->now, r->job.policy.c.max_seqs, err));
    Answers a = answers_of(r);
    TisSum sum = { 0 };
    tis_weights(f->weight, &sum, (TisKind)c->algo.tis, c->algo.tis_cap, &a, f->now, r->sampler.roll.lp);
    for (int64_t i = 0; i < a.n; i++) f->seq[i].weight = f->weight + f->at[i];
    metric(&r->job.metrics, "rollout_corr/rollout_is_mean", sum.count ? sum.sum / (double)sum.count : 1);
    metric(&r->job.metrics, "rollout_corr/rollout_is_max", sum.max);
    metric(&r->job.metrics, "rollout_corr/rollout_is_min", sum.min);
    return true;
}

/* Over what the cache held: no answer is under way. */
static bool ask_reference(Run *r, Err *err) {
    if (!r->ref.on) return true;
    block_for(&r->job.policy.block, r->job.o.desc.adapter ? BLOCK_SCORE : BLOCK_REFERENCE);
    return column_of(r, &r->ref.policy, r->flat.ref, r->ref.policy.c.max_seqs, err);
}

bool step_reference(Run *r, Err *err) {
    if (r->now.cut) return true;
    if (!r->ref.on && r->job.c.algo.tis == TIS_OFF) return true;
    phase_begin(r, "reference");
    bool ok = ask_reference(r, err) && staleness_weights(r, err);
    phase_end(r, PHASE_REF);
    return ok && !job_wanted(&r->job) ? give_up(r) : ok;
}

/* ---- advantages */
static void penalise_kl(Run *r, const Answers *a) {
    const Config *c = &r->job.c;
    if (!c->algo.kl_in_reward) return;
    double kl = kl_into_reward(r->flat.reward, a, c->algo.kl_estimator, r->kl.coef, r->sampler.roll.lp, r->flat.ref);
    metric(&r->job.metrics, "actor/reward_kl_penalty", kl);
    metric(&r->job.metrics, "actor/reward_kl_penalty_coeff", r->kl.coef);
    kl_control_step(&r->kl, kl, a->n);
}

/* The baseline is judged as the answers are: with the punishment of what is too long. */
static double greedy_reward(const Run *r, int question) {
    const Rollout *a = &r->sampler.greedy.at[question];
    return a->score + overlong(&r->job.c, answer_n(a));
}

bool step_advantage(Run *r, Err *err) {
    if (r->now.cut) return true;
    const Config *c = &r->job.c;
    Flat *f = &r->flat;
    Answers a = answers_of(r);
    phase_begin(r, "advantages");
    penalise_kl(r, &a);
    AdvConf conf = config_advantage(c);
    AdvIn in = { .a = a, .reward = f->reward, .group = f->group };
    if (c->algo.advantage == ADV_REMAX) {
        for (int64_t i = 0; i < a.n; i++) f->baseline[i] = (float)greedy_reward(r, f->group[i]);
        in.baseline = f->baseline;
    }
    size_t mark = arena_mark(&r->flat.scratch);
    bool ok = advantage(f->adv, f->ret, &conf, &in, &r->flat.scratch, err);
    arena_pop(&r->flat.scratch, mark);
    for (int64_t i = 0; loss_picks((LossKind)c->train.loss) && i < a.n; i++) f->seq[i].pick = f->pick + f->at[i];
    phase_end(r, PHASE_ADV);
    return ok;
}
