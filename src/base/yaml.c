/* yaml.c - libyaml's events made into Json values, with an explicit depth so that a hostile file cannot exhaust the stack. */
#include "base/yaml.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

enum { MAX_DEPTH = 64 };

typedef struct {
    yaml_parser_t parser;
    Mem *mem;
    Err *err;
} Reader;

static bool next(Reader *r, yaml_event_t *e) {
    if (yaml_parser_parse(&r->parser, e)) return true;
    return err_set(r->err, "line %zu: %s", r->parser.problem_mark.line + 1,
                   r->parser.problem ? r->parser.problem : "not YAML");
}

static bool one_of(const char *s, size_t n, const char *const *names) {
    for (; *names; names++)
        if (strlen(*names) == n && !memcmp(*names, s, n)) return true;
    return false;
}

/* [-+]?[0-9]+ or a real with a digit, a point or an exponent; nothing like inf, nan, 0x or 1_000. */
static bool looks_numeric(const char *s, size_t n, bool *whole) {
    size_t i = n && (s[0] == '-' || s[0] == '+'), digits = 0;
    *whole = true;
    for (; i < n && s[i] >= '0' && s[i] <= '9'; i++) digits++;
    if (i < n && s[i] == '.') {
        *whole = false;
        for (i++; i < n && s[i] >= '0' && s[i] <= '9'; i++) digits++;
    }
    if (digits && i < n && (s[i] == 'e' || s[i] == 'E')) {
        *whole = false;
        i++;
        if (i < n && (s[i] == '-' || s[i] == '+')) i++;
        size_t from = i;
        while (i < n && s[i] >= '0' && s[i] <= '9') i++;
        if (i == from) return false;
    }
    return digits && i == n;
}

Json yaml_scalar(const char *text, size_t n, Mem *mem) {
    static const char *const NULLS[] = { "", "~", "null", "Null", "NULL", NULL };
    static const char *const TRUES[] = { "true", "True", "TRUE", NULL }, *const FALSES[] = { "false", "False", "FALSE",
                                                                                             NULL };
    if (one_of(text, n, NULLS)) return (Json){ .kind = JSON_NULL };
    if (one_of(text, n, TRUES)) return (Json){ .kind = JSON_BOOL, .flag = true };
    if (one_of(text, n, FALSES)) return (Json){ .kind = JSON_BOOL };
    char *copy = mem_str(mem, text, n);
    bool whole;
    if (looks_numeric(text, n, &whole)) {
        errno = 0;
        int64_t i = strtoll(copy, NULL, 10);
        if (whole && !errno) return (Json){ .kind = JSON_INT, .integer = i };
        double x = strtod(copy, NULL);
        if (isfinite(x)) return (Json){ .kind = JSON_REAL, .real = x };
    }
    return (Json){ .kind = JSON_STRING, .n = n, .str = copy };
}

static bool value(Reader *r, Json *out, yaml_event_t *e, int depth);

static bool refuse(Reader *r, const yaml_event_t *e, const char *what) {
    return err_set(r->err, "line %zu: %s", e->start_mark.line + 1, what);
}

static bool sequence(Reader *r, Json *out, int depth) {
    VEC(Json)
    v = { 0 };
    for (;;) {
        yaml_event_t e;
        Json item;
        bool ok = next(r, &e);
        bool end = ok && e.type == YAML_SEQUENCE_END_EVENT;
        if (ok && !end) ok = value(r, &item, &e, depth + 1);
        else if (ok) yaml_event_delete(&e);
        if (!ok) return vec_free(v.at), false;
        if (end) break;
        VEC_PUSH(v, item);
    }
    *out = (Json){ .kind = JSON_ARRAY, .n = v.n, .items = mem_copy(r->mem, v.at, v.n * sizeof *v.at) };
    vec_free(v.at);
    return true;
}

