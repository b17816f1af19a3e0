/* run_step.c - the phases of a training step: answers, reference, advantages, updates. */
#include "algo/shape.h"
#include "base/clock.h"
#include "cmd/run.h"
#include "cmd/start.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void phase_begin(Run *r, Phase p, const char *name) {
    (void)p;
    r->t_phase = clock_now();
    progress_phase(r->progress, name);
}

void phase_end(Run *r, Phase p) { r->seconds[p] += clock_now() - r->t_phase; }

void step_begin(Run *r) {
    double save = r->seconds[PHASE_SAVE]; /* a save counts to the step behind it: its own was told of before */
    metrics_clear(&r->metrics);
    memset(r->seconds, 0, sizeof r->seconds);
    r->flops = r->flops_verl = 0;
    r->cut = r->moved = false;
    r->kl_before = r->kl;
    r->seconds[PHASE_SAVE] = save;
    r->t_step = clock_now() - save;
    progress_step(r->progress, r->step, r->steps);
}

/* Told to stop, and the weights have not moved: as if the step had never begun. */
static bool give_up(Run *r) {
    r->cut = true;
    r->kl = r->kl_before;
    return true;
}

void step_end(Run *r) {
    r->step++;
    r->cursor = stream_cursor(r->stream);
}

/* ---- answers */
/* Between two decode steps nothing moves the weights: a save that is under way goes on. */
static bool wanted(void *user) {
    Run *r = user;
    checkpoint_copy_on(r->saves);
    return !stop_asked(); /* of this rank: all end together when it is asked of all */
}

static void show(void *user, int answers, int of, int64_t tokens) {
    Run *r = user;
    progress_part(r->progress, (double)answers / of, tokens);
}

static RolloutRun rollout_run(Run *r, const SampleOpts *opts) {
    const Config *c = &r->c;
    return (RolloutRun){
        .engine = r->engine,
        .tok = r->tok,
        .rewards = r->rewards,
        .opts = opts,
        .stop = c->rollout.stop.at,
        .n_stop = (int)c->rollout.stop.n,
        .seed = (uint64_t)c->rollout.seed,
        .step = (uint32_t)r->step,
        .token_budget = c->rollout.step_tokens,
        .max_failed = config_max_failed(c),
        .refuse_broken = c->trainer.on_nan == ON_NAN_STOP,
        .progress = show,
        .go_on = wanted,
        .user = r,
        .ranks = &r->ranks.world.all,
    };
}

static bool next_prompts(Run *r, Rollouts *roll, Err *err) {
    const Config *c = &r->c;
    Mem mem = { 0 };
    TokIds ids = { 0 };
    int64_t n = c->data.train_batch_size, *index = MEM_ARRAY(&mem, int64_t, (size_t)n);
    bool ok = stream_next(r->stream, n, index) == n || err_set(err, "the data ended before the steps did");
    for (int64_t i = 0; ok && i < n; i++) {
        const DataRow *row = dataset_row(r->train, index[i]);
        ids.n = 0;
        ok = prompter_encode(r->prompter, 0, row, &ids, err);
        int64_t len = (int64_t)ids.n;
        if (ok && len > c->data.max_prompt_length)
            len = data_cut(ids.at, len, c->data.max_prompt_length, run_long_prompts(c));
        if (ok) rollouts_add(roll, row, index[i], ids.at, (int)len);
        if (ok && r->came) roll->prompt[roll->n_prompts - 1].again = r->came[index[i]]++;
    }
    vec_free(ids.at);
    mem_free(&mem);
    return ok;
}

/* DAPO's punishment of an answer that comes near the longest. */
static double overlong(const Config *c, int n) {
    if (!c->algo.overlong.enable) return 0;
    return reward_overlong(n, c->data.max_response_length, c->algo.overlong.buffer, c->algo.overlong.factor);
}

/* What dynamic sampling looks at. */
static double filter_metric(const Run *r, const Rollout *a) {
    FilterMetric by = (FilterMetric)r->c.algo.filter_groups.metric;
    if (by == FILTER_ACC) return a->acc == 1;
    return by == FILTER_REWARD ? a->score + overlong(&r->c, answer_n(a)) : a->score;
}

