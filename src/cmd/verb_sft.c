/* verb_sft.c - `hone sft`: learning from given answers with the same trainer, to start from nothing or to teach a
 * format.  The loss is the mean of -log p over the answers' tokens, which is the policy loss gpg with advantage 1.  Of
 * a conversation a mask says which tokens are the assistant's. */
#include "base/clock.h"
#include "cmd/start.h"
#include "rollout/rollouts.h"
#include "step/found.h"
#include "step/slowest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    int32_t *tokens;
    uint8_t *mask; /* [n] of a conversation, which of them are learned; else NULL: all behind the prompt */
    int n, prompt;
    const DataRow *row; /* with pictures; else NULL */
} Pair;
typedef struct {
    Pair *at;
    int64_t n, dropped, cut;
    const DataRow *first_dropped;
    TalkCount talk;
} Pairs;

typedef struct {
    Job job;
    Pairs pairs, val_pairs;
    TrainSeq *seq;
    int64_t *index;
    float *ones, *zeros;
    float **lp; /* [batch][max_length]: validation's */
    ImageStats image_stats;
    SlowSeen slow;
    Mem pixels; /* of a batch's pictures */
} Sft;

/* ---- pairs: tokenised once, held in memory */
typedef struct {
    TokIds ids;
    Buf mask; /* of a conversation: a byte for each */
    size_t prompt;
} Taken;

/* What comes before the first token that is learned, which the first token of all, predicted from nothing, is not. */
static size_t before_learned(const Taken *x) {
    size_t i = 1;
    while (i < x->ids.n && !x->mask.data[i]) i++;
    return i;
}

/* Cuts a pair to 'max' tokens.  What goes may be of the prompt, of the answer or of both; where nothing is left before
 * the answer, its first token is what the second is predicted from. */
static void cut_pair(TokIds *ids, size_t *prompt, int64_t max, DataLong how) {
    int64_t n = (int64_t)ids->n, before = (int64_t)*prompt;
    if (n <= max) return;
    int64_t from = how == DATA_LONG_RIGHT ? max : how == DATA_LONG_MIDDLE ? max / 2 : 0, to = from + n - max;
    int64_t gone = (before < to ? before : to) - from;
    ids->n = (size_t)data_cut(ids->at, n, max, how);
    if (gone > 0) before -= gone;
    *prompt = before > 0 ? (size_t)before : 1;
}

static void cut_talk(Taken *x, int64_t max, DataLong how) {
    int64_t n = (int64_t)x->ids.n, from = how == DATA_LONG_RIGHT ? max : how == DATA_LONG_MIDDLE ? max / 2 : 0;
    if (n <= max) return;
    memmove(x->mask.data + from, x->mask.data + from + n - max, (size_t)(max - from));
    x->ids.n = x->mask.n = (size_t)data_cut(x->ids.at, n, max, how);
    x->prompt = before_learned(x);
}

static bool take_tokens(Sft *s, const DataRow *row, Taken *x, TalkCount *count, Err *err) {
    x->ids.n = 0;
    if (!row->talk) return prompter_pair(s->job.prompter, 0, row, &x->ids, &x->prompt, err);
    Spans pics;
    Mem sizes = { 0 };
    bool ok = prompter_talk(s->job.prompter, 0, row, &x->ids, &x->mask, count, &pics, &sizes, false, err);
    mem_free(&sizes);
    TRY(ok);
    while (!row_has_images(row) && x->ids.n && !x->mask.data[x->ids.n - 1])
        x->ids.n--; /* nothing is learned from them */
    x->prompt = before_learned(x);
    return true;
}

static Pair kept_pair(Sft *s, const DataRow *row, const Taken *x) {
    Mem *mem = &s->job.mem;
    return (Pair){ .tokens = mem_copy(mem, x->ids.at, x->ids.n * sizeof *x->ids.at),
                   .mask = row->talk ? mem_copy(mem, x->mask.data, x->ids.n) : NULL,
                   .n = (int)x->ids.n,
                   .prompt = (int)x->prompt,
                   .row = row_has_images(row) ? row : NULL };
}

