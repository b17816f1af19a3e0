/* prompt_line.c - a line's prompt turned into token ids. */
#include "ask/prompt_line.h"
#include "base/hash.h"

#include <inttypes.h>
#include <string.h>

bool prompt_reader_open(PromptReader *r, const ModelDesc *desc, PromptUse use, Err *err) {
    *r = (PromptReader){ .desc = desc, .use = use, .text = TOK_BOS };
    r->folder = "";
    TRY(picture_reader_open(&r->pictures, desc, "verl", err));
    if (tok_open(&r->tok, desc->dir, err) == TOK_BAD) return false;
    if (r->tok) r->scratch = tok_scratch_open(r->tok);
    Err none;
    r->chat = chat_open(desc->dir, NULL, &r->mem, &none);
    if (!r->chat) r->no_chat = mem_str(&r->mem, none.msg, strlen(none.msg));
    return true;
}

void prompt_reader_close(PromptReader *r) {
    if (r->tok) tok_scratch_close(r->scratch), tok_close(r->tok);
    mem_free(&r->mem);
}

/* An id that holds a picture's place says nothing without the picture, unless the model itself drew it: behind
 * "prompt_length". */
static bool is_place(const PromptReader *r, int64_t id) {
    return r->pictures.takes && (id == r->pictures.token || id == r->pictures.clip_token);
}

static bool ids_of(PromptLine *out, const PromptReader *r, const Json *t, Mem *mem, Err *err) {
    int64_t prompt = INT64_MAX;
    TRY(json_int(&out->json, "prompt_length", &prompt, err));
    if (t->kind != JSON_ARRAY) return err_set(err, "\"tokens\" must be a list of token ids");
    out->tokens = MEM_ARRAY(mem, int32_t, t->n + 1);
    for (size_t i = 0; i < t->n; i++) {
        if (t->items[i].kind != JSON_INT)
            return err_set(err, "\"tokens\" item %zu is %s, not a token id", i, json_kind_name(t->items[i].kind));
        int64_t id = t->items[i].integer;
        if (id < 0 || id >= r->desc->d.vocab)
            return err_set(err, "\"tokens\" item %zu is %" PRId64 "; ids go from 0 to %" PRId64, i, id,
                           r->desc->d.vocab - 1);
        if (is_place(r, id) && (int64_t)i < prompt)
            return err_set(
                err,
                "\"tokens\" item %zu holds the place of a picture, and no picture is given: \"messages\" name them", i);
        out->tokens[i] = (int32_t)id;
    }
    out->n = (int)t->n;
    return true;
}

static bool encode(PromptLine *out, PromptReader *r, const char *text, size_t n, int flags, Mem *mem, Err *err) {
    if (!r->tok) return err_set(err, "the model's folder has no tokenizer: give \"tokens\"");
    TokIds ids = { 0 };
    bool ok = tok_encode(r->tok, r->scratch, text, n, flags, &ids, err);
    for (size_t i = 0; ok && i < ids.n; i++)
        if (ids.at[i] >= r->desc->d.vocab)
            ok = err_set(err, "the tokenizer gives id %d, but the model has %" PRId64, ids.at[i], r->desc->d.vocab);
    if (ok) {
        out->tokens = MEM_ARRAY(mem, int32_t, ids.n + 1);
        if (ids.n) memcpy(out->tokens, ids.at, ids.n * sizeof *ids.at);
        out->n = (int)ids.n;
    }
    vec_free(ids.at);
    return ok;
}

static bool chat_ids(PromptLine *out, PromptReader *r, const Json *line, Mem *mem, Err *err) {
    if (!r->chat) return err_set(err, "\"messages\" cannot be used: %s", r->no_chat);
    Buf text = { 0 };
    Picture *pics = MEM_ARRAY(mem, Picture, PICTURES_MOST);
    int n;
    const Json *messages = json_get(line, "messages"), *tools = json_get(line, "tools"),
               *more = json_get(line, "chat_template_kwargs");
    bool ok = pictures_of(pics, &n, &r->pictures, messages, r->folder, true, mem, err)
              && chat_render(r->chat, messages, tools, r->use == PROMPT_GENERATE, more, &text, err)
              && encode(out, r, text.data ? text.data : "", text.n, TOK_SPECIAL, mem, err);
    buf_free(&text);
    if (!ok) return false;
    TokIds ids = { 0 };
    for (int i = 0; i < out->n; i++) VEC_PUSH(ids, out->tokens[i]);
    ok = pictures_place(&out->pictures, &ids, 0, pics, n, &r->pictures, mem, err);
    if (ok) out->tokens = mem_copy(mem, ids.at, (ids.n + 1) * sizeof *ids.at), out->n = (int)ids.n;
    vec_free(ids.at);
    return ok;
}

static bool take(PromptLine *out, PromptReader *r, Mem *mem, Err *err) {
    const Json *line = &out->json, *t;
    if (line->kind != JSON_OBJECT) return err_set(err, "a line must be an object, not %s", json_kind_name(line->kind));
    if ((t = json_get(line, "tokens"))) TRY(ids_of(out, r, t, mem, err));
    else if (json_get(line, "messages")) TRY(chat_ids(out, r, line, mem, err));
    else if ((t = json_get(line, "text"))) {
        if (t->kind != JSON_STRING) return err_set(err, "\"text\" must be a string");
        TRY(encode(out, r, t->str, t->n, r->text, mem, err));
    } else return err_set(err, "the line has none of \"tokens\", \"text\" and \"messages\"");
    if (out->n < 1) return err_set(err, "there are no tokens: the model needs at least one to start from");
    const Json *id = json_get(line, "id");
    if (id && id->kind != JSON_NULL) {
        Buf b = { 0 };
        json_put_value(&b, id);
        out->key = hash_bytes(HASH_RUN, b.data, b.n);
        out->has_key = true;
        buf_free(&b);
    }
    return true;
}

bool prompt_line_read(PromptLine *out, PromptReader *r, const char *text, size_t n, Mem *mem) {
    if (strspn(text, " \t\r") == n) return false;
    Err err;
    *out = (PromptLine){ 0 };
    out->ok = json_parse(&out->json, text, n, mem, &err) && take(out, r, mem, &err);
    if (!out->ok) out->err = mem_str(mem, err.msg, strlen(err.msg));
    return true;
}

void prompt_take(PromptLine *out, PromptReader *r, const Json *line, Mem *mem) {
    Err err;
    *out = (PromptLine){ .json = *line };
    out->ok = take(out, r, mem, &err);
    if (!out->ok) out->err = mem_str(mem, err.msg, strlen(err.msg));
}
