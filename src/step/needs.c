/* needs.c - one list for all who ask: a part that is forgotten here is forgotten nowhere else. */
#include "step/needs.h"
#include "step/evaluate.h"
#include "step/flat.h"

static size_t most(size_t a, size_t b) { return a > b ? a : b; }

/* Sizes that a configuration may make absurd: more than any machine has, but never a small number by overflow. */
static const size_t ABSURD = (size_t)1 << 60;
static size_t times(size_t a, size_t b) {
    size_t x;
    return __builtin_mul_overflow(a, b, &x) || x > ABSURD ? ABSURD : x;
}

DType run_weights_dtype(const RunShape *s) { return s->m->adapter ? s->base : s->policy.states.weights; }

/* The trainer's, and the sampler's where it is cut otherwise. */
static size_t adapter_bytes(const RunShape *s) {
    const ModelDesc *a = s->m->adapter;
    if (!a) return 0;
    return params_bytes(a, s->shard, DT_F32, false)
           + (s->sampler ? params_bytes_beside(a, s->sampler, s->shard, DT_F32) : 0);
}

size_t run_scratch_bytes(const RunShape *s) {
    size_t tmp = policy_sizes(s->m, s->shard, &s->policy, s->like).tmp;
    if (s->has_reference) tmp = most(tmp, policy_sizes(s->m, s->shard, &s->reference, s->like).tmp);
    return s->rolls ? most(tmp, engine_tmp_bytes(s->m, &s->engine, s->like)) : tmp;
}

/* What is opened for answers, where nothing is taken. */
static bool absurd(double questions, double answers, const RunShape *s) {
    return questions * answers * ((double)s->max_prompt + s->max_answer) > 0x1p40;
}
static size_t answers_bytes(const RunShape *s) {
    if (absurd(s->questions, s->answers, s)) return ABSURD;
    Mem mem = { .counted = true };
    Rollouts answers, greedy;
    Flat flat;
    rollouts_open(&answers, s->questions, s->answers, s->max_prompt, s->max_answer, &mem);
    if (s->mask) rollouts_mask(&answers, &mem);
    if (s->greedy) rollouts_open(&greedy, s->questions, 1, s->max_prompt, s->max_answer, &mem);
    flat_open(&flat, s->questions * s->answers, s->max_answer, &mem);
    size_t bytes = mem.asked;
    mem_free(&mem);
    return bytes;
}

static int validated_at_once(const RunShape *s) { return s->val_questions ? evaluator_block(s->val_questions) : 0; }
static size_t validation_bytes(const RunShape *s) {
    if (!s->val_questions) return 0;
    if (absurd(validated_at_once(s), s->val_answers, s)) return ABSURD;
    Mem mem = { .counted = true };
    Evaluator e;
    evaluator_open(&e, s->val_questions, s->val_answers, s->max_prompt, s->max_answer, &mem);
    size_t bytes = mem.asked;
    mem_free(&mem);
    return bytes;
}

bool run_offloads(const RunShape *s) {
    return s->policy.park_weights && s->sampler
           && params_bytes_beside(s->m, s->sampler, s->shard, run_weights_dtype(s)) > 0;
}

/* The sampler's weights: beside the trainer's, those that are cut otherwise; where the trainer's are parked, all. */
static size_t rollout_weights(const RunShape *s) {
    DType t = run_weights_dtype(s);
    if (!s->sampler) return 0;
    return run_offloads(s) ? params_bytes(s->m, s->sampler, t, false)
                           : params_bytes_beside(s->m, s->sampler, s->shard, t);
}

size_t run_room(const RunShape *s) {
    size_t kv = s->rolls ? cache_bytes(s->m, &s->engine, s->like) : 0;
    size_t reference = s->has_reference && !s->m->adapter ? params_bytes(s->m, s->shard, s->reference_dtype, false) : 0;
    size_t own = rollout_weights(s);
    if (!run_offloads(s)) return most(own + kv, reference);
    size_t trainer = params_bytes(s->m, s->shard, run_weights_dtype(s), false);
    return arena_round(most(own + kv, trainer + most(own, reference)));
}

