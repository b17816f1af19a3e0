/* want.c - a request's body, field by field. */
#include "serve/want.h"
#include "serve/messages.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

bool refuse(Refusal *r, int status, const char *param, const char *fmt, ...) {
    va_list ap;
    *r = (Refusal){ .status = status };
    snprintf(r->param, sizeof r->param, "%s", param ? param : "");
    va_start(ap, fmt);
    vsnprintf(r->msg, sizeof r->msg, fmt, ap);
    va_end(ap);
    return false;
}

/* A reason that names its field first, in quotes. */
static bool refuse_err(Refusal *r, const Err *err) {
    char param[64] = "";
    const char *end = err->msg[0] == '"' ? strchr(err->msg + 1, '"') : NULL;
    if (end) snprintf(param, sizeof param, "%.*s", (int)(end - err->msg - 1), err->msg + 1);
    return refuse(r, 400, param, "%s", err->msg);
}

/* ---- what is known and not served: with these values it says nothing */
typedef enum {
    SAYS_NULL,
    SAYS_FALSE,
    SAYS_TRUE,
    SAYS_0,
    SAYS_1,
    SAYS_EMPTY,
    SAYS_NONE,
    SAYS_TEXT,
    SAYS_TEXTS
} Harmless;
static const struct {
    const char *field;
    Harmless harmless;
    int kind; /* of requests: -1 all */
} not_served[] = {
    { "tools", SAYS_NULL, WANT_CHAT },
    { "tool_choice", SAYS_NONE, WANT_CHAT },
    { "functions", SAYS_NULL, WANT_CHAT },
    { "function_call", SAYS_NONE, WANT_CHAT },
    { "response_format", SAYS_TEXT, -1 },
    { "modalities", SAYS_TEXTS, WANT_CHAT },
    { "audio", SAYS_NULL, WANT_CHAT },
    { "prediction", SAYS_NULL, WANT_CHAT },
    { "echo", SAYS_FALSE, WANT_CHAT },
    { "add_generation_prompt", SAYS_TRUE, WANT_CHAT },
    { "continue_final_message", SAYS_FALSE, WANT_CHAT },
    { "chat_template", SAYS_NULL, WANT_CHAT },
    { "documents", SAYS_EMPTY, WANT_CHAT },
    { "suffix", SAYS_EMPTY, WANT_TEXT },
    { "best_of", SAYS_1, WANT_TEXT },
    { "logit_bias", SAYS_EMPTY, -1 },
    { "presence_penalty", SAYS_0, -1 },
    { "frequency_penalty", SAYS_0, -1 },
    { "repetition_penalty", SAYS_1, -1 },
    { "length_penalty", SAYS_1, -1 },
    { "use_beam_search", SAYS_FALSE, -1 },
    { "include_stop_str_in_output", SAYS_FALSE, -1 },
    { "skip_special_tokens", SAYS_TRUE, -1 },
    { "truncate_prompt_tokens", SAYS_NULL, -1 },
    { "prompt_logprobs", SAYS_NULL, -1 },
    { "logprob_token_ids", SAYS_NULL, -1 },
    { "return_tokens_as_token_ids", SAYS_FALSE, -1 },
    { "return_weight_versions", SAYS_FALSE, -1 },
    { "allowed_token_ids", SAYS_EMPTY, -1 },
    { "bad_words", SAYS_EMPTY, -1 },
    { "guided_json", SAYS_NULL, -1 },
    { "guided_regex", SAYS_NULL, -1 },
    { "guided_choice", SAYS_NULL, -1 },
    { "guided_grammar", SAYS_NULL, -1 },
    { "structured_outputs", SAYS_NULL, -1 },
};

static bool says_nothing(const Json *v, Harmless h) {
    bool number = v->kind == JSON_INT || v->kind == JSON_REAL;
    switch (h) {
    case SAYS_NULL: return false;
    case SAYS_FALSE: return v->kind == JSON_BOOL && !v->flag;
    case SAYS_TRUE: return v->kind == JSON_BOOL && v->flag;
    case SAYS_0: return number && json_number(v) == 0;
    case SAYS_1: return number && json_number(v) == 1;
    case SAYS_EMPTY: return (v->kind == JSON_STRING || v->kind == JSON_ARRAY || v->kind == JSON_OBJECT) && v->n == 0;
    case SAYS_NONE: return json_is_str(v, "none") || json_is_str(v, "auto");
    case SAYS_TEXT: return json_is_str(json_get(v, "type"), "text");
    case SAYS_TEXTS: return v->kind == JSON_ARRAY && v->n == 1 && json_is_str(&v->items[0], "text");
    }
    return false;
}

