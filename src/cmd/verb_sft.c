/* verb_sft.c - `hone sft`: learning from given answers with the same trainer, to start from nothing or to teach a format.
 * The loss is the mean of -log p over the answers' tokens, which is the policy loss gpg with advantage 1. */
#include "base/clock.h"
#include "cmd/device.h"
#include "cmd/metrics.h"
#include "cmd/needs.h"
#include "cmd/progress.h"
#include "cmd/ranks.h"
#include "cmd/run_dir.h"
#include "cmd/start.h"
#include "task/prompt.h"
#include "train/checkpoint.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    int32_t *tokens;
    int n, prompt;
} Pair;
typedef struct {
    Pair *at;
    int64_t n, dropped;
} Pairs;

typedef struct {
    Config c;
    Mem mem;
    Ranks ranks;
    Opened o;
    Policy policy;
    Prompter *prompter;
    Dataset *train, *val;
    Pairs pairs, val_pairs;
    DataStream *stream;
    RunDir *dir;
    Progress *progress;
    Checkpoints *saves;
    Metrics metrics;
    LrConf lr;
    TrainSeq *seq;
    float *ones, *zeros;
    float **lp;                         /* [batch][max_length]: validation's */
    int64_t step, steps, saved, *index; /* saved: the step of the newest checkpoint */
    DataCursor cursor;
    bool untold; /* the step is done, its validation was cut: its metrics wait to be told with it */
    double t_saved;
} Sft;

/* ---- pairs: tokenised once, held in memory */
/* Cuts a pair to 'max' tokens.  What goes may be of the prompt, of the answer or of both; where nothing is left before the
 * answer, its first token is what the second is predicted from. */
static void cut_pair(TokIds *ids, size_t *prompt, int64_t max, DataLong how) {
    int64_t n = (int64_t)ids->n, before = (int64_t)*prompt;
    if (n <= max) return;
    int64_t from = how == DATA_LONG_RIGHT ? max : how == DATA_LONG_MIDDLE ? max / 2 : 0, to = from + n - max;
    int64_t gone = (before < to ? before : to) - from;
    ids->n = (size_t)data_cut(ids->at, n, max, how);
    if (gone > 0) before -= gone;
    *prompt = before > 0 ? (size_t)before : 1;
}

static bool open_pairs(Sft *s, Dataset **data, Pairs *out, const StrList *files, int64_t max_rows, Err *err) {
    const Config *c = &s->c;
    DataOptions o = {
        .files = files->at,
        .n_files = (int)files->n,
        .columns = { .prompt = c->sft.messages_key ? c->sft.messages_key : c->sft.prompt_key,
                     .response = c->sft.response_key },
        .need_response = !c->sft.messages_key,
        .conversations = c->sft.messages_key != NULL,
        .max_rows = max_rows == CONF_UNSET ? 0 : max_rows,
        .threads = s->o.dev.threads,
    };
    if (!(*data = dataset_open(&o, err))) return false;
    TokIds ids = { 0 };
    bool ok = true;
    out->at = MEM_ARRAY(&s->mem, Pair, (size_t)dataset_n(*data));
    for (int64_t i = 0; ok && i < dataset_n(*data); i++) {
        const DataRow *row = dataset_row(*data, i);
        size_t prompt;
        ids.n = 0;
        if (!prompter_pair(s->prompter, 0, row, &ids, &prompt, err)) {
            ok = err_wrap(err, "%s, row %" PRId64, dataset_file(*data, row->file), row->row);
        } else if ((int64_t)ids.n > c->sft.max_length && c->sft.truncation == TRUNC_ERROR) {
            ok = err_set(err,
                         "%s, row %" PRId64 ": %zu tokens, but sft.max_length is %" PRId64
                         " (sft.truncation=left, right or middle cuts them)",
                         dataset_file(*data, row->file), row->row, ids.n, c->sft.max_length);
        } else {
            cut_pair(&ids, &prompt, c->sft.max_length, config_truncation(c->sft.truncation));
            if (ids.n <= prompt) out->dropped++;
            else
                out->at[out->n++] =
                    (Pair){ mem_copy(&s->mem, ids.at, ids.n * sizeof *ids.at), (int)ids.n, (int)prompt };
        }
    }
    vec_free(ids.at);
    if (ok && !out->n) ok = err_set(err, "no pair of prompt and answer is left to learn from");
    return ok;
}

static TrainSeq seq_of(const Sft *s, const Pair *p) {
    return (TrainSeq){
        .tokens = p->tokens, .n = p->n, .prompt = p->prompt, .draw = DRAW_PLAIN, .old = s->zeros, .adv = s->ones
    };
}

