/* term.h - where people read what hone prints: how wide it is, and whether colour helps there. */
#ifndef BASE_TERM_H
#define BASE_TERM_H

#include "base/base.h"

/* Columns of that stream's terminal, asked each time (a window may have become narrower); where it is none, COLUMNS,
 * else 80. */
int  term_width(int fd);
bool term_here(int fd);               /* a terminal that moves its cursor */

typedef enum { TERM_NOTE, TERM_GOOD, TERM_BAD, TERM_HEAD, TERM_END } TermColour;  /* dim, green, red, bold, as before */
/* What switches it on, or "" where that stream is no terminal or NO_COLOR is set. */
const char *term_colour(int fd, TermColour c);

#endif
