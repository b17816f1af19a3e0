/* sampling.c - the command line's sampling options, and the ranks of a verb that samples. */
#include "cmd/sampling.h"
#include "arch/adapter.h"
#include "jinja/jinja.h"

int sampling_opts(const Verb *v, const SamplingArgs *a) {
    if (a->temperature == 0 || a->temperature >= TEMPERATURE_LEAST) return -1;
    return cmd_usage(v, "--temperature must be 0 (greedy) or lie between %g and %g, not %g", TEMPERATURE_LEAST,
                     TEMPERATURE_MOST, a->temperature);
}

bool sampling_grid(Ranks *r, Replicas *out, const char *grid, const ModelDesc *m, int64_t leaves, Err *err) {
    GridShape g = { 0 };
    *out = replicas_one();
    TRY(!grid || grid_parse(&g, grid, err));
    if (g.pp > 1 || g.cp > 1)
        return err_set(err,
                       "--grid: a token's step is one row of each layer, so there is nothing to pass from stage to "
                       "stage or to cut by positions: sampling takes tp, ep, etp and dp, not %s",
                       g.pp > 1 ? "pp" : "cp");
    bool whole = m->adapter && adapter_of_experts(m->adapter); /* an expert's adapter is not cut */
    if (m->d.experts && !g.ep && !g.etp && !whole) g.etp = g.tp;
    TRY(ranks_grid(r, &g, NULL, m, leaves ? (int)leaves : LEAVES_MOST, err));
    if (ranks_count(r) > 1) *out = replicas_of(&r->world, &r->shard.g, &r->groups);
    return true;
}

const char *sampling_clock(const Ranks *r, Mem *mem) {
    Buf now = { 0 };
    jinja_clock(&now);
    ranks_same(r, &now);
    const char *text = mem_str(mem, now.data, now.n);
    buf_free(&now);
    return text;
}
