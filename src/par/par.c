/* par.c - the pair of context parallelism: see par.h. */
#include "par/par.h"

static void alone(const Comm *c, const char *what) {
    CHECK(c->size == 1, "%s over %d ranks, but this build has groups of one only", what, c->size);
}

void cp_attend(const Par *p, Dev *d, const Attn *a) {
    alone(&p->cp, "attention");
    op_attend(d, a);
}

void cp_attend_bwd(const Par *p, Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    alone(&p->cp, "attention");
    op_attend_bwd(d, dq, dk, dv, dO, a);
}