/* Judging by acc needs a scorer that says it. */
static bool filter_knows(const Run *r, int from, Err *err) {
    const Rollouts *o = &r->roll;
    for (int i = from * o->samples; r->c.algo.filter_groups.metric == FILTER_ACC && i < rollouts_n(o); i++)
        if (o->at[i].acc < 0 && !o->at[i].failed)
            return err_set(err,
                           "algo.filter_groups.metric is acc, but the scorer of data_source '%s' does not say it: use "
                           "score",
                           o->prompt[o->at[i].prompt].row->source);
    return true;
}

/* Groups whose answers all earn the same teach nothing: they leave, the others move together.  Prompts from 'from' on are new. */
static void drop_flat_groups(Run *r, int from) {
    Rollouts *o = &r->roll;
    Flat *f = &r->flat;
    int kept = from, k = o->samples;
    size_t mark = arena_mark(&r->host);
    for (int i = from * k; i < rollouts_n(o); i++)
        f->metric[i] = (float)filter_metric(r, &o->at[i]), f->group[i] = o->at[i].prompt;
    filter_groups(f->keep + from * k, f->group + from * k, f->metric + from * k, rollouts_n(o) - from * k, &r->host);
    arena_pop(&r->host, mark);
    for (int p = from; p < o->n_prompts; p++) {
        if (!f->keep[p * k]) continue;
        if (p != kept) { /* swap: the rows' memory stays where it is planned */
            Prompt t = o->prompt[kept];
            o->prompt[kept] = o->prompt[p], o->prompt[p] = t;
            for (int i = 0; i < k; i++) {
                Rollout u = o->at[kept * k + i];
                o->at[kept * k + i] = o->at[p * k + i], o->at[p * k + i] = u;
                o->at[kept * k + i].prompt = kept;
            }
        }
        kept++;
    }
    o->n_prompts = kept;
}

static bool stopped_broken(const Run *r, Err *err) {
    return err_wrap(
        err,
        "step %" PRId64
        ": stopped, the last checkpoint is untouched (trainer.on_nan=skip would count the answer as failed)",
        r->step + 1);
}

static bool one_batch(Run *r, EngineStats *sum, double *waited, Err *err) {
    int from = r->roll.n_prompts;
    EngineStats st;
    double wait;
    TRY(run_agree(r, next_prompts(r, &r->roll, err), err));
    RolloutRun run = rollout_run(r, &r->opts);
    if (!rollouts_run(&r->roll, from, &run, &st, &wait, err)) {
        run_failed_samples(r, from);
        return st.broken ? stopped_broken(r, err) : false;
    }
    sum->tokens += st.tokens, sum->broken += st.broken, sum->prompt_tokens += st.prompt_tokens,
        sum->sched.preempted += st.sched.preempted, sum->sched.prefix_tokens += st.sched.prefix_tokens;
    *waited += wait;
    if (r->c.algo.filter_groups.enable) {
        TRY(filter_knows(r, from, err));
        drop_flat_groups(r, from);
    }
    return true;
}

/* ReMax: the greedy answer to each question, as baseline. */
static bool greedy_answers(Run *r, Err *err) {
    SampleOpts opts = r->opts;
    opts.greedy = true;
    r->greedy.n_prompts = 0;
    for (int p = 0; p < r->roll.n_prompts; p++) {
        const Prompt *q = &r->roll.prompt[p];
        rollouts_add(&r->greedy, q->row, q->index, q->tokens, q->n);
    }
    EngineStats st;
    double wait;
    RolloutRun run = rollout_run(r, &opts);
    run.token_budget = 0; /* a baseline is a whole answer */
    return rollouts_run(&r->greedy, 0, &run, &st, &wait, err);
}

/* Dynamic sampling ends by itself where more batches cannot be hoped to help: max_batches are done, or as many as hold all
 * questions (ten at least, as luck may help the next) had not one group of use. */
