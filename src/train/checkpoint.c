/* checkpoint.c - see checkpoint.h. */
#include "train/checkpoint.h"
#include "base/file.h"
#include "train/moments.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

struct Checkpoints {
    const Policy *p;
    CheckpointConf conf;
    Dev dev; /* holds the staging copy; one thread, as the writer is beside the trainer */
    Params w;
    float *m, *v;
    Moments moments;
    int64_t n, step;
    Buf state;
    bool writing, ok;
    pthread_t thread;
    Err err;
};

size_t checkpoint_staging_bytes(const ModelDesc *m) {
    return params_bytes(m, DT_F32, false) + 2 * params_bytes(m, DT_F32, true);
}

Checkpoints *checkpoints_open(const Policy *p, const CheckpointConf *conf, Mem *mem) {
    Checkpoints *c = MEM_NEW(mem, Checkpoints);
    *c = (Checkpoints){ .p = p, .conf = *conf, .n = p->opt.n, .ok = true };
    dev_open(&c->dev, (DevOpts){ .threads = 1 });
    params_open(&c->w, p->m->desc, &c->dev, DT_F32, false, "checkpoint weights", mem);
    c->m = dev_block(&c->dev, (size_t)c->n * 4);
    c->v = dev_block(&c->dev, (size_t)c->n * 4);
    c->moments = moments_of(&p->grads, mem);
    return c;
}

bool checkpoint_wait(Checkpoints *c, Err *err) {
    if (c->writing) pthread_join(c->thread, NULL);
    c->writing = false;
    if (c->ok) return true;
    c->ok = true;
    *err = c->err;
    return false;
}

bool checkpoints_close(Checkpoints *c, Err *err) {
    bool ok = checkpoint_wait(c, err);
    buf_free(&c->state);
    dev_close(&c->dev);
    return ok;
}

/* ---- files */
static bool checksum(const char *path, uint32_t *crc, int64_t *bytes, Err *err) {
    FileMap m;
    TRY(file_map(&m, path, err));
    uLong c = crc32(0, NULL, 0);
    for (size_t at = 0; at < m.n;) {
        size_t n = m.n - at < (1u << 26) ? m.n - at : 1u << 26;
        c = crc32(c, (const Bytef *)m.data + at, (uInt)n);
        at += n;
    }
    *crc = (uint32_t)c;
    *bytes = (int64_t)m.n;
    file_unmap(&m);
    return true;
}

/* Every file below dir, by its path relative to the checkpoint, with size and checksum. */
static bool list_files(Buf *out, const char *root, const char *sub, Err *err) {
    Buf dir = { 0 };
    buf_printf(&dir, "%s/%s", root, sub);
    struct dirent **names;
    int n = scandir(dir.data, &names, NULL, alphasort);
    bool ok = n >= 0 || err_set(err, "%s: cannot read the folder: %s", dir.data, strerror(errno));
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        Buf rel = { 0 }, full = { 0 };
        buf_printf(&rel, "%s%s%s", sub, *sub ? "/" : "", name);
        buf_printf(&full, "%s/%s", root, rel.data);
        if (ok && strcmp(name, ".") && strcmp(name, "..")) {
            uint32_t crc;
            int64_t bytes;
            if (dir_exists(full.data)) ok = list_files(out, root, rel.data, err);
            else if ((ok = checksum(full.data, &crc, &bytes, err))) {
                if (out->n) buf_putc(out, ',');
                json_put_str(out, rel.data, rel.n);
                buf_printf(out, ":{\"bytes\":%" PRId64 ",\"crc32\":%" PRIu32 "}", bytes, crc);
            }
        }
        buf_free(&rel);
        buf_free(&full);
        vec_free(names[i]);
    }
    if (n >= 0) vec_free(names);
    buf_free(&dir);
    return ok;
}

static bool write_optimizer(const Checkpoints *c, const char *dir, Err *err) {
    Buf path = { 0 };
    buf_printf(&path, "%s/optimizer.safetensors", dir);
    const Moments *x = &c->moments;
    StWriter *w = st_write_open(path.data, x->spec, x->n, INT64_MAX, err);
    bool ok = w != NULL;
    for (size_t i = 0; ok && i < x->n; i++)
        ok = st_write(w, (i % 2 ? c->v : c->m) + x->at[i / 2], (size_t)x->count[i / 2] * 4, err);
    if (ok) ok = st_write_close(w, err);
    else if (w) st_write_abort(w);
    buf_free(&path);
    return ok;
}

static bool write_text(const char *dir, const char *name, const Buf *text, Err *err) {
    Buf path = { 0 };
    buf_printf(&path, "%s/%s", dir, name);
    bool ok = file_write(path.data, text->data, text->n, err);
    buf_free(&path);
    return ok;
}

