/* blocks.c - see blocks.h.  Each product and each sum is rounded once, in the order that the format's library has
 * (gguf.quants): scale * number, then the minimum. */
#include "param/blocks.h"
#include "tensor/half.h"

#include <math.h>
#include <string.h>

typedef const unsigned char *Bytes;

static float half_at(Bytes p) { return f16_f32((uint16_t)(p[0] | p[1] << 8)); }

/* ---- 32 numbers: a scale, perhaps a minimum, perhaps fifth bits, then two numbers a byte, 16 apart */
typedef struct {
    bool min, fifth;
    int zero; /* what stands for 0 */
} Small;

static void read_small(float *to, Bytes p, Small s) {
    float d = half_at(p), m = 0;
    p += 2;
    if (s.min) m = half_at(p), p += 2;
    uint32_t high = 0;
    if (s.fifth) memcpy(&high, p, 4), p += 4;
    for (int i = 0; i < 32; i++) {
        int q = (i < 16 ? p[i] & 15 : p[i - 16] >> 4) | (int)(high >> i & 1) << 4;
        to[i] = d * (float)(q - s.zero);
        if (s.min) to[i] += m;
    }
}
static void read_q4_0(float *to, Bytes p) { read_small(to, p, (Small){ false, false, 8 }); }
static void read_q4_1(float *to, Bytes p) { read_small(to, p, (Small){ true, false, 0 }); }
static void read_q5_0(float *to, Bytes p) { read_small(to, p, (Small){ false, true, 16 }); }
static void read_q5_1(float *to, Bytes p) { read_small(to, p, (Small){ true, true, 0 }); }

static void read_q8_0(float *to, Bytes p) {
    float d = half_at(p);
    for (int i = 0; i < 32; i++) to[i] = (float)(int8_t)p[2 + i] * d;
}

