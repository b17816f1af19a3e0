/* ring.h - bytes from one thread to another through a bounded buffer, in order: one fills, one empties.
 *
 * As large as all that will pass, it never makes the one who fills it wait. */
#ifndef BASE_RING_H
#define BASE_RING_H

#include "base/base.h"

typedef struct Ring Ring;

Ring *ring_open(size_t bytes, Mem *mem);                     /* its pages are taken now */
void  ring_close(Ring *r);                                   /* the memory is mem's */
void  ring_clear(Ring *r);                                   /* empty and open again; while nobody else uses it */

/* The one who fills: bytes that may be written at *at now (0: none), waiting for some if
 * 'wait'.  Then how many were written.  0 after waiting: the other has given up. */
size_t ring_room (Ring *r, void **at, bool wait);
void   ring_put  (Ring *r, size_t n);

/* The one who empties: waits for bytes, which may be read at *at; then how many of them are done with. */
size_t ring_bytes(Ring *r, const void **at);
void   ring_take (Ring *r, size_t n);
void   ring_leave(Ring *r);                                  /* gives up: nothing will be taken any more */
bool   ring_left (Ring *r);

#endif
