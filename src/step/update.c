/* update.c - the phase that moves the weights: mini-batches of whole groups, the trainer's
 * log-probs compared with the sampler's. */
#include "base/rng.h"
#include "step/run.h"
#include "algo/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    UpdateStats sum;
    int n, stepped;
    int64_t picked; /* tokens that kl_cov held back */
    double lr;
    Exact exact;
} Updates;

static void exact_add(Exact *sum, const Exact *x) {
    sum->tokens += x->tokens;
    if (!(x->max_diff <= sum->max_diff) && !isnan(sum->max_diff)) sum->max_diff = x->max_diff;
}

static void add_update(Updates *u, const UpdateStats *s) {
    LossSum *a = &u->sum.loss;
    const LossSum *b = &s->loss;
    if (!u->stepped) exact_add(&u->exact, &(Exact){ s->compared, b->max_diff }); /* the weights were the sampler's */
    a->pg += b->pg, a->kl += b->kl, a->entropy += b->entropy;
    a->clipped += b->clipped, a->clipped_low += b->clipped_low, a->ppo_kl += b->ppo_kl, a->tokens += b->tokens;
    u->sum.total += s->total, u->sum.grad_norm += s->grad_norm, u->sum.tokens += s->tokens, u->sum.micros += s->micros;
    u->sum.max_micro = s->max_micro > u->sum.max_micro ? s->max_micro : u->sum.max_micro;
    u->sum.seqs += s->seqs, u->sum.silent += s->silent;
    u->sum.imbalance = s->imbalance > u->sum.imbalance ? s->imbalance : u->sum.imbalance;
    u->sum.spread = s->spread > u->sum.spread ? s->spread : u->sum.spread;
    if (!u->n || s->part_least < u->sum.part_least) u->sum.part_least = s->part_least;
    if (s->part_most > u->sum.part_most) u->sum.part_most = s->part_most;
    u->n++;
    u->stepped += s->stepped;
}

static void update_metrics(Run *r, const Updates *u) {
    Metrics *m = &r->job.metrics;
    double n = u->n, t = u->sum.loss.tokens ? (double)u->sum.loss.tokens : 1;
    metric(m, "actor/pg_loss", u->sum.loss.pg / n);
    metric(m, "actor/loss", u->sum.total / n);
    metric(m, "actor/entropy", u->sum.loss.entropy / n);
    if (r->job.c.train.use_kl_loss)
        metric(m, "actor/kl_loss", u->sum.loss.kl / n), metric(m, "actor/kl_coef", r->job.c.train.kl_loss_coef);
    metric(m, "actor/pg_clipfrac", u->sum.loss.clipped / t);
    metric(m, "actor/pg_clipfrac_lower", u->sum.loss.clipped_low / t);
    metric(m, "actor/ppo_kl", u->sum.loss.ppo_kl / t);
    metric(m, "actor/grad_norm", u->sum.grad_norm / n);
    metric(m, "actor/lr", u->lr);
    metric(m, "actor/updates", u->stepped);
    if (r->job.c.train.loss == LOSS_KL_COV) metric(m, "actor/kl_cov_tokens", (double)u->picked);
    if (r->job.c.train.loss == LOSS_CLIP_COV) metric(m, "actor/clip_cov_tokens", (double)u->picked);
    if (u->exact.tokens)
        metric(m, "exact/max_abs_logprob_diff", u->exact.max_diff); /* of nothing there is no difference */
    metric(m, "exact/tokens", (double)u->exact.tokens);
    if (r->differs.tokens) metric(m, "exact/tokens_different", (double)r->differs.tokens);
    exact_add(&r->sum.exact, &u->exact);
    r->sum.compared += u->exact.tokens > 0;
    metric(m, "perf/micro_batches", (double)u->sum.micros);
    metric(m, "perf/micro_tokens_max", (double)u->sum.max_micro);
    metric(m, "perf/silent_ratio", (double)u->sum.silent / u->sum.seqs);
    metric(m, "global_seqlen/imbalance", u->sum.imbalance);
    if (r->job.policy.m->shard.g.dp == 1) return;
    metric(m, "global_seqlen/rank_imbalance", u->sum.spread);
    metric(m, "global_seqlen/balanced_max", (double)u->sum.part_most);
    metric(m, "global_seqlen/balanced_min", (double)u->sum.part_least);
}