/* ---- 256 numbers: sixteen groups of 16, or eight of 32, with scales of their own, which have a scale */
static int two_bits(Bytes p, int i) { return p[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3; }

static void read_q2_k(float *to, Bytes p) {
    Bytes scale = p, q = p + 16;
    float d = half_at(p + 80), min = half_at(p + 82);
    for (int i = 0; i < 256; i++) {
        int s = scale[i / 16];
        float dl = d * (float)(s & 15), ml = min * (float)(s >> 4), x = dl * (float)two_bits(q, i);
        to[i] = x - ml;
    }
}

static void read_q3_k(float *to, Bytes p) {
    Bytes high = p, q = p + 32, scale = p + 96;
    float d = half_at(p + 108);
    for (int i = 0; i < 256; i++) {
        int k = i / 16, low = k < 8 ? scale[k] & 15 : scale[k - 8] >> 4, top = scale[8 + k % 4] >> (k / 4 * 2) & 3;
        float dl = d * (float)((low | top << 4) - 32);
        int above = high[i % 32] >> (i / 32) & 1;
        to[i] = dl * (float)(two_bits(q, i) - (above ? 0 : 4));
    }
}

/* Six bits each: eight scales and eight minima in twelve bytes. */
static void six_bits(Bytes p, int k, int *scale, int *min) {
    if (k < 4) *scale = p[k] & 63, *min = p[4 + k] & 63;
    else *scale = (p[4 + k] & 15) | (p[k - 4] >> 2 & 0x30), *min = p[4 + k] >> 4 | (p[k] >> 2 & 0x30);
}

static void read_k45(float *to, Bytes p, Bytes high, Bytes q) {
    float d = half_at(p), min = half_at(p + 2);
    for (int i = 0; i < 256; i++) {
        int s, m, k = i / 32, x = q[i / 64 * 32 + i % 32] >> (k % 2 * 4) & 15;
        six_bits(p + 4, k, &s, &m);
        if (high) x |= (high[i % 32] >> k & 1) << 4;
        float ds = d * (float)s, dm = min * (float)m, y = ds * (float)x;
        to[i] = y - dm;
    }
}
static void read_q4_k(float *to, Bytes p) { read_k45(to, p, NULL, p + 16); }
static void read_q5_k(float *to, Bytes p) { read_k45(to, p, p + 16, p + 48); }

static void read_q6_k(float *to, Bytes p) {
    Bytes low = p, high = p + 128, scale = p + 192;
    float d = half_at(p + 208);
    for (int i = 0; i < 256; i++) {
        int q = (low[i / 128 * 64 + i % 64] >> (i % 128 / 64 * 4) & 15) | two_bits(high, i) << 4;
        float ds = d * (float)(int8_t)scale[i / 16];
        to[i] = ds * (float)(q - 32);
    }
}

/* ---- writing */
static bool put_half(char *to, float x) {
    uint16_t h = f32_f16(x);
    memcpy(to, &h, 2);
    return (h & 0x7C00) != 0x7C00;
}

/* Cut towards zero; what is no number, or infinite, becomes 0 where the scale is too small to be turned round. */
static int to_level(float x, int most) { return !(fabsf(x) < 256) || x < 0 ? 0 : x > (float)most ? most : (int)x; }

static bool write_small(char *to, const float *x, Small s) {
    int levels = s.fifth ? 32 : 16;
    float low = x[0], top = x[0], far = x[0];
    for (int i = 0; i < 32; i++) {
        if (x[i] < low) low = x[i];
        if (x[i] > top) top = x[i];
        if (fabsf(x[i]) > fabsf(far)) far = x[i];
    }
    float d = s.min ? (top - low) / (float)(levels - 1) : far / (float)-s.zero, id = d == 0 ? 0 : 1 / d;
    bool ok = put_half(to, d);
    to += 2;
    if (s.min) ok = put_half(to, low) && ok, to += 2;
    unsigned char q[32];
    uint32_t high = 0;
    for (int i = 0; i < 32; i++) {
        float y = s.min ? (x[i] - low) * id : x[i] * id;
        q[i] = (unsigned char)to_level(s.min ? y + 0.5f : y + ((float)s.zero + 0.5f), levels - 1);
        high |= (uint32_t)(q[i] >> 4) << i;
    }
    if (s.fifth) memcpy(to, &high, 4), to += 4;
    for (int i = 0; i < 16; i++) to[i] = (char)((q[i] & 15) | (q[i + 16] & 15) << 4);
    return ok;
}
static bool write_q4_0(char *to, const float *x) { return write_small(to, x, (Small){ false, false, 8 }); }
static bool write_q4_1(char *to, const float *x) { return write_small(to, x, (Small){ true, false, 0 }); }
static bool write_q5_0(char *to, const float *x) { return write_small(to, x, (Small){ false, true, 16 }); }
static bool write_q5_1(char *to, const float *x) { return write_small(to, x, (Small){ true, true, 0 }); }

static bool write_q8_0(char *to, const float *x) {
    float far = 0;
    for (int i = 0; i < 32; i++)
        if (fabsf(x[i]) > far) far = fabsf(x[i]);
    float d = far / 127, id = d == 0 ? 0 : 1 / d;
    for (int i = 0; i < 32; i++) {
        float y = x[i] * id;
        to[2 + i] = (char)(fabsf(y) < 256 ? (int)roundf(y) : 0);
    }
    return put_half(to, d);
}

static const struct {
    void (*read)(float *to, Bytes p);
    bool (*write)(char *to, const float *x);
} kinds[DTYPES] = {
    [DT_Q4_0] = { read_q4_0, write_q4_0 }, [DT_Q4_1] = { read_q4_1, write_q4_1 }, [DT_Q5_0] = { read_q5_0, write_q5_0 },
    [DT_Q5_1] = { read_q5_1, write_q5_1 }, [DT_Q8_0] = { read_q8_0, write_q8_0 }, [DT_Q2_K] = { read_q2_k, NULL },
    [DT_Q3_K] = { read_q3_k, NULL },       [DT_Q4_K] = { read_q4_k, NULL },       [DT_Q5_K] = { read_q5_k, NULL },
    [DT_Q6_K] = { read_q6_k, NULL },
};

void block_read(DType t, float *to, const char *block) {
    CHECK(kinds[t].read, "blocks of %s", dtype_name(t));
    kinds[t].read(to, (Bytes)block);
}
bool block_writes(DType t) { return kinds[t].write; }
bool block_write(DType t, char *block, const float *from) {
    CHECK(kinds[t].write, "blocks of %s", dtype_name(t));
    return kinds[t].write(block, from);
}
