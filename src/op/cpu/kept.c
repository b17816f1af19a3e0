/* kept.c - one row's distribution in whole numbers (docs/exactness.md, rule 3): above leaves of 128 ids everything is a
 * maximum or a sum of int64 with 40 fraction bits, which no order or cut can change.
 *
 * min-p, top-k and top-p each keep a prefix of the ids ordered by (logit descending, id ascending), so the
 * kept set is a threshold and the last kept id among those at the threshold.  It is found exactly, by four
 * histograms of a byte each: of a long list only over those in one bin of a first, coarse one. */
#include "base/mathx.h"
#include "op/cpu/head.h"

#include <math.h>
#include <string.h>

__extension__ typedef __int128 i128;
__extension__ typedef unsigned __int128 u128;

static int64_t to_int(double d) { /* nearest, |d| < 2^51; the same on every machine */
    const double big = 6755399441055744.0;
    double s = d + big;
    int64_t x, y;
    memcpy(&x, &s, 8), memcpy(&y, &big, 8);
    return x - y;
}

Trunc head_trunc(const Dist *p, int64_t t) {
    return (Trunc){ p->top_k.data ? *i32_row(p->top_k, t) : 0, p->top_p.data ? *f32_row(p->top_p, t) : 1,
                    p->min_p.data ? *f32_row(p->min_p, t) : 0 };
}
float head_inv_temp(const Dist *p, int64_t t) { return p->inv_temp.data ? *f32_row(p->inv_temp, t) : 1; }

uint32_t head_key(float f) {
    uint32_t u;
    f += 0.0f; /* -0 -> +0 */
    memcpy(&u, &f, 4);
    return u >> 31 ? ~u : u | 0x80000000u;
}

float head_lp(const HeadRow *r, float l) {
    if (head_none(r)) return NAN;
    return (float)((double)l - (double)r->max - mx_log((double)r->z * (1.0 / (double)HEAD_ONE)));
}
float head_ent(const HeadRow *r) {
    if (head_none(r)) return NAN;
    return (float)(mx_log((double)r->z * (1.0 / (double)HEAD_ONE)) - (double)r->u / (double)r->z);
}

void head_leaves(HeadRow *r, const Kern *k, const float (*st)[3], int64_t leaves) {
    float m = -INFINITY;
    bool clean = true;
    for (int64_t i = 0; i < leaves; i++) m = st[i][0] > m ? st[i][0] : m, clean = clean && st[i][2] == st[i][2];
    r->max = m, r->z = r->u = 0;
    if (!clean || m == -INFINITY) return; /* no distribution: head_none */
    for (int64_t i0 = 0; i0 < leaves; i0 += 64) {
        int n = (int)(leaves - i0 < 64 ? leaves - i0 : 64);
        float d[64], w[64];
        for (int i = 0; i < n; i++) d[i] = st[i0 + i][0] - m;
        k->exp(w, d, n);
        for (int i = 0; i < n; i++) {
            if (w[i] == 0) continue;
            r->z += to_int((double)st[i0 + i][1] * (double)w[i] * (double)HEAD_ONE);
            r->u += to_int(fma((double)d[i], (double)st[i0 + i][1], (double)st[i0 + i][2]) * (double)w[i]
                           * (double)HEAD_ONE);
        }
    }
}

/* ---- the kept set */
/* In a worker's scratch: the masses of a piece of the ids, and those of them near the top, in ascending
 * order.  An id outside the lists ranks below every id in them, so a prefix that ends inside the lists is
 * the prefix of everything.  A vocabulary that fits the scratch is one piece, made once; of a larger one
 * the pieces are made again wherever they are read. */
enum { PIECE = CPU_WORK / 3 & ~15 };
typedef struct {
    const Kern *k;
    const float *l;
    int64_t V;
    float max, low;
    int64_t *q;                 /* [piece] of id from .. */
    int32_t *id;                /* [n] */
    int64_t n, q_from, id_from; /* -1: of no piece yet */
} Near;

static Near near_top(const HeadRow *r, const Kern *k, const float *l, int64_t V, float *work) {
    int64_t piece = V < PIECE ? V : PIECE;
    return (Near){ .k = k,
                   .l = l,
                   .V = V,
                   .max = r->max,
                   .q = (int64_t *)(void *)work,
                   .id = (int32_t *)(void *)(work + 2 * piece),
                   .q_from = -1,
                   .id_from = -1 };
}
static void near_width(Near *c, float width) { c->low = c->max - width, c->id_from = -1; }

