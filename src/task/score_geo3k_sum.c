/* score_geo3k_sum.c - is one sum equal to another?  Read by Python's grammar with SymPy's implicit products: 2x is 2*x,
 * xy is x*y, 2(x+1) a product, ^ a power; pi, sqrt(...), ln(...) are known, every other letter is a symbol.
 *
 * The rule tries only what it thinks harmless: at most two letters besides sqrt and frac, no power in
 * brackets, of a power or of two digits.  A decimal is exact here and a float there: powers and roots of
 * decimals equal nothing, as there. */
#include "base/utf8.h"
#include "task/geo3k.h"

#include <string.h>
#include <utf8proc.h>

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t letter(Span s, size_t at, uint32_t *code) { /* bytes of the letter there; 0: none */
    int n = at < s.n ? utf8_get(s.at + at, s.n - at, code) : 0;
    if (n <= 0) return 0;
    utf8proc_category_t c = utf8proc_category((utf8proc_int32_t)*code);
    return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO ? (size_t)n : 0;
}

static bool harmless(Span s) {
    if (span_find(s, 0, SPAN("^{")) != SIZE_MAX || span_find(s, 0, SPAN("^(")) != SIZE_MAX) return false;
    uint32_t seen[2], code;
    int letters = 0;
    for (size_t i = 0; i < s.n;) {
        Span rest = span_from(s, i);
        if (span_starts(rest, SPAN("sqrt")) || span_starts(rest, SPAN("frac"))) {
            i += 4;
            continue;
        }
        size_t n = letter(s, i, &code);
        bool known = n && ((letters > 0 && seen[0] == code) || (letters > 1 && seen[1] == code));
        if (n && !known && letters == 2) return false;
        if (n && !known) seen[letters++] = code;
        if (s.at[i] == '^' && i + 2 < s.n && is_digit(s.at[i + 1])) {
            size_t k = i + 1;
            while (k < s.n && is_digit(s.at[k])) k++;
            if (k > i + 2 || (k < s.n && s.at[k] == '^')) return false;
        }
        i += n ? n : 1;
    }
    return true;
}

typedef struct {
    Mx *m;
    Span s;
    size_t at;
    int depth;
    bool bad;
} Reading;

static char peek(const Reading *r) { return r->at < r->s.n ? r->s.at[r->at] : 0; }
static Node *fail(Reading *r) {
    r->bad = true;
    return mx_node(r->m, N_NUM, 0);
}

static Node *pair(Reading *r, NodeKind kind, Node *a, Node *b) {
    Node *n = mx_node(r->m, kind, 2);
    n->kid[0] = a;
    n->kid[1] = b;
    return n;
}

static Node *of_num(Reading *r, mpq_ptr q) {
    Node *n = mx_node(r->m, N_NUM, 0);
    n->num = q;
    return n;
}

/* 12, 1.5, .5, 2e3.  Python refuses whole numbers that begin with 0. */
static Node *number(Reading *r, bool *decimal) {
    enum { MOST = 200 };
    char text[2 * MOST + 8];
    size_t n = 0, from = r->at;
    long scale = 0;
    *decimal = false;
    for (; n < MOST && (is_digit(peek(r)) || (peek(r) == '.' && !*decimal)); r->at++) {
        if (peek(r) == '.') *decimal = true;
        else text[n++] = peek(r), scale -= *decimal;
    }
    if (!n || n == MOST) return fail(r);
    Span rest = span_from(r->s, r->at);
    size_t sign = rest.n > 1 && rest.at[0] == 'e' && (rest.at[1] == '-' || rest.at[1] == '+');
    if (rest.n > 1 + sign && rest.at[0] == 'e' && is_digit(rest.at[1 + sign])) {
        long e = 0;
        r->at += 1 + sign;
        for (; is_digit(peek(r)); r->at++) e = e < 1000 ? e * 10 + (peek(r) - '0') : e;
        if (e > 300) return fail(r);
        scale += sign && rest.at[1] == '-' ? -e : e;
        *decimal = true;
    }
    if (!*decimal && r->s.at[from] == '0' && n > 1 && strspn(text, "0") < n) return fail(r);
    text[n] = 0;
    mpq_ptr q = mx_num(r->m), ten = mx_num(r->m);
    mpz_set_str(mpq_numref(q), text, 10);
    mpz_ui_pow_ui(mpq_numref(ten), 10, (unsigned long)(scale < 0 ? -scale : scale));
    if (scale < 0) mpq_div(q, q, ten);
    else mpq_mul(q, q, ten);
    return of_num(r, q);
}

static Node *sum(Reading *r);

static Node *bracket(Reading *r) { /* ( ... ) */
    r->at++;
    Node *n = ++r->depth > MX_DEPTH ? fail(r) : sum(r);
    r->depth--;
    if (peek(r) != ')') return fail(r);
    r->at++;
    return n;
}

