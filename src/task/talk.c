/* talk.c - a conversation to token ids, and which of them are learned: prompter_talk of prompt.h.
 *
 * The whole is rendered once.  A message's text in it is what rendering up to it adds to rendering what is before it
 * with a generation prompt, if both are how the whole begins.  Else its place is found by what stays the same when only
 * its words are others: two renderings of the whole in which they are two markers agree up to where the message's words
 * begin, and from where they end.  Nothing here knows a template's family. */
#include "task/prompt_in.h"

#include <stdio.h>
#include <string.h>

/* They share neither their first character nor their last. */
static const char *const markers[] = { "q7Zx-hone-w4K", "m3Pd-enoh-j8T" };

typedef struct {
    Prompter *p;
    int worker;
    Json tools;          /* JSON_NULL: none */
    Json messages;       /* its items and their members are this file's own, to be changed and put back */
    const bool *learned; /* [messages.n] */
    Buf whole;
    JinjaSpans blocks;    /* of the whole */
    VEC(JinjaSpan) spans; /* of it that are learned, in order */
    TalkCount count;
    Mem mem;
    Err *err;
} Talk;

static bool render(Talk *t, const Json *messages, size_t n, bool prompt, Buf *out, JinjaSpans *blocks, Err *err) {
    Json first = *messages;
    first.n = n;
    buf_clear(out);
    buf_puts(out, "");
    return chat_render_spans(t->p->chat, &first, t->tools.kind == JSON_NULL ? NULL : &t->tools, prompt,
                             &t->p->variables, out, blocks, err);
}

static bool begins(const Buf *whole, const Buf *with) {
    return with->n <= whole->n && !memcmp(whole->data, with->data, with->n);
}

/* ---- messages */
static Json *member(Json *m, const char *key) {
    for (size_t i = 0; m->kind == JSON_OBJECT && i < m->n; i++)
        if (!strcmp(m->members[i].key, key)) return &m->members[i].value;
    return NULL;
}

static Json text_json(const char *s) { return (Json){ .kind = JSON_STRING, .n = strlen(s), .str = s }; }

/* An own copy, to be changed. */
static Json own_object(const Json *m, Mem *mem) {
    return (Json){ .kind = JSON_OBJECT, .n = m->n, .members = mem_copy(mem, m->members, m->n * sizeof *m->members) };
}

/* Without what says whether it is learned. */
static Json own_message(const Json *m, Mem *mem) {
    JsonMember *own = MEM_ARRAY(mem, JsonMember, m->n + 1); /* and room for a content */
    Json out = { .kind = JSON_OBJECT, .members = own };
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->members[i].key, "train") && strcmp(m->members[i].key, "weight")) own[out.n++] = m->members[i];
    return out;
}

static bool is_learned(const Json *m) {
    const Json *train = json_get(m, "train"), *weight = json_get(m, "weight");
    if (!json_is_str(json_get(m, "role"), "assistant")) return false;
    if (train && train->kind == JSON_BOOL && !train->flag) return false;
    return !weight || weight->kind == JSON_NULL || json_number(weight) != 0;
}

static bool open_messages(Talk *t, const DataRow *row) {
    Json given, tools;
    TRY(json_parse(&given, row->prompt, row->prompt_n, &t->mem, t->err));
    const Json *usual = json_get(&t->p->variables, "tools");
    if (usual) t->tools = *usual;
    if (row->tools) {
        TRY(json_parse(&tools, row->tools, row->tools_n, &t->mem, t->err));
        t->tools = tools;
    }
    Json *items = MEM_ARRAY(&t->mem, Json, given.n);
    bool *learned = MEM_ARRAY(&t->mem, bool, given.n);
    for (size_t i = 0; i < given.n; i++)
        items[i] = own_message(&given.items[i], &t->mem), learned[i] = is_learned(&given.items[i]);
    t->messages = (Json){ .kind = JSON_ARRAY, .n = given.n, .items = items };
    t->learned = learned;
    return prompt_show_pictures(&t->messages, row, &t->mem, t->err);
}

/* ---- a template that leaves a message out */
/* Whether the whole is the same with other words in the place of *at.  A template that refuses them has read them. */
static bool unread(Talk *t, Json *at) {
    Json was = *at;
    Buf other = { 0 };
    Err none;
    *at = text_json(markers[0]);
    bool ok = render(t, &t->messages, t->messages.n, false, &other, NULL, &none);
    *at = was;
    bool same = ok && other.n == t->whole.n && begins(&t->whole, &other);
    buf_free(&other);
    return same;
}