/* Told to stop: this rank or another. */
static bool stopping(const Sft *s) { return ranks_any(&s->ranks, stop_asked()); }

/* ---- validation: mean -log p of a token; told to stop, it is given up, and the step stays untold */
static bool validate(Sft *s, Err *err) {
    if (!s->val_pairs.n) return true;
    double sum = 0;
    int64_t tokens = 0, block = s->c.sft.batch_size;
    bool ok = true, cut = false;
    for (int64_t from = 0; ok && !cut && from < s->val_pairs.n; from += block) {
        int n = 0;
        for (int64_t i = from; i < s->val_pairs.n && n < block; i++) s->seq[n++] = seq_of(s, &s->val_pairs.at[i]);
        ok = policy_logprob(&s->policy, s->seq, n, s->lp, NULL, err);
        cut = stopping(s);
        for (int i = 0; ok && i < n; i++)
            for (int t = 0; t < s->seq[i].n - s->seq[i].prompt; t++, tokens++) sum -= s->lp[i][t];
    }
    s->untold = cut && s->step > 0; /* before the first step nothing is saved: it will be done again */
    if (ok && !cut) metric(&s->metrics, "val/loss", sum / (double)tokens);
    return ok;
}

static bool save(Sft *s, Err *err) {
    if (s->step == s->saved) return true; /* writing it again would take the good one away first */
    Buf b = { 0 };
    buf_printf(&b, "{\"step\":%" PRId64 ",\"optimizer_step\":%" PRId64 ",\"epoch\":%" PRId64 ",\"position\":%" PRId64,
               s->step, s->policy.opt.step, s->cursor.epoch, s->cursor.position);
    same_run_put(&b, &s->c, &s->o.dev, &s->ranks, dataset_print(s->train));
    untold_put(&b, s->untold ? &s->metrics : NULL);
    buf_puts(&b, "}\n");
    bool ok = checkpoint_save(s->saves, s->step, b.data, err);
    buf_free(&b);
    if (ok) s->saved = s->step;
    s->t_saved = clock_now();
    return ok;
}

static bool tell(Sft *s, Err *err) {
    if (!ranks_agree(&s->ranks, run_dir_metrics(s->dir, s->step, &s->metrics, err), err)) return false;
    progress_line(s->progress, s->step, s->steps, &s->metrics);
    return true;
}

static bool update(Sft *s, Err *err) {
    const Config *c = &s->c;
    double t0 = clock_now();
    int64_t n = stream_next(s->stream, c->sft.batch_size, s->index);
    for (int64_t i = 0; i < n; i++) s->seq[i] = seq_of(s, &s->pairs.at[s->index[i]]);
    LossConf loss = { .kind = LOSS_GPG, .agg = AGG_TOKEN_MEAN };
    double lr = lr_at(&s->lr, s->step);
    AdamConf adam = {
        lr, c->train.betas[0], c->train.betas[1], c->train.eps, c->train.weight_decay, c->train.clip_grad
    };
    UpdateStats u;
    checkpoint_copied(s->saves); /* a save under way still reads the weights */
    TRY(policy_update(&s->policy, s->seq, (int)n, &loss, &adam, false, &u, err));
    if (u.given_up) return true; /* told to stop: this step will be done again */
    if (!u.finite && c->trainer.on_nan == ON_NAN_STOP)
        return err_set(err,
                       "step %" PRId64
                       ": the loss is %g and the gradient's norm %g: stopped, the weights are as before this update",
                       s->step + 1, u.total, u.grad_norm);
    s->step++;
    s->cursor = stream_cursor(s->stream);
    metrics_clear(&s->metrics);
    metric(&s->metrics, "train/loss", u.total);
    metric(&s->metrics, "train/grad_norm", u.grad_norm);
    metric(&s->metrics, "train/lr", lr);
    metric(&s->metrics, "train/tokens", (double)u.tokens);
    bool due = c->trainer.val_every > 0 && s->step % c->trainer.val_every == 0;
    if (due || s->step == s->steps) TRY(validate(s, err));
    metric(&s->metrics, "timing_s/step", clock_now() - t0);
    metric(&s->metrics, "perf/throughput", (double)u.tokens / (clock_now() - t0));
    MemoryUsed memory = memory_used();
    if (memory.now > 0) metric(&s->metrics, "perf/cpu_memory_used_gb", memory.now / 1e9);
    if (memory.peak > 0) metric(&s->metrics, "perf/cpu_memory_peak_gb", memory.peak / 1e9);
    return s->untold || tell(s, err);
}