static bool all_served(const Json *body, WantKind kind, Refusal *no) {
    for (size_t i = 0; i < COUNT(not_served); i++) {
        const Json *v = json_get(body, not_served[i].field);
        if (!v || v->kind == JSON_NULL || (not_served[i].kind >= 0 && not_served[i].kind != (int)kind)) continue;
        if (!says_nothing(v, not_served[i].harmless))
            return refuse(
                no, 400, not_served[i].field, "\"%s\" is not served by hone%s", not_served[i].field,
                not_served[i].harmless == SAYS_NULL || not_served[i].harmless == SAYS_EMPTY ? "" : " with this value");
    }
    return true;
}

/* ---- fields of both kinds */
static bool which_model(const Offer *s, const Json *body, Refusal *no) {
    const Json *m = json_get(body, "model");
    if (!m || m->kind == JSON_NULL || json_is_str(m, s->name) || json_is_str(m, s->path)) return true;
    if (m->kind != JSON_STRING) return refuse(no, 400, "model", "\"model\" must be a string");
    refuse(no, 404, "model", "The model `%.200s` does not exist here; this server has `%s`", m->str, s->name);
    no->code = "model_not_found";
    return false;
}

static bool streaming(Want *w, const Json *body, Refusal *no, Err *err) {
    const Json *o = json_get(body, "stream_options");
    TRY(json_bool(body, "stream", &w->stream, err) || refuse_err(no, err));
    if (!o || o->kind == JSON_NULL) return true;
    if (!w->stream) return refuse(no, 400, "stream_options", "\"stream_options\" is for \"stream\": true");
    if (o->kind != JSON_OBJECT) return refuse(no, 400, "stream_options", "\"stream_options\" must be an object");
    return json_bool(o, "include_usage", &w->usage, err) || refuse_err(no, err);
}

static bool log_probs(Want *w, const Json *body, Refusal *no, Err *err) {
    int64_t k = -1;
    const char *field = w->kind == WANT_CHAT ? "top_logprobs" : "logprobs";
    if (w->kind == WANT_CHAT) TRY(json_bool(body, "logprobs", &w->logprobs, err) || refuse_err(no, err));
    TRY(json_int(body, field, &k, err) || refuse_err(no, err));
    if (k > TOP_MOST || k < -1) return refuse(no, 400, field, "\"%s\" must lie between 0 and %d", field, TOP_MOST);
    if (w->kind == WANT_TEXT) w->logprobs = k >= 0;
    else if (k > 0 && !w->logprobs)
        return refuse(no, 400, "top_logprobs", "\"top_logprobs\" is for \"logprobs\": true");
    w->top = k > 0 ? (int)k : 0;
    return true;
}

static bool seed_of(Want *w, const Offer *s, const Json *body, Refusal *no, Err *err) {
    const Json *v = json_get(body, "seed");
    int64_t seed = 0;
    w->seed_told = !v || v->kind == JSON_NULL;
    TRY(json_int(body, "seed", &seed, err) || refuse_err(no, err));
    w->seed = w->seed_told ? s->seed : (uint64_t)seed;
    if (!w->seed_told || s->has_seed) return true;
    CHECK(getrandom(&w->seed, sizeof w->seed, 0) == sizeof w->seed, "no random numbers from the system");
    w->seed >>= 11; /* 53 bits: any client's numbers hold it */
    return true;
}

