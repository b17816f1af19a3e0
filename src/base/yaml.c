/* yaml.c - libyaml's events made into a tree.  Names (keys of a map, anchors) are found through a table of
 * hashes, an alias is the node it names, a merge copies pairs, and everything made is counted, so that no
 * file takes longer than its length. */
#include "base/yaml.h"
#include "base/hash.h"
#include "base/utf8.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

/* ---- names: index of each, found by its bytes */
typedef struct {
    const char *s;
    size_t n;
} Word;
typedef struct {
    VEC(Word)
    words;
    uint32_t *slot; /* index + 1; NULL as long as a few are compared one by one */
    size_t size;
} Names;
enum { FEW = 8 };

static size_t place(const Names *t, Word w) {
    size_t at = hash_bytes(HASH_START, w.s, w.n) & (t->size - 1);
    for (; t->slot[at]; at = (at + 1) & (t->size - 1)) {
        Word o = t->words.at[t->slot[at] - 1];
        if (o.n == w.n && !memcmp(o.s, w.s, w.n)) break;
    }
    return at;
}

static int64_t names_find(const Names *t, Word w) {
    if (t->slot) return (int64_t)t->slot[place(t, w)] - 1;
    for (size_t i = 0; i < t->words.n; i++)
        if (t->words.at[i].n == w.n && !memcmp(t->words.at[i].s, w.s, w.n)) return (int64_t)i;
    return -1;
}

static void names_add(Names *t, Word w) { /* one that is not there */
    VEC_PUSH(t->words, w);
    size_t n = t->words.n;
    if (n <= FEW) return;
    if (n * 2 > t->size) {
        vec_free(t->slot);
        t->slot = NULL, t->size = 0;
        size_t size = 32;
        while (size < n * 4) size *= 2;
        t->slot = vec_grow(NULL, &t->size, size, sizeof *t->slot);
        memset(t->slot, 0, size * sizeof *t->slot);
        t->size = size;
        for (size_t i = 0; i + 1 < n; i++) t->slot[place(t, t->words.at[i])] = (uint32_t)i + 1;
    }
    t->slot[place(t, w)] = (uint32_t)n;
}

static void names_free(Names *t) {
    vec_free(t->words.at);
    vec_free(t->slot);
}

/* ---- reading */
typedef struct {
    const Yaml *is;
    bool whole;
} Anchored;
typedef struct {
    yaml_parser_t parser;
    const char *name;
    Mem *mem;
    Err *err;
    Names anchors;
    VEC(Anchored)
    anchored;     /* [anchors] */
    int64_t made; /* nodes, and pairs that were merged */
} Reader;

static bool fail(Reader *r, size_t line, const char *what) {
    if (r->name) return err_set(r->err, "%s:%zu: %s", r->name, line, what);
    return err_set(r->err, "line %zu: %s", line, what);
}

static bool fail_word(Reader *r, size_t line, const char *before, const char *word, const char *after) {
    Err e;
    err_set(&e, "%s%.80s%s", before, word, after);
    return fail(r, line, e.msg);
}

static bool next(Reader *r, yaml_event_t *e) {
    if (yaml_parser_parse(&r->parser, e)) return true;
    const yaml_parser_t *p = &r->parser;
    return fail_word(r, p->problem_mark.line + 1, p->problem ? p->problem : "not YAML", p->context ? ", " : "",
                     p->context ? p->context : "");
}

static bool room(Reader *r, size_t line, int64_t more) {
    Err e;
    r->made += more;
    if (r->made <= YAML_MOST_VALUES) return true;
    err_set(&e, "too many values: at most %d are read, with what aliases and merges bring", YAML_MOST_VALUES);
    return fail(r, line, e.msg);
}

static bool value(Reader *r, const Yaml **out, yaml_event_t *e, int depth);

/* One more thing below y. */
static bool hold(Reader *r, Yaml *y, const Yaml *below) {
    y->values += below->values; /* both are bounded: no overflow */
    if (below->deep >= y->deep) y->deep = below->deep + 1;
    if (y->values > YAML_MOST_VALUES) return room(r, (size_t)y->line, y->values);
    return y->deep <= YAML_MOST_DEEP || fail(r, (size_t)y->line, "nested too deeply");
}

static bool list(Reader *r, Yaml *y, int depth) {
    VEC(const Yaml *)
    v = { 0 };
    bool ok = true, end = false;
    while (ok && !end) {
        yaml_event_t e;
        const Yaml *item;
        if (!(ok = next(r, &e))) break;
        end = e.type == YAML_SEQUENCE_END_EVENT;
        if (end) yaml_event_delete(&e);
        else if ((ok = value(r, &item, &e, depth + 1) && hold(r, y, item))) VEC_PUSH(v, item);
    }
    if (ok) y->n = v.n, y->items = mem_copy(r->mem, v.at, v.n * sizeof *v.at);
    vec_free(v.at);
    return ok;
}

