/* test_sha256.c - FIPS 180-4's examples, and every length around the ends of blocks against
 * the known hash of all of them. */
#include "base/sha256.h"
#include "test.h"

static const char *hex(const void *bytes, size_t n) {
    static char text[65];
    uint8_t h[32];
    sha256(h, bytes, n);
    for (int i = 0; i < 32; i++) sprintf(text + 2 * i, "%02x", h[i]);
    return text;
}

/* A million bytes 'a' in pieces of several sizes; SHA-1's examples. */
static void in_pieces(void) {
    static const char *const want1[] = { "da39a3ee5e6b4b0d3255bfef95601890afd80709",
                                         "a9993e364706816aba3e25717850c26c9cd0d89d",
                                         "84983e441c3bd26ebaae4aa1f95129e5e54670f1" };
    static const char *const text[] = { "", "abc", "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq" };
    static char a[1000];
    char got[65];
    memset(a, 'a', sizeof a);
    for (size_t i = 0; i < COUNT(text); i++) {
        Hash h = sha1_begin();
        hash_add(&h, text[i], strlen(text[i]));
        hash_end(&h, got);
        EXPECT_STR(got, want1[i]);
    }
    for (size_t piece = 1; piece <= sizeof a; piece += piece < 66 ? 13 : 467) {
        Hash h[2] = { sha256_begin(), sha1_begin() };
        for (size_t n = 0; n < 1000000; n += piece)
            for (int k = 0; k < 2; k++) hash_add(&h[k], a, 1000000 - n < piece ? 1000000 - n : piece);
        hash_end(&h[0], got);
        EXPECT_STR(got, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
        hash_end(&h[1], got);
        EXPECT_STR(got, "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}

int main(void) {
    EXPECT_STR(hex("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_STR(hex("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_STR(hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56),
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static uint8_t of_all[200 * 32], bytes[200]; /* the hash of the hashes of 0..199 zero bytes (by Python's hashlib) */
    for (size_t n = 0; n < 200; n++) sha256(of_all + 32 * n, bytes, n);
    EXPECT_STR(hex(of_all, sizeof of_all), "59e350876ff46da193f0d152dd874fa876d2020a80910c6b83b1537e21104a9f");
    in_pieces();
    return test_end();
}