static bool key_of(Reader *r, yaml_event_t *e, JsonMember *m, const JsonMember *before, size_t n) {
    if (e->type != YAML_SCALAR_EVENT) return refuse(r, e, "a key must be a word");
    m->key_n = e->data.scalar.length;
    m->key = mem_str(r->mem, (const char *)e->data.scalar.value, m->key_n);
    for (size_t i = 0; i < n; i++)
        if (before[i].key_n == m->key_n && !memcmp(before[i].key, m->key, m->key_n))
            return err_set(r->err, "line %zu: the key '%.80s' is there twice", e->start_mark.line + 1, m->key);
    return true;
}

static bool mapping(Reader *r, Json *out, int depth) {
    VEC(JsonMember)
    v = { 0 };
    bool ok = true;
    for (;;) {
        yaml_event_t e;
        JsonMember m = { 0 };
        if (!(ok = next(r, &e))) break;
        if (e.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&e);
            break;
        }
        ok = key_of(r, &e, &m, v.at, v.n);
        yaml_event_delete(&e);
        if (!ok || !(ok = next(r, &e)) || !(ok = value(r, &m.value, &e, depth + 1))) break;
        VEC_PUSH(v, m);
    }
    if (ok) *out = (Json){ .kind = JSON_OBJECT, .n = v.n, .members = mem_copy(r->mem, v.at, v.n * sizeof *v.at) };
    vec_free(v.at);
    return ok;
}

/* Makes the value that begins with event e, and deletes e. */
static bool value(Reader *r, Json *out, yaml_event_t *e, int depth) {
    bool ok = depth < MAX_DEPTH || refuse(r, e, "nested too deeply");
    bool scalar = e->type == YAML_SCALAR_EVENT;
    bool anchored =
        (scalar && (e->data.scalar.anchor || (e->data.scalar.tag && !e->data.scalar.quoted_implicit)))
        || (e->type == YAML_SEQUENCE_START_EVENT && (e->data.sequence_start.anchor || e->data.sequence_start.tag))
        || (e->type == YAML_MAPPING_START_EVENT && (e->data.mapping_start.anchor || e->data.mapping_start.tag));
    if (ok && (anchored || e->type == YAML_ALIAS_EVENT))
        ok = refuse(r, e, "anchors, aliases and tags are not supported");
    if (!ok) return yaml_event_delete(e), false;
    switch (e->type) {
    case YAML_SCALAR_EVENT: {
        const char *s = (const char *)e->data.scalar.value;
        size_t n = e->data.scalar.length;
        if (e->data.scalar.style == YAML_PLAIN_SCALAR_STYLE) *out = yaml_scalar(s, n, r->mem);
        else *out = (Json){ .kind = JSON_STRING, .n = n, .str = mem_str(r->mem, s, n) };
        break;
    }
    case YAML_SEQUENCE_START_EVENT: ok = sequence(r, out, depth); break;
    case YAML_MAPPING_START_EVENT: ok = mapping(r, out, depth); break;
    default: ok = refuse(r, e, "a value is missing"); break;
    }
    yaml_event_delete(e);
    return ok;
}

static bool document(Reader *r, Json *out) {
    *out = (Json){ .kind = JSON_OBJECT };
    bool seen = false;
    for (;;) {
        yaml_event_t e;
        TRY(next(r, &e));
        yaml_event_type_t type = e.type;
        bool marker =
            type == YAML_STREAM_START_EVENT || type == YAML_DOCUMENT_START_EVENT || type == YAML_DOCUMENT_END_EVENT;
        if (type == YAML_STREAM_END_EVENT || marker) {
            yaml_event_delete(&e);
            if (type == YAML_STREAM_END_EVENT) return true;
            if (type == YAML_DOCUMENT_START_EVENT && seen)
                return err_set(r->err, "a second document begins; one is read");
            continue;
        }
        seen = true;
        TRY(value(r, out, &e, 0));
    }
}

bool yaml_parse(Json *out, const char *text, size_t n, Mem *mem, Err *err) {
    Reader r = { .mem = mem, .err = err };
    if (memchr(text, 0, n)) return err_set(err, "the file holds a zero byte: not YAML");
    if (!yaml_parser_initialize(&r.parser)) die("out of memory");
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
    bool ok = document(&r, out);
    yaml_parser_delete(&r.parser);
    return ok;
}
