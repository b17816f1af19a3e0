/* jinja_eval.c - walks the tree: statements write to the output, expressions give values.
 *
 * Names are found in the scopes around them at the time they are read, then among the variables given, then among the
 * functions; a loop's body, a macro, a with, set, filter or call block each have a scope, an if has none. */
#include "jinja/jinja_int.h"

#include <stdio.h>

typedef enum { GO_ON, BREAK, CONTINUE } Flow;

static Value eval(Run *r, const Node *n);
static Flow exec(Run *r, const NodeList *body);

/* ---- names */
static Scope *scope_push(Run *r) {
    Scope *s = j_push(r, 1, sizeof *s);
    *s = (Scope){ .up = r->scope };
    r->scope = s;
    return s;
}

static void assign(Run *r, int id, Value v) {
    Scope *s = r->scope;
    for (size_t i = 0; i < s->n; i++)
        if (s->at[i].id == id) {
            s->at[i].v = v;
            return;
        }
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 4;
        Var *more = j_push(r, s->cap, sizeof *more);
        if (s->n) memcpy(more, s->at, s->n * sizeof *more);
        s->at = more;
    }
    s->at[s->n++] = (Var){ id, v };
}

static Value lookup(Run *r, int id) {
    for (const Scope *s = r->scope; s; s = s->up)
        for (size_t i = 0; i < s->n; i++)
            if (s->at[i].id == id) return s->at[i].v;
    Value *v = &r->context[id], name = r->j->names[id];
    if (v_given(*v)) return *v;
    const Json *given = NULL;
    for (size_t i = 0; r->vars && i < r->vars->n; i++)
        if (r->vars->members[i].key_n == name.n && !memcmp(r->vars->members[i].key, name.s, name.n))
            given = &r->vars->members[i].value;
    const Builtin *fn = given ? NULL : jinja_global(name.s, name.n);
    if (given) *v = v_from_json(r, given);
    else if (fn) *v = (Value){ .kind = V_FUNC, .fn = fn };
    else *v = v_undef(r, "'%.*s' is undefined", (int)(name.n < 100 ? name.n : 100), name.s);
    return *v;
}

static void unpack(Run *r, const Node *target, Value v) {
    if (target->kind == N_NAME) {
        assign(r, target->id, v);
        return;
    }
    if (target->kind == N_NSREF) {
        Value ns = lookup(r, target->id);
        if (ns.kind != V_NS) j_fail(r, "TemplateRuntimeError", "cannot assign attribute on non-namespace object");
        if (ns.ns->n == ns.ns->cap) {
            ns.ns->cap = ns.ns->cap ? ns.ns->cap * 2 : 4;
            Pair *more = j_push(r, ns.ns->cap, sizeof *more);
            if (ns.ns->n) memcpy(more, ns.ns->pairs, ns.ns->n * sizeof *more);
            ns.ns->pairs = more;
        }
        v_put_pair(r, ns.ns->pairs, &ns.ns->n, target->value, v);
        return;
    }
    if (!v_iterable(v)) j_fail(r, "TypeError", "cannot unpack non-iterable %s object", v_type(v));
    Value all = v_items(r, v);
    size_t want = target->list.n;
    if (all.n < want) j_fail(r, "ValueError", "not enough values to unpack (expected %zu, got %zu)", want, all.n);
    if (all.n > want) j_fail(r, "ValueError", "too many values to unpack (expected %zu)", want);
    for (size_t i = 0; i < want; i++) unpack(r, target->list.at[i], all.at[i]);
}

