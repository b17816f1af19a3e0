/* test_tok.c - ids and text equal to the reference's, for every tokenizer under tests/data/tokenizers (made by
 * tests/oracle/make_tokenizers.py; qwen_like and deepseek_v3_like are those models' published pieces on a small
 * vocabulary) and, with --extra DIR, those under DIR/tokenizers.  Each text is also decoded a token at a time. */
#include "base/file.h"
#include "base/json.h"
#include "base/threads.h"
#include "base/utf8.h"
#include "test.h"
#include "text/tok.h"

#include <dirent.h>

typedef struct {
    const Tok *tok;
    TokScratch *scratch;
    const char *name;
    size_t line;
    TokIds ids;
    Buf text, piece;
} Run;

static bool flag(const Json *c, const char *key, bool absent) {
    Err err;
    CHECK(json_bool(c, key, &absent, &err), "%s", err.msg);
    return absent;
}

/* As decode gives it, and never half a character on the way. */
static void check_stream(Run *r, bool skip, const Json *want) {
    Err err = { "" };
    TokStream *s = tok_stream_open(r->tok, skip);
    bool ok = true;
    buf_clear(&r->text);
    for (size_t i = 0; i <= r->ids.n; i++) {
        buf_clear(&r->piece);
        ok &= i < r->ids.n ? tok_stream_push(s, r->ids.at[i], &r->piece, &err) : tok_stream_flush(s, &r->piece, &err);
        ok &= utf8_valid(r->piece.data ? r->piece.data : "", r->piece.n);
        buf_put(&r->text, r->piece.data, r->piece.n);
    }
    tok_stream_close(s);
    EXPECT(ok && r->text.n == want->n && !memcmp(r->text.data, want->str, want->n),
           "%s case %zu streamed: \"%s\", want \"%s\" %s", r->name, r->line, r->text.data, want->str, err.msg);
}

static void check_decode(Run *r, const Json *c, const char *key, bool skip) {
    const Json *want = json_get(c, key);
    if (!want) return;
    Err err = { "" };
    buf_clear(&r->text);
    buf_puts(&r->text, "");
    bool ok = tok_decode(r->tok, r->ids.at, r->ids.n, skip, &r->text, &err);
    EXPECT(ok && r->text.n == want->n && !memcmp(r->text.data, want->str, want->n),
           "%s case %zu %s: \"%s\", want \"%s\" %s", r->name, r->line, key, r->text.data, want->str, err.msg);
    check_stream(r, skip, want);
}

static void check_case(Run *r, const Json *c) {
    const Json *text = json_get(c, "text"), *ids = json_get(c, "ids");
    Err err = { "" };
    r->ids.n = 0;
    if (text) {
        int flags = (flag(c, "special", true) ? TOK_SPECIAL : 0) | (flag(c, "bos", false) ? TOK_BOS : 0);
        bool ok = tok_encode(r->tok, r->scratch, text->str, text->n, flags, &r->ids, &err) && r->ids.n == ids->n;
        for (size_t i = 0; i < ids->n && ok; i++) ok = r->ids.at[i] == ids->items[i].integer;
        EXPECT(ok, "%s case %zu: other ids for \"%s\" (%zu, want %zu) %s", r->name, r->line, text->str, r->ids.n,
               ids->n, err.msg);
    }
    r->ids.n = 0;
    for (size_t i = 0; i < ids->n; i++) VEC_PUSH(r->ids, (int32_t)ids->items[i].integer);
    check_decode(r, c, "decoded", false);
    check_decode(r, c, "skipped", true);
}

