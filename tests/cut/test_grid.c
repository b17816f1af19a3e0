/* test_grid.c - every weight is held exactly as often as the grid says, on every grid; a
 * rank's sizes are those of its slices. */
#include "cut/grid.h"
#include "test.h"

#include <string.h>

static const char *const configs[] = { "DeepSeek-V3",  "Qwen3-30B-A3B", "Qwen3-235B-A22B", "Moonlight-16B-A3B",
                                       "Qwen2.5-0.5B", "Qwen2.5-7B",    "Qwen2.5-VL-3B",   "Mixtral-8x7B" };

typedef struct {
    const ModelDesc *m;
    const GridShape *g;
    int64_t held, bad, rows, most;
} Count;

/* How many ranks of the whole grid hold element (expert, position along the cut) of a row: dense rows once per dp x cp,
 * and per tp when they are not cut; kv heads more often where several ranks' query heads read one. */
static void one_row(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    Count *c = user;
    const GridShape *g = c->g;
    if (p->where == IN_VIS || p->where == IN_VIS_LAYER) return; /* whole on the first stage */
    if (layer > 4 && layer + 4 < c->m->d.layers) return;        /* as their neighbours */
    bool by_cols = p->cut == BY_COLS, expert = p->where == IN_EXPERT,
         kv = p->id == P_K || p->id == P_V || p->id == P_KB || p->id == P_VB;
    int64_t axis = p->cut == WHOLE ? 1 : by_cols ? cols : rows, n = experts * axis;
    static uint16_t times[1 << 20];
    if (n > (int64_t)COUNT(times)) return;
    memset(times, 0, (size_t)n * sizeof *times);
    for (int r = 0; r < grid_ranks(g); r++) {
        Slice s = param_slice(c->m, p, layer, g, grid_at(g, r));
        if (!s.here) continue;
        int64_t from = p->cut == WHOLE ? 0
                       : by_cols       ? s.c0
                                       : s.r0,
                len = p->cut == WHOLE ? 1
                      : by_cols       ? s.cols
                                      : s.rows;
        c->bad += p->cut == WHOLE ? s.rows != rows || s.cols != cols : by_cols ? s.rows != rows : s.cols != cols;
        c->held += slice_count(&s);
        for (int64_t e = s.e0; e < s.e0 + s.experts; e++)
            for (int64_t i = from; i < from + len; i++) times[e * axis + i]++;
    }
    int ends = p->id == P_EMBED && c->m->d.tied && g->pp > 1 ? 2 : 1;
    int want = ends * (expert ? grid_stage_ranks(g) / (g->ep * g->etp) : g->dp * g->cp * (p->cut == WHOLE ? g->tp : 1));
    if (expert && p->cut == WHOLE) want *= g->etp;
    for (int64_t i = 0; i < n; i++) c->bad += kv ? times[i] < want || times[i] % (g->dp * g->cp) : times[i] != want;
    c->rows++;
}

static void covers(const ModelDesc *m, const char *name, const char *text, int ranks, const char *split) {
    GridShape g;
    Err err;
    bool ok = grid_parse(&g, text, &err) && grid_fill(&g, m, ranks, split, 32, &err);
    EXPECT(ok, "%s on %s, %d ranks: %s", name, text, ranks, ok ? "" : err.msg);
    if (!ok) return;
    int sum = 0, from, last = 0;
    for (int c = 0; c < grid_chunks(&g); c++) {
        sum += grid_chunk(&g, c, &from);
        EXPECT(from == last, "chunk %d begins at %d, not %d", c, from, last);
        last = from + g.layers[c];
    }
    EXPECT(sum == m->d.layers, "%s: %d layers", text, sum);
    for (int r = 0; r < ranks; r++) EXPECT(grid_rank(&g, grid_at(&g, r)) == r, "rank %d", r);
    Count c = { .m = m, .g = &g };
    arch_each_row(m, one_row, &c);
    EXPECT(c.bad == 0 && c.rows > 0, "%s on %s: %ld elements are held wrongly", name, text, (long)c.bad);
    for (int r = 0; r < g.tp; r++) { /* local sizes and slices say the same */
        GridAt at = grid_at(&g, r);
        Local l = grid_local(m, &g, at);
        const ParamDesc *p = m->arch->params;
        for (; p->name; p++) {
            Slice s = param_slice(m, p, 0, &g, at);
            if (p->id == P_O)
                EXPECT(s.cols == l.heads * (dims_latent(&m->d) ? m->d.v_dim : m->d.head_dim), "o_proj of rank %d", r);
            if (p->id == P_K)
                EXPECT(s.rows == l.kv_heads * m->d.head_dim && s.r0 == l.kv0 * m->d.head_dim, "k_proj of rank %d", r);
            if (p->id == P_DOWN) EXPECT(s.cols == l.ffn && s.c0 == l.ffn0, "down_proj of rank %d", r);
            if (p->id == P_EMBED) EXPECT(s.rows == l.vocab && s.r0 == l.vocab0, "embedding of rank %d", r);
            if (p->id == P_E_DOWN) EXPECT(s.experts == l.experts && s.cols == l.expert_ffn, "experts of rank %d", r);
        }
    }
}

