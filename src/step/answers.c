/* answers.c - the first phase of a step: the next questions, answers to them, their scores;
 * again where groups teach nothing. */
#include "step/run.h"
#include "algo/shape.h"
#include "base/clock.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

void phase_begin(Run *r, const char *name) {
    r->now.t_phase = clock_now(), r->now.t_waited = ranks_waited(&r->job.ranks);
    progress_phase(r->job.progress, name);
    ranks_phase(&r->job.ranks, name);
}

void phase_end(Run *r, StepPhase p) {
    double took = clock_now() - r->now.t_phase;
    r->now.seconds[p] += took;
    r->now.own[p] += took - (ranks_waited(&r->job.ranks) - r->now.t_waited);
}

void step_begin(Run *r) {
    double save = r->now.seconds[PHASE_SAVE],
           own = r->now.own[PHASE_SAVE]; /* a save counts to the step behind it: its own was told of before */
    metrics_clear(&r->job.metrics);
    memset(r->now.seconds, 0, sizeof r->now.seconds);
    memset(r->now.own, 0, sizeof r->now.own);
    r->now.flops = r->now.flops_verl = 0, r->now.decoded = 0;
    r->now.cut = r->now.moved = false;
    r->differs.tokens = 0;
    r->now.kl_before = r->kl;
    r->now.seconds[PHASE_SAVE] = save, r->now.own[PHASE_SAVE] = own;
    r->now.t_step = clock_now() - save;
    progress_step(r->job.progress, r->job.step, r->job.steps);
}

bool give_up(Run *r) {
    r->now.cut = true;
    r->kl = r->now.kl_before;
    return true;
}

void step_end(Run *r) {
    r->job.step++;
    r->job.cursor = stream_cursor(r->job.stream);
}

/* ---- sampling */
/* Between two decode steps nothing moves the weights: a save that is under way goes on. */
static bool wanted(void *user) {
    Run *r = user;
    checkpoint_copy_on(r->job.saves);
    return !stop_asked(); /* of this rank: all end together when it is asked of all */
}

static void show(void *user, int answers, int of, int64_t tokens) {
    Run *r = user;
    progress_part(r->job.progress, (double)answers / of, tokens);
}

static RolloutRun rollout_run(Run *r, const SampleOpts *opts) {
    const Config *c = &r->job.c;
    return (RolloutRun){
        .engine = r->sampler.engine,
        .tok = r->sampler.tok,
        .rewards = r->sampler.rewards,
        .opts = opts,
        .stop = c->rollout.stop.at,
        .n_stop = (int)c->rollout.stop.n,
        .seed = (uint64_t)c->rollout.seed,
        .step = (uint32_t)r->job.step,
        .question_tokens = c->rollout.step_tokens ? (c->rollout.step_tokens - 1) / c->data.train_batch_size + 1 : 0,
        .max_failed = config_max_failed(c),
        .refuse_broken = c->trainer.on_nan == ON_NAN_STOP,
        .progress = show,
        .go_on = wanted,
        .user = r,
        .turns = r->sampler.turns,
        .replicas = &r->sampler.replicas,
        .at_once = r->sampler.at_once,
    };
}

static bool next_prompts(Run *r, Rollouts *roll, Err *err) {
    const Config *c = &r->job.c;
    Mem mem = { 0 };
    TokIds ids = { 0 };
    int64_t n = c->data.train_batch_size, *index = MEM_ARRAY(&mem, int64_t, (size_t)n);
    bool ok = stream_next(r->job.stream, n, index) == n || err_set(err, "the data ended before the steps did");
    for (int64_t i = 0; ok && i < n; i++) {
        const DataRow *row = dataset_row(r->job.train, index[i]);
        ids.n = 0;
        Spans pics = { 0 };
        Mem pixels = { 0 };
        ok = prompter_encode_images(r->job.prompter, 0, row, &ids, &pics, &pixels, err);
        int64_t len = (int64_t)ids.n;
        if (ok && pics.n && len > c->data.max_prompt_length)
            ok = err_set(err,
                         "a prompt of %lld tokens with pictures, which cannot be cut: data.max_prompt_length is %lld",
                         (long long)len, (long long)c->data.max_prompt_length);
        ok = ok && data_fit(ids.at, &len, c->data.max_prompt_length, config_long_prompts(c), err);
        if (!ok) {
            err_wrap(err, "%s, row %" PRId64, dataset_file(r->job.train, row->file), row->row);
            mem_free(&pixels);
            break;
        }
        Prompt *p = rollouts_add(roll, row, index[i], ids.at, (int)len);
        p->spans = pics, p->pixels = pixels;
        if (r->sampler.times_drawn) p->again = r->sampler.times_drawn[index[i]]++;
    }
    vec_free(ids.at);
    mem_free(&mem);
    return ok;
}

