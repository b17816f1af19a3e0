/* data_show.c - `hone data show`: rows of a data file as people can read them, or as JSON lines. */
#include "base/utf8.h"
#include "cmd/data/data.h"
#include "file/parquet.h"
#include "file/paths.h"
#include "file/table.h"
#include "image/image.h"

#include <stdio.h>
#include <string.h>

static void put_indented(const char *s, size_t n, int indent) {
    Buf b = { 0 };
    buf_puts(&b, "");
    utf8_put_visible(&b, s, n);
    for (size_t i = 0; i < b.n; i++) {
        putchar(b.data[i]);
        if (b.data[i] == '\n') printf("%*s", indent, "");
    }
    buf_free(&b);
}

static bool is_messages(const Json *v) {
    if (v->kind != JSON_ARRAY || !v->n) return false;
    for (size_t i = 0; i < v->n; i++)
        if (!json_get(&v->items[i], "role") || !json_get(&v->items[i], "content")) return false;
    return true;
}

/* name: value; text with its line breaks, messages one by one, what is nested one level down by name. */
static void put_readable(const char *name, const Json *v, int indent, Buf *b) {
    printf("%*s", indent, "");
    put_indented(name, strlen(name), indent);
    fputs(": ", stdout);
    if (v->kind == JSON_STRING && (!v->flag || utf8_valid(v->str, v->n))) {
        bool lines = memchr(v->str, '\n', v->n) != NULL;
        if (lines) printf("\n%*s", indent + 2, "");
        put_indented(v->str, v->n, indent + 2);
        putchar('\n');
    } else if (v->kind == JSON_STRING) {
        ImageHead h;
        Err none;
        static const char *const kinds[] = { "PNG", "JPEG", "WebP" };
        if (image_head(&h, "", v->str, v->n, &none))
            printf("(%s, %d x %d pixels, %zu bytes%s%s)\n", kinds[h.kind], h.w, h.h, v->n, h.note ? "; " : "",
                   h.note ? h.note : "");
        else printf("(%zu bytes)\n", v->n);
    } else if (is_messages(v)) {
        putchar('\n');
        for (size_t i = 0; i < v->n; i++) {
            const Json *role = json_get(&v->items[i], "role");
            put_readable(role->kind == JSON_STRING ? role->str : "?", json_get(&v->items[i], "content"), indent + 2, b);
        }
    } else if (v->kind == JSON_OBJECT && v->n) {
        putchar('\n');
        for (size_t i = 0; i < v->n; i++) put_readable(v->members[i].key, &v->members[i].value, indent + 2, b);
    } else {
        buf_clear(b);
        pq_put_value(b, v);
        put_indented(b->data, b->n, indent);
        putchar('\n');
    }
}

static bool are_pictures(const Json *v) {
    const Json *one = v->kind == JSON_ARRAY && v->n ? json_get(&v->items[0], "bytes") : NULL;
    return one && one->kind == JSON_STRING && one->flag;
}

static void put_row(const DataArgs *a, const char *file, int64_t row, const Json *v, Buf *b) {
    if (a->json) {
        buf_clear(b);
        pq_put_value(b, v);
        puts(b->data);
        return;
    }
    put_indented(file, strlen(file), 0);
    printf(" row %lld\n", (long long)row);
    for (size_t i = 0; i < v->n; i++) {
        const Json *x = &v->members[i].value;
        if (!are_pictures(x)) put_readable(v->members[i].key, x, 2, b);
        for (size_t k = 0; are_pictures(x) && k < x->n; k++) /* one line each: what it is and how large */
            if (json_get(&x->items[k], "bytes")) put_readable(v->members[i].key, json_get(&x->items[k], "bytes"), 2, b);
    }
}

typedef struct {
    const char *name[64];
    bool seen[64];
    int n; /* 0: all */
} Columns;

/* The row with the columns that are wanted only, in its own order. */
static Json only(Columns *c, const Json *row, JsonMember kept[64]) {
    Json out = { .kind = JSON_OBJECT, .members = kept };
    for (size_t i = 0; row->kind == JSON_OBJECT && i < row->n && out.n < 64; i++)
        for (int k = 0; k < c->n; k++)
            if (!strcmp(row->members[i].key, c->name[k])) {
                kept[out.n++] = row->members[i];
                c->seen[k] = true;
                break;
            }
    return out;
}

static bool show_file(const DataArgs *a, const char *file, Columns *columns, Threads *threads, int64_t *skip,
                      int64_t *left, Err *err) {
    Table *t = table_open(file, err);
    if (!t) return false;
    if (columns->n) table_select(t, columns->name, columns->n); /* the others of a Parquet file are not read */
    Buf b = { 0 };
    TableRows r = { 0 };
    bool ok;
    while ((ok = table_next(t, threads, &r, err)) && r.n && *left && !ferror(stdout))
        for (int64_t i = 0; i < r.n && *left && !ferror(stdout); i++) {
            if (*skip) {
                --*skip;
                continue;
            }
            JsonMember kept[64];
            Json row = columns->n ? only(columns, &r.rows[i], kept) : r.rows[i];
            put_row(a, file, r.first + i, &row, &b);
            --*left;
        }
    buf_free(&b);
    table_close(t);
    return ok;
}

/* --row counts through all the files, one behind the other. */
int data_show(const Verb *v, const DataArgs *a, const char *const *given, int n_given) {
    Err err;
    Mem mem = { 0 };
    const char *const *file;
    Columns columns = { 0 };
    int n;
    if (!paths_expand(&mem, given, n_given, &file, &n, &err)) return mem_free(&mem), cmd_fail(v, &err);
    if (a->columns)
        for (char *c = mem_str(&mem, a->columns, strlen(a->columns)), *next; c && columns.n < 64; c = next) {
            next = strchr(c, ',');
            if (next) *next++ = 0;
            columns.name[columns.n++] = c;
        }
    Threads *threads = threads_open(a->threads ? (int)a->threads : threads_default());
    int64_t skip = a->row < 0 ? 0 : a->row, left = a->n == 0 ? INT64_MAX : a->n;
    bool ok = true;
    for (int i = 0; ok && i < n && left; i++) ok = show_file(a, file[i], &columns, threads, &skip, &left, &err);
    for (int i = 0; ok && !skip && i < columns.n; i++)
        if (!columns.seen[i]) ok = err_set(&err, "no row that was shown has a column %s", columns.name[i]);
    if (ok && skip)
        ok = err_set(&err, "there is no row %lld: %lld rows in all", (long long)a->row, (long long)(a->row - skip));
    threads_close(threads);
    mem_free(&mem);
    return ok ? 0 : cmd_fail(v, &err);
}
