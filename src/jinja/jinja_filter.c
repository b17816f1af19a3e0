/* jinja_filter.c - filters on text, numbers and single values; those on sequences are in jinja_seq.c. */
#include "jinja/jinja_int.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

const Builtin *find_builtin(const Builtin *table, size_t n, const char *s, size_t len) {
    for (size_t i = 0; i < n; i++)
        if (strlen(table[i].name) == len && !memcmp(table[i].name, s, len)) return &table[i];
    return NULL;
}

int64_t arg_int(Run *r, const Value *v, int64_t otherwise) {
    if (!v_given(*v)) return otherwise;
    if (v->kind == V_UNDEF) j_undefined(r, *v);
    if (!v_whole(*v)) j_fail(r, "TypeError", "'%s' object cannot be interpreted as an integer", v_type(*v));
    return v_i(*v);
}

bool arg_bool(Run *r, const Value *v, bool otherwise) { return v_given(*v) ? v_true(r, *v) : otherwise; }

Value arg_str(Run *r, const Value *v) {
    if (v->kind == V_UNDEF) j_undefined(r, *v);
    if (v->kind != V_STR) j_fail(r, "TypeError", "a string is expected, not '%s'", v_type(*v));
    return *v;
}

static Value f_upper(Run *r, Value self, const Value *v, const Args *a) {
    return (void)v, (void)a, s_case(r, v_str(r, self), 'u');
}
static Value f_lower(Run *r, Value self, const Value *v, const Args *a) {
    return (void)v, (void)a, s_case(r, v_str(r, self), 'l');
}
static Value f_capitalize(Run *r, Value self, const Value *v, const Args *a) {
    return (void)v, (void)a, s_case(r, v_str(r, self), 'c');
}
static Value f_string(Run *r, Value self, const Value *v, const Args *a) {
    return (void)v, (void)a, self.kind == V_STR ? self : v_str(r, self);
}

/* Jinja2's own title: words begin behind blanks and - ( { [ < only, where Python's begin behind any non-letter. */
static Value f_title(Run *r, Value self, const Value *v, const Args *a) {
    (void)v, (void)a;
    Value s = v_str(r, self), low = s_case(r, s, 'l');
    Sb b = { .r = r };
    bool start = true;
    if (low.n != s.n || s_len(low) != s_len(s)) low = s; /* a letter that changes its length: keep the offsets */
    for (size_t i = 0; i < s.n;) {
        uint32_t c = 0;
        size_t len = (size_t)utf8_get(s.s + i, s.n - i, &c);
        bool between = ch_space(c) || (c < 128 && c && strchr("-({[<", (int)c));
        Value one = start && !between ? s_case(r, v_strn(s.s + i, len), 'u') : v_strn(low.s + i, len);
        sb_put(&b, one.s, one.n);
        start = between;
        i += len;
    }
    return sb_done(&b);
}

static Value f_trim(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value s = v_str(r, self), chars;
    const Value *set = NULL;
    if (v_given(v[0]) && v[0].kind != V_NONE) chars = arg_str(r, &v[0]), set = &chars;
    j_steps(r, s.n / 64);
    size_t end = s_strip_right(s, set), from = s_strip_left(v_strn(s.s, end), set);
    return v_strn(s.s + from, end - from);
}

static Value f_replace(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    int64_t count = v_given(v[2]) && v[2].kind != V_NONE ? arg_int(r, &v[2], -1) : -1;
    return s_replace(r, v_str(r, self), v_str(r, v[0]), v_str(r, v[1]), count);
}

static Value f_escape(Run *r, Value self, const Value *v, const Args *a) {
    (void)v, (void)a;
    return s_escape(r, self.kind == V_STR ? self : v_str(r, self));
}

static Value f_forceescape(Run *r, Value self, const Value *v, const Args *a) {
    (void)v, (void)a;
    return s_escape(r, v_str(r, self));
}

static Value f_safe(Run *r, Value self, const Value *v, const Args *a) {
    (void)v, (void)a;
    Value s = v_str(r, self);
    s.sub = 1;
    return s;
}