/* ---- calls */
static void spread(Run *r, Args *a, size_t *cap, size_t *kwcap, Value v, int star) {
    if (star == 1) {
        Value all = v_items(r, v);
        Value *more = j_push(r, *cap + all.n, sizeof *more);
        if (a->n) memcpy(more, a->at, a->n * sizeof *more);
        if (all.n) memcpy(more + a->n, all.at, all.n * sizeof *more);
        a->at = more;
        a->n += all.n;
        *cap += all.n;
        return;
    }
    if (v.kind != V_DICT) j_fail(r, "TypeError", "argument after ** must be a mapping, not %s", v_type(v));
    Kw *more = j_push(r, *kwcap + v.n, sizeof *more);
    if (a->nkw) memcpy(more, a->kw, a->nkw * sizeof *more);
    a->kw = more;
    *kwcap += v.n;
    for (size_t i = 0; i < v.n; i++) {
        if (v.pairs[i].key.kind != V_STR) j_fail(r, "TypeError", "keywords must be strings");
        a->kw[a->nkw++] = (Kw){ v.pairs[i].key.s, v.pairs[i].key.n, v.pairs[i].value };
    }
}

/* extra: room for one keyword more, the caller of a call block */
static Args arguments(Run *r, const Node *n, size_t extra) {
    Args a = { 0 };
    size_t cap = n->nargs, kwcap = n->nargs + extra;
    if (cap) a.at = j_push(r, cap, sizeof *a.at);
    if (kwcap) a.kw = j_push(r, kwcap, sizeof *a.kw);
    for (size_t i = 0; i < n->nargs; i++) {
        const Arg *x = &n->args[i];
        Value v = eval(r, x->e);
        if (x->star) spread(r, &a, &cap, &kwcap, v, x->star);
        else if (x->name) a.kw[a.nkw++] = (Kw){ x->name, x->n, v };
        else a.at[a.n++] = v;
    }
    return a;
}

/* Binds arguments to the names in fn->spec and runs it. */
Value j_apply(Run *r, const Builtin *fn, const char *what, Value self, const Args *a) {
    Value v[MAX_PARAMS] = { 0 };
    j_steps(r, 1);
    if (!fn->spec) return fn->fn(r, self, v, a);
    size_t used = 0, i = 0;
    for (const char *s = fn->spec; *s; i++) {
        size_t len = strcspn(s, " ");
        if (i < a->n) v[i] = a->at[i];
        for (size_t k = 0; k < a->nkw; k++)
            if (a->kw[k].n == len && !memcmp(a->kw[k].s, s, len)) {
                if (v_given(v[i]))
                    j_fail(r, "TypeError", "%s() got multiple values for argument '%.*s'", fn->name, (int)len, s);
                v[i] = a->kw[k].v;
                used++;
            }
        if ((int)i < fn->need && !v_given(v[i]))
            j_fail(r, "TypeError", "%s %s() missing the argument '%.*s'", what, fn->name, (int)len, s);
        s += len + (s[len] == ' ');
    }
    if (a->n > i) j_fail(r, "TypeError", "%s %s() takes at most %zu arguments (%zu given)", what, fn->name, i, a->n);
    if (used < a->nkw)
        j_fail(r, "TypeError", "%s %s() got an unexpected keyword argument '%.*s'", what, fn->name, (int)a->kw[0].n,
               a->kw[0].s);
    return fn->fn(r, self, v, a);
}

static Value *keyword(const Args *a, bool *used, const char *s, size_t n) {
    for (size_t i = 0; i < a->nkw; i++)
        if (a->kw[i].n == n && !memcmp(a->kw[i].s, s, n)) return used[i] = true, &a->kw[i].v;
    return NULL;
}

