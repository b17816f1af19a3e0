/* report.c - what a run tells of a step: metrics under verl's names, what is wrong with it; and saves. */
#include "step/run.h"
#include "base/clock.h"
#include "cut/flops.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what is wrong with a step is said when it begins, not again while it lasts */
static void warn(Run *r, bool now, bool *was, const char *what) {
    char line[300];
    snprintf(line, sizeof line, "step %" PRId64 ": %s", r->job.step, what);
    if (now && !*was) run_dir_log(r->job.dir, line);
    *was = now;
}

static void warnings(Run *r, bool unjudged, bool equal, bool flat, bool no_room) {
    double norm = metric_of(&r->job.metrics, "actor/grad_norm", 0), usual = r->warned.grad.mean;
    char line[300];
    double score = metric_of(&r->job.metrics, "critic/score/mean", 0);
    warn(r, unjudged, &r->warned.unjudged,
         "the scorer could judge no answer: nothing can be learned; samples.jsonl says why under \"reason\"");
    warn(r, (equal && !unjudged) || r->warned.equal, &r->warned.equal, /* said once */
         score >= 1 ? "every answer earns full marks: these questions are learned"
                    : "every answer has the same score: nothing can be learned from it; are the "
                      "scorer and the answers' format right?");
    warn(r, (flat && !equal) || r->warned.flat, &r->warned.flat,
         "the answers to each question all earn the same: nothing can be learned from it");
    warn(r, no_room, &r->warned.room,
         "answers ended because there was no room for their kept sets (response/no_room_ratio): a larger "
         "rollout.kept_bytes "
         "lets them go on");
    if (!far_above(&r->warned.grad, norm)) return;
    snprintf(line, sizeof line,
             "step %" PRId64 ": the gradient's norm is %.3g, that of the steps before was %.3g: the run may be "
             "diverging; a smaller train.lr or train.clip_grad may help",
             r->job.step, norm, usual);
    run_dir_log(r->job.dir, line);
}

/* Rewards are float32 from here on, as verl's: two scores of a question that differ, by more than what sums of the same
 * parts leave, may be one reward. */
static void warn_of_rounding(Run *r) {
    const Flat *f = &r->flat;
    int n = rollouts_n(&r->sampler.roll), k = r->sampler.roll.samples;
    for (int i = 0; i < n && !r->warned.rounded; i++)
        for (int j = i + 1; j < (i / k + 1) * k; j++) {
            double a = f->score[i], b = f->score[j];
            if ((float)a != (float)b || fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b))) continue;
            char line[200];
            snprintf(line, sizeof line,
                     "scores %.17g and %.17g of answers to one question are the same reward: float32 has 7 digits, "
                     "spread them wider",
                     a, b);
            warn(r, true, &r->warned.rounded, line);
            break;
        }
}

/* ---- rewards, lengths */
/* Tokens of a part of dp, were the answers dealt out in their order, as many to each; balanced_* is what updates made
 * of it (update.c).  One part has all. */
static void rank_tokens(Run *r, int64_t tokens) {
    Metrics *m = &r->job.metrics;
    const Rollouts *o = &r->sampler.roll;
    int64_t n = rollouts_n(o), parts = r->job.policy.m->shard.g.dp, most = 0, least = tokens;
    for (int64_t k = 0; k < parts; k++) {
        int64_t has = 0;
        for (int64_t i = n * k / parts; i < n * (k + 1) / parts; i++) has += o->at[i].n;
        most = has > most ? has : most, least = has < least ? has : least;
    }
    metric(m, "global_seqlen/mean", (double)tokens / (double)parts);
    metric(m, "global_seqlen/max", (double)most);
    metric(m, "global_seqlen/min", (double)least);
    if (parts == 1) metric(m, "global_seqlen/balanced_max", (double)tokens);
    if (parts == 1) metric(m, "global_seqlen/balanced_min", (double)tokens);
    metric(m, "global_seqlen/minmax_diff", (double)(most - least));
}

/* Of answers of several turns: per answer, however many turns or rows it has. */
static void turn_metrics(Run *r) {
    Metrics *m = &r->job.metrics;
    const Rollouts *o = &r->sampler.roll;
    Spread turns = { 0 }, calls = { 0 };
    double bad = 0, given = 0, sampled = 0;
    for (int i = 0; i < rollouts_n(o); i++) {
        const Rollout *a = &o->at[i];
        spread_add(&turns, a->turns), spread_add(&calls, a->calls);
        bad += a->bad_calls, given += a->given, sampled += answer_n(a) - a->given;
    }
    metric_spread(m, &turns, "num_turns/mean", "num_turns/max", "num_turns/min");
    metric_spread(m, &calls, "tools/calls/mean", "tools/calls/max", "tools/calls/min");
    if (calls.sum > 0) metric(m, "tools/failed_ratio", bad / calls.sum);
    metric(m, "tools/given_tokens", given / rollouts_n(o));
    metric(m, "tools/sampled_tokens", sampled / rollouts_n(o));
}

