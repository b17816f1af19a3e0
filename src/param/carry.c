/* carry.c - the small files that a model's folder has beside weights and config.json: tokenizer, chat template, how
 * answers are drawn, how pictures are prepared.  They are read at once, so that what is written later is what was there
 * when somebody looked. */
#include "base/file.h"
#include "gguf/inside.h"
#include "param/param.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

/* tokenizer: text becomes ids by it; model: read from the model's folder, wherever the tokenizer is. */
static const struct {
    const char *name;
    bool tokenizer, model;
} files[] = {
    { "tokenizer.json", .tokenizer = true },
    { "tiktoken.model", .tokenizer = true },
    { "vocab.json", .tokenizer = true },
    { "merges.txt", .tokenizer = true },
    { "tokenizer.model", .tokenizer = true },
    { "tokenizer_config.json" },
    { "special_tokens_map.json" },
    { "added_tokens.json" },
    { "chat_template.jinja" },
    { "generation_config.json", .model = true },
    { "preprocessor_config.json", .model = true },
    { "video_preprocessor_config.json", .model = true },
};

static bool is_tiktoken(const char *name) {
    size_t n = strlen(name);
    return n > 9 && !strcmp(name + n - 9, ".tiktoken");
}

static int row_of(const char *name) { /* -1: none of them */
    for (int i = 0; i < (int)COUNT(files); i++)
        if (!strcmp(name, files[i].name)) return i;
    return -1;
}

static void add(Carried *c, const char *name, const char *data, size_t n, Mem *mem) {
    int i = 0;
    while (i < c->n && strcmp(c->at[i].name, name)) i++;
    if (i == c->n) {
        CarriedFile *all = MEM_ARRAY(mem, CarriedFile, (size_t)c->n + 1);
        if (c->n) memcpy(all, c->at, (size_t)c->n * sizeof *all);
        c->at = all, c->n++;
    } else c->bytes -= c->at[i].n;
    c->at[i] = (CarriedFile){ mem_str(mem, name, strlen(name)), mem_str(mem, data ? data : "", n), n };
    c->bytes += n;
}

static bool add_file(Carried *c, const char *path, const char *name, Mem *mem, Err *err) {
    Buf text = { 0 };
    bool ok = model_read(&text, path, err);
    if (ok) add(c, name, text.data, text.n, mem);
    buf_free(&text);
    return ok;
}

/* Of a tokenizer's folder.  only: NULL, or the one file there that is the tokenizer; a vocabulary brings its merges. */
static bool wanted(const char *name, const char *only) {
    int i = row_of(name);
    if ((i < 0 && !is_tiktoken(name)) || (i >= 0 && files[i].model)) return false;
    if (!only || (i >= 0 && !files[i].tokenizer) || !strcmp(name, only)) return true;
    return !strcmp(only, "vocab.json") && !strcmp(name, "merges.txt");
}

static bool add_folder(Carried *c, const char *path, const char *only, Mem *mem, Err *err) {
    DIR *dir = opendir(path);
    if (!dir) return err_set(err, "%s: cannot read the folder: %s", path, strerror(errno));
    bool ok = true;
    for (struct dirent *e; ok && (e = readdir(dir));)
        if (wanted(e->d_name, only)) ok = add_file(c, mem_printf(mem, "%s/%s", path, e->d_name), e->d_name, mem, err);
    closedir(dir);
    return ok;
}

static bool add_gguf(Carried *c, const char *path, Mem *mem, Err *err) {
    for (size_t i = 0; i < COUNT(files); i++) {
        const char *file = mem_printf(mem, "%s/%s", path, files[i].name);
        if (!files[i].model && model_has(file)) TRY(add_file(c, file, files[i].name, mem, err));
    }
    return true;
}

static bool add_tokenizer(Carried *c, const char *path, Mem *mem, Err *err) {
    if (dir_exists(path)) return add_folder(c, path, NULL, mem, err);
    if (gguf_is(path)) return add_gguf(c, path, mem, err);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const char *dir = !slash ? "." : slash == path ? "/" : mem_str(mem, path, (size_t)(slash - path));
    bool known = wanted(name, name);
    return add_folder(c, dir, known ? name : "tokenizer.json", mem, err)
           && (known || add_file(c, path, "tokenizer.json", mem, err));
}

bool params_carry(Carried *c, const char *from_dir, const char *tokenizer, const char *chat_template, Mem *mem,
                  Err *err) {
    *c = (Carried){ 0 };
    TRY(add_tokenizer(c, tokenizer, mem, err));
    for (size_t i = 0; i < COUNT(files); i++) {
        const char *path = mem_printf(mem, "%s/%s", from_dir, files[i].name);
        if (files[i].model && model_has(path)) TRY(add_file(c, path, files[i].name, mem, err));
    }
    return !chat_template || add_file(c, chat_template, "chat_template.jinja", mem, err);
}
