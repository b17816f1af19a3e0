/* bench_moving.c - `hone bench optimizer`, `link` and `load`: what moves bytes. */
#include "base/clock.h"
#include "cmd/bench/bench.h"
#include "op/device.h"
#include "train/optim.h"

enum { MOST = 100 };

static int repeats_of(const Bench *b) { return b->a->repeats < MOST ? (int)b->a->repeats : MOST; }

/* The same with states on the host, 6 bytes a parameter: across the link, by the host's cores alone, and what the link
 * would allow (6 bytes come, 2 go). */
static void bench_hybrid(Bench *b, Tensor w, Tensor g, Adam adam) {
    Dev *d = &b->o.dev;
    int64_t n = w.cols;
    size_t half = arena_round((size_t)n * 2), whole = arena_round((size_t)n * 4);
    Arena a = dev_host_arena(d, "states", 4 * half + whole);
    Tensor s[3], hw, hg;
    for (int i = 0; i < 3; i++) op_zero(d, s[i] = tensor_push(&a, i ? DT_BF16 : DT_I16, 1, n));
    op_zero(d, hw = tensor_push(&a, DT_BF16, 1, n)), op_zero(d, hg = tensor_push(&a, DT_F32, 1, n));
    double across[MOST], alone[MOST], got[MOST];
    int repeats = repeats_of(b);
    for (int i = 0; i < repeats + 1; i++) {
        adam.step = i + 1;
        bench_sync(b);
        double t0 = clock_now();
        op_adamw(d, w, s[0], s[1], s[2], g, adam);
        bench_sync(b);
        double t1 = clock_now();
        op_adamw(d->host, hw, s[0], s[1], s[2], hg, adam);
        double t2 = clock_now();
        op_get(d, hg.data, g);
        if (i) across[i - 1] = t1 - t0, alone[i - 1] = t2 - t1, got[i - 1] = clock_now() - t2;
    }
    put_num(b, "hybrid_params_per_s", (double)n / bench_times(across, repeats).median);
    put_num(b, "host_params_per_s", (double)n / bench_times(alone, repeats).median);
    put_num(b, "link_params_per_s", (double)n / (1.5 * bench_times(got, repeats).median));
    dev_free(d, a.base);
}

/* AdamW over --params numbers, as a run on this device has them: master and moments in
 * float32, weights as the device computes. */
bool bench_optimizer(Bench *b, Err *err) {
    Dev *d = &b->o.dev;
    int64_t n = b->a->params / 8 * 8;
    bool half = d->act == DT_BF16;
    size_t f = arena_round((size_t)n * 4), h = half ? arena_round((size_t)n * 2) : 0;
    Need need[] = { { "the parameters", 4 * f + h } };
    TRY(memory_fits(&b->o, need, 1, err));
    d->tmp = dev_arena(d, "tmp", (size_t)64 << 20);
    Roof roof = bench_roof(b);
    Arena a = dev_arena(d, "parameters", 4 * f + h);
    Tensor x[4], w = TENSOR_NONE;
    for (int i = 0; i < 4; i++) op_zero(d, x[i] = tensor_push(&a, DT_F32, 1, n));
    if (half) w = tensor_push(&a, DT_BF16, 1, n);
    Adam adam = { .lr = 1e-4f, .beta1 = 0.9f, .beta2 = 0.999f, .eps = 1e-8f, .decay = 0.01f, .clip_scale = 1 };
    double step[MOST], norm[MOST];
    int repeats = repeats_of(b);
    for (int i = 0; i < repeats + 1; i++) {
        bench_sync(b);
        double t0 = clock_now();
        adam.step = i + 1;
        op_adamw(d, half ? w : x[0], half ? x[0] : TENSOR_NONE, x[1], x[2], x[3], adam);
        bench_sync(b);
        double t1 = clock_now();
        op_sumsq(d, x[3]);
        if (i) step[i - 1] = t1 - t0, norm[i - 1] = clock_now() - t1;
    }
    Times s = bench_times(step, repeats), q = bench_times(norm, repeats);
    double bytes = (double)n * (7 * 4 + (half ? 2 : 0)); /* three read and written, one read, the weights written */
    put_int(b, "params", n);
    put_num(b, "seconds", s.median);
    put_num(b, "params_per_s", (double)n / s.median);
    put_num(b, "gb_per_s", bytes / s.median * 1e-9);
    put_num(b, "of_roof", bytes / s.median / roof.bytes);
    put_num(b, "norm_seconds", q.median);
    put_num(b, "norm_gb_per_s", (double)n * 4 / q.median * 1e-9);
    if (d->ops->link && half) bench_hybrid(b, w, x[3], adam);
    dev_free(d, a.base);
    return true;
}

/* Bytes from the host's memory to the device's, and back, as op_put and op_get move them. */
bool bench_link(Bench *b, Err *err) {
    Dev *d = &b->o.dev;
    int64_t bytes = (int64_t)1 << 30;
    Mem mem = { 0 };
    Need need[] = { { "the block", (size_t)bytes } };
    TRY(memory_fits(&b->o, need, 1, err));
    d->tmp = dev_arena(d, "tmp", 1 << 20);
    Arena a = dev_arena(d, "block", (size_t)bytes);
    Tensor t = tensor_push(&a, DT_U8, 1, bytes);
    char *host = MEM_ARRAY(&mem, char, (size_t)bytes);
    double in[MOST], out[MOST];
    int repeats = repeats_of(b);
    for (int i = 0; i < repeats + 1; i++) {
        bench_sync(b);
        double t0 = clock_now();
        op_put(d, t, host);
        bench_sync(b);
        double t1 = clock_now();
        op_get(d, host, t);
        if (i) in[i - 1] = t1 - t0, out[i - 1] = clock_now() - t1;
    }
    put_int(b, "bytes", bytes);
    put_num(b, "put_gb_per_s", (double)bytes / bench_times(in, repeats).median * 1e-9);
    put_num(b, "get_gb_per_s", (double)bytes / bench_times(out, repeats).median * 1e-9);
    dev_free(d, a.base);
    mem_free(&mem);
    return true;
}

/* The model's files to the device.  The files are in the system's cache from the second time on. */
bool bench_load(Bench *b, Err *err) {
    Opened *o = &b->o;
    if (b->a->layers) return err_set(err, "load reads the whole model: leave --layers out");
    TRY(bench_weights(b, 0, 0, err));
    double bytes = (double)params_bytes(&o->desc, NULL, o->model.w.at[0].t.dtype, false), seconds[MOST];
    int repeats = repeats_of(b);
    for (int i = 0; i < repeats; i++) {
        double t0 = clock_now();
        TRY(model_load(&o->model, o->desc.dir, err));
        bench_sync(b);
        seconds[i] = clock_now() - t0;
        if (i == 0) put_num(b, "first_seconds", seconds[0]);
    }
    Times t = bench_times(seconds, repeats);
    put_num(b, "bytes", bytes);
    put_num(b, "seconds", t.median);
    put_num(b, "gb_per_s", bytes / t.median * 1e-9);
    return true;
}
