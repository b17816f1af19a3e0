/* test_memmodel.c - the planner against an independent model of the same stack (tests/oracle/memmodel_table.py): every
 * column of every row within 1 %, parameters and whole numbers exactly. */
#include "base/file.h"
#include "plan/plan.h"
#include "test.h"

#include <math.h>

static Mem mem;
static const char *now;

static void near(const char *what, double got, double want) {
    EXPECT(fabs(got - want) <= 0.01 * fabs(want) + 1e-9, "%s: %s is %.6g, want %.6g", now, what, got, want);
}
static void same(const char *what, double got, double want) {
    EXPECT(got == want, "%s: %s is %.17g, want %.17g", now, what, got, want);
}

static double num(const Json *row, const char *key) {
    const Json *v = json_get(row, key);
    CHECK(v, "no key %s", key);
    return v->kind == JSON_BOOL ? v->flag : json_number(v);
}

static ModelSum *sum_of(const Json *row) {
    Err err = { 0 };
    const char *name = "";
    CHECK(json_str(row, "config", &name, &err), "%s", err.msg);
    now = name;
    ModelDesc *m = MEM_NEW(&mem, ModelDesc);
    ModelSum *s = MEM_NEW(&mem, ModelSum);
    CHECK(model_desc_load(m, mem_printf(&mem, FIXTURE("configs/%s.json"), name), &mem, &err), "%s", err.msg);
    model_sum(s, m);
    return s;
}

static int drop_of(const Json *row) {
    const char *mode = "";
    Err err;
    CHECK(json_str(row, "drop", &mode, &err), "drop");
    if (!strcmp(mode, "full")) return DROP_ALL;
    int drop = 0;
    const Json *sel = json_get(row, "sel");
    for (size_t i = 0; i < sel->n; i++)
        drop |= json_is_str(&sel->items[i], "layernorm") ? DROP_NORM
                : json_is_str(&sel->items[i], "moe")     ? DROP_MOE
                                                         : DROP_ACT;
    return drop;
}

static void read_split(Layout *l, const Json *row) {
    const Json *split = json_get(row, "split");
    l->g.pp = (int)split->n;
    for (int i = 0; i < l->g.pp; i++) l->g.layers[i] = (int)split->items[i].integer;
}

static Plan *plan_of(const Json *row, const char *profile) {
    Plan *p = MEM_NEW(&mem, Plan);
    Err err = { 0 };
    p->sum = sum_of(row);
    p->profile = profile_find(profile);
    p->cluster = (Cluster){ *machine_find("H20-96"), (int)num(row, "gpus") };
    p->work = (Workload){ .prompts = num(row, "prompts"),
                          .answers = num(row, "answers"),
                          .mini = num(row, "mini"),
                          .prompt_mean = 150,
                          .prompt_max = 2048,
                          .mean = num(row, "mean"),
                          .max = num(row, "max"),
                          .spread = 1,
                          .kl = num(row, "kl") != 0,
                          .epochs = 1 };
    p->layout = (Layout){ .g.tp = (int)num(row, "tp"),
                          .g.ep = (int)num(row, "ep"),
                          .g.cp = 1,
                          .g.vpp = 1,
                          .drop = drop_of(row),
                          .fused_head = num(row, "fused") != 0,
                          .micro_tokens = num(row, "micro_tokens"),
                          .offload = num(row, "offload"),
                          .park_weights = true,
                          .park_states = num(row, "park") != 0,
                          .gen_tp = (int)num(row, "gen_tp"),
                          .gen_ep = 1,
                          .gen_use = num(row, "gen_use") };
    read_split(&p->layout, row);
    CHECK(layout_check(&p->layout, p->sum, &p->cluster, &p->work, &err), "%s", err.msg);
    plan_memory(p);
    return p;
}

static void check_params(const Json *row) {
    const ModelSum *s = sum_of(row);
    const LayerSum *a = &s->before[s->layers];
    same("total", s->total, num(row, "total")), same("embed", s->embed, num(row, "embed")),
        same("head", s->head, num(row, "head"));
    same("attention", a->attn_cut + a->attn_whole, num(row, "attn")), same("dense", a->dense, num(row, "dense"));
    same("shared", a->shared, num(row, "shared")), same("experts", a->experts, num(row, "experts")),
        same("vision", s->vision, num(row, "vision"));
    near("active", s->active, num(row, "active")), near("gemm", s->gemm, num(row, "gemm")),
        same("kv", sum_kv_bytes(s, 1, 2), num(row, "kv"));
}

