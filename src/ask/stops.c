/* stops.c - where an answer ends by its text, and what of it may be shown before the end is known.
 * The text grows by whole characters, so only its new end has to be searched. */
#include "ask/stops.h"

#include <string.h>

struct Stops {
    Mem mem;
    TokStream *stream;
    const char *const *texts;
    int n;
    Buf text;
    size_t longest, end; /* end: where the answer's text ends */
    int which;           /* -1: none was found */
};

Stops *stops_open(const Tok *tok, const char *const *texts, int n) {
    Mem mem = { 0 };
    Stops *s = MEM_NEW(&mem, Stops);
    *s = (Stops){ .stream = tok_stream_open(tok, true), .texts = texts, .n = n, .which = -1 };
    for (int i = 0; i < n; i++)
        if (strlen(texts[i]) > s->longest) s->longest = strlen(texts[i]);
    s->mem = mem;
    return s;
}

static bool search(Stops *s, size_t from) {
    if (!s->text.data) return false;
    for (int i = 0; i < s->n; i++) {
        size_t len = strlen(s->texts[i]);
        char *hit = s->text.n - from >= len ? memmem(s->text.data + from, s->text.n - from, s->texts[i], len) : NULL;
        if (hit && (s->which < 0 || (size_t)(hit - s->text.data) < s->end))
            s->which = i, s->end = (size_t)(hit - s->text.data);
    }
    return s->which >= 0;
}

/* Bytes at the text's end that are the beginning of a stop text: the longest such piece. */
static size_t beginning(const Stops *s) {
    size_t k = s->longest ? s->longest - 1 : 0;
    for (k = k < s->text.n ? k : s->text.n; k > 0; k--)
        for (int i = 0; i < s->n; i++)
            if (strlen(s->texts[i]) > k && !memcmp(s->text.data + s->text.n - k, s->texts[i], k)) return k;
    return 0;
}

const char *stops_settled(const Stops *s, size_t *n) {
    *n = s->which >= 0 ? s->end : s->text.n - beginning(s);
    return s->text.data ? s->text.data : "";
}

int stops_which(const Stops *s) { return s->which; }

bool stops_push(Stops *s, int32_t id) {
    Err err;
    size_t from = s->text.n > s->longest ? s->text.n - s->longest : 0;
    if (!tok_stream_push(s->stream, id, &s->text, &err)) return false;
    return search(s, from);
}

void stops_text(Stops *s, Buf *out) {
    Err err;
    if (s->which < 0) tok_stream_flush(s->stream, &s->text, &err), s->end = s->text.n;
    if (s->text.data) buf_put(out, s->text.data, s->end);
}

void stops_close(Stops *s) {
    if (!s) return;
    tok_stream_close(s->stream);
    buf_free(&s->text);
    Mem mem = s->mem;
    mem_free(&mem);
}
