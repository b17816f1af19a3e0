/* term.c - COLUMNS and NO_COLOR (https://no-color.org) are all that is read of the environment; TERM=dumb is not: who
 * has such a terminal sets NO_COLOR. */
#include "base/term.h"

#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { STANDARD = 80, LEAST = 20, MOST = 1000 };
bool term_here(int fd) { return isatty(fd); }

int term_width(int fd) {
    struct winsize w;
    if (!ioctl(fd, TIOCGWINSZ, &w) && w.ws_col > 0) return w.ws_col < LEAST ? LEAST : w.ws_col;
    const char *told = getenv("COLUMNS");
    long n = told ? strtol(told, NULL, 10) : 0;
    return n >= LEAST && n <= MOST ? (int)n : STANDARD;
}

const char *term_colour(int fd, TermColour c) {
    static const char *const code[] = { "\033[2m", "\033[32m", "\033[31m", "\033[1m", "\033[0m" };
    const char *no = getenv("NO_COLOR");
    return !term_here(fd) || (no && *no) ? "" : code[c];
}
