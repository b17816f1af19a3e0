/* data_prepare.c - `hone data gsm8k|math|...`: raw files to the schema that training reads. */
#include "base/file.h"
#include "cmd/data/data.h"
#include "file/parquet.h"
#include "file/paths.h"
#include "file/table.h"
#include "task/prepare.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const Prepare *p;
    PrepareWith w;
    Mem mem;
    VEC(Json)
    rows;
    int64_t skipped;
    bool skip;
    Err first; /* why the first row was skipped */
} Work;

/* The split is the name of the file, as published: train.jsonl, test-00000-of-00001.parquet. */
static const char *split_of(const char *path) {
    static const char *const names[] = { "train", "test", "valid", "dev" };
    const char *slash = strrchr(path, '/'), *base = slash ? slash + 1 : path;
    for (size_t i = 0; i < COUNT(names); i++)
        if (strstr(base, names[i])) return names[i];
    return "train";
}

static bool prepare_file(Work *k, const char *file, Threads *threads, Err *err) {
    Table *t = table_open(file, err);
    if (!t) return false;
    TableRows r = { 0 };
    bool ok = true;
    while (ok && (ok = table_next(t, threads, &r, err)) && r.n)
        for (int64_t i = 0; ok && i < r.n; i++) {
            Json row;
            if (prepare_row(k->p, &k->w, &r.rows[i], (int64_t)k->rows.n + k->skipped, &k->mem, &row, err)) {
                VEC_PUSH(k->rows, row);
                continue;
            }
            if (r.line) err_wrap(err, "%s line %lld", file, (long long)r.line[i]);
            else err_wrap(err, "%s row %lld", file, (long long)(r.first + i));
            ok = k->skip;
            if (!k->skipped++) k->first = *err;
        }
    table_close(t);
    return ok;
}

static bool write_lines(const char *path, const Json *rows, size_t n, Err *err) {
    Buf b = { 0 };
    for (size_t i = 0; i < n; i++) {
        pq_put_value(&b, &rows[i]);
        buf_putc(&b, '\n');
    }
    bool ok = true;
    if (path && strcmp(path, "-")) ok = file_write(path, b.data ? b.data : "", b.n, err);
    else if (fwrite(b.data ? b.data : "", 1, b.n, stdout) != b.n || fflush(stdout))
        ok = errno == EPIPE
             || err_set(err, "cannot write to standard output: %s", strerror(errno)); /* a reader may go away */
    buf_free(&b);
    return ok;
}

static bool ends(const char *s, const char *with) {
    size_t n = strlen(s), m = strlen(with);
    return n >= m && !strcmp(s + n - m, with);
}

static const struct {
    const char *name;
    PqCodec codec;
} codecs[] = { { "zstd", PQ_ZSTD }, { "snappy", PQ_SNAPPY }, { "none", PQ_PLAIN } };

int data_prepare(const Verb *v, const DataArgs *a, const Prepare *p, const char *const *given, int n_given) {
    Err err;
    const char *out = a->out ? a->out : "-";
    bool parquet = ends(out, ".parquet");
    size_t c = 0;
    while (c < COUNT(codecs) && a->codec && strcmp(a->codec, codecs[c].name)) c++;
    if (c == COUNT(codecs)) return cmd_usage(v, "--codec is zstd, snappy or none, not '%s'", a->codec);
    if (!parquet && strcmp(out, "-") && !ends(out, ".jsonl") && !ends(out, ".json"))
        return cmd_usage(v, "--out must end in .parquet or .jsonl, not '%s'", out);
    if (!p->source && !a->source) return cmd_usage(v, "--source NAME says which scorer judges the answers");
    Work k = { .p = p, .skip = a->skip };
    const char *const *file = NULL;
    int n = 0;
    Threads *threads = threads_open(a->threads ? (int)a->threads : threads_default());
    bool ok = paths_expand(&k.mem, given, n_given, &file, &n, &err);
    for (int i = 0; ok && i < n; i++) {
        k.w = (PrepareWith){ a->source,   a->instruction, a->system,
                             a->question, a->answer,      a->split ? a->split : split_of(file[i]) };
        ok = prepare_file(&k, file[i], threads, &err);
    }
    if (ok && !k.rows.n)
        ok = err_set(&err, "%s: no row can be used%s%s", file[0], k.skipped ? "; the first: " : "",
                     k.skipped ? k.first.msg : "");
    if (ok && parquet) ok = pq_write(out, k.rows.at, (int64_t)k.rows.n, codecs[c].codec, &err);
    else if (ok) ok = write_lines(out, k.rows.at, k.rows.n, &err);
    if (ok && strcmp(out, "-")) {
        printf("%zu rows written to %s", k.rows.n, out);
        if (k.skipped) printf(", %lld left out; the first: %s", (long long)k.skipped, k.first.msg);
        putchar('\n');
    }
    vec_free(k.rows.at);
    mem_free(&k.mem);
    threads_close(threads);
    return ok ? 0 : cmd_fail(v, &err);
}
