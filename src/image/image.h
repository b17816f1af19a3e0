/* image.h - pictures: the bytes of a PNG, JPEG or WebP file -> RGB as Pillow reads them, and from there to the rows of
 * pixels that a vision tower takes (rules.h, resize.h).
 *
 * The bytes are distrusted.  What the header says is held against the limits below before memory is taken;
 * a file that is damaged, an animation, or of another kind is refused in one line that names it.  Colour
 * profiles, gamma and EXIF rotation are not applied: Image.open does not either.  Transparency: the colour
 * under it stays, or it is put on white, as the caller says. */
#ifndef IMAGE_IMAGE_H
#define IMAGE_IMAGE_H

#include "base/base.h"

enum { IMAGE_MOST_SIDE = 65000, IMAGE_MOST_PIXELS = 89478485, IMAGE_MOST_BYTES = 64 << 20 };      /* of one file */

typedef enum { IMAGE_PNG, IMAGE_JPEG, IMAGE_WEBP } ImageKind;

typedef struct {
    ImageKind   kind;
    int         h, w;
    const char *note;    /* what a user should know of it, or NULL: 16-bit grey comes out white where it is above 255 */
} ImageHead;

typedef struct { int h, w; uint8_t *rgb; } Image;          /* rgb [h,w,3] */

/* Kind and size, read from the first bytes only, within the limits.  'name' is for messages. */
bool image_head(ImageHead *out, const char *name, const void *bytes, size_t n, Err *err);

/* The picture, in m.  Needs about 4 bytes a pixel beside it while it runs (a progressive JPEG 6 more). */
bool image_decode(Image *out, const char *name, const void *bytes, size_t n, bool on_white, Mem *m, Err *err);

/* ---- one for each library; 'out' has its size already and memory for it */
bool png_head(ImageHead *out, const uint8_t *bytes, size_t n, Err *err);
bool png_decode(Image *out, const uint8_t *bytes, size_t n, bool on_white, Err *err);
bool jpeg_head(ImageHead *out, const uint8_t *bytes, size_t n, Err *err);
bool jpeg_decode(Image *out, const uint8_t *bytes, size_t n, Err *err);
bool webp_head(ImageHead *out, const uint8_t *bytes, size_t n, Err *err);
bool webp_decode(Image *out, const uint8_t *bytes, size_t n, bool on_white, Err *err);

/* (a*b + 127) / 255 for a, b in 0..255, as Pillow writes it; and a colour on white. */
static inline int mul_255(int a, int b) {
    int t = a * b + 128;
    return ((t >> 8) + t) >> 8;
}
static inline uint8_t over_white(int c, int alpha) {
    int t = 255 * (255 - alpha) + c * alpha + 128;         /* one rounding of the sum */
    return (uint8_t)(((t >> 8) + t) >> 8);
}

#endif
