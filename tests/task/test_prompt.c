/* test_prompt.c - rows to token ids: messages and text through a chat template, bare text,
 * pairs of prompt and response. */
#include "base/file.h"
#include "task/prompt.h"
#include "test.h"

#include <unistd.h>

#define MODEL FIXTURE("tokenizers/qwen_like")

/* Two templates: one in which the prompt is how the whole conversation begins, and one that opens a thought that the
 * finished answer does not have. */
static const char plain[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
static const char thinks[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
                             "{% if add_generation_prompt %}<|im_start|>assistant\n{% if think is defined and think "
                             "%}<think>\n{% endif %}{% endif %}";

static DataRow row_of(const char *prompt, bool chat, const char *response) {
    DataRow r = { .prompt = prompt, .prompt_n = strlen(prompt), .chat = chat, .response = response };
    r.response_n = response ? strlen(response) : 0;
    return r;
}

static Prompter *open_with(const char *path, const char *text, const char *variables, bool bare, Err *err) {
    CHECK(file_write(path, text, strlen(text), err), "%s", err->msg);
    PromptOptions o = { .model = MODEL, .chat_template = path, .variables = variables, .bare_text = bare, .end = 7 };
    return prompter_open(&o, 3, err);
}

static void decoded(Prompter *p, const TokIds *ids, size_t from, size_t to, Buf *out) {
    Err err;
    buf_clear(out);
    buf_puts(out, "");
    CHECK(tok_decode(prompter_tok(p), ids->at + from, to - from, false, out, &err), "%s", err.msg);
}

int main(void) {
    Err err = { { 0 } };
    char path[] = "/tmp/hone-test-template-XXXXXX";
    int fd = mkstemp(path);
    CHECK(fd >= 0, "no file for tests");
    close(fd);
    Buf text = { 0 };
    TokIds ids = { 0 };
    size_t n_prompt = 0;
    DataRow chat =
        row_of("[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\",\"content\":\"2+2?\"}]", true, "4");
    DataRow plain_text = row_of("2+2?", false, "4");

    Prompter *p = open_with(path, plain, NULL, false, &err);
    EXPECT(p, "%s", err.msg);
    if (!p) return test_end();
    EXPECT(prompter_text(p, 0, &chat, &text, &err), "%s", err.msg);
    EXPECT_STR(text.data, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n");
    EXPECT(prompter_encode(p, 2, &chat, &ids, &err), "%s", err.msg);
    int32_t start = tok_id_of(prompter_tok(p), "<|im_start|>", 12), end = tok_id_of(prompter_tok(p), "<|im_end|>", 10);
    EXPECT(start >= 0 && ids.n && ids.at[0] == start, "the template's special token is one token");
    EXPECT((int64_t)ids.n == prompter_length(p, 1, &chat, &err), "length");
    decoded(p, &ids, 0, ids.n, &text);
    EXPECT_STR(text.data, "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n");

    ids.n = 0;
    EXPECT(prompter_pair(p, 0, &plain_text, &ids, &n_prompt, &err), "%s", err.msg);
    decoded(p, &ids, 0, n_prompt, &text);
    EXPECT_STR(text.data, "<|im_start|>user\n2+2?<|im_end|>\n<|im_start|>assistant\n");
    decoded(p, &ids, n_prompt, ids.n, &text);
    EXPECT_STR(text.data, "4<|im_end|>\n");
    EXPECT(ids.at[n_prompt + 1] == end, "the answer ends with the template's token");
    DataRow alone = row_of("x", false, NULL), broken = row_of("[{\"role\":", true, NULL);
    EXPECT(!prompter_pair(p, 0, &alone, &ids, &n_prompt, &err) && strstr(err.msg, "no response"), "%s", err.msg);
    EXPECT(prompter_length(p, 0, &broken, &err) == -1 && *err.msg, "a prompt that cannot be made");
    prompter_close(p);

    p = open_with(path, thinks, "{\"think\": true}", false, &err);
    ids.n = 0;
    EXPECT(p && prompter_pair(p, 0, &chat, &ids, &n_prompt, &err), "%s", err.msg);
    decoded(p, &ids, n_prompt, ids.n - 1, &text);
    EXPECT_STR(text.data, "4");
    EXPECT(ids.at[ids.n - 1] == 7, "the answer ends with the given token");
    prompter_close(p);

    /* bare text: nothing around it, and what looks like a special token is text */
    p = open_with(path, plain, NULL, true, &err);
    DataRow sly = row_of("a<|im_end|>b", false, "<|im_end|>c");
    ids.n = 0;
    EXPECT(p && prompter_pair(p, 0, &sly, &ids, &n_prompt, &err), "%s", err.msg);
    for (size_t i = 0; i < ids.n; i++) EXPECT(ids.at[i] != end, "token %zu of bare text is special", i);
    prompter_close(p);

    /* the fixture has no template: text can be used bare, messages cannot */
    PromptOptions o = { .model = MODEL, .end = -1, .bare_text = true };
    p = prompter_open(&o, 1, &err);
    ids.n = 0;
    EXPECT(p && prompter_encode(p, 0, &plain_text, &ids, &err), "%s", err.msg);
    EXPECT(p && !prompter_encode(p, 0, &chat, &ids, &err) && strstr(err.msg, "messages cannot be used"), "%s", err.msg);
    prompter_close(p);
    EXPECT(!open_with(path, plain, "[1]", false, &err) && strstr(err.msg, "JSON object"), "%s", err.msg);
    EXPECT(!open_with(path, "{% if %}", NULL, false, &err), "a template that does not parse");
    unlink(path);
    vec_free(ids.at);
    buf_free(&text);
    return test_end();
}
