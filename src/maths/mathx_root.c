/* mathx_root.c - atoms, roots and logarithms in normal form.
 *
 * A root of a number is a product of roots of its primes: sqrt(12) = 2 sqrt(2)^0 sqrt(3).  A root of a sum has its
 * content taken out (sqrt(4 + 8 sqrt 2) = 2 sqrt(1 + 2 sqrt 2)), is denested where a + b sqrt(c) allows it, and is an
 * atom of its own otherwise.  Roots of symbols take them as positive: sqrt(x^2) is x. */
#include "maths/mathx.h"

#include <stdlib.h>
#include <string.h>

/* ---- Atoms: found again or made */
int atom_sym(Mx *m, Span name) {
    AtomKind kind = span_eq(name, SPAN("i")) ? A_I : A_SYM;
    for (size_t i = 0; i < m->atoms.n; i++)
        if (m->atoms.at[i].kind == kind && span_eq(m->atoms.at[i].name, name)) return (int)i;
    VEC_PUSH(m->atoms, (Atom){ .kind = kind, .name = name });
    return (int)m->atoms.n - 1;
}

static int atom_prime(Mx *m, mpz_srcptr p) {
    for (size_t i = 0; i < m->atoms.n; i++)
        if (m->atoms.at[i].kind == A_PRIME && !mpz_cmp(mpq_numref(m->atoms.at[i].prime), p)) return (int)i;
    mpq_ptr q = mx_num(m);
    mpq_set_z(q, p);
    VEC_PUSH(m->atoms, (Atom){ .kind = A_PRIME, .prime = q });
    return (int)m->atoms.n - 1;
}

static int atom_base(Mx *m, Poly base) {
    for (size_t i = 0; i < m->atoms.n; i++)
        if (m->atoms.at[i].kind == A_BASE && poly_same(m->atoms.at[i].base, base)) return (int)i;
    VEC_PUSH(m->atoms, (Atom){ .kind = A_BASE, .base = base });
    return (int)m->atoms.n - 1;
}

int atom_fn(Mx *m, Span name, const Frac *arg, int n) {
    for (size_t i = 0; i < m->atoms.n; i++) {
        const Atom a = m->atoms.at[i];
        if (a.kind != A_FN || a.n_args != n || !span_eq(a.name, name)) continue;
        bool same = true;
        for (int k = 0; k < n && same; k++) same = frac_same(m, a.arg[k], arg[k]);
        if (same) return (int)i;
    }
    Atom a = { .kind = A_FN, .name = name, .n_args = n };
    for (int k = 0; k < n; k++) a.arg[k] = arg[k];
    if (span_eq(name, SPAN("sin"))) a.partner = atom_fn(m, SPAN("cos"), arg, n);
    VEC_PUSH(m->atoms, a);
    return (int)m->atoms.n - 1;
}

/* ---- Prime factors: small ones by trial; what is left counts as prime unless it is a perfect power. */
void mx_factor(Mx *m, mpz_srcptr x, void (*each)(void *ctx, mpz_srcptr prime, long power), void *ctx) {
    if (mpz_sizeinbase(x, 2) > 1000 || !mx_spend(m, 20 + (int)mpz_sizeinbase(x, 2) / 4)) {
        m->beyond = true;
        return;
    }
    mpz_t left, p;
    mpz_init_set(left, x);
    mpz_init(p);
    for (unsigned long d = 2; d < 2000 && mpz_cmp_ui(left, 1) > 0; d += 1 + (d > 2)) {
        if (mpz_cmp_ui(left, d * d) < 0) break; /* it is a prime itself */
        long power = 0;
        while (mpz_divisible_ui_p(left, d)) {
            mpz_divexact_ui(left, left, d);
            power++;
        }
        mpz_set_ui(p, d);
        if (power) each(ctx, p, power);
    }
    long power = 1;
    for (unsigned long k = 2;
         mpz_cmp_ui(left, 1) > 0 && k <= mpz_sizeinbase(left, 2) / 10;) /* its base is above 2000 */
        if (mpz_root(p, left, k)) {
            mpz_set(left, p);
            power *= (long)k;
        } else {
            k++;
        }
    if (mpz_cmp_ui(left, 1) > 0) each(ctx, left, power);
    mpz_clear(left);
    mpz_clear(p);
}

