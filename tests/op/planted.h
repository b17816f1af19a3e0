/* planted.h - the CPU's operations with one of them wrong.  A fault is one output of one operation: when the operation
 * is done, spoil() changes what it wrote there, as little as the test that must notice it says.
 *   op tests:  build/tests/op/test_rows --plant rmsnorm_bwd.dx    must fail (tests/all/planted.sh runs them all)
 *   engine and model tests plant in process. */
#ifndef TESTS_OP_PLANTED_H
#define TESTS_OP_PLANTED_H

#include "op/op.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
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
    if (x.dtype == DT_BF16 || x.dtype == DT_I16) {
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

/* Every op of the list, followed by the fault: output planted_which of what it writes. */
static int planted_which;
#define PLANTED_OUTS(...) __VA_ARGS__
#define OP(how, name, params, args, outs)                              \
    static void planted_##name params {                                \
        ops_cpu.name args;                                             \
        const Tensor out[] = { PLANTED_OUTS outs };                    \
        if (planted_which < (int)COUNT(out)) spoil(out[planted_which]); \
    }
#include "op/op_list.h"
#undef OP
/* clang-format off */
static void planted_stale_put(Dev *d, Kv kv, Tensor k, Tensor v, Paged r) { /* decode rows are not written: the page is
                                                                             * stale */
    if (r.rows.longest > 1) ops_cpu.kv_put(d, kv, k, v, r);
}
/* forgotten */
static void planted_no_copy(Dev *d, Kv kv, int to, int from) { (void)d, (void)kv, (void)to, (void)from; }
static double planted_sumsq(Dev *d, Tensor x) { return ops_cpu.sumsq(d, x) * 1.001; }

typedef struct { const char *name; size_t at; void (*op)(void); const char *outs; } Planted;
static const Planted planted_list[] = {
    { "kv_put", offsetof(Ops, kv_put), (void (*)(void))planted_stale_put, "" },
    { "kv_copy", offsetof(Ops, kv_copy), (void (*)(void))planted_no_copy, "" },
    { "sumsq", offsetof(Ops, sumsq), (void (*)(void))planted_sumsq, "" },
#define OP(how, name, params, args, outs) { #name, offsetof(Ops, name), (void (*)(void))planted_##name, #outs },
#include "op/op_list.h"
#undef OP
};
/* clang-format on */

/* "linear_dw.db": which of "(dw, db)"; without a dot the first. */
static inline int planted_out(const char *outs, const char *want, size_t n) {
    int k = 0;
    for (const char *p = outs; (p = strpbrk(p, ",)")); p++, k++)
        if ((size_t)(p - outs) > n && !strncmp(p - n, want, n) && strchr(" (>", p[-(ptrdiff_t)n - 1])) return k;
    return -1;
}
/* Every fault there is, one a line: OP, or OP.OUTPUT where it writes several. */
static inline void planted_print(void) {
    for (size_t i = 0; i < COUNT(planted_list); i++) {
        const Planted *p = &planted_list[i];
        bool again = false, several = strchr(p->outs, ',') && !strstr(p->outs, "tensor_cols");
        for (size_t j = 0; j < i; j++) again |= planted_list[j].at == p->at;
        if (again || !strcmp(p->name, "put") || !strcmp(p->name, "get")) continue;
        if (!several) printf("%s\n", p->name);
        for (const char *o = p->outs; several && (o = strpbrk(o, ",)")); o++) {
            const char *from = o;
            while (!strchr(" (>", from[-1])) from--;
            printf("%s.%.*s\n", p->name, (int)(o - from), from);
        }
    }
}
static inline const Planted *planted_find(const char *fault) {
    size_t n = strcspn(fault, ".");
    for (size_t i = 0; i < COUNT(planted_list); i++)
        if (strlen(planted_list[i].name) == n && !strncmp(planted_list[i].name, fault, n)) return &planted_list[i];
    CHECK(false, "no fault is called %s", fault);
    return NULL;
}
/* The CPU's table with that fault: OP or OP.OUTPUT as op_list.h names them. */
static inline Ops planted_ops(const char *fault, Spoil *how) {
    Ops ops = ops_cpu;
    const Planted *p = planted_find(fault);
    const char *dot = strchr(fault, '.');
    planted_which = dot ? planted_out(p->outs, dot + 1, strlen(dot + 1)) : 0;
    CHECK(planted_which >= 0, "no fault is called %s: %s writes %s", fault, p->name, p->outs);
    planted_spoil = how;
    memcpy((char *)&ops + p->at, &p->op, sizeof p->op);
    return ops;
}

#endif
