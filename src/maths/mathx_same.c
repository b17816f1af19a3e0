/* mathx_same.c - are two answers the same?  Values by cross-multiplication; tuples in order, sets and lists in any; an
 * equation or inequality up to a factor, or solved, by what it says of its letter; the rest as text. */
#include "maths/mathx.h"

#include <string.h>

static bool same(Mx *m, const Node *a, const Node *b);

/* ---- Text: letters and digits count, their case and what stands between them does not. */
static size_t bare_text(char *out, size_t cap, Span s, bool fold) {
    static const char *const wraps[] = { "\\text", "\\mathrm", "\\textbf",       "\\mbox", "\\textit",
                                         "\\left", "\\right",  "\\displaystyle", "\\quad", "\\," };
    size_t n = 0;
    for (size_t i = 0; i < s.n && n < cap;) {
        size_t skip = 0;
        for (size_t k = 0; k < COUNT(wraps) && !skip; k++)
            if (span_starts(span_from(s, i), span_of(wraps[k]))) skip = strlen(wraps[k]);
        char c = s.at[i];
        if (skip) i += skip;
        else if (strchr(" \t\n\r{}$~\"'`;!?*", c)
                 || (strchr(".,:", c) && (i + 1 == s.n || strchr(" \n}$", s.at[i + 1]))))
            i++;
        else {
            out[n++] = fold && c >= 'A' && c <= 'Z' ? c + 32 : c;
            i++;
        }
    }
    return n;
}

static bool text_same(Span a, Span b, bool fold) {
    char x[MX_BYTES], y[MX_BYTES];
    if (a.n > MX_BYTES || b.n > MX_BYTES) return span_eq(a, b);
    size_t n = bare_text(x, sizeof x, a, fold), k = bare_text(y, sizeof y, b, fold);
    return n && n == k && !memcmp(x, y, n);
}

/* ---- Tidying: +- makes two values, "x = 1, 2" and "x = 1, x = 2" are the values of x */
static bool may_drop(const Node *left) {
    if (left->kind == N_SYM || left->kind == N_TEXT || left->kind == N_FUNC) return true;
    if (left->kind == N_MUL) return may_drop(left->kid[0]) && left->kid[1]->kind != N_NUM; /* f(x) */
    if (left->kind != N_TUPLE) return false;
    for (int i = 0; i < left->n; i++)
        if (left->kid[i]->kind != N_SYM) return false;
    return true;
}

static bool all_ops(const Node *r, const char *among) {
    for (int i = 0; i + 1 < r->n; i++)
        if (!strchr(among, r->ops[i])) return false;
    return true;
}

/* What a solved equation says: its last side; NULL if it is not solved. */
static const Node *solved(const Node *n) {
    if (n->kind != N_REL || !all_ops(n, "=~e") || !may_drop(n->kid[0])) return NULL;
    return n->kid[n->n - 1];
}

static const Node *signed_node(Mx *m, const Node *n, int sign) {
    Node *x = mx_node(m, N_SIGNED, 1);
    x->kid[0] = (Node *)n;
    x->op = sign;
    return x;
}

static void add_tidy(Mx *m, Node *to, const Node *n, int cap) {
    if (to->n + 2 > cap) {
        m->beyond = true;
        return;
    }
    if (n->kind == N_REL && mx_has_pm(n) && solved(n)) n = solved(n);
    if (mx_is_expr(n) && mx_has_pm(n)) {
        to->kid[to->n++] = (Node *)signed_node(m, n, 1);
        to->kid[to->n++] = (Node *)signed_node(m, n, -1);
    } else {
        to->kid[to->n++] = (Node *)n;
    }
}

static const Node *tidy(Mx *m, const Node *n) {
    bool several = n->kind == N_LIST || n->kind == N_SET;
    if (!several && !mx_has_pm(n)) return n;
    if (!several && !mx_is_expr(n) && !(n->kind == N_REL && solved(n))) return n;
    int cap = several ? 2 * n->n + 2 : 2;
    Node *x = mx_node(m, several ? n->kind : N_LIST, cap);
    x->n = 0;
    if (!several) add_tidy(m, x, n, cap);
    for (int i = 0; several && i < n->n; i++) add_tidy(m, x, n->kid[i], cap);
    /* A letter said once is said for all; said each time it must be the same one. */
    if (n->kind != N_LIST || !x->n || !solved(x->kid[0])) return x;
    bool first_only = true, each = true;
    for (int i = 1; i < x->n; i++) {
        bool rel = x->kid[i]->kind == N_REL;
        first_only &= !rel;
        each &= rel && solved(x->kid[i]) && x->kid[i]->kid[0]->kind == N_SYM && x->kid[0]->kid[0]->kind == N_SYM
                && span_eq(x->kid[i]->kid[0]->name, x->kid[0]->kid[0]->name);
    }
    for (int i = 0; (first_only || each) && i < x->n; i++)
        if (solved(x->kid[i])) x->kid[i] = (Node *)solved(x->kid[i]);
    return x;
}

