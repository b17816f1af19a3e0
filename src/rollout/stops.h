/* stops.h - stop texts: has one of them appeared in what an answer's tokens spell so far? */
#ifndef ROLLOUT_STOPS_H
#define ROLLOUT_STOPS_H

#include "text/tok.h"

typedef struct Stops Stops;
Stops *stops_open(const Tok *tok, const char *const *texts, int n);     /* texts outlive it */
bool   stops_push(Stops *s, int32_t id);                                /* true: a stop text is there now */
void   stops_text(Stops *s, Buf *out);                                  /* the answer, up to the first stop text */
void   stops_close(Stops *s);                                           /* NULL is fine */

#endif
