/* verb_train.c - `hone train`: train() is the algorithm (GRPO and its relatives:
 * DeepSeekMath, arXiv 2402.03300, section 4.1). */
#include "cmd/start.h"
#include "cmd/summary.h"

static bool validates(const Run *r) {
    int64_t every = r->job.c.trainer.val_every;
    return (every > 0 && r->job.step % every == 0) || r->job.step == r->job.steps;
}

/* No update of this step has begun: what the steps before did is whole, and must not be lost with the end. */
static bool save_spent(Run *r) {
    Err ignore; /* why the run ends is what is told */
    if (r->now.spent) run_save(r, &ignore);
    return false;
}

static bool train(Run *r, Err *err) {
    if (r->job.step == 0 && r->job.c.trainer.val_before_train) TRY(step_validate(r, err));
    TRY(step_catch_up(r, err));
    while (r->job.step < r->job.steps && job_wanted(&r->job)) {
        step_begin(r);
        if (!step_rollout(r, err)) return save_spent(r); /* questions q ~ D, answers o_i ~ pi(.|q), scores r_i */
        TRY(step_reference(r, err));                     /* log pi_ref(o_i), where the KL asks for it */
        TRY(step_advantage(r, err));                     /* A_i */
        TRY(step_update(r, err));                        /* maximise J(pi) */
        TRY(step_sync(r, err)); /* the sampler's weights are the trainer's: where cuts coincide nothing moves */
        if (r->now.cut) break;  /* told to stop: this step will be done again, from its first prompt */
        step_end(r);
        TRY(step_measure(r, err));
        if (validates(r)) TRY(step_validate(r, err));
        TRY(step_report(r, err)); /* before the save: a kill between them must not leave a step that nothing tells of */
        if (job_save_due(&r->job)) TRY(run_save(r, err));
    }
    return run_save(r, err);
}

static int run(const Verb *v, int argc, char **argv) {
    Run r = { 0 };
    Job *j = &r.job;
    Err err;
    StartArgs a = { 0 };
    int rc = start(v, &j->c, CONF_TRAIN, &a, argc, argv);
    if (rc >= 0) return rc;
    j->counted = (int)a.memory, j->listed = a.all_ranks, j->cluster = a.cluster;
    bool ok = job_ranks(j, &err) && run_open(&r, &err);
    ok = ok && (j->counted || (train(&r, &err) && run_profiled(&r, &err)));
    ok = job_end(j, ok, &err);
    if (ok && !j->counted) run_summary(&r);
    int bad = r.differs.stopped ? EXIT_DIFFERENCE : 0;
    run_close(&r);
    return ok ? 0 : bad ? (cmd_fail(v, &err), bad) : cmd_fail(v, &err);
}

const Verb verb_train = {
    .name = "train",
    .usage = "CONFIG.yaml [key=value ...]",
    .summary = "reinforcement learning, from a question file to a better model",
    .options = start_options,
    .run = run,
    .ranks = true,
    .detail = "A run directory that holds a checkpoint is continued.  SIGTERM, SIGHUP and Ctrl-C save and\n"
              "end with exit code 0.\n"
              "`hone train --list-options` lists the keys; `hone show RUN` and `hone compare RUN RUN` look at runs.\n",
};
