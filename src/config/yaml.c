/* yaml.c - a YAML file walked into options: nested mappings and dotted keys alike. */
#include "base/yaml.h"
#include "config/table.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    Config *c;
    const char *name;
    Err *err;
} Walk;

static bool fail(Walk *w, const Yaml *at, const char *msg) {
    return err_set(w->err, "%s:%d: %s", w->name, at->line, msg);
}

static ConfScalar scalar(const Yaml *y) { return (ConfScalar){ y->text, y->n, y->quoted }; }

/* A scalar, or a list of scalars; items lie in mem. */
static bool value_of(Walk *w, ConfValue *v, const Yaml *y, Mem *mem) {
    *v = (ConfValue){ 0 };
    if (y->kind == YAML_TEXT) return v->one = scalar(y), true;
    if (y->kind != YAML_LIST) return fail(w, y, "a value or a list of values is wanted here, not a mapping");
    v->is_list = true;
    v->n = y->n;
    v->items = MEM_ARRAY(mem, ConfScalar, v->n);
    for (size_t i = 0; i < v->n; i++) {
        if (y->items[i]->kind != YAML_TEXT) return fail(w, y->items[i], "a list may hold only plain values");
        v->items[i] = scalar(y->items[i]);
    }
    return true;
}

static bool walk(Walk *w, const Yaml *map, const char *prefix);

static bool one_key(Walk *w, const YamlPair *p, const char *prefix) {
    char key[256], where[512];
    int n = snprintf(key, sizeof key, "%s%s%s", prefix, *prefix ? "." : "", p->key->text);
    if (n >= (int)sizeof key) return fail(w, p->key, "this key is too long");
    if (!strcmp(key, "plan") || !strncmp(key, "plan.", 5))
        return true; /* the planner's own section, which it checks itself */
    bool verl, known = conf_find(key, w->c->verb, &verl) != NULL;
    const Yaml *v0 = p->value;
    bool null = v0->kind == YAML_TEXT && !v0->n && !v0->quoted;
    if (!known && conf_is_section(key, CONF_TRAIN | CONF_SFT)) {
        if (null) return true; /* "algo:" with nothing under it */
        if (v0->kind == YAML_MAP) return walk(w, v0, key);
        Err e;
        err_set(&e, "%s is a section: it wants options under it, not a value", key);
        return fail(w, p->key, e.msg);
    }
    snprintf(where, sizeof where, "%s:%d", w->name, p->key->line);
    ConfValue v = { 0 };
    if (known || v0->kind == YAML_TEXT) TRY(value_of(w, &v, v0, &w->c->mem));
    return conf_put(w->c, key, &v, where, false, w->err);
}

static bool walk(Walk *w, const Yaml *map, const char *prefix) {
    for (size_t i = 0; i < map->n; i++) TRY(one_key(w, &map->pairs[i], prefix));
    return true;
}

bool conf_read_yaml(Config *c, const char *name, const char *text, size_t n, Err *err) {
    const Yaml *root = yaml_read(name, text, n, &c->mem, err);
    if (!root) return false;
    Walk w = { .c = c, .name = name, .err = err };
    if (root->kind != YAML_MAP)
        return fail(&w, root, "a configuration is a mapping of options, such as train: {lr: 1e-6}");
    return walk(&w, root, "");
}

/* Characters at which YAML cuts a plain text into lines, which it would join by a space, and the mark that it drops. */
static bool has_lines(const char *s) {
    return strpbrk(s, "\n\r") || strstr(s, "\xC2\x85") || strstr(s, "\xE2\x80\xA8") || strstr(s, "\xE2\x80\xA9")
           || strstr(s, "\xEF\xBB\xBF");
}

/* "key=value": the value is read as YAML would read it, so lists work; what is not YAML is a plain string. */
bool conf_read_override(Config *c, const char *text, Err *err) {
    const char *eq, *where = "command line";
    text += strspn(text, "+"); /* Hydra's "+key" and "++key": every key may be set here */
    if (*text == '~') return err_set(err, "%s: %s: options are set with key=value, without '~'", where, text);
    eq = strchr(text, '=');
    if (!eq || eq == text) return err_set(err, "%s: '%s' is not key=value", where, text);
    char key[256];
    if (eq - text >= (int)sizeof key) return err_set(err, "%s: the key of %.40s... is too long", where, text);
    snprintf(key, sizeof key, "%.*s", (int)(eq - text), text);
    if (conf_is_section(key, CONF_TRAIN | CONF_SFT) && !strchr(key, '='))
        return err_set(err, "%s: %s is a section: set one of its options, such as %s.NAME=VALUE", where, key, key);

    ConfValue v = { .one = { eq + 1, strlen(eq + 1), false } };
    Walk w = { .c = c, .name = where, .err = err };
    Err none;
    const Yaml *root = eq[1] ? yaml_read(NULL, eq + 1, strlen(eq + 1), &c->mem, &none) : NULL;
    bool verl, plain = root && root->kind == YAML_TEXT && !root->quoted;
    const ConfOption *o = conf_find(key, c->verb, &verl);
    if (plain && o && (o->kind == CONF_STR || o->kind == CONF_STRS) && has_lines(eq + 1))
        root = NULL; /* as it stands */
    if (root && root->kind != YAML_MAP) TRY(value_of(&w, &v, root, &c->mem));
    return conf_put(c, key, &v, where, true, err);
}
