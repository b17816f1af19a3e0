/* bench_parquet.c - how fast a Parquet file becomes rows:  bench_parquet FILE [THREADS]
 * Prints the best of four readings of the whole file, in processor seconds (a busy machine does not
 * lengthen them) and in bytes a second of its strings.  The same file by pyarrow, columns only and as
 * Python objects: bench/peers/parquet.py. */
#include "base/file.h"
#include "file/parquet.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double cpu_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static size_t bytes_of(const Json *v) {
    size_t n = v->kind == JSON_STRING ? v->n : 8;
    if (v->kind == JSON_ARRAY)
        for (size_t i = 0; i < v->n; i++) n += bytes_of(&v->items[i]);
    if (v->kind == JSON_OBJECT)
        for (size_t i = 0; i < v->n; i++) n += bytes_of(&v->members[i].value);
    return n;
}

int main(int argc, char **argv) {
    Err err;
    if (argc < 2) return fprintf(stderr, "usage: bench_parquet FILE [THREADS]\n"), 2;
    Threads *threads = threads_open(argc > 2 ? atoi(argv[2]) : 1);
    double best = 1e9;
    size_t bytes = 0;
    int64_t rows = 0;
    for (int round = 0; round < 5; round++) {
        double t = cpu_now();
        PqFile *f = pq_open(argv[1], &err);
        if (!f) return fprintf(stderr, "%s\n", err.msg), 1;
        rows = pq_rows(f);
        for (int g = 0; g < pq_groups(f); g++) {
            PqRows r;
            if (!pq_read(f, g, threads, &r, &err)) return fprintf(stderr, "%s\n", err.msg), 1;
            if (round == 0)
                for (int64_t i = 0; i < r.n; i++) bytes += bytes_of(&r.rows[i]);
            pq_rows_free(&r);
        }
        pq_close(f);
        t = cpu_now() - t;
        if (round > 0 && t < best) best = t;
    }
    printf("%s: %lld rows, %.1f MB: %.4f s, %.2f M rows/s, %.0f MB/s, %d threads\n", argv[1], (long long)rows,
           (double)bytes * 1e-6, best, (double)rows / best * 1e-6, (double)bytes / best * 1e-6, threads_count(threads));
    threads_close(threads);
    return 0;
}