static const struct {
    const char *text;
    int ranks;
    const char *split;
    bool moe;
} grids[] = {
    { "", 1, NULL, false },
    { "tp2", 2, NULL, false },
    { "tp=8", 8, NULL, false },
    { "tp32", 32, NULL, false },
    { "pp4", 4, NULL, false },
    { "pp2,vpp2", 2, NULL, false },
    { "cp4", 4, NULL, false },
    { "", 8, NULL, false },
    { "tp2,pp2,dp2", 8, NULL, false },
    { "ep8", 8, NULL, true },
    { "ep4,etp2", 8, NULL, true },
    { "tp2,ep4", 8, NULL, true },
    { "tp2 cp2", 8, NULL, false },
    { "ep3", 6, NULL, true },
    { "tp4,pp3,ep4", 12, NULL, true },
    { "tp8,pp12,ep8", 96, NULL, true },
    { "pp2", 2, "first=3", false },
    { "pp3,tp2", 6, "first=3,last=5", false },
};

static const struct {
    const char *text;
    int ranks;
    const char *split, *says;
} impossible[] = {
    { "tp3", 3, NULL, "the nearest is 2" },
    { "tp64", 64, NULL, "32 leaves" },
    { "pp5", 4, NULL, "5 does not divide the 4 ranks" },
    { "pp5", 4, NULL, "nearest is pp4" },
    { "tp2,pp3", 8, NULL, "nearest is tp2,pp2,dp2" },
    { "tp4,cp3", 8, NULL, "nearest is tp4,cp2" },
    { "tp8", 1, NULL,
      "8 does not divide the 1 rank there is; start a multiple of it (mpirun -n 8); nearest is one rank" },
    { "dp3,tp2", 4, NULL, "takes 6 ranks" },
    { "dp3,tp2", 4, NULL, "leave out dp: tp2,dp2" },
    { "ep5", 4, NULL, "ep=4 would" },
    { "vpp2", 2, NULL, "without stages" },
    { "pp900", 900, NULL, "the most" },
    { "pp2", 2, "1,2,3", "holds 6 layers" },
    { "pp2", 2, "a", "not understood" },
    { "pp3", 3, "last=2", "would" },
    { "ep512", 512, NULL, "is the most" },
    { "etp3", 3, NULL, "a power of two" },
};

int main(void) {
    for (size_t i = 0; i < COUNT(configs); i++) {
        Mem mem = { 0 };
        ModelDesc m;
        Err err;
        char path[128];
        snprintf(path, sizeof path, "tests/data/configs/%s.json", configs[i]);
        bool ok = model_desc_load(&m, path, &mem, &err);
        EXPECT(ok, "%s", ok ? "" : err.msg);
        for (size_t k = 0; ok && k < COUNT(grids); k++)
            if (!grids[k].moe || m.d.experts) covers(&m, configs[i], grids[k].text, grids[k].ranks, grids[k].split);
        for (size_t k = 0; ok && i == 0 && k < COUNT(impossible); k++) {
            GridShape g;
            err.msg[0] = 0;
            ok = grid_parse(&g, impossible[k].text, &err)
                 && grid_fill(&g, &m, impossible[k].ranks, impossible[k].split, 32, &err);
            EXPECT(!ok && strstr(err.msg, impossible[k].says), "'%s' on %d ranks: %s", impossible[k].text,
                   impossible[k].ranks, ok ? "accepted" : err.msg);
            ok = true;
        }
        mem_free(&mem);
    }
    GridShape g;
    Err err;
    EXPECT(!grid_parse(&g, "tp2,xy3", &err) && !grid_parse(&g, "tp", &err) && !grid_parse(&g, "tp2,tp2", &err),
           "nonsense is accepted");
    return test_end();
}
