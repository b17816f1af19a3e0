/* use.c - what the other folders take, made from a configuration. */
#include "config/use.h"
#include "base/file.h"
#include "base/yaml.h"
#include "model/kept_set.h"
#include "op/device.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
GridShape config_axes(const Config *c) {
    return (GridShape){ .tp = (int)c->grid.tp,
                        .pp = (int)c->grid.pp,
                        .vpp = (int)c->grid.vpp,
                        .ep = (int)c->grid.ep,
                        .etp = (int)c->grid.etp,
                        .cp = (int)c->grid.cp,
                        .dp = c->grid.dp == CONF_UNSET ? 0 : (int)c->grid.dp };
}

const char *config_split(const Config *c, Mem *mem) {
    int64_t first = c->grid.first_layers, last = c->grid.last_layers;
    if (first == CONF_UNSET && last == CONF_UNSET) return c->grid.split;
    if (last == CONF_UNSET) return mem_printf(mem, "first=%" PRId64, first);
    if (first == CONF_UNSET) return mem_printf(mem, "last=%" PRId64, last);
    return mem_printf(mem, "first=%" PRId64 ",last=%" PRId64, first, last);
}

int64_t config_leaves(const Config *c, bool gpu) {
    int64_t cut = c->grid.tp > c->grid.etp ? c->grid.tp : c->grid.etp;
    if (c->rollout.grid.tp > cut) cut = c->rollout.grid.tp;
    return c->trainer.leaves != CONF_UNSET ? c->trainer.leaves : leaves_default(gpu, cut);
}

AdvConf config_advantage(const Config *c) {
    return (AdvConf){ .kind = (AdvKind)c->algo.advantage, .norm_by_std = c->algo.norm_by_std,
                      .gamma = c->algo.gamma,             .lam = c->algo.lam };
}

Trained config_trained(const Config *c) {
    return (Trained){ (Recompute)c->train.recompute, c->train.keep_logits,
                      c->train.freeze_tower || config_adapts(c) };
}

OptimTypes config_states(const Config *c, const Dev *d) {
    if (config_adapts(c)) return (OptimTypes){ DT_F32, DT_F32, (DType)c->train.moments };
    return (OptimTypes){ .weights = c->train.weights == WEIGHTS_AUTO ? d->act : (DType)c->train.weights,
                         .master = (DType)c->train.master, .moments = (DType)c->train.moments };
}

LossConf config_loss(const Config *c) {
    return (LossConf){
        .kind = (LossKind)c->train.loss,      .agg = (AggKind)c->train.loss_agg,
        .clip_low = c->train.clip_low,        .clip_high = c->train.clip_high,      .clip_c = c->train.clip_c,
        .tau_pos = c->train.tau_pos,          .tau_neg = c->train.tau_neg,
        .cov_ratio = c->train.loss == LOSS_CLIP_COV ? c->train.clip_cov_ratio : c->train.kl_cov_ratio,
        .cov_coef = c->train.kl_cov_coef,     .cov_low = c->train.clip_cov_lb,      .cov_high = c->train.clip_cov_ub,
        .dro_beta = c->train.loss == LOSS_DRO ? c->train.dro_beta : 0,
        .entropy_coef = c->train.entropy_coef,
        .kl_coef = c->train.use_kl_loss ? c->train.kl_loss_coef : 0,
        .kl_kind = c->train.kl_loss_type,     .norm_len = (double)c->train.loss_norm_length,
    };
}
/* clang-format on */

bool config_rollout_grid(GridShape *g, const Config *c, const ModelDesc *m, int ranks, int leaves, const char **option,
                         Err *err) {
    int64_t tp = c->rollout.grid.tp, dp = c->rollout.grid.dp, ep = c->rollout.grid.ep, pp = c->rollout.grid.pp;
    *option = pp > 1              ? "rollout.grid.pp"
              : ranks % tp        ? "rollout.grid.tp"
              : ranks % (tp * dp) ? "rollout.grid.dp"
                                  : "rollout.grid.ep";
    if (pp > 1)
        return err_set(
            err,
            "%" PRId64
            ": a token's step is one row of each layer, so there is nothing to pass from stage to stage; set it to "
            "1, and tp or ep to what makes a replica fit",
            pp);
    if (ranks % (tp * dp))
        return err_set(err,
                       "a replica of tp %" PRId64 " x dp %" PRId64
                       " does not divide the %d rank%s there %s: start a multiple of %" PRId64 " (mpirun -n %" PRId64
                       "), or make it smaller",
                       tp, dp, ranks, ranks == 1 ? "" : "s", ranks == 1 ? "is" : "are", tp * dp, tp * dp);
    if (tp * dp % ep)
        return err_set(err,
                       "experts over %" PRId64 " ranks, but a replica has tp %" PRId64 " x dp %" PRId64
                       ": a divisor of %" PRId64 " is wanted",
                       ep, tp, dp, tp * dp);
    bool cut = m->d.experts && ep == 1 && !(m->adapter && adapter_of_experts(m->adapter)); /* whose adapter is whole */
    *g = (GridShape){ .tp = (int)tp, .ep = (int)ep, .etp = cut ? (int)tp : 1 };
    return grid_fill(g, m, ranks, NULL, leaves, err);
}

