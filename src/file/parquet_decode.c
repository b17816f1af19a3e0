/* parquet_decode.c - the encodings: a page's bytes become n Json values.  Strings stay where they were
 * unpacked: the length in front of each is no longer needed once it is read, so its first byte becomes the
 * 0 behind the string before it. */
#include "file/parquet_in.h"
#include "base/utf8.h"

#include <string.h>

enum {
    PLAIN,
    PLAIN_DICTIONARY = 2,
    RLE,
    BIT_PACKED,
    DELTA_BINARY_PACKED,
    DELTA_LENGTH_BYTE_ARRAY,
    DELTA_BYTE_ARRAY,
    RLE_DICTIONARY,
    BYTE_STREAM_SPLIT
};

static const char *encoding_name(int e) {
    static const char *const name[] = {
        "PLAIN",          "GROUP_VAR_INT",       "PLAIN_DICTIONARY",        "RLE",
        "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
        "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"
    };
    return e >= 0 && e < (int)COUNT(name) ? name[e] : "an unknown encoding";
}

static bool varint(const uint8_t **at, const uint8_t *end, uint64_t *out) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64 && *at < end; shift += 7) {
        uint8_t c = *(*at)++;
        v |= (uint64_t)(c & 127) << shift;
        if (!(c & 128)) return *out = v, true;
    }
    return false;
}

/* 'width' bits at bit position 'bit' of p, which has 'n' bytes, all of the bits inside. */
static uint64_t bits_at(const uint8_t *p, size_t n, uint64_t bit, int width) {
    size_t byte = (size_t)(bit / 8);
    int shift = (int)(bit % 8);
    uint64_t lo = 0, hi = 0;
    if (n - byte >= 8) memcpy(&lo, p + byte, 8);
    else memcpy(&lo, p + byte, n - byte);
    lo >>= shift;
    if (shift + width > 64) hi = (uint64_t)p[byte + 8] << (64 - shift);
    return (lo | hi) & (width == 64 ? UINT64_MAX : (UINT64_C(1) << width) - 1);
}

/* Runs of equal values and runs of bit-packed ones, mixed.  The last packed group may be cut at the end of the page. */
bool pq_hybrid(const uint8_t *at, const uint8_t *end, int width, uint32_t max, int64_t n, uint32_t *out) {
    if (width < 0 || width > 32) return false;
    int bytes = (width + 7) / 8;
    for (int64_t i = 0; i < n;) {
        uint64_t head;
        if (!varint(&at, end, &head)) return false;
        uint64_t count = head >> 1;
        if (!(head & 1)) {
            if (end - at < bytes || count == 0) return false;
            uint32_t v = 0;
            for (int k = 0; k < bytes; k++) v |= (uint32_t)at[k] << 8 * k;
            at += bytes;
            if (v > max) return false;
            if (count > (uint64_t)(n - i)) count = (uint64_t)(n - i);
            for (uint64_t k = 0; k < count; k++) out[i++] = v;
            continue;
        }
        if (count == 0 || count > UINT32_MAX) return false;
        size_t have = (size_t)(end - at), span = (size_t)count * (size_t)width;
        if (span > have) span = have;
        uint64_t values = width ? (uint64_t)span * 8 / (uint64_t)width : count * 8;
        if (values > count * 8) values = count * 8;
        if (values > (uint64_t)(n - i)) values = (uint64_t)(n - i);
        if (values == 0) return false;
        uint32_t top = 0;
        if (width) {
            for (uint64_t k = 0; k < values; k++) {
                out[i + (int64_t)k] = (uint32_t)bits_at(at, span, k * (uint64_t)width, width);
                if (out[i + (int64_t)k] > top) top = out[i + (int64_t)k];
            }
        } else memset(out + i, 0, (size_t)values * sizeof *out);
        if (top > max) return false;
        i += (int64_t)values;
        at += span;
    }
    return true;
}

