/* calculator.c - exact arithmetic: numbers are fractions of whole numbers of any length, so no answer is rounded.  What
 * would grow without end (2^2^2^2^9) is refused by its size before it is computed. */
#include "tool/tool.h"

#include <gmp.h>
#include <string.h>

enum { NESTED_MOST = 200, BITS_MOST = 16384, DIGITS_MOST = 2000 };

typedef struct {
    const char *at, *end;
    int depth;
    const char *why;
} Calc;

static bool fail(Calc *c, const char *why) {
    if (!c->why) c->why = why;
    return false;
}

static void blank(Calc *c) {
    while (c->at < c->end && (*c->at == ' ' || *c->at == '\t' || *c->at == '\n' || *c->at == '\r')) c->at++;
}

static bool eat(Calc *c, const char *sign) {
    size_t n = strlen(sign);
    blank(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, sign, n)) return false;
    c->at += n;
    return true;
}

static size_t bits(const mpq_t x) {
    size_t a = mpz_sizeinbase(mpq_numref(x), 2), b = mpz_sizeinbase(mpq_denref(x), 2);
    return a > b ? a : b;
}

static bool sum(Calc *c, mpq_t out);

/* Digits, with commas between them as people write thousands, and a point. */
static bool number(Calc *c, mpq_t out) {
    char digits[DIGITS_MOST + 1];
    size_t n = 0, behind = 0;
    bool point = false;
    for (; c->at < c->end; c->at++) {
        char ch = *c->at;
        if (ch == '.' && !point) point = true;
        else if (ch == ',' && n && !point && c->end - c->at > 3) continue;
        else if (ch < '0' || ch > '9') break;
        else if (n == DIGITS_MOST) return fail(c, "a number is too long");
        else digits[n++] = ch, behind += point;
    }
    if (!n) return fail(c, "a number is missing");
    digits[n] = 0;
    mpz_set_str(mpq_numref(out), digits, 10);
    mpz_ui_pow_ui(mpq_denref(out), 10, behind);
    mpq_canonicalize(out);
    return true;
}

static bool power(Calc *c, mpq_t x, const mpq_t y) {
    if (mpz_cmp_ui(mpq_denref(y), 1)) return fail(c, "only whole exponents are exact");
    if (!mpz_fits_slong_p(mpq_numref(y))) return fail(c, "the result is too large");
    long e = mpz_get_si(mpq_numref(y));
    unsigned long size = e < 0 ? 0 - (unsigned long)e : (unsigned long)e;
    if (e < 0 && !mpq_sgn(x)) return fail(c, "division by zero");
    bool grows = bits(x) > 1;
    if (grows && (size > BITS_MOST || size * bits(x) > BITS_MOST)) return fail(c, "the result is too large");
    if (!grows) size = size % 2 ? 1 : size ? 2 : 0; /* 0, 1 and -1 */
    mpz_pow_ui(mpq_numref(x), mpq_numref(x), size);
    mpz_pow_ui(mpq_denref(x), mpq_denref(x), size);
    if (e < 0) mpq_inv(x, x);
    return true;
}

/* A number, brackets, or a sign before one; x^y binds more tightly than a sign before it, and to the right. */
static bool factor(Calc *c, mpq_t out) {
    bool ok, minus = false;
    if (++c->depth > NESTED_MOST) return fail(c, "nested too deeply");
    if (eat(c, "-") || eat(c, "\u2212")) minus = true;
    else eat(c, "+");
    blank(c);
    if (minus || (c->at < c->end && (*c->at == '-' || *c->at == '+'))) ok = factor(c, out);
    else {
        if (eat(c, "(")) ok = sum(c, out) && (eat(c, ")") || fail(c, "a bracket is not closed"));
        else ok = number(c, out);
        if (ok && (eat(c, "**") || eat(c, "^"))) {
            mpq_t y;
            mpq_init(y);
            ok = factor(c, y) && power(c, out, y);
            mpq_clear(y);
        }
    }
    if (minus) mpq_neg(out, out);
    c->depth--;
    return ok;
}