/* ---- Collections */
static bool ordered(Mx *m, const Node *a, const Node *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (!same(m, a->kid[i], b->kid[i])) return false;
    return true;
}

/* Each of a is in b; strict: each of b is used once. */
static bool contained(Mx *m, const Node *a, const Node *b, bool strict) {
    bool *used = MEM_ARRAY(&m->mem, bool, (size_t)b->n + 1);
    for (int i = 0; i < a->n; i++) {
        int k = 0;
        while (k < b->n && ((strict && used[k]) || !same(m, a->kid[i], b->kid[k]))) k++;
        if (k == b->n) return false;
        used[k] = true;
    }
    return true;
}

static bool any_order(Mx *m, const Node *a, const Node *b) {
    bool sets = a->kind == N_SET || b->kind == N_SET;
    if (!sets && a->n != b->n) return false;
    return contained(m, a, b, !sets) && (!sets || contained(m, b, a, false));
}

static bool tuples(Mx *m, const Node *a, const Node *b) {
    if (a->n == 2 && b->n == 2 && (a->open != b->open || a->close != b->close)) return false;
    return ordered(m, a, b);
}

/* ---- Relations */
static Frac difference(Mx *m, const Node *r) {
    return frac_add(m, mx_eval(m, r->kid[0]), frac_neg(m, mx_eval(m, r->kid[1])));
}

/* a = k b with a number k; its sign, or 0. */
static int proportion(Mx *m, Poly a, Poly b) {
    if (m->beyond || a.n != b.n || !a.n) return 0;
    mpq_ptr k = mx_num(m), q = mx_num(m);
    mpq_div(k, a.t[0].c, b.t[0].c);
    for (int i = 0; i < a.n; i++) {
        mpq_div(q, a.t[i].c, b.t[i].c);
        if (term_order(&a.t[i], &b.t[i]) || !mpq_equal(k, q)) return 0;
    }
    return mpq_sgn(k);
}

/* Every > turned into a <. */
static const Node *ascending(Mx *m, const Node *r) {
    if (!all_ops(r, ">g")) return r;
    Node *x = mx_node(m, N_REL, r->n);
    char *ops = mem_push(&m->mem, (size_t)r->n);
    for (int i = 0; i < r->n; i++) x->kid[i] = r->kid[r->n - 1 - i];
    for (int i = 0; i + 1 < r->n; i++) ops[i] = r->ops[r->n - 2 - i] == '>' ? '<' : 'l';
    x->ops = ops;
    return x;
}

/* 1 < x <= 2 as (1,2], x > 2 as (2,oo); NULL if it is not solved for a letter. */
static const Node *interval(Mx *m, const Node *r) {
    if (r->kind != N_REL) return NULL;
    r = ascending(m, r);
    int at = r->n == 3 ? 1 : r->kid[0]->kind == N_SYM ? 0 : 1;
    if (r->n > 3 || !all_ops(r, "<l") || r->kid[at]->kind != N_SYM) return NULL;
    Node *oo = mx_node(m, N_SYM, 0), *minus = mx_node(m, N_NEG, 1), *x = mx_node(m, N_TUPLE, 2);
    oo->name = SPAN("oo");
    minus->kid[0] = oo;
    x->kid[0] = at ? r->kid[0] : minus;
    x->kid[1] = at + 1 < r->n ? r->kid[at + 1] : oo;
    x->open = at && r->ops[0] == 'l' ? '[' : '(';
    x->close = at + 1 < r->n && r->ops[at] == 'l' ? ']' : ')';
    if (x->kid[0]->kind == N_SYM && x->kid[1]->kind == N_SYM) return NULL; /* x < y */
    return x;
}

