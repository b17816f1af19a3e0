/* gpu_speed.c - how fast the row kernels are: bytes that must move over the time of a call, mean of many in one queue.
 * Nothing fails here; the figures are for docs/log. */
#include "gpu/duo.h"

#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}
typedef struct {
    Dev d;
    Arena a;
    Tensor one;
} Bench;
static void wait(Bench *b) {
    float x;
    op_get(&b->d, &x, b->one);
}
static Tensor tensor(Bench *b, DType t, int64_t rows, int64_t cols) { return tensor_push(&b->a, t, rows, cols); }
/* call, 'bytes' that it must move */
#define SPEED(b, what, bytes, ...)                                                                                     \
    do {                                                                                                               \
        enum { TIMES = 20 };                                                                                           \
        for (int i_ = 0; i_ < 3; i_++) __VA_ARGS__;                                                                    \
        wait(b);                                                                                                       \
        double t0_ = now();                                                                                            \
        for (int i_ = 0; i_ < TIMES; i_++) __VA_ARGS__;                                                                \
        wait(b);                                                                                                       \
        double s_ = (now() - t0_) / TIMES;                                                                             \
        printf("  %-34s %9.1f us %8.1f GB/s\n", what, 1e6 * s_, (double)(bytes) / s_ * 1e-9);                          \
    } while (0)

