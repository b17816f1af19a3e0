/* verify_calls.c - calls of tools and reasoning read out of text, held against what engines read: where two agree they
 * are right, elsewhere our answer is shown.  Every text comes whole, cut in two at every byte, and byte by byte. */
#include "cmd/verify/talk_in.h"
#include "talk/call.h"
#include "talk/reasoning.h"

#include <string.h>

static const char *const engines[] = { "vllm", "sglang", "verl" };

typedef struct {
    Json calls;
    Span text;
    Span shown;
} Read;

/* The calls that can be made, as [{"name", "arguments"}]; broken ones are no calls, and are shown. */
static Json calls_of(const CallReader *r, Mem *mem) {
    Json list = { .kind = JSON_ARRAY, .items = MEM_ARRAY(mem, Json, r->calls.n + 1) };
    for (size_t i = 0; i < r->calls.n; i++) {
        const ToolCall *c = &r->calls.at[i];
        if (c->error) continue;
        JsonMember *m = MEM_ARRAY(mem, JsonMember, 2);
        m[0] = (JsonMember){ "name", 4, { .kind = JSON_STRING, .n = c->name.n, .str = c->name.at } };
        m[1] = (JsonMember){ "arguments", 9, c->arguments };
        list.items[list.n++] = (Json){ .kind = JSON_OBJECT, .n = 2, .members = m };
    }
    return list;
}

static void show(const CallReader *r, const Json *calls, Buf *out) {
    buf_puts(out, "calls ");
    json_put_value(out, calls);
    for (size_t i = 0; i < r->calls.n; i++)
        if (r->calls.at[i].error) buf_printf(out, ", broken: %s", r->calls.at[i].error);
    buf_puts(out, ", text ");
    json_put_str(out, r->text.data ? r->text.data : "", r->text.n);
}

/* cut: in two there; SIZE_MAX: byte by byte. */
static void read_calls(const ToolFormat *f, const Json *tools, Span in, size_t cut, Mem *mem, Read *out) {
    CallReader r = call_reader(f, tools, mem);
    size_t first = cut == SIZE_MAX ? 0 : cut;
    if (first) call_put(&r, in.at, first);
    if (cut != SIZE_MAX) call_put(&r, in.at + first, in.n - first);
    for (size_t i = 0; cut == SIZE_MAX && i < in.n; i++) call_put(&r, in.at + i, 1);
    call_end(&r);
    Buf b = { 0 };
    out->calls = calls_of(&r, mem);
    show(&r, &out->calls, &b);
    out->text = (Span){ mem_str(mem, r.text.data ? r.text.data : "", r.text.n), r.text.n };
    out->shown = (Span){ mem_str(mem, b.data, b.n), b.n };
    buf_free(&b);
    call_free(&r);
}

/* What two of the engines say, or 'ours' where the case has it; NULL: nobody agrees. */
static const Json *agreed(const Json *c) {
    const Json *a = json_get(c, "agreed"), *ours = json_path(c, "ours.calls"), *calls[3];
    if (ours) return ours;
    if (!a || a->kind != JSON_BOOL || !a->flag) return NULL;
    for (int i = 0; i < 3; i++) {
        calls[i] = json_get(json_get(c, engines[i]), "calls");
        for (int k = 0; calls[i] && k < i; k++)
            if (calls[k] && json_same(calls[k], calls[i])) return calls[i];
    }
    for (int i = 0; i < 3; i++)
        if (calls[i]) return calls[i];
    return NULL;
}

/* Was another call meant than what they read?  Then they are no measure. */
static bool meant_else(const Json *c, const Json *want) {
    const Json *meant = json_get(c, "meant");
    if (!meant || meant->kind != JSON_ARRAY || want->kind != JSON_ARRAY) return false;
    if (meant->n != want->n) return true;
    for (size_t i = 0; i < meant->n; i++)
        for (int k = 0; k < 2; k++) {
            static const char *const keys[] = { "name", "arguments" };
            const Json *a = json_get(&meant->items[i], keys[k]), *b = json_get(&want->items[i], keys[k]);
            if (!a || !b || !json_same(a, b)) return true;
        }
    return false;
}

static bool text_same(const Json *c, Span ours) {
    const Json *t = json_get(c, "text_agreed");
    if (!t || t->kind != JSON_BOOL || !t->flag) return true;
    for (int i = 0; i < 3; i++) {
        const Json *text = json_get(json_get(c, engines[i]), "text");
        if (text && text->kind == JSON_STRING)
            return span_eq(span_strip((Span){ text->str, text->n }), span_strip(ours));
    }
    return true;
}

static const char *case_name(const Json *c) {
    const Json *name = json_get(c, "name");
    return name && name->kind == JSON_STRING ? name->str : "?";
}

