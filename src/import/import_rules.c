/* import_rules.c - what is taken over with a change, and why; then what follows from several settings together:
 * verl's defaults where they differ, the grid, settings that contradict each other here. */
#include "import/import_verl.h"

#include "base/file.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ACTOR   "actor_rollout_ref.actor."
#define ROLLOUT "actor_rollout_ref.rollout."
#define MCORE   ACTOR "megatron."
#define ETP     "expert_tensor_parallel_size"
#define OTC     MCORE "override_transformer_config."
#define SFT_OTC "engine.override_transformer_config."
#define FIRST   "account_for_embedding_in_pipeline_split"
#define LAST    "account_for_loss_in_pipeline_split"
#define ULYSSES                                                                                                        \
    ACTOR "ulysses_sequence_parallel_size " ACTOR                                                                      \
          "fsdp_config.ulysses_sequence_parallel_size engine.ulysses_sequence_parallel_size "                          \
          "ulysses_sequence_parallel_size"
#define VEOMNI   ACTOR "veomni.ulysses_parallel_size engine.ulysses_parallel_size"
#define CP       MCORE "context_parallel_size"
#define OVERRIDE "optim.override_optimizer_config."
#define EXP_AVG                                                                                                        \
    ACTOR "optim.exp_avg_dtype " ACTOR OVERRIDE "exp_avg_dtype optim.exp_avg_dtype " OVERRIDE "exp_avg_dtype"
#define EXP_AVG_SQ                                                                                                     \
    ACTOR "optim.exp_avg_sq_dtype " ACTOR OVERRIDE "exp_avg_sq_dtype optim.exp_avg_sq_dtype " OVERRIDE                 \
          "exp_avg_sq_dtype"
#define MANAGER   "reward_model.reward_manager reward.reward_manager.name reward_manager.name"
#define REWARD_FN "custom_reward_function.path reward.custom_reward_function.path"
#define OVERLONG                                                                                                       \
    "reward_model.reward_kwargs.overlong_buffer_cfg.enable reward.reward_kwargs.overlong_buffer_cfg.enable "           \
    "reward_model.overlong_buffer.enable"

static bool not_needed(ImportRow *row, const char *name, const char *why) {
    row->fate = FATE_NOT_NEEDED, row->name = name, row->why = why;
    return true;
}

static bool not_supported(ImportRow *row, const char *why) {
    row->fate = FATE_NOT_SUPPORTED, row->why = why;
    return true;
}

static bool is(const ImportRow *row, const char *value) {
    return !row->set->value.is_list && !strcasecmp(row->set->value.one.text, value);
}

static int64_t whole(const Import *im, const char *key, double standard) {
    return (int64_t)import_number(im, key, standard);
}
static const char *text_of(Import *im, int64_t x) { return mem_printf(im->mem, "%" PRId64, x); }

static int64_t longest(const Import *im) {
    if (im->sft) return whole(im, "data.max_length", 1024);
    return whole(im, "data.max_prompt_length", 512) + whole(im, "data.max_response_length", 512);
}

static int64_t context_parallel(const Import *im) {
    static const char any[] = VEOMNI " " ACTOR "torchtitan.context_parallel_size engine.context_parallel_size "
                                     "engine.cp_size engine.cp";
    if (im->megatron) return whole(im, CP " engine.context_parallel_size", 1);
    return whole(im, import_find(im, ULYSSES) ? ULYSSES : any, 1);
}

/* ---- batches */
static bool dynamic(const Import *im) {
    return import_yes(im, im->sft ? "data.use_dynamic_bsz" : ACTOR "use_dynamic_bsz", im->sft);
}

static bool token_budget(Import *im, ImportRow *row) {
    if (!dynamic(im)) return not_needed(row, "train.micro_tokens", "use_dynamic_bsz is off");
    int64_t given = whole(im, row->set->key, 16384), cp = context_parallel(im), tokens = given * cp;
    if (tokens < longest(im))
        import_put(im, row, "train.micro_tokens", text_of(im, longest(im)), "raised to hold the longest sequence");
    else
        import_put(im, row, "train.micro_tokens", text_of(im, tokens),
                   cp > 1 ? "times the context parallel ranks, which verl counts in" : NULL);
    return true;
}

