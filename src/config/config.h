/* config.h - the configuration of a run: one table of options (table.c), filled from a YAML file and dotted
 * overrides on top, checked before anything loads.
 *
 * An option may be written under hone's name or verl's.  An unknown key, a wrong type, a value out of range and a key
 * set twice are errors that name the key, the value, what is allowed and where it was set. */
#ifndef CONFIG_CONFIG_H
#define CONFIG_CONFIG_H

#include "algo/algo.h"
#include "arch/arch.h"
#include "op/op.h"
#include "run/identity.h"

typedef enum { CONF_TRAIN = 1, CONF_SFT = 2 } ConfVerb;
typedef enum { TRUNC_ERROR, TRUNC_LEFT, TRUNC_RIGHT, TRUNC_MIDDLE } TruncSide;
typedef enum { ON_NAN_STOP, ON_NAN_SKIP } OnNan;
typedef enum { ON_DIFFERENCE_STOP, ON_DIFFERENCE_WARN } OnDifference;
typedef enum { FILTER_SCORE, FILTER_ACC, FILTER_REWARD } FilterMetric;
typedef enum { RESUME_AUTO, RESUME_NEVER } Resume;
typedef enum { SAVE_AUTO, SAVE_NEVER } Save;
enum { EXPERTS_FULL, EXPERTS_SHARE };                               /* train.lora.experts */
enum { LORA_UNIFORM, LORA_GAUSSIAN };                               /* train.lora.init */
extern const Name lora_experts_names[], lora_init_names[];
enum { WEIGHTS_AUTO = -1 };                                          /* train.weights: as the device computes */
extern const Name weights_names[], master_names[], moments_names[], saved_names[];
extern const Name recompute_names[], truncation_names[], on_nan_names[], filter_names[], resume_names[], save_names[],
    kl_control_names[], on_difference_names[];

typedef struct { const char **at; int64_t n; } StrList;

/* After config_load every field has its final value: what depends on another option (clip_low on clip_ratio ...) is
 * filled in.  Unset, where the comment says "or": NULL, CONF_UNSET, NAN. */
#define CONF_UNSET INT64_MIN
enum { CONF_MAX = 192 };

typedef struct Config {
    ConfVerb verb;
    /* tokenizer: = path; the last two: or NULL, UNSET */
    struct { const char *path, *tokenizer, *chat_template, *adapter; int64_t random; } model;
    struct {
        StrList     train_files, val_files;
        const char *prompt_key, *source_key, *answer_key, *images_key, *videos_key, *image_processor;
        StrList     template_args;                                         /* "name=value" */
        int64_t     max_prompt_length, max_response_length, train_batch_size;
        int64_t     train_max_samples, val_max_samples, seed;              /* samples: or UNSET; seed: = trainer.seed */
        bool        shuffle, filter_overlong_prompts;
        int         truncation;                                            /* TruncSide */
    } data;
    struct {
        const char *prompt_key, *response_key, *messages_key, *tools_key;       /* messages_key: or NULL */
        int64_t     max_length, batch_size;
        int         truncation;
    } sft;
    struct {
        int64_t n, top_k, max_tokens, seed, page, max_batch, token_budget, step_tokens;  /* top_k, step_tokens 0: off */
        int64_t kv_tokens, kv_bytes, kept_bytes;                                /* or UNSET */
        double  temperature, top_p, min_p;
        bool    ignore_eos;
        StrList stop, tools;
        const char *tool_format;
        int64_t max_turns, max_calls, max_reply;                                /* with tools: the model's turns, calls
                                                                                 * of tools, characters of an answer */
        struct { int64_t n, top_k; double temperature, top_p, min_p; } val;     /* temperature 0: greedy */
        struct { int64_t tp, dp, pp, ep; } grid;
        int64_t sync_buffer;                                                    /* bytes */
        bool    sync_check, sync_share;
    } rollout;
    struct {
        int     advantage, kl_estimator, kl_control, tis;             /* AdvKind, KlKind, 0 fixed 1 adaptive, TisKind */
        bool    norm_by_std, kl_in_reward;
        double  gamma, lam, kl_coef, kl_target, kl_horizon, tis_cap;
        struct { bool enable; int metric; int64_t max_batches; } filter_groups;
        struct { bool enable; int64_t buffer; double factor; } overlong;
    } algo;
    struct {
        /* clip_grad 0: off */
        double  lr, warmup_ratio, min_lr_ratio, weight_decay, betas[2], eps, clip_grad;
        double  clip_ratio, clip_low, clip_high, clip_c, tau_pos, tau_neg, kl_cov_ratio, kl_cov_coef;
        double  clip_cov_ratio, clip_cov_lb, clip_cov_ub, dro_beta;
        double  entropy_coef, kl_loss_coef, offload_fraction, tower_lr; /* tower_lr: or NAN */
        /* warmup, decay: or UNSET */
        int64_t warmup_steps, decay_steps, epochs, mini_batch_size, micro_tokens, loss_norm_length;
        /* the last three: DType, or WEIGHTS_AUTO */
        int     schedule, loss, loss_agg, kl_loss_type, recompute, weights, master, moments;
        bool    shuffle, use_kl_loss, park_states, park_weights, freeze_tower, keep_logits;
        struct {                                            /* rank 0: no adapter, unless model.adapter is one */
            int64_t rank;
            double  alpha, dropout;
            StrList targets, exclude, rank_pattern, alpha_pattern;      /* patterns: "name=value" */
            bool    rslora, bias;
            int     experts, init;
        } lora;
    } train;
    struct {
        const char *scorer, *command, *library, *python, *python_function;      /* or NULL, but for python_function */
        StrList     python_args;                                                /* "name=value" */
        int64_t     workers;                                                    /* 0: as many as threads */
        double      timeout, max_failed_ratio;
    } reward;
    struct {
        int64_t     steps, epochs, save_every, keep, val_every;             /* steps: or UNSET; every 0: only at the
                                                                             * end, or never */
        int64_t     save_buffer;                                            /* bytes; 0: room for everything */
        int64_t     exact_every;                                            /* 0: step 1 alone */
        int64_t     tokens_newest, tokens_every, page;                      /* 0: none; at least 1; 0: none */
        int64_t     threads, seed, leaves, samples;                         /* threads 0: all cores; leaves: or UNSET */
        double      wait_seconds, save_minutes;                             /* 0: for ever; 0: not by time */
        double      peak_tflops;                                            /* or NAN: the card's, or measured */
        bool        val_before_train, tensorboard, share_gpu;
        int         on_nan, on_difference, resume, save, checkpoint_moments;
        const char *run_dir, *project, *experiment, *device, *compute, *profile, *alert_command; /* the last
                                                                             * three: or NULL */
    } trainer;
    struct {
        int64_t     tp, pp, vpp, ep, etp, cp, dp, first_layers, last_layers, nodes, gpus_per_node;    /* dp: or UNSET */
        const char *split;                                                      /* or NULL */
    } grid;

    /* Where the model and the scorer in Python are read: model.path ... as they are, or what the run has kept in the
     * place of what is gone, and a note (or NULL).  gone: model.path is; then there are no weights but those of the
     * checkpoint that goes on. */
    struct { const char *path, *tokenizer, *chat_template, *scorer, *note; bool gone; } from;

    const char *origin[CONF_MAX];      /* by row of the table: "run.yaml:12", "command line", or NULL: the default */
    const char *file;                  /* NULL: none */
    struct { const char **at; size_t n, cap; } notes;   /* lines to print at start: verl's names that were translated */
    Buf        *refused;               /* while loading: where settings that cannot be taken are listed, or NULL */
    int         n_refused;
    Mem         mem;
} Config;

