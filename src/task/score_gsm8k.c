/* score_gsm8k.c - verl's verdict on GSM8K answers: the last number behind "#### " (strict) or the last number at all
 * (flexible), in the last 300 characters, must be the ground truth letter by letter.  Only strict drops the commas. */
#include "task/score.h"

#include <string.h>

static bool is_number_char(char c) { return (c >= '0' && c <= '9') || c == '.' || c == ','; }

/* The end of -?[0-9.,]+ that starts at i; i itself if none does. */
static size_t number_end(Span s, size_t i) {
    size_t from = i < s.n && s.at[i] == '-' ? i + 1 : i, to = from;
    while (to < s.n && is_number_char(s.at[to])) to++;
    return to > from ? to : i;
}

static Span tail(const RewardSample *s) { return span_last_chars((Span){ s->solution, s->solution_n }, 300); }

void score_gsm8k(const RewardSample *s, RewardResult *out) {
    Span truth, text = tail(s), mark = SPAN("#### ");
    if (!score_truth(s, &truth, out)) return;
    Span found = { 0 };
    for (size_t i = 0; (i = span_find(text, i, mark)) != SIZE_MAX;) {
        size_t from = i + mark.n, to = number_end(text, from);
        if (to > from) found = (Span){ text.at + from, to - from };
        i = to > from ? to : i + 1;
    }
    size_t at = 0;
    bool same = found.at != NULL;
    for (size_t i = 0; i < found.n && same; i++) {
        if (found.at[i] == ',') continue;
        same = at < truth.n && truth.at[at++] == found.at[i];
    }
    same = same && at == truth.n;
    score_set(out, same ? 1 : 0, same);
    score_vote(out, found, ',');
}

void score_gsm8k_flexible(const RewardSample *s, RewardResult *out) {
    Span truth, text = tail(s), found = { 0 };
    if (!score_truth(s, &truth, out)) return;
    /* The last that is not a lone full stop; when all are, the first. */
    for (size_t i = 0; i < text.n;) {
        size_t to = number_end(text, i);
        if (to == i) {
            i++;
            continue;
        }
        Span number = { text.at + i, to - i };
        if (!found.at || !span_eq(number, SPAN("."))) found = number;
        i = to;
    }
    bool same = found.at && span_eq(found, truth);
    score_set(out, same ? 1 : 0, same);
    score_vote(out, found, 0);
}
