/* table.c - every option of a run, one row each.  Sections stand together: the dump prints them in this order. */
#include "config/table.h"
#include "config/use.h"

#include <stddef.h>

/* clang-format off */
const Name recompute_names[]  = { { "none", RECOMPUTE_NONE }, { "selective", RECOMPUTE_SELECTIVE },
                                  { "full", RECOMPUTE_FULL }, { 0 } };
const Name weights_names[]    = { { "auto", WEIGHTS_AUTO }, { "f32", DT_F32 }, { "bf16", DT_BF16 }, { 0 } };
const Name lora_experts_names[] = { { "full", EXPERTS_FULL }, { "share", EXPERTS_SHARE }, { 0 } };
const Name lora_init_names[]  = { { "uniform", LORA_UNIFORM }, { "gaussian", LORA_GAUSSIAN }, { 0 } };
const Name master_names[]     = { { "f32", DT_F32 }, { "remainder", DT_I16 }, { 0 } };
const Name moments_names[]    = { { "f32", DT_F32 }, { "bf16", DT_BF16 }, { 0 } };
const Name saved_names[]      = { { "f32", SAVED_F32 }, { "bf16", SAVED_BF16 }, { "none", SAVED_NONE }, { 0 } };
const Name truncation_names[] = { { "error", TRUNC_ERROR }, { "left", TRUNC_LEFT }, { "right", TRUNC_RIGHT },
                                  { "middle", TRUNC_MIDDLE },
                                  { 0 } };
const Name on_nan_names[]     = { { "stop", ON_NAN_STOP }, { "skip", ON_NAN_SKIP }, { 0 } };
const Name on_difference_names[] = { { "stop", ON_DIFFERENCE_STOP }, { "warn", ON_DIFFERENCE_WARN }, { 0 } };
const Name filter_names[]     = { { "score", FILTER_SCORE }, { "acc", FILTER_ACC }, { "reward", FILTER_REWARD },
                                  { "seq_reward", FILTER_REWARD }, { "seq_final_reward", FILTER_REWARD }, { 0 } };
const Name save_names[]       = { { "auto", SAVE_AUTO }, { "never", SAVE_NEVER }, { 0 } };
const Name resume_names[]     = { { "auto", RESUME_AUTO }, { "never", RESUME_NEVER }, { "disable", RESUME_NEVER },
                                  { 0 } };
const Name kl_control_names[] = { { "fixed", 0 }, { "adaptive", 1 }, { 0 } };

