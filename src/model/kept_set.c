/* kept_set.c - the ids that a draw kept, in few bytes.
 * A list is a number of 7 bits a byte, lowest first, the high bit set while more follow: twice how
 * many ids (and one more where they are those left out), then each id less the one before it, less one.  0: the bits
 * follow, eight a byte; an empty set, which nothing is drawn from, is written so, too. */
#include "model/kept_set.h"

#include <string.h>

static size_t put_number(uint8_t *out, uint64_t x) {
    size_t n = 0;
    for (; x >= 128; x >>= 7) out[n++] = (uint8_t)(x | 128);
    out[n++] = (uint8_t)x;
    return n;
}

static size_t get_number(uint64_t *x, const uint8_t *in) {
    size_t n = 0;
    *x = 0;
    do *x |= (uint64_t)(in[n] & 127) << 7 * n;
    while (in[n++] & 128);
    return n;
}

static size_t number_bytes(uint64_t x) {
    uint8_t b[10];
    return put_number(b, x);
}

static size_t bits_bytes(int64_t vocab) { return (size_t)(vocab + 7) / 8; }

size_t kept_set_most(int64_t vocab, int64_t top_k) {
    size_t bits = 1 + bits_bytes(vocab);
    if (top_k <= 0 || top_k >= vocab) return bits;
    size_t list = number_bytes(2 * (uint64_t)top_k + 1) + (size_t)top_k * number_bytes((uint64_t)vocab);
    return list < bits ? list : bits;
}

/* Ids whose bit is not 'missing', as long as the list is no longer than 'most'; 0: it is. */
static size_t put_list(uint8_t *out, const uint32_t *bits, int64_t vocab, bool missing, int64_t count, size_t most) {
    size_t n = put_number(out, (uint64_t)count << 1 | missing);
    int64_t before = -1;
    for (int64_t w = 0; w < kept_words(vocab); w++) {
        uint32_t x = missing ? ~bits[w] : bits[w];
        if (vocab - 32 * w < 32) x &= ((uint32_t)1 << (vocab - 32 * w)) - 1;
        for (; x; x &= x - 1) {
            int64_t id = 32 * w + __builtin_ctz(x);
            uint64_t gap = (uint64_t)(id - before - 1);
            if (n + number_bytes(gap) > most) return 0;
            n += put_number(out + n, gap);
            before = id;
        }
    }
    return n;
}

size_t kept_set_put(uint8_t *out, const uint32_t *bits, int64_t vocab) {
    int64_t kept = 0;
    for (int64_t w = 0; w < kept_words(vocab); w++) kept += __builtin_popcount(bits[w]);
    size_t all = bits_bytes(vocab);
    bool missing = kept > vocab / 2;
    int64_t count = missing ? vocab - kept : kept;
    if (kept && (size_t)count < all) { /* a byte an id, or more */
        size_t n = put_list(out, bits, vocab, missing, count, 1 + all);
        if (n) return n;
    }
    out[0] = 0;
    for (size_t i = 0; i < all; i++) out[1 + i] = (uint8_t)(bits[i / 4] >> 8 * (i % 4));
    return 1 + all;
}

size_t kept_set_get(uint32_t *bits, const uint8_t *in, int64_t vocab) {
    uint64_t head, gap;
    size_t n = get_number(&head, in), words = (size_t)kept_words(vocab);
    if (!head) {
        size_t all = bits_bytes(vocab);
        memset(bits, 0, words * 4);
        for (size_t i = 0; i < all; i++) bits[i / 4] |= (uint32_t)in[1 + i] << 8 * (i % 4);
        return 1 + all;
    }
    memset(bits, head & 1 ? 255 : 0, words * 4);
    if (head & 1 && vocab % 32) bits[words - 1] = ((uint32_t)1 << vocab % 32) - 1;
    int64_t id = -1;
    for (uint64_t i = 0; i < head >> 1; i++) {
        n += get_number(&gap, in + n);
        id += (int64_t)gap + 1;
        CHECK(id < vocab, "a kept set has id %lld of %lld", (long long)id, (long long)vocab);
        bits[id / 32] ^= (uint32_t)1 << id % 32;
    }
    return n;
}