double overlong(const Config *c, int n) {
    if (!c->algo.overlong.enable) return 0;
    return reward_overlong(n, c->data.max_response_length, c->algo.overlong.buffer, c->algo.overlong.factor);
}

/* What dynamic sampling looks at. */
static double filter_metric(const Run *r, const Rollout *a) {
    FilterMetric by = (FilterMetric)r->job.c.algo.filter_groups.metric;
    if (by == FILTER_ACC) return isnan(a->acc) ? 0 : a->acc; /* it failed */
    return by == FILTER_REWARD ? a->score + overlong(&r->job.c, answer_n(a)) : a->score;
}

/* Judging by acc needs a scorer that says it. */
static bool filter_knows(const Run *r, int from, Err *err) {
    const Rollouts *o = &r->sampler.roll;
    for (int i = from * o->samples; r->job.c.algo.filter_groups.metric == FILTER_ACC && i < rollouts_n(o); i++)
        if (isnan(o->at[i].acc) && !o->at[i].failed)
            return err_set(err,
                           "algo.filter_groups.metric is acc, but the scorer of data_source '%s' does not say it: use "
                           "score",
                           o->prompt[o->at[i].prompt].row->source);
    return true;
}

/* Groups whose answers all earn the same teach nothing: they leave, the others move together.
 * Prompts from 'from' on are new. */
static void drop_flat_groups(Run *r, int from) {
    Rollouts *o = &r->sampler.roll;
    Flat *f = &r->flat;
    int kept = from, k = o->samples;
    size_t mark = arena_mark(&r->flat.scratch);
    for (int i = from * k; i < rollouts_n(o); i++)
        f->metric[i] = (float)filter_metric(r, &o->at[i]), f->group[i] = o->at[i].prompt;
    filter_groups(f->keep + from * k, f->group + from * k, f->metric + from * k, rollouts_n(o) - from * k,
                  &r->flat.scratch);
    arena_pop(&r->flat.scratch, mark);
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
    rollouts_cut(o, kept); /* with the pictures of the others: a step may draw many batches */
}

static bool stopped_broken(const Run *r, Err *err) {
    return err_wrap(
        err,
        "step %" PRId64
        ": stopped, the last checkpoint is untouched (trainer.on_nan=skip would count the answer as failed)",
        r->job.step + 1);
}

static bool one_batch(Run *r, EngineStats *sum, double *waited, Err *err) {
    int from = r->sampler.roll.n_prompts;
    EngineStats st;
    double wait;
    TRY(job_agree(&r->job, next_prompts(r, &r->sampler.roll, err), err));
    RolloutRun run = rollout_run(r, &r->sampler.opts);
    if (!rollouts_run(&r->sampler.roll, from, &run, &st, &wait, err)) {
        run_failed_samples(r, from);
        return st.broken ? stopped_broken(r, err) : false;
    }
    sum->tokens += st.tokens, sum->broken += st.broken, sum->prompt_tokens += st.prompt_tokens,
        sum->sched.steps += st.sched.steps;
    sum->sched.preempted += st.sched.preempted, sum->sched.prefix_tokens += st.sched.prefix_tokens;
    *waited += wait;
    if (r->job.c.algo.filter_groups.enable) {
        TRY(filter_knows(r, from, err));
        drop_flat_groups(r, from);
    }
    return true;
}

