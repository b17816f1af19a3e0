/* dataset.c - reading the rows: see dataset.h.  Parquet fills the members that a message does not have with nulls, JSON
 * leaves them out; nulls are left out here, so that both give a chat template the same messages. */
#include "task/dataset.h"
#include "base/hash.h"
#include "base/utf8.h"
#include "file/parquet.h"
#include "file/paths.h"
#include "file/table.h"
#include "task/dataset_in.h"

#include <string.h>

enum { MAX_NAMES = 4096 };

typedef struct {
    Dataset *d;
    const DataOptions *o;
    DataColumns c;
    const char *images, *videos;
    int file;
    const Table *table;
    Buf text;
    Err *err;
} Loader;

static bool is_null(const Json *v) { return !v || v->kind == JSON_NULL; }

/* One string for all rows that have it. */
static const char *intern(Names *names, Mem *mem, const char *s, size_t n, int64_t **count) {
    for (size_t i = 0; i < names->n; i++)
        if (strlen(names->at[i].name) == n && !memcmp(names->at[i].name, s, n))
            return *count = &names->at[i].rows, names->at[i].name;
    VEC_PUSH(*names, (Name){ mem_str(mem, s, n), 0 });
    *count = &names->at[names->n - 1].rows;
    return names->at[names->n - 1].name;
}

static bool text_of(Loader *l, const Json *v, const char *column) {
    if (v->kind != JSON_STRING) return err_set(l->err, "%s must be text, not %s", column, json_kind_name(v->kind));
    if (v->flag && !utf8_valid(v->str, v->n)) return err_set(l->err, "%s is not UTF-8 text", column);
    return true;
}

static bool check_message(Loader *l, const Json *m, size_t i) {
    const Json *role = json_get(m, "role"), *content = json_get(m, "content");
    if (m->kind != JSON_OBJECT)
        return err_set(l->err, "%s: message %zu must be an object, not %s", l->c.prompt, i, json_kind_name(m->kind));
    if (is_null(role)) return err_set(l->err, "%s: message %zu has no role", l->c.prompt, i);
    TRY(text_of(l, role, "a message's role"));
    if (is_null(content) && is_null(json_get(m, "tool_calls")))
        return err_set(l->err, "%s: message %zu has no content", l->c.prompt, i);
    if (!is_null(content) && content->kind != JSON_STRING && content->kind != JSON_ARRAY)
        return err_set(l->err, "%s: the content of message %zu must be text, not %s", l->c.prompt, i,
                       json_kind_name(content->kind));
    return is_null(content) || content->kind != JSON_STRING || text_of(l, content, "a message's content");
}

/* JSON text without the null members of objects. */
static void put_dense(Buf *b, const Json *v) {
    if (v->kind == JSON_OBJECT) {
        char before = '{';
        for (size_t i = 0; i < v->n; i++) {
            if (v->members[i].value.kind == JSON_NULL) continue;
            buf_putc(b, before);
            json_put_str(b, v->members[i].key, v->members[i].key_n);
            buf_putc(b, ':');
            put_dense(b, &v->members[i].value);
            before = ',';
        }
        buf_puts(b, before == '{' ? "{}" : "}");
    } else if (v->kind == JSON_ARRAY) {
        buf_putc(b, '[');
        for (size_t i = 0; i < v->n; i++) {
            if (i) buf_putc(b, ',');
            put_dense(b, &v->items[i]);
        }
        buf_putc(b, ']');
    } else if (v->kind == JSON_REAL) json_put_value(b, v); /* a template reads it as a number again */
    else pq_put_value(b, v);
}

static const char *keep(Loader *l, const char *s, size_t n, size_t *out_n) {
    *out_n = n;
    return mem_str(&l->d->mem, s, n);
}

/* The columns that a file has: what it says itself, or the members of a row. */
static void name_columns(const Loader *l, const Json *row, Buf *out) {
    Buf own = { 0 };
    table_describe(l->table, &own);
    for (const char *s = own.n ? own.data : "", *end; (end = strchr(s, '\n')); s = end + 1) {
        const char *colon = memchr(s, ':', (size_t)(end - s));
        if (*s != ' ') buf_printf(out, "%s%.*s", out->n ? ", " : "", (int)((colon ? colon : end) - s), s);
    }
    for (size_t i = 0; !own.n && row->kind == JSON_OBJECT && i < row->n; i++)
        buf_printf(out, "%s%s", out->n ? ", " : "", row->members[i].key);
    buf_free(&own);
}

