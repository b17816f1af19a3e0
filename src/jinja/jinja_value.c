/* jinja_value.c - Python's values as templates see them: truth, equality, order, length, iteration; and the bounds
 * on memory,
 * steps and depth that every operation passes through. */
#include "jinja/jinja_int.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

void j_fail(Run *r, const char *type, const char *fmt, ...) {
    char what[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    err_set(r->err, "%s: %s", type, what);
    longjmp(r->jump, 1);
}

void j_steps(Run *r, size_t cost) {
    r->steps += cost;
    if (r->steps > r->max_steps)
        j_fail(r, "LimitError", "the template ran for more than %llu steps", (unsigned long long)r->max_steps);
}

void j_enter(Run *r) {
    if (++r->depth > r->max_depth)
        j_fail(r, "LimitError", "the template nests calls, expressions or values more than %d levels deep",
               r->max_depth);
}

static void charge(Run *r, size_t bytes) {
    if (bytes > r->max_bytes - r->used)
        j_fail(r, "LimitError", "the template needs more than %zu bytes of memory", r->max_bytes);
    r->used += bytes;
}

void *j_push(Run *r, size_t n, size_t each) {
    if (each && n > r->max_bytes / each) charge(r, r->max_bytes + 1);
    charge(r, n * each + 16);
    return mem_push(&r->mem, n * each);
}

void j_emit(Run *r, const char *s, size_t n) {
    charge(r, n);
    buf_put(&r->out, s, n);
}

/* ---- strings under construction */
static void sb_room(Sb *b, size_t more) {
    if (more > b->r->max_bytes) charge(b->r, more);
    if (b->n + more <= b->cap) return;
    size_t cap = b->cap * 2 > b->n + more ? b->cap * 2 : b->n + more;
    if (cap < 48) cap = 48;
    char *s = j_push(b->r, cap, 1);
    if (b->n) memcpy(s, b->s, b->n);
    b->s = s;
    b->cap = cap;
}

void sb_put(Sb *b, const char *s, size_t n) {
    sb_room(b, n);
    if (n) memcpy(b->s + b->n, s, n);
    b->n += n;
}

void sb_puts(Sb *b, const char *s) { sb_put(b, s, strlen(s)); }
Value sb_done(Sb *b) { return v_strn(b->s ? b->s : "", b->n); }

/* ---- making values */
Value v_undef(Run *r, const char *fmt, ...) {
    char what[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    size_t len = n < (int)sizeof what ? (size_t)n : sizeof what - 1;
    char *s = j_push(r, len + 1, 1);
    memcpy(s, what, len);
    return (Value){ .kind = V_UNDEF, .n = len, .s = s };
}

Value v_gen(Run *r, const char *type, Value *at, size_t n) {
    Gen *g = j_push(r, 1, sizeof *g);
    *g = (Gen){ .at = at, .n = n, .type = type };
    return (Value){ .kind = V_GEN, .gen = g };
}

Value v_from_json(Run *r, const Json *j) {
    switch (j->kind) {
    case JSON_NULL: return v_of(V_NONE);
    case JSON_BOOL: return v_bool(j->flag);
    case JSON_INT: return v_int(j->integer);
    case JSON_REAL: return v_real(j->real);
    case JSON_STRING: return v_strn(j->str, j->n);
    case JSON_ARRAY: {
        Value *at = j_push(r, j->n, sizeof *at);
        for (size_t i = 0; i < j->n; i++) at[i] = v_from_json(r, &j->items[i]);
        return v_list(at, j->n);
    }
    default: {
        Pair *p = j_push(r, j->n, sizeof *p);
        for (size_t i = 0; i < j->n; i++)
            p[i] = (Pair){ v_strn(j->members[i].key, j->members[i].key_n), v_from_json(r, &j->members[i].value) };
        return (Value){ .kind = V_DICT, .n = j->n, .pairs = p };
    }
    }
}

/* ---- asking values */
const char *v_type(Value v) {
    static const char *const name[] = { "missing",
                                        "Undefined",
                                        "NoneType",
                                        "bool",
                                        "int",
                                        "float",
                                        "str",
                                        "list",
                                        "tuple",
                                        "dict",
                                        "range",
                                        "dict_items",
                                        "generator",
                                        "Namespace",
                                        "Macro",
                                        "LoopContext",
                                        "builtin_function_or_method",
                                        "function",
                                        "Cycler",
                                        "Joiner" };
    if (v.kind == V_STR && v.sub) return "Markup";
    if (v.kind == V_VIEW) return v.sub == 'k' ? "dict_keys" : v.sub == 'v' ? "dict_values" : "dict_items";
    if (v.kind == V_GEN) return v.gen->type;
    if (v.kind == V_TUPLE && v.sub) return "_GroupTuple";
    return name[v.kind];
}

void j_undefined(Run *r, Value v) { j_fail(r, v.sub ? "SecurityError" : "UndefinedError", "%s", v.s); }

static int64_t range_len(const Range *g) {
    if (g->step > 0) return g->stop > g->start ? (g->stop - g->start - 1) / g->step + 1 : 0;
    return g->stop < g->start ? (g->start - g->stop - 1) / -g->step + 1 : 0;
}

bool v_true(Run *r, Value v) {
    (void)r;
    switch (v.kind) {
    case V_MISSING:
    case V_UNDEF:
    case V_NONE: return false;
    case V_BOOL: return v.b;
    case V_INT: return v.i != 0;
    case V_REAL: return v.d != 0;
    case V_STR:
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
    case V_DICT: return v.n != 0;
    case V_RANGE: return range_len(v.range) != 0;
    case V_LOOP: return v.loop->n != 0;
    default: return true;
    }
}

static bool is_seq(Value v) { return v.kind == V_LIST || v.kind == V_TUPLE; }

static bool eq_seq(Run *r, const Value *a, const Value *b, size_t n) {
    j_enter(r);
    bool same = true;
    for (size_t i = 0; i < n && same; i++) same = v_eq(r, a[i], b[i]);
    j_leave(r);
    return same;
}

static bool eq_dict(Run *r, Value a, Value b) {
    if (a.n != b.n) return false;
    j_enter(r);
    bool same = true;
    for (size_t i = 0; i < a.n && same; i++) {
        Value *other = v_find(r, b, a.pairs[i].key);
        same = other && v_eq(r, a.pairs[i].value, *other);
    }
    j_leave(r);
    return same;
}

bool v_eq(Run *r, Value a, Value b) {
    j_steps(r, 1);
    if (v_number(a) && v_number(b)) return v_whole(a) && v_whole(b) ? v_i(a) == v_i(b) : v_order(r, a, b, "==") == 0;
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case V_UNDEF:
    case V_NONE: return true;
    case V_STR: j_steps(r, a.n / 64); return a.n == b.n && !memcmp(a.s, b.s, a.n);
    case V_LIST:
    case V_TUPLE: return a.n == b.n && (a.at == b.at || eq_seq(r, a.at, b.at, a.n));
    case V_DICT: return a.pairs == b.pairs || eq_dict(r, a, b);
    case V_RANGE: {
        int64_t n = range_len(a.range);
        return n == range_len(b.range)
               && (!n || (a.range->start == b.range->start && (n == 1 || a.range->step == b.range->step)));
    }
    case V_VIEW: return a.pairs == b.pairs && a.sub == b.sub;
    case V_FUNC: return a.fn == b.fn;
    case V_METHOD: return a.bound->fn == b.bound->fn && v_eq(r, a.bound->self, b.bound->self);
    default: return a.gen == b.gen; /* identity */
    }
}

/* int against float exactly: past 2^53 a conversion would round */
static int order_numbers(Value a, Value b) {
    if (v_whole(a) && v_whole(b)) return (v_i(a) > v_i(b)) - (v_i(a) < v_i(b));
    double x = v_d(a), y = v_d(b);
    if (isnan(x) || isnan(y)) return 2;
    if (v_whole(a) == v_whole(b) || x != y || isinf(x)) return (x > y) - (x < y);
    double d = v_whole(a) ? y : x;
    if (d >= 0x1p63) return v_whole(a) ? -1 : 1;
    int64_t i = (int64_t)d, o = v_whole(a) ? v_i(a) : v_i(b);
    int c = (o > i) - (o < i);
    return v_whole(a) ? c : -c;
}

int v_order(Run *r, Value a, Value b, const char *op) {
    j_steps(r, 1);
    if (v_number(a) && v_number(b)) return order_numbers(a, b);
    if (a.kind == V_UNDEF) j_undefined(r, a);
    if (b.kind == V_UNDEF) j_undefined(r, b);
    if (a.kind == V_STR && b.kind == V_STR) {
        size_t n = a.n < b.n ? a.n : b.n;
        j_steps(r, n / 64);
        int c = n ? memcmp(a.s, b.s, n) : 0; /* UTF-8 sorts as its code points do */
        return c ? (c > 0) - (c < 0) : (a.n > b.n) - (a.n < b.n);
    }
    if (a.kind != b.kind || !is_seq(a))
        j_fail(r, "TypeError", "'%s' not supported between instances of '%s' and '%s'", op, v_type(a), v_type(b));
    j_enter(r);
    int c = 0;
    for (size_t i = 0; i < a.n && i < b.n && !c; i++)
        if (!v_eq(r, a.at[i], b.at[i])) c = v_order(r, a.at[i], b.at[i], op);
    j_leave(r);
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

size_t v_len(Run *r, Value v) {
    switch (v.kind) {
    case V_UNDEF: return 0;
    case V_STR: j_steps(r, v.n / 64); return s_len(v);
    case V_LIST:
    case V_TUPLE:
    case V_VIEW:
    case V_DICT: return v.n;
    case V_RANGE: return (size_t)range_len(v.range);
    case V_LOOP: return v.loop->n;
    default: j_fail(r, "TypeError", "object of type '%s' has no len()", v_type(v));
    }
}

bool v_iterable(Value v) {
    return v.kind == V_UNDEF || v.kind == V_STR || is_seq(v) || v.kind == V_DICT || v.kind == V_RANGE
           || v.kind == V_VIEW || v.kind == V_GEN || v.kind == V_LOOP;
}

static Value items_of_str(Run *r, Value v) {
    size_t n = s_len(v), at = 0;
    Value *out = j_push(r, n, sizeof *out);
    for (size_t i = 0; i < n; i++) {
        size_t len = s_offset(v_strn(v.s + at, v.n - at), 1);
        out[i] = v_strn(v.s + at, len);
        at += len;
    }
    return v_list(out, n);
}

static Value items_of_view(Run *r, Value v) {
    Value *out = j_push(r, v.n, sizeof *out);
    for (size_t i = 0; i < v.n; i++) {
        if (v.kind == V_DICT || v.sub == 'k') out[i] = v.pairs[i].key;
        else if (v.sub == 'v') out[i] = v.pairs[i].value;
        else {
            Value *two = j_push(r, 2, sizeof *two);
            two[0] = v.pairs[i].key;
            two[1] = v.pairs[i].value;
            out[i] = v_tuple(two, 2);
        }
    }
    return v_list(out, v.n);
}

Value v_items(Run *r, Value v) {
    switch (v.kind) {
    case V_UNDEF: return v_list(NULL, 0);
    case V_STR: j_steps(r, v.n / 8); return items_of_str(r, v);
    case V_LIST: return v;
    case V_TUPLE: return v_list(v.at, v.n);
    case V_DICT:
    case V_VIEW: j_steps(r, v.n / 8); return items_of_view(r, v);
    case V_RANGE: {
        size_t n = (size_t)range_len(v.range);
        j_steps(r, n / 8);
        Value *out = j_push(r, n, sizeof *out);
        for (size_t i = 0; i < n; i++) out[i] = v_int(v.range->start + (int64_t)i * v.range->step);
        return v_list(out, n);
    }
    case V_GEN: {
        size_t from = v.gen->pos;
        v.gen->pos = v.gen->n;
        return v_list(from < v.gen->n ? v.gen->at + from : NULL, v.gen->n - from);
    }
    default: j_fail(r, "TypeError", "'%s' object is not iterable", v_type(v));
    }
}

/* ---- dictionaries: pairs in the order of insertion, searched from the front (templates' ones are small) */
void v_check_hash(Run *r, Value v) {
    if (v.kind == V_LIST || v.kind == V_DICT) j_fail(r, "TypeError", "unhashable type: '%s'", v_type(v));
    if (v.kind != V_TUPLE) return;
    j_enter(r);
    for (size_t i = 0; i < v.n; i++) v_check_hash(r, v.at[i]);
    j_leave(r);
}

Value *v_find(Run *r, Value dict, Value key) {
    j_steps(r, dict.n / 8);
    for (size_t i = 0; i < dict.n; i++) {
        Value k = dict.pairs[i].key;
        if (k.kind == V_STR && key.kind == V_STR ? k.n == key.n && !memcmp(k.s, key.s, k.n) : v_eq(r, k, key))
            return &dict.pairs[i].value;
    }
    return NULL;
}

void v_put_pair(Run *r, Pair *pairs, size_t *n, Value key, Value value) {
    v_check_hash(r, key);
    Value *there = v_find(r, (Value){ .kind = V_DICT, .n = *n, .pairs = pairs }, key);
    if (there) *there = value;
    else pairs[(*n)++] = (Pair){ key, value };
}
