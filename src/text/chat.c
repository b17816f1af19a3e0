/* chat.c - messages made text by a model's template. */
#include "text/chat.h"
#include "base/file.h"
#include "base/span.h"
#include "gguf/inside.h"

#include <string.h>

enum { GIVEN_MOST = 24 };

struct Chat {
    Jinja *plain, *tools; /* tools: the template named tool_use, or NULL */
    Span plain_text, tools_text;
    Json given; /* an object: the special tokens, and the variables that transformers always passes */
    bool is_model;
};

static Jinja *compile(const char *what, const char *s, size_t n, Span *text, Mem *mem, Err *err) {
    Jinja *j = jinja_compile(s, n, mem, NULL, err);
    if (!j) err_wrap(err, "%s", what);
    *text = (Span){ mem_str(mem, s, n), n };
    return j;
}

static Jinja *compile_file(const char *path, Span *kept, Mem *mem, Err *err) {
    Buf text = { 0 };
    Jinja *j = file_read(&text, path, err) ? compile(path, text.data ? text.data : "", text.n, kept, mem, err) : NULL;
    buf_free(&text);
    return j;
}

/* "chat_template": "..." or [{"name": "default", "template": "..."}, ...] */
static bool from_config(Chat *c, const char *path, const Json *t, Mem *mem, Err *err) {
    if (t->kind == JSON_STRING) return (c->plain = compile(path, t->str, t->n, &c->plain_text, mem, err)) != NULL;
    if (t->kind != JSON_ARRAY)
        return err_set(err, "%s: \"chat_template\" must be a string or an array, not %s", path,
                       json_kind_name(t->kind));
    for (size_t i = 0; i < t->n; i++) {
        const Json *name = json_get(&t->items[i], "name"), *text = json_get(&t->items[i], "template");
        if (!name || !text || text->kind != JSON_STRING)
            return err_set(err, "%s: an entry of \"chat_template\" wants \"name\" and \"template\"", path);
        Jinja **to = json_is_str(name, "default") ? &c->plain : json_is_str(name, "tool_use") ? &c->tools : NULL;
        Span *kept = to == &c->tools ? &c->tools_text : &c->plain_text;
        if (to && !(*to = compile(path, text->str, text->n, kept, mem, err))) return false;
    }
    if (!c->plain) c->plain = c->tools, c->plain_text = c->tools_text;
    return c->plain || err_set(err, "%s: \"chat_template\" has no template named default", path);
}

/* A token is written as a string or as an object with its "content". */
static void take_tokens(const Json *config, JsonMember *to, size_t *n) {
    static const char *const names[] = { "bos_token", "eos_token", "unk_token", "sep_token",
                                         "pad_token", "cls_token", "mask_token" };
    for (size_t i = 0; i < COUNT(names); i++) {
        const Json *v = json_get(config, names[i]), *content = json_get(v, "content");
        if (content) v = content;
        bool have = false;
        for (size_t k = 0; k < *n; k++) have = have || !strcmp(to[k].key, names[i]);
        if (v && v->kind == JSON_STRING && !have)
            to[(*n)++] = (JsonMember){ .key = names[i], .key_n = strlen(names[i]), .value = *v };
    }
}

static bool read_json(Json *out, const char *path, Mem *mem, Err *err) {
    Buf text = { 0 };
    bool ok =
        model_read(&text, path, err) && (json_parse(out, text.data, text.n, mem, err) || err_wrap(err, "%s", path));
    buf_free(&text);
    return ok;
}

Chat *chat_open(const char *dir, const char *file, Mem *mem, Err *err) {
    Chat *c = MEM_NEW(mem, Chat);
    JsonMember *given = MEM_ARRAY(mem, JsonMember, GIVEN_MOST);
    size_t n = 0;
    const char *alone = mem_printf(mem, "%s/chat_template.jinja", dir),
               *config_path = mem_printf(mem, "%s/tokenizer_config.json", dir),
               *map_path = mem_printf(mem, "%s/special_tokens_map.json", dir);
    Json config = { 0 }, map = { 0 };
    if (model_has(config_path) && !read_json(&config, config_path, mem, err)) return NULL;
    if (file_exists(map_path) && !read_json(&map, map_path, mem, err)) return NULL;
    take_tokens(&config, given, &n);
    take_tokens(&map, given, &n);
    given[n++] = (JsonMember){ .key = "tools", .key_n = 5 };
    given[n++] = (JsonMember){ .key = "documents", .key_n = 9 };
    given[n++] = (JsonMember){ .key = "add_generation_prompt", .key_n = 21, .value = { .kind = JSON_BOOL } };
    c->given = (Json){ .kind = JSON_OBJECT, .n = n, .members = given };
    c->is_model = true;
    const Json *t = json_get(&config, "chat_template");
    if (file || file_exists(alone))
        return (c->plain = compile_file(file ? file : alone, &c->plain_text, mem, err)) ? c : NULL;
    if (t && t->kind != JSON_NULL) return from_config(c, config_path, t, mem, err) ? c : NULL;
    err_set(err,
            "%s: has no chat template (neither chat_template.jinja nor \"chat_template\" in tokenizer_config.json); a "
            "base model? give a template file",
            dir);
    return NULL;
}

