/* mathx_lex.c - an answer's text, LaTeX or plain, as tokens.  Layout commands vanish; \text{...} is looked
 * into: it may be a unit, an "and", a number, or words.  Digits become rational numbers at once: 1,234.5
 * and 0.\overline{3} exactly. */
#include "maths/mathx.h"

#include <string.h>

typedef struct {
    Mx *m;
    Span s;
    size_t i;
    VEC(Token)
    out;
    int brackets, nested; /* brackets that are seen: in them a comma separates */
    bool spaced, failed;
} Lex;

/* clang-format off */
static const char *const ignored[] = {
    "left", "right", "big", "Big", "bigg", "Bigg", "bigl", "bigr", "Bigl", "Bigr", "biggl", "biggr", "Biggl", "Biggr",
    "displaystyle", "textstyle", "limits", "mathopen", "mathclose", "boxed", "mathbf", "mathit", "vec", "hat",
    "underline", "mathcal", "bm", "boldsymbol", "angle", "triangle", "rm", "bf", "it", "fbox", "prime", "phantom",
    "mathstrut", "bold", "ensuremath",
};
static const char *const spaces[] = {
    "quad", "qquad", ",", ";", ":", "!", " ", "\n", "thinspace", "enspace", "space", ">", "(", ")", "[", "]", "$", "#",
};
static const char *const texts[] = {
    "text", "textbf", "textit", "textrm", "mbox", "mathrm", "mathsf", "operatorname", "textnormal", "hbox", "texttt",
    "textsf",
};
static const char *const functions[] = {
    "sin", "cos", "tan", "cot", "sec", "csc", "ln", "log", "lg", "exp", "arcsin", "arccos", "arctan", "sinh", "cosh",
    "tanh", "gcd", "lcm", "max", "min", "abs", "floor", "ceil", "det",
};
static const char *const ordinals[] = { "st", "nd", "rd", "th" };
/* Short words that are not products of letters. */
static const char *const words[] = {
    "yes", "no", "odd", "all", "not", "dne", "DNE", "Yes", "No", "Odd", "YES", "NO",
}; 

/* Commands and characters that are one token under another name. */
static const struct { const char *from; char c; const char *symbol; } same_as[] = {
    { "times", '*', 0 }, { "cdot", '*', 0 }, { "ast", '*', 0 }, { "bullet", '*', 0 }, { "div", '/', 0 },
    { "pm", 'P', 0 }, { "mp", 'M', 0 }, { "le", 'l', 0 }, { "leq", 'l', 0 }, { "leqslant", 'l', 0 }, { "ge", 'g', 0 },
    { "geq", 'g', 0 }, { "geqslant", 'g', 0 }, { "lt", '<', 0 }, { "gt", '>', 0 }, { "ne", 'N', 0 }, { "neq", 'N', 0 },
    { "approx", '~', 0 }, { "sim", '~', 0 }, { "simeq", '~', 0 }, { "cong", '~', 0 }, { "equiv", '~', 0 },
    { "in", 'e', 0 }, { "cup", 'U', 0 }, { "cap", 'A', 0 }, { "setminus", 'D', 0 }, { "{", 'L', 0 }, { "}", 'R', 0 },
    { "lbrace", 'L', 0 }, { "rbrace", 'R', 0 }, { "%", '%', 0 }, { "lvert", '|', 0 }, { "rvert", '|', 0 },
    { "vert", '|', 0 }, { "mid", '|', 0 }, { "lor", ',', 0 }, { "vee", ',', 0 }, { "land", ',', 0 },
    { "wedge", ',', 0 }, { "\\", 'n', 0 }, { "langle", '(', 0 }, { "rangle", ')', 0 }, { "&", '&', 0 },
    { "lbrack", '[', 0 }, { "rbrack", ']', 0 }, { "colon", ':', 0 },
    { "infty", 0, "oo" }, { "pi", 0, "pi" }, { "varnothing", 0, "\\emptyset" }, { "emptyset", 0, "\\emptyset" },
    { "dfrac", 0, "\\frac" }, { "tfrac", 0, "\\frac" }, { "cfrac", 0, "\\frac" }, { "dbinom", 0, "\\binom" },
    { "tbinom", 0, "\\binom" }, { "bar", 0, "\\overline" }, { "degree", 0, "degree" }, { "varphi", 0, "phi" },
    { "varepsilon", 0, "epsilon" }, { "\xC3\x97", '*', 0 }, { "\xC2\xB7", '*', 0 }, { "\xC3\xB7", '/', 0 },
    { "\xE2\x88\x92", '-', 0 }, { "\xE2\x80\x93", '-', 0 }, { "\xE2\x89\xA4", 'l', 0 }, { "\xE2\x89\xA5", 'g', 0 },
    { "\xE2\x89\xA0", 'N', 0 }, { "\xE2\x89\x88", '~', 0 }, { "\xE2\x88\xAA", 'U', 0 }, { "\xE2\x88\xA9", 'A', 0 },
    { "\xE2\x88\x88", 'e', 0 }, { "\xC2\xB1", 'P', 0 }, { "\xCF\x80", 0, "pi" }, { "\xE2\x88\x9E", 0, "oo" },
    { "\xE2\x88\x9A", 0, "\\sqrt" }, { "\xC2\xB0", 0, "degree" }, { "\xE2\x88\x85", 0, "\\emptyset" },
    { "\xCE\xB8", 0, "theta" }, { "\xC2\xA0", ' ', 0 }, { "\xE2\x80\x89", ' ', 0 }, { "\xC2\xA3", ' ', 0 },
    { "\xE2\x82\xAC", ' ', 0 },
};
/* clang-format on */