static bool take_pair(Sft *s, const DataRow *row, Taken *x, Pairs *out, Err *err) {
    const Config *c = &s->job.c;
    TRY(take_tokens(s, row, x, &out->talk, err));
    bool is_long = (int64_t)x->ids.n > c->sft.max_length;
    if (is_long && c->sft.truncation == TRUNC_ERROR)
        return err_set(err,
                       "%zu tokens, but sft.max_length is %" PRId64 " (sft.truncation=left, right or middle cuts them)",
                       x->ids.n, c->sft.max_length);
    if (is_long && row_has_images(row))
        return err_set(err, "%zu tokens with pictures, which cannot be cut: sft.max_length is %" PRId64, x->ids.n,
                       c->sft.max_length);
    if (row->talk) cut_talk(x, c->sft.max_length, config_truncation(c->sft.truncation));
    else cut_pair(&x->ids, &x->prompt, c->sft.max_length, config_truncation(c->sft.truncation));
    out->cut += is_long;
    if (x->ids.n <= x->prompt && !out->dropped++) out->first_dropped = row;
    if (x->ids.n > x->prompt) out->at[out->n++] = kept_pair(s, row, x);
    return true;
}

static void tell_pairs(Sft *s, const Pairs *p, const StrList *files) {
    char line[400];
    const char *what = s->job.c.sft.messages_key ? "conversations" : "pairs";
    if (p->talk.as_is) {
        snprintf(line, sizeof line,
                 "%s: %" PRId64 " of %" PRId64
                 " messages stand otherwise in their whole conversation than at the end of "
                 "one (a thought is left out, or opened by the generation prompt): learned as they stand there",
                 files->at[0], p->talk.as_is, p->talk.messages);
        run_dir_log(s->job.dir, line);
    }
    if (p->dropped) { /* of those to train on this is refused later */
        snprintf(line, sizeof line, "%s: %" PRId64 " %s have nothing to learn within sft.max_length and are left out",
                 files->at[0], p->dropped, what);
        run_dir_log(s->job.dir, line);
    }
    if (p->cut) {
        snprintf(line, sizeof line, "%s: %" PRId64 " %s were cut to sft.max_length %" PRId64, files->at[0], p->cut,
                 what, s->job.c.sft.max_length);
        run_dir_log(s->job.dir, line);
    }
}

static bool none_learned(const Pairs *p, const Dataset *data, Err *err) {
    return err_set(err,
                   "%" PRId64 " conversations have no message to learn within sft.max_length, the first is %s, row "
                   "%" PRId64 ": raise it, or leave them out",
                   p->dropped, dataset_file(data, p->first_dropped->file), p->first_dropped->row);
}

static bool open_pairs(Sft *s, Dataset **data, Pairs *out, const StrList *files, int64_t max_rows, Err *err) {
    const Config *c = &s->job.c;
    bool talks = c->sft.messages_key != NULL;
    DataOptions o = {
        .files = files->at,
        .n_files = (int)files->n,
        .columns = { .prompt = talks ? c->sft.messages_key : c->sft.prompt_key,
                     .response = c->sft.response_key,
                     .tools = c->sft.tools_key },
        .need_response = !talks,
        .conversations = talks,
        .images = c->data.images_key,
        .videos = c->data.videos_key,
        .pictures = prompter_takes(s->job.prompter),
        .max_rows = max_rows == CONF_UNSET ? 0 : max_rows,
        .threads = s->job.o.dev.threads,
    };
    if (!(*data = dataset_open(&o, err))) return false;
    Taken x = { 0 };
    bool ok = true;
    out->at = MEM_ARRAY(&s->job.mem, Pair, (size_t)dataset_n(*data));
    for (int64_t i = 0; ok && i < dataset_n(*data); i++) {
        const DataRow *row = dataset_row(*data, i);
        ok = take_pair(s, row, &x, out, err)
             || err_wrap(err, "%s, row %" PRId64, dataset_file(*data, row->file), row->row);
    }
    vec_free(x.ids.at);
    buf_free(&x.mask);
    if (ok && !out->n)
        ok = talks && out->dropped
                 ? none_learned(out, *data, err)
                 : err_set(err, "no %s is left to learn from", talks ? "conversation" : "pair of prompt and answer");
    if (ok) tell_pairs(s, out, files);
    return ok;
}

