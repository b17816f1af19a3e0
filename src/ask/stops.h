/* stops.h - what an answer's tokens spell so far, and whether a stop text has appeared in it. */
#ifndef ASK_STOPS_H
#define ASK_STOPS_H

#include "text/tok.h"

typedef struct Stops Stops;
Stops *stops_open(const Tok *tok, const char *const *texts, int n);     /* texts outlive it; n may be 0 */
bool   stops_push(Stops *s, int32_t id);                                /* true: a stop text is there now */
/* The text so far, as far as it stays whatever comes: whole characters, to the first stop text, without an end in which
 * one may begin.  It grows by every push; *n: its bytes. */
const char *stops_settled(const Stops *s, size_t *n);
int    stops_which(const Stops *s);                                     /* the stop text that ended it; -1: none */
void   stops_text(Stops *s, Buf *out);                                  /* at the end: up to the first stop text */
void   stops_close(Stops *s);                                           /* NULL is fine */

#endif
