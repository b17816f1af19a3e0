/* pixels.h - a picture -> what a vision tower of the Qwen2-VL kind reads: its size by the processor's rules, resampled
 * to that, and cut into patches.  Pixels stay whole numbers 0..255; pixels_table gives the number that each stands for,
 * which is exact in every precision, at a quarter of the bytes of float32.
 *
 * Three roads are in use, and they do not agree:
 *   verl   qwen_vl_utils: its own rule for the size, Pillow's bicubic.  The processor behind it then finds
 *          nothing left to do unless its limits are narrower, in which case the picture is resampled again.
 *          What models trained with verl see.
 *   slow   transformers' slow processor: Pillow (before 13)
 *   fast   transformers' fast processor, torch's uint8 bicubic on a CPU: weights of fewer
 *          bits, at most 2 levels away */
#ifndef IMAGE_PIXELS_H
#define IMAGE_PIXELS_H

#include "image/image.h"

typedef enum { PIXELS_VERL, PIXELS_SLOW, PIXELS_FAST } ImageProcessor;

typedef struct {
    ImageProcessor processor;
    int        patch, merge, frames;   /* pixels a side; patches a side of one token; frames of one patch */
    int64_t    min_pixels, max_pixels;
    float      mean[3], std[3];
    int64_t    own_min, own_max;       /* of this picture, on verl's road: limits of the first resizing; 0: the usual */
    int        own_h, own_w;           /* or the size to begin from; 0: the picture's */
} PixelsRules;

typedef struct { int t, h, w; } PixelsGrid;                   /* in patches */
static inline int64_t grid_rows(PixelsGrid g) { return (int64_t)g.t * g.h * g.w; }
static inline int64_t grid_tokens(PixelsGrid g, int merge) { return grid_rows(g) / (merge * merge); }

/* preprocessor_config.json of a model folder; a key that is missing and has no one meaning is
 * an error.  The road is the caller's. */
bool pixels_rules(PixelsRules *out, const char *model_dir, ImageProcessor processor, Err *err);
bool image_processor(ImageProcessor *out, const char *name);          /* "verl", "slow", "fast" */

/* The size in pixels that a picture of h x w gets, a multiple of patch*merge; false where the
 * rules refuse it (aspect above 200). */
bool pixels_size(int *out_h, int *out_w, int h, int w, const PixelsRules *r, Err *err);
/* The two rules by themselves. */
bool smart_resize(int *out_h, int *out_w, int h, int w, int factor, int64_t lo, int64_t hi, bool utils, Err *err);

void pixels_resize(Image *out, const Image *in, int h, int w, bool fast, Mem *m);     /* Pillow's bicubic, or torch's */

/* Decode aside, the whole road: rows [grid_rows, 3*frames*patch*patch] of bytes in m.  n pictures: one, or the frames
 * of a clip, which are of one size; an odd last frame is repeated, as a picture alone is. */
bool pixels_rows(uint8_t **rows, PixelsGrid *grid, const Image *in, int n, const PixelsRules *r, Mem *m, Err *err);
static inline int pixels_row_bytes(const PixelsRules *r) { return 3 * r->frames * r->patch * r->patch; }

void pixels_table(float table[3][256], const PixelsRules *r); /* the value that the road's processor
                                                               * gives byte x of channel c */

#endif
