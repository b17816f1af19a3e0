/* parquet_codec.c - the seven ways in which a Parquet page may be compressed. */
#include "file/parquet_in.h"

#include <brotli/decode.h>
#include <lz4.h>
#include <snappy-c.h>
#include <string.h>
#include <zlib.h>
#include <zstd.h>

static bool unpack_plain(const uint8_t *from, size_t n, uint8_t *to, size_t size) {
    if (n != size) return false;
    if (n) memcpy(to, from, n);
    return true;
}

static bool unpack_snappy(const uint8_t *from, size_t n, uint8_t *to, size_t size) {
    size_t len;
    if (snappy_uncompressed_length((const char *)from, n, &len) != SNAPPY_OK || len != size) return false;
    return snappy_uncompress((const char *)from, n, (char *)to, &len) == SNAPPY_OK && len == size;
}

/* Several members one behind the other are one stream, as gzip has it. */
static bool unpack_gzip(const uint8_t *from, size_t n, uint8_t *to, size_t size) {
    if (n > UINT32_MAX || size > UINT32_MAX) return false;
    z_stream z = { .next_in = (Bytef *)(uintptr_t)from, .avail_in = (uInt)n, .next_out = to, .avail_out = (uInt)size };
    if (inflateInit2(&z, 15 + 32) != Z_OK) return false; /* +32: gzip or zlib, as the bytes say */
    uint8_t none;
    if (!size) z.next_out = &none, z.avail_out = 1; /* zlib refuses to look at an empty stream with no room at all */
    int rc;
    do { rc = inflate(&z, Z_FINISH); } while (rc == Z_STREAM_END && z.avail_in > 0 && inflateReset(&z) == Z_OK);
    bool ok = rc == Z_STREAM_END && z.avail_in == 0 && (size ? z.avail_out == 0 : z.avail_out == 1);
    inflateEnd(&z);
    return ok;
}

static bool unpack_lz4_raw(const uint8_t *from, size_t n, uint8_t *to, size_t size) {
    if (n > INT32_MAX || size > INT32_MAX) return false;
    return LZ4_decompress_safe((const char *)from, (char *)to, (int)n, (int)size) == (int)size;
}

static uint32_t big32(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* The codec called LZ4 was never written down: Hadoop's frames (two big-endian sizes before each block), or, from some
 * old writers, one bare block.  The frames are tried first, as all readers do. */
static bool unpack_lz4(const uint8_t *from, size_t n, uint8_t *to, size_t size) {
    const uint8_t *at = from;
    size_t left = n, done = 0;
    while (left >= 8) {
        uint32_t out = big32(at), in = big32(at + 4);
        if (in > left - 8 || out > size - done || !unpack_lz4_raw(at + 8, in, to + done, out)) break;
        at += 8 + in;
        left -= 8 + in;
        done += out;
    }
    if (left == 0 && done == size && n) return true;
    return unpack_lz4_raw(from, n, to, size);
}

static bool unpack_zstd(const uint8_t *from, size_t n, uint8_t *to, size_t size) {
    size_t got = ZSTD_decompress(to, size, from, n);
    return !ZSTD_isError(got) && got == size;
}

static bool unpack_brotli(const uint8_t *from, size_t n, uint8_t *to, size_t size) {
    size_t got = size;
    return BrotliDecoderDecompress(n, from, &got, to) == BROTLI_DECODER_RESULT_SUCCESS && got == size;
}

/* The ratio is what the format can reach at most (measured on a gigabyte of zeros where the format does not say): a
 * header that claims more is lying, and is found out before the memory is taken. */
static const struct {
    const char *name;
    bool (*unpack)(const uint8_t *, size_t, uint8_t *, size_t);
    size_t ratio;
} codecs[] = {
    { "UNCOMPRESSED", unpack_plain, 1 },  { "SNAPPY", unpack_snappy, 32 },
    { "GZIP", unpack_gzip, 1100 },        { "LZO", NULL, 1 },
    { "BROTLI", unpack_brotli, 1 << 21 }, { "LZ4", unpack_lz4, 256 },
    { "ZSTD", unpack_zstd, 1 << 16 },     { "LZ4_RAW", unpack_lz4_raw, 256 },
};

const char *pq_codec_name(int codec) {
    return codec >= 0 && codec < (int)COUNT(codecs) ? codecs[codec].name : "of an unknown kind";
}

bool pq_may_unpack(int codec, size_t n, size_t size) {
    if (codec < 0 || codec >= (int)COUNT(codecs)) return true; /* pq_unpack says what is wrong */
    return size / codecs[codec].ratio <= n + 16;
}

bool pq_unpack(int codec, const uint8_t *from, size_t n, uint8_t *to, size_t size, Err *err) {
    if (codec < 0 || codec >= (int)COUNT(codecs) || !codecs[codec].unpack)
        return err_set(err, "the compression %s is not supported: write the file with zstd or snappy",
                       pq_codec_name(codec));
    return codecs[codec].unpack(from, n, to, size)
           || err_set(err, "%zu bytes of %s do not unpack to the %zu bytes announced", n, codecs[codec].name, size);
}
