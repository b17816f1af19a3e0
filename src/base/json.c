/* json.c - reading JSON: see json.h.  Children are collected on a stack and copied out when their parent closes, so
 * that arrays and objects are contiguous without being counted first. */
#include "base/json.h"
#include "base/hash.h"
#include "base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 512 };

typedef struct {
    const char *at, *end, *start;
    Mem *mem;
    Err *err;
    VEC(JsonMember)
    stack;
    Buf text; /* the string being unescaped */
    int depth;
    bool loose; /* as json_parse_loose has it */
} Parser;

static bool fail(Parser *p, const char *what) {
    size_t line = 1, col = 1;
    for (const char *c = p->start; c < p->at && c < p->end; c++) {
        if (*c == '\n') line++, col = 1;
        else col++;
    }
    return err_set(p->err, "JSON line %zu column %zu: %s", line, col, what);
}

static void blank(Parser *p) {
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r')) p->at++;
}

static int hex4(const char *s) {
    int v = 0;
    for (int i = 0; i < 4; i++) {
        int c = s[i], d = c >= '0' && c <= '9'   ? c - '0'
                          : c >= 'a' && c <= 'f' ? c - 'a' + 10
                          : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                 : -1;
        if (d < 0) return -1;
        v = v * 16 + d;
    }
    return v;
}

/* After \u: one character, from one or two units.  A lone surrogate is refused: it has no UTF-8 (loosely: U+FFFD). */
static bool unicode_escape(Parser *p) {
    int u = p->end - p->at >= 4 ? hex4(p->at) : -1;
    if (u < 0) return fail(p, "\\u wants four hexadecimal digits");
    p->at += 4;
    uint32_t code = (uint32_t)u;
    if (u >= 0xD800 && u < 0xDC00) {
        int low = p->end - p->at >= 6 && p->at[0] == '\\' && p->at[1] == 'u' ? hex4(p->at + 2) : -1;
        bool pair = low >= 0xDC00 && low <= 0xDFFF;
        if (!pair && !p->loose) return fail(p, "half of a surrogate pair");
        if (pair) p->at += 6;
        code = pair ? 0x10000u + ((uint32_t)(u - 0xD800) << 10) + (uint32_t)(low - 0xDC00) : 0xFFFD;
    } else if (u >= 0xDC00 && u < 0xE000) {
        if (!p->loose) return fail(p, "half of a surrogate pair");
        code = 0xFFFD;
    }
    char utf[4];
    buf_put(&p->text, utf, (size_t)utf8_put(utf, code));
    return true;
}

static bool string_slow(Parser *p, const char *from, const char **out, size_t *n) {
    static const char plain[] = "\"\\/bfnrt", means[] = "\"\\/\b\f\n\r\t";
    buf_clear(&p->text);
    buf_put(&p->text, from, (size_t)(p->at - from));
    for (;;) {
        const char *run = p->at;
        while (p->at < p->end && *p->at != '"' && *p->at != '\\' && (unsigned char)*p->at >= 0x20) p->at++;
        buf_put(&p->text, run, (size_t)(p->at - run));
        if (p->at >= p->end) return fail(p, "the text ends inside a string");
        char c = *p->at++;
        if (c == '"') break;
        if (c != '\\') return p->at--, fail(p, "control character in a string");
        if (p->at >= p->end) return fail(p, "the text ends inside a string");
        c = *p->at++;
        const char *k = c ? strchr(plain, c) : NULL;
        if (k) buf_putc(&p->text, means[k - plain]);
        else if (c != 'u') return p->at--, fail(p, "unknown escape in a string");
        else TRY(unicode_escape(p));
    }
    if (!utf8_valid(p->text.data, p->text.n)) return fail(p, "a string that is not UTF-8");
    *n = p->text.n;
    *out = mem_str(p->mem, p->text.data, p->text.n);
    return true;
}

static bool string(Parser *p, const char **out, size_t *n) {
    const char *from = ++p->at;
    while (p->at < p->end && *p->at != '"' && *p->at != '\\' && (unsigned char)*p->at >= 0x20) p->at++;
    if (p->at >= p->end || *p->at != '"') return string_slow(p, from, out, n);
    *n = (size_t)(p->at - from);
    if (!utf8_valid(from, *n)) return fail(p, "a string that is not UTF-8");
    *out = mem_str(p->mem, from, *n);
    p->at++;
    return true;
}

static bool digits(Parser *p) {
    const char *from = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return p->at > from || fail(p, "a digit is missing in a number");
}

