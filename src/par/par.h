/* par.h - parallelism inside a layer is pairs of transposes; a layer between them never names a rank.
 *
 * tp: between layers a rank holds its share of the tokens.  enter gathers them so that a layer sees every token, exit adds
 *     the ranks' partial results and hands each its share.  enter_bwd is exit's sum, exit_bwd is enter's gather.
 * ep: rows sorted by expert go to the rank that has the expert, and come back to the token's own rank before they are
 *     summed, so that experts' placement has no effect on bits.
 * cp: each rank has its own queries and gathers all keys and values.
 * Each hands back its argument in a group of one. */
#ifndef PAR_PAR_H
#define PAR_PAR_H

#include "comm/comm.h"

typedef Groups Par;

/* total: tokens of all ranks of tp together.  A partial sum is written where tp_partial says: there is one in each direction. */
static inline Tensor tp_enter    (const Par *p, Dev *d, Arena *a, Tensor x, int64_t total)  { return comm_all_gather(&p->tp, d, a, x, total); }
static inline void   tp_enter_bwd(const Par *p, Dev *d, Tensor dx, Tensor partial)          { comm_reduce_scatter(&p->tp, d, dx, partial); }
static inline void   tp_exit     (const Par *p, Dev *d, Tensor y, Tensor partial)           { comm_reduce_scatter(&p->tp, d, y, partial); }
static inline Tensor tp_exit_bwd (const Par *p, Dev *d, Arena *a, Tensor dy, int64_t total) { return comm_all_gather(&p->tp, d, a, dy, total); }
static inline Tensor tp_partial  (const Par *p, Arena *a, Tensor mine, int64_t total)       { return comm_partial(&p->tp, a, mine, total); }
/* This rank's rows of a tensor that has the rows of all. */
static inline Tensor tp_mine(const Par *p, Tensor all) {
    return tensor_rows(all, comm_first_row(&p->tp, all.rows, p->tp.rank), comm_share(&p->tp, all.rows));
}

/* Rows grouped by expert, to the experts' ranks and back.  ex says where each expert's rows begin. */
Tensor ep_dispatch(const Par *p, Dev *d, Arena *a, Tensor rows, Seqs *ex);
Tensor ep_combine (const Par *p, Dev *d, Arena *a, Tensor rows, const Seqs *ex);

/* Keys and values of the whole sequence for this rank's queries. */
void cp_attend    (const Par *p, Dev *d, const Attn *a);
void cp_attend_bwd(const Par *p, Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a);

#endif
