/* fuzz_tokenizer.c - a tokenizer.json of any bytes, and text through whatever loads.  The input is the file, a 0xFF
 * byte (which no UTF-8 holds) and the text; without one, a text of our own is used.  Beside crashes it looks for ids
 * out of range, a stream that differs from whole decoding, and half characters. */
#include "base/json.h"
#include "base/utf8.h"
#include "text/tok.h"
#include "text/tok_parts.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const Tok *t, TokScratch *s, const char *text, size_t n, int flags) {
    TokIds ids = { 0 };
    Err err;
    if (tok_encode(t, s, text, n, flags, &ids, &err)) {
        size_t len;
        for (size_t i = 0; i < ids.n; i++)
            CHECK((flags & TOK_BOS) || tok_token_of(t, ids.at[i], &len), "id %d is not in the vocabulary", ids.at[i]);
        Buf whole = { 0 }, streamed = { 0 }, piece = { 0 };
        bool ok = tok_decode(t, ids.at, ids.n, flags & 1, &whole, &err), again = true;
        TokStream *d = tok_stream_open(t, flags & 1);
        for (size_t i = 0; i <= ids.n && again; i++) {
            buf_clear(&piece);
            again = i < ids.n ? tok_stream_push(d, ids.at[i], &piece, &err) : tok_stream_flush(d, &piece, &err);
            CHECK(utf8_valid(piece.data ? piece.data : "", piece.n), "half a character");
            buf_put(&streamed, piece.data, piece.n);
        }
        CHECK(ok == again, "whole %d, streamed %d", ok, again);
        CHECK(!ok || (whole.n == streamed.n && (!whole.n || !memcmp(whole.data, streamed.data, whole.n))),
              "the stream differs");
        tok_stream_close(d);
        buf_free(&whole);
        buf_free(&streamed);
        buf_free(&piece);
    }
    vec_free(ids.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char own[] = "Hello  wor\xC3\xA9ld \xF0\x9F\x98\x80 <s>12 a\n\n b'll \xE4\xB8\xAD<0x0A>";
    const uint8_t *cut = memchr(data, 0xFF, size);
    size_t n = cut ? (size_t)(cut - data) : size;
    Mem mem = { 0 };
    Json file;
    Err err;
    if (json_parse(&file, (const char *)data, n, &mem, &err)) {
        Mem own_mem = { 0 };
        Tok *t = MEM_NEW(&own_mem, Tok);
        t->mem = own_mem;
        if (tok_from_json(t, &file, &err)) {
            TokScratch *s = tok_scratch_open(t);
            for (int flags = 0; flags < 4; flags++) {
                check_text(t, s, own, sizeof own - 1, flags);
                if (cut) check_text(t, s, (const char *)cut + 1, size - n - 1, flags);
            }
            tok_scratch_close(s);
        }
        tok_close(t);
    }
    mem_free(&mem);
    return 0;
}
