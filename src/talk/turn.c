/* turn.c - the text behind a sampled turn: see turn.h.  Templates look back (at the calls, at the last user, at whether
 * a turn thought), so the short conversation holds the turn's own calls for tools' answers, and none for a user's
 * words.  All that is new is rendered at once, since templates put things between groups; only where that changes what
 * came before, group by group. */
#include "talk/turn.h"

#include <string.h>

enum { SPECIAL_MOST = 64 };

static bool letter(char c, bool small) {
    return (c >= 'A' && c <= 'Z') || c == '_' || c == '/' || (small && ((c >= 'a' && c <= 'z') || c == ':'));
}

size_t turn_special(Span s) {
    static const char *const pairs[][2] = { { "<|", "|>" }, { "<\uFF5C", "\uFF5C>" } };
    for (int i = 0; i < 2; i++) {
        if (!span_starts(s, span_of(pairs[i][0]))) continue;
        Span in = { s.at, s.n < SPECIAL_MOST ? s.n : SPECIAL_MOST };
        size_t end = span_find(in, strlen(pairs[i][0]), span_of(pairs[i][1]));
        if (end == SIZE_MAX) return 0;
        return memchr(s.at + 1, '<', end - 1) || memchr(s.at, '\n', end) ? 0 : end + strlen(pairs[i][1]);
    }
    if (s.n < 3 || (*s.at != '<' && *s.at != '[')) return 0;
    size_t i = 1;
    while (i < s.n && i < SPECIAL_MOST && letter(s.at[i], *s.at == '<')) i++;
    return i > 1 && i < s.n && s.at[i] == (*s.at == '<' ? '>' : ']') ? i + 1 : 0;
}

static size_t atom(Span s) {
    size_t n = turn_special(s);
    return n ? n : s.n > 0;
}

/* How far two texts are the same, in whole special tokens. */
static size_t common(Span a, Span b) {
    size_t at = 0;
    for (;;) {
        Span x = span_from(a, at), y = span_from(b, at);
        size_t n = atom(x);
        if (!n || n != atom(y) || memcmp(x.at, y.at, n)) return at;
        at += n;
    }
}

/* ---- messages made here */
static Json text_value(const char *s) { return (Json){ .kind = JSON_STRING, .n = strlen(s), .str = s }; }

static Json said(const char *role, const char *content, Mem *mem) {
    JsonMember *m = MEM_ARRAY(mem, JsonMember, 2);
    m[0] = (JsonMember){ "role", 4, text_value(role) };
    m[1] = (JsonMember){ "content", 7, text_value(content) };
    return (Json){ .kind = JSON_OBJECT, .n = 2, .members = m };
}

/* o with another value of that name. */
static Json with(const Json *o, const char *key, Json value, Mem *mem) {
    JsonMember *m = MEM_ARRAY(mem, JsonMember, o->n + 1);
    size_t n = 0;
    for (size_t i = 0; i < o->n; i++)
        if (strcmp(o->members[i].key, key)) m[n++] = o->members[i];
    m[n++] = (JsonMember){ key, strlen(key), value };
    return (Json){ .kind = JSON_OBJECT, .n = n, .members = m };
}

/* The message with its calls' arguments as text: some templates paste them, most want a mapping. */
static Json arguments_as_text(const Json *message, Mem *mem) {
    const Json *calls = json_get(message, "tool_calls");
    if (!calls || calls->kind != JSON_ARRAY) return *message;
    Json list = { .kind = JSON_ARRAY, .n = calls->n, .items = MEM_ARRAY(mem, Json, calls->n + 1) };
    for (size_t i = 0; i < calls->n; i++) {
        const Json *f = json_get(&calls->items[i], "function"), *args = json_get(f, "arguments");
        list.items[i] = calls->items[i];
        if (!args || args->kind == JSON_STRING) continue;
        Buf b = { 0 };
        json_put_value(&b, args);
        Json text = { .kind = JSON_STRING, .n = b.n, .str = mem_str(mem, b.data, b.n) };
        buf_free(&b);
        list.items[i] = with(&calls->items[i], "function", with(f, "arguments", text, mem), mem);
    }
    return with(message, "tool_calls", list, mem);
}

static Json joined(const Json *a, const Json *b, bool as_text, Mem *mem) {
    size_t n = b ? b->n : 0;
    Json all = { .kind = JSON_ARRAY, .n = a->n + n, .items = MEM_ARRAY(mem, Json, a->n + n + 1) };
    for (size_t i = 0; i < all.n; i++) all.items[i] = i < a->n ? a->items[i] : b->items[i - a->n];
    for (size_t i = 0; as_text && i < all.n; i++) all.items[i] = arguments_as_text(&all.items[i], mem);
    return all;
}

