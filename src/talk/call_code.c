/* call_code.c - calls that look like code: Gemma's call:NAME{k:v}, and lists of Python calls [f(k=v), g()]. */
#include "talk/call_in.h"
#include "base/utf8.h"

#include <string.h>

enum { NESTED_MOST = 64 };

typedef struct {
    CallReader *r;
    const char *at, *end;
    Span tool;
    int depth;
} Code;

static void blank(Code *c) {
    while (c->at < c->end && strchr(" \t\r\n", *c->at) && *c->at) c->at++;
}

static bool eat(Code *c, char what) {
    blank(c);
    if (c->at >= c->end || *c->at != what) return false;
    c->at++;
    return true;
}

static bool starts(const Code *c, const char *what) {
    size_t n = strlen(what);
    return (size_t)(c->end - c->at) >= n && !memcmp(c->at, what, n);
}

/* ---- Gemma: keys are bare, strings stand between the format's own quotes, all else as JSON would be */
static bool gemma_value(Code *c, Span key, Json *out);

static bool gemma_object(Code *c, Json *out) {
    *out = (Json){ .kind = JSON_OBJECT };
    if (++c->depth > NESTED_MOST) return false;
    if (eat(c, '}')) return c->depth--, true;
    do {
        const char *colon = memchr(c->at, ':', (size_t)(c->end - c->at));
        if (!colon) return false;
        Span key = span_strip((Span){ c->at, (size_t)(colon - c->at) });
        size_t q = strlen(c->r->format->key);
        if (key.n >= 2 * q && span_starts(key, span_of(c->r->format->key))) key = (Span){ key.at + q, key.n - 2 * q };
        Json v;
        c->at = colon + 1;
        TRY(gemma_value(c, key, &v));
        call_set(c->r, out, key, v);
    } while (eat(c, ','));
    c->depth--;
    return eat(c, '}');
}

static bool gemma_list(Code *c, Json *out) {
    VEC(Json) items = { 0 };
    if (++c->depth > NESTED_MOST) return false;
    bool ok = true, empty = eat(c, ']');
    while (ok && !empty) {
        Json v;
        ok = gemma_value(c, (Span){ 0 }, &v);
        if (ok) VEC_PUSH(items, v);
        if (ok && !eat(c, ',')) {
            ok = eat(c, ']');
            break;
        }
    }
    *out = (Json){ .kind = JSON_ARRAY, .n = items.n };
    if (items.n) out->items = mem_copy(c->r->mem, items.at, items.n * sizeof *items.at);
    vec_free(items.at);
    c->depth--;
    return ok;
}

/* key.at NULL: not an argument of its own, the schema says nothing. */
static bool gemma_value(Code *c, Span key, Json *out) {
    const char *quote = c->r->format->key, *why;
    blank(c);
    if (starts(c, quote)) {
        c->at += strlen(quote);
        size_t n = span_find((Span){ c->at, (size_t)(c->end - c->at) }, 0, span_of(quote));
        if (n == SIZE_MAX) return false;
        Span text = { c->at, n };
        c->at += n + strlen(quote);
        bool typed = c->r->format->untyped == UNKNOWN_JSON && c->r->format->line_values && key.at;
        *out = typed ? call_typed(c->r, c->tool, key, text) : json_text(c->r, text);
        return true;
    }
    if (eat(c, '{')) return gemma_object(c, out);
    if (eat(c, '[')) return gemma_list(c, out);
    const char *from = c->at;
    while (c->at < c->end && !strchr(",}]", *c->at)) c->at++;
    Span bare = span_strip((Span){ from, (size_t)(c->at - from) });
    if (key.at && c->depth == 1) *out = call_typed(c->r, c->tool, key, bare);
    else if (!bare.n || !call_json(c->r, bare, out, &why)) *out = json_text(c->r, bare);
    return true;
}

