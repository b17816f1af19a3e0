/* op_fused_list.h - ops that a backend may do several at a time: FUSED(name, parameters, the same as arguments).
 * Included as op_list.h is.
 *
 * Each is defined by the ops of op_list.h that op_fused.c makes of it, in that order, and has their bits; but gradients
 * that are sums of products (grouped_dx2, linear_dx3) may be one sum, rounded once.  A backend's function returns
 * false where it does not take the shapes; then, and on a backend without it, they are done one by one.
 *
 * Why layers name them, and no backend finds them in a list of plain ops: every one of them is the CUDA backend's,
 * where it was measured (five are the CPU's too, and none is the CPU's alone), so that a list on the CPU would take no
 * door away; and a list could not be sure to find them:
 *   grouped_dx2, linear_dx3           another sum than their parts', which must not depend on where a list ends
 *   *_first                           whoever calls knows that nothing is there yet; a list would have to prove it
 *   grouped_swiglu, permute_swiglu, route_swiglu, route_sort, *combine*, permute_slots
 *                                     what is scratch, or read later ('keep'), or next, the plain calls do not show
 *   linear2, linear3, norm_rope*      one pass over x, or one launch: a list ends wherever rows of other ranks, a watch
 *                                     or a copy come between
 *   add_rmsnorm, rmsnorm_bwd_add, add_rmsnorm_linear, rmsnorm_linear3, grouped_combine_add
 *                                     one token's decoding was bought by them; some begin in one layer and end in the
 *                                     next (defers_norms)
 * Row by row ops of the CPU need no door: op/cpu/chain.c has them. */

/* dw = dy' x, whatever was there: zero, linear_dw.  The same by experts: zero, grouped_dw */
FUSED(linear_dw_first, (Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x),
                       (d, dw, db, dy, x))
FUSED(grouped_dw_first,(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex),
                       (d, dw, dy, x, ex))
/* dx = dy1 w1 + dy2 w2: two grouped_dx, the second into part, which is scratch; add */
FUSED(grouped_dx2,     (Dev *d, Tensor dx, Tensor part, Tensor dy1, Tensor w1, Tensor dy2, Tensor w2,
                        Seqs ex, Leaves sum),
                       (d, dx, part, dy1, w1, dy2, w2, ex, sum))
/* dx = dy[0] w[0] + dy[1] w[1] + dy[2] w[2]: three linear_dx, the later ones into part, which is scratch; add */
FUSED(linear_dx3,      (Dev *d, Tensor dx, Tensor part, const Tensor *dy, const Tensor *w, const Leaves *sum),
                       (d, dx, part, dy, w, sum))
/* y[i] = x w[i]' + b[i]: two linear (gate and up); three (q, k and v) */
FUSED(linear2,         (Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum),
                       (d, y, x, w, b, sum))
FUSED(linear3,         (Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum),
                       (d, y, x, w, b, sum))
/* sum = a + b, y and rstd of sum: add, rmsnorm */
FUSED(add_rmsnorm,     (Dev *d, Tensor sum, Tensor y, Tensor rstd, Tensor a, Tensor b, Tensor g, float eps),
                       (d, sum, y, rstd, a, b, g, eps))
/* sum = a + what experts return to tokens, y of sum: combine into part, which is scratch; add, rmsnorm */
FUSED(combine_add_rmsnorm, (Dev *d, Tensor sum, Tensor y, Tensor part, Tensor a, Tensor rows, Tensor slot,
                        Tensor weight, Tensor g, float eps),
                       (d, sum, y, part, a, rows, slot, weight, g, eps))
/* dx of a norm, and more, which is not dx: rmsnorm_bwd, add */
FUSED(rmsnorm_bwd_add, (Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g, Tensor more),
                       (d, dx, dg, dy, x, rstd, g, more))
/* y = raw normed by head, then turned; both of two tensors: rmsnorm over heads, rope, each twice */
FUSED(norm_rope2,      (Dev *d, const NormRope *q, const NormRope *k, Tensor cossin, float eps),
                       (d, q, k, cossin, eps))