/* Rendered into mem; arguments as a mapping, and where that fails as text. */
static bool render(const TurnRule *r, const Json *a, const Json *b, bool go_on, Span *out, Mem *mem, Err *err) {
    static const Json none = { 0 };
    bool ok = false;
    for (int as_text = 0; as_text < 2 && !ok; as_text++) {
        Buf text = { 0 };
        Err later;
        Json all = joined(a, b, as_text, mem);
        ok = chat_render(r->chat, &all, r->tools ? r->tools : &none, go_on, r->extra, &text, as_text ? &later : err);
        if (ok) *out = (Span){ mem_str(mem, text.data ? text.data : "", text.n), text.n };
        buf_free(&text);
    }
    return ok || err_wrap(err, "the template");
}

/* ---- how a turn ends */
static const char turn_mark[] = "Tq7turn", next_mark[] = "Nq7next";

static bool behind_mark(Span s, Span *out, Err *err) {
    size_t at = span_rfind(s, span_of(turn_mark));
    if (at == SIZE_MAX) return err_set(err, "the template leaves out what the assistant says");
    *out = span_from(s, at + strlen(turn_mark));
    return true;
}

bool turn_rule(TurnRule *r, const Chat *chat, const Json *tools, const Json *extra, Mem *mem, Err *err) {
    *r = (TurnRule){ .chat = chat, .tools = tools, .extra = extra };
    Json turns[3] = { said("user", "u", mem), said("assistant", turn_mark, mem), said("user", next_mark, mem) };
    Json two = { .kind = JSON_ARRAY, .n = 2, .items = turns }, three = two;
    Span last, middle;
    three.n = 3;
    TRY(render(r, &two, NULL, false, &last, mem, err) && behind_mark(last, &last, err));
    TRY(render(r, &three, NULL, false, &middle, mem, err) && behind_mark(middle, &middle, err));
    last.n = common(last, middle); /* a finished conversation may end with one more token */
    size_t end = turn_special(last);
    if (!end && last.n) end = turn_special(span_strip(last)) ? (size_t)(span_strip(last).at - last.at) : 0;
    r->end = (Span){ last.at, end };
    r->boundary = span_from(last, end);
    return true;
}

/* ---- the suffix */
static bool is_tool(const Json *m) { return json_is_str(json_get(m, "role"), "tool"); }

/* The conversations that a group of new messages may stand behind, the first that the template takes counts. */
static int befores(const Json *assistant, bool tool, Json out[2], Mem *mem) {
    Json *long_one = MEM_ARRAY(mem, Json, 3), *short_one = MEM_ARRAY(mem, Json, 2);
    Json s = said("system", "s", mem), u = said("user", "u", mem);
    if (tool) {
        const Json *thought = json_get(assistant, "reasoning_content");
        bool thinks = thought && thought->kind == JSON_STRING && thought->n;
        Json a = thinks ? *assistant : with(assistant, "reasoning_content", text_value("r"), mem);
        long_one[0] = s, long_one[1] = u, long_one[2] = a;
        short_one[0] = u, short_one[1] = a;
        out[0] = (Json){ .kind = JSON_ARRAY, .n = 3, .items = long_one };
        out[1] = (Json){ .kind = JSON_ARRAY, .n = 2, .items = short_one };
        return 2;
    }
    long_one[0] = s, long_one[1] = u;
    short_one[0] = u;
    out[0] = (Json){ .kind = JSON_ARRAY, .n = 2, .items = long_one };
    out[1] = (Json){ .kind = JSON_ARRAY, .n = 1, .items = short_one };
    return 2;
}

static Span eos_of(const TurnRule *r) {
    const Json *eos = json_get(r->extra, "eos_token");
    return eos && eos->kind == JSON_STRING ? (Span){ eos->str, eos->n } : SPAN("");
}

/* What 'added' adds to that conversation; false: nothing that can be put behind it. */
static bool difference(const TurnRule *r, const Json *before, const Json *added, bool go_on, Span *out, Mem *mem,
                       Err *err) {
    Span base, full;
    TRY(render(r, before, NULL, false, &base, mem, err) && render(r, before, added, go_on, &full, mem, err));
    size_t same = common(base, full);
    Span rest = span_from(base, same), eos = eos_of(r);
    if (rest.n && !(eos.n && span_eq(rest, eos)))
        return err_set(err, "the template writes what came before in another way when messages follow");
    *out = span_from(full, same);
    return true;
}