static bool micro_batch(Import *im, ImportRow *row) {
    if (dynamic(im) || is(row, "null")) return not_needed(row, "train.micro_tokens", "use_dynamic_bsz is on");
    import_put(im, row, "train.micro_tokens", text_of(im, whole(im, row->set->key, 1) * longest(im)),
               "sequences of the longest length: here they are packed by tokens");
    return true;
}

static bool max_samples(Import *im, ImportRow *row) {
    (void)im;
    return is(row, "-1") && not_needed(row, row->set->key, "-1: all, as here");
}

static bool keep_all(Import *im, ImportRow *row) {
    if (!is(row, "null")) return false;
    import_put(im, row, "trainer.keep", "1000000", "null: all are kept");
    return true;
}

/* ---- optimizer */
static bool min_lr(Import *im, ImportRow *row) {
    double lr = import_number(im, ACTOR "optim.lr optim.lr", 1e-6), least = import_number(im, row->set->key, 0);
    const char *style = import_text(im, ACTOR "optim.lr_decay_style optim.lr_decay_style", "constant");
    if (least == 0 || !strcmp(style, "constant"))
        return not_needed(row, "train.min_lr_ratio", "the rate is constant, or ends at 0");
    import_put(im, row, "train.min_lr_ratio", mem_printf(im->mem, "%.9g", least / lr), "as a share of the rate");
    return true;
}

static bool schedule(Import *im, ImportRow *row) {
    if (is(row, "null")) return not_needed(row, "train.schedule", "null: constant");
    import_put(im, row, "train.schedule", NULL, NULL);
    return true;
}

static bool decay_steps(Import *im, ImportRow *row) {
    const char *style = import_text(im, ACTOR "optim.lr_decay_style optim.lr_decay_style", "constant");
    if (is(row, "null") || !strcmp(style, "constant")) return not_needed(row, NULL, "the rate is constant");
    return not_supported(row, "the rate decays over all steps: set trainer.steps");
}

static bool warmup_ratio(Import *im, ImportRow *row) {
    if (import_number(im, ACTOR "optim.lr_warmup_steps optim.lr_warmup_steps", -1) <= 0) return false;
    return not_needed(row, "train.warmup_ratio", "lr_warmup_steps says it");
}

static bool cpu_offload(Import *im, ImportRow *row) {
    (void)im;
    return not_needed(row, "train.offload_fraction", "see optimizer_offload_fraction");
}

static bool offload_fraction(Import *im, ImportRow *row) {
    if (import_yes(im, ACTOR OVERRIDE "optimizer_cpu_offload " OVERRIDE "optimizer_cpu_offload", false))
        return import_put(im, row, "train.offload_fraction", NULL, NULL), true;
    return not_needed(row, "train.offload_fraction", "optimizer_cpu_offload is off");
}

/* Two keys for what is one pair here; what Megatron overrides it with wins. */
static bool beta(Import *im, ImportRow *row) {
    const double *b = im->c.train.betas;
    double b1 = import_number(im, ACTOR OVERRIDE "adam_beta1 " OVERRIDE "adam_beta1", b[0]);
    double b2 = import_number(im, ACTOR OVERRIDE "adam_beta2 " OVERRIDE "adam_beta2", b[1]);
    ConfScalar *pair = MEM_ARRAY(im->mem, ConfScalar, 2);
    for (int i = 0; i < 2; i++) {
        pair[i].text = mem_printf(im->mem, "%.9g", i ? b2 : b1);
        pair[i].n = strlen(pair[i].text);
    }
    import_put_value(im, row, "train.betas", &(ConfValue){ .items = pair, .n = 2, .is_list = true }, "one of the two");
    return true;
}

/* "torch.bfloat16", "bf16" */
static bool is_type(const char *text, const char *type) { return strstr(text, type) != NULL; }

