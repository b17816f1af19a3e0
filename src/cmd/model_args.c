/* model_args.c - dtypes, sizes and folders from the command line. */
#include "cmd/model_args.h"
#include "param/merge.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

bool arg_dtype(DType *out, const char *text, Err *err) {
    static const struct {
        const char *name;
        DType t;
    } names[] = { { "f32", DT_F32 }, { "float32", DT_F32 }, { "bf16", DT_BF16 }, { "bfloat16", DT_BF16 } };
    for (size_t i = 0; i < COUNT(names); i++)
        if (!strcmp(text, names[i].name)) {
            *out = names[i].t;
            return true;
        }
    return err_set(err, "--dtype wants bf16 or f32, not '%s'", text);
}

/* Decimal as the hub counts (5GB = 5 * 10^9), binary with an i. */
int64_t arg_bytes(const char *text) {
    /* clang-format off */
    static const struct {
        const char *unit;
        double times;
    } units[] = {
        { "", 1 }, { "B", 1 }, { "KB", 1e3 }, { "MB", 1e6 }, { "GB", 1e9 }, { "TB", 1e12 },
        { "KiB", 0x1p10 }, { "MiB", 0x1p20 }, { "GiB", 0x1p30 },
    };
    /* clang-format on */
    char *end;
    double x = strtod(text, &end);
    if (end == text || !(x > 0)) return -1;
    for (size_t i = 0; i < COUNT(units); i++)
        if (!strcmp(end, units[i].unit)) return x * units[i].times < 0x1p62 ? (int64_t)(x * units[i].times) : -1;
    return -1;
}

bool arg_out(const char *out, const char *from, bool force, Err *err) {
    struct stat a, b;
    if (stat(out, &a)) return true;
    if (!stat(from, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return err_set(err, "%s: is the model itself, and what it is made of must stay: choose another name", out);
    if (force) return true;
    return err_set(err, "%s: is there already; --force replaces a model", out);
}

static bool write_from(const ModelDesc *m, Merge *merge, const char *out, DType t, int64_t shard_bytes, int threads,
                       Err *err) {
    Buf text = { 0 };
    params_config_text(&text, m, t);
    Threads *all = threads_open(threads ? threads : threads_default());
    SaveOpts o = {
        .dtype = t, .shard_bytes = shard_bytes, .from_dir = m->dir, .config_text = text.data, .merge = merge
    };
    bool ok = params_convert(m, all, out, o, err);
    threads_close(all);
    buf_free(&text);
    return ok;
}

bool write_as(const ModelDesc *m, const char *out, DType t, int64_t shard_bytes, int threads, Err *err) {
    return write_from(m, NULL, out, t, shard_bytes, threads, err);
}

bool write_merged(const ModelDesc *m, const char *adapter, const char *out, DType t, int64_t shard_bytes, int threads,
                  Err *err) {
    Merge merge;
    TRY(merge_open(&merge, m, adapter, err));
    bool ok = write_from(m, &merge, out, t, shard_bytes, threads, err);
    merge_close(&merge);
    return ok;
}
