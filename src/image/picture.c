/* picture.c - a name for what a picture shows: a hash of its rows of pixels and of its grid. */
#include "image/picture.h"

#include "base/sha256.h"

#include <string.h>

void picture_name(Picture *p, size_t row_bytes) {
    uint8_t h[2][32];
    int32_t shape[4] = { p->grid.t, p->grid.h, p->grid.w, p->clip };
    sha256(h[0], p->bytes, (size_t)grid_rows(p->grid) * row_bytes);
    sha256(h[1], shape, sizeof shape);
    for (int i = 0; i < 32; i++) h[0][i] ^= h[1][i];
    memcpy(p->key, h[0], sizeof p->key);
}