static void answer_metrics(Run *r) {
    Metrics *m = &r->job.metrics;
    const Rollouts *o = &r->sampler.roll;
    const Flat *f = &r->flat;
    Spread score = { 0 }, reward = { 0 }, adv = { 0 }, ret = { 0 }, len = { 0 }, alive = { 0 }, prompt = { 0 },
           seqlen = { 0 };
    double right = 0;
    int64_t cut = 0, empty = 0, failed = 0, judged = 0, budget = 0, full = 0, tokens = 0, sets = 0, no_room = 0;
    for (int i = 0; i < rollouts_n(o); i++) {
        const Rollout *a = &o->at[i];
        double sum = 0;
        for (int64_t t = f->at[i]; t < f->end[i]; t++) {
            sum += f->reward[t];
            if (a->mask && !a->mask[t - f->at[i]]) continue;
            spread_add(&adv, f->adv[t]), spread_add(&ret, f->ret[t]);
        }
        spread_add(&len, answer_n(a));
        if (answer_n(a)) spread_add(&alive, answer_n(a)), spread_add(&score, a->score), spread_add(&reward, sum);
        full += a->n_prompt == r->job.c.data.max_prompt_length, tokens += a->n;
        spread_add(&prompt, a->n_prompt);
        spread_add(&seqlen, a->n);
        cut += a->finish == FINISH_LENGTH, budget += a->finish == FINISH_BUDGET, empty += answer_n(a) == 0,
            failed += a->failed, sets += (int64_t)a->kept_n, no_room += a->finish == FINISH_ROOM;
        if (!isnan(a->acc)) judged++, right += a->acc;
    }
    double n = rollouts_n(o);
    metric_spread(m, &score, "critic/score/mean", "critic/score/max", "critic/score/min");
    metric_spread(m, &reward, "critic/rewards/mean", "critic/rewards/max", "critic/rewards/min");
    metric_spread(m, &adv, "critic/advantages/mean", "critic/advantages/max", "critic/advantages/min");
    metric_spread(m, &ret, "critic/returns/mean", "critic/returns/max", "critic/returns/min");
    metric_spread(m, &len, "response_length/mean", "response_length/max", "response_length/min");
    metric(m, "response_length/clip_ratio", (double)cut / n);
    if (r->sampler.turns) turn_metrics(r);
    metric(m, "response/aborted_ratio", (double)empty / n);
    metric(m, "response/budget_ratio", (double)budget / n);
    if (o->kept_room) {
        metric(m, "response/no_room_ratio", (double)no_room / n);
        metric(m, "rollout/kept_bytes_per_token", len.sum > 0 ? (double)sets / len.sum : 0);
    }
    metric_spread(m, &prompt, "prompt_length/mean", "prompt_length/max", "prompt_length/min");
    metric(m, "prompt_length/clip_ratio", (double)full / n);
    metric_spread(m, &alive, "response_length_non_aborted/mean", "response_length_non_aborted/max",
                  "response_length_non_aborted/min");
    if (alive.n) metric(m, "response_length_non_aborted/clip_ratio", (double)cut / (double)alive.n);
    metric_spread(m, &seqlen, "sequence_length/mean", "sequence_length/max", "sequence_length/min");
    rank_tokens(r, tokens);
    metric(m, "reward/failed_ratio", (double)failed / n);
    if (judged) metric(m, "reward/acc", right / (double)judged);
    if (score.max == score.min) metric(m, "reward/all_equal", 1);
    warn_of_rounding(r);
    warnings(r, failed == rollouts_n(o), score.max == score.min, adv.max == 0 && adv.min == 0, no_room > 0);
}

/* ---- time and speed */
/* Answers differ in length: sampling is compared by the steps of the rank's engine. */
static void slow_metrics(Run *r, double step) {
    static const SlowPhase phases[PHASES] = { SLOW_PHASE("rollout", "gen"),
                                              SLOW_PHASE("rewards", "reward"),
                                              SLOW_PHASE("the reference's pass", "ref"),
                                              SLOW_PHASE("advantages", "adv"),
                                              SLOW_PHASE("the comparison", "exact"),
                                              SLOW_PHASE("update", "update_actor"),
                                              SLOW_PHASE("sync", "sync"),
                                              SLOW_PHASE("validation", "testing"),
                                              SLOW_PHASE("saving", "save_checkpoint") };
    SlowPart part[PHASES];
    for (int p = 0; p < PHASES; p++) part[p] = (SlowPart){ r->now.own[p], 1 };
    part[PHASE_GEN].work = (double)r->now.decoded;
    part[PHASE_REWARD].work = part[PHASE_TEST].work = 0; /* scorers are others' programs; answers differ in length */
    slowest_tell(&r->job.ranks, &r->job.metrics, r->job.dir, &r->slow, phases, part, PHASES, r->job.step, step);
}

