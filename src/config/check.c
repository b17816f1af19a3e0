/* check.c - what a configuration promises must hold together, and is said before anything loads.  Each line names
 * the option, where it was set, the numbers, and what to do. */
#include "op/device.h"
#include "base/file.h"
#include "config/use.h"
#include "gguf/inside.h"
#include "engine/engine.h"
#include "param/peft.h"
#include "task/reward.h"

#include <math.h>
#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef long long ll;

static bool bad(const Config *c, Err *err, const char *option, const char *fmt, ...) PRINTF_LIKE(4, 5);
static bool bad(const Config *c, Err *err, const char *option, const char *fmt, ...) {
    char msg[420];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    const char *where = config_where(c, option);
    if (!strcmp(where, "the default")) return err_set(err, "%s: %s", option, msg);
    return err_set(err, "%s: %s: %s", where, option, msg);
}

static bool given(const Config *c, const char *option) { return config_given(c, option); }

/* ---- files */
static bool known_ending(const char *file) {
    static const char *const endings[] = { ".parquet", ".jsonl",     ".json",    ".jsonl.gz",
                                           ".json.gz", ".jsonl.zst", ".json.zst" };
    size_t n = strlen(file);
    for (size_t i = 0; i < COUNT(endings); i++) {
        size_t k = strlen(endings[i]);
        if (n > k && !strcmp(file + n - k, endings[i])) return true;
    }
    return false;
}

/* A name that is there is no pattern, whatever stands in it: as paths_expand has it, which will open them. */
static bool data_files(const Config *c, const char *option, const StrList *files, Err *err) {
    for (int64_t i = 0; i < files->n; i++) {
        const char *f = files->at[i];
        glob_t g = { 0 };
        bool there = access(f, F_OK) == 0;
        int rc = there ? 0 : glob(f, 0, NULL, &g);
        const char *first = there || rc ? f : g.gl_pathv[0];
        bool dir = !rc && (there || g.gl_pathc == 1) && dir_exists(first);
        bool readable = !rc && !dir && access(first, R_OK) == 0;
        int why = errno;
        globfree(&g);
        if (rc == GLOB_NOMATCH)
            return bad(c, err, option, strpbrk(f, "*?[") ? "no file matches %s" : "%s does not exist", f);
        if (rc) return bad(c, err, option, "%s cannot be listed", f);
        if (dir) return bad(c, err, option, "%s is a folder; name the files in it, for instance %s/*.parquet", f, f);
        if (!readable) return bad(c, err, option, "%s cannot be read: %s", f, strerror(why));
        if (!known_ending(f)) return bad(c, err, option, "%s is neither .parquet nor .jsonl", f);
    }
    return true;
}

static bool model_files(const Config *c, Err *err) {
    const char *path = c->from.path;
    Mem tmp = { 0 };
    if (c->from.gone && c->verb == CONF_TRAIN && config_needs_ref(c))
        return bad(c, err, "model.path",
                   "%s is not there any more, and the reference model is its weights (%s): a checkpoint has those of "
                   "its step only; bring the folder back",
                   c->model.path, c->train.use_kl_loss ? "train.use_kl_loss" : "algo.kl_in_reward");
    if (!path) return bad(c, err, "model.path", "is not set; it names the folder of the model to train");
    if (!model_dir(path)) return bad(c, err, "model.path", "%s is not a folder, nor a GGUF file", path);
    char conf[4096];
    snprintf(conf, sizeof conf, "%s/config.json", path);
    if (!model_has(conf))
        return bad(c, err, "model.path",
                   errno == EACCES ? "%s cannot be read: no permission" : "%s holds no config.json", path);
    const char *folder = strrchr(path, '/');
    glob_t g;
    int none = glob(mem_printf(&tmp, "%s/*.safetensors", path), 0, NULL, &g);
    if (!none) globfree(&g);
    mem_free(&tmp);
    if (none && folder && !strcmp(folder, "/huggingface"))
        return bad(c, err, "model.path",
                   "%s holds no safetensors: make them in verl's environment with `python -m verl.model_merger merge "
                   "--backend "
                   "fsdp|megatron --local_dir .../actor --target_dir OUT`, and name OUT",
                   path);
    if (given(c, "model.tokenizer") && !file_exists(c->from.tokenizer) && !dir_exists(c->from.tokenizer))
        return bad(c, err, "model.tokenizer", "%s does not exist", c->model.tokenizer);
    if (c->model.chat_template && !file_exists(c->from.chat_template))
        return bad(c, err, "model.chat_template", "%s does not exist", c->model.chat_template);
    return true;
}

