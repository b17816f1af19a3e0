/* external_reply.c - what an outside scorer's line means.  Everything in it besides the score is passed on. */
#include "task/external.h"

#include "base/hash.h"
#include "base/json.h"

#include <math.h>
#include <string.h>

/* The beginning of a line, for a message: at most 40 bytes, what is not printable as '?'. */
static const char *shown(char buf[44], const char *line, size_t n) {
    size_t m = n < 40 ? n : 40;
    for (size_t i = 0; i < m; i++) buf[i] = line[i] >= 32 && line[i] < 127 ? line[i] : '?';
    strcpy(buf + m, m < n ? "..." : "");
    return buf;
}

static bool number_of(const Json *v, double *out) {
    if (!v) return false;
    if (v->kind == JSON_BOOL) *out = v->flag;
    else if (v->kind == JSON_INT || v->kind == JSON_REAL) *out = json_number(v);
    else return false;
    return isfinite(*out);
}

static bool is_stale(const Json *v, int64_t id) {
    const Json *echo = json_get(v, "id");
    return echo && echo->kind == JSON_INT && echo->integer >= 0 && echo->integer < id;
}

static void read_object(RewardResult *out, const Json *v, const char *text, int64_t id) {
    const Json *failed = json_get(v, "failed"), *echo = json_get(v, "id"), *acc = json_get(v, "acc");
    double x;
    if (failed && failed->kind == JSON_STRING) {
        reward_fail(out, "%s", failed->str);
        out->told = echo && echo->kind == JSON_INT && echo->integer == id;
    } else if (echo && (echo->kind != JSON_INT || echo->integer != id)) {
        reward_fail(out, "the scorer answered another sample: %s", text);
    } else if (!number_of(json_get(v, "score"), &out->score)) {
        reward_fail(out, "the scorer's reply has no \"score\" that is a number: %s", text);
    } else {
        if (number_of(acc, &x)) out->acc = x;
        for (size_t i = 0; i < v->n; i++) {
            const JsonMember *m = &v->members[i];
            if (!strcmp(m->key, "score") || !strcmp(m->key, "id") || !strcmp(m->key, "failed")) continue;
            if (out->extra.n) buf_putc(&out->extra, ',');
            json_put_str(&out->extra, m->key, m->key_n);
            buf_putc(&out->extra, ':');
            size_t from = out->extra.n;
            if (json_big(&m->value)) json_put_number_own(&out->extra, &m->value);
            else json_put_value(&out->extra, &m->value); /* 1.10 and 1.1 are one vote */
            if (!strcmp(m->key, "pred"))
                out->vote = hash_bytes(HASH_START, out->extra.data + from, out->extra.n - from) | 1;
        }
    }
}

bool reply_read(RewardResult *out, const char *line, size_t n, int64_t id) {
    Mem mem = { 0 };
    Err err;
    Json v;
    char text[44];
    shown(text, line, n);
    if (!json_parse(&v, line, n, &mem, &err)) reward_fail(out, "the scorer's reply is not JSON: %s", text);
    else if (is_stale(&v, id)) return mem_free(&mem), false;
    else if (v.kind == JSON_OBJECT) read_object(out, &v, text, id);
    else if (!number_of(&v, &out->score))
        reward_fail(out, "the scorer's reply is neither a number nor an object: %s", text);
    mem_free(&mem);
    return true;
}
