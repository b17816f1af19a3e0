/* image.c - which decoder a file goes to, by its first bytes (a name's ending is not asked),
 * and the limits that hold for all. */
#include "image/image.h"

#include <stdio.h>
#include <string.h>

/* What people hand in besides, so that the message can say it. */
static const struct {
    const char *magic;
    size_t n, at;
    const char *what;
} others[] = {
    { "GIF8", 4, 0, "a GIF" },
    { "BM", 2, 0, "a BMP" },
    { "II*\0", 4, 0, "a TIFF" },
    { "MM\0*", 4, 0, "a TIFF" },
    { "ftypavif", 8, 4, "an AVIF" },
    { "ftypheic", 8, 4, "a HEIC" },
    { "ftyp", 4, 4, "a video" },
    { "\x1a\x45\xdf\xa3", 4, 0, "a video" },
    { "%PDF", 4, 0, "a PDF" },
    { "<svg", 4, 0, "an SVG" },
    { "<!DOCTYPE", 9, 0, "a web page" },
    { "<html", 5, 0, "a web page" },
    { "version https://git-lfs", 23, 0, "a Git LFS pointer, not the file itself" },
};

static bool kind_of(ImageKind *kind, const uint8_t *b, size_t n, Err *err) {
    if (n >= 8 && !memcmp(b, "\x89PNG\r\n\x1a\n", 8)) return *kind = IMAGE_PNG, true;
    if (n >= 3 && !memcmp(b, "\xff\xd8\xff", 3)) return *kind = IMAGE_JPEG, true;
    if (n >= 12 && !memcmp(b, "RIFF", 4) && !memcmp(b + 8, "WEBP", 4)) return *kind = IMAGE_WEBP, true;
    if (n == 0) return err_set(err, "the file is empty");
    for (size_t i = 0; i < COUNT(others); i++)
        if (n >= others[i].at + others[i].n && !memcmp(b + others[i].at, others[i].magic, others[i].n))
            return err_set(err, "this is %s; pictures are read from PNG, JPEG and WebP files", others[i].what);
    return err_set(err, "not a picture: the first bytes are not those of a PNG, JPEG or WebP file");
}

static bool head(ImageHead *out, const uint8_t *b, size_t n, Err *err) {
    *out = (ImageHead){ 0 };
    if (n > IMAGE_MOST_BYTES) return err_set(err, "%zu bytes: a picture may have %d", n, IMAGE_MOST_BYTES);
    TRY(kind_of(&out->kind, b, n, err));
    bool (*const heads[])(ImageHead *, const uint8_t *, size_t, Err *) = { png_head, jpeg_head, webp_head };
    TRY(heads[out->kind](out, b, n, err));
    if (out->h < 1 || out->w < 1) return err_set(err, "its size is %d x %d", out->w, out->h);
    if (out->h > IMAGE_MOST_SIDE || out->w > IMAGE_MOST_SIDE || (int64_t)out->h * out->w > IMAGE_MOST_PIXELS)
        return err_set(err, "%d x %d pixels: a picture may have %d a side and %d in all; make it smaller first", out->w,
                       out->h, IMAGE_MOST_SIDE, IMAGE_MOST_PIXELS);
    return true;
}

bool image_head(ImageHead *out, const char *name, const void *bytes, size_t n, Err *err) {
    return head(out, bytes, n, err) || err_wrap(err, "%s", name);
}

bool image_decode(Image *out, const char *name, const void *bytes, size_t n, bool on_white, Mem *m, Err *err) {
    ImageHead hd;
    TRY(image_head(&hd, name, bytes, n, err));
    *out = (Image){ hd.h, hd.w, mem_array(m, (size_t)hd.h * hd.w, 3) };
    bool ok = hd.kind == IMAGE_PNG    ? png_decode(out, bytes, n, on_white, err)
              : hd.kind == IMAGE_JPEG ? jpeg_decode(out, bytes, n, err)
                                      : webp_decode(out, bytes, n, on_white, err);
    return ok || err_wrap(err, "%s", name);
}