static int64_t piece_end(const Near *c, int64_t from) { return c->V - from < PIECE ? c->V : from + PIECE; }
static void piece_mass(Near *c, int64_t from) {
    if (c->q_from != from) c->k->mass(c->q, c->l + from, piece_end(c, from) - from, c->max);
    c->q_from = from;
}
static void piece_ids(Near *c, int64_t from) {
    if (c->id_from == from) return;
    const float *l = c->l, low = c->low;
    int32_t *id = c->id;
    int64_t n = 0;
    for (int64_t i = from, end = piece_end(c, from); i < end; i++) {
        id[n] = (int32_t)i;
        n += l[i] >= low;
    }
    c->n = n, c->id_from = from;
}
static bool near_all(const Near *c) { return c->low == -INFINITY || (c->id_from == 0 && c->n == c->V); }

typedef struct {
    int64_t count[256], mass[256];
} Hist;
typedef struct {
    uint32_t key;
    int64_t ties, mass;
    bool whole; /* the prefix ends before the list does */
} Prefix;

/* What is wanted of a sorted list, and what of it has been passed. */
typedef struct {
    bool by_count, whole;
    int64_t want, n_above, m_above;
} Walk;

/* The first bin from the top that reaches what is wanted, those above it passed; where none does, the last that has
 * any: all is taken. */
static int walk_bins(Walk *w, const int64_t *count, const int64_t *mass, int bins) {
    int b = bins - 1, last = -1;
    for (; b >= 0; b--) {
        if (!count[b]) continue;
        last = b;
        if ((w->by_count ? w->n_above + count[b] : w->m_above + mass[b]) >= w->want) return b;
        w->n_above += count[b], w->m_above += mass[b];
    }
    w->n_above -= count[last], w->m_above -= mass[last], w->whole = false;
    return last;
}

/* A long list is first dealt to bins of equal width in the logit, which keep its order: a flat distribution has all
 * its ids in a few leading bytes of their keys, so that histograms by bytes would pass over all of them four times.
 * The bin that the prefix ends in is then a list of its own, if it is short or all its ids are ties. */
enum { LONG_LIST = 4096, BINS = 2048, FEW = 2048 };
typedef struct {
    struct {
        uint32_t key;
        int64_t count, mass;
    } at[FEW];
    int n;
} Few;

static float lowest(const Near *c) {
    float m[8];
    for (int k = 0; k < 8; k++) m[k] = c->max;
    for (int64_t i = 0; i + 8 <= c->V; i += 8)
        for (int k = 0; k < 8; k++) m[k] = c->l[i + k] < m[k] ? c->l[i + k] : m[k];
    for (int64_t i = c->V & ~7; i < c->V; i++) m[0] = c->l[i] < m[0] ? c->l[i] : m[0];
    for (int k = 1; k < 8; k++) m[0] = m[k] < m[0] ? m[k] : m[0];
    return m[0] > c->low ? m[0] : c->low;
}

/* BINS-1 is the top.  Rounding keeps order, and equal logits together; -inf is at the bottom. */
static int bin_of(const Near *c, float l, float scale) {
    float x = (c->max - l) * scale;
    return x < BINS - 1 ? BINS - 1 - (int)x : 0;
}

static bool deal(const HeadRow *r, Near *c, Walk *w, Few *few) {
    int64_t count[BINS] = { 0 }, mass[BINS] = { 0 };
    float range = c->max - lowest(c), scale = range > 0 ? BINS / (range < 64 ? range : 64) : 0;
    Walk own = *w;
    if (scale > 1e30F) scale = 1e30F; /* 0 times it is 0 */
    for (int64_t from = 0; from < c->V; from += PIECE) {
        piece_mass(c, from), piece_ids(c, from);
        for (int64_t i = 0; i < c->n; i++) {
            int64_t id = c->id[i], q = c->q[id - from];
            int b = bin_of(c, c->l[id], scale);
            count[b] += q >= r->qmin, mass[b] += q >= r->qmin ? q : 0;
        }
    }
    int b = walk_bins(&own, count, mass, BINS);
    few->n = 0;
    for (int64_t from = 0; from < c->V; from += PIECE) {
        piece_mass(c, from), piece_ids(c, from);
        for (int64_t i = 0; i < c->n; i++) {
            int64_t id = c->id[i], q = c->q[id - from];
            if (bin_of(c, c->l[id], scale) != b || q < r->qmin) continue;
            uint32_t key = head_key(c->l[id]);
            bool tie = few->n && few->at[few->n - 1].key == key;
            if (!tie && few->n == FEW) return false;
            if (!tie) few->at[few->n].key = key, few->at[few->n].count = few->at[few->n].mass = 0, few->n++;
            few->at[few->n - 1].count++, few->at[few->n - 1].mass += q;
        }
    }
    *w = own;
    return true;
}

static void count_few(Hist *h, const Few *few, int shift, uint32_t prefix) {
    for (int i = 0; i < few->n; i++) {
        uint32_t key = few->at[i].key;
        if (shift < 24 && key >> (shift + 8) != prefix) continue;
        h->count[key >> shift & 255] += few->at[i].count, h->mass[key >> shift & 255] += few->at[i].mass;
    }
}

