/* syncorder.c - in which order weights go: in turn i every stage that gives sends its i-th messages, so that all give
 * at once.  Rows of a stage follow each other; of a row's moves, all send their first message, then all their second.
 * What turn a message has follows from the table and the two cuts alone, so that all ranks have one order, of which
 * each walks its own. */
#include "cut/syncmoves.h"

SyncPieces sync_pieces_of(double buffer, int element, bool device) {
    enum { SLOT_MOST = 256 << 10, ALONE_MOST = 4 << 20 }; /* a slot stays in a core's cache; a GPU likes them large */
    size_t slot = (size_t)buffer / (2 * SYNC_SLOTS) / ARENA_ALIGN * ARENA_ALIGN, most = device ? ALONE_MOST : SLOT_MOST;
    return (SyncPieces){ slot < most ? (int64_t)slot : (int64_t)most, ALONE_MOST, element };
}

static SyncRuns runs_of(const SyncPieces *p, const SyncRow *row, int64_t experts, int64_t units) {
    bool cols = row->p->cut == BY_COLS;
    return (SyncRuns){ experts * (cols ? row->unit : 1), units * (cols ? 1 : row->unit),
                       row->p->vector ? 4 : p->element };
}
SyncRuns sync_runs(const SyncPieces *p, const SyncRow *row, const SyncMove *m) {
    return runs_of(p, row, m->e1 - m->e0, m->a1 - m->a0);
}

/* A run that is long goes alone, so that it needs no slot on either side. */
static bool alone(const SyncPieces *p, SyncRuns r) {
    enum { RUN_ALONE = 32 << 10 };
    return r.width * r.element >= RUN_ALONE || r.width * r.element > p->slot;
}

int64_t sync_pieces(const SyncPieces *p, SyncRuns r) {
    if (!r.runs || !r.width) return 0;
    int64_t each = p->alone / r.element, fit = p->slot / r.element / r.width;
    return alone(p, r) ? r.runs * ((r.width + each - 1) / each) : (r.runs + fit - 1) / fit;
}

SyncPiece sync_piece(const SyncPieces *p, SyncRuns r, int64_t k) {
    int64_t each = p->alone / r.element, of_run = (r.width + each - 1) / each;
    if (alone(p, r)) {
        int64_t at = k % of_run * each;
        return (SyncPiece){ k / of_run, 1, at, r.width - at < each ? r.width - at : each };
    }
    int64_t fit = p->slot / r.element / r.width;
    return (SyncPiece){ k * fit, r.runs - k * fit < fit ? r.runs - k * fit : fit, 0, r.width };
}

static int64_t turns_of(const SyncTurns *t, int stage) {
    const SyncRow *row = &t->list->row[t->list->of_stage[t->stage[stage].at]];
    return sync_pieces(&t->pieces, runs_of(&t->pieces, row, row->experts, row->units));
}

SyncTurns sync_turns(const SyncList *l, SyncPieces pieces) {
    SyncTurns t = { .list = l, .pieces = pieces };
    for (int s = 0; s < l->stages; s++) t.stage[s].at = l->first[s];
    return t;
}

/* The next stage's row that has a message in a turn, and which it is; NULL: that was the last. */
const SyncRow *sync_next(SyncTurns *t, int64_t *k) {
    const SyncList *l = t->list;
    for (int over = 0; over < l->stages; t->next++) {
        if (t->next == l->stages) t->next = 0, t->turn++;
        int s = t->next;
        for (int64_t n; t->stage[s].at < l->first[s + 1]; t->stage[s].at++, t->stage[s].begin += n)
            if (t->turn < t->stage[s].begin + (n = turns_of(t, s))) break;
        if (t->stage[s].at == l->first[s + 1]) {
            over++;
            continue;
        }
        *k = t->turn - t->stage[s].begin;
        t->next++;
        return &l->row[l->of_stage[t->stage[s].at]];
    }
    return NULL;
}