static bool moments(Import *im, ImportRow *row) {
    const char *one = import_text(im, EXP_AVG, "fp32"), *two = import_text(im, EXP_AVG_SQ, "fp32");
    bool b1 = is_type(one, "bf16") || is_type(one, "bfloat16"), b2 = is_type(two, "bf16") || is_type(two, "bfloat16");
    if (is(row, "null") || (is_type(one, "32") && is_type(two, "32")))
        return not_needed(row, "train.moments", "float32, as here");
    if (!b1 || !b2) return not_supported(row, "train.moments keeps both averages alike, in float32 or bfloat16");
    import_put(im, row, "train.moments", "bf16", "rounded by chance here");
    return true;
}

static bool warmup_start(Import *im, ImportRow *row) {
    static const char steps[] = ACTOR "optim.lr_warmup_steps optim.lr_warmup_steps",
                      ratio[] = ACTOR "optim.lr_warmup_steps_ratio optim.lr_warmup_steps_ratio";
    if (import_number(im, steps, -1) > 0 || import_number(im, ratio, 0) > 0) return false;
    return not_needed(row, NULL, "there is no warm-up");
}

static bool clip_ratio(Import *im, ImportRow *row) {
    (void)im;
    return not_needed(row, "train.clip_ratio",
                      "verl clips by clip_ratio_low and clip_ratio_high, which are 0.2 unless set");
}

static bool checkpointing(Import *im, ImportRow *row) {
    if (im->megatron)
        return not_needed(row, "train.recompute", "Megatron recomputes as override_transformer_config says");
    import_put(im, row, "train.recompute", import_yes(im, row->set->key, true) ? "full" : "none",
               "layers are computed again in the backward pass, or not");
    return true;
}

static bool granularity(Import *im, ImportRow *row) {
    (void)im;
    return is(row, "null") && not_needed(row, "train.recompute", "null: nothing is recomputed, as here");
}

/* ---- grid */
static bool ulysses(Import *im, ImportRow *row) {
    if (im->megatron) return not_needed(row, "grid.cp", "Megatron's context_parallel_size says it");
    import_put(im, row, "grid.cp", NULL, "sequence parallel ranks are context parallel ranks here");
    return true;
}

static bool etp_null(Import *im, ImportRow *row) {
    return (void)im, is(row, "null") && not_needed(row, "grid.etp", "null: see grid.etp");
}

/* Megatron puts the embedding and the loss into the first and the last stage as if they were layers. */
static bool ends_count(Import *im, ImportRow *row) {
    int64_t pp = whole(im, MCORE "pipeline_model_parallel_size engine.pipeline_model_parallel_size", 1);
    bool first = import_yes(im, OTC FIRST " " SFT_OTC FIRST, false),
         last = import_yes(im, OTC LAST " " SFT_OTC LAST, false);
    if (!import_yes(im, row->set->key, false) || pp == 1) return not_needed(row, "grid.split", "off, or one stage");
    if (!im->layers) return not_supported(row, "how many layers the model has is not known: give --model CONFIG.json");
    int64_t slots = im->layers + first + last, each = slots / pp;
    if (slots % pp || each < 2)
        return not_supported(row, mem_printf(im->mem,
                                             "%" PRId64 " layers and the ends do not divide into %" PRId64 " stages",
                                             im->layers, pp));
    Buf b = { 0 };
    int64_t middle = pp - first - last;
    if (first) buf_printf(&b, "%" PRId64 ",", each - 1);
    if (middle) buf_printf(&b, middle > 1 ? "%" PRId64 "x%" PRId64 : "%" PRId64, each, middle);
    if (last) buf_printf(&b, "%s%" PRId64, b.n && b.data[b.n - 1] != ',' ? "," : "", each - 1);
    import_put(im, row, "grid.split", mem_printf(im->mem, "%s", b.data),
               "the embedding and the loss count as a layer each");
    buf_free(&b);
    return true;
}

/* What other engines' words for recomputing say; "selective" is as close as their lists are. */
static bool activations(Import *im, ImportRow *row) {
    bool all = is(row, "true") || is(row, "full"), some = is(row, "selective");
    import_put(im, row, "train.recompute",
               all    ? "full"
               : some ? "selective"
                      : "none",
               "layers are computed again in the backward pass, or not");
    return true;
}

/* ---- models */
static bool model(Import *im, ImportRow *row) {
    import_put(im, row, "model.path", NULL, NULL);
    if (im->no_model) not_supported(row, im->no_model);
    return true;
}

