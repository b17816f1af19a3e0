/* test_turn.c - the text behind a sampled turn, by templates written for it: one that only appends, one whose turns end
 * with the next one's first token, one that merges, one that loses what tools say, one that wants roles to alternate,
 * one that closes a finished conversation, one that rewrites. */
#include "talk/turn.h"
#include "test.h"

#include <unistd.h>

#define TURN "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
#define ASK  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

/* clang-format off */
static const struct { const char *name, *text, *end, *boundary; } templates[] = {
    { "appends", "{% for m in messages %}" TURN "{% endfor %}" ASK, "<|im_end|>", "\n" },
    { "next_ends", "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}"
                   "{% if add_generation_prompt %}<|assistant|>{% endif %}", "", "" },
    { "merges", "{% for m in messages %}{% if loop.first or m.role != messages[loop.index0 - 1].role %}<|{{ m.role }}|>"
                "{% endif %}{{ m.content }}{% if m.role == 'assistant' %}</s>{% endif %}{% endfor %}", "</s>", "" },
    { "loses", "{% for m in messages %}{% if m.role != 'tool' %}" TURN "{% endif %}{% endfor %}" ASK,
      "<|im_end|>", "\n" },
    { "alternates", "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
                    "{{ raise_exception('roles must alternate') }}{% endif %}" TURN "{% endfor %}" ASK,
      "<|im_end|>", "\n" },
    { "closes", "{% for m in messages %}" TURN "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
                "{% else %}{{ eos_token }}{% endif %}", "<|im_end|>", "\n" },
    { "rewrites", "{{ messages | length }}{% for m in messages %}" TURN "{% endfor %}" ASK, "<|im_end|>", "\n" },
    { "pastes", "{% for m in messages %}{% if m.tool_calls %}<|im_start|>{{ m.tool_calls[0].function.arguments + '' }}"
                "<|im_end|>\n{% else %}" TURN "{% endif %}{% endfor %}" ASK, "<|im_end|>", "\n" },
};

/* suffix NULL: refused, and the message has 'removed' in it. */
static const struct { const char *name, *sampled, *added, *suffix, *removed; } cases[] = {
    { "appends", "hi<|im_end|>", "[{\"role\":\"tool\",\"content\":\"51\"}]",
      "\n<|im_start|>tool\n51<|im_end|>\n<|im_start|>assistant\n", "" },
    { "appends", "hi<|im_end|>", "[{\"role\":\"tool\",\"content\":\"\"},"
      "{\"role\":\"user\",\"content\":\"<|im_end|>\"}]",
      "\n<|im_start|>tool\n<|im_end|>\n<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n", "" },
    { "appends", "hi", "[{\"role\":\"user\",\"content\":\"x\"}]", NULL, "cut by length" },
    { "appends", "hi<|im_end|>", "[]", NULL, "nothing new" },
    { "appends", "hi<|im_end|>", "[{\"role\":\"assistant\",\"content\":\"x\"}]", NULL, "not context" },
    { "next_ends", "hi<|tool|>", "[{\"role\":\"tool\",\"content\":\"51\"}]", "<|tool|>51<|assistant|>", "<|tool|>" },
    { "next_ends", "hi<|user|>", "[{\"role\":\"tool\",\"content\":\"51\"}]", "<|tool|>51<|assistant|>", "<|user|>" },
    { "next_ends", "hi", "[{\"role\":\"tool\",\"content\":\"51\"}]", NULL, "cut by length" },
    { "merges", "hi</s>", "[{\"role\":\"user\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\"}]", NULL,
      "no header" },
    { "loses", "hi<|im_end|>", "[{\"role\":\"tool\",\"content\":\"51\"}]", NULL, "leaves out what the tool says" },
    { "loses", "hi<|im_end|>", "[{\"role\":\"user\",\"content\":\"x\"}]",
      "\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n", "" },
    { "alternates", "hi<|im_end|>", "[{\"role\":\"user\",\"content\":\"x\"}]",
      "\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n", "" },
    { "alternates", "hi<|im_end|>", "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"user\",\"content\":\"y\"}]",
      NULL, "roles must alternate" },
    { "closes", "hi<|im_end|>", "[{\"role\":\"user\",\"content\":\"x\"}]",
      "\n<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n", "" },
    { "rewrites", "hi<|im_end|>", "[{\"role\":\"user\",\"content\":\"x\"}]", NULL, "in another way" },
    { "pastes", "hi<|im_end|>", "[{\"role\":\"tool\",\"content\":\"51\"}]",
      "\n<|im_start|>tool\n51<|im_end|>\n<|im_start|>assistant\n", "" },
};
/* clang-format on */

static Mem mem;
static char dir[] = "/tmp/hone_turn_XXXXXX";

static Chat *template(const char *name, Err *err) {
    for (size_t i = 0; i < COUNT(templates); i++) {
        if (strcmp(name, templates[i].name)) continue;
        char *path = mem_printf(&mem, "%s/%s.jinja", dir, name);
        FILE *f = fopen(path, "wb");
        CHECK(f, "%s", path);
        fputs(templates[i].text, f);
        fclose(f);
        return chat_open_file(path, &mem, err);
    }
    return NULL;
}

static Json parsed(const char *text) {
    Json j;
    Err err;
    CHECK(json_parse(&j, text, strlen(text), &mem, &err), "%s", err.msg);
    return j;
}

int main(void) {
    CHECK(mkdtemp(dir), "no folder");
    Json extra = parsed("{\"eos_token\":\"</s>\"}");
    Json talk = parsed("[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":\"hi\","
                       "\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{\"a\":1}}}]}]");
    for (size_t i = 0; i < COUNT(templates); i++) {
        TurnRule r;
        Err err = { "" };
        Chat *chat = template(templates[i].name, &err);
        bool ok = chat && turn_rule(&r, chat, NULL, &extra, &mem, &err);
        EXPECT(ok, "%s: %s", templates[i].name, err.msg);
        EXPECT(ok && span_eq(r.end, span_of(templates[i].end)) && span_eq(r.boundary, span_of(templates[i].boundary)),
               "%s: a turn ends '%.*s' '%.*s'", templates[i].name, (int)r.end.n, r.end.at, (int)r.boundary.n,
               r.boundary.at);
    }
    for (size_t i = 0; i < COUNT(cases); i++) {
        TurnRule r;
        Err err = { "" };
        Buf suffix = { 0 };
        size_t removed = 0;
        Json added = parsed(cases[i].added);
        Chat *chat = template(cases[i].name, &err);
        bool ok = chat && turn_rule(&r, chat, NULL, &extra, &mem, &err)
                  && turn_suffix(&r, &talk, span_of(cases[i].sampled), &added, &suffix, &removed, &mem, &err);
        EXPECT(ok == (cases[i].suffix != NULL), "case %zu (%s): %s", i, cases[i].name, ok ? suffix.data : err.msg);
        if (ok && cases[i].suffix) {
            EXPECT_STR(suffix.data, cases[i].suffix);
            EXPECT(removed == strlen(cases[i].removed), "case %zu: %zu bytes go", i, removed);
        } else if (!ok) EXPECT(strstr(err.msg, cases[i].removed), "case %zu: %s", i, err.msg);
        buf_free(&suffix);
    }
    for (size_t i = 0; i < COUNT(templates); i++) unlink(mem_printf(&mem, "%s/%s.jinja", dir, templates[i].name));
    rmdir(dir);
    mem_free(&mem);
    return test_end();
}
