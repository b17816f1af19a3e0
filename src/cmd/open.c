/* open.c - see open.h. */
#include "cmd/open.h"

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
