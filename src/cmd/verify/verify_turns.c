/* verify_turns.c - what stands behind sampled turns of published templates, held against what whole renderings, a
 * builder and a difference agree on; and episodes of several turns behind each other with their masks. */
#include "cmd/verify/talk_in.h"
#include "base/file.h"
#include "talk/turn.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    const Json *file;
    Chat *chat;
    Mem *mem;
    TalkCount *n;
} Turns;

static Span text_of(const Json *o, const char *key) {
    const Json *v = json_path(o, key);
    return v && v->kind == JSON_STRING ? (Span){ v->str, v->n } : (Span){ 0 };
}

/* The template's file: beside the cases, in templates/ beside them or beside their folder. */
static Chat *open_template(const Json *file, const char *path, Mem *mem, Err *err) {
    static const char *const where[] = { "", "templates/", "../templates/" };
    Span name = text_of(file, "template");
    const char *slash = strrchr(path, '/');
    for (size_t i = 0; name.at && i < COUNT(where); i++) {
        char *p = mem_printf(mem, "%.*s%s%.*s.jinja", (int)(slash ? slash + 1 - path : 0), path, where[i], (int)name.n,
                             name.at);
        if (file_exists(p)) return chat_open_file(p, mem, err);
    }
    err_set(err, "its template %.*s.jinja is not there (looked for in ../templates/)", (int)name.n, name.at);
    return NULL;
}

/* The file's variables and the case's own, the clock, and no tools and documents where there are none. */
static Json variables(const Turns *t, const Json *c) {
    const Json *from[] = { json_get(c, "template_kwargs"), json_get(t->file, "variables") };
    Json v = { .kind = JSON_OBJECT };
    for (int i = 0; i < 2; i++) v.n += from[i] && from[i]->kind == JSON_OBJECT ? from[i]->n : 0;
    JsonMember *m = MEM_ARRAY(t->mem, JsonMember, v.n + 2);
    v.n = 0, v.members = m;
    for (int i = 0; i < 2; i++)
        for (size_t k = 0; from[i] && from[i]->kind == JSON_OBJECT && k < from[i]->n; k++)
            m[v.n++] = from[i]->members[k];
    Span now = text_of(t->file, "now");
    if (now.n) {
        const char *clock = mem_printf(t->mem, "%.*s%s", (int)now.n, now.at, now.n == 10 ? "T00:00:00" : "");
        m[v.n++] = (JsonMember){ "now", 3, { .kind = JSON_STRING, .n = strlen(clock), .str = clock } };
    }
    m[v.n++] = (JsonMember){ "documents", 9, { .kind = JSON_NULL } };
    return v;
}

/* messages with the assistant's turn behind them. */
static Json so_far(const Turns *t, const Json *c) {
    const Json *m = json_get(c, "messages"), *a = json_get(c, "assistant");
    Json all = { .kind = JSON_ARRAY, .n = m->n + 1, .items = MEM_ARRAY(t->mem, Json, m->n + 1) };
    for (size_t i = 0; i < m->n; i++) all.items[i] = m->items[i];
    all.items[m->n] = *a;
    return all;
}

static bool answer(const Turns *t, const Json *c, Buf *suffix, size_t *removed, Err *err) {
    const Json *tools = json_get(c, "tools"), *added = json_get(c, "new_messages");
    if (tools && tools->kind == JSON_STRING) tools = json_get(t->file, tools->str);
    Json *vars = MEM_NEW(t->mem, Json), messages = so_far(t, c);
    *vars = variables(t, c);
    TurnRule rule;
    if (tools && tools->kind == JSON_NULL) tools = NULL;
    return turn_rule(&rule, t->chat, tools, vars, t->mem, err)
           && turn_suffix(&rule, &messages, text_of(c, "sampled"), added, suffix, removed, t->mem, err);
}

static bool whole_case(const Json *c) {
    const Json *m = json_get(c, "messages"), *a = json_get(c, "assistant"), *x = json_get(c, "new_messages");
    return m && a && x && m->kind == JSON_ARRAY && a->kind == JSON_OBJECT && x->kind == JSON_ARRAY;
}

static void check(const Turns *t, const Json *c) {
    const Json *e = json_get(c, "expected"), *firm = json_get(e, "firm");
    Span name = text_of(c, "case"), sampled = text_of(c, "sampled"), want = text_of(e, "suffix");
    Buf suffix = { 0 }, shown = { 0 };
    size_t removed = 0;
    Err err = { "" };
    bool ok = answer(t, c, &suffix, &removed, &err), refused = text_of(e, "refused").at != NULL;
    if (!ok) buf_printf(&shown, "refused: %s", err.msg);
    else {
        buf_puts(&shown, "suffix ");
        json_put_str(&shown, suffix.data ? suffix.data : "", suffix.n);
        buf_puts(&shown, ", removed ");
        json_put_str(&shown, sampled.at + sampled.n - removed, removed);
    }
    bool same = ok && span_eq((Span){ suffix.data ? suffix.data : "", suffix.n }, want)
                && span_eq(span_from(sampled, sampled.n - removed), text_of(e, "removed"));
    if (!refused && !(firm && firm->kind == JSON_BOOL && firm->flag))
        talk_open(t->n, name.at ? name.at : "?", (Span){ shown.data, shown.n });
    else if (refused ? !ok : same) talk_ok(t->n);
    else talk_failed(t->n, name.at ? name.at : "?", "%s", shown.data);
    buf_free(&suffix);
    buf_free(&shown);
}

