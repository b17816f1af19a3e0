/* test_chain.c - calls done together give the bytes of calls done one by one, whatever memory they share: random
 * programs of calls over tensors that lie across each other, run both ways on several thread counts. */
#include "op/cpu/chain.h"
#include "optest.h"

#include <stdatomic.h>

enum { T = 264, W = 32, E = 5, K = 2, VIEWS = 19, CALLS = 60, PROGRAMS = 40 };

typedef struct {
    Rig r;
    Tensor room, w, wide, gain, freq, pos, cossin, at, from, slot, weight, dw, rstd;
    Seqs ex;
} World;

/* View v of n rows: views of one size lie across each other by a third, those of another size anyhow. */
static Tensor view(const World *w, int v, int64_t rows, int64_t cols) {
    Tensor x = tensor_over((float *)w->room.data + (int64_t)v * (T * W / 3), DT_F32, rows, cols);
    CHECK((v * (T * W / 3) + rows * cols) <= w->room.cols, "view %d of [%ld,%ld]", v, (long)rows, (long)cols);
    return x;
}
static bool over(Tensor a, Tensor b) {
    const float *x = a.data, *y = b.data;
    return x < y + b.rows * b.cols && y < x + a.rows * a.cols;
}
/* A tensor of that shape that lies apart from the given ones (or is one of them, where 'same'
 * allows it); none if chance finds no place. */
static Tensor apart_from(const World *w, uint64_t *s, int64_t rows, int64_t cols, const Tensor * not, int n,
                         bool same) {
    for (int tries = 0; tries < 200; tries++) {
        Tensor x = view(w, (int)(mix((*s)++) % VIEWS), rows, cols);
        bool ok = true;
        for (int i = 0; i < n; i++)
            if (over(x, not [i]) && !(same && x.data == not [i].data && x.rows == not [i].rows)) ok = false;
        if (ok) return x;
    }
    return TENSOR_NONE;
}

static void one_call(World *w, uint64_t *s) {
    Dev *d = &w->r.d;
    int kind = (int)(mix((*s)++) % 12);
    bool twice = kind == 2 || kind == 7 || kind == 8;
    int64_t rows = twice ? K * T : T, cols = W;
    Tensor t[3];
    t[0] = apart_from(w, s, rows, cols, NULL, 0, false);
    if (kind == 1) { /* by heads: more rows than the others of its chain */
        t[1] = apart_from(w, s, rows, cols, t, 1, true);
        if (!t[1].data) return;
        op_rmsnorm(d, tensor_shape(t[1], 4 * T, W / 4), w->rstd, tensor_shape(t[0], 4 * T, W / 4),
                   tensor_cols(w->gain, 0, W / 4), 1e-6f);
    } else if (kind == 0) {
        t[1] = apart_from(w, s, rows, cols, t, 1, true);
        if (!t[1].data) return;
        op_rmsnorm(d, t[1], TENSOR_NONE, t[0], w->gain, 1e-6f);
    } else if (kind == 2 || kind == 3) {
        t[1] = apart_from(w, s, rows, cols, t, 1, true);
        if (!t[1].data) return;
        t[2] = apart_from(w, s, rows, cols, t, 2, true);
        if (!t[2].data) return;
        if (mix((*s)++) % 2) op_add(d, t[2], t[0], t[1]);
        else op_swiglu(d, t[2], t[0], t[1]);
    } else if (kind == 4) {
        t[1] = apart_from(w, s, rows, cols, t, 1, false);
        if (!t[1].data) return;
        op_linear(d, t[1], t[0], w->w, TENSOR_NONE, leaves_all(4, W, 1));
    } else if (kind == 5) {
        op_rope(d, t[0], w->cossin, (RopeShape){ 2, W / 2, 0, W / 2, false }, +1);
    } else if (kind == 6) {
        t[1] = apart_from(w, s, K * T, cols, t, 1, false);
        if (!t[1].data) return;
        op_permute(d, t[1], t[0], w->from);
    } else if (kind == 7) {
        t[1] = apart_from(w, s, rows, cols, t, 1, false);
        if (!t[1].data) return;
        op_grouped(d, t[1], t[0], w->wide, w->ex, leaves_one(W));
    } else if (kind == 8) {
        t[1] = apart_from(w, s, T, cols, t, 1, false);
        if (!t[1].data) return;
        if (mix((*s)++) % 2) op_combine(d, t[1], t[0], w->slot, w->weight);
        else op_permute_bwd(d, t[1], t[0], w->slot);
    } else if (kind == 9) {
        t[1] = apart_from(w, s, rows, cols, t, 1, false);
        if (!t[1].data) return;
        op_linear_dx(d, t[1], t[0], w->w, leaves_one(W));
    } else if (kind == 10) {
        t[1] = apart_from(w, s, rows, cols, t, 1, false);
        if (!t[1].data) return;
        op_linear_dw(d, w->dw, TENSOR_NONE, t[0], t[1]);
    } else {
        t[1] = apart_from(w, s, rows, cols, t, 1, false);
        if (!t[1].data) return;
        op_rmsnorm_bwd(d, t[0], TENSOR_NONE, t[0], t[1], tensor_over(w->rstd.data, DT_F32, T, 1), w->gain);
    }
}