static void check_folder(const char *root, const char *name) {
    char path[600];
    Err err;
    Tok *tok;
    snprintf(path, sizeof path, "%s/%s", root, name);
    if (tok_open(&tok, path, &err) != TOK_OK) {
        EXPECT(false, "%s: %s", path, err.msg);
        return;
    }
    Run r = { .tok = tok, .scratch = tok_scratch_open(tok), .name = name };
    snprintf(path, sizeof path, "%s/%s/cases.jsonl", root, name);
    LineReader *lines = lines_open(path, &err);
    CHECK(lines, "%s", err.msg);
    const char *line;
    size_t n;
    while (lines_next(lines, &line, &n)) {
        Mem mem = { 0 };
        Json c;
        r.line++;
        CHECK(json_parse(&c, line, n, &mem, &err), "%s: %s", path, err.msg);
        check_case(&r, &c);
        mem_free(&mem);
    }
    CHECK(lines_close(lines, &err), "%s", err.msg);
    EXPECT(r.line > 20, "%s has only %zu cases", path, r.line);
    tok_scratch_close(r.scratch);
    tok_close(tok);
    vec_free(r.ids.at);
    buf_free(&r.text);
    buf_free(&r.piece);
}

static int check_root(const char *root) {
    int n = 0;
    DIR *d = opendir(root);
    if (!d) return 0;
    for (const struct dirent *e; (e = readdir(d));)
        if (e->d_name[0] != '.') check_folder(root, e->d_name), n++;
    closedir(d);
    return n;
}

/* ---- seams: where the whole has a border between tokens anyway, its ids; else none crosses */
static void check_seams(const char *name, const char *text, bool same) {
    char path[200];
    Err err;
    Tok *tok;
    snprintf(path, sizeof path, FIXTURE("tokenizers/%s"), name);
    CHECK(tok_open(&tok, path, &err) == TOK_OK, "%s", err.msg);
    TokScratch *s = tok_scratch_open(tok);
    TokIds whole = { 0 }, cut = { 0 }, first = { 0 };
    size_t n = strlen(text), at[3], place[] = { 0, (size_t)(strchr(text, '|') - text), n };
    char bare[100];
    snprintf(bare, sizeof bare, "%.*s%s", (int)place[1], text, text + place[1] + 1);
    place[2] = strlen(bare);
    VEC_PUSH(cut, 77); /* appended to */
    CHECK(tok_encode(tok, s, bare, place[2], TOK_SPECIAL, &whole, &err)
              && tok_encode(tok, s, bare, place[1], TOK_SPECIAL, &first, &err)
              && tok_encode_seams(tok, s, bare, place[2], TOK_SPECIAL, &(TokSeams){ place, 3, at }, &cut, &err),
          "%s", err.msg);
    EXPECT(at[0] == 0 && at[1] == first.n && at[2] == cut.n - 1, "%s, %s: seams at %zu %zu %zu of %zu", name, text,
           at[0], at[1], at[2], cut.n - 1);
    EXPECT(cut.n - 1 >= first.n && !memcmp(cut.at + 1, first.at, first.n * sizeof *first.at), "%s, %s: first part",
           name, text);
    EXPECT(same == (cut.n - 1 == whole.n && !memcmp(cut.at + 1, whole.at, whole.n * sizeof *whole.at)),
           "%s, %s: the ids are%s those of the whole", name, text, same ? " not" : "");
    cut.n = 0;
    EXPECT(tok_encode_seams(tok, s, "", 0, TOK_SPECIAL, &(TokSeams){ (size_t[]){ 0 }, 1, at }, &cut, &err) && !at[0]
               && !cut.n,
           "%s: a seam of nothing", name);
    vec_free(whole.at);
    vec_free(cut.at);
    vec_free(first.at);
    tok_scratch_close(s);
    tok_close(tok);
}

static void seams(void) {
    static const char *const spaced[] = { "metaspace_first", "metaspace_old", "qwen_like", "llama3", "gpt2" };
    for (size_t i = 0; i < COUNT(spaced); i++) check_seams(spaced[i], "the answer| is the other", true);
    check_seams("llama2", "<s>[INST] a [/INST]| b</s>", true);
    check_seams("llama2", "<s>a</s>|[INST] b", true); /* behind a special token a text begins */
    check_seams("qwen_like", "<|im_start|>user|\na", true);
    check_seams("qwen_like", "a<|im_end|>|\n<|im_start|>user", true);
    check_seams("qwen_like", "th|e", false);
    check_seams("llama2", "the answer| is the other", false); /* this one has tokens of two words */
}