DataLong config_truncation(int64_t how) {
    static const DataLong of[] = { [TRUNC_ERROR] = DATA_LONG_REFUSE,
                                   [TRUNC_LEFT] = DATA_LONG_LEFT,
                                   [TRUNC_RIGHT] = DATA_LONG_RIGHT,
                                   [TRUNC_MIDDLE] = DATA_LONG_MIDDLE };
    return of[how];
}

DataLong config_long_prompts(const Config *c) {
    return c->data.filter_overlong_prompts ? DATA_LONG_FILTER : config_truncation(c->data.truncation);
}

bool config_own_scorer(const Config *c) { return c->reward.command || c->reward.library || c->reward.python; }

double config_max_failed(const Config *c) { /* there 0 is no limit, here it lets none pass */
    return c->reward.max_failed_ratio > 0 ? c->reward.max_failed_ratio : 1e-9;
}

RewardOptions config_rewards(const Config *c, Mem *mem) {
    return (RewardOptions){ .scorer = c->reward.scorer,
                            .command = c->reward.command,
                            .library = c->reward.library,
                            .python = c->reward.python,
                            .python_function = c->reward.python_function,
                            .python_args = config_arguments(&c->reward.python_args, mem),
                            .timeout_s = c->reward.timeout };
}

const char *config_arguments(const StrList *pairs, Mem *mem) {
    if (!pairs->n) return NULL;
    Buf b = { 0 };
    for (int64_t i = 0; i < pairs->n; i++) {
        const char *eq = strchr(pairs->at[i], '='); /* config_check saw to it */
        size_t n = eq ? (size_t)(eq - pairs->at[i]) : strlen(pairs->at[i]);
        Json v = yaml_scalar(eq ? eq + 1 : "", eq ? strlen(eq + 1) : 0, mem);
        buf_puts(&b, i ? "," : "{");
        json_put_str(&b, pairs->at[i], n);
        buf_putc(&b, ':');
        json_put_value(&b, &v);
    }
    buf_putc(&b, '}');
    const char *text = mem_str(mem, b.data, b.n);
    buf_free(&b);
    return text;
}

static const char *time_in(const StrList *pairs, int64_t *at) {
    for (*at = 0; *at < pairs->n; ++*at)
        if (!strncmp(pairs->at[*at], "now=", 4)) return pairs->at[*at] + 4;
    return NULL;
}

const char *config_time(const Config *c) {
    int64_t at;
    const char *now = time_in(&c->data.template_args, &at);
    return now && *now && strcmp(now, "null") && strcmp(now, "~") ? now : NULL;
}

void config_set_time(Config *c, const char *now) {
    StrList *l = &c->data.template_args;
    int64_t at;
    const char **all = MEM_ARRAY(&c->mem, const char *, (size_t)l->n + 1);
    if (l->n) memcpy(all, l->at, (size_t)l->n * sizeof *all);
    bool there = time_in(l, &at) != NULL; /* null: the clock, which is not asked twice */
    all[at] = mem_printf(&c->mem, "now=%s", now);
    *l = (StrList){ all, l->n + !there };
}

KlControl config_kl(const Config *c) {
    return (KlControl){ c->algo.kl_control == 1, c->algo.kl_coef, c->algo.kl_target, c->algo.kl_horizon };
}

LrConf config_lr(const Config *c, int64_t total_steps) {
    int64_t warmup = c->train.warmup_steps, decay = c->train.decay_steps;
    if (warmup == CONF_UNSET) warmup = (int64_t)floor(c->train.warmup_ratio * (double)total_steps);
    if (decay == CONF_UNSET) decay = (total_steps + 9) / 10;
    LrConf lr = { .kind = (LrKind)c->train.schedule, .lr = c->train.lr, .min_ratio = c->train.min_lr_ratio };
    lr.warmup = warmup, lr.total = total_steps, lr.decay = decay;
    return lr;
}