int gpu_speed(int argc, char **argv) {
    (void)argc, (void)argv;
    Bench bench, *b = &bench;
    Err err;
    enum { T = 16384, H = 2048, F = 768, K = 8, E = 128, V = 151936 };
    CHECK(dev_open_cuda(&b->d, (CudaOpts){ .act = DT_BF16 }, NULL, &err), "%s", err.msg);
    b->a = dev_arena(&b->d, "bench", (size_t)24 << 30);
    b->d.tmp = dev_arena(&b->d, "tmp", (size_t)1 << 30);
    b->one = tensor(b, DT_F32, 1, 1);
    DevAbout about = dev_about(&b->d);
    printf("%s, %s, %.1f of %.1f GB free\n", about.name, about.libraries, (double)about.free / 1e9,
           (double)about.total / 1e9);
    Mem m = { 0 };
    Tensor x = tensor(b, DT_BF16, T, H), y = tensor(b, DT_BF16, T, H), z = tensor(b, DT_BF16, T, H),
           rstd = tensor(b, DT_F32, T, 1);
    Tensor g = tensor(b, DT_F32, 1, H), dg = tensor(b, DT_F32, 1, H), rows = tensor(b, DT_BF16, T * K, H),
           rows2 = tensor(b, DT_BF16, T * K, H);
    Tensor gate = tensor(b, DT_BF16, T * K, F), up = tensor(b, DT_BF16, T * K, F), h = tensor(b, DT_BF16, T * K, F),
           dgate = tensor(b, DT_BF16, T * K, F), dup = tensor(b, DT_BF16, T * K, F);
    int64_t row = (int64_t)T * H * 2, wide = row * K, mid = (int64_t)T * K * F * 2;
    float *random = rnds(&m, (int64_t)T * E, 1, 3);
    int32_t *ids = MEM_ARRAY(&m, int32_t, T), *pos = MEM_ARRAY(&m, int32_t, T);
    for (int t = 0; t < T; t++) ids[t] = (int32_t)(mix((uint64_t)t) % (t % 4 ? V : 300)), pos[t] = t;
    uint16_t *halves = bf16s(&m, rnds(&m, (int64_t)T * H, 2, 1), (int64_t)T * H);
    op_put(&b->d, x, halves), op_put(&b->d, y, halves);
    SPEED(b, "copy f32 -> bf16", row * 3, op_copy(&b->d, y, tensor_over(rows.data, DT_F32, T, H)));
    op_put(&b->d, y, halves);
    SPEED(b, "rmsnorm [16k,2048]", row * 2, op_rmsnorm(&b->d, z, rstd, x, g, 1e-6f));
    Tensor heads = tensor_over(rows.data, DT_BF16, (int64_t)T * 32, 128),
           heads2 = tensor_over(rows2.data, DT_BF16, (int64_t)T * 32, 128);
    Tensor hr = tensor(b, DT_F32, (int64_t)T * 32, 1), hg = tensor(b, DT_F32, 1, 128), hdg = tensor(b, DT_F32, 1, 128);
    SPEED(b, "rmsnorm heads [524k,128]", row * 4, op_rmsnorm(&b->d, heads2, hr, heads, hg, 1e-6f));
    SPEED(b, "rmsnorm_bwd dx", row * 3, op_rmsnorm_bwd(&b->d, z, TENSOR_NONE, y, x, rstd, g));
    SPEED(b, "rmsnorm_bwd dx dg", row * 5, op_rmsnorm_bwd(&b->d, z, dg, y, x, rstd, g));
    SPEED(b, "rmsnorm_bwd heads dx dg", row * 10, op_rmsnorm_bwd(&b->d, heads2, hdg, heads, heads2, hr, hg));
    SPEED(b, "add", row * 3, op_add(&b->d, z, x, y));
    SPEED(b, "swiglu [131k,768]", mid * 3, op_swiglu(&b->d, h, gate, up));
    SPEED(b, "swiglu_bwd", mid * 5, op_swiglu_bwd(&b->d, dgate, dup, h, gate, up));
    Tensor cs = tensor(b, DT_F32, T, 128), tp = tensor(b, DT_I32, T, 1), freq = tensor(b, DT_F32, 1, 64),
           ti = tensor(b, DT_I32, T, 1);
    op_put(&b->d, tp, pos), op_put(&b->d, ti, ids), op_put(&b->d, freq, random);
    SPEED(b, "rope_table", (int64_t)T * 512, op_rope_table(&b->d, cs, tp, freq, 1));
    SPEED(b, "rope 32 heads of 128", row * 4,
          op_rope(&b->d, tensor_over(rows.data, DT_BF16, T, 4096), cs, (RopeShape){ 32, 128, 0, 128, false }, 1));
    Tensor w = tensor(b, DT_BF16, V, H), dw = tensor(b, DT_F32, V, H);
    SPEED(b, "embed", row * 2, op_embed(&b->d, z, ti, w, part_whole(w.rows)));
    SPEED(b, "embed_bwd", row * 5, op_embed_bwd(&b->d, dw, x, ti, part_whole(dw.rows)));
    Tensor lg = tensor(b, DT_F32, T, E), pick = tensor(b, DT_I32, T, K), wt = tensor(b, DT_F32, T, K),
           dl = tensor(b, DT_F32, T, E);
    Tensor at = tensor(b, DT_I32, E + 1, 1), from = tensor(b, DT_I32, T * K, 1), slot = tensor(b, DT_I32, T, K),
           dwt = tensor(b, DT_F32, T, K);
    op_put(&b->d, lg, random);
    Route r = {
        .kind = ROUTE_SOFTMAX, .topk = K, .renorm = true, .factor = 1, .logits = lg, .pick = pick, .weight = wt
    };
    SPEED(b, "route 8 of 128", (int64_t)T * E * 4, op_route(&b->d, &r));
    SPEED(b, "route_bwd", (int64_t)T * E * 8, op_route_bwd(&b->d, dl, dwt, &r));
    SPEED(b, "moe_sort", (int64_t)T * K * 12, op_moe_sort(&b->d, at, from, slot, pick, E));
    SPEED(b, "permute", row + wide, op_permute(&b->d, rows, x, from));
    SPEED(b, "permute_bwd", row + wide, op_permute_bwd(&b->d, z, rows, slot));
    SPEED(b, "combine", row + wide, op_combine(&b->d, z, rows, slot, wt));
    SPEED(b, "combine_bwd", row + 2 * wide, op_combine_bwd(&b->d, rows2, dwt, x, rows, slot, wt));
    int64_t n = 300000000;
    Tensor w16 = tensor(b, DT_BF16, 1, n), master = tensor(b, DT_F32, 1, n), am = tensor(b, DT_F32, 1, n),
           av = tensor(b, DT_F32, 1, n), ag = tensor(b, DT_F32, 1, n);
    Adam how = { 1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 1, 3 };
    SPEED(b, "adamw 300M, master", n * 30, op_adamw(&b->d, w16, master, am, av, ag, how));
    SPEED(b, "sumsq 300M", n * 4, (void)op_sumsq(&b->d, ag));
    char *host = mem_push(&m, (size_t)256 << 20);
    Tensor big = tensor(b, DT_U8, 1, 256 << 20);
    SPEED(b, "put 256 MiB", 256 << 20, op_put(&b->d, big, host));
    SPEED(b, "get 256 MiB", 256 << 20, op_get(&b->d, host, big));
    SPEED(b, "put 4 KiB", 4096, op_put(&b->d, tensor_cols(big, 0, 4096), host));
    SPEED(b, "get 4 KiB", 4096, op_get(&b->d, host, tensor_cols(big, 0, 4096)));
    dev_close(&b->d);
    mem_free(&m);
    return test_end();
}