static bool product(Calc *c, mpq_t out) {
    mpq_t y;
    mpq_init(y);
    bool ok = factor(c, out);
    while (ok) {
        bool over = eat(c, "/") || eat(c, "\u00F7");
        if (!over && !eat(c, "*") && !eat(c, "\u00D7")) break;
        ok = factor(c, y);
        if (ok && over && !mpq_sgn(y)) ok = fail(c, "division by zero");
        if (ok) (over ? mpq_div : mpq_mul)(out, out, y);
        if (ok && bits(out) > BITS_MOST) ok = fail(c, "the result is too large");
    }
    mpq_clear(y);
    return ok;
}

static bool sum(Calc *c, mpq_t out) {
    mpq_t y;
    mpq_init(y);
    bool ok = product(c, out);
    while (ok) {
        bool minus = eat(c, "-") || eat(c, "\u2212");
        if (!minus && !eat(c, "+")) break;
        ok = product(c, y);
        if (ok) (minus ? mpq_sub : mpq_add)(out, out, y);
        if (ok && bits(out) > BITS_MOST) ok = fail(c, "the result is too large");
    }
    mpq_clear(y);
    return ok;
}

/* As a decimal where it ends, else as a fraction. */
static void put(mpq_t x, Buf *b) {
    mpz_t rest, ten;
    unsigned long twos = 0, fives = 0;
    mpz_init_set(rest, mpq_denref(x));
    mpz_init(ten);
    while (mpz_divisible_ui_p(rest, 2)) mpz_divexact_ui(rest, rest, 2), twos++;
    while (mpz_divisible_ui_p(rest, 5)) mpz_divexact_ui(rest, rest, 5), fives++;
    unsigned long behind = twos > fives ? twos : fives;
    bool ends = !mpz_cmp_ui(rest, 1) && behind <= DIGITS_MOST;
    char text[BITS_MOST / 2]; /* more than the digits of BITS_MOST bits */
    if (ends) {
        mpz_ui_pow_ui(ten, 10, behind);
        mpz_mul(rest, mpq_numref(x), ten);
        mpz_divexact(rest, rest, mpq_denref(x));
        if (mpz_sgn(rest) < 0) buf_putc(b, '-');
        mpz_abs(rest, rest);
    }
    if (!ends || mpz_sizeinbase(rest, 10) >= sizeof text - 2) {
        if (mpz_sizeinbase(mpq_numref(x), 10) < sizeof text - 2) buf_puts(b, mpz_get_str(text, 10, mpq_numref(x)));
        if (mpz_sizeinbase(mpq_denref(x), 10) < sizeof text - 2)
            buf_printf(b, "/%s", mpz_get_str(text, 10, mpq_denref(x)));
    } else {
        mpz_get_str(text, 10, rest);
        size_t n = strlen(text);
        if (behind >= n) buf_puts(b, "0.");
        for (size_t i = n; i < behind; i++) buf_putc(b, '0');
        for (size_t i = 0; i < n; i++) {
            if (behind && i && n - i == behind) buf_putc(b, '.');
            buf_putc(b, text[i]);
        }
    }
    mpz_clear(rest);
    mpz_clear(ten);
}

bool calculate(Span s, Buf *answer) {
    Calc c = { .at = s.at, .end = s.at + s.n };
    mpq_t x;
    mpq_init(x);
    bool ok = sum(&c, x);
    if (ok && eat(&c, "=")) blank(&c); /* "12*3=" */
    blank(&c);
    if (ok && c.at < c.end) ok = fail(&c, "only numbers, + - * / ^ and brackets are understood");
    if (ok) put(x, answer);
    else buf_printf(answer, "Error: %s (at character %zu)", c.why, (size_t)(c.at - s.at) + 1);
    mpq_clear(x);
    return ok;
}

static bool call(const Json *arguments, Buf *answer) {
    const Json *e = json_get(arguments, "expression");
    if (e && e->kind == JSON_STRING) return calculate((Span){ e->str, e->n }, answer);
    buf_puts(answer, "Error: \"expression\" must be a text, like \"(3+4)*5\"");
    return false;
}

const Tool tool_calculator = {
    .name = "calculator",
    .schema = "{\"name\":\"calculator\",\"description\":\"Evaluates an expression exactly: numbers, + - * / ^ and "
              "brackets.\",\"parameters\":{\"type\":\"object\",\"properties\":{\"expression\":{\"type\":\"string\"}},"
              "\"required\":[\"expression\"]}}",
    .call = call,
};