/* Pictures are read again for each batch that has them: a data set's would fill the memory. */
static bool seq_of(Sft *s, const Pair *p, TrainSeq *out, Err *err) {
    TokIds ids = { 0 };
    Spans pics = { 0 };
    bool ok = !p->row || prompter_encode_images(s->job.prompter, 0, p->row, &ids, &pics, &s->pixels, err);
    vec_free(ids.at);
    *out = (TrainSeq){ .tokens = p->tokens,
                       .n = p->n,
                       .prompt = p->prompt,
                       .draw = DRAW_PLAIN,
                       .old = s->zeros,
                       .adv = s->ones,
                       .mask = p->mask ? p->mask + p->prompt : NULL,
                       .spans = pics };
    return ok;
}
static void forget_pixels(Sft *s) {
    mem_free(&s->pixels);
    s->pixels = (Mem){ 0 };
}

/* ---- validation: mean -log p of a token; told to stop, it is given up, and the step stays untold */
static bool validate(Sft *s, Err *err) {
    if (!s->val_pairs.n) return true;
    double sum = 0;
    int64_t tokens = 0, block = s->job.c.sft.batch_size;
    bool ok = true, cut = false;
    ranks_phase(&s->job.ranks, "validation");
    for (int64_t from = 0; ok && !cut && from < s->val_pairs.n; from += block) {
        int n = 0;
        for (int64_t i = from; ok && i < s->val_pairs.n && n < block; i++)
            ok = seq_of(s, &s->val_pairs.at[i], &s->seq[n++], err);
        ok = ok && policy_logprob(&s->job.policy, s->seq, n, s->lp, NULL, err);
        forget_pixels(s);
        cut = !job_wanted(&s->job);
        for (int i = 0; ok && i < n; i++)
            for (int t = 0; t < s->seq[i].n - s->seq[i].prompt; t++)
                if (!s->seq[i].mask || s->seq[i].mask[t]) sum -= s->lp[i][t], tokens++;
    }
    s->job.untold = cut && s->job.step > 0; /* before the first step nothing is saved: it will be done again */
    if (ok && !cut) metric(&s->job.metrics, "val/loss", sum / (double)tokens);
    return ok;
}

