/* score_math.c - verl's verdict on MATH answers: the last \boxed{...}, both sides put through the string normalisation
 * of the MATH paper (Hendrycks et al. 2021), equal or not.  Where the reference raises on odd input (a \sqrt at the
 * very end, two units), it falls back to comparing the raw strings; so does this. */
#include "task/geo3k.h"

#include <string.h>

/* What stands in the last box: false where there is none, or it is not a plain \boxed{...} or "\boxed x". */
static bool last_boxed(Span s, Span *inside) {
    Span spaced = SPAN("\\boxed "), plain = SPAN("\\boxed{");
    size_t at = span_rfind(s, spaced);
    if (at != SIZE_MAX) {
        Span rest = span_from(s, at + spaced.n);
        size_t dollar = span_find(rest, 0, SPAN("$"));
        *inside = (Span){ rest.at, dollar == SIZE_MAX ? rest.n : dollar };
        return true;
    }
    at = span_rfind(s, SPAN("\\boxed"));
    if (at == SIZE_MAX) return false;
    size_t close = span_close_brace(s, at);
    if (close == SIZE_MAX || !span_starts(span_from(s, at), plain)) return false;
    *inside = (Span){ s.at + at + plain.n, close - at - plain.n };
    return true;
}

/* \sqrt3 -> \sqrt{3}; false where nothing follows a \sqrt. */
static bool fix_sqrt(Buf *b) {
    Span s = text_span(b), mark = SPAN("\\sqrt");
    size_t at = span_find(s, 0, mark), from = 0;
    if (at == SIZE_MAX) return true;
    Buf out = { 0 };
    for (; at != SIZE_MAX; at = span_find(s, from, mark)) {
        buf_put(&out, s.at + from, at + mark.n - from);
        from = at + mark.n;
        size_t len = span_char(s, from);
        if (!len || span_starts(span_from(s, from), mark)) return buf_free(&out), false;
        if (s.at[from] == '{') continue;
        buf_putc(&out, '{');
        buf_put(&out, s.at + from, len);
        buf_putc(&out, '}');
        from += len;
    }
    buf_put(&out, s.at + from, s.n - from);
    buf_free(b);
    *b = out;
    return true;
}

/* \frac12 -> \frac{1}{2}, \frac1{72} -> \frac{1}{72}.  A \frac with a single character behind it leaves the whole text
 * as it was; with nothing behind it: false. */
static bool fix_frac(Buf *b) {
    Span s = text_span(b), mark = SPAN("\\frac");
    size_t at = span_find(s, 0, mark);
    if (at == SIZE_MAX) return true;
    Buf out = { 0 };
    buf_put(&out, s.at, at);
    while (at != SIZE_MAX) {
        size_t from = at + mark.n, next = span_find(s, from, mark), to = next == SIZE_MAX ? s.n : next;
        Span part = { s.at + from, to - from };
        if (!part.n) return buf_free(&out), false;
        buf_put(&out, mark.at, mark.n);
        if (part.at[0] != '{') {
            size_t one = span_char(part, 0), two = span_char(part, one);
            if (!two) return buf_free(&out), true;
            bool braced = part.at[one] == '{';
            buf_putc(&out, '{');
            buf_put(&out, part.at, one);
            buf_puts(&out, braced ? "}" : "}{");
            buf_put(&out, part.at + one, two);
            if (!braced) buf_putc(&out, '}');
            part = span_from(part, one + two);
        }
        buf_put(&out, part.at, part.n);
        at = next;
    }
    buf_free(b);
    *b = out;
    return true;
}

/* A whole number as Python would print it: no leading zeros, no "-0", at most the 4300 digits it converts. */
static bool is_plain_int(Span s) {
    size_t sign = s.n && s.at[0] == '-', digits = s.n - sign;
    if (!digits || digits > 4300 || (s.at[sign] == '0' && (digits > 1 || sign))) return false;
    for (size_t i = sign; i < s.n; i++)
        if (s.at[i] < '0' || s.at[i] > '9') return false;
    return true;
}

static void fix_slash(Buf *b) {
    Span s = text_span(b);
    size_t at = span_find(s, 0, SPAN("/"));
    if (at == SIZE_MAX) return;
    Span left = { s.at, at }, right = span_from(s, at + 1);
    if (!is_plain_int(left) || !is_plain_int(right)) return;
    Buf out = { 0 };
    buf_puts(&out, "\\frac{");
    buf_put(&out, left.at, left.n);
    buf_puts(&out, "}{");
    buf_put(&out, right.at, right.n);
    buf_putc(&out, '}');
    buf_free(b);
    *b = out;
}

static void replace_all(Buf *b, const char *const (*pair)[2], size_t n) {
    for (size_t i = 0; i < n; i++) text_replace(b, span_of(pair[i][0]), span_of(pair[i][1]));
}

/* The order matters: "tfrac" is looked for after "\\\\" was halved, units before spaces go. */
bool math_normal(Buf *b, Span s, bool percent) {
    static const char *const before_units[][2] = {
        { "\n", "" },     { "\\!", "" },     { "\\\\", "\\" },    { "tfrac", "frac" }, { "dfrac", "frac" },
        { "\\left", "" }, { "\\right", "" }, { "^{\\circ}", "" }, { "^\\circ", "" },   { "\\$", "" },
    };
    static const char *const after_units[][2] = {
        { "\\\\%", "" },
        { "\\%", "" },
        { " .", " 0." },
        { "{.", "{0." },
    };
    text_set(b, s);
    replace_all(b, before_units, COUNT(before_units));
    Span unit = SPAN("\\text{ ");
    size_t units = span_count(text_span(b), unit);
    if (units > 1) return false;
    if (units) b->n = span_find(text_span(b), 0, unit);
    replace_all(b, after_units, 2);
    if (percent) text_replace(b, SPAN("%"), SPAN(""));
    replace_all(b, after_units + 2, COUNT(after_units) - 2);
    if (!b->n) return true;
    Buf whole = { 0 };
    if (b->data[0] == '.') buf_putc(&whole, '0');
    buf_put(&whole, b->data, b->n);
    Span all = text_span(&whole);
    size_t eq = span_find(all, 0, SPAN("="));
    if (span_count(all, SPAN("=")) == 1) { /* "x=" and "k =" go: a left side of at most two characters */
        Span left = { all.at, eq };
        size_t one = span_char(left, 0);
        if (one + span_char(left, one) >= eq) all = span_from(all, eq + 1);
    }
    text_set(b, all);
    buf_free(&whole);
    if (!fix_sqrt(b)) return false;
    text_replace(b, SPAN(" "), SPAN(""));
    if (!fix_frac(b)) return false;
    if (span_eq(text_span(b), SPAN("0.5"))) text_set(b, SPAN("\\frac{1}{2}"));
    fix_slash(b);
    return true;
}

void score_math_reward(const RewardSample *s, RewardResult *out) {
    Span truth, answer = { 0 };
    if (!score_truth(s, &truth, out)) return;
    bool right = false;
    if (last_boxed((Span){ s->solution, s->solution_n }, &answer)) {
        Buf a = { 0 }, b = { 0 };
        right = math_normal(&a, answer, false) && math_normal(&b, truth, false) ? span_eq(text_span(&a), text_span(&b))
                                                                                : span_eq(answer, truth);
        buf_free(&a);
        buf_free(&b);
    }
    score_set(out, right ? 1 : 0, right);
    score_vote(out, answer, ' ');
}
