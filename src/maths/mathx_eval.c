/* mathx_eval.c - a tree's value: a fraction of polynomials.  Functions have their exact values where those are
 * algebraic (sin(pi/6), log_2 8, 5!), and are atoms of their argument elsewhere. */
#include "maths/mathx.h"

#include <string.h>

static Frac one(Mx *m) { return frac_of(m, poly_const(m, mx_int(m, 1))); }

static Frac of_atom(Mx *m, int atom) { return frac_of(m, poly_atom(m, atom, 1, 1)); }

static Frac of_fn(Mx *m, Span name, const Frac *arg, int n) { return of_atom(m, atom_fn(m, name, arg, n)); }

static Frac of_num(Mx *m, mpq_srcptr q) { return frac_of(m, poly_const(m, q)); }

/* A rational as int32 fraction, for exponents. */
static bool small(mpq_srcptr q, int32_t *num, int32_t *den) {
    if (mpz_cmpabs_ui(mpq_numref(q), MX_EXPONENT) > 0 || mpz_cmpabs_ui(mpq_denref(q), MX_EXPONENT) > 0) return false;
    *num = (int32_t)mpz_get_si(mpq_numref(q));
    *den = (int32_t)mpz_get_si(mpq_denref(q));
    return true;
}

static bool small_int(Mx *m, Frac a, long *out) {
    mpq_ptr q = mx_num(m);
    int32_t num, den;
    if (!frac_const(m, a, q) || !small(q, &num, &den) || den != 1) return false;
    *out = num;
    return true;
}

/* ---- Powers */
typedef struct {
    Mx *m;
    Frac out, unit; /* unit: the monomial in the exponent */
    mpq_srcptr c;   /* and its coefficient */
    int sign;
} Power;

/* times base^(c * times * unit) */
static void times_power(Power *p, Frac base, int32_t times_num, int32_t times_den) {
    int32_t num, den;
    if (p->m->beyond || !small(p->c, &num, &den) || (int64_t)num * times_num > MX_EXPONENT
        || (int64_t)num * times_num < -MX_EXPONENT || (int64_t)den * times_den > MX_EXPONENT) {
        p->m->beyond = true;
        return;
    }
    Frac arg[2] = { base, p->unit };
    Poly raised = poly_atom(p->m, atom_fn(p->m, SPAN("^"), arg, 2), num * times_num, den * times_den);
    p->out = frac_mul(p->m, p->out, frac_of(p->m, raised));
}

static void prime_power(void *ctx, mpz_srcptr prime, long power) {
    Power *p = ctx;
    mpq_ptr q = mx_num(p->m);
    mpq_set_z(q, prime);
    if (power > MX_EXPONENT) p->m->beyond = true;
    else times_power(p, of_num(p->m, q), (int32_t)power * p->sign, 1);
}

/* base^(c * monomial): of a product, each factor by itself, so that 4^n is (2^n)^2. */
static void power_of(Power *p, Frac base) {
    Mx *m = p->m;
    mpq_ptr den;
    if (base.num.n != 1 || !poly_is_const(base.den, &den) || !den || mpq_sgn(base.num.t[0].c) < 0) {
        times_power(p, base, 1, 1);
        return;
    }
    mpq_ptr c = mx_num(m);
    mpq_div(c, base.num.t[0].c, den);
    p->sign = 1;
    mx_factor(m, mpq_numref(c), prime_power, p);
    p->sign = -1;
    mx_factor(m, mpq_denref(c), prime_power, p);
    for (int i = 0; i < base.num.t[0].n && !m->beyond; i++) {
        Factor f = base.num.t[0].f[i];
        times_power(p, of_atom(m, f.atom), f.num, f.den);
    }
}

static Frac power(Mx *m, Frac base, Frac exponent) {
    mpq_ptr q = mx_num(m), den;
    int32_t num, d;
    if (frac_const(m, exponent, q)) {
        bool fits = small(q, &num, &d);
        mpq_ptr c = mx_num(m);
        if (!fits && frac_const(m, base, c) && mpz_cmpabs_ui(mpq_numref(c), 1) <= 0 && mpz_cmp_ui(mpq_denref(c), 1) == 0
            && mpz_cmp_ui(mpq_denref(q), 1) == 0 && mpq_sgn(q) > 0) { /* 0, 1, -1 to whatever whole power */
            num = 2 + (mpz_odd_p(mpq_numref(q)) != 0);
            d = 1;
            fits = true;
        }
        if (fits && num <= 0 && !base.num.n) fits = false; /* 0^0, 1/0 */
        if (fits) return frac_root(m, base, num, d);
        m->beyond = true;
        return base;
    }
    if (m->beyond || !base.num.n) {
        m->beyond = true;
        return base;
    }
    Power p = { .m = m, .out = one(m) };
    if (!poly_is_const(exponent.den, &den)) {
        p.unit = exponent;
        p.c = mx_int(m, 1);
        power_of(&p, base);
        return p.out;
    }
    for (int i = 0; i < exponent.num.n && !m->beyond; i++) {
        const Term *t = &exponent.num.t[i];
        mpq_ptr c = mx_num(m);
        mpq_div(c, t->c, den);
        if (t->n == 0) {
            p.out = frac_mul(m, p.out, power(m, base, of_num(m, c)));
            continue;
        }
        Term unit = { mx_int(m, 1), t->n, t->f };
        p.unit = frac_of(m, (Poly){ 1, mem_copy(&m->mem, &unit, sizeof unit) });
        p.c = c;
        power_of(&p, base);
    }
    return p.out;
}

