/* safetensors_write.c - writes safetensors files: one after another, each beside its place and then renamed, so that
 * a kill or a full disk leaves no half file under a good name; or all at once, by whoever has a part of them. */
#include "file/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { WRITE_BUF = 1 << 20 };

typedef struct {
    size_t first, n; /* specs */
    int64_t bytes;
    char *path, *name;
} Shard;

struct StWriter {
    Mem mem;
    const StSpec *specs;
    size_t n_specs;
    Shard *shards;
    int n_shards, at; /* at: the shard that is open, n_shards after the last */
    int fd;
    Buf tmp;      /* its name until it is whole */
    int64_t left; /* bytes of the open shard still to come */
    Buf buf;
    char *dir;   /* the folder that everything goes into */
    char *index; /* path of the index, NULL: one file */
};

static int64_t spec_bytes(const StSpec *s) {
    int64_t n = (int64_t)dtype_size(s->dtype);
    for (int i = 0; i < s->n_dims; i++) {
        CHECK(s->shape[i] >= 0 && (!s->shape[i] || n <= INT64_MAX / 2 / s->shape[i]), "tensor %s is too large",
              s->name);
        n *= s->shape[i];
    }
    return n;
}

static bool fail(Err *err, const char *what, const char *path) {
    return err_set(err, "%s: cannot %s: %s", path, what, strerror(errno));
}

static bool flush(StWriter *w, const void *data, size_t n, Err *err) {
    for (const char *p = data; n;) {
        ssize_t did = write(w->fd, p, n);
        if (did < 0 && errno == EINTR) continue;
        if (did < 0) return fail(err, "write", w->tmp.data);
        p += did;
        n -= (size_t)did;
    }
    return true;
}

