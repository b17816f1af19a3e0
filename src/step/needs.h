/* needs.h - the memory of a run, part by part, before any of it is taken: what `hone plan` shows, the start of a run
 * checks, and the summary holds against the process's peak. */
#ifndef STEP_NEEDS_H
#define STEP_NEEDS_H

#include "model/open.h"
#include "engine/engine.h"
#include "train/checkpoint.h"

typedef struct {
    const ModelDesc *m;
    const Shard *shard;                     /* the rank whose memory it is; NULL: there is one */
    const Shard *sampler;                   /* its part where answers are sampled; NULL: the same, in the same memory */
    size_t     sync_buffer;
    DevKind    like;
    int        threads;
    PolicyConf policy, reference;
    bool       has_reference, rolls;        /* rolls: answers are sampled (not in sft) */
    DType      reference_dtype, base;           /* base: of weights that an adapter is added to */
    EngineConf engine;
    int        questions, answers, max_prompt, max_answer;      /* of a step; answers to each */
    bool       mask, greedy;                          /* one more answer to each: ReMax */
    size_t     kept;                            /* bytes of an answer's kept sets */
    size_t     pixels;                          /* bytes of the pictures of one question, on the host */
    int64_t    val_questions;
    int        val_answers;
    int64_t    save_buffer;                     /* as checkpoint_bytes wants it */
    SavedMoments save_moments;
    size_t     carried;                         /* bytes of the model's small files, which the first rank keeps */
} RunShape;

/* Need.id; of activations and kv, which lie in one place, the larger is there */
enum {
    NEED_WEIGHTS, NEED_ADAPTER, NEED_ROLLOUT_WEIGHTS, NEED_SYNC_BUFFER, NEED_REFERENCE, NEED_GRADIENTS, NEED_OPTIMIZER,
    NEED_OPTIMIZER_HOST, NEED_OFFLOADED_STATES, NEED_OFFLOADED_WEIGHTS, NEED_ACTIVATIONS, NEED_KV, NEED_SCRATCH,
    NEED_DECODE_STEPS, NEED_PICTURES, NEED_PIXELS, NEED_MICRO_BATCHES, NEED_ROLLOUT_LISTS, NEED_ANSWERS,
    NEED_KEPT_SETS, NEED_VALIDATION, NEED_PACKING, NEED_CHECKPOINT_BUFFER, NEED_SMALL_FILES, NEED_LOADING, MOST_NEEDS
};
int    run_needs(Need out[MOST_NEEDS], const RunShape *s);      /* how many; none is 0 */
size_t needs_sum(const Need *need, int n, bool host);           /* host: only the machine's own; absurd
                                                                 * parts make an absurd sum */
size_t needs_device(const Need *need, int n);                   /* only the device's, with room for the
                                                                 * borders between its parts */
DType  run_weights_dtype(const RunShape *s);                    /* of the model's matrices */
/* PolicyConf.room: what the sampler's own weights and the cache, and the reference in its passes, take; with parked
 * weights all of the sampler's, beside the trainer's in sync. */
size_t run_room(const RunShape *s);
/* Do the trainer's weights wait on the host while answers are sampled?  As policy.park_weights asks, where the
 * sampler's are others. */
bool   run_offloads(const RunShape *s);
size_t run_scratch_bytes(const RunShape *s);                    /* dev.tmp: what the largest user of it takes */

#endif
