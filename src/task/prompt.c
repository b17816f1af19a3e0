/* prompt.c - a row's messages through the chat template to token ids. */
#include "task/prompt.h"

#include <string.h>

typedef struct {
    TokScratch *scratch;
    Buf text, whole;
    TokIds ids;
} Worker;

struct Prompter {
    Mem mem;
    Tok *tok;
    Chat *chat; /* NULL: there is none, 'no_chat' says why */
    const char *no_chat;
    Json variables;
    bool bare_text;
    int64_t vocab;
    int32_t end;
    int n;
    Worker *worker;
};

static bool open_parts(Prompter *p, const PromptOptions *o, Err *err) {
    if (tok_open(&p->tok, o->model, err) != TOK_OK) return false;
    Err none;
    p->chat = chat_open(o->model, o->chat_template, &p->mem, &none);
    if (!p->chat && o->chat_template) return *err = none, false;
    if (!p->chat) p->no_chat = mem_str(&p->mem, none.msg, strlen(none.msg));
    p->variables = (Json){ .kind = JSON_OBJECT };
    if (!o->variables) return true;
    char *kept = mem_str(&p->mem, o->variables, strlen(o->variables));
    if (!json_parse(&p->variables, kept, strlen(kept), &p->mem, err)) return err_wrap(err, "the template's variables");
    if (p->variables.kind != JSON_OBJECT) return err_set(err, "the template's variables must be a JSON object");
    return true;
}

Prompter *prompter_open(const PromptOptions *o, int workers, Err *err) {
    Mem mem = { 0 };
    Prompter *p = MEM_NEW(&mem, Prompter);
    p->mem = mem;
    p->bare_text = o->bare_text;
    p->vocab = o->vocab ? o->vocab : INT64_MAX;
    p->end = o->end;
    if (!open_parts(p, o, err)) {
        prompter_close(p);
        return NULL;
    }
    p->worker = MEM_ARRAY(&p->mem, Worker, (size_t)workers);
    for (p->n = 0; p->n < workers; p->n++) p->worker[p->n].scratch = tok_scratch_open(p->tok);
    return p;
}

void prompter_close(Prompter *p) {
    if (!p) return;
    for (int i = 0; i < p->n; i++) {
        tok_scratch_close(p->worker[i].scratch);
        buf_free(&p->worker[i].text);
        buf_free(&p->worker[i].whole);
        vec_free(p->worker[i].ids.at);
    }
    if (p->tok) tok_close(p->tok);
    Mem mem = p->mem;
    mem_free(&mem);
}

const Tok *prompter_tok(const Prompter *p) { return p->tok; }

static bool bare(const Prompter *p, const DataRow *row) { return !row->chat && p->bare_text; }

/* The row's messages, with an answer behind them if one is given.  Strings belong to the row. */
static bool messages_of(const DataRow *row, bool answer, Mem *mem, Json *out, Err *err) {
    if (row->chat) TRY(json_parse(out, row->prompt, row->prompt_n, mem, err));
    else *out = (Json){ .kind = JSON_ARRAY };
    size_t n = out->n;
    Json *items = MEM_ARRAY(mem, Json, n + 2);
    if (n) memcpy(items, out->items, n * sizeof *items);
    const struct {
        const char *role, *text;
        size_t text_n;
        bool use;
    } more[] = { { "user", row->prompt, row->prompt_n, !row->chat },
                 { "assistant", row->response, row->response_n, answer } };
    for (size_t i = 0; i < COUNT(more); i++) {
        if (!more[i].use) continue;
        JsonMember *m = MEM_ARRAY(mem, JsonMember, 2);
        m[0] = (JsonMember){ "role", 4, { .kind = JSON_STRING, .n = strlen(more[i].role), .str = more[i].role } };
        m[1] = (JsonMember){ "content", 7, { .kind = JSON_STRING, .n = more[i].text_n, .str = more[i].text } };
        items[n++] = (Json){ .kind = JSON_OBJECT, .n = 2, .members = m };
    }
    *out = (Json){ .kind = JSON_ARRAY, .n = n, .items = items };
    return true;
}

static bool render(Prompter *p, const DataRow *row, bool answer, Buf *text, Err *err) {
    if (!p->chat) return err_set(err, "messages cannot be used: %s", p->no_chat);
    Mem mem = { 0 };
    Json messages;
    const Json *tools = json_get(&p->variables, "tools");
    bool ok = messages_of(row, answer, &mem, &messages, err)
              && (!chat_media(&messages)
                  || err_set(err, "pictures are not taken here yet: only `hone verify` computes with them"))
              && chat_render(p->chat, &messages, tools, !answer, &p->variables, text, err);
    mem_free(&mem);
    return ok;
}

bool prompter_text(Prompter *p, int worker, const DataRow *row, Buf *text, Err *err) {
    (void)worker;
    if (!bare(p, row)) return render(p, row, false, text, err);
    buf_put(text, row->prompt, row->prompt_n);
    return true;
}

static bool encode(Prompter *p, int worker, const char *text, size_t n, int flags, TokIds *ids, Err *err) {
    size_t from = ids->n;
    TRY(tok_encode(p->tok, p->worker[worker].scratch, text ? text : "", n, flags, ids, err));
    for (size_t i = from; i < ids->n; i++)
        if (ids->at[i] >= p->vocab)
            return err_set(err, "the tokenizer gives id %d, but the model has %lld", ids->at[i], (long long)p->vocab);
    return true;
}

bool prompter_encode(Prompter *p, int worker, const DataRow *row, TokIds *ids, Err *err) {
    CHECK(worker >= 0 && worker < p->n, "worker %d of %d", worker, p->n);
    size_t before = ids->n;
    if (bare(p, row)) TRY(encode(p, worker, row->prompt, row->prompt_n, TOK_BOS, ids, err));
    else {
        Buf *text = &p->worker[worker].text;
        buf_clear(text);
        TRY(render(p, row, false, text, err));
        TRY(encode(p, worker, text->data, text->n, TOK_SPECIAL, ids, err));
    }
    return ids->n > before || err_set(err, "the prompt has no tokens");
}

/* The answer as the template writes it is what rendering the whole conversation adds to the prompt.  Where the prompt is not
 * its beginning (a generation prompt that opens a thought, which an answer in the past does not have), the answer is put
 * behind the prompt as it stands, with the end token. */
bool prompter_pair(Prompter *p, int worker, const DataRow *row, TokIds *ids, size_t *n_prompt, Err *err) {
    if (!row->response) return err_set(err, "there is no response");
    size_t before = ids->n;
    TRY(prompter_encode(p, worker, row, ids, err));
    *n_prompt = ids->n - before;
    if (!bare(p, row)) {
        Buf *text = &p->worker[worker].text, *whole = &p->worker[worker].whole;
        buf_clear(whole);
        TRY(render(p, row, true, whole, err));
        if (whole->n > text->n && !memcmp(whole->data, text->data, text->n))
            return encode(p, worker, whole->data + text->n, whole->n - text->n, TOK_SPECIAL, ids, err);
    }
    TRY(encode(p, worker, row->response, row->response_n, 0, ids, err));
    if (p->end >= 0) VEC_PUSH(*ids, p->end);
    return true;
}

int64_t prompter_length(void *prompter, int worker, const DataRow *row, Err *why) {
    Prompter *p = prompter;
    TokIds *ids = &p->worker[worker].ids;
    ids->n = 0;
    return prompter_encode(p, worker, row, ids, why) ? (int64_t)ids->n : -1;
}
