/* jinja_expr.c - expressions: tokens -> tree, by Jinja2's grammar.  Precedence from loose to tight: if/else, or,
 * and, not,
 * comparisons, + -, ~, * / // %, **, sign, then calls, subscripts, filters and tests. */
#include "jinja/jinja_int.h"

#include <stdio.h>

static const char *tok_text(const Tok *t, char buf[64]) {
    static const char *const kind[] = { "end of template",
                                        "template data",
                                        "begin of statement block",
                                        "end of statement block",
                                        "begin of print statement",
                                        "end of print statement",
                                        "",
                                        "string",
                                        "integer",
                                        "float",
                                        "" };
    static const char *const wide[] = { "**", "//", "==", "!=", "<=", ">=" };
    if (t->kind == T_NAME) snprintf(buf, 64, "%.*s", (int)(t->n < 50 ? t->n : 50), t->s);
    else if (t->kind == T_OP && t->op >= OP_POW) return wide[t->op - OP_POW];
    else if (t->kind == T_OP) snprintf(buf, 64, "%c", t->op);
    else return kind[t->kind];
    return buf;
}

bool tok_is(const Tok *t, int op) { return t->kind == T_OP && t->op == op; }
bool tok_named(const Tok *t, const char *name) {
    return t->kind == T_NAME && t->n == strlen(name) && !memcmp(t->s, name, t->n);
}

bool comp_skip(Comp *c, int op) { return tok_is(comp_tok(c), op) ? c->at++, true : false; }
bool comp_skip_name(Comp *c, const char *name) { return tok_named(comp_tok(c), name) ? c->at++, true : false; }

void comp_expect(Comp *c, int op) {
    char buf[64];
    if (!comp_skip(c, op)) comp_fail(c, "expected token '%c', got '%s'", op, tok_text(comp_tok(c), buf));
}

Tok *comp_expect_name(Comp *c) {
    char buf[64];
    Tok *t = comp_tok(c);
    if (t->kind != T_NAME) comp_fail(c, "expected token 'name', got '%s'", tok_text(t, buf));
    c->at++;
    return t;
}

static Node *constant(Comp *c, Value v) {
    Node *n = comp_node(c, N_CONST);
    n->value = v;
    return n;
}

static Node *name_node(Comp *c, const Tok *t) {
    static const struct {
        const char *name;
        uint8_t flag;
    } special[] = { { "caller", USES_CALLER }, { "kwargs", USES_KWARGS }, { "varargs", USES_VARARGS } };
    static const struct {
        const char *name;
        Value v;
    } word[] = { { "true", { .kind = V_BOOL, .b = true } },
                 { "True", { .kind = V_BOOL, .b = true } },
                 { "false", { .kind = V_BOOL } },
                 { "False", { .kind = V_BOOL } },
                 { "none", { .kind = V_NONE } },
                 { "None", { .kind = V_NONE } } };
    for (size_t i = 0; i < COUNT(word); i++)
        if (tok_named(t, word[i].name)) return constant(c, word[i].v);
    for (size_t i = 0; i < COUNT(special); i++)
        if (tok_named(t, special[i].name)) c->uses |= special[i].flag;
    Node *n = comp_node(c, N_NAME);
    n->id = comp_name(c, t->s, t->n);
    return n;
}

static Node *strings(Comp *c) {
    Tok *first = comp_tok(c);
    size_t n = 0, at = c->at;
    for (; comp_tok(c)->kind == T_STR; c->at++) n += comp_tok(c)->n;
    if (c->at == at + 1) return constant(c, v_strn(first->s, first->n));
    char *s = mem_push(c->mem, n + 1);
    size_t used = 0;
    for (size_t i = at; i < c->at; i++) {
        if (c->tok.at[i].n) memcpy(s + used, c->tok.at[i].s, c->tok.at[i].n);
        used += c->tok.at[i].n;
    }
    return constant(c, v_strn(s, n));
}

static Node *list_or_dict(Comp *c, bool dict) {
    Node *n = comp_node(c, dict ? N_DICT : N_LIST);
    int close = dict ? '}' : ']';
    c->at++;
    while (!tok_is(comp_tok(c), close)) {
        if (n->list.n) comp_expect(c, ',');
        if (tok_is(comp_tok(c), close)) break;
        comp_list(c, &n->list, parse_expr(c, true));
        if (!dict) continue;
        comp_expect(c, ':');
        comp_list(c, &n->list, parse_expr(c, true));
    }
    comp_expect(c, close);
    return n;
}

