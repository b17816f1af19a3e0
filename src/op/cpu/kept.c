/* kept.c - one row's distribution in whole numbers (docs/exactness.md, rule 3): above leaves of 128 ids everything is a
 * maximum or a sum of int64 with 40 fraction bits, which no order or cut can change.
 *
 * min-p, top-k and top-p each keep a prefix of the ids ordered by (logit descending, id ascending), so the kept set is a threshold and
 * the last kept id among those at the threshold.  It is found exactly, by four histograms of a byte each. */
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
    return (Trunc){ p->top_k.data ? *i32_row(p->top_k, t) : 0, p->top_p.data ? *f32_row(p->top_p, t) : 1, p->min_p.data ? *f32_row(p->min_p, t) : 0 };
}
float head_inv_temp(const Dist *p, int64_t t) { return p->inv_temp.data ? *f32_row(p->inv_temp, t) : 1; }

uint32_t head_key(float f) {
    uint32_t u;
    f += 0.0f; /* -0 -> +0 */
    memcpy(&u, &f, 4);
    return u >> 31 ? ~u : u | 0x80000000u;
}

float head_lp(const HeadRow *r, float l) { return (float)((double)l - (double)r->max - mx_log((double)r->z * (1.0 / (double)HEAD_ONE))); }
float head_ent(const HeadRow *r) { return (float)(mx_log((double)r->z * (1.0 / (double)HEAD_ONE)) - (double)r->u / (double)r->z); }

void head_leaves(HeadRow *r, const Kern *k, const float (*st)[3], int64_t leaves) {
    float m = -INFINITY;
    for (int64_t i = 0; i < leaves; i++) m = st[i][0] > m ? st[i][0] : m;
    CHECK(m > -INFINITY && m < INFINITY, "the largest logit of a row is %g", (double)m);
    r->max = m, r->z = r->u = 0;
    for (int64_t i0 = 0; i0 < leaves; i0 += 64) {
        int n = (int)(leaves - i0 < 64 ? leaves - i0 : 64);
        float d[64], w[64];
        for (int i = 0; i < n; i++) d[i] = st[i0 + i][0] - m;
        k->exp(w, d, n);
        for (int i = 0; i < n; i++) {
            if (w[i] == 0) continue;
            r->z += to_int((double)st[i0 + i][1] * (double)w[i] * (double)HEAD_ONE);
            r->u += to_int(fma((double)d[i], (double)st[i0 + i][1], (double)st[i0 + i][2]) * (double)w[i] * (double)HEAD_ONE);
        }
    }
}

/* ---- the kept set -------------------------------------------------------------------------------------------------------------- */
enum { CHUNK = 2048 }; /* ids whose masses are held at a time, in scratch */
static int64_t *masses(const HeadRow *r, const Kern *k, const float *l, int64_t i, int64_t V, float *work, int64_t *n) {
    int64_t *q = (int64_t *)(void *)work;
    *n = V - i < CHUNK ? V - i : CHUNK;
    k->mass(q, l + i, *n, r->max);
    return q;
}

typedef struct {
    int64_t count[256], mass[256];
} Hist;
typedef struct {
    uint32_t key;
    int64_t ties, mass;
} Prefix;