/* kl_cov's and clip_cov's choice among a mini-batch's tokens. */
static int64_t pick_tokens(Run *r, const LossConf *loss, int64_t from, int64_t per, int32_t *which) {
    int64_t n = 0, k = r->sampler.roll.samples;
    if (!loss_picks(loss->kind)) return 0;
    for (int64_t i = from; i < from + per && i < r->sampler.roll.n_prompts; i++)
        for (int64_t s = 0; s < k; s++) which[n++] = (int32_t)(r->flat.order[i] * k + s);
    Answers a = answers_of(r);
    PickConf c = { .kind = loss->kind,
                   .ratio = loss->cov_ratio,
                   .low = loss->cov_low,
                   .high = loss->cov_high,
                   .draw = rng_u64((uint64_t)r->job.c.trainer.seed, RNG_PICK, (uint32_t)r->job.step, 0, 0, 0) | 1 };
    return pick_by_covariance(r->flat.pick, &c, &a, which, n, r->flat.adv, r->sampler.roll.lp, &r->flat.scratch);
}

/* One mini-batch: 'per' questions from position 'from' of the order, with all their answers.
 * The sampler's entropies are the policy's until the weights have moved. */
static int gather(Run *r, TrainSeq *out, int64_t from, int64_t per, bool moved) {
    int n = 0, k = r->sampler.roll.samples;
    for (int64_t i = from; i < from + per && i < r->sampler.roll.n_prompts; i++)
        n += with_answer(out + n, NULL, &r->flat, r->flat.order[i] * k, k);
    for (int i = 0; moved && i < n; i++) out[i].ent = NULL;
    return n;
}

static bool refuse_nan(const Run *r, const UpdateStats *s, Err *err) {
    if (s->finite || s->given_up || r->job.c.trainer.on_nan == ON_NAN_SKIP) return true;
    return err_set(
        err,
        "step %" PRId64
        ": the loss is %g and the gradient's norm %g: stopped, the weights are as before this update and the "
        "last checkpoint is untouched (a smaller train.lr may help; trainer.on_nan=skip goes on without this update)",
        r->job.step + 1, s->total, s->grad_norm);
}

/* ---- E3 in every run: what the trainer computes anyway is compared with what the sampler wrote down (add_update); now
 * and then the rest is computed for that alone: answers that teach nothing, and those of later mini-batches. */
static bool exact_due(const Run *r) {
    int64_t every = r->job.c.trainer.exact_every, step = r->job.step + 1;
    return step == 1 || (every > 0 && step % every == 0);
}

static bool compare_rest(Run *r, const LossConf *loss, int64_t per, TrainSeq *room, Exact *sum, Err *err) {
    const Flat *f = &r->flat;
    int k = r->sampler.roll.samples, most = r->job.policy.c.max_seqs, n = 0;
    minibatch_order(r->flat.order, r->sampler.roll.n_prompts, r->job.c.train.shuffle, (uint64_t)r->job.c.trainer.seed,
                    (uint32_t)r->job.step, 0);
    for (int64_t q = 0; q < r->sampler.roll.n_prompts; q++)
        for (int64_t i = f->order[q] * k; i < (f->order[q] + 1) * k; i++) {
            int64_t at[2] = { 0, f->seq[i].n - f->seq[i].prompt };
            Answers one = { 1, at, at + 1, NULL };
            if (at[1] == 0 || (q < per && !loss_is_silent(loss, &one, f->seq[i].adv))) continue;
            room[n++] = f->seq[i];
            if (n < most) continue;
            TRY(policy_compare(&r->job.policy, room, n, sum, err));
            n = 0;
        }
    return !n || policy_compare(&r->job.policy, room, n, sum, err);
}

/* A step whose weights have moved cannot be given up: between its updates there is no state to go on from. */
static bool finishing(Run *r, int64_t done, int64_t of) {
    char line[160];
    snprintf(line, sizeof line,
             "told to stop: %" PRId64 " of %" PRId64 " updates of step %" PRId64 " are done, the others are done first",
             done, of, r->job.step + 1);
    if (done < of) run_dir_log(r->job.dir, line);
    return true;
}