typedef struct {
    Mx *m;
    Poly p;
    int32_t num, den;
    Frac log;
    int sign;
} Each;

static void times_root(void *ctx, mpz_srcptr prime, long power) {
    Each *e = ctx;
    if (power > MX_EXPONENT || power * (int64_t)labs(e->num) > MX_EXPONENT) e->m->beyond = true;
    else e->p = poly_mul(e->m, e->p, poly_atom(e->m, atom_prime(e->m, prime), (int32_t)(power * e->num), e->den));
}

/* c^(num/den) for c > 0. */
static Poly root_of_number(Mx *m, mpq_srcptr c, int32_t num, int32_t den) {
    Each e = { .m = m, .p = poly_const(m, mx_int(m, 1)), .num = num, .den = den };
    mx_factor(m, mpq_numref(c), times_root, &e);
    e.num = -num;
    if (!m->beyond) mx_factor(m, mpq_denref(c), times_root, &e);
    return e.p;
}

/* One term: coefficient and atoms each by themselves.  A negative coefficient: -1 under an
 * odd root, i under a square root. */
static Poly root_of_term(Mx *m, const Term *t, int32_t num, int32_t den) {
    mpq_ptr c = mx_num(m);
    mpq_abs(c, t->c);
    Poly p = root_of_number(m, c, num, den);
    if (mpq_sgn(t->c) < 0) {
        if (den % 2) p = num % 2 ? poly_scale(m, p, mx_int(m, -1)) : p;
        else if (den == 2) p = poly_mul(m, p, poly_atom(m, atom_sym(m, SPAN("i")), num, 1));
        else m->beyond = true;
    }
    for (int i = 0; i < t->n && !m->beyond; i++) {
        int64_t a = (int64_t)t->f[i].num * num, b = (int64_t)t->f[i].den * den;
        if (m->atoms.at[t->f[i].atom].kind == A_I || a > MX_EXPONENT || a < -MX_EXPONENT || b > MX_EXPONENT)
            m->beyond = true;
        else p = poly_mul(m, p, poly_atom(m, t->f[i].atom, (int32_t)a, (int32_t)b));
    }
    return p;
}

/* The largest positive rational that divides all coefficients. */
static mpq_ptr content(Mx *m, Poly p) {
    mpq_ptr c = mx_num(m);
    mpz_set(mpq_numref(c), mpq_numref(p.t[0].c));
    mpz_set(mpq_denref(c), mpq_denref(p.t[0].c));
    for (int i = 1; i < p.n; i++) {
        mpz_gcd(mpq_numref(c), mpq_numref(c), mpq_numref(p.t[i].c));
        mpz_lcm(mpq_denref(c), mpq_denref(c), mpq_denref(p.t[i].c));
    }
    mpz_abs(mpq_numref(c), mpq_numref(c));
    mpq_canonicalize(c);
    return c;
}

/* sqrt(a + b) with a rational, b^2 rational, a^2 - b^2 = d^2: sqrt((a+d)/2) + or - sqrt((a-d)/2). */
static bool denest(Mx *m, Poly p, Poly *out) {
    if (p.n != 2) return false;
    int r = p.t[0].n == 0 ? 0 : p.t[1].n == 0 ? 1 : -1;
    if (r < 0) return false;
    Poly b = { 1, &p.t[1 - r] }, b2 = poly_mul(m, b, b);
    mpq_ptr b2c, a = p.t[r].c, d = mx_num(m), x = mx_num(m), y = mx_num(m);
    if (m->beyond || !poly_is_const(b2, &b2c) || !b2c || mpq_sgn(a) < 0 || mpq_sgn(b2c) < 0) return false;
    mpq_mul(d, a, a);
    mpq_sub(d, d, b2c);
    if (mpq_sgn(d) < 0 || !mpz_perfect_square_p(mpq_numref(d)) || !mpz_perfect_square_p(mpq_denref(d))) return false;
    mpz_sqrt(mpq_numref(d), mpq_numref(d));
    mpz_sqrt(mpq_denref(d), mpq_denref(d));
    mpq_add(x, a, d);
    mpq_sub(y, a, d);
    mpq_div_2exp(x, x, 1);
    mpq_div_2exp(y, y, 1);
    if (mpq_sgn(y) <= 0) return false;
    Poly small = poly_scale(m, root_of_number(m, y, 1, 2), mx_int(m, mpq_sgn(b.t[0].c)));
    *out = poly_add(m, root_of_number(m, x, 1, 2), small);
    return !m->beyond;
}

