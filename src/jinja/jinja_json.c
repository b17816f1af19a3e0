/* jinja_json.c - tojson as transformers has it: json.dumps(value, ensure_ascii, indent, separators, sort_keys), not
 * HTML-safe. */
#include "jinja/jinja_int.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>

typedef struct {
    Sb b;
    bool ascii, sort, lines; /* lines: an indent was given */
    Value indent, comma, colon;
} Put;

static void put_str(Put *p, Value v) {
    char t[16];
    Sb *b = &p->b;
    sb_put(b, "\"", 1);
    j_steps(b->r, v.n / 16);
    for (size_t i = 0; i < v.n;) {
        uint32_t c = 0;
        size_t len = (size_t)utf8_get(v.s + i, v.n - i, &c);
        static const char code[] = "\"\\\n\r\t\f\b", letter[] = "\"\\nrtfb";
        const char *k = c && c < 128 ? strchr(code, (int)c) : NULL;
        if (k) t[0] = '\\', t[1] = letter[k - code], sb_put(b, t, 2);
        else if (c < 0x20 || (p->ascii && c >= 0x7F && c < 0x10000)) snprintf(t, sizeof t, "\\u%04x", c), sb_puts(b, t);
        else if (p->ascii && c >= 0x10000)
            snprintf(t, sizeof t, "\\u%04x\\u%04x", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF)), sb_puts(b, t);
        else sb_put(b, v.s + i, len);
        i += len;
    }
    sb_put(b, "\"", 1);
}

static void put_real_json(Put *p, double d) {
    if (isnan(d) || isinf(d)) sb_puts(&p->b, isnan(d) ? "NaN" : d > 0 ? "Infinity" : "-Infinity");
    else put_real(&p->b, d);
}

static void newline(Put *p, int level) {
    if (!p->lines) return;
    sb_put(&p->b, "\n", 1);
    for (int i = 0; i < level; i++) sb_put(&p->b, p->indent.s, p->indent.n);
}

static void put(Put *p, Value v, int level);

static void put_key(Put *p, Value k) {
    switch (k.kind) {
    case V_STR: put_str(p, k); return;
    case V_NONE: sb_puts(&p->b, "\"null\""); return;
    case V_BOOL: sb_puts(&p->b, k.b ? "\"true\"" : "\"false\""); return;
    case V_INT:
    case V_REAL:
        sb_put(&p->b, "\"", 1);
        put(p, k, 0);
        sb_put(&p->b, "\"", 1);
        return;
    default: j_fail(p->b.r, "TypeError", "keys must be str, int, float, bool or None, not %s", v_type(k));
    }
}

static void put_dict(Put *p, Value v, int level) {
    Run *r = p->b.r;
    Value *keys = j_push(r, v.n, sizeof *keys), *values = j_push(r, v.n, sizeof *values);
    for (size_t i = 0; i < v.n; i++) keys[i] = v.pairs[i].key, values[i] = v.pairs[i].value;
    if (p->sort) j_sort(r, keys, values, v.n, false);
    sb_put(&p->b, "{", 1);
    for (size_t i = 0; i < v.n; i++) {
        if (i) sb_put(&p->b, p->comma.s, p->comma.n);
        newline(p, level + 1);
        put_key(p, keys[i]);
        sb_put(&p->b, p->colon.s, p->colon.n);
        put(p, values[i], level + 1);
    }
    if (v.n) newline(p, level);
    sb_put(&p->b, "}", 1);
}

static void put_list(Put *p, Value v, int level) {
    sb_put(&p->b, "[", 1);
    for (size_t i = 0; i < v.n; i++) {
        if (i) sb_put(&p->b, p->comma.s, p->comma.n);
        newline(p, level + 1);
        put(p, v.at[i], level + 1);
    }
    if (v.n) newline(p, level);
    sb_put(&p->b, "]", 1);
}

static void put(Put *p, Value v, int level) {
    j_enter(p->b.r);
    j_steps(p->b.r, 1);
    switch (v.kind) {
    case V_NONE: sb_puts(&p->b, "null"); break;
    case V_BOOL: sb_puts(&p->b, v.b ? "true" : "false"); break;
    case V_INT: sb_repr(&p->b, v); break;
    case V_REAL: put_real_json(p, v.d); break;
    case V_STR: put_str(p, v); break;
    case V_LIST:
    case V_TUPLE: put_list(p, v, level); break;
    case V_DICT: put_dict(p, v, level); break;
    default: j_fail(p->b.r, "TypeError", "Object of type %s is not JSON serializable", v_type(v));
    }
    j_leave(p->b.r);
}

Value j_tojson(Run *r, Value v, bool ascii, Value indent, Value separators, bool sort) {
    Put p = { .b = { .r = r }, .ascii = ascii, .sort = sort, .lines = indent.kind != V_NONE };
    p.comma = v_cstr(p.lines ? "," : ", ");
    p.colon = v_cstr(": ");
    if (indent.kind == V_STR) p.indent = indent;
    else if (p.lines) {
        Sb b = { .r = r };
        sb_fill(&b, ' ', arg_int(r, &indent, 0));
        p.indent = sb_done(&b);
    }
    if (separators.kind != V_NONE) {
        Value two = v_items(r, separators);
        if (two.n != 2) j_fail(r, "ValueError", "separators must be two strings");
        p.comma = arg_str(r, &two.at[0]);
        p.colon = arg_str(r, &two.at[1]);
    }
    put(&p, v, 0);
    return sb_done(&p.b);
}
