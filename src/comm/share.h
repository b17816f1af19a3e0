/* share.h - memory of a rank that the other ranks of its machine read where it lies: one copy, by whoever wants it,
 * while the owner does something else.  A message costs more: the kernel goes through both ranks' pages. */
#ifndef COMM_SHARE_H
#define COMM_SHARE_H

#include "comm/world.h"

/* near: on this machine, and another rank than this one; then it can be read at 'at', as long as the owner has it. */
typedef struct { const char *at; size_t bytes; bool near; } Share;

/* Collective.  'bytes' at 'base', which is on a page's border, keep their address and what is in them; of [size]: all
 * ranks'.  Who may read when is for the callers to settle.  False, on all ranks alike: on one of them it could not be
 * done, and err says why; of says that nobody is near. */
bool share_open(Share *of, const World *w, void *base, size_t bytes, Err *err);
void share_close(Share *of, int n);

#endif