static bool train(Sft *s, Err *err) {
    if (s->step == 0 && s->val_pairs.n && s->c.trainer.val_before_train)
        TRY(validate(s, err)
            && (stopping(s) || ranks_agree(&s->ranks, run_dir_metrics(s->dir, 0, &s->metrics, err), err)));
    if (s->untold) {
        TRY(validate(s, err) && (s->untold || tell(s, err)));
        if (!s->untold)
            s->saved = -1; /* the checkpoint says that the step is untold: it is written again, if no later one is */
    }
    while (s->step < s->steps && !stopping(s)) {
        TRY(update(s, err));
        if (save_due(&s->c, &s->ranks, s->step, s->t_saved)) TRY(save(s, err));
    }
    return save(s, err);
}

/* ---- opening */
static bool goes_on(void *user) { return (void)user, !stop_asked(); } /* asked between micro-batches */

static bool open_model(Sft *s, Err *err) {
    const Config *c = &s->c;
    PolicyConf p = { .micro_tokens =
                         c->train.micro_tokens > c->sft.max_length ? c->train.micro_tokens : c->sft.max_length,
                     .max_seqs = (int)c->sft.batch_size,
                     .recompute = (Recompute)c->train.recompute,
                     .offload = c->train.offload_fraction,
                     .trains = true,
                     .go_on = goes_on };
    RunShape shape = { .m = &s->o.desc,
                       .shard = &s->ranks.shard,
                       .like = open_kind(&s->o, c->trainer.leaves),
                       .threads = threads_count(s->o.dev.threads),
                       .policy = p,
                       .save_buffer = c->trainer.save_buffer };
    Need need[MOST_NEEDS];
    int n = run_needs(need, &shape);
    if (!memory_fits(&s->o, need, n, err)) return err_wrap(err, "this run does not fit");
    if (dev_about(&s->o.dev).total) dev_reserve(&s->o.dev, needs_device(need, n));
    OpenOpts oo = { .leaves = c->trainer.leaves, .f32 = true, .random = config_random(c), .counted = true };
    TRY(open_weights(&s->o, &oo, run_scratch_bytes(&shape), err));
    policy_open(&s->policy, &s->o.model, &p, &s->mem);
    CheckpointConf cc;
    TRY(config_saves(&cc, c, &s->mem, err));
    s->saves = checkpoints_open(&s->policy, &cc, &s->mem);
    dev_touch(&s->o.dev);
    mem_touch(&s->mem);
    return true;
}

static bool load(Sft *s, const char *path, int64_t done, Err *err) {
    if (path && s->c.trainer.resume == RESUME_NEVER)
        return err_set(err, "%s is there and trainer.resume is never: give this run another trainer.run_dir", path);
    if (path) {
        RunState state;
        TRY(checkpoint_load(path, &s->policy, err) && state_read(&state, path, done, &s->mem, err));
        s->cursor = state.at;
        Buf said = { 0 };
        bool same = same_run(&s->c, &s->o.dev, &s->ranks, dataset_print(s->train), path, &state, &said, err);
        if (same && said.n) run_dir_log(s->dir, said.data);
        buf_free(&said);
        TRY(same);
        if (!stream_seek(s->stream, s->cursor, err)) return err_wrap(err, "%s", state.path);
        s->step = s->saved = done;
        TRY(untold_get(&s->metrics, &s->untold, &state, &s->mem, err));
    }
    return run_dir_resume(s->dir, s->step > 0 ? s->step : -1, s->untold,
                          err); /* validation before step 1 is told again */
}

static bool resume(Sft *s, Err *err) {
    const char *path = NULL;
    int64_t done = 0;
    return start_find(&s->ranks, s->c.trainer.run_dir, &path, &done, &s->mem, err)
           && ranks_agree(&s->ranks, load(s, path, done, err), err);
}

static bool open_first(Sft *s, Err *err) {
    const Config *c = &s->c;
    OpenOpts oo = {
        .threads = c->trainer.threads, .device = c->trainer.device, .compute = c->trainer.compute, .ranks = &s->ranks
    };
    return config_check(c, err) && open_desc(&s->o, c->model.path, &oo, err)
           && config_check_model(c, &s->o.desc, ranks_count(&s->ranks), err) && config_check_device(c, &s->o.dev, err);
}

static bool open_dir(Sft *s, Err *err) {
    s->dir = ranks_first(&s->ranks) ? run_dir_open(&s->c, err) : run_dir_mute(&s->c);
    return s->dir != NULL;
}

