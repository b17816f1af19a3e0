/* jinja_method.c - the methods of str, dict, list and of Jinja2's own objects that a template may call. */
#include "jinja/jinja_int.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <utf8proc.h>

#define METHOD(name) static Value name(Run *r, Value self, const Value *v, const Args *a)
#define UNUSED       (void)r, (void)self, (void)v, (void)a

/* ---- str */
static Value strip(Run *r, Value s, const Value *v, bool left, bool right) {
    Value chars;
    const Value *set = NULL;
    if (v_given(*v) && v->kind != V_NONE) chars = arg_str(r, v), set = &chars;
    j_steps(r, s.n / 64);
    size_t end = right ? s_strip_right(s, set) : s.n, from = left ? s_strip_left(v_strn(s.s, end), set) : 0;
    return v_strn(s.s + from, end - from);
}
METHOD(m_strip) { return UNUSED, strip(r, self, v, true, true); }
METHOD(m_lstrip) { return UNUSED, strip(r, self, v, true, false); }
METHOD(m_rstrip) { return UNUSED, strip(r, self, v, false, true); }
METHOD(m_upper) { return UNUSED, s_case(r, self, 'u'); }
METHOD(m_lower) { return UNUSED, s_case(r, self, 'l'); }
METHOD(m_title) { return UNUSED, s_case(r, self, 't'); }
METHOD(m_capitalize) { return UNUSED, s_case(r, self, 'c'); }
METHOD(m_swapcase) { return UNUSED, s_case(r, self, 's'); }
METHOD(m_format) { return UNUSED, s_format(r, self, a); }
METHOD(m_splitlines) { return UNUSED, s_split_lines(r, self, arg_bool(r, &v[0], false)); }

METHOD(m_replace) {
    UNUSED;
    return s_replace(r, self, arg_str(r, &v[0]), arg_str(r, &v[1]), arg_int(r, &v[2], -1));
}

typedef struct {
    Run *r;
    Value *at;
    size_t n, cap;
} Parts;

static void part(Parts *p, const char *s, size_t n) {
    j_steps(p->r, 1);
    if (p->n == p->cap) {
        p->cap = p->cap ? p->cap * 2 : 8;
        Value *more = j_push(p->r, p->cap, sizeof *more);
        if (p->n) memcpy(more, p->at, p->n * sizeof *more);
        p->at = more;
    }
    p->at[p->n++] = v_strn(s, n);
}

static size_t word_end(Value s, size_t at) {
    uint32_t c = 0;
    while (at < s.n) {
        int len = utf8_get(s.s + at, s.n - at, &c);
        if (ch_space(c)) break;
        at += (size_t)len;
    }
    return at;
}

static void split_blank(Parts *p, Value s, int64_t most) {
    for (size_t at = 0;;) {
        at += s_strip_left(v_strn(s.s + at, s.n - at), NULL);
        if (at >= s.n) return;
        if (most-- == 0) {
            part(p, s.s + at, s.n - at);
            return;
        }
        size_t end = word_end(s, at);
        part(p, s.s + at, end - at);
        at = end;
    }
}

static void split_by(Parts *p, Value s, Value by, int64_t most) {
    const char *hit;
    size_t at = 0;
    while (most-- != 0 && (hit = s_find(s.s + at, s.n - at, by.s, by.n))) {
        part(p, s.s + at, (size_t)(hit - s.s) - at);
        at = (size_t)(hit - s.s) + by.n;
    }
    part(p, s.s + at, s.n - at);
}

static const char *find_last(Run *r, const char *hay, size_t n, Value needle) {
    j_steps(r, n / 16);
    for (size_t i = n >= needle.n ? n - needle.n + 1 : 0; i-- > 0;)
        if (!memcmp(hay + i, needle.s, needle.n)) return hay + i;
    return NULL;
}

static size_t word_start(Value s, size_t end) {
    uint32_t c = 0;
    while (end) {
        size_t i = end - 1;
        while (i && ((unsigned char)s.s[i] & 0xC0) == 0x80) i--;
        utf8_get(s.s + i, s.n - i, &c);
        if (ch_space(c)) break;
        end = i;
    }
    return end;
}