typedef struct {
    Json *at, was, *instead; /* instead: what says the same and may stand there in its place, or NULL */
    size_t message;
    bool call; /* it is said of a tool call */
    char mark[32];
} Words;
typedef VEC(Words) WordsList;

static void put_words(WordsList *list, Json *at, size_t message, bool call) {
    if (!at || at->kind != JSON_STRING || strspn(at->str, " \t\r\n") == at->n) return;
    Words w = { .at = at, .was = *at, .message = message, .call = call };
    snprintf(w.mark, sizeof w.mark, "q7Zx-hone-%zu-w4K", list->n);
    VEC_PUSH(*list, w);
}

/* A call's name, and the first of its arguments that is text. */
static void call_words(WordsList *list, Json *call, size_t message, Mem *mem) {
    if (call->kind != JSON_OBJECT) return;
    *call = own_object(call, mem);
    Json *of = member(call, "function");
    if (of && of->kind == JSON_OBJECT) *of = own_object(of, mem);
    else of = call;
    Json *given = member(of, "arguments");
    Json *name = member(of, "name"), *id = member(call, "id");
    size_t n = list->n;
    put_words(list, name, message, true);
    if (list->n > n && id && id->kind == JSON_STRING && strstr(id->str, name->str)) list->at[n].instead = id; /* Kimi */
    put_words(list, given, message, true);
    if (!given || given->kind != JSON_OBJECT) return;
    *given = own_object(given, mem);
    for (size_t i = 0; i < given->n; i++) {
        if (given->members[i].value.kind != JSON_STRING) continue;
        put_words(list, &given->members[i].value, message, true);
        return;
    }
}

static void words_of(WordsList *list, Json *m, size_t message, Mem *mem) {
    Json *content = member(m, "content"), *calls = member(m, "tool_calls");
    put_words(list, content, message, false);
    for (size_t k = 0; content && content->kind == JSON_ARRAY && k < content->n; k++)
        put_words(list, member(&content->items[k], "text"), message, false);
    if (!calls || calls->kind != JSON_ARRAY) return;
    calls->items = mem_copy(mem, calls->items, calls->n * sizeof *calls->items);
    for (size_t k = 0; k < calls->n; k++) call_words(list, &calls->items[k], message, mem);
}

/* That a message's words stand in the whole says nothing: another one, or the template itself, may have the same.  So
 * the whole is rendered with a mark of its own in the place of each; words whose mark is not there are looked at alone,
 * for a template may have made another text of it. */
static bool check_words(Talk *t) {
    WordsList list = { 0 };
    Buf marked = { 0 };
    Err none;
    for (size_t i = 0; i < t->messages.n; i++) words_of(&list, &t->messages.items[i], i, &t->mem);
    for (size_t k = 0; k < list.n; k++) *list.at[k].at = text_json(list.at[k].mark);
    bool ok = true, rendered = render(t, &t->messages, t->messages.n, false, &marked, NULL, &none);
    for (size_t k = 0; k < list.n; k++) *list.at[k].at = list.at[k].was;
    for (size_t k = 0; ok && k < list.n; k++) {
        const Words *w = &list.at[k];
        if (rendered && memmem(marked.data, marked.n, w->mark, strlen(w->mark))) continue;
        if (!unread(t, w->at) || (w->instead && !unread(t, w->instead))) continue;
        ok = err_set(t->err, "the chat template leaves %smessage %zu out", w->call ? "the tool calls of " : "",
                     w->message);
    }
    buf_free(&marked);
    vec_free(list.at);
    return ok;
}

/* ---- where a message stands */
/* The bytes that a and b have in common at the beginning, as whole tokens of both: characters alone would call the
 * "<t" of <think> and <tool_call> common. */
static bool common_tokens(Talk *t, const char *a, size_t a_n, const char *b, size_t b_n, size_t *out) {
    TokIds of_a = { 0 }, of_b = { 0 }, of_part = { 0 };
    TokScratch *s = t->p->worker[t->worker].scratch;
    size_t n = 0;
    while (n < a_n && n < b_n && a[n] == b[n]) n++;
    if (n == a_n) return *out = n, true;
    bool ok = tok_encode(t->p->tok, s, a, a_n, TOK_SPECIAL, &of_a, t->err)
              && tok_encode(t->p->tok, s, b, b_n, TOK_SPECIAL, &of_b, t->err);
    for (bool found = false; ok && n && !found; n -= !found) {
        if ((a[n] & 0xC0) == 0x80) continue; /* inside a character */
        of_part.n = 0;
        ok = tok_encode(t->p->tok, s, a, n, TOK_SPECIAL, &of_part, t->err);
        found = ok && of_part.n <= of_a.n && of_part.n <= of_b.n;
        for (size_t i = 0; found && i < of_part.n; i++)
            found = of_part.at[i] == of_a.at[i] && of_part.at[i] == of_b.at[i];
    }
    *out = n;
    vec_free(of_a.at);
    vec_free(of_b.at);
    vec_free(of_part.at);
    return ok;
}

