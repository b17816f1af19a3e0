/* bench_sync.c - weights from one cut to another on the ranks of one machine, beside what its memory gives:
 *   mpirun -n 2 build/bench/bench_sync [FROM TO [messages]]  500 MB of weights (pp=2 tp=1), bytes a
 *   second that a rank receives, best of nine: sync, with
 *       and without its check; the same bytes as plain messages; and as a copy out of another
 *       process's shared memory, both at once
 *   build/bench/bench_sync --plan CONFIG FROM TO RANKS  making one rank's list of moves:
 *   seconds, the slowest of 64 ranks, and the
 *       process's peak memory */
#include "base/clock.h"
#include "param/param.h"
#include "plan/syncplan.h"
#include "sync/sync.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 9, PIECE = 4 << 20, SHARED = 64 << 20 };
static const char CONFIG[] =
    "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"hidden_size\":1024,\"num_hidden_layers\":7,"
    "\"vocab_size\":4096,\"num_attention_heads\":16,\"num_key_value_heads\":16,\"intermediate_size\":4096,"
    "\"rms_norm_eps\":1e-6,\"rope_theta\":10000,\"max_position_embeddings\":4096,\"hidden_act\":\"silu\","
    "\"tie_word_embeddings\":false}";

static double cpu_now(void) { /* of this process: others may be using the cores, too */
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static GridShape grid(const char *text, const ModelDesc *m, int ranks) {
    GridShape g;
    Err err = { "" };
    CHECK(syncgrid_parse(&g, text, NULL, ranks, m, &err), "%s", err.msg);
    return g;
}

static int plan(const char *config, const char *from, const char *to, int ranks) {
    Mem mem = { 0 };
    ModelDesc m;
    Err err;
    CHECK(model_desc_load(&m, config, &mem, &err), "%s", err.msg);
    GridShape a = grid(from, &m, ranks), b = grid(to, &m, ranks);
    SyncPair pair = { &m, &a, &b, ranks, 8 };
    double slowest = 0;
    int moves = 0;
    for (int i = 0; i < 64; i++) {
        Mem own = { 0 };
        SyncList l;
        double t0 = cpu_now();
        sync_list(&l, &pair, (int)((int64_t)i * ranks / 64), &own);
        double t = cpu_now() - t0;
        if (t > slowest) slowest = t;
        if (l.moves > moves) moves = l.moves;
        mem_free(&own);
    }
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    printf(
        "%s -> %s on %d ranks: %.3f s at most for a rank's list of up to %d kinds of moves; the process took %.1f MB\n",
        from, to, ranks, slowest, moves, (double)u.ru_maxrss / 1e3);
    mem_free(&mem);
    return 0;
}

/* As many bytes to the neighbour and from it, in pieces, two of each under way. */
static void messages(const World *w, Dev *d, Tensor from, Tensor to, int64_t bytes) {
    int peer = w->all.rank ^ 1;
    CommCall out[2] = { { 0 } }, in[2] = { { 0 } };
    int64_t n = 0, room = (from.cols < to.cols ? from.cols : to.cols) / (PIECE / 4) - 1;
    for (int64_t at = 0; at < bytes; at += PIECE, n++) {
        int k = (int)(n % 2);
        if (n >= 2) comm_wait(&in[k]), comm_wait(&out[k]);
        in[k] = comm_recv(&w->all, d, peer, 3, tensor_cols(to, n % room * (PIECE / 4), PIECE / 4));
        out[k] = comm_send(&w->all, d, peer, 3, tensor_cols(from, n % room * (PIECE / 4), PIECE / 4));
    }
    for (int k = 0; k < 2; k++) comm_wait(&in[k]), comm_wait(&out[k]);
}

static char *shared_of(int rank, bool create) {
    char name[64];
    snprintf(name, sizeof name, "/hone-bench-sync-%d-%d", (int)getppid(), rank);
    int fd = shm_open(name, create ? O_CREAT | O_RDWR : O_RDWR, 0600);
    CHECK(fd >= 0 && (!create || !ftruncate(fd, SHARED)), "no shared memory %s", name);
    char *p = mmap(NULL, SHARED, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(p != MAP_FAILED, "no shared memory %s", name);
    close(fd);
    if (!create) shm_unlink(name);
    return p;
}

int main(int argc, char **argv) {
    if (argc == 6 && !strcmp(argv[1], "--plan")) return plan(argv[2], argv[3], argv[4], atoi(argv[5]));
    World w;
    Err err = { "" };
    if (!world_open(&w, 60, &err)) return fprintf(stderr, "%s\n", err.msg), 1;
    if (w.all.size != 2) return fprintf(stderr, "bench_sync: start it with mpirun -n 2\n"), 1;
    Mem mem = { 0 };
    ModelDesc m;
    Dev d;
    Params from, to;
    Sync s;
    CHECK(model_desc_parse(&m, CONFIG, sizeof CONFIG - 1, &mem, &err), "%s", err.msg);
    GridShape a = grid(argc > 2 ? argv[1] : "pp2", &m, 2), b = grid(argc > 2 ? argv[2] : "tp1", &m, 2);
    Shard sa = { a, grid_at(&a, w.all.rank) }, sb = { b, grid_at(&b, w.all.rank) };
    dev_open(&d, (DevOpts){ .threads = 1 });
    params_open(&from, &m, &sa, &d, DT_F32, false, "from", &mem);
    params_random(&from, &d, 1);
    params_open_beside(&to, &from, &sb, &d, DT_F32, "to", &mem);
    sync_open(&s, &from, &to, &d, &w, SYNC_BUFFER, argc < 4, &mem);
    dev_touch(&d);
    Tensor other = tensor_over(to.arena.base, DT_F32, 1, (int64_t)(to.arena.size / 4));
    char *mine = shared_of(w.all.rank, true), *theirs, *copy = mem_push(&mem, SHARED);
    memset(mine, w.all.rank + 1, SHARED);
    comm_barrier(&w.all);
    theirs = shared_of(w.all.rank ^ 1, false);
    double best[4] = { 1e9, 1e9, 1e9, 1e9 };
    SyncStats st;
    for (int round = 0; round < ROUNDS; round++)
        for (int what = 0; what < 4; what++) {
            comm_barrier(&w.all);
            double t0 = clock_now();
            if (what < 2) CHECK(sync_run(&s, what == 1, &st, &err), "%s", err.msg);
            int64_t bytes = (int64_t)comm_max(&w.all, st.received);
            if (what == 2) messages(&w, &d, from.flat, other, bytes);
            for (int64_t at = 0; what == 3 && at < bytes; at += SHARED)
                memcpy(copy, theirs, (size_t)(bytes - at < SHARED ? bytes - at : SHARED));
            double t = comm_max(&w.all, clock_now() - t0);
            if (t < best[what]) best[what] = t;
        }
    double gb = comm_max(&w.all, st.received) / 1e9, all = comm_max(&w.all, st.received + st.copied) / 1e9;
    if (w.all.rank == 0) {
        printf("%.0f MB of weights, a rank receives %.0f MB and copies %.0f MB of its own; buffer %.1f MB\n",
               (double)arch_param_count(&m) * 4 / 1e6, gb * 1e3, (all - gb) * 1e3, st.buffer / 1e6);
        printf(
            "the engine's weights come at %.2f GB/s, %.0f %% of a copy's rate (what is received and what is copied)\n",
            all / best[0], 100 * all * best[3] / (gb * best[0]));
        printf("sync %.2f GB/s (with its check %.2f), plain messages %.2f, copy out of shared memory %.2f: sync is "
               "%.0f %% of it\n",
               gb / best[0], gb / best[1], gb / best[2], gb / best[3], 100 * best[3] / best[0]);
    }
    comm_barrier(&w.all);
    world_close(&w);
    return 0;
}
