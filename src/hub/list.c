/* list.c - what a repository holds, by the hub's answer, and which of it is needed.
 * Names come from strangers: one that would leave its folder, or could be taken for another, refuses the whole. */
#include "hub/hub_in.h"

#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

enum { FILES_MOST = 200000, PATH_MOST = 1024 };

static bool path_ok(const char *s, size_t n) {
    if (!n || n > PATH_MOST || strlen(s) != n) return false;
    for (const char *p = s; *p;) {
        size_t len = strcspn(p, "/");
        if (!len || (len <= 2 && !strncmp(p, "..", len))) return false;
        for (size_t i = 0; i < len; i++)
            if ((unsigned char)p[i] < 32 || p[i] == '\\' || p[i] == 127) return false;
        p += len;
        if (*p && !*++p) return false;
    }
    return true;
}

static bool hex_of(const Json *o, const char *key, size_t digits, const char **out) {
    const Json *v = json_get(o, key);
    if (!v || v->kind != JSON_STRING || v->n != digits || strspn(v->str, "0123456789abcdef") != digits) return false;
    return *out = v->str, true;
}

static bool file_of(HubFile *f, const Json *j, Err *err) {
    const Json *name = json_get(j, "rfilename"), *lfs = json_get(j, "lfs");
    if (!name || name->kind != JSON_STRING || !path_ok(name->str, name->n))
        return err_set(err, "a file's name is missing or would lead elsewhere");
    *f = (HubFile){ .path = name->str };
    bool large = lfs && lfs->kind == JSON_OBJECT;
    Err why;
    if (!json_int_within(large && json_get(lfs, "size") ? lfs : j, "size", 0, (int64_t)1 << 52, &f->bytes, &why))
        return err_set(err, "%.200s: its size is not told", f->path);
    if (!(large ? hex_of(lfs, "sha256", 64, &f->sum) : hex_of(j, "blobId", 40, &f->sum)))
        return err_set(err, "%.200s: its sum is not told", f->path);
    return true;
}

bool hub_list_parse(HubList *out, const char *text, size_t n, Mem *mem, Err *err) {
    Json root;
    *out = (HubList){ 0 };
    TRY(json_parse(&root, text, n, mem, err));
    const Json *files = json_get(&root, "siblings");
    if (!hex_of(&root, "sha", 40, &out->commit)) return err_set(err, "it names no commit");
    if (!files || files->kind != JSON_ARRAY || files->n > FILES_MOST) return err_set(err, "it lists no files");
    out->files = MEM_ARRAY(mem, HubFile, files->n);
    for (size_t i = 0; i < files->n; i++) TRY(file_of(&out->files[out->n++], &files->items[i], err));
    return true;
}

/* ---- what is needed */
bool hub_matches(const char *pattern, const char *path) { return !fnmatch(pattern, path, 0); }

static const char *const of_model[] = {
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "tiktoken.model",
    "chat_template.jinja",
    "chat_template.json",
    "processor_config.json",
    "preprocessor_config.json",
    "video_preprocessor_config.json",
    HUB_INDEX,
};
static const char *const of_data[] = { "*.parquet", "*.jsonl" };

static int mark(HubList *l, const char *const *patterns, int n, bool to) {
    int count = 0;
    for (int i = 0; i < l->n; i++)
        for (int k = 0; k < n; k++)
            if (hub_matches(patterns[k], l->files[i].path)) {
                l->files[i].wanted = to, count++;
                break;
            }
    return count;
}

static bool has(const HubList *l, const char *path) {
    for (int i = 0; i < l->n; i++)
        if (!strcmp(l->files[i].path, path)) return true;
    return false;
}

/* The names that end so, for a message. */
static int ending(const HubList *l, const char *end, char *out, size_t room) {
    int n = 0;
    size_t at = 0;
    *out = 0;
    for (int i = 0; i < l->n; i++) {
        const char *p = l->files[i].path;
        size_t len = strlen(p);
        if (len < strlen(end) || strcmp(p + len - strlen(end), end)) continue;
        if (n++ < 6 && at < room) at += (size_t)snprintf(out + at, room - at, "%s%s", n > 1 ? ", " : "", p);
        else if (n == 7 && at < room) at += (size_t)snprintf(out + at, room - at, ", ...");
    }
    return n;
}

static bool choose_weights(HubList *l, const HubName *name, Err *err) {
    static const char *const one[] = { "model.safetensors" };
    char list[300];
    if (has(l, HUB_INDEX)) return true; /* names them */
    if (mark(l, one, 1, true)) return true;
    int n = ending(l, ".gguf", list, sizeof list);
    if (n == 1) {
        static const char *const gguf[] = { "*.gguf" };
        for (int i = 0; i < l->n; i++) l->files[i].wanted = false; /* all else is in it */
        mark(l, gguf, 1, true);
        return true;
    }
    if (n > 1) return err_set(err, "%s has several GGUF files: choose one with --include (%s)", name->repo, list);
    n = ending(l, ".safetensors", list, sizeof list);
    if (n) return err_set(err, "%s has no model.safetensors: choose with --include (%s)", name->repo, list);
    n = ending(l, ".bin", list, sizeof list);
    return err_set(err, "%s has no safetensors%s%s: hone reads no other weights (--include '*' fetches all the same)",
                   name->repo, n ? ", but " : "", n ? list : "");
}

bool hub_choose(HubList *l, const HubConf *c, const HubName *name, Err *err) {
    bool own = c->includes || name->path;
    const char *const *want = name->path ? &name->path : c->include;
    int n = name->path ? 1 : c->includes;
    if (own && !mark(l, want, n, true))
        return err_set(err, "%s has no file '%s'; it has %d files", name->repo, want[0], l->n);
    if (!own && name->kind == HUB_DATA && !mark(l, of_data, COUNT(of_data), true))
        return err_set(err, "%s has neither Parquet files nor JSON lines; --include PATTERN names files", name->repo);
    if (!own && name->kind == HUB_MODEL) {
        mark(l, of_model, COUNT(of_model), true);
        TRY(choose_weights(l, name, err));
    }
    mark(l, c->exclude, c->excludes, false);
    return true;
}

bool hub_choose_shards(HubList *l, const char *index, size_t n, Err *err) {
    Mem mem = { 0 };
    Json root;
    bool ok = json_parse(&root, index, n, &mem, err);
    const Json *map = ok ? json_get(&root, "weight_map") : NULL;
    if (ok && (!map || map->kind != JSON_OBJECT || !map->n)) ok = err_set(err, HUB_INDEX " names no weights");
    const char *last = "";
    for (size_t i = 0; ok && i < map->n; i++) {
        const Json *v = &map->members[i].value;
        if (v->kind != JSON_STRING) ok = err_set(err, HUB_INDEX " names no file for %.100s", map->members[i].key);
        if (!ok || !strcmp(v->str, last)) continue;
        last = v->str;
        bool found = false;
        for (int k = 0; k < l->n; k++)
            if (!strcmp(l->files[k].path, v->str)) l->files[k].wanted = found = true;
        if (!found) ok = err_set(err, HUB_INDEX " names %.200s, which the repository does not have", v->str);
    }
    mem_free(&mem);
    return ok;
}
