/* use.h - what other folders take, made from a configuration. */
#ifndef CONFIG_USE_H
#define CONFIG_USE_H

#include "algo/advantage.h"
#include "arch/adapter.h"
#include "algo/kl.h"
#include "algo/loss.h"
#include "config/config.h"
#include "cut/grid.h"
#include "model/open.h"
#include "task/dataset.h"
#include "task/reward.h"
#include "train/checkpoint.h"
#include "train/lr.h"

RandomFill config_random(const Config *c);
Trained   config_trained(const Config *c);
OptimTypes config_states(const Config *c, const Dev *d);                 /* how that device's weights and optimizer
                                                                          * states are kept */
GridShape config_axes(const Config *c);                     /* as written: for grid_fill, with */
/* How the ranks sample: tp and ep as set, dp all that is left: replicas, and those inside one.  option: what an
 * error is about. */
bool config_rollout_grid(GridShape *g, const Config *c, const ModelDesc *m, int ranks, int leaves, const char **option,
                         Err *err);
const char *config_split(const Config *c, Mem *mem);        /* NULL: none */
int64_t   config_leaves(const Config *c, bool gpu);         /* trainer.leaves, or the default for both grids */
AdvConf   config_advantage(const Config *c);
LossConf  config_loss(const Config *c);
KlControl config_kl(const Config *c);
DataLong  config_truncation(int64_t how);               /* of data.truncation, sft.truncation */
DataLong  config_long_prompts(const Config *c);             /* what happens to a prompt above data.max_prompt_length */
bool      config_own_scorer(const Config *c);               /* a command, a library or a Python file judges */
double    config_max_failed(const Config *c);               /* for RolloutRun */
RewardOptions config_rewards(const Config *c, Mem *mem);
const char *config_arguments(const StrList *pairs, Mem *mem);   /* [name=value ...] as a JSON object,
                                                                 * values as YAML reads them; NULL: none */
const char *config_time(const Config *c);                       /* "now" of data.template_args, which
                                                                 * strftime_now prints; NULL: none */
void      config_set_time(Config *c, const char *now);
LrConf    config_lr(const Config *c, int64_t total_steps);
AdamConf  config_adam(const Config *c, double lr);
int64_t   config_updates_per_step(const Config *c);         /* epochs * mini-batches */
bool      config_adapts(const Config *c);                   /* an adapter is trained, and not the model */
bool      config_lora(AdapterSpec *out, const Config *c, Mem *mem, Err *err);
bool      config_needs_ref(const Config *c);                /* a reference model is needed */
bool      config_cuts(const Config *c);                     /* answers are drawn with top-k, top-p or min-p */
bool      config_keeps_sets(const Config *c);               /* and the sets that were kept travel with
                                                             * them: the weights will be others */
/* then: bytes of an answer's sets, of the largest set */
size_t    config_kept_room(const Config *c, int64_t vocab, size_t *most);
CheckpointConf config_saves(const Config *c, const Carried *carried);

#endif
