/* tok_decode.c - ids back to text, a token at a time.  The decoders of tokenizer.json form a chain; from Fuse or
 * ByteLevel on, what flows is one text that grows instead of a list of tokens.  tok_decode is the stream pushed to
 * its end, so the two cannot differ.  What a step can only know at the end - a run of <0x..> bytes that may not be
 * UTF-8 as a whole, a Replace over the joined text - it holds back until then. */
#include "base/utf8.h"
#include "text/tok_parts.h"

#include <string.h>

typedef struct {
    Buf held; /* DECODE_BYTES: the beginning of a character; DECODE_FALLBACK: the bytes of a run; joined steps: all */
    size_t seen; /* tokens, or marks cut at the start (DECODE_STRIP, joined) */
    size_t tail; /* DECODE_STRIP, joined: marks at the end that may have to go */
    bool past;   /* DECODE_STRIP, joined: something else than marks has come */
} StepState;

struct TokStream {
    Mem mem;
    const Tok *tok;
    bool skip_special;
    StepState state[DECODE_MAX];
    RegexScratch regex;
    Buf tmp[DECODE_MAX];
    Buf *out;
    Err *err;
};

static bool pass(TokStream *s, int k, const char *text, size_t n);

/* ---- bytes to characters: each longest beginning of a character that breaks off becomes one U+FFFD */
static size_t broken_prefix(const unsigned char *p, size_t n, bool *may_go_on) {
    static const struct {
        unsigned char first, last, low, high;
        int len;
    } row[] = {
        { 0xC2, 0xDF, 0x80, 0xBF, 2 }, { 0xE0, 0xE0, 0xA0, 0xBF, 3 }, { 0xE1, 0xEC, 0x80, 0xBF, 3 },
        { 0xED, 0xED, 0x80, 0x9F, 3 }, { 0xEE, 0xEF, 0x80, 0xBF, 3 }, { 0xF0, 0xF0, 0x90, 0xBF, 4 },
        { 0xF1, 0xF3, 0x80, 0xBF, 4 }, { 0xF4, 0xF4, 0x80, 0x8F, 4 },
    };
    *may_go_on = false;
    for (size_t r = 0; r < COUNT(row); r++) {
        if (p[0] < row[r].first || p[0] > row[r].last) continue;
        size_t i = 1;
        for (; i < n && i < (size_t)row[r].len; i++) {
            unsigned char low = i == 1 ? row[r].low : 0x80, high = i == 1 ? row[r].high : 0xBF;
            if (p[i] < low || p[i] > high) break;
        }
        *may_go_on = i == n;
        return i;
    }
    return 1;
}

static bool characters(TokStream *s, int k, bool end) {
    Buf *held = &s->state[k].held, *out = &s->tmp[k];
    const unsigned char *p = (const unsigned char *)held->data;
    size_t i = 0;
    buf_clear(out);
    while (i < held->n) {
        uint32_t c;
        int len = utf8_get(held->data + i, held->n - i, &c);
        if (len) {
            buf_put(out, held->data + i, (size_t)len);
            i += (size_t)len;
            continue;
        }
        bool more;
        size_t broken = broken_prefix(p + i, held->n - i, &more);
        if (more && !end) break;
        buf_puts(out, "\xEF\xBF\xBD");
        i += broken;
    }
    if (i) memmove(held->data, held->data + i, held->n - i);
    held->n -= i;
    return out->n == 0 || pass(s, k + 1, out->data, out->n);
}

/* Printable characters back to bytes; a token that has others stands for itself. */
static void unmap(Buf *out, const char *t, size_t n) {
    size_t from = out->n;
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        i += (size_t)utf8_get(t + i, n - i, &c);
        int byte = char_byte(c);
        if (byte < 0) {
            out->n = from;
            buf_put(out, t, n);
            return;
        }
        buf_putc(out, (char)byte);
    }
}

