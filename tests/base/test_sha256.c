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

int main(void) {
    EXPECT_STR(hex("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_STR(hex("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_STR(hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56),
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    static uint8_t of_all[200 * 32], bytes[200]; /* the hash of the hashes of 0..199 zero bytes (by Python's hashlib) */
    for (size_t n = 0; n < 200; n++) sha256(of_all + 32 * n, bytes, n);
    EXPECT_STR(hex(of_all, sizeof of_all), "59e350876ff46da193f0d152dd874fa876d2020a80910c6b83b1537e21104a9f");
    return test_end();
}
