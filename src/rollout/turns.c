/* turns.c - from a turn that ended to the next one: calls are read out of its text, answered, and written behind it.
 * Nothing here waits: tools that are built in answer at once. */
#include "rollout/turns.h"
#include "talk/reasoning.h"
#include "talk/turn.h"
#include "tool/tool.h"

#include <string.h>

struct TurnConf {
    Mem mem;
    TurnOptions o;
    Tools *tools;
    const ToolFormat *format;
    const ReasoningFormat *reasoning;
    const Tok *tok;
    TurnRule rule;
    int64_t vocab;
};

static Span turn_end(const TurnRule *r, Span text) { /* the text without what ends it */
    if (r->end.n && text.n >= r->end.n && !memcmp(text.at + text.n - r->end.n, r->end.at, r->end.n))
        return (Span){ text.at, text.n - r->end.n };
    for (size_t n = 3; !r->end.n && n <= text.n && n <= 64; n++)
        if (turn_special(span_from(text, text.n - n)) == n) return (Span){ text.at, text.n - n };
    return text;
}

/* ---- messages */
static Json text_json(Mem *mem, Span s) {
    return (Json){ .kind = JSON_STRING, .n = s.n, .str = mem_str(mem, s.at, s.n) };
}

static void set(Json *o, const char *key, Json value) {
    JsonMember *m = (JsonMember *)(uintptr_t)&o->members[o->n++];
    *m = (JsonMember){ key, strlen(key), value };
}

static Json object(Mem *mem, size_t most) {
    return (Json){ .kind = JSON_OBJECT, .members = MEM_ARRAY(mem, JsonMember, most) };
}

static Json call_message(Mem *mem, const ToolCall *c, Span id) {
    Json call = object(mem, 3), f = object(mem, 2);
    bool good = !c->error && c->arguments.kind == JSON_OBJECT;
    set(&f, "name", text_json(mem, c->name.n ? c->name : SPAN("unknown")));
    set(&f, "arguments", good ? json_copy(&c->arguments, mem) : (Json){ .kind = JSON_OBJECT });
    set(&call, "id", text_json(mem, id));
    set(&call, "type", text_json(mem, SPAN("function")));
    set(&call, "function", f);
    return call;
}

static Json tool_message(Mem *mem, const ToolCall *c, Span id, Span answer) {
    Json m = object(mem, 4);
    set(&m, "role", text_json(mem, SPAN("tool")));
    set(&m, "tool_call_id", text_json(mem, id));
    if (c->name.n) set(&m, "name", text_json(mem, c->name));
    set(&m, "content", text_json(mem, answer));
    return m;
}

static Json joined(Mem *mem, const Json *a, const Json *b) {
    Json all = { .kind = JSON_ARRAY, .n = a->n + b->n, .items = MEM_ARRAY(mem, Json, a->n + b->n + 1) };
    for (size_t i = 0; i < all.n; i++) all.items[i] = i < a->n ? a->items[i] : b->items[i - a->n];
    return all;
}

/* ---- a turn */
typedef struct {
    Mem mem;
    CallReader calls;
    ReasoningReader thoughts;
    Buf text, answer, suffix;
    TokIds ids;
} Turn;

static void turn_close(Turn *x) {
    call_free(&x->calls);
    reasoning_free(&x->thoughts);
    buf_free(&x->text);
    buf_free(&x->answer);
    buf_free(&x->suffix);
    vec_free(x->ids.at);
    mem_free(&x->mem);
}

static bool read_turn(const TurnConf *c, Turn *x, const Rollout *a) {
    Err err;
    const int32_t *ids = a->tokens + a->n_prompt + a->said;
    x->thoughts = reasoning_reader(c->reasoning);
    x->calls = call_reader(c->format, tools_schemas(c->tools), &x->mem);
    if (!tok_decode(c->tok, ids, (size_t)(a->n - a->n_prompt - a->said), false, &x->text, &err)) return false;
    Span said = turn_end(&c->rule, (Span){ x->text.data ? x->text.data : "", x->text.n });
    reasoning_put(&x->thoughts, said.at, said.n);
    reasoning_end(&x->thoughts);
    call_put(&x->calls, x->thoughts.text.data ? x->thoughts.text.data : "", x->thoughts.text.n);
    call_end(&x->calls);
    return x->calls.calls.n > 0;
}

