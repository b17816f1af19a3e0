/* bench_attend.c - attention forward and backward as a share of the FMA peak measured in the
 * same run, and decode over pages.
 *   bench_attend [threads] [seconds per figure] [instruction set]
 * The peak is measured before every repeat, and the median of the ratios is told: the speed of a shared machine moves.
 * Work counted: 2 (dk + dv) multiply-adds per live pair forward; 2.5 times that backward (five products), whatever is
 * recomputed. */
#include "bench.h"

typedef struct {
    int heads, kv, dk, dv, seqs, len;
    bool latent;
} Shape;

static void packed(Dev *d, Arena *a, const Shape *s, double budget) {
    size_t mark = arena_mark(a);
    int T = s->seqs * s->len;
    Tensor at = tensor_push(a, DT_I32, 1, s->seqs + 1);
    for (int i = 0; i <= s->seqs; i++) ((int32_t *)at.data)[i] = i * s->len;
    Tensor k = bench_fill(a, T, s->kv * s->dk, 1);
    Attn t = {
        .q = bench_fill(a, T, s->heads * s->dk, 1),
        .k = k,
        .v = s->latent ? tensor_cols(k, 0, s->dv) : bench_fill(a, T, s->kv * s->dv, 1),
        .o = bench_fill(a, T, s->heads * s->dv, 0),
        .lse = bench_fill(a, T, s->heads, 0),
        .seqs = { s->seqs, s->len, at },
        .heads = s->heads,
        .kv_heads = s->kv,
        .dk = s->dk,
        .dv = s->dv,
        .scale = 0.05f,
    };
    Tensor dO = bench_fill(a, T, s->heads * s->dv, 1), dq = bench_fill(a, T, s->heads * s->dk, 0),
           dk = bench_fill(a, T, s->kv * s->dk, 0);
    Tensor dv = bench_fill(a, T, s->kv * s->dv, 0);
    double f = (double)s->seqs * s->len * (s->len + 1) / 2 * s->heads * 2 * (s->dk + s->dv) * 1e-9;
    Share fw, bw;
    SHARE(fw, d, budget, bench_peak_once(d), f, op_attend(d, &t));
    SHARE(bw, d, budget, bench_peak_once(d), 2.5 * f, op_attend_bwd(d, dq, dk, dv, dO, &t));
    printf("%3d/%-3d heads of %3d/%3d, %3d x %5d: forward %5.1f %% of peak, %7.0f us; backward %5.1f %%, %7.0f us\n",
           s->heads, s->kv, s->dk, s->dv, s->seqs, s->len, fw.share, fw.sec * 1e6, bw.share, bw.sec * 1e6);
    arena_pop(a, mark);
}

static void decode(Dev *d, Arena *a, const Shape *s, double budget) {
    size_t mark = arena_mark(a);
    Kv kv = { .page = 64, .kv_heads = s->kv, .dk = s->dk, .dv = s->dv, .latent = s->latent };
    int th = threads_count(d->threads), per = (s->len + 63) / 64, B = s->seqs;
    int64_t bytes = (int64_t)op_kv_bytes(d, &kv);
    kv.pool = tensor_push(a, DT_U8, B * per, bytes);
    memset(kv.pool.data, 0, (size_t)(B * per * bytes));
    Tensor at = tensor_push(a, DT_I32, 1, B + 1), start = tensor_push(a, DT_I32, B, 1),
           table = tensor_push(a, DT_I32, B, per);
    for (int i = 0; i <= B; i++) ((int32_t *)at.data)[i] = i;
    for (int i = 0; i < B; i++) ((int32_t *)start.data)[i] = s->len - 1;
    for (int i = 0; i < B * per; i++) ((int32_t *)table.data)[i] = (int32_t)((int64_t)i * 7919 % (B * per));
    Paged p = { { B, 1, at }, start, table };
    Tensor q = bench_fill(a, B, s->heads * s->dk, 1), o = bench_fill(a, B, s->heads * s->dv, 0);
    double t;
    BEST(t, th, budget, op_attend_kv(d, o, q, kv, p, s->heads, 0.05f));
    printf("decode %3d/%-3d heads of %3d/%3d, %3d sequences at %5d: %7.1f us, %5.1f GB/s of keys and values\n",
           s->heads, s->kv, s->dk, s->dv, B, s->len, t * 1e6, (double)B * s->len * s->kv * (s->dk + s->dv) * 4e-9 / t);
    arena_pop(a, mark);
}

int main(int argc, char **argv) {
    int th = argc > 1 ? atoi(argv[1]) : 1;
    double budget = argc > 2 ? atof(argv[2]) : 0.2;
    Dev d;
    dev_open(&d, (DevOpts){ .threads = th, .isa = argc > 3 ? atoi(argv[3]) : 0 });
    Arena a = dev_arena(&d, "bench", (size_t)1500 << 20);
    printf("%s, %d thread%s: FMA peak %.0f GFLOP/s\n", cpu_kern(&d)->name, th, th > 1 ? "s" : "", bench_peak(&d));
    static const Shape train[] = {
        { 4, 2, 32, 32, 64, 64, false },    { 8, 2, 32, 32, 8, 256, false },   { 6, 2, 64, 64, 4, 512, false },
        { 8, 8, 64, 64, 2, 512, false },    { 12, 4, 64, 64, 1, 1024, false }, { 8, 2, 128, 128, 2, 512, false },
        { 4, 1, 128, 128, 1, 2048, false }, { 16, 1, 576, 512, 1, 256, true },
    };
    static const Shape dec[] = { { 8, 2, 32, 32, 64, 200, false },
                                 { 16, 8, 128, 128, 8, 1000, false },
                                 { 16, 1, 576, 512, 8, 1000, true } };
    for (size_t i = 0; i < COUNT(train); i++) packed(&d, &a, &train[i], budget);
    for (size_t i = 0; i < COUNT(dec); i++) decode(&d, &a, &dec[i], budget);
    dev_close(&d);
    return 0;
}