static bool in_list(Span w, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (span_eq(w, span_of(list[i]))) return true;
    return false;
}
#define IN(w, list) in_list(w, list, COUNT(list))

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
static char at(const Lex *l, size_t i) { return i < l->s.n ? l->s.at[i] : 0; }

static void push(Lex *l, Token t) {
    t.spaced = l->spaced;
    l->spaced = false;
    if (l->out.n >= MX_TOKENS) l->failed = true;
    else VEC_PUSH(l->out, t);
}

static void push_char(Lex *l, char c) {
    if (c == ' ') {
        l->spaced = true;
        return;
    }
    if (strchr("([L", c)) l->brackets++;
    if (strchr(")]R", c)) l->brackets--;
    push(l, (Token){ .kind = T_CHAR, .c = c });
}

/* "\\name" is a command, "degree" a unit, all else a symbol. */
static void push_name(Lex *l, Span w) {
    if (w.n && w.at[0] == '\\') push(l, (Token){ .kind = T_CMD, .name = span_from(w, 1) });
    else if (span_eq(w, SPAN("degree"))) push(l, (Token){ .kind = T_UNIT, .name = w });
    else push(l, (Token){ .kind = T_SYM, .name = w });
}

static bool push_same(Lex *l, Span w) {
    for (size_t i = 0; i < COUNT(same_as); i++) {
        if (!span_eq(w, span_of(same_as[i].from))) continue;
        if (same_as[i].c) push_char(l, same_as[i].c);
        else push_name(l, span_of(same_as[i].symbol));
        return true;
    }
    return false;
}

/* ---- Numbers */
/* How many bytes of separator stand at i before three more digits: "," "{,}" ",\!" "\,". */
static size_t thousands(const Lex *l, size_t i) {
    static const char *const marks[] = { "{,}", ",\\!", "\\,", "," };
    Span rest = span_from(l->s, i);
    for (size_t k = 0; k < COUNT(marks); k++) {
        Span mark = span_of(marks[k]);
        if (!span_starts(rest, mark) || (mark.n == 1 && l->brackets > 0)) continue;
        size_t d = i + mark.n;
        if (is_digit(at(l, d)) && is_digit(at(l, d + 1)) && is_digit(at(l, d + 2)) && !is_digit(at(l, d + 3)))
            return mark.n;
    }
    return 0;
}

