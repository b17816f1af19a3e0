/* test_chat.c - `hone chat` as a user meets it: turns through a pipe give what `hone generate` gives for the same
 * messages, stop texts, commands, the end of the context, Ctrl-C, folders that cannot be talked to. */
#include "base/file.h"
#include "base/json.h"
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/hone-chat-XXXXXX";

/* build/tests/cmd/this -> build/ */
static const char *build_dir(void) {
    static char path[500];
    if (path[0] || readlink("/proc/self/exe", path, sizeof path - 1) < 0) return path;
    for (int i = 0; i < 3; i++) *strrchr(path, '/') = 0;
    return path;
}

static char *in_dir(Mem *mem, const char *name) { return mem_printf(mem, "%s/%s", dir, name); }

static void read_back(Mem *mem, const char *name, Buf *out) {
    Err err;
    buf_clear(out);
    EXPECT(file_read(out, in_dir(mem, name), &err), "%s", err.msg);
    if (!out->data) buf_puts(out, "");
}

/* hone VERB MODEL ARGS with this input; its exit code, and what it wrote to the two outputs. */
static int hone(const char *verb, const char *args, const char *input, Buf *out, Buf *said) {
    Mem mem = { 0 };
    Err err;
    EXPECT(file_write(in_dir(&mem, "in"), input, strlen(input), &err), "%s", err.msg);
    char *command =
        mem_printf(&mem, "cd %s && %s/hone %s model %s --threads 2 <in >out 2>err", dir, build_dir(), verb, args);
    int rc = system(command);
    read_back(&mem, "out", out);
    read_back(&mem, "err", said);
    mem_free(&mem);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

/* The text of generate's one answer to these messages. */
static void generated(Buf *text, const char *messages, const char *args) {
    Mem mem = { 0 };
    Buf out = { 0 }, said = { 0 };
    Err err;
    Json line;
    buf_clear(text);
    char *input = mem_printf(&mem, "{\"messages\":[%s]}\n", messages);
    EXPECT(hone("generate", args, input, &out, &said) == 0, "%s", said.data);
    EXPECT(json_parse(&line, out.data, out.n, &mem, &err), "%s", err.msg);
    const Json *t = json_get(&line, "text");
    if (t) buf_put(text, t->str, t->n);
    buf_free(&out);
    buf_free(&said);
    mem_free(&mem);
}

static void turns(void) {
    Buf out = { 0 }, said = { 0 }, first = { 0 }, second = { 0 }, want = { 0 }, messages = { 0 };
    const char *user = "{\"role\":\"user\",\"content\":\"one two three\"}",
               *more = ",{\"role\":\"user\",\"content\":\"more\"}";
    generated(&first, user, "--max-tokens 90 --seed 5 --step 0");
    buf_printf(&messages, "%s,{\"role\":\"assistant\",\"content\":", user);
    json_put_str(&messages, first.data ? first.data : "", first.n);
    buf_printf(&messages, "}%s", more);
    generated(&second, messages.data, "--max-tokens 90 --seed 5 --step 1");
    buf_put(&want, first.data, first.n);
    buf_putc(&want, '\n');
    buf_put(&want, second.data, second.n);
    buf_putc(&want, '\n');
    int rc = hone("chat", "--max-tokens 90 --seed 5", "one two three\r\n\n  \nmore\n/quit\nnot read\n", &out, &said);
    EXPECT(rc == 0 && out.n == want.n && !memcmp(out.data, want.data, want.n),
           "two turns: exit code %d, %zu bytes, %zu wanted; %s", rc, out.n, want.n, said.data);

    generated(&first, user, "--max-tokens 30 --greedy");
    buf_clear(&want);
    for (int i = 0; i < 2; i++) buf_put(&want, first.data, first.n), buf_putc(&want, '\n');
    rc = hone("chat", "--single --max-tokens 30 --greedy", "one two three\none two three\n", &out, &said);
    EXPECT(rc == 0 && out.n == want.n && !memcmp(out.data, want.data, want.n),
           "--single: exit code %d, %zu bytes, %zu wanted", rc, out.n, want.n);

    /* a stop text that is sure to come: three bytes out of the middle of the greedy answer */
    generated(&first, user, "--max-tokens 40 --greedy");
    bool plain = first.n > 20;
    for (size_t i = 0; plain && i < first.n; i++) plain = first.data[i] != '\'' && first.data[i] != 0;
    if (plain) {
        Mem mem = { 0 };
        size_t at = 12;
        while (at < first.n && ((unsigned char)first.data[at] & 0xC0) == 0x80) at++; /* not inside a character */
        size_t n = 1;
        while (at + n < first.n && (n < 4 || ((unsigned char)first.data[at + n] & 0xC0) == 0x80)) n++;
        char *args = mem_printf(&mem, "--max-tokens 40 --greedy --stop '%.*s'", (int)n, first.data + at);
        generated(&want, user, args);
        buf_putc(&want, '\n');
        rc = hone("chat", args, "one two three\n", &out, &said);
        EXPECT(rc == 0 && out.n == want.n && !memcmp(out.data, want.data, want.n),
               "stop text: exit code %d, %zu bytes, %zu wanted", rc, out.n, want.n);
        mem_free(&mem);
    } else SKIP("stop text: the answer has quotes in it");
    Buf *all[] = { &out, &said, &first, &second, &want, &messages };
    for (size_t i = 0; i < COUNT(all); i++) buf_free(all[i]);
}

static void ends(void) {
    Buf out = { 0 }, said = { 0 };
    char longer[700];
    memset(longer, 'a', sizeof longer);
    memcpy(longer + sizeof longer - 2, "\n", 2);
    EXPECT(hone("chat", "", longer, &out, &said) == 1 && strstr(said.data, "the context is 512: /reset") && !out.n,
           "a line longer than the context: %s", said.data);
    EXPECT(hone("chat", "--ignore-eos --max-tokens 600", "hi\n", &out, &said) == 0
               && strstr(said.data, "fills the context of 512"),
           "the context's end: %s", said.data);
    EXPECT(hone("chat", "--max-tokens 3 --ignore-eos", "hi\n/nothing\n/reset\n/help\n", &out, &said) == 0
               && strstr(said.data, "cut after 3 tokens") && strstr(said.data, "no command /nothing")
               && strstr(said.data, "a new conversation") && strstr(said.data, "Ctrl-D"),
           "commands: %s", said.data);
    EXPECT(hone("chat", "--context 4096", "hi\n", &out, &said) == 1 && strstr(said.data, "made for 512"), "%s",
           said.data);
    EXPECT(hone("chat", "--temperature -1", "hi\n", &out, &said) == 2 && strstr(said.data, "--temperature"), "%s",
           said.data);
    EXPECT(hone("chat", "", "", &out, &said) == 0 && !out.n, "nothing said: %s", said.data);
    buf_free(&out);
    buf_free(&said);
}

/* SIGINT while an answer is being drawn ends the answer, not the program. */
static void interrupt(void) {
    int in[2], out[2], err[2];
    CHECK(!pipe(in) && !pipe(out) && !pipe(err), "no pipes");
    pid_t child = fork();
    if (child == 0) {
        dup2(in[0], 0), dup2(out[1], 1), dup2(err[1], 2);
        for (int i = 0; i < 2; i++) close(in[i]), close(out[i]), close(err[i]);
        char path[600];
        snprintf(path, sizeof path, "%s/hone", build_dir());
        if (chdir(dir)) _exit(9);
        execl(path, "hone", "chat", "model", "--ignore-eos", "--max-tokens", "500", "--threads", "1", (char *)NULL);
        _exit(9);
    }
    close(in[0]), close(out[1]), close(err[1]);
    char text[4096];
    bool asked = write(in[1], "go on\n", 6) == 6 && read(out[0], text, 1) == 1; /* it is speaking */
    kill(child, SIGINT);
    asked = asked && write(in[1], "/quit\n", 6) == 6;
    close(in[1]);
    ssize_t got, n = 0;
    while (read(out[0], text, sizeof text) > 0) {}
    while (n < (ssize_t)sizeof text - 1 && (got = read(err[0], text + n, sizeof text - 1 - (size_t)n)) > 0) n += got;
    text[n] = 0;
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT(asked && WIFEXITED(status) && WEXITSTATUS(status) == 0 && strstr(text, "[interrupted]"),
           "SIGINT: status %d, said %s", status, text);
    close(out[0]), close(err[0]);
}

static void folders(void) {
    Mem mem = { 0 };
    Buf out = { 0 };
    const char *cases[][2] = { { "tests/data/models/qwen3_moe", "has no tokenizer" },
                               { "tests/data/models/qwen2_5_vl", "has no tokenizer" },
                               { "/nowhere", "cannot open" } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        int rc = system(
            mem_printf(&mem, "echo hi | %s/hone chat %s --device cpu >%s/out 2>&1", build_dir(), cases[i][0], dir));
        read_back(&mem, "out", &out);
        char *line = strchr(out.data, '\n');
        EXPECT(WEXITSTATUS(rc) == 1 && strstr(out.data, cases[i][1]) && line && !line[1], "%s: %s", cases[i][0],
               out.data);
    }
    int rc = system(mem_printf(
        &mem,
        "cp -r %s/model %s/plain && rm %s/plain/tokenizer_config.json && echo hi | %s/hone chat %s/plain >%s/out 2>&1",
        dir, dir, dir, build_dir(), dir, dir));
    read_back(&mem, "out", &out);
    EXPECT(WEXITSTATUS(rc) == 1 && strstr(out.data, "cannot be talked to"), "no template: %s", out.data);
    buf_free(&out);
    mem_free(&mem);
}

int main(void) {
    Mem mem = { 0 };
    CHECK(mkdtemp(dir), "no folder under /tmp");
    int rc = system(mem_printf(&mem, "%s/hone random recipes/quickstart/model %s/model --seed 3", build_dir(), dir));
    EXPECT(rc == 0, "hone random gives %d", rc);
    if (rc == 0) turns(), ends(), interrupt(), folders();
    rc = system(mem_printf(&mem, "rm -rf %s", dir));
    mem_free(&mem);
    return test_end();
}