/* ---- methods */
static bool advantages(Import *im, ImportRow *row) {
    const char *why;
    if (!is(row, "gae") || conf_verl("critic.enable", "True", &why) != CONF_REFUSED) return false;
    return not_supported(row,
                         mem_printf(im->mem, "%s, which gae needs; grpo, rloo and reinforce_plus_plus need none", why));
}

/* "0.5_4.0" is a band: a token whose weight lies outside counts nothing.  The weights are 1 here, and 1 alone is asked
 * for. */
static bool tis_cap(Import *im, ImportRow *row) {
    char *end;
    const char *text = row->set->value.is_list ? "" : row->set->value.one.text, *split = strchr(text, '_');
    if (split) {
        double low = strtod(text, &end), high;
        bool number = end == split && end != text;
        high = strtod(split + 1, &end);
        if (!number || *end || end == split + 1) return false;
        if (low > 1 || high < 1) return not_supported(row, "every weight is 1 here, and the band leaves 1 out");
        import_put(im, row, "algo.tis_cap", split + 1, "the band's upper end; every weight is 1 here, inside it");
        return true;
    }
    if (!im->stale || is(row, "null")) return false;
    import_put(im, row, "algo.tis_cap", NULL, "answers are fresh here: every weight is 1");
    return true;
}

static bool tis(Import *im, ImportRow *row) {
    if (!im->stale || is(row, "null")) return false;
    import_put(im, row, "algo.tis", NULL, "answers are fresh here: every weight is 1");
    return true;
}

static bool corrections(Import *im, ImportRow *row) {
    if (!im->stale || strstr(row->set->key, "loss_type")) return false;
    return not_needed(row, NULL, "answers are fresh here: there is nothing to correct");
}

static bool kl_loss(Import *im, ImportRow *row) {
    if (!import_yes(im, row->set->key, false) || import_number(im, ACTOR "kl_loss_coef", 0.001) != 0) return false;
    import_put(im, row, "train.use_kl_loss", "false", "its coefficient is 0");
    return true;
}

static bool kl_reward(Import *im, ImportRow *row) {
    if (!import_yes(im, row->set->key, false) || import_number(im, "algorithm.kl_ctrl.kl_coef", 0.001) != 0)
        return false;
    import_put(im, row, "algo.kl_in_reward", "false", "its coefficient is 0");
    return true;
}

static bool only_rpp(Import *im, ImportRow *row) {
    const char *adv = import_text(im, "algorithm.adv_estimator", "gae");
    if (!strcmp(adv, "reinforce_plus_plus") || import_number(im, row->set->key, 1) == 1) return false;
    return not_needed(row, "algo.gamma", "the advantage in use has no discount");
}

static bool only_grpo(Import *im, ImportRow *row) {
    const char *adv = import_text(im, "algorithm.adv_estimator", "gae");
    if (!strcmp(adv, "grpo") || !strcmp(adv, "grpo_passk")) return false;
    return not_needed(row, "algo.norm_by_std", "the advantage in use does not divide by it");
}

static bool aggregation(Import *im, ImportRow *row) {
    const char *mode = import_text(im, ACTOR "policy_loss.loss_mode", "vanilla");
    if (strcmp(mode, "sapo") && strcmp(mode, "geo_mean")) return false;
    return not_needed(row, "train.loss_agg", "the loss in use averages in its own way, here as there");
}

static bool only_dapo(Import *im, ImportRow *row) {
    if (!im->dapo)
        return not_needed(row, NULL,
                          "only verl's DAPO entry acts on it; for dynamic sampling set algo.filter_groups.enable");
    if (!import_yes(im, "algorithm.filter_groups.enable", false)) return not_needed(row, NULL, "filter_groups is off");
    return false;
}

/* ---- rewards */
static bool overlong_acts(const Import *im) {
    return import_yes(im, OVERLONG, false) && !strcmp(import_text(im, MANAGER, "naive"), "dapo");
}

static bool overlong(Import *im, ImportRow *row) {
    if (overlong_acts(im)) return false;
    return not_needed(row, NULL,
                      import_yes(im, OVERLONG, false) ? "verl's penalty acts with the reward manager dapo only"
                                                      : "the over-long penalty is off");
}