/* The digits of \overline{...} or \bar{...} behind a decimal point. */
static size_t repeating(const Lex *l, size_t i, Span *digits) {
    static const char *const marks[] = { "\\overline{", "\\bar{", "\\dot{" };
    for (size_t k = 0; k < COUNT(marks); k++) {
        Span mark = span_of(marks[k]);
        if (!span_starts(span_from(l->s, i), mark)) continue;
        size_t from = i + mark.n, to = from;
        while (is_digit(at(l, to))) to++;
        *digits = (Span){ l->s.at + from, to - from };
        return to > from && at(l, to) == '}' ? to + 1 - i : 0;
    }
    return 0;
}

/* q += cycle / (10^frac (10^len - 1)); r is room. */
static void add_cycle(mpq_ptr q, mpq_ptr r, Span cycle, size_t frac) {
    char text[100] = { 0 };
    memcpy(text, cycle.at, cycle.n);
    mpz_set_str(mpq_numref(r), text, 10);
    mpz_ui_pow_ui(mpq_denref(r), 10, cycle.n);
    mpz_sub_ui(mpq_denref(r), mpq_denref(r), 1);
    mpz_t scale;
    mpz_init(scale);
    mpz_ui_pow_ui(scale, 10, frac);
    mpz_mul(mpq_denref(r), mpq_denref(r), scale);
    mpz_clear(scale);
    mpq_canonicalize(r);
    mpq_add(q, q, r);
}

static void lex_number(Lex *l) {
    char digits[600];
    size_t n = 0, start = l->i, i = start, frac = 0;
    Span cycle = { 0 };
    bool point = false, grouped = false;
    for (size_t sep; n < sizeof digits - 1;) {
        if (is_digit(at(l, i))) {
            digits[n++] = at(l, i++);
            frac += point;
        } else if (!point && n && (grouped || n <= 3) && (sep = thousands(l, i))) {
            i += sep;
            grouped = true;
        } else if (!point && at(l, i) == '.' && (is_digit(at(l, i + 1)) || repeating(l, i + 1, &cycle))) {
            point = true;
            i++;
        } else {
            break;
        }
    }
    if (is_digit(at(l, i))) { /* more digits than anybody writes */
        l->failed = true;
        return;
    }
    digits[n] = 0;
    mpq_ptr q = mx_num(l->m), r = mx_num(l->m);
    if (n) mpz_set_str(mpq_numref(q), digits, 10);
    mpz_ui_pow_ui(mpq_denref(q), 10, frac);
    mpq_canonicalize(q);
    size_t tail = point ? repeating(l, i, &cycle) : 0;
    if (tail && cycle.n < 100) {
        add_cycle(q, r, cycle, frac);
        i += tail;
    }
    size_t sign = at(l, i + 1) == '-' || at(l, i + 1) == '+';
    bool integer = !point;
    if ((at(l, i) == 'e' || at(l, i) == 'E') && is_digit(at(l, i + 1 + sign))) { /* 1.5e3 */
        long e = 0;
        size_t k = i + 1 + sign;
        for (; is_digit(at(l, k)) && e < 10000; k++) e = e * 10 + (at(l, k) - '0');
        if (e <= 300 && !is_letter(at(l, k))) {
            mpq_set_ui(r, 1, 1);
            mpz_ui_pow_ui(mpq_numref(r), 10, (unsigned long)e);
            if (at(l, i + 1) == '-') mpq_div(q, q, r);
            else mpq_mul(q, q, r);
            i = k;
            integer = false;
        }
    }
    push(l, (Token){ .kind = T_NUM, .num = q, .name = { l->s.at + start, i - start }, .integer = integer });
    l->i = i;
}

/* ---- Words */
static void lex_all(Lex *l);

static bool has_digit(Span s) {
    for (size_t i = 0; i < s.n; i++)
        if (is_digit(s.at[i])) return true;
    return false;
}

static Span lower(Lex *l, Span w) {
    char *p = mem_str(&l->m->mem, w.at, w.n);
    for (size_t i = 0; i < w.n; i++)
        if (p[i] >= 'A' && p[i] <= 'Z') p[i] += 32;
    return (Span){ p, w.n };
}

static bool after_value(const Lex *l) {
    if (!l->out.n) return false;
    const Token *t = &l->out.at[l->out.n - 1];
    return t->kind == T_NUM || t->kind == T_UNIT || t->kind == T_SYM || (t->kind == T_CHAR && strchr(")}]R/%|", t->c));
}

