/* gone.c - what of model.path, model.tokenizer, model.chat_template and reward.python is not there any more, and where
 * a run that goes on has it from: the model/ of its newest checkpoint, and its scorer.py. */
#include "base/file.h"
#include "gguf/inside.h"
#include "config/config.h"
#include "train/checkpoint.h"

#include <errno.h>

/* Also an empty place, where something was mounted.  A folder that may not be looked into is none of these. */
static bool no_model(const char *path) {
    Mem tmp = { 0 };
    bool gone = path && !model_has(mem_printf(&tmp, "%s/config.json", path)) && errno != EACCES;
    mem_free(&tmp);
    return gone;
}

void config_find_model(Config *c) {
    const char *tokenizer = c->model.tokenizer, *template = c->model.chat_template;
    bool model = no_model(c->model.path), own = tokenizer != c->model.path;
    bool no_tokenizer = own && !file_exists(tokenizer) && !dir_exists(tokenizer);
    bool no_template = template && !file_exists(template);
    const char *scorer = mem_printf(&c->mem, "%s/scorer.py", c->trainer.run_dir);
    bool no_scorer = c->reward.python && !file_exists(c->reward.python) && file_exists(scorer);
    if (c->trainer.resume == RESUME_NEVER || !(model || no_tokenizer || no_template || no_scorer)) return;
    const char *saved = checkpoint_model(c->trainer.run_dir, &c->mem);
    if (!saved) return; /* a run that begins: config_check says what is missing */
    Buf gone = { 0 };
    if (model) buf_printf(&gone, "model.path (%s)", c->model.path);
    if (no_tokenizer) buf_printf(&gone, "%smodel.tokenizer (%s)", gone.n ? ", " : "", tokenizer);
    if (no_template) buf_printf(&gone, "%smodel.chat_template (%s)", gone.n ? ", " : "", template);
    const char *with = gone.n ? saved : c->trainer.run_dir;
    if (no_scorer) buf_printf(&gone, "%sreward.python (%s)", gone.n ? ", " : "", c->reward.python);
    c->from.note = mem_printf(&c->mem, "not there any more: %s; the run goes on with what is in %s%s", gone.data, with,
                              no_scorer && with == saved ? " and scorer.py beside it" : "");
    buf_free(&gone);
    VEC_PUSH(c->notes, c->from.note);
    if (model) c->from.path = saved, c->from.gone = true;
    if (no_tokenizer || (model && !own)) c->from.tokenizer = saved;
    if (no_scorer) c->from.scorer = scorer;
    if (no_template) c->from.chat_template = mem_printf(&c->mem, "%s/chat_template.jinja", saved);
}