static bool group(const TurnRule *r, const Json *assistant, const Json *added, bool go_on, Buf *out, Mem *mem,
                  Err *err) {
    Json before[3];
    int n = befores(assistant, is_tool(&added->items[0]), before, mem);
    if (!is_tool(&added->items[0])) { /* a template that wants user and assistant to take turns */
        Json *pair = MEM_ARRAY(mem, Json, 2);
        pair[0] = said("user", "u", mem), pair[1] = said("assistant", "a", mem);
        before[n++] = (Json){ .kind = JSON_ARRAY, .n = 2, .items = pair };
    }
    for (int i = 0; i < n; i++) {
        Span s;
        Err why;
        if (difference(r, &before[i], added, go_on, &s, mem, i ? &why : err)) return buf_put(out, s.at, s.n), true;
    }
    return false;
}

/* All at once, else group by group. */
static bool behind(const TurnRule *r, const Json *assistant, const Json *added, Buf *out, Mem *mem, Err *err) {
    buf_put(out, r->boundary.at, r->boundary.n);
    size_t kept = out->n;
    if (group(r, assistant, added, true, out, mem, err)) return true;
    out->n = kept;
    for (size_t i = 0, n; i < added->n; i += n) {
        for (n = 1; i + n < added->n && is_tool(&added->items[i]) == is_tool(&added->items[i + n]);) n++;
        Json part = { .kind = JSON_ARRAY, .n = n, .items = added->items + i };
        Err why;
        if (n == added->n || !group(r, assistant, &part, i + n == added->n, out, mem, &why)) return false;
    }
    return true;
}

/* Every new message must be there, and a user's or system's begin with a token that no text can write. */
static bool nothing_lost(const TurnRule *r, const Json *assistant, const Json *added, Mem *mem, Err *err) {
    Json marked = { .kind = JSON_ARRAY, .n = added->n, .items = MEM_ARRAY(mem, Json, added->n) };
    for (size_t i = 0; i < added->n; i++)
        marked.items[i] = with(&added->items[i], "content", text_value(mem_printf(mem, "Mq7mark%zux", i)), mem);
    Buf b = { 0 };
    bool ok = behind(r, assistant, &marked, &b, mem, err);
    Span s = { b.data ? b.data : "", b.n };
    size_t from = 0;
    for (size_t i = 0; ok && i < added->n; i++) {
        const Json *role = json_get(&added->items[i], "role"), *mark = json_get(&marked.items[i], "content");
        const char *who = role && role->kind == JSON_STRING ? role->str : "?";
        size_t at = span_find(s, from, (Span){ mark->str, mark->n });
        bool header = is_tool(&added->items[i]);
        for (size_t k = from; at != SIZE_MAX && k < at && !header; k++) header = turn_special(span_from(s, k)) > 0;
        if (at == SIZE_MAX) ok = err_set(err, "the template leaves out what the %s says", who);
        else if (!header) ok = err_set(err, "the template puts no header before what the %s says", who);
        else from = at + mark->n;
    }
    buf_free(&b);
    return ok;
}

/* The end that was sampled: the template's own, or, where it has none, the next message's first token. */
static bool sampled_end(const TurnRule *r, Span sampled, size_t *removed, Err *err) {
    *removed = 0;
    if (r->end.n) {
        Span tail = span_from(sampled, sampled.n > r->end.n ? sampled.n - r->end.n : 0);
        if (span_eq(tail, r->end)) return true;
    } else
        for (size_t n = 3; n <= SPECIAL_MOST && n <= sampled.n; n++)
            if (turn_special(span_from(sampled, sampled.n - n)) == n) return *removed = n, true;
    return err_set(err, "the assistant turn has no end: cut by length");
}

bool turn_suffix(const TurnRule *r, const Json *messages, Span sampled, const Json *added, Buf *suffix, size_t *removed,
                 Mem *mem, Err *err) {
    if (!added->n) return err_set(err, "nothing new");
    if (json_is_str(json_get(&added->items[added->n - 1], "role"), "assistant"))
        return err_set(err, "an assistant turn is not context");
    CHECK(messages->n && json_is_str(json_get(&messages->items[messages->n - 1], "role"), "assistant"),
          "the last message is not the assistant's");
    Span whole;
    size_t kept = suffix->n;
    const Json *assistant = &messages->items[messages->n - 1];
    TRY(render(r, messages, added, true, &whole, mem, err) && sampled_end(r, sampled, removed, err));
    TRY(nothing_lost(r, assistant, added, mem, err));
    if (behind(r, assistant, added, suffix, mem, err)) return true;
    suffix->n = kept;
    return false;
}
