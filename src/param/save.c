/* save.c - a folder that transformers loads back: weights under the hub's names, config.json, and what the model came
 * with (tokenizer, chat template).  Everything is written into a folder beside and synced; one rename makes it the
 * model, so a kill or a full disk leaves the old one. */
#include "param/param.h"
#include "param/merge.h"
#include "param/source.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 1 << 20 }; /* elements */

/* ---- the weights: from memory or, converting, straight from another model's files */
/* Where elements from .. from + *n - 1 of the item-th parameter (as arch_each_param counts) are, in dtype t, until the
 * next call; *n may be lowered, not below 1.  NULL: there are none, and err of the save says why. */
typedef const void *Fetch(void *user, size_t item, int64_t from, int64_t *n, DType t);
typedef struct {
    Fetch *fetch;
    void *user;
    const ModelDesc *m;
} Weights;

typedef struct {
    const ModelDesc *m;
    DType dtype;
    Mem *mem;
    Buf name;
    VEC(StSpec)
    specs;
} Specs;

static void add_spec(void *user, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    Specs *x = user;
    buf_clear(&x->name);
    bool part = desc->joined, first = part && arch_param_in(&x->name, x->m, desc, layer, expert) == 0;
    if (!part) arch_param_name(&x->name, desc, layer, expert);
    StSpec s = { .name = mem_str(x->mem, x->name.data, x->name.n),
                 .dtype = desc->frozen ? DT_F32 : x->dtype,
                 .joined = part && !first };
    s.n_dims = arch_param_shape(s.shape, x->m, desc, rows, cols);
    VEC_PUSH(x->specs, s);
}

StSpec *params_specs(const ModelDesc *m, DType t, size_t *n, Mem *mem) {
    Specs x = { .m = m, .dtype = t, .mem = mem };
    arch_each_param(m, add_spec, &x);
    *n = x.specs.n;
    StSpec *all = mem_copy(mem, x.specs.at, x.specs.n * sizeof *all);
    vec_free(x.specs.at);
    buf_free(&x.name);
    return all;
}

static bool write_weights(const Weights *from, const char *dir, SaveOpts o, Err *err) {
    Mem mem = { 0 };
    size_t n_specs;
    const StSpec *specs = params_specs(from->m, o.dtype, &n_specs, &mem);
    StWriter *w = st_write_open(dir, specs, n_specs, o.shard_bytes, err);
    bool ok = w;
    for (size_t i = 0; ok && i < n_specs; i++) {
        const StSpec *s = &specs[i];
        int64_t count = 1;
        for (int k = 0; k < s->n_dims; k++) count *= s->shape[k];
        for (int64_t at = 0, n; ok && at < count; at += n) {
            n = count - at < PIECE ? count - at : PIECE;
            const void *piece = from->fetch(from->user, i, at, &n, s->dtype);
            ok = piece && st_write(w, piece, (size_t)n * dtype_size(s->dtype), err);
        }
    }
    if (ok) ok = st_write_close(w, err);
    else if (w) st_write_abort(w);
    mem_free(&mem);
    return ok;
}

typedef struct {
    const Params *p;
    Dev *d;
    VEC(Tensor)
    at;
    char *stage[2]; /* as it is in memory, as it is on disk: [PIECE] */
} FromMemory;

static void add_tensor(void *user, const ParamDesc *desc, int layer, int expert, int64_t rows, int64_t cols) {
    (void)cols;
    FromMemory *x = user;
    Tensor all = param(x->p, desc->id, layer);
    CHECK(all.data, "saving parameters without %s", desc->name);
    VEC_PUSH(x->at, tensor_rows(all, expert * rows, rows));
}

static const void *fetch_memory(void *user, size_t item, int64_t from, int64_t *n, DType t) {
    FromMemory *x = user;
    Tensor all = x->at.at[item], part = tensor_cols(tensor_shape(all, 1, all.rows * all.cols), from, *n);
    op_get(x->d, x->stage[0], part);
    if (t == all.dtype) return x->stage[0];
    convert_f32(x->stage[1], t, x->stage[0], all.dtype, *n);
    return x->stage[1];
}

