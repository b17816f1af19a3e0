/* stream.h - a copy past the caches, for what nobody reads soon: stores do not first read the lines they overwrite,
 * which for rows of a few kilobytes, where memcpy does, is half of the memory's traffic. */
#ifndef BASE_STREAM_H
#define BASE_STREAM_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* stream_done() before others may read it. */
static inline void stream_copy(void *to, const void *from, size_t n) {
#if defined(__SSE2__)
    char *y = to;
    const char *x = from;
    size_t head = -(uintptr_t)y & 63;
    if (n < 256) head = n;
    memcpy(y, x, head);
    for (y += head, x += head, n -= head; n >= 64; y += 64, x += 64, n -= 64)
        for (int i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)(void *)y + i, _mm_loadu_si128((const __m128i *)(const void *)x + i));
    memcpy(y, x, n);
#else
    memcpy(to, from, n);
#endif
}
static inline void stream_done(void) {
#if defined(__SSE2__)
    _mm_sfence();
#endif
}

#endif
