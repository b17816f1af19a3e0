/* reply.c - the objects of OpenAI's interface. */
#include "serve/reply.h"
#include "base/hash.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

static int choices(const Reply *r) { return r->want->n * r->want->samples; }

void reply_open(Reply *r, const Offer *o, const Want *w, Mem *mem) {
    uint64_t name[2];
    CHECK(getrandom(name, sizeof name, 0) == sizeof name, "no random numbers from the system");
    *r = (Reply){ .offer = o, .want = w, .created = time(NULL) };
    snprintf(r->id, sizeof r->id, "%s-%016" PRIx64 "%08x", w->kind == WANT_CHAT ? "chatcmpl" : "cmpl", name[0],
             (unsigned)name[1]);
    r->choice = MEM_ARRAY(mem, Choice, (size_t)(w->n * w->samples));
    r->prompt = MEM_ARRAY(mem, ShownList, (size_t)w->n);
    for (int i = 0; i < w->n; i++)
        VEC_PUSH(r->prompt[i].at, (Shown1){ asked_wish(w->prompt[i])->line.tokens[0], 0, 0 });
    TokIds ids = { 0 };
    Err none;
    if (o->reader->tok && tok_encode(o->reader->tok, o->reader->scratch, "a", 1, 0, &ids, &none))
        for (size_t i = 0; i < ids.n && i < COUNT(r->after); i++) r->after[r->n_after++] = ids.at[i];
    vec_free(ids.at);
}

static void list_free(ShownList *l) {
    vec_free(l->at.at);
    vec_free(l->top.at);
}
void reply_close(Reply *r) {
    for (int i = 0; r->choice && i < choices(r); i++) buf_free(&r->choice[i].text), list_free(&r->choice[i].shown);
    for (int i = 0; r->prompt && i < r->want->n; i++) list_free(&r->prompt[i]);
}

/* ---- what comes */
static void show(ShownList *l, const Came *p, const Likely *top) {
    VEC_PUSH(l->at, (Shown1){ p->id, p->lp, p->n_top });
    for (int i = 0; i < p->n_top; i++) VEC_PUSH(l->top, top[i]);
}

void reply_take(Reply *r, int prompt, const Pieces *all) {
    const Want *w = r->want;
    int n_prompt = asked_wish(w->prompt[prompt])->line.n;
    size_t text = 0, top = 0;
    for (size_t i = 0; i < all->at.n; i++) {
        const Came *p = &all->at.at[i];
        Choice *c = &r->choice[prompt * w->samples + p->sample];
        const Likely *best = all->top.at + top;
        top += (size_t)p->n_top;
        if (p->token && p->place < n_prompt) { /* one that comes again, after the sequence was pushed out, is known */
            if ((size_t)p->place == r->prompt[prompt].at.n) show(&r->prompt[prompt], p, best);
        } else if (p->token) {
            c->tokens++;
            if (w->logprobs || w->ids) show(&c->shown, p, best);
        }
        if (p->text_n) buf_put(&c->text, all->text.data + text, p->text_n);
        text += p->text_n;
        if (p->ends) c->ended = true, c->finish = p->finish, c->stop = p->stop;
    }
}

bool reply_over(const Reply *r) {
    for (int i = 0; i < choices(r); i++)
        if (!r->choice[i].ended) return false;
    return true;
}

bool reply_broken(const Reply *r, Refusal *why) {
    Err err;
    for (int i = 0; i < choices(r); i++) {
        if (!r->choice[i].ended || r->choice[i].finish != FINISH_BROKEN) continue;
        finish_broken(&err, r->choice[i].tokens);
        refuse(why, 500, NULL, "%s", err.msg);
        return true;
    }
    return false;
}

/* ---- pieces of objects */
static void put_text(Buf *b, const char *s, size_t n) { json_put_str(b, s ? s : "", n); }

/* No number means: less likely than can be said, which clients know as this. */
static void put_lp(Buf *b, float lp) {
    if (lp == -INFINITY) buf_puts(b, "-9999.0");
    else json_put_f32(b, lp);
}