Node *parse_primary(Comp *c) {
    char buf[64];
    Tok *t = comp_tok(c);
    c->line = t->line;
    switch (t->kind) {
    case T_NAME: c->at++; return name_node(c, t);
    case T_STR: return strings(c);
    case T_INT: c->at++; return constant(c, v_int(t->i));
    case T_REAL: c->at++; return constant(c, v_real(t->d));
    default: break;
    }
    if (comp_skip(c, '(')) {
        comp_nest(c, 1);
        Node *n = parse_tuple(c, true, true, NULL);
        comp_nest(c, -1);
        comp_expect(c, ')');
        return n;
    }
    if (!tok_is(t, '[') && !tok_is(t, '{')) comp_fail(c, "unexpected '%s'", tok_text(t, buf));
    comp_nest(c, 1);
    Node *n = list_or_dict(c, tok_is(t, '{'));
    comp_nest(c, -1);
    return n;
}

/* One of "a:b:c" or an index, behind '['. */
static Node *subscript(Comp *c, Node *of) {
    Node *n = comp_node(c, N_SLICE);
    n->a = of;
    Node *part[3] = { 0 };
    int k = 0;
    bool colon = false;
    while (!tok_is(comp_tok(c), ']') && !tok_is(comp_tok(c), ',')) {
        if (comp_skip(c, ':')) {
            colon = true;
            if (++k > 2) comp_fail(c, "a slice has at most three parts");
        } else if (part[k]) {
            comp_expect(c, ']');
        } else {
            part[k] = parse_expr(c, true);
        }
    }
    if (!colon) {
        n->kind = N_ITEM;
        n->b = part[0];
        if (!part[0]) comp_fail(c, "expected an expression, got ']'");
    }
    if (tok_is(comp_tok(c), ',')) {
        if (colon) comp_fail(c, "a slice inside a tuple is not supported");
        Node *tuple = comp_node(c, N_TUPLE);
        comp_list(c, &tuple->list, part[0]);
        while (comp_skip(c, ',')) comp_list(c, &tuple->list, parse_expr(c, true));
        n->b = tuple;
    }
    comp_expect(c, ']');
    if (colon)
        for (int i = 0; i < 3; i++) comp_list(c, &n->list, part[i]);
    return n;
}

static Node *attribute(Comp *c, Node *of) {
    Tok *t = comp_tok(c);
    Node *n = comp_node(c, t->kind == T_INT ? N_ITEM : N_ATTR);
    n->a = of;
    if (t->kind == T_INT) n->b = constant(c, v_int(t->i));
    else if (t->kind == T_NAME) n->value = v_strn(t->s, t->n);
    else comp_fail(c, "expected name or number");
    c->at++;
    return n;
}

void parse_call_args(Comp *c, Node *n) {
    size_t cap = 0;
    comp_nest(c, 1);
    comp_expect(c, '(');
    bool keyword = false;
    while (!tok_is(comp_tok(c), ')')) {
        if (n->nargs) comp_expect(c, ',');
        if (n->nargs && tok_is(comp_tok(c), ')')) break;
        Arg a = { 0 };
        Tok *t = comp_tok(c);
        if (comp_skip(c, '*')) a.star = 1;
        else if (comp_skip(c, OP_POW)) a.star = 2;
        else if (t->kind == T_NAME && tok_is(t + 1, '=')) {
            a.name = t->s;
            a.n = t->n;
            c->at += 2;
            keyword = true;
        } else if (keyword) {
            comp_fail(c, "invalid syntax for function call expression");
        }
        a.e = parse_expr(c, true);
        if (n->nargs == cap) {
            cap = cap ? cap * 2 : 4;
            Arg *more = MEM_ARRAY(c->mem, Arg, cap);
            if (n->nargs) memcpy(more, n->args, n->nargs * sizeof *more);
            n->args = more;
        }
        n->args[n->nargs++] = a;
    }
    comp_expect(c, ')');
    comp_nest(c, -1);
}

static Node *call(Comp *c, Node *of) {
    Node *n = comp_node(c, N_CALL);
    n->a = of;
    parse_call_args(c, n);
    return n;
}

