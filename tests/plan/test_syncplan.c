/* test_syncplan.c - bytes to move between two cuts, against counting every row of every tensor on every rank. */
#include "cut/grid.h"
#include "plan/syncplan.h"
#include "test.h"

#include <math.h>

static Mem mem;

static ModelSum *sum_of(const char *path) {
    Err err = { 0 };
    ModelDesc *m = MEM_NEW(&mem, ModelDesc);
    ModelSum *s = MEM_NEW(&mem, ModelSum);
    CHECK(model_desc_load(m, path, &mem, &err), "%s", err.msg);
    model_sum(s, m);
    return s;
}

static SyncPlan plan(const ModelSum *s, const char *from, const char *to, int gpus) {
    Err err = { 0 };
    GridShape a, b;
    SyncPlan p = { 0 };
    Cluster c = { *machine_find("H100"), gpus };
    bool ok =
        syncgrid_parse(&a, from, NULL, gpus, s->model, &err) && syncgrid_parse(&b, to, NULL, gpus, s->model, &err);
    EXPECT(ok, "%s -> %s: %s", from, to, err.msg);
    if (ok) sync_plan(&p, s, &a, &b, &c, 2, SYNC_BUFFER);
    double largest = ok ? sync_largest(&(SyncPair){ s->model, &a, &b, gpus, 8 }, 2) : 0;
    EXPECT(sync_buffer(largest, SYNC_BUFFER) == p.buffer, "%s -> %s: a buffer of %.0f bytes, planned %.0f", from, to,
           sync_buffer(largest, SYNC_BUFFER), p.buffer);
    return p;
}

/* The slow way: does rank r hold unit u of the tensor under grid g? */
typedef struct {
    const GridShape *from, *to;
    int ranks;
    const Dims *d;
    bool tied;
    double moved, kept, most, *got;
} Count;

static bool holds(const GridShape *g, const Count *c, const ParamDesc *p, int layer, int expert, int r, int64_t u,
                  int64_t units) {
    int per = g->tp * g->cp * g->dp, stage = 0, in = r % per, end = g->layers[0], k = in % g->tp;
    if (p->where == IN_LAST) stage = g->pp - 1;
    else if (p->where != IN_FIRST)
        while (layer >= end) end += g->layers[++stage];
    if (p->id == P_EMBED && c->tied && r / per == g->pp - 1) stage = g->pp - 1; /* both ends have it */
    if (r / per != stage) return false;
    if (p->where == IN_EXPERT && g->etp == 1 && in % g->ep != expert / ((int)c->d->experts / g->ep)) return false;
    if (p->where == IN_EXPERT && g->etp == 1) return true;
    if (p->cut == WHOLE) return true;
    if (p->id == P_EMBED || p->id == P_HEAD) u /= VOCAB_UNIT, units = (units + VOCAB_UNIT - 1) / VOCAB_UNIT;
    if (p->id == P_K || p->id == P_V || p->id == P_KB || p->id == P_VB) { /* does a head of ours read it? */
        int64_t heads = c->d->heads, group = heads / c->d->kv_heads;
        for (int64_t h = heads * k / g->tp; h < heads * (k + 1) / g->tp; h++)
            if (h / group == u) return true;
        return false;
    }
    return u >= units * k / g->tp && u < units * (k + 1) / g->tp;
}

static void count(void *user, const ParamDesc *p, int layer, int expert, int64_t rows, int64_t cols) {
    Count *c = user;
    int64_t axis = p->cut == BY_COLS ? cols : rows, unit = p->unit ? dim_at(c->d, p->unit) : 1, units = axis / unit;
    double bytes = (double)(rows * cols / units) * (p->vector ? 4 : 2);
    for (int r = 0; r < c->ranks; r++)
        for (int64_t u = 0; u < units; u++) {
            if (!holds(c->to, c, p, layer, expert, r, u, units)) continue;
            if (holds(c->from, c, p, layer, expert, r, u, units)) c->kept += bytes;
            else c->moved += bytes, c->got[r] += bytes;
        }
}

static void check(const ModelSum *s, const char *from, const char *to, int gpus) {
    SyncPlan p = plan(s, from, to, gpus);
    Err err;
    GridShape a, b;
    if (!syncgrid_parse(&a, from, NULL, gpus, s->model, &err) || !syncgrid_parse(&b, to, NULL, gpus, s->model, &err))
        return;
    Count c = { .from = &a,
                .to = &b,
                .ranks = gpus,
                .d = &s->model->d,
                .tied = s->model->d.tied,
                .got = MEM_ARRAY(&mem, double, (size_t)gpus) };
    arch_each_param(s->model, count, &c);
    for (int r = 0; r < gpus; r++) c.most = fmax(c.most, c.got[r]);
    EXPECT(p.moved == c.moved && p.kept == c.kept, "%s -> %s: moved %.0f kept %.0f, counted %.0f and %.0f", from, to,
           p.moved, p.kept, c.moved, c.kept);
    EXPECT(p.received == c.most, "%s -> %s: a rank receives %.0f, counted %.0f", from, to, p.received, c.most);
    EXPECT(p.moved_far <= p.moved && p.sent * gpus >= p.moved && p.buffer >= 0, "%s -> %s: sums", from, to);
}