static void count_list(Hist *h, const HeadRow *r, Near *c, int shift, uint32_t prefix) {
    for (int64_t from = 0; from < c->V; from += PIECE) {
        piece_mass(c, from), piece_ids(c, from);
        const float *l = c->l;
        const int64_t *mass = c->q, n = c->n;
        for (int64_t i = 0; i < n; i++) {
            int64_t id = c->id[i], q = mass[id - from];
            uint32_t key = head_key(l[id]);
            if (q < r->qmin || (shift < 24 && key >> (shift + 8) != prefix)) continue;
            h->count[key >> shift & 255]++, h->mass[key >> shift & 255] += q;
        }
    }
}

/* The shortest sorted prefix of the list with >= want ids (by_count) or >= want mass, of the ids with q >= qmin. */
static Prefix prefix_at(const HeadRow *r, Near *c, bool by_count, int64_t want) {
    Walk w = { by_count, true, want, 0, 0 };
    uint32_t prefix = 0;
    Hist h;
    Few few; /* big: only its n is set */
    few.n = 0;
    piece_ids(c, 0);
    bool is_long = c->V > PIECE || c->n > LONG_LIST, dealt = is_long && deal(r, c, &w, &few);
    for (int shift = 24; shift >= 0; shift -= 8) {
        memset(&h, 0, sizeof h);
        if (dealt) count_few(&h, &few, shift, prefix);
        else count_list(&h, r, c, shift, prefix);
        prefix = prefix << 8 | (uint32_t)walk_bins(&w, h.count, h.mass, 256);
    }
    int64_t n = h.count[prefix & 255], each = h.mass[prefix & 255] / n;
    int64_t ties = by_count ? want - w.n_above : each ? (want - w.m_above + each - 1) / each : n;
    ties = ties > n ? n : ties < 1 ? 1 : ties;
    return (Prefix){ prefix, ties, w.m_above + ties * each, w.whole };
}

static int64_t mass_of_all(Near *c) {
    int64_t mass = 0;
    for (int64_t from = 0; from < c->V; from += PIECE) {
        piece_mass(c, from);
        for (int64_t i = piece_end(c, from) - from; i-- > 0;) mass += c->q[i];
    }
    return mass;
}

/* The prefix of all three rules, or whole = false when the list was too short to know it. */
static Prefix keep_in(const HeadRow *r, Near *c, Trunc t) {
    piece_ids(c, 0);
    bool all = near_all(c), by_k = t.top_k > 0 && t.top_k < c->V;
    Prefix p = { .whole = false };
    if (by_k || all || r->qmin > 0) {
        p = prefix_at(r, c, true, by_k ? t.top_k : INT64_MAX);
        if (!p.whole && !all && r->qmin == 0) return p; /* (all that min-p keeps is in the list) */
    } else if (t.top_p >= 1) return p;
    if (t.top_p < 1) {
        int64_t mass = p.mass;
        if (!by_k && r->qmin == 0) mass = mass_of_all(c);
        i128 part = (i128)to_int((t.top_p > 0 ? (double)t.top_p : 0) * 4294967296.0) * mass;
        Prefix p2 = prefix_at(r, c, false, (int64_t)((part + 4294967295) >> 32));
        if (!p2.whole && !all) return p2;
        if (p2.mass < mass || (!by_k && r->qmin == 0)) p = p2;
    }
    p.whole = true;
    return p;
}

void head_keep(HeadRow *r, const Kern *k, const float *l, int64_t V, Trunc t, float *work) {
    r->max = k->max(l, V), r->z = r->u = 0;
    r->cut = CUT_FOUND, r->key = UINT32_MAX, r->tie_last = -1;
    if (r->max == -INFINITY || !k->clean(l, V)) return; /* no distribution: head_none */
    r->qmin = t.min_p > 0 ? to_int((t.min_p < 1 ? (double)t.min_p : 1) * (double)HEAD_ONE) : 0;
    /* all that min-p keeps, and some */
    float width = t.min_p > 0 && t.min_p < 1 ? (float)(1 - mx_log((double)t.min_p)) : 12;
    Near c = near_top(r, k, l, V, work);
    near_width(&c, width < 12 ? 12 : width);
    Prefix p = keep_in(r, &c, t);
    if (!p.whole) {
        near_width(&c, INFINITY);
        p = keep_in(r, &c, t);
    }
    r->key = p.key;
    for (int64_t from = 0; from < V; from += PIECE) { /* the last tie that is kept; the kept set's sums */
        piece_mass(&c, from), piece_ids(&c, from);
        for (int64_t i = 0; i < c.n; i++) {
            int64_t id = c.id[i], q = c.q[id - from];
            uint32_t key = head_key(l[id]);
            bool in = (q >= r->qmin) & (key > r->key); /* no branch: whether an id is kept cannot be foretold */
            if (key == r->key && q >= r->qmin && p.ties > 0) p.ties--, r->tie_last = (int32_t)id, in = true;
            float d = l[id] - r->max;
            d = d > -200 ? d : -200; /* -inf has no mass, as all below -28 */
            q &= -(int64_t)in;
            r->z += q;
            r->u += to_int((double)d * (double)q);
        }
    }
}

