/* test_kept_set.c - sets of ids as bytes: what is put comes back, for every kind and size of set and vocabularies up to
 * the largest; no set is longer than promised, and a short one is short. */
#include "model/kept_set.h"
#include "base/rng.h"
#include "test.h"

#include <string.h>

static int64_t put_ids(uint32_t *bits, int64_t vocab, double share, uint32_t seed) {
    int64_t n = 0;
    memset(bits, 0, (size_t)kept_words(vocab) * 4);
    for (int64_t v = 0; v < vocab; v++)
        if ((double)(rng_u64(7, RNG_PLAN, seed, 0, 0, (uint32_t)v) >> 11) * 0x1p-53 < share)
            bits[v / 32] |= (uint32_t)1 << v % 32, n++;
    return n;
}

/* Two sets behind one another, so that lengths matter. */
static void round_trip(const uint32_t *bits, int64_t vocab, int64_t ids, const char *what, size_t *bytes) {
    size_t words = (size_t)kept_words(vocab), most = kept_set_most(vocab, 0), by_k = kept_set_most(vocab, ids);
    Mem mem = { 0 };
    uint8_t *out = MEM_ARRAY(&mem, uint8_t, 2 * most + 1);
    uint32_t *back = MEM_ARRAY(&mem, uint32_t, words);
    memset(out, 0xA5, 2 * most + 1);
    size_t a = kept_set_put(out, bits, vocab), b = kept_set_put(out + a, bits, vocab);
    EXPECT(a == b && a <= most && a <= by_k && out[a + b] == 0xA5,
           "%s of %lld: %zu bytes, at most %zu, and %zu for %lld ids", what, (long long)vocab, a, most, by_k,
           (long long)ids);
    memset(back, 0x5A, words * 4);
    EXPECT(kept_set_get(back, out, vocab) == a && !memcmp(back, bits, words * 4),
           "%s of %lld comes back as another set", what, (long long)vocab);
    EXPECT(kept_set_get(back, out + a, vocab) == b && !memcmp(back, bits, words * 4), "%s of %lld, the second one",
           what, (long long)vocab);
    if (bytes) *bytes = a;
    mem_free(&mem);
}

int main(void) {
    static const int64_t vocabs[] = { 1, 2, 31, 32, 33, 63, 64, 413, 4096, 151936, 262144, 2097153 };
    static const double shares[] = { 0, 1e-5, 0.01, 0.1, 0.125, 0.3, 0.5, 0.9, 0.99999, 1 };
    for (size_t i = 0; i < COUNT(vocabs); i++) {
        int64_t V = vocabs[i];
        Mem mem = { 0 };
        uint32_t *bits = MEM_ARRAY(&mem, uint32_t, (size_t)kept_words(V));
        for (size_t k = 0; k < COUNT(shares); k++) {
            int64_t n = put_ids(bits, V, shares[k], (uint32_t)(i * 100 + k));
            round_trip(bits, V, n, "a share", NULL);
        }
        size_t bytes;
        for (int64_t v = 0; v<V; v += V> 5000 ? V / 7 + 1 : 1) { /* one id alone; all but one */
            memset(bits, 0, (size_t)kept_words(V) * 4);
            bits[v / 32] |= (uint32_t)1 << v % 32;
            round_trip(bits, V, 1, "one id", &bytes);
            EXPECT(bytes <= 5, "one id of %lld takes %zu bytes", (long long)V, bytes);
            put_ids(bits, V, 1, 0);
            bits[v / 32] ^= (uint32_t)1 << v % 32;
            round_trip(bits, V, V - 1, "all but one", &bytes);
            EXPECT(bytes <= 5 || V == 1, "all but one of %lld takes %zu bytes", (long long)V, bytes);
        }
        put_ids(bits, V, 1, 0);
        round_trip(bits, V, V, "all", &bytes);
        EXPECT(bytes <= 2, "all of %lld take %zu bytes", (long long)V, bytes);
        mem_free(&mem);
    }
    return test_end();
}
