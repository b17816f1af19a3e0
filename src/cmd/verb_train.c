/* verb_train.c - `hone train`: train() is the algorithm (GRPO and its relatives: DeepSeekMath, arXiv 2402.03300, section 4.1). */
#include "cmd/cmd.h"
#include "cmd/run.h"
#include "cmd/start.h"

static bool validates(const Run *r) {
    int64_t every = r->c.trainer.val_every;
    return (every > 0 && r->step % every == 0) || r->step == r->steps;
}

/* No update of this step has begun: what the steps before did is whole, and must not be lost with the end. */
static bool save_spent(Run *r) {
    Err ignore; /* why the run ends is what is told */
    if (r->spent) run_save(r, &ignore);
    return false;
}

static bool train(Run *r, Err *err) {
    if (r->step == 0 && r->c.trainer.val_before_train) TRY(step_validate(r, err));
    TRY(step_catch_up(r, err));
    while (r->step < r->steps && run_wanted(r)) {
        step_begin(r);
        if (!step_rollout(r, err)) return save_spent(r); /* questions q ~ D, answers o_i ~ pi(.|q), scores r_i */
        TRY(step_reference(r, err));                     /* log pi_ref(o_i), where the KL asks for it */
        TRY(step_advantage(r, err));                     /* A_i */
        TRY(step_update(r, err)); /* maximise J(pi); the sampler reads the same weights: nothing moves */
        if (r->cut) break;        /* told to stop: this step will be done again, from its first prompt */
        step_end(r);
        TRY(step_measure(r, err));
        if (validates(r)) TRY(step_validate(r, err));
        TRY(step_report(r, err)); /* before the save: a kill between them must not leave a step that nothing tells of */
        if (save_due(&r->c, &r->ranks, r->step, r->t_saved)) TRY(run_save(r, err));
    }
    return run_save(r, err);
}

static int run(const Verb *v, int argc, char **argv) {
    Run r = { 0 };
    Err err;
    int rc = start(v, &r.c, CONF_TRAIN, argc, argv);
    if (rc >= 0) return rc;
    bool ok = ranks_open(&r.ranks, r.c.trainer.wait_seconds, &err) && run_open(&r, &err) && train(&r, &err)
              && run_profiled(&r, &err);
    if (r.saves) { /* first: what is said below is true once the last save is on the disk */
        Err late;
        if (!checkpoints_close(r.saves, &late) && ok) ok = false, err = late;
    }
    if (ok) run_summary(&r);
    if (!ok && r.dir) run_dir_note(r.dir, err.msg);
    run_close(&r);
    config_free(&r.c);
    ranks_close(&r.ranks);
    return ok ? 0 : cmd_fail(v, &err);
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