static bool batches_help(const Run *r, int batches, int in_vain, Err *err) {
    const Config *c = &r->c;
    int64_t most = c->algo.filter_groups.max_batches, all = dataset_n(r->train) / c->data.train_batch_size + 1;
    const char *metric_name = name_of(filter_names, c->algo.filter_groups.metric);
    if (in_vain >= (all > 10 ? all : 10))
        return err_set(
            err,
            "step %" PRId64 ": %d batches in a row had no question whose answers differ in %s: the model may have "
            "learned all there is in this data, or none of it is within its reach; other questions would help (what "
            "was done before is saved)",
            r->step + 1, in_vain, metric_name);
    if ((most && batches >= most) || batches == MAX_BATCHES)
        return err_set(
            err,
            "step %" PRId64 ": after %d batches only %d of %d questions have answers that differ in %s; "
            "easier or harder questions, or a higher algo.filter_groups.max_batches, would help (what was done "
            "before is saved)",
            r->step + 1, batches, r->roll.n_prompts, (int)c->data.train_batch_size, metric_name);
    return true;
}

bool step_rollout(Run *r, Err *err) {
    const Config *c = &r->c;
    EngineStats sum = { 0 };
    double waited = 0;
    int batches = 0, in_vain = 0, want = (int)c->data.train_batch_size;
    phase_begin(r, PHASE_GEN, "rollout");
    r->roll.n_prompts = 0;
    if (r->came) memset(r->came, 0, (size_t)dataset_n(r->train) * sizeof *r->came);
    do {
        int before = r->roll.n_prompts;
        TRY(one_batch(r, &sum, &waited, err));
        batches++;
        if (!run_wanted(r)) return give_up(r);
        in_vain = r->roll.n_prompts > before ? 0 : in_vain + 1;
        r->spent = r->roll.n_prompts < want && !batches_help(r, batches, in_vain, err);
        if (r->spent) return false;
    } while (r->roll.n_prompts < want);
    r->roll.n_prompts = want;
    if (c->algo.advantage == ADV_REMAX) TRY(greedy_answers(r, err));
    if (!run_wanted(r)) return give_up(r);
    phase_end(r, PHASE_GEN);
    r->seconds[PHASE_GEN] -= waited;
    r->seconds[PHASE_REWARD] += waited;
    if (c->algo.filter_groups.enable) metric(&r->metrics, "train/num_gen_batches", batches);
    metric(&r->metrics, "rollout/tokens", (double)sum.tokens);
    metric(&r->metrics, "rollout/preempted", (double)sum.sched.preempted);
    metric(&r->metrics, "rollout/prefix_tokens", (double)sum.sched.prefix_tokens);
    if (sum.broken) metric(&r->metrics, "rollout/broken", (double)sum.broken);
    return true;
}

/* ---- columns */
static void flatten(Run *r) {
    const Config *c = &r->c;
    Flat *f = &r->flat;
    const Rollouts *o = &r->roll;
    f->at[0] = 0;
    for (int i = 0; i < rollouts_n(o); i++) {
        const Rollout *a = &o->at[i];
        int n = answer_n(a);
        int64_t at = f->at[i];
        f->at[i + 1] = at + n;
        f->group[i] = a->prompt;
        f->score[i] = a->score + overlong(c, n);
        memcpy(f->old + at, a->lp, (size_t)n * 4);
        memset(f->reward + at, 0, (size_t)n * 4);
        if (n) f->reward[at + n - 1] = (float)f->score[i];
        f->seq[i] = (TrainSeq){ .tokens = a->tokens,
                                .n = a->n,
                                .prompt = a->n_prompt,
                                .draw = r->opts.draw,
                                .kept = a->kept,
                                .old = f->old + at,
                                .adv = f->adv + at,
                                .ent = a->ent };
        if (r->has_ref) f->seq[i].ref = f->ref + at;
    }
}

static Answers answers_of(const Run *r) { return (Answers){ rollouts_n(&r->roll), r->flat.at, NULL }; }

