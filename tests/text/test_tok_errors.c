/* test_tok_errors.c - what a tokenizer file may not be: each row is a tokenizer.json (or a part of one) and the words
 * its error must hold.  A piece that is not supported is named. */
#include "base/file.h"
#include "test.h"
#include "text/tok.h"

#include <unistd.h>

#define BPE              "\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]"
#define MODEL(more)      "\"model\":{" BPE more "}"
#define WITH(key, piece) "{" MODEL("") ",\"" key "\":" piece "}"

/* clang-format off */
static const struct { const char *json, *words; } row[] = {
    { "",                                                             "JSON" },
    { "{}",                                                           "no \"model\"" },
    { "[1]",                                                          "no \"model\"" },
    { "{" MODEL("") "} x",                                            "something follows" },
    { "{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}",              "Unigram" },
    { "{\"model\":{\"type\":\"WordPiece\"}}",                         "WordPiece" },
    { "{\"model\":{\"type\":\"BPE\"}}",                               "\"vocab\"" },
    { "{\"model\":{\"vocab\":{\"a\":0}}}",                            "\"merges\"" },
    { "{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}",             "\"a\"" },
    { "{\"model\":{\"vocab\":{\"a\":1e9},\"merges\":[]}}",            "\"a\"" },
    { "{\"model\":{\"vocab\":{\"a\":9000000},\"merges\":[]}}",        "\"a\"" },
    { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b\"]}}",       "no \"b\"" },
    { "{\"model\":{\"vocab\":{\"a\":0,\"b\":1},\"merges\":[\"a b\"]}}", "no \"ab\"" },
    { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"ab\"]}}",        "merge 0" },
    { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[[\"a\"]]}}",       "merge 0" },
    { "{\"model\":{\"vocab\":{\"a\":0},\"merges\":[\"a b c\"]}}",     "merge 0" },
    { "{" MODEL(",\"dropout\":0.1") "}",                              "dropout" },
    { "{" MODEL(",\"byte_fallback\":\"yes\"") "}",                    "byte_fallback" },
    { WITH("normalizer", "{\"type\":\"BertNormalizer\"}"),            "BertNormalizer" },
    { WITH("normalizer", "{\"type\":\"Precompiled\"}"),               "Precompiled" },
    { WITH("normalizer", "{\"type\":\"Sequence\"}"),                  "normalizers" },
    { WITH("normalizer", "{\"type\":\"Prepend\"}"),                   "prepend" },
    { WITH("normalizer", "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}"), "(" },
    { WITH("normalizer", "{\"type\":\"Replace\",\"pattern\":3,\"content\":\"\"}"), "pattern" },
    { WITH("normalizer", "\"NFC\""),                                  "type" },
    { WITH("normalizer", "{}"),                                       "type" },
    { WITH("pre_tokenizer", "{\"type\":\"BertPreTokenizer\"}"),       "BertPreTokenizer" },
    { WITH("pre_tokenizer", "{\"type\":\"UnicodeScripts\"}"),         "UnicodeScripts" },
    { WITH("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"}}"), "behavior" },
    { WITH("pre_tokenizer", "{\"type\":\"Split\",\"pattern\":{\"String\":\"a\"},\"behavior\":\"Eaten\"}"), "Eaten" },
    { WITH("pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"ab\"}"), "replacement" },
    { WITH("pre_tokenizer", "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"often\"}"), "often" },
    { WITH("pre_tokenizer", "{\"type\":\"Digits\",\"individual_digits\":1}"), "individual_digits" },
    { WITH("post_processor", "{\"type\":\"RobertaProcessing\"}"),     "RobertaProcessing" },
    { WITH("post_processor", "{\"type\":\"TemplateProcessing\"}"),    "single" },
    { WITH("post_processor",
      "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}"), "special_tokens" },
    { WITH("post_processor", "{\"type\":\"TemplateProcessing\",\"single\":[]}"), "Sequence A" },
    { WITH("decoder", "{\"type\":\"WordPiece\"}"),                    "WordPiece" },
    { WITH("decoder", "{\"type\":\"CTC\"}"),                          "CTC" },
    { WITH("decoder", "{\"type\":\"Strip\",\"content\":\"\"}"),       "one character" },
    { WITH("decoder", "{\"type\":\"Strip\",\"content\":\"a\",\"start\":-1}"), "0 or more" },
    { WITH("added_tokens", "[{}]"),                                   "content" },
    { WITH("added_tokens", "{}"),                                     "array" },
    { WITH("added_tokens", "[{\"content\":\"x\",\"special\":1}]"),    "special" },
};
/* clang-format on */

static void check_rows(const char *dir) {
    char path[300];
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    for (size_t i = 0; i < COUNT(row); i++) {
        Err err = { "" };
        Tok *tok;
        CHECK(file_write(path, row[i].json, strlen(row[i].json), &err), "%s", err.msg);
        TokStatus st = tok_open(&tok, dir, &err);
        bool named = strstr(err.msg, row[i].words) && strstr(err.msg, path);
        EXPECT(st == TOK_BAD && !tok && named, "row %zu: %d %s", i, (int)st, err.msg);
    }
    unlink(path);
}

static TokStatus open_with(const char *dir, const char *name, const char *text, const char *name2, const char *text2,
                           Err *err) {
    char a[300], b[300];
    snprintf(a, sizeof a, "%s/%s", dir, name);
    snprintf(b, sizeof b, "%s/%s", dir, name2);
    CHECK(file_write(a, text, strlen(text), err) && file_write(b, text2, strlen(text2), err), "%s", err->msg);
    Tok *tok;
    *err = (Err){ "" };
    TokStatus st = tok_open(&tok, dir, err);
    tok_close(tok);
    unlink(a);
    unlink(b);
    return st;
}

/* Folders that hold no tokenizer, or one of another kind that is broken. */
static void check_folders(const char *dir) {
    Err err = { "" };
    Tok *tok;
    TokStatus st;
    EXPECT(tok_open(&tok, dir, &err) == TOK_NONE && strstr(err.msg, "has no tokenizer"), "an empty folder: %s",
           err.msg);
    EXPECT(tok_open(&tok, "/nonexistent/x", &err) == TOK_NONE && strstr(err.msg, "/nonexistent/x"), "no folder: %s",
           err.msg);
    st = open_with(dir, "tiktoken.model", "IQ== 0\n", "tokenizer_config.json", "{}", &err);
    EXPECT(st == TOK_BAD && strstr(err.msg, "tokenizer_class"), "tiktoken without a class: %s", err.msg);
    const char *kimi = "{\"tokenizer_class\":\"TikTokenTokenizer\"}";
    st = open_with(dir, "tiktoken.model", "IQ== 0\n", "tokenizer_config.json", kimi, &err);
    EXPECT(st == TOK_BAD && strstr(err.msg, "byte 0x00"), "a byte is missing: %s", err.msg);
    st = open_with(dir, "x.tiktoken", "IQ== 0\nI!== 1\n", "tokenizer_config.json", kimi, &err);
    EXPECT(st == TOK_BAD && strstr(err.msg, "line 2"), "not base 64: %s", err.msg);
    st = open_with(dir, "vocab.json", "{\"a\":0}", "merges.txt", "#version: 0.2\na b\n", &err);
    EXPECT(st == TOK_BAD && strstr(err.msg, "no \"b\""), "merges without words: %s", err.msg);
    EXPECT(open_with(dir, "vocab.json", "{\"a\":0}", "merges.txt", "", &err) == TOK_OK, "one letter: %s", err.msg);
}

/* What is not in the vocabulary and has no unk_token is dropped, as the reference does; an
 * unk_token that is missing itself is an error once it is needed. */
static void check_unknown(const char *dir) {
    static const char *const json[] = { "{" MODEL("") "}", "{" MODEL(",\"unk_token\":\"<unk>\"") "}" };
    char path[300];
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    for (int i = 0; i < 2; i++) {
        Err err = { "" };
        Tok *tok;
        CHECK(file_write(path, json[i], strlen(json[i]), &err), "%s", err.msg);
        CHECK(tok_open(&tok, path, &err) == TOK_OK, "%s", err.msg);
        TokScratch *s = tok_scratch_open(tok);
        TokIds ids = { 0 };
        EXPECT(tok_encode(tok, s, "abba", 4, 0, &ids, &err) && ids.n == 3, "abba: %zu ids", ids.n);
        bool ok = tok_encode(tok, s, "xaby", 4, 0, &ids, &err);
        EXPECT(i == 0 ? ok && ids.n == 4 && ids.at[3] == 2 : !ok && strstr(err.msg, "<unk>") && ids.n == 3,
               "unknown: %s", err.msg);
        vec_free(ids.at);
        tok_scratch_close(s);
        tok_close(tok);
    }
    unlink(path);
}

int main(void) {
    char dir[] = "/tmp/test_tok_XXXXXX";
    CHECK(mkdtemp(dir), "no folder for the test");
    check_rows(dir);
    check_folders(dir);
    check_unknown(dir);
    rmdir(dir);
    return test_end();
}
