/* test_progress.c - the line on a terminal: it never exceeds the window, also when that
 * becomes narrower; what it says before, between and behind steps. */
#include "step/progress.h"
#include "test.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

typedef struct {
    int master, slave, real;
    char text[1 << 16];
} Term;

static void term_open(Term *t, int columns) {
    t->master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(t->master >= 0 && !grantpt(t->master) && !unlockpt(t->master), "no terminal to test with");
    t->slave = open(ptsname(t->master), O_RDWR | O_NOCTTY);
    CHECK(t->slave >= 0 && !fcntl(t->master, F_SETFL, O_NONBLOCK), "no terminal to test with");
    struct winsize w = { .ws_row = 24, .ws_col = (unsigned short)columns };
    CHECK(!ioctl(t->slave, TIOCSWINSZ, &w), "its size cannot be set");
    fflush(stdout);
    t->real = dup(1);
    dup2(t->slave, 1);
}

static void term_resize(Term *t, int columns) {
    struct winsize w = { .ws_row = 24, .ws_col = (unsigned short)columns };
    CHECK(!ioctl(t->slave, TIOCSWINSZ, &w), "its size cannot be set");
}

/* What was written since the last call; the widest line of it. */
static int term_read(Term *t) {
    fflush(stdout);
    size_t n = 0;
    for (ssize_t got; n < sizeof t->text - 1 && (got = read(t->master, t->text + n, sizeof t->text - 1 - n)) > 0;)
        n += (size_t)got;
    t->text[n] = 0;
    int widest = 0, here = 0;
    for (const char *c = t->text; *c; c++) {
        if (*c == '\r' || *c == '\n') here = 0;
        else if (!strncmp(c, "\033[K", 3)) c += 2;
        else if (++here > widest) widest = here;
    }
    return widest;
}

static void term_close(Term *t) {
    fflush(stdout);
    dup2(t->real, 1);
    close(t->real), close(t->slave), close(t->master);
}

int main(void) {
    static Term t;
    Mem mem = { 0 };
    int there = posix_openpt(O_RDWR | O_NOCTTY);
    if (there < 0) {
        SKIP("this machine has no terminals to test with");
        return test_end();
    }
    close(there);
    static const int widths[] = { 200, 80, 47, 46, 30, 12, 1 };
    for (size_t i = 0; i < COUNT(widths); i++) {
        term_open(&t, 200);
        Progress *p = progress_open(NULL, &mem);
        progress_between(p, 0, 10);
        progress_phase(p, "validation");
        term_resize(&t, widths[i]);
        term_read(&t);
        char first[400], later[400], last[400];
        progress_between(p, 0, 10);
        progress_phase(p, "validation");
        int a = term_read(&t);
        snprintf(first, sizeof first, "%.390s", t.text);
        progress_step(p, 0, 10);
        progress_phase(p, "rollout");
        progress_step(p, 4, 10);
        progress_part(p, 0, 123456789);
        int b = term_read(&t);
        snprintf(later, sizeof later, "%.390s", t.text);
        progress_between(p, 10, 10);
        progress_phase(p, "validation");
        int c = term_read(&t);
        snprintf(last, sizeof last, "%.390s", t.text);
        term_close(&t);
        EXPECT(a < widths[i] || (widths[i] == 1 && !a), "before the first step %d columns in a window of %d", a,
               widths[i]);
        EXPECT(b < widths[i] || (widths[i] == 1 && !b), "in a step %d columns in a window of %d", b, widths[i]);
        EXPECT(c < widths[i] || (widths[i] == 1 && !c), "at the end %d columns in a window of %d", c, widths[i]);
        if (widths[i] < 80) continue;
        EXPECT(strstr(first, "step 0/10  validation") && !strstr(first, "left"), "before the first step: %s",
               first + 4);
        EXPECT(strstr(later, "step 5/10  rollout") && strstr(later, "123456789 tokens") && strstr(later, " left"),
               "in step 5: %s", later + 4);
        EXPECT(strstr(last, "step 10/10  validation") && !strstr(last, "left"), "at the end: %s", last + 4);
    }
    mem_free(&mem);
    return test_end();
}