/* overrides: "key=value".  file may be NULL.  On failure the Config is already freed; list gets a line for every
 * setting that cannot be taken (NULL: the first one ends it, and is in err). */
bool config_load(Config *c, ConfVerb verb, const char *file, const char *const *overrides, int n, Buf *list, Err *err);
bool config_load_text(Config *c, ConfVerb verb, const char *name, const char *text, size_t n_text,
                      const char *const *overrides, int n, Err *err);
void config_free(Config *c);
/* What is hub:ORG/NAME in model.path, model.tokenizer and the lists of files is fetched, and is a path from then on. */
bool config_fetch(Config *c, Err *err);
/* A run that goes on needs no more of its model's folder than its checkpoint has: where the folder is gone c->from is
 * the checkpoint's, and a note says so. */
void config_find_model(Config *c);

enum { MOST_ANSWERS = 100000000 };                                   /* of a step: they are counted in 32 bits */

/* Everything that can be known before a model or a data set is read: sizes that must divide, settings that
 * contradict each other, files that are not there.  config_check_model: what needs config.json (lengths fit
 * the context, the grid can be had of so many ranks). */
bool config_check(const Config *c, Err *err);
int  config_check_list(const Config *c, Buf *list);            /* the same, all of it: a line each; how many */
bool config_check_settings(const Config *c, Err *err);         /* the part of it that looks at no file and no machine */
bool config_check_model(const Config *c, const ModelDesc *m, int ranks, Err *err);
int  config_check_model_list(const Config *c, const ModelDesc *m, int ranks, Buf *list);
bool config_check_device(const Config *c, const Dev *d, Err *err);       /* what a GPU cannot do yet */
const char *config_where(const Config *c, const char *option);      /* "run.yaml:12", "command line" or "the default" */

bool config_given(const Config *c, const char *option);        /* was it set, and to something else than the default? */
bool config_same(const Config *a, const Config *b, const char *option);
void config_changes(Buf *out, const Config *was, const Config *now);  /* "train.lr 1e-6 -> 3e-6, ..."; nothing:
                                                                       * the same run */
void config_idle(Config *c);                                /* notes on options that were set and have no effect */
void config_identity(const Config *c, Identity *id);        /* all but what may be another on another machine: threads,
                                                             * paths */
typedef enum { DUMP_ALL, DUMP_GIVEN } DumpWhat;             /* GIVEN: only what was set */
void config_dump(Buf *out, const Config *c, DumpWhat what); /* the resolved configuration as YAML that loads again */
void config_list_options(Buf *out, ConfVerb verb);          /* what --list-options prints */

#endif
