/* prompt.c - a row's messages through the chat template to token ids. */
#include "task/prompt_in.h"

#include <stdio.h>
#include <string.h>

static bool open_parts(Prompter *p, const PromptOptions *o, Err *err) {
    if (tok_open(&p->tok, o->model, err) != TOK_OK) return false;
    Err none;
    p->chat = chat_open(o->model, o->chat_template, &p->mem, &none);
    if (!p->chat && o->chat_template) return *err = none, false;
    if (!p->chat) p->no_chat = mem_str(&p->mem, none.msg, strlen(none.msg));
    if (o->desc) TRY(picture_reader_open(&p->pictures, o->desc, o->processor ? o->processor : "verl", err));
    else snprintf(p->pictures.why, sizeof p->pictures.why, "pictures are not taken here");
    p->variables = (Json){ .kind = JSON_OBJECT };
    p->tools = o->tools;
    if (p->chat && o->now) chat_clock(p->chat, o->now);
    if (!o->variables) return true;
    char *kept = mem_str(&p->mem, o->variables, strlen(o->variables));
    if (!json_parse(&p->variables, kept, strlen(kept), &p->mem, err)) return err_wrap(err, "the template's variables");
    if (p->variables.kind != JSON_OBJECT) return err_set(err, "the template's variables must be a JSON object");
    if (json_get(&p->variables, "tools")) p->tools = json_get(&p->variables, "tools");
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
        buf_free(&p->worker[i].mask);
        vec_free(p->worker[i].ids.at);
    }
    if (p->tok) tok_close(p->tok);
    Mem mem = p->mem;
    mem_free(&mem);
}

const Tok *prompter_tok(const Prompter *p) { return p->tok; }
const Chat *prompter_chat(const Prompter *p) { return p->chat; }
const Json *prompter_variables(const Prompter *p) { return &p->variables; }
const Json *prompter_tools(const Prompter *p) { return p->tools; }
bool prompter_tells_time(const Prompter *p) {
    return p->chat && chat_tells_time(p->chat) && !json_get(&p->variables, "now");
}
bool prompter_takes(const Prompter *p) { return p->pictures.takes; }

/* ---- pictures: "<image>" in a text is where the row's next one stands, "<video>" the next clip; the text becomes
 * parts, as messages have them */
typedef struct {
    const char *mark, *type;
    const Json *at; /* [n] */
    int n, next;
} Marked;
enum { KINDS = 2 };

static Json string_of(const char *s, size_t n) { return (Json){ .kind = JSON_STRING, .n = n, .str = s }; }

/* {"type": type, key: value}, with what an object says beside (a clip's fps). */
static Json part_of(const char *type, const char *key, Json value, Mem *mem) {
    bool whole = value.kind == JSON_OBJECT && json_get(&value, key);
    JsonMember *m = MEM_ARRAY(mem, JsonMember, 2 + (whole ? value.n : 0));
    size_t n = 0;
    m[n++] = (JsonMember){ "type", 4, string_of(type, strlen(type)) };
    if (!whole) m[n++] = (JsonMember){ key, strlen(key), value };
    for (size_t i = 0; whole && i < value.n; i++)
        if (strcmp(value.members[i].key, "type")) m[n++] = value.members[i];
    return (Json){ .kind = JSON_OBJECT, .n = n, .members = m };
}

/* The first mark from at on; NULL: there is none. */
static const char *next_mark(const char *at, const char *end, Marked *kind, Marked **which) {
    const char *first = NULL;
    for (int i = 0; i < KINDS; i++) {
        const char *s = kind[i].n ? memmem(at, (size_t)(end - at), kind[i].mark, strlen(kind[i].mark)) : NULL;
        if (s && (!first || s < first)) first = s, *which = &kind[i];
    }
    return first;
}

static bool cut_text(Json *content, Marked *kind, Mem *mem, Err *err) {
    const char *at = content->str, *end = at + content->n;
    size_t n = 0, marks = 0;
    Marked *which;
    for (const char *s = at; (s = next_mark(s, end, kind, &which)); s += strlen(which->mark)) marks++;
    if (!marks) return true;
    Json *parts = MEM_ARRAY(mem, Json, 2 * marks + 1);
    for (const char *s; at < end; at = s) {
        s = next_mark(at, end, kind, &which);
        if (!s) s = end;
        if (s > at) parts[n++] = part_of("text", "text", string_of(at, (size_t)(s - at)), mem);
        if (s == end) break;
        if (which->next == which->n)
            return err_set(err, "there are more %s in the prompt than pictures (%d)", which->mark, which->n);
        parts[n++] = part_of(which->type, which->type, which->at[which->next++], mem);
        s += strlen(which->mark);
    }
    *content = (Json){ .kind = JSON_ARRAY, .n = n, .items = parts };
    return true;
}

bool prompt_show_pictures(Json *messages, const DataRow *row, Mem *mem, Err *err) {
    Marked kind[KINDS] = { { "<image>", "image", row->images, row->n_images, 0 },
                           { "<video>", "video", row->videos, row->n_videos, 0 } };
    for (size_t i = 0; i < messages->n && row->n_images + row->n_videos; i++)
        for (size_t k = 0; messages->items[i].kind == JSON_OBJECT && k < messages->items[i].n; k++) {
            JsonMember *m = &messages->items[i].members[k];
            if (!strcmp(m->key, "content") && m->value.kind == JSON_STRING) TRY(cut_text(&m->value, kind, mem, err));
        }
    for (int i = 0; i < KINDS; i++)
        if (kind[i].next != kind[i].n)
            return err_set(err, "the prompt has %d %s, and there are %d of them", kind[i].next, kind[i].mark,
                           kind[i].n);
    return true;
}

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

