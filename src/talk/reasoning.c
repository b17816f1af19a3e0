/* reasoning.c - thinking is divided from text where its end stands first; without an end all of it is thinking.  Its
 * beginning counts at the very start (a word about the tag later is text), and where the prompt has opened it already,
 * all is thinking from the start. */
#include "talk/reasoning.h"

#include <string.h>

typedef enum { AT_START, ALWAYS, ANYWHERE } Opens;

struct ReasoningFormat {
    const char *name, *open, *close;
    Opens opens;
    const char *until;  /* a call of a tool ends the thinking, too */
    const char *before; /* all is text, and this is put before it; NULL */
    bool channels;      /* gpt-oss */
};

#define THINK "<think>", "</think>"

/* clang-format off */
static const ReasoningFormat formats[] = {
    { "qwen3",          THINK, AT_START, "<tool_call>", NULL, false },
    { "qwen3_thinking", THINK, ALWAYS,   "<tool_call>", NULL, false },
    { "deepseek_r1",    THINK, ALWAYS,   NULL,          NULL, false },
    { "deepseek_v3",    THINK, AT_START, NULL,          NULL, false },
    { "glm45",          THINK, AT_START, "<tool_call>", NULL, false },
    { "kimi_k2",        THINK, AT_START, NULL,          NULL, false },
    { "minimax_m2",     THINK, ALWAYS,   NULL,          NULL, false },
    { "minimax_append", THINK, AT_START, NULL,          "<think>", false },
    { "step3",          THINK, ALWAYS,   NULL,          NULL, false },
    { "mimo",           THINK, AT_START, "<tool_call>", NULL, false },
    { "nemotron",       THINK, AT_START, "<tool_call>", NULL, false },
    { "mistral", "[THINK]", "[/THINK]", AT_START, NULL, NULL, false },
    { "gemma4", "<|channel>thought\n", "<channel|>", AT_START, NULL, NULL, false },
    { "kimi", "\u25C1think\u25B7", "\u25C1/think\u25B7", ANYWHERE, NULL, NULL, false },
    { "gpt_oss", "<|channel|>analysis<|message|>", "<|end|>", AT_START, NULL, NULL, true },
};

/* Templates: the first row whose mark is printed; 'open' where the prompt ends with the thinking opened. */
static const struct { const char *mark, *format, *opened; } templates[] = {
    { "<|channel|>analysis", "gpt_oss",     "gpt_oss" },
    { "<|channel>thought",   "gemma4",      "gemma4" },
    { "[THINK]",             "mistral",     "mistral" },
    { "\u25C1think\u25B7",   "kimi",        "kimi" },
    { "minimax:tool_call",   "minimax_m2",  "minimax_m2" },
    { "<arg_key>",           "glm45",       "qwen3_thinking" },
    { "tool_call_argument_begin", "kimi_k2", "deepseek_r1" },
    { "\u2581",              "deepseek_v3", "deepseek_r1" },
    { "</think>",            "qwen3",       "qwen3_thinking" },
};
/* clang-format on */

const ReasoningFormat *reasoning_named(const char *name) {
    for (size_t i = 0; i < COUNT(formats); i++)
        if (!strcmp(name, formats[i].name)) return &formats[i];
    return NULL;
}

void reasoning_list(Buf *out) {
    for (size_t i = 0; i < COUNT(formats); i++) buf_printf(out, "%s%s", i ? ", " : "", formats[i].name);
}

const ReasoningFormat *reasoning_of_template(Span text, Span prompt_end) {
    if (span_find(text, 0, SPAN("think")) == SIZE_MAX && span_find(text, 0, SPAN("analysis")) == SIZE_MAX
        && span_find(text, 0, SPAN("THINK")) == SIZE_MAX && span_find(text, 0, SPAN("thought")) == SIZE_MAX)
        return NULL;
    for (size_t i = 0; i < COUNT(templates); i++) {
        if (span_find(text, 0, span_of(templates[i].mark)) == SIZE_MAX) continue;
        const ReasoningFormat *f = reasoning_named(templates[i].format);
        size_t open = span_rfind(prompt_end, span_of(f->open)), close = span_rfind(prompt_end, span_of(f->close));
        bool opened = open != SIZE_MAX && (close == SIZE_MAX || close < open);
        return opened ? reasoning_named(templates[i].opened) : f;
    }
    return NULL;
}

enum { START, THINKING, TEXT, FIRST_TEXT, BETWEEN };

ReasoningReader reasoning_reader(const ReasoningFormat *f) { return (ReasoningReader){ .format = f }; }

void reasoning_free(ReasoningReader *r) {
    buf_free(&r->in);
    buf_free(&r->thinking);
    buf_free(&r->text);
}

static Span rest(const ReasoningReader *r) { return (Span){ r->in.data ? r->in.data + r->at : "", r->in.n - r->at }; }

