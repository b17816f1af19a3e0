/* test_gone.c - a model's folder that went: what a run that goes on reads in its place, and when it does not. */
#include "base/file.h"
#include "config/config.h"
#include "test.h"

#include <stdlib.h>
#include <string.h>

static char root[] = "/tmp/hone-test-XXXXXX";

static void put(const char *name) {
    Mem mem = { 0 };
    Err err;
    char *path = mem_printf(&mem, "%s/%s", root, name);
    *strrchr(path, '/') = 0;
    CHECK(dir_make(path, &err), "%s", err.msg);
    path[strlen(path)] = '/';
    CHECK(file_write(path, "{}", 2, &err), "%s", err.msg);
    mem_free(&mem);
}

/* Names are relative to root.  gone: of model.path; tokenizer, template: where they are read. */
static void expect(const char *what, const char *model, const char *own_tokenizer, const char *own_template,
                   const char *more, bool gone, const char *path, const char *tokenizer, const char *template) {
    Mem mem = { 0 };
    Config c;
    Err err;
    const char *set[5];
    int n = 0;
    set[n++] = mem_printf(&mem, "model.path=%s/%s", root, model);
    set[n++] = mem_printf(&mem, "trainer.run_dir=%s/run", root);
    if (own_tokenizer) set[n++] = mem_printf(&mem, "model.tokenizer=%s/%s", root, own_tokenizer);
    if (own_template) set[n++] = mem_printf(&mem, "model.chat_template=%s/%s", root, own_template);
    if (more) set[n++] = more;
    bool ok = config_load(&c, CONF_TRAIN, NULL, set, n, NULL, &err);
    EXPECT(ok, "%s: %s", what, err.msg);
    if (!ok) return;
    config_find_model(&c);
    const struct {
        const char *is, *want;
    } from[] = { { c.from.path, path }, { c.from.tokenizer, tokenizer }, { c.from.chat_template, template } };
    bool same = true;
    for (size_t i = 0; i < COUNT(from); i++) {
        const char *want = from[i].want ? mem_printf(&mem, "%s/%s", root, from[i].want) : NULL;
        bool equal = want ? from[i].is && !strcmp(from[i].is, want) : !from[i].is;
        EXPECT(equal, "%s: %s, wanted %s", what, from[i].is ? from[i].is : "none", want ? want : "none");
        same = same && (!want || !strstr(want, "checkpoints"));
    }
    EXPECT(c.from.gone == gone, "%s: gone %d", what, c.from.gone);
    EXPECT(!c.from.note == same && (!gone || strstr(c.from.note, "not there any more: model.path (")), "%s: %s", what,
           c.from.note ? c.from.note : "no note");
    config_free(&c);
    mem_free(&mem);
}

#define SAVED "run/checkpoints/step-000012/model"
int main(void) {
    Mem mem = { 0 };
    CHECK(mkdtemp(root), "no folder for tests");
    put("model/config.json"), put("empty/something"), put("tok/tokenizer.json"), put("own.jinja");
    expect("a run that begins", "gone", NULL, NULL, NULL, false, "gone", "gone", NULL);
    put("run/checkpoints/.writing-step-000020/model/config.json"); /* of a save that was killed */
    expect("nothing whole", "gone", NULL, NULL, NULL, false, "gone", "gone", NULL);
    put("run/checkpoints/step-000002/model/config.json"), put(SAVED "/config.json"), put(SAVED "/chat_template.jinja");
    put("run/checkpoints/step-000013/model/tokenizer.json"); /* it has no config.json */
    expect("all is there", "model", "tok", "own.jinja", NULL, false, "model", "tok", "own.jinja");
    expect("the folder", "gone", NULL, NULL, NULL, true, SAVED, SAVED, NULL);
    expect("an empty place", "empty", NULL, NULL, NULL, true, SAVED, SAVED, NULL);
    expect("the folder alone", "gone", "tok", "own.jinja", NULL, true, SAVED, "tok", "own.jinja");
    expect("the tokenizer", "model", "no", NULL, NULL, false, "model", SAVED, NULL);
    expect("the template", "model", NULL, "no", NULL, false, "model", "model", SAVED "/chat_template.jinja");
    expect("all of it", "gone", "no", "no", NULL, true, SAVED, SAVED, SAVED "/chat_template.jinja");
    expect("not to be gone on", "gone", NULL, NULL, "trainer.resume=never", false, "gone", "gone", NULL);
    put("run/checkpoints/.old-step-000030/model/config.json"); /* for a moment its successor is not in its place */
    expect("moved aside", "gone", NULL, NULL, NULL, true, "run/checkpoints/.old-step-000030/model",
           "run/checkpoints/.old-step-000030/model", NULL);
    CHECK(!system(mem_printf(&mem, "rm -rf '%s'", root)), "%s stays", root);
    mem_free(&mem);
    return test_end();
}