static bool open_data(Sft *s, Err *err) {
    const Config *c = &s->c;
    int32_t end = s->o.desc.d.n_eos ? (int32_t)s->o.desc.d.eos[0] : -1;
    PromptOptions po = { .model = c->model.tokenizer,
                         .chat_template = c->model.chat_template,
                         .variables = config_arguments(&c->data.template_args, &s->mem),
                         .vocab = s->o.desc.d.vocab,
                         .end = end };
    if (!(s->prompter = prompter_open(&po, threads_count(s->o.dev.threads), err))) return false;
    TRY(open_pairs(s, &s->train, &s->pairs, &c->data.train_files, c->data.train_max_samples, err));
    if (c->data.val_files.n)
        TRY(open_pairs(s, &s->val, &s->val_pairs, &c->data.val_files, c->data.val_max_samples, err));
    if (s->pairs.n < c->sft.batch_size)
        return err_set(err, "sft.batch_size is %" PRId64 ", but there are only %" PRId64 " pairs", c->sft.batch_size,
                       s->pairs.n);
    if (s->pairs.n != dataset_n(s->train))
        return err_set(
            err, "%" PRId64 " pairs have no room for an answer within sft.max_length: raise it, or leave them out",
            s->pairs.dropped);
    StreamOptions so = {
        .data = s->train, .seed = (uint64_t)c->data.seed, .shuffle = c->data.shuffle, .drop_last = true
    };
    s->stream = stream_open(&so);
    s->steps = c->trainer.steps != CONF_UNSET ? c->trainer.steps : c->trainer.epochs * (s->pairs.n / c->sft.batch_size);
    s->lr = config_lr(c, s->steps);
    s->seq = MEM_ARRAY(&s->mem, TrainSeq, (size_t)c->sft.batch_size);
    s->index = MEM_ARRAY(&s->mem, int64_t, (size_t)c->sft.batch_size);
    s->ones = MEM_ARRAY(&s->mem, float, (size_t)c->sft.max_length),
    s->zeros = MEM_ARRAY(&s->mem, float, (size_t)c->sft.max_length);
    for (int64_t i = 0; i < c->sft.max_length; i++) s->ones[i] = 1;
    int64_t block = c->data.val_files.n ? c->sft.batch_size : 0;
    s->lp = MEM_ARRAY(&s->mem, float *, (size_t)block);
    for (int64_t i = 0; i < block; i++) s->lp[i] = MEM_ARRAY(&s->mem, float, (size_t)c->sft.max_length);
    return true;
}

static bool open_all(Sft *s, Err *err) {
    const Ranks *ranks = &s->ranks;
    GridShape axes = config_axes(&s->c);
    if (!ranks_agree(ranks, open_first(s, err), err)) return false;
    TRY(ranks_grid(&s->ranks, &axes, config_split(&s->c, &s->mem), &s->o.desc, 0, err));
    if (s->c.trainer.leaves == CONF_UNSET) s->c.trainer.leaves = open_kind(&s->o, 0).leaves;
    TRY(ranks_agree(ranks, open_dir(s, err), err) && ranks_agree(ranks, open_data(s, err), err)
        && ranks_agree(ranks, open_model(s, err), err) && resume(s, err));
    s->progress = progress_open(s->dir, &s->mem);
    stop_on_signals();
    s->t_saved = clock_now();
    return true;
}

static int run(const Verb *v, int argc, char **argv) {
    Sft s = { 0 };
    Err err;
    int rc = start(v, &s.c, CONF_SFT, argc, argv);
    if (rc >= 0) return rc;
    bool ok = ranks_open(&s.ranks, s.c.trainer.wait_seconds, &err) && open_all(&s, &err) && train(&s, &err);
    if (s.saves) {
        Err late;
        if (!checkpoints_close(s.saves, &late) && ok) ok = false, err = late;
    }
    if (ok) end_line(s.step, s.steps, s.c.trainer.run_dir);
    if (!ok && s.dir) run_dir_note(s.dir, err.msg);
    stream_close(s.stream);
    dataset_close(s.train);
    dataset_close(s.val);
    prompter_close(s.prompter);
    run_dir_close(s.dir);
    open_close(&s.o);
    mem_free(&s.mem);
    config_free(&s.c);
    ranks_close(&s.ranks);
    return ok ? 0 : cmd_fail(v, &err);
}

const Verb verb_sft = {
    .name = "sft",
    .usage = "CONFIG.yaml [key=value ...]",
    .summary = "learn from given answers (supervised fine-tuning)",
    .options = start_options,
    .run = run,
    .ranks = true,
};