/* name=value */
static bool pairs(const Config *c, const char *option, const StrList *list, Err *err) {
    for (int64_t i = 0; i < list->n; i++)
        if (!strchr(list->at[i], '=') || list->at[i][0] == '=')
            return bad(c, err, option, "'%s' is not name=value", list->at[i]);
    return true;
}

static bool files(const Config *c, Err *err) {
    TRY(model_files(c, err));
    TRY(pairs(c, "data.template_args", &c->data.template_args, err));
    if (!c->data.train_files.n) return bad(c, err, "data.train_files", "is empty; it names the files to train on");
    TRY(data_files(c, "data.train_files", &c->data.train_files, err));
    TRY(data_files(c, "data.val_files", &c->data.val_files, err));
    if (file_exists(c->trainer.run_dir) && !dir_exists(c->trainer.run_dir))
        return bad(c, err, "trainer.run_dir", "%s is a file, not a folder", c->trainer.run_dir);
    return true;
}

/* There must be room for checkpoints.  resume = never starts anew, which must not overwrite
 * what an earlier run left. */
static bool checkpoints(const Config *c, Err *err) {
    char path[4200];
    snprintf(path, sizeof path, "%s/checkpoints", c->trainer.run_dir);
    struct stat st;
    if ((!lstat(path, &st) && !dir_exists(path))     /* a file, or a link that leads nowhere */
        || (dir_exists(path) && access(path, W_OK))) /* said now, not at the first save */
        return bad(c, err, "trainer.run_dir", "%s is no folder that can be written to: nothing could be saved", path);
    if (c->trainer.resume != RESUME_NEVER || !dir_exists(path)) return true;
    return bad(c, err, "trainer.run_dir", "%s holds checkpoints, and trainer.resume is never; choose another folder",
               c->trainer.run_dir);
}

/* ---- sizes */
static bool batches(const Config *c, Err *err) {
    ll batch = c->data.train_batch_size, mini = c->train.mini_batch_size;
    if (mini > batch)
        return bad(c, err, "train.mini_batch_size",
                   "%lld questions per update, but a step has only data.train_batch_size = %lld", mini, batch);
    if (batch % mini)
        return bad(c, err, "train.mini_batch_size",
                   "data.train_batch_size = %lld does not divide into mini-batches of %lld questions", batch, mini);
    if (c->data.train_max_samples != CONF_UNSET && c->data.train_max_samples < batch)
        return bad(c, err, "data.train_max_samples",
                   "%lld questions do not fill one step of data.train_batch_size = %lld", (ll)c->data.train_max_samples,
                   batch);
    if (batch > MOST_ANSWERS / c->rollout.n)
        return bad(c, err, "rollout.n", "%lld answers to each of %lld questions; a step has at most %d answers",
                   (ll)c->rollout.n, batch, MOST_ANSWERS);
    double places = (double)batch * (c->algo.filter_groups.enable ? 2 : 1) * (double)c->rollout.n;
    if (loss_picks((LossKind)c->train.loss) && places * (double)c->rollout.max_tokens > 0x1p32)
        return bad(c, err, "train.loss",
                   "%s ranks the tokens of an update by their places in the step's columns, "
                   "at most 2^32; %.0f answers of %lld tokens are more",
                   name_of(loss_names, c->train.loss), places, (ll)c->rollout.max_tokens);
    ll longest = c->data.max_prompt_length + c->rollout.max_tokens;
    if (c->rollout.max_tokens > c->data.max_response_length)
        return bad(c, err, "rollout.max_tokens", "%lld is more than data.max_response_length = %lld",
                   (ll)c->rollout.max_tokens, (ll)c->data.max_response_length);
    if (c->train.micro_tokens < longest)
        return bad(c, err, "train.micro_tokens",
                   "a micro-batch of %lld tokens cannot hold one sequence of %lld (prompt %lld + answer %lld)",
                   (ll)c->train.micro_tokens, longest, (ll)c->data.max_prompt_length, (ll)c->rollout.max_tokens);
    if (c->rollout.kv_tokens != CONF_UNSET && c->rollout.kv_bytes != CONF_UNSET)
        return bad(c, err, "rollout.kv_bytes", "set this or rollout.kv_tokens, not both");
    if (c->rollout.kv_tokens != CONF_UNSET && c->rollout.kv_tokens < longest + c->rollout.page)
        return bad(c, err, "rollout.kv_tokens",
                   "a cache of %lld tokens cannot hold one sequence of %lld and a page of %lld",
                   (ll)c->rollout.kv_tokens, longest, (ll)c->rollout.page);
    if (c->rollout.token_budget < c->rollout.max_batch)
        return bad(c, err, "rollout.token_budget",
                   "%lld tokens per forward are fewer than rollout.max_batch = %lld sequences, each of which "
                   "decodes one",
                   (ll)c->rollout.token_budget, (ll)c->rollout.max_batch);
    if (c->rollout.page & (c->rollout.page - 1))
        return bad(c, err, "rollout.page", "%lld is not a power of two", (ll)c->rollout.page);
    return true;
}