static void put_ids(Buf *b, const int32_t *ids, int n) {
    buf_putc(b, '[');
    for (int i = 0; i < n; i++) buf_printf(b, "%s%d", i ? "," : "", ids[i]);
    buf_putc(b, ']');
}
static void put_shown_ids(Buf *b, const ShownList *l) {
    buf_putc(b, '[');
    for (size_t i = 0; i < l->at.n; i++) buf_printf(b, "%s%d", i ? "," : "", l->at.at[i].id);
    buf_putc(b, ']');
}

/* What a token spells inside a text: behind an ordinary one, as a decoder may drop what begins a text. */
static void token_text(const Reply *r, int32_t id, Buf *out) {
    const Tok *tok = r->offer->reader->tok;
    int32_t ids[COUNT(r->after) + 1];
    Buf before = { 0 }, both = { 0 };
    Err err;
    buf_clear(out);
    if (!tok) return;
    memcpy(ids, r->after, sizeof r->after);
    ids[r->n_after] = id;
    bool ok = tok_decode(tok, ids, (size_t)r->n_after, false, &before, &err)
              && tok_decode(tok, ids, (size_t)r->n_after + 1, false, &both, &err);
    if (ok && both.n >= before.n && (!before.n || !memcmp(both.data, before.data, before.n)))
        buf_put(out, both.data ? both.data + before.n : "", both.n - before.n);
    else if (!tok_decode(tok, &id, 1, false, out, &err)) buf_clear(out);
    buf_free(&before);
    buf_free(&both);
}

static size_t characters(const Buf *text) {
    size_t n = 0;
    for (size_t i = 0; i < text->n; i++) n += ((unsigned char)text->data[i] & 0xC0) != 0x80;
    return n;
}

/* {"token","logprob","bytes"}: a token that is a piece of a character has no bytes of its own here. */
static void put_chat_token(const Reply *r, Buf *b, int32_t id, float lp) {
    Buf text = { 0 };
    token_text(r, id, &text);
    bool whole = !text.n || !memmem(text.data, text.n, "\xEF\xBF\xBD", 3);
    buf_puts(b, "{\"token\":");
    put_text(b, text.data, text.n);
    buf_puts(b, ",\"logprob\":");
    put_lp(b, lp);
    buf_puts(b, ",\"bytes\":");
    if (whole) {
        buf_putc(b, '[');
        for (size_t i = 0; i < text.n; i++) buf_printf(b, "%s%d", i ? "," : "", (unsigned char)text.data[i]);
        buf_putc(b, ']');
    } else buf_puts(b, "null");
    buf_free(&text);
}
static void put_chat_logprobs(const Reply *r, Buf *b, const ShownList *l) {
    size_t top = 0;
    buf_puts(b, "{\"content\":[");
    for (size_t i = 0; i < l->at.n; i++) {
        const Shown1 *t = &l->at.at[i];
        if (i) buf_putc(b, ',');
        put_chat_token(r, b, t->id, t->lp);
        buf_puts(b, ",\"top_logprobs\":[");
        for (int k = 0; k < t->n_top; k++, top++) {
            if (k) buf_putc(b, ',');
            put_chat_token(r, b, l->top.at[top].id, l->top.at[top].lp);
            buf_putc(b, '}');
        }
        buf_puts(b, "]}");
    }
    buf_puts(b, "]}");
}

/* Four lists side by side, of the prompt's tokens and the answer's. */
typedef struct {
    Buf tokens, lps, tops, offsets;
    size_t at; /* characters */
    int n;
} Columns;

static void put_likely(const Reply *r, Buf *b, const Likely *x, bool comma) {
    Buf text = { 0 };
    token_text(r, x->id, &text);
    if (comma) buf_putc(b, ',');
    put_text(b, text.data, text.n);
    buf_putc(b, ':');
    put_lp(b, x->lp);
    buf_free(&text);
}
/* The likeliest, and the token itself where it is none of them.  One text stands once: of two tokens that are spelled
 * alike the likelier. */
