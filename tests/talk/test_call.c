/* test_call.c - calls of tools beyond the engines' cases: types by the schema, tags inside of strings, what is broken
 * and why, which template writes which format, and texts that are long or nested. */
#include "talk/call.h"
#include "talk/reasoning.h"
#include "test.h"

static const char tools_text[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":\"object\",\"properties\":{"
    "\"s\":{\"type\":\"string\"},\"i\":{\"type\":\"integer\"},\"b\":{\"type\":\"boolean\"},\"o\":{\"type\":\"object\"},"
    "\"u\":{\"type\":[\"string\",\"null\"]},\"a\":{\"anyOf\":[{\"type\":\"integer\"}]}},\"required\":[\"s\"]}}},"
    "{\"name\":\"bare\",\"parameters\":{}}]";

static Mem mem;
static Json tools;

/* NAME:ARGUMENTS or !WHY for each call, then |TEXT. */
static char *read_all(const char *format, const char *text, size_t step) {
    CallReader r = call_reader(tool_format_named(format), &tools, &mem);
    Buf b = { 0 };
    for (size_t i = 0, n = strlen(text); i < n; i += step) call_put(&r, text + i, n - i < step ? n - i : step);
    call_end(&r);
    for (size_t i = 0; i < r.calls.n; i++) {
        const ToolCall *c = &r.calls.at[i];
        if (c->error) buf_printf(&b, "!%s ", c->error);
        else {
            buf_printf(&b, "%.*s:", (int)c->name.n, c->name.at);
            json_put_value(&b, &c->arguments);
            buf_putc(&b, ' ');
        }
    }
    buf_putc(&b, '|');
    buf_put(&b, r.text.data ? r.text.data : "", r.text.n);
    char *s = mem_str(&mem, b.data, b.n);
    buf_free(&b);
    call_free(&r);
    return s;
}

/* clang-format off */
static const struct { const char *format, *text, *want; } cases[] = {
    { "hermes", "A <tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"x</tool_call>y\"}}</tool_call> B",
      "f:{\"s\":\"x</tool_call>y\"} |A " },
    { "hermes", "<tool_call>{\"name\": \"f\"}</tool_call>", "f:{} |" },
    { "hermes", "<tool_call>[{\"name\": \"f\"}, {\"name\": \"g\", \"parameters\": {\"x\": 1}}]</tool_call>",
      "f:{} g:{\"x\":1} |" },
    { "hermes", "<tool_call></tool_call>", "!the call is empty |" },
    { "hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": 1,}}</tool_call>",
      "!the call is no JSON: JSON line 1 column 36: a key in quotes is expected |" },
    { "hermes", "<tool_call>{\"arguments\": {}}</tool_call>",
      "!a call is {\"name\": ..., \"arguments\": {...}}, and this has no \"name\" |" },
    { "hermes", "<tool_call>\"x</tool_call><tool_call>{\"name\": \"f\"}</tool_call>",   /* a quote that never closes */
      "!the call is no JSON: JSON line 1 column 3: the text ends inside a string f:{} |" },
    { "hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"\\ud800\"}}</tool_call>",
      "f:{\"s\":\"\xEF\xBF\xBD\"} |" },
    { "qwen3_coder", "<tool_call><function=f><parameter=s>null</parameter><parameter=u>null</parameter>"
      "<parameter=i> 7 </parameter><parameter=b>TRUE</parameter><parameter=a>8</parameter><parameter=o>{}</parameter>"
      "</function></tool_call>", "f:{\"s\":\"null\",\"u\":null,\"i\":7,\"b\":true,\"a\":8,\"o\":{}} |" },
    { "qwen3_coder", "<tool_call><function=f><parameter=s>a<parameter=i>1</parameter></function></tool_call>",
      "f:{\"s\":\"a\",\"i\":1} |" },
    { "qwen3_coder", "<tool_call>{\"name\": \"f\"}</tool_call>",
      "!there is no call between <tool_call> and </tool_call> |" },
    { "qwen3_coder", "<tool_call><function=f><parameter=s>1</parameter><parameter=s>2</parameter></function>",
      "f:{\"s\":\"2\"} |" },
    { "minimax_m2", "<minimax:tool_call><invoke name=\"f\"><parameter s>1</parameter></invoke>", "f:{} |" },
    { "deepseek_v32",
      "<\uFF5CDSML\uFF5Cfunction_calls><\uFF5CDSML\uFF5Cinvoke name=\"f\">{\"s\": 1}</\uFF5CDSML\uFF5Cinvoke>",
      "f:{\"s\":1} |" },
    { "glm45", "<tool_call>f\n<arg_key>s</arg_key><arg_value>5</arg_value><arg_key>x</arg_key><arg_value>5</arg_value>"
      "</tool_call>", "f:{\"s\":\"5\",\"x\":5} |" },
    { "gemma4", "<|tool_call>call:f{o:{k:[1,{z:true}],t:<|\"|>,}<|\"|>},s:q}<tool_call|>",
      "f:{\"o\":{\"k\":[1,{\"z\":true}],\"t\":\",}\"},\"s\":\"q\"} |" },
    { "gemma4", "<|tool_call>call:f{s:<|\"|>a}<tool_call|>", "!the arguments cannot be read at byte 14 |" },
    { "gpt_oss", " to=functions.f<|channel|>commentary json<|message|>{\"s\":\"x\"}<|call|>", "f:{\"s\":\"x\"} |" },
    { "gpt_oss", "a<|start|>b<|start|>assistant to=functions.f<|message|>{<|call|>c",
      "!the arguments are no JSON: JSON line 1 column 2: a key in quotes is expected |a<|start|>bc" },
    { "mistral_args", "[TOOL_CALLS]f[CALL_ID]abc[ARGS]{\"s\":1}[TOOL_CALLS]g{}", "f:{\"s\":1} g:{} |" },
    { "mistral_array", "[TOOL_CALLS][{\"name\":\"f\"}] [TOOL_CALLS][{\"name\":\"g\"}]", "f:{} |" },
    { "llama3_json", "{\"a\": 1}\n{\"b\": 2}", "|{\"a\": 1}\n{\"b\": 2}" },
    { "llama3_json", "{1, 2} is a set", "|{1, 2} is a set" },
    { "llama3_json", "{\"name\": \"f\", \"parameters\": {}}<|python_tag|>{\"name\": \"g\"}", "f:{} g:{} |" },
    { "pythonic", "[f(s='\\x41\\u00e9\\'', i=-1.5, o={'k': (1, None)}), g()]",
      "f:{\"s\":\"A\u00e9'\",\"i\":-1.5,\"o\":{\"k\":[1,null]}} g:{} |" },
    { "pythonic", "[f(1)]", "!calls are a list of Python calls with keywords: [f(a=1), g(b='x')] |[f(1)]" },
    { "pythonic", "I say <|tool_call_start|>[f(s=\"x\")]<|tool_call_end|>", "f:{\"s\":\"x\"} |I say " },
    { "kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>0<|tool_call_argument_begin|>{}<|tool_call_end|>",
      "!a call begins with functions.NAME:NUMBER |" },
};
/* clang-format on */