AdamConf config_adam(const Config *c, double lr) {
    return (AdamConf){ .lr = lr,
                       .beta1 = c->train.betas[0],
                       .beta2 = c->train.betas[1],
                       .eps = c->train.eps,
                       .decay = c->train.weight_decay,
                       .clip = c->train.clip_grad,
                       .tower_lr = isnan(c->train.tower_lr) ? 0 : lr / c->train.lr * c->train.tower_lr };
}

int64_t config_updates_per_step(const Config *c) {
    return c->train.epochs * ((c->data.train_batch_size + c->train.mini_batch_size - 1) / c->train.mini_batch_size);
}

bool config_cuts(const Config *c) { return c->rollout.top_k > 0 || c->rollout.top_p < 1 || c->rollout.min_p > 0; }

bool config_keeps_sets(const Config *c) {
    return config_cuts(c) && (config_updates_per_step(c) > 1 || config_needs_ref(c));
}

size_t config_kept_room(const Config *c, int64_t vocab, size_t *most) {
    *most = kept_set_most(vocab, c->rollout.top_k);
    size_t each = c->rollout.kept_bytes == CONF_UNSET ? *most : (size_t)c->rollout.kept_bytes;
    size_t room = (each < *most ? each : *most) * (size_t)c->rollout.max_tokens;
    return room > *most ? room : *most;
}

bool config_needs_ref(const Config *c) {
    bool in_reward = c->algo.kl_in_reward && (c->algo.kl_coef > 0 || c->algo.kl_control == 1);
    return in_reward || (c->train.use_kl_loss && c->train.kl_loss_coef > 0);
}

CheckpointConf config_saves(const Config *c, const Carried *carried) {
    return (CheckpointConf){ .run_dir = c->trainer.run_dir,
                             .carried = *carried,
                             .keep = (int)c->trainer.keep,
                             .shard_bytes = (int64_t)5e9,
                             .buffer = c->trainer.save_buffer,
                             .moments = (SavedMoments)c->trainer.checkpoint_moments };
}

RandomFill config_random(const Config *c) { return random_fill(c->model.random == CONF_UNSET ? -1 : c->model.random); }

/* ---- adapters */
bool config_adapts(const Config *c) { return c->train.lora.rank > 0 || c->model.adapter; }

static bool patterns(const AdapterPattern **out, int *n, const StrList *list, const char *option, Mem *mem, Err *err) {
    AdapterPattern *p = MEM_ARRAY(mem, AdapterPattern, (size_t)list->n + 1);
    for (int64_t i = 0; i < list->n; i++) {
        const char *equal = strrchr(list->at[i], '=');
        char *end = NULL;
        double value = equal ? strtod(equal + 1, &end) : 0;
        if (!equal || equal == list->at[i] || end == equal + 1 || *end)
            return err_set(err, "%s: \"%.100s\": a pattern is name=number", option, list->at[i]);
        p[i] = (AdapterPattern){ mem_str(mem, list->at[i], (size_t)(equal - list->at[i])), value };
    }
    *out = p, *n = (int)list->n;
    return true;
}

bool config_lora(AdapterSpec *out, const Config *c, Mem *mem, Err *err) {
    static const char *all[] = { "all-linear" };
    static const StrList every = { all, 1 };
    const StrList *t = c->train.lora.targets.n ? &c->train.lora.targets : &every;
    *out = (AdapterSpec){ .rank = c->train.lora.rank,
                          .alpha = c->train.lora.alpha,
                          .rslora = c->train.lora.rslora,
                          .bias = c->train.lora.bias,
                          .divided = c->train.lora.experts == EXPERTS_SHARE,
                          .targets = t->at,
                          .n_targets = (int)t->n,
                          .exclude = c->train.lora.exclude.at,
                          .n_exclude = (int)c->train.lora.exclude.n };
    if (t->n == 1 && !strncmp(t->at[0], "re:", 3)) out->regex = t->at[0] + 3;
    return patterns(&out->ranks, &out->n_ranks, &c->train.lora.rank_pattern, "train.lora.rank_pattern", mem, err)
           && patterns(&out->alphas, &out->n_alphas, &c->train.lora.alpha_pattern, "train.lora.alpha_pattern", mem,
                       err);
}