enum { SLICE = 1 << 16 };
typedef struct {
    Sources s;
    Threads *threads;
    const Source *src;
    char *to; /* [PIECE] */
    Merge *merge;
    float *wide; /* [PIECE], with merge */
    DType t;
    bool adds; /* to this matrix */
    int64_t from, n;
    int64_t bad[PIECE / SLICE]; /* of each slice, the first that is not finite, or -1 */
    Err *err;
} FromFiles;

static void convert_slice(void *arg, int index, int worker) {
    (void)worker;
    FromFiles *x = arg;
    int64_t a = (int64_t)index * SLICE, n = x->n - a < SLICE ? x->n - a : SLICE;
    char *to = x->to + (size_t)a * dtype_size(x->t);
    if (x->adds) {
        convert_from(x->wide + a, DT_F32, x->src, x->from + a, n);
        merge_add(x->merge, x->wide + a, x->from + a, n);
        convert_f32(to, x->t, x->wide + a, DT_F32, n);
    } else convert_from(to, x->t, x->src, x->from + a, n);
    x->bad[index] = convert_not_finite(to, x->t, n);
}

static const void *fetch_files(void *user, size_t item, int64_t from, int64_t *n, DType t) {
    FromFiles *x = user;
    const SourceItem *it = &x->s.at[item];
    x->adds = x->merge && merge_has(x->merge, it);
    x->src = &it->src, x->t = t, x->from = from, x->n = *n;
    int slices = (int)((*n + SLICE - 1) / SLICE);
    threads_run(x->threads, slices, convert_slice, x);
    for (int i = 0; i < slices; i++)
        if (x->bad[i] >= 0) {
            sources_not_finite(&x->s, it, from + (int64_t)i * SLICE + x->bad[i], t, x->err);
            return NULL;
        }
    if (from + *n == it->src.rows * it->src.cols) st_done_with(&x->s.files, it->st);
    return x->to;
}

/* ---- config.json */
void params_config_text(Buf *out, const ModelDesc *m, DType t) {
    const char *name = t == DT_BF16 ? "bfloat16" : "float32";
    const Json *c = &m->config;
    bool said = false;
    buf_puts(out, "{");
    for (size_t i = 0; i < c->n; i++) {
        const JsonMember *k = &c->members[i];
        if (!strcmp(k->key, "quantization_config")) continue;
        buf_puts(out, out->data[out->n - 1] == '{' ? "\n  " : ",\n  ");
        json_put_str(out, k->key, k->key_n);
        buf_puts(out, ": ");
        bool dtype = !strcmp(k->key, "torch_dtype") || !strcmp(k->key, "dtype");
        said = said || dtype;
        if (dtype) buf_printf(out, "\"%s\"", name);
        else json_put_value(out, &k->value);
    }
    if (!said) buf_printf(out, "%s\"torch_dtype\": \"%s\"", out->data[out->n - 1] == '{' ? "\n  " : ",\n  ", name);
    buf_puts(out, "\n}\n");
}

/* ---- folders */
typedef enum { FOLDER_NONE, FOLDER_MODEL, FOLDER_OTHER } Folder; /* MODEL: or an empty one */

/* Only what a model folder consists of may be replaced: somebody's home is not to vanish because of a typing error. */
static Folder folder_kind(const char *path) {
    struct stat st;
    if (lstat(path, &st)) return FOLDER_NONE;
    DIR *dir = S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    if (!dir) return FOLDER_OTHER;
    int files = 0, others = 0, config = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode)) others++;
        else files++;
        config += !strcmp(e->d_name, "config.json");
    }
    closedir(dir);
    return !others && (config || !files) ? FOLDER_MODEL : FOLDER_OTHER;
}

