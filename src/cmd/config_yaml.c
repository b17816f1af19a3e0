/* config_yaml.c - a YAML file walked into options: nested mappings and dotted keys alike, anchors, aliases and merge keys
 * (<<).  libyaml resolves aliases to the node they name, so a hostile file could nest without end: depth and number of
 * values are bounded. */
#include "cmd/config_table.h"

#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum { MAX_DEPTH = 16, MAX_VALUES = 10000 };

typedef struct {
    Config *c;
    const char *name;
    yaml_document_t *doc;
    int values;
    Err *err;
} Walk;
typedef struct {
    yaml_node_t *key, *value;
} Pair;
typedef VEC(Pair) Pairs;

static bool fail(Walk *w, const yaml_node_t *at, const char *msg) {
    return err_set(w->err, "%s:%zu: %s", w->name, at->start_mark.line + 1, msg);
}

static const char *text_of(const yaml_node_t *n) { return (const char *)n->data.scalar.value; }
static bool is_merge(const yaml_node_t *k) {
    return k->data.scalar.style == YAML_PLAIN_SCALAR_STYLE && !strcmp(text_of(k), "<<");
}

static bool has(const Pairs *p, size_t n, const char *key) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(text_of(p->at[i].key), key)) return true;
    return false;
}

/* The members of a mapping, its own first, then those merged into it that it does not have itself. */
static bool members(Walk *w, Pairs *out, yaml_node_t *map, bool own, int depth) {
    if (depth > MAX_DEPTH) return fail(w, map, "mappings are nested or merged too deeply");
    if (map->type != YAML_MAPPING_NODE) return fail(w, map, "<< wants a mapping or a list of mappings");
    size_t before = out->n;
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        yaml_node_t *k = yaml_document_get_node(w->doc, p->key), *v = yaml_document_get_node(w->doc, p->value);
        if (k->type != YAML_SCALAR_NODE || !k->data.scalar.length || strlen(text_of(k)) != k->data.scalar.length)
            return fail(w, k, "a key must be a plain name");
        if (is_merge(k)) continue;
        if (own && has(out, out->n, text_of(k))) {
            Err e;
            err_set(&e, "%s stands twice in one mapping", text_of(k));
            return fail(w, k, e.msg);
        }
        if (++w->values > MAX_VALUES) return fail(w, k, "too many values");
        if (!has(out, before, text_of(k))) VEC_PUSH(*out, (Pair){ k, v });
    }
    for (yaml_node_pair_t *p = map->data.mapping.pairs.start; p < map->data.mapping.pairs.top; p++) {
        yaml_node_t *k = yaml_document_get_node(w->doc, p->key), *v = yaml_document_get_node(w->doc, p->value);
        if (!is_merge(k)) continue;
        if (v->type != YAML_SEQUENCE_NODE) {
            TRY(members(w, out, v, false, depth + 1));
            continue;
        }
        for (yaml_node_item_t *i = v->data.sequence.items.start; i < v->data.sequence.items.top; i++)
            TRY(members(w, out, yaml_document_get_node(w->doc, *i), false, depth + 1));
    }
    return true;
}

static ConfScalar scalar(const yaml_node_t *n) {
    return (ConfScalar){ text_of(n), n->data.scalar.length, n->data.scalar.style != YAML_PLAIN_SCALAR_STYLE };
}

/* A scalar, or a list of scalars; items lie in mem. */
static bool value_of(Walk *w, ConfValue *v, yaml_node_t *n, Mem *mem) {
    *v = (ConfValue){ 0 };
    if (n->type == YAML_SCALAR_NODE) return v->one = scalar(n), true;
    if (n->type != YAML_SEQUENCE_NODE) return fail(w, n, "a value or a list of values is wanted here, not a mapping");
    v->is_list = true;
    v->n = (size_t)(n->data.sequence.items.top - n->data.sequence.items.start);
    v->items = MEM_ARRAY(mem, ConfScalar, v->n);
    for (size_t i = 0; i < v->n; i++) {
        yaml_node_t *item = yaml_document_get_node(w->doc, n->data.sequence.items.start[i]);
        if (item->type != YAML_SCALAR_NODE) return fail(w, item, "a list may hold only plain values");
        v->items[i] = scalar(item);
    }
    return true;
}

static bool walk(Walk *w, yaml_node_t *map, const char *prefix, int depth);

