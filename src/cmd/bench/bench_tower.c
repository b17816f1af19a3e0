/* bench_tower.c - `hone bench tower`: pictures of 1920 x 1080 through the vision tower, forward; all of a prompt's, as
 * the engine has them.  What is counted: products, attention over true lengths, the merger; no norm, no rope. */
#include "base/clock.h"
#include "cmd/bench/bench.h"
#include "image/pixels.h"

static double flops_of(const Dims *d, const PicturesShape *s) {
    double n = (double)s->patches, h = (double)d->vis.hidden, wide = (double)d->vis.merged;
    double window = n / s->windows, frame = n / s->frames, sum = n * 2 * (double)d->vis.pixels * h;
    for (int l = 0; l < d->vis.layers; l++)
        sum += n * (2 * h * (4 * h + 3 * (double)d->vis.ffn) + 4 * h * (d->vis.full[l] ? frame : window));
    return sum + (double)s->tokens * 2 * wide * (wide + (double)d->hidden);
}

bool bench_tower(Bench *b, Err *err) {
    enum { MOST = 100, WARM = 2, HIGH = 1080, WIDE = 1920 };
    const BenchArgs *a = b->a;
    Opened *o = &b->o;
    const Dims *d = &o->desc.d;
    if (!d->vis.layers) return err_set(err, "%s has no vision tower", a->model);
    /* rounded to whole tokens, as smart_resize does it where a picture is within the limits */
    int side = (int)(d->vis.patch * d->vis.merge), per = (int)d->vis.merge;
    Picture p = { .grid = { 1, (HIGH + side / 2) / side * per, (WIDE + side / 2) / side * per } };
    int64_t rows = grid_rows(p.grid);
    uint8_t *bytes = mem_push(&o->mem, (size_t)(rows * d->vis.pixels));
    float(*table)[256] = mem_array(&o->mem, (size_t)d->vis.in, sizeof *table);
    uint32_t x = 1;
    for (int64_t i = 0; i < rows * d->vis.pixels; i++) x = x * 1664525u + 1013904223u, bytes[i] = (uint8_t)(x >> 24);
    for (int64_t c = 0; c < d->vis.in; c++)
        for (int i = 0; i < 256; i++) table[c][i] = ((float)i - 127.5f) / 70;
    p.bytes = bytes, p.table = (const float(*)[256])table;

    PicturesShape s = { 0 };
    const Picture *pics[MOST];
    int n = a->batch < MOST ? (int)a->batch : MOST;
    for (int i = 0; i < n; i++) pics[i] = &p, pictures_add(&s, &p, d);
    size_t io = pictures_bytes(&s, s.tokens, d);
    TRY(bench_weights(b, model_tower_tmp(&o->desc, &s, open_kind(o, a->leaves)), io, err));
    Roof roof = bench_roof(b);
    Arena at = dev_arena(&o->dev, "pictures", io);
    Pictures images;
    double put = clock_now();
    pictures_put(&images, &o->dev, &at, pics, n, d);
    bench_sync(b);
    put = clock_now() - put;

    double seconds[MOST];
    int repeats = a->repeats < MOST ? (int)a->repeats : MOST;
    struct Profile *noted = o->dev.profile;
    o->dev.profile = NULL;
    for (int i = 0; i < repeats + WARM + (noted ? 2 : 0); i++) {
        if (i == repeats + WARM) o->dev.profile = noted, profile_clear(&o->dev);
        double t0 = clock_now();
        size_t mark = arena_mark(&o->dev.tmp);
        tower_forward(&o->model, &images, &o->dev.tmp, NULL, NULL);
        arena_pop(&o->dev.tmp, mark);
        bench_sync(b);
        if (i >= WARM && i < repeats + WARM) seconds[i - WARM] = clock_now() - t0;
    }
    Times t = bench_times(seconds, repeats);
    double flops = flops_of(d, &s);
    put_int(b, "pictures", n);
    put_int(b, "patches", s.patches);
    put_int(b, "tokens", s.tokens);
    put_num(b, "put_seconds", put);
    put_num(b, "seconds", t.median);
    put_num(b, "least", t.least);
    put_num(b, "pictures_per_s", n / t.median);
    put_num(b, "tflops", flops / t.median * 1e-12);
    put_num(b, "of_roof", flops / t.median / roof.flops);
    return !noted || put_profile(b, 2, err);
}