static const struct {
    const char *file, *calls, *thinks;
} published[] = {
    { "GLM-4.6", "glm45", "glm45" },
    { "HuggingFaceTB-SmolLM3-3B", "", "qwen3" },
    { "Kimi-K2-Instruct", "kimi_k2", "" },
    { "LFM2-8B-A1B", "pythonic", "" },
    { "MiMo-VL", "hermes", "" },
    { "NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", "hermes", "" },
    { "Qwen-QwQ-32B", "hermes", "qwen3" },
    { "Qwen-Qwen2.5-7B-Instruct", "hermes", "" },
    { "Qwen-Qwen3-0.6B", "hermes", "qwen3" },
    { "Qwen3-Coder", "qwen3_coder", "" },
    { "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", "deepseek_v3", "deepseek_v3" },
    { "deepseek-ai-DeepSeek-V3.1", "deepseek_v31", "deepseek_v3" },
    { "google-gemma-2-2b-it", "", "" },
    { "llama-cpp-deepseek-r1", "deepseek_v3", "deepseek_v3" },
    { "meta-llama-Llama-3.1-8B-Instruct", "llama3_json", "" },
    { "microsoft-Phi-3.5-mini-instruct", "", "" },
    { "mistralai-Mistral-Nemo-Instruct-2407", "mistral_array", "" },
};

static void problem(const char *call, const char *want) {
    CallReader r = call_reader(tool_format_named("hermes"), &tools, &mem);
    char *s = mem_printf(&mem, "<tool_call>%s</tool_call>", call);
    call_put(&r, s, strlen(s));
    call_end(&r);
    const char *got = r.calls.n ? call_problem(&r.calls.at[0], &tools, &mem) : "no call";
    EXPECT_STR(got ? got : "none", want);
    call_free(&r);
}

