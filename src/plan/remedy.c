/* remedy.c - the smallest single change that makes a plan fit.  Tried in the order of what they cost: first what is
 * free or nearly so, then recomputation, then the host, then other cuts, then more machines. */
#include "plan/plan.h"

#include <math.h>
#include <stdio.h>

typedef bool Change(Plan *p, int how, char *said, size_t n); /* false: not applicable */

static bool fuse_head(Plan *p, int how, char *said, size_t n) {
    (void)how;
    snprintf(said, n, "a fused head (no [T,V] logits)");
    return p->layout.fused_head ? false : (p->layout.fused_head = true);
}

static bool less_micro(Plan *p, int how, char *said, size_t n) {
    double least = ceil((p->work.prompt_max + p->work.max) / p->layout.g.cp);
    double t = fmax(least, p->layout.micro_tokens / (how + 1));
    snprintf(said, n, "micro-batches of %.0f tokens instead of %.0f", t, p->layout.micro_tokens);
    if (t >= p->layout.micro_tokens) return false;
    p->layout.micro_tokens = t;
    return true;
}

static bool whole_stages(Plan *p, int how, char *said, size_t n) {
    (void)how;
    snprintf(said, n, "whole stages instead of %d chunks each (vpp 1)", p->layout.g.vpp);
    if (p->layout.g.vpp == 1) return false;
    p->layout.g.vpp = 1;
    return true;
}

static bool recompute(Plan *p, int how, char *said, size_t n) {
    const int *ways = recompute_ways(p->profile) + 1; /* after none */
    for (int i = 0; i < how; i++)
        if (*ways >= 0) ways++;
    int way = *ways;
    if (way < 0 || p->layout.drop & DROP_ALL) return false;
    if (p->layout.drop == way) return false;
    p->layout.drop = way;
    snprintf(said, n, "recompute %s", recompute_name(way));
    return true;
}

static bool park(Plan *p, int how, char *said, size_t n) {
    snprintf(said, n,
             how ? "parking weights and optimizer states on the host during rollout"
                 : "parking weights on the host during rollout");
    if (p->layout.park_weights && (!how || p->layout.park_states)) return false;
    p->layout.park_weights = true, p->layout.park_states |= how > 0;
    return true;
}

static bool offload(Plan *p, int how, char *said, size_t n) {
    double f = 0.25 * (how + 1);
    if (f > 1 || f <= p->layout.offload) return false;
    p->layout.offload = f;
    snprintf(said, n, "offload %g of the optimizer's states", f);
    return true;
}

static bool keep(Plan *p, int how, char *said, size_t n) {
    double f = 1 - 0.25 * (how + 1);
    if (f < 0 || f >= p->layout.offload) return false;
    p->layout.offload = f;
    snprintf(said, n, "offload only %g of the optimizer's states", f);
    return true;
}

static bool wider_engine(Plan *p, int how, char *said, size_t n) {
    int ep = p->sum->model->d.experts ? p->layout.gen_ep : 0,
        *which = ep > p->layout.gen_tp ? &p->layout.gen_ep : &p->layout.gen_tp;
    if (!ep && *which >= 8) return false;
    *which <<= how + 1;
    snprintf(said, n, "an engine of %d GPUs (rollout %s %d)", *which, which == &p->layout.gen_ep ? "ep" : "tp", *which);
    return *which <= p->cluster.gpus;
}

static bool more_ep(Plan *p, int how, char *said, size_t n) {
    p->layout.g.ep <<= how + 1;
    snprintf(said, n, "ep %d", p->layout.g.ep);
    return p->sum->model->d.experts > 0;
}

static bool more_pp(Plan *p, int how, char *said, size_t n) {
    p->layout.g.pp <<= how + 1;
    Err err;
    if (p->layout.g.pp > p->sum->layers || p->layout.g.pp > MAX_STAGES) return false;
    if (!grid_split(&p->layout.g, NULL, p->sum->layers, &err)) return false;
    snprintf(said, n, "pp %d", p->layout.g.pp);
    return true;
}

static bool more_host(Plan *p, int how, char *said, size_t n) {
    if (how || p->host_worst <= p->cluster.gpu.host_memory) return false;
    p->cluster.gpu.host_memory = ceil(p->host_worst / 1e9 + 1) * 1e9;
    snprintf(said, n, "%.0f GB of host memory a node", p->cluster.gpu.host_memory / 1e9);
    return true;
}

static bool more_gpus(Plan *p, int how, char *said, size_t n) {
    p->cluster.gpus *= how + 2;
    snprintf(said, n, "%d GPUs", p->cluster.gpus);
    return p->cluster.gpus <= 1 << 16;
}

bool plan_remedy(const Plan *p, Buf *out) {
    static const struct {
        Change *change;
        int ways;
    } CHANGES[] = {
        { fuse_head, 1 }, { recompute, 1 }, { whole_stages, 1 }, { less_micro, 3 },   { recompute, 3 },
        { park, 2 },      { offload, 4 },   { keep, 4 },         { wider_engine, 3 }, { more_ep, 3 },
        { more_pp, 2 },   { more_host, 1 }, { more_gpus, 7 },
    };
    Mem mem = { 0 };
    Plan *q = MEM_NEW(&mem, Plan);
    bool found = false;
    for (size_t c = 0; c < COUNT(CHANGES) && !found; c++)
        for (int how = 0; how < CHANGES[c].ways && !found; how++) {
            char said[160];
            Err err;
            *q = *p;
            if (!CHANGES[c].change(q, how, said, sizeof said)
                || !layout_check(&q->layout, q->sum, &q->cluster, &q->work, &err))
                continue;
            plan_memory(q);
            found = q->fits;
            if (found) buf_puts(out, said);
        }
    mem_free(&mem);
    return found;
}
