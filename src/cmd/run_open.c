/* run_open.c - opens everything a run needs, in the order in which mistakes are cheapest: configuration, data, scorers, sizes
 * of every arena, and only then the weights. */
#include "cmd/run.h"
#include "algo/shape.h"
#include "base/clock.h"
#include "base/file.h"
#include "cmd/device.h"
#include "cmd/needs.h"
#include "cmd/start.h"
#include "op/profile.h"
#include "plan/machine.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

bool run_wanted(const Run *r) { return !ranks_any(&r->ranks, stop_asked()); }
bool run_agree(const Run *r, bool ok, Err *err) { return ranks_agree(&r->ranks, ok, err); }

/* ---- data */
static bool open_data(Run *r, Dataset **out, const StrList *files, int64_t max_rows, const char *what, Err *err) {
    const Config *c = &r->c;
    DataOptions o = {
        .files = files->at,
        .n_files = (int)files->n,
        .columns = { .prompt = c->data.prompt_key, .source = c->data.source_key, .truth = c->data.answer_key },
        .source = c->reward.scorer || config_own_scorer(c) ? "own" : NULL,
        .need_truth = !config_own_scorer(c),
        .images = c->data.images_key,
        .max_rows = max_rows == CONF_UNSET ? 0 : max_rows,
        .threads = r->o.dev.threads,
    };
    if (!(*out = dataset_open(&o, err))) return false;
    int64_t rows;
    const char *source;
    bool own = c->reward.scorer || config_own_scorer(c);
    for (int i = 0; !own && (source = dataset_source(*out, i, &rows)); i++) {
        const Reward *scorer;
        if (!reward_need(&scorer, source, err)) return err_wrap(err, "%s (%" PRId64 " rows)", what, rows);
    }
    return true;
}

DataLong run_long_prompts(const Config *c) {
    return c->data.filter_overlong_prompts ? DATA_LONG_FILTER : config_truncation(c->data.truncation);
}

static bool measure(Run *r, Dataset *d, const char *what, Err *err) {
    DataCounts n;
    TRY(dataset_measure(d, r->o.dev.threads, r->c.data.max_prompt_length, run_long_prompts(&r->c), prompter_length,
                        r->prompter, &n, err));
    char line[200];
    snprintf(line, sizeof line, "%s: %" PRId64 " questions, prompts of %" PRId64 " to %" PRId64 " tokens (mean %.0f)%s",
             what, n.kept, n.shortest, n.longest, n.mean, n.dropped ? "" : "");
    run_dir_log(r->dir, line);
    if (n.dropped || n.long_rows) {
        snprintf(line, sizeof line, "%s: %" PRId64 " prompts above %" PRId64 " tokens, %" PRId64 " dropped", what,
                 n.long_rows, r->c.data.max_prompt_length, n.dropped);
        run_dir_log(r->dir, line);
    }
    if (!n.kept) return err_set(err, "%s: no question is left", what);
    int64_t bare = 0;
    for (int64_t i = 0; i < dataset_n(d); i++) bare += !dataset_row(d, i)->truth;
    if (bare) { /* only an own scorer gets this far */
        snprintf(line, sizeof line,
                 "%s: %" PRId64 " of %" PRId64
                 " questions have no right answer under data.answer_key (%s): the scorer gets an empty one",
                 what, bare, dataset_n(d), r->c.data.answer_key);
        run_dir_log(r->dir, line);
    }
    return true;
}

