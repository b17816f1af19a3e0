/* model_args.c - dtypes, sizes and folders from the command line. */
#include "cmd/model_args.h"
#include "param/blocks.h"
#include "param/merge.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
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

bool arg_gguf(const char *out) {
    size_t n = strlen(out);
    return n > 5 && !strcmp(out + n - 5, ".gguf");
}

/* Of blocks that are read only, F32, which alone keeps them. */
static bool widest(DType *out, const char *model, Err *err) {
    Mem mem = { 0 };
    StFiles f;
    TRY(st_open(&f, model, &mem, err));
    *out = DT_F8E4M3;
    bool both = false;
    for (size_t i = 0; i < f.n; i++) {
        const StTensor *t = &f.at[i];
        DTypeBlock a = dtype_block(t->dtype), b = dtype_block(*out);
        if (t->n_dims < 2) continue;
        both = both || (t->dtype != *out && a.bytes * b.elements == 2 && b.bytes * a.elements == 2);
        if (a.bytes * b.elements > b.bytes * a.elements) *out = t->dtype;
    }
    if (*out == DT_F8E4M3) *out = DT_BF16;
    if (both || (dtype_blocks(*out) && !block_writes(*out))) *out = DT_F32;
    st_close(&f);
    mem_free(&mem);
    return true;
}

bool arg_gguf_dtype(DType *out, const char *text, const char *model, Err *err) {
    static const DType types[] = { DT_F32, DT_F16, DT_BF16, DT_Q8_0, DT_Q5_1, DT_Q5_0, DT_Q4_1, DT_Q4_0 };
    if (!text) return widest(out, model, err);
    for (size_t i = 0; i < COUNT(types); i++)
        if (!strcasecmp(text, dtype_name(types[i]))) return *out = types[i], true;
    return err_set(err, "--dtype of a GGUF file wants f32, f16, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0, not '%s'", text);
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

/* The one line that Ollama needs: template and what ends an answer are in the file. */
static bool write_modelfile(const char *gguf, bool force, Err *err) {
    const char *slash = strrchr(gguf, '/'), *name = slash ? slash + 1 : gguf;
    Buf path = { 0 }, text = { 0 };
    buf_put(&path, gguf, (size_t)(name - gguf));
    buf_puts(&path, "Modelfile");
    buf_printf(&text, "FROM ./%s\n", name);
    bool ok = force || !file_exists(path.data) || err_set(err, "%s: is there already; --force replaces it", path.data);
    ok = ok && file_write(path.data, text.data, text.n, err);
    buf_free(&path);
    buf_free(&text);
    return ok;
}

bool write_gguf(const ModelDesc *m, const char *out, DType t, int threads, bool modelfile, bool force, Err *err) {
    if (dir_exists(out)) return err_set(err, "%s: is a folder, and a GGUF file is meant: choose another name", out);
    Threads *all = threads_open(threads ? threads : threads_default());
    bool ok = params_convert_gguf(m, all, out, t, err) && (!modelfile || write_modelfile(out, force, err));
    threads_close(all);
    return ok;
}