/* The shortest sorted prefix with >= want ids (by_count) or >= want mass, of the ids with q >= qmin. */
static Prefix prefix_at(const HeadRow *r, const Kern *k, const float *l, int64_t V, bool by_count, int64_t want, float *work) {
    uint32_t prefix = 0;
    int64_t n_above = 0, m_above = 0;
    Hist h;
    for (int shift = 24; shift >= 0; shift -= 8) {
        memset(&h, 0, sizeof h);
        for (int64_t i0 = 0, n; i0 < V; i0 += n) {
            const int64_t *q = masses(r, k, l, i0, V, work, &n);
            for (int64_t i = 0; i < n; i++) {
                uint32_t key = head_key(l[i0 + i]);
                if (q[i] < r->qmin || (shift < 24 && key >> (shift + 8) != prefix)) continue;
                h.count[key >> shift & 255]++, h.mass[key >> shift & 255] += q[i];
            }
        }
        int b = 255, last = -1;
        for (; b >= 0; b--) {
            if (!h.count[b]) continue;
            last = b;
            if ((by_count ? n_above + h.count[b] : m_above + h.mass[b]) >= want) break;
            n_above += h.count[b], m_above += h.mass[b];
        }
        if (b < 0) b = last, n_above -= h.count[b], m_above -= h.mass[b]; /* fewer than wanted: take all */
        prefix = prefix << 8 | (uint32_t)b;
    }
    int64_t c = h.count[prefix & 255], each = h.mass[prefix & 255] / c;
    int64_t ties = by_count ? want - n_above : each ? (want - m_above + each - 1) / each
                                                    : c;
    ties = ties > c ? c : ties < 1 ? 1
                                   : ties;
    return (Prefix){ prefix, ties, m_above + ties * each };
}

void head_keep(HeadRow *r, const Kern *k, const float *l, int64_t V, Trunc t, float *work) {
    r->cut = 1;
    r->qmin = t.min_p > 0 ? to_int((t.min_p < 1 ? (double)t.min_p : 1) * (double)HEAD_ONE) : 0;
    Prefix p = prefix_at(r, k, l, V, true, t.top_k > 0 ? t.top_k : INT64_MAX, work);
    if (t.top_p < 1) {
        i128 part = (i128)to_int((t.top_p > 0 ? (double)t.top_p : 0) * 4294967296.0) * p.mass;
        Prefix p2 = prefix_at(r, k, l, V, false, (int64_t)((part + 4294967295) >> 32), work);
        if (p2.mass < p.mass) p = p2;
    }
    r->key = p.key, r->tie_last = -1, r->z = r->u = 0;
    for (int64_t i0 = 0, n; i0 < V; i0 += n) { /* the last tie that is kept; the kept set's sums */
        const int64_t *q = masses(r, k, l, i0, V, work, &n);
        for (int64_t i = 0; i < n; i++) {
            uint32_t key = head_key(l[i0 + i]);
            if (q[i] < r->qmin || key < r->key || (key == r->key && p.ties <= 0)) continue;
            if (key == r->key) p.ties--, r->tie_last = (int32_t)(i0 + i);
            r->z += q[i];
            if (q[i]) r->u += to_int((double)(l[i0 + i] - r->max) * (double)q[i]);
        }
    }
}

static bool kept(const HeadRow *r, float l, int64_t q, int64_t id) {
    uint32_t key = head_key(l);
    return q >= r->qmin && (key > r->key || (key == r->key && id <= r->tie_last));
}
void head_mask(const HeadRow *r, const Kern *k, float *l, int64_t from, int64_t n, float *work) {
    for (int64_t i0 = 0, m; i0 < n; i0 += m) {
        const int64_t *q = masses(r, k, l, i0, n, work, &m);
        for (int64_t i = 0; i < m; i++)
            if (!kept(r, l[i0 + i], q[i], from + i0 + i)) l[i0 + i] = -INFINITY;
    }
}

/* Inverse CDF in the order of ids: the id at which the running mass of kept ids passes r. */
int32_t head_pick(const HeadRow *r, const Kern *k, const float *l, int64_t V, uint64_t random, float *work) {
    int64_t total = 0, at = 0;
    for (int pass = 0; pass < 2; pass++) { /* their whole mass first: z may come from leaves, rounded elsewhere */
        for (int64_t i0 = 0, n; i0 < V; i0 += n) {
            const int64_t *q = masses(r, k, l, i0, V, work, &n);
            for (int64_t i = 0; i < n; i++) {
                if (r->cut && !kept(r, l[i0 + i], q[i], i0 + i)) continue;
                if (pass == 0) total += q[i];
                else if ((at -= q[i]) < 0) return (int32_t)(i0 + i);
            }
        }
        u128 x = (u128)random * (u128)total;
        at = (int64_t)(x >> 64);
    }
    die("no id drawn: mass %ld", (long)total);
}