Chat *chat_open_file(const char *path, Mem *mem, Err *err) {
    Chat *c = MEM_NEW(mem, Chat);
    c->plain = compile_file(path, &c->plain_text, mem, err);
    c->given = (Json){ .kind = JSON_OBJECT };
    return c->plain ? c : NULL;
}

bool chat_tells_time(const Chat *c) {
    return jinja_names(c->plain, "strftime_now") || (c->tools && jinja_names(c->tools, "strftime_now"));
}

void chat_clock(Chat *c, const char *now) {
    CHECK(c->is_model && c->given.n < GIVEN_MOST, "a clock for %s", c->is_model ? "more variables" : "a file alone");
    JsonMember *to = (JsonMember *)(uintptr_t)&c->given.members[c->given.n++];
    *to = (JsonMember){ "now", 3, { .kind = JSON_STRING, .n = strlen(now), .str = now } };
}

static const Jinja *which(const Chat *c, const Json *tools) {
    return c->tools && tools && tools->kind != JSON_NULL ? c->tools : c->plain;
}
const char *chat_text(const Chat *c, const Json *tools, size_t *n) {
    const Span *text = which(c, tools) == c->plain ? &c->plain_text : &c->tools_text;
    return *n = text->n, text->at;
}

bool chat_marks(const Chat *c, const Json *tools) { return jinja_marks(which(c, tools)); }

static bool render_vars(const Chat *c, const Json *vars, Buf *out, JinjaSpans *spans, int *line, Err *err) {
    if (vars->kind != JSON_OBJECT)
        return err_set(err, "a template's variables must be an object, not %s", json_kind_name(vars->kind));
    const Json *tools = json_get(vars, "tools"), *messages = json_get(vars, "messages");
    if (c->is_model && (!messages || messages->kind != JSON_ARRAY))
        return err_set(err, "\"messages\" is missing: an array of {\"role\", \"content\"} is wanted");
    Mem mem = { 0 };
    JsonMember *all = MEM_ARRAY(&mem, JsonMember, vars->n + c->given.n);
    size_t n = vars->n;
    if (n) memcpy(all, vars->members, n * sizeof *all);
    for (size_t i = 0; i < c->given.n; i++)
        if (!json_get(vars, c->given.members[i].key)) all[n++] = c->given.members[i];
    Json with = { .kind = JSON_OBJECT, .n = n, .members = all };
    bool ok = jinja_render_spans(which(c, tools), &with, NULL, out, spans, line, err);
    mem_free(&mem);
    return ok;
}

bool chat_render_vars(const Chat *c, const Json *vars, Buf *out, int *line, Err *err) {
    return render_vars(c, vars, out, NULL, line, err);
}

bool chat_render_spans(const Chat *c, const Json *messages, const Json *tools, bool add_generation_prompt,
                       const Json *extra, Buf *out, JinjaSpans *spans, Err *err) {
    size_t more = extra && extra->kind == JSON_OBJECT ? extra->n : 0, n = 0;
    Mem mem = { 0 };
    JsonMember *all = MEM_ARRAY(&mem, JsonMember, more + 3);
    all[n++] = (JsonMember){ .key = "messages", .key_n = 8, .value = *messages };
    if (tools) all[n++] = (JsonMember){ .key = "tools", .key_n = 5, .value = *tools };
    all[n++] = (JsonMember){ .key = "add_generation_prompt",
                             .key_n = 21,
                             .value = { .kind = JSON_BOOL, .flag = add_generation_prompt } };
    Json own = { .kind = JSON_OBJECT, .n = n, .members = all };
    size_t fixed = n;
    for (size_t i = 0; i < more; i++) {
        own.n = fixed;
        if (!json_get(&own, extra->members[i].key)) all[n++] = extra->members[i];
    }
    own.n = n;
    bool ok = render_vars(c, &own, out, spans, NULL, err);
    mem_free(&mem);
    return ok;
}

bool chat_render(const Chat *c, const Json *messages, const Json *tools, bool add_generation_prompt, const Json *extra,
                 Buf *out, Err *err) {
    return chat_render_spans(c, messages, tools, add_generation_prompt, extra, out, NULL, err);
}

static bool is_media(const Json *part) {
    static const char *const types[] = { "image",     "image_url", "input_image", "video",
                                         "video_url", "audio",     "input_audio" };
    const Json *type = json_get(part, "type");
    for (size_t i = 0; i < COUNT(types); i++)
        if (json_is_str(type, types[i]) || json_get(part, types[i])) return true;
    return false;
}

int chat_media(const Json *messages) {
    int n = 0;
    for (size_t i = 0; messages && messages->kind == JSON_ARRAY && i < messages->n; i++) {
        const Json *content = json_get(&messages->items[i], "content");
        for (size_t k = 0; content && content->kind == JSON_ARRAY && k < content->n; k++)
            n += is_media(&content->items[k]);
    }
    return n;
}