static Value f_indent(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    if (self.kind == V_UNDEF) j_undefined(r, self);
    Value s = arg_str(r, &self);
    Sb ind = { .r = r }, b = { .r = r }, all = { .r = r };
    if (v[0].kind == V_STR) sb_put(&ind, v[0].s, v[0].n);
    else sb_fill(&ind, ' ', arg_int(r, &v[0], 4));
    bool first = arg_bool(r, &v[1], false), blank = arg_bool(r, &v[2], false);
    sb_put(&all, s.s, s.n);
    sb_put(&all, "\n", 1); /* so that the text's last line end is not lost */
    Value lines = s_split_lines(r, sb_done(&all), false);
    for (size_t i = 0; i < lines.n; i++) {
        if (i) sb_put(&b, "\n", 1);
        if (i ? blank || lines.at[i].n : first) sb_put(&b, ind.s, ind.n);
        sb_put(&b, lines.at[i].s, lines.at[i].n);
    }
    return sb_done(&b);
}

static Value f_wordcount(Run *r, Value self, const Value *v, const Args *a) {
    (void)v, (void)a;
    Value s = v_str(r, self);
    int64_t n = 0;
    bool inside = false;
    j_steps(r, s.n / 16);
    for (size_t i = 0; i < s.n;) {
        uint32_t c = 0;
        i += (size_t)utf8_get(s.s + i, s.n - i, &c);
        if (ch_word(c) && !inside) n++;
        inside = ch_word(c);
    }
    return v_int(n);
}

static Value f_center(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value s = v_str(r, self);
    int64_t pad = arg_int(r, &v[0], 80) - (int64_t)s_len(s), width = arg_int(r, &v[0], 80);
    if (pad <= 0) return s;
    Sb b = { .r = r };
    int64_t left = pad / 2 + (pad & width & 1);
    sb_fill(&b, ' ', left);
    sb_put(&b, s.s, s.n);
    sb_fill(&b, ' ', pad - left);
    return sb_done(&b);
}

static Value f_truncate(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value s = v_str(r, self), end = v_given(v[2]) ? arg_str(r, &v[2]) : v_cstr("...");
    int64_t length = arg_int(r, &v[0], 255), leeway = v_given(v[3]) && v[3].kind != V_NONE ? arg_int(r, &v[3], 5) : 5,
            ends = (int64_t)s_len(end);
    if (length < ends)
        j_fail(r, "AssertionError", "expected length >= %lld, got %lld", (long long)ends, (long long)length);
    if (leeway < 0) j_fail(r, "AssertionError", "expected leeway >= 0, got %lld", (long long)leeway);
    if ((int64_t)v_len(r, self) - length <= leeway) return self;
    if (self.kind != V_STR) j_fail(r, "TypeError", "truncate wants a string, not '%s'", v_type(self));
    Value cut = v_strn(s.s, s_offset(s, (size_t)(length - ends)));
    if (!arg_bool(r, &v[1], false)) {
        size_t n = cut.n;
        while (n && cut.s[n - 1] != ' ') n--;
        if (n) cut.n = n - 1;
    }
    Sb b = { .r = r };
    sb_put(&b, cut.s, cut.n);
    sb_put(&b, end.s, end.n);
    return sb_done(&b);
}

static Value f_format(Run *r, Value self, const Value *v, const Args *a) {
    (void)v;
    if (a->n && a->nkw)
        j_fail(r, "FilterArgumentError", "can't handle positional and keyword arguments at the same time");
    if (!a->nkw) return s_percent(r, v_str(r, self), v_tuple(a->at, a->n));
    Pair *pairs = j_push(r, a->nkw, sizeof *pairs);
    for (size_t i = 0; i < a->nkw; i++) pairs[i] = (Pair){ v_strn(a->kw[i].s, a->kw[i].n), a->kw[i].v };
    return s_percent(r, v_str(r, self), (Value){ .kind = V_DICT, .n = a->nkw, .pairs = pairs });
}

static Value f_urlencode(Run *r, Value self, const Value *v, const Args *a) {
    (void)v, (void)a;
    if (self.kind == V_DICT || (self.kind != V_STR && v_iterable(self)))
        j_fail(r, "TypeError", "urlencode of a %s is not supported", v_type(self));
    Value s = v_str(r, self);
    Sb b = { .r = r };
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.s[i];
        char t[4];
        if (c < 128 && (ch_word(c) || (c && strchr("-.~/", c)))) sb_put(&b, s.s + i, 1);
        else snprintf(t, sizeof t, "%%%02X", c), sb_puts(&b, t);
    }
    return sb_done(&b);
}

/* ---- numbers */

