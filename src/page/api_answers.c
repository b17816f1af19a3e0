/* api_answers.c - windows of the list of answers, and one answer with all that is known of its tokens. */
#include "page/api.h"
#include "base/file.h"
#include "base/json.h"
#include "run/token_rows.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHORT_BYTES = 400, TOKENS_AT_ONCE = 20000, OTHERS_MOST = 400 };

/* The beginning of a string as JSON wrote it, which may not end within a character. */
static void put_short(Buf *b, Span raw) {
    enum { LONGEST_CHARACTER = 12 }; /* a pair of \uXXXX */
    size_t n = raw.n < SHORT_BYTES ? raw.n : SHORT_BYTES;
    Mem mem = { 0 };
    Err ignore;
    Json j;
    char quoted[SHORT_BYTES + 2] = "\"";
    memcpy(quoted + 1, raw.at, n);
    for (size_t k = n; k + LONGEST_CHARACTER >= n; k--) {
        quoted[k + 1] = '"';
        if (json_parse(&j, quoted, k + 2, &mem, &ignore) && j.kind == JSON_STRING) {
            json_put_str(b, j.str, j.n);
            mem_free(&mem);
            return;
        }
        if (!k) break;
    }
    buf_puts(b, "null");
    mem_free(&mem);
}

static bool line_of(const View *w, const Answer *x, Buf *line) {
    buf_clear(line);
    buf_reserve(line, (size_t)x->n);
    line->n = (size_t)x->n;
    line->data[line->n] = 0;
    return follow_bytes(&w->samples_file, x->at, line->n, line->data);
}

static void put_numbers(Buf *b, const View *w, uint32_t id) {
    const Answer *x = &w->answers.all.at[id];
    buf_printf(b, "\"id\":%u,\"step\":%d,\"row\":%lld,\"sample\":%d,\"tokens\":%d,\"score\":", id, x->step,
               (long long)x->row, x->sample, x->tokens);
    put_number(b, (double)x->score);
    buf_puts(b, ",\"advantage\":");
    put_number(b, (double)x->advantage);
    buf_puts(b, ",\"finish\":");
    const char *f = w->answers.n_finish ? w->answers.finish[x->finish] : "";
    json_put_str(b, f, strlen(f));
}

static void put_texts(Buf *b, const Buf *line) {
    static const char *const names[] = { "input", "output", "gts" };
    Member m;
    Scan s = scan_of(line->data, line->n);
    for (int found = 0; found < 3 && scan_next(&s, &m);)
        for (int i = 0; i < 3; i++) {
            if (m.kind != '"' || !scan_is(&m, names[i])) continue;
            buf_printf(b, ",\"%s\":", names[i]);
            put_short(b, m.value);
            found++;
        }
}

void api_samples(Buf *out, View *w, const Wanted *wanted, int64_t first, int64_t n) {
    static const double WORK_S = 0.15;
    AnswerList *l = answers_find(&w->answers, &w->samples_file, wanted, WORK_S);
    Buf line = { 0 };
    bool done = l->scanned >= w->answers.all.n && !follow_behind(&w->samples_file);
    buf_printf(out, "{\"total\":%zu,\"of\":%zu,\"scanned\":%u,\"done\":%s,\"first\":%lld,\"rows\":[", l->n,
               w->answers.all.n, l->scanned, done ? "true" : "false", (long long)first);
    for (int64_t i = first < 0 ? 0 : first; i < first + n && i < (int64_t)l->n; i++) {
        uint32_t id = list_id(l, (size_t)i);
        buf_puts(out, i > first ? ",{" : "{");
        put_numbers(out, w, id);
        if (line_of(w, &w->answers.all.at[id], &line)) put_texts(out, &line);
        buf_putc(out, '}');
    }
    buf_puts(out, "]}");
    buf_free(&line);
}

/* ---- its tokens */
typedef struct {
    TokenRow *at;
    int64_t n, from, of; /* rows; from which of how many */
    bool gone;
} Rows;

static bool rows_of(Rows *r, const View *w, const Json *line, int64_t tokens, int64_t from, Mem *mem) {
    Err ignore;
    int64_t at = -1;
    if (!json_int(line, "at", &at, &ignore) || at < 0 || tokens < 1 || tokens > INT32_MAX || from >= tokens)
        return false;
    *r = (Rows){ .from = from, .of = tokens, .n = tokens - from };
    if (r->n > TOKENS_AT_ONCE) r->n = TOKENS_AT_ONCE;
    Follow f;
    follow_open(&f, mem_printf(mem, "%s/samples_tokens.bin", w->dir));
    follow_look(&f);
    size_t bytes = (size_t)r->n * TOKEN_ROW;
    unsigned char *raw = mem_push(mem, bytes);
    bool there = at <= INT64_MAX / 2 && follow_bytes(&f, at + from * TOKEN_ROW, bytes, (char *)raw);
    follow_close(&f);
    r->at = MEM_ARRAY(mem, TokenRow, (size_t)r->n);
    bool any = false;
    for (int64_t i = 0; there && i < r->n; i++) any |= token_row_get(&r->at[i], raw + i * TOKEN_ROW);
    r->gone = !any;
    return true;
}

