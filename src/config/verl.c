/* verl.c - verl's keys that have no option here: those that mean nothing to hone, and those it cannot do.  The
 * keys that it has under another name stand in the option table; those that are taken with a change in import_rules.c.
 *
 * The rule: a key that cannot change what is learnt has no effect; one that does is refused unless its value is
 * harmless. */
#include "config/table.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ACTOR    "actor_rollout_ref.actor."
#define ROLLOUT  "actor_rollout_ref.rollout."
#define MODEL    "actor_rollout_ref.model."
#define MCORE    ACTOR "megatron."
#define OTC      MCORE "override_transformer_config."
#define TIS      "algorithm.rollout_correction."
#define OVERRIDE ACTOR "optim.override_optimizer_config."
#define OFF      "False null 0 0.0"
#define ASYNC    "asynchronous training is not there yet"

/* clang-format off */
/* A * stands for anything; the first row that fits counts.  harmless NULL: any value. */
static const struct { const char *key, *harmless, *why; } rows[] = {
{ "*.profiler.*",                         NULL, "phases are always timed: metrics.jsonl" },
{ "global_profiler.*",                    NULL, "phases are always timed: metrics.jsonl" },
{ "ray_kwargs.*",                         NULL, "there is no Ray" },
{ "ray_init.*",                           NULL, "there is no Ray" },
{ "transfer_queue.*",                     NULL, "data does not leave the process" },
{ "hydra.*",                              NULL, "there is no Hydra" },
{ "model_engine",                         NULL, "there is one trainer" },
{ "engine",                               NULL, "there is one trainer" },
{ "optim",                                NULL, "there is one optimizer, AdamW" },
{ "model",                                NULL, "the model's config.json says what it is" },
{ "use_remove_padding",                   NULL, "nothing is ever padded" },

{ "data.return_*",                        NULL, "prompts are kept as they are needed" },
{ "data.trust_remote_code",               NULL, "no code of a model is ever run" },
{ "data.*_workers",                       NULL, "data is read by all threads" },
{ "data.use_shm",                         NULL, "files are mapped" },
{ "data.val_batch_size",                  NULL, "validation takes as many at once as fit" },
{ "data.gen_batch_size", NULL,
    "dynamic sampling draws a batch at a time until enough groups are left" },
{ "data.validation_shuffle",              NULL, "the order of validation changes nothing" },
{ "data.image_patch_size",                NULL, "the model's files say it" },
{ "data.*video*",                         NULL, "clips are lists of frames, taken as they are given" },
{ "data.pad_mode",                        NULL, "nothing is ever padded" },
{ "data.use_dynamic_bsz",                 NULL, "sequences are always packed by tokens" },
{ "data.micro_batch_size*",               NULL, "sequences are packed by tokens: train.micro_tokens" },
{ "data.multiturn.enable",                NULL, "sft.messages_key says it" },
{ "data.balance_dp_token",                NULL, "micro-batches are always balanced" },
{ "data.custom_cls.path", "null",
    "a data set class in Python is not run; write its rows as Parquet or JSONL" },
{ "data.custom_cls.name",                 NULL, "goes with data.custom_cls.path" },
{ "data.sampler.*",                       "null", "there is one order: a new permutation every epoch" },
{ "data.datagen.*",                       "null", "data is read from files" },
{ "data.tool_config_path", "null",
    "verl's tools are Python classes, which are not run yet; rollout.tools names those that are built in" },

{ ACTOR "use_dynamic_bsz",                NULL, "sequences are always packed by tokens" },
{ ACTOR "ppo_micro_batch_size*",          NULL, "sequences are packed by tokens: train.micro_tokens" },
{ ACTOR "strategy",                       NULL, "there is one trainer" },
{ ACTOR "use_torch_compile",              NULL, "there is no torch" },
{ ACTOR "checkpoint.*",                   NULL, "a checkpoint holds everything, the model as the hub has it" },
{ ACTOR "*entropy_from_logits_with_chunking", NULL, "entropy is always fused with the head" },
{ ACTOR "*entropy_checkpointing",         NULL, "entropy is always fused with the head" },
{ ACTOR "calculate_entropy",              NULL, "entropy is always reported" },
{ ACTOR "calculate_sum_pi_squared",       NULL, "for a baseline that is not here" },
{ ACTOR "use_prefix_grouper",             NULL, "answers share their prompt's cache" },
{ ACTOR "data_loader_seed",               NULL, "see data.seed" },
{ ACTOR "rollout_n",                      NULL, "see rollout.n" },
{ ACTOR "*router_replay.*", NULL,
    "the sampler's forward is the trainer's: it routes the same by itself" },
{ ACTOR "veomni.*",                       NULL, "how a backend shards; here the grid says it (hone plan)" },
{ ACTOR "torchtitan.*",                   NULL, "how a backend shards; here the grid says it (hone plan)" },
{ ACTOR "model_engine",                   NULL, "there is one trainer" },
{ ACTOR "policy_loss.clip_cov_*",         NULL, "for loss_mode clip_cov, which is not here" },
{ ACTOR "fsdp_config.qat.*",              OFF, "quantised training is not there" },
{ ACTOR "fsdp_config.param_offload",      NULL, "one copy of the weights serves both phases" },
{ ACTOR "fsdp_config.optimizer_offload", NULL,
    "the optimizer's state does not move between phases; see train.offload_fraction" },
{ ACTOR "fsdp_config.*",                  NULL, "how FSDP shards; here the grid says it (hone plan)" },
{ MCORE "qat.*",                          OFF, "quantised training is not there" },
{ MCORE "*_offload", NULL,
    "one copy of the weights serves both phases; see train.offload_fraction" },
{ MCORE "use_mbridge",                    NULL, "checkpoints of the hub are read and written directly" },
{ MCORE "vanilla_mbridge",                NULL, "checkpoints of the hub are read and written directly" },
{ MCORE "*dist_checkpointing*",           NULL, "checkpoints of the hub are read and written directly" },
{ MCORE "sequence_parallel",              NULL, "always, with tensor parallelism" },
{ MCORE "use_distributed_optimizer",      NULL, "the optimizer's state is always sharded" },
{ MCORE "use_megatron_fsdp",              NULL, "the optimizer's state is always sharded" },
{ MCORE "use_remove_padding",             NULL, "nothing is ever padded" },
{ MCORE "dtype", "bfloat16 bf16 null",
    "training in another type than bfloat16 is not asked for this way" },
{ MCORE "override_ddp_config.*",          NULL, "gradients are reduced in one way" },
{ MCORE "forward_only",                   NULL, "not the actor's" },
{ OTC "recompute_method",                 NULL, "a layer at a time" },
{ OTC "recompute_num_layers",             NULL, "a layer at a time" },
{ OTC "recompute_modules",                NULL, "train.recompute: selective has its own list" },
{ OTC "moe_aux_loss_coeff", OFF,
    "no auxiliary loss is added: routing is trained by the reward alone; leave it out or set it to 0" },
{ OTC "moe_z_loss_coeff", OFF,
    "no auxiliary loss is added: routing is trained by the reward alone; leave it out or set it to 0" },
{ OTC "moe_expert_capacity_factor",       OFF, "no token is ever dropped" },
{ OTC "moe_router_load_balancing_type",   "none aux_loss null", "no auxiliary loss is added" },
{ OTC "moe_router_bias_update_rate",      OFF, "router biases stay as they are" },
{ OTC "moe_router_enable_expert_bias",    NULL, "the model's config says it" },
{ OTC "fp8*",                             OFF, "training in FP8 is not there" },
{ OTC "*dropout",                         OFF, "there is no dropout" },
{ OTC "moe_*",                            NULL, "one way to route and dispatch, with the same results" },
{ OTC "*fus*",                            NULL, "kernels are fused as they are, with the same results" },
{ OTC "*flash*",                          NULL, "kernels are fused as they are, with the same results" },
{ OTC "attention_backend",                NULL, "there is one attention" },
{ OTC "persist_layer_norm",               NULL, "kernels are fused as they are, with the same results" },
{ OTC "use_naive_l2norm",                 NULL, "kernels are fused as they are, with the same results" },
{ OTC "deallocate_pipeline_outputs",      NULL, "arenas own memory" },
{ OTC "use_arbitrary_attention_mask",     OFF, "attention is causal" },
{ OTC "*_parallel*",                      NULL, "the grid says it" },
{ OTC "use_distributed_optimizer",        NULL, "the optimizer's state is always sharded" },
{ OTC "multi_latent_attention",           NULL, "the model's config says it" },
{ OTC "normalization",                    NULL, "the model's config says it" },
{ OTC "swiglu",                           NULL, "the model's config says it" },
{ "*optim.optimizer*",
    "adam AdamW adamw FusedAdam torch.optim transformer_engine.pytorch.optimizers.fused_adam null",
    "there is one optimizer, AdamW" },
{ "*optim.total_training_steps",     "-1 null", "trainer.steps says it" },
{ "*optim.lr_warmup_init",           OFF, "warm-up begins at 0" },
{ "*optim.init_lr_ratio",            OFF, "warm-up begins at 0" },
{ "*optim.wd_incr_style",            "constant null", "the decay does not change" },
{ "*optim.zero_indexed_step",        NULL, "the first step has the first rate of the schedule" },
{ "*optim.master_weight*",           NULL, "a master in float32 is always kept" },
{ "*optim.store_param_remainders",   NULL, "a float32 master with the same bits; see train.master: remainder" },
{ "*optim.main_grads_dtype",         NULL, "gradients are summed in float32" },
{ "*optim.use_precision_aware_optimizer", NULL, "train.moments and train.master say how states are kept" },
{ "*optim.use_layer_wise_distributed_optimizer", NULL, "the optimizer's state is always sharded" },
{ "*optim.muon_*",                   NULL, "goes with the optimizer muon" },
{ "*optim.weight_decay_incr_style",  "constant null", "the decay does not change" },
{ "*optim.num_cycles",               "0.5 null", "a cosine goes down once" },
{ "*optim.lr_wsd_decay_style",       "linear null", "wsd decays on a line" },
{ "*optim.use_checkpoint_opt_param_scheduler", NULL, "the rate is a function of the step" },
{ OVERRIDE "optimizer",              "adam null", "there is one optimizer, AdamW" },
{ OVERRIDE "decoupled_weight_decay", "True null", "the decay is decoupled, as AdamW's is" },
{ OVERRIDE "overlap_*",              NULL, "how the optimizer moves its state; see train.offload_fraction" },
{ OVERRIDE "*cpu_*",                 NULL, "how the optimizer moves its state; see train.offload_fraction" },
{ OVERRIDE "pin_*",                  NULL, "how the optimizer moves its state; see train.offload_fraction" },
{ OVERRIDE "use_precision_aware_optimizer", NULL, "train.moments and train.master say how states are kept" },
{ OVERRIDE "store_param_remainders", NULL, "a float32 master with the same bits; see train.master: remainder" },
{ OVERRIDE "main_*_dtype",           NULL, "gradients are summed, and the master kept, in float32" },
{ OVERRIDE "params_dtype",           NULL, "train.weights says it" },
{ OVERRIDE "bf16",                   NULL, "train.weights says it" },
{ OVERRIDE "fp16",                   OFF, "training in float16 is not there" },
{ OVERRIDE "*loss_scale*",           NULL, "there is no loss scale: bfloat16 and float32 have float32's range" },
{ OVERRIDE "use_distributed_optimizer", NULL, "the optimizer's state is always sharded" },
{ OVERRIDE "fp8*",                   NULL, "training in FP8 is not there" },
{ OVERRIDE "log_*",                  NULL, "phases are always timed: metrics.jsonl" },
{ OVERRIDE "timers",                 NULL, "phases are always timed: metrics.jsonl" },
{ OVERRIDE "barrier_with_L1_time",   NULL, "phases are always timed: metrics.jsonl" },
{ OVERRIDE "muon_*",                 NULL, "goes with the optimizer muon" },
{ OVERRIDE "*",                      "null", "this part of Megatron's optimizer has no counterpart" },

{ "actor_rollout_ref.ref.model.*",        "null", "the reference is the model that training begins with" },
{ "actor_rollout_ref.ref.log_prob_*",     NULL, "packed as the update is: train.micro_tokens" },
{ "actor_rollout_ref.ref.*",              NULL, "the reference is laid out as the actor is" },

{ ROLLOUT "name",                         NULL, "there is one rollout engine" },
{ ROLLOUT "mode",                         NULL, "there is one rollout engine" },
{ ROLLOUT "gpu_memory_utilization",       NULL, "the planner sizes the cache; see rollout.kv_bytes" },
{ ROLLOUT "enforce_eager",                NULL, "there are no graphs to switch off" },
{ ROLLOUT "cudagraph*",                   NULL, "there are no graphs to switch off" },
{ ROLLOUT "free_cache_engine",            NULL, "the cache's memory is planned" },
{ ROLLOUT "enable_sleep_mode",            NULL, "the cache's memory is planned" },
{ ROLLOUT "multi_stage_wake_up",          NULL, "the cache's memory is planned" },
{ ROLLOUT "enable_chunked_prefill",       NULL, "prefill is always in chunks: rollout.token_budget" },
{ ROLLOUT "enable_prefix_caching",        NULL, "prefixes are always shared, with the same results" },
{ ROLLOUT "calculate_log_probs",          NULL, "the sampler always writes the log-probs" },
{ ROLLOUT "logprobs_mode",                NULL, "log-probs are those of the distribution that was sampled" },
{ ROLLOUT "val_kwargs.do_sample",         NULL, "validation is greedy when rollout.val.temperature is 0" },
{ ROLLOUT "do_sample",                    "True", "training samples" },
{ ROLLOUT "log_prob_*",                   NULL, "there is no second log-prob pass" },
{ ROLLOUT "load_format",                  NULL, "the engine reads the trainer's weights" },
{ ROLLOUT "layered_summon",               NULL, "the engine reads the trainer's weights" },
{ ROLLOUT "checkpoint_engine.*",          NULL, "the engine reads the trainer's weights" },
{ ROLLOUT "layer_name_map.*",             NULL, "the engine reads the trainer's weights" },
{ ROLLOUT "max_model_len",                NULL, "prompt and answer say it" },
{ ROLLOUT "prompt_length",                NULL, "data.max_prompt_length says it" },
{ ROLLOUT "dtype",                        NULL, "the sampler's numbers are the trainer's" },
{ ROLLOUT "scheduling_policy",            NULL, "results do not hang on the order" },
{ ROLLOUT "engine_kwargs.*",              NULL, "for another engine" },
{ ROLLOUT "skip_tokenizer_init",          NULL, "there is one tokenizer" },
{ ROLLOUT "disable_log_stats",            NULL, "metrics.jsonl has it" },
{ ROLLOUT "prometheus.*",                 NULL, "metrics.jsonl has it" },
{ ROLLOUT "trace.*",                      NULL, "samples.jsonl has it" },
{ ROLLOUT "skip_*",                       OFF, "every step samples" },
{ ROLLOUT "moe_tensor_parallel_size",     NULL, "rollout.grid says it" },
{ ROLLOUT "limit_images",                 NULL, "what fits the prompt" },
{ ROLLOUT "enable_rollout_routing_replay", NULL,
    "the sampler's forward is the trainer's: it routes the same by itself" },
{ ROLLOUT "multi_turn.enable", OFF,
    "set rollout.tools, rollout.max_turns and rollout.max_reply (docs/tools.md) instead" },
{ ROLLOUT "multi_turn.*_path", "null",
    "verl's tools are Python classes, which are not run yet; rollout.tools names those that are built in" },
{ ROLLOUT "multi_turn.*",                 NULL, "goes with tools" },
{ ROLLOUT "agent.num_workers",            NULL, "one engine runs all answers" },
{ ROLLOUT "agent.default_agent_loop", "single_turn_agent null",
    "an agent loop is Python, which is not run; rollout.tools calls tools in a loop of its own" },
{ ROLLOUT "agent.*", "null",
    "an agent loop is Python, which is not run; rollout.tools calls tools in a loop of its own" },
{ ROLLOUT "over_sample_rate",             OFF, "every answer counts" },
{ ROLLOUT "quantization*",                "null", "the sampler's numbers are the trainer's" },
{ ROLLOUT "nnodes",                       "0 null", "rollout and training share the machines" },
{ ROLLOUT "n_gpus_per_node",              NULL, "rollout and training share the machines" },
{ ROLLOUT "repetition_penalty",           "1 1.0", "answers are drawn from the model's own distribution" },

{ MODEL "use_remove_padding",             NULL, "nothing is ever padded" },
{ MODEL "*fused_kernel*",                 NULL, "log-probs are always fused with the head" },
{ MODEL "enable_gradient_checkpointing",  NULL, "see train.recompute" },
{ MODEL "enable_activation_offload",      NULL, "see train.recompute" },
{ MODEL "trust_remote_code",              NULL, "no code of a model is ever run" },
{ MODEL "use_shm",                        NULL, "weights are mapped" },
{ MODEL "use_liger",                      NULL, "kernels are fused as they are" },
{ MODEL "tiled_mlp.*",                    NULL, "train.micro_tokens bounds memory" },
{ MODEL "torch_dtype",                    NULL, "there is no torch" },
{ MODEL "external_lib",                   "null", "no code of a model is ever run" },
{ MODEL "hf_config_path",                 "null", "the model's folder has its config.json" },
{ MODEL "lora.type",                      "lora canonical_lora", "another kind of adapter is not there" },
{ MODEL "lora.*_modules",                 "null []", "fused maps (linear_qkv ...) are none here: train.lora.targets" },
{ MODEL "lora*",                          NULL, "sampling has the trainer's adapter as it is" },
{ MODEL "target_parameters",              "null []",
    "experts are targets by their linear maps' names: train.lora.targets" },
{ MODEL "mtp.enable*",                    OFF, "multi-token prediction is left out" },
{ MODEL "mtp.*",                          NULL, "goes with multi-token prediction, which is left out" },
{ MODEL "override_config.*max_position_embeddings", NULL,
    "prompt and answer say how long; the model's context must hold them" },
{ MODEL "override_config.*pdrop",         OFF, "there is no dropout" },
{ MODEL "override_config.*dropout",       OFF, "there is no dropout" },
{ MODEL "override_config.*attn_implementation", NULL, "there is one attention" },
{ MODEL "override_config.*freeze_moe_router", OFF, "all of the model is trained" },
{ "actor_rollout_ref.hybrid_engine",      NULL, "training and rollout always share the process" },
{ "actor_rollout_ref.nccl_timeout",       NULL, "every wait has a deadline of its own" },

{ TIS "loss_type",                        "ppo_clip null", "the loss is train.loss" },
{ TIS "*", NULL,
    "the sampler's log-probs are the trainer's, bit for bit: weights are 1, nothing is rejected" },
{ "algorithm.use_pf_ppo",                 OFF, "answers are not drawn again by their reward" },
{ "algorithm.pf_ppo.*",                   NULL, "goes with use_pf_ppo" },

{ "reward_model.model.*",                 NULL, "goes with reward_model.enable" },
{ "reward_model.enable", OFF,
    "a model that judges is not there yet; a scorer may ask one: reward.command" },
{ "reward.reward_model.enable", OFF,
    "a model that judges is not there yet; a scorer may ask one: reward.command" },
{ "reward.reward_model.*",                NULL, "goes with reward.reward_model.enable" },
{ "reward_model.rollout.*",               NULL, "goes with reward_model.enable" },
{ "reward*.sandbox_fusion.url",           "null", "code is not run; a scorer may run it: reward.command" },
{ "reward*.sandbox_fusion.*",             NULL, "goes with sandbox_fusion.url" },
{ "reward*overlong_buffer*.log",          NULL, "the penalty is always in the metrics" },
{ "reward_model.use_reward_loop",         NULL, "answers are always judged while others are drawn" },
{ "reward_model.launch_reward_fn_async",  NULL, "answers are always judged while others are drawn" },
{ "reward_model.reward_loop_*",           "null register", "a reward manager in Python is not run; see reward.python" },
{ "reward_manager.*", "register null naive dapo",
    "a reward manager in Python is not run; see reward.python" },
{ "reward_model.strategy",                NULL, "goes with reward_model.enable" },
{ "reward_model.*batch_size*",            NULL, "goes with reward_model.enable" },
{ "reward_model.enable_resource_pool",    NULL, "goes with reward_model.enable" },
{ "reward_model.n*",                      NULL, "goes with reward_model.enable" },

{ "trainer.logger",                       NULL, "every run writes a log, metrics.jsonl and TensorBoard files" },
{ "trainer.critic_warmup",                NULL, "there is no critic" },
{ "trainer.max_critic_ckpt_to_keep",      NULL, "there is no critic" },
{ "trainer.balance_batch",                NULL, "micro-batches are always balanced, inside their mini-batch" },
{ "trainer.log_val_generations",          NULL, "samples.jsonl has answers of every step: trainer.samples" },
{ "trainer.rollout_data_dir",             NULL, "samples.jsonl has answers of every step: trainer.samples" },
{ "trainer.validation_data_dir",          NULL, "samples.jsonl has answers of every step: trainer.samples" },
{ "trainer.default_hdfs_dir",             NULL, "checkpoints are files" },
{ "trainer.device",                       NULL, "the program is built for its device" },
{ "trainer.use_legacy_worker_impl",       NULL, "there is one trainer" },
{ "trainer.use_v1",                       NULL, "there is one trainer" },
{ "trainer.v1.trainer_mode",              "sync null", ASYNC },
{ "trainer.v1.*",                         NULL, "goes with trainer.v1.trainer_mode" },
{ "trainer.esi_redundant_time",           NULL, "a run may be killed anywhere" },
{ "trainer.del_local_ckpt_after_load",    NULL, "trainer.keep says how many stay" },
{ "trainer.remove_previous_ckpt_in_save", NULL, "trainer.keep says how many stay" },
{ "trainer.ray_wait_register_center_timeout", NULL, "there is no Ray" },
{ "checkpoint.*",                         NULL, "a checkpoint holds everything, the model as the hub has it" },
{ "data.ignore_input_ids_mismatch",       NULL, "a conversation is rendered as a whole" },
{ "trainer.checkpoint.*",                 NULL, "a checkpoint holds everything, the model as the hub has it" },
{ "trainer.tensorboard_dir",              NULL, "TensorBoard files lie in the run directory" },
{ "trainer.val_only",                     OFF, "to validate only, run `hone eval MODEL FILE`" },
{ "trainer.resume_from_path", "null",
    "verl's optimizer state is not read: start from its model (model.path=.../actor/huggingface)" },

{ "engine.*_offload", NULL,
    "one copy of the weights serves both phases; see train.offload_fraction" },
{ "engine.enable_fp8",                    OFF, "training in FP8 is not there" },
{ "engine.qat.*",                         OFF, "quantised training is not there" },
{ "engine.dtype", "bfloat16 bf16 float32 fp32 null",
    "training in another type than bfloat16 is not asked for this way" },
{ "engine.*",                             NULL, "how a backend shards; here the grid says it (hone plan)" },
{ "model.lora*",                          NULL, "sampling has the trainer's adapter as it is" },
{ "model.strategy",                       NULL, "there is one trainer" },
{ "model.trust_remote_code",              NULL, "no code of a model is ever run" },
{ "model.use_*",                          NULL, "kernels are as they are, with the same results" },
{ "model.fsdp_config.*",                  NULL, "how FSDP shards; here the grid says it (hone plan)" },
{ "model.enable_gradient_checkpointing",  NULL, "see train.recompute" },
{ "model.mtp.enable*",                    OFF, "multi-token prediction is left out" },
{ "model.mtp.*",                          NULL, "goes with multi-token prediction, which is left out" },

{ "critic.enable",                        OFF, "a critic is not there yet" },
{ "critic.*",                             NULL, "there is no critic" },
{ "async_training.*",                     "", ASYNC },
{ "rollout.nnodes",                       "", ASYNC },
{ "rollout.n_gpus_per_node",              "", ASYNC },
{ "rollout.total_rollout_steps",          "", ASYNC },
{ "distillation.enabled",                 OFF, "distillation is not there" },
{ "distillation.*",                       NULL, "goes with distillation.enabled" },
};
/* clang-format on */