/* Sequences that have an answer at all, in the order of the answers; returns how many. */
static int with_answer(TrainSeq *out, float **column, const Flat *f, int from, int n) {
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
    int n = rollouts_n(&r->roll);
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

/* Truncated importance weights: how much likelier the trainer's weights make a token than the weights that drew it did.  In
 * one process both are the same weights and the same arithmetic, so every weight is exactly 1; the metrics show it. */
static bool stale_weights(Run *r, Err *err) {
    const Config *c = &r->c;
    Flat *f = &r->flat;
    if (c->algo.tis == TIS_OFF) return true;
    TRY(column_of(r, &r->policy, f->now, r->policy.c.max_seqs, err));
    Answers a = { rollouts_n(&r->roll), f->at, NULL };
    TisSum sum = { 0 };
    tis_weights(f->weight, &sum, (TisKind)c->algo.tis, c->algo.tis_cap, &a, f->now, f->old);
    for (int64_t i = 0; i < a.n; i++) f->seq[i].weight = f->weight + f->at[i];
    metric(&r->metrics, "rollout_corr/rollout_is_mean", sum.count ? sum.sum / (double)sum.count : 1);
    metric(&r->metrics, "rollout_corr/rollout_is_max", sum.max);
    metric(&r->metrics, "rollout_corr/rollout_is_min", sum.min);
    return true;
}

bool step_reference(Run *r, Err *err) {
    if (r->cut) return true;
    flatten(r);
    if (!r->has_ref && r->c.algo.tis == TIS_OFF) return true;
    phase_begin(r, PHASE_REF, "reference");
    bool ok = (!r->has_ref || column_of(r, &r->ref, r->flat.ref, r->ref.c.max_seqs, err)) && stale_weights(r, err);
    phase_end(r, PHASE_REF);
    return ok && !run_wanted(r) ? give_up(r) : ok;
}

/* ---- advantages */
static void penalise_kl(Run *r, const Answers *a) {
    const Config *c = &r->c;
    if (!c->algo.kl_in_reward) return;
    double kl = kl_into_reward(r->flat.reward, a, c->algo.kl_estimator, r->kl.coef, r->flat.old, r->flat.ref);
    metric(&r->metrics, "actor/reward_kl_penalty", kl);
    metric(&r->metrics, "actor/reward_kl_penalty_coeff", r->kl.coef);
    kl_control_step(&r->kl, kl, a->n);
}

bool step_advantage(Run *r, Err *err) {
    if (r->cut) return true;
    const Config *c = &r->c;
    Flat *f = &r->flat;
    Answers a = answers_of(r);
    phase_begin(r, PHASE_ADV, "advantages");
    penalise_kl(r, &a);
    AdvConf conf = config_advantage(c);
    AdvIn in = { .a = a, .reward = f->reward, .group = f->group };
    if (c->algo.advantage == ADV_REMAX) {
        for (int64_t i = 0; i < a.n; i++) f->baseline[i] = (float)r->greedy.at[f->group[i]].score;
        in.baseline = f->baseline;
    }
    size_t mark = arena_mark(&r->host);
    bool ok = advantage(f->adv, f->ret, &conf, &in, &r->host, err);
    arena_pop(&r->host, mark);
    for (int64_t i = 0; c->train.loss == LOSS_KL_COV && i < a.n; i++) f->seq[i].pick = f->pick + f->at[i];
    phase_end(r, PHASE_ADV);
    return ok;
}

/* ---- updates */
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
    u->n++;
    u->stepped += s->stepped;
}

