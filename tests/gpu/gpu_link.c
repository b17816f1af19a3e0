/* gpu_link.c - AdamW by a GPU, by the CPU, and by a GPU whose states lie in the host's memory: three
 * updates, then equal bytes of weights, master and moments, in every form that they are kept in; and what
 * dev_host_arena's tensors may be given to. */
#include "gpu/duo.h"

enum { WHERES = 3, STEPS = 3 };
typedef struct {
    DType w, master, moment;
} Form; /* master U8: none */
typedef struct {
    Tensor w, master, m, v, g;
} States;

static Arena whose(Dev *d, int where, size_t bytes) {
    return where == 2 ? dev_host_arena(d, "states", bytes) : dev_arena(d, "states", bytes);
}
static void fill(Dev *d, Tensor x, Mem *mem, uint64_t seed, float scale, bool positive) {
    int64_t n = x.rows * x.cols;
    float *f = rnds(mem, n + 1, seed, scale);
    for (int64_t i = 0; positive && i < n; i++) f[i] = f[i] < 0 ? -f[i] : f[i];
    if (x.dtype == DT_F32) op_put(d, x, f);
    else if (x.dtype == DT_BF16) op_put(d, x, bf16s(mem, f, n));
    else { /* what rounding took: any sixteen bits */ int16_t *r = MEM_ARRAY(mem, int16_t, (size_t)n);
        for (int64_t i = 0; i < n; i++) r[i] = (int16_t)(mix(seed + (uint64_t)i) & 0xFFFF);
        op_put(d, x, r);
    }
}
static void *bytes_of(Dev *d, Tensor x, Mem *mem) {
    void *p = mem_push(mem, (size_t)x.cols * dtype_size(x.dtype) + 1);
    op_get(d, p, x);
    return p;
}

/* where 0: the CPU; 1: the GPU; 2: the GPU, states on the host.  The results' bytes into out[4]. */
static void run(Dev *d, int where, const Form *f, int64_t n, int64_t first, Mem *mem, void *out[4]) {
    size_t each = arena_round((size_t)n * 4);
    Arena a = dev_arena(d, "weights", 2 * each), b = whose(d, where, 3 * each);
    States s = { .w = tensor_push(&a, f->w, 1, n),
                 .g = tensor_push(&a, DT_F32, 1, n),
                 .m = tensor_push(&b, f->moment, 1, n),
                 .v = tensor_push(&b, f->moment, 1, n) };
    if (f->master != DT_U8) s.master = tensor_push(&b, f->master, 1, n);
    fill(d, s.w, mem, 1, 0.5f, false), fill(d, s.m, mem, 2, 1e-3f, false), fill(d, s.v, mem, 3, 1e-6f, true);
    if (f->master == DT_F32) fill(d, s.master, mem, 1, 0.5f, false);
    else if (f->master == DT_I16) fill(d, s.master, mem, 4, 0, false);
    for (int t = 1; t <= STEPS; t++) {
        fill(d, s.g, mem, (uint64_t)(10 + t), 1e-2f, false);
        op_adamw(d, s.w, s.master, s.m, s.v, s.g,
                 (Adam){ .lr = 1e-3f,
                         .beta1 = 0.9f,
                         .beta2 = 0.95f,
                         .eps = 1e-8f,
                         .decay = 0.1f,
                         .clip_scale = 0.7f,
                         .step = t,
                         .first = first });
    }
    Tensor x[4] = { s.w, s.m, s.v, s.master };
    for (int i = 0; i < 4; i++) out[i] = x[i].data ? bytes_of(d, x[i], mem) : NULL;
    dev_free(d, b.base);
    dev_free(d, a.base);
}
static void one(Dev *cpu, Dev *gpu, const Form *f, int64_t n, int64_t first) {
    static const char *const name[] = { "w", "m", "v", "master" };
    const DType type[4] = { f->w, f->moment, f->moment, f->master };
    Mem mem = { 0 };
    void *out[WHERES][4];
    for (int k = 0; k < WHERES; k++) run(k ? gpu : cpu, k, f, n, first, &mem, out[k]);
    for (int k = 1; k < WHERES; k++)
        for (int i = 0; i < 4; i++)
            EXPECT(!out[0][i] || !memcmp(out[0][i], out[k][i], (size_t)n * dtype_size(type[i])),
                   "%s of %ld (%s, %s, %s) differs %s", name[i], (long)n, dtype_name(f->w), dtype_name(f->master),
                   dtype_name(f->moment), k == 1 ? "on the GPU" : "with states on the host");
    mem_free(&mem);
}

/* put, get and zero of the host's tensors, where two arenas of it are open */
static void moving(Dev *d) {
    Arena a = dev_host_arena(d, "one", 1 << 20), b = dev_host_arena(d, "two", 1 << 20);
    float in[300], out[300];
    for (int i = 0; i < 300; i++) in[i] = (float)i;
    Tensor x = tensor_push(&a, DT_F32, 1, 300), y = tensor_push(&b, DT_F32, 1, 300);
    op_put(d, x, in), op_put(d, y, in);
    op_zero(d, tensor_cols(x, 100, 100));
    op_get(d, out, x);
    EXPECT(out[99] == 99 && out[100] == 0 && out[199] == 0 && out[200] == 200,
           "a host tensor was not zeroed: %g %g %g %g", (double)out[99], (double)out[100], (double)out[199],
           (double)out[200]);
    op_get(d, out, y);
    EXPECT(!memcmp(in, out, sizeof in), "another arena's tensor changed%s", "");
    Arena c = dev_arena(d, "device", 1 << 20); /* across, with another dtype, and back */
    Tensor z = tensor_push(&c, DT_BF16, 1, 300);
    op_copy(d, z, y), op_zero(d, y), op_copy(d, y, z);
    op_get(d, out, y);
    EXPECT(out[255] == 255 && out[257] == 256 && out[299] == 300, "copied across: %g %g %g", (double)out[255],
           (double)out[257], (double)out[299]);
    dev_free(d, c.base), dev_free(d, a.base), dev_free(d, b.base);
}

int gpu_link(int argc, char **argv) {
    static const Form form[] = {
        { DT_F32, DT_U8, DT_F32 },    { DT_F32, DT_U8, DT_BF16 },  { DT_BF16, DT_F32, DT_F32 },
        { DT_BF16, DT_F32, DT_BF16 }, { DT_BF16, DT_I16, DT_F32 }, { DT_BF16, DT_I16, DT_BF16 }
    };
    const int64_t count[] = { 1, 7, 1000, ((int64_t)4 << 20) + 5,
                              ((int64_t)13 << 20) + 3 }; /* below, about and beyond a chunk */
    (void)argc, (void)argv;
    Dev cpu, gpu;
    Err err;
    dev_open(&cpu, (DevOpts){ .threads = 8 });
    CHECK(dev_open_cuda(&gpu, (CudaOpts){ .threads = 8, .act = DT_BF16, .raw = gpu_test_few }, NULL, &err), "%s",
          err.msg);
    for (size_t i = 0; i < COUNT(form); i++)
        for (size_t k = 0; k < COUNT(count); k++) {
            if (gpu_test_few && count[k] > 1000) continue;
            one(&cpu, &gpu, &form[i], count[k], k % 2 ? ((int64_t)1 << 32) - 500 : 0);
        }
    moving(&gpu);
    dev_close(&gpu), dev_close(&cpu);
    return test_end();
}