static bool relations(Mx *m, const Node *a, const Node *b) {
    a = ascending(m, a);
    b = ascending(m, b);
    if (a->n != b->n) {
        const Node *x = solved(a), *y = solved(b);
        return x && y && same(m, a->kid[0], b->kid[0]) && same(m, x, y);
    }
    if (strncmp(a->ops, b->ops, (size_t)a->n - 1)) return false;
    if (ordered(m, a, b)) return true;
    char op = a->ops[0];
    if (a->n != 2 || op == 'e' || m->beyond) return false;
    if (op != '<' && op != 'l' && same(m, a->kid[0], b->kid[1]) && same(m, a->kid[1], b->kid[0])) return true;
    for (int i = 0; i < 2; i++)
        if (!mx_is_expr(a->kid[i]) || !mx_is_expr(b->kid[i])) return false;
    Frac x = difference(m, a), y = difference(m, b);
    if (m->beyond) return false;
    int k = proportion(m, x.num, y.num);
    if (op != '<' && op != 'l') return k != 0;
    return poly_same(x.den, y.den) && k > 0;
}

/* A relation beside something that is none. */
static bool relation_and(Mx *m, const Node *r, const Node *x) {
    const Node *value = solved(r), *i = interval(m, r);
    if (value) return same(m, value, x);
    if (i && (x->kind == N_TUPLE || x->kind == N_SET)) return same(m, i, x);
    if (!all_ops(r, "=") || !mx_is_expr(x)) return false;
    for (int k = 0; k < r->n; k++) /* 1 + 2 = 3: every side is the value */
        if (!mx_is_expr(r->kid[k]) || !same(m, r->kid[k], x)) return false;
    return true;
}

/* "x < 1 or x > 2" beside a union of intervals. */
static bool inequalities(Mx *m, const Node *list, const Node *u) {
    Node *x = mx_node(m, N_UNION, list->n);
    for (int i = 0; i < list->n; i++) {
        x->kid[i] = (Node *)interval(m, list->kid[i]);
        if (!x->kid[i]) x->kid[i] = list->kid[i];
    }
    return any_order(m, x, u);
}

/* "x = 1, y = 2" beside (1,2). */
static bool assignments(Mx *m, const Node *list, const Node *tuple) {
    Node *x = mx_node(m, N_TUPLE, list->n);
    for (int i = 0; i < list->n; i++) {
        const Node *v = solved(list->kid[i]);
        x->kid[i] = v ? (Node *)v : list->kid[i];
    }
    return ordered(m, x, tuple);
}

/* ---- Values */
static bool base_value(Mx *m, const Node *n, mpz_ptr out) {
    mpq_ptr base = mx_num(m), digit_row = n->kid[0]->num;
    if (!frac_const(m, mx_eval(m, n->kid[1]), base)) return false;
    if (mpz_cmp_ui(mpq_denref(base), 1) || mpz_cmp_ui(mpq_denref(digit_row), 1)) return false;
    if (mpq_cmp_ui(base, 2, 1) < 0 || mpq_cmp_ui(base, 10, 1) > 0) return false;
    char digits[700];
    if (mpz_sizeinbase(mpq_numref(digit_row), 10) > sizeof digits - 3) return false;
    mpz_get_str(digits, 10, mpq_numref(digit_row));
    return !mpz_set_str(out, digits, (int)mpz_get_si(mpq_numref(base)));
}

static bool bases(Mx *m, const Node *a, const Node *b) {
    if (frac_same(m, mx_eval(m, a->kid[1]), mx_eval(m, b->kid[1])) && mpq_equal(a->kid[0]->num, b->kid[0]->num))
        return true;
    mpz_t x, y;
    mpz_init(x);
    mpz_init(y);
    bool ok = base_value(m, a, x) && base_value(m, b, y) && !mpz_cmp(x, y);
    mpz_clear(x);
    mpz_clear(y);
    return ok;
}

static bool values(Mx *m, const Node *a, const Node *b) {
    if (a->kind == N_SYM && b->kind == N_SYM && a->name.n == 1 && b->name.n == 1) /* a choice: (A) is a */
        return (a->name.at[0] | 32) == (b->name.at[0] | 32);
    if (a->kind == N_BASE && b->kind == N_BASE) return bases(m, a, b);
    if (frac_same(m, mx_eval(m, a), mx_eval(m, b))) return true;
    /* 50% is 1/2, and is what "50" means where a percentage was asked for. */
    if ((a->kind == N_PERCENT) == (b->kind == N_PERCENT)) return false;
    const Node *x = a->kind == N_PERCENT ? a->kid[0] : a, *y = b->kind == N_PERCENT ? b->kid[0] : b;
    return frac_same(m, mx_eval(m, x), mx_eval(m, y));
}

