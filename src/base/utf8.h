/* utf8.h - one character at a time, distrusting the bytes. */
#ifndef BASE_UTF8_H
#define BASE_UTF8_H

#include "base/base.h"

/* Bytes of the well-formed character at s (n bytes left), 1..4, its code in *code; 0 if it is not well formed
 * (overlong, surrogate, beyond U+10FFFF, cut off). */
static inline int utf8_get(const char *s, size_t n, uint32_t *code) {
    const unsigned char *p = (const unsigned char *)s;
    if (n == 0) return 0;
    if (p[0] < 0x80) { *code = p[0]; return 1; }
    int len = p[0] >= 0xF0 ? 4 : p[0] >= 0xE0 ? 3 : 2;
    if (p[0] < 0xC2 || p[0] > 0xF4 || (size_t)len > n) return 0;
    uint32_t c = p[0] & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80) return 0;
        c = c << 6 | (p[i] & 0x3Fu);
    }
    if ((len == 3 && (c < 0x800 || (c >= 0xD800 && c < 0xE000))) || (len == 4 && (c < 0x10000 || c > 0x10FFFF)))
        return 0;
    *code = c;
    return len;
}

static inline int utf8_put(char out[4], uint32_t c) {
    if (c < 0x80) { out[0] = (char)c; return 1; }
    if (c < 0x800) { out[0] = (char)(0xC0 | c >> 6); out[1] = (char)(0x80 | (c & 63)); return 2; }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12); out[1] = (char)(0x80 | (c >> 6 & 63)); out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18); out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63)); out[3] = (char)(0x80 | (c & 63));
    return 4;
}

bool utf8_valid(const char *s, size_t n);

/* Does it steer a terminal?  Control characters of both sets but \n and \t, and the marks
 * that turn the direction of writing. */
static inline bool utf8_steers(uint32_t c) {
    return (c < 0x20 && c != '\n' && c != '\t') || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E)
           || (c >= 0x2066 && c <= 0x2069);
}

/* Text for a person's eyes, appended: what steers a terminal is written out as \x1b or
 * \u202e, a byte that is not UTF-8 as \xff. */
void utf8_put_visible(Buf *b, const char *s, size_t n);
const char *utf8_visible(Mem *m, const char *s);                      /* the same, a copy in m */

#endif
