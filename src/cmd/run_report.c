/* run_report.c - what a run tells: metrics of a step under verl's names, samples to read, validation, saves, the summary. */
#include "base/clock.h"
#include "cmd/run.h"
#include "cmd/run_predict.h"
#include "cmd/start.h"
#include "plan/flops.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- what is wrong with a step is said when it begins, not again while it lasts */
static void warn(Run *r, bool now, bool *was, const char *what) {
    char line[300];
    snprintf(line, sizeof line, "step %" PRId64 ": %s", r->step, what);
    if (now && !*was) run_dir_log(r->dir, line);
    *was = now;
}

static void warnings(Run *r, bool unjudged, bool equal, bool flat, bool no_room) {
    double norm = metric_of(&r->metrics, "actor/grad_norm", 0), usual = r->warned.grad.mean;
    char line[300];
    double score = metric_of(&r->metrics, "critic/score/mean", 0);
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
             r->step, norm, usual);
    run_dir_log(r->dir, line);
}

/* ---- rewards, lengths */
static void answer_metrics(Run *r) {
    Metrics *m = &r->metrics;
    const Rollouts *o = &r->roll;
    const Flat *f = &r->flat;
    Spread score = { 0 }, reward = { 0 }, adv = { 0 }, ret = { 0 }, len = { 0 }, alive = { 0 }, prompt = { 0 },
           seqlen = { 0 };
    int64_t cut = 0, empty = 0, failed = 0, right = 0, judged = 0, budget = 0, full = 0, tokens = 0, sets = 0,
            no_room = 0;
    for (int i = 0; i < rollouts_n(o); i++) {
        const Rollout *a = &o->at[i];
        double sum = 0;
        for (int64_t t = f->at[i]; t < f->at[i + 1]; t++)
            sum += f->reward[t], spread_add(&adv, f->adv[t]), spread_add(&ret, f->ret[t]);
        spread_add(&len, answer_n(a));
        if (answer_n(a)) spread_add(&alive, answer_n(a)), spread_add(&score, a->score), spread_add(&reward, sum);
        full += a->n_prompt == r->c.data.max_prompt_length, tokens += a->n;
        spread_add(&prompt, a->n_prompt);
        spread_add(&seqlen, a->n);
        cut += a->finish == FINISH_LENGTH, budget += a->finish == FINISH_BUDGET, empty += answer_n(a) == 0,
            failed += a->failed, sets += (int64_t)a->kept_n, no_room += a->finish == FINISH_ROOM;
        if (a->acc >= 0) judged++, right += a->acc;
    }
    double n = rollouts_n(o);
    metric_spread(m, &score, "critic/score/mean", "critic/score/max", "critic/score/min");
    metric_spread(m, &reward, "critic/rewards/mean", "critic/rewards/max", "critic/rewards/min");
    metric_spread(m, &adv, "critic/advantages/mean", "critic/advantages/max", "critic/advantages/min");
    metric_spread(m, &ret, "critic/returns/mean", "critic/returns/max", "critic/returns/min");
    metric_spread(m, &len, "response_length/mean", "response_length/max", "response_length/min");
    metric(m, "response_length/clip_ratio", (double)cut / n);
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
    static const char *const per_rank[] = { "global_seqlen/mean", "global_seqlen/max", "global_seqlen/min",
                                            "global_seqlen/balanced_max", "global_seqlen/balanced_min" };
    for (size_t i = 0; i < COUNT(per_rank); i++)
        metric(m, per_rank[i], (double)tokens); /* tokens of a rank; there is one */
    metric(m, "global_seqlen/minmax_diff", 0);
    metric(m, "reward/failed_ratio", (double)failed / n);
    if (judged) metric(m, "reward/acc", (double)right / (double)judged);
    if (score.max == score.min) metric(m, "reward/all_equal", 1);
    warnings(r, failed == rollouts_n(o), score.max == score.min, adv.max == 0 && adv.min == 0, no_room > 0);
}