/* From the right; the parts are turned round at the end. */
static void rsplit_blank(Parts *p, Value s, int64_t most) {
    size_t end = s.n;
    while ((end = s_strip_right(v_strn(s.s, end), NULL))) {
        bool is_rest = most-- == 0;
        size_t from = is_rest ? 0 : word_start(s, end);
        part(p, s.s + from, end - from);
        if (is_rest) break;
        end = from;
    }
}

static void rsplit_by(Parts *p, Value s, Value by, int64_t most) {
    const char *hit;
    size_t end = s.n;
    while (most-- != 0 && (hit = find_last(p->r, s.s, end, by))) {
        size_t from = (size_t)(hit - s.s) + by.n;
        part(p, s.s + from, end - from);
        end = from - by.n;
    }
    part(p, s.s, end);
}

static void turn_round(Parts *p) {
    for (size_t i = 0; i < p->n / 2; i++) {
        Value t = p->at[i];
        p->at[i] = p->at[p->n - 1 - i];
        p->at[p->n - 1 - i] = t;
    }
}

static Value split(Run *r, Value s, const Value *v, bool right) {
    Parts p = { .r = r };
    int64_t most = arg_int(r, &v[1], -1);
    if (most < 0) most = -1;
    j_steps(r, s.n / 32);
    bool blank = !v_given(v[0]) || v[0].kind == V_NONE;
    Value by = blank ? v_cstr("") : arg_str(r, &v[0]);
    if (!blank && !by.n) j_fail(r, "ValueError", "empty separator");
    bool back = right && most >= 0; /* without a bound both ways give the same */
    if (blank) back ? rsplit_blank(&p, s, most) : split_blank(&p, s, most);
    else back ? rsplit_by(&p, s, by, most) : split_by(&p, s, by, most);
    if (back) turn_round(&p);
    return v_list(p.at, p.n);
}
METHOD(m_split) { return UNUSED, split(r, self, v, false); }
METHOD(m_rsplit) { return UNUSED, split(r, self, v, true); }

static Value partition(Run *r, Value s, Value by, bool right) {
    if (!by.n) j_fail(r, "ValueError", "empty separator");
    const char *hit = right ? find_last(r, s.s, s.n, by) : s_find(s.s, s.n, by.s, by.n);
    Value *at = j_push(r, 3, sizeof *at), none = v_cstr("");
    size_t i = hit ? (size_t)(hit - s.s) : 0;
    at[0] = hit ? v_strn(s.s, i) : right ? none : s;
    at[1] = hit ? by : none;
    at[2] = hit ? v_strn(s.s + i + by.n, s.n - i - by.n) : right ? s : none;
    return v_tuple(at, 3);
}
METHOD(m_partition) { return UNUSED, partition(r, self, arg_str(r, &v[0]), false); }
METHOD(m_rpartition) { return UNUSED, partition(r, self, arg_str(r, &v[0]), true); }

/* s[start:end] of find, count, startswith; *from is where it begins. */
static Value window(Run *r, Value s, const Value *v, size_t *from) {
    Value none = v_of(V_NONE), bounds[3] = { v_given(v[0]) ? v[0] : none, v_given(v[1]) ? v[1] : none, none };
    if (bounds[0].kind == V_NONE && bounds[1].kind == V_NONE) return *from = 0, s;
    int64_t n = (int64_t)s_len(s), start = bounds[0].kind == V_NONE ? 0 : arg_int(r, &bounds[0], 0);
    if (start < 0) start = start + n < 0 ? 0 : start + n;
    *from = start > n ? SIZE_MAX : (size_t)start;
    return j_slice(r, s, bounds);
}

static Value affix(Run *r, Value s, const Value *v, bool end) {
    size_t from;
    Value w = window(r, s, v + 1, &from);
    Value one = v[0], all = v[0].kind == V_TUPLE ? v_list(v[0].at, v[0].n) : v_list(&one, 1);
    if (v[0].kind == V_UNDEF) j_undefined(r, v[0]);
    for (size_t i = 0; i < all.n; i++) {
        Value x = all.at[i];
        if (x.kind != V_STR)
            j_fail(r, "TypeError", "%s first arg must be str or a tuple of str, not %s",
                   end ? "endswith" : "startswith", v_type(x));
        if (from != SIZE_MAX && w.n >= x.n && !memcmp(end ? w.s + w.n - x.n : w.s, x.s, x.n)) return v_bool(true);
    }
    return v_bool(false);
}
METHOD(m_startswith) { return UNUSED, affix(r, self, v, false); }
METHOD(m_endswith) { return UNUSED, affix(r, self, v, true); }