static Node *call(Reading *r, Span name) {
    size_t from = r->at;
    Node *in = bracket(r);
    if (memchr(r->s.at + from, '.', r->at - from)) return fail(r);
    if (span_eq(name, SPAN("sqrt"))) {
        mpq_ptr half = mx_num(r->m);
        mpq_set_ui(half, 1, 2);
        return pair(r, N_POW, in, of_num(r, half));
    }
    Node *f = mx_node(r->m, N_FUNC, 1);
    f->name = name;
    f->kid[0] = in;
    return f;
}

/* A run of letters and digits: pi, a function with its bracket, or symbols and numbers beside each other. */
static Node *word(Reading *r) {
    static const char *const python[] = { "as", "if", "in", "is", "or" };
    size_t from = r->at;
    uint32_t code;
    for (size_t n; (n = letter(r->s, r->at, &code)) || is_digit(peek(r));) r->at += n ? n : 1;
    Span name = { r->s.at + from, r->at - from };
    for (size_t i = 0; i < COUNT(python); i++)
        if (span_eq(name, span_of(python[i]))) return fail(r);
    if (peek(r) == '(' && (span_eq(name, SPAN("sqrt")) || span_eq(name, SPAN("ln")))) return call(r, name);
    if (span_eq(name, SPAN("pi"))) {
        Node *n = mx_node(r->m, N_SYM, 0);
        n->name = name;
        return n;
    }
    Node *all = NULL;
    for (size_t i = 0; i < name.n;) {
        size_t n = letter(name, i, &code);
        Node *one;
        if (n) {
            one = mx_node(r->m, N_SYM, 0);
            one->name = (Span){ mem_printf(&r->m->mem, "symbol %.*s", (int)n, name.at + i), n + 7 };
        } else {
            Reading in = { .m = r->m, .s = name, .at = i };
            while (i + n < name.n && is_digit(name.at[i + n])) n++;
            in.s.n = i + n;
            bool decimal;
            one = number(&in, &decimal);
            r->bad |= in.bad;
        }
        all = all ? pair(r, N_MUL, all, one) : one;
        i += n;
    }
    return all;
}

static Node *atom(Reading *r, bool *decimal) {
    uint32_t code;
    *decimal = false;
    if (is_digit(peek(r)) || peek(r) == '.') return number(r, decimal);
    if (peek(r) == '(') return bracket(r);
    return letter(r->s, r->at, &code) ? word(r) : fail(r);
}

static Node *power(Reading *r);

static Node *sign(Reading *r) {
    char c = peek(r);
    if (c != '-' && c != '+') return power(r);
    r->at++;
    if (++r->depth > MX_DEPTH) return fail(r);
    Node *in = sign(r);
    r->depth--;
    if (c == '+') return in;
    Node *n = mx_node(r->m, N_NEG, 1);
    n->kid[0] = in;
    return n;
}

static Node *power(Reading *r) {
    bool of_decimal, by_decimal = false;
    Node *base = atom(r, &of_decimal);
    if (peek(r) != '^') return base;
    r->at++;
    size_t from = r->at;
    Node *by = sign(r);
    for (size_t i = from; i < r->at; i++) by_decimal |= r->s.at[i] == '.';
    if (by_decimal) return fail(r);
    return pair(r, N_POW, base, by);
}

/* Products, written and implied. */
static Node *product(Reading *r) {
    Node *all = sign(r);
    while (!r->bad) {
        uint32_t code;
        char c = peek(r);
        if (c == '*' || c == '/') {
            r->at++;
            all = pair(r, c == '*' ? N_MUL : N_DIV, all, sign(r));
        } else if (c == '(' || (is_digit(c) && r->s.at[r->at - 1] == ')') || letter(r->s, r->at, &code))
            all = pair(r, N_MUL, all, power(r));
        else break;
    }
    return all;
}

static Node *sum(Reading *r) {
    Node *all = product(r);
    while (!r->bad && (peek(r) == '+' || peek(r) == '-')) {
        NodeKind kind = peek(r) == '+' ? N_ADD : N_SUB;
        r->at++;
        all = pair(r, kind, all, product(r));
    }
    return all;
}

static bool value(Mx *m, Span s, Frac *out) {
    Reading r = { .m = m, .s = s };
    const Node *n = sum(&r);
    if (r.bad || r.at != s.n) return false;
    *out = mx_eval(m, n);
    return !m->beyond;
}

bool geo3k_same_sum(Span truth, Span given) {
    if (truth.n + given.n > MX_BYTES) return false;
    Mx m = { .sign = 1 };
    Span both = { mem_printf(&m.mem, "(%.*s)-(%.*s)", (int)truth.n, truth.at, (int)given.n, given.at),
                  truth.n + given.n + 5 };
    Frac a, b;
    bool yes = harmless(both) && value(&m, truth, &a) && value(&m, given, &b) && frac_same(&m, a, b) && !m.beyond;
    mx_free(&m);
    return yes;
}
