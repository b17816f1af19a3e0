/* jinja_lex.c - a template's text into tokens, with the whitespace rules of trim_blocks and lstrip_blocks: the
 * newline behind
 * a block or comment goes, and so does the blank space before one that stands first in its line; '-' takes more,
 * '+' less. */
#include "jinja/jinja_int.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
    Comp *c;
    const char *at, *end;
    int line;
    bool line_starting;
} Lex;

static void push(Lex *x, Tok t) {
    t.line = t.line ? t.line : x->line;
    VEC_PUSH(x->c->tok, t);
}

static void count_lines(Lex *x, const char *from, const char *to) {
    for (; from < to; from++) x->line += *from == '\n';
}

static NORETURN void lex_fail(Lex *x, const char *what) {
    x->c->line = x->line;
    comp_fail(x->c, "%s", what);
}

/* Moves over blank space (Unicode's). */
static void skip_space(Lex *x) {
    uint32_t code;
    int len;
    while (x->at < x->end && (len = utf8_get(x->at, (size_t)(x->end - x->at), &code)) && ch_space(code)) {
        x->line += code == '\n';
        x->at += len;
    }
}

static bool here(const Lex *x, const char *s) {
    size_t n = strlen(s);
    return (size_t)(x->end - x->at) >= n && !memcmp(x->at, s, n);
}

static char sign_here(Lex *x) { return x->at < x->end && (*x->at == '-' || *x->at == '+') ? *x->at++ : 0; }

/* The end of a tag that stands at x->at: "-%}" and the space behind it, "+%}" or "%}" and one newline.  False: no
 * end here. */
static bool tag_end(Lex *x, const char *mark, bool trims) {
    char sign = x->at < x->end && (*x->at == '-' || (*x->at == '+' && trims)) ? *x->at : 0;
    Lex was = *x;
    if (sign) x->at++;
    if (!here(x, mark)) return *x = was, false;
    x->at += 2;
    if (sign == '-') skip_space(x);
    else if (!sign && trims && x->at < x->end && *x->at == '\n') x->at++, x->line++;
    x->line_starting = x->at[-1] == '\n';
    return true;
}

/* The text before a tag; sign is the tag's, is_var says that it is {{, which lstrip_blocks leaves alone. */
static void data(Lex *x, const char *from, const char *to, char sign, bool is_var) {
    Value text = v_strn(from, (size_t)(to - from));
    size_t n = text.n;
    if (sign == '-') n = s_strip_right(text, NULL);
    else if (sign != '+' && !is_var) {
        size_t start = n;
        while (start && from[start - 1] != '\n') start--;
        Value tail = v_strn(from + start, n - start);
        if ((start || x->line_starting) && s_strip_left(tail, NULL) == tail.n) n = start;
    }
    if (n) push(x, (Tok){ .kind = T_DATA, .s = from, .n = n });
    count_lines(x, from, to);
}

static bool word_here(Lex *x, const char *word) {
    size_t n = strlen(word);
    if (!here(x, word)) return false;
    x->at += n;
    return true;
}

/* {% raw %} with x->at behind "{%" and its sign: everything up to {% endraw %} is data. */
static bool raw(Lex *x) {
    Lex was = *x;
    skip_space(x);
    if (!word_here(x, "raw")) return *x = was, false;
    skip_space(x);
    bool strip = x->at < x->end && *x->at == '-';
    if (strip) x->at++;
    if (!word_here(x, "%}")) return *x = was, false;
    if (strip) skip_space(x);
    x->line_starting = x->at[-1] == '\n';
    const char *from = x->at;
    int line = x->line;
    for (const char *p = from; p + 1 < x->end; p++) {
        if (p[0] != '{' || p[1] != '%') continue;
        x->at = p + 2;
        char sign = sign_here(x);
        skip_space(x);
        if (!word_here(x, "endraw")) continue;
        skip_space(x);
        bool starting = x->line_starting;
        if (!tag_end(x, "%}", true)) continue;
        const char *behind = x->at;
        bool next_starting = x->line_starting;
        x->line = line;
        x->line_starting = starting;
        data(x, from, p, sign, false);
        count_lines(x, p, behind);
        x->at = behind;
        x->line_starting = next_starting;
        return true;
    }
    lex_fail(x, "Missing end of raw directive");
}

static void comment(Lex *x) {
    for (; x->at + 1 < x->end; x->at++) {
        if (tag_end(x, "#}", true)) return;
        x->line += *x->at == '\n';
    }
    lex_fail(x, "Missing end of comment tag");
}

/* ---- inside a tag */
static int digit_of(int c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : 99;
}

