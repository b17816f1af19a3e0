/* jinja_format.c - "%s %5.2f" % args and "{0:>8}".format(args), as Python's str does them. */
#include "jinja/jinja_int.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* How one value is laid out; both languages fill it in. */
typedef struct {
    uint32_t fill;
    char align, sign, type; /* align: < > = ^ or 0; sign: + - or blank */
    bool alt, comma, under;
    int width, precision; /* precision -1: none */
} Spec;

enum { MAX_WIDTH = 1 << 20, MAX_PRECISION = 340 };

static void padded(Sb *b, const Spec *s, const char *prefix, Value body, char natural) {
    int64_t pad = s->width - (int64_t)(s_len(body) + strlen(prefix));
    char align = s->align ? s->align : natural;
    if (pad < 0) pad = 0;
    int64_t left = align == '>' ? pad : align == '^' ? pad / 2 : 0, inner = align == '=' ? pad : 0;
    sb_fill(b, s->fill, left);
    sb_puts(b, prefix);
    sb_fill(b, s->fill, inner);
    sb_put(b, body.s, body.n);
    sb_fill(b, s->fill, pad - left - inner);
}

static void put_text(Sb *b, const Spec *s, Value v) {
    if (s->precision >= 0) v.n = s_offset(v, (size_t)s->precision);
    padded(b, s, "", v, '<');
}

/* 1234567 -> 1,234,567 */
static Value grouped(Run *r, const char *digits, size_t n, char by, size_t each) {
    Sb b = { .r = r };
    size_t whole = strspn(digits, "0123456789abcdefABCDEF");
    if (whole > n) whole = n;
    for (size_t i = 0; i < n; i++) {
        if (i && i < whole && (whole - i) % each == 0) sb_put(&b, &by, 1);
        sb_put(&b, digits + i, 1);
    }
    return sb_done(&b);
}

static void put_number(Sb *b, const Spec *s, bool minus, const char *mark, const char *digits) {
    char prefix[8];
    const char *sign = minus ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
    snprintf(prefix, sizeof prefix, "%s%s", sign, mark);
    size_t n = strlen(digits);
    bool ten = !strchr("xXob", s->type) || !s->type;
    Value body = v_strn(digits, n);
    if (s->comma || s->under) body = grouped(b->r, digits, n, s->comma ? ',' : '_', ten ? 3 : 4);
    if (s->fill == '0' && s->align == '=' && (s->comma || s->under))
        j_fail(b->r, "ValueError", "zero padding together with a thousands separator is not supported");
    padded(b, s, prefix, body, '>');
}

static void put_whole(Sb *b, const Spec *s, int64_t i, bool precise) {
    char t[400], low[80];
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    int n = 0, pad;
    char type = s->type;
    if (type == 'b') {
        char rev[65];
        do rev[n++] = (char)('0' + (u & 1));
        while (u >>= 1);
        for (int k = 0; k < n; k++) low[k] = rev[n - 1 - k];
        low[n] = 0;
    } else {
        n = snprintf(low, sizeof low,
                     type == 'x'   ? "%" PRIx64
                     : type == 'X' ? "%" PRIX64
                     : type == 'o' ? "%" PRIo64
                                   : "%" PRIu64,
                     u);
    }
    pad = precise && s->precision > n ? s->precision - n : 0; /* %.3d */
    memset(t, '0', (size_t)pad);
    memcpy(t + pad, low, (size_t)n + 1);
    const char *mark = !s->alt       ? ""
                       : type == 'x' ? "0x"
                       : type == 'X' ? "0X"
                       : type == 'o' ? "0o"
                       : type == 'b' ? "0b"
                                     : "";
    put_number(b, s, i < 0, mark, t);
}