/* A token that is a part of a character has no text of its own: the last part has all of it. */
static void put_pieces(Buf *b, const Tok *tok, const Rows *r) {
    TokStream *s = tok_stream_open(tok, false);
    Buf piece = { 0 };
    for (int64_t i = 0; i < r->n; i++) {
        Err ignore;
        buf_clear(&piece);
        if (!tok_stream_push(s, r->at[i].id, &piece, &ignore)) buf_clear(&piece);
        if (i + 1 == r->n && !tok_stream_flush(s, &piece, &ignore)) buf_clear(&piece);
        if (i) buf_putc(b, ',');
        json_put_str(b, piece.data ? piece.data : "", piece.n);
    }
    buf_free(&piece);
    tok_stream_close(s);
}

typedef double Part(const TokenRow *r);
static double logprob(const TokenRow *r) { return (double)r->logprob; }
static double advantage(const TokenRow *r) { return (double)r->advantage; }
static double entropy(const TokenRow *r) { return (double)r->entropy; }
static double id_of(const TokenRow *r) { return r->id; }
static double mask(const TokenRow *r) { return r->mask; }
static double version(const TokenRow *r) { return r->version; }

static void put_tokens(Buf *b, View *w, const Rows *r) {
    static const struct {
        const char *name;
        Part *part;
    } parts[] = { { "id", id_of },        { "logprob", logprob }, { "advantage", advantage },
                  { "entropy", entropy }, { "mask", mask },       { "version", version } };
    buf_printf(b, "{\"from\":%lld,\"of\":%lld,\"gone\":%s", (long long)r->from, (long long)r->of,
               r->gone ? "true" : "false");
    for (size_t k = 0; k < COUNT(parts) && !r->gone; k++) {
        buf_printf(b, ",\"%s\":[", parts[k].name);
        for (int64_t i = 0; i < r->n; i++) {
            if (i) buf_putc(b, ',');
            if (parts[k].part == id_of) buf_printf(b, "%d", r->at[i].id);
            else put_number(b, parts[k].part(&r->at[i]));
        }
        buf_putc(b, ']');
    }
    const Tok *tok = r->gone ? NULL : view_tok(w);
    if (tok) {
        buf_puts(b, ",\"text\":[");
        put_pieces(b, tok, r);
        buf_putc(b, ']');
    }
    buf_putc(b, '}');
}

/* Those of the same question: within its step, or of any. */
static void put_others(Buf *b, const View *w, uint32_t id, bool same_step) {
    const Answer *all = w->answers.all.at, *x = &all[id];
    int n = 0;
    size_t from = 0, to = w->answers.all.n;
    if (same_step) { /* they stand together */
        for (from = id; from > 0 && all[from - 1].step == x->step; from--) {}
        for (to = id + 1; to < w->answers.all.n && all[to].step == x->step; to++) {}
    }
    buf_putc(b, '[');
    for (size_t i = from; i < to && n < OTHERS_MOST && x->row >= 0; i++)
        if (all[i].row == x->row) buf_printf(b, n++ ? ",%zu" : "%zu", i);
    buf_putc(b, ']');
}

bool api_sample(Buf *out, View *w, int64_t id, int64_t token) {
    if (id < 0 || id >= (int64_t)w->answers.all.n) return false;
    const Answer *x = &w->answers.all.at[id];
    Mem mem = { 0 };
    Buf line = { 0 };
    Err err;
    Json j;
    Rows rows;
    bool read = line_of(w, x, &line) && json_parse(&j, line.data, line.n, &mem, &err);
    buf_putc(out, '{');
    put_numbers(out, w, (uint32_t)id);
    buf_puts(out, ",\"line\":");
    if (read) json_put_value(out, &j);
    else buf_puts(out, "null");
    buf_puts(out, ",\"parts\":");
    if (read && rows_of(&rows, w, &j, x->tokens, token < 0 ? 0 : token, &mem)) put_tokens(out, w, &rows);
    else buf_puts(out, "null");
    buf_puts(out, ",\"group\":");
    put_others(out, w, (uint32_t)id, true);
    buf_puts(out, ",\"again\":");
    put_others(out, w, (uint32_t)id, false);
    buf_putc(out, '}');
    buf_free(&line);
    mem_free(&mem);
    return true;
}