/* Digits of a base with single underscores between them; copies the digits to out. */
static const char *digits(const char *p, const char *end, int base, bool lead_underscore, char *out, size_t *n,
                          size_t cap) {
    const char *from = p;
    while (p < end) {
        const char *d = p;
        if (*d == '_' && (p > from || lead_underscore)) d++;
        if (d >= end || digit_of(*d) >= base) break;
        if (*n < cap) out[(*n)++] = *d;
        p = d + 1;
    }
    return p;
}

static bool number(Lex *x) {
    char text[512];
    size_t n = 0, cap = sizeof text - 8;
    const char *p = x->at, *end = x->end;
    if (*p < '0' || *p > '9') return false;
    int base = 10;
    if (*p == '0' && p + 1 < end) {
        int b = p[1] | 32;
        base = b == 'b' ? 2 : b == 'o' ? 8 : b == 'x' ? 16 : 10;
        if (base != 10 && digits(p + 2, end, base, true, text, &n, cap) == p + 2) base = 10;
        n = 0;
    }
    bool is_real = false;
    const char *q = digits(p, end, 10, false, text, &n, cap);
    bool after_dot = x->at > x->c->tok.at[0].s && x->at[-1] == '.';
    if (base == 10 && !after_dot) {
        const char *f = q;
        size_t keep = n;
        if (f + 1 < end && *f == '.' && f[1] >= '0' && f[1] <= '9') {
            text[n++] = '.';
            f = digits(f + 1, end, 10, false, text, &n, cap);
            q = f, keep = n, is_real = true;
        }
        if (f < end && (*f | 32) == 'e') {
            const char *e = f + 1;
            text[n++] = 'e';
            if (e < end && (*e == '+' || *e == '-')) text[n++] = *e++;
            const char *g = digits(e, end, 10, false, text, &n, cap + 4);
            if (g > e) q = g, keep = n, is_real = true;
        }
        n = keep;
    }
    if (!is_real && base == 10 && *p == '0') {
        n = 0;
        for (q = p; q < end && (*q == '0' || (*q == '_' && q > p && q + 1 < end && q[1] == '0')); q++)
            n = 1, text[0] = '0';
    }
    if (base != 10) n = 0, q = digits(p + 2, end, base, true, text, &n, cap);
    if (n >= cap) lex_fail(x, "a number with too many digits");
    text[n] = 0;
    errno = 0;
    if (is_real) push(x, (Tok){ .kind = T_REAL, .d = strtod(text, NULL) });
    else {
        int64_t i = strtoll(text, NULL, base);
        if (errno) lex_fail(x, "a whole number that does not fit 64 bits");
        push(x, (Tok){ .kind = T_INT, .i = i });
    }
    x->at = q;
    return true;
}

static bool name(Lex *x) {
    const char *from = x->at;
    uint32_t code;
    int len;
    while (x->at < x->end && (len = utf8_get(x->at, (size_t)(x->end - x->at), &code)) && ch_word(code)) x->at += len;
    if (x->at == from) return false;
    push(x, (Tok){ .kind = T_NAME, .s = from, .n = (size_t)(x->at - from) });
    return true;
}

/* \x41 \u0041 \U00000041 and \101 behind the backslash; p is at the letter.  Returns the end, or NULL when it is
 * malformed. */
static const char *coded(const char *p, const char *end, uint32_t *code) {
    int want = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0, base = want ? 16 : 8, n = 0;
    if (want) p++;
    *code = 0;
    for (; n < (want ? want : 3) && p < end && digit_of(*p) < base; n++)
        *code = *code * (uint32_t)base + (uint32_t)digit_of(*p++);
    return (want && n < want) || *code > 0x10FFFF || (*code >= 0xD800 && *code < 0xE000) ? NULL : p;
}

/* Escapes as Python's unicode_escape reads them, after Jinja2 has turned what is not ASCII into escapes of its own: a
 * backslash before such a character therefore escapes that escape's backslash, and its code is what remains to be
 * read. */
