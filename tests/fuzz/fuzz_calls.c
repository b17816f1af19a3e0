/* fuzz_calls.c - any bytes in any format are calls and text, the same however they are cut; and thinking and text. */
#include "talk/call.h"
#include "talk/reasoning.h"

#include <string.h>

static const char *const formats[] = { "hermes",        "qwen3_coder", "deepseek_v3", "deepseek_v31", "deepseek_v32",
                                       "deepseek_v4",   "kimi_k2",     "minimax_m2",  "glm45",        "glm47",
                                       "functiongemma", "gemma4",      "gpt_oss",     "mistral_args", "mistral_array",
                                       "llama3_json",   "pythonic" };
static const char *const thoughts[] = { "qwen3", "qwen3_thinking", "deepseek_r1", "minimax_append",
                                        "kimi",  "gpt_oss",        "gemma4",      "mistral" };

static void shown(const CallReader *r, Buf *out) {
    buf_put(out, r->text.data ? r->text.data : "", r->text.n);
    for (size_t i = 0; i < r->calls.n; i++) {
        const ToolCall *c = &r->calls.at[i];
        buf_printf(out, "\n%.*s %s %s ", (int)c->name.n, c->name.at, c->id ? c->id : "", c->error ? c->error : "");
        json_put_value(out, &c->arguments);
    }
}

/* step: bytes at a time; 0: all at once. */
static void calls(const ToolFormat *f, const char *s, size_t n, size_t step, Buf *out) {
    Mem mem = { 0 };
    CallReader r = call_reader(f, NULL, &mem);
    for (size_t i = 0; i < n; i += step ? step : n) call_put(&r, s + i, !step || n - i < step ? n - i : step);
    call_end(&r);
    shown(&r, out);
    call_free(&r);
    mem_free(&mem);
}

static void thinking(const ReasoningFormat *f, const char *s, size_t n, size_t step, Buf *out) {
    ReasoningReader r = reasoning_reader(f);
    for (size_t i = 0; i < n; i += step ? step : n) reasoning_put(&r, s + i, !step || n - i < step ? n - i : step);
    reasoning_end(&r);
    buf_put(out, r.thinking.data ? r.thinking.data : "", r.thinking.n);
    buf_putc(out, 0);
    buf_put(out, r.text.data ? r.text.data : "", r.text.n);
    reasoning_free(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 2) return 0;
    const ToolFormat *f = tool_format_named(formats[data[0] % COUNT(formats)]);
    const ReasoningFormat *t = reasoning_named(thoughts[data[0] % COUNT(thoughts)]);
    size_t step = 1 + data[1] % 7;
    const char *s = (const char *)data + 2;
    Buf whole = { 0 }, cut = { 0 };
    calls(f, s, n - 2, 0, &whole);
    calls(f, s, n - 2, step, &cut);
    CHECK(whole.n == cut.n && !memcmp(whole.data ? whole.data : "", cut.data ? cut.data : "", whole.n),
          "cut into %zu the calls are others", step);
    buf_clear(&whole);
    buf_clear(&cut);
    thinking(t, s, n - 2, 0, &whole);
    thinking(t, s, n - 2, step, &cut);
    CHECK(whole.n == cut.n && !memcmp(whole.data, cut.data, whole.n), "cut into %zu the thinking is another", step);
    buf_free(&whole);
    buf_free(&cut);
    return 0;
}