static void put_float(Sb *b, const Spec *s, double d) {
    char t[800], f[16];
    char type = s->type ? s->type : 'r';
    int p = s->precision < 0 ? 6 : s->precision;
    double x = fabs(d);
    if (type == '%') x *= 100;
    if (isnan(d) || isinf(d))
        snprintf(t, sizeof t, "%s",
                 isnan(d)              ? (strchr("EFG", type) ? "NAN" : "nan")
                 : strchr("EFG", type) ? "INF"
                                       : "inf");
    else if (type == 'r' && s->precision < 0) {
        Sb r = { .r = b->r };
        put_real(&r, x);
        snprintf(t, sizeof t, "%.*s", (int)r.n, r.s);
    } else {
        snprintf(f, sizeof f, s->alt ? "%%#.*%c" : "%%.*%c",
                 type == '%'                  ? 'f'
                 : type == 'r' || type == 'n' ? 'g'
                                              : type);
        if (type == 'r' && p == 0) p = 1;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(t, sizeof t, f, p, x);
#pragma GCC diagnostic pop
        if (type == 'r' && !strpbrk(t, ".en")) strcat(t, ".0");
    }
    if (type == '%') strcat(t, "%");
    put_number(b, s, signbit(d) && !isnan(d), "", t);
}

/* ---- str % args */
static int read_count(Run *r, Value fmt, size_t *at, Value *args, size_t *next) {
    if (*at < fmt.n && fmt.s[*at] == '*') {
        (*at)++;
        if (args->kind != V_TUPLE || *next >= args->n) j_fail(r, "TypeError", "not enough arguments for format string");
        int64_t i = arg_int(r, &args->at[(*next)++], 0);
        if (i > MAX_WIDTH || i < -MAX_WIDTH) j_fail(r, "ValueError", "width too big");
        return (int)i;
    }
    int64_t n = 0;
    for (; *at < fmt.n && fmt.s[*at] >= '0' && fmt.s[*at] <= '9'; (*at)++)
        if ((n = n * 10 + fmt.s[*at] - '0') > MAX_WIDTH) j_fail(r, "ValueError", "width too big");
    return (int)n;
}

static void percent_one(Sb *b, Spec *s, Value v) {
    Run *r = b->r;
    Sb t = { .r = r };
    switch (s->type) {
    case 's': put_text(b, s, v_str(r, v)); return;
    case 'a':
    case 'r':
        sb_repr(&t, v);
        put_text(b, s, sb_done(&t));
        return;
    case 'c':
        if (v.kind == V_STR && s_len(v) == 1) t.s = NULL, sb_put(&t, v.s, v.n);
        else if (v_whole(v) && v_i(v) >= 0 && v_i(v) < 0x110000 && (v_i(v) < 0xD800 || v_i(v) > 0xDFFF))
            sb_char(&t, (uint32_t)v_i(v));
        else j_fail(r, "TypeError", "%%c requires int or char");
        put_text(b, s, sb_done(&t));
        return;
    default: break;
    }
    if (v.kind == V_UNDEF) j_undefined(r, v);
    bool whole = strchr("diuxXo", s->type) != NULL;
    if (!v_number(v) || (strchr("xXo", s->type) && v.kind == V_REAL))
        j_fail(r, "TypeError", "%%%c format: %s is required, not %s", s->type,
               strchr("xXo", s->type) ? "an integer" : "a real number", v_type(v));
    if (!whole) {
        if (s->precision > MAX_PRECISION) j_fail(r, "ValueError", "precision too big");
        put_float(b, s, v_d(v));
        return;
    }
    double d = v_d(v);
    if (v.kind == V_REAL && !(fabs(d) < 0x1p63)) j_fail(r, "OverflowError", "a whole number that does not fit 64 bits");
    if (s->precision > MAX_PRECISION) j_fail(r, "ValueError", "precision too big");
    if (s->type == 'i' || s->type == 'u') s->type = 'd';
    put_whole(b, s, v.kind == V_REAL ? (int64_t)d : v_i(v), true);
}

