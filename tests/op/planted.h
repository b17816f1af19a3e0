/* planted.h - the CPU's operations with one of them wrong.  A fault is one output of one operation: when the operation is
 * done, spoil() changes what it wrote there, as little as the test that must notice it says.
 *   op tests:  build/tests/op/test_rows --plant rmsnorm_bwd.dx    must fail (tests/all/planted.sh runs them all)
 *   engine and model tests plant in process. */
#ifndef TESTS_OP_PLANTED_H
#define TESTS_OP_PLANTED_H

#include "op/op.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

typedef void Spoil(Tensor x);
static Spoil *planted_spoil; /* how; set by planted_ops */

static inline void spoil(Tensor x) {
    if (x.data && x.rows > 0 && x.cols > 0) planted_spoil(x);
}
/* The largest entry is wrong by 0.1 % (of whole numbers two change places, of bf16 the last bit falls). */
static inline void spoil_largest(Tensor x) {
    if (x.dtype == DT_I32) {
        int32_t *p = x.data;
        for (int64_t i = 1; i < (x.rows - 1) * x.ld + x.cols; i++)
            if (p[i] != p[0]) {
                int32_t was = p[0];
                p[0] = p[i], p[i] = was;
                return;
            }
        return;
    }
    if (x.dtype == DT_BF16) {
        *(uint16_t *)x.data ^= 1;
        return;
    }
    float *at = x.data;
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t c = 0; c < x.cols; c++) {
            float *p = (float *)x.data + r * x.ld + c;
            if (isfinite(*p) && (!isfinite(*at) || fabsf(*p) > fabsf(*at))) at = p;
        }
    *at = *at != 0 ? *at * 1.001f : 1;
}
/* One entry is wrong by one unit in the last place, as another order of summation would leave it. */
static inline void spoil_ulp(Tensor x) {
    if (x.dtype != DT_F32) spoil_largest(x);
    else *(float *)x.data = nextafterf(*(float *)x.data, INFINITY);
}
/* All of it is a tenth too large. */
static inline void spoil_scale(Tensor x) {
    for (int64_t r = 0; x.dtype == DT_F32 && r < x.rows; r++)
        for (int64_t c = 0; c < x.cols; c++) ((float *)x.data)[r * x.ld + c] *= 1.1f;
}