static bool max_resp_len(Import *im, ImportRow *row) {
    if (!overlong_acts(im) || whole(im, row->set->key, 0) == whole(im, "data.max_response_length", 512))
        return not_needed(row, NULL, "data.max_response_length says it");
    return not_supported(row, "the over-long penalty counts from data.max_response_length");
}

static bool manager(Import *im, ImportRow *row) {
    (void)im;
    static const char *const known[] = { "naive", "dapo", "prime", "batch", "null" };
    for (size_t i = 0; i < COUNT(known); i++)
        if (is(row, known[i]))
            return not_needed(row, NULL, "there is one way to collect scores; dapo's penalty is algo.overlong");
    return not_supported(row, "a reward manager of its own is Python; see reward.python");
}

static bool reward_file(Import *im, ImportRow *row) {
    if (!import_text(im, row->set->key, NULL)) return not_needed(row, "reward.python", "null: the built-in scorers");
    import_put(im, row, "reward.python", NULL, NULL);
    return true;
}

static bool reward_name(Import *im, ImportRow *row) {
    if (!import_text(im, REWARD_FN, NULL) || is(row, "null"))
        return not_needed(row, "reward.python_function", "no file is given");
    import_put(im, row, "reward.python_function", NULL, NULL);
    return true;
}

/* a.b.NAME=VALUE joins the others in a list of NAME=VALUE. */
static bool joins(Import *im, ImportRow *row) {
    const char *name;
    const ConfOption *o = conf_joins(row->set->key, im->c.verb, &name);
    if (!o) return false;
    if (strstr(o->name, "python") && !import_text(im, REWARD_FN, NULL))
        return not_needed(row, o->name, "no file is given");
    conf_join(&im->c, o, name, row->set->text);
    im->c.origin[o - conf_options] = import_place(im, row->set);
    row->fate = FATE_TAKEN, row->name = o->name;
    return true;
}

/* ---- data */
static bool files(Import *im, ImportRow *row) {
    (void)im;
    const ConfValue *v = &row->set->value;
    size_t empty = 0, n = v->is_list ? v->n : 1;
    for (size_t i = 0; i < n; i++) empty += !(v->is_list ? v->items[i].n : v->one.n);
    if (!empty) return false;
    if (empty < n) return not_supported(row, "one of the paths is empty: a variable that was never set?");
    return not_needed(row, row->set->key, "the path is empty: a variable that was never set?");
}

static bool sft_column(Import *im, ImportRow *row) {
    if (!im->sft) return false;
    bool prompt = strstr(row->set->key, "prompt_key") != NULL;
    const HydraSet *inner = import_find(im, prompt ? "data.prompt_dict_keys" : "data.response_dict_keys");
    if (!inner || !inner->value.is_list || inner->value.n != 1) return false;
    const char *column = mem_printf(im->mem, "%s.%s", row->set->value.one.text, inner->value.items[0].text);
    import_put(im, row, prompt ? "sft.prompt_key" : "sft.response_key", column, "the column and the field in it");
    return true;
}

static bool sft_inner(Import *im, ImportRow *row) {
    (void)im;
    if (row->set->value.is_list && row->set->value.n > 1) return not_supported(row, "a prompt is made of one field");
    return not_needed(row, NULL, "part of the column's name");
}

/* ---- where it begins */
static const char *resume_path(const Import *im) {
    const char *path = import_text(im, "trainer.resume_from_path", NULL), *mode;
    mode = import_text(im, "trainer.resume_mode", "resume_path");
    return path && !strcmp(mode, "resume_path") && dir_exists(path) ? path : NULL;
}

static bool resume(Import *im, ImportRow *row) {
    if (!is(row, "resume_path")) return false;
    if (resume_path(im)) return not_needed(row, NULL, "see trainer.resume_from_path");
    return not_supported(row, "trainer.resume_from_path names no folder that is here");
}

