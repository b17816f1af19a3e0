/* span.c - strings as the reference scorers see them. */
#include "base/span.h"
#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

bool span_starts(Span s, Span with) { return s.n >= with.n && !memcmp(s.at, with.at, with.n); }

size_t span_find(Span s, size_t from, Span what) {
    if (from > s.n) return SIZE_MAX;
    const char *p = memmem(s.at + from, s.n - from, what.at, what.n);
    return p ? (size_t)(p - s.at) : SIZE_MAX;
}

size_t span_rfind(Span s, Span what) {
    for (size_t i = s.n >= what.n ? s.n - what.n + 1 : 0; i-- > 0;)
        if (!memcmp(s.at + i, what.at, what.n)) return i;
    return SIZE_MAX;
}

size_t span_count(Span s, Span what) {
    size_t count = 0;
    for (size_t i = 0; (i = span_find(s, i, what)) != SIZE_MAX; i += what.n) count++;
    return count;
}

Span span_from(Span s, size_t at) { return at >= s.n ? (Span){ s.at + s.n, 0 } : (Span){ s.at + at, s.n - at }; }

Span span_last_chars(Span s, size_t chars) {
    size_t at = s.n;
    while (at && chars) {
        at--;
        if (((unsigned char)s.at[at] & 0xC0) != 0x80) chars--;
    }
    return span_from(s, at);
}

/* A byte that is not UTF-8 counts as one character, so that every walk moves on. */
static size_t decode(Span s, size_t at, uint32_t *code) {
    if (at >= s.n) return 0;
    int len = utf8_get(s.at + at, s.n - at, code);
    if (!len) *code = 0xFFFD;
    return len ? (size_t)len : 1;
}

size_t span_char(Span s, size_t at) {
    uint32_t code;
    return decode(s, at, &code);
}

size_t span_space(Span s, size_t at) {
    uint32_t c = 0;
    size_t len = decode(s, at, &c);
    bool space = (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680
                 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F
                 || c == 0x3000;
    return len && space ? len : 0;
}

Span span_strip(Span s) {
    size_t from = 0, to = s.n;
    for (size_t len; (len = span_space(s, from));) from += len;
    while (to > from) {
        size_t at = to - 1;
        while (at > from && ((unsigned char)s.at[at] & 0xC0) == 0x80) at--;
        size_t len = span_space(s, at);
        if (!len || at + len != to) break;
        to = at;
    }
    return (Span){ s.at + from, to - from };
}

/* Digits that are not decimal digits (superscripts, circled ones): what Python's isdigit takes besides category Nd. */
static bool is_other_digit(uint32_t c) {
    /* clang-format off */
    static const uint32_t range[][2] = {
        { 0xB2, 0xB3 }, { 0xB9, 0xB9 }, { 0x1369, 0x1371 }, { 0x19DA, 0x19DA }, { 0x2070, 0x2070 },
        { 0x2074, 0x2079 }, { 0x2080, 0x2089 }, { 0x2460, 0x2468 }, { 0x2474, 0x247C }, { 0x2488, 0x2490 },
        { 0x24EA, 0x24EA }, { 0x24F5, 0x24FD }, { 0x24FF, 0x24FF }, { 0x2776, 0x277E }, { 0x2780, 0x2788 },
        { 0x278A, 0x2792 }, { 0x10A40, 0x10A43 }, { 0x10E60, 0x10E68 }, { 0x11052, 0x1105A }, { 0x1F100, 0x1F10A },
    };
    /* clang-format on */
    for (size_t i = 0; i < COUNT(range); i++)
        if (c >= range[i][0] && c <= range[i][1]) return true;
    return false;
}

bool span_is_digits(Span s, char skip) {
    bool any = false;
    for (size_t i = 0, len; i < s.n; i += len) {
        uint32_t c;
        len = decode(s, i, &c);
        if (c == (unsigned char)skip) continue;
        bool decimal = utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND;
        if (!decimal && !is_other_digit(c)) return false;
        any = true;
    }
    return any;
}

size_t span_close_brace(Span s, size_t from) {
    long open = 0;
    for (size_t i = from; i < s.n; i++) {
        if (s.at[i] == '{') open++;
        else if (s.at[i] == '}' && --open == 0) return i;
    }
    return SIZE_MAX;
}

void text_set(Buf *b, Span s) {
    buf_clear(b);
    buf_put(b, s.at, s.n);
}

void text_replace(Buf *b, Span what, Span with) {
    size_t at = span_find(text_span(b), 0, what);
    if (at == SIZE_MAX) return;
    Buf out = { 0 };
    buf_reserve(&out, b->n);
    size_t from = 0;
    for (; at != SIZE_MAX; at = span_find(text_span(b), from, what)) {
        buf_put(&out, b->data + from, at - from);
        buf_put(&out, with.at, with.n);
        from = at + what.n;
    }
    buf_put(&out, b->data + from, b->n - from);
    buf_free(b);
    *b = out;
}