bool pq_levels(const uint8_t *at, const uint8_t *end, int max, int64_t n, uint8_t *out) {
    int width = 0;
    while (max >> width) width++;
    for (int64_t i = 0; i < n;) {
        uint64_t head;
        if (!varint(&at, end, &head)) return false;
        uint64_t count = head >> 1;
        if (count == 0) return false;
        if (!(head & 1)) {
            if (at >= end || *at > max) return false;
            if (count > (uint64_t)(n - i)) count = (uint64_t)(n - i);
            memset(out + i, *at++, (size_t)count);
            i += (int64_t)count;
            continue;
        }
        if (count > UINT32_MAX) return false;
        size_t have = (size_t)(end - at), span = (size_t)count * (size_t)width;
        if (span > have) span = have;
        uint64_t values = (uint64_t)span * 8 / (uint64_t)width;
        if (values > (uint64_t)(n - i)) values = (uint64_t)(n - i);
        if (values == 0) return false;
        uint8_t top = 0;
        for (uint64_t k = 0, bit = 0; k < values; k++, bit += (uint64_t)width) {
            uint32_t two = at[bit / 8];
            if (bit / 8 + 1 < span) two |= (uint32_t)at[bit / 8 + 1] << 8;
            uint8_t v = (uint8_t)(two >> bit % 8 & ((1u << width) - 1));
            out[i + (int64_t)k] = v;
            if (v > top) top = v;
        }
        if (top > max) return false;
        i += (int64_t)values;
        at += span;
    }
    return true;
}

/* Blocks of differences: the least of a block, and for each part of it how many bits the rest takes.  Arithmetic wraps,
 * as the format wants: the difference of two int32 need not be one. */
bool pq_delta(const uint8_t **at, const uint8_t *end, int bits, int64_t n, int64_t *out) {
    uint64_t block, parts, total, zig;
    if (!varint(at, end, &block) || !varint(at, end, &parts) || !varint(at, end, &total) || !varint(at, end, &zig))
        return false;
    if (block == 0 || block > 1 << 24 || parts == 0 || parts > block || block % parts || block / parts % 8
        || total != (uint64_t)n)
        return false;
    uint64_t value = zig >> 1 ^ (0 - (zig & 1)), per = block / parts;
    int64_t i = 0;
    if (n) out[i++] = (int64_t)value;
    while (i < n) {
        uint64_t least;
        if (!varint(at, end, &least) || (uint64_t)(end - *at) < parts) return false;
        least = least >> 1 ^ (0 - (least & 1));
        const uint8_t *widths = *at;
        *at += parts;
        for (uint64_t p = 0; p < parts && i < n; p++) {
            int width = widths[p];
            if (width > 64) return false;
            uint64_t span = per * (uint64_t)width / 8, have = (uint64_t)(end - *at), take = per;
            if (take > (uint64_t)(n - i)) take = (uint64_t)(n - i);
            if (span > have && (take * (uint64_t)width + 7) / 8 > have) return false;
            size_t room = (size_t)(span < have ? span : have);
            for (uint64_t k = 0; k < take; k++) {
                value += least + (width ? bits_at(*at, room, k * (uint64_t)width, width) : 0);
                out[i++] = bits == 32 ? (int64_t)(int32_t)(uint32_t)value : (int64_t)value;
            }
            *at += room;
        }
    }
    return true;
}

/* ---- values */
static Json string_value(const PqNode *leaf, const char *s, size_t n, Mem *mem) {
    if (leaf->as == PQ_AS_TEXT || leaf->as == PQ_AS_BYTES)
        return (Json){ .kind = JSON_STRING, .n = n, .str = s, .flag = leaf->as == PQ_AS_BYTES || !utf8_valid(s, n) };
    PqNode fixed = *leaf; /* a decimal of variable length */
    fixed.width = (int)n;
    return pq_value(&fixed, (const uint8_t *)s, mem);
}