typedef VEC(YamlPair) Pairs;

static Word word_of(const Yaml *key) { return (Word){ key->text, key->n }; }
static bool is_merge(const Yaml *key) { return !key->quoted && key->n == 2 && !memcmp(key->text, "<<", 2); }

static bool merge_map(Reader *r, Yaml *y, Pairs *to, Names *names, const Yaml *from, size_t line) {
    if (from->kind != YAML_MAP) return fail(r, line, "<< wants a mapping or a list of mappings");
    TRY(room(r, line, (int64_t)from->n));
    for (size_t i = 0; i < from->n; i++) {
        YamlPair p = from->pairs[i];
        if (names_find(names, word_of(p.key)) >= 0) continue;
        names_add(names, word_of(p.key));
        VEC_PUSH(*to, p);
        TRY(hold(r, y, p.value));
    }
    return true;
}

static bool merge(Reader *r, Yaml *y, Pairs *to, Names *names, const YamlPair *what) {
    const Yaml *v = what->value;
    if (v->kind != YAML_LIST) return merge_map(r, y, to, names, v, (size_t)what->key->line);
    for (size_t i = 0; i < v->n; i++) TRY(merge_map(r, y, to, names, v->items[i], (size_t)what->key->line));
    return true;
}

/* The pairs of a map as they are written; the merges apart. */
static bool own_pairs(Reader *r, Yaml *y, Pairs *to, Pairs *merges, Names *names, int depth) {
    for (;;) {
        yaml_event_t e;
        YamlPair p;
        TRY(next(r, &e));
        if (e.type == YAML_MAPPING_END_EVENT) return yaml_event_delete(&e), true;
        TRY(value(r, &p.key, &e, depth + 1));
        size_t line = (size_t)p.key->line;
        if (p.key->kind != YAML_TEXT || !p.key->n || strlen(p.key->text) != p.key->n)
            return fail(r, line, "a key must be a plain name");
        bool merging = is_merge(p.key);
        if (!merging && names_find(names, word_of(p.key)) >= 0)
            return fail_word(r, line, "", p.key->text, " stands twice in one mapping");
        TRY(next(r, &e) && value(r, &p.value, &e, depth + 1));
        if (!merging) {
            names_add(names, word_of(p.key));
            TRY(hold(r, y, p.value));
            VEC_PUSH(*to, p);
        } else VEC_PUSH(*merges, p);
    }
}

static bool map(Reader *r, Yaml *y, int depth) {
    Pairs pairs = { 0 }, merges = { 0 };
    Names names = { 0 };
    bool ok = own_pairs(r, y, &pairs, &merges, &names, depth);
    for (size_t i = 0; ok && i < merges.n; i++) ok = merge(r, y, &pairs, &names, &merges.at[i]);
    if (ok) y->n = pairs.n, y->pairs = mem_copy(r->mem, pairs.at, pairs.n * sizeof *pairs.at);
    vec_free(pairs.at);
    vec_free(merges.at);
    names_free(&names);
    return ok;
}

static bool alias(Reader *r, const Yaml **out, const char *name, size_t line) {
    int64_t at = names_find(&r->anchors, (Word){ name, strlen(name) });
    if (at < 0) return fail_word(r, line, "there is no anchor &", name, " before this alias");
    *out = r->anchored.at[at].is;
    return r->anchored.at[at].whole || fail_word(r, line, "the alias *", name, " stands inside what it names");
}

static bool anchor(Reader *r, const Yaml *y, const char *name) {
    if (!name) return true;
    Word w = { mem_str(r->mem, name, strlen(name)), strlen(name) };
    if (names_find(&r->anchors, w) >= 0) return fail_word(r, (size_t)y->line, "the anchor &", name, " is there twice");
    names_add(&r->anchors, w);
    VEC_PUSH(r->anchored, (Anchored){ y, false });
    return true;
}

static bool fill(Reader *r, Yaml *y, const yaml_event_t *e, int depth) {
    const char *name = NULL, *tag = NULL;
    switch (e->type) {
    case YAML_SCALAR_EVENT:
        y->kind = YAML_TEXT;
        name = (const char *)e->data.scalar.anchor, tag = (const char *)e->data.scalar.tag;
        y->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        y->n = e->data.scalar.length;
        y->text = mem_str(r->mem, (const char *)e->data.scalar.value, y->n);
        break;
    case YAML_SEQUENCE_START_EVENT:
        y->kind = YAML_LIST;
        name = (const char *)e->data.sequence_start.anchor, tag = (const char *)e->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        y->kind = YAML_MAP;
        name = (const char *)e->data.mapping_start.anchor, tag = (const char *)e->data.mapping_start.tag;
        break;
    default: return fail(r, e->start_mark.line + 1, "a value is missing");
    }
    if (tag) return fail_word(r, (size_t)y->line, "the tag ", tag, ": tags are not supported");
    size_t anchors = r->anchored.n; /* its own will have this index */
    TRY(anchor(r, y, name));
    y->values = y->deep = 1;
    if (y->kind == YAML_LIST) TRY(list(r, y, depth));
    if (y->kind == YAML_MAP) TRY(map(r, y, depth));
    if (name) r->anchored.at[anchors].whole = true;
    return true;
}