static void world_open(World *w, int threads) {
    *w = (World){ 0 };
    rig_open(&w->r, threads, ISA_BEST, (size_t)16 << 20);
    Mem *m = &w->r.m;
    int64_t room = (VIEWS - 1) * (T * W / 3) + K * T * W;
    w->room = rig_put(&w->r, DT_F32, 1, room, rnds(m, room, 1, 1));
    w->w = rig_put(&w->r, DT_F32, W, W, rnds(m, W * W, 2, 0.2f));
    w->wide = rig_put(&w->r, DT_F32, E * W, W, rnds(m, E * W * W, 3, 0.2f));
    w->gain = rig_put(&w->r, DT_F32, 1, W, rnds(m, W, 4, 1));
    w->freq = rig_put(&w->r, DT_F32, 1, W / 4, rnds(m, W / 4, 5, 1));
    w->dw = rig_put(&w->r, DT_F32, W, W, rnds(m, W * W, 6, 0));
    w->rstd = rig_put(&w->r, DT_F32, 4 * T, 1, rnds(m, 4 * T, 7, 1));
    w->weight = rig_put(&w->r, DT_F32, T, K, rnds(m, T * K, 8, 1));
    w->cossin = rig_put(&w->r, DT_F32, T, W / 2, rnds(m, T * W / 2, 9, 1));
    int32_t *pos = MEM_ARRAY(m, int32_t, T), *pick = MEM_ARRAY(m, int32_t, T * K), *none = MEM_ARRAY(m, int32_t, T * K);
    for (int i = 0; i < T; i++) {
        pos[i] = i;
        pick[i * K] = (int32_t)(mix((uint64_t)i) % (E - 1));
        pick[i * K + 1] = pick[i * K] + 1;
    }
    w->pos = rig_put(&w->r, DT_I32, T, 1, pos);
    w->at = rig_put(&w->r, DT_I32, E + 1, 1, none);
    w->from = rig_put(&w->r, DT_I32, T * K, 1, none);
    w->slot = rig_put(&w->r, DT_I32, T, K, none);
    Tensor picks = rig_put(&w->r, DT_I32, T, K, pick);
    op_moe_sort(&w->r.d, w->at, w->from, w->slot, picks, E);
    w->ex = (Seqs){ E, K * T, w->at };
}

/* The bytes of the room after a program, and of what was added up beside it. */
static float *run(uint64_t program, int threads, bool chained, Mem *mem, int64_t *n) {
    World w;
    world_open(&w, threads);
    uint64_t s = program * 1000003;
    dev_chain(&w.r.d, chained);
    op_rope_table(&w.r.d, w.cossin, w.pos, w.freq, 1);
    for (int i = 0; i < CALLS; i++) one_call(&w, &s);
    dev_chain(&w.r.d, false);
    *n = w.room.cols + W * W + 4 * T;
    float *all = MEM_ARRAY(mem, float, (size_t)*n);
    memcpy(all, rig_get(&w.r, w.room), (size_t)w.room.cols * 4);
    memcpy(all + w.room.cols, rig_get(&w.r, w.dw), W * W * 4);
    memcpy(all + w.room.cols + W * W, rig_get(&w.r, w.rstd), 4 * T * 4);
    EXPECT(rig_torn(&w.r) == 0, "program %lu: bytes beside a tensor were written", (unsigned long)program);
    rig_close(&w.r);
    return all;
}