/* fault, operation, its parameters, the call, what is spoiled */
/* clang-format off */
#define PLANTED_FAULTS(F)                                                                                                             \
    F(copy,              copy,        (Dev *d, Tensor y, Tensor x), (d, y, x), y)                                                     \
    F(zero,              zero,        (Dev *d, Tensor x), (d, x), x)                                                                  \
    F(linear,            linear,      (Dev *d, Tensor y, Tensor x, Tensor w, Tensor b, Leaves s), (d, y, x, w, b, s), y)              \
    F(linear_dx,         linear_dx,   (Dev *d, Tensor dx, Tensor dy, Tensor w, Leaves s), (d, dx, dy, w, s), dx)                      \
    F(linear_dw_dw,      linear_dw,   (Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x), (d, dw, db, dy, x), dw)                    \
    F(linear_dw_db,      linear_dw,   (Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x), (d, dw, db, dy, x), db)                    \
    F(grouped,           grouped,     (Dev *d, Tensor y, Tensor x, Tensor w, Seqs e, Leaves s), (d, y, x, w, e, s), y)                \
    F(grouped_dx,        grouped_dx,  (Dev *d, Tensor dx, Tensor dy, Tensor w, Seqs e, Leaves s), (d, dx, dy, w, e, s), dx)           \
    F(grouped_dw,        grouped_dw,  (Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs e), (d, dw, dy, x, e), dw)                        \
    F(headwise,          headwise,    (Dev *d, Tensor y, Tensor x, Tensor w, HeadMap m), (d, y, x, w, m), tensor_cols(y, m.y_from, m.out)) \
    F(headwise_dw,       headwise_dw, (Dev *d, Tensor dw, Tensor dy, Tensor x, HeadMap m), (d, dw, dy, x, m), dw)                     \
    F(copy_heads,        copy_heads,  (Dev *d, Tensor y, Tensor x, HeadMap m), (d, y, x, m), tensor_cols(y, m.y_from, m.out))         \
    F(tree_add,          tree_add,    (Dev *d, Tensor y, const Tensor *part, int n), (d, y, part, n), y)                              \
    F(embed,             embed,       (Dev *d, Tensor y, Tensor ids, Tensor w), (d, y, ids, w), y)                                    \
    F(embed_bwd,         embed_bwd,   (Dev *d, Tensor dw, Tensor dy, Tensor ids), (d, dw, dy, ids), dw)                               \
    F(rmsnorm,           rmsnorm,     (Dev *d, Tensor y, Tensor r, Tensor x, Tensor g, float e), (d, y, r, x, g, e), y)               \
    F(rmsnorm_rstd,      rmsnorm,     (Dev *d, Tensor y, Tensor r, Tensor x, Tensor g, float e), (d, y, r, x, g, e), r)               \
    F(rmsnorm_bwd_dx,    rmsnorm_bwd, (Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor r, Tensor g), (d, dx, dg, dy, x, r, g), dx) \
    F(rmsnorm_bwd_dg,    rmsnorm_bwd, (Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor r, Tensor g), (d, dx, dg, dy, x, r, g), dg) \
    F(swiglu,            swiglu,      (Dev *d, Tensor y, Tensor g, Tensor u), (d, y, g, u), y)                                        \
    F(swiglu_bwd_dgate,  swiglu_bwd,  (Dev *d, Tensor dg, Tensor du, Tensor dy, Tensor g, Tensor u), (d, dg, du, dy, g, u), dg)       \
    F(swiglu_bwd_dup,    swiglu_bwd,  (Dev *d, Tensor dg, Tensor du, Tensor dy, Tensor g, Tensor u), (d, dg, du, dy, g, u), du)       \
    F(add,               add,         (Dev *d, Tensor y, Tensor a, Tensor b), (d, y, a, b), y)                                        \
    F(rope_table,        rope_table,  (Dev *d, Tensor cs, Tensor pos, Tensor f, float amp), (d, cs, pos, f, amp), cs)                 \
    F(rope,              rope,        (Dev *d, Tensor x, Tensor cs, RopeShape s, int turn), (d, x, cs, s, turn),                      \
                                      tensor_cols(x, s.from, s.dim))                                                                  \
    F(attend,            attend,      (Dev *d, const Attn *a), (d, a), a->o)                                                          \
    F(attend_lse,        attend,      (Dev *d, const Attn *a), (d, a), a->lse)                                                        \
    F(attend_bwd_dq,     attend_bwd,  (Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a), (d, dq, dk, dv, dO, a), dq) \
    F(attend_bwd_dk,     attend_bwd,  (Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a), (d, dq, dk, dv, dO, a), dk) \
    F(attend_bwd_dv,     attend_bwd,  (Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a), (d, dq, dk, dv, dO, a), dv) \
    F(attend_kv,         attend_kv,   (Dev *d, Tensor o, Tensor q, Kv kv, Paged r, int h, float s), (d, o, q, kv, r, h, s), o)        \
    F(route_pick,        route,       (Dev *d, const Route *r), (d, r), r->pick)                                                      \
    F(route_weight,      route,       (Dev *d, const Route *r), (d, r), r->weight)                                                    \
    F(route_bwd,         route_bwd,   (Dev *d, Tensor dl, Tensor dw, const Route *r), (d, dl, dw, r), dl)                             \
    F(moe_sort_from,     moe_sort,    (Dev *d, Tensor at, Tensor f, Tensor slot, Tensor pick, int e), (d, at, f, slot, pick, e), f)   \
    F(moe_sort_slot,     moe_sort,    (Dev *d, Tensor at, Tensor f, Tensor slot, Tensor pick, int e), (d, at, f, slot, pick, e), slot) \
    F(permute,           permute,     (Dev *d, Tensor y, Tensor x, Tensor from), (d, y, x, from), y)                                  \
    F(permute_bwd,       permute_bwd, (Dev *d, Tensor dx, Tensor dy, Tensor slot), (d, dx, dy, slot), dx)                             \
    F(combine,           combine,     (Dev *d, Tensor y, Tensor rows, Tensor slot, Tensor w), (d, y, rows, slot, w), y)               \
    F(combine_bwd_drows, combine_bwd, (Dev *d, Tensor dr, Tensor dw, Tensor dy, Tensor r, Tensor s, Tensor w), (d, dr, dw, dy, r, s, w), dr) \
    F(combine_bwd_dw,    combine_bwd, (Dev *d, Tensor dr, Tensor dw, Tensor dy, Tensor r, Tensor s, Tensor w), (d, dr, dw, dy, r, s, w), dw) \
    F(scatter_rows,      scatter_rows, (Dev *d, Tensor x, Tensor y, Tensor from), (d, x, y, from), x)                                 \
    F(logprob,           logprob,     (Dev *d, const Head *h), (d, h), h->lp)                                                         \
    F(logprob_ent,       logprob,     (Dev *d, const Head *h), (d, h), h->ent)                                                        \
    F(logprob_bwd_dh,    logprob_bwd, (Dev *d, Tensor dh, Tensor dw, Tensor dl, Tensor de, const Head *h), (d, dh, dw, dl, de, h), dh) \
    F(logprob_bwd_dw,    logprob_bwd, (Dev *d, Tensor dh, Tensor dw, Tensor dl, Tensor de, const Head *h), (d, dh, dw, dl, de, h), dw) \
    F(sample_id,         sample,      (Dev *d, const Sample *s), (d, s), s->id)                                                       \
    F(sample_lp,         sample,      (Dev *d, const Sample *s), (d, s), s->lp)                                                       \
    F(sample_ent,        sample,      (Dev *d, const Sample *s), (d, s), s->ent)                                                      \
    F(sample_kept,       sample,      (Dev *d, const Sample *s), (d, s), s->kept)                                                     \
    F(adamw_w,           adamw,       (Dev *d, Tensor w, Tensor m, Tensor v, Tensor g, Adam a), (d, w, m, v, g, a), w)                \
    F(adamw_m,           adamw,       (Dev *d, Tensor w, Tensor m, Tensor v, Tensor g, Adam a), (d, w, m, v, g, a), m)                \
    F(adamw_v,           adamw,       (Dev *d, Tensor w, Tensor m, Tensor v, Tensor g, Adam a), (d, w, m, v, g, a), v)

