/* bench_ranks.c - `hone bench link` under a launcher: what ranks move in a second by the calls that a run makes, by the
 * size of the message, and a cluster file of it that `hone plan --cluster FILE` reads. */
#include "base/clock.h"
#include "base/file.h"
#include "cmd/asked.h"
#include "cmd/bench/bench.h"
#include "op/device.h"
#include "plan/machine.h"

#include <stdio.h>
#include <string.h>

extern const Verb verb_bench;

typedef struct {
    Ranks r;
    Dev d;
    Arena from, to;
} Rig;

enum { COLS = 1024, MOST = 100 };
static const int64_t ROWS[] = { 16, 256, 4096, 16384 }; /* of float32: 64 KiB to 64 MiB */

/* The sum over all ranks, on all: by the tree, as a run's. */
static void all_reduce(Rig *x, int64_t rows) {
    const Comm *c = &x->r.world.all;
    Tensor all = tensor_over(x->from.base, DT_F32, rows, COLS);
    Tensor mine = tensor_over(x->to.base, DT_F32, comm_share(c, rows), COLS);
    size_t mark = arena_mark(&x->d.tmp);
    comm_reduce_scatter(c, &x->d, mine, all);
    comm_all_gather(c, &x->d, &x->d.tmp, mine, rows);
    arena_pop(&x->d.tmp, mark);
}
static void all_to_all(Rig *x, int64_t rows) {
    const Comm *c = &x->r.world.all;
    CommRows part[COLS];
    CHECK(c->size <= COLS, "%d ranks", c->size);
    for (int r = 0; r < c->size; r++)
        part[r] = (CommRows){ comm_first_row(c, rows, r), rows / c->size ? rows / c->size : 0 };
    comm_exchange(c, &x->d, tensor_over(x->to.base, DT_F32, rows, COLS), part,
                  tensor_over(x->from.base, DT_F32, rows, COLS), part);
}
/* Everybody to the next, all at once. */
static void send(Rig *x, int64_t rows) {
    const Comm *c = &x->r.world.all;
    int next = (c->rank + 1) % c->size, before = (c->rank + c->size - 1) % c->size;
    comm_together(c, true);
    CommCall in = comm_recv(c, &x->d, before, 0, tensor_over(x->to.base, DT_F32, rows, COLS));
    CommCall out = comm_send(c, &x->d, next, 0, tensor_over(x->from.base, DT_F32, rows, COLS));
    comm_together(c, false);
    comm_wait(&in);
    comm_wait(&out);
}
static const struct {
    const char *name;
    void (*run)(Rig *x, int64_t rows);
    double out, less; /* a rank sends so many times the message, less that many of its n parts */
    bool power;       /* only of two */
} KINDS[] = {
    { "all-reduce", all_reduce, 2, 2, true },
    { "all-to-all", all_to_all, 1, 1, false },
    { "send", send, 1, 0, false },
};

static void wait_for_device(Rig *x) {
    float got;
    op_get(&x->d, &got, tensor_over(x->to.base, DT_F32, 1, 1));
}

/* Seconds, of the slowest rank. */
static double measure(Rig *x, size_t kind, int64_t rows, int repeats) {
    double t[MOST];
    for (int i = -1; i < repeats; i++) {
        wait_for_device(x);
        comm_barrier(&x->r.world.all);
        double t0 = clock_now();
        KINDS[kind].run(x, rows);
        wait_for_device(x);
        if (i >= 0) t[i] = clock_now() - t0;
    }
    return comm_max(&x->r.world.all, bench_times(t, repeats).median);
}

/* The machine that the rates are of.  A card that the table does not have is described by its owner, but for its
 * memory: hone plan says which keys are missing. */
static void put_type(const Dev *d, Buf *out) {
    DevAbout a = dev_about(d);
    const Machine *card = a.total ? machine_card(a.name) : NULL;
    buf_printf(out, "type: %s\n", card ? card->name : a.total ? "custom" : "this");
    if (a.total && !card)
        buf_printf(out, "name: %s\nmemory: %zu\n# what hone plan asks for besides: docs/plan.md\n", a.name, a.total);
}

static bool write_cluster(const Rig *x, const char *path, double inside, double between, Err *err) {
    const World *w = &x->r.world;
    Buf b = { 0 };
    buf_printf(&b, "# measured: mpirun -n %d hone bench link --write\n", w->all.size);
    put_type(&x->d, &b);
    buf_printf(&b, "gpus: %d\ngpus_per_node: %d\n", w->all.size, w->local_size);
    if (inside > 0) buf_printf(&b, "nvlink: %.4gGB/s\n", inside / 1e9);
    if (between > 0) buf_printf(&b, "nic: %.4gGB/s\n", between / 1e9);
    bool ok = file_write(path, b.data, b.n, err);
    buf_free(&b);
    return ok;
}

static bool run_all(Rig *x, const BenchArgs *a, Err *err) {
    const World *w = &x->r.world;
    int n = w->all.size, repeats = a->repeats < MOST ? (int)a->repeats : MOST;
    bool several = w->local_size < n, power = !(n & (n - 1)) && n <= 32;
    size_t most = (size_t)ROWS[COUNT(ROWS) - 1] * COLS * 4;
    double exchanged = 0, sent = 0;
    x->from = dev_arena(&x->d, "from", most), x->to = dev_arena(&x->d, "to", most);
    x->d.tmp = dev_arena(&x->d, "tmp", 4 * most + (1 << 20));
    op_zero(&x->d, tensor_over(x->from.base, DT_U8, 1, (int64_t)most));
    Buf out = { 0 };
    buf_printf(&out, "{\"bench\":\"link\",\"ranks\":%d,\"ranks_of_a_machine\":%d,\"by\":\"%s\",\"calls\":[", n,
               w->local_size, w->all.via->name);
    for (size_t k = 0; k < COUNT(KINDS); k++)
        for (size_t i = 0; i < COUNT(ROWS) && (power || !KINDS[k].power); i++) {
            double bytes = (double)ROWS[i] * COLS * 4, s = measure(x, k, ROWS[i], repeats);
            double rate = bytes * (KINDS[k].out - KINDS[k].less / n) / s;
            buf_printf(&out, "%s\n{\"call\":\"%s\",\"bytes\":%.0f,\"seconds\":%.3g,\"gb_per_s\":%.4g}",
                       out.data[out.n - 1] == '[' ? "" : ",", KINDS[k].name, bytes, s, rate / 1e9);
            if (!strcmp(KINDS[k].name, "all-to-all")) exchanged = rate;
            else if (!strcmp(KINDS[k].name, "send")) sent = rate;
        }
    if (ranks_first(&x->r)) printf("%s\n]}\n", out.data);
    buf_free(&out);
    bool ok = !a->write || !ranks_first(&x->r)
              || write_cluster(x, a->write, several ? 0 : exchanged, several ? sent : 0, err);
    return ranks_agree(&x->r, ok, err);
}

bool bench_ranks(const BenchArgs *a, Err *err) {
    Rig x = { 0 };
    TRY(asked_ranks(&x.r, &verb_bench, a, err));
    x.r.share_gpu = a->share_gpu;
    DeviceArgs da = { .device = a->device,
                      .compute = a->compute,
                      .threads = ranks_threads(&x.r, a->threads),
                      .local = x.r.world.local_rank,
                      .share = a->share_gpu };
    bool here = device_open(&x.d, &da, err);
    bool ok = ranks_agree(&x.r, here, err) && ranks_device(&x.r, &x.d, err) && run_all(&x, a, err);
    ranks_close(&x.r);
    if (here) dev_close(&x.d);
    return ok;
}