/* ---- time and speed */
static void speed_metrics(Run *r) {
    static const char *const names[PHASES] = { "timing_s/gen",     "timing_s/reward",         "timing_s/ref",
                                               "timing_s/adv",     "timing_s/exact",          "timing_s/update_actor",
                                               "timing_s/testing", "timing_s/save_checkpoint" };
    Metrics *m = &r->metrics;
    const Rollouts *o = &r->roll;
    const ModelDesc *d = &r->o.desc;
    double step = clock_now() - r->t_step, known = 0, all = 0, answer = 0;
    Mem mem = { 0 };
    int n = rollouts_n(o);
    int64_t *lens = MEM_ARRAY(&mem, int64_t, (size_t)n);
    for (int i = 0; i < n; i++) lens[i] = o->at[i].n, all += o->at[i].n, answer += answer_n(&o->at[i]);
    for (int p = 0; p < PHASES; p++) {
        known += r->seconds[p];
        if (r->seconds[p] > 0) metric(m, names[p], r->seconds[p]);
    }
    metric(m, "timing_s/other", step - known);
    metric(m, "timing_s/step", step);
    metric(m, "timing_per_token_ms/gen", 1e3 * r->seconds[PHASE_GEN] / answer);
    if (r->seconds[PHASE_REF] > 0) metric(m, "timing_per_token_ms/ref", 1e3 * r->seconds[PHASE_REF] / all);
    metric(m, "timing_per_token_ms/adv", 1e3 * r->seconds[PHASE_ADV] / all);
    metric(m, "timing_per_token_ms/update_actor", 1e3 * r->seconds[PHASE_UPDATE] / all);
    metric(m, "perf/total_num_tokens", all);
    metric(m, "perf/time_per_step", step);
    metric(m, "perf/throughput", all / step);
    TokenFlops f = token_flops(&d->d, d->arch->attn);
    double epochs = (double)r->c.train.epochs, update = r->seconds[PHASE_UPDATE];
    double full = flops_train(&f, lens, n, (int64_t)answer) * epochs; /* were every answer trained on */
    metric(m, "perf/mfu/actor", r->flops / update / r->peak_flops);
    metric(m, "perf/mfu/actor_verl", r->flops_verl / update / r->peak_flops);
    MemoryUsed memory = memory_used(); /* now and at most: what grows must show although the start took more */
    if (memory.now > 0) metric(m, "perf/cpu_memory_used_gb", memory.now / 1e9);
    if (memory.peak > 0) metric(m, "perf/cpu_memory_peak_gb", memory.peak / 1e9);
    DevAbout gpu = dev_about(&r->o.dev);
    if (gpu.total) { /* what the driver says against what was planned, and how often memory was asked for */
        metric(m, "perf/gpu_memory_used_gb", (double)(gpu.total - gpu.free) / 1e9);
        metric(m, "perf/gpu_memory_planned_gb", (double)(gpu.base + r->planned_gpu) / 1e9);
        metric(m, "perf/gpu_allocations", (double)r->o.dev.taken);
    }
    for (int p = 0; p < PHASES; p++) r->sum.seconds[p] += r->seconds[p];
    r->sum.prompt += all - answer, r->sum.answer += answer, r->sum.answers += n, r->sum.steps++;
    r->sum.flops += r->flops, r->sum.full += full;
    mem_free(&mem);
}

/* ---- samples to read */
static void put_sample(Buf *b, const Run *r, const Rollouts *o, const Rollout *a, const float *adv) {
    Buf text = { 0 };
    const DataRow *row = o->prompt[a->prompt].row;
    Err err;
    buf_printf(b, "{\"step\":%" PRId64 ",\"row\":%" PRId64 ",\"sample\":%d,\"score\":", r->step,
               o->prompt[a->prompt].index, a->sample);
    json_put_f64(b, a->score);
    if (adv) buf_puts(b, ",\"advantage\":"), json_put_f32(b, *adv);
    buf_printf(b, ",\"finish\":\"%s\",\"tokens\":%d,\"input\":", finish_name(a->finish), answer_n(a));
    if (!tok_decode(r->tok, a->tokens, (size_t)a->n_prompt, false, &text, &err)) buf_clear(&text);
    json_put_str(b, text.data ? text.data : "", text.n);
    buf_clear(&text);
    rollout_text(a, r->tok, &text);
    buf_puts(b, ",\"output\":");
    json_put_str(b, text.data ? text.data : "", text.n);
    buf_puts(b, ",\"gts\":");
    json_put_str(b, row->truth ? row->truth : "", row->truth_n);
    if (a->failed) buf_puts(b, ",\"failed\":true,\"reason\":"), json_put_str(b, a->reason, strlen(a->reason));
    buf_puts(b, "}\n");
    buf_free(&text);
}

void run_failed_samples(Run *r, int from) {
    Buf b = { 0 };
    Err err;
    int64_t left = r->c.trainer.samples;
    for (int i = from * r->roll.samples; i < rollouts_n(&r->roll) && left; i++)
        if (r->roll.at[i].failed) put_sample(&b, r, &r->roll, &r->roll.at[i], NULL), left--;
    if (b.n && !run_dir_samples(r->dir, b.data, b.n, &err)) run_dir_note(r->dir, err.msg);
    buf_free(&b);
}