/* False, with what is there instead and the option that chooses it. */
static bool lacks(Loader *l, const Json *row, const char *column, const char *option) {
    Buf names = { 0 };
    name_columns(l, row, &names);
    err_set(l->err, "there is no %s; there are %.300s: %s chooses", column, names.n ? names.data : "no columns",
            option);
    buf_free(&names);
    return false;
}

static bool take_prompt(Loader *l, DataRow *r, const Json *v) {
    r->chat = v->kind == JSON_ARRAY;
    if (!r->chat) {
        TRY(text_of(l, v, l->c.prompt));
        r->prompt = keep(l, v->str, v->n, &r->prompt_n);
        return v->n > 0 || err_set(l->err, "%s is empty", l->c.prompt);
    }
    if (!v->n) return err_set(l->err, "%s has no messages", l->c.prompt);
    for (size_t i = 0; i < v->n; i++) TRY(check_message(l, &v->items[i], i));
    buf_clear(&l->text);
    put_dense(&l->text, v);
    r->prompt = keep(l, l->text.data, l->text.n, &r->prompt_n);
    return true;
}

/* A whole conversation.  "train" and "weight" say which of the assistant's messages are learned. */
static bool take_conversation(Loader *l, DataRow *r, const Json *v) {
    if (v->kind != JSON_ARRAY)
        return err_set(l->err, "%s: a list of messages is wanted, not %s", l->c.prompt, json_kind_name(v->kind));
    for (size_t i = 0; i < v->n; i++) {
        const Json *train = json_get(&v->items[i], "train"), *weight = json_get(&v->items[i], "weight");
        if (!is_null(train) && train->kind != JSON_BOOL)
            return err_set(l->err, "%s: \"train\" of message %zu must be true or false", l->c.prompt, i);
        bool number = !is_null(weight) && (weight->kind == JSON_INT || weight->kind == JSON_REAL);
        if (!is_null(weight) && !(number && (json_number(weight) == 0 || json_number(weight) == 1)))
            return err_set(l->err, "%s: \"weight\" of message %zu must be 0 or 1", l->c.prompt, i);
    }
    r->talk = true;
    return take_prompt(l, r, v);
}

/* Parquet often has them as JSON text, since structs of parameters differ from row to row. */
static bool take_tools(Loader *l, DataRow *r, const Json *v) {
    if (is_null(v)) return true;
    Mem mem = { 0 };
    Json list = *v;
    bool ok = v->kind != JSON_STRING
              || (text_of(l, v, l->c.tools)
                  && (json_parse(&list, v->str, v->n, &mem, l->err) || err_wrap(l->err, "%s", l->c.tools)));
    if (ok && list.kind != JSON_NULL && list.kind != JSON_ARRAY)
        ok = err_set(l->err, "%s must be a list, not %s", l->c.tools, json_kind_name(list.kind));
    if (ok && list.kind == JSON_ARRAY && list.n) {
        buf_clear(&l->text);
        put_dense(&l->text, &list);
        r->tools = keep(l, l->text.data, l->text.n, &r->tools_n);
    }
    mem_free(&mem);
    return ok;
}

static bool take_truth(Loader *l, DataRow *r, const Json *row) {
    const Json *v = json_path(row, l->c.truth);
    if (is_null(v)) return !l->o->need_truth || lacks(l, row, l->c.truth, "the scorer needs it, and answer_key");
    r->truth_json = v->kind != JSON_STRING;
    if (!r->truth_json) {
        TRY(text_of(l, v, l->c.truth));
        r->truth = keep(l, v->str, v->n, &r->truth_n);
        return true;
    }
    buf_clear(&l->text);
    pq_put_value(&l->text, v);
    r->truth = keep(l, l->text.data, l->text.n, &r->truth_n);
    return true;
}