static void check_flops(const Json *row) {
    static const double LENGTHS[] = { 1024, 2048, 4096, 8192, 32768 };
    const ModelSum *s = sum_of(row);
    for (size_t i = 0; i < COUNT(LENGTHS); i++)
        near("forward", sum_forward(s, LENGTHS[i]), json_number(&json_get(row, "forward")->items[i]));
}

/* act, head and working memory are one column there; the runtime is outside of it. */
static double act(const double *b) { return b[MEM_ACT] + b[MEM_WORK] + b[MEM_HEAD]; }

static void check_memory(const Json *row) {
    const Plan *p = plan_of(row, "verl");
    int at = (int)num(row, "stage");
    const StagePlan *st = &p->stage[at];
    const double *up = st->bytes[PH_UPDATE];
    same("dp", p->layout.g.dp, num(row, "dp")), same("edp", grid_edp(&p->layout.g), num(row, "edp")),
        same("micro-batches", p->micro_batches, num(row, "nmb"));
    same("worst stage", p->worst[PH_UPDATE], at), same("in flight", st->in_flight, num(row, "inflight"));
    near("weights", up[MEM_WEIGHTS], num(row, "w")), near("gradients", up[MEM_GRADS], num(row, "grad")),
        near("optimizer", up[MEM_OPTIM], num(row, "opt"));
    near("activations", act(up), num(row, "act")),
        near("train", st->total[PH_UPDATE] - up[MEM_RUNTIME], num(row, "train"));
    near("engine weights", p->engine_weights, num(row, "gen_w")), near("kv pool", p->kv_pool, num(row, "kvpool")),
        near("kv tokens", p->kv_tokens, num(row, "kvtok"));
    const StagePlan *sync = &p->stage[at];
    near("reshard", sync->total[PH_SYNC] - sync->bytes[PH_SYNC][MEM_RUNTIME], num(row, "reshard"));
    near("host worst", p->host_worst, num(row, "host_worst")),
        near("host typical", p->host_typical, num(row, "host_typical"));
    near("host mean", p->host_mean, num(row, "host_mean"));
    Plan *q = plan_of(row, "hone"); /* exact sizes, one copy of each, weights and states parked */
    q->layout.park_states = true;
    plan_memory(q);
    near("host minimum", q->host_worst, num(row, "host_min"));
}

static void check_kept(const Json *row) {
    static const struct {
        const char *key;
        int drop;
    } WAYS[] = {
        { "none", 0 }, { "selective", DROP_NORM | DROP_ACT }, { "moe", DROP_NORM | DROP_MOE }, { "full", DROP_ALL }
    };
    const ModelSum *s = sum_of(row);
    for (size_t i = 0; i < COUNT(WAYS); i++)
        same(WAYS[i].key, kept_bytes(sum_kept(s, s->layers - 1, WAYS[i].drop, 1)), num(row, WAYS[i].key));
}

int main(void) {
    Buf text = { 0 };
    Json all;
    Err err = { 0 };
    CHECK(file_read(&text, FIXTURE("plan/memmodel.json"), &err) && json_parse(&all, text.data, text.n, &mem, &err),
          "%s", err.msg);
    static const struct {
        const char *key;
        void (*check)(const Json *);
    } TABLES[] = { { "params", check_params },
                   { "flops", check_flops },
                   { "memory", check_memory },
                   { "recompute", check_memory },
                   { "kept", check_kept } };
    for (size_t t = 0; t < COUNT(TABLES); t++) {
        const Json *rows = json_get(&all, TABLES[t].key);
        EXPECT(rows && rows->n >= 8, "%s: only %zu rows", TABLES[t].key, rows ? rows->n : 0);
        for (size_t i = 0; rows && i < rows->n; i++) TABLES[t].check(&rows->items[i]);
    }
    const Json *stages = json_get(&all, "stages");
    const Plan *p = plan_of(&json_get(&all, "memory")->items[0], "verl");
    for (size_t i = 0; i < stages->n; i++) {
        const StagePlan *st = &p->stage[i];
        const Json *row = &stages->items[i];
        same("layers", st->layers, num(row, "layers")), near("params", st->dense + st->expert, num(row, "p")),
            near("act", act(st->bytes[PH_UPDATE]), num(row, "act"));
        near("total", st->total[PH_UPDATE] - st->bytes[PH_UPDATE][MEM_RUNTIME], num(row, "total"));
    }
    buf_free(&text);
    mem_free(&mem);
    return test_end();
}
