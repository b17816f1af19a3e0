/* jinja_parse.c - statements: tokens -> tree, and jinja_compile around it. */
#include "jinja/jinja_int.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>

enum { MAX_NEST = 120, MAX_TEXT = 16 << 20 };

void comp_fail(Comp *c, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    char what[400];
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (c->at < c->tok.n && comp_tok(c)->line > c->line) c->line = comp_tok(c)->line;
    err_set(c->err, "TemplateSyntaxError: %s", what);
    longjmp(c->jump, 1);
}

void comp_nest(Comp *c, int by) {
    c->depth += by;
    if (c->depth > MAX_NEST) comp_fail(c, "nested more than %d levels deep", MAX_NEST);
}

Node *comp_node(Comp *c, int kind) {
    Node *n = MEM_NEW(c->mem, Node);
    n->kind = (uint8_t)kind;
    n->line = c->line;
    return n;
}

void comp_list(Comp *c, NodeList *l, Node *n) {
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 4;
        Node **more = MEM_ARRAY(c->mem, Node *, l->cap);
        if (l->n) memcpy(more, l->at, l->n * sizeof *more);
        l->at = more;
    }
    l->at[l->n++] = n;
}

int comp_name(Comp *c, const char *s, size_t n) {
    for (size_t i = 0; i < c->names.n; i++)
        if (c->names.at[i].n == n && !memcmp(c->names.at[i].s, s, n)) return (int)i;
    VEC_PUSH(c->names, v_strn(s, n));
    return (int)c->names.n - 1;
}

static void block_end(Comp *c) {
    Tok *t = comp_tok(c);
    if (t->kind == T_NAME)
        comp_fail(c, "expected token 'end of statement block', got '%.*s'", (int)(t->n < 60 ? t->n : 60), t->s);
    if (t->kind != T_BLOCK_END) comp_fail(c, "expected token 'end of statement block'");
    c->at++;
}

static Node *statement(Comp *c);

/* Everything up to {% end %}, where end is one of the names; its token is left as the current one. */
static void until(Comp *c, NodeList *out, const char *const *ends) {
    comp_nest(c, 1);
    for (;;) {
        Tok *t = comp_tok(c);
        c->line = t->line;
        if (t->kind == T_EOF) {
            if (!ends) break;
            comp_fail(c, "Unexpected end of template: {%% %s %%} is missing", ends[0]);
        }
        c->at++;
        if (t->kind == T_DATA) {
            Node *n = comp_node(c, S_DATA);
            n->value = v_strn(t->s, t->n);
            comp_list(c, out, n);
        } else if (t->kind == T_VAR) {
            Node *n = comp_node(c, S_OUT);
            n->a = parse_tuple(c, true, false, NULL);
            comp_list(c, out, n);
            if (comp_tok(c)->kind != T_VAR_END) comp_fail(c, "expected token 'end of print statement'");
            c->at++;
        } else {
            bool ended = false;
            for (int i = 0; ends && ends[i]; i++) ended = ended || tok_named(comp_tok(c), ends[i]);
            if (ended) break;
            comp_list(c, out, statement(c));
            block_end(c);
        }
    }
    comp_nest(c, -1);
}

static void body(Comp *c, NodeList *out, const char *const *ends) {
    block_end(c);
    until(c, out, ends);
}

static void body_to(Comp *c, NodeList *out, const char *end) {
    body(c, out, (const char *const[]){ end, NULL });
    c->at++;
}

static Node *parse_for(Comp *c) {
    Node *n = comp_node(c, S_FOR);
    n->a = parse_target(c, false, "in");
    if (!comp_skip_name(c, "in")) comp_fail(c, "expected token 'in'");
    n->b = parse_tuple(c, false, false, "recursive");
    if (comp_skip_name(c, "if")) n->c = parse_expr(c, true);
    if (comp_skip_name(c, "recursive")) comp_fail(c, "recursive loops are not supported; use a macro");
    c->loops++;
    body(c, &n->body, (const char *const[]){ "endfor", "else", NULL });
    c->loops--;
    if (!tok_named(&c->tok.at[c->at++], "endfor")) body_to(c, &n->other, "endfor");
    return n;
}

