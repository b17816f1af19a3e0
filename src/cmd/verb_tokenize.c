/* verb_tokenize.c - `hone tokenize`: text to ids and back, a JSON line each. */
#include "cmd/cmd.h"
#include "text/tok.h"

#include <inttypes.h>

typedef struct {
    const char *in, *out;
    bool decode, special, bos;
    int64_t threads;
} Args;

typedef struct {
    const Tok *tok;
    TokScratch **scratch; /* one per worker */
    TokIds *ids;
    int flags;
} Work;

static bool encode_line(void *ctx, int worker, const Json *line, Mem *mem, Buf *out, Err *err) {
    (void)mem;
    Work *w = ctx;
    const Json *text = json_get(line, "text");
    if (!text || text->kind != JSON_STRING) return err_set(err, "the line has no \"text\"");
    TokIds *ids = &w->ids[worker];
    ids->n = 0;
    TRY(tok_encode(w->tok, w->scratch[worker], text->str, text->n, w->flags, ids, err));
    buf_puts(out, "{\"ids\":[");
    for (size_t i = 0; i < ids->n; i++) {
        char digits[12];
        int n = 0;
        uint32_t v = (uint32_t)ids->at[i];
        do digits[n++] = (char)('0' + v % 10);
        while (v /= 10);
        if (i) buf_putc(out, ',');
        while (n > 0) buf_putc(out, digits[--n]);
    }
    buf_puts(out, "]}");
    return true;
}

static bool decode_line(void *ctx, int worker, const Json *line, Mem *mem, Buf *out, Err *err) {
    (void)mem;
    Work *w = ctx;
    const Json *list = json_get(line, "ids");
    if (!list || list->kind != JSON_ARRAY) return err_set(err, "the line has no \"ids\"");
    TokIds *ids = &w->ids[worker];
    ids->n = 0;
    for (size_t i = 0; i < list->n; i++) {
        const Json *id = &list->items[i];
        if (id->kind != JSON_INT || id->integer < 0 || id->integer > INT32_MAX)
            return err_set(err, "\"ids\"[%zu] is not an id: a whole number from 0 on", i);
        VEC_PUSH(*ids, (int32_t)id->integer);
    }
    Buf text = { 0 };
    bool ok = tok_decode(w->tok, ids->at, ids->n, false, &text, err);
    if (ok) {
        buf_puts(out, "{\"text\":");
        json_put_str(out, text.data ? text.data : "", text.n);
        buf_putc(out, '}');
    }
    buf_free(&text);
    return ok;
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { .in = "-", .threads = threads_default() };
    const char *model;
    int words, rc = opt_parse(v, &a, &model, 1, 1, &words, argc, argv);
    if (rc >= 0) return rc;
    Err err;
    Tok *tok;
    if (tok_open(&tok, model, &err) != TOK_OK) return cmd_fail(v, &err);
    Mem mem = { 0 };
    int n = (int)a.threads;
    Work w = { .tok = tok, .flags = (a.special ? TOK_SPECIAL : 0) | (a.bos ? TOK_BOS : 0) };
    w.scratch = MEM_ARRAY(&mem, TokScratch *, (size_t)n);
    w.ids = MEM_ARRAY(&mem, TokIds, (size_t)n);
    for (int i = 0; i < n; i++) w.scratch[i] = tok_scratch_open(tok);
    Threads *threads = threads_open(n);
    rc = jsonl_map(v, a.in, a.out, threads, a.decode ? decode_line : encode_line, &w);
    threads_close(threads);
    for (int i = 0; i < n; i++) {
        tok_scratch_close(w.scratch[i]);
        vec_free(w.ids[i].at);
    }
    mem_free(&mem);
    tok_close(tok);
    return rc;
}

/* clang-format off */
static const Opt options[] = {
    { "in",      OPT_STR,  offsetof(Args, in),      "FILE",
      "lines {\"text\"} or {\"ids\"}; - is standard input", 0, 0 },
    { "out",     OPT_STR,  offsetof(Args, out),     "FILE",
      "lines {\"ids\"} or {\"text\"}; standard output if absent", 0, 0 },
    { "decode",  OPT_FLAG, offsetof(Args, decode),  NULL,   "ids to text", 0, 0 },
    { "special", OPT_FLAG, offsetof(Args, special), NULL,   "recognise special tokens in the text", 0, 0 },
    { "bos",     OPT_FLAG, offsetof(Args, bos),     NULL,
      "apply the post-processor: what the file puts around a text", 0, 0 },
    { "threads", OPT_INT,  offsetof(Args, threads), "N",    "threads (as many as there are cores)", 1, THREADS_MOST },
    { 0 },
};
/* clang-format on */

const Verb verb_tokenize = {
    .name = "tokenize",
    .usage = "MODEL --in F --out F [--decode] [--special] [--bos] [--threads N]",
    .summary = "text to token ids and back",
    .detail = "MODEL is a model folder or a tokenizer file: tokenizer.json, tiktoken.model, or vocab.json beside "
              "merges.txt.\n",
    .options = options,
    .run = run,
};
