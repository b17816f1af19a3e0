/* progress.c - the line of a step and the bar within it.
 * Which numbers the line shows is a table: those that are there are shown. */
#include "step/progress.h"
#include "base/clock.h"
#include "comm/world.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

struct Progress {
    RunDir *dir;
    bool terminal, between; /* between: no step is under way */
    const char *phase;
    double started, drawn;
    int64_t first, step, steps; /* steps done when this began, and now */
};

enum { AS_IT_IS = -1, PERCENT = -2 }; /* digits: a difference of 1e-7 is not 0 */
enum { WIDEST = 140 };                /* of a step's line, in a file too */
static const struct {
    const char *metric, *label;
    int digits;
} shown[] = {
    { "critic/score/mean", "score", 3 },
    { "val-core/score/mean", "val", 3 },
    { "perf/silent_ratio", "silent", PERCENT },
    { "train/loss", "loss", 4 },
    { "val/loss", "val loss", 4 },
    { "response_length/mean", "length", 1 },
    { "actor/entropy", "entropy", 3 },
    { "actor/grad_norm", "grad", 3 },
    { "train/grad_norm", "grad", 3 },
    { "exact/max_abs_logprob_diff", "exact diff", AS_IT_IS },
    { "perf/throughput", "tok/s", 0 },
    { "timing_s/step", "s", 2 },
};

Progress *progress_open(RunDir *d, Mem *mem) {
    Progress *p = MEM_NEW(mem, Progress);
    *p = (Progress){ .dir = d,
                     .terminal = isatty(STDOUT_FILENO) && world_launch().size < 2,
                     .phase = "",
                     .started = clock_now(),
                     .first = -1 };
    return p;
}

void progress_step(Progress *p, int64_t step, int64_t steps) {
    p->step = step, p->steps = steps, p->between = false;
    if (p->first < 0) p->first = step, p->started = clock_now();
}

void progress_between(Progress *p, int64_t step, int64_t steps) { p->step = step, p->steps = steps, p->between = true; }

void progress_phase(Progress *p, const char *name) {
    p->phase = name;
    progress_part(p, 0, 0);
}

static void left(char out[32], double s) {
    if (s < 90) snprintf(out, 32, "%.0f s", s);
    else if (s < 5400) snprintf(out, 32, "%.0f min", s / 60);
    else snprintf(out, 32, "%.1f h", s / 3600);
}

/* Asked each time: a window may have become narrower, and a line that does not fit would be
 * drawn below itself again and again. */
static int columns(void) {
    struct winsize w;
    return !ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) && w.ws_col > 0 ? w.ws_col : 80;
}

void progress_part(Progress *p, double done, int64_t tokens) {
    double now = clock_now();
    if (!p->terminal || (now - p->drawn < 0.1 && done > 0)) return;
    p->drawn = now;
    int bar = (int)(20 * (done < 1 ? done : 1)), n;
    char eta[32] = "", line[200];
    int64_t behind = p->first < 0 ? 0 : p->step - p->first, ahead = p->steps - p->step;
    if (behind > 0 && ahead > 0) left(eta, (now - p->started) / (double)behind * (double)ahead);
    n = snprintf(line, sizeof line, "  step %" PRId64 "/%" PRId64 "  %-11s [%.*s%.*s]", p->step + !p->between, p->steps,
                 p->phase, bar, "####################", 20 - bar, "....................");
    if (tokens) n += snprintf(line + n, sizeof line - (size_t)n, " %" PRId64 " tokens", tokens);
    if (*eta) snprintf(line + n, sizeof line - (size_t)n, "  %s left", eta);
    printf("\r\033[K%.*s", columns() - 1, line);
    fflush(stdout);
}

void progress_line(Progress *p, int64_t step, int64_t steps, const Metrics *m) {
    int room = p->terminal && columns() - 1 < WIDEST ? columns() - 1 : WIDEST,
        used; /* what a narrow window has no room for is in metrics.jsonl */
    used = printf("%sstep %" PRId64 "/%" PRId64, p->terminal ? "\r\033[K" : "", step, steps) - (p->terminal ? 4 : 0);
    for (size_t i = 0; i < COUNT(shown); i++) {
        double x = metric_of(m, shown[i].metric, -1e300);
        char part[64];
        int n = shown[i].digits == AS_IT_IS ? snprintf(part, sizeof part, "  %s %g", shown[i].label, x)
                : shown[i].digits == PERCENT
                    ? snprintf(part, sizeof part, "  %s %.0f%%", shown[i].label, 100 * x)
                    : snprintf(part, sizeof part, "  %s %.*f", shown[i].label, shown[i].digits, x);
        if (x == -1e300 || n > room - used) continue;
        fputs(part, stdout);
        used += n;
    }
    if (metric_of(m, "exact/tokens", 1) == 0 && room - used > 17) printf("  exact diff none");
    putchar('\n');
    fflush(stdout);
    if (p->first < 0) p->first = step, p->started = clock_now();
}
