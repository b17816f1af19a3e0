/* test_talk.c - which tokens of a conversation are learned, written out: «text» is what the mask has.
 * With --extra DIR also over DIR/turns: published templates, whose sampled turns stand there as text. */
#include "base/file.h"
#include "task/prompt.h"
#include "test.h"

#include <dirent.h>
#include <unistd.h>

#define MODEL FIXTURE("tokenizers/qwen_like")

#define HEAD  "<|im_start|>{{ m.role }}\n"
#define ASKS  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
static const char plain[] =
    "{% if tools %}[{% for t in tools %}{{ t.function.name }} {% endfor %}]{% endif %}{% for m in messages %}" HEAD
    "{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.function.name }}>{% endfor %}<|im_end|>\n{% endfor %}" ASKS;
/* As Qwen3: thoughts before the last question are dropped; behind it one is opened and closed where there is none. */
static const char thinks[] =
    "{% set ns = namespace(last=0) %}"
    "{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
    "{% for m in messages %}{% set parts = m.content.split('</think>') %}"
    "{% set words = parts[-1].lstrip('\n') if m.role == 'assistant' else m.content %}"
    "{% set thought = m.reasoning_content if m.reasoning_content else "
    "(parts[0].split('<think>')[-1].strip('\n') if parts | length > 1 else '') %}" HEAD
    "{% if m.role == 'assistant' and loop.index0 > ns.last and (loop.last or thought) %}"
    "<think>\n{{ thought }}\n</think>\n\n{% endif %}{{ words }}<|im_end|>\n{% endfor %}" ASKS;
/* As R1 and QwQ: the generation prompt opens a thought, which an answer that is past does not have. */
static const char opens[] =
    "{% for m in messages %}" HEAD "{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}";