/* Is the text one of the blank-separated words, in whatever case, or the same number?  Nothing is null; an empty
 * list has none. */
static bool one_of(const char *list, const char *text) {
    if (!*text) text = "null";
    size_t n = strlen(text);
    char *end, *own;
    double x = strtod(text, &end);
    for (const char *p = list; *p;) {
        size_t len = strcspn(p, " ");
        double y = strtod(p, &own);
        if ((len == n && !strncasecmp(p, text, n)) || (!*end && own == p + len && x == y)) return true;
        p += len;
        p += strspn(p, " ");
    }
    return false;
}

/* The keys of verl's SFT trainer that mean what the actor's do. */
static const struct {
    const char *sft, *actor;
} SAME[] = {
    { "engine.override_transformer_config.", OTC },
    { "optim.override_optimizer_config.", OVERRIDE },
};

ConfFate conf_verl(const char *key, const char *value, const char **why) {
    char actor[256];
    for (size_t i = 0; i < COUNT(SAME); i++)
        if (!strncmp(key, SAME[i].sft, strlen(SAME[i].sft))) {
            snprintf(actor, sizeof actor, "%s%s", SAME[i].actor, key + strlen(SAME[i].sft));
            key = actor;
        }
    for (size_t i = 0; i < COUNT(rows); i++) {
        if (fnmatch(rows[i].key, key, 0)) continue;
        *why = rows[i].why;
        return !rows[i].harmless || one_of(rows[i].harmless, value) ? CONF_GONE : CONF_REFUSED;
    }
    return CONF_UNKNOWN;
}

bool conf_verl_section(const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < COUNT(rows); i++)
        if (!strncmp(rows[i].key, name, n) && rows[i].key[n] == '.') return true;
    return false;
}