static bool open_questions(Run *r, Err *err) {
    const Config *c = &r->c;
    PromptOptions po = { .model = c->model.tokenizer,
                         .chat_template = c->model.chat_template,
                         .variables = config_arguments(&c->data.template_args, &r->mem),
                         .vocab = r->o.desc.d.vocab,
                         .end = -1 };
    if (!(r->prompter = prompter_open(&po, threads_count(r->o.dev.threads), err))) return false;
    r->tok = prompter_tok(r->prompter);
    TRY(open_data(r, &r->train, &c->data.train_files, c->data.train_max_samples, "data.train_files", err));
    TRY(measure(r, r->train, "training data", err));
    if (dataset_n(r->train) < c->data.train_batch_size)
        return err_set(err, "data.train_batch_size is %" PRId64 ", but there are only %" PRId64 " questions",
                       c->data.train_batch_size, dataset_n(r->train));
    if (c->data.val_files.n) {
        TRY(open_data(r, &r->val, &c->data.val_files, c->data.val_max_samples, "data.val_files", err));
        TRY(measure(r, r->val, "validation data", err));
    }
    StreamOptions so = {
        .data = r->train, .seed = (uint64_t)c->data.seed, .shuffle = c->data.shuffle, .drop_last = true
    };
    r->stream = stream_open(&so);
    RewardOptions ro = config_rewards(c, &r->mem);
    int workers = c->reward.workers ? (int)c->reward.workers : threads_count(r->o.dev.threads);
    r->rewards = rewards_open(&ro, workers, err);
    return r->rewards != NULL;
}

/* ---- sizes */
static SchedConf sched_conf(const Config *c, const ModelDesc *m, DevKind like) {
    int64_t len = c->data.max_prompt_length + c->rollout.max_tokens, answers = c->data.train_batch_size * c->rollout.n;
    int64_t batch = c->rollout.max_batch < answers ? c->rollout.max_batch : answers, page = c->rollout.page;
    int64_t each = (len + page - 1) / page, pages = batch * each + 1;
    if (c->rollout.kv_tokens != CONF_UNSET) pages = c->rollout.kv_tokens / page;
    else if (c->rollout.kv_bytes != CONF_UNSET)
        pages = c->rollout.kv_bytes / (int64_t)engine_page_bytes(m, NULL, (int)page, like);
    if (pages < each + 1) pages = each + 1;
    int64_t rows = c->rollout.token_budget > batch ? c->rollout.token_budget : batch;
    int64_t most = answers * len; /* no step has more rows than all tokens of the batch */
    if (rows > most) rows = most;
    return (SchedConf){ .page = (int)page,
                        .pages = (int)(pages < INT32_MAX ? pages : INT32_MAX),
                        .max_seqs = (int)(2 * batch),
                        .max_batch = (int)batch,
                        .max_rows = (int)rows,
                        .max_len = (int)len };
}

static bool keeps_going(void *user) { /* asked between micro-batches, of each rank; the policy agrees */
    const Run *r = user;
    return r->moved || !stop_asked();
}

static PolicyConf policy_conf(const Config *c, bool trains) {
    return (PolicyConf){
        .micro_tokens = c->train.micro_tokens,
        .max_seqs = (int)((trains ? c->train.mini_batch_size : c->data.train_batch_size) * c->rollout.n),
        .recompute = (Recompute)c->train.recompute,
        .offload = c->train.offload_fraction,
        .truncated = config_cuts(c),
        .kept = config_keeps_sets(c),
        .trains = trains,
    };
}

static void open_flat(Run *r, int answers, int max_answer) {
    Flat *f = &r->flat;
    Mem *m = &r->mem;
    size_t n = (size_t)answers, t = n * (size_t)max_answer;
    f->at = MEM_ARRAY(m, int64_t, n + 1);
    f->group = MEM_ARRAY(m, int32_t, n);
    float *cols = MEM_ARRAY(m, float, 7 * t);
    f->old = cols, f->ref = cols + t, f->reward = cols + 2 * t, f->adv = cols + 3 * t, f->weight = cols + 4 * t,
    f->now = cols + 5 * t, f->ret = cols + 6 * t;
    f->pick = MEM_ARRAY(m, uint8_t, t);
    f->score = MEM_ARRAY(m, double, n);
    f->baseline = MEM_ARRAY(m, float, n), f->metric = MEM_ARRAY(m, float, n);
    f->keep = MEM_ARRAY(m, uint8_t, n);
    f->order = MEM_ARRAY(m, int32_t, n);
    f->seq = MEM_ARRAY(m, TrainSeq, n);
    f->column = MEM_ARRAY(m, float *, n);
    r->host = arena_on_host("methods", methods_bytes(answers, max_answer), m);
}

