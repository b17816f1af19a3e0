/* slice.c - which part of each weight a rank holds: see grid.h.  Units of every cut dimension are dealt out in order,
 * rank k of n taking [units*k/n, units*(k+1)/n): for n a power of two that is whole leaves of the sum over them, so
 * partial sums are subtrees (E2). */
#include "cut/grid.h"

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t heads_to_kv(const Dims *d, int64_t head) { return head * d->kv_heads / d->heads; }

Local grid_local(const ModelDesc *m, const GridShape *g, GridAt at) {
    const Dims *d = &m->d;
    Local l = { 0 };
    int64_t end;
    grid_cut(d->heads, at.tp, g->tp, &l.head0, &end), l.heads = end - l.head0;
    l.kv0 = heads_to_kv(d, l.head0);
    l.kv_heads = l.heads ? heads_to_kv(d, end - 1) + 1 - l.kv0 : 0;
    grid_cut(d->ffn, at.tp, g->tp, &l.ffn0, &end), l.ffn = end - l.ffn0;
    grid_cut(d->shared_ffn, at.tp, g->tp, &l.shared0, &end), l.shared_ffn = end - l.shared0;
    grid_cut(d->expert_ffn, at.etp, g->etp, &l.expert_ffn0, &end), l.expert_ffn = end - l.expert_ffn0;
    int64_t key0;
    grid_cut(d->dn_keys, at.tp, g->tp, &key0, &end), l.dn_keys = end - key0;
    grid_cut(d->experts, at.ep, g->ep, &l.expert0, &end), l.experts = end - l.expert0;
    grid_cut((d->vocab + VOCAB_UNIT - 1) / VOCAB_UNIT, at.tp, g->tp, &l.vocab0, &end);
    l.vocab0 = least(l.vocab0 * VOCAB_UNIT, d->vocab), l.vocab = least(end * VOCAB_UNIT, d->vocab) - l.vocab0;
    return l;
}

static bool is_here(const ModelDesc *m, const ParamDesc *p, int layer, const GridShape *g, GridAt at) {
    bool first = at.pp == 0, last = at.pp == (grid_chunks(g) - 1) % g->pp;
    switch (p->where) {
    case IN_FIRST: return first || (last && p->id == P_EMBED && m->d.tied); /* a tied head reads it at the other end */
    case IN_LAST: return last;
    case IN_VIS:
    case IN_VIS_LAYER: return first;
    default: return grid_chunk_of(g, layer) % g->pp == at.pp;
    }
}

/* The cut dimension's [*from, *to) of this rank. */
static void cut_range(const ModelDesc *m, const ParamDesc *p, const GridShape *g, GridAt at, int64_t axis,
                      int64_t *from, int64_t *to) {
    const Dims *d = &m->d;
    bool expert = p->where == IN_EXPERT;
    int64_t unit = p->unit ? dim_at(d, p->unit) : 1;
    ParamId id = adapter_of(p->id);
    if (id == P_EMBED || id == P_HEAD) unit = VOCAB_UNIT;
    if (id == P_K || id == P_V || id == P_KB || id == P_VB) {
        Local l = grid_local(m, g, at);
        *from = l.kv0 * unit, *to = (l.kv0 + l.kv_heads) * unit;
        return;
    }
    grid_cut((axis + unit - 1) / unit, expert ? at.etp : at.tp, expert ? g->etp : g->tp, from, to);
    *from = least(*from * unit, axis), *to = least(*to * unit, axis);
}

Slice param_slice(const ModelDesc *m, const ParamDesc *p, int layer, const GridShape *g, GridAt at) {
    const Dims *d = &m->d;
    bool vision = p->where == IN_VIS || p->where == IN_VIS_LAYER;
    Slice s = { .here = is_here(m, p, layer, g, at),
                .experts = 1,
                .rows = param_rows(d, p, layer),
                .cols = param_cols(d, p, layer) };
    int64_t end;
    if (p->where == IN_EXPERT) grid_cut(d->experts, at.ep, g->ep, &s.e0, &end), s.experts = end - s.e0;
    if (p->cut == BY_ROWS && !vision) cut_range(m, p, g, at, s.rows, &s.r0, &end), s.rows = end - s.r0;
    if (p->cut == BY_COLS && !vision) cut_range(m, p, g, at, s.cols, &s.c0, &end), s.cols = end - s.c0;
    return s;
}
