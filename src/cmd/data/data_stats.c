/* data_stats.c - `hone data stats`: what is in data files, column by column: how many rows have it, of what kind, how
 * long; which sources; how many prompts occur again; with a model, how long the prompts are in its tokens. */
#include "base/hash.h"
#include "base/utf8.h"
#include "cmd/data/data.h"
#include "file/parquet.h"
#include "file/paths.h"
#include "file/table.h"
#include "task/prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef VEC(int64_t) Lengths;

typedef struct {
    const char *name;
    int64_t rows;
    unsigned kinds; /* bits of JsonKind; bit 7: messages */
    Lengths chars;
} Column;

typedef struct {
    const char *name;
    int64_t rows;
} Source;

typedef struct {
    Mem mem;
    VEC(Column)
    columns;
    VEC(Source)
    sources;
    int64_t rows, repeated, failed;
    uint64_t *seen; /* hashes of prompts, a table of 'size' */
    size_t size;
    Lengths tokens;
    Buf text;
} Stats;

enum { KIND_MESSAGES = 7, MAX_SOURCES = 1000 };

static int64_t characters(const char *s, size_t n) {
    int64_t c = 0;
    for (size_t i = 0; i < n; i++) c += (s[i] & 0xC0) != 0x80;
    return c;
}

static bool is_messages(const Json *v) {
    return v->kind == JSON_ARRAY && v->n && json_get(&v->items[0], "role") && json_get(&v->items[0], "content");
}

/* What a person would call its text: a string; of messages, what they say; of anything else, its JSON. */
static int64_t text_length(Stats *s, const Json *v) {
    if (v->kind == JSON_STRING) return v->flag ? (int64_t)v->n : characters(v->str, v->n);
    if (is_messages(v)) {
        int64_t n = 0;
        for (size_t i = 0; i < v->n; i++) {
            const Json *c = json_get(&v->items[i], "content");
            if (c && c->kind == JSON_STRING) n += characters(c->str, c->n);
        }
        return n;
    }
    buf_clear(&s->text);
    pq_put_value(&s->text, v);
    return characters(s->text.data, s->text.n);
}

static Column *column_named(Stats *s, const JsonMember *m, size_t guess) {
    if (guess < s->columns.n && !strcmp(s->columns.at[guess].name, m->key)) return &s->columns.at[guess];
    for (size_t i = 0; i < s->columns.n; i++)
        if (!strcmp(s->columns.at[i].name, m->key)) return &s->columns.at[i];
    VEC_PUSH(s->columns, (Column){ .name = mem_str(&s->mem, m->key, m->key_n) });
    return &s->columns.at[s->columns.n - 1];
}

static void count_source(Stats *s, const Json *v) {
    if (!v || v->kind != JSON_STRING) return;
    for (size_t i = 0; i < s->sources.n; i++)
        if (!strcmp(s->sources.at[i].name, v->str)) {
            s->sources.at[i].rows++;
            return;
        }
    if (s->sources.n < MAX_SOURCES) VEC_PUSH(s->sources, (Source){ mem_str(&s->mem, v->str, v->n), 1 });
}

static void count_repeat(Stats *s, const Json *row) {
    const Json *v = json_get(row, "prompt");
    if (!v) v = json_get(row, "question");
    if (!v) v = json_get(row, "problem");
    buf_clear(&s->text);
    pq_put_value(&s->text, v ? v : row);
    uint64_t h = hash_bytes(HASH_START, s->text.data, s->text.n);
    h = (h ^ h >> 31) | 1; /* 0 marks a free place */
    if ((size_t)s->rows * 2 >= s->size) {
        size_t was = s->size;
        uint64_t *old = s->seen;
        s->size = was ? was * 4 : 1 << 12;
        s->seen = MEM_ARRAY(&s->mem, uint64_t, s->size);
        for (size_t i = 0; i < was; i++) {
            if (!old[i]) continue;
            size_t k = old[i] & (s->size - 1);
            while (s->seen[k]) k = (k + 1) & (s->size - 1);
            s->seen[k] = old[i];
        }
    }
    size_t k = h & (s->size - 1);
    while (s->seen[k] && s->seen[k] != h) k = (k + 1) & (s->size - 1);
    s->repeated += s->seen[k] == h;
    s->seen[k] = h;
}

