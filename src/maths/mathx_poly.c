/* mathx_poly.c - polynomials with rational coefficients and rational exponents in atoms: see mathx.h.
 *
 * The rules that make the form a normal one are applied where terms are multiplied (term_fix): whole powers of a prime
 * go into the coefficient, i^2 = -1, a root's whole powers are its base again, sin^2 = 1 - cos^2. */
#include "maths/mathx.h"

#include <string.h>

/* ---- where GMP takes its memory: it would end the program by a signal where there is none */
static void *take(size_t n) {
    size_t cap = 0;
    return vec_grow(NULL, &cap, n, 1);
}
static void *take_more(void *p, size_t was, size_t n) {
    size_t cap = was < n ? 0 : was;
    return vec_grow(p, &cap, n, 1);
}
static void give(void *p, size_t n) {
    (void)n;
    vec_free(p);
}
/* Before main: GMP wants to be told before its first number, and numbers are made on any thread. */
__attribute__((constructor)) static void tell_gmp(void) { mp_set_memory_functions(take, take_more, give); }

void mx_free(Mx *m) {
    for (size_t i = 0; i < m->nums.n; i++) mpq_clear(m->nums.at[i]);
    vec_free(m->nums.at);
    vec_free(m->atoms.at);
    mem_free(&m->mem);
}

mpq_ptr mx_num(Mx *m) {
    mpq_ptr q = MEM_NEW(&m->mem, __mpq_struct);
    mpq_init(q);
    VEC_PUSH(m->nums, q);
    return q;
}

mpq_ptr mx_int(Mx *m, long x) {
    mpq_ptr q = mx_num(m);
    mpq_set_si(q, x, 1);
    return q;
}

bool mx_spend(Mx *m, int work) {
    m->work += work;
    if (m->work > MX_WORK) m->beyond = true;
    return !m->beyond;
}

static bool too_big(mpq_srcptr q) {
    return mpz_sizeinbase(mpq_numref(q), 2) > MX_BITS || mpz_sizeinbase(mpq_denref(q), 2) > MX_BITS;
}

/* ---- Terms */
static int factor_order(const Factor *a, const Factor *b) {
    if (a->atom != b->atom) return a->atom < b->atom ? -1 : 1;
    int64_t x = (int64_t)a->num * b->den, y = (int64_t)b->num * a->den;
    return x < y ? -1 : x > y;
}

int term_order(const Term *a, const Term *b) {
    for (int i = 0; i < a->n && i < b->n; i++) {
        int o = factor_order(&a->f[i], &b->f[i]);
        if (o) return o;
    }
    return a->n - b->n;
}

static int64_t gcd64(int64_t a, int64_t b) {
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a < 0 ? -a : a;
}

static bool factor_set(Mx *m, Factor *f, int64_t num, int64_t den) {
    int64_t g = gcd64(num, den);
    num /= g;
    den /= g;
    if (num > MX_EXPONENT || num < -MX_EXPONENT || den > MX_EXPONENT) {
        m->beyond = true;
        num = 0, den = 1;
    }
    f->num = (int32_t)num;
    f->den = (int32_t)den;
    return num != 0;
}

/* c *= p^k */
static void scale_power(Mx *m, mpq_ptr c, mpq_srcptr p, long k) {
    unsigned long e = (unsigned long)(k < 0 ? -k : k);
    if (mpz_sizeinbase(mpq_numref(p), 2) * e > MX_BITS) {
        m->beyond = true;
        return;
    }
    mpz_t x;
    mpz_init(x);
    mpz_pow_ui(x, mpq_numref(p), e);
    mpq_t q;
    mpq_init(q);
    mpz_set(mpq_numref(q), x);
    if (k < 0) mpq_div(c, c, q);
    else mpq_mul(c, c, q);
    mpq_clear(q);
    mpz_clear(x);
}

static long floor_div(long a, long b) { return a >= 0 ? a / b : -((-a + b - 1) / b); }

static bool is_sin(const Atom *a) { return a->kind == A_FN && span_eq(a->name, SPAN("sin")); }