Value s_percent(Run *r, Value fmt, Value args) {
    Sb b = { .r = r };
    size_t next = 0;
    bool keyed = false;
    for (size_t at = 0; at < fmt.n;) {
        j_steps(r, 1);
        const char *p = memchr(fmt.s + at, '%', fmt.n - at);
        size_t run = p ? (size_t)(p - fmt.s) - at : fmt.n - at;
        sb_put(&b, fmt.s + at, run);
        if (!p) break;
        at += run + 1;
        Value v = { 0 };
        if (at < fmt.n && fmt.s[at] == '(') {
            const char *close = memchr(fmt.s + at, ')', fmt.n - at);
            if (!close) j_fail(r, "ValueError", "incomplete format key");
            if (args.kind != V_DICT) j_fail(r, "TypeError", "format requires a mapping");
            Value key = v_strn(fmt.s + at + 1, (size_t)(close - fmt.s) - at - 1), *found = v_find(r, args, key);
            if (!found) j_fail(r, "KeyError", "'%.*s'", (int)(key.n < 100 ? key.n : 100), key.s);
            v = *found;
            keyed = true;
            at = (size_t)(close - fmt.s) + 1;
        }
        Spec s = { .fill = ' ', .precision = -1, .align = '>' };
        bool left = false, zero = false;
        for (; at < fmt.n && fmt.s[at] && strchr("-+ #0", fmt.s[at]); at++) {
            if (fmt.s[at] == '-') left = true;
            else if (fmt.s[at] == '0') zero = true;
            else if (fmt.s[at] == '#') s.alt = true;
            else if (s.sign != '+') s.sign = fmt.s[at];
        }
        s.width = read_count(r, fmt, &at, &args, &next);
        if (s.width < 0) left = true, s.width = -s.width;
        if (at < fmt.n && fmt.s[at] == '.') at++, s.precision = read_count(r, fmt, &at, &args, &next);
        while (at < fmt.n && strchr("hlL", fmt.s[at]) && fmt.s[at]) at++;
        if (at >= fmt.n) j_fail(r, "ValueError", "incomplete format");
        s.type = fmt.s[at++];
        if (s.type == '%') {
            sb_put(&b, "%", 1);
            continue;
        }
        if (!s.type || !strchr("srcadiuxXoeEfFgG", s.type))
            j_fail(r, "ValueError", "unsupported format character (0x%x) at index %zu", (unsigned char)s.type, at - 1);
        if (left) s.align = '<';
        else if (zero && !strchr("srac", s.type)) s.align = '=', s.fill = '0';
        if (!v_given(v)) {
            if (args.kind == V_TUPLE ? next >= args.n : next > 0)
                j_fail(r, "TypeError", "not enough arguments for format string");
            v = args.kind == V_TUPLE ? args.at[next] : args;
            next++;
        }
        percent_one(&b, &s, v);
    }
    bool rest = args.kind == V_TUPLE ? next < args.n
                                     : !next && args.kind != V_DICT && args.kind != V_LIST && args.kind != V_RANGE
                                           && args.kind != V_UNDEF;
    if (rest && !keyed) j_fail(r, "TypeError", "not all arguments converted during string formatting");
    return sb_done(&b);
}

/* ---- str.format */
static Spec read_spec(Run *r, Value s) {
    Spec o = { .fill = ' ', .precision = -1 };
    size_t at = 0, first = s.n ? s_offset(s, 1) : 0;
    if (s.n > first && s.s[first] && strchr("<>=^", s.s[first])) {
        utf8_get(s.s, s.n, &o.fill);
        o.align = s.s[first];
        at = first + 1;
    } else if (s.n && *s.s && strchr("<>=^", *s.s)) {
        o.align = *s.s;
        at = 1;
    }
    if (at < s.n && s.s[at] && strchr("+- ", s.s[at])) o.sign = s.s[at++];
    if (at < s.n && s.s[at] == '#') o.alt = true, at++;
    if (at < s.n && s.s[at] == '0') {
        at++;
        if (!o.align) o.align = '=', o.fill = '0';
    }
    Value none = { 0 };
    size_t next = 0;
    o.width = at < s.n && s.s[at] == '*' ? 0 : read_count(r, s, &at, &none, &next);
    if (at < s.n && s.s[at] == ',') o.comma = true, at++;
    else if (at < s.n && s.s[at] == '_') o.under = true, at++;
    if (at < s.n && s.s[at] == '.') {
        at++;
        if (at >= s.n || s.s[at] < '0' || s.s[at] > '9') j_fail(r, "ValueError", "Format specifier missing precision");
        o.precision = read_count(r, s, &at, &none, &next);
    }
    if (at < s.n) o.type = s.s[at++];
    if (at < s.n) j_fail(r, "ValueError", "Invalid format specifier");
    return o;
}

