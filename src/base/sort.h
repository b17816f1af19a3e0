/* sort.h - heapsort of 64-bit keys in place: no memory, no comparison function, the same order everywhere.
 * Pack what to sort by into the high bits and an index into the low bits; equal keys then keep their order. */
#ifndef BASE_SORT_H
#define BASE_SORT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline void sort_u64(uint64_t *a, size_t n) {
    for (size_t start = n / 2, end = n; end > 1;) {
        uint64_t x;
        if (start) x = a[--start];
        else x = a[--end], a[end] = a[0];
        size_t hole = start;
        for (size_t child; (child = 2 * hole + 1) < end; hole = child) {
            if (child + 1 < end && a[child + 1] > a[child]) child++;
            if (a[child] <= x) break;
            a[hole] = a[child];
        }
        a[hole] = x;
    }
}

/* A key that orders as the float does, -0 before 0; NaN is beyond both ends. */
static inline uint32_t sort_key_f32(float x) {
    uint32_t u;
    memcpy(&u, &x, 4);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

#endif
