/* schedule.c - turns of the stages of a pipeline, and when each starts.
 * A stage runs its list in order; a turn starts when the stage is free and the turn it
 * depends on has ended and been handed over.  So playing is one longest path, found by sweeping until all are done. */
#include "cut/schedule.h"

#include <string.h>

int schedule_turns(int micro, int chunks) { return 2 * micro * chunks; }

/* The k-th forward (or backward) of an interleaved list: chunks take turns in runs of 'stages' micro-batches. */
static Turn nth(int k, int stages, int micro, int chunks, bool backward) {
    if (chunks == 1) return (Turn){ k, 0, backward };
    (void)micro;
    int round = stages * chunks, in = k % round, chunk = in / stages;
    return (Turn){ k / round * stages + in % stages, backward ? chunks - 1 - chunk : chunk, backward };
}

void schedule_fill(Turn *out, int stage, int stages, int micro, int chunks) {
    int total = micro * chunks, behind = stages - 1 - stage, n = 0;
    int warm = chunks == 1 ? behind : 2 * behind + (chunks - 1) * stages;
    CHECK(chunks == 1 || micro % stages == 0, "%d micro-batches over %d interleaved stages", micro, stages);
    if (warm > total) warm = total;
    for (int k = 0; k < warm; k++) out[n++] = nth(k, stages, micro, chunks, false);
    for (int k = warm; k < total; k++) {
        out[n++] = nth(k, stages, micro, chunks, false);
        out[n++] = nth(k - warm, stages, micro, chunks, true);
    }
    for (int k = total - warm; k < total; k++) out[n++] = nth(k, stages, micro, chunks, true);
}

typedef struct {
    int stages, micro, chunks;
    double *end[2]; /* [stages][chunks][micro] of forwards, backwards; < 0: not yet */
} Board;

static double *cell(Board *b, int stage, const Turn *t) {
    return &b->end[t->backward]
                  [((size_t)stage * (size_t)b->chunks + (size_t)t->chunk) * (size_t)b->micro + (size_t)t->micro];
}

/* When what the turn waits for was handed over; < 0: not yet. */
static double ready(Board *b, int stage, const Turn *t, double hop) {
    Turn from = *t;
    int at = stage;
    if (!t->backward) {
        if (stage > 0) at = stage - 1;
        else if (t->chunk > 0) at = b->stages - 1, from.chunk--;
        else return 0;
    } else if (stage < b->stages - 1) {
        at = stage + 1;
    } else if (t->chunk < b->chunks - 1) {
        at = 0, from.chunk++;
    } else {
        from.backward = false; /* the loss: its own forward */
    }
    double end = *cell(b, at, &from);
    return end < 0 ? -1 : end + (at == stage ? 0 : hop);
}

double schedule_play(int stages, int micro, int chunks, double hop, TurnSeconds *seconds, void *user, double *ends) {
    Mem mem = { 0 };
    size_t turns = (size_t)schedule_turns(micro, chunks), cells = (size_t)stages * (size_t)chunks * (size_t)micro;
    Turn *list = MEM_ARRAY(&mem, Turn, (size_t)stages * turns);
    double *free_at = MEM_ARRAY(&mem, double, (size_t)stages), last = 0;
    size_t *next = MEM_ARRAY(&mem, size_t, (size_t)stages), left = (size_t)stages * turns;
    Board b = { stages, micro, chunks, { MEM_ARRAY(&mem, double, cells), MEM_ARRAY(&mem, double, cells) } };
    for (size_t i = 0; i < cells; i++) b.end[0][i] = b.end[1][i] = -1;
    for (int s = 0; s < stages; s++) schedule_fill(list + (size_t)s * turns, s, stages, micro, chunks);
    while (left) {
        size_t before = left;
        for (int s = 0; s < stages; s++)
            for (; next[s] < turns; next[s]++, left--) {
                const Turn *t = &list[(size_t)s * turns + next[s]];
                double start = ready(&b, s, t, hop);
                if (start < 0) break;
                if (start < free_at[s]) start = free_at[s];
                free_at[s] = *cell(&b, s, t) = start + seconds(user, s, t);
                if (ends) ends[(size_t)s * turns + next[s]] = free_at[s];
                if (free_at[s] > last) last = free_at[s];
            }
        CHECK(left < before, "a pipeline of %d stages and %d micro-batches waits for itself", stages, micro);
    }
    mem_free(&mem);
    return last;
}