/* BOOL(field, default, verbs, help, verl): the option's name is the field's. */
#define ROW(f, kind, def, lo, hi, names, verbs, help, verl) \
    { #f, kind, offsetof(Config, f), def, lo, hi, names, verbs, help, verl },
#define BOOL(f, def, verbs, help, verl)         ROW(f, CONF_BOOL, def, 0, 0, NULL, verbs, help, verl)
#define INT(f, def, lo, hi, verbs, help, verl)  ROW(f, CONF_INT, def, lo, hi, NULL, verbs, help, verl)
#define REAL(f, def, lo, hi, verbs, help, verl) ROW(f, CONF_REAL, def, lo, hi, NULL, verbs, help, verl)
#define PAIR(f, def, lo, hi, verbs, help, verl) ROW(f, CONF_PAIR, def, lo, hi, NULL, verbs, help, verl)
#define STR(f, def, verbs, help, verl)          ROW(f, CONF_STR, def, 0, 0, NULL, verbs, help, verl)
#define STRS(f, def, verbs, help, verl)         ROW(f, CONF_STRS, def, 0, 0, NULL, verbs, help, verl)
#define ENUM(f, def, names, verbs, help, verl)  ROW(f, CONF_ENUM, def, 0, 0, names, verbs, help, verl)
#define T  CONF_TRAIN
#define TS (CONF_TRAIN | CONF_SFT)
#define S  CONF_SFT
#define ACTOR   "actor_rollout_ref.actor."
#define ROLLOUT "actor_rollout_ref.rollout."
#define LORA(key) "actor_rollout_ref.model." key " model." key
#define MCORE   ACTOR "megatron."

const ConfOption conf_options[] = {
STR(model.path, "null", TS,
    "folder of the model: config.json, safetensors, tokenizer", "actor_rollout_ref.model.path model.partial_pretrain")
INT(model.random, "null", 0, 9e15, TS,
    "weights from this seed and config.json, not from files: for benches and tests", NULL)
STR(model.tokenizer, "null", TS,
    "folder or file of the tokenizer; null: model.path", "actor_rollout_ref.model.tokenizer_path data.tokenizer")
STR(model.adapter, "null", TS,
    "adapter to go on training, a folder as peft writes it; null: none, or a fresh one of train.lora",
    LORA("lora_adapter_path") " " LORA("lora.adapter_path"))
STR(model.chat_template, "null", TS,
    "file with a chat template; null: the tokenizer's", "actor_rollout_ref.model.custom_chat_template")

STRS(data.train_files, "[]", TS,
    "questions to train on: Parquet or JSONL files, or globs", NULL)
STRS(data.val_files, "[]", TS,                             "questions to validate on", NULL)
STR(data.prompt_key, "prompt", T,                          "column of the prompt: chat messages or a string", NULL)
STR(data.source_key, "data_source", T,                     "column that names the scorer", "data.reward_fn_key")
STR(data.answer_key, "reward_model.ground_truth", T,       "column of the right answer", NULL)
STRS(data.template_args, "[]", TS,
    "arguments of the chat template, such as [enable_thinking=false]", NULL)
STR(data.images_key, "images", TS,                         "column of the images", "data.image_key")
STR(data.videos_key, "videos", TS,                         "column of the clips, lists of frames", "data.video_key")
STR(data.image_processor, "verl", TS,
    "how pictures become pixels: as verl feeds them, or transformers' slow or fast processor", NULL)
INT(data.max_prompt_length, "512", 1, 1e9, T,              "longest prompt, in tokens", NULL)
INT(data.max_response_length, "512", 1, 1e9, T,            "longest answer, in tokens", NULL)
INT(data.train_batch_size, "64", 1, 1e9, T,                "questions per step", NULL)
INT(data.train_max_samples, "null", 1, 1e12, TS,           "use only the first so many questions; null: all", NULL)
INT(data.val_max_samples, "null", 1, 1e12, TS,             "validate on the first so many; null: all", NULL)
BOOL(data.shuffle, "true", TS,                             "a new order of the questions every epoch", NULL)
INT(data.seed, "null", 0, 9e15, TS,                        "seed of that order; null: trainer.seed", NULL)
BOOL(data.filter_overlong_prompts, "false", T,
    "drop prompts longer than max_prompt_length, and say how many", NULL)
ENUM(data.truncation, "error", truncation_names, T,        "what happens to a prompt that is too long", NULL)

STR(sft.prompt_key, "prompt", S,                           "column of the prompt", "data.prompt_key")
STR(sft.response_key, "response", S,                       "column of the answer that is learned", "data.response_key")
STR(sft.messages_key, "null", S,
    "column of whole conversations, instead of prompt and response", "data.multiturn.messages_key data.messages_key")
STR(sft.tools_key, "tools", S,
    "column of the tools that a conversation's template is told of", "data.multiturn.tools_key data.tools_key")
INT(sft.max_length, "1024", 2, 1e9, S,
    "longest prompt and answer together, in tokens", "data.max_length")
INT(sft.batch_size, "32", 1, 1e9, S,                       "pairs per update", "data.train_batch_size")
ENUM(sft.truncation, "error", truncation_names, S,         "what happens to a pair that is too long", "data.truncation")

INT(rollout.n, "8", 1, 65536, T,                           "answers per question", ROLLOUT "n")
REAL(rollout.temperature, "1.0", TEMPERATURE_LEAST, TEMPERATURE_MOST, T,
    "temperature of sampling, and of the trained distribution", ROLLOUT "temperature")
INT(rollout.top_k, "0", -1, 1e9, T,
    "sample from the k likeliest tokens; 0 or -1: from all", ROLLOUT "top_k")
REAL(rollout.top_p, "1.0", ABOVE_0, 1, T,
    "sample from the likeliest tokens that hold this mass", ROLLOUT "top_p")
REAL(rollout.min_p, "0.0", 0, 1, T,
    "drop tokens less likely than this times the likeliest", NULL)
INT(rollout.max_tokens, "null", 1, 1e9, T,
    "cut answers here; null: data.max_response_length", ROLLOUT "response_length")
INT(rollout.seed, "null", 0, 9e15, T,                      "seed of sampling; null: trainer.seed", ROLLOUT "seed")
BOOL(rollout.ignore_eos, "false", T,                       "go on after the end token", ROLLOUT "ignore_eos")
STRS(rollout.stop, "[]", T,                                "strings that end an answer", NULL)
STRS(rollout.tools, "[]", T,                               "tools that answers may call: [calculator]", NULL)
STR(rollout.tool_format, "auto", T,
    "how calls are written: auto (by the chat template), hermes, qwen3_coder, ... (docs/tools.md)", NULL)
INT(rollout.max_turns, "8", 1, 1000, T,                    "with tools: the model's turns in one answer", NULL)
INT(rollout.max_calls, "64", 1, 10000, T,                  "with tools: calls in one answer; the others fail", NULL)
INT(rollout.max_reply, "1024", 32, 1e6, T,
    "with tools: characters of a tool's answer; a longer one loses its middle", NULL)
INT(rollout.page, "16", 16, 4096, T,                        "tokens per page of the KV cache", NULL)
INT(rollout.kv_tokens, "null", 1, 1e12, T,
    "tokens the KV cache holds; null: by kv_bytes or what a step needs", NULL)
INT(rollout.kv_bytes, "null", 1, 1e15, T,                  "bytes of the KV cache, instead of kv_tokens", NULL)
INT(rollout.kept_bytes, "null", 1, 1e9, T,
    "top-k, top-p, min-p with several updates a step or a KL: bytes per answer token for the sets of kept ids; an "
    "answer that fills its share ends there; null: what the largest sets take", NULL)
INT(rollout.max_batch, "256", 1, 1e6, T,                   "sequences that run at once", ROLLOUT "max_num_seqs")
INT(rollout.token_budget, "2048", 1, 1e9, T,
    "tokens per forward, prefill chunks included", ROLLOUT "max_num_batched_tokens")
INT(rollout.step_tokens, "0", 0, 1e15, T,
    "answer tokens of a batch of questions, the same part for each: its answers are cut at the length that keeps to "
    "it, and marked; 0: no limit", NULL)
INT(rollout.val.n, "1", 1, 65536, T,                       "validation: answers per question", ROLLOUT "val_kwargs.n")
REAL(rollout.val.temperature, "0.0", 0, TEMPERATURE_MOST, T,
    "validation: temperature; 0 is greedy", ROLLOUT "val_kwargs.temperature")
INT(rollout.val.top_k, "0", -1, 1e9, T,
    "validation: top-k; 0 or -1: off", ROLLOUT "val_kwargs.top_k")
REAL(rollout.val.top_p, "1.0", ABOVE_0, 1, T,              "validation: top-p", ROLLOUT "val_kwargs.top_p")
REAL(rollout.val.min_p, "0.0", 0, 1, T,                    "validation: min-p", NULL)
INT(rollout.grid.tp, "1", 1, 4096, T,
    "tensor parallel ranks of a replica", ROLLOUT "tensor_model_parallel_size")
INT(rollout.grid.dp, "1", 1, 65536, T,
    "attention data parallel ranks of a replica", ROLLOUT "data_parallel_size")
INT(rollout.grid.pp, "1", 1, 512, T,
    "pipeline stages of a replica", ROLLOUT "pipeline_model_parallel_size")
INT(rollout.grid.ep, "1", 1, 4096, T,
    "expert parallel ranks of a replica; 1: experts are cut by tp, as all else", ROLLOUT "expert_parallel_size")
INT(rollout.sync_buffer, "268435456", 65536, 1e15, T,
    "bytes that weights in several pieces may go through from the trainer's cut to the sampler's", NULL)
BOOL(rollout.sync_share, "true", T,
    "ranks of one machine copy weights out of each other's memory; false: by messages, as between machines", NULL)
BOOL(rollout.sync_check, "true", T,                        "compare a sum of each tensor on both sides of that", NULL)

ENUM(algo.advantage, "grpo", adv_names, T,                 "how rewards become advantages", "algorithm.adv_estimator")
BOOL(algo.norm_by_std, "true", T,
    "grpo: divide by the group's standard deviation", "algorithm.norm_adv_by_std_in_grpo")
REAL(algo.gamma, "1.0", 0, 1, T,
    "discount of later rewards (reinforce_plus_plus)", "algorithm.gamma")
REAL(algo.lam, "1.0", 0, 1, T,                             "lambda of generalised advantages (gae)", "algorithm.lam")
BOOL(algo.kl_in_reward, "false", T,
    "subtract KL to the reference model from the reward", "algorithm.use_kl_in_reward")
ENUM(algo.kl_estimator, "k1", kl_names, T,                 "how that KL is estimated", "algorithm.kl_penalty")
REAL(algo.kl_coef, "0.001", 0, NO_MAX, T,
    "its coefficient (at the start, when adaptive)", "algorithm.kl_ctrl.kl_coef")
ENUM(algo.kl_control, "fixed", kl_control_names, T,        "how the coefficient moves", "algorithm.kl_ctrl.type")
REAL(algo.kl_target, "0.1", ABOVE_0, NO_MAX, T,            "adaptive: the KL aimed at", "algorithm.kl_ctrl.target_kl")
REAL(algo.kl_horizon, "10000", ABOVE_0, NO_MAX, T,
    "adaptive: answers after which a full correction is made", "algorithm.kl_ctrl.horizon")
ENUM(algo.tis, "off", tis_names, T,
    "truncated importance weights for stale data", "algorithm.rollout_correction.rollout_is")
REAL(algo.tis_cap, "2.0", ABOVE_0, NO_MAX, T,
    "largest such weight", "algorithm.rollout_correction.rollout_is_threshold")
BOOL(algo.filter_groups.enable, "false", T,
    "dynamic sampling: replace groups whose answers all earn the same", "algorithm.filter_groups.enable")
ENUM(algo.filter_groups.metric, "score", filter_names, T,
    "what must differ inside a group; reward: the score with the over-long penalty", "algorithm.filter_groups.metric")
INT(algo.filter_groups.max_batches, "10", 0, 1e6, T,
    "give up after so many batches per step; 0: when a pass over all questions had no group of use",
    "algorithm.filter_groups.max_num_gen_batches")
BOOL(algo.overlong.enable, "false", T,                     "penalty on answers that come near max_response_length",
    "reward_model.reward_kwargs.overlong_buffer_cfg.enable reward_model.overlong_buffer.enable "
    "reward.reward_kwargs.overlong_buffer_cfg.enable")
INT(algo.overlong.buffer, "0", 0, 1e9, T,                  "its last so many tokens are penalised",
    "reward_model.reward_kwargs.overlong_buffer_cfg.len reward_model.overlong_buffer.len "
    "reward.reward_kwargs.overlong_buffer_cfg.len")
REAL(algo.overlong.factor, "1.0", 0, NO_MAX, T,            "the penalty at the very end",
    "reward_model.reward_kwargs.overlong_buffer_cfg.penalty_factor reward_model.overlong_buffer.penalty_factor "
    "reward.reward_kwargs.overlong_buffer_cfg.penalty_factor")

REAL(train.lr, "1e-6", 0, 10, TS,                          "learning rate", ACTOR "optim.lr optim.lr")
ENUM(train.schedule, "constant", lr_names, TS,
    "how it changes over the steps", ACTOR "optim.lr_decay_style optim.lr_scheduler optim.lr_decay_style")
INT(train.warmup_steps, "null", -1, 1e9, TS,
    "steps until the full rate; null or -1: by warmup_ratio", ACTOR "optim.lr_warmup_steps optim.lr_warmup_steps")
REAL(train.warmup_ratio, "0.0", 0, 1, TS,
    "the same as a share of all steps",
    ACTOR "optim.lr_warmup_steps_ratio optim.warmup_steps_ratio optim.lr_warmup_steps_ratio")
REAL(train.min_lr_ratio, "0.0", 0, 1, TS,
    "the rate at the end, as a share of lr", ACTOR "optim.min_lr_ratio optim.min_lr_ratio")
INT(train.decay_steps, "null", 1, 1e9, TS,
    "wsd: how many of the last steps decay; null: a tenth", ACTOR "optim.lr_wsd_decay_steps")
REAL(train.weight_decay, "0.01", 0, 10, TS,
    "decoupled decay of matrices (norms and biases are spared)", ACTOR "optim.weight_decay optim.weight_decay")
PAIR(train.betas, "[0.9, 0.999]", 0, 0.9999999, TS,        "AdamW's two averages", ACTOR "optim.betas optim.betas")
REAL(train.eps, "1e-8", 1e-38, 1, TS,                      "AdamW's epsilon",
    ACTOR "optim.eps optim.eps " ACTOR "optim.override_optimizer_config.adam_eps "
    "optim.override_optimizer_config.adam_eps")
REAL(train.clip_grad, "1.0", 0, NO_MAX, TS,
    "largest norm of the gradient; 0: not clipped", ACTOR "optim.clip_grad optim.clip_grad " ACTOR "grad_clip")
INT(train.epochs, "1", 1, 1000, T,                         "passes over a step's answers", ACTOR "ppo_epochs")
INT(train.mini_batch_size, "null", 1, 1e9, T,
    "questions per update; null: all of the step's", ACTOR "ppo_mini_batch_size")
BOOL(train.shuffle, "false", T,
    "mini-batches take questions in random order", ACTOR "shuffle")
INT(train.micro_tokens, "16384", 1, 1e9, TS,
    "tokens computed at once; never exceeded", ACTOR "ppo_max_token_len_per_gpu")
ENUM(train.loss, "vanilla", loss_names, T,                 "policy loss", ACTOR "policy_loss.loss_mode")
ENUM(train.loss_agg, "token-mean", agg_names, T,
    "how tokens are averaged (sapo and geo_mean have their own way)", ACTOR "loss_agg_mode")
INT(train.loss_norm_length, "null", 1, 1e9, T,
    "seq-mean-token-sum-norm: the length; null: data.max_response_length", ACTOR "loss_scale_factor")
REAL(train.clip_ratio, "0.2", 0, NO_MAX, T,                "how far the ratio may move, both ways", ACTOR "clip_ratio")
REAL(train.clip_low, "null", 0, NO_MAX, T,
    "how far down, 1 or more: without bound (geo_mean: of the log); null: clip_ratio", ACTOR "clip_ratio_low")
REAL(train.clip_high, "null", 0, NO_MAX, T,                "how far up; null: clip_ratio", ACTOR "clip_ratio_high")
REAL(train.clip_c, "3.0", 1, NO_MAX, T,
    "dual clip: largest ratio that counts against a bad answer", ACTOR "clip_ratio_c")
REAL(train.tau_pos, "1.0", ABOVE_0, NO_MAX, T,
    "sapo: sharpness for good answers", ACTOR "tau_pos " ACTOR "policy_loss.tau_pos")
REAL(train.tau_neg, "1.05", ABOVE_0, NO_MAX, T,
    "sapo: sharpness for bad answers", ACTOR "tau_neg " ACTOR "policy_loss.tau_neg")
REAL(train.kl_cov_ratio, "0.0002", 0, 1, T,
    "kl_cov: share of the tokens held back", ACTOR "policy_loss.kl_cov_ratio")
REAL(train.kl_cov_coef, "0.1", 0, NO_MAX, T,               "kl_cov: how strongly", ACTOR "policy_loss.ppo_kl_coef")
REAL(train.clip_cov_ratio, "0.0002", ABOVE_0, 1, T,
    "clip_cov: share of the tokens left out", ACTOR "policy_loss.clip_cov_ratio")
REAL(train.clip_cov_lb, "1.0", -NO_MAX, NO_MAX, T,
    "clip_cov: of those whose covariance is above", ACTOR "policy_loss.clip_cov_lb")
REAL(train.clip_cov_ub, "5.0", -NO_MAX, NO_MAX, T,          "clip_cov: and below", ACTOR "policy_loss.clip_cov_ub")
REAL(train.dro_beta, "null", ABOVE_0, NO_MAX, T,
    "dro: how strongly a changed log-prob is punished", ACTOR "policy_loss.dro_beta")
REAL(train.entropy_coef, "0.0", -10, 10, T,                "bonus for entropy", ACTOR "entropy_coeff")
BOOL(train.use_kl_loss, "false", T,
    "add KL to the reference model to the loss", ACTOR "use_kl_loss")
REAL(train.kl_loss_coef, "0.001", 0, NO_MAX, T,            "its coefficient", ACTOR "kl_loss_coef")
ENUM(train.kl_loss_type, "k3", kl_names, T,
    "how it is estimated; k3+: k3's value, k2's gradient", ACTOR "kl_loss_type")
INT(train.lora.rank, "0", 0, 4096, TS,
    "train an adapter of that rank, and not the model; 0: the model", LORA("lora_rank") " " LORA("lora.rank"))
REAL(train.lora.alpha, "16", ABOVE_0, 1e6, TS,
    "its product is multiplied by alpha / rank", LORA("lora_alpha") " " LORA("lora.alpha"))
STRS(train.lora.targets, "[]", TS,
    "ends of linear maps' names, or [re:EXPRESSION] of whole names; []: all but the router", LORA("target_modules"))
STRS(train.lora.exclude, "[]", TS,                         "ends of names that are no targets",
    LORA("exclude_modules"))
REAL(train.lora.dropout, "0", 0, 0, TS,                    "none: with it a ratio would not begin at 1",
    LORA("lora.dropout"))
BOOL(train.lora.rslora, "false", TS,                       "alpha / sqrt(rank) instead", NULL)
STRS(train.lora.rank_pattern, "[]", TS,                    "other ranks: [q_proj=4, ...]", NULL)
STRS(train.lora.alpha_pattern, "[]", TS,                   "other alphas: [q_proj=16, ...]", NULL)
ENUM(train.lora.experts, "full", lora_experts_names, TS,
    "rank of an expert: the same, or its share among those that a token meets", NULL)
ENUM(train.lora.init, "uniform", lora_init_names, TS,      "how A begins; B is 0", NULL)
BOOL(train.lora.bias, "false", TS,                         "a bias behind B, too", NULL)
REAL(train.tower_lr, "null", ABOVE_0, 10, TS,
    "learning rate of the vision tower and its merger, with lr's schedule; null: lr", NULL)
BOOL(train.freeze_tower, "false", TS,
    "leave the vision tower and its merger as they are", ACTOR "freeze_vision_tower")
ENUM(train.recompute, "none", recompute_names, TS,
    "what the backward pass computes again to save memory; full: all but attention",
    MCORE "override_transformer_config.recompute_granularity engine.override_transformer_config.recompute_granularity")
BOOL(train.keep_logits, "false", TS,
    "keep a micro-batch's logits (4 bytes a token and id) for the backward pass: quicker, same bits; not with tp nor "
    "on a GPU in float32", NULL)
ENUM(train.weights, "auto", weights_names, TS,
    "how weights are kept, sampled and trained with: f32, or bf16 with a master in the optimizer; auto: as the device "
    "computes", NULL)
ENUM(train.master, "f32", master_names, TS,
    "the master of bf16 weights: f32, or remainder: the 16 bits that rounding took from each", NULL)
ENUM(train.moments, "f32", moments_names, TS,
    "AdamW's two averages: f32, or bf16, rounded by chance", NULL)
REAL(train.offload_fraction, "0.0", 0, 1, TS,
    "share of the optimizer's state kept in host memory",
    ACTOR "optim.override_optimizer_config.optimizer_offload_fraction "
    "optim.override_optimizer_config.optimizer_offload_fraction "
    ACTOR "optim.override_optimizer_config.offload_fraction optim.override_optimizer_config.offload_fraction")
BOOL(train.park_states, "false", T,
    "the device's share of AdamW's state waits in host memory while answers are sampled, in its place is the KV "
    "cache", NULL)
BOOL(train.park_weights, "false", T,
    "so do the trainer's weights where answers are sampled in another cut, and the sampler's lie where it has "
    "activations", NULL)

STR(reward.scorer, "null", T,                              "scorer for every question; null: by its data_source", NULL)
STR(reward.command, "null", T,
    "your scorer: a command that reads and writes JSON lines", NULL)
STR(reward.library, "null", T,
    "your scorer: a shared library (include/hone_reward.h)", NULL)
STR(reward.python, "null", T,
    "your scorer: a Python file with compute_score(data_source, solution_str, ground_truth, extra_info)",
    "custom_reward_function.path reward.custom_reward_function.path")
STR(reward.python_function, "compute_score", T,            "the function in that file",
    "custom_reward_function.name reward.custom_reward_function.name")
STRS(reward.python_args, "[]", T,
    "further arguments of that function, such as [strict=true]", NULL)
INT(reward.workers, "0", 0, 1024, T,
    "scorers that run at once; 0: as many as threads", "reward_model.num_workers reward.num_workers")
REAL(reward.max_failed_ratio, "0.1", 0, 1, T,
    "a larger share of a batch's answers that cannot be judged ends the run", NULL)
REAL(reward.timeout, "10.0", ABOVE_0, 86400, T,            "seconds until an answer counts as failed", NULL)

INT(trainer.steps, "null", 1, 1e9, TS,
    "steps in all; null: by epochs", "trainer.total_training_steps")
INT(trainer.epochs, "1", 1, 1e6, TS,                       "passes over the data", "trainer.total_epochs")
STR(trainer.run_dir, "null", TS,
    "where the run is written; null: runs/PROJECT/EXPERIMENT", "trainer.default_local_dir")
STR(trainer.project, "hone", TS,                           "name of the project", "trainer.project_name")
STR(trainer.experiment, "run", TS,                         "name of the run", "trainer.experiment_name")
ENUM(trainer.resume, "auto", resume_names, TS,
    "continue the newest checkpoint of run_dir; never: refuse a run_dir that has one", "trainer.resume_mode")
ENUM(trainer.save, "auto", save_names, TS,
    "whether checkpoints are written, when the next options say; never: not even at the end (a run that is only "
    "measured)", NULL)
INT(trainer.save_every, "0", -1, 1e9, TS,
    "checkpoint every so many steps, and at the end; 0: by trainer.save_minutes and at the end", "trainer.save_freq")
REAL(trainer.wait_seconds, "600", 0, 1e9, TS,
    "a rank that waited so long for another gives up, and takes the run down; 0: never", NULL)
REAL(trainer.save_minutes, "30.0", 0, 1e6, TS,
    "checkpoint also when the last one is so many minutes old, after the step under way; 0: not by time", NULL)
INT(trainer.save_buffer, "268435456", 0, 1e15, TS,
    "bytes through which weights and optimizer states are copied while they are written; 0: room for all of them (12 a "
    "parameter), then no update ever waits for a save", NULL)
ENUM(trainer.checkpoint_moments, "f32", saved_names, TS,
    "how checkpoints hold AdamW's two averages: f32 (8 bytes a parameter), bf16 (4; rounded, where train.moments is "
    "f32) or none (they begin anew): what was rounded or left out makes the bytes after a resume others", NULL)
INT(trainer.keep, "2", 1, 1e6, TS,
    "checkpoints kept", "trainer.max_actor_ckpt_to_keep trainer.max_ckpt_to_keep")
INT(trainer.val_every, "0", -1, 1e9, TS,
    "validate every so many steps, and at the end; 0: only at the end", "trainer.test_freq")
BOOL(trainer.val_before_train, "true", TS,
    "validate before the first step, where there are val_files", NULL)
INT(trainer.exact_every, "10", 0, 1e9, T,
    "at step 1 and every so many steps compare all sampled log-probs with the trainer's, also of answers that teach "
    "nothing", NULL)
ENUM(trainer.on_difference, "stop", on_difference_names, T,
    "where the sampler's log-probs are not the trainer's at the same weights: stop before the update, with exit code "
    "3, or warn", NULL)
INT(trainer.samples, "16", 0, 1e9, T,                      "answers per step written to samples.jsonl", NULL)
INT(trainer.tokens_newest, "1000", 0, 1e7, T,
    "newest steps whose answers in samples.jsonl keep every token's id, log-prob, advantage and entropy "
    "(samples_tokens.bin); 0: none", NULL)
INT(trainer.tokens_every, "50", 1, 1e9, T,                 "of the steps before those, every so many keep them", NULL)
INT(trainer.page, "0", 0, 65535, TS,
    "port of a page of this run in a browser of this machine (`hone page`), a process that ends with the run; 0: none",
    NULL)
STR(trainer.alert_command, "null", TS,
    "a shell line that gets a line of JSON on its standard input when something of the run wants eyes; null: log.txt "
    "alone", NULL)
BOOL(trainer.tensorboard, "true", TS,                      "write TensorBoard event files", NULL)
INT(trainer.threads, "0", 0, 256, TS,                     "threads; 0: all cores", NULL)
INT(trainer.seed, "1", 0, 9e15, TS,
    "seed of everything that has none of its own", MCORE "seed")
ENUM(trainer.on_nan, "stop", on_nan_names, TS,
    "numbers that are not finite: stop, or skip that update or answer", NULL)
INT(trainer.leaves, "null", 1, LEAVES_MOST, TS,
    "pieces of the sums that tensor parallelism may cut, a power of two; belongs to the run; null: 8 on the CPU, 1 on "
    "a GPU, but no fewer than tp of both grids", NULL)
STR(trainer.device, "auto", TS,                            "where to compute: auto, cpu, cuda or cuda:N", NULL)
BOOL(trainer.share_gpu, "false", TS,
    "ranks of a machine that are more than its GPUs share the first: to try a grid out, slowly", NULL)
STR(trainer.compute, "null", TS,
    "what a GPU computes in: bf16, or f32 to check; null: bf16", NULL)
STR(trainer.profile, "null", T,
    "a file for a timeline of the ops, which Perfetto opens; null: none.  Times are a little longer with it", NULL)
REAL(trainer.peak_tflops, "null", ABOVE_0, 1e9, TS,
    "peak of one device for MFU; null: a card's by its maker, else measured", NULL)

INT(grid.tp, "1", 1, 4096, TS,
    "tensor parallel ranks",
    MCORE "tensor_model_parallel_size engine.tensor_model_parallel_size " ACTOR "torchtitan.tensor_parallel_size "
    "engine.tensor_parallel_size engine.tp_size engine.tp")
INT(grid.pp, "1", 1, 512, TS,
    "pipeline stages",
    MCORE "pipeline_model_parallel_size engine.pipeline_model_parallel_size "
    ACTOR "torchtitan.pipeline_parallel_size engine.pipeline_parallel_size engine.pp_size engine.pp")
INT(grid.vpp, "1", 1, 64, TS,
    "virtual stages per pipeline rank",
    MCORE "virtual_pipeline_model_parallel_size engine.virtual_pipeline_model_parallel_size engine.vpp")
INT(grid.ep, "1", 1, 4096, TS,
    "expert parallel ranks",
    MCORE "expert_model_parallel_size engine.expert_model_parallel_size " ACTOR "veomni.expert_parallel_size "
    ACTOR "torchtitan.expert_parallel_size engine.expert_parallel_size engine.ep_size engine.ep")
INT(grid.etp, "1", 1, 4096, TS,
    "tensor parallel ranks inside an expert",
    MCORE "expert_tensor_parallel_size engine.expert_tensor_parallel_size engine.etp")
INT(grid.cp, "1", 1, 4096, TS,
    "context parallel ranks",
    MCORE "context_parallel_size engine.context_parallel_size " ACTOR "veomni.ulysses_parallel_size "
    "engine.ulysses_parallel_size " ACTOR "torchtitan.context_parallel_size engine.cp_size engine.cp")
INT(grid.dp, "null", 1, 65536, TS,                         "data parallel ranks; null: what the others leave", NULL)
STR(grid.split, "null", TS,
    "layers of each stage, such as 13x3,9; null: equal shares", NULL)
INT(grid.first_layers, "null", 0, 512, TS,
    "layers of the first stage; null: an equal share",
    MCORE "override_transformer_config.num_layers_in_first_pipeline_stage "
    "engine.override_transformer_config.num_layers_in_first_pipeline_stage")
INT(grid.last_layers, "null", 0, 512, TS,
    "layers of the last stage; null: an equal share",
    MCORE "override_transformer_config.num_layers_in_last_pipeline_stage "
    "engine.override_transformer_config.num_layers_in_last_pipeline_stage")
INT(grid.nodes, "1", 1, 65536, TS,                         "machines", "trainer.nnodes")
INT(grid.gpus_per_node, "1", 1, 1024, TS,                  "processes per machine", "trainer.n_gpus_per_node")
{ 0 } };
/* clang-format on */

_Static_assert(sizeof conf_options / sizeof *conf_options <= CONF_MAX, "CONF_MAX is too small");
