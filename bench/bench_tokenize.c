/* bench_tokenize.c MODEL FILE [THREADS] - how quickly a tokenizer loads and encodes.  FILE holds JSON
 * lines; every string in a line is a text.  Prints one line of JSON; bench/peers/tokenizing.py runs it
 * beside Hugging Face tokenizers.  Each figure is the best of several passes; the first pass over the text,
 * with cold word caches, is given by itself.  Loading and one thread are measured in processor time, which
 * other programs on the machine disturb less; threads by the clock, with cpu_efficiency beside it: the work
 * per processor second of many threads over that of one (1: nothing is waited for). */
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/threads.h"
#include "text/tok.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef struct {
    const char *s;
    size_t n;
} Text;

typedef struct {
    const Tok *tok;
    TokScratch *scratch[256];
    TokIds ids[256];
    VEC(Text)
    texts;
    size_t bytes;
} Bench;

enum { GROUP = 16 };

static double cpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void read_texts(Bench *b, const char *path, Mem *mem) {
    Err err;
    LineReader *r = lines_open(path, &err);
    CHECK(r, "%s", err.msg);
    const char *line;
    size_t n;
    while (lines_next(r, &line, &n)) {
        Json j;
        CHECK(json_parse(&j, line, n, mem, &err), "%s: %s", path, err.msg);
        for (size_t i = 0; j.kind == JSON_OBJECT && i < j.n; i++) {
            const Json *v = &j.members[i].value;
            if (v->kind != JSON_STRING) continue;
            VEC_PUSH(b->texts, (Text){ v->str, v->n });
            b->bytes += v->n;
        }
    }
    CHECK(lines_close(r, &err), "%s", err.msg);
}

static void encode(void *arg, int index, int worker) {
    Bench *b = arg;
    Err err;
    for (size_t i = (size_t)index * GROUP; i < b->texts.n && i < (size_t)(index + 1) * GROUP; i++) {
        TokIds *ids = &b->ids[worker];
        CHECK(tok_encode(b->tok, b->scratch[worker], b->texts.at[i].s, b->texts.at[i].n, 0, ids, &err), "%s", err.msg);
    }
}

typedef struct {
    double cpu, wall;
} Seconds;

static Seconds pass(Bench *b, Threads *t, size_t *tokens) {
    for (int i = 0; i < threads_count(t); i++) b->ids[i].n = 0;
    double wall = clock_now(), cpu = cpu_now();
    threads_run(t, (int)((b->texts.n + GROUP - 1) / GROUP), encode, b);
    Seconds seconds = { cpu_now() - cpu, clock_now() - wall };
    *tokens = 0;
    for (int i = 0; i < threads_count(t); i++) *tokens += b->ids[i].n;
    return seconds;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "bench_tokenize MODEL FILE [THREADS]\n");
        return 2;
    }
    Bench b = { 0 };
    Err err;
    double load = 1e9;
    Tok *tok = NULL;
    for (int i = 0; i < 5; i++) {
        tok_close(tok);
        double from = cpu_now();
        if (tok_open(&tok, argv[1], &err) != TOK_OK) {
            fprintf(stderr, "bench_tokenize: %s\n", err.msg);
            return 1;
        }
        double s = cpu_now() - from;
        if (s < load) load = s;
    }
    int threads = argc > 3 ? atoi(argv[3]) : threads_default();
    CHECK(threads >= 1 && threads <= 256, "%d threads", threads);
    Mem mem = { 0 };
    b.tok = tok;
    read_texts(&b, argv[2], &mem);
    double mb = (double)b.bytes / 1e6, rate[2] = { 0 }, per_cpu[2] = { 0 }, cold = 0;
    size_t tokens = 0;
    for (int k = 0; k < 2; k++) {
        int n = k ? threads : 1;
        Threads *t = threads_open(n);
        for (int i = 0; i < n; i++) b.scratch[i] = tok_scratch_open(tok);
        for (int i = 0; i < 5; i++) {
            Seconds s = pass(&b, t, &tokens);
            if (k == 0 && i == 0) cold = mb / s.cpu;
            if (mb / s.wall > rate[k]) rate[k] = mb / s.wall;
            if (mb / s.cpu > per_cpu[k]) per_cpu[k] = mb / s.cpu;
        }
        for (int i = 0; i < n; i++) {
            tok_scratch_close(b.scratch[i]);
            vec_free(b.ids[i].at);
            b.ids[i] = (TokIds){ 0 };
        }
        threads_close(t);
    }
    printf("{\"load_ms\":%.1f,\"mb\":%.3f,\"tokens\":%zu,", load * 1e3, mb, tokens);
    printf("\"mb_s_cold\":%.1f,\"mb_s\":%.1f,\"threads\":%d,\"mb_s_threads\":%.1f,", cold, per_cpu[0], threads,
           rate[1]);
    printf("\"cpu_efficiency\":%.2f}\n", per_cpu[1] / per_cpu[0]);
    vec_free(b.texts.at);
    mem_free(&mem);
    tok_close(tok);
    return 0;
}