/* ---- sampling */
static bool sampling(const Config *c, Err *err) {
    if (c->rollout.min_p >= 1)
        return bad(c, err, "rollout.min_p", "1 keeps only the likeliest token: nothing is explored");
    if (c->rollout.top_k == 1)
        return bad(c, err, "rollout.top_k", "1 is greedy: all answers to a question would be the same");
    if (c->rollout.val.temperature > 0 && c->rollout.val.temperature < TEMPERATURE_LEAST)
        return bad(c, err, "rollout.val.temperature", "%g: it must be 0 (greedy) or lie between %g and %g",
                   c->rollout.val.temperature, TEMPERATURE_LEAST, TEMPERATURE_MOST);
    if (c->rollout.val.n > 1 && c->rollout.val.temperature == 0)
        return bad(c, err, "rollout.val.n",
                   "%lld greedy answers to a question are all the same; set rollout.val.temperature above 0",
                   (ll)c->rollout.val.n);
    if (c->rollout.val.n > 1 && c->rollout.val.top_k == 1)
        return bad(c, err, "rollout.val.top_k", "1 is greedy: the %lld answers to a question are all the same",
                   (ll)c->rollout.val.n);
    return true;
}

/* What an answer of several turns does not go with yet. */
static bool tools(const Config *c, Err *err) {
    if (!c->rollout.tools.n) return true;
    if (c->rollout.stop.n)
        return bad(c, err, "rollout.stop", "a turn with rollout.tools ends with its end token alone");
    if (c->rollout.step_tokens)
        return bad(c, err, "rollout.step_tokens", "answers of several turns (rollout.tools) cannot be cut to a sum");
    if (c->rollout.ignore_eos) return bad(c, err, "rollout.ignore_eos", "a turn with rollout.tools would never end");
    if (config_keeps_sets(c))
        return bad(c, err, "rollout.tools",
                   "sampling that is cut (top_k, top_p, min_p) with several updates a step or a KL does not go with "
                   "tools yet");
    if (c->algo.advantage == ADV_REMAX)
        return bad(c, err, "algo.advantage", "remax, whose baseline is one greedy answer, does not go with tools yet");
    return true;
}

/* ---- methods */
/* Computed in algo/, and not fed by a run. */
static const struct {
    AdvKind kind;
    const char *why;
} adv_refused[] = {
    { ADV_GAE, "gae needs a critic, which this build does not train; use grpo, rloo or reinforce_plus_plus" },
    { ADV_GDPO, "gdpo compares the parts of a score, and a scorer gives one number here; use grpo" },
    { ADV_OTB, "optimal_token_baseline needs the sum of squared probabilities at every token, which sampling does not "
               "keep; use grpo or rloo" },
    { ADV_TIR_OTB, "tir_optimal_token_baseline needs the sum of squared probabilities at every token, which sampling "
                   "does not keep; use grpo or rloo" },
};

