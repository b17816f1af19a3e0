/* param.c - lays an arch's table out in an arena: one tensor per row and layer, the experts of a row stacked. */
#include "param/param.h"

#include <string.h>

/* What has one dimension stays F32 beside BF16 matrices: it is small, and norms and biases are added in F32. */
static DType dtype_of(const ParamDesc *p, DType t) { return p->vector ? DT_F32 : t; }

Region param_region(const ParamDesc *p, const GridShape *g) {
    bool vision = p->where == IN_VIS || p->where == IN_VIS_LAYER;
    if (p->where == IN_EXPERT) return g->tp * g->ep * g->etp > 1 ? REGION_EXPERT : REGION_WHOLE;
    return p->cut != WHOLE && !vision && g->tp > 1 ? REGION_CUT : REGION_WHOLE;
}

typedef struct {
    const ModelDesc *m;
    const Shard *shard;
    DType dtype;
    bool trainable_only;
    Region region; /* the rows of this one are placed */
    size_t bytes;
    int n;
    Params *p; /* NULL: only counted */
} Placing;

static void place(void *user, const ParamDesc *desc, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)experts, (void)rows, (void)cols; /* the slice knows */
    Placing *x = user;
    if (param_region(desc, &x->shard->g) != x->region) return;
    Slice s = param_slice(x->m, desc, layer, &x->shard->g, x->shard->at);
    if (!s.here || (x->trainable_only && desc->frozen)) return;
    DType t = dtype_of(desc, x->dtype);
    x->bytes += arena_round(tensor_bytes(t, s.experts * s.rows, s.cols));
    x->n++;
    Params *p = x->p;
    if (!p) return;
    p->index[layer][desc->id] = p->n;
    p->at[p->n++] = (Param){ desc, layer, tensor_push(&p->arena, t, s.experts * s.rows, s.cols), s };
}

static void place_all(Placing *x) {
    for (x->region = 0; x->region < REGIONS; x->region++) {
        if (x->p) x->p->first[x->region] = x->n;
        arch_each_row(x->m, place, x);
    }
    if (x->p) x->p->first[REGIONS] = x->n;
}

static Placing sizes_of(const ModelDesc *m, const Shard *shard, DType t, bool trainable_only) {
    Placing s = { .m = m, .shard = shard, .dtype = t, .trainable_only = trainable_only };
    place_all(&s);
    return s;
}

size_t params_bytes(const ModelDesc *m, const Shard *shard, DType t, bool trainable_only) {
    Shard whole = shard_whole(m);
    return sizes_of(m, shard ? shard : &whole, t, trainable_only).bytes;
}

size_t params_region_bytes(const ModelDesc *m, const Shard *shard, Region k, DType t, bool trainable_only) {
    Placing s = { .m = m, .shard = shard, .dtype = t, .trainable_only = trainable_only, .region = k };
    arch_each_row(m, place, &s);
    return s.bytes;
}

void params_open(Params *p, const ModelDesc *m, const Shard *shard, Dev *d, DType t, bool trainable_only,
                 const char *arena_name, Mem *mem) {
    CHECK(t == DT_F32 || t == DT_BF16, "parameters in %s", dtype_name(t));
    Shard all = shard ? *shard : shard_whole(m);
    Placing s = sizes_of(m, &all, t, trainable_only);
    *p = (Params){
        .model = m, .shard = all, .arena = dev_arena(d, arena_name, s.bytes), .at = MEM_ARRAY(mem, Param, (size_t)s.n)
    };
    memset(p->index, 0xFF, sizeof p->index);
    Placing x = { .m = m, .shard = &all, .dtype = t, .trainable_only = trainable_only, .p = p };
    place_all(&x);
    if (t == DT_F32) p->flat = tensor_over(p->arena.base, t, 1, (int64_t)(s.bytes / dtype_size(t)));
}

void params_close(Params *p, Dev *d) {
    dev_free(d, p->arena.base);
    *p = (Params){ 0 };
}

ParamPlace param_place(const ModelDesc *m, const Param *p, int64_t e) {
    const Slice *s = &p->slice;
    int64_t cols = dim_at(&m->d, p->desc->cols), each = s->rows * s->cols, in = e % each;
    return (ParamPlace){ .expert = s->e0 + e / each,
                         .at = (s->r0 + in / s->cols) * cols + s->c0 + in % s->cols,
                         .n = s->cols == cols ? each - in : s->cols - in % s->cols };
}