/* ---- Trigonometry */
/* sin of k * 15 degrees = (sqrt(root[0]) + sign sqrt(root[1])) / den */
static const struct {
    int root[2], sign, den;
} sines[] = {
    { { 0, 0 }, 1, 1 }, { { 6, 2 }, -1, 4 }, { { 1, 0 }, 1, 2 }, { { 2, 0 }, 1, 2 },
    { { 3, 0 }, 1, 2 }, { { 6, 2 }, 1, 4 },  { { 1, 0 }, 1, 1 },
};

static Frac sine_at(Mx *m, long k) {
    k = (k % 24 + 24) % 24;
    bool minus = k >= 12;
    k %= 12;
    if (k > 6) k = 12 - k;
    Frac a = frac_root(m, of_num(m, mx_int(m, sines[k].root[0])), 1, 2);
    Frac b = frac_root(m, of_num(m, mx_int(m, sines[k].root[1])), 1, 2);
    if (sines[k].sign < 0) b = frac_neg(m, b);
    Frac s = frac_div(m, frac_add(m, a, b), of_num(m, mx_int(m, sines[k].den)));
    return minus ? frac_neg(m, s) : s;
}

/* a = k pi / 12? */
static bool twelfths_of_pi(Mx *m, Frac a, long *k) {
    Frac q = frac_div(m, frac_mul(m, a, of_num(m, mx_int(m, 12))), of_atom(m, atom_sym(m, SPAN("pi"))));
    return small_int(m, q, k);
}

static Frac sine(Mx *m, Frac a, bool cosine) {
    long k;
    if (twelfths_of_pi(m, a, &k)) return sine_at(m, cosine ? k + 6 : k);
    bool minus = a.num.n && (mpq_sgn(a.num.t[0].c) < 0) != (mpq_sgn(a.den.t[0].c) < 0);
    if (minus) a = frac_neg(m, a);
    Frac s = of_fn(m, cosine ? SPAN("cos") : SPAN("sin"), &a, 1);
    return minus && !cosine ? frac_neg(m, s) : s;
}

static Frac f_sin(Mx *m, const Frac *a, int n) { return (void)n, sine(m, a[0], false); }
static Frac f_cos(Mx *m, const Frac *a, int n) { return (void)n, sine(m, a[0], true); }
static Frac f_tan(Mx *m, const Frac *a, int n) { return frac_div(m, f_sin(m, a, n), f_cos(m, a, n)); }
static Frac f_cot(Mx *m, const Frac *a, int n) { return frac_div(m, f_cos(m, a, n), f_sin(m, a, n)); }
static Frac f_sec(Mx *m, const Frac *a, int n) { return frac_div(m, one(m), f_cos(m, a, n)); }
static Frac f_csc(Mx *m, const Frac *a, int n) { return frac_div(m, one(m), f_sin(m, a, n)); }

/* ---- Other functions */
static Frac f_ln(Mx *m, const Frac *a, int n) { return (void)n, frac_log(m, a[0]); }
static Frac f_log(Mx *m, const Frac *a, int n) {
    return frac_div(m, frac_log(m, a[0]), frac_log(m, n > 1 ? a[1] : of_num(m, mx_int(m, 10))));
}
static Frac f_exp(Mx *m, const Frac *a, int n) { return (void)n, power(m, of_atom(m, atom_sym(m, SPAN("e"))), a[0]); }

static Frac f_abs(Mx *m, const Frac *a, int n) {
    mpq_ptr q = mx_num(m);
    if (frac_const(m, a[0], q)) {
        mpq_abs(q, q);
        return of_num(m, q);
    }
    Frac x = a[0];
    if (x.num.n && mpq_sgn(x.num.t[0].c) < 0) x = frac_neg(m, x);
    return of_fn(m, SPAN("abs"), &x, n);
}