static bool advantages(const Config *c, Err *err) {
    AdvKind a = (AdvKind)c->algo.advantage;
    const char *name = name_of(adv_names, (int)a);
    bool grouped = a != ADV_RPP && a != ADV_REMAX && a != ADV_GAE;
    for (size_t i = 0; i < COUNT(adv_refused); i++)
        if (a == adv_refused[i].kind) return bad(c, err, "algo.advantage", "%s", adv_refused[i].why);
    if (grouped && c->rollout.n < 2)
        return bad(c, err, "rollout.n", "%s compares the answers to one question with each other and needs at least 2",
                   name);
    if (given(c, "algo.norm_by_std") && !c->algo.norm_by_std && a != ADV_GRPO && a != ADV_PASSK)
        return bad(c, err, "algo.norm_by_std", "has no effect with algo.advantage = %s", name);
    if (given(c, "algo.gamma") && c->algo.gamma != 1 && a != ADV_RPP)
        return bad(c, err, "algo.gamma", "has no effect with algo.advantage = %s", name);
    if (c->algo.filter_groups.enable && c->rollout.n < 2)
        return bad(c, err, "algo.filter_groups.enable",
                   "a group of rollout.n = 1 answers is always kept; set rollout.n to 2 or more");
    if (c->algo.overlong.enable && c->algo.overlong.buffer == 0)
        return bad(c, err, "algo.overlong.buffer", "is 0, so algo.overlong.enable would do nothing");
    if (c->algo.overlong.enable && c->algo.overlong.buffer > c->rollout.max_tokens)
        return bad(c, err, "algo.overlong.buffer", "%lld tokens are more than the longest answer, %lld",
                   (ll)c->algo.overlong.buffer, (ll)c->rollout.max_tokens);
    if (!c->algo.overlong.enable && given(c, "algo.overlong.buffer") && c->algo.overlong.buffer)
        return bad(c, err, "algo.overlong.buffer", "is set, but algo.overlong.enable is false");
    return true;
}

static bool kl(const Config *c, Err *err) {
    if (c->algo.kl_estimator & KL_STRAIGHT)
        return bad(c, err, "algo.kl_estimator", "%s differs from %s only in its gradient, and a reward has none",
                   name_of(kl_names, c->algo.kl_estimator), name_of(kl_names, c->algo.kl_estimator & ~KL_STRAIGHT));
    if (c->algo.kl_control == 1 && !c->algo.kl_in_reward)
        return bad(c, err, "algo.kl_control", "adaptive has no effect without algo.kl_in_reward = true");
    if (c->algo.kl_control == 1 && c->algo.kl_coef == 0)
        return bad(c, err, "algo.kl_coef", "an adaptive coefficient cannot start at 0: it is only ever multiplied");
    if (c->algo.kl_in_reward && c->algo.kl_control == 0 && c->algo.kl_coef == 0)
        return bad(c, err, "algo.kl_coef",
                   "is 0, so algo.kl_in_reward would only cost a reference pass; set it, or kl_in_reward to false");
    if (c->train.use_kl_loss && c->train.kl_loss_coef == 0)
        return bad(c, err, "train.kl_loss_coef",
                   "is 0, so train.use_kl_loss would only cost a reference pass; set it, or use_kl_loss to false");
    return true;
}

static bool losses(const Config *c, Err *err) {
    LossKind k = (LossKind)c->train.loss;
    const char *name = name_of(loss_names, (int)k);
    bool more = c->train.use_kl_loss || c->train.entropy_coef != 0; /* these are averaged by it with every loss */
    if (loss_is_sequence_mean(k) && !more && given(c, "train.loss_agg") && c->train.loss_agg != AGG_SEQ_MEAN_TOKEN_MEAN)
        return bad(c, err, "train.loss_agg",
                   "%s averages in its own way (as seq-mean-token-mean); %s would have no effect", name,
                   name_of(agg_names, c->train.loss_agg));
    bool length = given(c, "train.loss_norm_length") && c->train.loss_norm_length != c->data.max_response_length;
    if (length && c->train.loss_agg != AGG_SEQ_MEAN_TOKEN_SUM_NORM)
        return bad(c, err, "train.loss_norm_length", "has no effect unless train.loss_agg is seq-mean-token-sum-norm");
    if (k == LOSS_VANILLA && c->train.clip_c < 1 + c->train.clip_high)
        return bad(c, err, "train.clip_c",
                   "%g lies inside the clip range, which reaches up to %g; dual clip wants more", c->train.clip_c,
                   1 + c->train.clip_high);
    if (k == LOSS_DRO && isnan(c->train.dro_beta))
        return bad(c, err, "train.dro_beta", "is not set: dro needs a positive one, 0.5 say");
    if (k == LOSS_CLIP_COV && c->train.clip_cov_lb >= c->train.clip_cov_ub)
        return bad(c, err, "train.clip_cov_lb", "%g is not below train.clip_cov_ub, %g: no token lies between",
                   c->train.clip_cov_lb, c->train.clip_cov_ub);
    if ((k == LOSS_VANILLA || k == LOSS_GSPO || k == LOSS_CISPO || k == LOSS_CLIP_COV) && c->train.clip_low == 0
        && c->train.clip_high == 0)
        return bad(c, err, "train.clip_ratio", "0 leaves the ratio no room: with %s nothing would be learned", name);
    if (c->train.lr == 0) return bad(c, err, "train.lr", "is 0: nothing would be learned");
    if (c->algo.tis != TIS_OFF && c->algo.tis_cap < 1)
        return bad(c, err, "algo.tis_cap", "%g is below 1, the weight of fresh data", c->algo.tis_cap);
    return true;
}