/* Makes the value that begins with event e, and deletes e. */
static bool value(Reader *r, const Yaml **out, yaml_event_t *e, int depth) {
    size_t line = e->start_mark.line + 1;
    bool ok = (depth < YAML_MOST_DEEP || fail(r, line, "nested too deeply")) && room(r, line, 1);
    if (ok && e->type == YAML_ALIAS_EVENT) ok = alias(r, out, (const char *)e->data.alias.anchor, line);
    else if (ok) {
        Yaml *y = MEM_NEW(r->mem, Yaml);
        y->line = (int)line;
        *out = y;
        ok = fill(r, y, e, depth);
    }
    yaml_event_delete(e);
    return ok;
}

static bool document(Reader *r, const Yaml **out) {
    *out = NULL;
    for (;;) {
        yaml_event_t e;
        TRY(next(r, &e));
        yaml_event_type_t type = e.type;
        size_t line = e.start_mark.line + 1;
        bool marker =
            type == YAML_STREAM_START_EVENT || type == YAML_DOCUMENT_START_EVENT || type == YAML_DOCUMENT_END_EVENT;
        if (type != YAML_STREAM_END_EVENT && !marker) {
            TRY(value(r, out, &e, 0));
            continue;
        }
        yaml_event_delete(&e);
        if (type == YAML_STREAM_END_EVENT) break;
        if (type == YAML_DOCUMENT_START_EVENT && *out) return fail(r, line, "a second document begins; one is wanted");
    }
    if (!*out) {
        Yaml *y = MEM_NEW(r->mem, Yaml);
        *y = (Yaml){ .kind = YAML_MAP, .line = 1, .values = 1, .deep = 1 };
        *out = y;
    }
    return true;
}

const Yaml *yaml_read(const char *name, const char *text, size_t n, Mem *mem, Err *err) {
    Reader r = { .name = name, .mem = mem, .err = err };
    const Yaml *out;
    if (n > YAML_MOST_BYTES || memchr(text, 0, n)) {
        const char *why = n > YAML_MOST_BYTES ? "more than 16 MiB: not a configuration" : "a zero byte: not YAML";
        return err_set(err, "%s%s%s", name ? name : "", name ? ": " : "", why), NULL;
    }
    if (!yaml_parser_initialize(&r.parser)) die_memory(sizeof r.parser);
    yaml_parser_set_input_string(&r.parser, (const unsigned char *)text, n);
    bool ok = document(&r, &out);
    yaml_parser_delete(&r.parser);
    names_free(&r.anchors);
    vec_free(r.anchored.at);
    return ok ? out : NULL;
}

/* ---- as JSON */
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

void yaml_to_json(Json *out, const Yaml *y, Mem *mem) {
    if (y->kind == YAML_TEXT) {
        *out = y->quoted ? (Json){ .kind = JSON_STRING, .n = y->n, .str = y->text } : yaml_scalar(y->text, y->n, mem);
    } else if (y->kind == YAML_LIST) {
        *out = (Json){ .kind = JSON_ARRAY, .n = y->n, .items = MEM_ARRAY(mem, Json, y->n) };
        for (size_t i = 0; i < y->n; i++) yaml_to_json(&out->items[i], y->items[i], mem);
    } else {
        *out = (Json){ .kind = JSON_OBJECT, .n = y->n, .members = MEM_ARRAY(mem, JsonMember, y->n) };
        for (size_t i = 0; i < y->n; i++) {
            out->members[i].key = y->pairs[i].key->text, out->members[i].key_n = y->pairs[i].key->n;
            yaml_to_json(&out->members[i].value, y->pairs[i].value, mem);
        }
    }
}

bool yaml_parse(Json *out, const char *text, size_t n, Mem *mem, Err *err) {
    const Yaml *y = yaml_read(NULL, text, n, mem, err);
    if (y) yaml_to_json(out, y, mem);
    return y != NULL;
}

void yaml_put_str(Buf *b, const char *s, size_t n) {
    Buf json = { 0 };
    json_put_str(&json, s, n);
    for (size_t i = 0; i < json.n;) {
        uint32_t c = 0;
        int len = utf8_get(json.data + i, json.n - i, &c);
        bool odd = (c >= 0x7F && c < 0xA0) || c == 0x2028 || c == 0x2029 || c == 0xFEFF || c == 0xFFFE || c == 0xFFFF;
        if (odd) buf_printf(b, "\\u%04X", (unsigned)c);
        else buf_put(b, json.data + i, (size_t)len);
        i += (size_t)len;
    }
    buf_free(&json);
}
