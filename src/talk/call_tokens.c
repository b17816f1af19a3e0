/* call_tokens.c - calls between special tokens: DeepSeek's and Kimi's sections, the channels of gpt-oss. */
#include "talk/call_in.h"

#include <string.h>

static Span until(Span s, size_t at) { return (Span){ s.at, at }; }

/* V3: function<sep>NAME\n```json\n{..}\n```; later ones: NAME<sep>{..}. */
size_t step_deepseek(CallReader *r, Span rest) {
    Span body, fence = SPAN("\n```json\n"), end = SPAN("\n```");
    size_t used = call_next(r, rest, &body);
    if (used == CALL_MORE || !body.at) return used;
    size_t sep = span_find(body, 0, span_of(r->format->name_end));
    if (sep == SIZE_MAX) {
        call_broken(r, SPAN(""), "a call's name and arguments are divided by %s", r->format->name_end);
        return used;
    }
    Span name = until(body, sep), args = span_from(body, sep + strlen(r->format->name_end));
    if (r->format->key) {
        size_t at = span_find(args, 0, fence);
        bool fenced = at != SIZE_MAX && !memchr(args.at, '\n', at) && args.n >= at + fence.n + end.n
                      && !memcmp(args.at + args.n - end.n, end.at, end.n);
        if (!fenced) {
            call_broken(r, SPAN(""), "a call's arguments stand between the lines ```json and ```");
            return used;
        }
        name = until(args, at);
        args = span_from(until(args, args.n - end.n), at + fence.n);
    }
    call_arguments(r, span_strip(name), args, NULL);
    return used;
}

/* functions.NAME:INDEX<argument_begin>{..}: all before it is the call's id. */
size_t step_kimi(CallReader *r, Span rest) {
    Span body, prefix = SPAN("functions.");
    size_t used = call_next(r, rest, &body);
    if (used == CALL_MORE || !body.at) return used;
    size_t sep = span_find(body, 0, span_of(r->format->name_end));
    if (sep == SIZE_MAX) {
        call_broken(r, SPAN(""), "a call's name and arguments are divided by %s", r->format->name_end);
        return used;
    }
    Span id = span_strip(until(body, sep)), name = id;
    if (span_starts(name, prefix)) name = span_from(name, prefix.n);
    size_t colon = span_rfind(name, SPAN(":"));
    if (colon != SIZE_MAX) name = until(name, colon);
    name = span_strip(name);
    if (span_is_digits(name, 0)) call_broken(r, name, "a call begins with functions.NAME:NUMBER");
    else call_arguments(r, name, span_from(body, sep + strlen(r->format->name_end)), mem_str(r->mem, id.at, id.n));
    return used;
}

/* ---- gpt-oss: <|start|>assistant<|channel|>CHANNEL to=NAME <|constrain|>json<|message|>BODY<|call|>, the recipient
 * also before the channel; the first <|start|>assistant may be the prompt's. */
static Span recipient(Span header) {
    size_t at = span_find(header, 0, SPAN("to=")), n = 0;
    if (at == SIZE_MAX) return (Span){ 0 };
    Span s = span_from(header, at + 3), prefix = SPAN("functions.");
    while (n < s.n && s.at[n] != ' ' && s.at[n] != '<' && s.at[n] != '\n') n++;
    s = until(s, n);
    return span_starts(s, prefix) ? span_from(s, prefix.n) : (Span){ 0 }; /* others are built in, and text here */
}

static size_t harmony_start(CallReader *r, Span rest) {
    static const char *const first[] = { " to=", "to=" };
    for (int i = 0; i < 2; i++) {
        size_t n = strlen(first[i]), have = rest.n < n ? rest.n : n;
        if (memcmp(rest.at, first[i], have)) continue;
        if (have == n) return call_enter(r, 0, 0);
        if (!r->finished) return CALL_MORE;
    }
    return 0;
}

enum { HEADER_MOST = 4096 }; /* a message whose header is longer has none */

size_t step_harmony(CallReader *r, Span rest) {
    if (!r->section) return harmony_start(r, rest);
    Span mark = SPAN("<|message|>"), head = until(rest, rest.n < HEADER_MOST ? rest.n : HEADER_MOST);
    size_t m = span_find(head, 0, mark), again = span_find(head, 0, SPAN("<|start|>"));
    bool none = again < m || (m == SIZE_MAX && head.n == HEADER_MOST);
    if (none) { /* what opened it was text */
        size_t n = again < m ? again : head.n;
        call_text(r, (Span){ r->in.data + r->from, r->at + n - r->from });
        return call_leave(r, n);
    }
    if (m == SIZE_MAX) return CALL_MORE;
    Span header = { r->in.data + r->from, r->at + m - r->from }, name = recipient(header);
    Span body = span_from(rest, m + mark.n);
    size_t channel = span_find(header, 0, SPAN("<|channel|>"));
    bool thought = channel != SIZE_MAX && span_starts(span_from(header, channel + 11), SPAN("analysis"));
    if (!name.at && !thought) {
        call_text(r, (Span){ header.at, header.n + mark.n });
        return call_leave(r, m + mark.n);
    }
    const char *stop = name.at ? "<|call|>" : "<|end|>";
    size_t end = call_find(r, body, stop);
    if (end == CALL_MORE) return CALL_MORE;
    if (name.at) call_arguments(r, name, until(body, end), NULL);
    return call_leave(r, m + mark.n + end + strlen(stop));
}