static bool several(const Node *n) { return n->kind == N_LIST || n->kind == N_SET; }

static bool same(Mx *m, const Node *a, const Node *b) {
    if (m->beyond || !mx_spend(m, 5)) return false;
    a = tidy(m, a);
    b = tidy(m, b);
    if (a->kind == N_SET && a->n == 1 && b->kind != N_SET) a = a->kid[0];
    if (b->kind == N_SET && b->n == 1 && a->kind != N_SET) b = b->kid[0];
    if (mx_is_expr(a) && mx_is_expr(b)) return values(m, a, b);
    if (a->kind == N_TEXT && b->kind == N_TEXT) return text_same(a->name, b->name, true);
    if (a->kind == N_REL && b->kind == N_REL) return relations(m, a, b);
    if (a->kind == N_REL) return relation_and(m, a, b);
    if (b->kind == N_REL) return relation_and(m, b, a);
    if (several(a) && several(b)) return any_order(m, a, b);
    if (a->kind == N_UNION && b->kind == N_UNION) return any_order(m, a, b);
    if (a->kind == N_LIST && b->kind == N_UNION) return inequalities(m, a, b);
    if (b->kind == N_LIST && a->kind == N_UNION) return inequalities(m, b, a);
    if (a->kind == N_LIST && b->kind == N_TUPLE) return assignments(m, a, b);
    if (b->kind == N_LIST && a->kind == N_TUPLE) return assignments(m, b, a);
    if (a->kind == N_TUPLE && b->kind == N_TUPLE) return tuples(m, a, b);
    if (a->kind == N_MATRIX && b->kind == N_MATRIX) return a->rows == b->rows && ordered(m, a, b);
    if (a->kind == N_MATRIX && b->kind == N_TUPLE) return (a->rows == 1 || a->rows == a->n) && ordered(m, a, b);
    if (b->kind == N_MATRIX && a->kind == N_TUPLE) return (b->rows == 1 || b->rows == b->n) && ordered(m, a, b);
    if (a->kind == N_SETOP && b->kind == N_SETOP) return span_eq(a->name, b->name) && ordered(m, a, b);
    return false;
}

static bool has_text(const Node *n) {
    if (n->kind == N_TEXT) return true;
    for (int i = 0; i < n->n; i++)
        if (has_text(n->kid[i])) return true;
    return false;
}

/* Without white space, closing full stops, and the dollars or brackets of a formula around it. */
static Span bare(Span s) {
    static const char *const around[][2] = { { "$$", "$$" }, { "$", "$" }, { "\\(", "\\)" }, { "\\[", "\\]" } };
    for (;;) {
        s = span_strip(s);
        size_t n = s.n;
        while (s.n && strchr(".,;:", s.at[s.n - 1])) s.n--;
        for (size_t i = 0; i < COUNT(around); i++) {
            Span open = span_of(around[i][0]), close = span_of(around[i][1]);
            if (s.n >= open.n + close.n && span_starts(s, open) && span_starts(span_from(s, s.n - close.n), close)) {
                s = (Span){ s.at + open.n, s.n - open.n - close.n };
                break;
            }
        }
        if (s.n == n) return s;
    }
}

/* "unit" is every unit. */
static bool other_unit(Span a, Span b) {
    return a.n && b.n && !span_eq(a, b) && !span_eq(a, SPAN("unit")) && !span_eq(b, SPAN("unit"));
}

bool math_exact_same(Span answer, Span truth) {
    answer = bare(answer);
    truth = bare(truth);
    if (!answer.n || !truth.n) return false;
    if (span_eq(answer, truth)) return true;
    Mx m = { .sign = 1 };
    Span unit_a, unit_b;
    const Node *a = mx_parse(&m, answer, &unit_a), *b = a ? mx_parse(&m, truth, &unit_b) : NULL;
    bool equal;
    if (!a || !b || m.beyond) {
        equal = text_same(answer, truth, true);
    } else if (other_unit(unit_a, unit_b)) {
        equal = false;
    } else {
        equal = same(&m, a, b);
        if (!equal && (m.beyond || has_text(a) || has_text(b))) equal = text_same(answer, truth, !m.beyond);
    }
    mx_free(&m);
    return equal;
}
