/* test_sums.c - checksums by pieces: counted in runs of any length, in any order, by several ranks, they are the CRC-32
 * of the file; a byte that is another, missing or counted twice is seen in its piece. */
#include "train/sums.h"
#include "base/rng.h"
#include "test.h"

#include <string.h>
#include <zlib.h>

enum { BYTES = 100003, HEADER = 1234, PIECE = 7000 };

static unsigned char data[BYTES];

/* The whole in random runs, dealt out over n ranks; 'skip': a run that nobody counts, or -1. */
static void count(Sums *s, int n, uint32_t seed, int skip) {
    int64_t at[4096];
    int runs = 0;
    for (int64_t k = 0; k < BYTES; runs++)
        at[runs] = k, k += 1 + (int64_t)(rng_u64(seed, RNG_PLAN, 0, 0, 0, (uint32_t)runs) % 301);
    at[runs] = BYTES;
    int order[4096];
    for (int i = 0; i < runs; i++) order[i] = i;
    for (int i = runs - 1; i > 0; i--) {
        int k = (int)(rng_u64(seed, RNG_PLAN, 1, 0, 0, (uint32_t)i) % (uint32_t)(i + 1)), t = order[i];
        order[i] = order[k], order[k] = t;
    }
    for (int i = 0; i < runs; i++) {
        int r = order[i];
        if (r != skip) sums_add(&s[i % n], 1, at[r], data + at[r], (size_t)(at[r + 1] - at[r]));
    }
}

static void opened(Sums *s) {
    *s = (Sums){ 0 };
    sums_file(s, "other", 10, 10, PIECE);
    sums_file(s, "file", HEADER, BYTES, PIECE);
}

static void any_order(void) {
    uint32_t want = (uint32_t)crc32(crc32(0, NULL, 0), data, BYTES);
    for (uint32_t seed = 0; seed < 20; seed++) {
        Sums s[3];
        uint32_t crc;
        for (int i = 0; i < 3; i++) opened(&s[i]);
        count(s, 3, seed, seed == 7 ? 5 : -1);
        for (int i = 1; i < 3; i++) { /* as ranks hand them over */
            Buf text = { 0 };
            sums_put(&s[i], &text);
            EXPECT(sums_take(&s[0], text.data), "seed %u: %s", seed, text.data);
            buf_free(&text);
        }
        bool whole = sums_whole(&s[0], 1, &crc);
        EXPECT(seed == 7 ? !whole : whole && crc == want, "seed %u: %d, %08x instead of %08x", seed, whole, crc, want);
        for (int i = 0; i < 3; i++) sums_free(&s[i]);
    }
}

/* What is wrong is in the piece that is named. */
static void wrong(void) {
    for (int how = 0; how < 4; how++) {
        Sums s;
        const SumFile *f;
        opened(&s);
        s.file.n = 2;
        sums_add(&s, 0, 0, data, 10);
        sums_add(&s, 1, 0, data, BYTES);
        for (size_t i = 0; i < s.piece.n; i++) s.piece.at[i].want = s.piece.at[i].crc;
        SumPiece *hurt = &s.piece.at[s.file.at[1].first + 5];
        if (how == 1) data[hurt->at + 99] ^= 4;
        for (size_t i = 0; i < s.piece.n; i++) s.piece.at[i].crc = 0, s.piece.at[i].have = 0;
        sums_add(&s, 0, 0, data, 10);
        sums_add(&s, 1, 0, data, how == 2 ? (size_t)hurt->at : BYTES);
        if (how == 2)
            sums_add(&s, 1, hurt->at + hurt->bytes, data + hurt->at + hurt->bytes,
                     (size_t)(BYTES - hurt->at - hurt->bytes));
        if (how == 3) sums_add(&s, 1, hurt->at, data + hurt->at, 8);
        const SumPiece *p = sums_wrong(&s, &f);
        EXPECT(how ? p == hurt && !strcmp(f->name, "file") : !p, "case %d: %lld", how, p ? (long long)p->at : -1);
        if (how == 1) data[hurt->at + 99] ^= 4;
        sums_free(&s);
    }
}

static void rubbish(void) {
    static const char *const texts[] = { "x",       "1 2\n", "1 2 3", "99999 1 1\n", "1 -2 3\n", "1 2 99999999999\n",
                                         "1 2 3\nx" };
    for (size_t i = 0; i < COUNT(texts); i++) {
        Sums s;
        opened(&s);
        EXPECT(!sums_take(&s, texts[i]), "'%s' was taken", texts[i]);
        sums_free(&s);
    }
}

int main(void) {
    for (int i = 0; i < BYTES; i++) data[i] = (unsigned char)(rng_u64(1, RNG_PLAN, 0, 0, 0, (uint32_t)i) >> 33);
    any_order();
    wrong();
    rubbish();
    return test_end();
}