/* ---- many threads on one Tok */
typedef struct {
    const Tok *tok;
    TokScratch *scratch[4];
    uint64_t sum[64];
} Shared;

static void encode_index(void *arg, int index, int worker) {
    Shared *s = arg;
    TokIds ids = { 0 };
    Err err;
    uint64_t sum = 0;
    for (int k = 0; k < 50; k++) {
        char text[100];
        int n = snprintf(text, sizeof text, "text %d of %d: caf\xC3\xA9 <|im_start|> it's %d\n\n", k, index, k * index);
        ids.n = 0;
        CHECK(tok_encode(s->tok, s->scratch[worker], text, (size_t)n, TOK_SPECIAL, &ids, &err), "%s", err.msg);
        for (size_t i = 0; i < ids.n; i++) sum = sum * 1000003 + (uint64_t)ids.at[i];
    }
    s->sum[index] = sum;
    vec_free(ids.at);
}

static void check_threads(void) {
    Err err;
    Shared one = { 0 }, four = { 0 };
    Tok *tok;
    CHECK(tok_open(&tok, FIXTURE("tokenizers/qwen_like"), &err) == TOK_OK, "%s", err.msg);
    one.tok = four.tok = tok;
    one.scratch[0] = tok_scratch_open(tok);
    for (int i = 0; i < 4; i++) four.scratch[i] = tok_scratch_open(tok);
    Threads *t = threads_open(4);
    for (int i = 0; i < 64; i++) encode_index(&one, i, 0);
    threads_run(t, 64, encode_index, &four);
    EXPECT(!memcmp(one.sum, four.sum, sizeof one.sum), "four threads do not give what one gives");
    threads_close(t);
    tok_scratch_close(one.scratch[0]);
    for (int i = 0; i < 4; i++) tok_scratch_close(four.scratch[i]);
    tok_close(tok);
}

static void check_questions(void) {
    Err err;
    Tok *tok;
    size_t n;
    CHECK(tok_open(&tok, FIXTURE("tokenizers/qwen_like/tokenizer.json"), &err) == TOK_OK, "%s", err.msg);
    int32_t id = tok_id_of(tok, "<|im_end|>", 10);
    EXPECT(id == 4098 && tok_is_special(tok, id), "<|im_end|> is %d", id);
    EXPECT(tok_vocab_size(tok) == 4106, "%zu tokens", tok_vocab_size(tok));
    EXPECT(!tok_is_special(tok, tok_id_of(tok, "</think>", 8)), "</think> is not special");
    const char *s = tok_token_of(tok, id, &n);
    EXPECT(s && n == 10 && !memcmp(s, "<|im_end|>", 10), "token %d is spelled otherwise", id);
    EXPECT(tok_id_of(tok, "no such token", 13) == -1, "a token that is none");
    EXPECT(!tok_token_of(tok, 4106, &n) && !tok_token_of(tok, -1, &n), "ids that are none");
    TokScratch *scratch = tok_scratch_open(tok);
    TokIds ids = { 0 };
    EXPECT(!tok_encode(tok, scratch, "ab\xC3", 3, 0, &ids, &err) && strstr(err.msg, "byte 2"), "cut text: %s", err.msg);
    EXPECT(tok_encode(tok, scratch, "", 0, 0, &ids, &err) && ids.n == 0, "no text, no ids");
    vec_free(ids.at);
    tok_scratch_close(scratch);
    tok_close(tok);
}

int main(int argc, char **argv) {
    EXPECT(check_root(FIXTURE("tokenizers")) > 30, "the fixtures are missing");
    check_threads();
    check_questions();
    seams();
    if (argc > 2 && !strcmp(argv[1], "--extra")) {
        char root[512];
        snprintf(root, sizeof root, "%s/tokenizers", argv[2]);
        EXPECT(check_root(root) > 0, "%s has no tokenizers", root);
    } else {
        SKIP("the published vocabularies: give --extra DIR");
    }
    return test_end();
}