Json json_uint(uint64_t u) {
    if (u <= INT64_MAX) return (Json){ .kind = JSON_INT, .integer = (int64_t)u };
    return (Json){ .kind = JSON_REAL, .real = (double)u, .flag = true, .n = u };
}

static bool number(Parser *p, Json *out) {
    const char *from = p->at;
    bool whole = true, minus = *p->at == '-';
    if (minus) p->at++;
    const char *first = p->at;
    TRY(digits(p));
    if (*first == '0' && p->at - first > 1) return p->at = first, fail(p, "a number that starts with 0");
    if (p->at < p->end && *p->at == '.') {
        whole = false;
        p->at++;
        TRY(digits(p));
    }
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        whole = false;
        p->at++;
        if (p->at < p->end && (*p->at == '+' || *p->at == '-')) p->at++;
        TRY(digits(p));
    }
    if (whole && p->at - first <= 18) {
        int64_t v = 0;
        for (const char *c = first; c < p->at; c++) v = v * 10 + (*c - '0');
        *out = (Json){ .kind = JSON_INT, .integer = minus ? -v : v };
        return true;
    }
    buf_clear(&p->text);
    buf_put(&p->text, from, (size_t)(p->at - from));
    if (whole) {
        errno = 0;
        int64_t v = strtoll(p->text.data, NULL, 10);
        if (!errno) return *out = (Json){ .kind = JSON_INT, .integer = v }, true;
        errno = 0;
        uint64_t u = minus ? 0 : strtoull(p->text.data, NULL, 10);
        if (u && !errno) return *out = json_uint(u), true;
    }
    *out = (Json){ .kind = JSON_REAL,
                   .digits = mem_str(p->mem, p->text.data, p->text.n),
                   .real = strtod(p->text.data, NULL) };
    return true;
}

static bool word(Parser *p, Json *out, const char *text, Json value) {
    size_t n = strlen(text);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, text, n)) return fail(p, "not a JSON value");
    p->at += n;
    *out = value;
    return true;
}

/* Duplicate keys: small objects by comparing, large ones through a table of hashes. */
static uint64_t key_hash(const char *s, size_t n) {
    uint64_t h = hash_bytes(HASH_START, s, n);
    return h ^ h >> 29;
}

static const char *twice(const JsonMember *m, size_t n) {
    if (n <= 8) {
        for (size_t i = 0; i < n; i++)
            for (size_t j = 0; j < i; j++)
                if (m[i].key_n == m[j].key_n && !memcmp(m[i].key, m[j].key, m[i].key_n)) return m[i].key;
        return NULL;
    }
    size_t size = 16;
    while (size < 2 * n) size *= 2;
    Mem mem = { 0 };
    uint32_t *slot = MEM_ARRAY(&mem, uint32_t, size);
    const char *found = NULL;
    for (size_t i = 0; i < n && !found; i++) {
        size_t s = key_hash(m[i].key, m[i].key_n) & (size - 1);
        for (; slot[s] && !found; s = (s + 1) & (size - 1)) {
            const JsonMember *o = &m[slot[s] - 1];
            if (o->key_n == m[i].key_n && !memcmp(o->key, m[i].key, o->key_n)) found = m[i].key;
        }
        slot[s] = (uint32_t)i + 1;
    }
    mem_free(&mem);
    return found;
}

/* Of equal keys the first has the place and the last the value, as in a Python dict.  Returns how many are left. */
static size_t last_wins(JsonMember *m, size_t n) {
    size_t size = 16, kept = 0;
    while (size < 2 * n) size *= 2;
    Mem mem = { 0 };
    uint32_t *slot = MEM_ARRAY(&mem, uint32_t, size);
    for (size_t i = 0; i < n; i++) {
        size_t s = key_hash(m[i].key, m[i].key_n) & (size - 1);
        JsonMember *same = NULL;
        for (; slot[s] && !same; s = (s + 1) & (size - 1)) {
            JsonMember *o = &m[slot[s] - 1];
            if (o->key_n == m[i].key_n && !memcmp(o->key, m[i].key, o->key_n)) same = o;
        }
        if (same) same->value = m[i].value;
        else m[kept++] = m[i], slot[s] = (uint32_t)kept;
    }
    mem_free(&mem);
    return kept;
}

/* The key as JSON writes it: it may hold line breaks. */
static bool twice_fail(Parser *p, const char *key) {
    Buf b = { 0 };
    json_put_str(&b, key, strlen(key));
    err_set(p->err, "JSON: the key %.80s occurs twice in one object", b.data);
    buf_free(&b);
    return false;
}

