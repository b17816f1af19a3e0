/* meter.c - one line that is drawn over itself ten times a second, or a new one each minute.
 * The rate is that of the whole time: over a short window it jumps, and with it the time left. */
#include "base/meter.h"
#include "base/clock.h"
#include "base/term.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct Meter {
    Mem mem;
    pthread_mutex_t lock;
    char what[64];
    const char *unit, *beside_unit;
    double total, done, beside, first, started, drawn;
    bool terminal, shows, on_screen;
};

enum { BAR = 20, QUIET = 60 };
#define REDRAW  0.1
#define APPEARS 0.3 /* what is done sooner shows nothing */

Meter *meter_open(const char *what, const char *unit, double total) {
    Mem mem = { 0 };
    Meter *m = MEM_NEW(&mem, Meter);
    double now = clock_now();
    *m = (Meter){ .mem = mem,
                  .unit = unit,
                  .total = total,
                  .first = -1,
                  .started = now,
                  .drawn = now,
                  .terminal = term_here(STDERR_FILENO),
                  .shows = speaks() };
    snprintf(m->what, sizeof m->what, "%s", what);
    pthread_mutex_init(&m->lock, NULL);
    return m;
}

static int amount(char *out, size_t n, double x, const char *unit) {
    static const char *const of[] = { "B", "kB", "MB", "GB", "TB" };
    if (strcmp(unit, "B")) return snprintf(out, n, x < 10 && x != (int)x ? "%.2f" : "%.0f", x);
    size_t u = 0;
    while (x >= 999.5 && u + 1 < COUNT(of)) x /= 1000, u++;
    return snprintf(out, n, u ? "%.*f %s" : "%.*f %s", u && x < 99.5 ? 1 : 0, x, of[u]);
}

static void left(char *out, size_t n, double s) {
    if (s < 90) snprintf(out, n, "%.0f s left", s);
    else if (s < 5400) snprintf(out, n, "%.0f min left", s / 60);
    else snprintf(out, n, "%.1f h left", s / 3600);
}

static void line_of(const Meter *m, double now, char *line, size_t room) {
    char done[32], total[32], rate[32], eta[32], bar[BAR + 1];
    const char *unit = !strcmp(m->unit, "B") ? "" : m->unit;
    double seconds = now - m->started, of = m->total > 0 ? m->done / m->total : 0;
    double speed = seconds > 0 ? (m->done - (m->first > 0 ? m->first : 0)) / seconds : 0;
    int full = of >= 1 ? BAR : (int)(BAR * of), at = snprintf(line, room, "%s", m->what);
#define ADD(...) (at < (int)room ? at += snprintf(line + at, room - (size_t)at, __VA_ARGS__) : 0)
    if (m->total > 0 && m->terminal) {
        for (int i = 0; i < BAR; i++) bar[i] = i < full ? '#' : '.';
        bar[BAR] = 0;
        ADD(" [%s]", bar);
    }
    amount(done, sizeof done, m->done, m->unit), amount(total, sizeof total, m->total, m->unit);
    amount(rate, sizeof rate, speed, m->unit);
    if (m->total > 0) ADD(" %s of %s%s%s", done, total, *unit ? " " : "", unit);
    else ADD(" %s%s%s", done, *unit ? " " : "", unit);
    if (speed > 0 && seconds > 1) ADD(", %s%s%s/s", rate, *unit ? " " : "", unit);
    if (m->beside_unit && m->beside > 0 && seconds > 1) ADD(", %.0f %s/s", m->beside / seconds, m->beside_unit);
    if (speed > 0 && m->total > m->done && seconds > 1) {
        left(eta, sizeof eta, (m->total - m->done) / speed);
        ADD(", %s", eta);
    }
#undef ADD
}

static void show(Meter *m) {
    double now = clock_now();
    if (!m->shows || now - m->drawn < (m->terminal ? (m->on_screen ? REDRAW : APPEARS) : QUIET)) return;
    char line[256];
    line_of(m, now, line, sizeof line);
    m->drawn = now;
    m->on_screen = true;
    if (m->terminal) fprintf(stderr, "\r\033[K%.*s", term_width(STDERR_FILENO) - 1, line);
    else fprintf(stderr, "%s\n", line);
    fflush(stderr);
}

void meter_total(Meter *m, double total) {
    pthread_mutex_lock(&m->lock);
    m->total = total;
    pthread_mutex_unlock(&m->lock);
}

static void at(Meter *m, double done) {
    m->done = done;
    if (m->first < 0) m->first = done; /* what was there before it began says nothing of its rate */
    show(m);
}

void meter_set(Meter *m, double done) {
    pthread_mutex_lock(&m->lock);
    at(m, done);
    pthread_mutex_unlock(&m->lock);
}

void meter_add(Meter *m, double more) {
    pthread_mutex_lock(&m->lock);
    if (m->first < 0) m->first = 0;
    at(m, m->done + more);
    pthread_mutex_unlock(&m->lock);
}

void meter_note(Meter *m, const char *what) {
    pthread_mutex_lock(&m->lock);
    snprintf(m->what, sizeof m->what, "%s", what);
    show(m);
    pthread_mutex_unlock(&m->lock);
}

void meter_beside(Meter *m, const char *unit, double done) {
    pthread_mutex_lock(&m->lock);
    m->beside_unit = unit, m->beside = done;
    show(m);
    pthread_mutex_unlock(&m->lock);
}

void meter_close(Meter *m) {
    if (!m) return;
    if (m->terminal && m->on_screen) fputs("\r\033[K", stderr), fflush(stderr);
    pthread_mutex_destroy(&m->lock);
    Mem mem = m->mem;
    mem_free(&mem);
}