static Value find(Run *r, Value s, const Value *v, bool right, bool must) {
    size_t from;
    Value x = arg_str(r, &v[0]), w = window(r, s, v + 1, &from);
    j_steps(r, s.n / 32);
    const char *hit = from == SIZE_MAX ? NULL : right ? find_last(r, w.s, w.n, x) : s_find(w.s, w.n, x.s, x.n);
    if (!hit && must) j_fail(r, "ValueError", "substring not found");
    return v_int(hit ? (int64_t)(from + s_len(v_strn(w.s, (size_t)(hit - w.s)))) : -1);
}
METHOD(m_find) { return UNUSED, find(r, self, v, false, false); }
METHOD(m_rfind) { return UNUSED, find(r, self, v, true, false); }
METHOD(m_index) { return UNUSED, find(r, self, v, false, true); }
METHOD(m_rindex) { return UNUSED, find(r, self, v, true, true); }

METHOD(m_count) {
    UNUSED;
    size_t from;
    Value x = arg_str(r, &v[0]), w = window(r, self, v + 1, &from);
    if (from == SIZE_MAX) return v_int(0);
    if (!x.n) return v_int((int64_t)s_len(w) + 1);
    int64_t n = 0;
    const char *hit;
    j_steps(r, self.n / 32);
    for (size_t at = 0; (hit = s_find(w.s + at, w.n - at, x.s, x.n)); n++) at = (size_t)(hit - w.s) + x.n;
    return v_int(n);
}

METHOD(m_join) {
    UNUSED;
    Sb b = { .r = r };
    Value all = v_items(r, v[0]);
    for (size_t i = 0; i < all.n; i++) {
        j_steps(r, 1);
        if (all.at[i].kind != V_STR)
            j_fail(r, "TypeError", "sequence item %zu: expected str instance, %s found", i, v_type(all.at[i]));
        if (i) sb_put(&b, self.s, self.n);
        sb_put(&b, all.at[i].s, all.at[i].n);
    }
    return sb_done(&b);
}

METHOD(m_zfill) {
    UNUSED;
    int64_t pad = arg_int(r, &v[0], 0) - (int64_t)s_len(self);
    if (pad <= 0) return self;
    Sb b = { .r = r };
    size_t sign = self.n && (*self.s == '-' || *self.s == '+');
    sb_put(&b, self.s, sign);
    sb_fill(&b, '0', pad);
    sb_put(&b, self.s + sign, self.n - sign);
    return sb_done(&b);
}

static Value justify(Run *r, Value s, const Value *v, int how) {
    int64_t width = arg_int(r, &v[0], 0), pad = width - (int64_t)s_len(s);
    uint32_t fill = ' ';
    if (v_given(v[1])) {
        Value f = arg_str(r, &v[1]);
        if (s_len(f) != 1) j_fail(r, "TypeError", "The fill character must be exactly one character long");
        utf8_get(f.s, f.n, &fill);
    }
    if (pad <= 0) return s;
    int64_t left = how == 'l' ? 0 : how == 'r' ? pad : pad / 2 + (pad & width & 1);
    Sb b = { .r = r };
    sb_fill(&b, fill, left);
    sb_put(&b, s.s, s.n);
    sb_fill(&b, fill, pad - left);
    return sb_done(&b);
}
METHOD(m_ljust) { return UNUSED, justify(r, self, v, 'l'); }
METHOD(m_rjust) { return UNUSED, justify(r, self, v, 'r'); }
METHOD(m_center) { return UNUSED, justify(r, self, v, 'c'); }

static Value remove_affix(Value s, Value x, bool end) {
    if (s.n < x.n || memcmp(end ? s.s + s.n - x.n : s.s, x.s, x.n)) return s;
    return v_strn(end ? s.s : s.s + x.n, s.n - x.n);
}
METHOD(m_removeprefix) { return UNUSED, remove_affix(self, arg_str(r, &v[0]), false); }
METHOD(m_removesuffix) { return UNUSED, remove_affix(self, arg_str(r, &v[0]), true); }

