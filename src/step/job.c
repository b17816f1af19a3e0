/* job.c - opening and closing what every training has. */
#include "step/job.h"
#include "base/clock.h"
#include "base/last_words.h"
#include "op/device.h"
#include "train/masters.h"

#include <stdio.h>
#include <string.h>

enum { CHECKPOINT_PARAM_BYTES = 12 }; /* a weight and its two averages in float32 */

static bool open_ranks(Job *j, Err *err) {
    Identity asked = { 0 };
    identity_program(&asked, j->c.verb == CONF_SFT ? "sft" : "train");
    config_identity(&j->c, &asked);
    bool ok = ranks_open(&j->ranks, j->c.trainer.wait_seconds, asked.lines.data, err);
    identity_free(&asked);
    return ok;
}

bool job_ranks(Job *j, Err *err) {
    if (!j->counted) return open_ranks(j, err);
    j->ranks = (Ranks){ .world = world_dry(0, j->counted), .groups = groups_self() };
    j->ranks.world.local_size = j->counted; /* as if on this machine: that is how many threads each has */
    return true;
}

static bool open_first(Job *j, Err *err) {
    const Config *c = &j->c;
    j->ranks.share_gpu = c->trainer.share_gpu;
    OpenOpts oo = {
        .threads = c->trainer.threads,
        .device = c->trainer.device,
        .compute = c->trainer.compute,
        .adapter = c->model.adapter,
        .ranks = &j->ranks,
        .sizes = j->counted > 0,
    };
    return config_check(c, err) && open_desc(&j->o, c->from.path, &oo, err)
           && config_check_model(c, &j->o.desc, ranks_count(&j->ranks), err) && config_check_device(c, &j->o.dev, err);
}

/* Once: what a checkpoint carries is what the steps before it used, whatever becomes of the folder meanwhile. */
static bool read_small_files(Job *j, Err *err) {
    const Config *c = &j->c;
    if (!ranks_first(&j->ranks)) return true;
    return params_carry(&j->carried, j->o.desc.dir, c->from.tokenizer, c->from.chat_template, &j->mem, err);
}

/* A fresh one of train.lora; model.adapter's is there by now. */
static bool open_adapter(Job *j, Err *err) {
    AdapterSpec spec;
    AdapterPlan plan;
    if (j->c.train.lora.rank) {
        TRY(config_lora(&spec, &j->c, &j->mem, err) && adapter_plan_of(&plan, &j->o.desc, &spec, &j->mem, err));
        j->adapter = arch_adapter(&j->o.desc, &plan, &j->mem);
        j->o.desc.adapter = &j->adapter;
    }
    if (j->o.desc.adapter && open_on_gpu(&j->o))
        return err_set(err, "LoRA was not tried on a GPU yet: trainer.device=cpu");
    return true;
}

bool job_open(Job *j, Err *err) {
    GridShape axes = config_axes(&j->c);
    ranks_phase(&j->ranks, "loading");
    stop_listen_early();
    TRY(job_agree(j, open_first(j, err) && read_small_files(j, err), err));
    j->o.desc.freeze_tower = j->c.train.freeze_tower;
    TRY(job_agree(j, open_adapter(j, err), err));
    TRY(ranks_grid(&j->ranks, &axes, config_split(&j->c, &j->mem), &j->o.desc, 0, err));
    j->c.trainer.leaves = config_leaves(&j->c, open_on_gpu(&j->o));
    return true;
}

/* A folder of the same name on a disk of one machine alone would be found out at the first save. */
static bool one_folder(Job *j, Err *err) {
    const Ranks *r = &j->ranks;
    Buf mark = { 0 };
    if (ranks_count(r) == 1) return true;
    bool ok = job_agree(j, !ranks_first(r) || run_dir_mark(j->dir, &mark, err), err);
    if (ok) {
        ranks_same(r, &mark);
        ok = ranks_first(r) || run_dir_has(j->dir, mark.data)
             || err_set(err, "rank %d does not see %s: the folder must be one for all", r->world.all.rank,
                        j->c.trainer.run_dir);
        ok = job_agree(j, ok, err);
    }
    if (ranks_first(r)) run_dir_unmark(j->dir);
    buf_free(&mark);
    return ok;
}

bool job_open_dir(Job *j, Err *err) {
    const char *note;
    TRY(job_time(j, &note, err));
    const char *log = j->counted ? NULL : mem_printf(&j->mem, "%s/log.txt", j->c.trainer.run_dir);
    j->dir = ranks_first(&j->ranks) && !j->counted ? run_dir_open(&j->c, err) : run_dir_mute(&j->c);
    if (log && j->dir && ranks_first(&j->ranks)) last_words_into(log); /* another may die before it agrees */
    TRY(job_agree(j, j->dir != NULL, err));
    if (note) run_dir_log(j->dir, note);
    if (log && j->c.from.note) run_dir_note(j->dir, j->c.from.note); /* the screen has it already */
    if (log) last_words_into(log);                                   /* now that it is there, of any rank */
    return j->counted || one_folder(j, err);
}