/* ---- the order in which messages go */
typedef struct {
    int row, from, to;
    int64_t run, runs, at, n, turn;
} Sent;
typedef struct {
    Sent *at;
    size_t n, cap;
} Walk;
static Walk walk(const SyncPair *pair, int me, SyncPieces pieces) {
    Walk w = { 0 };
    SyncList l;
    int64_t k;
    sync_list(&l, pair, me, &mem);
    SyncTurns t = sync_turns(&l, pieces);
    for (const SyncRow *row; (row = sync_next(&t, &k));)
        for (int i = 0; i < row->n; i++) {
            const SyncMove *m = &l.move[row->first + i];
            SyncRuns r = sync_runs(&pieces, row, m);
            if (m->from == m->to || k >= sync_pieces(&pieces, r)) continue;
            SyncPiece p = sync_piece(&pieces, r, k);
            Sent x = { (int)(row - l.row), m->from, m->to, p.run, p.runs, p.at, p.n, t.turn };
            VEC_PUSH(w, x);
        }
    return w;
}
static bool same_sent(const Sent *a, const Sent *b) {
    return a->row == b->row && a->from == b->from && a->to == b->to && a->run == b->run && a->runs == b->runs
           && a->at == b->at && a->n == b->n && a->turn == b->turn;
}
/* A rank's walk is everybody's, without the messages of others; and all bytes are in it, once. */
static void check_order(const ModelSum *s, const char *from, const char *to, int gpus, int64_t slot, int64_t alone) {
    GridShape a, b;
    Err err;
    SyncPlan p = plan(s, from, to, gpus);
    CHECK(syncgrid_parse(&a, from, NULL, gpus, s->model, &err) && syncgrid_parse(&b, to, NULL, gpus, s->model, &err),
          "%s", err.msg);
    SyncPair pair = { s->model, &a, &b, gpus, 8 };
    SyncPieces pieces = { slot, alone, 2 };
    Walk all = walk(&pair, -1, pieces);
    double bytes = 0;
    SyncList l;
    sync_list(&l, &pair, -1, &mem);
    for (size_t i = 0; i < all.n; i++) {
        int size = l.row[all.at[i].row].p->vector ? 4 : 2;
        int64_t one = all.at[i].runs * all.at[i].n * size;
        bytes += (double)one;
        EXPECT(one > 0
                   && one <= (all.at[i].runs > 1 ? slot
                              : slot > alone     ? slot
                                                 : alone),
               "a message of %ld bytes", (long)one);
        EXPECT(!i || all.at[i].turn >= all.at[i - 1].turn, "turns go back");
    }
    EXPECT(bytes == p.moved, "%s -> %s: messages of %.0f bytes, %.0f move", from, to, bytes, p.moved);
    for (int r = 0; r < gpus; r++) {
        Walk own = walk(&pair, r, pieces);
        size_t n = 0;
        bool same = true;
        for (size_t i = 0; i < all.n; i++)
            if (all.at[i].from == r || all.at[i].to == r)
                same = same && n < own.n && same_sent(&own.at[n], &all.at[i]), n++;
        EXPECT(same && n == own.n, "%s -> %s: rank %d has an order of its own", from, to, r);
        vec_free(own.at);
    }
    vec_free(all.at);
}

int main(void) {
    static const char *const MODELS[] = { "deepseek_v3", "moonlight", "qwen3_moe", "mixtral", "qwen2", "llama" };
    static const struct {
        const char *from, *to;
        int gpus;
    } CASES[] = { { "tp2,pp2", "tp4", 8 },
                  { "tp2,pp2,ep2", "tp1,ep4", 8 },
                  { "tp1,pp1,ep4", "tp1,ep4", 8 },
                  { "tp4", "tp1", 4 },
                  { "tp1,pp2,ep2", "tp2,ep4", 16 } };
    for (size_t m = 0; m < COUNT(MODELS); m++) {
        const ModelSum *s = sum_of(mem_printf(&mem, FIXTURE("models/%s/config.json"), MODELS[m]));
        for (size_t i = 0; i < COUNT(CASES); i++) {
            GridShape g;
            Err err;
            bool fits = syncgrid_parse(&g, CASES[i].from, NULL, CASES[i].gpus, s->model, &err)
                        && syncgrid_parse(&g, CASES[i].to, NULL, CASES[i].gpus, s->model, &err);
            if (fits) check(s, CASES[i].from, CASES[i].to, CASES[i].gpus);
            if (fits) check_order(s, CASES[i].from, CASES[i].to, CASES[i].gpus, 4096, 4 << 20);
            if (fits) check_order(s, CASES[i].from, CASES[i].to, CASES[i].gpus, 512, 1024);
        }
    }
    const ModelSum *v3 = sum_of(FIXTURE("configs/DeepSeek-V3.json"));
    SyncPlan same = plan(v3, "tp1,ep32", "tp1,ep32", 64), wide = plan(v3, "tp8,pp12,ep8", "tp32", 96);
    EXPECT(same.moved == 0 && same.buffer == 0, "equal cuts move nothing");
    EXPECT(fabs(wide.weights - 1342.05e9) < 1e8, "weights %.2f GB", wide.weights / 1e9);
    EXPECT(wide.received < 45e9 && wide.received > 40e9, "a rank of TP32 receives %.1f GB", wide.received / 1e9);
    EXPECT(wide.buffer < 1e9, "buffer %.0f MB", wide.buffer / 1e6);
    /* Stage after stage the busiest ports had 296 GB behind each other, where a rank sends 52 in all. */
    SyncPlan recipe = plan(v3, "tp8,pp6,ep16", "tp8,ep32", 96);
    EXPECT(recipe.ordered >= recipe.seconds * 0.999 && recipe.ordered < 1.25 * recipe.seconds,
           "all stages give at once: %.2f s, %.2f by bytes alone", recipe.ordered, recipe.seconds);
    EXPECT(recipe.ordered_far > 51e9 && recipe.ordered_far < 60e9, "%.1f GB by the busiest ports",
           recipe.ordered_far / 1e9);
    mem_free(&mem);
    return test_end();
}