static Value unescape(Lex *x, const char *p, const char *end) {
    char *out = mem_push(x->c->mem, (size_t)(end - p) * 6 + 1);
    size_t n = 0;
    while (p < end) {
        if (*p != '\\') {
            out[n++] = *p++;
            continue;
        }
        if (++p >= end) lex_fail(x, "a string ends with a backslash");
        static const char letter[] = "\\'\"abfnrtv", means[] = "\\'\"\a\b\f\n\r\t\v";
        const char *k = strchr(letter, *p);
        uint32_t code = 0;
        if (*p && k) out[n++] = means[k - letter], p++;
        else if (*p == '\n') p++;
        else if (*p == 'x' || *p == 'u' || *p == 'U' || (*p >= '0' && *p <= '7')) {
            p = coded(p, end, &code);
            if (!p) lex_fail(x, "a malformed \\x, \\u or \\U escape in a string");
            n += (size_t)utf8_put(out + n, code);
        } else if (*p == 'N') {
            lex_fail(x, "\\N{...} in a string is not supported; use \\u");
        } else {
            out[n++] = '\\';
            int len = utf8_get(p, (size_t)(end - p), &code);
            if (code < 0x80) out[n++] = *p++;
            else {
                char hex[12];
                int m = snprintf(hex, sizeof hex, code < 0x100 ? "x%02x" : code < 0x10000 ? "u%04x" : "U%08x", code);
                memcpy(out + n, hex, (size_t)m);
                n += (size_t)m;
                p += len;
            }
        }
    }
    return v_strn(out, n);
}

static bool string(Lex *x) {
    char quote = *x->at;
    if (quote != '"' && quote != '\'') return false;
    const char *from = x->at + 1, *p = from;
    while (p < x->end && *p != quote) p += *p == '\\' ? 2 : 1;
    if (p >= x->end) lex_fail(x, "unexpected char at a quote that is never closed");
    Value v = unescape(x, from, p);
    push(x, (Tok){ .kind = T_STR, .s = v.s, .n = v.n });
    count_lines(x, from, p);
    x->at = p + 1;
    return true;
}

static void operator_(Lex *x, Buf *open) {
    /* clang-format off */
    static const struct {
        char s[3];
        int op;
    } two[] = {
        { "//", OP_FLOORDIV }, { "**", OP_POW }, { "==", OP_EQ },
        { "!=", OP_NE }, { ">=", OP_GE }, { "<=", OP_LE },
    };
    /* clang-format on */
    for (size_t i = 0; i < COUNT(two); i++)
        if (here(x, two[i].s)) {
            push(x, (Tok){ .kind = T_OP, .op = two[i].op });
            x->at += 2;
            return;
        }
    char c = *x->at, what[64];
    if (!c || !strchr("+-/*%~[](){}><=.:|,;", c)) {
        snprintf(what, sizeof what, c > ' ' && c < 127 ? "unexpected char '%c'" : "unexpected char 0x%02x",
                 (unsigned char)c);
        lex_fail(x, what);
    }
    if (strchr("([{", c)) buf_putc(open, c == '(' ? ')' : c == '[' ? ']' : '}');
    if (strchr(")]}", c)) {
        char want = open->n ? open->data[--open->n] : 0;
        snprintf(what, sizeof what, want ? "unexpected '%c', expected '%c'" : "unexpected '%c'", c, want);
        if (want != c) lex_fail(x, what);
    }
    push(x, (Tok){ .kind = T_OP, .op = c });
    x->at++;
}

static void tag(Lex *x, bool is_var, Buf *open) {
    push(x, (Tok){ .kind = is_var ? T_VAR : T_BLOCK });
    open->n = 0;
    for (;;) {
        if (!open->n && tag_end(x, is_var ? "}}" : "%}", !is_var)) break;
        skip_space(x);
        if (x->at >= x->end) lex_fail(x, is_var ? "a {{ is never closed" : "a {% is never closed");
        if (!open->n && tag_end(x, is_var ? "}}" : "%}", !is_var)) break;
        if (!number(x) && !name(x) && !string(x)) operator_(x, open);
    }
    push(x, (Tok){ .kind = is_var ? T_VAR_END : T_BLOCK_END });
}

/* The brackets that are open are kept in a string of the compiler's, which outlives a failure. */
void jinja_lex(Comp *c, const char *text, size_t n) {
    Lex x = { .c = c, .at = text, .end = text + n, .line = 1, .line_starting = true };
    push(&x, (Tok){ .kind = T_DATA, .s = text }); /* the first token only marks where the text begins */
    c->at = 1;
    const char *from = text;
    while (x.at < x.end) {
        const char *open = memchr(x.at, '{', (size_t)(x.end - x.at));
        if (!open || open + 1 >= x.end) break;
        if (open[1] != '{' && open[1] != '%' && open[1] != '#') {
            x.at = open + 1;
            continue;
        }
        x.at = open + 2;
        char sign = sign_here(&x);
        data(&x, from, open, sign, open[1] == '{');
        if (open[1] == '#') comment(&x);
        else if (open[1] == '{' || !raw(&x)) tag(&x, open[1] == '{', &c->brackets);
        from = x.at;
    }
    if (from < x.end) push(&x, (Tok){ .kind = T_DATA, .s = from, .n = (size_t)(x.end - from) });
    push(&x, (Tok){ .kind = T_EOF });
}
