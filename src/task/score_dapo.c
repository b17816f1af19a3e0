/* score_dapo.c - verl's verdict on DAPO's mathematics: the last "Answer: ..." line of the last 300 characters, both
 * sides put through Minerva's string normalisation (Lewkowycz et al. 2022, appendix D), +1 or -1.
 *
 * verl's later revisions fall back to a \boxed{} in the last 100 characters when there is no such line: that rule is
 * math_dapo_boxed here; math_dapo keeps the first one, which its published results were made with. */
#include "task/score.h"

#include "base/json.h"

#include <string.h>

static const char *const substitutions[][2] = {
    { "an ", "" }, { "a ", "" },       { ".$", "$" },           { "\\$", "" },          { "\\ ", "" },
    { " ", "" },   { "mbox", "text" }, { ",\\text{and}", "," }, { "\\text{and}", "," }, { "\\text{m}", "\\text{}" },
};

static const char *const removed[] = { "square",     "ways",       "integers",  "dollars",      "mph",
                                       "inches",     "hours",      "km",        "units",        "\\ldots",
                                       "sue",        "points",     "feet",      "minutes",      "digits",
                                       "cents",      "degrees",    "cm",        "gm",           "pounds",
                                       "meters",     "meals",      "edges",     "students",     "childrentickets",
                                       "multiples",  "\\text{s}",  "\\text{.}", "\\text{\ns}",  "\\text{}^2",
                                       "\\text{}^3", "\\text{\n}", "\\text{}",  "\\mathrm{th}", "^\\circ",
                                       "^{\\circ}",  "\\;",        ",\\!",      "{,}",          "\"",
                                       "\\dots" };

static void swap_in(Buf *b, Buf *made) {
    buf_free(b);
    *b = *made;
}

static size_t line_end(Span s, size_t from) {
    size_t at = span_find(s, from, SPAN("\n"));
    return at == SIZE_MAX ? s.n : at;
}

/* On every line that holds two dollars, only "$...$" stays. */
static void keep_dollars(Buf *b) {
    Span s = text_span(b), dollar = SPAN("$");
    if (span_find(s, 0, dollar) == SIZE_MAX) return;
    Buf out = { 0 };
    for (size_t from = 0, end; from <= s.n; from = end + 1) {
        end = line_end(s, from);
        Span line = { s.at + from, end - from };
        size_t open = span_find(line, 0, dollar),
               close = open == SIZE_MAX ? SIZE_MAX : span_find(line, open + 1, dollar);
        if (close != SIZE_MAX) line = (Span){ line.at + open, close + 1 - open };
        buf_put(&out, line.at, line.n);
        if (end < s.n) buf_putc(&out, '\n');
    }
    swap_in(b, &out);
}

/* \name{inside} -> inside, up to the first (or, greedy, the last) closing brace of the line. */
static void unwrap(Buf *b, Span open, bool greedy) {
    Span s = text_span(b);
    size_t at = span_find(s, 0, open), from = 0;
    if (at == SIZE_MAX) return;
    Buf out = { 0 };
    for (; at != SIZE_MAX; at = span_find(s, at, open)) {
        size_t inside = at + open.n;
        Span line = { s.at + inside, line_end(s, inside) - inside };
        size_t close = greedy ? span_rfind(line, SPAN("}")) : span_find(line, 0, SPAN("}"));
        if (close == SIZE_MAX) {
            at++;
            continue;
        }
        buf_put(&out, s.at + from, at - from);
        buf_put(&out, line.at, close);
        at = from = inside + close + 1;
    }
    buf_put(&out, s.at + from, s.n - from);
    swap_in(b, &out);
}

/* frac12 -> frac{1}{2} (any character but '{', then any but a newline), sqrt2 -> sqrt{2}. */
static void brace_shorthand(Buf *b, Span word, int parts) {
    Span s = text_span(b);
    size_t at = span_find(s, 0, word), from = 0;
    if (at == SIZE_MAX) return;
    Buf out = { 0 };
    for (; at != SIZE_MAX; at = span_find(s, at, word)) {
        size_t first = at + word.n, one = span_char(s, first), two = parts == 2 ? span_char(s, first + one) : 0;
        if (!one || s.at[first] == '{' || (parts == 2 && (!two || s.at[first + one] == '\n'))) {
            at++;
            continue;
        }
        buf_put(&out, s.at + from, first - from);
        buf_putc(&out, '{');
        buf_put(&out, s.at + first, one);
        buf_putc(&out, '}');
        if (two) {
            buf_putc(&out, '{');
            buf_put(&out, s.at + first + one, two);
            buf_putc(&out, '}');
        }
        at = from = first + one + two;
    }
    buf_put(&out, s.at + from, s.n - from);
    swap_in(b, &out);
}

