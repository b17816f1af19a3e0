/* convert.c - numbers of one dtype made another.
 * Everything goes through float32: widening is exact, so only a narrowing to BF16 rounds. */
#include "param/convert.h"
#include "param/blocks.h"
#include "tensor/half.h"

#include <string.h>

enum { BLOCK = 128, STEP = 256 };

static uint16_t load16(const char *p) {
    uint16_t x;
    memcpy(&x, p, 2);
    return x;
}

static void widen_bf16(float *to, const char *p, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = bf16_f32(load16(p + 2 * i));
}

static void widen_f16(float *to, const char *p, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = f16_f32(load16(p + 2 * i));
}

/* value * scale of the element's block; a run of equal scale ends at a block's border or at the end of a row. */
static void widen_f8(float *to, const Source *s, int64_t from, int64_t n) {
    int64_t per_row = (s->cols + BLOCK - 1) / BLOCK;
    for (int64_t i = from; i < from + n;) {
        int64_t row = i / s->cols, col = i % s->cols, run = BLOCK - col % BLOCK;
        if (run > s->cols - col) run = s->cols - col;
        if (run > from + n - i) run = from + n - i;
        const char *at = s->scale + (row / BLOCK * per_row + col / BLOCK) * (int64_t)dtype_size(s->scale_dtype);
        float scale;
        if (s->scale_dtype == DT_BF16) scale = bf16_f32(load16(at));
        else memcpy(&scale, at, 4);
        for (int64_t k = 0; k < run; k++) *to++ = f8e4m3_f32((uint8_t)s->data[i + k]) * scale;
        i += run;
    }
}

/* Of a block that is only begun or ended in the middle, what is wanted. */
static void widen_blocks(float *to, const Source *s, int64_t from, int64_t n) {
    DTypeBlock b = dtype_block(s->dtype);
    float part[BLOCK_MOST];
    for (int64_t i = from; i < from + n;) {
        int64_t at = i % b.elements, k = b.elements - at < from + n - i ? b.elements - at : from + n - i;
        const char *block = s->data + i / b.elements * b.bytes;
        if (k == b.elements) block_read(s->dtype, to, block);
        else {
            block_read(s->dtype, part, block);
            memcpy(to, part + at, (size_t)k * sizeof *to);
        }
        to += k, i += k;
    }
}

static void widen_here(float *to, const Source *s, int64_t from, int64_t n) {
    if (dtype_blocks(s->dtype)) {
        widen_blocks(to, s, from, n);
        return;
    }
    const char *p = s->data + from * (int64_t)dtype_size(s->dtype);
    switch (s->dtype) {
    case DT_F32: memcpy(to, p, (size_t)n * 4); break;
    case DT_BF16: widen_bf16(to, p, n); break;
    case DT_F16: widen_f16(to, p, n); break;
    case DT_F8E4M3: widen_f8(to, s, from, n); break;
    default: die("weights in %s", dtype_name(s->dtype));
    }
}

/* A row at a time where rows stand in turns. */
static void widen(float *to, const Source *s, int64_t from, int64_t n) {
    if (!s->turn) {
        widen_here(to, s, from, n);
        return;
    }
    for (int64_t i = from; i < from + n;) {
        int64_t row = i / s->cols, col = i % s->cols, k = s->cols - col < from + n - i ? s->cols - col : from + n - i;
        widen_here(to, s, source_row(s, row) * s->cols + col, k);
        to += k, i += k;
    }
}

static void narrow(uint16_t *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) to[i] = f32_bf16(from[i]);
}

void convert_from(void *to, DType t, const Source *s, int64_t from, int64_t n) {
    if (t == DT_F32) {
        widen(to, s, from, n);
        return;
    }
    CHECK(t == DT_BF16, "conversion to %s", dtype_name(t));
    float part[STEP];
    for (int64_t i = 0; i < n; i += STEP) {
        int64_t k = n - i < STEP ? n - i : STEP;
        widen(part, s, from + i, k);
        narrow((uint16_t *)to + i, part, k);
    }
}

/* A number is not finite when all bits of its exponent are set.  Blocks of a fixed size: the
 * compiler makes vectors of them, and the scan is as quick as memory. */
enum { SCAN = 64 };

static bool block_f32(const uint32_t *x) {
    uint32_t bad = 0;
    for (int i = 0; i < SCAN; i++) bad |= (uint32_t)((x[i] & 0x7F800000u) == 0x7F800000u);
    return bad;
}
static bool block_bf16(const uint16_t *x) {
    uint16_t bad = 0;
    for (int i = 0; i < SCAN; i++) bad |= (uint16_t)((x[i] & 0x7F80u) == 0x7F80u);
    return bad;
}

int64_t convert_not_finite(const void *x, DType t, int64_t n) {
    const uint32_t *wide = x;
    const uint16_t *half = x;
    CHECK(t == DT_F32 || t == DT_BF16, "numbers in %s", dtype_name(t));
    for (int64_t i = 0; i < n; i += SCAN) {
        if (n - i >= SCAN && !(t == DT_F32 ? block_f32(wide + i) : block_bf16(half + i))) continue;
        for (int64_t k = i; k < n && k < i + SCAN; k++)
            if (t == DT_F32 ? (wide[k] & 0x7F800000u) == 0x7F800000u : (half[k] & 0x7F80u) == 0x7F80u) return k;
    }
    return -1;
}

void convert_f32(void *to, DType t, const void *from, DType from_t, int64_t n) {
    Source s = { .data = from, .dtype = from_t, .rows = 1, .cols = n };
    convert_from(to, t, &s, 0, n);
}
