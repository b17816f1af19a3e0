/* score_geo3k.c - verl's verdict on geometry3k: 0.9 for the right answer, 0.1 for the form
 * "<think>...</think>...\boxed{...}".
 *
 * The answer is right if one of three comparisons says so: MATH's normal form (score_math.c), a normal form of its own
 * with units, LaTeX and thousands commas taken away, and the difference of both as a sum (score_geo3k_sum.c), entry by
 * entry of a tuple.  Two fractions must be equal letter by letter and a whole number equals only a whole number: 6/2 is
 * not 3.  That is strange and it is the published rule, so 65.4 there and here mean the same. */
#include "task/geo3k.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the two marks */

/* The whole text: <think> at its very start, then somewhere </think>, then \boxed{, then }. */
static bool has_form(Span s) {
    Span open = SPAN("<think>"), close = SPAN("</think>"), box = SPAN("\\boxed{");
    if (!span_starts(s, open)) return false;
    size_t at = span_find(s, open.n, close);
    at = at == SIZE_MAX ? at : span_find(s, at + close.n, box);
    return at != SIZE_MAX && span_find(s, at + box.n, SPAN("}")) != SIZE_MAX;
}

/* What stands in the last box; "None", which is graded like any other answer, where there is
 * none or it never closes. */
static Span last_box(Span s) {
    size_t at = span_rfind(s, SPAN("\\boxed{"));
    size_t close = at == SIZE_MAX ? at : span_close_brace(s, at);
    return close == SIZE_MAX ? SPAN("None") : span_strip((Span){ s.at + at + 7, close - at - 7 });
}

/* ---- numbers as Python reads them */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static size_t digits(Span s, size_t at) { /* digits with single _ between them */
    size_t i = at;
    while (i < s.n && (is_digit(s.at[i]) || (s.at[i] == '_' && i > at && s.at[i - 1] != '_'))) i++;
    return i > at && s.at[i - 1] == '_' ? at : i;
}

static bool a_float(Span s, double *out) {
    s = span_strip(s);
    char copy[400], *end;
    size_t i = s.n && (s.at[0] == '-' || s.at[0] == '+'), whole = digits(s, i), n = 0;
    bool any = whole > i;
    i = whole;
    if (i < s.n && s.at[i] == '.') {
        size_t to = digits(s, i + 1);
        any = any || to > i + 1;
        i = to;
    }
    if (any && i < s.n && (s.at[i] | 32) == 'e') {
        size_t sign = i + 1 < s.n && (s.at[i + 1] == '-' || s.at[i + 1] == '+'), to = digits(s, i + 1 + sign);
        if (to == i + 1 + sign) return false;
        i = to;
    }
    if (!any || i != s.n || s.n >= sizeof copy) return false;
    for (size_t k = 0; k < s.n; k++)
        if (s.at[k] != '_') copy[n++] = s.at[k];
    copy[n] = 0;
    *out = strtod(copy, &end);
    return isfinite(*out);
}

static bool near_whole(double x) { return fabs(x - nearbyint(x)) <= 1e-7; }

/* 1,234,567 without its commas; any other comma stays. */
static void drop_commas(Buf *b) {
    for (bool again = true; again;) {
        again = false;
        size_t n = 0;
        for (size_t i = 0; i < b->n; i++) {
            const char *c = b->data + i;
            bool comma = *c == ',' && i && is_digit(c[-1]) && i + 3 < b->n && is_digit(c[1]) && is_digit(c[2])
                         && is_digit(c[3]) && (i + 4 == b->n || !is_digit(c[4]));
            if (comma) again = true;
            else b->data[n++] = *c;
        }
        b->n = n;
    }
}

static bool is_whole(Span s, double *x) {
    Buf b = { 0 };
    text_set(&b, s);
    drop_commas(&b);
    bool yes = a_float(text_span(&b), x) && near_whole(*x);
    buf_free(&b);
    return yes;
}

static void put_whole(Buf *b, double x) {
    mpz_t z;
    mpz_init_set_d(z, x);
    char *text = mpz_get_str(NULL, 10, z);
    text_set(b, span_of(text));
    void (*release)(void *, size_t);
    mp_get_memory_functions(NULL, NULL, &release);
    release(text, strlen(text) + 1);
    mpz_clear(z);
}

