/* pretok_class.c - reads one character, escape or [class] of a regular expression into a set of characters, with
 * Oniguruma's nesting and intersection ([a-z&&[^b]]), which PCRE2 does not have. */
#include "base/utf8.h"
#include "text/pretok_regex.h"

#include <string.h>

enum { MAX_NESTING = 16 };

static bool hex_run(const char **at, const char *end, int least, int most, uint32_t *code) {
    uint32_t v = 0;
    int n = 0;
    for (; n < most && *at < end; n++, (*at)++) {
        int c = **at;
        int d = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
        if (d < 0) break;
        v = v * 16 + (uint32_t)d;
    }
    *code = v;
    return n >= least && v < UNICODE_END;
}

static bool property(UnicodeSet *out, const char **at, const char *end, bool *negated) {
    if (*at >= end || **at != '{') return false;
    const char *from = ++*at, *close = memchr(from, '}', (size_t)(end - from));
    if (!close) return false;
    if (from < close && *from == '^') {
        *negated = !*negated;
        from++;
    }
    *at = close + 1;
    if (close > from && *from >= 'a') return false; /* our own names are not part of the syntax */
    return uset_named(out, from, (size_t)(close - from));
}

bool class_escape(UnicodeSet *out, const char **at, const char *end, bool *negated, bool *is_class) {
    static const char control[] = "nrtfvae", means[] = "\n\r\t\f\v\a\x1B";
    if (*at >= end) return false;
    char c = *(*at)++;
    *negated = c == 'S' || c == 'D' || c == 'W' || c == 'H' || c == 'P';
    *is_class = true;
    switch (c) {
    case 's':
    case 'S': return uset_named(out, USET_SPACE, strlen(USET_SPACE));
    case 'd':
    case 'D': return uset_named(out, "Nd", 2);
    case 'w':
    case 'W': return uset_named(out, USET_WORD, strlen(USET_WORD));
    case 'p':
    case 'P': return property(out, at, end, negated);
    case 'h':
    case 'H':
        uset_add(out, '0', '9');
        uset_add(out, 'A', 'F');
        uset_add(out, 'a', 'f');
        return true;
    default: break;
    }
    *is_class = false;
    uint32_t code;
    const char *k = c ? strchr(control, c) : NULL;
    if (k) code = (unsigned char)means[k - control];
    else if (c == 'x' && *at < end && **at == '{') {
        (*at)++;
        if (!hex_run(at, end, 1, 8, &code) || *at >= end || *(*at)++ != '}') return false;
    } else if (c == 'x') {
        if (!hex_run(at, end, 2, 2, &code) || code > 0x7F)
            return false; /* above: a byte to Oniguruma, not a character */
    } else if (c == 'u') {
        if (!hex_run(at, end, 4, 4, &code)) return false;
    } else if (c > 0 && !((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z'))) code = (unsigned char)c;
    else return false;
    uset_add(out, code, code);
    return true;
}

static bool bracket(UnicodeSet *out, const char **at, const char *end, int depth);

/* One member of a class, with the range that may follow it. */
static bool member(UnicodeSet *out, const char **at, const char *end, int depth) {
    if (**at == '[') {
        UnicodeSet inner = { 0 };
        bool ok = (end - *at < 2 || (*at)[1] != ':') && depth < MAX_NESTING && bracket(&inner, at, end, depth + 1);
        if (ok) uset_join(out, &inner);
        vec_free(inner.at);
        return ok;
    }
    uint32_t lo[2];
    for (int side = 0; side < 2; side++) {
        if (*at >= end) return false;
        bool negated = false, is_class = false;
        UnicodeSet one = { 0 };
        if (**at == '\\') {
            (*at)++;
            bool ok = class_escape(&one, at, end, &negated, &is_class);
            if (ok && is_class) {
                uset_tidy(&one);
                if (negated) uset_invert(&one);
                if (side == 0) uset_join(out, &one);
            }
            if (ok && !is_class) lo[side] = one.at[0].lo;
            vec_free(one.at);
            if (!ok || (is_class && side == 1)) return false;
            if (is_class) return true;
        } else {
            int len = utf8_get(*at, (size_t)(end - *at), &lo[side]);
            if (!len) return false;
            *at += len;
        }
        bool range = side == 0 && end - *at >= 2 && **at == '-' && (*at)[1] != ']';
        if (side == 0 && !range) return uset_add(out, lo[0], lo[0]), true;
        if (side == 0) {
            (*at)++;
            if (**at == '[') return false;
        }
    }
    if (lo[1] < lo[0]) return false;
    uset_add(out, lo[0], lo[1]);
    return true;
}

static bool bracket(UnicodeSet *out, const char **at, const char *end, int depth) {
    UnicodeSet left = { 0 };
    bool negated = false, meets = false, any = false, closed = false;
    (*at)++;
    if (*at < end && **at == '^') {
        negated = true;
        (*at)++;
    }
    while (*at < end) {
        if (**at == ']') {
            if (!any) break; /* []...] is read differently by different engines */
            (*at)++;
            closed = true;
            break;
        }
        any = true;
        if (end - *at >= 2 && (*at)[0] == '&' && (*at)[1] == '&') {
            *at += 2;
            uset_tidy(out);
            if (meets) uset_meet(&left, out);
            else uset_join(&left, out);
            meets = true;
            out->n = 0;
        } else if (!member(out, at, end, depth)) break;
    }
    uset_tidy(out);
    if (meets) uset_meet(out, &left);
    if (negated) uset_invert(out);
    vec_free(left.at);
    return closed;
}

/* Letters of either case, as far as ASCII: beyond it (and for negated classes) folding is left to PCRE2. */
static bool fold_case(UnicodeSet *s) {
    size_t n = s->n;
    for (size_t i = 0; i < n; i++) {
        if (s->at[i].hi > 0x7F) return false;
        for (uint32_t c = s->at[i].lo; c <= s->at[i].hi; c++) {
            uint32_t letter = c | 32;
            if (letter < 'a' || letter > 'z') continue;
            uset_add(s, c ^ 32, c ^ 32);
            if (letter == 's') uset_add(s, 0x17F, 0x17F);   /* long s */
            if (letter == 'k') uset_add(s, 0x212A, 0x212A); /* kelvin */
        }
    }
    uset_tidy(s);
    return true;
}

bool class_parse(UnicodeSet *out, const char **at, const char *end, bool fold) {
    if (*at >= end) return false;
    bool negated = false, is_class = false;
    if (**at == '[') {
        if (!bracket(out, at, end, 0)) return false;
    } else if (**at == '\\') {
        (*at)++;
        if (!class_escape(out, at, end, &negated, &is_class)) return false;
        uset_tidy(out);
        if (negated) uset_invert(out);
    } else {
        uint32_t c;
        int len = utf8_get(*at, (size_t)(end - *at), &c);
        if (!len || (c < 0x80 && strchr("()|.^$*+?{", (int)c))) return false; /* NUL too: strchr finds the end */
        uset_add(out, c, c);
        *at += len;
    }
    return !fold || fold_case(out);
}