/* What is left of the arguments goes to kwargs and varargs if the body mentions them, else it is an error. */
static void extra_args(Run *r, const Macro *m, const Args *a, const bool *used) {
    const Node *n = m->node;
    Pair *pairs = j_push(r, a->nkw, sizeof *pairs);
    size_t left = 0;
    for (size_t i = 0; i < a->nkw; i++)
        if (!used[i]) v_put_pair(r, pairs, &left, v_strn(a->kw[i].s, a->kw[i].n), a->kw[i].v);
    if (n->uses & USES_KWARGS) assign(r, r->j->id_kwargs, (Value){ .kind = V_DICT, .n = left, .pairs = pairs });
    else if (left)
        j_fail(r, "TypeError", "macro '%.*s' takes no keyword argument '%.*s'", (int)m->n, m->name, (int)pairs[0].key.n,
               pairs[0].key.s);
    size_t more = a->n > n->nargs ? a->n - n->nargs : 0;
    if (n->uses & USES_VARARGS) assign(r, r->j->id_varargs, v_tuple(more ? a->at + n->nargs : NULL, more));
    else if (more)
        j_fail(r, "TypeError", "macro '%.*s' takes not more than %zu argument(s)", (int)m->n, m->name, n->nargs);
}

static Value captured(Run *r, size_t from) {
    if (r->spans && r->spans->n && r->spans->at[r->spans->n - 1].to > from)
        j_fail(r, "TemplateRuntimeError",
               "a generation block inside a macro, a filter or a set block cannot be located");
    size_t n = r->out.n - from;
    char *s = j_push(r, n, 1);
    if (n) memcpy(s, r->out.data + from, n);
    r->out.n = from;
    return v_strn(s, n);
}

static Value call_macro(Run *r, const Macro *m, const Args *a) {
    const Node *n = m->node;
    Scope *was = r->scope;
    size_t from = r->out.n;
    j_enter(r);
    r->scope = m->scope;
    scope_push(r);
    bool *used = j_push(r, a->nkw, sizeof *used);
    for (size_t i = 0; i < n->nargs; i++) {
        const Arg *p = &n->args[i];
        Value *kw = i < a->n ? NULL : keyword(a, used, p->name, p->n);
        if (i < a->n) assign(r, n->ids[i], a->at[i]);
        else if (kw) assign(r, n->ids[i], *kw);
        else if (p->e) assign(r, n->ids[i], eval(r, p->e));
        else
            assign(r, n->ids[i],
                   v_undef(r, "parameter '%.*s' was not provided", (int)(p->n < 100 ? p->n : 100), p->name));
    }
    if (n->uses & USES_CALLER) {
        Value *caller = keyword(a, used, "caller", 6);
        assign(r, r->j->id_caller, caller ? *caller : v_undef(r, "No caller defined"));
    }
    extra_args(r, m, a, used);
    exec(r, &n->body);
    r->scope = was;
    j_leave(r);
    return captured(r, from);
}

Value j_call(Run *r, Value f, const Args *a) {
    switch (f.kind) {
    case V_UNDEF: j_undefined(r, f);
    case V_MACRO: return call_macro(r, f.macro, a);
    case V_METHOD: return j_apply(r, f.bound->fn, v_type(f.bound->self), f.bound->self, a);
    case V_FUNC: return j_apply(r, f.fn, "function", v_of(V_NONE), a);
    case V_JOINER: {
        Value sep = f.gen->pos++ ? f.gen->at[0] : v_cstr("");
        return sep;
    }
    case V_LOOP: j_fail(r, "TypeError", "The loop must have the 'recursive' marker to be called recursively.");
    default: j_fail(r, "TypeError", "'%s' object is not callable", v_type(f));
    }
}

/* ---- expressions */
static Value sequence(Run *r, const Node *n, Kind kind) {
    Value *at = j_push(r, n->list.n, sizeof *at);
    for (size_t i = 0; i < n->list.n; i++) at[i] = eval(r, n->list.at[i]);
    return (Value){ .kind = (uint8_t)kind, .n = n->list.n, .at = at };
}

static Value dict(Run *r, const Node *n) {
    Pair *pairs = j_push(r, n->list.n / 2, sizeof *pairs);
    size_t count = 0;
    for (size_t i = 0; i + 1 < n->list.n; i += 2) {
        Value key = eval(r, n->list.at[i]);
        v_put_pair(r, pairs, &count, key, eval(r, n->list.at[i + 1]));
    }
    return (Value){ .kind = V_DICT, .n = count, .pairs = pairs };
}