static bool one_key(Walk *w, const Pair *p, const char *prefix, int depth) {
    char key[256], where[512];
    int n = snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", text_of(p->key));
    if (n >= (int)sizeof key) return fail(w, p->key, "this key is too long");
    if (!strcmp(key, "plan") || !strncmp(key, "plan.", 5))
        return true; /* the planner's own section, which it checks itself */
    bool verl, known = conf_find(key, w->c->verb, &verl) != NULL;
    const yaml_node_t *v0 = p->value;
    bool null =
        v0->type == YAML_SCALAR_NODE && !v0->data.scalar.length && v0->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    if (!known && conf_is_section(key, CONF_TRAIN | CONF_SFT)) {
        if (null) return true; /* "algo:" with nothing under it */
        if (p->value->type == YAML_MAPPING_NODE) return walk(w, p->value, key, depth + 1);
        Err e;
        err_set(&e, "%s is a section: it wants options under it, not a value", key);
        return fail(w, p->key, e.msg);
    }
    snprintf(where, sizeof where, "%s:%zu", w->name, p->key->start_mark.line + 1);
    ConfValue v = { 0 };
    if (known) TRY(value_of(w, &v, p->value, &w->c->mem));
    return conf_put(w->c, key, &v, where, false, w->err);
}

static bool walk(Walk *w, yaml_node_t *map, const char *prefix, int depth) {
    Pairs pairs = { 0 };
    bool ok = members(w, &pairs, map, true, depth);
    for (size_t i = 0; ok && i < pairs.n; i++) ok = one_key(w, &pairs.at[i], prefix, depth);
    vec_free(pairs.at);
    return ok;
}

static bool load(yaml_document_t *doc, yaml_parser_t *p, const char *name, Err *err) {
    if (yaml_parser_load(p, doc)) return true;
    return err_set(err, "%s:%zu: %s%s%s", name, p->problem_mark.line + 1, p->problem ? p->problem : "not YAML",
                   p->context ? ", " : "", p->context ? p->context : "");
}

bool conf_read_yaml(Config *c, const char *name, const char *text, size_t n, Err *err) {
    yaml_parser_t parser;
    yaml_document_t doc, second;
    CHECK(yaml_parser_initialize(&parser), "libyaml: no memory");
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, n);
    bool ok = load(&doc, &parser, name, err);
    if (ok) {
        Walk w = { .c = c, .name = name, .doc = &doc, .err = err };
        yaml_node_t *root = yaml_document_get_root_node(&doc);
        if (root && root->type != YAML_MAPPING_NODE)
            ok = fail(&w, root, "a configuration is a mapping of options, such as train: {lr: 1e-6}");
        else if (root) ok = walk(&w, root, "", 0);
        yaml_document_delete(&doc);
    }
    if (ok && (ok = load(&second, &parser, name, err))) {
        if (yaml_document_get_root_node(&second)) ok = err_set(err, "%s: holds a second document; one is wanted", name);
        yaml_document_delete(&second);
    }
    yaml_parser_delete(&parser);
    return ok;
}

/* "key=value": the value is read as YAML would read it, so lists work; what is not YAML is a plain string. */
bool conf_read_override(Config *c, const char *text, Err *err) {
    const char *eq = strchr(text, '='), *where = "command line";
    if (*text == '+' || *text == '~')
        return err_set(err, "%s: %s: options are set with key=value, without '%c'", where, text, *text);
    if (!eq || eq == text) return err_set(err, "%s: '%s' is not key=value", where, text);
    char key[256];
    if (eq - text >= (int)sizeof key) return err_set(err, "%s: the key of %.40s... is too long", where, text);
    snprintf(key, sizeof key, "%.*s", (int)(eq - text), text);
    if (conf_is_section(key, CONF_TRAIN | CONF_SFT) && !strchr(key, '='))
        return err_set(err, "%s: %s is a section: set one of its options, such as %s.NAME=VALUE", where, key, key);

    yaml_parser_t parser;
    yaml_document_t doc;
    CHECK(yaml_parser_initialize(&parser), "libyaml: no memory");
    yaml_parser_set_input_string(&parser, (const unsigned char *)(eq + 1), strlen(eq + 1));
    ConfValue v = { .one = { eq + 1, strlen(eq + 1), false } };
    Walk w = { .c = c, .name = where, .doc = &doc, .err = err };
    bool have = yaml_parser_load(&parser, &doc), ok = true;
    yaml_node_t *root = have ? yaml_document_get_root_node(&doc) : NULL;
    if (root && root->type != YAML_MAPPING_NODE) ok = value_of(&w, &v, root, &c->mem);
    if (ok) ok = conf_put(c, key, &v, where, true, err);
    if (have) yaml_document_delete(&doc);
    yaml_parser_delete(&parser);
    return ok;
}
