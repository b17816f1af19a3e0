/* jinja_ops.c - operators, attributes, subscripts and slices with Python's results and errors; attributes as the
 * immutable
 * sandbox gives them: what would change a list or dict, and what begins with an underscore, is unsafe. */
#include "jinja/jinja_int.h"

#include <math.h>
#include <stdio.h>

static NORETURN void unsupported(Run *r, int op, Value a, Value b) {
    char one[2] = { (char)op, 0 };
    const char *name = op == OP_POW ? "** or pow()" : op == OP_FLOORDIV ? "//" : one;
    j_fail(r, "TypeError", "unsupported operand type(s) for %s: '%s' and '%s'", name, v_type(a), v_type(b));
}

static NORETURN void overflow(Run *r) { j_fail(r, "OverflowError", "a whole number that does not fit 64 bits"); }

static int64_t power_whole(Run *r, int64_t a, int64_t e) {
    int64_t v = 1;
    if (a == 0 || a == 1) return e ? a : 1;
    if (a == -1) return e % 2 ? -1 : 1;
    for (; e; e--)
        if (__builtin_mul_overflow(v, a, &v)) overflow(r);
    return v;
}

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return a % b && (a < 0) != (b < 0) ? q - 1 : q;
}

static Value whole(Run *r, int op, int64_t a, int64_t b) {
    int64_t v = 0;
    bool over = false;
    switch (op) {
    case '+': over = __builtin_add_overflow(a, b, &v); break;
    case '-': over = __builtin_sub_overflow(a, b, &v); break;
    case '*': over = __builtin_mul_overflow(a, b, &v); break;
    case OP_POW: return b < 0 ? v_of(V_MISSING) : v_int(power_whole(r, a, b));
    default:
        if (b == 0)
            j_fail(r, "ZeroDivisionError", op == '/' ? "division by zero" : "integer division or modulo by zero");
        if (op == '/') return v_real((double)a / (double)b);
        if (b == -1) over = __builtin_sub_overflow(0, op == '%' ? 0 : a, &v);
        else v = op == '%' ? a - floor_div(a, b) * b : floor_div(a, b);
    }
    if (over) overflow(r);
    return v_int(v);
}

static Value real(Run *r, int op, double a, double b) {
    switch (op) {
    case '+': return v_real(a + b);
    case '-': return v_real(a - b);
    case '*': return v_real(a * b);
    case OP_POW:
        if (a == 0 && b < 0) j_fail(r, "ZeroDivisionError", "0.0 cannot be raised to a negative power");
        if (a < 0 && b != floor(b) && isfinite(b)) j_fail(r, "TypeError", "the power is a complex number");
        if (isfinite(a) && isfinite(b) && isinf(pow(a, b)))
            j_fail(r, "OverflowError", "(34, 'Numerical result out of range')");
        return v_real(pow(a, b));
    default: break;
    }
    if (b == 0)
        j_fail(r, "ZeroDivisionError",
               op == '/'   ? "float division by zero"
               : op == '%' ? "float modulo"
                           : "float floor division by zero");
    if (op == '/') return v_real(a / b);
    double m = fmod(a, b);
    double q = (a - m) / b;
    if (m != 0 && (b < 0) != (m < 0)) m += b, q -= 1;
    else if (m == 0) m = copysign(0, b);
    if (op == '%') return v_real(m);
    double f = q != 0 ? floor(q) : copysign(0, a / b);
    if (q != 0 && q - f > 0.5) f += 1;
    return v_real(f);
}

static Value repeat(Run *r, Value s, int64_t times) {
    if (times < 0) times = 0;
    if (s.kind == V_STR) {
        Sb b = { .r = r };
        if (s.n && times > 0) {
            if ((uint64_t)times > r->max_bytes / s.n) times = (int64_t)(r->max_bytes / s.n) + 1;
            j_steps(r, (size_t)times / 8);
            for (int64_t i = 0; i < times; i++) sb_put(&b, s.s, s.n);
        }
        Value v = sb_done(&b);
        v.sub = s.sub;
        return v;
    }
    size_t n = s.n && times ? s.n * (size_t)(times < (1 << 28) ? times : (1 << 28)) : 0;
    if (s.n > (1u << 28)) n = SIZE_MAX / 64;
    j_steps(r, n / 8);
    Value *at = j_push(r, n, sizeof *at);
    for (size_t i = 0; i < n; i++) at[i] = s.at[i % s.n];
    s.n = n;
    s.at = at;
    return s;
}