static Value concat(Run *r, const Node *n) {
    Value *at = j_push(r, n->list.n, sizeof *at);
    for (size_t i = 0; i < n->list.n; i++) at[i] = eval(r, n->list.at[i]);
    Sb b = { .r = r };
    for (size_t i = 0; i < n->list.n; i++) sb_value(&b, at[i]);
    return sb_done(&b);
}

static Value compare(Run *r, const Node *n) {
    Value left = eval(r, n->a);
    for (size_t i = 0; i < n->list.n; i++) {
        Value right = eval(r, n->list.at[i]->a);
        r->line = n->line;
        if (!j_compare(r, n->list.at[i]->op, left, right)) return v_bool(false);
        left = right;
    }
    return v_bool(true);
}

static Value filtered(Run *r, const Node *n, Value in) {
    if (!n->fn)
        j_fail(r, "TemplateAssertionError", "No %s named '%.*s'.", n->kind == N_TEST ? "test" : "filter",
               (int)(n->value.n < 60 ? n->value.n : 60), n->value.s);
    Args a = arguments(r, n, 0);
    r->line = n->line;
    return j_apply(r, n->fn, n->kind == N_TEST ? "test" : "filter", in, &a);
}

static Value slice(Run *r, const Node *n) {
    Value o = eval(r, n->a), part[3];
    for (int i = 0; i < 3; i++) part[i] = n->list.at[i] ? eval(r, n->list.at[i]) : v_of(V_NONE);
    r->line = n->line;
    return j_slice(r, o, part);
}

static Value pair_op(Run *r, const Node *n) {
    Value a = eval(r, n->a), b = eval(r, n->b);
    r->line = n->line;
    return n->kind == N_ITEM ? j_item(r, a, b) : j_binary(r, n->op, a, b);
}

static Value call(Run *r, const Node *n) {
    Value f = eval(r, n->a);
    Args a = arguments(r, n, 0);
    r->line = n->line;
    return j_call(r, f, &a);
}

static Value eval_node(Run *r, const Node *n) {
    Value v;
    switch (n->kind) {
    case N_CONST: return n->value;
    case N_NAME: return lookup(r, n->id);
    case N_LIST: return sequence(r, n, V_LIST);
    case N_TUPLE: return sequence(r, n, V_TUPLE);
    case N_DICT: return dict(r, n);
    case N_ATTR:
        v = eval(r, n->a);
        r->line = n->line;
        return j_attr(r, v, n->value);
    case N_SLICE: return slice(r, n);
    case N_CALL: return call(r, n);
    case N_TEST:
    case N_FILTER: return filtered(r, n, eval(r, n->a));
    case N_NOT: return v_bool(!v_true(r, eval(r, n->a)));
    case N_NEG: return j_unary(r, '-', eval(r, n->a));
    case N_POS: return j_unary(r, '+', eval(r, n->a));
    case N_ITEM:
    case N_BIN: return pair_op(r, n);
    case N_CONCAT: return concat(r, n);
    case N_CMP: return compare(r, n);
    case N_AND: return v = eval(r, n->a), v_true(r, v) ? eval(r, n->b) : v;
    case N_OR: return v = eval(r, n->a), v_true(r, v) ? v : eval(r, n->b);
    case N_COND:
        if (v_true(r, eval(r, n->a))) return eval(r, n->b);
        if (n->c) return eval(r, n->c);
        return v_undef(r, "the inline if-expression on line %d evaluated to false and no else section was defined.",
                       n->line);
    default: die("a statement where a value is wanted: %d", n->kind);
    }
}

static Value eval(Run *r, const Node *n) {
    j_enter(r);
    j_steps(r, 1);
    r->line = n->line;
    Value v = eval_node(r, n);
    j_leave(r);
    return v;
}

