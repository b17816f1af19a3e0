/* op_list.h - every op, once: OP(how, name, parameters, the same as arguments, the tensors it writes).  Included with
 * OP defined as what is wanted of the list: the table of function pointers, its checked front doors, a backend's
 * declarations, the dry device, planted faults.
 *
 * A new op is a row here, check_NAME (op_*.c), and a function in each backend.
 *
 * how: ENTER  what waits is done before it (dev_chain)
 *      JOIN   works row by row, so it may wait and run together with its neighbours
 *
 * Conventions: op.h. */

/* ---- moving ------------------------------------------------------------------------------------------------------ */
OP(ENTER, put,         (Dev *d, Tensor to, const void *from),
                      (d, to, from), (to))    /* host -> device, from has no gaps */
OP(ENTER, get,         (Dev *d, void *to, Tensor from),
                      (d, to, from), (TENSOR_NONE))    /* device -> host, to has no gaps */
OP(ENTER, copy,        (Dev *d, Tensor to, Tensor from),
                      (d, to, from), (to))    /* f32 <-> bf16 converts */
OP(ENTER, zero,        (Dev *d, Tensor x),
                      (d, x), (x))
OP(ENTER, normals,     (Dev *d, Tensor x, Normals n),
                      (d, x, n), (x))
OP(ENTER, widen,       (Dev *d, Tensor y, Tensor x, Tensor scale, int64_t from, int64_t cols),
                      (d, y, x, scale, from, cols), (y)) /* y, x [1,n]: elements from.. of a matrix of float8 blocks */

/* ---- products: y[T,O] = x[T,I] w[O,I]' + b[1,O];  w is F32 or BF16 ----------------------------------------------- */
OP(JOIN,  linear,      (Dev *d, Tensor y, Tensor x, Tensor w, Tensor b, Leaves sum),
                      (d, y, x, w, b, sum), (y))    /* sum over I */
OP(JOIN,  linear_dx,   (Dev *d, Tensor dx, Tensor dy, Tensor w, Leaves sum),
                      (d, dx, dy, w, sum), (dx))    /* sum over O */
OP(ENTER, linear_dw,   (Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x),
                      (d, dw, db, dy, x), (dw, db))    /* += ; chain over rows from dw */
/* the same with one weight per expert, w [E*O,I], rows grouped by ex */
OP(JOIN,  grouped,     (Dev *d, Tensor y, Tensor x, Tensor w, Seqs ex, Leaves sum),
                      (d, y, x, w, ex, sum), (y))
OP(JOIN,  grouped_dx,  (Dev *d, Tensor dx, Tensor dy, Tensor w, Seqs ex, Leaves sum),
                      (d, dx, dy, w, ex, sum), (dx))
OP(ENTER, grouped_dw,  (Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex),
                      (d, dw, dy, x, ex), (dw))    /* += */
/* one matrix per head (MLA's absorbed projections): see HeadMap */
OP(ENTER, headwise,    (Dev *d, Tensor y, Tensor x, Tensor w, HeadMap m),
                      (d, y, x, w, m), (tensor_cols(y, m.y_from, m.out)))
OP(ENTER, headwise_dw, (Dev *d, Tensor dw, Tensor dy, Tensor x, HeadMap m),
                      (d, dw, dy, x, m), (dw))    /* += */
OP(ENTER, copy_heads,  (Dev *d, Tensor y, Tensor x, HeadMap m),
                      (d, y, x, m), (tensor_cols(y, m.y_from, m.out)))    /* y's part = x's part; in == out */
/* y's part = sum over heads ascending of x's; y_width 0 */
OP(ENTER, sum_heads,   (Dev *d, Tensor y, Tensor x, HeadMap m),
                      (d, y, x, m), (tensor_cols(y, m.y_from, m.out)))
OP(ENTER, tree_add,    (Dev *d, Tensor y, const Tensor *part, int n),
                      (d, y, part, n), (y))    /* balanced tree, n a power of 2 */

/* ---- row by row -------------------------------------------------------------------------------------------------- */
/* An id whose row is another rank's gives -0, which changes nothing when it is added. */
OP(JOIN,  embed,       (Dev *d, Tensor y, Tensor ids, Tensor w, Part part),
                      (d, y, ids, w, part), (y))
OP(ENTER, embed_bwd,   (Dev *d, Tensor dw, Tensor dy, Tensor ids, Part part),
                      (d, dw, dy, ids, part), (dw))    /* += */
OP(JOIN,  rmsnorm,     (Dev *d, Tensor y, Tensor rstd, Tensor x, Tensor g, float eps),
                      (d, y, rstd, x, g, eps), (y, rstd))
OP(JOIN,  rmsnorm_bwd, (Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g),
                      (d, dx, dg, dy, x, rstd, g), (dx, dg))    /* dg += */
OP(JOIN,  swiglu,      (Dev *d, Tensor y, Tensor gate, Tensor up),
                      (d, y, gate, up), (y))