int run_needs(Need out[MOST_NEEDS], const RunShape *s) {
    PolicyConf policy = s->policy;
    policy.room = run_room(s), policy.park_weights = run_offloads(s);
    PolicySizes z = policy_sizes(s->m, s->shard, &policy, s->like), ref = { 0 };
    size_t own = rollout_weights(s);
    size_t beside =
        (z.shares ? z.grads : 0) + z.offloaded + z.weights; /* of the block, in an update, beside activations */
    bool update = z.block > policy.room; /* the largest that happens in it: answers are sampled, then trained on */
    size_t reference = 0;
    if (s->has_reference) {
        ref = policy_sizes(s->m, s->shard, &s->reference, s->like);
        reference = s->m->adapter ? 0 : params_bytes(s->m, s->shard, s->reference_dtype, false);
    }
    EngineSizes engine = s->rolls ? engine_sizes(s->m, &s->engine, s->like) : (EngineSizes){ 0 };
    const Need all[MOST_NEEDS] = {
        [NEED_WEIGHTS] = { "weights",
                           update || !z.weights ? params_bytes(s->m, s->shard, run_weights_dtype(s), false) : 0 },
        [NEED_ADAPTER] = { "adapter", adapter_bytes(s) },
        [NEED_ROLLOUT_WEIGHTS] = { "rollout weights", update ? 0 : own },
        [NEED_SYNC_BUFFER] = { "sync buffer", s->sync_buffer },
        [NEED_REFERENCE] = { "reference", reference,
                             .host = true }, /* between its passes; in them it lies where activations do */
        [NEED_GRADIENTS] = { "gradients", update || !z.shares ? z.grads : 0 },
        [NEED_OPTIMIZER] = { "optimizer", update || !z.offloaded ? z.optim_dev : 0 },
        [NEED_OPTIMIZER_HOST] = { "optimizer (host)", z.optim_host, .host = s->like.ops->link != NULL },
        [NEED_OFFLOADED_STATES] = { "parked states", z.offloaded, .host = true },
        [NEED_OFFLOADED_WEIGHTS] = { "parked weights", z.weights, .host = true },
        [NEED_ACTIVATIONS] = { "activations", update ? z.block - beside : 0 },
        [NEED_KV] = { "kv", update ? 0 : z.block - own },
        [NEED_SCRATCH] = { "scratch", run_scratch_bytes(s) },
        [NEED_DECODE_STEPS] = { "decode steps", engine.lists },
        [NEED_PICTURES] = { "pictures", engine.pictures },
        [NEED_PIXELS] = { "pixels", times(s->pixels, (size_t)(s->questions + validated_at_once(s))), .host = true },
        [NEED_MICRO_BATCHES] = { "micro-batches", z.io + ref.io },
        [NEED_ROLLOUT_LISTS] = { "rollout lists", engine.host, .host = true },
        [NEED_ANSWERS] = { "answers", s->rolls ? answers_bytes(s) : 0, .host = true },
        [NEED_KEPT_SETS] = { "kept sets",
                             s->rolls ? times(s->kept, times((size_t)s->questions, (size_t)s->answers)) : 0,
                             .host = true },
        [NEED_VALIDATION] = { "validation", s->rolls ? validation_bytes(s) : 0, .host = true },
        [NEED_PACKING] = { "packing", z.host + z.sort + ref.host + ref.sort, .host = true },
        [NEED_CHECKPOINT_BUFFER] = { "checkpoint buffer",
                                     checkpoint_bytes(arch_trained(s->m), s->shard, s->save_buffer, s->save_moments),
                                     .host = true },
        [NEED_SMALL_FILES] = { "small files", s->carried, .host = true },
        [NEED_LOADING] = { "loading", params_load_bytes(s->threads), .host = true },
    };
    int n = 0;
    for (int i = 0; i < MOST_NEEDS; i++)
        if (all[i].bytes) out[n] = all[i], out[n++].id = i;
    return n;
}

size_t needs_sum(const Need *need, int n, bool host) {
    size_t sum = 0;
    for (int i = 0; i < n; i++)
        if (!host || need[i].host) sum = sum > ABSURD || need[i].bytes > ABSURD ? ABSURD : sum + need[i].bytes;
    return sum;
}

size_t needs_device(const Need *need, int n) {
    size_t sum = (size_t)1 << 20;
    for (int i = 0; i < n; i++)
        if (!need[i].host) sum = sum > ABSURD || need[i].bytes > ABSURD ? ABSURD : sum + need[i].bytes + 4096;
    return sum;
}