/* A number as Python's int() or float() reads it: blanks around, digits with single underscores between them. */
static bool clean_number(Value s, char *out, size_t cap) {
    size_t end = s_strip_right(s, NULL), from = s_strip_left(v_strn(s.s, end), NULL), n = 0;
    for (size_t i = from; i < end; i++) {
        char c = s.s[i];
        if (c == '_') {
            if (i == from || i + 1 >= end || !ch_word((unsigned char)s.s[i - 1]) || s.s[i - 1] == '_'
                || s.s[i + 1] == '_' || !ch_word((unsigned char)s.s[i + 1]))
                return false;
            continue;
        }
        if (n + 1 >= cap || !c) return false;
        out[n++] = c;
    }
    out[n] = 0;
    return n > 0;
}

static bool read_real(Value s, double *out) {
    char t[512], *end;
    if (!clean_number(s, t, sizeof t)) return false;
    size_t sign = t[0] == '-' || t[0] == '+';
    if (t[sign] && !strchr("0123456789.", t[sign])) {
        static const char *const word[] = { "inf", "infinity", "nan" };
        bool known = false;
        for (size_t i = 0; i < COUNT(word); i++) known = known || !strcasecmp(t + sign, word[i]);
        if (!known) return false;
    }
    if (strpbrk(t, "xXpP(")) return false;
    *out = strtod(t, &end);
    return *end == 0;
}

static bool read_whole(Run *r, Value s, int base, int64_t *out) {
    char t[512], *end;
    if (!clean_number(s, t, sizeof t)) return false;
    char *p = t + (t[0] == '-' || t[0] == '+');
    if (p[0] == '0' && p[1] && strchr("xXoObB", p[1])) {
        int is = (p[1] | 32) == 'x' ? 16 : (p[1] | 32) == 'o' ? 8 : 2;
        if (base != is && base != 0) return false;
        base = is;
        memmove(p, p + 2, strlen(p + 2) + 1);
    } else if (base == 0) {
        base = 10;
    }
    if (!*p || !ch_word((unsigned char)*p)) return false;
    errno = 0;
    *out = strtoll(t, &end, base);
    if (*end) return false;
    if (errno) j_fail(r, "OverflowError", "a whole number that does not fit 64 bits");
    return true;
}

static bool real_to_whole(Run *r, double d, int64_t *out) {
    if (isnan(d)) return false;
    if (isinf(d)) j_fail(r, "OverflowError", "cannot convert float infinity to integer");
    if (fabs(d) >= 0x1p63) j_fail(r, "OverflowError", "a whole number that does not fit 64 bits");
    *out = (int64_t)d;
    return true;
}

static Value f_int(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    int64_t i, base = arg_int(r, &v[1], 10);
    double d;
    Value otherwise = v_given(v[0]) ? v[0] : v_int(0);
    if (self.kind == V_UNDEF) j_undefined(r, self);
    if (base != 0 && (base < 2 || base > 36)) return otherwise;
    if (v_whole(self)) return v_int(v_i(self));
    if (self.kind == V_REAL) return real_to_whole(r, self.d, &i) ? v_int(i) : otherwise;
    if (self.kind != V_STR) return otherwise;
    if (read_whole(r, self, (int)base, &i)) return v_int(i);
    return read_real(self, &d) && real_to_whole(r, d, &i) ? v_int(i) : otherwise;
}

static Value f_float(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    double d;
    if (self.kind == V_UNDEF) j_undefined(r, self);
    if (v_number(self)) return v_real(v_d(self));
    if (self.kind == V_STR && read_real(self, &d)) return v_real(d);
    return v_given(v[0]) ? v[0] : v_real(0);
}

static Value f_abs(Run *r, Value self, const Value *v, const Args *a) {
    (void)v, (void)a;
    if (self.kind == V_UNDEF) j_undefined(r, self);
    if (!v_number(self)) j_fail(r, "TypeError", "bad operand type for abs(): '%s'", v_type(self));
    if (self.kind == V_REAL) return v_real(fabs(self.d));
    return v_i(self) < 0 ? j_unary(r, '-', self) : v_int(v_i(self));
}

/* Half to even on the exact decimal value, which printf rounds correctly. */
static double round_real(double d, int64_t places) {
    char t[700];
    if (!isfinite(d) || places > 320) return d;
    if (places < -309) return copysign(0, d);
    if (places < 0) {
        double unit = pow(10, (double)-places);
        return rint(d / unit) * unit;
    }
    snprintf(t, sizeof t, "%.*f", (int)places, d);
    return strtod(t, NULL);
}