static bool resume_from(Import *im, ImportRow *row) {
    const char *path = resume_path(im), *mode = import_text(im, "trainer.resume_mode", "resume_path");
    if (!path)
        return not_needed(row, NULL,
                          strcmp(mode, "resume_path") ? "trainer.resume_mode does not ask for it"
                                                      : "it names no folder that is here");
    import_put(im, row, "model.path", NULL,
               "training starts from the model saved there; verl's optimizer state is not read");
    return true;
}

static bool run_dir(Import *im, ImportRow *row) {
    (void)im;
    return is(row, "") && not_needed(row, "trainer.run_dir", "empty: the folder is runs/PROJECT/EXPERIMENT");
}

/* clang-format off */
static const struct { const char *key; bool (*rule)(Import *im, ImportRow *row); } RULES[] = {
    { ACTOR "ppo_max_token_len_per_gpu",                 token_budget },
    { "data.max_token_len_per_gpu",                      token_budget },
    { ACTOR "ppo_micro_batch_size*",                     micro_batch },
    { "data.micro_batch_size*",                          micro_batch },
    { "data.*_max_samples",                              max_samples },
    { "trainer.max_*ckpt_to_keep",                       keep_all },
    { "*optim.min_lr",                                   min_lr },
    { "*optim.warmup_style",                             schedule },
    { "*optim.lr_scheduler_type",                        schedule },
    { "*optim.lr_decay_steps",                           decay_steps },
    { "*optim.lr_warmup_steps_ratio",                    warmup_ratio },
    { "*override_optimizer_config.optimizer_cpu_offload", cpu_offload },
    { "*override_optimizer_config.optimizer_offload_fraction", offload_fraction },
    { "*override_optimizer_config.adam_beta[12]",        beta },
    { "*optim.*exp_avg*_dtype",                          moments },
    { "*optim.init_lr_ratio",                            warmup_start },
    { "*optim.lr_warmup_init",                           warmup_start },
    { ACTOR "clip_ratio",                                clip_ratio },
    { "*model.enable_gradient_checkpointing",            checkpointing },
    { OTC "recompute_granularity",                       granularity },
    { SFT_OTC "recompute_granularity",                   granularity },
    { ACTOR "torchtitan.activation_checkpoint",          activations },
    { "engine.activation_checkpoint*",                   activations },
    { ACTOR "ulysses_sequence_parallel_size",            ulysses },
    { ACTOR "fsdp_config.ulysses_sequence_parallel_size", ulysses },
    { "engine.ulysses_sequence_parallel_size",           ulysses },
    { "ulysses_sequence_parallel_size",                  ulysses },
    { MCORE "expert_tensor_parallel_size",               etp_null },
    { OTC "account_for_*_in_pipeline_split",             ends_count },
    { SFT_OTC "account_for_*_in_pipeline_split",         ends_count },
    { "actor_rollout_ref.model.path",                    model },
    { "model.path",                                      model },
    { "model.partial_pretrain",                          model },
    { "algorithm.adv_estimator",                         advantages },
    { "algorithm.rollout_correction.rollout_is",         tis },
    { "algorithm.rollout_correction.rollout_is_threshold", tis_cap },
    { "algorithm.rollout_correction.*",                  corrections },
    { ACTOR "use_kl_loss",                               kl_loss },
    { "algorithm.use_kl_in_reward",                      kl_reward },
    { "algorithm.gamma",                                 only_rpp },
    { "algorithm.norm_adv_by_std_in_grpo",               only_grpo },
    { ACTOR "loss_agg_mode",                             aggregation },
    { "algorithm.filter_groups.*",                       only_dapo },
    { "reward*overlong_buffer*",                         overlong },
    { "reward*.max_resp_len",                            max_resp_len },
    { "reward_model.reward_manager",                     manager },
    { "reward.reward_manager.name",                      manager },
    { "reward_manager.name",                             manager },
    { "*custom_reward_function.path",                    reward_file },
    { "*custom_reward_function.name",                    reward_name },
    { "*kwargs.*",                                       joins },
    { "data.*_files",                                    files },
    { "data.prompt_key",                                 sft_column },
    { "data.response_key",                               sft_column },
    { "data.*_dict_keys",                                sft_inner },
    { "trainer.resume_mode",                             resume },
    { "trainer.resume_from_path",                        resume_from },
    { "trainer.default_local_dir",                       run_dir },
};
/* clang-format on */