static void speed_metrics(Run *r) {
    static const char *const names[PHASES] = { "timing_s/gen",  "timing_s/reward",  "timing_s/ref",
                                               "timing_s/adv",  "timing_s/exact",   "timing_s/update_actor",
                                               "timing_s/sync", "timing_s/testing", "timing_s/save_checkpoint" };
    Metrics *m = &r->job.metrics;
    const Rollouts *o = &r->sampler.roll;
    const ModelDesc *d = &r->job.o.desc;
    double step = clock_now() - r->now.t_step, known = 0, all = 0, answer = 0;
    Mem mem = { 0 };
    int n = rollouts_n(o);
    int64_t *lens = MEM_ARRAY(&mem, int64_t, (size_t)n);
    for (int i = 0; i < n; i++) lens[i] = o->at[i].n, all += o->at[i].n, answer += answer_n(&o->at[i]);
    for (int p = 0; p < PHASES; p++) {
        known += r->now.seconds[p];
        if (r->now.seconds[p] > 0) metric(m, names[p], r->now.seconds[p]);
    }
    metric(m, "timing_s/other", step - known);
    metric(m, "timing_s/step", step);
    slow_metrics(r, step);
    metric(m, "timing_per_token_ms/gen", 1e3 * r->now.seconds[PHASE_GEN] / answer);
    if (r->now.seconds[PHASE_REF] > 0) metric(m, "timing_per_token_ms/ref", 1e3 * r->now.seconds[PHASE_REF] / all);
    metric(m, "timing_per_token_ms/adv", 1e3 * r->now.seconds[PHASE_ADV] / all);
    metric(m, "timing_per_token_ms/update_actor", 1e3 * r->now.seconds[PHASE_UPDATE] / all);
    metric(m, "perf/total_num_tokens", all);
    metric(m, "perf/time_per_step", step);
    metric(m, "perf/throughput", all / step);
    TokenFlops f = token_flops(&d->d);
    double epochs = (double)r->job.c.train.epochs, update = r->now.seconds[PHASE_UPDATE];
    double full = flops_train(&f, lens, n, (int64_t)answer) * epochs; /* were every answer trained on */
    metric(m, "perf/mfu/actor", r->now.flops / update / r->peak_flops);
    metric(m, "perf/mfu/actor_verl", r->now.flops_verl / update / r->peak_flops);
    MemoryUsed memory = memory_used(); /* now and at most: what grows must show although the start took more */
    if (memory.now > 0) metric(m, "perf/cpu_memory_used_gb", memory.now / 1e9);
    if (memory.peak > 0) metric(m, "perf/cpu_memory_peak_gb", memory.peak / 1e9);
    DevAbout gpu = dev_about(&r->job.o.dev);
    if (gpu.total) { /* what the driver says against what was planned, and how often memory was asked for */
        metric(m, "perf/gpu_memory_used_gb", (double)(gpu.total - gpu.free) / 1e9);
        metric(m, "perf/gpu_memory_planned_gb", (double)(gpu.base + r->job.planned_gpu) / 1e9);
        metric(m, "perf/gpu_allocations", (double)r->job.o.dev.taken);
    }
    for (int p = 0; p < PHASES; p++) r->sum.seconds[p] += r->now.seconds[p];
    r->now.seconds[PHASE_SAVE] = r->now.own[PHASE_SAVE] =
        0; /* told; what the next step takes over is the save that comes now */
    r->sum.prompt += all - answer, r->sum.answer += answer, r->sum.answers += n, r->sum.steps++;
    r->sum.flops += r->now.flops, r->sum.full += full;
    mem_free(&mem);
}

bool step_measure(Run *r, Err *err) {
    answer_metrics(r);
    metric(&r->job.metrics, "training/global_step", (double)r->job.step);
    metric(&r->job.metrics, "training/epoch", (double)r->job.cursor.epoch);
    return job_agree(&r->job, run_samples(r, err), err);
}

bool step_report(Run *r, Err *err) {
    speed_metrics(r);
    return r->job.untold || job_tell(&r->job, err);
}

bool step_catch_up(Run *r, Err *err) {
    if (!r->job.untold) return true;
    r->job.untold = false;
    TRY(step_validate(r, err));
    if (r->job.untold) return true; /* told to stop again */
    r->job.saved = -1; /* the checkpoint says that the step is untold: it is written again, if no later one is */
    metric(&r->job.metrics, "timing_s/testing", r->now.seconds[PHASE_TEST]);
    return job_tell(&r->job, err);
}

/* ---- saving */
bool run_save(Run *r, Err *err) {
    if (r->job.step == r->job.saved) return true;
    Buf more = { 0 };
    phase_begin(r, "saving");
    buf_puts(&more, ",\"kl_coef\":");
    json_put_f64(&more, r->kl.coef);
    bool ok = job_save(&r->job, more.data, err);
    buf_free(&more);
    phase_end(r, PHASE_SAVE);
    return ok;
}
