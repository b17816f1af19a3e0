/* test_rng.c - Philox against its authors' own values, numbers that are named and do not
 * repeat, and FNV against its authors' values. */
#include "base/hash.h"
#include "base/rng.h"
#include "base/sort.h"
#include "test.h"

#include <math.h>

static void known(void) { /* kat_vectors of Random123, philox 4x32 with 10 rounds */
    static const struct {
        uint32_t c[4], k[2], want[4];
    } kat[] = {
        { { 0, 0, 0, 0 }, { 0, 0 }, { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
        { { ~0u, ~0u, ~0u, ~0u }, { ~0u, ~0u }, { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
        { { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
          { 0xa4093822, 0x299f31d0 },
          { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
    };
    for (size_t i = 0; i < COUNT(kat); i++) {
        Philox c = { { kat[i].c[0], kat[i].c[1], kat[i].c[2], kat[i].c[3] } };
        Philox r = philox((uint64_t)kat[i].k[1] << 32 | kat[i].k[0], c);
        EXPECT(!memcmp(r.v, kat[i].want, sizeof r.v), "case %zu: %08x %08x %08x %08x", i, r.v[0], r.v[1], r.v[2],
               r.v[3]);
    }
    EXPECT(hash_bytes(HASH_START, "", 0) == 0xcbf29ce484222325u && hash_bytes(HASH_START, "a", 1) == 0xaf63dc4c8601ec8cu
               && hash_bytes(HASH_START, "foobar", 6) == 0x85944171f73967e8u,
           "FNV-1a");
    int32_t ids[] = { 1, -1 };
    EXPECT(hash_ids(HASH_START, ids, 2) == hash_step(hash_step(HASH_START, 1), UINT32_MAX), "an id is one step");
}

/* Each part of a name matters, at both ends of its range: no two of these are the same number. */
static void names(void) {
    enum { ENDS = 6 };
    static const uint32_t at[ENDS] = { 0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF };
    static const uint64_t seeds[] = { 0, 1, UINT64_MAX >> 8, (uint64_t)1 << 55 };
    static uint64_t all[4 * 5 * ENDS * ENDS * ENDS * ENDS];
    size_t n = 0;
    for (size_t s = 0; s < COUNT(seeds); s++)
        for (int use = RNG_SAMPLE; use <= RNG_PLAN; use++)
            for (int a = 0; a < ENDS * ENDS * ENDS * ENDS; a++)
                all[n++] = rng_u64(seeds[s], (RngUse)use, at[a % ENDS], at[a / ENDS % ENDS], at[a / ENDS / ENDS % ENDS],
                                   at[a / ENDS / ENDS / ENDS]);
    CHECK(n == COUNT(all), "%zu names", n);
    sort_u64(all, n);
    int twice = 0;
    for (size_t i = 1; i < n; i++) twice += all[i] == all[i - 1];
    EXPECT(!twice, "%d of %zu names have the number of another", twice, n);
}

static void units(void) {
    EXPECT(rng_unit(0) == 0 && rng_unit(UINT64_MAX) < 1 && rng_unit(UINT64_MAX) == 1 - 0x1p-53, "the ends of [0, 1)");
    enum { N = 200000, BINS = 64 };
    double sum = 0, square = 0, chi = 0;
    int bin[BINS] = { 0 };
    for (uint32_t i = 0; i < N; i++) {
        double u = rng_unit(rng_u64(3, RNG_SAMPLE, 0, 0, i, UINT32_MAX - i));
        sum += u, square += u * u, bin[(int)(u * BINS)]++;
    }
    for (int i = 0; i < BINS; i++)
        chi += (bin[i] - (double)N / BINS) * (bin[i] - (double)N / BINS) / ((double)N / BINS);
    /* five standard deviations: 1/sqrt(12 N) of the mean, about 1/sqrt(11 N) of the square's, sqrt(2 * 63) of chi */
    EXPECT(fabs(sum / N - 0.5) < 5 / sqrt(12.0 * N) && fabs(square / N - 1 / 3.0) < 5 / sqrt(11.0 * N),
           "mean %g, square %g", sum / N, square / N);
    EXPECT(fabs(chi - (BINS - 1)) < 5 * sqrt(2.0 * (BINS - 1)), "chi squared %g of %d bins", chi, BINS);
}

int main(void) {
    known();
    names();
    units();
    return test_end();
}
