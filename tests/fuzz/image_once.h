/* image_once.h - any bytes as a picture of one kind: refused, or a picture of the size that its head says, within a
 * bounded memory; then through the whole road to rows of pixels. */
#ifndef FUZZ_IMAGE_ONCE_H
#define FUZZ_IMAGE_ONCE_H

#include "image/pixels.h"

static inline int image_once(ImageKind kind, const uint8_t *data, size_t n) {
    static const PixelsRules rules = {
        .patch = 14, .merge = 2, .frames = 2, .min_pixels = 3136, .max_pixels = 1 << 16, .std = { 1, 1, 1 }
    };
    Err err;
    ImageHead h;
    if (!image_head(&h, "fuzz", data, n, &err) || h.kind != kind || (int64_t)h.h * h.w > 1 << 21) return 0;
    for (int on_white = 0; on_white < 2; on_white++) {
        Mem m = { 0 };
        Image img;
        PixelsRules r = rules;
        PixelsGrid g;
        uint8_t *rows;
        r.processor = (ImageProcessor)(n % 3);
        if (image_decode(&img, "fuzz", data, n, on_white, &m, &err)) {
            CHECK(img.h == h.h && img.w == h.w, "another size");
            if (!on_white && pixels_rows(&rows, &g, &img, 1, &r, &m, &err))
                CHECK(g.t == 1 && g.h >= 2 && g.w >= 2, "grid");
        }
        mem_free(&m);
    }
    return 0;
}

#endif
