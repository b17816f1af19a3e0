/* cp.c - keys and values of whole sequences for this rank's queries: see par.h. */
#include "par/par.h"

static void places(const Par *p, const CpRows *cp, CommRows *of) { /* each rank's rows, side by side */
    int64_t at = 0;
    for (int r = 0; r < p->cp.size; at += cp->rows[r++]) of[r] = (CommRows){ at, cp->rows[r] };
}

Tensor cp_gather(const Par *p, Dev *d, Arena *to, const CpRows *cp, Tensor own) {
    if (p->cp.size == 1) return own;
    Tensor all = tensor_push(to, own.dtype, cp->all, own.cols);
    size_t mark = arena_mark(&d->tmp);
    Tensor packed = tensor_push(&d->tmp, own.dtype, own.rows, own.cols),
           received = tensor_push(&d->tmp, own.dtype, cp->all, own.cols);
    CommRows give[CP_MOST], get[CP_MOST];
    op_copy(d, packed, own);
    places(p, cp, get);
    for (int r = 0; r < p->cp.size; r++) give[r] = (CommRows){ 0, own.rows };
    comm_exchange(&p->cp, d, received, get, packed, give);
    op_permute(d, all, received, cp->order);
    arena_pop(&d->tmp, mark);
    return all;
}

/* own = this rank's rows of the sum over ranks of 'all', which is in the packed order; ranks
 * are added in their order. */
static void sum_back(const Par *p, Dev *d, const CpRows *cp, Tensor own, Tensor all) {
    size_t mark = arena_mark(&d->tmp);
    Tensor ranks = tensor_push(&d->tmp, all.dtype, cp->all, all.cols);
    Tensor received = tensor_push(&d->tmp, all.dtype, own.rows * p->cp.size, all.cols);
    CommRows give[CP_MOST], get[CP_MOST];
    op_scatter_rows(d, ranks, all, cp->order);
    places(p, cp, give);
    for (int r = 0; r < p->cp.size; r++) get[r] = (CommRows){ r * own.rows, own.rows };
    comm_exchange(&p->cp, d, received, get, ranks, give);
    op_copy(d, own, tensor_rows(received, 0, own.rows));
    for (int r = 1; r < p->cp.size; r++) op_add(d, own, own, tensor_rows(received, r * own.rows, own.rows));
    arena_pop(&d->tmp, mark);
}

/* MLA's values are columns of its keys.  Asked of the shapes too: on a rank without rows
 * every tensor lies at the same place. */
static bool inside_keys(const Attn *a) {
    return a->v.data == a->k.data && a->v.ld == a->k.ld && a->v.cols != a->k.cols;
}

static Attn gathered(const Par *p, Dev *d, const CpRows *cp, const Attn *a) {
    Attn all = *a;
    all.k = cp_gather(p, d, &d->tmp, cp, a->k);
    all.v = inside_keys(a) ? tensor_cols(all.k, 0, a->v.cols) : cp_gather(p, d, &d->tmp, cp, a->v);
    return all;
}

void cp_attend(const Par *p, Dev *d, const CpRows *cp, const Attn *a) {
    size_t mark = arena_mark(&d->tmp);
    Attn all = gathered(p, d, cp, a);
    op_attend(d, &all);
    arena_pop(&d->tmp, mark);
}

void cp_attend_bwd(const Par *p, Dev *d, const CpRows *cp, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {
    if (p->cp.size == 1) {
        op_attend_bwd(d, dq, dk, dv, dO, a);
        return;
    }
    size_t mark = arena_mark(&d->tmp);
    Attn all = gathered(p, d, cp, a);
    Tensor dk_all = tensor_push(&d->tmp, dk.dtype, cp->all, dk.cols),
           dv_all = tensor_push(&d->tmp, dv.dtype, cp->all, dv.cols);
    op_attend_bwd(d, dq, dk_all, dv_all, dO, &all);
    sum_back(p, d, cp, dk, dk_all);
    sum_back(p, d, cp, dv, dv_all);
    arena_pop(&d->tmp, mark);
}
