/* call_json.c - calls that are JSON: Hermes' in tags, Llama 3's bare, Mistral's list or name and arguments. */
#include "talk/call_in.h"

#include <string.h>

static size_t blanks(Span s, const char *also) {
    size_t i = 0;
    while (i < s.n && s.at[i] && strchr(also, s.at[i])) i++;
    return i;
}

/* Does s begin with 'what', or is it too short to say? */
typedef enum { NO, YES, PERHAPS } Begins;
static Begins begins(Span s, const char *what) {
    size_t n = strlen(what), have = s.n < n ? s.n : n;
    if (memcmp(s.at, what, have)) return NO;
    return have == n ? YES : PERHAPS;
}

/* <tool_call>{"name": .., "arguments": {..}}</tool_call>: a string inside may hold the tag itself. */
size_t step_tagged_json(CallReader *r, Span rest) {
    const char *close = r->format->close, *why;
    size_t end = call_find_unquoted(r, rest, close);
    if (end == CALL_MORE) return CALL_MORE;
    Span body = span_strip((Span){ rest.at, end });
    Json v;
    if (!body.n) call_broken(r, SPAN(""), "the call is empty");
    else if (!call_json(r, body, &v, &why)) call_broken(r, SPAN(""), "the call is no JSON: %s", why);
    else call_object(r, &v);
    return call_leave(r, end + strlen(close));
}

/* One object of a reply: a call where it has a name; broken JSON where it says "name"; else an answer in JSON. */
static void bare_object(CallReader *r, Span s) {
    Json v;
    const char *why;
    if (!call_json(r, s, &v, &why)) {
        if (span_find(s, 0, SPAN("\"name\"")) == SIZE_MAX) call_text(r, s);
        else call_broken(r, SPAN(""), "the call is no JSON: %s", why);
    } else if (json_get(&v, "name") && json_get(&v, "name")->kind == JSON_STRING) call_object(r, &v);
    else call_text(r, s);
}

/* {"name": .., "parameters": {..}}, several joined by ";" or a newline, behind <|python_tag|> or at the very start. */
size_t step_llama(CallReader *r, Span rest) {
    size_t i = blanks(rest, r->section ? " \t\r\n;" : " \t\r\n");
    bool over = i == rest.n;
    if (!r->section) {
        if (over) return r->finished ? 0 : CALL_MORE;
        return rest.at[i] == '{' ? call_enter(r, 0, i) : 0;
    }
    if (i && r->calls.n == r->calls_before) { /* so far it is an answer, and these are its own */
        call_text(r, (Span){ rest.at, i });
        r->from = r->at + i;
    }
    if (i) return i;
    if (over) return r->finished ? call_leave(r, 0) : CALL_MORE;
    Begins tag = begins(rest, r->format->open[0]);
    if (tag == PERHAPS && !r->finished) return CALL_MORE;
    if (tag == YES) return strlen(r->format->open[0]);
    if (*rest.at != '{') return call_leave(r, 0);
    size_t end = call_balance(r, rest);
    if (end == CALL_MORE) return CALL_MORE;
    bare_object(r, (Span){ rest.at, end });
    r->from = r->at + end;
    return end;
}

/* What stands behind a name's [ARGS]. */
static size_t mistral_arguments(CallReader *r, Span name, const char *id, Span rest, size_t at) {
    at += blanks(span_from(rest, at), " \t\r\n");
    Span body = span_from(rest, at);
    if (body.n && (*body.at == '{' || *body.at == '[')) {
        size_t end = call_balance(r, body);
        if (end == CALL_MORE) return CALL_MORE;
        call_arguments(r, name, (Span){ body.at, end }, id);
        return call_leave(r, at + end);
    }
    if (!r->finished) return CALL_MORE;
    call_arguments(r, name, body, id);
    return call_leave(r, rest.n);
}

enum { NAME_MOST = 256 };

/* [TOOL_CALLS] [{..}, ..] (then nothing else counts), or [TOOL_CALLS]NAME[ARGS]{..} once or more. */
size_t step_mistral(CallReader *r, Span rest) {
    size_t i = blanks(rest, " \t\r\n"), name_n = 0;
    const char *why, *id = NULL;
    if (i) return i;
    if (!rest.n) return CALL_MORE;
    if (*rest.at == '[' || *rest.at == '{') {
        Json v;
        size_t end = call_balance(r, rest);
        if (end == CALL_MORE) return CALL_MORE;
        if (!call_json(r, (Span){ rest.at, end }, &v, &why)) call_broken(r, SPAN(""), "the calls are no JSON: %s", why);
        else call_object(r, &v);
        r->closed = *rest.at == '[';
        return call_leave(r, end);
    }
    while (name_n < rest.n && name_n <= NAME_MOST && rest.at[name_n] != '[' && rest.at[name_n] != '{') name_n++;
    if (name_n > NAME_MOST) {
        call_broken(r, SPAN(""), "behind [TOOL_CALLS] comes a list of calls, or a name, [ARGS] and arguments");
        return call_leave(r, NAME_MOST);
    }
    Span name = span_strip((Span){ rest.at, name_n }), tail = span_from(rest, name_n);
    if (!tail.n) return CALL_MORE;
    if (*tail.at == '{') return mistral_arguments(r, name, NULL, rest, name_n);
    Begins numbered = begins(tail, "[CALL_ID]");
    if (numbered == YES) {
        size_t to = span_find(tail, 9, SPAN("["));
        if (to == SIZE_MAX) return CALL_MORE;
        id = mem_str(r->mem, tail.at + 9, to - 9);
        tail = span_from(tail, to);
    }
    Begins args = begins(tail, "[ARGS]");
    if (args == PERHAPS || numbered == PERHAPS) return CALL_MORE;
    if (args == YES) return mistral_arguments(r, name, id, rest, (size_t)(tail.at - rest.at) + 6);
    call_broken(r, name, "behind a call's name come [ARGS] and its arguments");
    return call_leave(r, (size_t)(tail.at - rest.at) + 1);
}
