/* pages.c - pages of the cache: held, found again by what they hold, given up oldest first.
 * The table is chained by page number; the unheld cached pages form a list, oldest first.  What was never taken is in
 * no list: opening writes nothing, however many pages there are. */
#include "engine/pages.h"
#include "base/hash.h"

#include <string.h>

typedef struct {
    int refs, children; /* children: cached pages that name this one as 'before' */
    int before, next;   /* prefix table: the page before this one's tokens, the next of the same chain, and one more */
    bool cached;        /* in the prefix table */
    int older, newer;   /* list of unheld pages: empty ones at the old end */
    uint32_t bucket;
} Page;

struct Pages {
    Page *at;
    int32_t *tokens; /* [n][page] of cached pages */
    int n, page, n_free, oldest, newest;
    int fresh;  /* pages from here on were never taken */
    int *chain; /* the first page of each bucket, and one more; 0: none */
    uint32_t mask;
};

static void list_remove(Pages *p, int i) {
    Page *x = &p->at[i];
    if (x->older >= 0) p->at[x->older].newer = x->newer;
    else p->oldest = x->newer;
    if (x->newer >= 0) p->at[x->newer].older = x->older;
    else p->newest = x->older;
    p->n_free--;
}

static void list_add(Pages *p, int i, bool old) {
    Page *x = &p->at[i];
    x->older = old ? -1 : p->newest;
    x->newer = old ? p->oldest : -1;
    if (x->older >= 0) p->at[x->older].newer = i;
    else p->oldest = i;
    if (x->newer >= 0) p->at[x->newer].older = i;
    else p->newest = i;
    p->n_free++;
}

static void forget(Pages *p, int i) { /* out of the prefix table */
    Page *x = &p->at[i];
    if (!x->cached) return;
    int *link = &p->chain[x->bucket];
    while (*link != i + 1) link = &p->at[*link - 1].next;
    *link = x->next;
    x->cached = false;
    if (x->before >= 0) p->at[x->before].children--;
}

static uint64_t chains_for(int pages) { /* 64 bits: twice the most pages there can be is beyond 32 */
    uint64_t size = 16;
    while (size < 2 * (uint64_t)pages) size *= 2;
    return size;
}

Pages *pages_open(int pages, int page, Mem *mem) {
    Pages *p = MEM_NEW(mem, Pages);
    uint64_t size = chains_for(pages);
    *p = (Pages){ .n = pages, .page = page, .n_free = pages, .oldest = -1, .newest = -1, .mask = (uint32_t)(size - 1) };
    p->at = MEM_ARRAY(mem, Page, (size_t)pages);
    p->tokens = MEM_ARRAY(mem, int32_t, (size_t)pages * (size_t)page);
    p->chain = MEM_ARRAY(mem, int, size);
    return p;
}

void pages_flush(Pages *p) {
    for (int i = 0; i < p->fresh; i++) forget(p, i);
}

int pages_free(const Pages *p) { return p->n_free; }

/* A page that goes takes the pages behind it out of reach: they name it as 'before', and its
 * number will mean other tokens. */
static void forget_behind(Pages *p, int before) {
    for (int i = 0; i < p->fresh && p->at[before].children; i++)
        if (p->at[i].cached && p->at[i].before == before) {
            forget_behind(p, i);
            forget(p, i);
        }
}

int pages_take(Pages *p) {
    int i = p->oldest;
    if (p->fresh < p->n && (i < 0 || p->at[i].cached)) { /* before what somebody may still find */
        p->n_free--;
        p->at[p->fresh].refs = 1;
        return p->fresh++;
    }
    if (i < 0) return -1;
    list_remove(p, i);
    forget_behind(p, i); /* also of a page that is not in the table itself: an equal one took its place there */
    forget(p, i);
    p->at[i].refs = 1;
    return i;
}

void pages_hold(Pages *p, int i) {
    if (p->at[i].refs++ == 0) list_remove(p, i);
}

void pages_drop(Pages *p, int i) {
    CHECK(p->at[i].refs > 0, "page %d dropped, but nobody holds it", i);
    if (--p->at[i].refs == 0) list_add(p, i, !p->at[i].cached);
}

static uint32_t hash(const Pages *p, int before, const int32_t *tokens) {
    uint64_t h = hash_ids(HASH_START ^ (uint32_t)before, tokens, (size_t)p->page);
    return (uint32_t)(h ^ h >> 32);
}

static int look(const Pages *p, uint32_t bucket, int before, const int32_t *tokens) {
    size_t bytes = (size_t)p->page * sizeof *tokens;
    for (int i = p->chain[bucket] - 1; i >= 0; i = p->at[i].next - 1)
        if (p->at[i].before == before && !memcmp(p->tokens + (size_t)i * (size_t)p->page, tokens, bytes)) return i;
    return -1;
}

int pages_find(Pages *p, int before, const int32_t *tokens) {
    int i = look(p, hash(p, before, tokens) & p->mask, before, tokens);
    if (i < 0) return -1;
    pages_hold(p, i);
    return i;
}

int pages_enter(Pages *p, int before, int page, const int32_t *tokens) {
    Page *x = &p->at[page];
    if (x->cached) return page;
    uint32_t bucket = hash(p, before, tokens) & p->mask;
    int other = look(p, bucket, before, tokens);
    if (other >= 0) {
        pages_hold(p, other);
        pages_drop(p, page);
        return other;
    }
    memcpy(p->tokens + (size_t)page * (size_t)p->page, tokens, (size_t)p->page * sizeof *tokens);
    x->before = before;
    x->bucket = bucket;
    x->cached = true;
    if (before >= 0) p->at[before].children++;
    x->next = p->chain[bucket];
    p->chain[bucket] = page + 1;
    return page;
}