bool step_update(Run *r, Err *err) {
    if (r->now.cut) return true;
    const Config *c = &r->job.c;
    if (r->job.policy.block.saving) { /* a save still reads the weights that are about to move */
        phase_begin(r, "saving");
        checkpoint_copied(r->job.saves);
        phase_end(r, PHASE_SAVE);
    }
    LossConf loss = config_loss(c);
    Updates u = { .lr = lr_at(&r->job.lr, r->job.step) };
    AdamConf adam = config_adam(c, u.lr);
    int64_t groups = r->sampler.roll.n_prompts, per = c->train.mini_batch_size, minis = minibatch_count(groups, per);
    Mem mem = { 0 };
    TrainSeq *seq = MEM_ARRAY(&mem, TrainSeq, (size_t)(per * r->sampler.roll.samples));
    int32_t *which = MEM_ARRAY(&mem, int32_t, (size_t)(per * r->sampler.roll.samples));
    bool ok = true, told = false;
    int skipped = 0;
    if (exact_due(r)) {
        phase_begin(r, "comparison");
        ok = compare_rest(r, &loss, per, seq, &u.exact, err);
        phase_end(r, PHASE_EXACT);
        ok = ok && step_same(r, err);
        if (ok && !job_wanted(&r->job)) give_up(r);
    }
    phase_begin(r, "update");
    for (int64_t e = 0; ok && !r->now.cut && e < c->train.epochs; e++) {
        minibatch_order(r->flat.order, groups, c->train.shuffle, (uint64_t)c->trainer.seed, (uint32_t)r->job.step,
                        (uint32_t)e);
        for (int64_t m = 0; ok && m < minis; m++) {
            int n = gather(r, seq, m * per, per, u.stepped > 0);
            UpdateStats s;
            if (!n) continue;
            u.picked += pick_tokens(r, &loss, m * per, per, which);
            ok = policy_grads(&r->job.policy, seq, n, &loss, &s, err);
            if (ok && s.given_up) give_up(r);
            if (!ok || s.given_up) break;
            ok = r->now.moved || step_same(r, err);
            if (!ok) break;
            policy_step(&r->job.policy, &adam, false, &s);
            ok = refuse_nan(r, &s, err);
            if (!ok) break;
            r->now.moved = r->now.moved || s.stepped;
            if (!job_wanted(&r->job) && !told) told = finishing(r, e * minis + m + 1, c->train.epochs * minis);
            skipped += !s.finite;
            r->now.flops += s.flops, r->now.flops_verl += s.flops_verl;
            if (s.finite) add_update(&u, &s);
            progress_part(r->job.progress, (double)(e * minis + m + 1) / (double)(c->train.epochs * minis), s.tokens);
        }
    }
    mem_free(&mem);
    block_for(&r->job.policy.block, BLOCK_SYNC);
    phase_end(r, PHASE_UPDATE);
    if (ok && !r->now.cut && u.n) update_metrics(r, &u);
    if (skipped) metric(&r->job.metrics, "actor/skipped_updates", skipped);
    return ok;
}

static bool sync_adapter(Run *r, SyncStats *sum, Err *err) {
    SyncStats st;
    TRY(sync_run(&r->sampler.sync_adapter, r->job.c.rollout.sync_check, &st, err));
    sum->sent += st.sent, sum->received += st.received, sum->moved += st.moved, sum->copied += st.copied;
    sum->shared += st.shared, sum->buffer += st.buffer, sum->seconds += st.seconds;
    return true;
}

bool run_sync(Run *r, SyncStats *st, Err *err) {
    *st = (SyncStats){ 0 };
    Block *b = &r->job.policy.block;
    block_for(b, BLOCK_SYNC);
    if (ranks_count(&r->job.ranks) > 1) {
        TRY(sync_run(&r->sampler.sync, r->job.c.rollout.sync_check, st, err));
        if (r->job.o.desc.adapter) TRY(sync_adapter(r, st, err));
    }
    block_for(b, BLOCK_ROLLOUT);
    return true;
}

bool step_sync(Run *r, Err *err) {
    SyncStats st;
    phase_begin(r, "sync");
    TRY(run_sync(r, &st, err));
    if (r->now.cut || ranks_count(&r->job.ranks) == 1) return true;
    phase_end(r, PHASE_SYNC);
    metric(&r->job.metrics, "sync/bytes", st.moved);
    metric(&r->job.metrics, "sync/received_bytes", comm_max(&r->job.ranks.world.all, st.received));
    metric(&r->job.metrics, "sync/buffer_bytes", st.buffer);
    return true;
}