/* Calls do wait: while chains are on nothing is done before it is asked for, and everything is done when it is. */
static void test_waits(void) {
    World w;
    world_open(&w, 2);
    Tensor x = view(&w, 0, T, W), y = view(&w, 3, T, W);
    dev_chain(&w.r.d, true);
    op_add(&w.r.d, y, x, x);
    op_linear(&w.r.d, x, y, w.w, TENSOR_NONE, leaves_one(W));
    EXPECT(cpu_dev(&w.r.d)->queued == 2, "two calls wait, not %d", cpu_dev(&w.r.d)->queued);
    op_permute(&w.r.d, view(&w, 6, T, W), x,
               tensor_over(w.from.data, DT_I32, T, 1)); /* any row of x, which is being written */
    EXPECT(cpu_dev(&w.r.d)->queued == 1, "reading any row ends the chain that writes them: %d wait",
           cpu_dev(&w.r.d)->queued);
    rig_get(&w.r, y);
    EXPECT(cpu_dev(&w.r.d)->queued == 0, "%d still wait after a value was fetched", cpu_dev(&w.r.d)->queued);
    dev_chain(&w.r.d, false);
    op_add(&w.r.d, y, x, x);
    EXPECT(cpu_dev(&w.r.d)->queued == 0, "%d wait although chains are off", cpu_dev(&w.r.d)->queued);
    rig_close(&w.r);
}

/* A chain of few rows is cut for the threads, too, when it is worth their while: a decode
 * step's rows are few, and each has all its keys to read. */
static atomic_int blocks, empty; /* EXPECT is for one thread at a time */
static void count_block(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work) {
    (void)arg, (void)k, (void)work;
    atomic_fetch_add(&blocks, 1);
    if (r0 >= r1) atomic_fetch_add(&empty, 1);
}
static int blocks_of(int64_t rows, double cost, int64_t least, int threads) {
    World w;
    world_open(&w, threads);
    Tensor x = view(&w, 0, rows, W);
    atomic_store(&blocks, 0);
    dev_chain(&w.r.d, true);
    int nothing = 0;
    Touch t[] = { writes(x) };
    cpu_call(&w.r.d, &(Call){ .rows = rows,
                              .cost = cost,
                              .fn = count_block,
                              .arg = &nothing,
                              .bytes = sizeof nothing,
                              .touch = t,
                              .touches = 1,
                              .least = least });
    dev_chain(&w.r.d, false);
    rig_close(&w.r);
    EXPECT(atomic_load(&empty) == 0, "%d empty blocks", atomic_load(&empty));
    return atomic_load(&blocks);
}
static void test_cuts(void) {
    enum { US = 1000 };
    EXPECT(blocks_of(64, 20 * US, 0, 2) == 8, "64 costly rows are 8 blocks on 2 threads");
    EXPECT(blocks_of(16, 20 * US, 0, 2) == 2, "16 costly rows are 2");
    EXPECT(blocks_of(64, 490, 0, 2) == 2, "rows that cost little: one block for each thread");
    EXPECT(blocks_of(64, 1, 0, 2) == 1, "next to nothing: nobody is asked");
    EXPECT(blocks_of(64, 20 * US, 64, 2) == 2, "products keep rows together, but not from a thread that is idle");
    EXPECT(blocks_of(64, 20 * US, 0, 1) == 1, "one thread: one block");
}

int main(int argc, char **argv) {
    static const int threads[] = { 1, 2, 3, 7 };
    optest_begin(argc, argv);
    test_waits();
    test_cuts();
    for (uint64_t p = 1; p <= PROGRAMS; p++) {
        Mem mem = { 0 };
        int64_t n;
        float *want = run(p, 1, false, &mem, &n);
        for (size_t i = 0; i < COUNT(threads); i++) {
            float *got = run(p, threads[i], true, &mem, &n);
            int64_t at = 0;
            while (at < n && !memcmp(got + at, want + at, 4)) at++;
            EXPECT(at == n, "program %lu on %d threads: number %ld is %g, one by one %g", (unsigned long)p, threads[i],
                   (long)at, at < n ? (double)got[at] : 0, at < n ? (double)want[at] : 0);
        }
        mem_free(&mem);
    }
    return test_end();
}
