/* mathx_parse.c - tokens to a tree, by recursive descent:
 *
 *     list    = rel { , rel }                    rel  = set { (= < <= ...) set }
 *     set     = ratio { cup ratio }              ratio = sum { : sum }
 *     sum     = [+-] product { (+ - +-) product }
 *     product = factor { (* / nothing) factor }  units and words behind a value are dropped, the unit is remembered
 *     factor  = primary { ^ arg | _ arg | ! | % }
 *
 * What cannot be read is no error: the answer is then compared as text. */
#include "maths/mathx.h"

#include <string.h>

typedef struct {
    Mx *m;
    Token *t;
    int at, depth;
    bool failed;
    Span unit;
} Parse;

Node *mx_node(Mx *m, NodeKind kind, int n) {
    Node *x = MEM_NEW(&m->mem, Node);
    x->kind = kind;
    x->n = n;
    x->kid = MEM_ARRAY(&m->mem, Node *, (size_t)n);
    return x;
}

static Node *node1(Parse *p, NodeKind kind, Node *a) {
    Node *x = mx_node(p->m, kind, 1);
    x->kid[0] = a;
    return x;
}

static Node *node2(Parse *p, NodeKind kind, Node *a, Node *b) {
    Node *x = mx_node(p->m, kind, 2);
    x->kid[0] = a;
    x->kid[1] = b;
    return x;
}

static Node *number(Parse *p, mpq_ptr q) {
    Node *x = mx_node(p->m, N_NUM, 0);
    x->num = q;
    return x;
}

static Node *symbol(Parse *p, Span name) {
    Node *x = mx_node(p->m, N_SYM, 0);
    x->name = name;
    return x;
}

/* Where there is nothing to return, something is: nobody looks at it once `failed` is set. */
static Node *fail(Parse *p) {
    p->failed = true;
    return number(p, mx_int(p->m, 0));
}

static Token *peek(Parse *p) { return &p->t[p->at]; }
static bool is_char(const Token *t, char c) { return t->kind == T_CHAR && t->c == c; }
static bool is_cmd(const Token *t, const char *name) { return t->kind == T_CMD && span_eq(t->name, span_of(name)); }
static bool accept(Parse *p, char c) { return is_char(peek(p), c) ? (p->at++, true) : false; }
static Token *take(Parse *p) { return peek(p)->kind == T_END ? peek(p) : &p->t[p->at++]; }
static void expect(Parse *p, char c) {
    if (!accept(p, c)) p->failed = true;
}

static Node *parse_list(Parse *p);
static Node *parse_factor(Parse *p);
static Node *parse_sum(Parse *p);

/* A growing list of nodes, then its final place. */
typedef VEC(Node *) Nodes;
static Node *node_of(Parse *p, NodeKind kind, Nodes *v) {
    Node *x = mx_node(p->m, kind, (int)v->n);
    if (v->n) memcpy(x->kid, v->at, v->n * sizeof(Node *));
    vec_free(v->at);
    return x;
}

/* ---- Pieces */
/* The argument of \frac and the like: a group, or one token, of a number its first digit. */
static Node *parse_arg(Parse *p, bool one_digit) {
    Token *t = peek(p);
    if (accept(p, '{')) {
        Node *x = parse_list(p);
        expect(p, '}');
        return x;
    }
    if (t->kind == T_NUM && one_digit && t->integer && t->name.n > 1) {
        mpq_ptr q = mx_int(p->m, t->name.at[0] - '0');
        Span rest = span_from(t->name, 1);
        char digits[600];
        size_t n = 0;
        for (size_t i = 0; i < rest.n && n < sizeof digits - 1; i++)
            if (rest.at[i] >= '0' && rest.at[i] <= '9') digits[n++] = rest.at[i];
        digits[n] = 0;
        t->num = mx_num(p->m);
        if (!n || mpz_set_str(mpq_numref(t->num), digits, 10)) return fail(p);
        t->name = rest;
        return number(p, q);
    }
    if (t->kind == T_NUM) return number(p, take(p)->num);
    if (t->kind == T_SYM) return symbol(p, take(p)->name);
    if (accept(p, '-')) return node1(p, N_NEG, parse_arg(p, one_digit));
    if (t->kind == T_CMD || is_char(t, '(')) return parse_factor(p);
    return fail(p);
}

