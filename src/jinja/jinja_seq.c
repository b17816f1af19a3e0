/* jinja_seq.c - filters on sequences.  Where Jinja2 gives a generator this gives one too: it can be walked once, has no
 * length and no JSON. */
#include "jinja/jinja_int.h"

/* ---- "a.b.0" of each item, as attribute= means it */
static Value by_path(Run *r, Value v, Value path, Value otherwise) {
    if (path.kind == V_INT) return j_item(r, v, path);
    for (size_t at = 0; at <= path.n;) {
        const char *dot = memchr(path.s + at, '.', path.n - at);
        size_t n = dot ? (size_t)(dot - path.s) - at : path.n - at;
        Value part = v_strn(path.s + at, n);
        bool number = n > 0 && n < 10;
        for (size_t i = 0; i < n; i++) number = number && part.s[i] >= '0' && part.s[i] <= '9';
        if (number) {
            int64_t k = 0;
            for (size_t i = 0; i < n; i++) k = k * 10 + (part.s[i] - '0');
            part = v_int(k);
        }
        v = j_item(r, v, part);
        if (v.kind == V_UNDEF && v_given(otherwise)) v = otherwise;
        at += n + 1;
    }
    return v;
}

static Value path_arg(Run *r, Value v) {
    if (v.kind == V_NONE || !v_given(v)) return v_of(V_MISSING);
    if (v.kind == V_UNDEF) j_undefined(r, v);
    return v_whole(v) ? v_int(v_i(v)) : v_str(r, v);
}

static Value fold_case(Run *r, Value v, bool sensitive) {
    return v.kind == V_STR && !sensitive ? s_case(r, v, 'l') : v;
}

static Value key_of(Run *r, Value v, Value path, Value otherwise, bool sensitive) {
    return fold_case(r, v_given(path) ? by_path(r, v, path, otherwise) : v, sensitive);
}

/* A list with one key per attribute of "a,b": lists compare by equality first, so two undefined ones are equal and
 * not an error. */
static Value sort_key(Run *r, Value v, Value path, bool sensitive) {
    size_t n = 1, k = 0, from = 0;
    bool text = v_given(path) && path.kind == V_STR;
    for (size_t i = 0; text && i < path.n; i++) n += path.s[i] == ',';
    Value *at = j_push(r, n, sizeof *at);
    if (!text) at[k++] = key_of(r, v, path, v_of(V_MISSING), sensitive);
    for (size_t i = 0; text && i <= path.n; i++) {
        if (i < path.n && path.s[i] != ',') continue;
        at[k++] = key_of(r, v, v_strn(path.s + from, i - from), v_of(V_MISSING), sensitive);
        from = i + 1;
    }
    return v_list(at, n);
}

/* A stable merge sort that moves items along with their keys and asks only "is b < a", as Python's does. */
static void merge(Run *r, Value *k, Value *v, Value *tk, Value *tv, size_t n, bool reverse) {
    if (n < 2) return;
    size_t half = n / 2;
    merge(r, k, v, tk, tv, half, reverse);
    merge(r, k + half, v + half, tk, tv, n - half, reverse);
    memcpy(tk, k, n * sizeof *k);
    memcpy(tv, v, n * sizeof *v);
    for (size_t a = 0, b = half, i = 0; i < n; i++) {
        bool right =
            a >= half
            || (b < n && (reverse ? v_order(r, tk[a], tk[b], "<") == -1 : v_order(r, tk[b], tk[a], "<") == -1));
        size_t from = right ? b++ : a++;
        k[i] = tk[from];
        v[i] = tv[from];
    }
}

void j_sort(Run *r, Value *keys, Value *items, size_t n, bool reverse) {
    merge(r, keys, items, j_push(r, n, sizeof(Value)), j_push(r, n, sizeof(Value)), n, reverse);
}

static Value copy_items(Run *r, Value v) {
    Value all = v_items(r, v), *at = j_push(r, all.n, sizeof *at);
    j_steps(r, all.n);
    if (all.n) memcpy(at, all.at, all.n * sizeof *at);
    return v_list(at, all.n);
}

static Value f_list(Run *r, Value self, const Value *v, const Args *a) { return (void)v, (void)a, copy_items(r, self); }

static Value f_first(Run *r, Value self, const Value *v, const Args *a) {
    (void)v, (void)a;
    if (self.kind == V_GEN && self.gen->pos < self.gen->n) return self.gen->at[self.gen->pos++];
    Value all = v_items(r, self);
    return all.n ? all.at[0] : v_undef(r, "No first item, sequence was empty.");
}