static Node *parse_if(Comp *c) {
    Node *n = comp_node(c, S_IF);
    for (;;) {
        Node *arm = comp_node(c, S_IF);
        arm->a = parse_tuple(c, false, false, NULL);
        body(c, &arm->body, (const char *const[]){ "elif", "else", "endif", NULL });
        comp_list(c, &n->list, arm);
        Tok *t = &c->tok.at[c->at++];
        if (tok_named(t, "elif")) continue;
        if (tok_named(t, "else")) body_to(c, &n->other, "endif");
        return n;
    }
}

static Node *parse_set(Comp *c) {
    Node *n = comp_node(c, S_SET);
    n->a = parse_target(c, true, NULL);
    if (comp_skip(c, '=')) {
        n->b = parse_tuple(c, true, false, NULL);
        return n;
    }
    n->kind = S_SETBLOCK;
    if (comp_skip(c, '|')) n->b = parse_filters(c, NULL, true);
    body_to(c, &n->body, "endset");
    return n;
}

/* (a, b=1) of a macro or a call block */
static void parameters(Comp *c, Node *n) {
    size_t cap = 0;
    bool defaults = false;
    comp_expect(c, '(');
    while (!tok_is(comp_tok(c), ')')) {
        if (n->nargs) comp_expect(c, ',');
        Tok *t = comp_expect_name(c);
        Arg a = { .name = t->s, .n = t->n };
        if (comp_skip(c, '=')) a.e = parse_expr(c, true), defaults = true;
        else if (defaults) comp_fail(c, "non-default argument follows default argument");
        if (n->nargs == cap) {
            cap = cap ? cap * 2 : 4;
            Arg *more = MEM_ARRAY(c->mem, Arg, cap);
            int *ids = MEM_ARRAY(c->mem, int, cap);
            if (n->nargs) memcpy(more, n->args, n->nargs * sizeof *more), memcpy(ids, n->ids, n->nargs * sizeof *ids);
            n->args = more;
            n->ids = ids;
        }
        n->ids[n->nargs] = comp_name(c, t->s, t->n);
        n->args[n->nargs++] = a;
    }
    comp_expect(c, ')');
}

/* The body of a macro or call block: which of caller, kwargs and varargs it mentions decides what it accepts. */
static void macro_body(Comp *c, Node *n, const char *end) {
    uint8_t was = c->uses;
    int loops = c->loops;
    c->uses = 0;
    c->loops = 0;
    body_to(c, &n->body, end);
    n->uses = c->uses;
    c->uses |= was;
    c->loops = loops;
}

static Node *parse_macro(Comp *c) {
    Node *n = comp_node(c, S_MACRO);
    Tok *t = comp_expect_name(c);
    n->id = comp_name(c, t->s, t->n);
    n->value = v_strn(t->s, t->n);
    parameters(c, n);
    macro_body(c, n, "endmacro");
    return n;
}

static Node *parse_call(Comp *c) {
    Node *n = comp_node(c, S_CALL);
    if (tok_is(comp_tok(c), '(')) parameters(c, n);
    n->a = parse_expr(c, true);
    if (n->a->kind != N_CALL) comp_fail(c, "expected call");
    n->value = v_cstr("caller");
    macro_body(c, n, "endcall");
    return n;
}

static Node *parse_filter(Comp *c) {
    Node *n = comp_node(c, S_FILTER);
    n->b = parse_filters(c, NULL, true);
    body_to(c, &n->body, "endfilter");
    return n;
}

static Node *parse_with(Comp *c) {
    Node *n = comp_node(c, S_WITH);
    while (comp_tok(c)->kind != T_BLOCK_END) {
        if (n->list.n) comp_expect(c, ',');
        comp_list(c, &n->list, parse_target(c, false, NULL));
        comp_expect(c, '=');
        comp_list(c, &n->other, parse_expr(c, true));
    }
    body_to(c, &n->body, "endwith");
    return n;
}

/* {% generation %} marks the assistant's text for a mask of tokens: rendered as it is, in a scope of its own. */
static Node *parse_generation(Comp *c) {
    Node *n = comp_node(c, S_GENERATION);
    c->marks = true;
    int loops = c->loops;
    c->loops = 0;
    body_to(c, &n->body, "endgeneration");
    c->loops = loops;
    return n;
}