static bool value(Parser *p, Json *out);

static bool container(Parser *p, Json *out, bool object) {
    size_t base = p->stack.n;
    char close = object ? '}' : ']';
    if (++p->depth > MAX_DEPTH) return fail(p, "nested too deeply");
    p->at++;
    blank(p);
    bool empty = p->at < p->end && *p->at == close;
    if (empty) p->at++;
    while (!empty) {
        JsonMember m = { 0 };
        blank(p);
        if (object) {
            if (p->at >= p->end || *p->at != '"') return fail(p, "a key in quotes is expected");
            TRY(string(p, &m.key, &m.key_n));
            blank(p);
            if (p->at >= p->end || *p->at != ':') return fail(p, "':' is expected");
            p->at++;
        }
        TRY(value(p, &m.value));
        VEC_PUSH(p->stack, m);
        blank(p);
        if (p->at >= p->end)
            return fail(p, object ? "the text ends inside an object" : "the text ends inside an array");
        char c = *p->at++;
        if (c == close) break;
        if (c != ',') return p->at--, fail(p, object ? "',' or '}' is expected" : "',' or ']' is expected");
    }
    size_t n = p->stack.n - base;
    const JsonMember *from = n ? p->stack.at + base : NULL;
    *out = (Json){ .kind = object ? JSON_OBJECT : JSON_ARRAY, .n = n };
    if (object) {
        const char *dup = twice(from, n);
        if (dup && !p->loose) return twice_fail(p, dup);
        if (dup) out->n = n = last_wins(p->stack.at + base, n);
        out->members = mem_copy(p->mem, from, n * sizeof *from);
    } else {
        out->items = MEM_ARRAY(p->mem, Json, n);
        for (size_t i = 0; i < n; i++) out->items[i] = from[i].value;
    }
    p->stack.n = base;
    p->depth--;
    return true;
}

static bool value(Parser *p, Json *out) {
    blank(p);
    if (p->at >= p->end) return fail(p, "a value is missing");
    switch (*p->at) {
    case '{': return container(p, out, true);
    case '[': return container(p, out, false);
    case '"': *out = (Json){ .kind = JSON_STRING }; return string(p, &out->str, &out->n);
    case 't': return word(p, out, "true", (Json){ .kind = JSON_BOOL, .flag = true });
    case 'f': return word(p, out, "false", (Json){ .kind = JSON_BOOL });
    case 'n': return word(p, out, "null", (Json){ .kind = JSON_NULL });
    case 'N':
        if (p->loose) return word(p, out, "NaN", (Json){ .kind = JSON_REAL, .real = (double)NAN });
        return fail(p, "not a JSON value");
    case 'I':
        if (p->loose) return word(p, out, "Infinity", (Json){ .kind = JSON_REAL, .real = (double)INFINITY });
        return fail(p, "not a JSON value");
    default:
        if (p->loose && *p->at == '-' && p->end - p->at > 1 && p->at[1] == 'I')
            return word(p, out, "-Infinity", (Json){ .kind = JSON_REAL, .real = (double)-INFINITY });
        if (*p->at == '-' || (*p->at >= '0' && *p->at <= '9')) return number(p, out);
        return fail(p, "not a JSON value");
    }
}

bool json_parse(Json *out, const char *text, size_t n, Mem *mem, Err *err) {
    Parser p = { .at = text, .start = text, .end = text + n, .mem = mem, .err = err };
    if (n >= 3 && !memcmp(text, "\xEF\xBB\xBF", 3)) p.at += 3;
    bool ok = value(&p, out);
    if (ok) {
        blank(&p);
        if (p.at < p.end) ok = fail(&p, "something follows the value");
    }
    vec_free(p.stack.at);
    buf_free(&p.text);
    return ok;
}

bool json_parse_loose(Json *out, const char *text, size_t n, size_t *used, Mem *mem, Err *err) {
    Parser p = { .at = text, .start = text, .end = text + n, .mem = mem, .err = err, .loose = true };
    bool ok = value(&p, out);
    if (ok) blank(&p), *used = (size_t)(p.at - text);
    vec_free(p.stack.at);
    buf_free(&p.text);
    return ok;
}