void job_open_stream(Job *j, int64_t per_epoch) {
    const Config *c = &j->c;
    StreamOptions so = {
        .data = j->train, .seed = (uint64_t)c->data.seed, .shuffle = c->data.shuffle, .drop_last = true
    };
    j->stream = stream_open(&so);
    j->steps = c->trainer.steps != CONF_UNSET ? c->trainer.steps : c->trainer.epochs * per_epoch;
    j->lr = config_lr(c, j->steps);
}

bool job_fits(Job *j, const RunShape *s, Err *err) {
    Need *need = j->need;
    int n = j->needs = run_needs(need, s);
    bool gpu = dev_about(&j->o.dev).total > 0;
    j->planned = needs_sum(need, n, gpu);
    if (!memory_fits(&j->o, need, n, err)) return err_wrap(err, "this run does not fit (see `hone plan`)");
    if (gpu) dev_reserve(&j->o.dev, j->planned_gpu = needs_device(need, n));
    return true;
}

bool job_open_weights(Job *j, const RunShape *s, Err *err) {
    OpenOpts oo = { .leaves = j->c.trainer.leaves,
                    .trained = !s->m->adapter,
                    .weights = s->policy.states.weights,
                    .random = config_random(&j->c),
                    .unfilled = j->c.from.gone,
                    .counted = true };
    PolicySizes z = policy_sizes(s->m, s->shard, &s->policy, s->like);
    if (z.weights) {
        j->block = dev_arena(&j->o.dev, "activations", z.block);
        oo.in = policy_weights_in(j->block, &z);
    }
    TRY(open_weights(&j->o, &oo, run_scratch_bytes(s), err));
    if (s->m->adapter && !j->o.peft.dir)
        adapter_init(&j->o.model.lora, &j->o.dev, (uint64_t)j->c.trainer.seed, j->c.train.lora.init == LORA_GAUSSIAN);
    return true;
}

bool job_open_policy(Job *j, const PolicyConf *p, Err *err) {
    RandomFill random = config_random(&j->c);
    PolicyConf conf = *p;
    conf.block = j->block;
    policy_open(&j->policy, &j->o.model, &conf, &j->mem);
    j->member[j->members++] = (Member){ member_of(&j->policy), &j->policy };
    if (j->o.desc.adapter) return true;                                      /* float32, all of it */
    if (j->c.from.gone) return true;                                         /* they come with the weights */
    if (random.on || open_disk_dtype(&j->o, random) == DT_BF16) return true; /* masters are the weights */
    return masters_load(&j->policy.opt, &j->o.model.w, &j->policy.grads, &j->o.dev, j->o.desc.dir, err);
}

/* Averages that a checkpoint does not hold as they are. */
static void tell_rounded(const Job *j) {
    SavedMoments how = (SavedMoments)j->c.trainer.checkpoint_moments;
    if (how == SAVED_F32 || (how == SAVED_BF16 && j->policy.c.states.moments == DT_BF16)) return;
    char line[256];
    snprintf(line, sizeof line,
             "trainer.checkpoint_moments=%s: checkpoints hold AdamW's averages %s, so the bytes after a resume are "
             "others than those of a run that is never stopped",
             name_of(saved_names, how), how == SAVED_NONE ? "not at all" : "rounded to bf16");
    run_dir_log(j->dir, line);
}

bool job_open_saves(Job *j, Err *err) {
    job_tell_places(j);
    CheckpointConf cc = config_saves(&j->c, &j->carried);
    j->saves = checkpoints_open(j->member, j->members, &cc, &j->mem);
    tell_rounded(j);
    dev_touch(&j->o.dev);
    mem_touch(&j->mem); /* what was counted is taken now: no step is larger than the one before */
    return job_tell_memory(j, err);
}

void job_begin(Job *j) {
    stop_listen();
    j->t_saved = clock_now();
    j->progress = progress_open(j->dir, &j->mem);
    int64_t checkpoint = j->c.trainer.save == SAVE_NEVER ? 0 : arch_param_count(&j->o.desc) * CHECKPOINT_PARAM_BYTES;
    if (ranks_first(&j->ranks)) watched_begin(&j->watched, &j->c, j->dir, j->step, j->steps, checkpoint);
}

bool job_end(Job *j, bool ok, Err *err) {
    Err late;
    if (j->saves) ranks_phase(&j->ranks, "saving");
    if (j->saves && !checkpoints_close(j->saves, &late) && ok) ok = false, *err = late;
    if (!ok && j->dir) run_dir_note(j->dir, err->msg);
    j->watched.step = j->step;
    watched_end(&j->watched, ok, ok ? "" : err->msg);
    return ok;
}

void job_close(Job *j) {
    stream_close(j->stream);
    dataset_close(j->train);
    dataset_close(j->val);
    prompter_close(j->prompter);
    last_words_into(NULL);
    run_dir_close(j->dir);
    open_close(&j->o);
    mem_free(&j->mem);
    identity_free(&j->found);
    config_free(&j->c);
    ranks_close(&j->ranks);
}

bool job_tell(Job *j, Err *err) {
    TRY(job_agree(j, run_dir_metrics(j->dir, j->step, &j->metrics, err), err));
    progress_line(j->progress, j->step, j->steps, &j->metrics);
    watched_step(&j->watched, j->step, &j->metrics);
    return true;
}