/* The first n messages, the i-th with each marker as its words and without its thoughts: head and tail are what stands
 * before the marker, in text, and behind it, of that size. */
static bool around(Talk *t, size_t i, size_t n, Buf *text, size_t *head, size_t *tail) {
    static const char *const thoughts[] = { "reasoning_content", "reasoning", "thinking" };
    Json *m = &t->messages.items[i], was = *m, other = own_message(m, &t->mem), *content;
    size_t kept = 0;
    for (size_t k = 0; k < other.n; k++) {
        bool drop = !strcmp(other.members[k].key, "content");
        for (size_t w = 0; w < COUNT(thoughts); w++) drop = drop || !strcmp(other.members[k].key, thoughts[w]);
        if (!drop) other.members[kept++] = other.members[k];
    }
    other.members[kept] = (JsonMember){ .key = "content", .key_n = 7 };
    content = &other.members[kept].value;
    other.n = kept + 1;
    Buf second = { 0 };
    *m = other;
    *content = text_json(markers[0]);
    bool ok = render(t, &t->messages, n, false, text, NULL, t->err);
    *content = text_json(markers[1]);
    ok = ok && render(t, &t->messages, n, false, &second, NULL, t->err);
    *m = was;
    size_t a = 0, z = 0, most = text->n < second.n ? text->n : second.n;
    while (ok && a < most && text->data[a] == second.data[a]) a++;
    while (ok && z < most - a && text->data[text->n - 1 - z] == second.data[second.n - 1 - z]) z++;
    if (ok && a == text->n && text->n == second.n) ok = err_set(t->err, "the chat template leaves it out");
    else if (ok && (a + strlen(markers[0]) + z != text->n || memcmp(text->data + a, markers[0], strlen(markers[0]))))
        ok = err_set(t->err, "the chat template changes its words");
    *head = a, *tail = z;
    buf_free(&second);
    return ok;
}

/* from, to: what is known already, or SIZE_MAX. */
static bool locate(Talk *t, size_t i, JinjaSpan *out) {
    Buf in_whole = { 0 }, alone = { 0 };
    size_t head, tail, head_alone, closing, same;
    const Buf *w = &t->whole;
    bool ok = around(t, i, t->messages.n, &in_whole, &head, &tail);
    if (ok && out->from == SIZE_MAX) ok = common_tokens(t, in_whole.data, head, w->data, w->n, &out->from);
    if (ok && out->to == SIZE_MAX) {
        const char *behind = in_whole.data + in_whole.n - tail;
        ok = around(t, i, i + 1, &alone, &head_alone, &closing)
             && common_tokens(t, alone.data + alone.n - closing, closing, behind, tail, &same);
        if (ok && (tail > w->n || memcmp(w->data + w->n - tail, behind, tail)))
            ok = err_set(t->err, "what follows it is another text without its words");
        if (ok) out->to = w->n - tail + same;
    }
    buf_free(&in_whole);
    buf_free(&alone);
    return ok;
}

static bool span_of(Talk *t, size_t i) {
    Buf *before = &t->p->worker[t->worker].text, *with = &t->p->worker[t->worker].whole;
    JinjaSpan s = { SIZE_MAX, SIZE_MAX };
    Err none;
    bool last = i + 1 == t->messages.n;
    if (render(t, &t->messages, i, true, before, NULL, &none) && begins(&t->whole, before)) s.from = before->n;
    if (last) s.to = t->whole.n;
    else if (render(t, &t->messages, i + 1, false, with, NULL, &none) && begins(&t->whole, with)) s.to = with->n;
    bool as_is = s.from == SIZE_MAX || s.to == SIZE_MAX;
    if (as_is && !locate(t, i, &s))
        return err_wrap(
            t->err,
            "message %zu cannot be found in what the chat template makes of the conversation (\"train\": false"
            " leaves it out of what is learned)",
            i);
    size_t done = t->spans.n ? t->spans.at[t->spans.n - 1].to : 0;
    if (s.from < done) s.from = done;
    if (s.to <= s.from) return err_set(t->err, "the chat template leaves message %zu out", i);
    VEC_PUSH(t->spans, s);
    t->count.messages++, t->count.as_is += as_is;
    return true;
}