/* The turn and what tools answer it, as messages; the answers are counted in a. */
static void answer_calls(const TurnConf *c, Turn *x, Rollout *a, Mem *mem, Json *turn, Json *added) {
    const Buf *thought = &x->thoughts.thinking, *text = &x->calls.text;
    size_t n = x->calls.calls.n;
    Json list = { .kind = JSON_ARRAY, .items = MEM_ARRAY(mem, Json, n) };
    *added = (Json){ .kind = JSON_ARRAY, .items = MEM_ARRAY(mem, Json, n) };
    for (size_t i = 0; i < n; i++) {
        const ToolCall *call = &x->calls.calls.at[i];
        const char *own = call->id ? call->id : mem_printf(mem, "call%05d", a->calls % 100000);
        buf_clear(&x->answer);
        bool ok = false;
        if (a->calls >= c->o.max_calls)
            buf_printf(&x->answer, "Error: no more than %d calls are answered", c->o.max_calls);
        else ok = tools_call(c->tools, call, c->o.max_reply, &x->answer);
        a->calls++, a->bad_calls += !ok;
        list.items[list.n++] = call_message(mem, call, span_of(own));
        added->items[added->n++] = tool_message(mem, call, span_of(own), (Span){ x->answer.data, x->answer.n });
    }
    *turn = object(mem, 4);
    set(turn, "role", text_json(mem, SPAN("assistant")));
    set(turn, "content", text_json(mem, (Span){ text->data ? text->data : "", text->n }));
    if (thought->n) set(turn, "reasoning_content", text_json(mem, (Span){ thought->data, thought->n }));
    set(turn, "tool_calls", list);
}

/* The ids of a suffix: behind the end token, which no token of it crosses. */
static bool suffix_ids(const Tok *tok, Span end, Span suffix, TokIds *out, Err *err) {
    Buf text = { 0 };
    size_t cut = end.n, before = 0;
    TokScratch *s = tok_scratch_open(tok);
    buf_put(&text, end.at, end.n);
    buf_put(&text, suffix.at, suffix.n);
    TokSeams seam = { &cut, cut ? 1 : 0, &before };
    out->n = 0;
    bool ok = tok_encode_seams(tok, s, text.data, text.n, TOK_SPECIAL, &seam, out, err);
    if (ok && before) memmove(out->at, out->at + before, (out->n - before) * sizeof *out->at), out->n -= before;
    tok_scratch_close(s);
    buf_free(&text);
    return ok;
}

/* What goes behind the turn; the end token of another message, where one was sampled, is taken back. */
static bool put_behind(const TurnConf *c, Turn *x, Rollout *a, const Json *messages, const Json *added, int most) {
    Err err;
    size_t removed;
    Span sampled = { x->text.data, x->text.n };
    if (!turn_suffix(&c->rule, messages, sampled, added, &x->suffix, &removed, &x->mem, &err)) return false;
    Span suffix = { x->suffix.data, x->suffix.n };
    if (!suffix_ids(c->tok, c->rule.end, suffix, &x->ids, &err)) return false;
    int back = removed ? 1 : 0, n = a->n - back;
    if (back) {
        Buf last = { 0 };
        bool whole = tok_decode(c->tok, a->tokens + n, 1, false, &last, &err) && last.n == removed;
        buf_free(&last);
        if (!whole) return false;
    }
    if (n + (int)x->ids.n + 1 > a->n_prompt + most) return a->finish = FINISH_LENGTH, false;
    for (size_t i = 0; i < x->ids.n; i++) {
        if (x->ids.at[i] < 0 || x->ids.at[i] >= c->vocab) return false;
        int at = n + (int)i;
        a->tokens[at] = x->ids.at[i];
        a->lp[at - a->n_prompt] = a->ent[at - a->n_prompt] = 0;
        if (a->mask) a->mask[at - a->n_prompt] = 0;
    }
    a->n = n + (int)x->ids.n;
    a->given += (int)x->ids.n;
    return true;
}

bool turns_next(const TurnConf *c, Turns *t, Rollout *a, const Prompt *p, const SampleOpts *opts, int max_answer) {
    Turn x = { 0 };
    Err err;
    Json turn, added;
    bool on = a->turns < c->o.max_turns && read_turn(c, &x, a);
    if (on && !t->messages.items) on = prompter_messages(p->row, &t->messages, &t->mem, &err);
    if (on) {
        answer_calls(c, &x, a, &t->mem, &turn, &added);
        Json one = { .kind = JSON_ARRAY, .n = 1, .items = &turn };
        t->messages = joined(&t->mem, &t->messages, &one);
        on = put_behind(c, &x, a, &t->messages, &added, max_answer);
    }
    if (on) {
        t->messages = joined(&t->mem, &t->messages, &added);
        a->said = a->n - a->n_prompt;
        t->opts = *opts;
        t->opts.max_tokens = max_answer - a->said;
        t->request = (Request){ .tokens = a->tokens,
                                .n = a->n,
                                .samples = 1,
                                .key = (uint64_t)p->index,
                                .opts = &t->opts,
                                .user = t,
                                .again = p->again,
                                .first = a->sample };
    }
    turn_close(&x);
    return on;
}

