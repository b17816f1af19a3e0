/* picture.h - pictures as a model of the Qwen2.5-VL kind takes them: where their tokens
 * stand, and what the vision tower is given.
 *
 * A picture's tokens are known by their place in the prompt, never by their id: what a model writes itself
 * is text, whatever its id.  The tower's rows are in the order of its windows (image, frame, window, then
 * reading order inside), blocks of merge x merge patches together, so that its attention runs over
 * neighbours; 'from' brings its results to their tokens. */
#ifndef MODEL_PICTURE_H
#define MODEL_PICTURE_H

#include "arch/arch.h"
#include "image/picture.h"
#include "op/op.h"

static inline int picture_tokens(const Picture *p, const Dims *d) {
    return (int)grid_tokens(p->grid, (int)d->vis.merge);
}

/* ---- positions: three a token (time, row, column).  For pictures all programs agree; for clips hardly two do. */
typedef struct { bool whole_seconds, behind_side, seconds_known; } ClipRule;
static const ClipRule CLIP_RULE = { false, false, true };              /* int(a * per_second * seconds), then
                                                                        * behind the largest position */
bool clip_rule_named(ClipRule *out, const char *program);             /* "transformers 5.17.0", "vllm", ... */
/* Of n tokens; a token behind them, number i, has position i + what is returned, on all three. */
int  picture_positions(int32_t (*pos)[3], int n, Spans pics, const Dims *d, ClipRule rule);

/* ---- what the tower is given, on the device.  Equal pictures (one address, or one name) are there once. */
typedef struct {
    int64_t patches, tokens;
    Tensor  pixels, pos;               /* [patches, vis.pixels]; [patches,2] DT_I32: row and column */
    Seqs    windows, frames;           /* segments of patches that see each other */
    Tensor  feats;                     /* [tokens,H]: its results, where they were made before; else none */
    Tensor  from;                      /* [T,1] DT_I32: which of its results a token is;
                                        * 'tokens': none.  No tensor: nobody has pictures */
} Pictures;

/* longest: patches of a frame */
typedef struct { int64_t patches, tokens; int windows, frames, longest; } PicturesShape;
void   pictures_add(PicturesShape *s, const Picture *p, const Dims *d);
size_t pictures_bytes(const PicturesShape *s, int64_t batch_tokens, const Dims *d);           /* of the arena */
/* All of n pictures, each once; 'from' is not made here. */
void   pictures_put(Pictures *out, Dev *dev, Arena *a, const Picture *const *pics, int n, const Dims *d);
/* Row of its results (in the tower's order) that holds token k of a picture: order[k], k = 0 .. picture_tokens - 1. */
void   picture_order(int32_t *order, const Picture *p, const Dims *d);

#endif