/* ---- LaTeX as text: what the known commands print, their arguments, and nothing of the others */

static const struct {
    const char *name, *text;
} commands[] = {
    { "pi", "pi" },   { "infty", "inf" }, { "cup", "U" },    { "cdot", "*" },  { "times", "*" }, { "sqrt", "sqrt" },
    { "sin", "sin" }, { "cos", "cos" },   { "tan", "tan" },  { "log", "log" }, { "ln", "ln" },   { "circ", "∘" },
    { "angle", "∠" }, { "pm", "±" },      { "le", "≤" },     { "leq", "≤" },   { "ge", "≥" },    { "geq", "≥" },
    { "ne", "≠" },    { "neq", "≠" },     { "approx", "≈" }, { "theta", "θ" }, { "alpha", "α" }, { "beta", "β" },
    { "gamma", "γ" }, { "phi", "ϕ" },     { "lambda", "λ" }, { "mu", "μ" },    { "div", "÷" },
};

static size_t skip_blanks(Span s, size_t at) {
    for (size_t n; (n = span_space(s, at));) at += n;
    return at;
}

static size_t command_end(Span s, size_t at) { /* behind the name; at: the backslash */
    size_t i = at + 1;
    while (i < s.n && ((s.at[i] | 32) >= 'a' && (s.at[i] | 32) <= 'z')) i++;
    return i > at + 1 ? i : i + span_char(s, i);
}

/* One argument from at on: a group, a command, or a character. */
static size_t argument(Span s, size_t at, Span *arg) {
    at = skip_blanks(s, at);
    if (at < s.n && s.at[at] == '{') { /* one that never closes goes to the end */
        size_t close = span_close_brace(s, at), end = close == SIZE_MAX ? s.n : close;
        return *arg = (Span){ s.at + at + 1, end - at - 1 }, end + (close != SIZE_MAX);
    }
    size_t to = at < s.n && s.at[at] == '\\' ? command_end(s, at) : at + span_char(s, at);
    *arg = (Span){ s.at + at, to - at };
    return to;
}

static void put_text(Buf *out, Span s, int depth);

static size_t put_command(Buf *out, Span s, size_t at, int depth) {
    size_t end = command_end(s, at);
    Span name = { s.at + at + 1, end - at - 1 }, arg;
    if (name.n && strchr(",;: \n", name.at[0])) return buf_putc(out, ' '), end;
    if (name.n && strchr("{}&_#", name.at[0])) return buf_putc(out, name.at[0]), end;
    if (name.n && name.at[0] == '\\') return buf_putc(out, '\n'), end;
    bool word = name.n && (name.at[0] | 32) >= 'a' && (name.at[0] | 32) <= 'z';
    size_t next = word ? skip_blanks(s, end) : end;
    if (span_eq(name, SPAN("frac"))) {
        next = argument(s, next, &arg);
        put_text(out, arg, depth);
        buf_putc(out, '/');
        next = argument(s, next, &arg);
        put_text(out, arg, depth);
        return next;
    }
    for (size_t i = 0; i < COUNT(commands); i++)
        if (span_eq(name, span_of(commands[i].name))) buf_puts(out, commands[i].text);
    if (!span_eq(name, SPAN("sqrt"))) return next;
    if (next < s.n && s.at[next] == '[') {
        size_t close = span_find(s, next, SPAN("]")); /* which root it is gets lost: the rule's own mistake */
        if (close != SIZE_MAX) next = close + 1;
    }
    next = argument(s, next, &arg);
    buf_putc(out, '(');
    put_text(out, arg, depth);
    buf_putc(out, ')');
    return next;
}

static void put_text(Buf *out, Span s, int depth) {
    if (depth > MX_DEPTH) return;
    for (size_t i = 0; i < s.n;) {
        if (s.at[i] == '\\') i = put_command(out, s, i, depth + 1);
        else if (s.at[i] == '{' || s.at[i] == '}') i++;
        else buf_putc(out, s.at[i++]);
    }
}