/* is...(): no character fails, and there is one */
static bool is_alpha(uint32_t c) {
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
static bool is_decimal(uint32_t c) { return utf8proc_category((utf8proc_int32_t)c) == UTF8PROC_CATEGORY_ND; }
static bool is_digit(uint32_t c) {
    return is_decimal(c) || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 || (c >= 0x2074 && c <= 0x2079)
           || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
}
static bool is_alnum(uint32_t c) { return c != '_' && ch_word(c); }
static bool is_numeric(uint32_t c) { return ch_word(c) && !is_alpha(c) && c != '_'; }

static Value each(Value s, bool (*ok)(uint32_t)) {
    for (size_t i = 0; i < s.n;) {
        uint32_t c = 0;
        i += (size_t)utf8_get(s.s + i, s.n - i, &c);
        if (!ok(c)) return v_bool(false);
    }
    return v_bool(s.n > 0);
}
static bool is_ascii(uint32_t c) { return c < 128; }
METHOD(m_isalpha) { return UNUSED, each(self, is_alpha); }
METHOD(m_isdigit) { return UNUSED, each(self, is_digit); }
METHOD(m_isdecimal) { return UNUSED, each(self, is_decimal); }
METHOD(m_isnumeric) { return UNUSED, each(self, is_numeric); }
METHOD(m_isalnum) { return UNUSED, each(self, is_alnum); }
METHOD(m_isspace) { return UNUSED, each(self, ch_space); }
METHOD(m_isascii) { return UNUSED, v_bool(!self.n || each(self, is_ascii).b); }
METHOD(m_islower) { return UNUSED, j_apply(r, jinja_test("lower", 5), "method", self, a); }
METHOD(m_isupper) { return UNUSED, j_apply(r, jinja_test("upper", 5), "method", self, a); }

METHOD(m_isidentifier) {
    UNUSED;
    return v_bool(self.n && !(*self.s >= '0' && *self.s <= '9') && each(self, ch_word).b);
}

/* ---- dict */
METHOD(m_get) {
    UNUSED;
    v_check_hash(r, v[0]);
    Value *found = v_find(r, self, v[0]);
    return found ? *found : v_given(v[1]) ? v[1] : v_of(V_NONE);
}
static Value view(Value d, char how) {
    return (Value){ .kind = V_VIEW, .sub = (uint8_t)how, .n = d.n, .pairs = d.pairs };
}
METHOD(m_items) { return UNUSED, view(self, 'i'); }
METHOD(m_keys) { return UNUSED, view(self, 'k'); }
METHOD(m_values) { return UNUSED, view(self, 'v'); }

METHOD(m_copy) {
    UNUSED;
    Value c = self;
    if (self.kind == V_DICT) {
        c.pairs = j_push(r, self.n, sizeof *c.pairs);
        if (self.n) memcpy(c.pairs, self.pairs, self.n * sizeof *c.pairs);
    } else {
        c.at = j_push(r, self.n, sizeof *c.at);
        if (self.n) memcpy(c.at, self.at, self.n * sizeof *c.at);
    }
    return c;
}

/* ---- list, tuple */
METHOD(m_list_index) {
    UNUSED;
    for (size_t i = 0; i < self.n; i++)
        if (v_eq(r, self.at[i], v[0])) return v_int((int64_t)i);
    Sb b = { .r = r };
    sb_repr(&b, v[0]);
    j_fail(r, "ValueError", "%.*s is not in %s", (int)(b.n < 100 ? b.n : 100), b.s, v_type(self));
}

METHOD(m_list_count) {
    UNUSED;
    int64_t n = 0;
    for (size_t i = 0; i < self.n; i++) n += v_eq(r, self.at[i], v[0]);
    return v_int(n);
}

METHOD(m_is_integer) { return UNUSED, v_bool(isfinite(self.d) && trunc(self.d) == self.d); }

/* ---- Jinja2's own */
METHOD(m_cycle) {
    UNUSED;
    if (!a->n) j_fail(r, "TypeError", "no items for cycling given");
    return a->at[self.loop->i % a->n];
}

METHOD(m_changed) {
    UNUSED;
    Value now = v_tuple(a->at, a->n);
    bool same = v_given(self.loop->changed) && v_eq(r, self.loop->changed, now);
    self.loop->changed = now;
    return v_bool(!same);
}

METHOD(m_next) {
    UNUSED;
    Value x = self.gen->at[self.gen->pos];
    self.gen->pos = (self.gen->pos + 1) % self.gen->n;
    return x;
}
METHOD(m_reset) { return UNUSED, self.gen->pos = 0, v_of(V_NONE); }

/* clang-format off */
static const Builtin of_str[] = {
    { "strip", m_strip, "chars", 0 }, { "lstrip", m_lstrip, "chars", 0 },
    { "rstrip", m_rstrip, "chars", 0 },
    { "upper", m_upper, "", 0 }, { "lower", m_lower, "", 0 },
    { "title", m_title, "", 0 },
    { "capitalize", m_capitalize, "", 0 }, { "swapcase", m_swapcase, "", 0 },
    { "casefold", m_lower, "", 0 },
    { "split",      m_split,      "sep maxsplit", 0 },      { "rsplit",       m_rsplit,     "sep maxsplit", 0 },
    { "splitlines", m_splitlines, "keepends", 0 },          { "replace",      m_replace,    "old new count", 2 },
    { "partition",  m_partition,  "sep",   1 },             { "rpartition",   m_rpartition, "sep", 1 },
    { "startswith", m_startswith, "prefix start end", 1 },  { "endswith",     m_endswith,   "suffix start end", 1 },
    { "find",       m_find,       "sub start end", 1 },     { "rfind",        m_rfind,      "sub start end", 1 },
    { "index",      m_index,      "sub start end", 1 },     { "rindex",       m_rindex,     "sub start end", 1 },
    { "count",      m_count,      "sub start end", 1 },     { "join",         m_join,       "iterable", 1 },
    { "format",     m_format,     NULL,    0 },             { "zfill",        m_zfill,      "width", 1 },
    { "ljust",      m_ljust,      "width fillchar", 1 },    { "rjust",        m_rjust,      "width fillchar", 1 },
    { "center",     m_center,     "width fillchar", 1 },
    { "removeprefix", m_removeprefix, "prefix", 1 },        { "removesuffix", m_removesuffix, "suffix", 1 },
    { "isalpha", m_isalpha, "", 0 }, { "isdigit", m_isdigit, "", 0 },
    { "isdecimal", m_isdecimal, "", 0 },
    { "isnumeric", m_isnumeric, "", 0 }, { "isalnum", m_isalnum, "", 0 },
    { "isspace", m_isspace, "", 0 },
    { "isascii", m_isascii, "", 0 }, { "islower", m_islower, "", 0 },
    { "isupper", m_isupper, "", 0 },
    { "isidentifier", m_isidentifier, "",  0 },
};
static const Builtin of_dict[] = {
    { "get",  m_get,  "key default", 1 }, { "items",  m_items,  "", 0 },
    { "keys", m_keys, "",            0 }, { "values", m_values, "", 0 }, { "copy", m_copy, "", 0 },
};
static const Builtin of_list[]   = { { "index", m_list_index, "value", 1 }, { "count", m_list_count, "value", 1 },
                                     { "copy", m_copy, "", 0 } };
static const Builtin of_tuple[]  = { { "index", m_list_index, "value", 1 }, { "count", m_list_count, "value", 1 } };
static const Builtin of_real[]   = { { "is_integer", m_is_integer, "", 0 } };
static const Builtin of_loop[]   = { { "cycle", m_cycle, NULL, 0 }, { "changed", m_changed, NULL, 0 } };
static const Builtin of_cycler[] = { { "next", m_next, "", 0 }, { "reset", m_reset, "", 0 } };

const Builtin *jinja_method(Value o, const char *s, size_t n) {
    static const struct { const Builtin *table; size_t n; } by_kind[] = {
        [V_STR] = { of_str, COUNT(of_str) },
        [V_DICT] = { of_dict, COUNT(of_dict) },
        [V_LIST] = { of_list, COUNT(of_list) },
        [V_LOOP] = { of_loop, COUNT(of_loop) },
        [V_CYCLER] = { of_cycler, COUNT(of_cycler) },
        [V_TUPLE] = { of_tuple, COUNT(of_tuple) },
        [V_REAL] = { of_real, COUNT(of_real) },
    };
    if (o.kind >= COUNT(by_kind) || !by_kind[o.kind].table) return NULL;
    return find_builtin(by_kind[o.kind].table, by_kind[o.kind].n, s, n);
}
/* clang-format on */
