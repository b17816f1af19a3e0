/* param.c - lays an arch's table out in an arena: one tensor per row and layer, the experts of a row stacked. */
#include "param/param.h"

#include <string.h>

/* What has one dimension stays F32 beside BF16 matrices: it is small, and norms and biases are added in F32. */
static DType dtype_of(const ParamDesc *p, DType t) { return p->vector ? DT_F32 : t; }

typedef struct {
    DType dtype;
    bool trainable_only;
    size_t bytes;
    int n;
} Sizes;

static void add_size(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)layer;
    Sizes *s = user;
    if (s->trainable_only && p->frozen) return;
    s->bytes += arena_round(tensor_bytes(dtype_of(p, s->dtype), experts * rows, cols));
    s->n++;
}

static Sizes sizes_of(const ModelDesc *m, DType t, bool trainable_only) {
    Sizes s = { t, trainable_only, 0, 0 };
    arch_each_row(m, add_size, &s);
    return s;
}

size_t params_bytes(const ModelDesc *m, DType t, bool trainable_only) { return sizes_of(m, t, trainable_only).bytes; }

typedef struct {
    Params *p;
    DType dtype;
    bool trainable_only;
} Placing;

static void place(void *user, const ParamDesc *desc, int layer, int64_t experts, int64_t rows, int64_t cols) {
    Placing *x = user;
    if (x->trainable_only && desc->frozen) return;
    Params *p = x->p;
    p->index[layer][desc->id] = p->n;
    p->at[p->n++] = (Param){ desc, layer, tensor_push(&p->arena, dtype_of(desc, x->dtype), experts * rows, cols) };
}

void params_open(Params *p, const ModelDesc *m, Dev *d, DType t, bool trainable_only, const char *arena_name,
                 Mem *mem) {
    CHECK(t == DT_F32 || t == DT_BF16, "parameters in %s", dtype_name(t));
    Sizes s = sizes_of(m, t, trainable_only);
    *p = (Params){ .model = m, .arena = dev_arena(d, arena_name, s.bytes), .at = MEM_ARRAY(mem, Param, (size_t)s.n) };
    memset(p->index, 0xFF, sizeof p->index);
    Placing x = { p, t, trainable_only };
    arch_each_row(m, place, &x);
    if (t == DT_F32) p->flat = tensor_over(p->arena.base, t, 1, (int64_t)(s.bytes / dtype_size(t)));
}

void params_close(Params *p, Dev *d) {
    dev_free(d, p->arena.base);
    *p = (Params){ 0 };
}