/* the same, and keys and values go into pages: norm_rope2, kv_put */
FUSED(norm_rope_put,   (Dev *d, const NormRope *q, const NormRope *k, Tensor cossin, float eps, Kv kv, Tensor v,
                        Paged rows),
                       (d, q, k, cossin, eps, kv, v, rows))
/* experts are chosen and rows sorted by them: route, moe_sort */
FUSED(route_sort,      (Dev *d, const Route *r, Tensor at, Tensor from, Tensor slot),
                       (d, r, at, from, slot))
/* h = silu(x wg') * (x wu') by experts, gate and up on the way: grouped twice, swiglu.  Without 'keep' nobody reads
 * gate and up later */
FUSED(grouped_swiglu,  (Dev *d, Tensor h, Tensor gate, Tensor up, Tensor x, Tensor wg, Tensor wu,
                        Seqs ex, Leaves sum, bool keep),
                       (d, h, gate, up, x, wg, wu, ex, sum, keep))
/* back from y of norm_rope2: rope the other way, which uses up dy, rmsnorm_bwd over heads */
FUSED(norm_rope_bwd,   (Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor raw, Tensor rstd, Tensor g, Tensor cossin,
                        RopeShape s),
                       (d, dx, dg, dy, raw, rstd, g, cossin, s))
/* rows of tokens to all their experts, as moe_sort has said it both ways: permute */
FUSED(permute_slots,   (Dev *d, Tensor y, Tensor x, Tensor from, Tensor slot),
                       (d, y, x, from, slot))
/* linear_dw_first twice, of one x and without biases */
FUSED(linear_dw2_first,(Dev *d, const Tensor *dw, const Tensor *dy, Tensor x),
                       (d, dw, dy, x))
/* zero of dw, logprob_bwd */
FUSED(logprob_bwd_first,(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h),
                       (d, dh, dw, dlp, dent, h))
/* grouped_swiglu without keep of x's rows in the order of experts: permute_slots (or, without slot, permute) into own,
 * which is scratch.  next: experts' weights that will be read behind it, or none */
FUSED(permute_swiglu,  (Dev *d, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x, Tensor from, Tensor slot,
                        Tensor wg, Tensor wu, Seqs ex, Leaves sum, Tensor next),
                       (d, h, gate, up, own, x, from, slot, wg, wu, ex, sum, next))
/* the same of rows whose experts are still to be chosen; writes ex.at, from and slot: route_sort, permute_swiglu */
FUSED(route_swiglu,    (Dev *d, const Route *r, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x, Tensor from,
                        Tensor slot, Tensor wg, Tensor wu, Seqs ex, Leaves sum, Tensor next),
                       (d, r, h, gate, up, own, x, from, slot, wg, wu, ex, sum, next))
/* sum = a + b, y of sum, z = y w': add_rmsnorm, linear */
FUSED(add_rmsnorm_linear, (Dev *d, Tensor sum, Tensor y, Tensor z, Tensor a, Tensor b, Tensor g, float eps, Tensor w,
                        Leaves over),
                       (d, sum, y, z, a, b, g, eps, w, over))
/* n = x normed, y[i] = n w[i]' + b[i]: rmsnorm, linear3 */
FUSED(rmsnorm_linear3, (Dev *d, const Tensor *y, Tensor n, Tensor x, Tensor g, float eps, const Tensor *w,
                        const Tensor *b, Leaves over),
                       (d, y, n, x, g, eps, w, b, over))
/* sum = a + what experts return to tokens, as moe_sort has sorted pick: grouped into out and combine into part, which
 * are scratch; add */
FUSED(grouped_combine_add, (Dev *d, Tensor sum, Tensor part, Tensor out, Tensor a, Tensor h, Tensor w, Seqs ex,
                        Leaves over, Tensor pick, Tensor slot, Tensor weight),
                       (d, sum, part, out, a, h, w, ex, over, pick, slot, weight))