static const char marks[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
                            "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{{ '\n' }}"
                            "{% else %}{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}" ASKS;
/* As Phi-3.5: no role it does not know, and the end of everything behind the last message. */
static const char loses[] =
    "{% for m in messages %}{% if m.role in ['user', 'assistant'] %}<|im_start|>{{ m.role }}\n{{ m.content "
    "}}<|im_end|>\n"
    "{% endif %}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}<|endoftext|>{% endif %}";
static const char last[] = "{% for m in messages[-2:] %}" HEAD "{{ m.content }}<|im_end|>\n{% endfor %}" ASKS;
static const char first_call[] =
    "{% for m in messages %}" HEAD
    "{{ m.content }}{% for c in (m.tool_calls or [])[:1] %}<{{ c.function.name }}>{% endfor %}<|im_end|>\n"
    "{% endfor %}" ASKS;
static const char given[] = "{% for m in messages %}" HEAD "{{ m.content }}{% for c in m.tool_calls or [] %}"
                            "<{{ c.function.name }}{{ c.function.arguments | tojson }}>{% endfor %}<|im_end|>\n"
                            "{% endfor %}" ASKS;
static const char by_id[] = "{% for m in messages %}" HEAD
                            "{{ m.content }}{% for c in m.tool_calls or [] %}<{{ c.id }}>{% endfor %}<|im_end|>\n"
                            "{% endfor %}" ASKS;
static const char shouts[] = "{% for m in messages %}" HEAD
                             "{{ m.content | upper if m.role == 'user' else m.content }}<|im_end|>\n{% endfor %}" ASKS;
static const char mute[] = "{% for m in messages %}" HEAD "{% if m.role != 'assistant' %}{{ m.content }}{% endif %}"
                           "<|im_end|>\n{% endfor %}" ASKS;

#define U(text)          "{\"role\":\"user\",\"content\":\"" text "\"}"
#define A(text)          "{\"role\":\"assistant\",\"content\":\"" text "\"}"
#define A_NOT(text, how) "{\"role\":\"assistant\",\"content\":\"" text "\"," how "}"

static char path[] = "/tmp/hone-test-talk-XXXXXX";

static Prompter *open_with(const char *model, const char *text, const char *variables, Err *err) {
    CHECK(file_write(path, text, strlen(text), err), "%s", err->msg);
    PromptOptions o = { .model = model, .chat_template = path, .variables = variables, .end = -1 };
    Prompter *p = prompter_open(&o, 1, err);
    EXPECT(p, "%s", err->msg);
    return p;
}

/* ids as text, what is learned between « and »; by single tokens first, so that a wrong one is seen */
static void written(const Prompter *p, const TokIds *ids, const Buf *mask, Buf *out) {
    Err err;
    buf_clear(out);
    buf_puts(out, "");
    for (size_t i = 0, end; i < ids->n; i = end) {
        for (end = i; end < ids->n && mask->data[end] == mask->data[i]; end++) {}
        if (mask->data[i]) buf_puts(out, "«");
        CHECK(tok_decode(prompter_tok(p), ids->at + i, end - i, false, out, &err), "%s", err.msg);
        if (mask->data[i]) buf_puts(out, "»");
    }
}

static DataRow row_of(const char *messages, const char *tools) {
    return (DataRow){ .prompt = messages,
                      .prompt_n = strlen(messages),
                      .chat = true,
                      .talk = true,
                      .tools = tools,
                      .tools_n = tools ? strlen(tools) : 0 };
}

static bool take(Prompter *p, const DataRow *row, TokIds *ids, Buf *mask, TalkCount *count, Err *err) {
    Spans pics;
    Mem mem = { 0 };
    *count = (TalkCount){ 0 };
    ids->n = 0;
    bool ok = prompter_talk(p, 0, row, ids, mask, count, &pics, &mem, false, err);
    mem_free(&mem);
    return ok;
}

/* want: the conversation as written(), or what the refusal says */
static void expect(const char *text, const char *messages, const char *tools, int learned, int as_is,
                   const char *want) {
    Err err = { "" };
    TokIds ids = { 0 }, whole = { 0 };
    Buf mask = { 0 }, got = { 0 }, bare = { 0 };
    TalkCount count;
    Prompter *p = open_with(MODEL, text, NULL, &err);
    if (!p) return;
    DataRow row = row_of(messages, tools);
    if (!take(p, &row, &ids, &mask, &count, &err)) {
        EXPECT(learned < 0 && strstr(err.msg, want), "%s:\n got  %s\n want %s", messages, err.msg, want);
    } else {
        written(p, &ids, &mask, &got);
        EXPECT(learned >= 0 && !strcmp(got.data, want), "%s:\n got  %s\n want %s", messages, got.data, want);
        EXPECT(count.messages == learned && count.as_is == as_is, "%s: %lld learned, %lld as they stand", messages,
               (long long)count.messages, (long long)count.as_is);
        for (const char *s = want; *s; s += strncmp(s, "«", 2) && strncmp(s, "»", 2) ? 1 : 2)
            if (strncmp(s, "«", 2) && strncmp(s, "»", 2)) buf_putc(&bare, *s);
        TokScratch *t = tok_scratch_open(prompter_tok(p));
        CHECK(tok_encode(prompter_tok(p), t, bare.data, bare.n, TOK_SPECIAL, &whole, &err), "%s", err.msg);
        EXPECT(whole.n == ids.n && !memcmp(whole.at, ids.at, ids.n * sizeof *ids.at), "%s: other ids than of the text",
               messages);
        tok_scratch_close(t);
    }
    prompter_close(p);
    vec_free(ids.at);
    vec_free(whole.at);
    buf_free(&mask);
    buf_free(&got);
    buf_free(&bare);
}

#define SAYS(role, text) "<|im_start|>" role "\n" text "<|im_end|>\n"
#define LEARNS(text)     "<|im_start|>assistant\n«" text "<|im_end|>\n»"

static void by_hand(void) {
    expect(plain, "[" U("1+1") "," A("ABC") "," U("2+2") "," A("Z") "]", NULL, 2, 0,
           SAYS("user", "1+1") LEARNS("ABC") SAYS("user", "2+2") LEARNS("Z"));
    expect(plain, "[" U("1+1") "," A("ABC") "," U("2+2") "," A("Z") "," U("more?") "]", NULL, 2, 0,
           SAYS("user", "1+1") LEARNS("ABC") SAYS("user", "2+2") LEARNS("Z") SAYS("user", "more?"));
    expect(plain, "[" U("a") "," A_NOT("b", "\"train\":false") "," U("c") "," A_NOT("d", "\"weight\":1") "]", NULL, 1,
           0, SAYS("user", "a") SAYS("assistant", "b") SAYS("user", "c") LEARNS("d"));
    expect(plain, "[" U("a") "," A_NOT("b", "\"weight\":0") "," U("c") "," A_NOT("d", "\"train\":true") "]", NULL, 1, 0,
           SAYS("user", "a") SAYS("assistant", "b") SAYS("user", "c") LEARNS("d"));
    expect(plain, "[" U("a") "," A_NOT("b", "\"weight\":0") "]", NULL, 0, 0, SAYS("user", "a") SAYS("assistant", "b"));
    expect(plain, "[" A("first") "," A("again") "," U("u") "]", NULL, 2, 0,
           LEARNS("first") LEARNS("again") SAYS("user", "u"));
    expect(plain,
           "[" U("w?") "," A_NOT(
               "", "\"tool_calls\":[{\"type\":\"function\",\"function\":{\"name\":\"get\"}}]") ","
                                                                                               "{\"role\":\"tool\","
                                                                                               "\"content\":\"21\"}," A(
                                                                                                   "It is 21.") "]",
           "[{\"function\":{\"name\":\"get\"}}]", 2, 0,
           "[get ]" SAYS("user", "w?") LEARNS("<get>") SAYS("tool", "21") LEARNS("It is 21."));
    expect(plain, "[{\"role\":\"system\",\"content\":\"\"}," U("a") "," A("\\n\\n b \\n") "," U("c") "]", NULL, 1, 0,
           SAYS("system", "") SAYS("user", "a") LEARNS("\n\n b \n") SAYS("user", "c"));

    /* thoughts: at the end they stay, before the last question they go */
    expect(thinks,
           "[" U("a") "," A("<think>\\nhm\\n</think>\\n\\nb") "," U("c") "," A("<think>\\noh\\n</think>\\n\\nd") "]",
           NULL, 2, 1, SAYS("user", "a") LEARNS("b") SAYS("user", "c") LEARNS("<think>\noh\n</think>\n\nd"));
    expect(thinks, "[" U("a") "," A_NOT("b", "\"reasoning_content\":\"hm\"") "," U("c") "," A("d") "]", NULL, 2, 1,
           SAYS("user", "a") LEARNS("b") SAYS("user", "c") LEARNS("<think>\n\n</think>\n\nd"));
    expect(thinks,
           "[" U("a") "," A_NOT("call", "\"reasoning_content\":\"hm\"") ",{\"role\":\"tool\",\"content\":\"5\"}," A_NOT(
               "b", "\"reasoning_content\":\"so\"") "," U("c") "," A_NOT("b", "\"train\":false") "]",
           NULL, 2, 2,
           SAYS("user", "a") LEARNS("call") SAYS("tool", "5") LEARNS("b") SAYS("user", "c")
               SAYS("assistant", "<think>\n\n</think>\n\nb"));
    expect(thinks,
           "[" U("a") "," A_NOT("call", "\"reasoning_content\":\"hm\"") ",{\"role\":\"tool\",\"content\":\"5\"}," A_NOT(
               "b", "\"reasoning_content\":\"so\"") "]",
           NULL, 2, 0,
           SAYS("user", "a") LEARNS("<think>\nhm\n</think>\n\ncall") SAYS("tool", "5")
               LEARNS("<think>\nso\n</think>\n\nb"));

    expect(opens, "[" U("a") "," A("b") "," U("c") "," A("hm</think>d") "]", NULL, 2, 2,
           SAYS("user", "a") LEARNS("b") SAYS("user", "c") LEARNS("d"));

    expect(marks, "[" U("a") "," A("b") "," U("c") "," A("d") "]", NULL, 2, 0,
           SAYS("user", "a") "<|im_start|>assistant\n«b<|im_end|>»\n" SAYS(
               "user", "c") "<|im_start|>assistant\n«d<|im_end|>»\n");
    expect(marks, "[" U("a") "," A("b") "," U("c") "," A_NOT("d", "\"train\":false") "," A("e") "]", NULL, 2, 0,
           SAYS("user", "a") "<|im_start|>assistant\n«b<|im_end|>»\n" SAYS("user", "c")
               SAYS("assistant", "d") "<|im_start|>assistant\n«e<|im_end|>»\n");

    expect(loses, "[" U("a") "," A("b") "," U("c") "," A("d") "]", NULL, 2, 1,
           SAYS("user", "a") LEARNS("b") SAYS("user", "c") "<|im_start|>assistant\n«d<|im_end|>\n<|endoftext|>»");
    expect(loses, "[" U("a") "," A("b") ",{\"role\":\"tool\",\"content\":\"51\"}," A("d") "]", NULL, -1, 0,
           "the chat template leaves message 2 out");
    expect(loses, "[{\"role\":\"system\",\"content\":\"S!\"}," U("a") "," A("b") "]", NULL, -1, 0,
           "the chat template leaves message 0 out");
    /* what another message says too, or the template itself */
    expect(loses, "[" U("a") "," A("call") ",{\"role\":\"tool\",\"content\":\"42\"}," A("It is 42.") "]", NULL, -1, 0,
           "the chat template leaves message 2 out");
    expect(loses, "[{\"role\":\"system\",\"content\":\"im\"}," U("a") "," A("b") "]", NULL, -1, 0,
           "the chat template leaves message 0 out");
    expect(last, "[" U("1+1") "," A_NOT("2", "\"train\":false") "," U("1+1") "," A("2") "]", NULL, -1, 0,
           "the chat template leaves message 0 out");
    expect(first_call,
           "[" U("w?") "," A_NOT(
               "so", "\"tool_calls\":[{\"function\":{\"name\":\"get\"}},{\"function\":{\"name\":\"put\"}}]") "]",
           NULL, -1, 0, "the chat template leaves the tool calls of message 1 out");
    expect(first_call,
           "[" U("w?") "," A_NOT(
               "so", "\"tool_calls\":[{\"function\":{\"name\":\"get\",\"arguments\":{\"weight\":\"so\"}}}]") "]",
           NULL, -1, 0, "the chat template leaves the tool calls of message 1 out");
    expect(first_call,
           "[" U("w?") "," A_NOT("so", "\"tool_calls\":[{\"function\":{\"name\":\"get\",\"arguments\":{}}}]") "]", NULL,
           1, 0, SAYS("user", "w?") LEARNS("so<get>"));
    expect(given,
           "[" U("w?") "," A_NOT(
               "so", "\"tool_calls\":[{\"function\":{\"name\":\"get\",\"arguments\":{\"weight\":\"1\"}}}]") "]",
           NULL, 1, 0, SAYS("user", "w?") LEARNS("so<get{\"weight\": \"1\"}>"));
    expect(by_id,
           "[" U("w?") "," A_NOT("so", "\"tool_calls\":[{\"id\":\"get:0\",\"function\":{\"name\":\"get\"}}]") "]", NULL,
           1, 0, SAYS("user", "w?") LEARNS("so<get:0>"));
    expect(by_id, "[" U("w?") "," A_NOT("so", "\"tool_calls\":[{\"id\":\"7\",\"function\":{\"name\":\"get\"}}]") "]",
           NULL, -1, 0, "the chat template leaves the tool calls of message 1 out");
    expect(shouts, "[" U("a b") "," A("c") "]", NULL, 1, 0, SAYS("user", "A B") LEARNS("c"));
    expect(loses, "[" U("w") "," A_NOT("so", "\"tool_calls\":[{\"function\":{\"name\":\"get\"}}]") "]", NULL, -1, 0,
           "the chat template leaves the tool calls of message 1 out");
    expect(mute, "[" U("a") "," A("b") "]", NULL, -1, 0, "the chat template leaves message 1 out");
    expect(marks, "[" U("a") "," A("b") "," U("c") "," A_NOT("d", "\"tool_calls\":[{\"name\":\"get\"}]") "]", NULL, -1,
           0, "the chat template leaves the tool calls of message 3 out");
    expect("{% if messages[-1].role != 'user' %}{{ raise_exception('the user must come last') }}{% endif %}x",
           "[" U("a") "," A("b") "]", NULL, -1, 0, "the user must come last");
}

/* ---- published templates */
static const char *text_at(const Json *c, const char *key) {
    const Json *v = json_get(c, key);
    return v && v->kind == JSON_STRING ? v->str : NULL;
}

static void put_member(Buf *b, const char *key, const Json *v) {
    buf_printf(b, "%s\"%s\":", b->n > 1 ? "," : "", key);
    json_put_value(b, v);
}

static void put_items(Buf *b, const Json *list, bool learned) {
    for (size_t i = 0; list && i < list->n; i++) {
        if (b->n > 1) buf_putc(b, ',');
        size_t at = b->n;
        json_put_value(b, &list->items[i]);
        if (learned || !json_is_str(json_get(&list->items[i], "role"), "assistant")) continue;
        b->n = at + strlen(b->data + at) - 1;
        buf_puts(b, ",\"train\":false}");
    }
}

void put_byte_char(Buf *b, unsigned char byte); /* text/pretok.h has a Cut, and so has cut/slice.h */

static void put_token(Buf *b, const char *s, size_t n, int *id) {
    Buf quoted = { 0 };
    json_put_str(&quoted, s, n);
    Buf whole = { 0 };
    buf_printf(&whole, "\"content\":%s,", quoted.data);
    if (!b->n || !strstr(b->data, whole.data))
        buf_printf(b,
                   "%s{\"id\":%d,%s\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,"
                   "\"special\":true}",
                   b->n ? "," : "", (*id)++, whole.data);
    buf_free(&quoted);
    buf_free(&whole);
}

/* A tokenizer of single bytes, and of every tag in the template: what a model's own has as special tokens is among
 * them. */
static void make_tokenizer(const char *dir, const char *template) {
    Buf out = { 0 }, tokens = { 0 };
    Err err;
    int id = 256;
    put_token(&tokens, "<s>", 3, &id);
    put_token(&tokens, "</s>", 4, &id);
    for (const char *s = template; (s = strchr(s, '<')); s++) {
        size_t n = strcspn(s + 1, "<> \n'\"{") + 2;
        if (s[n - 1] == '>') put_token(&tokens, s, n, &id);
    }
    buf_puts(&out, "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < 256; i++) {
        Buf one = { 0 };
        put_byte_char(&one, (unsigned char)i);
        buf_puts(&out, i ? "," : "");
        json_put_str(&out, one.data, one.n);
        buf_printf(&out, ":%d", i);
        buf_free(&one);
    }
    buf_printf(&out,
               "}},\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true},"
               "\"decoder\":{\"type\":\"ByteLevel\"},\"added_tokens\":[%s]}",
               tokens.data);
    char to[96];
    snprintf(to, sizeof to, "%s/tokenizer.json", dir);
    CHECK(file_write(to, out.data, out.n, &err), "%s", err.msg);
    buf_free(&out);
    buf_free(&tokens);
}

/* The conversation so far, the turn that was sampled and what came then: learned is the turn, and what the template
 * writes behind it before the next message. */
static void check_case(Prompter *p, const char *name, const Json *c, const Json *tools, int *checked, int *as_is) {
    const char *prompt = text_at(c, "prompt"), *sampled = text_at(c, "sampled"), *boundary = text_at(c, "boundary");
    const char *removed = text_at(json_get(c, "expected"), "removed"); /* it belongs to the next message (GLM) */
    const Json *later = json_get(c, "new_messages"), *words = json_get(json_get(c, "assistant"), "content");
    if (!prompt || !sampled || !later || !later->n) return;
    /* what was sampled there is not what the message says: a thought that it does not have, a part of it */
    if (text_at(json_get(c, "expected"), "refused")) return; /* nothing says what was meant */
    if (strstr(text_at(c, "case"), "_thinking") || !strcmp(text_at(c, "case"), "cut_by_length")) return;
    Buf messages = { 0 }, tool = { 0 }, mask = { 0 }, got = { 0 }, want = { 0 };
    TokIds ids = { 0 };
    TalkCount count;
    Err err;
    buf_putc(&messages, '[');
    put_items(&messages, json_get(c, "messages"), false);
    Json one = { .kind = JSON_ARRAY, .n = 1, .items = (Json *)(uintptr_t)json_get(c, "assistant") };
    put_items(&messages, &one, true);
    put_items(&messages, later, false);
    buf_putc(&messages, ']');
    const Json *use = json_get(c, "tools");
    if (use && use->kind == JSON_STRING) json_put_value(&tool, tools);
    DataRow row = row_of(messages.data, tool.data);
    if (take(p, &row, &ids, &mask, &count, &err)) {
        written(p, &ids, &mask, &got);
        int turn = (int)(strlen(sampled) - (removed ? strlen(removed) : 0));
        buf_printf(&want, "%s«%.*s%s»", prompt, turn, sampled, boundary ? boundary : "");
        bool same = got.n >= want.n && !memcmp(got.data, want.data, want.n);
        const char *from = strstr(got.data, "«"), *to = strstr(got.data, "»");
        *checked += same;
        *as_is += !same && count.as_is;
        /* else the turn stands there without its thought, or with an empty one */
        EXPECT(same
                   || (count.as_is && from && to && words && words->kind == JSON_STRING
                       && memmem(from, (size_t)(to - from), words->str, words->n) && !strstr(to + 2, "«")),
               "%s, %s:\n got  %s\n want %s", name, text_at(c, "case"), got.data, want.data);
        buf_clear(&want);
        buf_printf(&want, "%.*s%s", turn, sampled, boundary ? boundary : "");
        size_t n = from && to ? (size_t)(to - from) - 2 : 0;
        EXPECT(same || (n && n <= want.n && !memcmp(want.data + want.n - n, from + 2, n)),
               "%s, %s: learned is no end of what was sampled:\n got  %s\n want %s", name, text_at(c, "case"), got.data,
               want.data);
    } else
        EXPECT(strstr(err.msg, "Error") || strstr(err.msg, "leaves"), "%s, %s: %s", name, text_at(c, "case"), err.msg);
    buf_free(&messages);
    buf_free(&tool);
    buf_free(&mask);
    buf_free(&got);
    buf_free(&want);
    vec_free(ids.at);
}

static void check_file(const char *dir, const char *file, int *checked, int *as_is) {
    Buf name = { 0 }, text = { 0 }, template = { 0 }, variables = { 0 };
    Mem mem = { 0 };
    Json d;
    Err err;
    buf_printf(&name, "%s/turns/%s", dir, file);
    EXPECT(file_read(&text, name.data, &err) && json_parse(&d, text.data, text.n, &mem, &err), "%s", err.msg);
    buf_clear(&name);
    buf_printf(&name, "%s/templates/%s.jinja", dir, text_at(&d, "template"));
    EXPECT(file_read(&template, name.data, &err), "%s", err.msg);
    char model[] = "/tmp/hone-test-talk-XXXXXX", made[96];
    EXPECT(mkdtemp(model), "mkdtemp");
    make_tokenizer(model, template.data);
    const Json *cases = json_get(&d, "cases"), *usual = json_get(&d, "variables");
    for (size_t i = 0; i < cases->n; i++) {
        const Json *more = json_get(&cases->items[i], "template_kwargs");
        buf_clear(&variables);
        buf_putc(&variables, '{');
        for (size_t k = 0; k < usual->n; k++) put_member(&variables, usual->members[k].key, &usual->members[k].value);
        for (size_t k = 0; more && k < more->n; k++)
            put_member(&variables, more->members[k].key, &more->members[k].value);
        buf_puts(&variables, ",\"now\":\"2024-07-26T00:00:00\"}");
        Prompter *p = open_with(model, template.data, variables.data, &err);
        if (p) check_case(p, file, &cases->items[i], json_get(&d, "tools"), checked, as_is);
        prompter_close(p);
    }
    snprintf(made, sizeof made, "%s/tokenizer.json", model);
    EXPECT(!unlink(made) && !rmdir(model), "%s", made);
    buf_free(&name);
    buf_free(&text);
    buf_free(&template);
    buf_free(&variables);
    mem_free(&mem);
}

static void published(const char *dir) {
    char turns[600];
    int checked = 0, as_is = 0;
    snprintf(turns, sizeof turns, "%s/turns", dir);
    DIR *d = opendir(turns);
    EXPECT(d, "%s is missing", turns);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strstr(e->d_name, ".json")) check_file(dir, e->d_name, &checked, &as_is);
    if (d) closedir(d);
    printf("published templates: %d turns learned as sampled, %d as they stand\n", checked, as_is);
    EXPECT(checked > 100, "only %d turns", checked);
}

int main(int argc, char **argv) {
    int fd = mkstemp(path);
    CHECK(fd >= 0, "no file for tests");
    close(fd);
    by_hand();
    if (argc > 2 && !strcmp(argv[1], "--extra")) published(argv[2]);
    else SKIP("published templates: --extra DIR");
    unlink(path);
    return test_end();
}