static Value add_str(Run *r, Value a, Value b) {
    if (a.sub && !b.sub) b = s_escape(r, b);
    else if (b.sub && !a.sub) a = s_escape(r, a);
    Sb s = { .r = r };
    j_steps(r, (a.n + b.n) / 64);
    char *to = j_push(r, a.n + b.n, 1);
    if (a.n) memcpy(to, a.s, a.n);
    if (b.n) memcpy(to + a.n, b.s, b.n);
    s.s = to;
    s.n = a.n + b.n;
    Value v = sb_done(&s);
    v.sub = a.sub | b.sub;
    return v;
}

static Value add_seq(Run *r, Value a, Value b) {
    j_steps(r, (a.n + b.n) / 8);
    Value *at = j_push(r, a.n + b.n, sizeof *at);
    if (a.n) memcpy(at, a.at, a.n * sizeof *at);
    if (b.n) memcpy(at + a.n, b.at, b.n * sizeof *at);
    return (Value){ .kind = a.kind, .n = a.n + b.n, .at = at };
}

Value j_binary(Run *r, int op, Value a, Value b) {
    if (op == '%' && a.kind == V_STR) return s_percent(r, a, b);
    if (a.kind == V_UNDEF) j_undefined(r, a);
    if (b.kind == V_UNDEF) j_undefined(r, b);
    if (v_whole(a) && v_whole(b)) {
        Value v = whole(r, op, v_i(a), v_i(b));
        if (v.kind != V_MISSING) return v;
    }
    if (v_number(a) && v_number(b)) return real(r, op, v_d(a), v_d(b));
    bool seq_a = a.kind == V_STR || a.kind == V_LIST || a.kind == V_TUPLE,
         seq_b = b.kind == V_STR || b.kind == V_LIST || b.kind == V_TUPLE;
    if (op == '*' && seq_a && v_whole(b)) return repeat(r, a, v_i(b));
    if (op == '*' && seq_b && v_whole(a)) return repeat(r, b, v_i(a));
    if (op == '+' && a.kind == V_STR && b.kind == V_STR) return add_str(r, a, b);
    if (op == '+' && seq_a && a.kind == b.kind) return add_seq(r, a, b);
    if (op == '+' && a.kind == V_STR) j_fail(r, "TypeError", "can only concatenate str (not \"%s\") to str", v_type(b));
    if (op == '+' && seq_a)
        j_fail(r, "TypeError", "can only concatenate %s (not \"%s\") to %s", v_type(a), v_type(b), v_type(a));
    unsupported(r, op, a, b);
}

Value j_unary(Run *r, int op, Value a) {
    if (a.kind == V_UNDEF) j_undefined(r, a);
    if (!v_number(a)) j_fail(r, "TypeError", "bad operand type for unary %c: '%s'", op, v_type(a));
    if (a.kind == V_REAL) return v_real(op == '-' ? -a.d : a.d);
    if (op == '-' && v_i(a) == INT64_MIN) overflow(r);
    return v_int(op == '-' ? -v_i(a) : v_i(a));
}

static bool contains(Run *r, Value in, Value x) {
    if (in.kind == V_STR) {
        if (x.kind == V_UNDEF || x.kind != V_STR)
            j_fail(r, "TypeError", "'in <string>' requires string as left operand, not %s", v_type(x));
        j_steps(r, in.n / 64);
        return s_find(in.s, in.n, x.s, x.n) != NULL;
    }
    if (in.kind == V_DICT) return v_check_hash(r, x), v_find(r, in, x) != NULL;
    if (!v_iterable(in)) j_fail(r, "TypeError", "argument of type '%s' is not iterable", v_type(in));
    Value all = v_items(r, in);
    for (size_t i = 0; i < all.n; i++)
        if (v_eq(r, all.at[i], x)) return true;
    return false;
}

bool j_compare(Run *r, int op, Value a, Value b) {
    switch (op) {
    case OP_EQ: return v_eq(r, a, b);
    case OP_NE: return !v_eq(r, a, b);
    case OP_IN: return contains(r, b, a);
    case OP_NOTIN: return !contains(r, b, a);
    case '<': return v_order(r, a, b, "<") == -1;
    case '>': return v_order(r, a, b, ">") == 1;
    case OP_LE: {
        int c = v_order(r, a, b, "<=");
        return c == -1 || c == 0;
    }
    default: {
        int c = v_order(r, a, b, ">=");
        return c == 1 || c == 0;
    }
    }
}