OP(JOIN,  swiglu_bwd,  (Dev *d, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up),
                      (d, dgate, dup, dy, gate, up), (dgate, dup))
OP(JOIN,  gelu,        (Dev *d, Tensor y, Tensor x),
                      (d, y, x), (y))    /* x times the normal distribution's mass below x: the exact one, not tanh's */
OP(JOIN,  gelu_bwd,    (Dev *d, Tensor dx, Tensor dy, Tensor x),
                      (d, dx, dy, x), (dx))
OP(JOIN,  add,         (Dev *d, Tensor y, Tensor a, Tensor b),
                      (d, y, a, b), (y))    /* y may be a */
OP(JOIN,  scale,       (Dev *d, Tensor y, Tensor x, float by),
                      (d, y, x, by), (y))    /* y = by x; y may be x */
OP(JOIN,  add_row,     (Dev *d, Tensor y, Tensor b),
                      (d, y, b), (y))    /* y[t] += b [1,n]: a bias after its sum is whole */
OP(ENTER, sum_rows,    (Dev *d, Tensor db, Tensor dy),
                      (d, db, dy), (db))    /* += ; chain over rows: add_row's backward */
OP(JOIN,  rope_table,  (Dev *d, Tensor cossin, Tensor pos, Tensor freq, float amp),
                      (d, cossin, pos, freq, amp), (cossin))    /* cos then sin; pos [T,P], freq [P,dim/2]: the
        angle is pos[t,p] freq[p,i] of the one p whose freq[p,i] is not 0 */
OP(JOIN,  rope,        (Dev *d, Tensor x, Tensor cossin, RopeShape s, int turn),
                      (d, x, cossin, s, turn), (tensor_cols(x, s.from, s.dim)))    /* in place; -1 transposes +1 */

/* ---- gates, and layers that keep a state: one row of state [slots, floats] for each sequence -------------------- */
OP(ENTER, gate,        (Dev *d, Tensor y, Tensor a, Tensor g),
                      (d, y, a, g), (y))    /* y = a sigmoid(g), g of a's columns or one; y may be a */
OP(ENTER, gate_bwd,    (Dev *d, Tensor da, Tensor dg, Tensor dy, Tensor a, Tensor g),
                      (d, da, dg, dy, a, g), (da, dg))    /* da may be dy */
OP(ENTER, plus_one,    (Dev *d, Tensor y, Tensor x),
                      (d, y, x), (y))    /* 1 + x: a centred norm's gain */
OP(ENTER, conv,        (Dev *d, Tensor y, Tensor x, Tensor w, const Remembered *r),
                      (d, y, x, w, r), (y))    /* silu of the last w.cols rows of a sequence, a filter a column */
OP(ENTER, conv_bwd,    (Dev *d, Tensor dx, Tensor dw, Tensor dy, Tensor x, Tensor w, const Remembered *r),
                      (d, dx, dw, dy, x, w, r), (dx, dw))    /* dw += */
OP(ENTER, unit,        (Dev *d, Tensor y, Tensor rho, Tensor x, int heads, float scale),
                      (d, y, rho, x, heads, scale), (y, rho))    /* rho = (sum x^2 + 1e-6)^-1/2; y = x rho scale */
OP(ENTER, unit_bwd,    (Dev *d, Tensor dx, Tensor dy, Tensor x, Tensor rho, int heads, float scale),
                      (d, dx, dy, x, rho, heads, scale), (dx))
OP(ENTER, decay,       (Dev *d, Tensor g, Tensor beta, const Decay *x),
                      (d, g, beta, x), (g, beta))    /* g = -e^A softplus(a + dt); beta = sigmoid(b) */
OP(ENTER, decay_bwd,   (Dev *d, Tensor da, Tensor db, Tensor dA, Tensor ddt, Tensor dg, Tensor dbeta, const Decay *x),
                      (d, da, db, dA, ddt, dg, dbeta, x), (da, db, dA, ddt))    /* dA, ddt += */
OP(ENTER, delta,       (Dev *d, Tensor o, const Delta *x),
                      (d, o, x), (o))    /* S = e^g S; u = beta (v - S'k); S += k u'; o = S'q */
OP(ENTER, delta_bwd,   (Dev *d, const DeltaGrad *g, Tensor dO, const Delta *x),
                      (d, g, dO, x), (g->q, g->k, g->v, g->g, g->beta))
OP(ENTER, norm_gate,   (Dev *d, Tensor y, Tensor rho, Tensor x, Tensor z, Tensor w, int heads, float eps),
                      (d, y, rho, x, z, w, heads, eps), (y, rho))    /* by head: rmsnorm(x; w) silu(z) */
OP(ENTER, norm_gate_bwd, (Dev *d, Tensor dx, Tensor dz, Tensor dw, Tensor dy, Tensor x, Tensor z, Tensor w, Tensor rho,
                       int heads),
                      (d, dx, dz, dw, dy, x, z, w, rho, heads), (dx, dz, dw))    /* dw += */

