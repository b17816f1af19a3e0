/* grid.c - ranks, their places, and the layers of each stage. */
#include "cut/grid.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    size_t at;
} Axis;
#define AXIS(x)                                                                                                        \
    { #x, offsetof(GridShape, x) }
static const Axis axes[] = { AXIS(tp), AXIS(vpp), AXIS(pp), AXIS(etp), AXIS(ep), AXIS(cp), AXIS(dp) };
static int *axis(GridShape *g, const Axis *a) { return (int *)(void *)((char *)g + a->at); }

GridAt grid_at(const GridShape *g, int rank) {
    int per = grid_stage_ranks(g), in = rank % per;
    return (GridAt){
        .tp = in % g->tp,
        .cp = in / g->tp % g->cp,
        .dp = in / (g->tp * g->cp),
        .pp = rank / per,
        .etp = in % g->etp,
        .ep = in / g->etp % g->ep,
        .edp = in / (g->etp * g->ep),
    };
}

int grid_rank(const GridShape *g, GridAt at) { return ((at.pp * g->dp + at.dp) * g->cp + at.cp) * g->tp + at.tp; }

GridShape grid_one(const ModelDesc *m) {
    return (
        GridShape){ .tp = 1, .pp = 1, .vpp = 1, .ep = 1, .etp = 1, .cp = 1, .dp = 1, .layers = { (int)m->d.layers } };
}

Shard shard_whole(const ModelDesc *m) { return (Shard){ .g = grid_one(m) }; }

/* ---- text */

bool grid_parse(GridShape *g, const char *text, Err *err) {
    *g = (GridShape){ 0 };
    for (const char *s = text; *s;) {
        if (strchr(", ./x", *s)) {
            s++;
            continue;
        }
        size_t k = 0, n = 0;
        for (; k < COUNT(axes); k++) {
            n = strlen(axes[k].name);
            if (!strncasecmp(s, axes[k].name, n)) break;
        }
        char *end = NULL;
        long value = k < COUNT(axes) ? strtol(s + n + (s[n] == '=' || s[n] == ':'), &end, 10) : 0;
        if (k == COUNT(axes) || value < 1 || value > 1 << 20)
            return err_set(err, "grid '%s' is not understood at '%s': write tp=8,pp=12,ep=8", text, s);
        if (*axis(g, &axes[k])) return err_set(err, "grid '%s': %s is said twice", text, axes[k].name);
        *axis(g, &axes[k]) = (int)value;
        s = end;
    }
    return true;
}

void grid_text(const GridShape *g, Buf *out) {
    GridShape copy = *g;
    size_t was = out->n;
    for (size_t k = 0; k < COUNT(axes); k++)
        if (*axis(&copy, &axes[k]) > 1)
            buf_printf(out, "%s%s%d", out->n > was ? "," : "", axes[k].name, *axis(&copy, &axes[k]));
    if (out->n == was) buf_puts(out, "one rank");
}

void grid_split_text(const GridShape *g, Buf *out) {
    GridShape even = *g;
    int stage[MAX_CHUNKS] = { 0 }, n = grid_chunks(g);
    for (int s = 0; s < g->pp; s++) stage[s] = grid_stage_layers(g, s);
    grid_spread(&even, stage);
    bool chunks = memcmp(even.layers, g->layers, (size_t)n * sizeof *stage); /* a number a stage is enough, or is not */
    const int *at = chunks ? g->layers : stage;
    if (!chunks) n = g->pp;
    for (int i = 0, j; i < n; i = j) {
        for (j = i; j < n && at[j] == at[i]; j++) {}
        buf_printf(out, j - i > 1 ? "%s%dx%d" : "%s%d", i ? "," : "", at[i], j - i);
    }
}

/* ---- layers */

int grid_chunk(const GridShape *g, int c, int *from) {
    *from = 0;
    for (int i = 0; i < c; i++) *from += g->layers[i];
    return g->layers[c];
}

int grid_chunk_of(const GridShape *g, int layer) {
    int c = 0;
    for (int end = g->layers[0]; layer >= end; end += g->layers[++c]) {}
    return c;
}

int grid_stage_layers(const GridShape *g, int stage) {
    int sum = 0;
    for (int v = 0; v < g->vpp; v++) sum += g->layers[v * g->pp + stage];
    return sum;
}

static void even(int *to, int n, int layers) {
    for (int i = 0; i < n; i++) to[i] = layers / n + (i < layers % n);
}

void grid_spread(GridShape *g, const int *stage) {
    for (int s = 0; s < g->pp; s++)
        for (int v = 0; v < g->vpp; v++) g->layers[v * g->pp + s] = stage[s] / g->vpp + (v < stage[s] % g->vpp);
}

/* "first=3,last=6": those stages so, the others share the rest equally (Megatron's num_layers_in_*_pipeline_stage). */
static bool split_ends(GridShape *g, const char *text, int layers, Err *err) {
    const char *f = strstr(text, "first="), *l = strstr(text, "last=");
    int first = f ? atoi(f + 6) : 0, last = l ? atoi(l + 5) : 0, stage[MAX_CHUNKS];
    int others = g->pp - (first > 0) - (last > 0), rest = layers - first - last;
    if ((f && first < 1) || (l && last < 1))
        return err_set(err, "split '%s' is not understood: write first=3,last=6", text);
    if (others < 0 || rest < 0 || (others == 0 && rest))
        return err_set(err, "split '%s': %d stages cannot hold %d layers so", text, g->pp, layers);
    if (others && rest % others)
        return err_set(err, "split '%s' leaves %d layers for %d stages, which does not divide; %s=%d would", text, rest,
                       others, l ? "last" : "first", (l ? last : first) + rest % others);
    for (int i = 0; i < g->pp; i++)
        stage[i] = i == 0 && first ? first : i == g->pp - 1 && last ? last : others ? rest / others : 0;
    grid_spread(g, stage);
    return true;
}

static bool split_list(GridShape *g, const char *text, int layers, Err *err) {
    int list[MAX_CHUNKS], n = 0, sum = 0;
    for (const char *s = text; *s;) {
        char *end;
        long k = strtol(s, &end, 10), times = 1;
        if (end == s || k < 0 || k > MAX_LAYERS)
            return err_set(err, "split '%s' is not understood: write 6,5x11 or first=3,last=6", text);
        s = end;
        if (*s == 'x' || *s == '*') {
            times = strtol(s + 1, &end, 10);
            if (end == s + 1 || times < 1) return err_set(err, "split '%s' is not understood at '%s'", text, s);
            s = end;
        }
        for (; times > 0; times--) {
            if (n == MAX_CHUNKS) return err_set(err, "split '%s' has more than %d chunks", text, MAX_CHUNKS);
            list[n++] = (int)k;
            sum += (int)k;
        }
        if (*s == ',') s++;
        else if (*s) return err_set(err, "split '%s' is not understood at '%s'", text, s);
    }
    if (sum != layers) return err_set(err, "split '%s' holds %d layers, the model has %d", text, sum, layers);
    if (n == grid_chunks(g)) memcpy(g->layers, list, (size_t)n * sizeof *list);
    else if (n == g->pp) grid_spread(g, list);
    else
        return err_set(err, "split '%s' has %d stages, pp is %d%s", text, n, g->pp,
                       g->vpp > 1 ? " (a number a chunk is right too)" : "");
    return true;
}

bool grid_split(GridShape *g, const char *split, int layers, Err *err) {
    if ((int64_t)g->pp * g->vpp > MAX_CHUNKS)
        return err_set(err, "grid: pp %d x vpp %d is more than %d chunks of layers", g->pp, g->vpp, MAX_CHUNKS);
    if (split && (strstr(split, "first=") || strstr(split, "last="))) return split_ends(g, split, layers, err);
    if (split && strcmp(split, "even")) return split_list(g, split, layers, err);
    even(g->layers, grid_chunks(g), layers);
    return true;
}

/* ---- what cannot be */

static int pow2_below(int x) {
    int p = 1;
    while (2 * p <= x) p *= 2;
    return p;
}
static int divisor_below(int of, int x) {
    while (x > 1 && of % x) x--;
    return x;
}

static bool check_axes(const GridShape *g, const ModelDesc *m, int leaves, Err *err) {
    const Dims *d = &m->d;
    int stage = grid_stage_ranks(g);
    if (g->tp & (g->tp - 1))
        return err_set(
            err, "grid.tp is %d: a sum is cut at the joints of a tree, so tp is a power of two; the nearest is %d",
            g->tp, pow2_below(g->tp));
    if (g->etp & (g->etp - 1))
        return err_set(err, "grid.etp is %d: a power of two is wanted; the nearest is %d", g->etp, pow2_below(g->etp));
    if (leaves && (g->tp > leaves || g->etp > leaves))
        return err_set(err, "grid.%s is %d, but the run's sums have %d leaves: set trainer.leaves to %d, or tp to %d",
                       g->tp > leaves ? "tp" : "etp", g->tp > leaves ? g->tp : g->etp, leaves,
                       g->tp > g->etp ? g->tp : g->etp, leaves);
    if (g->pp > d->layers)
        return err_set(err, "grid: %d stages for %ld layers; pp=%d is the most", g->pp, (long)d->layers,
                       (int)d->layers);
    if ((int64_t)g->pp * g->vpp > d->layers)
        return err_set(err, "grid: pp %d x vpp %d chunks for %ld layers; vpp=%d is the most", g->pp, g->vpp,
                       (long)d->layers, (int)d->layers / g->pp);
    if (g->vpp > 1 && g->pp == 1)
        return err_set(err, "grid.vpp is %d without stages: set grid.pp, or vpp to 1", g->vpp);
    if (d->dn_keys && g->cp > 1)
        return err_set(err, "grid.cp is %d: delta nets take a sequence's tokens one after another; cp=1, and tp or pp",
                       g->cp);
    if (d->dn_keys && g->tp > d->dn_keys)
        return err_set(err, "grid.tp is %d for %ld key heads of the delta nets; tp=%d is the most", g->tp,
                       (long)d->dn_keys, pow2_below((int)d->dn_keys));
    if ((g->ep > 1 || g->etp > 1) && !d->experts)
        return err_set(err, "grid: ep %d, etp %d, but the model has no experts", g->ep, g->etp);
    if (g->ep > 1 && g->ep > d->experts)
        return err_set(err, "grid.ep is %d for %ld experts; ep=%d is the most", g->ep, (long)d->experts,
                       (int)d->experts);
    if (stage % (g->ep * g->etp))
        return err_set(
            err, "grid: ep %d x etp %d does not divide the %d ranks of a stage (dp %d x cp %d x tp %d); ep=%d would",
            g->ep, g->etp, stage, g->dp, g->cp, g->tp, stage % g->etp ? 1 : divisor_below(stage / g->etp, g->ep));
    return true;
}

/* The largest tp x pp x cp, each at most as large as asked, that these ranks can have; experts as they fit then. */
static void nearest(Buf *out, const GridShape *want, const ModelDesc *m, int ranks) {
    GridShape best = grid_one(m), g = *want;
    for (g.tp = pow2_below(want->tp); g.tp; g.tp /= 2)
        for (g.pp = want->pp < m->d.layers ? want->pp : (int)m->d.layers; ranks % g.tp == 0 && g.pp; g.pp--)
            for (g.cp = want->cp; ranks % (g.tp * g.pp) == 0 && g.cp; g.cp--) {
                if (ranks % (g.tp * g.pp * g.cp) || g.tp * g.pp * g.cp <= best.tp * best.pp * best.cp) continue;
                best = g;
                break;
            }
    best.dp = ranks / (best.tp * best.pp * best.cp);
    int stage = grid_stage_ranks(&best);
    best.vpp = best.pp > 1 && (int64_t)best.pp * want->vpp <= m->d.layers ? want->vpp : 1;
    best.etp = stage % want->etp ? 1 : want->etp;
    best.ep = divisor_below(stage / best.etp, want->ep);
    grid_text(&best, out);
}

bool grid_fill(GridShape *g, const ModelDesc *m, int ranks, const char *split, int leaves, Err *err) {
    int *ones[] = { &g->tp, &g->pp, &g->vpp, &g->ep, &g->etp, &g->cp };
    for (size_t i = 0; i < COUNT(ones); i++)
        if (!*ones[i]) *ones[i] = 1;
    int64_t each = (int64_t)g->tp * g->pp * g->cp;
    if (ranks % each || (g->dp && g->dp * each != ranks)) {
        Buf near = { 0 };
        nearest(&near, g, m, ranks);
        if (ranks % each)
            err_set(err,
                    "grid: tp x pp x cp = %ld does not divide the %d rank%s; start a multiple of it (mpirun -n %ld); "
                    "nearest is %s",
                    (long)each, ranks, ranks == 1 ? " there is" : "s there are", (long)each, near.data);
        else
            err_set(err,
                    "grid: tp x pp x cp x dp takes %ld ranks, and there %s %d; start that many (mpirun -n %ld), or "
                    "leave out dp: %s",
                    (long)(each * g->dp), ranks == 1 ? "is" : "are", ranks, (long)(each * g->dp), near.data);
        buf_free(&near);
        return false;
    }
    g->dp = (int)(ranks / each);
    TRY(check_axes(g, m, leaves, err));
    return grid_split(g, split, (int)m->d.layers, err);
}