/* ---- attributes */
static Value unsafe(Run *r, Value o, Value name) {
    Value v = v_undef(r, "access to attribute '%.*s' of '%s' object is unsafe.", (int)(name.n < 100 ? name.n : 100),
                      name.s, v_type(o));
    v.sub = 1;
    return v;
}

static Value loop_attr(Run *r, Loop *l, Value name) {
    int64_t i = (int64_t)l->i, n = (int64_t)l->n;
    /* clang-format off */
    const struct {
        const char *name;
        Value v;
    } table[] = {
        { "index", v_int(i + 1) }, { "index0", v_int(i) }, { "first", v_bool(i == 0) },
        { "last", v_bool(i + 1 == n) }, { "length", v_int(n) }, { "revindex", v_int(n - i) },
        { "revindex0", v_int(n - i - 1) }, { "depth", v_int(1) }, { "depth0", v_int(0) },
    };
    /* clang-format on */
    for (size_t k = 0; k < COUNT(table); k++)
        if (v_is_str(name, table[k].name)) return table[k].v;
    if (v_is_str(name, "previtem")) return i ? l->at[i - 1] : v_undef(r, "there is no previous item");
    if (v_is_str(name, "nextitem")) return i + 1 < n ? l->at[i + 1] : v_undef(r, "there is no next item");
    return v_of(V_MISSING);
}

static bool changes_it(Value o, Value name) {
    static const char *const list[] = {
        "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove", NULL
    };
    static const char *const dict[] = { "clear", "pop", "popitem", "setdefault", "update", NULL };
    for (const char *const *s = o.kind == V_LIST ? list : dict; (o.kind == V_LIST || o.kind == V_DICT) && *s; s++)
        if (v_is_str(name, *s)) return true;
    return false;
}

/* What Python's getattr would find; V_MISSING if nothing. */
static Value own_attr(Run *r, Value o, Value name) {
    if (changes_it(o, name)) return unsafe(r, o, name);
    if (name.n > 4 && !memcmp(name.s, "__", 2) && !memcmp(name.s + name.n - 2, "__", 2)) return unsafe(r, o, name);
    if (o.kind == V_LOOP) {
        Value v = loop_attr(r, o.loop, name);
        if (v_given(v)) return v;
    }
    if (o.kind == V_NS) {
        Value *v = v_find(r, (Value){ .kind = V_DICT, .n = o.ns->n, .pairs = o.ns->pairs }, name);
        if (v) return *v;
    }
    if (o.kind == V_MACRO && v_is_str(name, "name")) return v_strn(o.macro->name, o.macro->n);
    if (o.kind == V_TUPLE && o.sub && (v_is_str(name, "grouper") || v_is_str(name, "list"))) return o.at[name.n == 4];
    if (o.kind == V_CYCLER && v_is_str(name, "current")) return o.gen->at[o.gen->pos];
    if (o.kind == V_RANGE && name.n >= 4) {
        if (v_is_str(name, "start")) return v_int(o.range->start);
        if (v_is_str(name, "stop")) return v_int(o.range->stop);
        if (v_is_str(name, "step")) return v_int(o.range->step);
    }
    const Builtin *m = jinja_method(o, name.s, name.n);
    if (!m) return v_of(V_MISSING);
    Bound *b = j_push(r, 1, sizeof *b);
    *b = (Bound){ o, m };
    return (Value){ .kind = V_METHOD, .bound = b };
}

/* obj[key] as Python has it; V_MISSING where that raises. */
static Value own_item(Run *r, Value o, Value key) {
    if (o.kind == V_DICT) {
        if (key.kind == V_LIST || key.kind == V_DICT) return v_of(V_MISSING);
        Value *v = v_find(r, o, key);
        return v ? *v : v_of(V_MISSING);
    }
    if (!v_whole(key)) return v_of(V_MISSING);
    int64_t i = v_i(key), n;
    if (o.kind == V_STR || o.kind == V_RANGE || o.kind == V_LIST || o.kind == V_TUPLE) n = (int64_t)v_len(r, o);
    else return v_of(V_MISSING);
    if (i < 0) i += n;
    if (i < 0 || i >= n) return v_of(V_MISSING);
    if (o.kind == V_RANGE) return v_int(o.range->start + i * o.range->step);
    if (o.kind != V_STR) return o.at[i];
    size_t at = s_offset(o, (size_t)i), len = s_offset(v_strn(o.s + at, o.n - at), 1);
    return v_strn(o.s + at, len);
}

