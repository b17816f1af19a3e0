/* test_chat.c - where a model folder's template and its special tokens come from. */
#include "base/file.h"
#include "text/chat.h"
#include "test.h"

#include <stdlib.h>
#include <time.h>
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

/* A template that prints the time is known, and prints the one that it was given, in any zone; variables come first. */
static void clock_of_its_own(const char *template, bool tells, const char *extra, const char *want) {
    Mem mem = { 0 };
    Err err;
    Json x, m = { .kind = JSON_ARRAY };
    put("chat_template.jinja", template);
    EXPECT(json_parse(&x, extra, strlen(extra), &mem, &err), "%s", err.msg);
    for (int zone = 0; zone < 2; zone++) {
        setenv("TZ", zone ? "WEST23" : "EAST-13", 1);
        tzset();
        Buf out = { 0 };
        Chat *c = chat_open(dir, NULL, &mem, &err);
        EXPECT(c && chat_tells_time(c) == tells, "%s tells the time: %d", template, !tells);
        if (c) chat_clock(c, "2026-11-15T10:20:30");
        EXPECT(c && chat_render(c, &m, NULL, true, &x, &out, &err) && !strcmp(out.data, want),
               "%s:\n got  %s\n want %s", template, out.data ? out.data : err.msg, want);
        buf_free(&out);
    }
    Buf now = { 0 };
    int year, end = 0;
    jinja_clock(&now);
    EXPECT(sscanf(now.data, "20%2d-%*2d-%*2dT%*2d:%*2d:%*2d%n", &year, &end) == 1 && now.n == 19 && end == 19, "%s",
           now.data);
    buf_free(&now);
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
    put("tokenizer_config.json", "{}");
    clock_of_its_own("{{ strftime_now('%d %b %Y %H:%M:%S.%f %A %s') }}", true, "{}",
                     "15 Nov 2026 10:20:30.000000 Sunday 1794738030");
    clock_of_its_own("{% macro m() %}{{ strftime_now('%d') }}{% endmacro %}{{ m() }}", true,
                     "{\"now\":\"2020-02-03T04:05:06\"}", "03");
    clock_of_its_own("strftime_now {{ 'strftime_now' }} {{ messages.strftime_now is defined }}", false, "{}",
                     "strftime_now strftime_now False");
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
