/* test_chat.c - where a model folder's template and its special tokens come from. */
#include "base/file.h"
#include "text/chat.h"
#include "test.h"

#include <stdlib.h>
#include <unistd.h>

static char dir[] = "/tmp/hone_chat_XXXXXX";

static void put(const char *name, const char *text) {
    Err err;
    Buf path = { 0 };
    buf_printf(&path, "%s/%s", dir, name);
    EXPECT(file_write(path.data, text, strlen(text), &err), "%s", err.msg);
    buf_free(&path);
}

static void drop(const char *name) {
    Buf path = { 0 };
    buf_printf(&path, "%s/%s", dir, name);
    unlink(path.data);
    buf_free(&path);
}

/* Renders one user message, with a tool or without; an error comes back as its message. */
static void expect(const char *what, bool tools, const char *extra, const char *want) {
    static const char messages[] = "[{\"role\":\"user\",\"content\":\"hi\"}]";
    Mem mem = { 0 };
    Err err;
    Json m, t, x;
    Buf out = { 0 };
    EXPECT(json_parse(&m, messages, strlen(messages), &mem, &err) && json_parse(&t, "[1]", 3, &mem, &err), "%s",
           err.msg);
    EXPECT(json_parse(&x, extra, strlen(extra), &mem, &err), "%s", err.msg);
    Chat *c = chat_open(dir, NULL, &mem, &err);
    bool ok = c && chat_render(c, &m, tools ? &t : NULL, true, &x, &out, &err);
    const char *got = ok ? (out.data ? out.data : "") : err.msg;
    EXPECT(strstr(got, want) && (!ok || !strcmp(got, want)), "%s:\n got  %s\n want %s", what, got, want);
    buf_free(&out);
    mem_free(&mem);
}

int main(void) {
    if (!mkdtemp(dir)) return printf("cannot make %s\n", dir), 1;
    expect("empty folder", false, "{}", "has no chat template");
    put("tokenizer_config.json", "{\"bos_token\":\"<s>\"}");
    expect("no template", false, "{}", "has no chat template");
    put("tokenizer_config.json", "{\"bos_token\":{\"content\":\"<s>\"},\"eos_token\":\"</s>\",\"pad_token\":null,"
                                 "\"chat_template\":\"{{ bos_token }}{{ messages[0].content }}{{ eos_token }}{{ "
                                 "pad_token }}{{ tools }}{{ documents }}"
                                 "{{ add_generation_prompt }}{{ enable_thinking }}\"}");
    expect("string", false, "{}", "<s>hi</s>NoneNoneTrue");
    expect("extra variables come first", true, "{\"bos_token\":\"B\",\"enable_thinking\":false,\"messages\":1}",
           "Bhi</s>[1]NoneTrueFalse");
    put("special_tokens_map.json", "{\"pad_token\":{\"content\":\"P\"},\"bos_token\":\"no\"}");
    expect("special_tokens_map.json fills in", false, "{}", "<s>hi</s>PNoneNoneTrue");
    put("tokenizer_config.json", "{\"chat_template\":[{\"name\":\"default\",\"template\":\"plain\"},{\"name\":\"tool_"
                                 "use\",\"template\":\"tools\"},{\"name\":\"rag\",\"template\":\"rag\"}]}");
    expect("named, default", false, "{}", "plain");
    expect("named, tools", true, "{}", "tools");
    put("tokenizer_config.json", "{\"chat_template\":[{\"name\":\"rag\",\"template\":\"rag\"}]}");
    expect("named, none fits", false, "{}", "no template named default");
    put("tokenizer_config.json", "{\"chat_template\":7}");
    expect("wrong type", false, "{}", "must be a string or an array");
    put("chat_template.jinja", "from the file {{ messages | length }}\n");
    expect("the file wins", false, "{}", "from the file 1");
    put("chat_template.jinja", "line one\n{% if %}");
    expect("does not compile", false, "{}", "(template line 2)");
    put("chat_template.jinja", "{{ raise_exception('no') }}");
    expect("raises", false, "{}", "TemplateError: no (template line 1)");
    put("tokenizer_config.json", "{");
    expect("broken config", false, "{}", "tokenizer_config.json: JSON line 1");
    drop("chat_template.jinja");
    drop("tokenizer_config.json");
    drop("special_tokens_map.json");
    rmdir(dir);
    return test_end();
}