Node *parse_postfix(Comp *c, Node *n) {
    for (;;) {
        if (tok_is(comp_tok(c), '(')) n = call(c, n);
        else if (comp_skip(c, '.')) n = attribute(c, n);
        else if (comp_skip(c, '[')) {
            comp_nest(c, 1);
            n = subscript(c, n);
            comp_nest(c, -1);
        } else return n;
    }
}

/* A filter's or test's name, which may have dots in it. */
static Value dotted(Comp *c) {
    Tok *t = comp_expect_name(c);
    Value name = v_strn(t->s, t->n);
    while (comp_skip(c, '.')) {
        t = comp_expect_name(c);
        char *s = mem_printf(c->mem, "%.*s.%.*s", (int)name.n, name.s, (int)t->n, t->s);
        name = v_cstr(s);
    }
    return name;
}

static Node *filter(Comp *c, Node *of) {
    Node *n = comp_node(c, N_FILTER);
    n->a = of;
    n->value = dotted(c);
    n->fn = jinja_filter(n->value.s, n->value.n);
    if (tok_is(comp_tok(c), '(')) parse_call_args(c, n);
    return n;
}

static Node *test(Comp *c, Node *of) {
    bool negated = comp_skip_name(c, "not");
    Node *n = comp_node(c, N_TEST);
    n->a = of;
    n->value = dotted(c);
    n->fn = jinja_test(n->value.s, n->value.n);
    Tok *t = comp_tok(c);
    bool stops = tok_named(t, "else") || tok_named(t, "or") || tok_named(t, "and");
    if (tok_is(t, '(')) parse_call_args(c, n);
    else if (!stops
             && (t->kind == T_NAME || t->kind == T_STR || t->kind == T_INT || t->kind == T_REAL || tok_is(t, '[')
                 || tok_is(t, '{'))) {
        if (tok_named(t, "is")) comp_fail(c, "You cannot chain multiple tests with is");
        n->args = MEM_ARRAY(c->mem, Arg, 1);
        n->args[0].e = parse_postfix(c, parse_primary(c));
        n->nargs = 1;
    }
    if (!negated) return n;
    Node *not_ = comp_node(c, N_NOT);
    not_->a = n;
    return not_;
}

/* "| a | b(1) is c": first_is_bare reads "a | b", as behind {% filter and {% set x. */
Node *parse_filters(Comp *c, Node *n, bool first_is_bare) {
    if (first_is_bare) n = filter(c, n);
    for (;;) {
        if (comp_skip(c, '|')) n = filter(c, n);
        else if (!first_is_bare && comp_skip_name(c, "is")) n = test(c, n);
        else if (!first_is_bare && tok_is(comp_tok(c), '(')) n = call(c, n);
        else return n;
    }
}

static Node *unary(Comp *c, bool with_filter) {
    Node *n;
    c->line = comp_tok(c)->line;
    if (tok_is(comp_tok(c), '-') || tok_is(comp_tok(c), '+')) {
        int op = comp_tok(c)->op;
        c->at++;
        comp_nest(c, 1);
        n = comp_node(c, op == '-' ? N_NEG : N_POS);
        n->a = unary(c, false);
        comp_nest(c, -1);
    } else {
        n = parse_primary(c);
    }
    n = parse_postfix(c, n);
    return with_filter ? parse_filters(c, n, false) : n;
}

static Node *binary(Comp *c, int kind, int op, Node *a, Node *b) {
    Node *n = comp_node(c, kind);
    n->op = op;
    n->a = a;
    n->b = b;
    return n;
}

static Node *power(Comp *c) {
    Node *n = unary(c, true);
    while (comp_skip(c, OP_POW)) n = binary(c, N_BIN, OP_POW, n, unary(c, true));
    return n;
}

static Node *product(Comp *c) {
    Node *n = power(c);
    for (;;) {
        int op = comp_tok(c)->kind == T_OP ? comp_tok(c)->op : 0;
        if (op != '*' && op != '/' && op != OP_FLOORDIV && op != '%') return n;
        c->at++;
        n = binary(c, N_BIN, op, n, power(c));
    }
}

static Node *concat(Comp *c) {
    Node *n = product(c);
    if (!tok_is(comp_tok(c), '~')) return n;
    Node *all = comp_node(c, N_CONCAT);
    comp_list(c, &all->list, n);
    while (comp_skip(c, '~')) comp_list(c, &all->list, product(c));
    return all;
}

