/* arena.h - what hone's own layers keep from forward to backward, as a list of tensors per layer.
 *
 * For planning without running: the activation arena of one process to the byte (a test holds it against the peak of
 * the model itself), and bytes per token for clusters.  A process that is about to run asks model_sizes() instead,
 * which runs the model's own code on a device that computes nothing. */
#ifndef PLAN_ARENA_H
#define PLAN_ARENA_H

#include "arch/arch.h"

/* One kept tensor: elements per token, elements that do not depend on tokens; wide: 32 bits even where activations
 * have 16; stays: even where all is recomputed; came: rows of the own experts, which come from other ranks where
 * experts are spread over several.  gpu: of the layers as they run there. */
typedef struct { double per_token; int64_t fixed; bool cheap, wide, stays, came; } KeptTensor;
enum { MOST_KEPT = 40 };
int arena_layer(const ModelDesc *m, int layer, bool gpu, KeptTensor out[MOST_KEPT]);

/* The peak of the activation arena: 'outputs' of the tokens want a log-prob. */
size_t arena_act_bytes(const ModelDesc *m, Recompute mode, int64_t tokens, int64_t outputs);

/* Bytes per token of one layer; came: those of its tensors that come; element: bytes of an activation. */
typedef struct { double all, came; } LayerKept;
LayerKept arena_layer_bytes(const ModelDesc *m, int layer, Recompute mode, bool gpu, double element);

/* Bytes per patch of a picture that the vision tower keeps. */
double arena_tower_bytes(const Dims *d, Recompute mode, double element);

#endif
