/* scan.c - members of a line of JSON. */
#include "base/scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void blanks(Scan *s) {
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\r')) s->at++;
}

static bool fail(Scan *s) { return s->bad = true, s->at = s->end, false; }

/* At the byte behind the opening quote; leaves behind the closing one. */
static bool string(Scan *s, Span *out) {
    const char *from = s->at, *q = from;
    while ((q = memchr(q, '"', (size_t)(s->end - q)))) {
        const char *b = q;
        while (b > from && b[-1] == '\\') b--;
        if ((q - b) % 2 == 0) {
            *out = (Span){ from, (size_t)(q - from) };
            s->at = q + 1;
            return true;
        }
        q++;
    }
    return fail(s);
}

/* A list or an object: to the bracket that closes it; which kind closes is not compared. */
static bool nested(Scan *s, Span *out) {
    const char *from = s->at;
    for (int deep = 0; s->at < s->end;) {
        char c = *s->at++;
        Span skip;
        if (c == '"' && !string(s, &skip)) return false;
        deep += (c == '{' || c == '[') - (c == '}' || c == ']');
        if (deep) continue;
        *out = (Span){ from, (size_t)(s->at - from) };
        return true;
    }
    return fail(s);
}

static bool plain(Scan *s, Member *m) {
    const char *from = s->at;
    while (s->at < s->end && *s->at != ',' && *s->at != '}' && *s->at != ' ' && *s->at != '\t' && *s->at != '\r')
        s->at++;
    m->value = (Span){ from, (size_t)(s->at - from) };
    if (!m->value.n) return fail(s);
    m->kind = *from == 'n' || *from == 't' || *from == 'f' ? *from : '0';
    return true;
}

static bool value(Scan *s, Member *m) {
    if (s->at >= s->end) return fail(s);
    m->kind = *s->at;
    if (*s->at == '"') return s->at++, string(s, &m->value);
    if (*s->at == '{' || *s->at == '[') return nested(s, &m->value);
    return plain(s, m);
}

bool scan_next(Scan *s, Member *m) {
    if (s->bad) return false;
    blanks(s);
    if (s->at >= s->end) return fail(s);
    char want = s->begun ? ',' : '{', c = *s->at++;
    if (s->begun && c == '}') {
        blanks(s);
        s->bad = s->at < s->end;
        s->at = s->end;
        return false;
    }
    if (c != want) return fail(s);
    blanks(s);
    if (!s->begun && s->at < s->end && *s->at == '}') return s->begun = true, scan_next(s, m);
    s->begun = true;
    if (s->at >= s->end || *s->at++ != '"' || !string(s, &m->key)) return fail(s);
    blanks(s);
    if (s->at >= s->end || *s->at++ != ':') return fail(s);
    blanks(s);
    return value(s, m);
}

/* Up to 15 digits with a power of ten up to 22 are exact in a double, and so is their quotient or product rounded once
 * (Clinger 1990); the rest is strtod's. */
double scan_number(const Member *m) {
    static const double ten[] = { 1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                  1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22 };
    if (m->kind != '0') return NAN;
    const char *p = m->value.at, *end = p + m->value.n;
    bool minus = p < end && *p == '-';
    p += minus;
    uint64_t digits = 0;
    int n = 0, power = 0;
    const char *first = p;
    for (; p < end && *p >= '0' && *p <= '9'; p++, n++) digits = n < 18 ? digits * 10 + (uint64_t)(*p - '0') : digits;
    if (p == first) return NAN;
    if (p < end && *p == '.')
        for (p++; p < end && *p >= '0' && *p <= '9'; p++, n++, power--)
            digits = n < 18 ? digits * 10 + (uint64_t)(*p - '0') : digits;
    if (p < end && (*p == 'e' || *p == 'E')) {
        bool down = ++p < end && *p == '-';
        p += p < end && (*p == '-' || *p == '+');
        int e = 0;
        const char *from = p;
        for (; p < end && *p >= '0' && *p <= '9'; p++) e = e < 10000 ? e * 10 + (*p - '0') : e;
        if (p == from) return NAN;
        power += down ? -e : e;
    }
    if (p != end) return NAN;
    if (digits < (1ull << 53) && n <= 18 && power >= -22 && power <= 22) {
        double x = power < 0 ? (double)digits / ten[-power] : (double)digits * ten[power];
        return minus ? -x : x;
    }
    char text[64]; /* more digits than that do not change a double that anybody shows */
    size_t len = m->value.n < sizeof text - 1 ? m->value.n : 0;
    if (!len) return NAN;
    memcpy(text, m->value.at, len);
    text[len] = 0;
    return strtod(text, NULL);
}