static bool take_name(Loader *l, const Json *row, const char *column, const char *otherwise, Names *names,
                      const char **out) {
    const Json *v = json_path(row, column);
    int64_t *count;
    if (!is_null(v)) TRY(text_of(l, v, column));
    if (is_null(v) && !otherwise)
        return err_set(l->err,
                       "there is no %s, which chooses the scorer: name one for all (eval: --scorer gsm8k, train: "
                       "reward.scorer=gsm8k), bring your own, or make a file that names it (hone data gsm8k)",
                       column);
    *out = is_null(v) ? intern(names, &l->d->mem, otherwise, strlen(otherwise), &count)
                      : intern(names, &l->d->mem, v->str, v->n, &count);
    ++*count;
    if (names->n > MAX_NAMES)
        return err_set(l->err, "more than %d different values of %s: is this the right column?", MAX_NAMES, column);
    return true;
}

static bool take_pictures(Loader *l, DataRow *r, const Json *v, bool videos) {
    const char *file = l->d->file[l->file], *slash = strrchr(file, '/');
    if (v->kind != JSON_ARRAY)
        return err_set(l->err, "%s must be a list, not %s", videos ? l->videos : l->images, json_kind_name(v->kind));
    Json *own = MEM_ARRAY(&l->d->mem, Json, v->n);
    for (size_t i = 0; i < v->n; i++) own[i] = json_copy(&v->items[i], &l->d->mem);
    if (videos) r->videos = own, r->n_videos = (int)v->n;
    else r->images = own, r->n_images = (int)v->n;
    r->folder = slash ? mem_str(&l->d->mem, file, (size_t)(slash - file)) : "";
    return true;
}

static bool take_row(Loader *l, DataRow *r, const Json *row) {
    const char *const media[] = { l->images, l->videos, "audios" };
    for (size_t i = 0; i < COUNT(media); i++) {
        const Json *v = json_get(row, media[i]);
        if (is_null(v) || !v->n) continue;
        if (i == 2 || !l->o->pictures)
            return err_set(l->err, "it has %s, which %s", media[i],
                           i == 2
                               ? "this version does not read"
                               : "are not taken here: train, sft and eval take them, of a model with a vision tower");
        TRY(take_pictures(l, r, v, i == 1));
    }
    const char *source = l->o->source ? l->o->source : l->o->need_truth ? NULL : "";
    TRY(take_name(l, row, l->c.source, source, &l->d->sources, &r->source));
    TRY(take_name(l, row, l->c.ability, "", &l->d->abilities, &r->ability));
    const Json *prompt = json_path(row, l->c.prompt);
    if (is_null(prompt)) return lacks(l, row, l->c.prompt, "prompt_key");
    TRY(l->o->conversations ? take_conversation(l, r, prompt) : take_prompt(l, r, prompt));
    TRY(take_truth(l, r, row));
    const Json *extra = json_path(row, l->c.extra), *response = json_path(row, l->c.response);
    if (!is_null(extra)) {
        buf_clear(&l->text);
        pq_put_value(&l->text, extra);
        r->extra = keep(l, l->text.data, l->text.n, &r->extra_n);
    }
    if (l->o->conversations) return take_tools(l, r, json_path(row, l->c.tools));
    if (is_null(response)) return !l->o->need_response || lacks(l, row, l->c.response, "response_key");
    if (!l->o->need_response && response->kind != JSON_STRING) return true;
    TRY(text_of(l, response, l->c.response));
    r->response = keep(l, response->str, response->n, &r->response_n);
    return true;
}

/* Only the top-level columns that are needed are read from a Parquet file: a dotted name may also be one column. */
static void select_columns(Table *t, const DataColumns *c, const char *images, const char *videos) {
    const char *want[] = { c->prompt,   c->source, c->ability, c->truth, c->extra,
                           c->response, c->tools,  images,     videos,   "audios" };
    table_select(t, want, (int)COUNT(want));
}