/* The template's own blocks: those of a message are those that it brings to the rendering up to it. */
static bool take_blocks(Talk *t) {
    JinjaSpans now = { 0 };
    Buf *text = &t->p->worker[t->worker].text;
    size_t had = 0;
    bool ok = true;
    for (size_t i = 0; ok && i < t->messages.n; i++) {
        if (!json_is_str(json_get(&t->messages.items[i], "role"), "assistant")) continue;
        ok = render(t, &t->messages, i + 1, false, text, &now, t->err);
        size_t have = ok && now.n < t->blocks.n ? now.n : t->blocks.n;
        for (size_t k = had; ok && t->learned[i] && k < have; k++) {
            JinjaSpan s = t->blocks.at[k];
            size_t done = t->spans.n ? t->spans.at[t->spans.n - 1].to : 0;
            if (s.from < done) s.from = done; /* a block in a block */
            if (s.to > s.from) VEC_PUSH(t->spans, s);
        }
        t->count.messages += ok && t->learned[i] && have > had;
        if (have > had) had = have;
    }
    vec_free(now.at);
    return ok;
}

/* ---- ids and mask */
static bool take_ids(Talk *t, TokIds *ids, Buf *mask) {
    size_t n = 2 * t->spans.n, from = ids->n;
    size_t *cut = MEM_ARRAY(&t->mem, size_t, n), *at = MEM_ARRAY(&t->mem, size_t, n);
    for (size_t i = 0; i < t->spans.n; i++) cut[2 * i] = t->spans.at[i].from, cut[2 * i + 1] = t->spans.at[i].to;
    TRY(tok_encode_seams(t->p->tok, t->p->worker[t->worker].scratch, t->whole.data, t->whole.n, TOK_SPECIAL,
                         &(TokSeams){ cut, n, at }, ids, t->err)
        && prompt_check_ids(t->p, ids, from, t->err));
    if (ids->n == from) return err_set(t->err, "the conversation has no tokens");
    buf_clear(mask);
    for (size_t i = 0; i < ids->n - from; i++) buf_putc(mask, 0);
    for (size_t i = 0; i < n; i += 2) memset(mask->data + at[i], 1, at[i + 1] - at[i]);
    return true;
}

/* A picture's place has become as many tokens as it has: none of them is learned. */
static void spread(Buf *mask, const Spans *pics, int merge) {
    Buf out = { 0 };
    int next = 0;
    for (size_t i = 0; i < mask->n; i++) {
        bool here = next < pics->n && (size_t)pics->at[next].at == out.n;
        int64_t n = here ? grid_tokens(pics->at[next++].picture->grid, merge) : 1;
        for (int64_t k = 0; k < n; k++) buf_putc(&out, here ? 0 : mask->data[i]);
    }
    buf_free(mask);
    *mask = out;
}

static bool talk(Talk *t, const DataRow *row, TokIds *ids, Buf *mask, Spans *pics, Mem *mem, bool pixels) {
    Picture shown[PICTURES_MOST];
    int n_shown = 0;
    size_t before = ids->n;
    if (!t->p->chat) return err_set(t->err, "messages cannot be used: %s", t->p->no_chat);
    TRY(open_messages(t, row)
        && pictures_of(shown, &n_shown, &t->p->pictures, &t->messages, row->folder ? row->folder : "", pixels, mem,
                       t->err)
        && render(t, &t->messages, t->messages.n, false, &t->whole, &t->blocks, t->err));
    TRY(check_words(t));
    bool marks = chat_marks(t->p->chat, t->tools.kind == JSON_NULL ? NULL : &t->tools);
    if (marks) TRY(take_blocks(t));
    for (size_t i = 0; !marks && i < t->messages.n; i++)
        if (t->learned[i]) TRY(span_of(t, i));
    TRY(take_ids(t, ids, mask) && pictures_place(pics, ids, before, shown, n_shown, &t->p->pictures, mem, t->err));
    if (pics->n) spread(mask, pics, t->p->pictures.rules.merge);
    return true;
}

bool prompter_talk(Prompter *p, int worker, const DataRow *row, TokIds *ids, Buf *mask, TalkCount *count, Spans *pics,
                   Mem *mem, bool pixels, Err *err) {
    CHECK(worker >= 0 && worker < p->n, "worker %d of %d", worker, p->n);
    Talk t = { .p = p, .worker = worker, .err = err };
    bool ok = talk(&t, row, ids, mask, pics, mem, pixels);
    if (ok && count) count->messages += t.count.messages, count->as_is += t.count.as_is;
    buf_free(&t.whole);
    vec_free(t.blocks.at);
    vec_free(t.spans.at);
    mem_free(&t.mem);
    return ok;
}