bool verify_calls(const Json *file, TalkCount *n, Err *err) {
    const char *name = NULL;
    TRY(json_str(file, "format", &name, err));
    const ToolFormat *f = tool_format_named(name ? name : "");
    if (!f) return err_set(err, "no calls are written as '%s' here", name ? name : "");
    const Json *cases = json_get(file, "cases"), *tools = json_get(file, "tools");
    for (size_t i = 0; i < cases->n; i++) {
        const Json *c = &cases->items[i], *in = json_get(c, "input");
        if (!in || in->kind != JSON_STRING) return err_set(err, "case %zu: \"input\" must be a text", i);
        Mem mem = { 0 };
        Read whole, cut;
        Span text = { in->str, in->n };
        bool steady = true;
        read_calls(f, tools, text, in->n, &mem, &whole);
        for (size_t k = 0; k <= in->n && steady; k++) {
            size_t at = k == in->n ? SIZE_MAX : k;
            read_calls(f, tools, text, at, &mem, &cut);
            steady = span_eq(whole.shown, cut.shown);
            if (!steady)
                talk_failed(n, case_name(c), "cut at byte %zu: %s; whole: %s", k, cut.shown.at, whole.shown.at);
        }
        const Json *want = agreed(c);
        if (!steady) {
        } else if (!want || meant_else(c, want)) talk_open(n, case_name(c), whole.shown);
        else if (!json_same(&whole.calls, want) || (json_get(c, "ours") == NULL && !text_same(c, whole.text)))
            talk_failed(n, case_name(c), "%s", whole.shown.at);
        else talk_ok(n);
        mem_free(&mem);
    }
    return true;
}

/* ---- reasoning */
static void read_thinking(const ReasoningFormat *f, Span in, size_t cut, Mem *mem, Span *thinking, Span *text) {
    ReasoningReader r = reasoning_reader(f);
    for (size_t i = 0; cut == SIZE_MAX && i < in.n; i++) reasoning_put(&r, in.at + i, 1);
    if (cut != SIZE_MAX) {
        reasoning_put(&r, in.at, cut);
        reasoning_put(&r, in.at + cut, in.n - cut);
    }
    reasoning_end(&r);
    *thinking = (Span){ mem_str(mem, r.thinking.data ? r.thinking.data : "", r.thinking.n), r.thinking.n };
    *text = (Span){ mem_str(mem, r.text.data ? r.text.data : "", r.text.n), r.text.n };
    reasoning_free(&r);
}

static bool says(const Json *c, Span thinking, Span text) {
    for (int i = 0; i < 3; i++) {
        const Json *e = json_get(c, engines[i]), *a = json_get(e, "thinking"), *b = json_get(e, "text");
        if (!a || !b || a->kind != JSON_STRING || b->kind != JSON_STRING) continue;
        return span_eq((Span){ a->str, a->n }, thinking) && span_eq((Span){ b->str, b->n }, text);
    }
    return false;
}

bool verify_reasoning(const Json *file, TalkCount *n, Err *err) {
    const Json *cases = json_get(file, "cases");
    for (size_t i = 0; i < cases->n; i++) {
        const Json *c = &cases->items[i], *in = json_get(c, "input"), *a = json_get(c, "agreed");
        const char *parser = NULL;
        TRY(json_str(c, "parser", &parser, err));
        if (!in || in->kind != JSON_STRING) return err_set(err, "case %zu: \"input\" must be a text", i);
        Mem mem = { 0 };
        const ReasoningFormat *f = reasoning_named(parser ? parser : "");
        char *name = mem_printf(&mem, "%s/%s", parser ? parser : "?", case_name(c));
        Span thinking, text, t, x;
        bool steady = true;
        if (!f) talk_failed(n, name, "no such reasoning is known here");
        else read_thinking(f, (Span){ in->str, in->n }, in->n, &mem, &thinking, &text);
        for (size_t k = 0; f && k <= in->n && steady; k++) {
            read_thinking(f, (Span){ in->str, in->n }, k == in->n ? SIZE_MAX : k, &mem, &t, &x);
            steady = span_eq(t, thinking) && span_eq(x, text);
            if (!steady) talk_failed(n, name, "cut at byte %zu it reads otherwise than whole", k);
        }
        if (f && steady) {
            Buf b = { 0 };
            buf_puts(&b, "thinking ");
            json_put_str(&b, thinking.at, thinking.n);
            buf_puts(&b, ", text ");
            json_put_str(&b, text.at, text.n);
            if (!a || a->kind != JSON_BOOL || !a->flag) talk_open(n, name, (Span){ b.data, b.n });
            else if (says(c, thinking, text)) talk_ok(n);
            else talk_failed(n, name, "%s", b.data);
            buf_free(&b);
        }
        mem_free(&mem);
    }
    return true;
}
