/* jsonl.c - the contract of all JSON-lines verbs: see cmd.h. */
#include "base/file.h"
#include "cmd/cmd.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct JsonlOut {
    Mem mem;
    FILE *file;
    const char *path;
    int64_t errors;
    int failed; /* errno of the first write that failed */
};

JsonlOut *jsonl_open(const char *path, Err *err) {
    bool out = !path || !strcmp(path, "-");
    FILE *f = out ? stdout : fopen(path, "w");
    if (!f) {
        err_set(err, "%s: cannot create: %s", path, strerror(errno));
        return NULL;
    }
    Mem mem = { 0 };
    JsonlOut *o = MEM_NEW(&mem, JsonlOut);
    o->file = f;
    o->path = out ? "standard output" : mem_str(&mem, path, strlen(path));
    o->mem = mem;
    return o;
}

void jsonl_put(JsonlOut *o, const Buf *line) {
    if (o->failed) return;
    if (fwrite(line->data, 1, line->n, o->file) != line->n || fputc('\n', o->file) == EOF) o->failed = errno;
    else if (o->file == stdout && fflush(o->file)) o->failed = errno;
}

void jsonl_error(JsonlOut *o, const char *msg) {
    Buf b = { 0 };
    buf_puts(&b, "{\"error\":");
    json_put_str(&b, msg, strlen(msg));
    buf_putc(&b, '}');
    jsonl_put(o, &b);
    buf_free(&b);
    o->errors++;
}

bool jsonl_broken(const JsonlOut *o) { return o->failed != 0; }

int jsonl_close(JsonlOut *o, Err *err) {
    if (fflush(o->file) && !o->failed) o->failed = errno;
    if (o->file != stdout && fclose(o->file) && !o->failed) o->failed = errno;
    int rc = o->errors ? 1 : 0;
    if (o->failed && o->failed != EPIPE) {
        err_set(err, "%s: cannot write: %s", o->path, strerror(o->failed));
        rc = -1;
    }
    Mem mem = o->mem;
    mem_free(&mem);
    return rc;
}

/* ---- jsonl_map: blocks of lines, each line a task */
enum { BLOCK_LINES = 512, BLOCK_BYTES = 8 << 20 };

typedef struct {
    JsonlFn *fn;
    void *ctx;
    struct MapLine {
        size_t at, n;
        bool ok;
        Mem mem;
        Buf out;
        Err err;
    } line[BLOCK_LINES];
    Buf text;
    int n;
} Block;

static void map_line(void *arg, int index, int worker) {
    Block *b = arg;
    struct MapLine *l = &b->line[index];
    Json v;
    buf_clear(&l->out);
    l->ok = json_parse(&v, b->text.data + l->at, l->n, &l->mem, &l->err)
            && b->fn(b->ctx, worker, &v, &l->mem, &l->out, &l->err);
    mem_free(&l->mem);
}

int jsonl_map(const Verb *v, const char *in, const char *out, Threads *threads, JsonlFn *fn, void *ctx) {
    Err err;
    LineReader *r = lines_open(in ? in : "-", &err);
    if (!r) return cmd_fail(v, &err);
    JsonlOut *o = jsonl_open(out, &err);
    if (!o) {
        lines_close(r, &err);
        return cmd_fail(v, &err);
    }
    Mem mem = { 0 };
    Block *b = MEM_NEW(&mem, Block);
    b->fn = fn;
    b->ctx = ctx;
    const char *line;
    size_t n;
    bool more = true;
    while (more && !jsonl_broken(o)) {
        b->n = 0;
        buf_clear(&b->text);
        while (b->n < BLOCK_LINES && b->text.n < BLOCK_BYTES && (more = lines_next(r, &line, &n))) {
            if (strspn(line, " \t") == n) continue;
            b->line[b->n].at = b->text.n;
            b->line[b->n++].n = n;
            buf_put(&b->text, line, n);
        }
        threads_run(threads, b->n, map_line, b);
        for (int i = 0; i < b->n; i++) {
            if (b->line[i].ok) jsonl_put(o, &b->line[i].out);
            else jsonl_error(o, b->line[i].err.msg);
        }
    }
    for (int i = 0; i < BLOCK_LINES; i++) buf_free(&b->line[i].out);
    buf_free(&b->text);
    mem_free(&mem);
    bool read_ok = lines_close(r, &err);
    Err werr;
    int rc = jsonl_close(o, &werr);
    if (!read_ok) return cmd_fail(v, &err);
    return rc < 0 ? cmd_fail(v, &werr) : rc;
}