static bool plain_strings(const PqNode *leaf, uint8_t *at, uint8_t *end, int64_t n, Mem *mem, Json *out) {
    bool text = leaf->as == PQ_AS_TEXT;
    for (int64_t i = 0; i < n; i++) {
        uint32_t len;
        if (end - at < 4) return false;
        memcpy(&len, at, 4);
        *at = 0;
        at += 4;
        if (len > (size_t)(end - at)) return false;
        const char *s = (const char *)at;
        if (text) out[i] = (Json){ .kind = JSON_STRING, .flag = !utf8_valid(s, len), .n = len, .str = s };
        else out[i] = string_value(leaf, s, len, mem);
        at += len;
    }
    *at = 0; /* at <= end, and the byte at end is ours */
    return true;
}

static bool plain(const PqNode *leaf, uint8_t *at, uint8_t *end, int64_t n, Mem *mem, Json *out) {
    if (leaf->type == PQ_BYTE_ARRAY) return plain_strings(leaf, at, end, n, mem, out);
    if (leaf->type == PQ_BOOLEAN) {
        if ((n + 7) / 8 > end - at) return false;
        for (int64_t i = 0; i < n; i++) out[i] = (Json){ .kind = JSON_BOOL, .flag = at[i / 8] >> i % 8 & 1 };
        return true;
    }
    if (leaf->width && n > (end - at) / leaf->width) return false;
    for (int64_t i = 0; i < n; i++) out[i] = pq_value(leaf, at + i * leaf->width, mem);
    return true;
}

static bool dictionary(uint8_t *at, uint8_t *end, int64_t n, const Json *dict, int64_t n_dict, Json *out) {
    if (at >= end || n_dict == 0) return false;
    int width = *at++;
    uint32_t index[1024];
    /* Whole groups of 1024 would have to restart inside a run; decode into the tail of 'out' instead: an index is 4
     * bytes, a Json 24, so the indices kept at the end are read before they are overwritten. */
    uint32_t *at_end = n <= (int64_t)COUNT(index) ? index : (uint32_t *)(void *)(out + n) - n;
    if (!pq_hybrid(at, end, width, (uint32_t)(n_dict - 1), n, at_end)) return false;
    for (int64_t i = 0; i < n; i++) {
        uint32_t k;
        memcpy(&k, (const char *)at_end + i * 4, 4);
        out[i] = dict[k];
    }
    return true;
}

static bool booleans(const uint8_t *at, const uint8_t *end, int64_t n, Mem *mem, Json *out) {
    uint32_t len;
    if (end - at < 4) return false;
    memcpy(&len, at, 4);
    at += 4;
    if (len > (size_t)(end - at)) return false;
    uint8_t *level = mem_push(mem, (size_t)n);
    if (!pq_levels(at, at + len, 1, n, level)) return false;
    for (int64_t i = 0; i < n; i++) out[i] = (Json){ .kind = JSON_BOOL, .flag = level[i] };
    return true;
}

static bool delta_ints(const PqNode *leaf, const uint8_t *at, const uint8_t *end, int64_t n, Mem *mem, Json *out) {
    int64_t *v = MEM_ARRAY(mem, int64_t, (size_t)n);
    if (!pq_delta(&at, end, leaf->type == PQ_INT32 ? 32 : 64, n, v)) return false;
    for (int64_t i = 0; i < n; i++)
        out[i] = pq_value(leaf, (const uint8_t *)&v[i], mem); /* little-endian: the low half first */
    return true;
}

