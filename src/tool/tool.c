/* tool.c - the tools that are built in, and a call answered whatever it is. */
#include "tool/tool.h"

#include <string.h>

static const Tool *const built_in[] = { &tool_calculator };

struct Tools {
    Mem mem;
    const Tool **at;
    int n;
    Json schemas;
};

static const Tool *find(const char *name) {
    for (size_t i = 0; i < COUNT(built_in); i++)
        if (!strcmp(built_in[i]->name, name)) return built_in[i];
    return NULL;
}

Tools *tools_open(const char *const *names, int n, Err *err) {
    Mem mem = { 0 };
    Tools *t = MEM_NEW(&mem, Tools);
    t->mem = mem;
    t->at = MEM_ARRAY(&t->mem, const Tool *, (size_t)n);
    t->schemas = (Json){ .kind = JSON_ARRAY, .items = MEM_ARRAY(&t->mem, Json, (size_t)n + 1) };
    for (; t->n < n; t->n++) {
        const Tool *tool = find(names[t->n]);
        bool twice = false;
        for (int i = 0; i < t->n; i++) twice = twice || t->at[i] == tool;
        Json schema;
        bool ok = true;
        if (!tool) ok = err_set(err, "there is no tool '%s'; built in is: calculator", names[t->n]);
        else if (twice) ok = err_set(err, "the tool '%s' is named twice", names[t->n]);
        else ok = json_parse(&schema, tool->schema, strlen(tool->schema), &t->mem, err);
        if (!ok) return tools_close(t), NULL;
        JsonMember *m = MEM_ARRAY(&t->mem, JsonMember, 2);
        m[0] = (JsonMember){ "type", 4, { .kind = JSON_STRING, .n = 8, .str = "function" } };
        m[1] = (JsonMember){ "function", 8, schema };
        t->schemas.items[t->schemas.n++] = (Json){ .kind = JSON_OBJECT, .n = 2, .members = m };
        t->at[t->n] = tool;
    }
    return t;
}

void tools_close(Tools *t) {
    if (!t) return;
    Mem mem = t->mem;
    mem_free(&mem);
}

const Json *tools_schemas(const Tools *t) { return &t->schemas; }

/* Characters, not bytes: a cut never splits one. */
static void shorten(Buf *b, size_t from, int64_t most) {
    static const char gap[] = "...(truncated)...";
    Span s = { b->data + from, b->n - from };
    int64_t chars = 0;
    for (size_t i = 0; i < s.n; i += span_char(s, i)) chars++;
    if (chars <= most) return;
    size_t head = 0;
    for (int64_t i = 0; i < most / 2; i++) head += span_char(s, head);
    Span tail = span_last_chars(s, (size_t)(most - most / 2));
    Buf cut = { 0 };
    buf_put(&cut, s.at, head);
    buf_puts(&cut, gap);
    buf_put(&cut, tail.at, tail.n);
    b->n = from;
    buf_put(b, cut.data, cut.n);
    buf_free(&cut);
}

bool tools_call(const Tools *t, const ToolCall *c, int64_t most, Buf *answer) {
    Mem mem = { 0 };
    size_t from = answer->n;
    const char *problem = call_problem(c, &t->schemas, &mem);
    bool ok = !problem;
    if (problem) buf_printf(answer, "Error: %s", problem);
    for (int i = 0; ok && i < t->n; i++)
        if (span_eq(c->name, span_of(t->at[i]->name))) {
            ok = t->at[i]->call(&c->arguments, answer);
            break;
        }
    if (answer->n > from) shorten(answer, from, most);
    mem_free(&mem);
    return ok;
}