static Value round_whole(int64_t i, int64_t places) {
    if (places >= 0) return v_int(i);
    if (places < -18) return v_int(0);
    int64_t unit = 1;
    for (; places; places++) unit *= 10;
    int64_t rest = i % unit, base = i - rest, twice = 2 * (rest < 0 ? -rest : rest);
    if (unit > INT64_MAX / 2) return v_int(base);
    bool up = twice > unit || (twice == unit && base / unit % 2);
    return v_int(up ? base + (i < 0 ? -unit : unit) : base);
}

static Value f_round(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    int64_t places = arg_int(r, &v[0], 0);
    Value how = v_given(v[1]) ? arg_str(r, &v[1]) : v_cstr("common");
    bool up = v_is_str(how, "ceil"), down = v_is_str(how, "floor");
    if (!up && !down && !v_is_str(how, "common"))
        j_fail(r, "FilterArgumentError", "method must be common, ceil or floor");
    if (!v_number(self)) j_fail(r, "TypeError", "type %s doesn't define __round__ method", v_type(self));
    if (!up && !down) return self.kind == V_REAL ? v_real(round_real(self.d, places)) : round_whole(v_i(self), places);
    double unit = pow(10, (double)places), x = v_d(self) * unit;
    return v_real((up ? ceil(x) : floor(x)) / unit);
}

/* ---- values */
static Value f_default(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    bool use = self.kind == V_UNDEF || (arg_bool(r, &v[1], false) && !v_true(r, self));
    return use ? (v_given(v[0]) ? v[0] : v_cstr("")) : self;
}

static Value f_length(Run *r, Value self, const Value *v, const Args *a) {
    return (void)v, (void)a, v_int((int64_t)v_len(r, self));
}

static Value f_tojson(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value none = v_of(V_NONE);
    return j_tojson(r, self, arg_bool(r, &v[0], false), v_given(v[1]) ? v[1] : none, v_given(v[2]) ? v[2] : none,
                    arg_bool(r, &v[3], false));
}

static Value f_attr(Run *r, Value self, const Value *v, const Args *a) {
    (void)a;
    Value name = v_str(r, v[0]);
    if (self.kind == V_DICT && !jinja_method(self, name.s, name.n))
        return v_undef(r, "'dict object' has no attribute '%.*s'", (int)(name.n < 100 ? name.n : 100), name.s);
    return j_attr(r, self, name);
}

/* clang-format off */
static const Builtin filters[] = {
    { "upper",       f_upper,       "",                                      0 },
    { "lower",       f_lower,       "",                                      0 },
    { "capitalize",  f_capitalize,  "",                                      0 },
    { "title",       f_title,       "",                                      0 },
    { "string",      f_string,      "",                                      0 },
    { "trim",        f_trim,        "chars",                                 0 },
    { "replace",     f_replace,     "old new count",                         2 },
    { "escape",      f_escape,      "",                                      0 },
    { "e",           f_escape,      "",                                      0 },
    { "forceescape", f_forceescape, "",                                      0 },
    { "safe",        f_safe,        "",                                      0 },
    { "indent",      f_indent,      "width first blank",                     0 },
    { "wordcount",   f_wordcount,   "",                                      0 },
    { "center",      f_center,      "width",                                 0 },
    { "truncate",    f_truncate,    "length killwords end leeway",           0 },
    { "format",      f_format,      NULL,                                    0 },
    { "urlencode",   f_urlencode,   "",                                      0 },
    { "int",         f_int,         "default base",                          0 },
    { "float",       f_float,       "default",                               0 },
    { "abs",         f_abs,         "",                                      0 },
    { "round",       f_round,       "precision method",                      0 },
    { "default",     f_default,     "default_value boolean",                 0 },
    { "d",           f_default,     "default_value boolean",                 0 },
    { "length",      f_length,      "",                                      0 },
    { "count",       f_length,      "",                                      0 },
    { "tojson",      f_tojson,      "ensure_ascii indent separators sort_keys", 0 },
    { "attr",        f_attr,        "name",                                  1 },
};
/* clang-format on */

const Builtin *jinja_filter(const char *s, size_t n) {
    const Builtin *b = find_builtin(filters, COUNT(filters), s, n);
    return b ? b : jinja_list_filter(s, n);
}