/* Lengths together, then the bytes together.  There is no room for a 0 between them, so they are copied. */
static bool delta_strings(const PqNode *leaf, const uint8_t *at, const uint8_t *end, int64_t n, Mem *mem, Json *out) {
    int64_t *len = MEM_ARRAY(mem, int64_t, (size_t)n);
    if (!pq_delta(&at, end, 32, n, len)) return false;
    char *to = mem_push(mem, (size_t)(end - at) + (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        if (len[i] < 0 || len[i] > end - at) return false;
        memcpy(to, at, (size_t)len[i]);
        out[i] = string_value(leaf, to, (size_t)len[i], mem);
        to += len[i] + 1;
        at += len[i];
    }
    return true;
}

/* Each string shares a beginning with the one before it.  What that unpacks to is not bounded by the page's size (a
 * long first string and 'the same again' a million times), so it is summed before memory is taken. */
static bool delta_prefixed(const PqNode *leaf, const uint8_t *at, const uint8_t *end, int64_t n, Mem *mem, Json *out) {
    int64_t *prefix = MEM_ARRAY(mem, int64_t, (size_t)n), *rest = MEM_ARRAY(mem, int64_t, (size_t)n), total = 0,
            before = 0;
    if (!pq_delta(&at, end, 32, n, prefix) || !pq_delta(&at, end, 32, n, rest)) return false;
    int64_t left = end - at;
    for (int64_t i = 0; i < n; i++) {
        if (prefix[i] < 0 || prefix[i] > before || rest[i] < 0 || rest[i] > left) return false;
        left -= rest[i];
        before = prefix[i] + rest[i];
        total += before;
        if (total > (int64_t)1 << 32 || (leaf->type == PQ_FIXED && before != leaf->width)) return false;
    }
    char *to = mem_push(mem, (size_t)total + (size_t)n), *was = to;
    for (int64_t i = 0; i < n; i++) {
        memmove(to, was, (size_t)prefix[i]);
        memcpy(to + prefix[i], at, (size_t)rest[i]);
        at += rest[i];
        was = to;
        size_t len = (size_t)(prefix[i] + rest[i]);
        out[i] = leaf->type == PQ_FIXED ? pq_value(leaf, (const uint8_t *)to, mem) : string_value(leaf, to, len, mem);
        to += len + 1;
    }
    return true;
}

/* All first bytes, then all second bytes, ... */
static bool split(const PqNode *leaf, const uint8_t *at, const uint8_t *end, int64_t n, Mem *mem, Json *out) {
    if (leaf->width < 1 || (end - at) / leaf->width < n) return false;
    uint8_t *one = mem_push(mem, (size_t)leaf->width);
    for (int64_t i = 0; i < n; i++) {
        for (int k = 0; k < leaf->width; k++) one[k] = at[k * n + i];
        out[i] = pq_value(leaf, one, mem);
    }
    return true;
}

bool pq_decode(const PqNode *leaf, int encoding, uint8_t *at, uint8_t *end, int64_t n, const Json *dict, int64_t n_dict,
               Mem *mem, Json *out, Err *err) {
    if (n == 0) return true; /* some writers then leave out even the encoding's header */
    bool ok, whole = leaf->type == PQ_INT32 || leaf->type == PQ_INT64, bytes = leaf->type == PQ_BYTE_ARRAY;
    if (encoding == PLAIN) ok = plain(leaf, at, end, n, mem, out);
    else if (encoding == PLAIN_DICTIONARY || encoding == RLE_DICTIONARY) ok = dictionary(at, end, n, dict, n_dict, out);
    else if (encoding == RLE && leaf->type == PQ_BOOLEAN) ok = booleans(at, end, n, mem, out);
    else if (encoding == DELTA_BINARY_PACKED && whole) ok = delta_ints(leaf, at, end, n, mem, out);
    else if (encoding == DELTA_LENGTH_BYTE_ARRAY && bytes) ok = delta_strings(leaf, at, end, n, mem, out);
    else if (encoding == DELTA_BYTE_ARRAY && (bytes || leaf->type == PQ_FIXED))
        ok = delta_prefixed(leaf, at, end, n, mem, out);
    else if (encoding == BYTE_STREAM_SPLIT && leaf->width) ok = split(leaf, at, end, n, mem, out);
    else return err_set(err, "a page of this type in encoding %s cannot be read", encoding_name(encoding));
    if (ok) return true;
    const char *name = encoding_name(encoding);
    return err_set(err, "the %lld values of a page do not fit its %s bytes: the file is damaged", (long long)n, name);
}