static void update_metrics(Run *r, const Updates *u) {
    Metrics *m = &r->metrics;
    double n = u->n, t = u->sum.loss.tokens ? (double)u->sum.loss.tokens : 1;
    metric(m, "actor/pg_loss", u->sum.loss.pg / n);
    metric(m, "actor/loss", u->sum.total / n);
    metric(m, "actor/entropy", u->sum.loss.entropy / n);
    if (r->c.train.use_kl_loss)
        metric(m, "actor/kl_loss", u->sum.loss.kl / n), metric(m, "actor/kl_coef", r->c.train.kl_loss_coef);
    metric(m, "actor/pg_clipfrac", u->sum.loss.clipped / t);
    metric(m, "actor/pg_clipfrac_lower", u->sum.loss.clipped_low / t);
    metric(m, "actor/ppo_kl", u->sum.loss.ppo_kl / t);
    metric(m, "actor/grad_norm", u->sum.grad_norm / n);
    metric(m, "actor/lr", u->lr);
    metric(m, "actor/updates", u->stepped);
    if (r->c.train.loss == LOSS_KL_COV) metric(m, "actor/kl_cov_tokens", (double)u->picked);
    if (u->exact.tokens)
        metric(m, "exact/max_abs_logprob_diff", u->exact.max_diff); /* of nothing there is no difference */
    metric(m, "exact/tokens", (double)u->exact.tokens);
    exact_add(&r->sum.exact, &u->exact);
    r->sum.compared += u->exact.tokens > 0;
    metric(m, "perf/micro_batches", (double)u->sum.micros);
    metric(m, "perf/micro_tokens_max", (double)u->sum.max_micro);
    metric(m, "perf/silent_ratio", (double)u->sum.silent / u->sum.seqs);
    metric(m, "global_seqlen/imbalance", u->sum.imbalance);
    if (r->policy.m->shard.g.dp > 1) metric(m, "global_seqlen/rank_imbalance", u->sum.spread);
}

/* kl_cov's choice among a mini-batch's tokens. */
static int64_t pick_tokens(Run *r, const LossConf *loss, int64_t from, int64_t per, int32_t *which) {
    int64_t n = 0, k = r->roll.samples;
    if (loss->kind != LOSS_KL_COV) return 0;
    for (int64_t i = from; i < from + per && i < r->roll.n_prompts; i++)
        for (int64_t s = 0; s < k; s++) which[n++] = (int32_t)(r->flat.order[i] * k + s);
    Answers a = answers_of(r);
    return pick_by_covariance(r->flat.pick, &a, which, n, r->flat.adv, r->flat.old, loss->cov_ratio, &r->host);
}

/* One mini-batch: 'per' questions from position 'from' of the order, with all their answers.  The sampler's entropies are the
 * policy's until the weights have moved. */
static int gather(Run *r, TrainSeq *out, int64_t from, int64_t per, bool moved) {
    int n = 0, k = r->roll.samples;
    for (int64_t i = from; i < from + per && i < r->roll.n_prompts; i++)
        n += with_answer(out + n, NULL, &r->flat, r->flat.order[i] * k, k);
    for (int i = 0; moved && i < n; i++) out[i].ent = NULL;
    return n;
}

static bool refuse_nan(const Run *r, const UpdateStats *s, Err *err) {
    if (s->finite || s->given_up || r->c.trainer.on_nan == ON_NAN_SKIP) return true;
    return err_set(
        err,
        "step %" PRId64
        ": the loss is %g and the gradient's norm %g: stopped, the weights are as before this update and the "
        "last checkpoint is untouched (a smaller train.lr may help; trainer.on_nan=skip goes on without this update)",
        r->step + 1, s->total, s->grad_norm);
}

/* ---- E3 in every run: what the trainer computes anyway is compared with what the sampler wrote down (add_update); now and then
 * the rest is computed for that alone: answers that teach nothing, and those of later mini-batches. */
static bool exact_due(const Run *r) {
    int64_t every = r->c.trainer.exact_every, step = r->step + 1;
    return step == 1 || (every > 0 && step % every == 0);
}