static void put_top(const Reply *r, Buf *b, const Shown1 *t, const Likely *top) {
    Mem mem = { 0 };
    const char **said = MEM_ARRAY(&mem, const char *, (size_t)t->n_top + 1);
    Buf text = { 0 };
    int n = 0;
    buf_putc(b, '{');
    for (int i = 0; i <= t->n_top; i++) {
        Likely x = i < t->n_top ? top[i] : (Likely){ t->id, t->lp };
        bool again = false;
        token_text(r, x.id, &text);
        char *own = mem_str(&mem, text.data ? text.data : "", text.n);
        for (int k = 0; k < n; k++) again |= !strcmp(said[k], own);
        if (!again) put_likely(r, b, &x, n), said[n++] = own;
    }
    buf_putc(b, '}');
    buf_free(&text);
    mem_free(&mem);
}
static void columns_add(const Reply *r, Columns *c, const ShownList *l, bool prompt) {
    Buf text = { 0 };
    size_t top = 0;
    for (size_t i = 0; i < l->at.n; i++, c->n++) {
        const Shown1 *t = &l->at.at[i];
        bool first = prompt && i == 0; /* nothing stood before it */
        Buf *const all[] = { &c->tokens, &c->lps, &c->tops, &c->offsets };
        for (size_t k = 0; c->n && k < COUNT(all); k++) buf_putc(all[k], ',');
        token_text(r, t->id, &text);
        put_text(&c->tokens, text.data, text.n);
        if (first) buf_puts(&c->lps, "null"), buf_puts(&c->tops, "null");
        else put_lp(&c->lps, t->lp), put_top(r, &c->tops, t, l->top.at + top);
        buf_printf(&c->offsets, "%zu", c->at);
        c->at += characters(&text);
        top += (size_t)t->n_top;
    }
    buf_free(&text);
}
static size_t put_text_logprobs(const Reply *r, Buf *b, const ShownList *prompt, const ShownList *answer, size_t at) {
    Columns c = { .at = at };
    if (prompt) columns_add(r, &c, prompt, true);
    columns_add(r, &c, answer, false);
    buf_printf(b, "{\"tokens\":[%s],\"token_logprobs\":[%s],\"top_logprobs\":", c.tokens.data ? c.tokens.data : "",
               c.lps.data ? c.lps.data : "");
    if (r->want->top) buf_printf(b, "[%s]", c.tops.data ? c.tops.data : "");
    else buf_puts(b, "null");
    buf_printf(b, ",\"text_offset\":[%s]}", c.offsets.data ? c.offsets.data : "");
    Buf *const all[] = { &c.tokens, &c.lps, &c.tops, &c.offsets };
    for (size_t k = 0; k < COUNT(all); k++) buf_free(all[k]);
    return c.at;
}

static const PromptLine *line_of(const Reply *r, int choice) {
    return &asked_wish(r->want->prompt[choice / r->want->samples])->line;
}
static void put_prompt_text(const Reply *r, Buf *out, int choice) {
    const PromptLine *l = line_of(r, choice);
    Err err;
    if (r->offer->reader->tok) tok_decode(r->offer->reader->tok, l->tokens, (size_t)l->n, true, out, &err);
}

static void put_finish(const Reply *r, Buf *b, int choice) {
    const Choice *c = &r->choice[choice];
    const Wish *x = asked_wish(r->want->prompt[choice / r->want->samples]);
    if (!c->ended) {
        buf_puts(b, ",\"finish_reason\":null");
        return;
    }
    buf_printf(b, ",\"finish_reason\":\"%s\",\"stop_reason\":",
               c->finish == FINISH_STOP && !x->score_only ? "stop" : "length");
    if (c->stop >= 0) put_text(b, x->s.stop[c->stop], strlen(x->s.stop[c->stop]));
    else buf_puts(b, "null");
}

