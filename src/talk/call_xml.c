/* call_xml.c - calls with a tag for each argument: Qwen3-Coder's, MiniMax', DeepSeek's DSML, GLM's; and values typed by
 * the schema, because such formats have none of their own. */
#include "talk/call_in.h"

#include <string.h>
#include <strings.h>

static Span until(Span s, size_t at) { return (Span){ s.at, at < s.n ? at : s.n }; }

static bool same_word(Span s, const char *word) { return s.n == strlen(word) && !strncasecmp(s.at, word, s.n); }

static bool has_type(const Json *type, const char *name) {
    if (!type) return false;
    if (json_is_str(type, name)) return true;
    for (size_t i = 0; type->kind == JSON_ARRAY && i < type->n; i++)
        if (json_is_str(&type->items[i], name)) return true;
    return false;
}

Json call_typed(CallReader *r, Span tool, Span key, Span text) {
    const Json *known = json_path(tool_schema(r->tools, tool), "parameters.properties"), *prop = NULL;
    for (size_t i = 0; known && known->kind == JSON_OBJECT && i < known->n; i++)
        if (span_eq((Span){ known->members[i].key, known->members[i].key_n }, key)) prop = &known->members[i].value;
    const Json *type = json_get(prop, "type");
    Span bare = span_strip(text);
    if (has_type(type, "string")) {
        if (has_type(type, "null") && same_word(bare, "null")) return (Json){ 0 };
        return json_text(r, text);
    }
    if (!prop && r->format->untyped == UNKNOWN_TEXT) return json_text(r, text);
    Json v;
    const char *why;
    if (same_word(bare, "null")) return (Json){ 0 };
    if (has_type(type, "boolean") && (same_word(bare, "true") || same_word(bare, "false")))
        return (Json){ .kind = JSON_BOOL, .flag = same_word(bare, "true") };
    return bare.n && call_json(r, bare, &v, &why) ? v : json_text(r, text);
}

static Span own_lines(Span s) {
    if (s.n && *s.at == '\n') s = span_from(s, 1);
    if (s.n && s.at[s.n - 1] == '\n') s.n--;
    return s;
}

static bool says(Span tag, Span what) { return span_find(tag, 0, what) != SIZE_MAX; }

/* One parameter at the beginning of s, whose key ends at key_end; how much of s it takes. */
static size_t parameter(CallReader *r, Span tool, Span s, Json *args) {
    const ToolFormat *f = r->format;
    size_t name = span_find(s, 0, span_of(f->key_end)), open = span_find(s, 0, SPAN(">"));
    if (name == SIZE_MAX || open == SIZE_MAX || open < name) return SIZE_MAX;
    Span key = span_strip(until(s, name)), tag = until(s, open), value = span_from(s, open + 1);
    size_t end = span_find(value, 0, span_of(f->value_end)), other = span_find(value, 0, span_of(f->key));
    size_t used = end < other ? end + strlen(f->value_end) : other < value.n ? other : value.n;
    value = until(value, end < other ? end : used);
    if (f->line_values) value = own_lines(value);
    Json v;
    const char *why;
    if (says(tag, SPAN("string=\"false\"")) && call_json(r, span_strip(value), &v, &why)) {
    } else if (says(tag, SPAN("string=\""))) v = json_text(r, value);
    else v = call_typed(r, tool, key, value);
    call_set(r, args, key, v);
    return open + 1 + used;
}

static void xml_call(CallReader *r, Span s) {
    const ToolFormat *f = r->format;
    size_t name_n = span_find(s, 0, span_of(f->name_end)), open = span_find(s, 0, SPAN(">"));
    if (name_n == SIZE_MAX || open == SIZE_MAX || open < name_n) {
        call_broken(r, SPAN(""), "a call begins with %sNAME%s", f->call, f->name_end);
        return;
    }
    Span name = span_strip(until(s, name_n)), body = span_from(s, open + 1);
    if (!name.n) {
        call_broken(r, SPAN(""), "the call has no name");
        return;
    }
    Json args = { .kind = JSON_OBJECT };
    size_t at = span_find(body, 0, span_of(f->key));
    Span plain = span_strip(body);
    if (at == SIZE_MAX && plain.n && *plain.at == '{') { /* JSON where parameters would be */
        call_arguments(r, name, plain, NULL);
        return;
    }
    while (at != SIZE_MAX) {
        body = span_from(body, at + strlen(f->key));
        size_t used = parameter(r, name, body, &args);
        if (used == SIZE_MAX) {
            call_broken(r, name, "a parameter begins with %sKEY%s", f->key, f->key_end);
            return;
        }
        body = span_from(body, used);
        at = span_find(body, 0, span_of(f->key));
    }
    call_add(r, name, args, NULL);
}

size_t step_xml(CallReader *r, Span rest) {
    Span body;
    size_t used = call_next(r, rest, &body);
    if (used != CALL_MORE && body.at) xml_call(r, body);
    return used;
}

/* <tool_call>NAME<arg_key>K</arg_key><arg_value>V</arg_value>..</tool_call>, with or without newlines between. */
size_t step_glm(CallReader *r, Span rest) {
    const Span key = SPAN("<arg_key>"), key_end = SPAN("</arg_key>"), value = SPAN("<arg_value>"),
               value_end = SPAN("</arg_value>");
    size_t end = call_find(r, rest, r->format->close);
    if (end == CALL_MORE) return CALL_MORE;
    Span s = until(rest, end);
    size_t at = span_find(s, 0, key);
    Span name = span_strip(until(s, at));
    Json args = { .kind = JSON_OBJECT };
    while (at != SIZE_MAX) {
        size_t k = span_find(s, at, key_end), next = span_find(s, at + key.n, key), v = span_find(s, at, value);
        size_t v_end = v == SIZE_MAX ? v : span_find(s, v, value_end);
        if (k != SIZE_MAX && v != SIZE_MAX && v_end != SIZE_MAX && k < v && v < next) {
            Span word = span_strip((Span){ s.at + at + key.n, k - at - key.n });
            call_set(r, &args, word, call_typed(r, name, word, (Span){ s.at + v + value.n, v_end - v - value.n }));
            next = span_find(s, v_end, key); /* a value may speak of the tag */
        }
        at = next;
    }
    if (name.n) call_add(r, name, args, NULL);
    else call_broken(r, name, "the call has no name");
    return call_leave(r, end + strlen(r->format->close));
}
