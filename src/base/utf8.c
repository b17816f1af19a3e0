/* utf8.c - is this text UTF-8?  Sixty-four ASCII bytes at a time where it can, then eight.
 * And text for a person's eyes. */
#include "base/utf8.h"

#include <string.h>

/* 64 bytes, four registers of 16 on every machine that has them: most text is ASCII, and then this is all the work. */
typedef uint64_t Two __attribute__((vector_size(16)));
static inline bool ascii64(const char *s) {
    Two a[4];
    memcpy(a, s, 64);
    Two any = (a[0] | a[1]) | (a[2] | a[3]);
    return !((any[0] | any[1]) & 0x8080808080808080u);
}
static inline bool ascii8(const char *s) {
    uint64_t word;
    return memcpy(&word, s, 8), !(word & 0x8080808080808080u);
}

bool utf8_valid(const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        while (n - i >= 64 && ascii64(s + i)) i += 64;
        while (n - i >= 8 && ascii8(s + i)) i += 8;
        if (n - i < 8 && n >= 8 && ascii8(s + n - 8)) return true; /* the rest, and some before it again */
        uint32_t code;
        for (int k = 0; i < n && k < 8; k++) { /* where one such character is, more are: not back at once */
            int len = utf8_get(s + i, n - i, &code);
            if (!len) return false;
            i += (size_t)len;
        }
    }
    return true;
}

void utf8_put_visible(Buf *b, const char *s, size_t n) {
    for (size_t i = 0, from = 0; i <= n;) {
        uint32_t code = 0;
        int len = i < n ? utf8_get(s + i, n - i, &code) : 0;
        if (len && !utf8_steers(code)) {
            i += (size_t)len;
            continue;
        }
        buf_put(b, s + from, i - from);
        if (i < n && len <= 1) buf_printf(b, "\\x%02x", (unsigned char)s[i]);
        else if (i < n) buf_printf(b, "\\u%04x", (unsigned)code);
        i += len ? (size_t)len : 1;
        from = i;
    }
}

const char *utf8_visible(Mem *m, const char *s) {
    Buf b = { 0 };
    utf8_put_visible(&b, s, strlen(s));
    const char *copy = mem_str(m, b.data, b.n);
    buf_free(&b);
    return copy;
}