/* ---- statements */
static void output(Run *r, Value v) {
    if (v.kind == V_UNDEF) return;
    if (v.kind != V_STR) v = v_str(r, v);
    j_emit(r, v.s, v.n);
}

static Value passing(Run *r, const Node *n, Value all) {
    Value *at = j_push(r, all.n, sizeof *at);
    size_t count = 0;
    for (size_t i = 0; i < all.n; i++) {
        r->scope->n = 0;
        assign(r, r->j->id_loop,
               v_undef(r, "'loop' is undefined. the filter section of a loop as well as the else block don't have "
                          "access to the special 'loop' variable of the current loop."));
        unpack(r, n->a, all.at[i]);
        if (v_true(r, eval(r, n->c))) at[count++] = all.at[i];
    }
    return v_list(at, count);
}

static Flow exec_for(Run *r, const Node *n) {
    Value all = v_items(r, eval(r, n->b));
    Scope *outer = r->scope;
    scope_push(r);
    if (n->c) all = passing(r, n, all);
    Loop *loop = j_push(r, 1, sizeof *loop);
    *loop = (Loop){ .at = all.at, .n = all.n };
    for (size_t i = 0; i < all.n; i++) {
        j_steps(r, 1);
        loop->i = i;
        if (r->scope->kept) { /* a macro made in the last round still sees its variables */
            r->scope = outer;
            scope_push(r);
        }
        r->scope->n = 0;
        unpack(r, n->a, all.at[i]);
        assign(r, r->j->id_loop, (Value){ .kind = V_LOOP, .loop = loop });
        if (exec(r, &n->body) == BREAK) break;
    }
    r->scope = outer;
    if (all.n || !n->other.n) return GO_ON;
    scope_push(r);
    Flow f = exec(r, &n->other);
    r->scope = outer;
    return f;
}

static Flow exec_if(Run *r, const Node *n) {
    for (size_t i = 0; i < n->list.n; i++)
        if (v_true(r, eval(r, n->list.at[i]->a))) return exec(r, &n->list.at[i]->body);
    return exec(r, &n->other);
}

/* The filters of a set or filter block, whose innermost one has nothing before it. */
static Value chain(Run *r, const Node *n, Value v) {
    if (!n) return v;
    j_enter(r);
    v = chain(r, n->a, v);
    j_leave(r);
    return filtered(r, n, v);
}

static Flow exec_captured(Run *r, const Node *n) {
    size_t from = r->out.n;
    Scope *was = r->scope;
    scope_push(r);
    Flow f = exec(r, &n->body);
    r->scope = was;
    Value v = captured(r, from);
    if (f != GO_ON) return f;
    v = chain(r, n->b, v);
    if (n->kind == S_SETBLOCK) unpack(r, n->a, v);
    else output(r, v);
    return GO_ON;
}

static Flow exec_with(Run *r, const Node *n) {
    Scope *was = r->scope;
    Value *v = j_push(r, n->list.n, sizeof *v);
    for (size_t i = 0; i < n->list.n; i++) v[i] = eval(r, n->other.at[i]);
    scope_push(r);
    for (size_t i = 0; i < n->list.n; i++) unpack(r, n->list.at[i], v[i]);
    Flow f = exec(r, &n->body);
    r->scope = was;
    return f;
}

static Flow exec_generation(Run *r, const Node *n) {
    size_t from = r->out.n, at = 0;
    if (r->spans) {
        j_push(r, 1, sizeof(JinjaSpan)); /* counted among what a rendering may take */
        at = r->spans->n;
        VEC_PUSH(*r->spans, (JinjaSpan){ from, from });
    }
    Flow f = exec_with(r, n);
    if (r->spans) r->spans->at[at].to = r->out.n;
    return f;
}

static Value make_macro(Run *r, const Node *n) {
    Macro *m = j_push(r, 1, sizeof *m);
    *m = (Macro){ .node = n, .scope = r->scope, .name = n->value.s, .n = n->value.n, .is_caller = n->kind == S_CALL };
    for (Scope *s = r->scope; s && !s->kept; s = s->up) s->kept = true;
    return (Value){ .kind = V_MACRO, .macro = m };
}

