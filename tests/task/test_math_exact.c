/* test_math_exact.c - 200 pairs of answers that are the same and 200 that are not; what counts as the answer; and that
 * nothing takes long. */
#include "base/clock.h"
#include "base/file.h"
#include "maths/mathx.h"
#include "test.h"

/* The next field of a line, up to a tab. */
static Span field(const char **at, const char *end) {
    const char *tab = memchr(*at, '\t', (size_t)(end - *at));
    Span s = { *at, (size_t)((tab ? tab : end) - *at) };
    *at = tab ? tab + 1 : end;
    return s;
}

static void pairs(void) {
    Err err;
    LineReader *r = lines_open(FIXTURE("math_exact/pairs.tsv"), &err);
    EXPECT(r, "%s", err.msg);
    if (!r) return;
    const char *line;
    size_t n;
    int same = 0, other = 0;
    while (lines_next(r, &line, &n)) {
        if (!n || line[0] == '#') continue;
        const char *at = line;
        Span verdict = field(&at, line + n), a = field(&at, line + n), b = field(&at, line + n);
        bool want = span_eq(verdict, SPAN("="));
        *(want ? &same : &other) += 1;
        EXPECT(math_exact_same(a, b) == want, "%.*s   %s   %.*s", (int)a.n, a.at, want ? "=" : "!=", (int)b.n, b.at);
        EXPECT(math_exact_same(b, a) == want, "%.*s   %s   %.*s (turned)", (int)b.n, b.at, want ? "=" : "!=", (int)a.n,
               a.at);
        EXPECT(math_exact_same(a, a) == (a.n && span_strip(a).n > 0), "%.*s is itself", (int)a.n, a.at);
    }
    lines_close(r, &err);
    EXPECT(same >= 200 && other >= 200, "%d equal and %d unequal pairs", same, other);
}

static void found(void) {
    /* clang-format off */
    static const struct { const char *text, *answer; bool last_number; } rows[] = {
        { "so \\boxed{5}.",                                   "5" },
        { "first \\boxed{1}, then \\boxed{\\frac{1}{2}} it is", "\\frac{1}{2}" },
        { "\\boxed{1} and \\boxed{2",                         "1" },              /* the second was cut off */
        { "\\boxed {7}",                                      "7" },
        { "$\\boxed 7$",                                      "7" },
        { "\\fbox{8}",                                        "8" },
        { "work\n#### 1,234\n",                               "1,234" },
        { "#### 1\nno\n#### 2",                               "2" },
        { "\\boxed{3} #### 4",                                "3" },
        { "The answer is 42.",                                "42" },
        { "The answer is $\\frac12$, as said.",               "\\frac12" },
        { "the ANSWER is: x = 5",                             "x = 5" },
        { "**Answer:** 12",                                   "12" },
        { "**Final Answer**: **12**",                         "12" },
        { "Answer:\n17",                                      "17" },
        { "The answer is 3. I am sure. It is.",               "3" },
        { "My answer is 1. No: the answer is 2.5.",           "2.5" },
        { "The answer is \\$5.",                              "\\$5" },
        { "there are 5 apples",                               NULL },
        { "there are 5 apples, -3.5 pears",                   "-3.5", true },
        { "answering is fun 5",                               NULL },
        { "",                                                 NULL },
        { "no numbers",                                       NULL, true },
    };
    /* clang-format on */
    for (size_t i = 0; i < COUNT(rows); i++) {
        Span got;
        bool any = math_exact_find(span_of(rows[i].text), rows[i].last_number, &got);
        EXPECT(any == !!rows[i].answer && (!any || span_eq(got, span_of(rows[i].answer))), "'%s': %.*s", rows[i].text,
               any ? (int)got.n : 0, any ? got.at : "");
    }
}

/* Texts made to be expensive: each ends at once. */
static void bounded(void) {
    /* clang-format off */
    static const char *const unit[] = {
        "(", "{", "\\sqrt{", "9^", "\\frac{1}{", "[1,", "-", "|", "\\sqrt{1+", "(x+1)^{99}", "(a+b+c+d+e+f)^{20}+",
        "\\sin(", "!", "5!", "\\{", "x=", "1,", "\\pm1", "\\ln(", "2^{x", "\\text{", "\\begin{pmatrix}", "\\overline{",
        "\\binom", "999999999999999999999999", "0.\\overline{9}",
    };
    /* clang-format on */
    for (size_t i = 0; i < COUNT(unit); i++)
        for (int times = 3; times <= 3000; times *= 10) {
            Buf b = { 0 };
            buf_putc(&b, '1');
            for (int k = 0; k < times; k++) buf_puts(&b, unit[i]);
            double start = clock_now();
            math_exact_same(text_span(&b), SPAN("1"));
            buf_puts(&b, "2");
            Buf c = { 0 };
            buf_put(&c, b.data, b.n - 1);
            buf_puts(&c, "+3-1");
            math_exact_same(text_span(&b), text_span(&c));
            EXPECT(clock_now() - start < 1, "%d times '%s' took %g s", times, unit[i], clock_now() - start);
            buf_free(&b);
            buf_free(&c);
        }
}

/* Nor does finding the answer take longer than reading the text a few times. */
static void found_soon(void) {
    static const char *const unit[] = { "\\boxed{",   "\\boxed ", "\\boxed", "\\fbox{{", "#### ",
                                        "answer is ", "Answer:",  "$. ",     "}" };
    for (size_t i = 0; i < COUNT(unit); i++) {
        Buf b = { 0 };
        Span got;
        for (int k = 0; k < 40000; k++) buf_puts(&b, unit[i]);
        double start = clock_now();
        math_exact_find(text_span(&b), true, &got);
        EXPECT(clock_now() - start < 1, "40000 times '%s' took %g s", unit[i], clock_now() - start);
        buf_free(&b);
    }
}

int main(void) {
    pairs();
    found();
    bounded();
    found_soon();
    return test_end();
}