static bool schedule(const Config *c, Err *err) {
    if (c->train.warmup_steps != CONF_UNSET && c->train.warmup_ratio > 0)
        return bad(c, err, "train.warmup_ratio", "set this or train.warmup_steps, not both");
    ll steps = c->trainer.steps;
    if (given(c, "train.decay_steps") && c->train.schedule != LR_WSD)
        return bad(c, err, "train.decay_steps", "is for train.schedule = wsd, not %s",
                   name_of(lr_names, c->train.schedule));
    if (given(c, "train.min_lr_ratio") && c->train.min_lr_ratio > 0 && c->train.schedule == LR_CONSTANT)
        return bad(c, err, "train.min_lr_ratio", "has no effect with train.schedule = constant");
    if (c->trainer.steps == CONF_UNSET) return true;
    if (c->train.warmup_steps != CONF_UNSET && c->train.warmup_steps > steps)
        return bad(c, err, "train.warmup_steps", "%lld steps of warm-up in a run of trainer.steps = %lld",
                   (ll)c->train.warmup_steps, steps);
    LrConf lr = config_lr(c, steps);
    if (c->train.schedule == LR_WSD && lr.warmup + lr.decay > steps)
        return bad(c, err, "train.decay_steps",
                   "%lld steps of warm-up and %lld of decay do not fit into trainer.steps = %lld", (ll)lr.warmup,
                   (ll)lr.decay, steps);
    return true;
}

static bool validation(const Config *c, Err *err) {
    if (c->data.val_files.n) return true;
    if (c->trainer.val_every)
        return bad(c, err, "trainer.val_every", "there is nothing to validate on: data.val_files is empty");
    if (given(c, "trainer.val_before_train") && c->trainer.val_before_train)
        return bad(c, err, "trainer.val_before_train", "there is nothing to validate on: data.val_files is empty");
    return true;
}

static bool rewards(const Config *c, Err *err) {
    int n = (c->reward.scorer != NULL) + (c->reward.command != NULL) + (c->reward.library != NULL)
            + (c->reward.python != NULL);
    if (n > 1)
        return bad(c, err,
                   c->reward.python    ? "reward.python"
                   : c->reward.library ? "reward.library"
                                       : "reward.command",
                   "set one of reward.scorer, reward.command, reward.library and reward.python");
    const Reward *r;
    Err e;
    if (c->reward.scorer && !reward_need(&r, c->reward.scorer, &e)) return bad(c, err, "reward.scorer", "%s", e.msg);
    if (c->reward.python && !file_exists(c->from.scorer))
        return bad(c, err, "reward.python", "%s does not exist", c->reward.python);
    TRY(pairs(c, "reward.python_args", &c->reward.python_args, err));
    if (c->reward.library && !file_exists(c->reward.library))
        return bad(c, err, "reward.library", "%s does not exist", c->reward.library);
    return true;
}

/* The planner writes recipes for many ranks; what of them cannot be had is said here, or by
 * the grid itself (config_check_model). */