size_t step_gemma(CallReader *r, Span rest) {
    size_t end = call_find(r, rest, r->format->close), brace;
    if (end == CALL_MORE) return CALL_MORE;
    Span s = span_strip((Span){ rest.at, end }), prefix = SPAN("call:");
    Json args;
    if (!span_starts(s, prefix) || (brace = span_find(s, 0, SPAN("{"))) == SIZE_MAX)
        call_broken(r, SPAN(""), "a call is call:NAME{key:value}");
    else {
        Span name = span_strip((Span){ s.at + prefix.n, brace - prefix.n });
        Code c = { .r = r, .at = s.at + brace + 1, .end = s.at + s.n, .tool = name };
        bool ok = gemma_object(&c, &args);
        if (!name.n) call_broken(r, name, "the call has no name");
        else if (!ok || c.at != c.end)
            call_broken(r, name, "the arguments cannot be read at byte %zu", (size_t)(c.at - s.at));
        else call_add(r, name, args, NULL);
    }
    return call_leave(r, end + strlen(r->format->close));
}

/* ---- Python: literals and calls with keywords alone */
static bool word_char(char ch) {
    return ch == '_' || (ch >= '0' && ch <= '9') || (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') || (ch & 0x80);
}

static Span word(Code *c, bool dots) {
    const char *from = c->at;
    while (c->at < c->end && (word_char(*c->at) || (dots && *c->at == '.'))) c->at++;
    bool number = c->at > from && *from >= '0' && *from <= '9';
    return number ? (Span){ 0 } : (Span){ from, (size_t)(c->at - from) };
}

static bool hex_char(Code *c, int digits, Buf *out) {
    uint32_t code = 0;
    char utf[4];
    for (int i = 0; i < digits; i++, c->at++) {
        char ch = c->at < c->end ? *c->at : 0;
        int d = ch >= '0' && ch <= '9' ? ch - '0' : (ch | 32) >= 'a' && (ch | 32) <= 'f' ? (ch | 32) - 'a' + 10 : -1;
        if (d < 0) return false;
        code = code * 16 + (uint32_t)d;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
    buf_put(out, utf, (size_t)utf8_put(utf, code));
    return true;
}

static bool escape(Code *c, Buf *out) {
    static const char plain[] = "\\'\"nrtabfv0", means[] = "\\'\"\n\r\t\a\b\f\v";
    char ch = c->at < c->end ? *c->at++ : 0;
    const char *k = ch ? strchr(plain, ch) : NULL;
    if (k) return buf_putc(out, means[k - plain]), true;
    if (ch == '\n') return true;
    if (ch == 'x') return hex_char(c, 2, out);
    if (ch == 'u') return hex_char(c, 4, out);
    if (ch == 'U') return hex_char(c, 8, out);
    if (!ch) return false;
    buf_putc(out, '\\'); /* Python keeps escapes that it does not know */
    buf_putc(out, ch);
    return true;
}

static bool python_string(Code *c, Json *out) {
    char quote = *c->at;
    bool triple = c->end - c->at >= 3 && c->at[1] == quote && c->at[2] == quote, ok = false;
    Buf text = { 0 };
    for (c->at += triple ? 3 : 1; c->at < c->end;) {
        char ch = *c->at;
        if (ch == quote && (!triple || (c->end - c->at >= 3 && c->at[1] == quote && c->at[2] == quote))) {
            c->at += triple ? 3 : 1;
            ok = true;
            break;
        }
        if (ch == '\n' && !triple) break;
        c->at++;
        if (ch != '\\') buf_putc(&text, ch);
        else if (!escape(c, &text)) break;
    }
    if (ok) *out = json_text(c->r, (Span){ text.n ? text.data : "", text.n });
    buf_free(&text);
    return ok;
}

static bool python_value(Code *c, Json *out);

static bool python_list(Code *c, char close, Json *out) {
    VEC(Json) items = { 0 };
    bool ok = true, done = eat(c, close);
    while (ok && !done) {
        Json v;
        ok = python_value(c, &v);
        if (ok) VEC_PUSH(items, v);
        bool more = ok && eat(c, ',');
        done = ok && eat(c, close);
        if (!more && !done) ok = false;
    }
    *out = (Json){ .kind = JSON_ARRAY, .n = items.n };
    if (items.n) out->items = mem_copy(c->r->mem, items.at, items.n * sizeof *items.at);
    vec_free(items.at);
    return ok;
}

static bool python_dict(Code *c, Json *out) {
    *out = (Json){ .kind = JSON_OBJECT };
    while (!eat(c, '}')) {
        Json key, v;
        blank(c);
        if (c->at >= c->end || (*c->at != '\'' && *c->at != '"')) return false;
        TRY(python_string(c, &key) && eat(c, ':') && python_value(c, &v));
        call_set(c->r, out, (Span){ key.str, key.n }, v);
        if (!eat(c, ',')) return eat(c, '}');
    }
    return true;
}

static bool python_value(Code *c, Json *out) {
    static const struct {
        const char *word;
        Json is;
    } words[] = {
        { "True", { .kind = JSON_BOOL, .flag = true } },
        { "true", { .kind = JSON_BOOL, .flag = true } },
        { "False", { .kind = JSON_BOOL } },
        { "false", { .kind = JSON_BOOL } },
        { "None", { .kind = JSON_NULL } },
        { "null", { .kind = JSON_NULL } },
    };
    const char *why;
    blank(c);
    if (c->at >= c->end || c->depth >= NESTED_MOST) return false;
    char ch = *c->at;
    if (ch == '\'' || ch == '"') return python_string(c, out);
    if (ch == '[' || ch == '(' || ch == '{') {
        c->at++, c->depth++;
        bool ok = ch == '{' ? python_dict(c, out) : python_list(c, ch == '[' ? ']' : ')', out);
        c->depth--;
        return ok;
    }
    const char *from = c->at;
    while (c->at < c->end && (word_char(*c->at) || *c->at == '.' || *c->at == '-' || *c->at == '+')) c->at++;
    Span s = { from, (size_t)(c->at - from) };
    for (size_t i = 0; i < COUNT(words); i++)
        if (span_eq(s, span_of(words[i].word))) return *out = words[i].is, true;
    return s.n && ((*s.at >= '0' && *s.at <= '9') || *s.at == '-') && call_json(c->r, s, out, &why);
}

static bool python_call(Code *c, Span *name, Json *args) {
    *args = (Json){ .kind = JSON_OBJECT };
    *name = word(c, true);
    if (!name->n || c->at >= c->end || *c->at != '(') return false;
    c->at++;
    while (!eat(c, ')')) {
        Json v;
        blank(c);
        Span key = word(c, false);
        TRY(key.n && eat(c, '=') && python_value(c, &v));
        call_set(c->r, args, key, v);
        if (!eat(c, ',')) return eat(c, ')');
    }
    return true;
}

/* The whole of s as a list of calls, all or none; *named: it begins like one. */
static bool python_calls(CallReader *r, Span s, bool *named) {
    Code c = { .r = r, .at = s.at, .end = s.at + s.n };
    size_t before = r->calls.n;
    *named = false;
    bool ok = eat(&c, '[');
    while (ok) {
        Span name;
        Json args;
        const char *from = c.at;
        ok = python_call(&c, &name, &args);
        if (from == s.at + 1) *named = name.n && from + name.n < c.end && from[name.n] == '(';
        if (ok) call_add(r, name, args, NULL);
        if (!ok || !eat(&c, ',')) break;
        blank(&c);
    }
    ok = ok && eat(&c, ']') && c.at == c.end;
    if (!ok) r->calls.n = before;
    return ok;
}

static const char wrong_list[] = "calls are a list of Python calls with keywords: [f(a=1), g(b='x')]";

/* A reply that is such a list and nothing else; or one between its own two tokens. */
size_t step_pythonic(CallReader *r, Span rest) {
    bool named;
    if (!r->section) {
        Span s = span_strip(rest);
        if (s.n && *s.at != '[') return 0;
        if (!r->finished) return CALL_MORE;
        if (!s.n || python_calls(r, s, &named)) return s.n ? rest.n : 0;
        if (!named || s.at[s.n - 1] != ']') return 0;
        call_text(r, rest);
        call_broken(r, SPAN(""), "%s", wrong_list);
        return rest.n;
    }
    Span opened = { r->in.data + r->from, r->at - r->from };
    const char *close = span_starts(opened, span_of(r->format->open[0])) ? r->format->close : r->format->call_end;
    size_t end = call_find(r, rest, close);
    if (end == CALL_MORE) return CALL_MORE;
    if (!python_calls(r, span_strip((Span){ rest.at, end }), &named)) call_broken(r, SPAN(""), "%s", wrong_list);
    return call_leave(r, end + strlen(close));
}