static Value f_last(Run *r, Value self, const Value *v, const Args *a) {
    (void)v, (void)a;
    if (self.kind == V_GEN || !v_iterable(self)) j_fail(r, "TypeError", "'%s' object is not reversible", v_type(self));
    Value all = v_items(r, self);
    return all.n ? all.at[all.n - 1] : v_undef(r, "No last item, sequence was empty.");
}

static Value f_join(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value all = v_items(r, self), path = path_arg(r, v[1]), sep = v_given(v[0]) ? v_str(r, v[0]) : v_cstr("");
    Sb b = { .r = r };
    for (size_t i = 0; i < all.n; i++) {
        j_steps(r, 1);
        if (i) sb_put(&b, sep.s, sep.n);
        sb_value(&b, v_given(path) ? by_path(r, all.at[i], path, v_of(V_MISSING)) : all.at[i]);
    }
    return sb_done(&b);
}

static Value f_reverse(Run *r, Value self, const Value *v, const Args *a) {
    (void)v, (void)a;
    bool lazy = self.kind != V_GEN;
    Value all = copy_items(r, self);
    for (size_t i = 0; i < all.n / 2; i++) {
        Value t = all.at[i];
        all.at[i] = all.at[all.n - 1 - i];
        all.at[all.n - 1 - i] = t;
    }
    if (self.kind == V_STR) {
        Sb b = { .r = r };
        for (size_t i = 0; i < all.n; i++) sb_put(&b, all.at[i].s, all.at[i].n);
        return sb_done(&b);
    }
    return lazy ? v_gen(r, self.kind == V_LIST ? "list_reverseiterator" : "reversed", all.at, all.n) : all;
}

static Value f_sort(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value all = copy_items(r, self), *keys = j_push(r, all.n, sizeof *keys), path = path_arg(r, v[2]);
    bool sensitive = arg_bool(r, &v[1], false);
    for (size_t i = 0; i < all.n; i++) keys[i] = sort_key(r, all.at[i], path, sensitive);
    j_sort(r, keys, all.at, all.n, arg_bool(r, &v[0], false));
    return all;
}

static Value f_items(Run *r, Value self, const Value *v, const Args *a) {
    (void)v, (void)a;
    if (self.kind == V_UNDEF) return v_gen(r, "generator", NULL, 0);
    if (self.kind != V_DICT) j_fail(r, "TypeError", "Can only get item pairs from a mapping.");
    Value all = v_items(r, (Value){ .kind = V_VIEW, .sub = 'i', .n = self.n, .pairs = self.pairs });
    return v_gen(r, "generator", all.at, all.n);
}

static Value f_dictsort(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    if (self.kind == V_UNDEF) j_undefined(r, self);
    if (self.kind != V_DICT) j_fail(r, "AttributeError", "'%s' object has no attribute 'items'", v_type(self));
    bool sensitive = arg_bool(r, &v[0], false), by_value = v_given(v[1]) && v_is_str(v[1], "value");
    if (v_given(v[1]) && !by_value && !v_is_str(v[1], "key"))
        j_fail(r, "FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
    Value all = v_items(r, (Value){ .kind = V_VIEW, .sub = 'i', .n = self.n, .pairs = self.pairs }),
          *keys = j_push(r, all.n, sizeof *keys);
    for (size_t i = 0; i < all.n; i++) keys[i] = fold_case(r, all.at[i].at[by_value], sensitive);
    j_sort(r, keys, all.at, all.n, arg_bool(r, &v[2], false));
    return all;
}

static Value f_unique(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value all = v_items(r, self), *at = j_push(r, all.n, sizeof *at), *seen = j_push(r, all.n, sizeof *seen),
          path = path_arg(r, v[1]);
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        Value key = key_of(r, all.at[i], path, v_of(V_MISSING), arg_bool(r, &v[0], false));
        bool new = true;
        v_check_hash(r, key);
        for (size_t k = 0; k < n && new; k++) new = !v_eq(r, seen[k], key);
        if (new) seen[n] = key, at[n++] = all.at[i];
    }
    return v_gen(r, "generator", at, n);
}