/* A reply of many calls that comes a byte at a time, and brackets without end. */
static void large(void) {
    Buf b = { 0 };
    for (int i = 0; i < 2000; i++)
        buf_puts(&b, "<tool_call>{\"name\": \"f\", \"arguments\": {\"s\": \"x\"}}</tool_call>\n");
    CallReader r = call_reader(tool_format_named("hermes"), &tools, &mem);
    for (size_t i = 0; i < b.n; i++) call_put(&r, b.data + i, 1);
    call_end(&r);
    EXPECT(r.calls.n == 2000, "%zu calls", r.calls.n);
    call_free(&r);
    static const char *const deep[] = { "llama3_json", "mistral_array", "gemma4", "pythonic" };
    static const char *const open[] = { "{\"name\": [", "[TOOL_CALLS]", "<|tool_call>call:f{a:", "[f(a=" };
    for (size_t k = 0; k < COUNT(deep); k++) {
        buf_clear(&b);
        buf_puts(&b, open[k]);
        for (int i = 0; i < 100000; i++) buf_putc(&b, '[');
        for (int i = 0; i < 100000; i++) buf_putc(&b, ']');
        buf_puts(&b, k == 2 ? "}<tool_call|>" : k == 3 ? ")]" : "");
        CallReader d = call_reader(tool_format_named(deep[k]), NULL, &mem);
        call_put(&d, b.data, b.n);
        call_end(&d);
        EXPECT(!d.calls.n || d.calls.at[0].error, "%s: 100,000 brackets are a call", deep[k]);
        call_free(&d);
    }
    buf_free(&b);
}

static void template(const char *dir, const char *file, const char *want, const char *thinks) {
    Buf text = { 0 };
    char *path = mem_printf(&mem, "%s/templates/%s.jinja", dir, file);
    FILE *f = fopen(path, "rb");
    for (int c; f && (c = getc(f)) != EOF;) buf_putc(&text, (char)c);
    if (f) fclose(f);
    else {
        SKIP("%s", path);
        return;
    }
    const ToolFormat *t = tool_format_of_template((Span){ text.data, text.n });
    EXPECT(t ? !strcmp(tool_format_name(t), want) : !*want, "%s: %s, want %s", file, t ? tool_format_name(t) : "",
           want);
    const ReasoningFormat *r = reasoning_of_template((Span){ text.data, text.n }, SPAN(""));
    EXPECT(r == (*thinks ? reasoning_named(thinks) : NULL), "%s: it thinks otherwise than %s", file, thinks);
    buf_free(&text);
}

int main(int argc, char **argv) {
    Err err;
    EXPECT(json_parse(&tools, tools_text, strlen(tools_text), &mem, &err), "%s", err.msg);
    for (size_t i = 0; i < COUNT(cases); i++) {
        char *whole = read_all(cases[i].format, cases[i].text, 1 << 20);
        EXPECT_STR(whole, cases[i].want);
        for (size_t step = 1; step < 4; step++) EXPECT_STR(read_all(cases[i].format, cases[i].text, step), whole);
    }
    problem("{\"name\": \"f\", \"arguments\": {\"s\": 1}}", "none");
    problem("{\"name\": \"bare\", \"arguments\": {}}", "none");
    problem("{\"name\": \"f\", \"arguments\": {}}", "the argument \"s\" is missing");
    problem("{\"name\": \"f\", \"arguments\": [1]}", "the arguments must be an object, not an array");
    problem("{\"name\": \"h\", \"arguments\": {}}", "there is no tool 'h'; there are: f, bare");
    large();
    EXPECT(!tool_format_of_template(SPAN("{{ messages }}")), "a template without tools writes calls");
    EXPECT(!reasoning_of_template(SPAN("{{ messages }}"), SPAN("<think>")), "a template without thinking thinks");
    EXPECT(reasoning_of_template(SPAN("..</think>.."), SPAN("x<think>\n")) == reasoning_named("qwen3_thinking"),
           "a prompt that opens the thinking");
    bool extra = argc > 2 && !strcmp(argv[1], "--extra");
    for (size_t i = 0; extra && i < COUNT(published); i++)
        template(argv[2], published[i].file, published[i].calls, published[i].thinks);
    if (!extra) SKIP("published templates: --extra DIR has them");
    mem_free(&mem);
    return test_end();
}