Json json_copy(const Json *v, Mem *mem) {
    Json c = *v;
    if (v->kind == JSON_STRING) c.str = mem_str(mem, v->str, v->n);
    if (v->kind == JSON_REAL && !v->flag && v->digits) c.digits = mem_str(mem, v->digits, strlen(v->digits));
    if (v->kind == JSON_ARRAY) {
        c.items = MEM_ARRAY(mem, Json, v->n + 1);
        for (size_t i = 0; i < v->n; i++) c.items[i] = json_copy(&v->items[i], mem);
    }
    if (v->kind == JSON_OBJECT) {
        c.members = MEM_ARRAY(mem, JsonMember, v->n + 1);
        for (size_t i = 0; i < v->n; i++) {
            const JsonMember *m = &v->members[i];
            c.members[i] = (JsonMember){ mem_str(mem, m->key, m->key_n), m->key_n, json_copy(&m->value, mem) };
        }
    }
    return c;
}

/* ---- looking things up */
const Json *json_get(const Json *o, const char *key) {
    if (!o || o->kind != JSON_OBJECT) return NULL;
    size_t n = strlen(key);
    for (size_t i = 0; i < o->n; i++)
        if (o->members[i].key_n == n && !memcmp(o->members[i].key, key, n)) return &o->members[i].value;
    return NULL;
}

const Json *json_path(const Json *o, const char *dotted) {
    char part[128];
    for (;;) {
        const char *dot = strchr(dotted, '.');
        if (!dot) return json_get(o, dotted);
        size_t n = (size_t)(dot - dotted);
        if (n >= sizeof part) return NULL;
        memcpy(part, dotted, n);
        part[n] = 0;
        o = json_get(o, part);
        dotted = dot + 1;
    }
}

const char *json_kind_name(JsonKind k) {
    static const char *const name[] = { "null",     "true or false", "a whole number", "a number",
                                        "a string", "an array",      "an object" };
    return name[k];
}

static const Json *present(const Json *o, const char *key) {
    const Json *v = json_path(o, key);
    return v && v->kind != JSON_NULL ? v : NULL;
}

static bool wrong(Err *err, const char *key, const char *want, const Json *got) {
    return err_set(err, "\"%s\" must be %s, not %s", key, want, json_kind_name(got->kind));
}

bool json_int(const Json *o, const char *key, int64_t *out, Err *err) {
    const Json *v = present(o, key);
    if (!v) return true;
    if (v->kind == JSON_REAL && v->real >= -0x1p53 && v->real <= 0x1p53 && v->real == (double)(int64_t)v->real)
        return *out = (int64_t)v->real, true;
    if (v->kind != JSON_INT) return wrong(err, key, "a whole number", v);
    *out = v->integer;
    return true;
}

bool json_real(const Json *o, const char *key, double *out, Err *err) {
    const Json *v = present(o, key);
    if (!v) return true;
    if (v->kind != JSON_INT && v->kind != JSON_REAL) return wrong(err, key, "a number", v);
    *out = json_number(v);
    return true;
}

bool json_bool(const Json *o, const char *key, bool *out, Err *err) {
    const Json *v = present(o, key);
    if (!v) return true;
    if (v->kind != JSON_BOOL) return wrong(err, key, "true or false", v);
    *out = v->flag;
    return true;
}

bool json_str(const Json *o, const char *key, const char **out, Err *err) {
    const Json *v = present(o, key);
    if (!v) return true;
    if (v->kind != JSON_STRING) return wrong(err, key, "a string", v);
    *out = v->str;
    return true;
}

static bool there(const Json *o, const char *key, Err *err) {
    return present(o, key) || err_set(err, "\"%s\" is missing", key);
}

bool json_int_within(const Json *o, const char *key, int64_t lo, int64_t hi, int64_t *out, Err *err) {
    int64_t x;
    TRY(there(o, key, err) && json_int(o, key, &x, err));
    if (x < lo || x > hi)
        return err_set(err, "\"%s\" is %" PRId64 "; from %" PRId64 " to %" PRId64 " is possible", key, x, lo, hi);
    *out = x;
    return true;
}

bool json_real_within(const Json *o, const char *key, double lo, double hi, double *out, Err *err) {
    double x;
    TRY(there(o, key, err) && json_real(o, key, &x, err));
    if (!(x >= lo && x <= hi)) return err_set(err, "\"%s\" is %g; from %g to %g is possible", key, x, lo, hi);
    *out = x;
    return true;
}

bool json_bool_must(const Json *o, const char *key, bool *out, Err *err) {
    return there(o, key, err) && json_bool(o, key, out, err);
}
