/* choose.c - which kernel computes a product: the first row of its card's table that takes it, and where none does, of
 * the table that every card has.  A function of the description alone: no device is asked, none need be there. */
#include "op/cuda/common/prod.h"

static const struct {
    int card;
    const ProdKernel *rows;
} tables[] = { { 90, prods_sm90 }, { 0, prods_plain } }; /* 9.0 alone: Hopper's tensor cores are no other card's */

const ProdKernel *prod_choose(const ProdCall *asked) {
    ProdCall c = *asked;
    c.fast = c.laid || prod_fast(c.p);
    for (size_t i = 0; i < COUNT(tables); i++)
        for (const ProdKernel *k = tables[i].rows; k->name && (!tables[i].card || tables[i].card == c.card); k++)
            if (k->takes(&c, k)) return k;
    CHECK(false, "no kernel takes a product of %ld x %ld x %ld", (long)c.p->rows, (long)c.p->N, (long)c.p->K);
    return NULL;
}

static size_t scratch_of(const ProdCall *c) {
    const ProdKernel *k = prod_choose(c);
    return k->scratch ? k->scratch(c, k) : 0;
}
size_t prod_scratch(const ProdCall *asked) {
    ProdCall c = *asked;
    if (c.sms) return scratch_of(&c);
    size_t most = 0;
    for (c.sms = 2; c.sms <= PROD_BLOCKS; c.sms += 2) {
        const size_t bytes = scratch_of(&c);
        if (bytes > most) most = bytes;
        if (c.p->n_pieces <= 1) break; /* only what waits for other pieces depends on the card */
    }
    return most;
}
