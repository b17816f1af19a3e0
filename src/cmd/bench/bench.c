/* bench.c - what the measurements of `hone bench` share: see bench.h. */
#include "cmd/bench/bench.h"
#include "base/clock.h"
#include "op/device.h"

#include <math.h>
#include <string.h>

bool bench_open(Bench *b, const BenchArgs *a, Err *err) {
    *b = (Bench){ .a = a };
    OpenOpts opts = { .threads = a->threads, .device = a->device, .compute = a->compute };
    if (a->model) {
        TRY(open_desc(&b->o, a->model, &opts, err));
        int64_t has = b->o.desc.d.layers;
        if (a->layers > has)
            return err_set(err, "%s has %lld layers, %lld were asked for", a->model, (long long)has,
                           (long long)a->layers);
        if (a->layers) b->o.desc.d.layers = a->layers;
    } else {
        DeviceArgs da = { .device = a->device, .compute = a->compute, .threads = (int)a->threads };
        TRY(device_open(&b->o.dev, &da, err));
    }
    if (a->profile || a->lines) b->profile = profile_open(&b->o.dev, PROFILE_SPANS, &b->o.mem);
    buf_putc(&b->out, '{');
    put_text(b, "bench", a->what);
    DevAbout about = dev_about(&b->o.dev);
    put_text(b, "device", about.name);
    if (about.libraries[0]) put_text(b, "libraries", about.libraries);
    put_int(b, "threads", threads_count(b->o.dev.threads));
    put_text(b, "compute", b->o.dev.act == DT_BF16 ? "bf16" : "f32");
    if (a->model) put_text(b, "family", b->o.desc.arch->name), put_int(b, "layers", b->o.desc.d.layers);
    return true;
}
void bench_close(Bench *b) {
    if (b->o.dev.profile) profile_close(&b->o.dev);
    open_close(&b->o);
    buf_free(&b->out);
}

static void comma(Bench *b, const char *key) {
    if (b->out.data[b->out.n - 1] != '{') buf_putc(&b->out, ',');
    buf_printf(&b->out, "\"%s\":", key);
}
void put_num(Bench *b, const char *key, double x) {
    comma(b, key);
    if (isfinite(x)) buf_printf(&b->out, "%.6g", x);
    else buf_printf(&b->out, "null");
}
void put_int(Bench *b, const char *key, int64_t x) {
    comma(b, key);
    buf_printf(&b->out, "%lld", (long long)x);
}
void put_text(Bench *b, const char *key, const char *x) {
    comma(b, key);
    json_put_str(&b->out, x, strlen(x));
}

void bench_sync(Bench *b) {
    Dev *d = &b->o.dev;
    size_t mark = arena_mark(&d->tmp);
    float x;
    op_get(d, &x, tensor_push(&d->tmp, DT_F32, 1, 1));
    arena_pop(&d->tmp, mark);
}

Times bench_times(double *s, int n) {
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && s[k] < s[k - 1]; k--) {
            double t = s[k];
            s[k] = s[k - 1], s[k - 1] = t;
        }
    return (Times){ n % 2 ? s[n / 2] : 0.5 * (s[n / 2 - 1] + s[n / 2]), s[0] };
}

/* ---- weights */
bool bench_weights(Bench *b, size_t tmp_bytes, size_t more, Err *err) {
    Opened *o = &b->o;
    Dev *d = &o->dev;
    DType t = d->act == DT_BF16 ? DT_BF16 : DT_F32;
    size_t least = 1 << 20; /* of bench_sync, and of the roof's product */
    if (tmp_bytes < least) tmp_bytes = least;
    Need need[] = { { "weights", params_bytes(&o->desc, NULL, t, false) },
                    { "scratch", tmp_bytes },
                    { "what is measured", more } };
    TRY(memory_fits(o, need, COUNT(need), err));
    d->tmp = dev_arena(d, "tmp", tmp_bytes);
    model_open(&o->model, d, &o->desc, t, b->a->leaves ? (int)b->a->leaves : leaves_default(on_gpu(d), 1), &o->mem);
    o->has_model = true;
    params_random(&o->model.w, d, 1);
    bench_sync(b);
    return true;
}

/* ---- roofs */
Roof bench_roof(Bench *b) {
    enum { REPEATS = 5 };
    Dev *d = &b->o.dev;
    struct Profile *noted = d->profile;
    d->profile = NULL;
    int64_t n = on_gpu(d) ? 8192 : 1024, long_copy = on_gpu(d) ? (int64_t)1 << 30 : (int64_t)1 << 27;
    size_t matrix = arena_round((size_t)(n * n) * dtype_size(d->act)), copy = arena_round((size_t)long_copy);
    Arena a = dev_arena(d, "roof", 3 * matrix > 2 * copy ? 3 * matrix : 2 * copy);
    Tensor x = tensor_push(&a, d->act, n, n), w = tensor_push(&a, d->act, n, n), y = tensor_push(&a, d->act, n, n);
    op_normals(d, x, (Normals){ .seed = 1, .ld = n, .std = 1 });
    op_normals(d, w, (Normals){ .seed = 2, .ld = n, .std = 1 });
    double products[REPEATS], copies[REPEATS];
    for (int i = 0; i < REPEATS + 1; i++) {
        bench_sync(b);
        double t0 = clock_now();
        op_linear(d, y, x, w, TENSOR_NONE, leaves_one(n));
        bench_sync(b);
        if (i) products[i - 1] = clock_now() - t0;
    }
    a.used = 0;
    Tensor to = tensor_push(&a, DT_U8, 1, long_copy), src = tensor_push(&a, DT_U8, 1, long_copy);
    for (int i = 0; i < REPEATS + 1; i++) {
        bench_sync(b);
        double t0 = clock_now();
        op_copy(d, to, src);
        bench_sync(b);
        if (i) copies[i - 1] = clock_now() - t0;
    }
    dev_free(d, a.base);
    d->profile = noted;
    Roof r = { 2.0 * (double)n * (double)n * (double)n / bench_times(products, REPEATS).least,
               2.0 * (double)long_copy / bench_times(copies, REPEATS).least };
    put_num(b, "roof_tflops", r.flops * 1e-12);
    put_num(b, "roof_gb_per_s", r.bytes * 1e-9);
    return r;
}

/* ---- profile */
bool put_profile(Bench *b, int runs, Err *err) {
    enum { MOST = 256 };
    static ProfileLine line[MOST];
    Dev *d = &b->o.dev;
    if (!b->profile) return true;
    int n = profile_lines(d, line, MOST), show = b->a->lines ? (int)b->a->lines : 40;
    double sum = 0;
    for (int i = 0; i < n; i++) sum += line[i].seconds;
    put_num(b, "ops_ms", 1e3 * sum / runs);
    comma(b, "ops");
    buf_putc(&b->out, '[');
    for (int i = 0; i < n && i < show; i++)
        buf_printf(&b->out, "%s\n {\"op\":\"%s\",\"rows\":%lld,\"cols\":%lld,\"calls\":%.4g,\"ms\":%.4g}", i ? "," : "",
                   line[i].op, (long long)line[i].rows, (long long)line[i].cols, (double)line[i].calls / runs,
                   1e3 * line[i].seconds / runs);
    buf_putc(&b->out, ']');
    if (profile_lost(b->profile)) put_int(b, "spans_lost", profile_lost(b->profile));
    return !b->a->profile || profile_write(d, b->a->profile, err);
}