static const char *parent_of(const char *dir, Mem *mem) {
    const char *slash = strrchr(dir, '/');
    return !slash ? "." : slash == dir ? "/" : mem_str(mem, dir, (size_t)(slash - dir));
}

/* Synced, so that the name lasts. */
static bool take_place(const char *tmp, const char *dir, Mem *mem, Err *err) {
    const char *old = mem_printf(mem, "%s.old.%ld", dir, (long)getpid());
    TRY(dir_take_place(tmp, dir, old, err));
    dir_remove(tmp);
    dir_remove(old);
    return dir_sync(parent_of(dir, mem), err);
}

static bool put(const char *dir, const char *name, const char *data, size_t n, Mem *mem, Err *err) {
    return file_write(mem_printf(mem, "%s/%s", dir, name), data, n, err);
}

bool params_save_rest(const char *dir, const char *config_text, const Carried *c, Err *err) {
    Mem mem = { 0 };
    bool ok = !config_text || put(dir, "config.json", config_text, strlen(config_text), &mem, err);
    for (int i = 0; ok && i < c->n; i++) ok = put(dir, c->at[i].name, c->at[i].data, c->at[i].n, &mem, err);
    mem_free(&mem);
    return ok && dir_sync(dir, err);
}

static bool put_rest(const char *dir, SaveOpts o, Mem *mem, Err *err) {
    Carried c = { 0 };
    return (!o.from_dir || params_carry(&c, o.from_dir, o.from_dir, NULL, mem, err))
           && params_save_rest(dir, o.config_text, &c, err);
}

static bool save(const Weights *w, const char *dir, SaveOpts o, Err *err) {
    CHECK(o.dtype == DT_F32 || o.dtype == DT_BF16, "saving in %s", dtype_name(o.dtype));
    if (folder_kind(dir) == FOLDER_OTHER)
        return err_set(err, "%s: is there and is not a model's folder: it is left alone, choose another name", dir);
    Mem mem = { 0 };
    char *clean = mem_str(&mem, dir, strlen(dir));
    for (size_t n = strlen(clean); n > 1 && clean[n - 1] == '/';) clean[--n] = 0;
    Buf tmp = { 0 };
    bool ok = dir_make(parent_of(clean, &mem), err);
    int fd = ok ? dir_beside(&tmp, clean) : -1;
    if (ok && fd < 0) ok = err_set(err, "%s: cannot create the folder: %s", tmp.data, strerror(errno));
    if (ok
        && !(write_weights(w, tmp.data, o, err) && put_rest(tmp.data, o, &mem, err)
             && take_place(tmp.data, clean, &mem, err))) {
        dir_remove(tmp.data);
        ok = false;
    }
    if (fd >= 0) close(fd);
    buf_free(&tmp);
    mem_free(&mem);
    return ok;
}

bool params_save(const Params *p, Dev *d, const char *dir, SaveOpts o, Err *err) {
    Mem mem = { 0 };
    FromMemory x = { .p = p,
                     .d = d,
                     .stage = { mem_push(&mem, (size_t)PIECE * 4), mem_push(&mem, (size_t)PIECE * 4) } };
    arch_each_param(p->model, add_tensor, &x);
    bool ok = save(&(Weights){ fetch_memory, &x, p->model }, dir, o, err);
    vec_free(x.at.at);
    mem_free(&mem);
    return ok;
}

bool params_convert(const ModelDesc *m, Threads *threads, const char *dir, SaveOpts o, Err *err) {
    FromFiles x = { .threads = threads, .err = err, .merge = o.merge };
    TRY(sources_open(&x.s, m, o.from_dir, err));
    x.to = mem_push(&x.s.mem, (size_t)PIECE * 4);
    if (o.merge) x.wide = mem_push(&x.s.mem, (size_t)PIECE * 4);
    bool ok = save(&(Weights){ fetch_files, &x, m }, dir, o, err);
    sources_close(&x.s);
    return ok;
}
