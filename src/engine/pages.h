/* pages.h - who holds which page of the KV cache, and which pages hold a known beginning of a text.
 *
 * Knows page numbers and tokens, never tensors.  A full page whose tokens are known is entered in the prefix table
 * under (the page before it, its tokens), compared token by token, so that a hit is certain and not merely likely.  A
 * page that nobody holds stays in the table, least recently used first to go, until it is needed. */
#ifndef ENGINE_PAGES_H
#define ENGINE_PAGES_H

#include "base/base.h"

typedef struct Pages Pages;

Pages *pages_open(int pages, int page, Mem *mem);
void   pages_flush(Pages *p);                           /* the weights changed: nothing in the cache is true any more */

int  pages_free(const Pages *p);                        /* pages that can be taken: empty ones and unheld cached ones */
int  pages_take(Pages *p);                              /* a page held once, or -1 when none is left */
void pages_hold(Pages *p, int page);
void pages_drop(Pages *p, int page);                    /* held once less */

/* The cached page behind 'before' (-1: at the start of a text) that holds these tokens, held once more; or -1. */
int  pages_find (Pages *p, int before, const int32_t *tokens);
/* Enters a full page.  Returns the page to use from now on: itself, or an equal one that was
 * there before (then 'page' was dropped and the other is held in its place). */
int  pages_enter(Pages *p, int before, int page, const int32_t *tokens);


#endif