static Value extreme(Run *r, Value self, const Value *v, int sign) {
    Value all = v_items(r, self), best = { 0 }, best_key = { 0 }, path = path_arg(r, v[1]);
    if (!all.n) return v_undef(r, "No aggregated item, sequence was empty.");
    for (size_t i = 0; i < all.n; i++) {
        Value key = key_of(r, all.at[i], path, v_of(V_MISSING), arg_bool(r, &v[0], false));
        if (!i || v_order(r, key, best_key, sign < 0 ? "<" : ">") == sign) best = all.at[i], best_key = key;
    }
    return best;
}
static Value f_min(Run *r, Value self, const Value *v, const Args *a) { return (void)a, extreme(r, self, v, -1); }
static Value f_max(Run *r, Value self, const Value *v, const Args *a) { return (void)a, extreme(r, self, v, 1); }

static Value f_sum(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value all = v_items(r, self), path = path_arg(r, v[0]), total = v_given(v[1]) ? v[1] : v_int(0);
    if (total.kind == V_STR) j_fail(r, "TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
    for (size_t i = 0; i < all.n; i++)
        total = j_binary(r, '+', total, v_given(path) ? by_path(r, all.at[i], path, v_of(V_MISSING)) : all.at[i]);
    return total;
}

static Value f_batch(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value all = v_items(r, self);
    int64_t size = arg_int(r, &v[0], 1);
    if (size < 1) j_fail(r, "ValueError", "batch wants at least 1 item per batch, not %lld", (long long)size);
    size_t each = (uint64_t)size > all.n + 1 ? (v_given(v[1]) && v[1].kind != V_NONE ? (size_t)size : all.n + 1)
                                             : (size_t)size,
           n = (all.n + each - 1) / each;
    Value *at = j_push(r, n, sizeof *at);
    for (size_t i = 0; i < n; i++) {
        size_t have = all.n - i * each < each ? all.n - i * each : each,
               want = v_given(v[1]) && v[1].kind != V_NONE ? each : have;
        Value *row = j_push(r, want, sizeof *row);
        for (size_t k = 0; k < want; k++) row[k] = k < have ? all.at[i * each + k] : v[1];
        at[i] = v_list(row, want);
    }
    return v_gen(r, "generator", at, n);
}

static Value f_slice(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value all = v_items(r, self);
    int64_t count = arg_int(r, &v[0], 1);
    if (count < 1) j_fail(r, "ValueError", "slice wants at least 1 slice, not %lld", (long long)count);
    j_steps(r, (size_t)count);
    size_t n = (size_t)count, each = all.n / n, longer = all.n % n, from = 0;
    Value *at = j_push(r, n, sizeof *at);
    for (size_t i = 0; i < n; i++) {
        size_t have = each + (i < longer), want = have + (v_given(v[1]) && v[1].kind != V_NONE && i >= longer);
        Value *row = j_push(r, want, sizeof *row);
        for (size_t k = 0; k < want; k++) row[k] = k < have ? all.at[from + k] : v[1];
        from += have;
        at[i] = v_list(row, want);
    }
    return v_gen(r, "generator", at, n);
}

static Value f_groupby(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value all = copy_items(r, self), *keys = j_push(r, all.n, sizeof *keys), *at = j_push(r, all.n, sizeof *at),
          path = path_arg(r, v[0]);
    Value otherwise = v_given(v[1]) && v[1].kind != V_NONE ? v[1] : v_of(V_MISSING);
    bool sensitive = arg_bool(r, &v[2], false);
    for (size_t i = 0; i < all.n; i++) keys[i] = key_of(r, all.at[i], path, otherwise, sensitive);
    j_sort(r, keys, all.at, all.n, false);
    size_t n = 0;
    for (size_t i = 0, end; i < all.n; i = end) {
        for (end = i + 1; end < all.n && v_eq(r, keys[i], keys[end]);) end++;
        Value *two = j_push(r, 2, sizeof *two);
        two[0] = v_given(path) ? by_path(r, all.at[i], path, otherwise) : all.at[i];
        two[1] = v_list(all.at + i, end - i);
        at[n++] = (Value){ .kind = V_TUPLE, .sub = 1, .n = 2, .at = two };
    }
    return v_list(at, n);
}

/* ---- map, select, reject, selectattr, rejectattr: the first argument names a filter or test, the rest are its
 * arguments */
static Args rest(const Args *a, size_t skip) {
    return (Args){ a->n > skip ? a->at + skip : NULL, a->n > skip ? a->n - skip : 0, a->kw, a->nkw };
}

static Value f_map(Run *r, Value self, const Value *v, const Args *a) {
    (void)v;
    if (!v_true(r, self)) return v_gen(r, "generator", NULL, 0);
    Value path = { 0 }, otherwise = { 0 };
    for (size_t i = 0; !a->n && i < a->nkw; i++) {
        if (a->kw[i].n == 9 && !memcmp(a->kw[i].s, "attribute", 9)) path = path_arg(r, a->kw[i].v);
        else if (a->kw[i].n == 7 && !memcmp(a->kw[i].s, "default", 7)) otherwise = a->kw[i].v;
        else j_fail(r, "FilterArgumentError", "Unexpected keyword argument '%.*s'", (int)a->kw[i].n, a->kw[i].s);
    }
    if (!a->n && !v_given(path)) j_fail(r, "FilterArgumentError", "map requires a filter argument");
    if (otherwise.kind == V_NONE) otherwise = v_of(V_MISSING);
    const Builtin *fn = NULL;
    if (a->n) {
        Value name = v_str(r, a->at[0]);
        fn = jinja_filter(name.s, name.n);
        if (!fn)
            j_fail(r, "TemplateRuntimeError", "No filter named '%.*s' found.", (int)(name.n < 60 ? name.n : 60),
                   name.s);
    }
    Args more = rest(a, 1);
    Value all = v_items(r, self), *at = j_push(r, all.n, sizeof *at);
    for (size_t i = 0; i < all.n; i++)
        at[i] = fn ? j_apply(r, fn, "filter", all.at[i], &more) : by_path(r, all.at[i], path, otherwise);
    return v_gen(r, "generator", at, all.n);
}

static Value choose(Run *r, Value self, const Args *a, bool want, bool by_attr) {
    size_t skip = by_attr ? 1 : 0;
    if (!v_true(r, self)) return v_gen(r, "generator", NULL, 0);
    if (a->n < skip) j_fail(r, "FilterArgumentError", "Missing parameter for attribute name");
    Value path = by_attr ? path_arg(r, a->at[0]) : v_of(V_MISSING);
    const Builtin *fn = NULL;
    if (a->n > skip) {
        Value name = v_str(r, a->at[skip]);
        fn = jinja_test(name.s, name.n);
        if (!fn)
            j_fail(r, "TemplateRuntimeError", "No test named '%.*s' found.", (int)(name.n < 60 ? name.n : 60), name.s);
    }
    Args more = rest(a, skip + 1);
    Value all = v_items(r, self), *at = j_push(r, all.n, sizeof *at);
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) {
        j_steps(r, 1);
        Value x = by_attr ? by_path(r, all.at[i], path, v_of(V_MISSING)) : all.at[i];
        if (v_true(r, fn ? j_apply(r, fn, "test", x, &more) : x) == want) at[n++] = all.at[i];
    }
    return v_gen(r, "generator", at, n);
}
static Value f_select(Run *r, Value self, const Value *v, const Args *a) {
    return (void)v, choose(r, self, a, true, false);
}
static Value f_reject(Run *r, Value self, const Value *v, const Args *a) {
    return (void)v, choose(r, self, a, false, false);
}
static Value f_selectattr(Run *r, Value self, const Value *v, const Args *a) {
    return (void)v, choose(r, self, a, true, true);
}
static Value f_rejectattr(Run *r, Value self, const Value *v, const Args *a) {
    return (void)v, choose(r, self, a, false, true);
}