static Node *sum(Comp *c) {
    Node *n = concat(c);
    for (;;) {
        int op = comp_tok(c)->kind == T_OP ? comp_tok(c)->op : 0;
        if (op != '+' && op != '-') return n;
        c->at++;
        n = binary(c, N_BIN, op, n, concat(c));
    }
}

static int compare_op(Comp *c) {
    Tok *t = comp_tok(c);
    if (t->kind == T_OP && t->op && (strchr("<>", t->op < 128 ? t->op : 1) || (t->op >= OP_EQ && t->op <= OP_GE)))
        return c->at++, t->op;
    if (comp_skip_name(c, "in")) return OP_IN;
    if (tok_named(t, "not") && tok_named(t + 1, "in")) return c->at += 2, OP_NOTIN;
    return 0;
}

static Node *compare(Comp *c) {
    Node *n = sum(c), *all = NULL;
    int op;
    while ((op = compare_op(c))) {
        if (!all) {
            all = comp_node(c, N_CMP);
            all->a = n;
        }
        comp_list(c, &all->list, binary(c, N_CMP, op, sum(c), NULL));
    }
    return all ? all : n;
}

static Node *not_(Comp *c) {
    if (!comp_skip_name(c, "not")) return compare(c);
    comp_nest(c, 1);
    Node *n = comp_node(c, N_NOT);
    n->a = not_(c);
    comp_nest(c, -1);
    return n;
}

static Node *and_(Comp *c) {
    Node *n = not_(c);
    while (comp_skip_name(c, "and")) n = binary(c, N_AND, 0, n, not_(c));
    return n;
}

static Node *or_(Comp *c) {
    Node *n = and_(c);
    while (comp_skip_name(c, "or")) n = binary(c, N_OR, 0, n, and_(c));
    return n;
}

Node *parse_expr(Comp *c, bool cond) {
    comp_nest(c, 1);
    c->line = comp_tok(c)->line;
    Node *n = or_(c);
    while (cond && comp_skip_name(c, "if")) {
        Node *k = comp_node(c, N_COND);
        k->a = or_(c);
        k->b = n;
        if (comp_skip_name(c, "else")) k->c = parse_expr(c, true);
        n = k;
    }
    comp_nest(c, -1);
    return n;
}

static bool tuple_ends(Comp *c, const char *end) {
    Tok *t = comp_tok(c);
    return t->kind == T_VAR_END || t->kind == T_BLOCK_END || tok_is(t, ')') || (end && tok_named(t, end));
}

/* Expressions with commas between them; one without a comma is itself. */
Node *parse_tuple(Comp *c, bool cond, bool parens, const char *end) {
    char buf[64];
    Node *n = comp_node(c, N_TUPLE);
    bool comma = false;
    for (;;) {
        if (n->list.n) comp_expect(c, ',');
        if (tuple_ends(c, end)) break;
        comp_list(c, &n->list, parse_expr(c, cond));
        if (!tok_is(comp_tok(c), ',')) break;
        comma = true;
    }
    if (!comma && n->list.n) return n->list.at[0];
    if (!comma && !parens) comp_fail(c, "Expected an expression, got '%s'", tok_text(comp_tok(c), buf));
    return n;
}

static Node *one_target(Comp *c, bool namespaces) {
    Node *n;
    if (comp_skip(c, '(')) {
        comp_nest(c, 1);
        n = parse_target(c, namespaces, NULL);
        comp_nest(c, -1);
        comp_expect(c, ')');
        return n;
    }
    Tok *t = comp_expect_name(c);
    n = name_node(c, t);
    if (n->kind == N_CONST) comp_fail(c, "can't assign to 'const'");
    if (!namespaces || !comp_skip(c, '.')) return n;
    t = comp_expect_name(c);
    n->kind = N_NSREF;
    n->value = v_strn(t->s, t->n);
    return n;
}

Node *parse_target(Comp *c, bool namespaces, const char *end) {
    Node *first = one_target(c, namespaces);
    if (!tok_is(comp_tok(c), ',')) return first;
    Node *n = comp_node(c, N_TUPLE);
    comp_list(c, &n->list, first);
    while (comp_skip(c, ',')) {
        if (tuple_ends(c, end) || tok_is(comp_tok(c), '=')) break;
        comp_list(c, &n->list, one_target(c, namespaces));
    }
    return n;
}