static void exec_call(Run *r, const Node *n) {
    Value f = eval(r, n->a->a);
    Args a = arguments(r, n->a, 1);
    Kw *kw = j_push(r, a.nkw + 1, sizeof *kw);
    if (a.nkw) memcpy(kw, a.kw, a.nkw * sizeof *kw);
    kw[a.nkw++] = (Kw){ "caller", 6, make_macro(r, n) };
    a.kw = kw;
    r->line = n->line;
    output(r, j_call(r, f, &a));
}

static Flow exec_one(Run *r, const Node *n) {
    r->line = n->line;
    switch (n->kind) {
    case S_DATA: j_emit(r, n->value.s, n->value.n); return GO_ON;
    case S_OUT: output(r, eval(r, n->a)); return GO_ON;
    case S_SET: unpack(r, n->a, eval(r, n->b)); return GO_ON;
    case S_MACRO: assign(r, n->id, make_macro(r, n)); return GO_ON;
    case S_FOR: return exec_for(r, n);
    case S_IF: return exec_if(r, n);
    case S_SETBLOCK:
    case S_FILTER: return exec_captured(r, n);
    case S_CALL: exec_call(r, n); return GO_ON;
    case S_WITH: return exec_with(r, n);
    case S_GENERATION: return exec_generation(r, n);
    case S_BREAK: return BREAK;
    case S_CONTINUE: return CONTINUE;
    default: die("a value where a statement is wanted: %d", n->kind);
    }
}

static Flow exec(Run *r, const NodeList *body) {
    Flow f = GO_ON;
    j_enter(r);
    for (size_t i = 0; i < body->n && f == GO_ON; i++) {
        j_steps(r, 1);
        f = exec_one(r, body->at[i]);
    }
    j_leave(r);
    return f;
}

/* Where j_fail lands. */
static bool guarded(Run *r) {
    if (setjmp(r->jump)) return false;
    r->context = j_push(r, (size_t)r->j->n_names, sizeof *r->context);
    scope_push(r);
    exec(r, &r->j->body);
    return true;
}

bool jinja_names(const Jinja *j, const char *name) {
    size_t n = strlen(name);
    for (int i = 0; i < j->n_names; i++)
        if (j->names[i].n == n && !memcmp(j->names[i].s, name, n)) return true;
    return false;
}

bool jinja_render_spans(const Jinja *j, const Json *vars, const JinjaLimits *limits, Buf *out, JinjaSpans *spans,
                        int *line, Err *err) {
    if (vars && vars->kind != JSON_OBJECT)
        return err_set(err, "a template's variables must be an object, not %s", json_kind_name(vars->kind));
    JinjaLimits l = limits ? *limits : (JinjaLimits){ 0 };
    if (spans) spans->n = 0;
    Run r = { .j = j,
              .vars = vars,
              .err = err,
              .spans = spans,
              .max_steps = l.steps ? l.steps : 20000000,
              .max_bytes = l.bytes ? l.bytes : (size_t)256 << 20,
              .max_depth = l.depth ? l.depth : 400 };
    bool ok = guarded(&r);
    if (ok && r.out.n) buf_put(out, r.out.data, r.out.n);
    if (!ok && line) *line = r.line;
    else if (!ok) {
        size_t used = strlen(err->msg);
        snprintf(err->msg + used, sizeof err->msg - used, " (template line %d)", r.line);
    }
    buf_free(&r.out);
    mem_free(&r.mem);
    return ok;
}

bool jinja_render(const Jinja *j, const Json *vars, const JinjaLimits *limits, Buf *out, int *line, Err *err) {
    return jinja_render_spans(j, vars, limits, out, NULL, line, err);
}

bool jinja_marks(const Jinja *j) { return j->marks; }