static bool adapters(const Config *c, Err *err) {
    Mem mem = { 0 };
    AdapterSpec unused;
    if (!config_adapts(c)) return true;
    if (c->model.adapter && c->train.lora.rank)
        return err_set(err, "model.adapter is trained as it is: leave train.lora.rank (%" PRId64 ") out",
                       c->train.lora.rank);
    if (c->model.adapter && !peft_is(c->model.adapter))
        return err_set(err, "model.adapter: %s has no adapter_config.json", c->model.adapter);
    if (c->train.park_weights)
        return err_set(err, "train.park_weights: weights that an adapter is added to are read in every phase");
    bool ok = config_lora(&unused, c, &mem, err);
    mem_free(&mem);
    return ok;
}

static bool grids(const Config *c, Err *err) {
    if (c->grid.split && (c->grid.first_layers != CONF_UNSET || c->grid.last_layers != CONF_UNSET))
        return bad(c, err, "grid.split", "set this or grid.first_layers and grid.last_layers, not both");
    if (!device_check(c->trainer.device, c->trainer.compute, err)) return err_wrap(err, "trainer");
    if (c->trainer.leaves != CONF_UNSET && !leaves_fit(c->trainer.leaves))
        return bad(c, err, "trainer.leaves", "%lld is not a power of two", (ll)c->trainer.leaves);
    return true;
}

static bool sft(const Config *c, Err *err) {
    if (c->train.micro_tokens < c->sft.max_length)
        return bad(c, err, "train.micro_tokens",
                   "a micro-batch of %lld tokens cannot hold one pair of sft.max_length = %lld",
                   (ll)c->train.micro_tokens, (ll)c->sft.max_length);
    if (c->data.train_max_samples != CONF_UNSET && c->data.train_max_samples < c->sft.batch_size)
        return bad(c, err, "data.train_max_samples", "%lld pairs do not fill one batch of sft.batch_size = %lld",
                   (ll)c->data.train_max_samples, (ll)c->sft.batch_size);
    if (c->sft.messages_key && (given(c, "sft.prompt_key") || given(c, "sft.response_key")))
        return bad(c, err, "sft.messages_key", "whole conversations and prompt/response pairs exclude each other");
    if (c->train.lr == 0) return bad(c, err, "train.lr", "is 0: nothing would be learned");
    return true;
}

typedef bool Check(const Config *, Err *);
static Check *const train_settings[] = { batches, sampling, tools, advantages, kl, losses, schedule, validation, NULL },
                    *const sft_settings[] = { sft, schedule, validation, NULL },
                    *const train_rest[] = { rewards, grids, adapters, files, checkpoints, NULL },
                    *const sft_rest[] = { grids, adapters, files, checkpoints, NULL };

static bool all_of(Check *const *checks, const Config *c, Err *err) {
    for (; *checks; checks++) TRY((*checks)(c, err));
    return true;
}

bool config_check_settings(const Config *c, Err *err) {
    return all_of(c->verb == CONF_SFT ? sft_settings : train_settings, c, err);
}

bool config_check(const Config *c, Err *err) {
    return config_check_settings(c, err) && all_of(c->verb == CONF_SFT ? sft_rest : train_rest, c, err);
}

int config_check_list(const Config *c, Buf *list) {
    Check *const *both[] = { c->verb == CONF_SFT ? sft_settings : train_settings,
                             c->verb == CONF_SFT ? sft_rest : train_rest };
    int n = 0;
    for (size_t i = 0; i < COUNT(both); i++)
        for (Check *const *check = both[i]; *check; check++) {
            Err err;
            if ((*check)(c, &err)) continue;
            buf_printf(list, "  %s\n", err.msg);
            n++;
        }
    return n;
}

bool config_check_device(const Config *c, const Dev *d, Err *err) {
    OptimTypes t = config_states(c, d);
    if (t.weights == DT_F32 && t.master != DT_F32)
        return bad(c, err, "train.master",
                   "remainder: it is what rounding takes from bf16 weights; these are f32 (train.weights)");
    if (t.weights == DT_F32 && d->act == DT_BF16)
        return bad(c, err, "train.weights",
                   "f32: a device that computes in bf16 has bf16 weights (or set trainer.compute=f32)");
    return true;
}