static Value nothing(Run *r, Value o, Value key) {
    char type[64];
    if (o.kind == V_NONE) snprintf(type, sizeof type, "None");
    else
        snprintf(type, sizeof type,
                 o.kind == V_NS || o.kind == V_MACRO || o.kind == V_LOOP ? "jinja2 %s object" : "%s object", v_type(o));
    if (key.kind == V_STR)
        return v_undef(r, "'%s' has no attribute '%.*s'", type, (int)(key.n < 100 ? key.n : 100), key.s);
    Value text = key.kind == V_GEN || key.kind >= V_METHOD ? v_cstr(v_type(key)) : v_str(r, key);
    return v_undef(r, "%s has no element %.*s", type, (int)(text.n < 100 ? text.n : 100), text.s);
}

Value j_attr(Run *r, Value o, Value name) {
    if (o.kind == V_UNDEF) j_undefined(r, o);
    Value v = own_attr(r, o, name);
    if (!v_given(v)) v = own_item(r, o, name);
    return v_given(v) ? v : nothing(r, o, name);
}

Value j_item(Run *r, Value o, Value key) {
    if (o.kind == V_UNDEF) j_undefined(r, o);
    Value v = own_item(r, o, key);
    if (!v_given(v) && key.kind == V_STR) v = own_attr(r, o, key);
    return v_given(v) ? v : nothing(r, o, key);
}

/* ---- slices */
static int64_t bound(Run *r, Value v, int64_t n, int64_t otherwise, bool back) {
    if (v.kind == V_NONE) return otherwise;
    if (v.kind == V_UNDEF) j_undefined(r, v);
    if (!v_whole(v)) j_fail(r, "TypeError", "slice indices must be integers or None or have an __index__ method");
    int64_t i = v_i(v);
    if (i < 0) i += n;
    int64_t low = back ? -1 : 0, high = back ? n - 1 : n;
    return i < low ? low : i > high ? high : i;
}

Value j_slice(Run *r, Value o, const Value part[3]) {
    if (o.kind == V_UNDEF) j_undefined(r, o);
    if (o.kind != V_STR && o.kind != V_LIST && o.kind != V_TUPLE && o.kind != V_RANGE)
        j_fail(r, "TypeError", o.kind == V_DICT ? "unhashable type: 'slice'" : "'%s' object is not subscriptable",
               v_type(o));
    int64_t step = 1, n = (int64_t)v_len(r, o);
    if (part[2].kind != V_NONE) {
        if (part[2].kind == V_UNDEF) j_undefined(r, part[2]);
        if (!v_whole(part[2]))
            j_fail(r, "TypeError", "slice indices must be integers or None or have an __index__ method");
        step = v_i(part[2]);
    }
    if (!step) j_fail(r, "ValueError", "slice step cannot be zero");
    if (step > n + 1) step = n + 1;
    if (step < -n - 1) step = -n - 1;
    bool back = step < 0;
    int64_t from = bound(r, part[0], n, back ? n - 1 : 0, back), to = bound(r, part[1], n, back ? -1 : n, back);
    int64_t count = back ? (from > to ? (from - to - 1) / -step + 1 : 0) : (to > from ? (to - from - 1) / step + 1 : 0);
    if (o.kind == V_STR && step == 1) {
        size_t a = s_offset(o, (size_t)from), b = count ? s_offset(o, (size_t)to) : a;
        return v_strn(o.s + a, b - a);
    }
    if (o.kind == V_RANGE) {
        Range *g = j_push(r, 1, sizeof *g);
        *g =
            (Range){ o.range->start + from * o.range->step, o.range->start + to * o.range->step, o.range->step * step };
        return (Value){ .kind = V_RANGE, .range = g };
    }
    Value all = v_items(r, o);
    j_steps(r, (size_t)count / 8);
    if (o.kind == V_STR) {
        Sb b = { .r = r };
        for (int64_t i = 0; i < count; i++) sb_put(&b, all.at[from + i * step].s, all.at[from + i * step].n);
        return sb_done(&b);
    }
    Value *at = j_push(r, (size_t)count, sizeof *at);
    for (int64_t i = 0; i < count; i++) at[i] = all.at[from + i * step];
    return (Value){ .kind = o.kind, .n = (size_t)count, .at = at };
}