/* A word of two letters or more. */
static void push_word(Lex *l, Span w) {
    Span low = lower(l, w), unit;
    if (span_eq(low, SPAN("and")) || span_eq(low, SPAN("or"))) push_char(l, ',');
    else if (span_eq(low, SPAN("percent"))) push_char(l, '%');
    else if (span_eq(low, SPAN("infinity")) || span_eq(low, SPAN("inf"))) push_name(l, SPAN("oo"));
    else if (span_eq(low, SPAN("pi"))) push_name(l, SPAN("pi"));
    else if (span_eq(low, SPAN("sqrt"))) push_name(l, SPAN("\\sqrt"));
    else if (IN(low, functions)) push(l, (Token){ .kind = T_FUNC, .name = low });
    else if (after_value(l) && mx_is_unit(low, &unit)) push(l, (Token){ .kind = T_UNIT, .name = unit });
    else if (w.n > 3 || IN(w, words)) push(l, (Token){ .kind = T_TEXT, .name = w });
    else
        for (size_t i = 0; i < w.n; i++) push(l, (Token){ .kind = T_SYM, .name = { w.at + i, 1 } });
}

static void push_text(Lex *l, Span inside) {
    Span w = span_strip(inside), low, unit;
    while (w.n && strchr(".,;", w.at[w.n - 1]) && w.n > 1) w.n--;
    while (w.n && (w.at[0] == ',' || w.at[0] == ' ') && w.n > 1) w = span_from(w, 1);
    if (!w.n) {
        l->spaced = true;
        return;
    }
    low = lower(l, w);
    if (span_eq(low, SPAN("and")) || span_eq(low, SPAN("or")) || span_eq(low, SPAN(","))) push_char(l, ',');
    else if (span_eq(low, SPAN("percent")) || span_eq(low, SPAN("%"))) push_char(l, '%');
    else if (IN(low, functions)) push(l, (Token){ .kind = T_FUNC, .name = low });
    else if (after_value(l) && mx_is_unit(low, &unit)) push(l, (Token){ .kind = T_UNIT, .name = unit });
    else if (after_value(l) && IN(low, ordinals)) l->spaced = true;
    else if (l->nested < 2 && (w.n == 1 || has_digit(w) || (w.at[0] == '(' && w.n <= 3))) {
        Span outer = l->s;
        size_t i = l->i;
        l->s = w;
        l->i = 0;
        l->nested++;
        lex_all(l);
        l->nested--;
        l->s = outer;
        l->i = i;
    } else push(l, (Token){ .kind = T_TEXT, .name = w });
}

/* ^\circ and ^{\circ}: bytes, or 0. */
static size_t degrees(const Lex *l, size_t i) {
    size_t k = i + 1;
    while (at(l, k) == ' ' || at(l, k) == '{') k++;
    bool circ = span_starts(span_from(l->s, k), SPAN("\\circ")),
         deg = span_starts(span_from(l->s, k), SPAN("\\degree"));
    if (at(l, i) != '^' || (!circ && !deg)) return 0;
    k += circ ? 5 : 7;
    while (at(l, k) == ' ') k++;
    return k - i + (at(l, k) == '}');
}

static void lex_command(Lex *l) {
    size_t from = ++l->i, to = from;
    while (is_letter(at(l, to))) to++;
    if (to == from && to < l->s.n) to++;
    Span w = { l->s.at + from, to - from };
    l->i = to;
    if (IN(w, spaces)) l->spaced = true;
    else if (IN(w, ignored)) {
        if ((span_eq(w, SPAN("left")) || span_eq(w, SPAN("right"))) && at(l, to) == '.') l->i++;
    } else if (push_same(l, w)) return;
    else if (IN(w, functions)) push(l, (Token){ .kind = T_FUNC, .name = w });
    else if (IN(w, texts) || span_eq(w, SPAN("mathbb")) || span_eq(w, SPAN("begin")) || span_eq(w, SPAN("end"))) {
        while (at(l, l->i) == ' ') l->i++;
        size_t close = at(l, l->i) == '{' ? span_close_brace(l->s, l->i) : l->i;
        if (close == SIZE_MAX || close >= l->s.n) {
            l->failed = true;
            return;
        }
        Span inside = at(l, l->i) == '{' ? (Span){ l->s.at + l->i + 1, close - l->i - 1 } : (Span){ l->s.at + l->i, 1 };
        l->i = close + 1;
        if (IN(w, texts)) {
            push_text(l, inside);
            return;
        }
        Token t = { .kind = T_CMD, .name = w };
        push(l, t);
        push(l, (Token){ .kind = T_TEXT, .name = inside });
    } else push(l, (Token){ .kind = T_CMD, .name = w });
}