static bool write_all(Checkpoints *c, const char *dir, Err *err) {
    Buf model = { 0 }, config = { 0 }, manifest = { 0 }, files = { 0 };
    buf_printf(&model, "%s/model", dir);
    params_config_text(&config, c->w.model, DT_F32);
    SaveOpts o = { .dtype = DT_F32,
                   .shard_bytes = c->conf.shard_bytes,
                   .from_dir = c->conf.from_dir,
                   .tokenizer_dir = c->conf.tokenizer_dir,
                   .config_text = config.data,
                   .chat_template = c->conf.chat_template };
    bool ok = dir_make(dir, err) && params_save(&c->w, &c->dev, model.data, o, err) && write_optimizer(c, dir, err)
              && write_text(dir, "state.json", &c->state, err) && list_files(&files, dir, "", err);
    if (ok) {
        buf_printf(&manifest, "{\"step\":%" PRId64 ",\"files\":{%s}}\n", c->step, files.data);
        ok = write_text(dir, "manifest.json", &manifest, err) && dir_sync(dir, err);
    }
    buf_free(&model);
    buf_free(&config);
    buf_free(&manifest);
    buf_free(&files);
    return ok;
}

/* ---- which checkpoints there are */
typedef enum { WHOLE_ONE, WRITING, OLD } Place; /* OLD: moved out of the way of its successor */
static const char *const prefix[] = { "", ".writing-", ".old-" };

static void step_path(Buf *b, const char *run_dir, int64_t step, Place at) {
    buf_clear(b);
    buf_printf(b, "%s/checkpoints/%sstep-%06" PRId64, run_dir, prefix[at], step);
}

typedef VEC(int64_t) Steps;

/* Rising; those too that a kill left moved out of the way. */
static Steps steps_of(const char *dir) {
    Steps s = { 0 };
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        int64_t step;
        char more;
        size_t skip = !strncmp(e->d_name, prefix[OLD], strlen(prefix[OLD])) ? strlen(prefix[OLD]) : 0;
        if (sscanf(e->d_name + skip, "step-%" SCNd64 "%c", &step, &more) != 1) continue;
        size_t i = 0;
        while (i < s.n && s.at[i] < step) i++;
        if (i < s.n && s.at[i] == step) continue;
        VEC_PUSH(s, step);
        memmove(s.at + i + 1, s.at + i, (s.n - 1 - i) * sizeof *s.at);
        s.at[i] = step;
    }
    if (d) closedir(d);
    return s;
}

/* The last 'keep' up to the one just written stay.  One of a later step was passed over as damaged when this run went on: it
 * does not count, or a good one would go for it. */
static void prune(const Checkpoints *c) {
    Buf path = { 0 };
    buf_printf(&path, "%s/checkpoints", c->conf.run_dir);
    Steps s = steps_of(path.data);
    while (s.n && s.at[s.n - 1] > c->step) s.n--;
    for (size_t i = 0; i + (size_t)c->conf.keep < s.n; i++) {
        step_path(&path, c->conf.run_dir, s.at[i], WHOLE_ONE);
        tree_remove(path.data);
    }
    vec_free(s.at);
    buf_free(&path);
}

/* One of the same step may be there (damaged and passed over, or of a run that is continued at its end): there is no moment
 * with neither, see 'tidy'. */
static bool into_place(const Checkpoints *c, const char *tmp, const char *path, Err *err) {
    Buf aside = { 0 };
    step_path(&aside, c->conf.run_dir, c->step, OLD);
    bool ok = dir_take_place(tmp, path, aside.data, err);
    if (ok) tree_remove(tmp), tree_remove(aside.data);
    buf_free(&aside);
    return ok;
}

/* What a killed process left: a half written one goes; one that was moved out of the way comes back unless its place is taken. */
static void tidy(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        bool half = !strncmp(e->d_name, prefix[WRITING], strlen(prefix[WRITING])),
             old = !strncmp(e->d_name, prefix[OLD], strlen(prefix[OLD]));
        if (!half && !old) continue;
        Buf path = { 0 }, place = { 0 };
        buf_printf(&path, "%s/%s", dir, e->d_name);
        buf_printf(&place, "%s/%s", dir, e->d_name + strlen(prefix[half ? WRITING : OLD]));
        if (half || dir_exists(place.data)) tree_remove(path.data);
        else rename(path.data, place.data); /* where that fails it stays, and checkpoint_find knows it */
        buf_free(&path);
        buf_free(&place);
    }
    if (d) closedir(d);
}

static void *writer(void *arg) {
    Checkpoints *c = arg;
    Buf tmp = { 0 }, path = { 0 }, dir = { 0 };
    step_path(&tmp, c->conf.run_dir, c->step, WRITING);
    step_path(&path, c->conf.run_dir, c->step, WHOLE_ONE);
    buf_printf(&dir, "%s/checkpoints", c->conf.run_dir);
    tidy(dir.data);
    c->ok =
        write_all(c, tmp.data, &c->err) && into_place(c, tmp.data, path.data, &c->err) && dir_sync(dir.data, &c->err);
    if (c->ok) prune(c);
    else {
        tree_remove(tmp.data);
        err_wrap(&c->err, "the checkpoint of step %" PRId64 " was not written (earlier ones are untouched)", c->step);
    }
    buf_free(&tmp);
    buf_free(&path);
    buf_free(&dir);
    return NULL;
}