static void format_one(Sb *b, Value v, Value spec) {
    Run *r = b->r;
    Spec s = read_spec(r, spec);
    bool zero = s.align == '=' && s.fill == '0';
    if (!spec.n) {
        sb_value(b, v);
    } else if (v.kind == V_STR || v.kind == V_UNDEF) {
        if (v.kind == V_UNDEF) v = v_cstr("");
        if (s.type && s.type != 's')
            j_fail(r, "ValueError", "Unknown format code '%c' for object of type 'str'", s.type);
        if (s.align == '=' && !zero) j_fail(r, "ValueError", "'=' alignment not allowed in string format specifier");
        if (zero) s.align = '<';
        if (s.sign || s.comma || s.under || s.alt)
            j_fail(r, "ValueError", "a sign, '#' or separator is not allowed in a string format specifier");
        put_text(b, &s, v);
    } else if (v_number(v) && (v.kind == V_REAL || (s.type && strchr("eEfFgG%", s.type)))) {
        if (s.type && !strchr("eEfFgGn%", s.type))
            j_fail(r, "ValueError", "Unknown format code '%c' for object of type '%s'", s.type, v_type(v));
        if (s.precision > MAX_PRECISION) j_fail(r, "ValueError", "precision too big");
        put_float(b, &s, v_d(v));
    } else if (v_number(v)) {
        if (s.precision >= 0) j_fail(r, "ValueError", "Precision not allowed in integer format specifier");
        if (v.kind == V_BOOL && !s.type && !s.width) sb_value(b, v);
        else if (s.type == 'c') sb_char(b, (uint32_t)(v_i(v) & 0x7F));
        else if (s.type && !strchr("bdoxXn", s.type))
            j_fail(r, "ValueError", "Unknown format code '%c' for object of type '%s'", s.type, v_type(v));
        else put_whole(b, &s, v_i(v), false);
    } else {
        j_fail(r, "TypeError", "unsupported format string passed to %s.__format__", v_type(v));
    }
}

/* "0", "name", "a.b[0]" -> the value it names */
static Value field(Run *r, Value name, const Args *a, size_t *automatic) {
    size_t n = 0;
    while (n < name.n && name.s[n] != '.' && name.s[n] != '[') n++;
    bool number = true;
    int64_t index = 0;
    for (size_t i = 0; i < n; i++) {
        number = number && name.s[i] >= '0' && name.s[i] <= '9' && index < 100000000;
        if (number) index = index * 10 + (name.s[i] - '0');
    }
    Value v = { 0 };
    if (!n) index = (int64_t)(*automatic)++;
    if (number && (size_t)index < a->n) v = a->at[index];
    else if (number)
        j_fail(r, "IndexError", "Replacement index %lld out of range for positional args tuple", (long long)index);
    for (size_t i = 0; !number && i < a->nkw; i++)
        if (a->kw[i].n == n && !memcmp(a->kw[i].s, name.s, n)) v = a->kw[i].v;
    if (!v_given(v)) j_fail(r, "KeyError", "'%.*s'", (int)(n < 100 ? n : 100), name.s);
    while (n < name.n) {
        size_t from = ++n;
        bool item = name.s[n - 1] == '[';
        while (n < name.n && (item ? name.s[n] != ']' : name.s[n] != '.' && name.s[n] != '[')) n++;
        Value key = v_strn(name.s + from, n - from);
        if (item && n >= name.n) j_fail(r, "ValueError", "Missing ']' in format string");
        if (item) n++;
        if (item && key.n && key.n < 10 && strspn(key.s, "0123456789") >= key.n) {
            int64_t k = 0;
            for (size_t i = 0; i < key.n; i++) k = k * 10 + (key.s[i] - '0');
            key = v_int(k);
        }
        v = item ? j_item(r, v, key) : j_attr(r, v, key);
        if (v.kind == V_UNDEF) j_undefined(r, v);
    }
    return v;
}

