/* validate.c - the phase that asks questions whose answers nobody learns from. */
#include "step/run.h"

#include <inttypes.h>
#include <stdio.h>

static bool wanted(void *user) { return (void)user, !stop_asked(); } /* of this rank */

static void by_source(void *user, const Rollouts *o) {
    Run *r = user;
    for (int p = 0; p < o->n_prompts; p++)
        val_metrics_add(r->val.metrics, o->prompt[p].row->source, &o->at[p * o->samples]);
    r->val.answers += rollouts_n(o);
}

static void show(void *user, int answers, int of, int64_t tokens) {
    Run *r = user;
    (void)of; /* of this block; all of them are meant */
    double all = (double)(dataset_n(r->job.val) * r->job.c.rollout.val.n);
    progress_part(r->job.progress, (double)(r->val.answers + answers) / all, tokens);
}

bool step_validate(Run *r, Err *err) {
    if (!r->job.val) return true;
    const Config *c = &r->job.c;
    r->val.answers = 0;
    progress_between(r->job.progress, r->job.step, r->job.steps);
    phase_begin(r, "validation");
    double t = c->rollout.val.temperature;
    SampleOpts opts = r->sampler.opts;
    opts.greedy = t == 0;
    opts.draw = (Drawing){ t > 0 ? (float)t : 1, (float)c->rollout.val.top_p, (float)c->rollout.val.min_p,
                           (int32_t)(c->rollout.val.top_k > 0 ? c->rollout.val.top_k : 0) };
    EvalRun run = { .prompter = r->job.prompter,
                    .data = r->job.val,
                    .max_prompt = (int)c->data.max_prompt_length,
                    .long_prompts = config_long_prompts(c),
                    .each = by_source,
                    .user = r };
    val_metrics_clear(r->val.metrics);
    run.run = (RolloutRun){ .engine = r->sampler.engine,
                            .tok = r->sampler.tok,
                            .rewards = r->sampler.rewards,
                            .opts = &opts,
                            .stop = c->rollout.stop.at,
                            .n_stop = (int)c->rollout.stop.n,
                            .seed = (uint64_t)c->rollout.seed + 1,
                            .step = (uint32_t)r->job.step,
                            .max_failed = config_max_failed(c),
                            .refuse_broken = c->trainer.on_nan == ON_NAN_STOP,
                            .progress = show,
                            .go_on = wanted,
                            .user = r,
                            .turns = r->sampler.turns,
                            .replicas = &r->sampler.replicas,
                            .at_once = r->sampler.at_once };
    EvalResult v;
    TRY(evaluate(&v, &r->val.eval, &run, err));
    phase_end(r, PHASE_TEST);
    if (v.cut)
        return r->job.untold = r->job.step > 0,
               true; /* before the first step nothing is saved: it will be done again */
    Metrics *m = &r->job.metrics;
    metric(m, "val-core/score/mean", v.mean.value);
    metric(m, "val-aux/score/low", v.mean.low);
    metric(m, "val-aux/score/high", v.mean.high);
    if (v.has_acc) metric(m, "val-core/acc/mean", v.acc.value);
    if (v.k > 1) metric(m, "val-core/pass", v.pass.value);
    if (v.k > 1 && v.has_maj) metric(m, "val-core/maj", v.maj.value);
    metric(m, "val-aux/response_length/mean", v.length);
    val_metrics_put(r->val.metrics, m);
    if (r->job.step == 0) TRY(job_agree(&r->job, run_dir_metrics(r->job.dir, 0, m, err), err));
    char line[160];
    snprintf(line, sizeof line, "validation after step %" PRId64 ": score %.3f [%.3f, %.3f] over %" PRId64 " questions",
             r->job.step, v.mean.value, v.mean.low, v.mean.high, v.questions);
    run_dir_log(r->job.dir, line);
    return true;
}
