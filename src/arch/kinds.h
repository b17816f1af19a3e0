/* kinds.h - the few ways in which models differ in kind, not in number. */
#ifndef ARCH_KINDS_H
#define ARCH_KINDS_H

#include <stdint.h>

typedef enum { ROUTE_NONE, ROUTE_SOFTMAX, ROUTE_SIGMOID } RouteKind;
typedef enum { ROPE_DEFAULT, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_SECTIONS, ROPE_LONG } RopeKind;

/* What a decoder layer is made of: how its tokens see each other (layer/mixer.h, cut/mixer.h), and what each then goes
 * through alone. */
typedef enum { MIXER_GQA, MIXER_MLA, MIXER_DELTA, MIXERS } MixerKind;
typedef enum { FFN_DENSE, FFN_EXPERTS } FfnKind;
typedef struct { uint8_t mixer, ffn, still; } LayerSpec;            /* still: positions turn nothing here */

/* How a layer remembers the tokens of a sequence before the next one comes (engine/cache.h). */
typedef enum { STORE_PAGES, STORE_STATE, STORES } StoreKind;

#endif
