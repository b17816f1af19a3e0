/* plan_args.h - what `hone plan` is asked: by its command line, or by a recipe under it. */
#ifndef CMD_PLAN_ARGS_H
#define CMD_PLAN_ARGS_H

#include "base/json.h"
#include "plan/plan.h"
#include "train/checkpoint.h"

/* How much is asked, and how long it is: tokens. */
typedef struct {
    double      prompts, answers, mini, prompt_mean, prompt_max, mean, max, spread, images;
    int64_t     epochs;
    const char *image_size;           /* "1920x1080", or NULL */
} PlanWork;

typedef struct {
    const char *recipe, *model, *data;
    const char *cluster, *profile, *split, *recompute, *host_memory, *svg, *write, *weights, *master, *grads, *moments;
    const char *storage;              /* bytes a second of the file system that nodes share, or NULL */
    PlanWork    work;
    /* save_buffer 0: room for everything */
    int64_t     per_node, tp, pp, ep, etp, cp, vpp, gen_tp, gen_ep, save_buffer,
                checkpoint_moments;   /* SavedMoments */
    double      micro, offload, gen_use, save_minutes, signal;
    bool        kl, park, park_weights, park_states, unfused, explain, json, search, min_gpus, simulate;
} PlanArgs;

static const PlanArgs PLAN_STANDARD = {
    .cluster = "this", .profile = "hone", .split = "even", .recompute = "full", .gen_use = 0.95,
    .work = { .prompts = 128, .answers = 8, .epochs = 1, .prompt_mean = 150, .prompt_max = 1024, .mean = 1024,
              .max = 4096, .spread = 1 },
    .save_buffer = CHECKPOINT_BUFFER, .save_minutes = 30,
};

/* A recipe's settings put into a; strings live in mem.  What only `hone train` reads is left alone. */
bool plan_args_recipe(PlanArgs *a, const char *path, Mem *mem, Err *err);
/* The GPUs that a configuration says it is for: plan.cluster; gpus 0 where it does not say, or means this machine. */
bool plan_args_cluster(Cluster *out, const char *path, Mem *mem, Err *err);

bool plan_args_layout_given(const PlanArgs *a);
/* Model, cluster, workload, profile; then the layout that was given, checked. */
bool plan_args_setting(Plan *p, const PlanArgs *a, const char *model, Mem *mem, Err *err);
bool plan_args_layout(Plan *p, const PlanArgs *a, Err *err);

#endif