bool import_rule(Import *im, ImportRow *row) {
    for (size_t i = 0; i < COUNT(RULES); i++)
        if (!fnmatch(RULES[i].key, row->set->key, 0) && RULES[i].rule(im, row)) return true;
    return false;
}

/* ---- all together */
static bool given(const Import *im, const char *option) {
    bool verl;
    return im->c.origin[conf_find(option, im->c.verb, &verl) - conf_options] != NULL;
}

/* The path that a run goes on from outranks the model's, wherever the script has it. */
static void start_from(Import *im) {
    const char *path = resume_path(im);
    if (!path) return;
    for (size_t i = 0; i < im->rows.n; i++) {
        ImportRow *row = &im->rows.at[i];
        if (!row->name || strcmp(row->name, "model.path")) continue;
        if (!strcmp(row->set->key, "trainer.resume_from_path")) resume_from(im, row);
        else not_needed(row, "model.path", "trainer.resume_from_path says it");
    }
    if (im->c.train.use_kl_loss || im->c.algo.kl_in_reward)
        VEC_PUSH(im->notes, "the KL is measured from the model that training starts from, the one of "
                            "trainer.resume_from_path; verl's reference is the model that the first run began with");
}

/* Settings without which what is left is another run: nothing is written. */
static void another_run(Import *im) {
    static const char *const keys[] = { "distillation.enabled" };
    for (size_t i = 0; i < im->rows.n; i++)
        for (size_t k = 0; k < COUNT(keys); k++)
            if (!strcmp(im->rows.at[i].set->key, keys[k]) && im->rows.at[i].fate == FATE_NOT_SUPPORTED)
                im->refused = mem_printf(im->mem,
                                         "%s=%s is not supported, and without it this is another run: nothing is "
                                         "written (add %s=False to have the rest)",
                                         keys[k], im->rows.at[i].set->text, keys[k]);
}

/* Takes an option out again; the row that set it says why. */
static void take_out(Import *im, const char *option, const char *why) {
    bool verl;
    im->c.origin[conf_find(option, im->c.verb, &verl) - conf_options] = NULL;
    for (size_t i = 0; i < im->rows.n; i++)
        if (im->rows.at[i].name && !strcmp(im->rows.at[i].name, option)) not_needed(&im->rows.at[i], option, why);
}

/* What verl does where the script is silent, and hone would do otherwise. */
static void defaults(Import *im) {
    static const struct {
        const char *keys, *option, *value;
        int verbs;
    } SILENT[] = {
        { "data.train_batch_size", "data.train_batch_size", "1024", CONF_TRAIN },
        { ROLLOUT "n", "rollout.n", "1", CONF_TRAIN },
        { ACTOR "ppo_mini_batch_size", "train.mini_batch_size", "256", CONF_TRAIN },
        { ROLLOUT "max_num_batched_tokens", "rollout.token_budget", "8192", CONF_TRAIN },
        { ROLLOUT "tensor_model_parallel_size", "rollout.grid.tp", "2", CONF_TRAIN },
        { "trainer.total_epochs", "trainer.epochs", "30", CONF_TRAIN },
        { MCORE "seed", "trainer.seed", "42", CONF_TRAIN },
        { "data.train_batch_size", "sft.batch_size", "256", CONF_SFT },
        { "trainer.total_epochs", "trainer.epochs", "4", CONF_SFT },
        { "trainer.n_gpus_per_node", "grid.gpus_per_node", "8", CONF_TRAIN | CONF_SFT },
        { "trainer.max_actor_ckpt_to_keep trainer.max_ckpt_to_keep", "trainer.keep", "1000000", CONF_TRAIN | CONF_SFT },
    };
    bool steps = import_text(im, "trainer.total_training_steps", NULL) != NULL;
    for (size_t i = 0; i < COUNT(SILENT); i++) {
        if (!(SILENT[i].verbs & (int)im->c.verb) || import_find(im, SILENT[i].keys)) continue;
        if (steps && !strcmp(SILENT[i].option, "trainer.epochs")) continue;
        import_derive(im, SILENT[i].option, SILENT[i].value, "verl's default");
    }
    if (!im->sft && !given(im, "train.recompute"))
        import_derive(im, "train.recompute", im->megatron ? "none" : "full", "verl's default");
    if (!im->sft && !import_find(im, "algorithm.adv_estimator"))
        VEC_PUSH(im->notes, "algorithm.adv_estimator is not set: verl would train a critic (gae), which is not there "
                            "yet; algo.advantage is grpo here");
    if (!im->sft && im->c.train.mini_batch_size > im->c.data.train_batch_size
        && !import_find(im, ACTOR "ppo_mini_batch_size"))
        import_derive(im, "train.mini_batch_size", text_of(im, im->c.data.train_batch_size),
                      "verl's default, cut to the batch");
}