static void take_row(Stats *s, const Json *row) {
    for (size_t i = 0; i < row->n; i++) {
        Column *c = column_named(s, &row->members[i], i);
        const Json *v = &row->members[i].value;
        if (v->kind == JSON_NULL) continue;
        c->rows++;
        c->kinds |= 1u << (is_messages(v) ? KIND_MESSAGES : (int)v->kind);
        VEC_PUSH(c->chars, text_length(s, v));
    }
    count_source(s, json_get(row, "data_source"));
    count_repeat(s, row);
    s->rows++;
}

/* ---- reports */
static int by_size(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

static const struct {
    const char *name;
    double at;
} quantile[] = { { "min", 0 }, { "p50", .5 }, { "p90", .9 }, { "p99", .99 }, { "max", 1 } };

static void put_lengths(Lengths *l, bool json) {
    if (!l->n) return;
    qsort(l->at, l->n, sizeof *l->at, by_size);
    double sum = 0;
    for (size_t i = 0; i < l->n; i++) sum += (double)l->at[i];
    printf(json ? "{\"mean\":%.1f" : "mean %.1f", sum / (double)l->n);
    for (size_t q = 0; q < COUNT(quantile); q++)
        printf(json ? ",\"%s\":%lld" : ", %s %lld", quantile[q].name,
               (long long)l->at[(size_t)(quantile[q].at * (double)(l->n - 1) + .5)]);
    if (json) putchar('}');
}

static void kinds_of(const Column *c, char out[120]) {
    static const char *const name[] = { "null", "bool", "int", "real", "text", "list", "object", "messages" };
    size_t n = 0;
    out[0] = 0;
    for (int k = 0; k < 8; k++)
        if (c->kinds >> k & 1) n += (size_t)snprintf(out + n, 120 - n, "%s%s", n ? "|" : "", name[k]);
    if (!n) snprintf(out, 120, "null");
}

static const char *visible(Stats *s, const char *text) { /* until the next call */
    buf_clear(&s->text);
    buf_puts(&s->text, "");
    utf8_put_visible(&s->text, text, strlen(text));
    return s->text.data;
}

static void print_text(Stats *s) {
    printf("%lld rows, %lld with a prompt that occurred before\ncolumns, with the length of their text in characters\n",
           (long long)s->rows, (long long)s->repeated);
    for (size_t i = 0; i < s->columns.n; i++) {
        char kinds[120];
        Column *c = &s->columns.at[i];
        kinds_of(c, kinds);
        printf("  %-16s %-10s %8lld rows  ", visible(s, c->name), kinds, (long long)c->rows);
        put_lengths(&c->chars, false);
        putchar('\n');
    }
    if (s->tokens.n) {
        printf("prompts in tokens\n  ");
        put_lengths(&s->tokens, false);
        putchar('\n');
        if (s->failed) printf("  %lld rows of which the model's template makes no prompt\n", (long long)s->failed);
    }
    if (s->sources.n) puts("data sources");
    for (size_t i = 0; i < s->sources.n; i++)
        printf("  %-40s %8lld rows\n", visible(s, s->sources.at[i].name), (long long)s->sources.at[i].rows);
    if (s->sources.n == MAX_SOURCES) printf("  (only the first %d)\n", MAX_SOURCES);
}

static void put_key(Buf *b, const char *name) {
    buf_clear(b);
    json_put_str(b, name, strlen(name));
    printf("%s:", b->data);
}

static void print_json(Stats *s) {
    printf("{\"rows\":%lld,\"repeated\":%lld,\"columns\":{", (long long)s->rows, (long long)s->repeated);
    for (size_t i = 0; i < s->columns.n; i++) {
        char kinds[120];
        kinds_of(&s->columns.at[i], kinds);
        if (i) putchar(',');
        put_key(&s->text, s->columns.at[i].name);
        printf("{\"rows\":%lld,\"kind\":\"%s\"", (long long)s->columns.at[i].rows, kinds);
        if (s->columns.at[i].chars.n) printf(",\"characters\":");
        put_lengths(&s->columns.at[i].chars, true);
        putchar('}');
    }
    printf("},\"data_sources\":{");
    for (size_t i = 0; i < s->sources.n; i++) {
        if (i) putchar(',');
        put_key(&s->text, s->sources.at[i].name);
        printf("%lld", (long long)s->sources.at[i].rows);
    }
    putchar('}');
    if (s->tokens.n) printf(",\"tokens\":");
    put_lengths(&s->tokens, true);
    puts("}");
}

static bool read_file(Stats *s, const DataArgs *a, const char *file, Threads *threads, Err *err) {
    Table *t = table_open(file, err);
    if (!t) return false;
    TableRows r = { 0 };
    int64_t before = s->rows;
    bool ok;
    while ((ok = table_next(t, threads, &r, err)) && r.n)
        for (int64_t i = 0; i < r.n; i++) take_row(s, &r.rows[i]);
    if (ok && !a->json) {
        printf("%s: %s, %lld rows\n", visible(s, file), table_kind(t), (long long)(s->rows - before));
        Buf text = { 0 };
        table_describe(t, &text);
        const char *shown = visible(s, text.data ? text.data : "");
        buf_free(&text);
        for (const char *line = shown, *end; line && *line && (end = strchr(line, '\n')); line = end + 1)
            printf("  %.*s\n", (int)(end - line), line);
    }
    table_close(t);
    return ok;
}

static bool count_tokens(Stats *s, const DataArgs *a, const char *const *file, int n, Threads *threads, Err *err) {
    DataOptions o = { .files = file, .n_files = n, .columns = { .prompt = a->prompt_key }, .threads = threads };
    ModelDesc desc;
    Mem mem = { 0 };
    Err none;
    bool known = model_desc_load(&desc, a->model, &mem, &none); /* a folder with a tokenizer alone will do */
    PromptOptions po = { .model = a->model, .end = -1, .desc = known ? &desc : NULL };
    o.pictures = known && desc.d.vis.layers;
    Prompter *p = prompter_open(&po, threads_count(threads), err);
    mem_free(&mem);
    if (!p) return false;
    Dataset *d = dataset_open(&o, err);
    DataCounts c;
    bool ok = d && dataset_measure(d, threads, INT64_MAX, DATA_LONG_FILTER, prompter_length, p, &c, err);
    for (int64_t i = 0; ok && i < dataset_n(d); i++) VEC_PUSH(s->tokens, dataset_row(d, i)->tokens);
    if (ok) s->failed = c.failed;
    dataset_close(d);
    prompter_close(p);
    return ok;
}

int data_stats(const Verb *v, const DataArgs *a, const char *const *given, int n_given) {
    Err err;
    Stats s = { 0 };
    const char *const *file;
    int n;
    Threads *threads = threads_open(a->threads ? (int)a->threads : threads_default());
    bool ok = paths_expand(&s.mem, given, n_given, &file, &n, &err);
    for (int i = 0; ok && i < n; i++) ok = read_file(&s, a, file[i], threads, &err);
    if (ok && a->model) ok = count_tokens(&s, a, file, n, threads, &err);
    if (ok) (a->json ? print_json : print_text)(&s);
    for (size_t i = 0; i < s.columns.n; i++) vec_free(s.columns.at[i].chars.at);
    vec_free(s.columns.at);
    vec_free(s.sources.at);
    vec_free(s.tokens.at);
    buf_free(&s.text);
    mem_free(&s.mem);
    threads_close(threads);
    return ok ? 0 : cmd_fail(v, &err);
}
