/* test_utf8.c - utf8_valid, which looks at many bytes at once, says what one character after another says: random text
 * of every length to 200, ASCII and not, sound and damaged. */
#include "base/rng.h"
#include "base/utf8.h"
#include "test.h"

static bool by_characters(const char *s, size_t n) {
    uint32_t code;
    for (size_t i = 0; i < n;) {
        int len = utf8_get(s + i, n - i, &code);
        if (!len) return false;
        i += (size_t)len;
    }
    return true;
}

/* What is shown to people, at the ends of each range. */
static void visible(void) {
    static const struct {
        const char *text, *want;
    } cases[] = {
        { "", "" },
        { "a\nb\tc ~", "a\nb\tc ~" },
        { "\x1b[2J\x07\r", "\\x1b[2J\\x07\\x0d" },
        { "\x01\x1f\x7f", "\\x01\\x1f\\x7f" },
        { "\xc2\x80\xc2\x9f\xc2\xa0", "\\u0080\\u009f\xc2\xa0" },
        { "\xe2\x80\xa9\xe2\x80\xaa\xe2\x80\xae\xe2\x80\xaf", "\xe2\x80\xa9\\u202a\\u202e\xe2\x80\xaf" },
        { "\xe2\x81\xa5\xe2\x81\xa6\xe2\x81\xa9\xe2\x81\xaa", "\xe2\x81\xa5\\u2066\\u2069\xe2\x81\xaa" },
        { "\xff\xc3(\xc3", "\\xff\\xc3(\\xc3" },
        { "\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80" },
    };
    Mem mem = { 0 };
    for (size_t i = 0; i < COUNT(cases); i++) EXPECT_STR(utf8_visible(&mem, cases[i].text), cases[i].want);
    Buf b = { 0 };
    utf8_put_visible(&b, "a\0b", 3);
    EXPECT_STR(b.data, "a\\x00b");
    Err err;
    err_set(&err, "a\nb\x1b\xc2\x9b\xe2\x80\xae\xc3\xa9\xff");
    EXPECT_STR(err.msg, "a b      \xc3\xa9\xff");
    buf_free(&b);
    mem_free(&mem);
}

int main(void) {
    static const uint32_t codes[] = { 0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF };
    int differ = 0, sound = 0, damaged = 0;
    for (uint32_t round = 0; round < 60000; round++) {
        char *s = malloc(200), one[4]; /* of its own size: reading beyond it is seen */
        size_t want = round % 200, n = 0;
        uint64_t r = rng_u64(1, RNG_PLAN, round, 0, 0, 0);
        int rare = 1 << (r & 7); /* one character in 'rare' is not ASCII */
        for (uint32_t k = 1; n < want; k++) {
            uint64_t x = rng_u64(1, RNG_PLAN, round, 0, 0, k);
            int len = utf8_put(one, x % (unsigned)rare ? (uint32_t)(x >> 20) % 0x80 : codes[(x >> 20) % COUNT(codes)]);
            for (int i = 0; i < len && n < want; i++) s[n++] = one[i]; /* the last may be cut */
        }
        if (n && r >> 8 & 1) s[(r >> 20) % n] ^= (char)(1 << (r >> 10 & 7));
        char *exact = malloc(n ? n : 1);
        memcpy(exact, s, n);
        bool valid = by_characters(exact, n);
        differ += utf8_valid(exact, n) != valid, sound += valid, damaged += !valid;
        free(s);
        free(exact);
    }
    EXPECT(!differ, "%d texts differ", differ);
    EXPECT(sound > 10000 && damaged > 10000, "%d sound, %d damaged: this test sees too little", sound, damaged);
    visible();
    return test_end();
}