static bool kept(const HeadRow *r, float l, int64_t q, int64_t id) {
    uint32_t key = head_key(l);
    return (q >= r->qmin) & ((key > r->key) | ((key == r->key) & (id <= r->tie_last)));
}
void head_mask(const HeadRow *r, const Kern *k, float *l, int64_t from, int64_t n, float *work) {
    int64_t *q = (int64_t *)(void *)work;
    CHECK(2 * n <= CPU_WORK, "masks of %ld ids at a time", (long)n);
    if (r->qmin > 0) k->mass(q, l, n, r->max);
    for (int64_t i = 0; i < n; i++)
        if (!kept(r, l[i], r->qmin > 0 ? q[i] : 0, from + i)) l[i] = -INFINITY;
}

enum { MASSES = CPU_WORK / 2 & ~15 }; /* that a worker's scratch holds */
static int64_t masses_end(int64_t from, int64_t V) { return V - from < MASSES ? V : from + MASSES; }

void head_bits(uint32_t *bits, const HeadRow *r, const Kern *k, const float *l, int64_t V, float *work) {
    int64_t *q = (int64_t *)(void *)work;
    memset(bits, 0, (size_t)kept_words(V) * 4);
    for (int64_t from = 0; from < V && !head_none(r); from += MASSES) {
        int64_t to = masses_end(from, V);
        if (r->cut && r->qmin > 0) k->mass(q, l + from, to - from, r->max);
        for (int64_t i = from; i < to; i++)
            bits[i / 32] |= (uint32_t)(!r->cut || kept(r, l[i], r->qmin > 0 ? q[i - from] : 0, i)) << i % 32;
    }
}

void head_mask_given(const uint32_t *bits, float *l, int64_t from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!(bits[(from + i) / 32] >> (from + i) % 32 & 1)) l[i] = -INFINITY;
}

/* Masked before the maximum: under later weights the largest logit may lie outside the set. */
void head_given(HeadRow *r, const Kern *k, float *l, const uint32_t *bits, int64_t V, float *work) {
    int64_t *q = (int64_t *)(void *)work;
    bool clean = k->clean(l, V);
    head_mask_given(bits, l, 0, V);
    r->max = k->max(l, V);
    r->cut = CUT_GIVEN, r->z = r->u = 0;
    if (r->max == -INFINITY || !clean) return; /* no distribution: head_none */
    for (int64_t from = 0; from < V; from += MASSES) {
        int64_t n = masses_end(from, V) - from;
        k->mass(q, l + from, n, r->max);
        for (int64_t i = 0; i < n; i++) {
            r->z += q[i];
            if (q[i]) r->u += to_int((double)(l[from + i] - r->max) * (double)q[i]);
        }
    }
}

/* The masses of ids from .. that are kept, the others 0; returns their sum. */
static int64_t kept_mass(int64_t *q, const HeadRow *r, const Kern *k, const float *l, int64_t from, int64_t n) {
    int64_t total = 0;
    k->mass(q, l + from, n, r->max);
    if (r->cut)
        for (int64_t i = 0; i < n; i++) q[i] &= -(int64_t)kept(r, l[from + i], q[i], from + i);
    for (int64_t i = 0; i < n; i++) total += q[i];
    return total;
}

/* Inverse CDF in the order of ids: the id at which the running mass of kept ids passes a random part of their whole
 * mass.  (The whole is summed here: z may come from leaves and is rounded elsewhere.) */
int32_t head_pick(const HeadRow *r, const Kern *k, const float *l, int64_t V, uint64_t random, float *work) {
    int64_t *q = (int64_t *)(void *)work, total = 0;
    if (head_none(r)) return -1;
    for (int64_t from = 0; from < V; from += MASSES) total += kept_mass(q, r, k, l, from, masses_end(from, V) - from);
    int64_t at = (int64_t)((u128)random * (u128)total >> 64);
    for (int64_t from = 0; from < V; from += MASSES) {
        int64_t n = masses_end(from, V) - from;
        if (V > MASSES) kept_mass(q, r, k, l, from, n);
        for (int64_t i = 0; i < n; i++)
            if ((at -= q[i]) < 0) return (int32_t)(from + i);
    }
    die("no id drawn: mass %ld", (long)total);
}