void turns_close(Turns *t) { mem_free(&t->mem); }

/* ---- once */
/* A short conversation rendered whole and encoded is its beginning's ids and those of the suffix. */
static bool check_ids(const TurnConf *c, Mem *mem, Err *err) {
    static const char talk_text[] =
        "[{\"role\":\"user\",\"content\":\"What?\"},{\"role\":\"assistant\",\"content\":\"\","
        "\"reasoning_content\":\"Hm.\",\"tool_calls\":[{\"id\":\"call00000\",\"type\":"
        "\"function\",\"function\":{\"name\":\"f\",\"arguments\":{\"a\":\"b\"}}}]}]",
                      added_text[] = "[{\"role\":\"tool\",\"tool_call_id\":\"call00000\",\"name\":\"f\",\"content\":"
                                     "\"1 2\"}]";
    Json talk, added;
    CHECK(json_parse(&talk, talk_text, sizeof talk_text - 1, mem, err)
              && json_parse(&added, added_text, sizeof added_text - 1, mem, err),
          "%s", err->msg);
    Buf suffix = { 0 }, text = { 0 };
    TokIds ids = { 0 }, whole = { 0 };
    size_t removed;
    const char *end = c->rule.end.n ? mem_str(mem, c->rule.end.at, c->rule.end.n) : "<|observation|>";
    TokScratch *s = tok_scratch_open(c->tok);
    bool ok = turn_suffix(&c->rule, &talk, span_of(end), &added, &suffix, &removed, mem, err)
              && suffix_ids(c->tok, c->rule.end, (Span){ suffix.data, suffix.n }, &ids, err);
    buf_put(&text, c->rule.end.at, c->rule.end.n);
    buf_put(&text, suffix.data, suffix.n);
    ok = ok && tok_encode(c->tok, s, text.data, text.n, TOK_SPECIAL, &whole, err);
    bool same = ok && whole.n >= ids.n && !memcmp(whole.at + whole.n - ids.n, ids.at, ids.n * sizeof *ids.at);
    if (ok && !same) err_set(err, "what stands behind a turn has other ids alone than in the whole");
    tok_scratch_close(s);
    vec_free(ids.at);
    vec_free(whole.at);
    buf_free(&suffix);
    buf_free(&text);
    return same;
}

TurnConf *turns_open(const TurnOptions *o, Err *err) {
    Tools *tools = tools_open(o->tools, o->n_tools, err);
    if (!tools) return NULL;
    Mem mem = { 0 };
    TurnConf *c = MEM_NEW(&mem, TurnConf);
    *c = (TurnConf){ .mem = mem, .o = *o, .tools = tools };
    return c;
}

const Json *turns_tools(const TurnConf *c) { return tools_schemas(c->tools); }
const char *turns_format(const TurnConf *c) { return tool_format_name(c->format); }

int turns_most(const TurnConf *c) { return c->o.max_turns; }

void turns_conf_close(TurnConf *c) {
    if (!c) return;
    tools_close(c->tools);
    Mem mem = c->mem;
    mem_free(&mem);
}

bool turns_bind(TurnConf *c, const Prompter *p, int64_t vocab, Err *err) {
    const Chat *chat = prompter_chat(p);
    const Json *told = prompter_tools(p);
    bool by_template = !strcmp(c->o.format, "auto");
    c->tok = prompter_tok(p), c->vocab = vocab;
    if (!chat) return err_set(err, "the model has no chat template, which says how tools are called");
    Span text;
    text.at = chat_text(chat, told, &text.n);
    c->format = by_template ? tool_format_of_template(text) : tool_format_named(c->o.format);
    c->reasoning = reasoning_of_template(text, SPAN(""));
    if (c->format)
        return turn_rule(&c->rule, chat, told, prompter_variables(p), &c->mem, err) && check_ids(c, &c->mem, err);
    Buf all = { 0 };
    tool_format_list(&all);
    err_set(err,
            by_template ? "the chat template writes no calls that are known; rollout.tool_format names one of %s"
                        : "rollout.tool_format is auto or one of %s",
            all.data);
    buf_free(&all);
    return false;
}