/* ---- memory: what the run will take is known before it is taken */
static int room_of(const Config *c) { /* questions under way: dynamic sampling draws a batch beside what it kept */
    return (int)(c->algo.filter_groups.enable ? 2 * c->data.train_batch_size : c->data.train_batch_size);
}

static RunShape shape_of(Run *r) {
    const Config *c = &r->c;
    const ModelDesc *m = &r->o.desc;
    DevKind like = open_kind(&r->o, c->trainer.leaves);
    size_t largest;
    PolicyConf policy = policy_conf(c, true), reference = policy_conf(c, false);
    policy.go_on = reference.go_on = keeps_going, policy.user = reference.user = r;
    SchedConf sched = sched_conf(c, m, like);
    policy.act_room = engine_cache_bytes(m, &sched, like);
    return (RunShape){
        .m = m,
        .shard = &r->ranks.shard,
        .like = like,
        .threads = threads_count(r->o.dev.threads),
        .policy = policy,
        .reference = reference,
        .has_reference = r->has_ref,
        .reference_dtype = like.act == DT_BF16 ? DT_BF16 : open_disk_dtype(&r->o, config_random(c)),
        .rolls = true,
        .sched = sched,
        .questions = room_of(c),
        .answers = (int)c->rollout.n,
        .max_prompt = (int)c->data.max_prompt_length,
        .max_answer = (int)c->rollout.max_tokens,
        .greedy = c->algo.advantage == ADV_REMAX,
        .kept = config_keeps_sets(c) ? config_kept_room(c, m->d.vocab, &largest) : 0,
        .val_questions = r->val ? dataset_n(r->val) : 0,
        .val_answers = (int)c->rollout.val.n,
        .save_buffer = c->trainer.save_buffer,
    };
}

static bool run_fits(Run *r, const RunShape *s, Err *err) {
    Need need[MOST_NEEDS];
    int n = run_needs(need, s);
    bool gpu = dev_about(&r->o.dev).total > 0;
    r->planned = needs_sum(need, n, gpu);
    if (!memory_fits(&r->o, need, n, err)) return err_wrap(err, "this run does not fit (see `hone plan`)");
    if (gpu) dev_reserve(&r->o.dev, r->planned_gpu = needs_device(need, n));
    return true;
}

static void tell_gpu(Run *r) {
    DevAbout gpu = dev_about(&r->o.dev);
    char line[300];
    if (!gpu.total) return;
    snprintf(line, sizeof line,
             "%s: %.2f GB planned for this run beside %.2f GB in use before it (driver and libraries included); the "
             "driver says %.2f of "
             "%.2f GB in use",
             gpu.name, (double)r->planned_gpu / 1e9, (double)gpu.base / 1e9, (double)(gpu.total - gpu.free) / 1e9,
             (double)gpu.total / 1e9);
    run_dir_log(r->dir, line);
}

