/* test_carry.c - which small files go with a model, from where, and that they are those of when they were read. */
#include "base/file.h"
#include "param/param.h"
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char root[] = "/tmp/hone-test-XXXXXX";

static void put(const char *name, const char *text) {
    char path[200];
    Err err;
    snprintf(path, sizeof path, "%s/%s", root, name);
    *strrchr(path, '/') = 0;
    CHECK(dir_make(path, &err), "%s", err.msg);
    path[strlen(path)] = '/';
    CHECK(file_write(path, text, strlen(text), &err), "%s", err.msg);
}

static bool holds(const Carried *c, const char *name, const char *text) {
    for (int i = 0; i < c->n; i++)
        if (!strcmp(c->at[i].name, name)) return c->at[i].n == strlen(text) && !memcmp(c->at[i].data, text, c->at[i].n);
    return !text[0];
}

/* names: "name=text name=text"; these and no others.  Afterwards they are on the disk as they were read. */
static void expect(const char *tokenizer, const char *template, const char *names) {
    Mem mem = { 0 };
    Err err = { { 0 } };
    Carried c;
    const char *model = mem_printf(&mem, "%s/model", root), *tok = mem_printf(&mem, "%s/%s", root, tokenizer),
               *file = template ? mem_printf(&mem, "%s/%s", root, template) : NULL,
               *to = mem_printf(&mem, "%s/to", root);
    bool ok = params_carry(&c, model, tok, file, &mem, &err);
    EXPECT(ok, "%s: %s", tokenizer, err.msg);
    CHECK(dir_make(to, &err), "%s", err.msg);
    EXPECT(ok && params_save_rest(to, "{}", &c, &err), "%s: %s", tokenizer, err.msg);
    int n = 0;
    size_t bytes = 0;
    char *list = mem_str(&mem, names, strlen(names));
    for (char *at = strtok(list, " "); ok && at; at = strtok(NULL, " "), n++) {
        char *text = strchr(at, '=');
        *text++ = 0;
        bytes += strlen(text);
        Buf disk = { 0 };
        EXPECT(holds(&c, at, text), "%s: %s is not '%s'", tokenizer, at, text);
        EXPECT(file_read(&disk, mem_printf(&mem, "%s/%s", to, at), &err) && disk.n == strlen(text)
                   && !memcmp(disk.data ? disk.data : "", text, disk.n),
               "%s: %s on the disk", tokenizer, at);
        buf_free(&disk);
    }
    EXPECT(!ok || (c.n == n && c.bytes == bytes), "%s: %d files of %zu bytes, wanted %d of %zu", tokenizer, c.n,
           c.bytes, n, bytes);
    dir_remove(to);
    mem_free(&mem);
}

int main(void) {
    CHECK(mkdtemp(root), "no folder for tests");
    put("model/config.json", "1"), put("model/model.safetensors", "2"), put("model/README.md", "3");
    put("model/tokenizer.json", "t"), put("model/tokenizer_config.json", "c"), put("model/qwen.tiktoken", "q");
    put("model/generation_config.json", "g"), put("model/preprocessor_config.json", ""); /* an empty one is one, too */
    expect("model", NULL,
           "tokenizer.json=t tokenizer_config.json=c qwen.tiktoken=q generation_config.json=g "
           "preprocessor_config.json=");
    put("other/tokenizer.json", "T"), put("other/chat_template.jinja", "C"), put("other/vocab.json", "V");
    put("other/merges.txt", "M"), put("other/generation_config.json", "G"), put("other/own.json", "O");
    put("other/video_preprocessor_config.json", "no");
    put("mine.jinja", "J");
    /* how answers end and how pictures are prepared is the model's folder's */
    expect("other", NULL,
           "tokenizer.json=T chat_template.jinja=C vocab.json=V merges.txt=M generation_config.json=g "
           "preprocessor_config.json=");
    expect("other", "mine.jinja",
           "tokenizer.json=T chat_template.jinja=J vocab.json=V merges.txt=M generation_config.json=g "
           "preprocessor_config.json=");
    expect("other/vocab.json", "mine.jinja",
           "chat_template.jinja=J vocab.json=V merges.txt=M generation_config.json=g preprocessor_config.json=");
    expect("other/own.json", NULL,
           "tokenizer.json=O chat_template.jinja=C generation_config.json=g preprocessor_config.json=");
    Mem mem = { 0 };
    Err err;
    Carried c;
    const char *model = mem_printf(&mem, "%s/model", root), *none = mem_printf(&mem, "%s/none", root);
    EXPECT(params_carry(&c, model, model, NULL, &mem, &err), "%s", err.msg);
    put("model/tokenizer.json", "later");
    EXPECT(holds(&c, "tokenizer.json", "t"), "what was read changed with the file");
    EXPECT(!params_carry(&c, model, none, NULL, &mem, &err) && strstr(err.msg, none), "%s", err.msg);
    EXPECT(!params_carry(&c, model, model, none, &mem, &err) && strstr(err.msg, none), "%s", err.msg);
    CHECK(!system(mem_printf(&mem, "rm -rf '%s'", root)), "%s stays", root);
    mem_free(&mem);
    return test_end();
}
