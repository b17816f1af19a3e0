/* test_slices.c - a rank reads its slice and nothing else: for many grids and every family, float8 blocks across a cut
 * too, what a shard loads is the slice of what one rank loads, byte by byte, and the bytes that it read are those of
 * its slices.  Shards of one process: no ranks are started. */
#include "file/safetensors.h"
#include "param/param.h"
#include "test.h"

static const char *const models[] = { "qwen2",     "qwen3", "qwen3_moe",       "mixtral",    "deepseek_v3",
                                      "moonlight", "llama", "deepseek_v3_fp8", "qwen2_long", "qwen3_moe_plain" };
static const struct {
    const char *grid;
    int ranks;
} grids[] = {
    { "tp=2", 2 },       { "tp=4", 4 },           { "tp=8", 8 },           { "pp=2", 2 },       { "dp=3", 3 },
    { "cp=2,tp=2", 4 },  { "tp=2,pp=2,dp=2", 8 }, { "ep=3,dp=3", 3 },      { "ep=2,etp=2", 4 }, { "tp=2,ep=4", 4 },
    { "ep=4,etp=2", 8 }, { "tp=4,etp=4", 4 },     { "pp=2,ep=2,tp=2", 4 },
};

typedef struct {
    Mem mem;
    Dev dev;
    ModelDesc m;
    Params whole;
    const char *dir;
} Model;

static void model_of(Model *x, const char *name, DType t) {
    Err err;
    *x = (Model){ 0 };
    x->dir = mem_printf(&x->mem, FIXTURE("models/%s"), name);
    CHECK(model_desc_load(&x->m, x->dir, &x->mem, &err), "%s", err.msg);
    dev_open(&x->dev, (DevOpts){ .threads = 2, .guard = true });
    params_open(&x->whole, &x->m, NULL, &x->dev, t, false, "weights", &x->mem);
    CHECK(params_load(&x->whole, &x->dev, x->dir, &err), "%s", err.msg);
}
static void model_end(Model *x) {
    params_close(&x->whole, &x->dev);
    dev_close(&x->dev);
    mem_free(&x->mem);
}

static char *host(Model *x, Tensor t, Mem *mem) {
    char *to = mem_push(mem, (size_t)(t.rows * t.cols) * dtype_size(t.dtype) + 1);
    if (t.rows * t.cols > 0) op_get(&x->dev, to, t);
    return to;
}

/* Elements that differ from the slice of the whole weight. */
static int64_t differing(Model *x, const Param *p, Mem *mem) {
    const Slice *s = &p->slice;
    int64_t rows = dim_at(&x->m.d, p->desc->rows), cols = dim_at(&x->m.d, p->desc->cols), bad = 0;
    size_t each = dtype_size(p->t.dtype);
    Tensor all = param(&x->whole, p->desc->id, p->layer);
    const char *got = host(x, p->t, mem), *want = host(x, all, mem);
    CHECK(all.dtype == p->t.dtype && p->t.rows == s->experts * s->rows && p->t.cols == s->cols, "shape of %s",
          p->desc->name);
    for (int64_t e = 0; e < s->experts; e++)
        for (int64_t r = 0; r < s->rows; r++)
            for (int64_t c = 0; c < s->cols; c++) {
                int64_t at = (e * s->rows + r) * s->cols + c, in = ((s->e0 + e) * rows + s->r0 + r) * cols + s->c0 + c;
                bad += memcmp(got + (size_t)at * each, want + (size_t)in * each, each) != 0;
            }
    return bad;
}

/* What the slices take on disk, said again the slow way: each element's bytes, each touched block's scale once. */
static int64_t expected_read(const Params *p, const StFiles *f, Mem *mem) {
    int64_t sum = 0;
    Buf name = { 0 };
    for (int i = 0; i < p->n; i++) {
        const Slice *s = &p->at[i].slice;
        for (int64_t e = 0; e < s->experts; e++) {
            buf_clear(&name);
            arch_param_name(&name, p->at[i].desc, p->at[i].layer, (int)(s->e0 + e));
            const StTensor *t = st_find(f, name.data);
            sum += s->rows * s->cols * (int64_t)dtype_size(t->dtype);
            if (t->dtype != DT_F8E4M3) continue;
            const StTensor *scale = st_find(f, mem_printf(mem, "%s_scale_inv", name.data));
            for (int64_t r = 0; r < scale->shape[0]; r++)
                for (int64_t c = 0; c < scale->shape[1]; c++)
                    if (s->rows && s->cols && r * 128 < s->r0 + s->rows && (r + 1) * 128 > s->r0
                        && c * 128 < s->c0 + s->cols && (c + 1) * 128 > s->c0)
                        sum += (int64_t)dtype_size(scale->dtype);
        }
    }
    buf_free(&name);
    return sum;
}

static int tried;
static void one_grid(Model *x, const char *name, size_t which, DType t) {
    GridShape g;
    Err err;
    Mem mem = { 0 };
    StFiles f;
    CHECK(grid_parse(&g, grids[which].grid, &err), "%s", err.msg);
    if (!grid_fill(&g, &x->m, grids[which].ranks, NULL, 8, &err)) return; /* experts for a model that has none */
    CHECK(st_open(&f, x->dir, &mem, &err), "%s", err.msg);
    tried++;
    for (int r = 0; r < grids[which].ranks; r++) {
        Params part;
        Shard shard = { g, grid_at(&g, r) };
        params_open(&part, &x->m, &shard, &x->dev, t, false, "slice", &mem);
        bool ok = params_load(&part, &x->dev, x->dir, &err);
        EXPECT(ok, "%s on %s, rank %d: %s", name, grids[which].grid, r, err.msg);
        int64_t bad = 0;
        for (int i = 0; ok && i < part.n; i++) bad += differing(x, &part.at[i], &mem);
        EXPECT(!bad, "%s on %s, rank %d: %ld elements are not the slice's", name, grids[which].grid, r, (long)bad);
        int64_t want = expected_read(&part, &f, &mem);
        EXPECT(part.read == want && want <= x->whole.read, "%s on %s, rank %d: %ld bytes read, %ld are its own", name,
               grids[which].grid, r, (long)part.read, (long)want);
        params_close(&part, &x->dev);
    }
    st_close(&f);
    mem_free(&mem);
}

int main(void) {
    for (size_t i = 0; i < COUNT(models); i++)
        for (int half = 0; half < 2; half++) {
            Model x;
            model_of(&x, models[i], half ? DT_BF16 : DT_F32);
            for (size_t k = 0; k < COUNT(grids); k++)
                if (!half || k == 2 || k == 10) one_grid(&x, models[i], k, half ? DT_BF16 : DT_F32);
            model_end(&x);
        }
    EXPECT(tried > 90, "only %d grids were possible", tried);
    return test_end();
}
