/* verify_talk.c - which file of cases is which, and what they sum up to: see verify_talk.h. */
#include "cmd/verify/verify_talk.h"
#include "base/file.h"
#include "cmd/verify/talk_in.h"
#include "cmd/verify/verify_algos.h"

#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void talk_ok(TalkCount *n) { n->passed++; }

void talk_failed(TalkCount *n, const char *name, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    n->failed++;
    printf("FAILED %s %s: ", n->file, name);
    vprintf(fmt, ap);
    putchar('\n');
    va_end(ap);
}

void talk_open(TalkCount *n, const char *name, Span ours) {
    n->open++;
    printf("open   %s %s: %.*s\n", n->file, name, (int)(ours.n < 2000 ? ours.n : 2000), ours.at);
}

bool json_same(const Json *a, const Json *b) {
    bool na = a->kind == JSON_INT || a->kind == JSON_REAL, nb = b->kind == JSON_INT || b->kind == JSON_REAL;
    if (na && nb) {
        if (a->kind == JSON_INT && b->kind == JSON_INT) return a->integer == b->integer;
        if (a->kind == JSON_REAL && b->kind == JSON_REAL && a->flag && b->flag) return a->n == b->n;
        const char *x = json_big(a), *y = json_big(b);
        if (x || y) return x && y && !strcmp(x, y);
        return json_number(a) == json_number(b);
    }
    if (na && isnan(json_number(a))) return json_is_str(b, "nan");
    if (a->kind != b->kind) return false;
    if (a->kind == JSON_NULL) return true;
    if (a->kind == JSON_BOOL) return a->flag == b->flag;
    if (a->n != b->n) return false;
    if (a->kind == JSON_STRING) return !memcmp(a->str, b->str, a->n);
    for (size_t i = 0; i < a->n; i++) {
        const Json *x = a->kind == JSON_ARRAY ? &a->items[i] : &a->members[i].value, *y = NULL;
        if (a->kind == JSON_ARRAY) y = &b->items[i];
        for (size_t j = 0; a->kind == JSON_OBJECT && j < b->n && !y; j++)
            if (span_eq((Span){ a->members[i].key, a->members[i].key_n },
                        (Span){ b->members[j].key, b->members[j].key_n }))
                y = &b->members[j].value;
        if (!y || !json_same(x, y)) return false;
    }
    return true;
}

/* Advantages, losses and what belongs to them. */
static bool methods(const Json *f, TalkCount *n, Err *err) {
    Mem mem = { 0 };
    Buf ours = { 0 };
    VerifyAlgos r;
    bool ok = verify_algos_json(&r, &ours, f, 1e-5, &mem, stdout, err);
    n->passed += r.cases - r.failed, n->failed += r.failed;
    buf_free(&ours);
    mem_free(&mem);
    return ok;
}
static bool not_there(const Json *f, TalkCount *n, Err *err) {
    (void)f, (void)n;
    return err_set(err, "distillation and preferences are not there yet");
}

/* What a file's cases are about; NULL: not such a file. */
static TalkCheck *kind_of(const Json *f) {
    const Json *cases = json_get(f, "cases"), *inputs = json_get(f, "inputs"), *first = NULL;
    if (inputs && json_get(inputs, "mask") && json_get(f, "loss")) return methods;
    if (inputs && (json_get(inputs, "teacher_logits") || json_get(inputs, "completion_mask"))) return not_there;
    if (!cases || cases->kind != JSON_ARRAY) return NULL;
    if (cases->n) first = &cases->items[0];
    if (json_get(f, "parsers") && json_get(f, "format")) return verify_calls;
    if (json_get(f, "parsers") && (!first || json_get(first, "parser"))) return verify_reasoning;
    if (json_get(f, "template") && (!first || json_get(first, "new_messages"))) return verify_turns;
    return NULL;
}

static bool read_json(const char *path, Mem *mem, Json *out, Err *err) {
    Buf text = { 0 };
    bool ok = file_read(&text, path, err) && json_parse(out, text.data ? text.data : "", text.n, mem, err);
    buf_free(&text);
    return ok;
}

static TalkCheck *kind_of_file(const char *path, Mem *mem, Json *out, Err *err) {
    size_t n = strlen(path);
    if (n < 5 || strcmp(path + n - 5, ".json") || !read_json(path, mem, out, err)) return NULL;
    return kind_of(out);
}

typedef struct {
    VEC(char *) names;
} Names;

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* The file itself, or the folder's files in their order. */
static void files_of(const char *path, Mem *mem, Names *out) {
    struct stat st;
    DIR *d = !stat(path, &st) && S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    if (!d) VEC_PUSH(out->names, mem_str(mem, path, strlen(path)));
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') VEC_PUSH(out->names, mem_printf(mem, "%s/%s", path, e->d_name));
    if (d) closedir(d);
    if (out->names.n) qsort(out->names.at, out->names.n, sizeof *out->names.at, by_name);
}

bool verify_talk_is(const char *path) {
    Mem mem = { 0 };
    Names f = { 0 };
    bool found = false;
    files_of(path, &mem, &f);
    for (size_t i = 0; i < f.names.n && !found; i++) {
        Mem one = { 0 };
        Json j;
        Err err;
        found = kind_of_file(f.names.at[i], &one, &j, &err) != NULL;
        mem_free(&one);
    }
    vec_free(f.names.at);
    mem_free(&mem);
    return found;
}

int verify_talk(const char *path) {
    Mem mem = { 0 };
    Names f = { 0 };
    TalkCount sum = { 0 };
    files_of(path, &mem, &f);
    for (size_t i = 0; i < f.names.n; i++) {
        Mem one = { 0 };
        Json j;
        Err err;
        TalkCheck *check = kind_of_file(f.names.at[i], &one, &j, &err);
        const char *slash = strrchr(f.names.at[i], '/');
        TalkCount n = { .file = slash ? slash + 1 : f.names.at[i], .path = f.names.at[i] };
        if (check && !check(&j, &n, &err)) talk_failed(&n, "the file", "%s", err.msg);
        if (check && f.names.n > 1)
            printf("%s: %lld passed, %lld failed\n", n.file, (long long)n.passed, (long long)n.failed);
        sum.passed += n.passed, sum.failed += n.failed, sum.open += n.open;
        mem_free(&one);
    }
    if (sum.open) printf("%lld open (counted in neither number)\n", (long long)sum.open);
    printf("%lld passed, %lld failed\n", (long long)sum.passed, (long long)sum.failed);
    vec_free(f.names.at);
    mem_free(&mem);
    return sum.failed != 0;
}