static void put_usage(const Reply *r, Buf *b) {
    int64_t prompt = 0, drawn = 0;
    for (int i = 0; i < r->want->n; i++) prompt += asked_wish(r->want->prompt[i])->line.n;
    for (int i = 0; i < choices(r); i++) drawn += r->choice[i].tokens;
    buf_printf(b, "{\"prompt_tokens\":%" PRId64 ",\"completion_tokens\":%" PRId64 ",\"total_tokens\":%" PRId64 "}",
               prompt, drawn, prompt + drawn);
}

/* ---- one object for all */
static void put_head(const Reply *r, Buf *b, bool chunk) {
    bool chat = r->want->kind == WANT_CHAT;
    buf_printf(b, "{\"id\":\"%s\",\"object\":\"%s\",\"created\":%" PRId64 ",\"model\":", r->id,
               !chat   ? "text_completion"
               : chunk ? "chat.completion.chunk"
                       : "chat.completion",
               r->created);
    put_text(b, r->offer->name, strlen(r->offer->name));
    if (r->want->seed_told) buf_printf(b, ",\"seed\":%" PRIu64, r->want->seed);
}

static void put_whole_choice(const Reply *r, Buf *b, int i) {
    const Choice *c = &r->choice[i];
    const Want *w = r->want;
    const PromptLine *line = line_of(r, i);
    buf_printf(b, "{\"index\":%d,", i);
    if (w->kind == WANT_CHAT) {
        buf_puts(b, "\"message\":{\"role\":\"assistant\",\"content\":");
        put_text(b, c->text.data, c->text.n);
        buf_puts(b, ",\"refusal\":null},\"logprobs\":");
        if (w->logprobs) put_chat_logprobs(r, b, &c->shown);
    } else {
        Buf all = { 0 };
        if (w->echo) put_prompt_text(r, &all, i);
        buf_put(&all, c->text.data ? c->text.data : "", c->text.n);
        buf_puts(b, "\"text\":");
        put_text(b, all.data, all.n);
        buf_puts(b, ",\"logprobs\":");
        if (w->logprobs) put_text_logprobs(r, b, w->echo ? &r->prompt[i / w->samples] : NULL, &c->shown, 0);
        buf_free(&all);
    }
    if (!w->logprobs) buf_puts(b, "null");
    put_finish(r, b, i);
    if (w->ids) buf_puts(b, ",\"token_ids\":"), put_shown_ids(b, &c->shown);
    if (w->ids && w->kind == WANT_TEXT) buf_puts(b, ",\"prompt_token_ids\":"), put_ids(b, line->tokens, line->n);
    buf_putc(b, '}');
}

void reply_whole(const Reply *r, Buf *b) {
    put_head(r, b, false);
    buf_puts(b, ",\"choices\":[");
    for (int i = 0; i < choices(r); i++) {
        if (i) buf_putc(b, ',');
        put_whole_choice(r, b, i);
    }
    buf_puts(b, "],\"usage\":");
    put_usage(r, b);
    if (r->want->ids && r->want->kind == WANT_CHAT)
        buf_puts(b, ",\"prompt_token_ids\":"), put_ids(b, line_of(r, 0)->tokens, line_of(r, 0)->n);
    buf_putc(b, '}');
}

/* ---- events of a stream */
static void begin(const Reply *r, Buf *b) {
    buf_puts(b, "data: ");
    put_head(r, b, true);
}
static void end(const Reply *r, Buf *b) {
    if (r->want->usage) buf_puts(b, ",\"usage\":null"); /* the last event has it */
    buf_puts(b, "}\n\n");
}

/* The first of a chat's choice: who speaks. */
static void put_role(const Reply *r, Buf *b, int i) {
    begin(r, b);
    buf_printf(b,
               ",\"choices\":[{\"index\":%d,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
               "\"finish_reason\":null}]",
               i);
    if (r->want->ids) buf_puts(b, ",\"prompt_token_ids\":"), put_ids(b, line_of(r, i)->tokens, line_of(r, i)->n);
    end(r, b);
}

