/* verb_pull.c - `hone pull ORG/NAME`: a model or a data set from a hub. */
#include "cmd/cmd.h"
#include "hub/hub.h"

#include <stdio.h>
#include <string.h>

enum { PATTERNS = 64 };
typedef struct {
    const char *token, *endpoint, *cache, *proxy, *include, *exclude;
    int64_t parallel;
    bool dataset, local, json;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "dataset",  OPT_FLAG, offsetof(Args, dataset),  "", "a data set (as is datasets/ORG/NAME)" },
    { "include",  OPT_STR,  offsetof(Args, include),  "A,B",
      "patterns of the files wanted, * over folders too, instead of those that are needed" },
    { "exclude",  OPT_STR,  offsetof(Args, exclude),  "A,B", "patterns of files that are not wanted" },
    { "token",    OPT_STR,  offsetof(Args, token),    "TOKEN",
      "of an account; @FILE reads it (default: HF_TOKEN, or the file HF_HOME/token)" },
    { "endpoint", OPT_STR,  offsetof(Args, endpoint), "URL", "another hub (default: HF_ENDPOINT)" },
    { "cache",    OPT_STR,  offsetof(Args, cache),    "DIR", "where files are kept (default: HF_HOME/hub)" },
    { "proxy",    OPT_STR,  offsetof(Args, proxy),    "URL", "of requests; the environment's is not read" },
    { "parallel", OPT_INT,  offsetof(Args, parallel), "N",   "files at a time (default 8)", 1, 64 },
    { "local",    OPT_FLAG, offsetof(Args, local),    "",    "ask nobody: what the cache has" },
    { "json",     OPT_FLAG, offsetof(Args, json),     "",    "folder, commit and files as one JSON object" },
    { 0 },
};
/* clang-format on */

static int split(const char *list, const char **out, Mem *mem) {
    int n = 0;
    for (const char *s = list; s && *s && n < PATTERNS;) {
        size_t len = strcspn(s, ",");
        if (len) out[n++] = mem_str(mem, s, len);
        s += len + (s[len] == ',');
    }
    return n;
}

static void print_json(const HubName *name, const HubGot *got, const char *dir) {
    Buf b = { 0 };
    const struct {
        const char *key, *value;
    } text[] = { { "repo", name->repo }, { "revision", name->revision }, { "commit", got->commit }, { "folder", dir } };
    for (size_t i = 0; i < COUNT(text); i++) {
        buf_printf(&b, "%s\"%s\":", i ? "," : "{", text[i].key);
        json_put_str(&b, text[i].value, strlen(text[i].value));
    }
    buf_printf(&b, ",\"bytes\":%lld,\"fetched\":%lld,\"files\":[", (long long)got->bytes, (long long)got->fetched);
    for (int i = 0; i < got->n; i++) {
        buf_puts(&b, i ? ",{\"path\":" : "{\"path\":");
        json_put_str(&b, got->files[i].path, strlen(got->files[i].path));
        buf_printf(&b, ",\"bytes\":%lld}", (long long)got->files[i].bytes);
    }
    buf_puts(&b, "]}");
    puts(b.data);
    buf_free(&b);
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { 0 };
    const char *words[2], *in[PATTERNS], *out[PATTERNS];
    int n, rc = opt_parse(v, &a, words, 1, 2, &n, argc, argv);
    if (rc >= 0) return rc;
    Mem mem = { 0 };
    Err err;
    HubName name;
    HubGot got;
    const char *text = !strncmp(words[0], "hub:", 4) ? words[0] + 4 : words[0];
    if (!hub_name(&name, text, a.dataset ? HUB_DATA : HUB_MODEL, false, &mem, &err)) {
        rc = cmd_usage(v, "%s", err.msg);
        return mem_free(&mem), rc;
    }
    HubConf c = { .endpoint = a.endpoint,
                  .token = a.token,
                  .cache = a.cache,
                  .proxy = a.proxy,
                  .include = in,
                  .includes = split(a.include, in, &mem),
                  .exclude = out,
                  .excludes = split(a.exclude, out, &mem),
                  .parallel = (int)a.parallel,
                  .local = a.local,
                  .says = "hone pull" };
    bool ok = hub_get(&c, &name, &got, &mem, &err) && (n < 2 || hub_copy(&got, words[1], &err));
    if (ok && got.note) fprintf(stderr, "hone pull: %s\n", got.note);
    if (ok && a.json) print_json(&name, &got, n > 1 ? words[1] : got.folder);
    else if (ok) puts(n > 1 ? words[1] : got.folder);
    rc = ok ? 0 : cmd_fail(v, &err);
    mem_free(&mem);
    return rc;
}

const Verb verb_pull = {
    .name = "pull",
    .usage = "ORG/NAME[@REVISION] [DIR] [options]",
    .summary = "fetch a model or a data set from a hub",
    .options = options,
    .run = run,
    .detail = "Prints the folder.  Of a model: safetensors (or its one GGUF file), config, tokenizer, chat template.\n"
              "Files are kept in the hub's own cache, checked by size and sum, and what was cut goes on.  DIR gets\n"
              "copies, of weights links.  In configurations: model.path=hub:ORG/NAME,\n"
              "data.train_files=[hub:ORG/NAME:FILES].\n",
};