/* Brings one term into the form; what does not fit one term comes back as `times`, to be multiplied with it. */
static void term_fix(Mx *m, Term *t, Poly *times) {
    times->n = 0;
    int left = 0;
    for (int i = 0; i < t->n; i++) {
        Factor f = t->f[i];
        const Atom a = m->atoms.at[f.atom];
        long whole = floor_div(f.num, f.den);
        bool keep = true;
        if (a.kind == A_PRIME && whole) {
            scale_power(m, t->c, a.prime, whole);
            keep = factor_set(m, &f, f.num - (int64_t)whole * f.den, f.den);
        } else if (a.kind == A_I && f.den == 1 && (f.num < 0 || f.num > 1)) {
            int r = (int)(((f.num % 4) + 4) % 4);
            if (r >= 2) mpq_neg(t->c, t->c);
            f.num = r & 1;
            keep = f.num != 0;
        } else if (!times->n && ((a.kind == A_BASE && whole > 0) || (is_sin(&a) && whole >= 2))) {
            Poly base = a.base;
            long power = whole;
            if (is_sin(&a)) {
                Poly square = poly_atom(m, a.partner, 2, 1);
                base = poly_add(m, poly_const(m, mx_int(m, 1)), poly_scale(m, square, mx_int(m, -1)));
                power = whole / 2;
                whole = power * 2;
            }
            *times = poly_pow(m, base, (unsigned long)power);
            keep = factor_set(m, &f, f.num - (int64_t)whole * f.den, f.den);
        }
        if (keep) t->f[left++] = f;
    }
    t->n = left;
    if (too_big(t->c)) m->beyond = true;
}

static Term term_times(Mx *m, const Term *a, const Term *b) {
    Term t = { mx_num(m), 0, MEM_ARRAY(&m->mem, Factor, (size_t)(a->n + b->n)) };
    /* What a product costs grows with its digits: a few of the largest use up what there is. */
    size_t limbs_a = mpz_size(mpq_numref(a->c)) + mpz_size(mpq_denref(a->c));
    size_t limbs_b = mpz_size(mpq_numref(b->c)) + mpz_size(mpq_denref(b->c));
    if (mx_spend(m, (int)(limbs_a * limbs_b / 64))) mpq_mul(t.c, a->c, b->c);
    for (int i = 0, j = 0; i < a->n || j < b->n;) {
        if (j == b->n || (i < a->n && a->f[i].atom < b->f[j].atom)) t.f[t.n++] = a->f[i++];
        else if (i == a->n || b->f[j].atom < a->f[i].atom) t.f[t.n++] = b->f[j++];
        else {
            const Factor *x = &a->f[i++], *y = &b->f[j++];
            Factor f = { .atom = x->atom };
            if (factor_set(m, &f, (int64_t)x->num * y->den + (int64_t)y->num * x->den, (int64_t)x->den * y->den))
                t.f[t.n++] = f;
        }
    }
    return t;
}

/* ---- Polynomials */
Poly poly_const(Mx *m, mpq_srcptr c) {
    Poly p = { 0 };
    if (!mpq_sgn(c)) return p;
    p.t = MEM_NEW(&m->mem, Term);
    p.t[0].c = mx_num(m);
    mpq_set(p.t[0].c, c);
    p.n = 1;
    return p;
}

Poly poly_atom(Mx *m, int atom, int32_t num, int32_t den) {
    Poly p = poly_const(m, mx_int(m, 1));
    p.t[0].f = MEM_NEW(&m->mem, Factor);
    p.t[0].f[0].atom = atom;
    p.t[0].n = factor_set(m, p.t[0].f, num, den);
    Poly times;
    term_fix(m, p.t, &times);
    return times.n ? poly_mul(m, p, times) : p;
}

Poly poly_add(Mx *m, Poly a, Poly b) {
    if (!a.n) return b;
    if (!b.n) return a;
    Poly p = { 0, MEM_ARRAY(&m->mem, Term, (size_t)(a.n + b.n)) };
    if (!mx_spend(m, a.n + b.n)) return (Poly){ 0 };
    for (int i = 0, j = 0; i < a.n || j < b.n;) {
        int o = i == a.n ? 1 : j == b.n ? -1 : term_order(&a.t[i], &b.t[j]);
        if (o < 0) p.t[p.n++] = a.t[i++];
        else if (o > 0) p.t[p.n++] = b.t[j++];
        else {
            Term t = a.t[i];
            t.c = mx_num(m);
            mpq_add(t.c, a.t[i++].c, b.t[j++].c);
            if (mpq_sgn(t.c)) p.t[p.n++] = t;
        }
    }
    if (p.n > MX_TERMS) m->beyond = true;
    return p;
}

Poly poly_scale(Mx *m, Poly a, mpq_srcptr c) { return poly_mul(m, a, poly_const(m, c)); }

/* Adds up pieces in halves, so that n of them cost n log n. */
static Poly sum(Mx *m, Poly *piece, int n) {
    if (n == 0) return (Poly){ 0 };
    if (n == 1) return piece[0];
    Poly left = sum(m, piece, n / 2);
    return poly_add(m, left, sum(m, piece + n / 2, n - n / 2));
}

