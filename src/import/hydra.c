/* hydra.c - the words of a launch command as Hydra reads them.
 * A value is a quoted string, a list in brackets, a mapping in braces, or plain text;
 * nothing is interpolated. */
#include "import/hydra.h"

#include "base/yaml.h"

#include <string.h>

static void trim(const char **s, size_t *n) {
    while (*n && (**s == ' ' || **s == '\t' || **s == '\n')) ++*s, --*n;
    while (*n && ((*s)[*n - 1] == ' ' || (*s)[*n - 1] == '\t' || (*s)[*n - 1] == '\n')) --*n;
}

static ConfScalar scalar(const char *s, size_t n, Mem *mem) {
    trim(&s, &n);
    bool quoted = n >= 2 && (*s == '\'' || *s == '"') && s[n - 1] == *s;
    char *text = mem_str(mem, s + quoted, n - 2 * (size_t)quoted);
    size_t kept = 0;
    for (size_t i = 0; text[i]; i++) { /* \ before ( ) [ ] { } : = , and blanks */
        if (text[i] == '\\' && text[i + 1] && strchr("()[]{}:=, '\"\\", text[i + 1])) i++;
        text[kept++] = text[i];
    }
    text[kept] = 0;
    return (ConfScalar){ text, kept, quoted || !kept };
}

/* The end of the part that begins at s: a comma outside of quotes and brackets, or the end. */
static const char *part_end(const char *s, const char *end) {
    int open = 0;
    for (char quote = 0; s < end; s++) {
        if (quote) quote = *s == quote ? 0 : quote;
        else if (*s == '\'' || *s == '"') quote = *s;
        else if (*s == '[' || *s == '{' || *s == '(') open++;
        else if (*s == ']' || *s == '}' || *s == ')') open--;
        else if (*s == ',' && open <= 0) break;
        if (*s == '\\' && s + 1 < end) s++;
    }
    return s;
}

static ConfValue value_of(const char *s, size_t n, Mem *mem) {
    trim(&s, &n);
    if (n < 2 || *s != '[' || s[n - 1] != ']') return (ConfValue){ .one = scalar(s, n, mem) };
    struct {
        ConfScalar *at;
        size_t n, cap;
    } items = { 0 };
    for (const char *p = s + 1, *end = s + n - 1, *to; p < end; p = to + 1) {
        to = part_end(p, end);
        VEC_PUSH(items, scalar(p, (size_t)(to - p), mem));
    }
    ConfValue v = { .items = mem_copy(mem, items.at, items.n * sizeof *items.at), .n = items.n, .is_list = true };
    vec_free(items.at);
    return v;
}

static void put(HydraSets *out, const char *key, const char *s, size_t n, int line, int depth, Mem *mem) {
    trim(&s, &n);
    if (n < 2 || *s != '{' || s[n - 1] != '}' || depth > 8) {
        VEC_PUSH(*out,
                 (HydraSet){ .key = key, .text = mem_str(mem, s, n), .value = value_of(s, n, mem), .line = line });
        return;
    }
    for (const char *p = s + 1, *end = s + n - 1, *to; p < end; p = to + 1) {
        to = part_end(p, end);
        const char *colon = memchr(p, ':', (size_t)(to - p));
        ConfScalar name = scalar(p, (size_t)((colon ? colon : to) - p), mem);
        if (colon)
            put(out, mem_printf(mem, "%s.%s", key, name.text), colon + 1, (size_t)(to - colon - 1), line, depth + 1,
                mem);
    }
}

bool hydra_word(HydraSets *out, const char *word, int line, Mem *mem) {
    bool removed = *word == '~';
    word += strspn(word, "+~");
    const char *eq = strchr(word, '=');
    size_t n = eq ? (size_t)(eq - word) : strlen(word);
    if (!n || strspn(word, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-@/") < n
        || (!eq && !removed))
        return false;
    const char *key = mem_str(mem, word, n);
    if (removed)
        VEC_PUSH(*out,
                 (HydraSet){
                     .key = key, .text = "", .value = { .one = { "null", 4, false } }, .line = line, .removed = true });
    else put(out, key, eq + 1, strlen(eq + 1), line, 0, mem);
    return true;
}

/* ---- YAML */
static void leaf(HydraSets *out, const char *key, const Yaml *y, Mem *mem) {
    Buf b = { 0 };
    Json v;
    yaml_to_json(&v, y, mem);
    if (v.kind == JSON_STRING) buf_put(&b, v.str, v.n);
    else json_put_value(&b, &v);
    const char *text = mem_str(mem, b.data ? b.data : "", b.n);
    ConfValue value = v.kind == JSON_STRING ? (ConfValue){ .one = { text, b.n, true } } : value_of(text, b.n, mem);
    VEC_PUSH(*out, (HydraSet){ .key = key, .text = text, .value = value, .line = y->line, .whole = true });
    buf_free(&b);
}

static void members(HydraSets *out, const char *prefix, const Yaml *map, Mem *mem) {
    for (size_t i = 0; i < map->n; i++) {
        const char *name = map->pairs[i].key->text;
        const Yaml *v = map->pairs[i].value;
        const char *key = mem_printf(mem, "%s%s%s", prefix, *prefix ? "." : "", name);
        if (v->kind == YAML_MAP) members(out, key, v, mem);
        else if (strcmp(name, "_target_") && strcmp(key, "defaults")) leaf(out, key, v, mem);
    }
}

bool hydra_yaml(HydraSets *out, const char *text, size_t n, Mem *mem, Err *err) {
    const Yaml *y = yaml_read(NULL, text, n, mem, err);
    TRY(y);
    if (y->kind == YAML_MAP) members(out, "", y, mem);
    for (size_t i = 0; y->kind == YAML_LIST && i < y->n; i++) {
        const Yaml *v = y->items[i];
        if (v->kind != YAML_TEXT || !hydra_word(out, v->text, v->line, mem))
            return err_set(err, "line %d: entry %zu is not key=value", v->line, i + 1);
    }
    return y->kind != YAML_TEXT || err_set(err, "neither settings nor a list of them");
}
