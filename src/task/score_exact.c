/* score_exact.c - math_exact: finds the final answer in a solution and judges it as mathematics (mathx.h).
 *
 * The answer is what the solution marks as such, the strongest mark first and of each the last: \boxed{...}, "####
 * ...", "the answer is ..." or "Answer: ...".  A solution that marks nothing has no answer: a number that happens to
 * stand last earns nothing, unless the scorer is math_exact_flexible. */
#include "maths/mathx.h"
#include "task/score.h"

#include <string.h>

/* Boxes that were never closed are each looked through to the end of the text: before so many
 * nothing more is sought. */
enum { MOST_OPEN = 100 };

static bool find_boxed(Span s, Span *out) {
    static const char *const marks[] = { "\\boxed", "\\fbox" };
    for (size_t k = 0; k < COUNT(marks); k++) {
        Span mark = span_of(marks[k]), rest = s;
        int open = 0;
        for (size_t at; open < MOST_OPEN && (at = span_rfind(rest, mark)) != SIZE_MAX; rest.n = at) {
            size_t from = at + mark.n;
            while (from < s.n && s.at[from] == ' ') from++;
            if (from < s.n && s.at[from] == '{') {
                size_t close = span_close_brace(s, from);
                if (close == SIZE_MAX) {
                    open++; /* cut off: an earlier one may be whole */
                    continue;
                }
                *out = (Span){ s.at + from + 1, close - from - 1 };
                return true;
            }
            if (from == at + mark.n) continue; /* neither {...} nor a word behind a blank */
            size_t to = from;
            while (to < s.n && !strchr(" $\n", s.at[to])) to++;
            if (to > from) {
                *out = (Span){ s.at + from, to - from };
                return true;
            }
        }
    }
    return false;
}

static Span line_from(Span s, size_t at) {
    Span rest = span_from(s, at);
    size_t end = span_find(rest, 0, SPAN("\n"));
    if (end != SIZE_MAX) rest.n = end;
    return span_strip(rest);
}

static bool find_hashes(Span s, Span *out) {
    size_t at = span_rfind(s, SPAN("####"));
    if (at == SIZE_MAX) return false;
    *out = line_from(s, at + 4);
    return out->n > 0;
}

/* "answer" in any case at i, followed by "is" or ':' (and what models put around them); where the rest begins, or 0. */
static size_t answer_mark(Span s, size_t i) {
    for (size_t k = 0; k < 6; k++)
        if (i + k >= s.n || (s.at[i + k] | 32) != "answer"[k]) return 0;
    size_t at = i + 6, start = at;
    for (bool said = false;; said = true) {
        while (at < s.n && strchr(" *\n", s.at[at])) at++;
        Span rest = span_from(s, at);
        if (span_starts(rest, SPAN(":"))) at += 1;
        else if (span_starts(rest, SPAN("is ")) || span_starts(rest, SPAN("is:")) || span_starts(rest, SPAN("is\n")))
            at += 2;
        else return said && at > start ? at : 0;
    }
}

static bool find_said(Span s, Span *out) {
    for (size_t i = s.n; i-- > 0;) {
        size_t from = (s.at[i] | 32) == 'a' ? answer_mark(s, i) : 0;
        if (!from) continue;
        Span line = line_from(s, from);
        /* A formula in dollars ends where it ends; else the sentence does. */
        size_t open = span_find(line, 0, SPAN("$")),
               close = open == SIZE_MAX ? SIZE_MAX : span_find(line, open + 1, SPAN("$"));
        size_t stop = span_find(line, 0, SPAN(". "));
        if (close != SIZE_MAX && open + 1 < close && (stop == SIZE_MAX || open < stop)
            && !(open && line.at[open - 1] == '\\'))
            line = (Span){ line.at + open + 1, close - open - 1 };
        else if (stop != SIZE_MAX) line.n = stop;
        while (line.n && strchr("*. ", line.at[line.n - 1])) line.n--;
        while (line.n && strchr("* ", line.at[0])) line = span_from(line, 1);
        if (!line.n) continue;
        *out = line;
        return true;
    }
    return false;
}

static bool find_number(Span s, Span *out) {
    size_t to = s.n;
    while (to && (s.at[to - 1] < '0' || s.at[to - 1] > '9')) to--;
    size_t from = to;
    while (from && ((s.at[from - 1] >= '0' && s.at[from - 1] <= '9') || strchr(".,/", s.at[from - 1]))) from--;
    while (from < to && strchr(".,/", s.at[from])) from++;
    if (from && from < to && s.at[from - 1] == '-') from--;
    *out = (Span){ s.at + from, to - from };
    return to > from;
}

bool math_exact_find(Span s, bool last_number, Span *answer) {
    return find_boxed(s, answer) || find_hashes(s, answer) || find_said(s, answer)
           || (last_number && find_number(s, answer));
}

static void judge(const RewardSample *s, RewardResult *out, bool last_number) {
    Span truth, answer = { 0 }, inner;
    if (!score_truth(s, &truth, out)) return;
    if (find_boxed(truth, &inner) || find_hashes(truth, &inner)) truth = inner;
    bool found = math_exact_find((Span){ s->solution, s->solution_n }, last_number, &answer);
    bool right = found && math_exact_same(answer, truth);
    score_set(out, right ? 1 : 0, right);
    score_vote(out, found ? answer : (Span){ 0 }, ' ');
}

void score_math_exact(const RewardSample *s, RewardResult *out) { judge(s, out, false); }
void score_math_exact_flexible(const RewardSample *s, RewardResult *out) { judge(s, out, true); }