/* clang-format off */
static const Builtin filters[] = {
    { "list",       f_list,       "",                                0 },
    { "first",      f_first,      "",                                0 },
    { "last",       f_last,       "",                                0 },
    { "join",       f_join,       "d attribute",                     0 },
    { "reverse",    f_reverse,    "",                                0 },
    { "sort",       f_sort,       "reverse case_sensitive attribute", 0 },
    { "items",      f_items,      "",                                0 },
    { "dictsort",   f_dictsort,   "case_sensitive by reverse",       0 },
    { "unique",     f_unique,     "case_sensitive attribute",        0 },
    { "min",        f_min,        "case_sensitive attribute",        0 },
    { "max",        f_max,        "case_sensitive attribute",        0 },
    { "sum",        f_sum,        "attribute start",                 0 },
    { "batch",      f_batch,      "linecount fill_with",             1 },
    { "slice",      f_slice,      "slices fill_with",                1 },
    { "groupby",    f_groupby,    "attribute default case_sensitive", 1 },
    { "map",        f_map,        NULL,                              0 },
    { "select",     f_select,     NULL,                              0 },
    { "reject",     f_reject,     NULL,                              0 },
    { "selectattr", f_selectattr, NULL,                              0 },
    { "rejectattr", f_rejectattr, NULL,                              0 },
};
/* clang-format on */

const Builtin *jinja_list_filter(const char *s, size_t n) { return find_builtin(filters, COUNT(filters), s, n); }