static void open_rollouts(Run *r) {
    const Config *c = &r->c;
    int P = (int)c->data.max_prompt_length, A = (int)c->rollout.max_tokens, n = (int)c->rollout.n;
    int room = room_of(c);
    rollouts_open(&r->roll, room, n, P, A, &r->mem);
    if (config_keeps_sets(c)) {
        size_t most, kept = config_kept_room(c, r->o.desc.d.vocab, &most);
        rollouts_keep(&r->roll, kept, most, &r->mem);
    }
    if (c->algo.advantage == ADV_REMAX) rollouts_open(&r->greedy, room, 1, P, A, &r->mem);
    if (r->val) {
        evaluator_open(&r->eval, dataset_n(r->val), (int)c->rollout.val.n, P, A, &r->mem);
        r->val_metrics = val_metrics_open(r->val, (int)c->rollout.val.n, &r->mem);
    }
    open_flat(r, room * n, A);
    if (c->algo.filter_groups.enable) r->came = MEM_ARRAY(&r->mem, uint16_t, (size_t)dataset_n(r->train));
    r->opts = (SampleOpts){
        .draw = { (float)c->rollout.temperature, (float)c->rollout.top_p, (float)c->rollout.min_p,
                  (int32_t)(c->rollout.top_k > 0 ? c->rollout.top_k : 0) },
        .ignore_eos = c->rollout.ignore_eos,
        .max_tokens = A,
    };
}

static bool open_model(Run *r, const RunShape *s, Err *err) {
    const ModelDesc *m = &r->o.desc;
    int64_t leaves = r->c.trainer.leaves;
    OpenOpts oo = { .leaves = leaves, .f32 = true, .random = config_random(&r->c), .counted = true };
    TRY(open_weights(&r->o, &oo, run_scratch_bytes(s), err));
    if (r->has_ref) {
        model_open_shard(&r->ref_model, &r->o.dev, m, &r->ranks.shard, &r->ranks.groups, s->reference_dtype,
                         (int)leaves, &r->mem);
        TRY(open_fill(&r->ref_model, oo.random, err));
        policy_open(&r->ref, &r->ref_model, &s->reference, &r->mem);
    }
    policy_open(&r->policy, &r->o.model, &s->policy, &r->mem);
    r->engine = engine_open_over(&r->o.model, &s->sched, r->policy.act, &r->mem);
    return true;
}

/* ---- going on where a run was left */
static bool load(Run *r, const char *path, int64_t done, Err *err) {
    const Config *c = &r->c;
    if (path && c->trainer.resume == RESUME_NEVER)
        return err_set(err, "%s is there and trainer.resume is never: give this run another trainer.run_dir", path);
    if (path) {
        RunState state;
        TRY(checkpoint_load(path, &r->policy, err) && state_read(&state, path, done, &r->mem, err));
        if (!json_real_within(&state.json, "kl_coef", 0, 1e300, &r->kl.coef, err))
            return err_wrap(err, "%s", state.path);
        r->cursor = state.at;
        Buf said = { 0 };
        bool same = same_run(c, &r->o.dev, &r->ranks, dataset_print(r->train), path, &state, &said, err);
        if (same && said.n) run_dir_log(r->dir, said.data);
        buf_free(&said);
        TRY(same);
        if (!stream_seek(r->stream, r->cursor, err)) return err_wrap(err, "%s", state.path);
        r->step = r->start_step = r->saved = done;
        TRY(untold_get(&r->metrics, &r->untold, &state, &r->mem, err));
        char line[300];
        snprintf(line, sizeof line, "going on from %s: %" PRId64 " steps are done", path, done);
        run_dir_log(r->dir, line);
    }
    return run_dir_resume(r->dir, r->step > 0 ? r->step : -1, r->untold,
                          err); /* validation before step 1 is told again */
}

static bool resume(Run *r, Err *err) {
    const char *path = NULL;
    int64_t done = 0;
    return start_find(&r->ranks, r->c.trainer.run_dir, &path, &done, &r->mem, err)
           && run_agree(r, load(r, path, done, err), err);
}

static bool open_first(Run *r, Err *err) {
    const Config *c = &r->c;
    OpenOpts oo = {
        .threads = c->trainer.threads, .device = c->trainer.device, .compute = c->trainer.compute, .ranks = &r->ranks
    };
    return config_check(c, err) && open_desc(&r->o, c->model.path, &oo, err)
           && config_check_model(c, &r->o.desc, ranks_count(&r->ranks), err) && config_check_device(c, &r->o.dev, err);
}