static Node *parse_print(Comp *c) {
    Node *all = comp_node(c, S_WITH);
    while (comp_tok(c)->kind != T_BLOCK_END) {
        if (all->body.n) comp_expect(c, ',');
        Node *n = comp_node(c, S_OUT);
        n->a = parse_expr(c, true);
        comp_list(c, &all->body, n);
    }
    return all;
}

static Node *parse_jump(Comp *c, int kind) {
    if (!c->loops) comp_fail(c, "'%s' outside loop", kind == S_BREAK ? "break" : "continue");
    return comp_node(c, kind);
}
static Node *parse_break(Comp *c) { return parse_jump(c, S_BREAK); }
static Node *parse_continue(Comp *c) { return parse_jump(c, S_CONTINUE); }

static Node *statement(Comp *c) {
    /* clang-format off */
    static const struct {
        const char *name;
        Node *(*parse)(Comp *);
    } table[] = {
        { "if", parse_if }, { "for", parse_for }, { "set", parse_set },
        { "macro", parse_macro }, { "call", parse_call }, { "filter", parse_filter },
        { "with", parse_with }, { "generation", parse_generation }, { "break", parse_break },
        { "continue", parse_continue }, { "print", parse_print },
    };
    /* clang-format on */
    static const char *const refused[] = { "block", "extends", "include", "import", "from", "autoescape" };
    Tok *t = comp_expect_name(c);
    c->line = t->line;
    for (size_t i = 0; i < COUNT(table); i++)
        if (tok_named(t, table[i].name)) return table[i].parse(c);
    for (size_t i = 0; i < COUNT(refused); i++)
        if (tok_named(t, refused[i])) comp_fail(c, "the tag '%s' is not supported in chat templates", refused[i]);
    comp_fail(c, "Encountered unknown tag '%.*s'.", (int)(t->n < 60 ? t->n : 60), t->s);
}

void parse_template(Comp *c, NodeList *out) { until(c, out, NULL); }

/* Line ends become \n, and one at the end of the text goes. */
static Value normalized(Comp *c, const char *text, size_t n) {
    char *s = mem_push(c->mem, n + 1);
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\r' && i + 1 < n && text[i + 1] == '\n') continue;
        s[k++] = text[i] == '\r' ? '\n' : text[i];
    }
    if (k && s[k - 1] == '\n') k--;
    s[k] = 0;
    return v_strn(s, k);
}

static Jinja *compile(Comp *c, const char *text, size_t n) {
    if (n > MAX_TEXT) comp_fail(c, "a template of %zu bytes; at most %d are read", n, MAX_TEXT);
    if (!utf8_valid(text, n)) comp_fail(c, "the template is not UTF-8");
    Value s = normalized(c, text, n);
    Jinja *j = MEM_NEW(c->mem, Jinja);
    jinja_lex(c, s.s, s.n);
    j->id_loop = comp_name(c, "loop", 4);
    j->id_caller = comp_name(c, "caller", 6);
    j->id_kwargs = comp_name(c, "kwargs", 6);
    j->id_varargs = comp_name(c, "varargs", 7);
    parse_template(c, &j->body);
    j->marks = c->marks;
    j->n_names = (int)c->names.n;
    j->names = mem_copy(c->mem, c->names.at, c->names.n * sizeof *c->names.at);
    return j;
}

/* Where comp_fail lands. */
static Jinja *guarded(Comp *c, const char *text, size_t n) { return setjmp(c->jump) ? NULL : compile(c, text, n); }

Jinja *jinja_compile(const char *text, size_t n, Mem *mem, int *line, Err *err) {
    Comp c = { .mem = mem, .err = err, .line = 1 };
    Jinja *j = guarded(&c, text, n);
    if (!j && line) *line = c.line;
    else if (!j) {
        size_t used = strlen(err->msg);
        snprintf(err->msg + used, sizeof err->msg - used, " (template line %d)", c.line);
    }
    vec_free(c.tok.at);
    vec_free(c.names.at);
    buf_free(&c.brackets);
    return j;
}