/* How much of s's end may be the beginning of 'what'. */
static size_t held(Span s, const char *what) {
    size_t n = strlen(what) - 1;
    if (n > s.n) n = s.n;
    while (n && memcmp(s.at + s.n - n, what, n)) n--;
    return n;
}

static bool take(ReasoningReader *r, Buf *to, size_t n, size_t skip, int state) {
    buf_put(to, rest(r).at, n);
    r->at += n + skip;
    bool moved = n || skip || state != r->state;
    r->state = state;
    return moved;
}

static bool start(ReasoningReader *r) {
    const ReasoningFormat *f = r->format;
    Span s = rest(r);
    size_t n = strlen(f->open);
    if (f->before) {
        buf_puts(&r->text, f->before);
        return take(r, &r->text, 0, 0, TEXT);
    }
    if (f->opens == ANYWHERE) {
        if (span_starts(s, span_of(f->open))) return take(r, &r->thinking, 0, n, THINKING);
        if (span_find(s, 0, span_of(f->open)) != SIZE_MAX) return take(r, &r->thinking, 0, 0, THINKING);
        return r->finished && take(r, &r->text, s.n, 0, TEXT);
    }
    if (span_starts(s, span_of(f->open))) return take(r, &r->thinking, 0, n, THINKING);
    if (!r->finished && s.n < n && !memcmp(s.at, f->open, s.n)) return false;
    return take(r, &r->text, 0, 0, f->opens == ALWAYS ? THINKING : TEXT);
}

static bool thinking(ReasoningReader *r) {
    const ReasoningFormat *f = r->format;
    Span s = rest(r);
    size_t end = span_find(s, 0, span_of(f->close)), call = f->until ? span_find(s, 0, span_of(f->until)) : SIZE_MAX;
    if (call < end) return take(r, &r->thinking, call, 0, TEXT);
    if (end != SIZE_MAX) return take(r, &r->thinking, end, strlen(f->close), f->channels ? BETWEEN : TEXT);
    size_t keep = r->finished ? 0 : held(s, f->close), more = r->finished || !f->until ? 0 : held(s, f->until);
    return take(r, &r->thinking, s.n - (keep > more ? keep : more), 0, THINKING);
}

/* gpt-oss.  Text before the first of its marks is kept if there is one (a reply without any is no message); behind the
 * thinking comes the header of another message, and the final one's body is the text, whatever it holds. */
static bool first_text(ReasoningReader *r) {
    Span s = rest(r);
    size_t think = span_find(s, 0, span_of(r->format->open)), end = span_find(s, 0, SPAN("<|end|>"));
    size_t other = span_find(s, 0, SPAN("<|message|>"));
    if (think < end && think < other) return take(r, &r->text, think, strlen(r->format->open), THINKING);
    if (end < other) return take(r, &r->text, end, 7, BETWEEN);
    if (other == SIZE_MAX) return r->finished && take(r, &r->thinking, 0, s.n, FIRST_TEXT);
    Span before = { s.at, other };
    size_t head = span_find(before, 0, SPAN("<|start|>")), channel = span_find(before, 0, SPAN("<|channel|>"));
    if (channel < head) head = channel;
    return take(r, &r->text, head < other ? head : other, 0, BETWEEN);
}

static bool between(ReasoningReader *r) {
    Span s = rest(r);
    size_t m = span_find(s, 0, SPAN("<|message|>"));
    if (m == SIZE_MAX) return r->finished && take(r, &r->text, 0, s.n, BETWEEN);
    Span head = { s.at, m };
    if (span_find(head, 0, SPAN("analysis")) != SIZE_MAX && span_find(head, 0, SPAN("to=")) == SIZE_MAX)
        return take(r, &r->thinking, 0, m + 11, THINKING);
    bool call = span_find(head, 0, SPAN("to=")) != SIZE_MAX; /* its header is the tools' to read */
    return take(r, &r->text, call ? m + 11 : 0, call ? 0 : m + 11, TEXT);
}

static bool step(ReasoningReader *r) {
    if (r->at == r->in.n && !(r->format->before && r->state == START && r->finished)) return false;
    switch (r->state) {
    case START: return r->format->channels ? take(r, &r->text, 0, 0, FIRST_TEXT) : start(r);
    case THINKING: return thinking(r);
    case FIRST_TEXT: return first_text(r);
    case BETWEEN: return between(r);
    default: return take(r, &r->text, rest(r).n, 0, TEXT);
    }
}

void reasoning_put(ReasoningReader *r, const char *text, size_t n) {
    if (!r->format) {
        buf_put(&r->text, text, n);
        return;
    }
    buf_put(&r->in, text, n);
    while (step(r)) {}
}

void reasoning_end(ReasoningReader *r) {
    r->finished = true;
    while (r->format && step(r)) {}
}