/* What a subscript says, as it is written. */
static Span parse_subscript(Parse *p) {
    Buf b = { 0 };
    int depth = 0;
    do {
        Token *t = take(p);
        if (t->kind == T_END) {
            p->failed = true;
            break;
        }
        if (is_char(t, '{')) depth++;
        else if (is_char(t, '}')) depth--;
        else if (t->kind == T_CHAR) buf_putc(&b, t->c);
        else buf_put(&b, t->name.at, t->name.n);
    } while (depth > 0);
    Span s = { mem_str(&p->m->mem, b.data ? b.data : "", b.n), b.n };
    buf_free(&b);
    return s;
}

static Node *parse_frac(Parse *p) {
    Node *a = parse_arg(p, true);
    return node2(p, N_DIV, a, parse_arg(p, true));
}

static Node *parse_sqrt(Parse *p) {
    Node *index = NULL;
    if (accept(p, '[')) {
        index = parse_sum(p);
        expect(p, ']');
    }
    Node *x = parse_arg(p, false), *one = number(p, mx_int(p->m, 1));
    return node2(p, N_POW, x, node2(p, N_DIV, one, index ? index : number(p, mx_int(p->m, 2))));
}

static Node *func(Parse *p, Span name, Node *a, Node *b) {
    Node *x = b ? node2(p, N_FUNC, a, b) : node1(p, N_FUNC, a);
    x->name = name;
    return x;
}

static bool starts_factor(Parse *p, const Token *t) {
    if (t->kind == T_CMD) return !is_cmd(t, "end") && !is_cmd(t, "rfloor") && !is_cmd(t, "rceil");
    if (t->kind == T_NUM) return p->at == 0 || p->t[p->at - 1].kind != T_NUM;
    return t->kind == T_SYM || t->kind == T_FUNC || (t->kind == T_CHAR && strchr("([{L", t->c));
}

/* sin^2 x, \log_2 8, sin 2x cos y: without brackets the argument ends at an operator or another function. */
static Node *parse_func(Parse *p) {
    Span name = take(p)->name;
    Node *base = NULL, *power = NULL;
    for (int i = 0; i < 2; i++) {
        if (accept(p, '_')) base = parse_arg(p, false);
        else if (accept(p, '^')) power = parse_arg(p, false);
    }
    Node *x;
    if (is_char(peek(p), '(')) {
        p->at++;
        x = parse_list(p);
        expect(p, ')');
    } else {
        x = parse_factor(p);
        while (!p->failed && starts_factor(p, peek(p)) && peek(p)->kind != T_FUNC)
            x = node2(p, N_MUL, x, parse_factor(p));
    }
    Node *f;
    if (x->kind == N_LIST && x->n == 2) f = func(p, name, x->kid[0], x->kid[1]);
    else f = func(p, name, x, base);
    if (!power) return f;
    bool inverse = power->kind == N_NEG && power->kid[0]->kind == N_NUM && !mpq_cmp_ui(power->kid[0]->num, 1, 1);
    if (!inverse) return node2(p, N_POW, f, power);
    f->name = (Span){ mem_printf(&p->m->mem, "arc%.*s", (int)name.n, name.at), name.n + 3 };
    return f;
}

static Node *parse_matrix(Parse *p) {
    static const char *const kinds[] = { "pmatrix", "bmatrix", "vmatrix", "Bmatrix", "matrix", "smallmatrix", "array" };
    Span env = take(p)->name;
    bool known = false;
    for (size_t i = 0; i < COUNT(kinds); i++) known |= span_eq(env, span_of(kinds[i]));
    if (!known) return fail(p);
    if (span_eq(env, SPAN("array")) && accept(p, '{'))
        while (!p->failed && !accept(p, '}'))
            if (take(p)->kind == T_END) p->failed = true;
    Nodes v = { 0 };
    int rows = 0;
    while (!p->failed && !is_cmd(peek(p), "end")) {
        do VEC_PUSH(v, parse_list(p));
        while (accept(p, '&'));
        rows++;
        if (!accept(p, 'n')) break;
    }
    Node *x = node_of(p, N_MATRIX, &v);
    x->rows = rows;
    if (!is_cmd(take(p), "end") || !span_eq(take(p)->name, env) || !rows || x->n % rows) return fail(p);
    return x;
}

