/* jinja_repr.c - values as Python's str() and repr() write them. */
#include "jinja/jinja_int.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

void sb_char(Sb *b, uint32_t c) {
    char utf[4];
    sb_put(b, utf, (size_t)utf8_put(utf, c));
}

void sb_fill(Sb *b, uint32_t c, int64_t times) {
    char utf[4];
    int len = utf8_put(utf, c);
    for (int64_t i = 0; i < times; i++) sb_put(b, utf, (size_t)len);
}

/* The shortest digits that restore the number; an exponent below 1e-4 and from 1e16 on. */
void put_real(Sb *b, double d) {
    char t[40], digit[40];
    if (isnan(d) || isinf(d)) {
        sb_puts(b, isnan(d) ? "nan" : d > 0 ? "inf" : "-inf");
        return;
    }
    int p = 0;
    for (; p < 17; p++) {
        snprintf(t, sizeof t, "%.*e", p, d);
        if (strtod(t, NULL) == d) break;
    }
    const char *s = t;
    if (*s == '-') sb_put(b, s++, 1);
    int n = 0;
    for (; *s != 'e'; s++)
        if (*s != '.') digit[n++] = *s;
    int e = atoi(s + 1);
    if (e < -4 || e >= 16) {
        sb_put(b, digit, 1);
        if (n > 1) sb_put(b, ".", 1), sb_put(b, digit + 1, (size_t)n - 1);
        snprintf(t, sizeof t, "e%c%02d", e < 0 ? '-' : '+', abs(e));
        sb_puts(b, t);
    } else if (e < 0) {
        sb_puts(b, "0.");
        sb_fill(b, '0', -e - 1);
        sb_put(b, digit, (size_t)n);
    } else {
        int whole = e + 1;
        sb_put(b, digit, (size_t)(n < whole ? n : whole));
        sb_fill(b, '0', whole - n);
        sb_put(b, ".", 1);
        if (n > whole) sb_put(b, digit + whole, (size_t)(n - whole));
        else sb_put(b, "0", 1);
    }
}

static bool printable(uint32_t c) {
    if (c < 0x7F) return c >= 0x20;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
    }
}

static void repr_str(Sb *b, Value v) {
    bool single = memchr(v.n ? v.s : "", '\'', v.n) != NULL, twice = memchr(v.n ? v.s : "", '"', v.n) != NULL;
    char quote = single && !twice ? '"' : '\'', t[16];
    if (v.sub) sb_puts(b, "Markup(");
    sb_put(b, &quote, 1);
    for (size_t i = 0; i < v.n;) {
        uint32_t c = 0;
        int len = utf8_get(v.s + i, v.n - i, &c);
        if (c == (uint32_t)quote || c == '\\') sb_put(b, "\\", 1), sb_put(b, v.s + i, 1);
        else if (c == '\n') sb_puts(b, "\\n");
        else if (c == '\r') sb_puts(b, "\\r");
        else if (c == '\t') sb_puts(b, "\\t");
        else if (printable(c)) sb_put(b, v.s + i, (size_t)len);
        else {
            snprintf(t, sizeof t, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
            sb_puts(b, t);
        }
        i += len ? (size_t)len : 1;
    }
    sb_put(b, &quote, 1);
    if (v.sub) sb_puts(b, ")");
}

static void repr_seq(Sb *b, const char *open, const Value *at, size_t n, const char *close) {
    sb_puts(b, open);
    for (size_t i = 0; i < n; i++) {
        if (i) sb_puts(b, ", ");
        sb_repr(b, at[i]);
    }
    sb_puts(b, close);
}

static void repr_dict(Sb *b, const Pair *p, size_t n) {
    sb_puts(b, "{");
    for (size_t i = 0; i < n; i++) {
        if (i) sb_puts(b, ", ");
        sb_repr(b, p[i].key);
        sb_puts(b, ": ");
        sb_repr(b, p[i].value);
    }
    sb_puts(b, "}");
}

static void repr_view(Sb *b, Value v) {
    Value all = v_items(b->r, v);
    sb_puts(b, v_type(v));
    repr_seq(b, "([", all.at, all.n, "])");
}

static void repr_range(Sb *b, const Range *g) {
    char t[100];
    if (g->step == 1) snprintf(t, sizeof t, "range(%" PRId64 ", %" PRId64 ")", g->start, g->stop);
    else snprintf(t, sizeof t, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", g->start, g->stop, g->step);
    sb_puts(b, t);
}

void sb_repr(Sb *b, Value v) {
    char t[64];
    j_enter(b->r);
    j_steps(b->r, 1 + (v.kind == V_STR ? v.n / 16 : 0));
    switch (v.kind) {
    case V_UNDEF: sb_puts(b, "Undefined"); break;
    case V_NONE: sb_puts(b, "None"); break;
    case V_BOOL: sb_puts(b, v.b ? "True" : "False"); break;
    case V_INT:
        snprintf(t, sizeof t, "%" PRId64, v.i);
        sb_puts(b, t);
        break;
    case V_REAL: put_real(b, v.d); break;
    case V_STR: repr_str(b, v); break;
    case V_LIST: repr_seq(b, "[", v.at, v.n, "]"); break;
    case V_TUPLE: repr_seq(b, "(", v.at, v.n, v.n == 1 ? ",)" : ")"); break;
    case V_DICT: repr_dict(b, v.pairs, v.n); break;
    case V_VIEW: repr_view(b, v); break;
    case V_RANGE: repr_range(b, v.range); break;
    case V_NS:
        sb_puts(b, "<Namespace ");
        repr_dict(b, v.ns->pairs, v.ns->n);
        sb_puts(b, ">");
        break;
    case V_MACRO:
        sb_puts(b, "<Macro ");
        if (v.macro->is_caller) sb_puts(b, "anonymous");
        else repr_str(b, v_strn(v.macro->name, v.macro->n));
        sb_puts(b, ">");
        break;
    case V_LOOP:
        snprintf(t, sizeof t, "<LoopContext %zu/%zu>", v.loop->i + 1, v.loop->n);
        sb_puts(b, t);
        break;
    default:
        j_fail(b->r, "TypeError", "a %s is printed, whose text would be a memory address (a list is meant? add | list)",
               v_type(v));
    }
    j_leave(b->r);
}

void sb_value(Sb *b, Value v) {
    if (v.kind == V_STR) sb_put(b, v.s, v.n);
    else if (v.kind != V_UNDEF) sb_repr(b, v);
}

Value v_str(Run *r, Value v) {
    if (v.kind == V_STR) return v_strn(v.s, v.n);
    Sb b = { .r = r };
    sb_value(&b, v);
    return sb_done(&b);
}
