/* jinja_test.c - what may stand behind "is". */
#include "jinja/jinja_int.h"
#include "base/utf8.h"

#include <utf8proc.h>

#define TEST(name) static Value name(Run *r, Value self, const Value *v, const Args *a)
#define UNUSED     (void)r, (void)self, (void)v, (void)a

TEST(t_defined) { return UNUSED, v_bool(self.kind != V_UNDEF); }
TEST(t_undefined) { return UNUSED, v_bool(self.kind == V_UNDEF); }
TEST(t_none) { return UNUSED, v_bool(self.kind == V_NONE); }
TEST(t_string) { return UNUSED, v_bool(self.kind == V_STR); }
TEST(t_number) { return UNUSED, v_bool(v_number(self)); }
TEST(t_integer) { return UNUSED, v_bool(self.kind == V_INT); }
TEST(t_float) { return UNUSED, v_bool(self.kind == V_REAL); }
TEST(t_boolean) { return UNUSED, v_bool(self.kind == V_BOOL); }
TEST(t_true) { return UNUSED, v_bool(self.kind == V_BOOL && self.b); }
TEST(t_false) { return UNUSED, v_bool(self.kind == V_BOOL && !self.b); }
TEST(t_mapping) { return UNUSED, v_bool(self.kind == V_DICT); }
TEST(t_iterable) { return UNUSED, v_bool(v_iterable(self)); }
TEST(t_escaped) { return UNUSED, v_bool(self.kind == V_STR && self.sub); }

TEST(t_sequence) {
    UNUSED;
    return v_bool(self.kind == V_UNDEF || self.kind == V_STR || self.kind == V_LIST || self.kind == V_TUPLE
                  || self.kind == V_DICT || self.kind == V_RANGE);
}

TEST(t_callable) {
    UNUSED;
    return v_bool(self.kind == V_UNDEF || self.kind == V_MACRO || self.kind == V_METHOD || self.kind == V_FUNC
                  || self.kind == V_JOINER || self.kind == V_LOOP);
}

TEST(t_eq) { return UNUSED, v_bool(v_eq(r, self, v[0])); }
TEST(t_ne) { return UNUSED, v_bool(!v_eq(r, self, v[0])); }
TEST(t_lt) { return UNUSED, v_bool(j_compare(r, '<', self, v[0])); }
TEST(t_gt) { return UNUSED, v_bool(j_compare(r, '>', self, v[0])); }
TEST(t_le) { return UNUSED, v_bool(j_compare(r, OP_LE, self, v[0])); }
TEST(t_ge) { return UNUSED, v_bool(j_compare(r, OP_GE, self, v[0])); }
TEST(t_in) { return UNUSED, v_bool(j_compare(r, OP_IN, self, v[0])); }

TEST(t_odd) { return UNUSED, v_bool(v_eq(r, j_binary(r, '%', self, v_int(2)), v_int(1))); }
TEST(t_even) { return UNUSED, v_bool(v_eq(r, j_binary(r, '%', self, v_int(2)), v_int(0))); }
TEST(t_divisibleby) { return UNUSED, v_bool(v_eq(r, j_binary(r, '%', self, v[0]), v_int(0))); }

TEST(t_sameas) {
    UNUSED;
    Value o = v[0];
    if (self.kind != o.kind) return v_bool(false);
    switch (self.kind) {
    case V_UNDEF: return v_bool(self.s == o.s);
    case V_REAL: return v_bool(self.d == o.d);
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_VIEW: return v_bool(self.at == o.at && self.n == o.n);
    default: return v_bool(v_eq(r, self, o));
    }
}

/* Some letter has a case, and all that have one have this. */
static bool all_case(Value s, bool upper) {
    bool some = false;
    for (size_t i = 0; i < s.n;) {
        uint32_t c = 0;
        i += (size_t)utf8_get(s.s + i, s.n - i, &c);
        utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
        if (k == (upper ? UTF8PROC_CATEGORY_LL : UTF8PROC_CATEGORY_LU) || k == UTF8PROC_CATEGORY_LT) return false;
        some = some || k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL;
    }
    return some;
}
TEST(t_lower) { return UNUSED, v_bool(all_case(v_str(r, self), false)); }
TEST(t_upper) { return UNUSED, v_bool(all_case(v_str(r, self), true)); }
TEST(t_filter) { return UNUSED, v_bool(self.kind == V_STR && jinja_filter(self.s, self.n)); }
TEST(t_test) { return UNUSED, v_bool(self.kind == V_STR && jinja_test(self.s, self.n)); }

/* clang-format off */
static const Builtin tests[] = {
    { "defined", t_defined, "", 0 }, { "undefined", t_undefined, "", 0 },
    { "none", t_none, "", 0 },
    { "string", t_string, "", 0 }, { "number", t_number, "", 0 },
    { "integer", t_integer, "", 0 },
    { "float", t_float, "", 0 }, { "boolean", t_boolean, "", 0 },
    { "true", t_true, "", 0 },
    { "false", t_false, "", 0 }, { "mapping", t_mapping, "", 0 },
    { "sequence", t_sequence, "", 0 },
    { "iterable", t_iterable, "", 0 }, { "callable", t_callable, "", 0 },
    { "escaped", t_escaped, "", 0 },
    { "odd", t_odd, "", 0 }, { "even", t_even, "", 0 },
    { "divisibleby", t_divisibleby, "num", 1 },
    { "equalto", t_eq, "other", 1 }, { "eq", t_eq, "other", 1 },
    { "==", t_eq, "other", 1 },
    { "ne", t_ne, "other", 1 }, { "!=", t_ne, "other", 1 },
    { "lt", t_lt, "other", 1 },
    { "lessthan", t_lt, "other", 1 }, { "<", t_lt, "other", 1 },
    { "gt", t_gt, "other", 1 },
    { "greaterthan", t_gt, "other", 1 }, { ">", t_gt, "other", 1 },
    { "le", t_le, "other", 1 },
    { "<=", t_le, "other", 1 }, { "ge", t_ge, "other", 1 },
    { ">=", t_ge, "other", 1 },
    { "in", t_in, "seq", 1 }, { "sameas", t_sameas, "other", 1 },
    { "lower", t_lower, "", 0 },
    { "upper", t_upper, "", 0 }, { "filter", t_filter, "", 0 },
    { "test", t_test, "", 0 },
};
/* clang-format on */

const Builtin *jinja_test(const char *s, size_t n) { return find_builtin(tests, COUNT(tests), s, n); }