static Node *parse_between(Parse *p, const char *close, const char *name) {
    Node *x = parse_sum(p);
    if (!is_cmd(take(p), close)) p->failed = true;
    return func(p, span_of(name), x, NULL);
}

static Node *parse_command(Parse *p) {
    Span name = take(p)->name;
    if (span_eq(name, SPAN("frac"))) return parse_frac(p);
    if (span_eq(name, SPAN("sqrt"))) return parse_sqrt(p);
    if (span_eq(name, SPAN("begin"))) return parse_matrix(p);
    if (span_eq(name, SPAN("lfloor"))) return parse_between(p, "rfloor", "floor");
    if (span_eq(name, SPAN("lceil"))) return parse_between(p, "rceil", "ceil");
    if (span_eq(name, SPAN("emptyset"))) return mx_node(p->m, N_SET, 0);
    if (span_eq(name, SPAN("binom"))) {
        Node *a = parse_arg(p, true);
        return func(p, name, a, parse_arg(p, true));
    }
    if (span_eq(name, SPAN("overline"))) return func(p, name, parse_arg(p, true), NULL);
    if (span_eq(name, SPAN("mathbb"))) {
        Span set = take(p)->name;
        if (!span_eq(set, SPAN("R")))
            return symbol(p, (Span){ mem_printf(&p->m->mem, "set %.*s", (int)set.n, set.at), set.n + 4 });
        Node *oo = symbol(p, SPAN("oo")), *x = node2(p, N_TUPLE, node1(p, N_NEG, oo), oo);
        x->open = '(';
        x->close = ')';
        return x;
    }
    /* clang-format off */
    static const char *const greek[] = {
        "alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "lambda", "mu", "nu", "xi", "rho",
        "sigma", "tau", "phi", "chi", "psi", "omega", "Gamma", "Delta", "Theta", "Lambda", "Sigma", "Phi", "Psi",
        "Omega", "ell",
    };
    /* clang-format on */
    for (size_t i = 0; i < COUNT(greek); i++)
        if (span_eq(name, span_of(greek[i]))) return symbol(p, name);
    return fail(p);
}

/* ( ... ): brackets around one thing are brackets; around several they make a tuple or an interval. */
static Node *parse_brackets(Parse *p) {
    char open = take(p)->c;
    Node *x = parse_list(p);
    char close = peek(p)->kind == T_CHAR ? peek(p)->c : 0;
    if (close != ')' && close != ']') return fail(p);
    p->at++;
    bool matched = (open == '(') == (close == ')');
    if (x->kind != N_LIST) return matched ? x : fail(p);
    x->kind = N_TUPLE;
    x->open = open;
    x->close = close;
    return matched || x->n == 2 ? x : fail(p);
}

static Node *parse_set(Parse *p) {
    p->at++;
    if (accept(p, 'R')) return mx_node(p->m, N_SET, 0);
    Node *x = parse_list(p);
    expect(p, 'R');
    if (x->kind == N_LIST) {
        x->kind = N_SET;
        return x;
    }
    return node1(p, N_SET, x);
}

/* 3 1/2 and 3\frac{1}{2} are sums; so is no other product. */
static Node *parse_number(Parse *p) {
    Token *t = take(p);
    Node *x = number(p, t->num);
    if (!t->integer) return x;
    Token *a = peek(p), *b = &p->t[p->at + 1], *c = &p->t[p->at + 2];
    if (a->kind == T_NUM && a->integer && a->spaced && is_char(b, '/') && c->kind == T_NUM && c->integer) {
        p->at += 3;
        return node2(p, N_ADD, x, node2(p, N_DIV, number(p, a->num), number(p, c->num)));
    }
    if (!is_cmd(a, "frac")) return x;
    p->at++;
    Node *f = parse_frac(p);
    bool plain = f->kid[0]->kind == N_NUM && f->kid[1]->kind == N_NUM;
    return node2(p, plain ? N_ADD : N_MUL, x, f);
}