static Poly root_of_poly(Mx *m, Poly p, int32_t num, int32_t den) {
    if (p.n == 1) return root_of_term(m, &p.t[0], num, den);
    mpq_ptr c = content(m, p), inv = mx_num(m);
    mpq_inv(inv, c);
    /* An odd root of -B is - the root of B; the order of the terms decides which of the two is B. */
    bool flip = den % 2 && mpq_sgn(p.t[0].c) < 0;
    if (flip) mpq_neg(inv, inv);
    Poly out = root_of_number(m, c, num, den), base = poly_scale(m, p, inv), inner;
    if (flip && num % 2) out = poly_scale(m, out, mx_int(m, -1));
    if (den == 2 && num > 0 && denest(m, p, &inner)) return poly_pow(m, inner, (unsigned long)num);
    return m->beyond ? out : poly_mul(m, out, poly_atom(m, atom_base(m, base), num, den));
}

Frac frac_root(Mx *m, Frac a, int32_t num, int32_t den) {
    if (m->beyond) return a;
    if (num < 0) return frac_div(m, frac_of(m, poly_const(m, mx_int(m, 1))), frac_root(m, a, -num, den));
    if (den == 1) return (Frac){ poly_pow(m, a.num, (unsigned long)num), poly_pow(m, a.den, (unsigned long)num) };
    if (!a.num.n) return a;
    return frac_div(m, frac_of(m, root_of_poly(m, a.num, num, den)), frac_of(m, root_of_poly(m, a.den, num, den)));
}

/* ---- Logarithms: ln(2^a 3^b x^c) = a ln 2 + b ln 3 + c ln x */
static Poly log_atom(Mx *m, Poly of) {
    Frac arg = frac_of(m, of);
    return poly_atom(m, atom_fn(m, SPAN("ln"), &arg, 1), 1, 1);
}

static void plus_log(void *ctx, mpz_srcptr prime, long power) {
    Each *e = ctx;
    mpq_ptr q = mx_num(e->m);
    mpq_set_z(q, prime);
    Poly l = poly_scale(e->m, log_atom(e->m, poly_const(e->m, q)), mx_int(e->m, power * e->sign));
    e->p = poly_add(e->m, e->p, l);
}

static Poly log_of(Mx *m, Poly a) {
    if (a.n != 1 || mpq_sgn(a.t[0].c) < 0) return log_atom(m, a);
    Each e = { .m = m, .sign = 1 };
    mx_factor(m, mpq_numref(a.t[0].c), plus_log, &e);
    e.sign = -1;
    if (!m->beyond) mx_factor(m, mpq_denref(a.t[0].c), plus_log, &e);
    for (int i = 0; i < a.t[0].n && !m->beyond; i++) {
        Factor f = a.t[0].f[i];
        const Atom at = m->atoms.at[f.atom];
        mpq_ptr q = mx_num(m);
        mpq_set_si(q, f.num, (unsigned long)f.den);
        mpq_canonicalize(q);
        Poly l;
        if (at.kind == A_SYM && span_eq(at.name, SPAN("e"))) l = poly_const(m, mx_int(m, 1));
        else if (at.kind == A_PRIME) l = log_atom(m, poly_const(m, at.prime));
        else if (at.kind == A_BASE) l = log_atom(m, at.base);
        else l = log_atom(m, poly_atom(m, f.atom, 1, 1));
        e.p = poly_add(m, e.p, poly_scale(m, l, q));
    }
    return e.p;
}

Frac frac_log(Mx *m, Frac a) {
    if (!a.num.n || m->beyond) {
        m->beyond = true;
        return a;
    }
    return frac_of(m, poly_add(m, log_of(m, a.num), poly_scale(m, log_of(m, a.den), mx_int(m, -1))));
}
