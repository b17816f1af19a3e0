/* test_sort.c - heapsort against qsort for every small length and many shapes; a float's key
 * orders as the float does, from NaN to NaN. */
#include "base/rng.h"
#include "base/sort.h"
#include "test.h"

#include <float.h>
#include <math.h>

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

typedef enum { RANDOM, FEW, RISING, FALLING, EQUAL, ENDS, ORGAN, SHAPES } Shape;

static void fill(uint64_t *a, size_t n, Shape s) {
    for (size_t i = 0; i < n; i++) {
        uint64_t r = rng_u64(5, RNG_PLAN, (uint32_t)n, (uint32_t)s, 0, (uint32_t)i);
        const uint64_t of[SHAPES] = {
            r, r % 5, i, n - i, 42, r & 1 ? UINT64_MAX - r % 3 : r % 3, i < n / 2 ? i : n - i
        };
        a[i] = of[s];
    }
}

static bool same(size_t n, Shape s) {
    uint64_t *a = malloc((n + 2) * sizeof *a), *b = malloc(n * sizeof *b + 1);
    a[0] = a[n + 1] = 0x5A5A5A5A5A5A5A5A; /* guards */
    fill(a + 1, n, s);
    memcpy(b, a + 1, n * sizeof *b);
    sort_u64(a + 1, n);
    qsort(b, n, sizeof *b, by_value);
    bool ok = !memcmp(a + 1, b, n * sizeof *b) && a[0] == 0x5A5A5A5A5A5A5A5A && a[n + 1] == a[0];
    free(a);
    free(b);
    return ok;
}

int main(void) {
    sort_u64(NULL, 0);
    int wrong = 0;
    for (size_t n = 0; n <= 130; n++)
        for (int s = 0; s < SHAPES; s++) wrong += !same(n, (Shape)s);
    EXPECT(!wrong, "%d short arrays are not sorted", wrong);
    for (int s = 0; s < SHAPES; s++) EXPECT(same(200003, (Shape)s), "a long array of shape %d is not sorted", s);

    static const float rising[] = { -INFINITY, -FLT_MAX,  -1.5f,   -1, -FLT_MIN, -0x1p-149f, -0.0f,
                                    0.0f,      0x1p-149f, FLT_MIN, 1,  1.5f,     FLT_MAX,    INFINITY };
    for (size_t i = 1; i < COUNT(rising); i++)
        EXPECT(sort_key_f32(rising[i - 1]) < sort_key_f32(rising[i]), "%a is not below %a", (double)rising[i - 1],
               (double)rising[i]);
    EXPECT(sort_key_f32(NAN) > sort_key_f32(INFINITY) && sort_key_f32(-NAN) < sort_key_f32(-INFINITY),
           "NaN is beyond both ends");
    wrong = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        uint64_t r = rng_u64(6, RNG_PLAN, 0, 0, 0, i);
        uint32_t u[2] = { (uint32_t)r, (uint32_t)(r >> 32) };
        float x, y;
        memcpy(&x, &u[0], 4), memcpy(&y, &u[1], 4);
        if (x == x && y == y && x != y) wrong += (x < y) != (sort_key_f32(x) < sort_key_f32(y));
    }
    EXPECT(!wrong, "%d pairs of random floats are ordered otherwise", wrong);
    return test_end();
}