static Node *parse_primary(Parse *p) {
    Token *t = peek(p);
    if (t->kind == T_NUM) return parse_number(p);
    if (t->kind == T_SYM) return symbol(p, take(p)->name);
    if (t->kind == T_FUNC) return parse_func(p);
    if (t->kind == T_CMD) return parse_command(p);
    if (t->kind != T_CHAR) return fail(p);
    if (t->c == '(' || t->c == '[') return parse_brackets(p);
    if (t->c == 'L') return parse_set(p);
    if (t->c == '{') return parse_arg(p, false);
    if (t->c == '|') {
        p->at++;
        Node *x = parse_sum(p);
        expect(p, '|');
        return func(p, SPAN("abs"), x, NULL);
    }
    return fail(p);
}

static Node *parse_factor(Parse *p) {
    if (++p->depth > MX_DEPTH) p->failed = true;
    Node *x = p->failed ? fail(p) : parse_primary(p);
    while (!p->failed) {
        if (accept(p, '^')) {
            Node *e = parse_arg(p, false);
            if (accept(p, '^')) e = node2(p, N_POW, e, parse_factor(p)); /* 2^3^4 is 2^(3^4) */
            x = node2(p, N_POW, x, e);
        } else if (accept(p, '_')) {
            if (x->kind == N_NUM) x = node2(p, N_BASE, x, parse_arg(p, false));
            else if (x->kind == N_SYM) {
                Span sub = parse_subscript(p), name = x->name;
                const char *both = mem_printf(&p->m->mem, "%.*s_%.*s", (int)name.n, name.at, (int)sub.n, sub.at);
                x = symbol(p, (Span){ both, name.n + 1 + sub.n });
            } else p->failed = true;
        } else if (accept(p, '!')) x = func(p, SPAN("!"), x, NULL);
        else if (accept(p, '%')) x = node1(p, N_PERCENT, x);
        else if (accept(p, '\'')) x = func(p, SPAN("'"), x, NULL);
        else break;
    }
    p->depth--;
    return x;
}

/* Words that change what a number says, so that they may not be dropped behind it. */
static bool changes_value(Span text) {
    static const char *const words[] = { "not",      "more",    "less",    "than",      "least", "most", "if",
                                         "when",     "where",   "for",     "remainder", "base",  "to",   "dozen",
                                         "thousand", "million", "billion", "hundred",   "times" };
    for (size_t i = 0; i < COUNT(words); i++) {
        size_t n = strlen(words[i]), k = span_find(text, 0, span_of(words[i]));
        if (k == SIZE_MAX) continue;
        bool left = k == 0 || text.at[k - 1] == ' ', right = k + n == text.n || text.at[k + n] == ' ';
        if (left && right) return true;
    }
    return false;
}

static void drop_units(Parse *p) {
    while (!p->failed) {
        Token *t = peek(p), *next = &p->t[p->at + 1];
        if (is_char(t, '/') && next->kind == T_UNIT) {
            p->at += 2;
        } else if (t->kind == T_UNIT) {
            p->unit = take(p)->name;
        } else if (t->kind == T_TEXT) {
            if (changes_value(t->name)) p->failed = true;
            p->at++;
        } else {
            return;
        }
        if (accept(p, '^')) parse_arg(p, false);
    }
}

static Node *parse_product(Parse *p) {
    Node *x = parse_factor(p);
    while (!p->failed) {
        drop_units(p);
        if (accept(p, '*')) x = node2(p, N_MUL, x, accept(p, '-') ? node1(p, N_NEG, parse_factor(p)) : parse_factor(p));
        else if (accept(p, '/'))
            x = node2(p, N_DIV, x, accept(p, '-') ? node1(p, N_NEG, parse_factor(p)) : parse_factor(p));
        else if (starts_factor(p, peek(p))) x = node2(p, N_MUL, x, parse_factor(p));
        else break;
    }
    return x;
}