static void normalise(Buf *b, Span s) {
    size_t eq = span_rfind(s, SPAN("="));
    text_set(b, eq == SIZE_MAX ? s : span_from(s, eq + 1));
    for (size_t i = 0; i < COUNT(substitutions); i++)
        text_replace(b, span_of(substitutions[i][0]), span_of(substitutions[i][1]));
    for (size_t i = 0; i < COUNT(removed); i++) text_replace(b, span_of(removed[i]), SPAN(""));
    keep_dollars(b);
    unwrap(b, SPAN("\\text{"), false);
    unwrap(b, SPAN("\\textbf{"), false);
    unwrap(b, SPAN("\\overline{"), false);
    unwrap(b, SPAN("\\boxed{"), true);
    brace_shorthand(b, SPAN("frac"), 2);
    brace_shorthand(b, SPAN("sqrt"), 1);
    text_replace(b, SPAN("$"), SPAN(""));
    if (span_is_digits(text_span(b), ',')) text_replace(b, SPAN(","), SPAN(""));
    Span bare = span_strip(text_span(b));
    if (bare.n < b->n) {
        Buf out = { 0 };
        buf_put(&out, bare.at, bare.n);
        swap_in(b, &out);
    }
}

/* "answer" in any case at i; the long s (U+017F) folds to s, as in Python.  Bytes, or 0. */
static size_t answer_word(Span s, size_t i) {
    size_t at = i;
    for (const char *w = "answer"; *w; w++) {
        if (at >= s.n) return 0;
        if (*w == 's' && span_starts(span_from(s, at), SPAN("\xC5\xBF"))) at += 2;
        else if ((s.at[at] | 32) == *w) at++;
        else return 0;
    }
    return at - i;
}

/* What follows the last "Answer :", on its line or the next ones; *found stays where there is none. */
static void last_answer(Span s, Span *found) {
    for (size_t i = 0; i < s.n;) {
        size_t len = (s.at[i] | 32) == 'a' ? answer_word(s, i) : 0, at = i + len;
        for (size_t sp; len && (sp = span_space(s, at));) at += sp;
        if (!len || at >= s.n || s.at[at] != ':') {
            i++;
            continue;
        }
        size_t colon = ++at, last = SIZE_MAX; /* last: the last character of the white space that is no newline */
        for (size_t sp; (sp = span_space(s, at)); at += sp)
            if (s.at[at] != '\n') last = at;
        size_t from = at < s.n ? at : last; /* nothing but white space: the regular expression gives one back */
        if (from == SIZE_MAX) {
            i = colon;
            continue;
        }
        i = line_end(s, from);
        *found = (Span){ s.at + from, i - from };
    }
}

static bool last_box(Span s, Span *inside) {
    Span mark = SPAN("\\boxed{");
    size_t at = span_rfind(s, mark), close = at == SIZE_MAX ? SIZE_MAX : span_close_brace(s, at);
    if (close == SIZE_MAX) return false;
    *inside = (Span){ s.at + at + mark.n, close - at - mark.n };
    return true;
}

static void verdict(RewardResult *out, bool right, Span pred, bool has_pred) {
    score_set(out, right ? 1 : -1, right);
    buf_puts(&out->extra, right ? "\"acc\":true,\"pred\":" : "\"acc\":false,\"pred\":");
    if (has_pred) json_put_str(&out->extra, pred.at, pred.n);
    else buf_puts(&out->extra, "null");
    score_vote(out, has_pred ? pred : (Span){ 0 }, 0);
}

static void judge(const RewardSample *s, RewardResult *out, bool answer_line, bool box) {
    Span truth, found = SPAN("[INVALID]"), boxed = { 0 };
    if (!score_truth(s, &truth, out)) return;
    Span text = span_last_chars((Span){ s->solution, s->solution_n }, 300);
    if (answer_line) last_answer(text, &found);
    bool has_box = box && last_box(span_last_chars(text, 100), &boxed);
    Buf a = { 0 }, b = { 0 };
    normalise(&a, found);
    /* An "Answer:" line that says [INVALID] counts as none: the reference tells by the text. */
    if (answer_line && (!has_box || !span_eq(text_span(&a), SPAN("[INVALID]")))) {
        normalise(&b, truth);
        verdict(out, span_eq(text_span(&a), text_span(&b)), text_span(&a), true);
    } else {
        verdict(out, has_box && span_eq(boxed, truth), boxed, has_box);
    }
    buf_free(&a);
    buf_free(&b);
}

void score_math_dapo(const RewardSample *s, RewardResult *out) { judge(s, out, true, false); }
void score_math_dapo_boxed(const RewardSample *s, RewardResult *out) { judge(s, out, true, true); }
void score_math_dapo_strict_box(const RewardSample *s, RewardResult *out) { judge(s, out, false, true); }