static bool update(Sft *s, Err *err) {
    const Config *c = &s->job.c;
    double t0 = clock_now(), w0 = ranks_waited(&s->job.ranks);
    ranks_phase(&s->job.ranks, "update");
    int64_t n = stream_next(s->job.stream, c->sft.batch_size, s->index);
    for (int64_t i = 0; i < n; i++) TRY(seq_of(s, &s->pairs.at[s->index[i]], &s->seq[i], err));
    LossConf loss = { .kind = LOSS_GPG, .agg = AGG_TOKEN_MEAN };
    double lr = lr_at(&s->job.lr, s->job.step);
    AdamConf adam = config_adam(c, lr);
    UpdateStats u;
    checkpoint_copied(s->job.saves); /* a save under way still reads the weights */
    bool ok = policy_update(&s->job.policy, s->seq, (int)n, &loss, &adam, false, &u, err);
    forget_pixels(s);
    TRY(ok);
    if (u.given_up) return true; /* told to stop: this step will be done again */
    if (!u.finite && c->trainer.on_nan == ON_NAN_STOP)
        return err_set(err,
                       "step %" PRId64
                       ": the loss is %g and the gradient's norm %g: stopped, the weights are as before this update",
                       s->job.step + 1, u.total, u.grad_norm);
    s->job.step++;
    s->job.cursor = stream_cursor(s->job.stream);
    metrics_clear(&s->job.metrics);
    metric(&s->job.metrics, "train/loss", u.total);
    metric(&s->job.metrics, "train/grad_norm", u.grad_norm);
    metric(&s->job.metrics, "train/lr", lr);
    metric(&s->job.metrics, "train/tokens", (double)u.tokens);
    if (c->sft.messages_key) metric(&s->job.metrics, "train/learned_tokens", (double)u.loss.tokens);
    bool due = c->trainer.val_every > 0 && s->job.step % c->trainer.val_every == 0;
    if (due || s->job.step == s->job.steps) TRY(validate(s, err));
    static const SlowPhase whole = SLOW_PHASE("the step", "step");
    double step = clock_now() - t0, own = step - (ranks_waited(&s->job.ranks) - w0);
    metric(&s->job.metrics, "timing_s/step", step);
    slowest_tell(&s->job.ranks, &s->job.metrics, s->job.dir, &s->slow, &whole, &(SlowPart){ own, 1 }, 1, s->job.step,
                 step);
    metric(&s->job.metrics, "perf/throughput", (double)u.tokens / (clock_now() - t0));
    MemoryUsed memory = memory_used();
    if (memory.now > 0) metric(&s->job.metrics, "perf/cpu_memory_used_gb", memory.now / 1e9);
    if (memory.peak > 0) metric(&s->job.metrics, "perf/cpu_memory_peak_gb", memory.peak / 1e9);
    return s->job.untold || job_tell(&s->job, err);
}

static bool train(Sft *s, Err *err) {
    if (s->job.step == 0 && s->val_pairs.n && s->job.c.trainer.val_before_train)
        TRY(validate(s, err)
            && (!job_wanted(&s->job) || job_agree(&s->job, run_dir_metrics(s->job.dir, 0, &s->job.metrics, err), err)));
    if (s->job.untold) {
        TRY(validate(s, err) && (s->job.untold || job_tell(&s->job, err)));
        if (!s->job.untold)
            s->job.saved =
                -1; /* the checkpoint says that the step is untold: it is written again, if no later one is */
    }
    while (s->job.step < s->job.steps && job_wanted(&s->job)) {
        TRY(update(s, err));
        if (job_save_due(&s->job)) TRY(job_save(&s->job, "", err));
    }
    return job_save(&s->job, "", err);
}

/* ---- opening */
static bool goes_on(void *user) { return (void)user, !stop_asked(); } /* asked between micro-batches */

static RunShape shape_of(void *user) {
    Sft *s = user;
    const Config *c = &s->job.c;
    PolicyConf p = { .micro_tokens =
                         c->train.micro_tokens > c->sft.max_length ? c->train.micro_tokens : c->sft.max_length,
                     .max_seqs = (int)c->sft.batch_size,
                     .trained = config_trained(c),
                     .states = config_states(c, &s->job.o.dev),
                     .offload = c->train.offload_fraction,
                     .trains = true,
                     .go_on = goes_on };
    p.pictures = image_stats_micro(&s->image_stats, p.micro_tokens, &s->job.o.desc.d);
    return (RunShape){ .m = &s->job.o.desc,
                       .shard = &s->job.ranks.shard,
                       .like = open_kind(&s->job.o, c->trainer.leaves),
                       .threads = threads_count(s->job.o.dev.threads),
                       .policy = p,
                       .base = open_disk_dtype(&s->job.o, config_random(c)),
                       .questions = (int)c->sft.batch_size,
                       .pixels = image_stats_pixels(&s->image_stats, &s->job.o.desc.d),
                       .save_buffer = c->trainer.save_buffer,
                       .save_moments = (SavedMoments)c->trainer.checkpoint_moments,
                       .carried = ranks_first(&s->job.ranks) ? s->job.carried.bytes : 0 };
}

static bool open_model(Sft *s, Err *err) {
    RunShape shape = shape_of(s);
    return job_fits(&s->job, &shape, err) && job_open_weights(&s->job, &shape, err)
           && job_open_policy(&s->job, &shape.policy, err);
}