/* Each rank samples with all weights, from its own cache. */
static bool samples_whole(const Run *r, Err *err) {
    const GridShape *g = &r->ranks.shard.g;
    if (g->tp > 1 || g->pp > 1 || g->ep > 1 || g->etp > 1)
        return err_set(err, "grid: `hone train` samples on every rank with the whole model in this build: of tp, pp, "
                            "ep and etp all are 1; dp "
                            "and cp may be more (`hone sft` runs on every grid)");
    if (ranks_count(&r->ranks) > 1 && r->c.rollout.step_tokens)
        return err_set(err, "rollout.step_tokens counts tokens as they come, which is one rank's: set it to 0");
    return true;
}

static bool open_parts(Run *r, Err *err) {
    const Config *c = &r->c;
    TRY(open_questions(r, err));
    r->has_ref = config_needs_ref(c);
    RunShape shape = shape_of(r);
    TRY(run_fits(r, &shape, err));
    open_rollouts(r);
    TRY(open_model(r, &shape, err));
    int64_t per_epoch = dataset_n(r->train) / c->data.train_batch_size;
    r->steps = c->trainer.steps != CONF_UNSET ? c->trainer.steps : c->trainer.epochs * per_epoch;
    r->kl = config_kl(c);
    r->lr = config_lr(c, r->steps);
    return true;
}

bool run_open(Run *r, Err *err) {
    const Config *c = &r->c;
    GridShape axes = config_axes(c);
    CheckpointConf cc;
    TRY(run_agree(r, open_first(r, err), err));
    TRY(ranks_grid(&r->ranks, &axes, config_split(c, &r->mem), &r->o.desc, 0, err) && samples_whole(r, err));
    if (c->trainer.leaves == CONF_UNSET) r->c.trainer.leaves = open_kind(&r->o, 0).leaves;
    r->dir = ranks_first(&r->ranks) ? run_dir_open(c, err) : run_dir_mute(c);
    TRY(run_agree(r, r->dir != NULL, err) && run_agree(r, open_parts(r, err), err)
        && run_agree(r, config_saves(&cc, c, &r->mem, err), err));
    r->saves = checkpoints_open(&r->policy, &cc, &r->mem);
    dev_touch(&r->o.dev);
    tell_gpu(r);
    mem_touch(&r->mem); /* what was counted is taken now: no step is larger than the one before */
    TRY(resume(r, err));
    r->peak_flops = c->trainer.peak_tflops * 1e12;
    if (isnan(r->peak_flops)) r->peak_flops = machine_flops();
    r->peak_flops *= ranks_count(&r->ranks);
    stop_on_signals();
    if (c->trainer.profile) profile_open(&r->o.dev, PROFILE_SPANS, &r->o.mem);
    r->t_saved = clock_now();
    r->progress = progress_open(r->dir, &r->mem);
    return true;
}

void run_release(Run *r) {
    if (!r->engine) return;
    engine_close(r->engine);
    r->engine = NULL;
    policy_close(&r->policy);
    if (r->has_ref) policy_close(&r->ref), model_close(&r->ref_model);
    model_close(&r->o.model);
    r->o.has_model = false;
}

bool run_profiled(Run *r, Err *err) {
    Dev *d = &r->o.dev;
    if (!d->profile) return true;
    int64_t lost = profile_lost(d->profile);
    TRY(profile_write(d, r->c.trainer.profile, err));
    fprintf(stderr, "hone train: the timeline is in %s%s\n", r->c.trainer.profile,
            lost ? ", of the first ops: there are more than it has room for" : "");
    profile_close(d);
    return true;
}

void run_close(Run *r) {
    if (r->engine) engine_close(r->engine);
    rewards_close(r->rewards);
    stream_close(r->stream);
    dataset_close(r->train);
    if (r->val) dataset_close(r->val);
    prompter_close(r->prompter);
    run_dir_close(r->dir);
    open_close(&r->o);
    mem_free(&r->mem);
}
