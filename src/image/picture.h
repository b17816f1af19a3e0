/* picture.h - a picture as it travels: rows of pixels in bytes, what they stand for, and a name for what it shows. */
#ifndef IMAGE_PICTURE_H
#define IMAGE_PICTURE_H

#include "image/pixels.h"

typedef struct {
    PixelsGrid     grid;
    bool           clip;               /* the frames of a clip, 'seconds' apart (of one temporal patch to the next) */
    double         seconds;
    const uint8_t *bytes;              /* [rows, channels*frames*patch*patch], rows as pixels.h makes them, and */
    const float  (*table)[256];        /* what byte x of channel c stands for; or */
    const float   *values;             /* the numbers themselves (a reference's) */
    uint64_t       key[4];             /* of what it shows: equal keys, equal bytes and grid.  All 0: it has none */
} Picture;

/* Rows of a sequence that come from elsewhere than the embeddings: tokens at.. of it stand for those of a picture. */
typedef struct { const Picture *picture; int at; } RowSpan;
typedef struct { const RowSpan *at; int n; } Spans;                       /* in the order of their places */

void picture_name(Picture *p, size_t row_bytes);       /* fills key from bytes and grid */

#endif