static bool open_data(Sft *s, Err *err) {
    const Config *c = &s->job.c;
    int32_t end = s->job.o.desc.d.special.n_eos ? (int32_t)s->job.o.desc.d.special.eos[0] : -1;
    PromptOptions po = { .model = c->from.tokenizer,
                         .chat_template = c->from.chat_template,
                         .variables = config_arguments(&c->data.template_args, &s->job.mem),
                         .vocab = s->job.o.desc.d.vocab,
                         .end = end,
                         .desc = &s->job.o.desc,
                         .processor = c->data.image_processor };
    if (!(s->job.prompter = prompter_open(&po, threads_count(s->job.o.dev.threads), err))) return false;
    TRY(open_pairs(s, &s->job.train, &s->pairs, &c->data.train_files, c->data.train_max_samples, err));
    if (c->data.val_files.n)
        TRY(open_pairs(s, &s->job.val, &s->val_pairs, &c->data.val_files, c->data.val_max_samples, err));
    TRY(image_stats_add(&s->image_stats, &s->job.o.desc, s->job.prompter, s->job.train, err)
        && image_stats_add(&s->image_stats, &s->job.o.desc, s->job.prompter, s->job.val, err));
    bool talks = c->sft.messages_key != NULL;
    if (talks && s->pairs.dropped) return none_learned(&s->pairs, s->job.train, err);
    if (s->pairs.n < c->sft.batch_size)
        return err_set(err, "sft.batch_size is %" PRId64 ", but there are only %" PRId64 " %s", c->sft.batch_size,
                       s->pairs.n, talks ? "conversations" : "pairs");
    if (s->pairs.n != dataset_n(s->job.train))
        return err_set(
            err, "%" PRId64 " pairs have no room for an answer within sft.max_length: raise it, or leave them out",
            s->pairs.dropped);
    job_open_stream(&s->job, s->pairs.n / c->sft.batch_size);
    s->seq = MEM_ARRAY(&s->job.mem, TrainSeq, (size_t)c->sft.batch_size);
    s->index = MEM_ARRAY(&s->job.mem, int64_t, (size_t)c->sft.batch_size);
    s->ones = MEM_ARRAY(&s->job.mem, float, (size_t)c->sft.max_length),
    s->zeros = MEM_ARRAY(&s->job.mem, float, (size_t)c->sft.max_length);
    for (int64_t i = 0; i < c->sft.max_length; i++) s->ones[i] = 1;
    int64_t block = c->data.val_files.n ? c->sft.batch_size : 0;
    s->lp = MEM_ARRAY(&s->job.mem, float *, (size_t)block);
    for (int64_t i = 0; i < block; i++) s->lp[i] = MEM_ARRAY(&s->job.mem, float, (size_t)c->sft.max_length);
    return true;
}

static bool open_all(Sft *s, Err *err) {
    Job *j = &s->job;
    TRY(job_open(j, err) && job_open_dir(j, err) && found_files(j, err) && found_rows(j, open_data(s, err), err));
    if (j->counted) return job_count(j, shape_of, s, err);
    TRY(job_agree(j, open_model(s, err), err) && open_same(&j->ranks, &j->o.model, config_random(&j->c), err));
    TRY(job_open_saves(j, err) && job_resume(j, NULL, NULL, err));
    job_begin(j);
    return true;
}

static int run(const Verb *v, int argc, char **argv) {
    Sft s = { 0 };
    Job *j = &s.job;
    Err err;
    StartArgs a = { 0 };
    int rc = start(v, &j->c, CONF_SFT, &a, argc, argv);
    if (rc >= 0) return rc;
    j->counted = (int)a.memory, j->listed = a.all_ranks, j->cluster = a.cluster;
    bool ok = job_ranks(j, &err) && open_all(&s, &err) && (j->counted || train(&s, &err));
    ok = job_end(j, ok, &err);
    if (ok && !j->counted) end_line(j->step, j->steps, j->c.trainer.run_dir);
    job_close(j);
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
