/* test_reduce.c - gradients over ranks: the sum of whoever holds an element, beside the same in double;
 * every copy of it has the same bits; the norm and the spans count each element of the model once; scratch
 * is what was planned.  Starts itself under mpirun. */
#include "train/ranks_fixture.h"
#include "train/reduce.h"

#include <math.h>

/* What a rank brings for an element of the whole row. */
static float brings(int rank, const Param *p, int64_t e) {
    uint64_t x = rng_u64(5, RNG_PLAN, (uint32_t)p->desc->id, (uint32_t)p->layer, (uint32_t)rank, (uint32_t)e);
    return (float)(int64_t)(x >> 40) / 16777216.0f - 0.5f;
}

static bool holds(const Ranks *r, const Param *p, int rank, int64_t e) {
    Slice s = param_slice(&r->desc, p->desc, p->layer, &r->shard.g, grid_at(&r->shard.g, rank));
    int64_t rows = dim_at(&r->desc.d, p->desc->rows), cols = dim_at(&r->desc.d, p->desc->cols);
    int64_t expert = e / (rows * cols), row = e / cols % rows, col = e % cols;
    return s.here && expert >= s.e0 && expert < s.e0 + s.experts && row >= s.r0 && row < s.r0 + s.rows && col >= s.c0
           && col < s.c0 + s.cols;
}

typedef struct {
    Ranks r;
    Dev d;
    Params g, whole;
    float *flat;
} Rig;

static void put_own(Rig *x) {
    memset(x->flat, 0, (size_t)x->g.flat.cols * 4);
    for (int i = 0; i < x->g.n; i++) {
        const Param *p = &x->g.at[i];
        for (int64_t e = 0; e < p->t.rows * p->t.cols; e++)
            x->flat[params_from(&x->g, i) + e] = brings(x->r.w.all.rank, p, element_of(&x->r.desc, p, e));
    }
    op_put(&x->d, x->g.flat, x->flat);
}

/* x's values laid into the whole model; what this rank does not have stays 'none'. */
static void lay_out(const Rig *x, float *to, float none) {
    for (int64_t i = 0; i < x->whole.flat.cols; i++) to[i] = none;
    for (int i = 0; i < x->g.n; i++) {
        const Param *p = &x->g.at[i];
        int64_t at = params_from(&x->whole, x->whole.index[p->layer][p->desc->id]);
        for (int64_t e = 0; e < p->t.rows * p->t.cols; e++)
            to[at + element_of(&x->r.desc, p, e)] = x->flat[params_from(&x->g, i) + e];
    }
}

static void mark(void *user, Span s) {
    Rig *x = user;
    for (int64_t i = s.from; i < s.to; i++) x->flat[i] += 1;
}

static void sums(Rig *x, const char *what) {
    const World *w = &x->r.w;
    int64_t n = x->whole.flat.cols, own = 0, bad = 0, apart = 0, off = 0;
    float *mine = MEM_ARRAY(&x->r.mem, float, (size_t)n), *all = MEM_ARRAY(&x->r.mem, float, (size_t)(n * w->all.size));
    put_own(x);
    reduce_grads(&x->g, &x->r.par, &x->d);
    size_t plan = reduce_tmp(&x->r.desc, &x->r.shard, dev_kind_cpu());
    EXPECT(x->d.tmp.peak == plan && !x->d.tmp.used, "%s: scratch of %zu bytes, planned %zu", what, x->d.tmp.peak, plan);
    double norm = reduce_norm(&x->g, &x->r.par, &x->d), want = 0;
    for (Region k = 0; k < REGIONS; k++) own += reduce_own(&x->g, k).to - reduce_own(&x->g, k).from;
    EXPECT(own == reduce_own_count(&x->r.desc, &x->r.shard), "%s: %lld elements are this rank's", what, (long long)own);
    reduce_gather(&x->g, &x->g, &x->r.par, &x->d);
    op_get(&x->d, x->flat, x->g.flat);
    lay_out(x, mine, NAN);
    comm_gather_host(&w->all, all, mine, (size_t)n * 4);
    for (int i = 0; i < x->whole.n; i++) {
        const Param *p = &x->whole.at[i];
        int64_t at = params_from(&x->whole, i);
        for (int64_t e = 0; e < p->t.rows * p->t.cols; e++) {
            double sum = 0;
            float one = NAN;
            for (int r = 0; r < w->all.size; r++) {
                bool here = holds(&x->r, p, r, e);
                float got = all[r * n + at + e];
                off += here == (bool)isnan(got);
                if (!here) continue;
                sum += (double)brings(r, p, e);
                if (isnan(one)) one = got;
                apart += memcmp(&one, &got, 4) != 0;
            }
            bad += !(fabs((double)one - sum)
                     <= 3e-7 * w->all.size); /* values below 0.5: each sum of two is off by 2^-24 of it */
            want += sum * sum;
        }
    }
    EXPECT(!bad && !apart && !off, "%s: %lld sums are wrong, %lld copies differ, %lld are missing", what,
           (long long)bad, (long long)apart, (long long)off);
    EXPECT(fabs(norm / sqrt(want) - 1) < 1e-6, "%s: the norm is %.9g, not %.9g", what, norm, sqrt(want));
    EXPECT(comm_max(&w->all, norm) == norm && -comm_max(&w->all, -norm) == norm, "%s: ranks have other norms", what);
}

