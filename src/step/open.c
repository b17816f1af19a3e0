/* open.c - opens everything a run needs, in the order in which mistakes are cheapest:
 * configuration, data, scorers, sizes of every arena, and only then the weights. */
#include "step/run.h"
#include "step/found.h"
#include "algo/shape.h"
#include "op/device.h"
#include "op/profile.h"
#include "plan/machine.h"
#include "rollout/turns.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- data */
static bool open_data(Run *r, Dataset **out, const StrList *files, int64_t max_rows, const char *what, Err *err) {
    const Config *c = &r->job.c;
    DataOptions o = {
        .files = files->at,
        .n_files = (int)files->n,
        .columns = { .prompt = c->data.prompt_key, .source = c->data.source_key, .truth = c->data.answer_key },
        .source = c->reward.scorer || config_own_scorer(c) ? "own" : NULL,
        .need_truth = !config_own_scorer(c),
        .images = c->data.images_key,
        .videos = c->data.videos_key,
        .pictures = prompter_takes(r->job.prompter),
        .max_rows = max_rows == CONF_UNSET ? 0 : max_rows,
        .threads = r->job.o.dev.threads,
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

static bool measure(Run *r, Dataset *d, const char *what, Err *err) {
    DataCounts n;
    TRY(dataset_measure(d, r->job.o.dev.threads, r->job.c.data.max_prompt_length, config_long_prompts(&r->job.c),
                        prompter_length, r->job.prompter, &n, err));
    char line[200];
    snprintf(line, sizeof line, "%s: %" PRId64 " questions, prompts of %" PRId64 " to %" PRId64 " tokens (mean %.0f)",
             what, n.kept, n.shortest, n.longest, n.mean);
    run_dir_log(r->job.dir, line);
    if (n.dropped || n.long_rows) {
        snprintf(line, sizeof line, "%s: %" PRId64 " prompts above %" PRId64 " tokens, %" PRId64 " dropped", what,
                 n.long_rows, r->job.c.data.max_prompt_length, n.dropped);
        run_dir_log(r->job.dir, line);
    }
    if (!n.kept) return err_set(err, "%s: no question is left", what);
    int64_t bare = 0;
    for (int64_t i = 0; i < dataset_n(d); i++) bare += !dataset_row(d, i)->truth;
    if (bare) { /* only an own scorer gets this far */
        snprintf(line, sizeof line,
                 "%s: %" PRId64 " of %" PRId64
                 " questions have no right answer under data.answer_key (%s): the scorer gets an empty one",
                 what, bare, dataset_n(d), r->job.c.data.answer_key);
        run_dir_log(r->job.dir, line);
    }
    return true;
}

/* Answers of several turns: opened before the prompts, whose template is told of the tools. */
static bool open_turns(Run *r, Err *err) {
    const Config *c = &r->job.c;
    TurnOptions o = { .tools = c->rollout.tools.at,
                      .n_tools = (int)c->rollout.tools.n,
                      .format = c->rollout.tool_format,
                      .max_reply = c->rollout.max_reply,
                      .max_turns = (int)c->rollout.max_turns,
                      .max_calls = (int)c->rollout.max_calls };
    if (!o.n_tools) return true;
    return (r->sampler.turns = turns_open(&o, err)) || err_wrap(err, "rollout.tools");
}

static bool bind_turns(Run *r, Err *err) {
    TurnConf *t = r->sampler.turns;
    char line[200];
    if (!t) return true;
    if (r->image_stats.rows) return err_set(err, "rollout.tools: questions with pictures cannot call tools yet");
    if (!turns_bind(t, r->job.prompter, r->job.o.desc.d.vocab, err)) return err_wrap(err, "rollout.tools");
    snprintf(line, sizeof line, "tools: calls are written as %s, answers of up to %lld turns", turns_format(t),
             (long long)r->job.c.rollout.max_turns);
    run_dir_log(r->job.dir, line);
    return true;
}

static bool open_questions(Run *r, Err *err) {
    const Config *c = &r->job.c;
    TRY(open_turns(r, err));
    PromptOptions po = { .model = c->from.tokenizer,
                         .chat_template = c->from.chat_template,
                         .variables = config_arguments(&c->data.template_args, &r->job.mem),
                         .vocab = r->job.o.desc.d.vocab,
                         .end = -1,
                         .desc = &r->job.o.desc,
                         .tools = r->sampler.turns ? turns_tools(r->sampler.turns) : NULL,
                         .processor = c->data.image_processor };
    if (!(r->job.prompter = prompter_open(&po, threads_count(r->job.o.dev.threads), err))) return false;
    r->sampler.tok = prompter_tok(r->job.prompter);
    TRY(open_data(r, &r->job.train, &c->data.train_files, c->data.train_max_samples, "data.train_files", err));
    TRY(measure(r, r->job.train, "training data", err));
    if (dataset_n(r->job.train) < c->data.train_batch_size)
        return err_set(err, "data.train_batch_size is %" PRId64 ", but there are only %" PRId64 " questions",
                       c->data.train_batch_size, dataset_n(r->job.train));
    if (c->data.val_files.n) {
        TRY(open_data(r, &r->job.val, &c->data.val_files, c->data.val_max_samples, "data.val_files", err));
        TRY(measure(r, r->job.val, "validation data", err));
    }
    TRY(image_stats_add(&r->image_stats, &r->job.o.desc, r->job.prompter, r->job.train, err)
        && image_stats_add(&r->image_stats, &r->job.o.desc, r->job.prompter, r->job.val, err));
    if (r->image_stats.rows) {
        char line[200];
        snprintf(line, sizeof line,
                 "%" PRId64 " questions with %" PRId64 " pictures, at most %" PRId64 " tokens of them in one",
                 r->image_stats.rows, r->image_stats.pictures, r->image_stats.feats);
        run_dir_log(r->job.dir, line);
    }
    TRY(bind_turns(r, err));
    job_open_stream(&r->job, dataset_n(r->job.train) / c->data.train_batch_size);
    RewardOptions ro = config_rewards(c, &r->job.mem);
    Buf text = { 0 };
    if (ro.python) {
        TRY(file_read(&text, c->from.scorer, err));
        ro.python_text = &text;
        run_dir_scorer(r->job.dir, &text);
    }
    int workers = c->reward.workers ? (int)c->reward.workers : threads_count(r->job.o.dev.threads);
    r->sampler.rewards = rewards_open(&ro, workers, err);
    buf_free(&text);
    return r->sampler.rewards != NULL;
}

/* ---- sizes */
static EngineConf engine_conf_of(const Config *c, const ModelDesc *m, const Shard *shard, DevKind like) {
    int64_t len = c->data.max_prompt_length + c->rollout.max_tokens, answers = c->data.train_batch_size * c->rollout.n;
    int64_t batch = c->rollout.max_batch < answers ? c->rollout.max_batch : answers, page = c->rollout.page;
    int64_t each = (len + page - 1) / page, pages = batch * each + 1;
    if (c->rollout.kv_tokens != CONF_UNSET) pages = c->rollout.kv_tokens / page;
    else if (c->rollout.kv_bytes != CONF_UNSET)
        pages = c->rollout.kv_bytes / (int64_t)cache_page_bytes(m, shard, (int)page, like);
    if (pages < each + 1) pages = each + 1;
    int64_t rows = c->rollout.token_budget > batch ? c->rollout.token_budget : batch;
    int64_t most = answers * len; /* no step has more rows than all tokens of the batch */
    if (rows > most) rows = most;
    EngineConf e = engine_conf(batch, len, rows, page);
    e.sched.pages = (int)(pages < INT32_MAX ? pages : INT32_MAX);
    e.sched.max_rows = (int)rows; /* no more than all tokens there are */
    e.shard = shard;
    return e;
}

static bool keeps_going(void *user) { /* asked between micro-batches, of each rank; the policy agrees */
    const Run *r = user;
    return r->now.moved || !stop_asked();
}

static PolicyConf policy_conf(const Config *c, const Dev *d, bool trains) {
    return (PolicyConf){
        .micro_tokens = c->train.micro_tokens,
        .max_seqs = (int)((trains ? c->train.mini_batch_size : c->data.train_batch_size) * c->rollout.n),
        .trained = config_trained(c),
        .states = config_states(c, d),
        .offload = c->train.offload_fraction,
        .park_states = c->train.park_states,
        .park_weights = c->train.park_weights,
        .truncated = config_cuts(c),
        .kept = config_keeps_sets(c),
        .trains = trains,
    };
}

/* ---- memory: what the run will take is known before it is taken */
static int room_of(const Config *c) { /* questions under way: dynamic sampling draws a batch beside what it kept */
    return (int)(c->algo.filter_groups.enable ? 2 * c->data.train_batch_size : c->data.train_batch_size);
}

/* One size for all ranks: where they are counted one after the other it is found once. */
static size_t sync_bytes(Run *r, DType weights) {
    Sampler *s = &r->sampler;
    if (!s->sync_counted)
        s->sync_buffer = sync_buffer_bytes(&r->job.o.desc, &r->job.ranks.shard.g, &s->shard.g, weights,
                                           &r->job.ranks.world, r->job.c.rollout.sync_buffer);
    const ModelDesc *a = r->job.o.desc.adapter;
    if (!s->sync_counted && a)
        s->sync_buffer += sync_buffer_bytes(a, &r->job.ranks.shard.g, &s->shard.g, DT_F32, &r->job.ranks.world,
                                            r->job.c.rollout.sync_buffer);
    s->sync_counted = true;
    return s->sync_buffer;
}

static RunShape shape_of(void *user) {
    Run *r = user;
    const Config *c = &r->job.c;
    const ModelDesc *m = &r->job.o.desc;
    r->sampler.shard.at =
        grid_at(&r->sampler.shard.g, r->job.ranks.world.all.rank); /* another's, where it is counted */
    DevKind like = open_kind(&r->job.o, c->trainer.leaves);
    size_t largest;
    const Dev *d = &r->job.o.dev;
    PolicyConf policy = policy_conf(c, d, true), reference = policy_conf(c, d, false);
    policy.go_on = reference.go_on = keeps_going, policy.user = reference.user = r;
    policy.given = step_given;
    EngineConf engine = engine_conf_of(c, m, &r->sampler.shard, like);
    const ImageStats *image_stats = &r->image_stats;
    policy.pictures = reference.pictures = image_stats_micro(image_stats, c->train.micro_tokens, &m->d);
    int at_once = (int)(c->data.train_batch_size < 32 ? c->data.train_batch_size : 32);
    engine.feats = (int)(image_stats->feats * at_once), engine.patches = image_stats->patches;
    RunShape s = {
        .m = m,
        .shard = &r->job.ranks.shard,
        .sampler = &r->sampler.shard,
        .sync_buffer = sync_bytes(r, m->adapter ? open_disk_dtype(&r->job.o, config_random(c)) : policy.states.weights),
        .like = like,
        .threads = threads_count(r->job.o.dev.threads),
        .policy = policy,
        .base = open_disk_dtype(&r->job.o, config_random(c)),
        .reference = reference,
        .has_reference = r->ref.on,
        .reference_dtype = policy.states.weights == DT_BF16 ? DT_BF16 : open_disk_dtype(&r->job.o, config_random(c)),
        .rolls = true,
        .engine = engine,
        .questions = room_of(c),
        .answers = (int)c->rollout.n,
        .max_prompt = (int)c->data.max_prompt_length,
        .max_answer = (int)c->rollout.max_tokens,
        .mask = c->rollout.tools.n > 0,
        .greedy = c->algo.advantage == ADV_REMAX,
        .kept = config_keeps_sets(c) ? config_kept_room(c, m->d.vocab, &largest) : 0,
        .pixels = image_stats_pixels(image_stats, &m->d),
        .val_questions = r->job.val ? dataset_n(r->job.val) : 0,
        .val_answers = (int)c->rollout.val.n,
        .save_buffer = c->trainer.save_buffer,
        .save_moments = (SavedMoments)c->trainer.checkpoint_moments,
        .carried = ranks_first(&r->job.ranks) ? r->job.carried.bytes : 0,
    };
    s.policy.park_weights = run_offloads(&s);
    s.policy.room = run_room(&s);
    return s;
}

static void tell_gpu(Run *r) {
    DevAbout gpu = dev_about(&r->job.o.dev);
    char line[300];
    if (!gpu.total) return;
    snprintf(line, sizeof line,
             "%s: %.2f GB planned for this run beside %.2f GB in use before it (driver and libraries included); the "
             "driver says %.2f of "
             "%.2f GB in use",
             gpu.name, (double)r->job.planned_gpu / 1e9, (double)gpu.base / 1e9, (double)(gpu.total - gpu.free) / 1e9,
             (double)gpu.total / 1e9);
    run_dir_log(r->job.dir, line);
}

static void open_rollouts(Run *r) {
    const Config *c = &r->job.c;
    int P = (int)c->data.max_prompt_length, A = (int)c->rollout.max_tokens, n = (int)c->rollout.n;
    int room = room_of(c);
    rollouts_open(&r->sampler.roll, room, n, P, A, &r->job.mem);
    if (r->sampler.turns) rollouts_mask(&r->sampler.roll, &r->job.mem);
    if (config_keeps_sets(c)) {
        size_t most, kept = config_kept_room(c, r->job.o.desc.d.vocab, &most);
        rollouts_keep(&r->sampler.roll, kept, most, &r->job.mem);
    }
    if (c->algo.advantage == ADV_REMAX) rollouts_open(&r->sampler.greedy, room, 1, P, A, &r->job.mem);
    if (r->job.val) {
        evaluator_open(&r->val.eval, dataset_n(r->job.val), (int)c->rollout.val.n, P, A, &r->job.mem);
        r->val.metrics = val_metrics_open(r->job.val, (int)c->rollout.val.n, &r->job.mem);
    }
    flat_open(&r->flat, room * n, A, &r->job.mem);
    if (c->algo.filter_groups.enable)
        r->sampler.times_drawn = MEM_ARRAY(&r->job.mem, uint16_t, (size_t)dataset_n(r->job.train));
    r->sampler.opts = (SampleOpts){
        .draw = { (float)c->rollout.temperature, (float)c->rollout.top_p, (float)c->rollout.min_p,
                  (int32_t)(c->rollout.top_k > 0 ? c->rollout.top_k : 0) },
        .ignore_eos = c->rollout.ignore_eos,
        .max_tokens = A,
    };
}

/* Its weights are parked in the host's memory; in a pass they lie where the trainer has its
 * activations in an update. */
static bool reference_open(Run *r, const RunShape *s, Err *err) {
    Reference *x = &r->ref;
    Dev *d = &r->job.o.dev;
    if (s->m->adapter) { /* the weights alone, where they are */
        x->model = r->job.o.model, x->model.lora_off = true;
        policy_open(&x->policy, &x->model, &s->reference, &r->job.mem);
        return true;
    }
    model_open_in(&x->model, d, s->m, s->shard, &r->job.ranks.groups, r->job.policy.block.memory, s->reference_dtype,
                  (int)r->job.c.trainer.leaves, &r->job.mem);
    TRY(open_fill(&x->model, config_random(&r->job.c), err));
    policy_open(&x->policy, &x->model, &s->reference, &r->job.mem);
    Block *b = &r->job.policy.block;
    Arena w = x->model.w.arena;
    char *offloaded = mem_push(&r->job.mem, w.size);
    b->reference = tensor_over(w.base, DT_U8, 1, (int64_t)w.size), b->reference_at = offloaded;
    op_get(d, offloaded, b->reference);
    return true;
}

static bool open_trained(Run *r, const RunShape *s, Err *err) {
    TRY(job_open_weights(&r->job, s, err));
    TRY(job_open_policy(&r->job, &s->policy, err));
    block_for(&r->job.policy.block, BLOCK_SYNC); /* from here on others write there */
    return !r->ref.on || reference_open(r, s, err);
}

static void cache_gone(void *engine) { engine_flush(engine); }

static bool open_model(Run *r, const RunShape *s, Err *err) {
    RandomFill random = config_random(&r->job.c);
    TRY(job_agree(&r->job, open_trained(r, s, err), err)); /* sync is opened together, by all or by none */
    TRY(open_same(&r->job.ranks, &r->job.o.model, random, err));
    TRY(!r->ref.on || s->m->adapter || open_same(&r->job.ranks, &r->ref.model, random, err));
    Sampler *x = &r->sampler;
    Model *m = &r->job.o.model;
    /* The sampler's weights come anew after every update, by sync: they and the cache lie where the update happened. */
    Arena cache = r->job.policy.block.memory;
    if (m->w.offloaded)
        model_open_in(&x->model, m->dev, m->desc, &x->shard, &x->groups, cache, params_dtype(&m->w), m->leaves,
                      &r->job.mem);
    else model_open_beside(&x->model, m, &x->shard, &x->groups, cache, &r->job.mem);
    size_t own = x->model.w.arena.size;
    cache = arena_over("kv", cache.base + own, cache.size - own);
    sync_open(&x->sync, &r->job.o.model.w, &x->model.w, &r->job.o.dev, &r->job.ranks.world,
              r->job.c.rollout.sync_buffer, r->job.c.rollout.sync_share, &r->job.mem);
    if (m->desc->adapter)
        sync_open(&x->sync_adapter, &m->lora, &x->model.lora, &r->job.o.dev, &r->job.ranks.world,
                  r->job.c.rollout.sync_buffer, r->job.c.rollout.sync_share, &r->job.mem);
    x->at_once = s->engine.sched.max_batch;
    x->engine = engine_open_over(&x->model, &s->engine, cache, &r->job.mem);
    r->job.sampled = &x->model.w;
    r->job.sampled_adapter = m->desc->adapter ? &x->model.lora : NULL;
    r->job.policy.block.engine = x->engine, r->job.policy.block.cache_gone = cache_gone;
    return true;
}

/* ---- going on where a run was left */
static bool read_more(void *user, const Json *state, const char *checkpoint, Err *err) {
    Run *r = user;
    char line[300];
    TRY(json_real_within(state, "kl_coef", 0, DBL_MAX, &r->kl.coef, err));
    snprintf(line, sizeof line, "going on from %s: %" PRId64 " steps are done", checkpoint, r->job.step);
    run_dir_log(r->job.dir, line);
    return true;
}

/* The ranks' other grid. */
static bool open_replicas(Run *r, Err *err) {
    const Config *c = &r->job.c;
    Sampler *x = &r->sampler;
    const World *w = &r->job.ranks.world;
    const char *option;
    TRY(config_rollout_grid(&x->shard.g, c, &r->job.o.desc, w->all.size, (int)c->trainer.leaves, &option, err));
    x->shard.at = grid_at(&x->shard.g, w->all.rank);
    x->groups = groups_self();
    x->replicas = replicas_one();
    if (w->all.size == 1) return true;
    world_groups(w, &x->shard.g, &x->groups);
    x->replicas = replicas_of(w, &x->shard.g, &x->groups);
    return true;
}

static bool open_parts(Run *r, Err *err) {
    TRY(found_rows(&r->job, open_questions(r, err), err));
    r->ref.on = config_needs_ref(&r->job.c);
    r->kl = config_kl(&r->job.c);
    if (r->job.counted) return job_count(&r->job, shape_of, r, err);
    RunShape shape = shape_of(r);
    TRY(job_fits(&r->job, &shape, err));
    open_rollouts(r);
    return open_model(r, &shape, err);
}

/* Of one device, for MFU: as the configuration says, a card's dense bf16 peak by its maker, or measured on these cores.
 * NAN: nobody knows this card's. */
static double peak_flops(const Config *c, const Dev *d) {
    if (!isnan(c->trainer.peak_tflops)) return c->trainer.peak_tflops * 1e12;
    if (!on_gpu(d)) return machine_flops();
    const Machine *card = machine_card(dev_about(d).name);
    return card ? card->flops : NAN;
}

bool run_open(Run *r, Err *err) {
    Job *j = &r->job;
    const Config *c = &j->c;
    TRY(job_open(j, err) && open_replicas(r, err) && job_open_dir(j, err) && found_files(j, err));
    TRY(job_agree(j, open_parts(r, err), err));
    if (j->counted) return true;
    if (r->ref.on) j->beside = &r->ref.policy;
    TRY(job_open_saves(j, err));
    tell_gpu(r);
    TRY(job_resume(j, read_more, r, err));
    r->peak_flops = peak_flops(c, &j->o.dev) * ranks_count(&j->ranks);
    if (c->trainer.profile && ranks_first(&j->ranks)) {
        profile_open(&j->o.dev, PROFILE_SPANS, &j->o.mem);
        world_note(&j->ranks.world);
    }
    r->moved = moved_note(&j->policy, &j->mem);
    job_begin(j);
    SyncStats st;
    return run_sync(r, &st, err);
}

void run_release(Run *r) {
    if (!r->sampler.engine) return;
    engine_close(r->sampler.engine);
    r->sampler.engine = NULL;
    sync_close(&r->sampler.sync);
    if (r->sampler.model.desc->adapter) sync_close(&r->sampler.sync_adapter);
    model_close(&r->sampler.model);
    policy_close(&r->job.policy);
    if (r->ref.on) policy_close(&r->ref.policy);
    if (r->ref.on && !r->job.o.desc.adapter) model_close(&r->ref.model);
    model_close(&r->job.o.model);
    r->job.o.has_model = false;
}

bool run_profiled(Run *r, Err *err) {
    Dev *d = &r->job.o.dev;
    if (!d->profile) return true;
    world_notes(&r->job.ranks.world, d);
    int64_t lost = profile_lost(d->profile);
    TRY(profile_write(d, r->job.c.trainer.profile, err));
    fprintf(stderr, "hone train: the timeline is in %s%s\n", r->job.c.trainer.profile,
            lost ? ", of the first ops: there are more than it has room for" : "");
    profile_close(d);
    return true;
}

void run_close(Run *r) {
    if (r->sampler.engine) engine_close(r->sampler.engine);
    rewards_close(r->sampler.rewards);
    turns_conf_close(r->sampler.turns);
    rollouts_clear(&r->sampler.roll); /* the last step's pictures */
    rollouts_clear(&r->val.eval.roll);
    job_close(&r->job);
}