bool prompter_messages(const DataRow *row, Json *out, Mem *mem, Err *err) {
    return messages_of(row, false, mem, out, err);
}

/* pics, or NULL: none may be there. */
typedef struct {
    Picture at[PICTURES_MOST];
    int n;
    Mem *pixels; /* NULL: their sizes alone */
} Shown;

static bool render(Prompter *p, const DataRow *row, bool answer, Buf *text, Shown *pics, Err *err) {
    if (!p->chat) return err_set(err, "messages cannot be used: %s", p->no_chat);
    Mem mem = { 0 };
    Json messages;
    bool ok = messages_of(row, answer, &mem, &messages, err) && prompt_show_pictures(&messages, row, &mem, err)
              && (pics || !chat_media(&messages) || err_set(err, "pictures are not taken here"))
              && (!pics
                  || pictures_of(pics->at, &pics->n, &p->pictures, &messages, row->folder ? row->folder : "",
                                 pics->pixels, pics->pixels, err))
              && chat_render(p->chat, &messages, p->tools, !answer, &p->variables, text, err);
    mem_free(&mem);
    return ok;
}

bool prompter_text(Prompter *p, int worker, const DataRow *row, Buf *text, Err *err) {
    (void)worker;
    if (!bare(p, row)) return render(p, row, false, text, &(Shown){ 0 }, err);
    buf_put(text, row->prompt, row->prompt_n);
    return true;
}

bool prompt_check_ids(const Prompter *p, const TokIds *ids, size_t from, Err *err) {
    for (size_t i = from; i < ids->n; i++)
        if (ids->at[i] >= p->vocab)
            return err_set(err, "the tokenizer gives id %d, but the model has %lld", ids->at[i], (long long)p->vocab);
    return true;
}

static bool encode(Prompter *p, int worker, const char *text, size_t n, int flags, TokIds *ids, Err *err) {
    size_t from = ids->n;
    TRY(tok_encode(p->tok, p->worker[worker].scratch, text ? text : "", n, flags, ids, err));
    return prompt_check_ids(p, ids, from, err);
}

static bool see(Prompter *p, int worker, const DataRow *row, TokIds *ids, Spans *pics, Mem *pixels, Mem *mem,
                Err *err) {
    CHECK(worker >= 0 && worker < p->n, "worker %d of %d", worker, p->n);
    size_t before = ids->n;
    Mem own = { 0 };
    Shown shown = { .pixels = pixels };
    Spans none;
    if (!pics) pics = &none;
    *pics = (Spans){ 0 };
    if (row->talk) {
        Buf *mask = &p->worker[worker].mask;
        bool ok = prompter_talk(p, worker, row, ids, mask, NULL, pics, pixels ? pixels : mem ? mem : &own, pixels, err);
        mem_free(&own);
        return ok;
    }
    if (bare(p, row)) {
        if (row->n_images + row->n_videos) return err_set(err, "a prompt that is bare text has no places for pictures");
        TRY(encode(p, worker, row->prompt, row->prompt_n, TOK_BOS, ids, err));
    } else {
        Buf *text = &p->worker[worker].text;
        buf_clear(text);
        TRY(render(p, row, false, text, &shown, err) && encode(p, worker, text->data, text->n, TOK_SPECIAL, ids, err));
        bool ok = pictures_place(pics, ids, before, shown.at, shown.n, &p->pictures, mem ? mem : &own, err);
        mem_free(&own);
        TRY(ok);
    }
    return ids->n > before || err_set(err, "the prompt has no tokens");
}

bool prompter_encode_images(Prompter *p, int worker, const DataRow *row, TokIds *ids, Spans *pics, Mem *mem, Err *err) {
    return see(p, worker, row, ids, pics, mem, mem, err);
}
bool prompter_sizes(Prompter *p, const DataRow *row, TokIds *ids, Spans *pics, Mem *mem, Err *err) {
    return see(p, 0, row, ids, pics, NULL, mem, err);
}
bool prompter_encode(Prompter *p, int worker, const DataRow *row, TokIds *ids, Err *err) {
    return see(p, worker, row, ids, NULL, NULL, NULL, err);
}

/* The answer as the template writes it is what rendering the whole conversation adds to the prompt.  Where the prompt
 * is not its beginning (a generation prompt that opens a thought, which an answer in the past does not have), the
 * answer is put behind the prompt as it stands, with the end token. */
bool prompter_pair(Prompter *p, int worker, const DataRow *row, TokIds *ids, size_t *n_prompt, Err *err) {
    if (!row->response) return err_set(err, "there is no response");
    size_t before = ids->n;
    TRY(prompter_encode(p, worker, row, ids, err));
    *n_prompt = ids->n - before;
    if (!bare(p, row)) {
        Buf *text = &p->worker[worker].text, *whole = &p->worker[worker].whole;
        buf_clear(whole);
        TRY(render(p, row, true, whole, &(Shown){ 0 }, err));
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
