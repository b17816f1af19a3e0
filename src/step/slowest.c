/* slowest.c - one gathering a step tells every rank's own seconds. */
#include "step/slowest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    SlowPart part[SLOW_PHASES];
    char host[64];
} Word;

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}
/* The lower of the two in the middle: of two ranks the quicker one's. */
static double median(double *x, int n) {
    if (!n) return 0;
    qsort(x, (size_t)n, sizeof *x, by_size);
    return x[(n - 1) / 2];
}

typedef struct {
    int rank;
    double own, times; /* seconds; how many times the median for as much work */
} Slow;

/* Who is slowest for its work. */
static Slow slowest_of(const Word *all, int ranks, int phase, double *room) {
    Slow worst = { 0 };
    int n = 0;
    double most = 0;
    for (int r = 0; r < ranks; r++) {
        const SlowPart *p = &all[r].part[phase];
        if (p->work <= 0) continue;
        double pace = room[n++] = p->own / p->work;
        if (pace > most) most = pace, worst = (Slow){ r, p->own, 0 };
    }
    double usual = median(room, n);
    if (usual > 0) worst.times = most / usual;
    return worst;
}

static void warn(RunDir *d, SlowSeen *seen, const Word *all, const SlowPhase *phase, const Slow *worst, int ranks,
                 int64_t step) {
    char line[300];
    bool again = seen->there && seen->rank == worst->rank;
    if (!again) seen->told = false;
    if (again && !seen->told) {
        snprintf(line, sizeof line,
                 "rank %d (on %s) is slow: step %" PRId64
                 " took %.3g s of its own in %s, %.1f times the median of %d ranks: is its "
                 "GPU or its cores slower than the others', or shared?",
                 worst->rank, all[worst->rank].host, step, worst->own, phase->phase, worst->times, ranks);
        run_dir_log(d, line);
        seen->told = true;
    }
    seen->there = true, seen->rank = worst->rank;
}

void slowest_tell(const Ranks *r, Metrics *m, RunDir *d, SlowSeen *seen, const SlowPhase *phase, const SlowPart *part,
                  int n, int64_t step, double seconds) {
    enum { MUCH_TENTHS = 13, PART = 20 };
    int ranks = ranks_count(r), at = -1;
    if (ranks == 1) return;
    CHECK(n <= SLOW_PHASES, "%d phases", n);
    Mem mem = { 0 };
    Word mine = { 0 }, *all = MEM_ARRAY(&mem, Word, (size_t)ranks);
    double *room = MEM_ARRAY(&mem, double, (size_t)ranks), lost = 0;
    for (int i = 0; i < n; i++) mine.part[i] = part[i];
    gethostname(mine.host, sizeof mine.host - 1);
    comm_gather_host(&r->world.all, all, &mine, sizeof mine);
    Slow worst = { 0 };
    for (int i = 0; i < n; i++) {
        int who = 0;
        if (all[0].part[i].own <= 0) continue;
        for (int k = 0; k < ranks; k++) {
            room[k] = all[k].part[i].own;
            if (room[k] > all[who].part[i].own) who = k;
        }
        metric(m, phase[i].slowest, all[who].part[i].own);
        metric(m, phase[i].rank, who);
        metric(m, phase[i].median, median(room, ranks));
        Slow s = slowest_of(all, ranks, i, room);
        double more = s.times > 0 ? s.own * (1 - 1 / s.times) : 0; /* than it would have taken at the median's pace */
        if (10 * s.times < MUCH_TENTHS || more < seconds / PART || more <= lost) continue;
        worst = s, at = i, lost = more;
    }
    if (at >= 0) warn(d, seen, all, &phase[at], &worst, ranks, step);
    else *seen = (SlowSeen){ 0 };
    mem_free(&mem);
}