/* One {...}; text is what stands between the braces. */
static void replacement(Sb *b, Value text, const Args *a, size_t *automatic) {
    Run *r = b->r;
    size_t n = 0;
    while (n < text.n && text.s[n] != '!' && text.s[n] != ':')
        n += text.s[n] == '[' && memchr(text.s + n, ']', text.n - n)
                 ? (size_t)((char *)memchr(text.s + n, ']', text.n - n) - (text.s + n))
                 : 1;
    Value v = field(r, v_strn(text.s, n), a, automatic), spec = v_cstr("");
    if (n < text.n && text.s[n] == '!') {
        Sb t = { .r = r };
        char how = n + 1 < text.n ? text.s[n + 1] : 0;
        if (how != 'r' && how != 's') j_fail(r, "ValueError", "Unknown conversion specifier in a format string");
        if (how == 'r') sb_repr(&t, v);
        else sb_value(&t, v);
        v = sb_done(&t);
        n += 2;
        if (n < text.n && text.s[n] != ':') j_fail(r, "ValueError", "expected ':' after conversion specifier");
    }
    if (n < text.n) spec = v_strn(text.s + n + 1, text.n - n - 1);
    if (memchr(spec.s, '{', spec.n)) { /* one level of fields inside the specification */
        j_enter(r);
        Sb t = { .r = r };
        for (size_t i = 0; i < spec.n; i++) {
            const char *close = spec.s[i] == '{' ? memchr(spec.s + i, '}', spec.n - i) : NULL;
            if (spec.s[i] == '{' && !close) j_fail(r, "ValueError", "expected '}' before end of string");
            if (close) {
                Value name = v_strn(spec.s + i + 1, (size_t)(close - spec.s) - i - 1);
                sb_value(&t, field(r, name, a, automatic));
                i = (size_t)(close - spec.s);
            } else sb_put(&t, spec.s + i, 1);
        }
        spec = sb_done(&t);
        j_leave(r);
    }
    format_one(b, v, spec);
}

Value s_format(Run *r, Value fmt, const Args *a) {
    Sb b = { .r = r };
    size_t automatic = 0;
    for (size_t at = 0; at < fmt.n;) {
        j_steps(r, 1);
        char c = fmt.s[at];
        if (c != '{' && c != '}') {
            sb_put(&b, fmt.s + at++, 1);
            continue;
        }
        if (at + 1 < fmt.n && fmt.s[at + 1] == c) {
            sb_put(&b, &c, 1);
            at += 2;
            continue;
        }
        if (c == '}') j_fail(r, "ValueError", "Single '}' encountered in format string");
        size_t end = at + 1;
        int open = 1;
        for (; end < fmt.n; end++) {
            open += fmt.s[end] == '{' ? 1 : fmt.s[end] == '}' ? -1 : 0;
            if (!open) break;
        }
        if (end >= fmt.n)
            j_fail(r, "ValueError",
                   at + 1 >= fmt.n ? "Single '{' encountered in format string" : "expected '}' before end of string");
        replacement(&b, v_strn(fmt.s + at + 1, end - at - 1), a, &automatic);
        at = end + 1;
    }
    return sb_done(&b);
}