static Node *parse_sum(Parse *p) {
    if (++p->depth > MX_DEPTH) p->failed = true;
    Node *x;
    if (p->failed) x = fail(p);
    else if (accept(p, '-')) x = node1(p, N_NEG, parse_product(p));
    else if (accept(p, 'P')) x = node2(p, N_PM, number(p, mx_int(p->m, 0)), parse_product(p));
    else x = (accept(p, '+'), parse_product(p));
    while (!p->failed) {
        if (accept(p, '+')) x = node2(p, N_ADD, x, parse_product(p));
        else if (accept(p, '-')) x = node2(p, N_SUB, x, parse_product(p));
        else if (accept(p, 'P')) x = node2(p, N_PM, x, parse_product(p));
        else if (accept(p, 'M')) x = node2(p, N_MP, x, parse_product(p));
        else break;
    }
    p->depth--;
    return x;
}

static Node *parse_ratio(Parse *p) {
    Node *x = parse_sum(p);
    if (p->failed || !is_char(peek(p), ':')) return x;
    Nodes v = { 0 };
    VEC_PUSH(v, x);
    while (!p->failed && accept(p, ':')) VEC_PUSH(v, parse_sum(p));
    x = node_of(p, v.n == 2 ? N_DIV : N_TUPLE, &v);
    x->open = '(';
    x->close = ')';
    return x;
}

static Node *parse_sets(Parse *p) {
    Node *x = parse_ratio(p);
    if (is_char(peek(p), 'U')) {
        Nodes v = { 0 };
        VEC_PUSH(v, x);
        while (!p->failed && accept(p, 'U')) VEC_PUSH(v, parse_ratio(p));
        x = node_of(p, N_UNION, &v);
    }
    while (!p->failed && (is_char(peek(p), 'A') || is_char(peek(p), 'D'))) {
        Span op = take(p)->c == 'A' ? SPAN("cap") : SPAN("minus");
        x = node2(p, N_SETOP, x, parse_ratio(p));
        x->name = op;
    }
    return x;
}

/* A word before a relation names what is found ("\text{Area} = 5"); alone it is the answer. */
static Node *parse_side(Parse *p) {
    if (peek(p)->kind != T_TEXT) return parse_sets(p);
    Node *x = mx_node(p->m, N_TEXT, 0);
    x->name = take(p)->name;
    return x;
}

static Node *parse_rel(Parse *p) {
    Node *x = parse_side(p);
    if (p->failed || peek(p)->kind != T_CHAR || !strchr("=<>lgN~e", peek(p)->c)) return x;
    Nodes v = { 0 };
    Buf ops = { 0 };
    VEC_PUSH(v, x);
    while (!p->failed && peek(p)->kind == T_CHAR && strchr("=<>lgN~e", peek(p)->c)) {
        buf_putc(&ops, take(p)->c);
        VEC_PUSH(v, parse_side(p));
    }
    x = node_of(p, N_REL, &v);
    x->ops = mem_str(&p->m->mem, ops.data, ops.n);
    buf_free(&ops);
    return x;
}

static Node *parse_list(Parse *p) {
    if (++p->depth > MX_DEPTH) p->failed = true;
    Node *x = p->failed ? fail(p) : parse_rel(p);
    if (!p->failed && is_char(peek(p), ',')) {
        Nodes v = { 0 };
        VEC_PUSH(v, x);
        while (!p->failed && accept(p, ',')) {
            while (accept(p, ',')) continue; /* ", and" */
            VEC_PUSH(v, parse_rel(p));
        }
        x = node_of(p, N_LIST, &v);
    }
    p->depth--;
    return x;
}

Node *mx_parse(Mx *m, Span text, Span *unit) {
    Parse p = { .m = m };
    int n;
    *unit = (Span){ 0 };
    if (!mx_lex(m, text, &p.t, &n) || n == 0) return NULL;
    Node *x = parse_list(&p);
    if (p.failed || peek(&p)->kind != T_END) return NULL;
    *unit = p.unit;
    return x;
}