static Frac rounded(Mx *m, Span name, const Frac *a, void (*div)(mpz_ptr, mpz_srcptr, mpz_srcptr)) {
    mpq_ptr q = mx_num(m), r = mx_num(m);
    if (!frac_const(m, a[0], q)) return of_fn(m, name, a, 1);
    div(mpq_numref(r), mpq_numref(q), mpq_denref(q));
    return of_num(m, r);
}
static Frac f_floor(Mx *m, const Frac *a, int n) { return (void)n, rounded(m, SPAN("floor"), a, mpz_fdiv_q); }
static Frac f_ceil(Mx *m, const Frac *a, int n) { return (void)n, rounded(m, SPAN("ceil"), a, mpz_cdiv_q); }

static Frac f_factorial(Mx *m, const Frac *a, int n) {
    long k;
    if (!small_int(m, a[0], &k) || k < 0) return of_fn(m, SPAN("!"), a, n);
    if (k > 1000) {
        m->beyond = true;
        return a[0];
    }
    mpq_ptr q = mx_num(m);
    mpz_fac_ui(mpq_numref(q), (unsigned long)k);
    return of_num(m, q);
}

static Frac f_binom(Mx *m, const Frac *a, int n) {
    long x, y;
    if (n != 2 || !small_int(m, a[0], &x) || !small_int(m, a[1], &y) || x < 0 || y < 0)
        return of_fn(m, SPAN("binom"), a, n);
    if (x > 1000) {
        m->beyond = true;
        return a[0];
    }
    mpq_ptr q = mx_num(m);
    mpz_bin_uiui(mpq_numref(q), (unsigned long)x, (unsigned long)y);
    return of_num(m, q);
}

/* clang-format off */
static const struct { const char *name; Frac (*value)(Mx *m, const Frac *arg, int n); } functions[] = {
    { "sin", f_sin }, { "cos", f_cos }, { "tan", f_tan }, { "cot", f_cot }, { "sec", f_sec }, { "csc", f_csc },
    { "ln", f_ln }, { "log", f_log }, { "lg", f_log }, { "exp", f_exp },
    { "abs", f_abs }, { "floor", f_floor }, { "ceil", f_ceil }, { "!", f_factorial }, { "binom", f_binom },
};
/* clang-format on */

static Frac function(Mx *m, const Node *n) {
    Frac arg[2] = { 0 };
    if (n->n < 1 || n->n > 2) m->beyond = true;
    for (int i = 0; i < n->n && !m->beyond; i++) arg[i] = mx_eval(m, n->kid[i]);
    if (m->beyond) return one(m);
    for (size_t i = 0; i < COUNT(functions); i++)
        if (span_eq(n->name, span_of(functions[i].name))) return functions[i].value(m, arg, n->n);
    return of_fn(m, n->name, arg, n->n);
}

bool mx_is_expr(const Node *n) { return n->kind <= N_SIGNED; }

bool mx_has_pm(const Node *n) {
    if (n->kind == N_PM || n->kind == N_MP) return true;
    for (int i = 0; i < n->n && n->kind != N_SIGNED; i++)
        if (mx_has_pm(n->kid[i])) return true;
    return false;
}

Frac mx_eval(Mx *m, const Node *n) {
    if (m->beyond || !mx_is_expr(n) || !mx_spend(m, 1)) {
        m->beyond = true;
        return (Frac){ 0 };
    }
    switch (n->kind) {
    case N_NUM: return of_num(m, n->num);
    case N_SYM: return of_atom(m, atom_sym(m, n->name));
    case N_FUNC: return function(m, n);
    case N_NEG: return frac_neg(m, mx_eval(m, n->kid[0]));
    case N_BASE: return mx_eval(m, n->kid[0]);
    case N_PERCENT: return frac_div(m, mx_eval(m, n->kid[0]), of_num(m, mx_int(m, 100)));
    case N_SIGNED: {
        int before = m->sign;
        m->sign = n->op;
        Frac r = mx_eval(m, n->kid[0]);
        m->sign = before;
        return r;
    }
    default: break;
    }
    Frac a = mx_eval(m, n->kid[0]), b = mx_eval(m, n->kid[1]);
    if (m->beyond) return a;
    switch (n->kind) {
    case N_ADD: return frac_add(m, a, b);
    case N_SUB: return frac_add(m, a, frac_neg(m, b));
    case N_PM: return frac_add(m, a, m->sign < 0 ? frac_neg(m, b) : b);
    case N_MP: return frac_add(m, a, m->sign < 0 ? b : frac_neg(m, b));
    case N_MUL: return frac_mul(m, a, b);
    case N_DIV: return frac_div(m, a, b);
    default: return power(m, a, b);
    }
}
