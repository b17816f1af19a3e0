/* jinja_text.c - text by characters: lengths and offsets, blank space, case, lines, search and replace, as Python's
 * str. */
#include "jinja/jinja_int.h"
#include "base/utf8.h"

#include <utf8proc.h>

bool ch_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680
           || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

static bool letter(utf8proc_category_t k) { return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO; }

bool ch_word(uint32_t c) {
    if (c < 128) return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return letter(k) || k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}

size_t s_len(Value s) {
    size_t n = 0;
    for (size_t i = 0; i < s.n; i++) n += ((unsigned char)s.s[i] & 0xC0) != 0x80;
    return n;
}

size_t s_offset(Value s, size_t chars) {
    size_t i = 0;
    for (; i < s.n; i++) {
        if (((unsigned char)s.s[i] & 0xC0) == 0x80) continue;
        if (!chars--) break;
    }
    return i;
}

static bool stripped(const char *s, size_t n, const Value *chars) {
    uint32_t c = 0;
    utf8_get(s, n, &c);
    return chars ? s_find(chars->s, chars->n, s, n) != NULL : ch_space(c);
}

size_t s_strip_left(Value s, const Value *chars) {
    size_t i = 0;
    while (i < s.n) {
        size_t len = s_offset(v_strn(s.s + i, s.n - i), 1);
        if (!stripped(s.s + i, len, chars)) break;
        i += len;
    }
    return i;
}

size_t s_strip_right(Value s, const Value *chars) {
    size_t n = s.n;
    while (n) {
        size_t i = n - 1;
        while (i && ((unsigned char)s.s[i] & 0xC0) == 0x80) i--;
        if (!stripped(s.s + i, n - i, chars)) break;
        n = i;
    }
    return n;
}

const char *s_find(const char *hay, size_t n, const char *needle, size_t m) {
    if (!m) return hay;
    return m > n ? NULL : memmem(hay, n, needle, m);
}

/* ---- case */
static bool cased(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

/* Letters whose upper case is several characters; first, the title case keeps all but the first small. */
static const struct {
    uint32_t code;
    const char *upper, *title;
} wide[] = {
    { 0xDF, "SS", "Ss" },
    { 0x149,
      "\xCA\xBC"
      "N",
      "\xCA\xBC"
      "N" },
    { 0x1F0, "J\xCC\x8C", "J\xCC\x8C" },
    { 0xFB00, "FF", "Ff" },
    { 0xFB01, "FI", "Fi" },
    { 0xFB02, "FL", "Fl" },
    { 0xFB03, "FFI", "Ffi" },
    { 0xFB04, "FFL", "Ffl" },
    { 0xFB05, "ST", "St" },
    { 0xFB06, "ST", "St" },
};

static void put_upper(Sb *b, uint32_t c, bool title) {
    for (size_t i = 0; i < COUNT(wide); i++)
        if (wide[i].code == c) {
            sb_puts(b, title ? wide[i].title : wide[i].upper);
            return;
        }
    sb_char(b, (uint32_t)(title ? utf8proc_totitle((utf8proc_int32_t)c) : utf8proc_toupper((utf8proc_int32_t)c)));
}

/* A capital sigma is a final one when a letter stands before it and none behind. */
static bool final_sigma(Value s, size_t at) {
    uint32_t c = 0;
    size_t i = at, next = at + 2;
    while (i && ((unsigned char)s.s[i - 1] & 0xC0) == 0x80) i--;
    if (!i || !utf8_get(s.s + i - 1, s.n - i + 1, &c) || !cased(c)) return false;
    return next >= s.n || !utf8_get(s.s + next, s.n - next, &c) || !cased(c);
}

static void put_lower(Sb *b, uint32_t c, Value s, size_t at) {
    if (c == 0x130) sb_puts(b, "i\xCC\x87");
    else if (c == 0x3A3) sb_char(b, final_sigma(s, at) ? 0x3C2 : 0x3C3);
    else sb_char(b, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
}

Value s_case(Run *r, Value s, int how) {
    Sb b = { .r = r };
    bool inside = false;
    j_steps(r, s.n / 16);
    for (size_t i = 0; i < s.n;) {
        uint32_t c = 0;
        int len = utf8_get(s.s + i, s.n - i, &c);
        bool up = how == 'u' || (how == 't' && !inside) || (how == 'c' && !i)
                  || (how == 's' && utf8proc_islower((utf8proc_int32_t)c));
        if (up) put_upper(&b, c, how == 't' || how == 'c');
        else put_lower(&b, c, s, i);
        inside = cased(c);
        i += len ? (size_t)len : 1;
    }
    return sb_done(&b);
}

/* ---- lines */
static size_t line_end(const char *s, size_t n) {
    uint32_t c = 0;
    int len = utf8_get(s, n, &c);
    if (c == '\r') return n > 1 && s[1] == '\n' ? 2 : 1;
    bool ends = (c >= 10 && c <= 12) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    return ends ? (size_t)len : 0;
}

Value s_split_lines(Run *r, Value s, bool keep) {
    size_t n = 0, cap = 1, from = 0, len;
    j_steps(r, s.n / 16);
    for (size_t i = 0; i < s.n; i++) cap += line_end(s.s + i, s.n - i) != 0;
    Value *at = j_push(r, cap, sizeof *at);
    for (size_t i = 0; i < s.n;) {
        if (!(len = line_end(s.s + i, s.n - i))) {
            i++;
            continue;
        }
        at[n++] = v_strn(s.s + from, i - from + (keep ? len : 0));
        from = i += len;
    }
    if (from < s.n) at[n++] = v_strn(s.s + from, s.n - from);
    return v_list(at, n);
}

/* ---- replace */
Value s_replace(Run *r, Value s, Value from, Value to, int64_t count) {
    Sb b = { .r = r };
    size_t at = 0;
    j_steps(r, s.n / 32);
    if (!from.n) { /* between all characters */
        for (; count != 0 && at <= s.n; count--) {
            sb_put(&b, to.s, to.n);
            if (at == s.n) return sb_done(&b);
            size_t len = s_offset(v_strn(s.s + at, s.n - at), 1);
            sb_put(&b, s.s + at, len);
            at += len;
        }
    }
    const char *hit;
    while (from.n && count != 0 && (hit = s_find(s.s + at, s.n - at, from.s, from.n))) {
        size_t i = (size_t)(hit - s.s);
        sb_put(&b, s.s + at, i - at);
        sb_put(&b, to.s, to.n);
        at = i + from.n;
        count--;
        j_steps(r, 1);
    }
    if (at == 0 && !b.n) return v_strn(s.s, s.n);
    sb_put(&b, s.s + at, s.n - at);
    return sb_done(&b);
}

Value s_escape(Run *r, Value s) {
    static const char special[] = "&<>'\"";
    static const char *const means[] = { "&amp;", "&lt;", "&gt;", "&#39;", "&#34;" };
    Sb b = { .r = r };
    if (s.sub) return s;
    j_steps(r, s.n / 16);
    for (size_t i = 0; i < s.n; i++) {
        const char *k = s.s[i] ? strchr(special, s.s[i]) : NULL;
        if (k) sb_puts(&b, means[k - special]);
        else sb_put(&b, s.s + i, 1);
    }
    Value v = sb_done(&b);
    v.sub = 1;
    return v;
}