/* GPUs = tp * pp * cp * dp; experts: a null etp is tp to Megatron. */
static void grid(Import *im) {
    Config *c = &im->c;
    int64_t gpus = c->grid.nodes * c->grid.gpus_per_node, each = c->grid.tp * c->grid.pp * c->grid.cp;
    if (gpus % each)
        VEC_PUSH(im->notes, mem_printf(im->mem,
                                       "tp %" PRId64 " x pp %" PRId64 " x cp %" PRId64 " does not divide the %" PRId64
                                       " GPUs: set grid.dp",
                                       c->grid.tp, c->grid.pp, c->grid.cp, gpus));
    else import_derive(im, "grid.dp", text_of(im, gpus / each), "GPUs / (tp pp cp)");
    bool experts = im->experts > 0 || c->grid.ep > 1;
    if (!im->megatron || import_text(im, MCORE ETP " engine." ETP, NULL) || !experts || c->grid.tp == 1) return;
    if (gpus % (c->grid.tp * c->grid.ep * c->grid.pp)) {
        im->refused =
            mem_printf(im->mem,
                       ETP " is null, which is tp = %" PRId64 " to Megatron; with ep %" PRId64 " and pp %" PRId64
                           " that does not divide the %" PRId64 " GPUs: add %s" ETP "=1 (grid.etp: 1)",
                       c->grid.tp, c->grid.ep, c->grid.pp, gpus, im->sft ? "engine." : MCORE);
        return;
    }
    import_derive(im, "grid.etp", text_of(im, c->grid.tp), "a null expert_tensor_parallel_size is tp to Megatron");
    VEC_PUSH(im->notes,
             mem_printf(im->mem, "expert_tensor_parallel_size is null, which is tp to Megatron: grid.etp is %" PRId64,
                        c->grid.tp));
}

static void layers(Import *im) {
    if (im->c.grid.split && given(im, "grid.split") && given(im, "grid.last_layers"))
        take_out(im, "grid.last_layers", "the split says it");
    if (im->c.grid.split && given(im, "grid.split") && given(im, "grid.first_layers"))
        take_out(im, "grid.first_layers", "the split says it");
}

static void without_validation(Import *im) {
    if (im->c.data.val_files.n) return;
    static const char *const options[] = { "trainer.val_every", "trainer.val_before_train" };
    for (size_t i = 0; i < COUNT(options); i++)
        if (given(im, options[i])) take_out(im, options[i], "there is nothing to validate on");
}

/* Reference layouts of their own are said, not followed. */
static void reference(Import *im) {
    static const char *const sizes[] = { "tensor_model_parallel_size", "pipeline_model_parallel_size",
                                         "expert_model_parallel_size", "context_parallel_size" };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        const char *own = mem_printf(im->mem, MCORE "%s", sizes[i]),
                   *ref = mem_printf(im->mem, "actor_rollout_ref.ref.megatron.%s", sizes[i]);
        if (import_find(im, ref) && whole(im, ref, 1) != whole(im, own, 1))
            VEC_PUSH(im->notes, mem_printf(im->mem,
                                           "the reference has another %s (%" PRId64
                                           ") than the actor: here it is laid out as the actor is",
                                           sizes[i], whole(im, ref, 1)));
    }
}

void import_finish(Import *im) {
    defaults(im);
    grid(im);
    layers(im);
    without_validation(im);
    reference(im);
    start_from(im);
    another_run(im);
}
