/* verb_template.c - renders a chat template for each line of variables: what a model would be given to read. */
#include "base/file.h"
#include "gguf/inside.h"
#include "cmd/cmd.h"
#include "text/chat.h"

#include <stdatomic.h>
#include <string.h>

typedef struct {
    const char *in, *out;
    int64_t threads;
} Options;

static const Opt options[] = {
    { "in", OPT_STR, offsetof(Options, in), "FILE",
      "lines of variables: {\"messages\": [...], \"tools\": [...], \"add_generation_prompt\": true, ...}" },
    { "out", OPT_STR, offsetof(Options, out), "FILE",
      "lines {\"text\"}, or {\"error\", \"line\"} where the template fails" },
    { "threads", OPT_INT, offsetof(Options, threads), "N", "threads (default: all cores)", 1, THREADS_MOST },
    { 0 },
};

typedef struct {
    const Chat *chat;
    atomic_llong failed;
} Ctx;

/* A template that raises is an answer, with the template's line beside it; only the exit code tells that there was
 * one. */
static bool render(void *arg, int worker, const Json *line, Mem *mem, Buf *out, Err *err) {
    Ctx *c = arg;
    (void)worker, (void)mem;
    Buf text = { 0 };
    int at = 0;
    const Json *args = json_get(line, "args");
    bool wrapped =
        args && args->kind == JSON_OBJECT && !json_get(line, "messages"); /* a line of a test: {"args": {...}} */
    bool ok = chat_render_vars(c->chat, wrapped ? args : line, &text, &at, err);
    if (!ok && !at) return buf_free(&text), false;
    buf_puts(out, ok ? "{\"text\":" : "{\"error\":");
    if (ok) json_put_str(out, text.data ? text.data : "", text.n);
    else json_put_str(out, err->msg, strlen(err->msg));
    if (!ok) buf_printf(out, ",\"line\":%d", at), atomic_fetch_add(&c->failed, 1);
    buf_putc(out, '}');
    buf_free(&text);
    return true;
}

static int run(const Verb *v, int argc, char **argv) {
    Options o = { 0 };
    const char *word;
    int n, rc = opt_parse(v, &o, &word, 1, 1, &n, argc, argv);
    if (rc >= 0) return rc;
    Mem mem = { 0 };
    Err err;
    Ctx c = { .chat = model_dir(word) ? chat_open(word, NULL, &mem, &err) : chat_open_file(word, &mem, &err) };
    if (!c.chat) {
        mem_free(&mem);
        return cmd_fail(v, &err);
    }
    Threads *threads = threads_open(o.threads ? (int)o.threads : threads_default());
    rc = jsonl_map(v, o.in, o.out, threads, render, &c);
    threads_close(threads);
    mem_free(&mem);
    return rc ? rc : atomic_load(&c.failed) != 0;
}

const Verb verb_template = {
    .name = "template",
    .usage = "MODEL|FILE --in F --out F",
    .summary = "render chat templates as transformers does",
    .detail =
        "MODEL is a folder with chat_template.jinja or tokenizer_config.json; its special tokens become variables.\n"
        "FILE is a template alone: it sees the line's variables only.  A variable \"now\" is the clock of "
        "strftime_now.\n",
    .options = options,
    .run = run,
};