#define PLANTED_BODY(id, op, params, call, out) static void planted_##id params { ops_cpu.op call; spoil(out); }
PLANTED_FAULTS(PLANTED_BODY)
static void planted_kv_put(Dev *d, Kv kv, Tensor k, Tensor v, Paged r) { /* decode rows are not written: the page is stale */
    if (r.rows.longest > 1) ops_cpu.kv_put(d, kv, k, v, r);
}
static void planted_kv_copy(Dev *d, Kv kv, int to, int from) { (void)d, (void)kv, (void)to, (void)from; } /* forgotten */
static double planted_sumsq(Dev *d, Tensor x) { return ops_cpu.sumsq(d, x) * 1.001; }

typedef struct { const char *name; size_t at; void (*op)(void); } Planted;
#define PLANTED_ROW(id, op, params, call, out) { #id, offsetof(Ops, op), (void (*)(void))planted_##id },
static const Planted planted_list[] = {
    PLANTED_FAULTS(PLANTED_ROW)
    { "kv_put", offsetof(Ops, kv_put), (void (*)(void))planted_kv_put },
    { "kv_copy", offsetof(Ops, kv_copy), (void (*)(void))planted_kv_copy },
    { "sumsq", offsetof(Ops, sumsq), (void (*)(void))planted_sumsq },
};
/* clang-format on */

static inline const Planted *planted_find(const char *fault) {
    for (size_t i = 0; i < COUNT(planted_list); i++)
        if (!strcmp(planted_list[i].name, fault)) return &planted_list[i];
    CHECK(false, "no fault is called %s", fault);
    return NULL;
}
/* The CPU's table with that fault. */
static inline Ops planted_ops(const char *fault, Spoil *how) {
    Ops ops = ops_cpu;
    const Planted *p = planted_find(fault);
    planted_spoil = how;
    memcpy((char *)&ops + p->at, &p->op, sizeof p->op);
    return ops;
}

#endif