/* The optimizer's states are cut in two; in the file they are whole. */
static void stage(float *to, const Policy *p, const Tensor part[2]) {
    op_get(p->m->dev, to, part[0]);
    op_get(p->m->dev, to + p->opt.split, part[1]);
}

bool checkpoint_save(Checkpoints *c, int64_t step, const char *state_json, Err *err) {
    TRY(checkpoint_wait(c, err));
    const Policy *p = c->p;
    op_get(p->m->dev, c->w.flat.data, p->m->w.flat);
    stage(c->m, p, p->opt.m);
    stage(c->v, p, p->opt.v);
    c->step = step;
    buf_clear(&c->state);
    buf_puts(&c->state, state_json);
    Buf dir = { 0 };
    buf_printf(&dir, "%s/checkpoints", c->conf.run_dir);
    bool ok = dir_make(dir.data, err);
    buf_free(&dir);
    TRY(ok);
    if (pthread_create(&c->thread, NULL, writer, c))
        return err_set(err, "the checkpoint's writer thread could not be started");
    c->writing = true;
    return true;
}

/* ---- reading */
static bool read_json(Json *out, const char *dir, const char *name, Mem *mem, Err *err) {
    Buf path = { 0 }, text = { 0 };
    buf_printf(&path, "%s/%s", dir, name);
    bool ok = file_read(&text, path.data, err);
    if (ok && !json_parse(out, text.data, text.n, mem, err)) ok = err_wrap(err, "%s", path.data);
    buf_free(&path);
    buf_free(&text);
    return ok;
}

static bool whole(const char *dir, Err *err) {
    Mem mem = { 0 };
    Json manifest;
    bool ok = read_json(&manifest, dir, "manifest.json", &mem, err);
    const Json *files = ok ? json_get(&manifest, "files") : NULL;
    if (ok && (!files || files->kind != JSON_OBJECT || !files->n)) ok = err_set(err, "manifest.json lists no files");
    for (size_t i = 0; ok && i < files->n; i++) {
        const JsonMember *f = &files->members[i];
        int64_t want_bytes = -1, want_crc = -1, bytes;
        uint32_t crc;
        Buf path = { 0 };
        buf_printf(&path, "%s/%s", dir, f->key);
        ok = json_int(&f->value, "bytes", &want_bytes, err) && json_int(&f->value, "crc32", &want_crc, err)
             && checksum(path.data, &crc, &bytes, err);
        if (ok && (bytes != want_bytes || (int64_t)crc != want_crc))
            ok = err_set(err, "%s is damaged (its checksum is another)", f->key);
        buf_free(&path);
    }
    mem_free(&mem);
    return ok;
}

bool checkpoint_find(const char *run_dir, const char **path, int64_t *step, Mem *mem, Err *err) {
    Buf b = { 0 };
    *path = NULL;
    buf_printf(&b, "%s/checkpoints", run_dir);
    Steps s = steps_of(b.data);
    int bad = 0;
    for (size_t i = s.n; i-- > 0 && !*path;) {
        step_path(&b, run_dir, s.at[i], WHOLE_ONE);
        if (!dir_exists(b.data)) step_path(&b, run_dir, s.at[i], OLD);
        Err why;
        if (whole(b.data, &why)) *path = mem_str(mem, b.data, b.n), *step = s.at[i];
        else fprintf(stderr, "hone: %s is passed over: %s\n", b.data, why.msg), bad++;
    }
    bool ok = *path || !bad
              || err_set(err, "%s: all %d checkpoints are damaged; start again in another folder, or restore one",
                         run_dir, bad);
    vec_free(s.at);
    buf_free(&b);
    return ok;
}

bool checkpoint_state(const char *path, Json *state, Mem *mem, Err *err) {
    return read_json(state, path, "state.json", mem, err);
}

bool checkpoint_load(const char *path, Policy *p, Err *err) {
    Buf b = { 0 };
    Mem mem = { 0 };
    Moments moments = moments_of(&p->grads, &mem);
    buf_printf(&b, "%s/model", path);
    bool ok = params_load(&p->m->w, p->m->dev, b.data, err);
    buf_clear(&b);
    buf_printf(&b, "%s/optimizer.safetensors", path);
    ok = ok && moments_load(&p->opt, &moments, p->m->dev, b.data, err);
    Json state;
    int64_t step = -1;
    ok = ok && checkpoint_state(path, &state, &mem, err) && json_int(&state, "optimizer_step", &step, err);
    if (ok && step < 0) ok = err_set(err, "%s/state.json: \"optimizer_step\" is missing", path);
    if (ok) p->opt.step = step;
    buf_free(&b);
    mem_free(&mem);
    return ok;
}
