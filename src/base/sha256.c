/* sha256.c - FIPS 180-4, a block of 64 bytes at a time; the last one or two hold the padding and the length in bits.
 * SHA-1 stands here too: it is padded alike. */
#include "base/sha256.h"

#include <stdio.h>
#include <string.h>

static const uint32_t K[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t turn(uint32_t x, int n) { return x >> n | x << (32 - n); }

static void block(uint32_t s[8], const uint8_t *p) {
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (turn(a, 7) ^ turn(a, 18) ^ a >> 3) + w[i - 7] + (turn(b, 17) ^ turn(b, 19) ^ b >> 10);
    }
    memcpy(v, s, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t a = v[0], e = v[4];
        uint32_t one = v[7] + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + ((e & v[5]) ^ (~e & v[6])) + K[i] + w[i];
        uint32_t two = (turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one, v[0] = one + two;
    }
    for (int i = 0; i < 8; i++) s[i] += v[i];
}

/* FIPS 180-4, 6.1: eighty words, four kinds of rounds of twenty. */
static void block1(uint32_t s[8], const uint8_t *p) {
    uint32_t w[80], a = s[0], b = s[1], c = s[2], d = s[3], e = s[4];
    for (int i = 0; i < 80; i++) {
        const uint8_t *q = p + 4 * i;
        w[i] = i < 16 ? (uint32_t)q[0] << 24 | (uint32_t)q[1] << 16 | (uint32_t)q[2] << 8 | q[3]
                      : turn(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 31);
    }
    for (int i = 0; i < 80; i++) {
        static const uint32_t k[4] = { 0x5a827999, 0x6ed9eba1, 0x8f1bbcdc, 0xca62c1d6 };
        uint32_t f = i < 20 ? (b & c) | (~b & d) : i < 40 || i >= 60 ? b ^ c ^ d : (b & c) | (b & d) | (c & d);
        uint32_t next = turn(a, 27) + f + e + k[i / 20] + w[i];
        e = d, d = c, c = turn(b, 2), b = a, a = next;
    }
    s[0] += a, s[1] += b, s[2] += c, s[3] += d, s[4] += e;
}

Hash sha256_begin(void) {
    return (
        Hash){ .s = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 },
               .block = block,
               .words = 8 };
}

Hash sha1_begin(void) {
    return (Hash){ .s = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 }, .block = block1, .words = 5 };
}

void hash_add(Hash *h, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    size_t had = h->n % 64;
    h->n += n;
    if (had + n < 64) {
        if (n) memcpy(h->part + had, p, n);
        return;
    }
    if (had) {
        memcpy(h->part + had, p, 64 - had);
        h->block(h->s, h->part);
        p += 64 - had, n -= 64 - had;
    }
    for (; n >= 64; n -= 64, p += 64) h->block(h->s, p);
    memcpy(h->part, p, n);
}

static void finish(Hash *h) {
    uint8_t last[72] = { 0x80 };
    uint64_t bits = h->n * 8;
    size_t had = h->n % 64, pad = (had < 56 ? 56 : 120) - had;
    for (int i = 0; i < 8; i++) last[pad + (size_t)i] = (uint8_t)(bits >> (56 - 8 * i));
    hash_add(h, last, pad + 8);
}

void hash_end(Hash *h, char hex[65]) {
    finish(h);
    for (int i = 0; i < h->words; i++) snprintf(hex + (ptrdiff_t)8 * i, 9, "%08x", h->s[i]);
}

void sha256(uint8_t out[32], const void *bytes, size_t n) {
    Hash h = sha256_begin();
    hash_add(&h, bytes, n);
    finish(&h);
    for (int i = 0; i < 32; i++) out[i] = (uint8_t)(h.s[i / 4] >> (24 - 8 * (i % 4)));
}