/* What the ranks' grid would be; verl's count of processes must be theirs. */
static bool grid_of_ranks(const Config *c, const ModelDesc *m, int ranks, Err *err) {
    ll said = c->grid.nodes * c->grid.gpus_per_node;
    if (said != 1 && said != ranks)
        return bad(
            c, err, c->grid.gpus_per_node != 1 ? "grid.gpus_per_node" : "grid.nodes",
            "%lld machines x %lld processes are wanted, and there %s %d: start them (mpirun -n %lld), or set both to 1",
            (ll)c->grid.nodes, (ll)c->grid.gpus_per_node, ranks == 1 ? "is" : "are", ranks, said);
    Mem mem = { 0 };
    GridShape g = config_axes(c);
    int leaves = c->trainer.leaves == CONF_UNSET ? LEAVES_MOST : (int)c->trainer.leaves;
    bool ok = grid_fill(&g, m, ranks, config_split(c, &mem), leaves, err);
    mem_free(&mem);
    return ok;
}

static bool rollout_grid(const Config *c, const ModelDesc *m, int ranks, Err *err) {
    const char *option;
    GridShape g;
    Err why;
    if (c->verb == CONF_SFT
        || config_rollout_grid(&g, c, m, ranks, c->trainer.leaves == CONF_UNSET ? LEAVES_MOST : (int)c->trainer.leaves,
                               &option, &why))
        return true;
    return bad(c, err, option, "%s", why.msg);
}

/* Lengths fit the context and what a model computes at once. */
static bool lengths(const Config *c, const ModelDesc *m, Err *err) {
    ll context = m->d.context, most = model_desc_most_tokens(m);
    if (c->train.micro_tokens > most)
        return bad(c, err, "train.micro_tokens", "%lld tokens are more than this model computes at once, %lld",
                   (ll)c->train.micro_tokens, most);
    if (c->verb == CONF_SFT) {
        if (context > 0 && c->sft.max_length > context)
            return bad(c, err, "sft.max_length", "%lld tokens are more than the model's context, %lld",
                       (ll)c->sft.max_length, context);
        return true;
    }
    if (c->rollout.token_budget > most)
        return bad(c, err, "rollout.token_budget", "%lld tokens are more than this model computes at once, %lld",
                   (ll)c->rollout.token_budget, most);
    ll longest = c->data.max_prompt_length + c->rollout.max_tokens;
    if (context > 0 && longest > context)
        return bad(c, err, "data.max_response_length",
                   "%lld + data.max_prompt_length %lld = %lld tokens are more than the model's context, %lld",
                   (ll)c->rollout.max_tokens, (ll)c->data.max_prompt_length, longest, context);
    ll page = c->rollout.page, pages = (longest + page - 1) / page + 1,
       bytes = (ll)cache_page_bytes(m, NULL, (int)page, dev_kind_cpu());
    if (c->rollout.kv_bytes != CONF_UNSET && c->rollout.kv_bytes < pages * bytes)
        return bad(c, err, "rollout.kv_bytes",
                   "%lld bytes cannot hold one sequence of %lld tokens and a page: %lld are wanted",
                   (ll)c->rollout.kv_bytes, longest, pages * bytes);
    if (c->rollout.top_k > m->d.vocab)
        return bad(c, err, "rollout.top_k", "%lld is more than the vocabulary, %lld", (ll)c->rollout.top_k,
                   (ll)m->d.vocab);
    return true;
}

bool config_check_model(const Config *c, const ModelDesc *m, int ranks, Err *err) {
    if (!m->arch->runs)
        return bad(c, err, "model.path", "%s is a %s model, which this build can count but not run", c->model.path,
                   m->arch->name);
    return grid_of_ranks(c, m, ranks, err) && rollout_grid(c, m, ranks, err) && lengths(c, m, err);
}

int config_check_model_list(const Config *c, const ModelDesc *m, int ranks, Buf *list) {
    Err grid, rollout, length;
    bool fits = grid_of_ranks(c, m, ranks, &grid), rolls = rollout_grid(c, m, ranks, &rollout),
         holds = lengths(c, m, &length);
    if (!fits) buf_printf(list, "  %s\n", grid.msg);
    if (!rolls) buf_printf(list, "  %s\n", rollout.msg);
    if (!holds) buf_printf(list, "  %s\n", length.msg);
    return !fits + !rolls + !holds;
}
