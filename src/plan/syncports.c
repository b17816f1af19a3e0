/* syncports.c - seconds of a sync by its busiest port, in the order in which it goes.
 *
 * In a turn (cut/syncorder.c) each stage gives a message of every move of its row.  Ranks are a few messages apart at
 * most, so the turns follow each other, and each lasts as long as its busiest port: bytes in or out of one rank, from
 * or to other machines by the port, all of them by NVLink.  What the order leaves idle is in this number, and not in
 * the bytes of the busiest rank. */
#include "plan/syncplan.h"

#include <math.h>
#include <string.h>

typedef struct {
    double in, out, far_in, far_out;
} Port;

static double busiest(Port *port, int n, double nic, double nvlink, double *far) {
    double most = 0, most_far = 0;
    for (int r = 0; r < n; r++) {
        most = fmax(most, fmax(port[r].in, port[r].out));
        most_far = fmax(most_far, fmax(port[r].far_in, port[r].far_out));
    }
    memset(port, 0, (size_t)n * sizeof *port);
    *far += most_far;
    return fmax(most / nvlink, most_far / nic);
}

double sync_ports(const SyncPair *s, SyncPieces pieces, double nic, double nvlink, double *far) {
    Mem mem = { 0 };
    SyncList l;
    sync_list(&l, s, -1, &mem);
    SyncTurns t = sync_turns(&l, pieces);
    Port *port = MEM_ARRAY(&mem, Port, (size_t)s->ranks);
    double seconds = 0;
    int64_t k, turn = 0;
    *far = 0;
    for (const SyncRow *row; (row = sync_next(&t, &k));) {
        if (t.turn != turn) seconds += busiest(port, s->ranks, nic, nvlink, far), turn = t.turn;
        for (int i = 0; i < row->n; i++) {
            const SyncMove *m = &l.move[row->first + i];
            SyncRuns runs = sync_runs(&pieces, row, m);
            if (m->from == m->to || k >= sync_pieces(&pieces, runs)) continue;
            SyncPiece p = sync_piece(&pieces, runs, k);
            double bytes = (double)(p.runs * p.n * runs.element);
            Port *from = &port[m->from], *to = &port[m->to];
            from->out += bytes, to->in += bytes;
            if (m->from / s->node != m->to / s->node) from->far_out += bytes, to->far_in += bytes;
        }
    }
    seconds += busiest(port, s->ranks, nic, nvlink, far);
    mem_free(&mem);
    return seconds;
}