/* ---- attention within each packed sequence, and the same over pages ---------------------------------------------- */
OP(ENTER, attend,      (Dev *d, const Attn *a),
                      (d, a), (a->o, a->lse))
OP(ENTER, attend_bwd,  (Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a),
                      (d, dq, dk, dv, dO, a), (dq, dk, dv))
/* The same without a mask: every row sees all rows of its sequence (a vision tower's windows and frames).  No
 * 'from'. */
OP(ENTER, attend_all,  (Dev *d, const Attn *a),
                      (d, a), (a->o, a->lse))
OP(ENTER, attend_all_bwd, (Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a),
                      (d, dq, dk, dv, dO, a), (dq, dk, dv))
OP(JOIN,  kv_put,      (Dev *d, Kv kv, Tensor k, Tensor v, Paged rows),
                      (d, kv, k, v, rows), (TENSOR_NONE))
OP(ENTER, kv_copy,     (Dev *d, Kv kv, int to_page, int from_page),
                      (d, kv, to_page, from_page), (TENSOR_NONE))
OP(JOIN,  attend_kv,   (Dev *d, Tensor o, Tensor q, Kv kv, Paged rows, int heads, float scale),
                      (d, o, q, kv, rows, heads, scale), (o))

/* ---- experts: choose, gather rows by expert, put them back weighted ---------------------------------------------- */
OP(JOIN,  route,       (Dev *d, const Route *r),
                      (d, r), (r->pick, r->weight))
OP(JOIN,  route_bwd,   (Dev *d, Tensor dlogits, Tensor dweight, const Route *r),
                      (d, dlogits, dweight, r), (dlogits))
/* at [E+1] from [T*k] slot [T,k] */
OP(ENTER, moe_sort,    (Dev *d, Tensor at, Tensor from, Tensor slot, Tensor pick, int experts),
                      (d, at, from, slot, pick, experts), (from, slot, at))
OP(JOIN,  permute,     (Dev *d, Tensor y, Tensor x, Tensor from),
                      (d, y, x, from), (y))    /* y[i] = x[from[i]] */
OP(JOIN,  permute_bwd, (Dev *d, Tensor dx, Tensor dy, Tensor slot),
                      (d, dx, dy, slot), (dx))    /* dx[t] = sum_j dy[slot[t,j]] */
OP(JOIN,  combine,     (Dev *d, Tensor y, Tensor rows, Tensor slot, Tensor weight),
                      (d, y, rows, slot, weight), (y))    /* y[t] = sum_j w[t,j] rows[slot[t,j]] */
OP(JOIN,  combine_bwd, (Dev *d, Tensor drows, Tensor dweight, Tensor dy, Tensor rows, Tensor slot, Tensor weight),
                      (d, drows, dweight, dy, rows, slot, weight), (drows, dweight))
OP(ENTER, scatter_rows,(Dev *d, Tensor x, Tensor y, Tensor from),
                      (d, x, y, from), (x))    /* x = 0, then x[from[i]] = y[i] */

/* ---- the head: log-probs of given tokens without ever holding [T,V]; drawing ------------------------------------- */
OP(ENTER, logprob,     (Dev *d, const Head *h),
                      (d, h), (h->lp, h->ent))
/* The same where ranks have parts of the vocabulary: each makes its leaves' sums, part [T, 3 leaves + 1]; from all of
 * them, in order, every rank ends with the bits of logprob.  Whole distributions only: for top-k, top-p and min-p rows
 * come together (_rows). */
OP(ENTER, logprob_part, (Dev *d, Tensor part, const Head *h),
                      (d, part, h), (part))
OP(ENTER, logprob_end, (Dev *d, const Tensor *part, int n, const Head *h),
                      (d, part, n, h), (h->lp, h->ent))
OP(ENTER, logprob_bwd, (Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h),
                      (d, dh, dw, dlp, dent, h), (dh, dw))    /* dw +=; dent may be none */
OP(ENTER, sample,      (Dev *d, const Sample *s),
                      (d, s), (s->id, s->lp, s->ent, s->kept))
/* Both with the products done: logits [T,V] of the whole vocabulary, F32, as the head makes them; they are overwritten.
 * h and w are not looked at.  The bits of logprob and sample. */
OP(ENTER, logprob_rows, (Dev *d, Tensor logits, const Head *h),
                      (d, logits, h), (h->lp, h->ent))
OP(ENTER, sample_rows, (Dev *d, Tensor logits, const Sample *s),
                      (d, logits, s), (s->id, s->lp, s->ent, s->kept))

/* ---- the optimizer, on flat tensors [1,n] ------------------------------------------------------------------------ */
/* master none: w is F32.  Else w is BF16, the rounded master, and master is that in F32, or in I16 what rounding took
 * from it (adam_split).  Moments are F32, or BF16: rounded up or down by chance, so that their mean is right
 * (adam_round). */
OP(ENTER, adamw,       (Dev *d, Tensor w, Tensor master, Tensor m, Tensor v, Tensor g, Adam a),
                      (d, w, master, m, v, g, a), (w, master, m, v))