static bool write_samples(Run *r, Err *err) {
    Buf b = { 0 };
    int n = rollouts_n(&r->roll), want = (int)r->c.trainer.samples;
    for (int i = 0; i < n && i < want; i++) {
        int k = (int)((int64_t)i * n / (want < n ? want : n));
        const float *adv = r->flat.at[k + 1] > r->flat.at[k] ? &r->flat.adv[r->flat.at[k]] : NULL;
        put_sample(&b, r, &r->roll, &r->roll.at[k], adv);
    }
    bool ok = !b.n || run_dir_samples(r->dir, b.data, b.n, err);
    buf_free(&b);
    return ok;
}

bool step_measure(Run *r, Err *err) {
    answer_metrics(r);
    metric(&r->metrics, "training/global_step", (double)r->step);
    metric(&r->metrics, "training/epoch", (double)r->cursor.epoch);
    return run_agree(r, write_samples(r, err), err);
}

bool step_report(Run *r, Err *err) {
    speed_metrics(r);
    if (r->untold) return true;
    TRY(run_agree(r, run_dir_metrics(r->dir, r->step, &r->metrics, err), err));
    progress_line(r->progress, r->step, r->steps, &r->metrics);
    return true;
}

bool step_catch_up(Run *r, Err *err) {
    if (!r->untold) return true;
    r->untold = false;
    TRY(step_validate(r, err));
    if (r->untold) return true; /* told to stop again */
    r->saved = -1; /* the checkpoint says that the step is untold: it is written again, if no later one is */
    metric(&r->metrics, "timing_s/testing", r->seconds[PHASE_TEST]);
    TRY(run_agree(r, run_dir_metrics(r->dir, r->step, &r->metrics, err), err));
    progress_line(r->progress, r->step, r->steps, &r->metrics);
    return true;
}

/* ---- validation */
static bool wanted(void *user) { return (void)user, !stop_asked(); } /* of this rank */

static void by_source(void *user, const Rollouts *o) {
    Run *r = user;
    for (int p = 0; p < o->n_prompts; p++)
        val_metrics_add(r->val_metrics, o->prompt[p].row->source, &o->at[p * o->samples]);
    r->validated += rollouts_n(o);
}

static void show(void *user, int answers, int of, int64_t tokens) {
    Run *r = user;
    (void)of; /* of this block; all of them are meant */
    double all = (double)(dataset_n(r->val) * r->c.rollout.val.n);
    progress_part(r->progress, (double)(r->validated + answers) / all, tokens);
}

bool step_validate(Run *r, Err *err) {
    if (!r->val) return true;
    const Config *c = &r->c;
    r->validated = 0;
    progress_between(r->progress, r->step, r->steps);
    phase_begin(r, PHASE_TEST, "validation");
    double t = c->rollout.val.temperature;
    SampleOpts opts = r->opts;
    opts.greedy = t == 0;
    opts.draw = (Drawing){ t > 0 ? (float)t : 1, (float)c->rollout.val.top_p, (float)c->rollout.val.min_p,
                           (int32_t)(c->rollout.val.top_k > 0 ? c->rollout.val.top_k : 0) };
    EvalRun run = { .prompter = r->prompter,
                    .data = r->val,
                    .max_prompt = (int)c->data.max_prompt_length,
                    .long_prompts = run_long_prompts(c),
                    .each = by_source,
                    .user = r };
    val_metrics_clear(r->val_metrics);
    run.run = (RolloutRun){ .engine = r->engine,
                            .tok = r->tok,
                            .rewards = r->rewards,
                            .opts = &opts,
                            .stop = c->rollout.stop.at,
                            .n_stop = (int)c->rollout.stop.n,
                            .seed = (uint64_t)c->rollout.seed + 1,
                            .step = (uint32_t)r->step,
                            .max_failed = config_max_failed(c),
                            .refuse_broken = c->trainer.on_nan == ON_NAN_STOP,
                            .progress = show,
                            .go_on = wanted,
                            .user = r,
                            .ranks = &r->ranks.world.all };
    EvalResult v;
    TRY(evaluate(&v, &r->eval, &run, err));
    phase_end(r, PHASE_TEST);
    if (v.cut) return r->untold = r->step > 0, true; /* before the first step nothing is saved: it will be done again */
    Metrics *m = &r->metrics;
    metric(m, "val-core/score/mean", v.mean.value);
    metric(m, "val-aux/score/low", v.mean.low);
    metric(m, "val-aux/score/high", v.mean.high);
    if (v.has_acc) metric(m, "val-core/acc/mean", v.acc.value);
    if (v.k > 1) metric(m, "val-core/pass", v.pass.value);
    if (v.k > 1 && v.has_maj) metric(m, "val-core/maj", v.maj.value);
    metric(m, "val-aux/response_length/mean", v.length);
    val_metrics_put(r->val_metrics, m);
    if (r->step == 0) TRY(run_agree(r, run_dir_metrics(r->dir, 0, m, err), err));
    char line[160];
    snprintf(line, sizeof line, "validation after step %" PRId64 ": score %.3f [%.3f, %.3f] over %" PRId64 " questions",
             r->step, v.mean.value, v.mean.low, v.mean.high, v.questions);
    run_dir_log(r->dir, line);
    return true;
}

