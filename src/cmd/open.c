/* open.c - see open.h. */
#include "cmd/open.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

size_t memory_here(void) {
    Buf b = { 0 };
    Err err;
    size_t kib = 0;
    const char *line = file_read(&b, "/proc/meminfo", &err) ? strstr(b.data, "MemAvailable:") : NULL;
    if (line) sscanf(line, "MemAvailable: %zu", &kib);
    buf_free(&b);
    return kib * 1024;
}

bool memory_fits(const Need *need, int n, Err *err) {
    double sum = 0, have = (double)memory_here(); /* in double: the sum of parts that nobody has may not wrap */
    int largest = 0;
    for (int i = 0; i < n; i++) {
        sum += (double)need[i].bytes;
        if (need[i].bytes > need[largest].bytes) largest = i;
    }
    if (have == 0 || sum <= have) return true;
    return err_set(
        err, "%.2f GB of memory are needed, %.2f GB are free: short by %.2f GB; the largest part is %s with %.2f GB",
        sum / 1e9, have / 1e9, (sum - have) / 1e9, need[largest].name, (double)need[largest].bytes / 1e9);
}

bool open_desc(Opened *o, const char *path, const OpenOpts *opts, Err *err) {
    *o = (Opened){ 0 };
    if (!model_desc_load(&o->desc, path, &o->mem, err)) return mem_free(&o->mem), false;
    if (!o->desc.arch->runs) {
        err_set(err, "%s: the family %s can be inspected and planned for, but not run by this build", path,
                o->desc.arch->name);
        return mem_free(&o->mem), false;
    }
    dev_open(&o->dev, (DevOpts){ .threads = (int)opts->threads, .guard = opts->guard });
    return true;
}

bool open_weights(Opened *o, const OpenOpts *opts, size_t tmp_bytes, Err *err) {
    DType t = opts->f32 ? DT_F32 : params_disk_dtype(o->desc.dir);
    Need need[] = { { "weights", params_bytes(&o->desc, t, false) },
                    { "scratch", tmp_bytes },
                    { "the cache", opts->more } };
    TRY(memory_fits(need, COUNT(need), err));
    o->dev.tmp = dev_arena(&o->dev, "tmp", tmp_bytes);
    model_open(&o->model, &o->dev, &o->desc, t, opts->leaves ? (int)opts->leaves : 8, &o->mem);
    o->has_model = true;
    return params_load(&o->model.w, &o->dev, o->desc.dir, err);
}

void open_close(Opened *o) {
    if (o->has_model) model_close(&o->model);
    if (o->dev.threads) dev_close(&o->dev);
    mem_free(&o->mem);
}
