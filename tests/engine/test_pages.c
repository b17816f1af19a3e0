/* test_pages.c - the page table against a plain model of it: counts, hits, what an eviction puts out of reach. */
#include "base/rng.h"
#include "engine/pages.h"
#include "test.h"

enum { PAGE = 4 };

static const int32_t *word(int which) { /* PAGE tokens that no other 'which' has */
    static int32_t t[PAGE];
    for (int i = 0; i < PAGE; i++) t[i] = which * 10 + i;
    return t;
}

static void a_chain(void) {
    Mem mem = { 0 };
    Pages *p = pages_open(4, PAGE, &mem);
    EXPECT(pages_free(p) == 4, "%d pages free at the start", pages_free(p));
    int a = pages_take(p), b = pages_take(p);
    EXPECT(a >= 0 && b >= 0 && a != b && pages_free(p) == 2, "two pages taken: %d %d, %d free", a, b, pages_free(p));
    EXPECT(pages_find(p, -1, word(1)) == -1, "found what was not entered");
    EXPECT(pages_enter(p, -1, a, word(1)) == a && pages_enter(p, a, b, word(2)) == b, "entered under its own number");
    EXPECT(pages_enter(p, a, b, word(2)) == b, "entering twice changes nothing");
    EXPECT(pages_find(p, -1, word(2)) == -1 && pages_find(p, b, word(2)) == -1, "the same tokens elsewhere are no hit");

    int c = pages_take(p); /* an equal page gives way to the first */
    EXPECT(pages_enter(p, -1, c, word(1)) == a, "an equal page is not kept twice");
    EXPECT(pages_free(p) == 2, "its place is free again: %d free", pages_free(p));
    pages_drop(p, a); /* once for c */
    pages_drop(p, b);
    pages_drop(p, a);
    EXPECT(pages_free(p) == 4, "%d free after all were dropped", pages_free(p));

    EXPECT(pages_find(p, -1, word(1)) == a && pages_find(p, a, word(2)) == b, "what nobody holds is still found");
    EXPECT(pages_free(p) == 2, "%d free", pages_free(p));
    pages_flush(p);
    EXPECT(pages_find(p, -1, word(1)) == -1 && pages_find(p, a, word(2)) == -1, "a flush forgets everything");
    pages_drop(p, b);
    pages_drop(p, a);
    EXPECT(pages_free(p) == 4, "%d free after flush and drop", pages_free(p));
    mem_free(&mem);
}

/* The first page of a text goes while the second is still cached: the number of the first
 * gets other tokens, so the second must not be found behind it. */
static void out_of_reach(void) {
    Mem mem = { 0 };
    Pages *p = pages_open(2, PAGE, &mem);
    int a = pages_take(p), b = pages_take(p);
    pages_enter(p, -1, a, word(1));
    pages_enter(p, a, b, word(2));
    pages_drop(p, a); /* older than b in the list of pages to go */
    pages_drop(p, b);
    int c = pages_take(p);
    EXPECT(c == a, "the least recently used page goes first: %d, not %d", c, a);
    pages_enter(p, -1, c, word(3));
    EXPECT(pages_find(p, c, word(2)) == -1, "a page behind an evicted one was found behind its successor");
    EXPECT(pages_free(p) == 1, "%d free", pages_free(p));
    int d = pages_take(p);
    EXPECT(d == b && pages_take(p) == -1, "the last page, then none");
    mem_free(&mem);
}

/* Pages at the end of a text go before those at its beginning when they are dropped last first. */
static void end_goes_first(void) {
    Mem mem = { 0 };
    Pages *p = pages_open(3, PAGE, &mem);
    int at[3], before = -1;
    for (int i = 0; i < 3; i++) at[i] = pages_take(p), pages_enter(p, before, at[i], word(i)), before = at[i];
    for (int i = 2; i >= 0; i--) pages_drop(p, at[i]);
    EXPECT(pages_take(p) == at[2], "the end goes first");
    EXPECT(pages_find(p, -1, word(0)) == at[0] && pages_find(p, at[0], word(1)) == at[1]
               && pages_find(p, at[1], word(2)) == -1,
           "the beginning stays");
    mem_free(&mem);
}

/* Random texts over two letters, so that prefixes are shared often; the shadow keeps how
 * often each page is held and what it was written with. */
enum { PAGES = 24, TEXTS = 8, LONG = 5, STEPS = 20000 };

typedef struct {
    int page[LONG], word[LONG], n;
} Text;

static void random_use(uint64_t seed) {
    Mem mem = { 0 };
    Pages *p = pages_open(PAGES, PAGE, &mem);
    Text text[TEXTS] = { 0 };
    int held[PAGES] = { 0 }, wrote[PAGES], bad = 0, hits = 0, evictions = 0, flushes = 0;
    memset(wrote, -1, sizeof wrote);
    for (int s = 0; s < STEPS; s++) {
        uint64_t r = rng_u64(seed, RNG_PLAN, 0, 0, 0, (uint32_t)s);
        Text *t = &text[r % TEXTS];
        int what = (int)(r >> 8) % 10, w = (int)(r >> 16) % 2;
        if (what < 7 && t->n < LONG) {
            int before = t->n ? t->page[t->n - 1] : -1, i = pages_find(p, before, word(w));
            if (i >= 0) {
                hits++;
                bad += wrote[i] != w; /* the page found holds what was asked for */
                held[i]++;
            } else if ((i = pages_take(p)) >= 0) {
                bad += held[i] != 0;
                evictions += wrote[i] >= 0;
                held[i] = 1, wrote[i] = w;
                int used = pages_enter(p, before, i, word(w));
                if (used != i) held[i]--, held[used]++, bad += wrote[used] != w;
                i = used;
            } else continue;
            t->page[t->n] = i, t->word[t->n++] = w;
        } else if (what == 9 && (r >> 32) % 200 == 0) {
            pages_flush(p), flushes++;
        } else {
            while (t->n) pages_drop(p, t->page[--t->n]), held[t->page[t->n]]--;
        }
        int unheld = 0;
        for (int i = 0; i < PAGES; i++) unheld += held[i] == 0, bad += held[i] < 0;
        bad += pages_free(p) != unheld;
        for (int k = 0; k < TEXTS; k++)
            for (int i = 0; i < text[k].n; i++)
                bad += wrote[text[k].page[i]] != text[k].word[i]; /* nobody wrote over it */
    }
    EXPECT(!bad, "%d of the counts or contents were wrong", bad);
    EXPECT(hits > 100 && evictions > 100 && flushes > 1, "%d hits, %d evictions, %d flushes: this test saw too little",
           hits, evictions, flushes);
    mem_free(&mem);
}

int main(void) {
    a_chain();
    out_of_reach();
    end_goes_first();
    for (uint64_t seed = 0; seed < 4; seed++) random_use(seed);
    return test_end();
}