static bool compare_rest(Run *r, const LossConf *loss, int64_t per, TrainSeq *room, Exact *sum, Err *err) {
    const Flat *f = &r->flat;
    int k = r->roll.samples, most = r->policy.c.max_seqs, n = 0;
    minibatch_order(r->flat.order, r->roll.n_prompts, r->c.train.shuffle, (uint64_t)r->c.trainer.seed,
                    (uint32_t)r->step, 0);
    for (int64_t q = 0; q < r->roll.n_prompts; q++)
        for (int64_t i = f->order[q] * k; i < (f->order[q] + 1) * k; i++) {
            int64_t at[2] = { 0, f->seq[i].n - f->seq[i].prompt };
            Answers one = { 1, at, NULL };
            if (at[1] == 0 || (q < per && !loss_is_silent(loss, &one, f->seq[i].adv))) continue;
            room[n++] = f->seq[i];
            if (n < most) continue;
            TRY(policy_compare(&r->policy, room, n, sum, err));
            n = 0;
        }
    return !n || policy_compare(&r->policy, room, n, sum, err);
}

/* A step whose weights have moved cannot be given up: between its updates there is no state to go on from. */
static bool finishing(Run *r, int64_t done, int64_t of) {
    char line[160];
    snprintf(line, sizeof line,
             "told to stop: %" PRId64 " of %" PRId64 " updates of step %" PRId64 " are done, the others are done first",
             done, of, r->step + 1);
    if (done < of) run_dir_log(r->dir, line);
    return true;
}

bool step_update(Run *r, Err *err) {
    if (r->cut) return true;
    const Config *c = &r->c;
    if (r->policy.held) { /* a save still reads the weights that are about to move */
        phase_begin(r, PHASE_SAVE, "saving");
        checkpoint_copied(r->saves);
        phase_end(r, PHASE_SAVE);
    }
    LossConf loss = config_loss(c);
    Updates u = { .lr = lr_at(&r->lr, r->step) };
    AdamConf adam = { u.lr,         c->train.betas[0],     c->train.betas[1],
                      c->train.eps, c->train.weight_decay, c->train.clip_grad };
    int64_t groups = r->roll.n_prompts, per = c->train.mini_batch_size, minis = minibatch_count(groups, per);
    Mem mem = { 0 };
    TrainSeq *seq = MEM_ARRAY(&mem, TrainSeq, (size_t)(per * r->roll.samples));
    int32_t *which = MEM_ARRAY(&mem, int32_t, (size_t)(per * r->roll.samples));
    bool ok = true, told = false;
    int skipped = 0;
    if (exact_due(r)) {
        phase_begin(r, PHASE_EXACT, "comparison");
        ok = compare_rest(r, &loss, per, seq, &u.exact, err);
        phase_end(r, PHASE_EXACT);
        if (ok && !run_wanted(r)) give_up(r);
    }
    phase_begin(r, PHASE_UPDATE, "update");
    for (int64_t e = 0; ok && !r->cut && e < c->train.epochs; e++) {
        minibatch_order(r->flat.order, groups, c->train.shuffle, (uint64_t)c->trainer.seed, (uint32_t)r->step,
                        (uint32_t)e);
        for (int64_t m = 0; ok && m < minis; m++) {
            int n = gather(r, seq, m * per, per, u.stepped > 0);
            UpdateStats s;
            if (!n) continue;
            u.picked += pick_tokens(r, &loss, m * per, per, which);
            ok = policy_update(&r->policy, seq, n, &loss, &adam, false, &s, err) && refuse_nan(r, &s, err);
            if (!ok) break;
            if (s.given_up) {
                give_up(r);
                break;
            }
            r->moved = r->moved || s.stepped;
            if (!run_wanted(r) && !told) told = finishing(r, e * minis + m + 1, c->train.epochs * minis);
            skipped += !s.finite;
            r->flops += s.flops, r->flops_verl += s.flops_verl;
            if (s.finite) add_update(&u, &s);
            progress_part(r->progress, (double)(e * minis + m + 1) / (double)(c->train.epochs * minis), s.tokens);
        }
    }
    mem_free(&mem);
    engine_flush(r->engine); /* what is cached was computed with other weights */
    phase_end(r, PHASE_UPDATE);
    if (ok && !r->cut && u.n) update_metrics(r, &u);
    if (skipped) metric(&r->metrics, "actor/skipped_updates", skipped);
    return ok;
}
