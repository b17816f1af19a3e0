/* call.c - the reader of calls: text outside of sections, sections by the format's own step, and what is wrong with a
 * call.  Every search goes on where it stopped, so a text that comes byte by byte costs no more than one that comes
 * whole. */
#include "talk/call_in.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

CallReader call_reader(const ToolFormat *f, const Json *tools, Mem *mem) {
    return (CallReader){ .format = f, .tools = tools, .mem = mem };
}

void call_free(CallReader *r) {
    buf_free(&r->in);
    buf_free(&r->text);
    vec_free(r->calls.at);
}

void call_add(CallReader *r, Span name, Json arguments, const char *id) {
    ToolCall c = { .arguments = arguments, .id = id };
    c.name = (Span){ mem_str(r->mem, name.at, name.n), name.n };
    VEC_PUSH(r->calls, c);
}

void call_broken(CallReader *r, Span name, const char *fmt, ...) {
    char why[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(why, sizeof why, fmt, ap);
    va_end(ap);
    call_add(r, name, (Json){ 0 }, NULL);
    r->calls.at[r->calls.n - 1].error = mem_str(r->mem, why, strlen(why));
}

void call_text(CallReader *r, Span s) {
    if (!r->calls.n || r->format->rest_is_text) buf_put(&r->text, s.at, s.n);
}

size_t call_leave(CallReader *r, size_t used) {
    r->section = r->inside = false;
    return used;
}

/* ---- looking for what ends a thing */
size_t call_find(CallReader *r, Span rest, const char *what) {
    size_t n = strlen(what), from = r->scan > n ? r->scan - n : 0, at = span_find(rest, from, span_of(what));
    if (at == SIZE_MAX) r->scan = rest.n;
    return at;
}

/* What begins a call is taken by itself, so that afterwards its end alone is looked for. */
size_t call_next(CallReader *r, Span rest, Span *body) {
    const ToolFormat *f = r->format;
    size_t open = strlen(f->call), close = strlen(f->close), longer = open > close ? open : close;
    *body = (Span){ 0 };
    if (r->inside) {
        size_t end = call_find(r, rest, f->call_end);
        if (end == CALL_MORE) return CALL_MORE;
        *body = (Span){ rest.at, end };
        r->inside = false;
        return end + strlen(f->call_end);
    }
    size_t from = r->scan > longer ? r->scan - longer : 0;
    size_t p = span_find(rest, from, span_of(f->call)), q = span_find(rest, from, span_of(f->close));
    if (p == SIZE_MAX && q == SIZE_MAX) return r->scan = rest.n, CALL_MORE;
    if (q < p) {
        if (r->calls.n == r->calls_before)
            call_broken(r, SPAN(""), "there is no call between %s and %s", *f->open, f->close);
        return call_leave(r, q + close);
    }
    r->inside = true;
    return p + open;
}

static bool starts(Span s, size_t at, const char *what) {
    size_t n = strlen(what);
    return s.n - at >= n && !memcmp(s.at + at, what, n);
}

/* One byte of JSON or of Python: strings in double quotes hide what they hold. */
static void walk(CallReader *r, char c) {
    if (r->quoted) {
        if (r->escaped) r->escaped = false;
        else if (c == '\\') r->escaped = true;
        else if (c == '"') r->quoted = false;
    } else if (c == '"') r->quoted = true;
    else if (c == '{' || c == '[') r->depth++;
    else if ((c == '}' || c == ']') && r->depth) r->depth--;
}

size_t call_find_unquoted(CallReader *r, Span rest, const char *what) {
    size_t n = strlen(what);
    for (; r->scan < rest.n; r->scan++) {
        if (!r->quoted && rest.at[r->scan] == *what) {
            if (starts(rest, r->scan, what)) return r->scan;
            size_t have = rest.n - r->scan;
            if (have < n && !memcmp(rest.at + r->scan, what, have)) break;
        }
        walk(r, rest.at[r->scan]);
    }
    if (!r->finished) return CALL_MORE;
    return span_find(rest, 0, span_of(what)); /* a quote that never closes hides nothing */
}

size_t call_balance(CallReader *r, Span rest) {
    while (r->scan < rest.n) {
        walk(r, rest.at[r->scan++]);
        if (!r->depth && !r->quoted) return r->scan;
    }
    return CALL_MORE;
}

/* ---- the text */
/* The first of the format's openings, or how much of the end may be the beginning of one. */
static size_t opening(const CallReader *r, Span rest, size_t *held, size_t *length) {
    size_t first = SIZE_MAX;
    *held = 0;
    for (int i = 0; i < 2 && r->format->open[i]; i++) {
        Span what = span_of(r->format->open[i]);
        size_t at = span_find(rest, 0, what);
        if (at < first) first = at, *length = what.n;
        size_t most = what.n - 1 < rest.n ? what.n - 1 : rest.n;
        for (size_t n = most; n > *held; n--)
            if (!memcmp(rest.at + rest.n - n, what.at, n)) *held = n;
    }
    return first;
}

size_t call_enter(CallReader *r, size_t from, size_t used) {
    r->section = true;
    r->from = from;
    r->calls_before = r->calls.n;
    return used;
}

static size_t outside(CallReader *r, Span rest) {
    const ToolFormat *f = r->format;
    if (!r->at && f->at_start) {
        size_t used = f->step(r, rest);
        if (used || r->section) return used;
    }
    if (!rest.n) return CALL_MORE;
    size_t held = 0, length = 0, at = opening(r, rest, &held, &length);
    if (at == SIZE_MAX) {
        size_t n = rest.n - (r->finished ? 0 : held);
        call_text(r, (Span){ rest.at, n });
        return n ? n : CALL_MORE;
    }
    call_text(r, (Span){ rest.at, at });
    return call_enter(r, r->at + at, at + length);
}

static void pump(CallReader *r) {
    while (!r->closed) {
        Span rest = { r->in.data ? r->in.data + r->at : "", r->in.n - r->at };
        size_t used = r->section ? r->format->step(r, rest) : outside(r, rest);
        if (used == CALL_MORE) break;
        r->at += used;
        r->scan = r->depth = 0, r->quoted = r->escaped = false;
    }
    if (!r->finished || r->closed) return;
    if (r->section && r->format->open_is_text && r->calls.n == r->calls_before)
        call_text(r, (Span){ r->in.data + r->from, r->in.n - r->from });
    r->closed = true;
}

void call_put(CallReader *r, const char *text, size_t n) {
    buf_put(&r->in, text, n);
    pump(r);
}

void call_end(CallReader *r) {
    r->finished = true;
    pump(r);
}

/* ---- what a call says */
bool call_json(CallReader *r, Span s, Json *out, const char **why) {
    Err err;
    size_t used = 0;
    if (!json_parse_loose(out, s.at, s.n, &used, r->mem, &err)) {
        *why = mem_str(r->mem, err.msg, strlen(err.msg));
        return false;
    }
    if (used < s.n) *why = "something follows the JSON value";
    return used == s.n;
}

void call_arguments(CallReader *r, Span name, Span s, const char *id) {
    const char *why;
    Json v = { .kind = JSON_OBJECT };
    Span text = span_strip(s);
    if (text.n && !call_json(r, text, &v, &why)) call_broken(r, name, "the arguments are no JSON: %s", why);
    else if (!span_strip(name).n) call_broken(r, name, "the call has no name");
    else call_add(r, name, v, id);
}

void call_object(CallReader *r, const Json *o) {
    if (o->kind == JSON_ARRAY && o->n) {
        for (size_t i = 0; i < o->n; i++) call_object(r, &o->items[i]);
        return;
    }
    const Json *name = json_get(o, "name"), *with = json_get(o, "arguments");
    if (!with) with = json_get(o, "parameters");
    if (!name || name->kind != JSON_STRING) {
        call_broken(r, SPAN(""), "a call is {\"name\": ..., \"arguments\": {...}}, and this has no \"name\"");
        return;
    }
    call_add(r, (Span){ name->str, name->n }, with ? *with : (Json){ .kind = JSON_OBJECT }, NULL);
}

void call_set(CallReader *r, Json *o, Span key, Json value) {
    for (size_t i = 0; i < o->n; i++) {
        if (!span_eq((Span){ o->members[i].key, o->members[i].key_n }, key)) continue;
        o->members[i].value = value;
        return;
    }
    if (!(o->n & (o->n - 1))) { /* room is doubled at every power of two */
        JsonMember *m = MEM_ARRAY(r->mem, JsonMember, o->n ? 2 * o->n : 1);
        if (o->n) memcpy(m, o->members, o->n * sizeof *m);
        o->members = m;
    }
    o->members[o->n++] = (JsonMember){ mem_str(r->mem, key.at, key.n), key.n, value };
}

/* ---- against the tools that there are */
const Json *tool_schema(const Json *tools, Span name) {
    for (size_t i = 0; tools && tools->kind == JSON_ARRAY && i < tools->n; i++) {
        const Json *f = json_get(&tools->items[i], "function");
        if (!f || f->kind != JSON_OBJECT) f = &tools->items[i];
        const Json *n = json_get(f, "name");
        if (n && n->kind == JSON_STRING && span_eq((Span){ n->str, n->n }, name)) return f;
    }
    return NULL;
}

const char *call_problem(const ToolCall *c, const Json *tools, Mem *mem) {
    if (c->error) return c->error;
    const Json *f = tool_schema(tools, c->name);
    if (!f) {
        Buf names = { 0 };
        for (size_t i = 0; tools && tools->kind == JSON_ARRAY && i < tools->n; i++) {
            const Json *g = json_get(&tools->items[i], "function"), *n = json_get(g ? g : &tools->items[i], "name");
            if (n && n->kind == JSON_STRING) buf_printf(&names, "%s%s", names.n ? ", " : "", n->str);
        }
        char *why = mem_printf(mem, "there is no tool '%.*s'; there are: %s", (int)(c->name.n < 100 ? c->name.n : 100),
                               c->name.at, names.n ? names.data : "none");
        buf_free(&names);
        return why;
    }
    if (c->arguments.kind != JSON_OBJECT)
        return mem_printf(mem, "the arguments must be an object, not %s", json_kind_name(c->arguments.kind));
    const Json *must = json_path(f, "parameters.required");
    for (size_t i = 0; must && must->kind == JSON_ARRAY && i < must->n; i++)
        if (must->items[i].kind == JSON_STRING && !json_get(&c->arguments, must->items[i].str))
            return mem_printf(mem, "the argument \"%s\" is missing", must->items[i].str);
    return NULL;
}