typedef VEC(Json) Messages;

static void append(Messages *to, const Json *list) {
    for (size_t i = 0; i < list->n; i++) VEC_PUSH(*to, list->items[i]);
}

/* Is the whole conversation, rendered with the variables of case c, this text? */
static bool is_whole(const Turns *t, const Messages *talk, const Json *c, Span all) {
    Buf whole = { 0 };
    Err err;
    Json vars = variables(t, c), none = { 0 }, list = { .kind = JSON_ARRAY, .n = talk->n, .items = talk->at };
    const Json *tools = json_get(c, "tools");
    if (tools && tools->kind == JSON_STRING) tools = json_get(t->file, tools->str);
    bool ok = chat_render(t->chat, &list, tools ? tools : &none, true, &vars, &whole, &err);
    bool same = ok && span_eq((Span){ whole.data ? whole.data : "", whole.n }, all);
    buf_free(&whole);
    return same;
}

/* The turns behind each other are its pieces, and all of it is the whole rendering exactly where it says so. */
static void episode(const Turns *t, const Json *cases, const Json *ep) {
    const Json *steps = json_get(ep, "steps"), *pieces = json_get(ep, "pieces"),
               *is = json_get(ep, "is_whole_rendering");
    size_t p = 0;
    bool same = pieces && steps && pieces->kind == JSON_ARRAY && steps->kind == JSON_ARRAY;
    Buf all = { 0 };
    const Json *last = NULL;
    Messages talk = { 0 };
    Err err = { "" };
    for (size_t i = 0; same && i < steps->n; i++) {
        const Json *c = NULL;
        for (size_t k = 0; k < cases->n && !c; k++)
            if (span_eq(text_of(&cases->items[k], "case"), (Span){ steps->items[i].str, steps->items[i].n }))
                c = &cases->items[k];
        Buf suffix = { 0 };
        size_t removed = 0;
        same = c && whole_case(c) && answer(t, c, &suffix, &removed, &err);
        Span sampled = text_of(c, "sampled");
        Span got[3] = { text_of(c, "prompt"), { sampled.at, sampled.n - removed }, { suffix.data, suffix.n } };
        static const int masks[3] = { -1, 1, 0 };
        for (int k = i ? 1 : 0; k < 3 && same; k++, p++) {
            const Json *piece = p < pieces->n ? &pieces->items[p] : NULL;
            same = piece && piece->kind == JSON_ARRAY && piece->n == 2 && piece->items[0].kind == JSON_STRING
                   && span_eq((Span){ piece->items[0].str, piece->items[0].n }, got[k])
                   && (masks[k] < 0 ? piece->items[1].kind == JSON_NULL : piece->items[1].integer == masks[k]);
            if (same) buf_put(&all, got[k].at, got[k].n);
        }
        last = c;
        if (same && !i) append(&talk, json_get(c, "messages"));
        if (same) VEC_PUSH(talk, *json_get(c, "assistant"));
        if (same) append(&talk, json_get(c, "new_messages"));
        buf_free(&suffix);
    }
    same = same && p == pieces->n;
    if (same && is && is->kind == JSON_BOOL) same = is_whole(t, &talk, last, (Span){ all.data, all.n }) == is->flag;
    vec_free(talk.at);
    if (same) talk_ok(t->n);
    else talk_failed(t->n, "episode", "piece %zu is another%s%s", p, *err.msg ? ": " : "", err.msg);
    buf_free(&all);
}

bool verify_turns(const Json *file, TalkCount *n, Err *err) {
    Mem mem = { 0 };
    Turns t = { .file = file, .mem = &mem, .n = n };
    const Json *cases = json_get(file, "cases"), *ep = json_get(file, "episode");
    t.chat = open_template(file, n->path, &mem, err);
    bool ok = t.chat != NULL;
    for (size_t i = 0; ok && i < cases->n; i++) {
        ok = whole_case(&cases->items[i])
             || err_set(err, "case %zu: \"messages\", \"assistant\" and \"new_messages\" are wanted", i);
        if (ok) check(&t, &cases->items[i]);
    }
    if (ok && ep && ep->kind == JSON_OBJECT) episode(&t, cases, ep);
    mem_free(&mem);
    return ok;
}