static void put_delta(Reply *r, Buf *b, int i) {
    Choice *c = &r->choice[i];
    const Want *w = r->want;
    bool chat = w->kind == WANT_CHAT, first = !c->began;
    if (chat && first) put_role(r, b, i);
    begin(r, b);
    buf_printf(b, ",\"choices\":[{\"index\":%d,", i);
    if (chat) {
        buf_puts(b, "\"delta\":{");
        if (c->text.n) buf_puts(b, "\"content\":"), put_text(b, c->text.data, c->text.n);
        buf_puts(b, "},\"logprobs\":");
        if (w->logprobs) put_chat_logprobs(r, b, &c->shown);
    } else {
        Buf all = { 0 };
        if (w->echo && first) put_prompt_text(r, &all, i);
        buf_put(&all, c->text.data ? c->text.data : "", c->text.n);
        buf_puts(b, "\"text\":");
        put_text(b, all.data, all.n);
        buf_puts(b, ",\"logprobs\":");
        const ShownList *prompt = w->echo && first ? &r->prompt[i / w->samples] : NULL;
        if (w->logprobs) c->offset = put_text_logprobs(r, b, prompt, &c->shown, c->offset);
        buf_free(&all);
    }
    if (!w->logprobs) buf_puts(b, "null");
    put_finish(r, b, i);
    if (w->ids) buf_puts(b, ",\"token_ids\":"), put_shown_ids(b, &c->shown);
    if (w->ids && !chat && first)
        buf_puts(b, ",\"prompt_token_ids\":"), put_ids(b, line_of(r, i)->tokens, line_of(r, i)->n);
    buf_puts(b, "}]");
    end(r, b);
    c->began = true, c->told_end = c->ended;
    buf_clear(&c->text);
    c->shown.at.n = c->shown.top.n = 0;
}

void reply_events(Reply *r, Buf *b) {
    Refusal why;
    if (reply_broken(r, &why)) {
        buf_puts(b, "data: ");
        reply_error(b, &why);
        buf_puts(b, "\n\ndata: [DONE]\n\n");
        return;
    }
    for (int i = 0; i < choices(r); i++) {
        Choice *c = &r->choice[i];
        if (c->text.n || c->shown.at.n || (c->ended && !c->told_end)) put_delta(r, b, i);
    }
    if (!reply_over(r)) return;
    if (r->want->usage) {
        begin(r, b);
        buf_puts(b, ",\"choices\":[],\"usage\":");
        put_usage(r, b);
        buf_puts(b, "}\n\n");
    }
    buf_puts(b, "data: [DONE]\n\n");
}

/* ---- errors, models */
void reply_error(Buf *b, const Refusal *no) {
    static const struct {
        int status;
        const char *type;
    } types[] = { { 401, "authentication_error" }, { 403, "permission_error" },   { 404, "not_found_error" },
                  { 429, "rate_limit_error" },     { 500, "server_error" },       { 501, "not_implemented_error" },
                  { 503, "unavailable_error" },    { 0, "invalid_request_error" } };
    size_t i = 0;
    while (types[i].status && types[i].status != no->status) i++;
    buf_puts(b, "{\"error\":{\"message\":");
    put_text(b, no->msg, strlen(no->msg));
    buf_printf(b, ",\"type\":\"%s\",\"param\":", types[i].type);
    if (no->param[0]) put_text(b, no->param, strlen(no->param));
    else buf_puts(b, "null");
    buf_puts(b, ",\"code\":");
    if (no->code) put_text(b, no->code, strlen(no->code));
    else buf_printf(b, "%d", no->status);
    buf_puts(b, "}}");
}

void reply_models(Buf *b, const Offer *o, int64_t created, bool list) {
    if (list) buf_puts(b, "{\"object\":\"list\",\"data\":[");
    buf_puts(b, "{\"id\":");
    put_text(b, o->name, strlen(o->name));
    buf_printf(b, ",\"object\":\"model\",\"created\":%" PRId64 ",\"owned_by\":\"hone\",\"root\":", created);
    put_text(b, o->path, strlen(o->path));
    buf_printf(b, ",\"parent\":null,\"max_model_len\":%" PRId64 "}", o->context);
    if (list) buf_puts(b, "]}");
}