Poly poly_mul(Mx *m, Poly a, Poly b) {
    if (!a.n || !b.n || m->beyond) return (Poly){ 0 };
    if ((int64_t)a.n * b.n > MX_WORK || !mx_spend(m, a.n * b.n) || m->depth > MX_DEPTH) {
        m->beyond = true;
        return (Poly){ 0 };
    }
    m->depth++;
    Poly *piece = MEM_ARRAY(&m->mem, Poly, (size_t)a.n * (size_t)b.n);
    int n = 0;
    for (int i = 0; i < a.n; i++)
        for (int j = 0; j < b.n && !m->beyond; j++) {
            Term *t = MEM_NEW(&m->mem, Term);
            *t = term_times(m, &a.t[i], &b.t[j]);
            Poly times;
            term_fix(m, t, &times);
            piece[n] = (Poly){ 1, t };
            if (times.n) piece[n] = poly_mul(m, piece[n], times);
            n++;
        }
    m->depth--;
    return m->beyond ? (Poly){ 0 } : sum(m, piece, n);
}

Poly poly_pow(Mx *m, Poly a, unsigned long e) {
    Poly p = poly_const(m, mx_int(m, 1));
    for (; e && !m->beyond; e >>= 1) {
        if (e & 1) p = poly_mul(m, p, a);
        if (e > 1) a = poly_mul(m, a, a);
    }
    return p;
}

bool poly_same(Poly a, Poly b) {
    if (a.n != b.n) return false;
    for (int i = 0; i < a.n; i++)
        if (term_order(&a.t[i], &b.t[i]) || !mpq_equal(a.t[i].c, b.t[i].c)) return false;
    return true;
}

bool poly_is_const(Poly a, mpq_ptr *c) {
    *c = a.n ? a.t[0].c : NULL;
    return a.n == 0 || (a.n == 1 && a.t[0].n == 0);
}

/* ---- Fractions */
Frac frac_of(Mx *m, Poly p) { return (Frac){ p, poly_const(m, mx_int(m, 1)) }; }

Frac frac_add(Mx *m, Frac a, Frac b) {
    if (poly_same(a.den, b.den)) return (Frac){ poly_add(m, a.num, b.num), a.den };
    return (Frac){ poly_add(m, poly_mul(m, a.num, b.den), poly_mul(m, b.num, a.den)), poly_mul(m, a.den, b.den) };
}

Frac frac_mul(Mx *m, Frac a, Frac b) { return (Frac){ poly_mul(m, a.num, b.num), poly_mul(m, a.den, b.den) }; }

Frac frac_neg(Mx *m, Frac a) { return (Frac){ poly_scale(m, a.num, mx_int(m, -1)), a.den }; }

/* 1 / a.  One term is turned over at once; roots of sums in it come to stand in the numerator. */
static Frac inverse(Mx *m, Poly a) {
    Frac r = frac_of(m, poly_const(m, mx_int(m, 1)));
    if (a.n != 1) return (Frac){ r.num, a };
    mpq_ptr c = mx_num(m);
    mpq_inv(c, a.t[0].c);
    r.num = poly_const(m, c);
    for (int i = 0; i < a.t[0].n; i++) {
        Factor f = a.t[0].f[i];
        bool sum_root = m->atoms.at[f.atom].kind == A_BASE;
        if (is_sin(&m->atoms.at[f.atom]) && f.num > 0) { /* sin^-1 times sin^2 would not find together */
            r.den = poly_mul(m, r.den, poly_atom(m, f.atom, f.num, f.den));
            continue;
        }
        r.num = poly_mul(m, r.num, poly_atom(m, f.atom, sum_root ? f.den - f.num % f.den : -f.num, f.den));
        if (sum_root) r.den = poly_mul(m, r.den, m->atoms.at[f.atom].base);
    }
    return r;
}

Frac frac_div(Mx *m, Frac a, Frac b) {
    if (!b.num.n || m->beyond) {
        m->beyond = true;
        return a;
    }
    return frac_mul(m, frac_mul(m, a, frac_of(m, b.den)), inverse(m, b.num));
}

bool frac_same(Mx *m, Frac a, Frac b) {
    if (m->beyond) return false;
    Poly l = poly_mul(m, a.num, b.den), r = poly_mul(m, b.num, a.den);
    return !m->beyond && poly_same(l, r);
}

bool frac_const(Mx *m, Frac a, mpq_ptr out) {
    mpq_ptr n, d;
    if (m->beyond || !poly_is_const(a.num, &n) || !poly_is_const(a.den, &d) || !d) return false;
    if (n) mpq_div(out, n, d);
    else mpq_set_ui(out, 0, 1);
    return true;
}