static void counted(Rig *x, const char *what) {
    const World *w = &x->r.w;
    int64_t n = x->whole.flat.cols, bad = 0;
    float *mine = MEM_ARRAY(&x->r.mem, float, (size_t)n), *all = MEM_ARRAY(&x->r.mem, float, (size_t)(n * w->all.size));
    memset(x->flat, 0, (size_t)x->g.flat.cols * 4);
    reduce_each_counted(&x->g, mark, x);
    lay_out(x, mine, 0);
    comm_gather_host(&w->all, all, mine, (size_t)n * 4);
    for (int i = 0; i < x->whole.n; i++)
        for (int64_t e = 0; e < x->whole.at[i].t.rows * x->whole.at[i].t.cols; e++) {
            float sum = 0;
            for (int r = 0; r < w->all.size; r++) sum += all[r * n + params_from(&x->whole, i) + e];
            bad += sum != 1;
        }
    EXPECT(!bad, "%s: %lld elements are not counted once", what, (long long)bad);
}

/* Weights have rows that gradients have not: what is handed round is each rank's own piece of
 * them, and nothing beside it. */
static void weights(Rig *x, const char *what) {
    Params w;
    params_open(&w, &x->r.desc, &x->r.shard, &x->d, DT_F32, false, "weights", &x->r.mem);
    float *flat = MEM_ARRAY(&x->r.mem, float, (size_t)w.flat.cols);
    for (int i = 0; i < w.n; i++) {
        const Param *p = &w.at[i];
        int g = x->g.index[p->layer][p->desc->id];
        Span own = g < 0 ? (Span){ 0, 0 } : reduce_own(&x->g, param_region(p->desc, &x->r.shard.g));
        for (int64_t e = 0; e < p->t.rows * p->t.cols; e++) {
            int64_t at = g < 0 ? 0 : params_from(&x->g, g) + e;
            bool ours = g < 0 || (at >= own.from && at < own.to);
            flat[params_from(&w, i) + e] = ours ? brings(99, p, element_of(&x->r.desc, p, e)) : 7;
        }
    }
    op_put(&x->d, w.flat, flat);
    reduce_gather(&w, &x->g, &x->r.par, &x->d);
    op_get(&x->d, flat, w.flat);
    int64_t bad = 0;
    for (int i = 0; i < w.n; i++)
        for (int64_t e = 0; e < w.at[i].t.rows * w.at[i].t.cols; e++)
            bad += flat[params_from(&w, i) + e] != brings(99, &w.at[i], element_of(&x->r.desc, &w.at[i], e));
    EXPECT(!bad, "%s: %lld weights are not their owner's", what, (long long)bad);
    params_close(&w, &x->d);
}

static void try_grid(const World *w, const char *grid) {
    for (size_t i = 0; i < COUNT(rank_models); i++) {
        Rig x = { 0 };
        char what[256];
        snprintf(what, sizeof what, "%s on %s", rank_models[i].name, grid);
        if (ranks_open(&x.r, w, (int)i, grid)) {
            dev_open(&x.d, (DevOpts){ .threads = 1, .guard = true });
            x.d.tmp = dev_arena(&x.d, "tmp", reduce_tmp(&x.r.desc, &x.r.shard, dev_kind_cpu()));
            params_open(&x.g, &x.r.desc, &x.r.shard, &x.d, DT_F32, true, "gradients", &x.r.mem);
            params_open(&x.whole, &x.r.desc, NULL, &x.d, DT_F32, true, "names", &x.r.mem);
            x.flat = MEM_ARRAY(&x.r.mem, float, (size_t)x.g.flat.cols);
            sums(&x, what);
            counted(&x, what);
            weights(&x, what);
            dev_close(&x.d);
        }
        mem_free(&x.r.mem);
    }
}

static int ranks_main(const char *grid) {
    World w;
    Err err;
    CHECK(world_open(&w, 60, &err), "%s", err.msg);
    try_grid(&w, grid);
    return ranks_end(&w);
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--ranks")) return ranks_main(argv[2]);
    World alone = { .all = comm_self(), .local_size = 1 };
    try_grid(&alone, "tp=1"); /* nothing is moved */
    if (!ranks_possible()) {
        SKIP("there is no mpirun: gradients over several ranks were not tried");
        return test_end();
    }
    static const struct {
        int n;
        const char *grid;
    } grids[] = {
        { 2, "dp=2" },          { 2, "tp=2" },      { 3, "dp=3" },      { 4, "tp=2,dp=2" }, { 4, "pp=2,cp=2" },
        { 8, "tp=8" },          { 8, "tp=4,dp=2" }, { 6, "tp=2,dp=3" }, { 8, "tp=2,ep=4" }, { 8, "ep=2,etp=2,dp=8" },
        { 8, "tp=2,pp=2,dp=2" }
    };
    for (size_t i = 0; i < COUNT(grids); i++) expect_ranks(argv[0], grids[i].n, grids[i].grid);
    return test_end();
}
