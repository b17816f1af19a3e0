/* idle.c - options that were set and do nothing, because what they belong to is not switched on.  Not an error: files
 * of others are full of them; but whoever set one should know. */
#include "config/use.h"

static bool never(const Config *c) { return (void)c, false; }
static bool sapo(const Config *c) { return c->train.loss == LOSS_SAPO; }
static bool kl_cov(const Config *c) { return c->train.loss == LOSS_KL_COV; }
static bool clip_cov(const Config *c) { return c->train.loss == LOSS_CLIP_COV; }
static bool dro(const Config *c) { return c->train.loss == LOSS_DRO; }
static bool dppo(const Config *c) { return c->train.loss == LOSS_DPPO_TV || c->train.loss == LOSS_DPPO_KL; }
static bool cuts_ratio(const Config *c) { return c->train.loss == LOSS_VANILLA || dppo(c); }
static bool clips(const Config *c) {
    return c->train.loss != LOSS_SAPO && c->train.loss != LOSS_GPG && c->train.loss != LOSS_KL_COV && !dro(c);
}
static bool kl_in_reward(const Config *c) { return c->algo.kl_in_reward; }
static bool adaptive(const Config *c) { return c->algo.kl_control == 1; }
static bool kl_loss(const Config *c) { return c->train.use_kl_loss; }
static bool tis(const Config *c) { return c->algo.tis != TIS_OFF; }
static bool filter(const Config *c) { return c->algo.filter_groups.enable; }
static bool overlong(const Config *c) { return c->algo.overlong.enable; }
static bool validates(const Config *c) { return c->data.val_files.n > 0; }
static bool tower(const Config *c) { return !c->train.freeze_tower; }
static bool tools(const Config *c) { return c->rollout.tools.n > 0; }
static bool cuts(const Config *c) { return !c->data.filter_overlong_prompts; }

/* clang-format off */
static const struct { const char *option; bool (*used)(const Config *c); const char *unless; } idle[] = {
    { "algo.lam",                       never,        "algo.advantage is gae, which needs a critic" },
    { "algo.kl_estimator",              kl_in_reward, "algo.kl_in_reward is true" },
    { "algo.kl_coef",                   kl_in_reward, "algo.kl_in_reward is true" },
    { "algo.kl_target",                 adaptive,     "algo.kl_control is adaptive" },
    { "algo.kl_horizon",                adaptive,     "algo.kl_control is adaptive" },
    { "algo.tis_cap",                   tis,          "algo.tis is on" },
    { "algo.filter_groups.metric",      filter,       "algo.filter_groups.enable is true" },
    { "algo.filter_groups.max_batches", filter,       "algo.filter_groups.enable is true" },
    { "algo.overlong.factor",           overlong,     "algo.overlong.enable is true" },
    { "train.clip_ratio",               clips,        "train.loss clips: not sapo, gpg, kl_cov, dro" },
    { "train.clip_c",                   cuts_ratio,   "train.loss is vanilla, dppo_tv or dppo_kl" },
    { "train.tau_pos",                  sapo,         "train.loss is sapo" },
    { "train.tau_neg",                  sapo,         "train.loss is sapo" },
    { "train.kl_cov_ratio",             kl_cov,       "train.loss is kl_cov" },
    { "train.kl_cov_coef",              kl_cov,       "train.loss is kl_cov" },
    { "train.clip_cov_ratio",           clip_cov,     "train.loss is clip_cov" },
    { "train.clip_cov_lb",              clip_cov,     "train.loss is clip_cov" },
    { "train.clip_cov_ub",              clip_cov,     "train.loss is clip_cov" },
    { "train.dro_beta",                 dro,          "train.loss is dro" },
    { "train.kl_loss_coef",             kl_loss,      "train.use_kl_loss is true" },
    { "train.kl_loss_type",             kl_loss,      "train.use_kl_loss is true" },
    { "train.tower_lr",                 tower,        "train.freeze_tower is false" },
    { "rollout.kept_bytes",             config_keeps_sets,
      "sampling is cut (top_k, top_p, min_p) and a step has several updates or a KL" },
    { "rollout.val.n",                  validates,    "there are data.val_files" },
    { "rollout.val.temperature",        validates,    "there are data.val_files" },
    { "rollout.tool_format",            tools,        "there are rollout.tools" },
    { "rollout.max_turns",              tools,        "there are rollout.tools" },
    { "rollout.max_calls",              tools,        "there are rollout.tools" },
    { "rollout.max_reply",              tools,        "there are rollout.tools" },
    { "data.truncation",                cuts,         "data.filter_overlong_prompts is false" },
};
/* clang-format on */

void config_idle(Config *c) {
    if (c->verb != CONF_TRAIN) return;
    for (size_t i = 0; i < COUNT(idle); i++)
        if (!idle[i].used(c) && config_given(c, idle[i].option))
            VEC_PUSH(c->notes, mem_printf(&c->mem, "%s: %s has no effect unless %s", config_where(c, idle[i].option),
                                          idle[i].option, idle[i].unless));
}
