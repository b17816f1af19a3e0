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
    Params *p;             /* NULL: only counted */
    const Shard *borrowed; /* a row of the same slice there is not placed, but */
    const Params *lender;  /* taken from here */
} Placing;

static bool is_borrowed(const Placing *x, const ParamDesc *desc, int layer, const Slice *s) {
    if (!x->borrowed) return false;
    Slice l = param_slice(x->m, desc, layer, &x->borrowed->g, x->borrowed->at);
    return l.here && l.e0 == s->e0 && l.experts == s->experts && l.r0 == s->r0 && l.rows == s->rows && l.c0 == s->c0
           && l.cols == s->cols;
}

static void place(void *user, const ParamDesc *desc, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)experts, (void)rows, (void)cols; /* the slice knows */
    Placing *x = user;
    if (param_region(desc, &x->shard->g) != x->region) return;
    Slice s = param_slice(x->m, desc, layer, &x->shard->g, x->shard->at);
    if (!s.here || (x->trainable_only && arch_frozen(x->m, desc))) return;
    DType t = dtype_of(desc, x->dtype);
    bool borrowed = is_borrowed(x, desc, layer, &s);
    if (!borrowed) x->bytes += arena_round(tensor_bytes(t, s.experts * s.rows, s.cols));
    x->n++;
    Params *p = x->p;
    if (!p) return;
    p->index[layer][desc->id] = p->n;
    Tensor w = borrowed ? param(x->lender, desc->id, layer) : tensor_push(&p->arena, t, s.experts * s.rows, s.cols);
    p->at[p->n++] = (Param){ desc, layer, w, s };
}

static void place_all(Placing *x) {
    for (x->region = 0; x->region < REGIONS; x->region++) {
        if (x->p) x->p->first[x->region] = x->n;
        arch_each_row(x->m, place, x);
    }
    if (x->p) x->p->first[REGIONS] = x->n;
}

static Placing sizes_of(const ModelDesc *m, const Shard *shard, DType t, bool trainable_only, const Shard *borrowed) {
    Placing s = { .m = m, .shard = shard, .dtype = t, .trainable_only = trainable_only, .borrowed = borrowed };
    place_all(&s);
    return s;
}

size_t params_bytes(const ModelDesc *m, const Shard *shard, DType t, bool trainable_only) {
    Shard whole = shard_whole(m);
    return sizes_of(m, shard ? shard : &whole, t, trainable_only, NULL).bytes;
}

size_t params_bytes_beside(const ModelDesc *m, const Shard *shard, const Shard *lender, DType t) {
    return sizes_of(m, shard, t, false, lender).bytes;
}

size_t params_region_bytes(const ModelDesc *m, const Shard *shard, Region k, DType t, bool trainable_only) {
    Placing s = { .m = m, .shard = shard, .dtype = t, .trainable_only = trainable_only, .region = k };
    arch_each_row(m, place, &s);
    return s.bytes;
}

/* In the arena p->arena, which has room. */
static void open_rows(Params *p, const ModelDesc *m, const Shard *shard, DType t, bool trainable_only,
                      const Params *lender, Mem *mem) {
    CHECK(t == DT_F32 || t == DT_BF16, "parameters in %s", dtype_name(t));
    const Shard *borrowed = lender ? &lender->shard : NULL;
    Placing s = sizes_of(m, shard, t, trainable_only, borrowed);
    CHECK(s.bytes <= p->arena.size, "%s: %zu bytes in %zu", p->arena.name, s.bytes, p->arena.size);
    p->model = m, p->shard = *shard, p->at = MEM_ARRAY(mem, Param, (size_t)s.n);
    int64_t layers = m->d.layers > m->d.vis.layers ? m->d.layers : m->d.vis.layers;
    p->index = mem_array(mem, (size_t)layers + 1, sizeof *p->index);
    memset(p->index, 0xFF, ((size_t)layers + 1) * sizeof *p->index);
    Placing x = { .m = m,
                  .shard = shard,
                  .dtype = t,
                  .trainable_only = trainable_only,
                  .p = p,
                  .borrowed = borrowed,
                  .lender = lender };
    place_all(&x);
    if (t == DT_F32 && !lender) p->flat = tensor_over(p->arena.base, t, 1, (int64_t)(s.bytes / dtype_size(t)));
}

void params_open(Params *p, const ModelDesc *m, const Shard *shard, Dev *d, DType t, bool trainable_only,
                 const char *arena_name, Mem *mem) {
    Shard all = shard ? *shard : shard_whole(m);
    *p = (Params){ .arena = dev_arena(d, arena_name, params_bytes(m, &all, t, trainable_only)) };
    open_rows(p, m, &all, t, trainable_only, NULL, mem);
}

void params_open_in(Params *p, const ModelDesc *m, const Shard *shard, Arena in, DType t, bool trainable_only,
                    Mem *mem) {
    Shard all = shard ? *shard : shard_whole(m);
    *p = (Params){ .arena = arena_over(in.name, in.base, params_bytes(m, &all, t, trainable_only)), .borrowed = true };
    CHECK(p->arena.size <= in.size, "%s: %zu bytes in %zu", in.name, p->arena.size, in.size);
    open_rows(p, m, &all, t, trainable_only, NULL, mem);
}

void params_open_beside(Params *p, const Params *lender, const Shard *shard, Dev *d, DType t, const char *arena_name,
                        Mem *mem) {
    size_t bytes = params_bytes_beside(lender->model, shard, &lender->shard, t);
    *p = (Params){ .borrowed = !bytes };
    if (bytes) p->arena = dev_arena(d, arena_name, bytes);
    open_rows(p, lender->model, shard, t, false, lender, mem);
}

void params_open_beside_in(Params *p, const Params *lender, const Shard *shard, Arena in, DType t, Mem *mem) {
    size_t bytes = params_bytes_beside(lender->model, shard, &lender->shard, t);
    CHECK(bytes <= in.size, "%s: %zu bytes in %zu", in.name, bytes, in.size);
    *p = (Params){ .borrowed = true, .arena = arena_over("rollout weights", in.base, bytes) };
    open_rows(p, lender->model, shard, t, false, lender, mem);
}

void params_close(Params *p, Dev *d) {
    if (!p->borrowed) dev_free(d, p->arena.base);
    *p = (Params){ 0 };
}

static Tensor bytes_of(const Params *p) { return tensor_over(p->arena.base, DT_U8, 1, (int64_t)p->arena.size); }
void params_offload(Params *p, Dev *d) {
    if (!p->offloaded || p->is_offloaded) return;
    op_get(d, p->offloaded, bytes_of(p));
    p->is_offloaded = true;
}
void params_reload(Params *p, Dev *d) {
    if (!p->is_offloaded) return;
    op_put(d, bytes_of(p), p->offloaded);
    p->is_offloaded = false;
}
const char *params_offloaded_at(const Params *p, Tensor x) {
    const char *at = x.data;
    bool here = p && p->is_offloaded && at >= p->arena.base && at < p->arena.base + p->arena.size;
    return here ? p->offloaded + (at - p->arena.base) : NULL;
}

ParamPlace param_place(const ModelDesc *m, const Param *p, int64_t e) {
    const Slice *s = &p->slice;
    int64_t cols = param_cols(&m->d, p->desc, p->layer), each = s->rows * s->cols, in = e % each;
    return (ParamPlace){ .expert = s->e0 + e / each,
                         .at = (s->r0 + in / s->cols) * cols + s->c0 + in % s->cols,
                         .n = s->cols == cols ? each - in : s->cols - in % s->cols };
}