static void from_latex(Buf *b) {
    Buf out = { 0 };
    text_replace(b, SPAN("\\tfrac"), SPAN("\\frac"));
    text_replace(b, SPAN("\\dfrac"), SPAN("\\frac"));
    text_replace(b, SPAN("\\frac"), SPAN(" \\frac")); /* 7\frac12 is a mixed number */
    put_text(&out, text_span(b), 0);
    text_set(b, span_strip(text_span(&out)));
    buf_free(&out);
}

/* ---- the normal form */

/* Each occurrence of the word with what may follow it: es, s, blanks and a power. */
static void drop_unit(Buf *b, Span unit) {
    Span s = text_span(b);
    Buf out = { 0 };
    size_t from = 0;
    for (size_t at; (at = span_find(s, from, unit)) != SIZE_MAX;) {
        buf_put(&out, s.at + from, at - from);
        from = at + unit.n;
        if (span_starts(span_from(s, from), SPAN("es"))) from += 2;
        if (span_starts(span_from(s, from), SPAN("s"))) from += 1;
        while (from < s.n && s.at[from] == ' ') from++;
        size_t i = from + 1;
        if (from < s.n && s.at[from] == '^')
            while (i < s.n && is_digit(s.at[i])) i++;
        if (i > from + 1) from = i;
    }
    buf_put(&out, s.at + from, s.n - from);
    text_set(b, text_span(&out));
    buf_free(&out);
}

/* Takes `what` and the blanks behind it away (before: the blanks inside `what` after its first byte too). */
static void drop_with_blanks(Buf *b, char first, Span rest) {
    size_t n = 0;
    for (size_t i = 0; i < b->n;) {
        size_t k = i + 1;
        while (rest.n && first == '^' && k < b->n && b->data[k] == ' ') k++;
        if (b->data[i] == first && span_starts(span_from(text_span(b), k), rest)) {
            k += rest.n;
            while (first != '^' && k < b->n && b->data[k] == ' ') k++;
            if (first == '-') b->data[n++] = '-';
            i = k;
        } else b->data[n++] = b->data[i++];
    }
    b->n = n;
}

static void mixed_numbers(Buf *b) { /* "7 3/4": 7+3/4 */
    size_t n = 0;
    for (size_t i = 0; i < b->n;) {
        size_t k = i;
        while (k < b->n && b->data[k] == ' ') k++;
        bool between = k > i && k < b->n && is_digit(b->data[k]) && n && is_digit(b->data[n - 1]);
        if (between) b->data[n++] = '+', i = k;
        else b->data[n++] = b->data[i++];
    }
    b->n = n;
}

/* \text{...} around the whole: what is in it, up to the first brace that ends the text. */
static Span unwrapped(Span s) {
    Span open = SPAN("\\text{");
    if (!span_starts(s, open) || s.n < open.n + 2 || s.at[s.n - 1] != '}') return s;
    return (Span){ s.at + open.n, s.n - open.n - 1 };
}

static void own_normal(Buf *b, Span s) {
    static const char *const first[][2] = {
        { "\\%", "%" },
        { "\\$", "$" },
        { "$", "" },
        { "%", "" },
        { " or ", " , " },
        { " and ", " , " },
        { "million", "*10^6" },
        { "billion", "*10^9" },
        { "trillion", "*10^12" },
    };
    static const char *const units[] = {
        "degree", "cm",   "centimeter", "meter", "mile", "second", "minute", "hour",
        "day",    "week", "month",      "year",  "foot", "feet",   "inch",   "yard",
    };
    double x;
    text_set(b, unwrapped(s));
    for (size_t i = 0; i < COUNT(first); i++) text_replace(b, span_of(first[i][0]), span_of(first[i][1]));
    for (size_t i = 0; i < COUNT(units); i++) drop_unit(b, span_of(units[i]));
    drop_with_blanks(b, '^', SPAN("\\circ"));
    if (b->n > 1 && b->data[0] == '{' && b->data[b->n - 1] == '}') { memmove(b->data, b->data + 1, b->n -= 2); }
    drop_with_blanks(b, ',', SPAN("\\!"));
    if (a_float(text_span(b), &x) && near_whole(x)) put_whole(b, nearbyint(x));
    if (span_find(text_span(b), 0, SPAN("\\")) != SIZE_MAX) from_latex(b);
    drop_with_blanks(b, '-', SPAN(""));
    mixed_numbers(b);
    static const char *const last[] = { " ", "{", "}" };
    for (size_t i = 0; i < COUNT(last); i++) text_replace(b, span_of(last[i]), SPAN(""));
    for (size_t i = 0; i < b->n; i++)
        if (b->data[i] >= 'A' && b->data[i] <= 'Z') b->data[i] += 32;
    if (is_whole(text_span(b), &x)) put_whole(b, x);
}