/* ---- <0x0A> */
static int hex_digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static int fallback_byte(const char *t, size_t n) {
    if (n != 6 || memcmp(t, "<0x", 3) || t[5] != '>') return -1;
    int high = t[3] == '+' ? 0 : hex_digit(t[3]), low = hex_digit(t[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static bool end_run(TokStream *s, int k) {
    Buf *run = &s->state[k].held;
    size_t n = run->n;
    if (n == 0) return true;
    bool good = utf8_valid(run->data, n);
    Buf text = { 0 };
    if (good) buf_put(&text, run->data, n);
    buf_clear(run);
    bool ok = true;
    if (good) ok = pass(s, k + 1, text.data, text.n);
    else
        for (size_t i = 0; i < n && ok; i++) ok = pass(s, k + 1, "\xEF\xBF\xBD", 3);
    buf_free(&text);
    return ok;
}

/* ---- one token through one step */
static bool strip_token(TokStream *s, int k, const char *t, size_t n) {
    const DecodeStep *d = &s->tok->decoder.step[k];
    size_t m = (size_t)d->mark_n;
    for (size_t i = 0; i < d->start && n >= m && !memcmp(t, d->mark, m); i++) t += m, n -= m;
    for (size_t i = 0; i < d->stop && n >= m && !memcmp(t + n - m, d->mark, m); i++) n -= m;
    return pass(s, k + 1, t, n);
}

static bool metaspace_token(TokStream *s, int k, const char *t, size_t n, bool first) {
    const DecodeStep *d = &s->tok->decoder.step[k];
    Buf *out = &s->tmp[k];
    buf_clear(out);
    for (size_t i = 0; i < n;) {
        if (n - i >= (size_t)d->mark_n && !memcmp(t + i, d->mark, (size_t)d->mark_n)) {
            if (!(first && d->prepended)) buf_putc(out, ' ');
            i += (size_t)d->mark_n;
        } else {
            buf_putc(out, t[i++]);
        }
    }
    return pass(s, k + 1, out->data ? out->data : "", out->n);
}

static bool token(TokStream *s, int k, const char *t, size_t n) {
    const DecodeStep *d = &s->tok->decoder.step[k];
    StepState *st = &s->state[k];
    switch (d->kind) {
    case DECODE_BYTES: unmap(&st->held, t, n); return characters(s, k, d->joined);
    case DECODE_RAW: buf_put(&st->held, t, n); return characters(s, k, false);
    case DECODE_FUSE: return pass(s, k + 1, t, n);
    case DECODE_STRIP: return strip_token(s, k, t, n);
    case DECODE_METASPACE: return metaspace_token(s, k, t, n, st->seen++ == 0);
    case DECODE_SPACES:
        if (st->seen++) TRY(pass(s, k + 1, " ", 1));
        return pass(s, k + 1, t, n);
    case DECODE_REPLACE:
        buf_clear(&s->tmp[k]);
        TRY(replace_apply(&d->replace, &s->regex, &s->tmp[k], t, n, s->err));
        return pass(s, k + 1, s->tmp[k].data ? s->tmp[k].data : "", s->tmp[k].n);
    case DECODE_FALLBACK: {
        int byte = fallback_byte(t, n);
        if (byte >= 0) return buf_putc(&st->held, (char)byte), true;
        return end_run(s, k) && pass(s, k + 1, t, n);
    }
    }
    return true;
}

/* ---- a piece of the joined text through one step */
static bool strip_text(TokStream *s, int k, const char *t, size_t n) {
    const DecodeStep *d = &s->tok->decoder.step[k];
    StepState *st = &s->state[k];
    size_t m = (size_t)d->mark_n;
    Buf *out = &s->tmp[k];
    buf_clear(out);
    for (size_t i = 0; i < n;) {
        bool mark = n - i >= m && !memcmp(t + i, d->mark, m);
        if (mark && !st->past && st->seen < d->start) {
            st->seen++;
            i += m;
            continue;
        }
        st->past = true;
        if (mark) {
            if (st->tail < d->stop) st->tail++;
            else buf_put(out, d->mark, m);
            i += m;
            continue;
        }
        for (; st->tail > 0; st->tail--) buf_put(out, d->mark, m);
        buf_putc(out, t[i++]);
    }
    return out->n == 0 || pass(s, k + 1, out->data, out->n);
}

static bool pass(TokStream *s, int k, const char *text, size_t n) {
    const Decoder *dec = &s->tok->decoder;
    if (k == dec->n) return buf_put(s->out, text, n), true;
    const DecodeStep *d = &dec->step[k];
    if (!d->joined) return token(s, k, text, n);
    if (d->kind == DECODE_FUSE) return pass(s, k + 1, text, n);
    if (d->kind == DECODE_STRIP) return strip_text(s, k, text, n);
    buf_put(&s->state[k].held, text, n);
    return true;
}

static bool finish(TokStream *s) {
    const Decoder *dec = &s->tok->decoder;
    for (int k = 0; k < dec->n; k++) {
        const DecodeStep *d = &dec->step[k];
        StepState *st = &s->state[k];
        if (d->joined && d->kind != DECODE_FUSE && d->kind != DECODE_STRIP) {
            Buf all = st->held;
            st->held = (Buf){ 0 };
            bool ok = all.n == 0 || token(s, k, all.data, all.n);
            buf_free(&all);
            TRY(ok);
        }
        if (d->kind == DECODE_FALLBACK) TRY(end_run(s, k));
        if (d->kind == DECODE_BYTES || d->kind == DECODE_RAW) TRY(characters(s, k, true));
    }
    return true;
}

/* ---- the front */
TokStream *tok_stream_open(const Tok *t, bool skip_special) {
    Mem mem = { 0 };
    TokStream *s = MEM_NEW(&mem, TokStream);
    *s = (TokStream){ .mem = mem, .tok = t, .skip_special = skip_special };
    return s;
}

void tok_stream_close(TokStream *s) {
    if (!s) return;
    for (int k = 0; k < DECODE_MAX; k++) {
        buf_free(&s->state[k].held);
        buf_free(&s->tmp[k]);
    }
    regex_scratch_free(&s->regex);
    Mem mem = s->mem;
    mem_free(&mem);
}

bool tok_stream_push(TokStream *s, int32_t id, Buf *out, Err *err) {
    size_t n = 0;
    const char *t = tok_token_of(s->tok, id, &n);
    if (!t || (s->skip_special && tok_is_special(s->tok, id))) return true;
    s->out = out;
    s->err = err;
    return pass(s, 0, t, n);
}

bool tok_stream_flush(TokStream *s, Buf *out, Err *err) {
    s->out = out;
    s->err = err;
    bool ok = finish(s);
    for (int k = 0; k < DECODE_MAX; k++) {
        Buf keep = s->state[k].held;
        buf_clear(&keep);
        s->state[k] = (StepState){ .held = keep };
    }
    return ok;
}

bool tok_decode(const Tok *t, const int32_t *ids, size_t n, bool skip_special, Buf *out, Err *err) {
    TokStream *s = tok_stream_open(t, skip_special);
    bool ok = true;
    for (size_t i = 0; i < n && ok; i++) ok = tok_stream_push(s, ids[i], out, err);
    ok = ok && tok_stream_flush(s, out, err);
    tok_stream_close(s);
    return ok;
}