/* Settings of one prompt of n tokens. */
static bool settings(Want *w, const Offer *s, const Json *body, Asked *q, Refusal *no, Err *err) {
    Wish *x = asked_wish(q);
    int64_t most = -1, room = s->context - x->line.n;
    SamplingArgs a = SAMPLING_DEFAULT;
    if (w->kind == WANT_CHAT) TRY(json_int(body, "max_completion_tokens", &most, err) || refuse_err(no, err));
    if (most < 0) TRY(json_int(body, "max_tokens", &most, err) || refuse_err(no, err));
    const char *field = json_get(body, "max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
    const Json *said = json_get(body, field);
    if (said && said->kind == JSON_INT && said->integer < 0)
        return refuse(no, 400, field, "\"%s\" must not be below 0, as %" PRId64 " is", field, said->integer);
    if (most == 0 && !(w->kind == WANT_TEXT && w->echo))
        return refuse(no, 400, field, "\"%s\" may be 0 only with \"echo\", where the prompt alone is scored", field);
    x->score_only = most == 0;
    if (room < 0 || (room == 0 && !x->score_only)) {
        refuse(no, 400, w->kind == WANT_CHAT ? "messages" : "prompt",
               "This model's maximum context length is %" PRId64
               " tokens. However, your prompt has %d tokens%s. Please "
               "reduce its length.",
               s->context, x->line.n, room == 0 ? ", which leaves none for an answer" : "");
        no->code = "context_length_exceeded";
        return false;
    }
    if (most < 0) most = w->kind == WANT_CHAT ? room : 16;
    a.max_tokens = x->score_only ? 1 : most < room ? most : room;
    a.seed = (int64_t)w->seed;
    /* what else it says; what was read here is left out */
    static const char *const here[] = { "max_tokens", "max_completion_tokens", "seed", "n" };
    Json line = { .kind = JSON_OBJECT, .members = MEM_ARRAY(&w->mem, JsonMember, body->n + 1) };
    for (size_t i = 0; i < body->n; i++) {
        bool own = false;
        for (size_t k = 0; k < COUNT(here); k++) own |= !strcmp(body->members[i].key, here[k]);
        if (!own) line.members[line.n++] = body->members[i];
    }
    TRY(sampling_read(&x->s, &a, w->samples, &line, &s->desc->d, &x->mem, err) || refuse_err(no, err));
    if (x->s.n_stop > WANT_STOPS) return refuse(no, 400, "stop", "at most %d stop texts", WANT_STOPS);
    if (x->s.n_stop && !s->reader->tok)
        return refuse(no, 400, "stop", "stop texts need a tokenizer, and the model has none");
    for (int i = 0; i < x->s.n_stop; i++) x->s.stop[i] = mem_str(&x->mem, x->s.stop[i], strlen(x->s.stop[i]));
    SampleOpts *o = &x->s.opts;
    o->has_seed = true, o->seed = w->seed;
    o->top = w->logprobs ? w->top : 0, o->prompt = w->logprobs && w->echo;
    if (o->min_tokens && o->n_stop_ids > WANT_STOPS)
        return refuse(no, 400, "stop_token_ids", "at most %d stop_token_ids with min_tokens", WANT_STOPS);
    return true;
}

/* ---- prompts */
static bool one_prompt(Want *w, const Offer *s, const Json *body, const char *key, const Json *value, const Json *more,
                       Refusal *no) {
    Err err;
    JsonMember m[2] = { { key, strlen(key), *value } };
    if (more) m[1] = (JsonMember){ "chat_template_kwargs", 20, *more };
    Json line = { .kind = JSON_OBJECT, .n = more ? 2 : 1, .members = m };
    Asked *q = w->prompt[w->n++] = asked_open();
    Wish *x = asked_wish(q);
    const char *param = w->kind == WANT_CHAT ? "messages" : "prompt";
    prompt_take(&x->line, s->reader, &line, &x->mem);
    x->line.json = (Json){ .kind = JSON_NULL };
    if (!x->line.ok) return refuse(no, 400, param, "%s", x->line.err);
    int64_t feats, patches;
    engine_images(s->desc, x->line.pictures, &feats, &patches);
    if (feats > s->feats || patches > s->patches)
        return refuse(no, 400, param, "the pictures of a prompt may be %" PRId64 " tokens, not %" PRId64, s->feats,
                      feats);
    return settings(w, s, body, q, no, &err);
}

static bool are(const Json *list, JsonKind kind) {
    for (size_t i = 0; i < list->n; i++)
        if (list->items[i].kind != kind) return false;
    return list->n > 0;
}

static bool text_prompts(Want *w, const Offer *s, const Json *body, Refusal *no, Err *err) {
    const Json *p = json_get(body, "prompt");
    bool special = true;
    TRY(json_bool(body, "add_special_tokens", &special, err) || refuse_err(no, err));
    s->reader->text = (special ? TOK_BOS : 0) | TOK_SPECIAL;
    if (!p || p->kind == JSON_NULL) return refuse(no, 400, "prompt", "\"prompt\" is missing");
    bool one = p->kind == JSON_STRING || (p->kind == JSON_ARRAY && are(p, JSON_INT));
    bool texts = p->kind == JSON_ARRAY && are(p, JSON_STRING), lists = p->kind == JSON_ARRAY && are(p, JSON_ARRAY);
    if (!one && !texts && !lists)
        return refuse(no, 400, "prompt", "\"prompt\" must be a string, a list of token ids, or a list of such");
    size_t n = one ? 1 : p->n;
    if (n > (size_t)s->prompts)
        return refuse(no, 400, "prompt", "%zu prompts in one request; %d are the most", n, s->prompts);
    w->prompt = MEM_ARRAY(&w->mem, Asked *, n);
    for (size_t i = 0; i < n; i++) {
        const Json *v = one ? p : &p->items[i];
        TRY(one_prompt(w, s, body, v->kind == JSON_STRING ? "text" : "tokens", v, NULL, no));
    }
    return true;
}

/* chat_template_kwargs, and "reasoning_effort" among them. */
static bool chat_prompt(Want *w, const Offer *s, const Json *body, Refusal *no) {
    const Json *more = json_get(body, "chat_template_kwargs"), *effort = json_get(body, "reasoning_effort");
    Json messages, extra = { .kind = JSON_OBJECT };
    TRY(messages_read(&messages, json_get(body, "messages"), s->reader->pictures.takes, &w->mem, no));
    if (more && more->kind != JSON_NULL && more->kind != JSON_OBJECT)
        return refuse(no, 400, "chat_template_kwargs", "\"chat_template_kwargs\" must be an object");
    if (effort && effort->kind != JSON_NULL && effort->kind != JSON_STRING)
        return refuse(no, 400, "reasoning_effort", "\"reasoning_effort\" must be a string");
    size_t had = more && more->kind == JSON_OBJECT ? more->n : 0;
    extra.members = MEM_ARRAY(&w->mem, JsonMember, had + 1);
    for (size_t i = 0; i < had; i++) extra.members[extra.n++] = more->members[i];
    if (effort && effort->kind == JSON_STRING && !json_get(&extra, "reasoning_effort"))
        extra.members[extra.n++] = (JsonMember){ "reasoning_effort", 16, *effort };
    w->prompt = MEM_ARRAY(&w->mem, Asked *, 1);
    return one_prompt(w, s, body, "messages", &messages, extra.n ? &extra : NULL, no);
}

static bool read(Want *w, const Offer *s, const Json *body, Refusal *no) {
    Err err;
    int64_t n = 1;
    if (body->kind != JSON_OBJECT)
        return refuse(no, 400, NULL, "the body must be a JSON object, not %s", json_kind_name(body->kind));
    TRY(which_model(s, body, no) && all_served(body, w->kind, no) && streaming(w, body, no, &err)
        && log_probs(w, body, no, &err) && seed_of(w, s, body, no, &err));
    TRY(json_bool(body, "return_token_ids", &w->ids, &err) || refuse_err(no, &err));
    if (w->kind == WANT_TEXT) TRY(json_bool(body, "echo", &w->echo, &err) || refuse_err(no, &err));
    TRY(json_int(body, "n", &n, &err) || refuse_err(no, &err));
    if (n < 1 || n > WANT_SAMPLES) return refuse(no, 400, "n", "\"n\" must lie between 1 and %d", WANT_SAMPLES);
    w->samples = (int)n;
    TRY(w->kind == WANT_CHAT ? chat_prompt(w, s, body, no) : text_prompts(w, s, body, no, &err));
    if (w->samples > 1 && asked_wish(w->prompt[0])->score_only)
        return refuse(no, 400, "n", "\"n\" must be 1 where nothing is drawn");
    return true;
}

bool want_read(Want *w, const Offer *s, WantKind kind, const char *body, size_t n, Refusal *no) {
    Err err;
    Json j;
    *w = (Want){ .kind = kind };
    if (!n) refuse(no, 400, NULL, "the request has no body: it must be a JSON object");
    else if (!json_parse(&j, body, n, &w->mem, &err)) refuse(no, 400, NULL, "the body is not JSON: %s", err.msg);
    else if (read(w, s, &j, no)) return true;
    want_close(w);
    return false;
}

void want_close(Want *w) {
    for (int i = 0; i < w->n; i++)
        if (w->prompt[i]) asked_close(w->prompt[i]);
    mem_free(&w->mem);
    *w = (Want){ 0 };
}