static void put_header(Buf *b, const StSpec *specs, size_t n) {
    int64_t at = 0;
    buf_puts(b, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (size_t i = 0, k; i < n; i = k) {
        int64_t bytes = 0, rows = 0;
        for (k = i; k < n && (k == i || specs[k].joined); k++)
            bytes += spec_bytes(&specs[k]), rows += specs[k].n_dims ? specs[k].shape[0] : 0;
        buf_putc(b, ',');
        json_put_str(b, specs[i].name, strlen(specs[i].name));
        buf_printf(b, ":{\"dtype\":\"%s\",\"shape\":[", dtype_name(specs[i].dtype));
        for (int a = 0; a < specs[i].n_dims; a++)
            buf_printf(b, "%s%ld", a ? "," : "", (long)(a ? specs[i].shape[a] : rows));
        buf_printf(b, "],\"data_offsets\":[%ld,%ld]}", (long)at, (long)(at + bytes));
        at += bytes;
    }
    buf_putc(b, '}');
    while (b->n % 8) buf_putc(b, ' '); /* data starts on an 8-byte border, for those who read in place */
}

/* The length of the header, and the header. */
static void put_front(Buf *out, const StWriter *w, const Shard *s) {
    Buf h = { 0 };
    put_header(&h, w->specs + s->first, s->n);
    for (int i = 0; i < 8; i++) buf_putc(out, (char)((uint64_t)h.n >> 8 * i));
    buf_put(out, h.data, h.n);
    buf_free(&h);
}

static bool shard_begin(StWriter *w, Err *err) {
    Shard *s = &w->shards[w->at];
    w->fd = file_beside(&w->tmp, s->path);
    if (w->fd < 0) return fail(err, "create", w->tmp.data);
    put_front(&w->buf, w, s);
    w->left = s->bytes;
    return true;
}

/* The name is only taken when the bytes are on the disk. */
static bool shard_end(StWriter *w, Err *err) {
    Shard *s = &w->shards[w->at];
    bool ok = flush(w, w->buf.data, w->buf.n, err);
    buf_clear(&w->buf);
    if (ok && fsync(w->fd)) ok = fail(err, "sync", w->tmp.data);
    if (ok && rename(w->tmp.data, s->path)) ok = fail(err, "rename into place", s->path);
    if (!ok) unlink(w->tmp.data);
    close(w->fd);
    w->fd = -1;
    w->at += ok;
    return ok;
}

static void plan_shards(StWriter *w, int64_t limit) {
    w->shards = MEM_ARRAY(&w->mem, Shard, w->n_specs + 1);
    Shard *s = w->shards;
    w->n_shards = 1;
    for (size_t i = 0; i < w->n_specs; i++) {
        if (w->specs[i].joined) { /* in the file of the one that it is joined to */
            s->n++, s->bytes += spec_bytes(&w->specs[i]);
            continue;
        }
        int64_t bytes = 0;
        for (size_t k = i; k < w->n_specs && (k == i || w->specs[k].joined); k++) bytes += spec_bytes(&w->specs[k]);
        if (s->n && bytes && limit > 0 && s->bytes + bytes > limit) *++s = (Shard){ .first = i }, w->n_shards++;
        s->n++;
        s->bytes += spec_bytes(&w->specs[i]);
    }
}

/* In a folder they are called model; else as the file would be, were there one. */
static void name_shards(StWriter *w, const char *path, bool folder) {
    const char *slash = strrchr(path, '/'), *last = slash ? slash + 1 : path;
    w->dir = folder  ? mem_str(&w->mem, path, strlen(path))
             : slash ? mem_str(&w->mem, path, slash > path ? (size_t)(slash - path) : 1)
                     : mem_str(&w->mem, ".", 1);
    const char *stem = folder ? "model" : mem_str(&w->mem, last, strlen(last) - strlen(".safetensors"));
    for (int i = 0; i < w->n_shards; i++) {
        Shard *s = &w->shards[i];
        s->name = w->n_shards == 1 ? mem_printf(&w->mem, "%s.safetensors", stem)
                                   : mem_printf(&w->mem, "%s-%05d-of-%05d.safetensors", stem, i + 1, w->n_shards);
        s->path = mem_printf(&w->mem, "%s/%s", w->dir, s->name);
    }
    if (w->n_shards > 1) w->index = mem_printf(&w->mem, "%s/%s.safetensors.index.json", w->dir, stem);
}

static bool is_folder(const char *path) {
    size_t len = strlen(path);
    return len < 12 || strcmp(path + len - 12, ".safetensors");
}

/* shard_bytes 0: one file. */
static StWriter *planned(const char *path, const StSpec *specs, size_t n, int64_t shard_bytes) {
    bool folder = is_folder(path);
    Mem mem = { 0 };
    StWriter *w = MEM_NEW(&mem, StWriter);
    *w = (StWriter){ .mem = mem, .n_specs = n, .fd = -1 };
    StSpec *own = mem_copy(&w->mem, specs, n * sizeof *specs);
    for (size_t i = 0; i < n; i++) own[i].name = mem_str(&w->mem, specs[i].name, strlen(specs[i].name));
    w->specs = own;
    plan_shards(w, shard_bytes);
    name_shards(w, path, folder);
    return w;
}

StWriter *st_write_open(const char *path, const StSpec *specs, size_t n, int64_t shard_bytes, Err *err) {
    if (is_folder(path) && !dir_exists(path)) return err_set(err, "%s: there is no such folder", path), NULL;
    StWriter *w = planned(path, specs, n, is_folder(path) ? shard_bytes : 0);
    if (shard_begin(w, err)) return w;
    st_write_abort(w);
    return NULL;
}

static bool next_shard(StWriter *w, Err *err) {
    TRY(shard_end(w, err));
    return w->at == w->n_shards || shard_begin(w, err);
}

bool st_write(StWriter *w, const void *bytes, size_t n, Err *err) {
    const char *from = bytes;
    while (n) {
        CHECK(w->at < w->n_shards, "%zu bytes after the last tensor", n);
        if (!w->left) {
            TRY(next_shard(w, err));
            continue;
        }
        size_t take = (int64_t)n > w->left ? (size_t)w->left : n;
        if (w->buf.n + take > WRITE_BUF || take > WRITE_BUF / 2) {
            TRY(flush(w, w->buf.data, w->buf.n, err));
            buf_clear(&w->buf);
        }
        if (take > WRITE_BUF / 2) TRY(flush(w, from, take, err));
        else buf_put(&w->buf, from, take);
        from += take;
        n -= take;
        w->left -= (int64_t)take;
    }
    return true;
}

static bool write_index(StWriter *w, Err *err) {
    int64_t total = 0;
    for (int i = 0; i < w->n_shards; i++) total += w->shards[i].bytes;
    Buf b = { 0 };
    buf_printf(&b, "{\n  \"metadata\": {\n    \"total_size\": %ld\n  },\n  \"weight_map\": {", (long)total);
    for (int i = 0; i < w->n_shards; i++)
        for (size_t k = 0; k < w->shards[i].n; k++) {
            if (w->specs[w->shards[i].first + k].joined) continue;
            const char *name = w->specs[w->shards[i].first + k].name;
            buf_puts(&b, i || k ? ",\n    " : "\n    ");
            json_put_str(&b, name, strlen(name));
            buf_printf(&b, ": \"%s\"", w->shards[i].name);
        }
    buf_puts(&b, "\n  }\n}\n");
    bool ok = file_write(w->index, b.data, b.n, err);
    buf_free(&b);
    return ok;
}

static void writer_free(StWriter *w) {
    buf_free(&w->buf);
    buf_free(&w->tmp);
    Mem mem = w->mem;
    mem_free(&mem);
}

bool st_write_close(StWriter *w, Err *err) {
    bool ok = true;
    while (ok && w->at < w->n_shards) { /* tensors without bytes may stand last */
        CHECK(!w->left, "%s: %ld bytes were never given", w->shards[w->at].path, (long)w->left);
        ok = next_shard(w, err);
    }
    if (ok && w->index) ok = write_index(w, err);
    if (ok) ok = dir_sync(w->dir, err);
    if (!ok) return st_write_abort(w), false;
    writer_free(w);
    return true;
}

void st_write_abort(StWriter *w) {
    if (w->fd >= 0) {
        unlink(w->tmp.data);
        close(w->fd);
    }
    for (int i = 0; w->index && i < w->at; i++) unlink(w->shards[i].path);
    writer_free(w);
}

/* ---- in any order */
struct StPlaces {
    StWriter *w;
    int *fd;          /* [shards]; -1: not opened yet */
    int32_t *file;    /* [specs] */
    int64_t *at;      /* [specs] in its file */
    StPlaced *placed; /* [shards] */
};

static bool write_at(int fd, const char *path, const void *bytes, size_t n, int64_t at, Err *err) {
    for (const char *p = bytes; n;) {
        ssize_t did = pwrite(fd, p, n, (off_t)at);
        if (did < 0 && errno == EINTR) continue;
        if (did < 0) return fail(err, "write", path);
        p += did, n -= (size_t)did, at += did;
    }
    return true;
}

bool st_places_make(const char *path, const StSpec *specs, size_t n, int64_t shard_bytes, Err *err) {
    StWriter *w = planned(path, specs, n, shard_bytes);
    bool ok = true;
    for (int i = 0; ok && i < w->n_shards; i++) {
        const Shard *s = &w->shards[i];
        buf_clear(&w->buf);
        put_front(&w->buf, w, s);
        int fd = open(s->path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
        if (fd < 0) ok = fail(err, "create", s->path);
        ok = ok && write_at(fd, s->path, w->buf.data, w->buf.n, 0, err);
        if (ok && ftruncate(fd, (off_t)((int64_t)w->buf.n + s->bytes))) ok = fail(err, "make room for", s->path);
        if (fd >= 0) close(fd);
    }
    if (ok && w->index) ok = write_index(w, err);
    writer_free(w);
    return ok;
}

StPlaces *st_places_open(const char *path, const StSpec *specs, size_t n, int64_t shard_bytes) {
    StWriter *w = planned(path, specs, n, shard_bytes);
    StPlaces *p = MEM_NEW(&w->mem, StPlaces);
    *p = (StPlaces){ .w = w,
                     .fd = MEM_ARRAY(&w->mem, int, (size_t)w->n_shards),
                     .file = MEM_ARRAY(&w->mem, int32_t, n),
                     .at = MEM_ARRAY(&w->mem, int64_t, n),
                     .placed = MEM_ARRAY(&w->mem, StPlaced, (size_t)w->n_shards) };
    for (int i = 0; i < w->n_shards; i++) {
        const Shard *s = &w->shards[i];
        p->fd[i] = -1;
        buf_clear(&w->buf);
        put_front(&w->buf, w, s);
        int64_t at = (int64_t)w->buf.n;
        p->placed[i] = (StPlaced){ s->name, at, at + s->bytes };
        for (size_t k = s->first; k < s->first + s->n; k++) {
            p->file[k] = i, p->at[k] = at;
            at += spec_bytes(&w->specs[k]);
        }
    }
    return p;
}

const StPlaced *st_places_file(const StPlaces *p, int k) { return k < p->w->n_shards ? &p->placed[k] : NULL; }
int st_places_of(const StPlaces *p, size_t tensor, int64_t *at) { return *at = p->at[tensor], p->file[tensor]; }
void st_places_front(const StPlaces *p, int k, Buf *out) { put_front(out, p->w, &p->w->shards[k]); }

bool st_place(StPlaces *p, size_t tensor, int64_t at, const void *bytes, size_t n, Err *err) {
    CHECK(tensor < p->w->n_specs && at >= 0 && at + (int64_t)n <= spec_bytes(&p->w->specs[tensor]),
          "%zu bytes at %lld of tensor %zu", n, (long long)at, tensor);
    int file = p->file[tensor];
    const char *path = p->w->shards[file].path;
    if (p->fd[file] < 0) p->fd[file] = open(path, O_WRONLY | O_CLOEXEC);
    if (p->fd[file] < 0) return fail(err, "open", path);
    return write_at(p->fd[file], path, bytes, n, p->at[tensor] + at, err);
}

bool st_places_close(StPlaces *p, void (*done)(void *user), void *user, Err *err) {
    bool ok = err != NULL;
    for (int i = 0; i < p->w->n_shards; i++) {
        if (p->fd[i] < 0) continue;
        if (ok && fsync(p->fd[i])) ok = fail(err, "sync", p->w->shards[i].path);
        close(p->fd[i]);
        if (done) done(user);
    }
    writer_free(p->w);
    return ok;
}