static bool load_file(Loader *l) {
    const char *path = l->d->file[l->file];
    Table *t = table_open(path, l->err);
    if (!t) return false;
    l->table = t;
    select_columns(t, &l->c, l->images, l->videos);
    TableRows rows = { 0 };
    bool ok, full = false;
    while (!full && (ok = table_next(t, l->o->threads, &rows, l->err)) && rows.n)
        for (int64_t i = 0; ok && i < rows.n && !full; i++) {
            DataRow r = { .file = l->file, .row = rows.first + i };
            ok = take_row(l, &r, &rows.rows[i]);
            if (!ok && rows.line) err_wrap(l->err, "%s line %lld", path, (long long)rows.line[i]);
            else if (!ok) err_wrap(l->err, "%s row %lld", path, (long long)r.row);
            else VEC_PUSH(l->d->rows, r);
            if (!ok) {
                table_close(t);
                return false;
            }
            full = l->o->max_rows && (int64_t)l->d->rows.n >= l->o->max_rows;
        }
    table_close(t);
    return full || ok;
}

static uint64_t mix(uint64_t h, const char *s, size_t n) {
    h = (h ^ (n + 1)) * 0x9E3779B97F4A7C15u;
    for (; n >= 8; s += 8, n -= 8) {
        uint64_t w;
        memcpy(&w, s, 8);
        h = (h ^ w) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    h = hash_bytes(h, s, n);
    return h ^ h >> 32;
}

static uint64_t print_json(uint64_t h, const Json *v) {
    if (v->kind == JSON_STRING) return mix(h, v->str, v->n);
    for (size_t i = 0; v->kind == JSON_OBJECT && i < v->n; i++)
        h = print_json(mix(h, v->members[i].key, v->members[i].key_n), &v->members[i].value);
    return h;
}

uint64_t dataset_print(const Dataset *d) {
    uint64_t h = 0x243F6A8885A308D3u;
    for (size_t i = 0; i < d->rows.n; i++) {
        const DataRow *r = &d->rows.at[i];
        h = mix(h, r->source, strlen(r->source));
        h = mix(h, r->prompt, r->prompt_n);
        h = mix(h, r->truth, r->truth_n);
        h = mix(h, r->extra, r->extra_n);
        h = mix(h, r->response, r->response_n);
        if (r->tools) h = mix(h, r->tools, r->tools_n);
        for (int k = 0; k < r->n_images; k++) h = print_json(h, &r->images[k]);
        for (int k = 0; k < r->n_videos; k++) h = print_json(h, &r->videos[k]);
    }
    return h;
}

static const char *or_else(const char *given, const char *usual) { return given && *given ? given : usual; }

Dataset *dataset_open(const DataOptions *o, Err *err) {
    Mem mem = { 0 };
    Dataset *d = MEM_NEW(&mem, Dataset);
    d->mem = mem;
    Loader l = { .d = d, .o = o, .err = err };
    l.c =
        (DataColumns){ or_else(o->columns.prompt, "prompt"),    or_else(o->columns.source, "data_source"),
                       or_else(o->columns.ability, "ability"),  or_else(o->columns.truth, "reward_model.ground_truth"),
                       or_else(o->columns.extra, "extra_info"), or_else(o->columns.response, "response"),
                       or_else(o->columns.tools, "tools") };
    l.images = or_else(o->images, "images"), l.videos = or_else(o->videos, "videos");
    bool ok = paths_expand(&d->mem, o->files, o->n_files, &d->file, &d->n_files, err);
    for (; ok && l.file < d->n_files; l.file++)
        if (!o->max_rows || (int64_t)d->rows.n < o->max_rows) ok = load_file(&l);
    if (ok && !d->rows.n) ok = err_set(err, "%s: there are no rows", d->file[0]);
    buf_free(&l.text);
    if (ok) return d;
    dataset_close(d);
    return NULL;
}

void dataset_close(Dataset *d) {
    if (!d) return;
    vec_free(d->rows.at);
    vec_free(d->sources.at);
    vec_free(d->abilities.at);
    Mem mem = d->mem;
    mem_free(&mem);
}

int64_t dataset_n(const Dataset *d) { return (int64_t)d->rows.n; }
const DataRow *dataset_row(const Dataset *d, int64_t i) { return &d->rows.at[i]; }
const char *dataset_file(const Dataset *d, int file) { return d->file[file]; }

const char *dataset_source(const Dataset *d, int i, int64_t *rows) {
    if ((size_t)i >= d->sources.n) return NULL;
    if (rows) *rows = d->sources.at[i].rows;
    return d->sources.at[i].name;
}