/* Greek letters and the like come as commands that nobody knows: the parser takes them as symbols. */
static void lex_other(Lex *l) {
    static const char *const raised[] = { "\xC2\xB2", "\xC2\xB3" };
    static const struct {
        const char *at;
        int num, den;
    } vulgar[] = {
        { "\xC2\xBD", 1, 2 },     { "\xC2\xBC", 1, 4 },     { "\xC2\xBE", 3, 4 },
        { "\xE2\x85\x93", 1, 3 }, { "\xE2\x85\x94", 2, 3 },
    };
    size_t len = span_char(l->s, l->i);
    Span c = { l->s.at + l->i, len };
    l->i += len;
    for (size_t k = 0; k < COUNT(raised); k++)
        if (span_eq(c, span_of(raised[k]))) {
            push_char(l, '^');
            push(l, (Token){ .kind = T_NUM, .num = mx_int(l->m, (long)k + 2), .name = SPAN("2"), .integer = true });
            return;
        }
    for (size_t k = 0; k < COUNT(vulgar); k++)
        if (span_eq(c, span_of(vulgar[k].at))) {
            mpq_ptr q = mx_num(l->m);
            mpq_set_si(q, vulgar[k].num, (unsigned long)vulgar[k].den);
            push(l, (Token){ .kind = T_NUM, .num = q, .name = c });
            return;
        }
    if (!push_same(l, c)) push(l, (Token){ .kind = T_SYM, .name = c });
}

static void lex_all(Lex *l) {
    while (l->i < l->s.n && !l->failed) {
        char c = at(l, l->i);
        size_t len;
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '$' || c == '~') {
            l->spaced = true;
            l->i++;
        } else if (is_digit(c) || (c == '.' && is_digit(at(l, l->i + 1)))) {
            size_t before = l->i;
            lex_number(l);
            if (l->i == before) l->failed = true;
        } else if (c == '\\') {
            lex_command(l);
        } else if ((len = degrees(l, l->i))) {
            push(l, (Token){ .kind = T_UNIT, .name = SPAN("degree") });
            l->i += len;
        } else if (is_letter(c)) {
            size_t to = l->i + 1;
            while (is_letter(at(l, to))) to++;
            Span w = { l->s.at + l->i, to - l->i };
            l->i = to;
            if (w.n == 1) push(l, (Token){ .kind = T_SYM, .name = w });
            else push_word(l, w);
        } else if ((unsigned char)c >= 0x80) {
            lex_other(l);
        } else {
            l->i++;
            bool two = at(l, l->i) == '=';
            if (two && (c == '<' || c == '>' || c == '!')) {
                push_char(l, c == '<' ? 'l' : c == '>' ? 'g' : 'N');
                l->i++;
            } else if (c == '*' && at(l, l->i) == '*') {
                push_char(l, '^');
                l->i++;
            } else {
                push_char(l, c == ';' ? ',' : c);
            }
        }
    }
}

bool mx_lex(Mx *m, Span text, Token **out, int *n) {
    if (text.n > MX_BYTES) return false;
    Lex l = { .m = m, .s = text };
    lex_all(&l);
    *n = (int)l.out.n;
    *out = MEM_ARRAY(&m->mem, Token, l.out.n + 4); /* four ends behind the last: looking ahead needs no check */
    if (l.out.n) memcpy(*out, l.out.at, l.out.n * sizeof(Token));
    vec_free(l.out.at);
    return !l.failed;
}