/* ---- saving */
bool run_save(Run *r, Err *err) {
    if (r->step == r->saved) return true; /* writing it again would take the good one away first */
    DataCursor at = r->cursor;
    Buf b = { 0 };
    phase_begin(r, PHASE_SAVE, "saving");
    buf_printf(&b, "{\"step\":%" PRId64 ",\"optimizer_step\":%" PRId64 ",\"epoch\":%" PRId64 ",\"position\":%" PRId64,
               r->step, r->policy.opt.step, at.epoch, at.position);
    same_run_put(&b, &r->c, &r->o.dev, &r->ranks, dataset_print(r->train));
    buf_puts(&b, ",\"kl_coef\":");
    json_put_f64(&b, r->kl.coef);
    untold_put(&b, r->untold ? &r->metrics : NULL);
    buf_puts(&b, "}\n");
    bool ok = checkpoint_save(r->saves, r->step, b.data, err);
    buf_free(&b);
    if (ok) r->saved = r->step;
    r->t_saved = clock_now();
    phase_end(r, PHASE_SAVE);
    return ok;
}

/* ---- the end */
static void arena_line(const Arena *a) {
    if (a->size)
        printf("  %-20s planned %10.2f MB, peak %10.2f MB (%.0f %%)\n", a->name, (double)a->size / 1e6,
               (double)a->peak / 1e6, 100 * (double)a->peak / (double)a->size);
}

static void time_line(const char *name, double predicted, double measured) {
    if (measured <= 0) return;
    double off = 100 * (predicted / measured - 1);
    printf("  %-20s predicted %8.3f s, measured %8.3f s (%+.0f %%)\n", name, predicted, measured, off);
}

static void exact_line(const Run *r) {
    if (r->sum.steps < 1) return;
    printf("sampler against trainer: ");
    if (!r->sum.exact.tokens) puts("no log-prob was compared");
    else
        printf("largest difference of a log-prob %g, over %" PRId64 " tokens of %.0f in %.0f of %.0f steps\n",
               r->sum.exact.max_diff, r->sum.exact.tokens, r->sum.answer, r->sum.compared, r->sum.steps);
}

/* A step as `hone plan` sees it beside the mean of those that were done. */
static void time_summary(Run *r) {
    const Config *c = &r->c;
    double n = r->sum.steps;
    if (n < 1 || !run_wanted(r)) return;
    PredictIn in = {
        .prompts = (double)c->data.train_batch_size,
        .answers = (double)c->rollout.n,
        .mini = (double)c->train.mini_batch_size,
        .epochs = (double)c->train.epochs,
        .prompt_mean = r->sum.prompt / r->sum.answers,
        .prompt_max = (double)c->data.max_prompt_length,
        .mean = r->sum.answer / r->sum.answers,
        .max = (double)c->rollout.max_tokens,
        .computed = r->sum.flops / r->sum.full,
        .reference = r->has_ref,
        .policy = r->policy.c,
        .threads = threads_count(r->o.dev.threads),
    };
    Predicted p;
    if (!run_predict(&r->o.desc, &in, &p)) return;
    puts("time of a step:");
    time_line("rollout", p.rollout, r->sum.seconds[PHASE_GEN] / n);
    time_line("reference", p.reference, r->sum.seconds[PHASE_REF] / n);
    time_line("update", p.update, r->sum.seconds[PHASE_UPDATE] / n);
}

void run_summary(Run *r) {
    putchar('\n');
    end_line(r->step, r->steps, r->c.trainer.run_dir);
    const Arena *arenas[] = { &r->o.model.w.arena, &r->policy.grads.arena, &r->policy.opt.dev,
                              &r->policy.opt.host, &r->policy.act,         &r->o.dev.tmp };
    puts("memory:");
    for (size_t i = 0; i < COUNT(arenas); i++) arena_line(arenas[i]);
    MemoryUsed memory = memory_used();
    printf("  %-20s planned %10.2f MB, peak %10.2f MB (questions, tokenizer and program included)\n", "the process",
           (double)r->planned / 1e6, memory.peak / 1e6);
    DevAbout gpu = dev_about(&r->o.dev);
    if (gpu.total)
        printf("  %-20s planned %10.2f MB, the driver says %.2f MB in use (%.2f MB before the run took its own)\n",
               "the GPU", (double)(gpu.base + r->planned_gpu) / 1e6, (double)(gpu.total - gpu.free) / 1e6,
               (double)gpu.base / 1e6);
    exact_line(r);
    run_release(r);
    time_summary(r);
}
