/* messages.c - OpenAI's messages to a template's: only what is known goes on, so that no path of this machine and no
 * address of a network reaches what reads pictures. */
#include "serve/messages.h"

#include <string.h>

static JsonMember member(const char *key, Json value) {
    return (JsonMember){ .key = key, .key_n = strlen(key), .value = value };
}
static Json text_of(const char *s, size_t n) { return (Json){ .kind = JSON_STRING, .n = n, .str = s }; }

static const char *role_of(const Json *role) {
    static const char *const same[] = { "system", "user", "assistant" };
    for (size_t i = 0; i < COUNT(same); i++)
        if (json_is_str(role, same[i])) return same[i];
    return json_is_str(role, "developer") ? "system" : NULL; /* what templates call it */
}

/* {"type":"image_url","image_url":{"url":"data:..."}} as {"type":"image","image":"data:..."}. */
static bool picture(Json *out, const Json *part, size_t at, Mem *mem, Refusal *no) {
    const Json *said = json_get(part, "image_url"),
               *url = said && said->kind == JSON_OBJECT ? json_get(said, "url") : said;
    if (!url || url->kind != JSON_STRING || strncmp(url->str, "data:", 5))
        return refuse(no, 400, "messages",
                      "messages[%zu]: a picture is given as {\"type\": \"image_url\", \"image_url\": {\"url\": "
                      "\"data:image/png;base64,...\"}}: this server opens no files and fetches nothing for a client",
                      at);
    JsonMember *m = MEM_ARRAY(mem, JsonMember, 2);
    m[0] = member("type", text_of("image", 5)), m[1] = member("image", *url);
    *out = (Json){ .kind = JSON_OBJECT, .n = 2, .members = m };
    return true;
}

static bool content_of(Json *out, const Json *c, bool sees, size_t at, Mem *mem, Refusal *no) {
    *out = text_of("", 0);
    if (!c || c->kind == JSON_NULL) return true;
    if (c->kind == JSON_STRING) return *out = *c, true;
    if (c->kind != JSON_ARRAY)
        return refuse(no, 400, "messages", "messages[%zu].content must be a string or a list of parts, not %s", at,
                      json_kind_name(c->kind));
    Json *parts = MEM_ARRAY(mem, Json, c->n + 1);
    Buf all = { 0 };
    bool ok = true, pictures = false;
    for (size_t i = 0; ok && i < c->n; i++) {
        const Json *p = &c->items[i], *type = json_get(p, "type"), *text = json_get(p, "text");
        parts[i] = *p;
        if (json_is_str(type, "text") && text && text->kind == JSON_STRING) {
            JsonMember *m = MEM_ARRAY(mem, JsonMember, 2);
            m[0] = member("type", *type), m[1] = member("text", *text);
            parts[i] = (Json){ .kind = JSON_OBJECT, .n = 2, .members = m };
            buf_put(&all, text->str, text->n);
        } else if (json_is_str(type, "image_url") && sees) ok = pictures = picture(&parts[i], p, at, mem, no);
        else if (json_is_str(type, "image_url"))
            ok = refuse(no, 400, "messages", "messages[%zu] shows a picture, and this model sees none", at);
        else
            ok = refuse(no, 400, "messages",
                        "messages[%zu].content[%zu]: a part is {\"type\": \"text\", \"text\": \"...\"} or an image_url",
                        at, i);
    }
    if (ok && pictures) *out = (Json){ .kind = JSON_ARRAY, .n = c->n, .items = parts };
    else if (ok) *out = text_of(mem_str(mem, all.data ? all.data : "", all.n), all.n);
    buf_free(&all);
    return ok;
}

static bool message(Json *out, const Json *in, bool sees, size_t at, Mem *mem, Refusal *no) {
    static const char *const others[] = { "name", "reasoning_content" };
    if (in->kind != JSON_OBJECT) return refuse(no, 400, "messages", "messages[%zu] must be an object", at);
    const Json *role = json_get(in, "role"), *calls = json_get(in, "tool_calls");
    if (json_is_str(role, "tool") || json_is_str(role, "function") || (calls && calls->kind == JSON_ARRAY && calls->n))
        return refuse(no, 400, "messages", "messages[%zu] belongs to a tool: tools are not served yet", at);
    const char *who = role_of(role);
    if (!who) return refuse(no, 400, "messages", "messages[%zu].role must be system, developer, user or assistant", at);
    JsonMember *m = MEM_ARRAY(mem, JsonMember, 4);
    size_t n = 0;
    Json content;
    TRY(content_of(&content, json_get(in, "content"), sees, at, mem, no));
    m[n++] = member("role", text_of(who, strlen(who))), m[n++] = member("content", content);
    for (size_t i = 0; i < COUNT(others); i++) {
        const Json *v = json_get(in, others[i]);
        if (v && v->kind == JSON_STRING) m[n++] = member(others[i], *v);
    }
    *out = (Json){ .kind = JSON_OBJECT, .n = n, .members = m };
    return true;
}

bool messages_read(Json *out, const Json *in, bool sees, Mem *mem, Refusal *no) {
    if (!in || in->kind != JSON_ARRAY || !in->n)
        return refuse(no, 400, "messages", "\"messages\" must be a list of at least one message");
    Json *all = MEM_ARRAY(mem, Json, in->n);
    for (size_t i = 0; i < in->n; i++) TRY(message(&all[i], &in->items[i], sees, i, mem, no));
    *out = (Json){ .kind = JSON_ARRAY, .n = in->n, .items = all };
    return true;
}
