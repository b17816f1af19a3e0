/* hub.c - hub:ORG/NAME in model.path, model.tokenizer and lists of files: fetched before anything is looked at, by the
 * first process of a machine that comes; the others wait, and take what it got. */
#include "config/config.h"
#include "hub/hub.h"

#include <stdio.h>
#include <string.h>

static const char mark[] = "hub:";
static bool is_hub(const char *s) { return s && !strncmp(s, mark, sizeof mark - 1); }

static bool get(Config *c, const char *option, const char *text, HubKind kind, HubName *name, HubGot *got, Err *err) {
    HubConf conf = { .says = c->verb == CONF_SFT ? "hone sft" : "hone train" };
    if (!hub_name(name, text + sizeof mark - 1, kind, kind == HUB_DATA, &c->mem, err)
        || !hub_get(&conf, name, got, &c->mem, err))
        return err_wrap(err, "%s", option);
    VEC_PUSH(c->notes, mem_printf(&c->mem, "%s: %s is commit %s%s%s", option, text, got->commit, got->note ? "; " : "",
                                  got->note ? got->note : ""));
    return true;
}

static bool folder(Config *c, const char *option, const char **at, Err *err) {
    HubName name;
    HubGot got;
    if (!is_hub(*at)) return true;
    TRY(get(c, option, *at, HUB_MODEL, &name, &got, err));
    const char *gguf = got.n == 1 ? strrchr(got.files[0].path, '.') : NULL;
    bool file = gguf && !strcmp(gguf, ".gguf");
    *at = file ? mem_printf(&c->mem, "%s/%s", got.folder, got.files[0].path) : got.folder;
    return true;
}

static bool files(Config *c, const char *option, StrList *list, Err *err) {
    VEC(const char *) all = { 0 };
    bool any = false, ok = true;
    for (int64_t i = 0; ok && i < list->n; i++) {
        HubName name;
        HubGot got;
        if (!is_hub(list->at[i])) {
            VEC_PUSH(all, list->at[i]);
            continue;
        }
        any = true;
        ok = get(c, option, list->at[i], HUB_DATA, &name, &got, err);
        if (ok && !name.path && got.n > 1)
            ok = err_set(err, "%s: %s has %d files: name those of one split, %s:%s", option, list->at[i], got.n,
                         list->at[i], got.files[0].path);
        for (int k = 0; ok && k < got.n; k++)
            VEC_PUSH(all, mem_printf(&c->mem, "%s/%s", got.folder, got.files[k].path));
    }
    if (ok && any) {
        const char **at = MEM_ARRAY(&c->mem, const char *, all.n);
        memcpy(at, all.at, all.n * sizeof *at);
        *list = (StrList){ .at = at, .n = (int64_t)all.n };
    }
    vec_free(all.at);
    return ok;
}

bool config_fetch(Config *c, Err *err) {
    bool own = c->model.tokenizer != c->model.path;
    TRY(folder(c, "model.path", &c->model.path, err));
    if (!own) c->model.tokenizer = c->model.path;
    TRY(folder(c, "model.tokenizer", &c->model.tokenizer, err));
    c->from.path = c->model.path, c->from.tokenizer = c->model.tokenizer;
    return files(c, "data.train_files", &c->data.train_files, err)
           && files(c, "data.val_files", &c->data.val_files, err);
}