static bool same_math(Span a, Span b) {
    Buf x = { 0 }, y = { 0 };
    a = span_strip(unwrapped(span_strip(a)));
    b = span_strip(unwrapped(span_strip(b)));
    Span p = math_normal(&x, a, true) ? text_span(&x) : a, q = math_normal(&y, b, true) ? text_span(&y) : b;
    bool yes = span_eq(p, q);
    buf_free(&x);
    buf_free(&y);
    return yes;
}

/* ---- tuples, and their entries */

/* -12/34 and nothing else; the rule's pattern lets one character of any kind stand behind either number. */
static bool is_fraction(Span s) {
    size_t i = s.n && s.at[0] == '-', k = i;
    while (k < s.n && is_digit(s.at[k])) k++;
    if (k == i) return false;
    if (k < s.n && s.at[k] != '/') k += span_char(s, k);
    if (k >= s.n || s.at[k] != '/') return false;
    for (i = ++k; k < s.n && is_digit(s.at[k]); k++) {}
    while (i < k && s.at[i] == '0') i++;
    return i < k && k + span_char(s, k) == s.n;
}

enum { MOST_ENTRIES = 64 };

static int entries(Span s, Span out[MOST_ENTRIES]) {
    if (!s.n) return 0;
    bool tuple = s.n > 2 && strchr("()[]", s.at[0]) && strchr("()[]", s.at[s.n - 1]);
    for (size_t i = 1; tuple && i + 1 < s.n; i++) tuple = !strchr("()[]", s.at[i]);
    if (!tuple) return out[0] = s, 1;
    int n = 0;
    for (size_t from = 1, i = 1; i < s.n && n < MOST_ENTRIES; i++)
        if (i + 1 == s.n || s.at[i] == ',') out[n++] = (Span){ s.at + from, i - from }, from = i + 1;
    return n;
}

static bool same_entry(Span truth, Span given) {
    double x;
    if (is_fraction(truth) && is_fraction(given)) return span_eq(truth, given);
    if (is_whole(truth, &x) != is_whole(given, &x)) return false;
    return geo3k_same_sum(truth, given);
}

static bool same_entries(Buf *truth, Buf *given) {
    Span t[MOST_ENTRIES], g[MOST_ENTRIES], a = text_span(truth), b = text_span(given);
    char ends[4] = { a.n ? a.at[0] : 0, a.n ? a.at[a.n - 1] : 0, b.at[0], b.at[b.n - 1] };
    drop_commas(truth);
    drop_commas(given);
    int n = entries(text_span(truth), t), k = entries(text_span(given), g);
    if (n != k || (n > 1 && (ends[0] != ends[2] || ends[1] != ends[3]))) return false;
    for (int i = 0; i < n; i++)
        if (!same_entry(t[i], g[i])) return false;
    return n > 0;
}

static bool same(Span given, Span truth) {
    if (same_math(given, truth)) return true;
    Buf t = { 0 }, g = { 0 };
    own_normal(&t, truth);
    own_normal(&g, given);
    bool yes = span_eq(text_span(&t), text_span(&g)) || (g.n && same_entries(&t, &g));
    buf_free(&t);
    buf_free(&g);
    return yes;
}

void score_geo3k(const RewardSample *s, RewardResult *out) {
    Span truth, solution = { s->solution, s->solution_n };
    if (!score_truth(s, &truth, out)) return;
    Span answer = last_box(solution);
    bool right = same(answer, truth), form = has_form(solution);
    score_set(out, 0.9 * right + 0.1 * form, right);
    score_vote(out, answer, ' ');
}
