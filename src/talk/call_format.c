/* call_format.c - the table of formats, and which one a template writes. */
#include "talk/call_in.h"

#include <string.h>

#define DSML     "<\uFF5CDSML\uFF5C"
#define DSML_END "</\uFF5CDSML\uFF5C"
#define DS(name) "<\uFF5C" name "\uFF5C>"

/* clang-format off */
/* From the more particular to the more general: a template is taken by the first row whose marks it has. */
static const ToolFormat formats[] = {
    { .name = "deepseek_v32", .step = step_xml, .open = { DSML "function_calls>" }, .close = DSML_END "function_calls>",
      .call = DSML "invoke name=\"", .name_end = "\"", .call_end = DSML_END "invoke>",
      .key = DSML "parameter name=\"", .key_end = "\"", .value_end = DSML_END "parameter>",
      .marks = { "DSML", "function_calls" } },
    { .name = "deepseek_v4", .step = step_xml, .open = { DSML "tool_calls>" }, .close = DSML_END "tool_calls>",
      .call = DSML "invoke name=\"", .name_end = "\"", .call_end = DSML_END "invoke>",
      .key = DSML "parameter name=\"", .key_end = "\"", .value_end = DSML_END "parameter>",
      .marks = { "DSML" } },
    { .name = "deepseek_v3", .step = step_deepseek, .open = { DS("tool\u2581calls\u2581begin") },
      .close = DS("tool\u2581calls\u2581end"), .call = DS("tool\u2581call\u2581begin"), .name_end = DS("tool\u2581sep"),
      .call_end = DS("tool\u2581call\u2581end"), .key = "```json", .marks = { "tool\u2581sep", "```json" } },
    { .name = "deepseek_v31", .step = step_deepseek, .open = { DS("tool\u2581calls\u2581begin") },
      .close = DS("tool\u2581calls\u2581end"), .call = DS("tool\u2581call\u2581begin"), .name_end = DS("tool\u2581sep"),
      .call_end = DS("tool\u2581call\u2581end"), .marks = { "tool\u2581sep" } },
    { .name = "kimi_k2", .step = step_kimi, .open = { "<|tool_calls_section_begin|>" },
      .close = "<|tool_calls_section_end|>", .call = "<|tool_call_begin|>", .name_end = "<|tool_call_argument_begin|>",
      .call_end = "<|tool_call_end|>", .marks = { "<|tool_call_argument_begin|>" } },
    { .name = "minimax_m2", .step = step_xml, .open = { "<minimax:tool_call>" }, .close = "</minimax:tool_call>",
      .call = "<invoke name=\"", .name_end = "\"", .call_end = "</invoke>", .key = "<parameter name=\"",
      .key_end = "\"", .value_end = "</parameter>", .open_is_text = true, .marks = { "minimax:tool_call" } },
    { .name = "qwen3_coder", .step = step_xml, .open = { "<tool_call>" }, .close = "</tool_call>",
      .call = "<function=", .name_end = ">", .call_end = "</function>", .key = "<parameter=", .key_end = ">",
      .value_end = "</parameter>", .line_values = true, .open_is_text = true,
      .marks = { "<tool_call>", "<function=" } },
    { .name = "glm47", .step = step_glm, .open = { "<tool_call>" }, .close = "</tool_call>", .untyped = UNKNOWN_JSON,
      .open_is_text = true, .marks = { "</arg_key><arg_value>" } },
    { .name = "glm45", .step = step_glm, .open = { "<tool_call>" }, .close = "</tool_call>", .untyped = UNKNOWN_JSON,
      .open_is_text = true, .marks = { "<arg_key>" } },
    { .name = "functiongemma", .step = step_gemma, .open = { "<start_function_call>" }, .close = "<end_function_call>",
      .key = "<escape>", .untyped = UNKNOWN_JSON, .line_values = true, .open_is_text = true,
      .marks = { "<start_function_call>" } },
    { .name = "gemma4", .step = step_gemma, .open = { "<|tool_call>" }, .close = "<tool_call|>", .key = "<|\"|>",
      .untyped = UNKNOWN_JSON, .open_is_text = true, .marks = { "<|tool_call>" } },
    { .name = "gpt_oss", .step = step_harmony, .open = { "<|start|>", "<|channel|>" }, .at_start = true,
      .open_is_text = true, .rest_is_text = true, .marks = { "<|channel|>", "to=functions." } },
    { .name = "mistral_args", .step = step_mistral, .open = { "[TOOL_CALLS]" }, .marks = { "[TOOL_CALLS]", "[ARGS]" } },
    { .name = "mistral_array", .step = step_mistral, .open = { "[TOOL_CALLS]" }, .marks = { "[TOOL_CALLS]" } },
    { .name = "pythonic", .step = step_pythonic, .open = { "<|tool_call_start|>", "<|python_start|>" },
      .close = "<|tool_call_end|>", .call_end = "<|python_end|>", .at_start = true, .open_is_text = true,
      .marks = { "<|tool_list_start|>" } },
    { .name = "llama3_json", .step = step_llama, .open = { "<|python_tag|>" }, .at_start = true, .open_is_text = true,
      .marks = { "\"parameters\": " , "python_tag" } },
    { .name = "hermes", .step = step_tagged_json, .open = { "<tool_call>" }, .close = "</tool_call>",
      .open_is_text = true, .marks = { "<tool_call>" } },
    { .name = "pythonic", .step = step_pythonic, .open = { "<|tool_call_start|>", "<|python_start|>" },
      .close = "<|tool_call_end|>", .call_end = "<|python_end|>", .at_start = true, .open_is_text = true,
      .marks = { "<|python_start|>" } },
};
/* clang-format on */

const ToolFormat *tool_format_named(const char *name) {
    for (size_t i = 0; i < COUNT(formats); i++)
        if (!strcmp(name, formats[i].name)) return &formats[i];
    return NULL;
}

const ToolFormat *tool_format_of_template(Span text) {
    for (size_t i = 0; i < COUNT(formats); i++) {
        bool all = true;
        for (int k = 0; k < 3 && formats[i].marks[k]; k++)
            all &= span_find(text, 0, span_of(formats[i].marks[k])) != SIZE_MAX;
        if (all) return &formats[i];
    }
    return NULL;
}

const char *tool_format_name(const ToolFormat *f) { return f->name; }

void tool_format_list(Buf *out) {
    for (size_t i = 0; i < COUNT(formats); i++)
        if (tool_format_named(formats[i].name) == &formats[i]) buf_printf(out, "%s%s", i ? ", " : "", formats[i].name);
}