/* ReMax: the greedy answer to each question, as baseline. */
static bool greedy_answers(Run *r, Err *err) {
    SampleOpts opts = r->sampler.opts;
    opts.greedy = true;
    rollouts_clear(&r->sampler.greedy);
    for (int p = 0; p < r->sampler.roll.n_prompts; p++) {
        const Prompt *q = &r->sampler.roll.prompt[p];
        Prompt *same = rollouts_add(&r->sampler.greedy, q->row, q->index, q->tokens, q->n);
        same->spans = q->spans;
    }
    EngineStats st;
    double wait;
    RolloutRun run = rollout_run(r, &opts);
    run.question_tokens = 0; /* a baseline is a whole answer */
    return rollouts_run(&r->sampler.greedy, 0, &run, &st, &wait, err);
}

/* Dynamic sampling ends by itself where more batches cannot be hoped to help: max_batches are done, or as many as hold
 * all questions (ten at least, as luck may help the next) had not one group of use. */
static bool batches_help(const Run *r, int batches, int in_vain, Err *err) {
    const Config *c = &r->job.c;
    int64_t most = c->algo.filter_groups.max_batches, all = dataset_n(r->job.train) / c->data.train_batch_size + 1;
    const char *metric_name = name_of(filter_names, c->algo.filter_groups.metric);
    if (in_vain >= (all > 10 ? all : 10))
        return err_set(
            err,
            "step %" PRId64 ": %d batches in a row had no question whose answers differ in %s: the model may have "
            "learned all there is in this data, or none of it is within its reach; other questions would help (what "
            "was done before is saved)",
            r->job.step + 1, in_vain, metric_name);
    if ((most && batches >= most) || batches == MAX_BATCHES)
        return err_set(
            err,
            "step %" PRId64 ": after %d batches only %d of %d questions have answers that differ in %s; "
            "easier or harder questions, or a higher algo.filter_groups.max_batches, would help (what was done "
            "before is saved)",
            r->job.step + 1, batches, r->sampler.roll.n_prompts, (int)c->data.train_batch_size, metric_name);
    return true;
}

bool step_rollout(Run *r, Err *err) {
    const Config *c = &r->job.c;
    EngineStats sum = { 0 };
    double waited = 0;
    int batches = 0, in_vain = 0, want = (int)c->data.train_batch_size;
    phase_begin(r, "rollout");
    rollouts_clear(&r->sampler.roll);
    if (r->sampler.times_drawn)
        memset(r->sampler.times_drawn, 0, (size_t)dataset_n(r->job.train) * sizeof *r->sampler.times_drawn);
    do {
        int before = r->sampler.roll.n_prompts;
        TRY(one_batch(r, &sum, &waited, err));
        batches++;
        if (!job_wanted(&r->job)) return give_up(r);
        in_vain = r->sampler.roll.n_prompts > before ? 0 : in_vain + 1;
        r->now.spent = r->sampler.roll.n_prompts < want && !batches_help(r, batches, in_vain, err);
        if (r->now.spent) return false;
    } while (r->sampler.roll.n_prompts < want);
    rollouts_cut(&r->sampler.roll, want);
    if (c->algo.advantage == ADV_REMAX) TRY(greedy_answers(r, err));
    if (!job_wanted(&r->job)) return give_up(r);
    flatten(r);
    phase_end(r, PHASE_GEN);
    r->now.seconds[PHASE_GEN] -= waited, r->now.own[PHASE_GEN] -= waited; /* for this rank's scorers */
    r->now.seconds[PHASE_REWARD] += waited, r->now.own[PHASE_REWARD] += waited;
    r->now.decoded = sum.sched.steps;
    if (c->algo.filter_groups.enable) metric(&r->job.metrics, "train/num_gen_batches", batches);
    metric(&r->job.metrics, "rollout/tokens", (double)sum.tokens);
    metric(&r->job.metrics, "rollout/preempted", (double)sum.sched.preempted);
    metric(&r->job.metrics, "rollout/prefix_tokens", (double)sum.sched.prefix_tokens);
    if (sum.broken) metric(&r->job.metrics, "rollout/broken", (double)sum.broken);
    return true;
}
