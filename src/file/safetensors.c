/* safetensors.c - reads safetensors files by mapping them.  A header is somebody else's text: lengths, dtypes, shapes,
 * offsets, overlaps and names are checked before any byte of data is looked at. */
#include "file/safetensors.h"
#include "file/gguf_tensors.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_HEADER = 100 << 20 }; /* what the format's own library accepts */

/* A name as it may be printed: no control characters, not too long. */
typedef struct {
    char s[100];
} Shown;
static Shown shown(const char *name) {
    Shown out = { "" };
    size_t i = 0;
    for (; name[i] && i < sizeof out.s - 4; i++)
        out.s[i] = (unsigned char)name[i] < 32 || name[i] == 127 ? '?' : name[i];
    if (name[i]) memcpy(out.s + i, "...", 3);
    return out;
}

#define FAIL(...) err_set(err, "%s: " __VA_ARGS__)

void st_shape_text(char out[96], int n_dims, const int64_t *shape) {
    int n = snprintf(out, 96, "[");
    for (int i = 0; i < n_dims && n < 70; i++)
        n += snprintf(out + n, 96 - (size_t)n, "%s%ld", i ? "," : "", (long)shape[i]);
    snprintf(out + n, 96 - (size_t)n, "]");
}

bool st_is_shape(const StTensor *t, int n_dims, const int64_t *shape) {
    return t->n_dims == n_dims && !memcmp(t->shape, shape, (size_t)n_dims * sizeof *shape);
}

/* ---- one header */
static bool read_dtype(StTensor *t, const Json *v, const char *path, Err *err) {
    if (!v || v->kind != JSON_STRING) return FAIL("tensor %s has no dtype", path, shown(t->name).s);
    for (DType d = DT_F32; d <= DT_U8; d++)
        if (json_is_str(v, dtype_name(d))) {
            t->dtype = d;
            return true;
        }
    return FAIL("tensor %s has dtype %s: known are F32, BF16, F16, F8_E4M3, I32, I64, U8", path, shown(t->name).s,
                shown(v->str).s);
}

static bool read_shape(StTensor *t, const Json *v, const char *path, Err *err) {
    if (!v || v->kind != JSON_ARRAY) return FAIL("tensor %s has no shape", path, shown(t->name).s);
    if (v->n > ST_DIMS)
        return FAIL("tensor %s has %zu dimensions: at most %d are supported", path, shown(t->name).s, v->n, ST_DIMS);
    t->n_dims = (int)v->n;
    t->count = 1;
    for (int i = 0; i < t->n_dims; i++) {
        const Json *x = &v->items[i];
        if (x->kind != JSON_INT || x->integer < 0)
            return FAIL("tensor %s: dimension %d is not a size", path, shown(t->name).s, i);
        t->shape[i] = x->integer;
        if (x->integer && t->count > INT64_MAX / 16 / x->integer)
            return FAIL("tensor %s: the product of its dimensions is too large", path, shown(t->name).s);
        t->count *= x->integer;
    }
    return true;
}

static bool read_place(StTensor *t, const Json *v, const char *data, size_t n, const char *path, Err *err) {
    bool ok = v && v->kind == JSON_ARRAY && v->n == 2 && v->items[0].kind == JSON_INT && v->items[1].kind == JSON_INT;
    if (!ok) return FAIL("tensor %s has no data_offsets [begin,end]", path, shown(t->name).s);
    int64_t from = v->items[0].integer, to = v->items[1].integer;
    if (from < 0 || to < from)
        return FAIL("tensor %s: data_offsets [%ld,%ld] are not a range", path, shown(t->name).s, (long)from, (long)to);
    if ((uint64_t)to > n)
        return FAIL("tensor %s ends at byte %ld of %zu: the file is cut off or its header is wrong", path,
                    shown(t->name).s, (long)to, n);
    int64_t want = t->count * (int64_t)dtype_size(t->dtype);
    if (to - from != want) {
        char shape[96];
        st_shape_text(shape, t->n_dims, t->shape);
        return FAIL("tensor %s: %s %s takes %ld bytes, its data_offsets span %ld", path, shown(t->name).s,
                    dtype_name(t->dtype), shape, (long)want, (long)(to - from));
    }
    t->data = data + from;
    t->bytes = (size_t)want;
    return true;
}

static int by_place(const void *a, const void *b) {
    const StTensor *x = *(const StTensor *const *)a, *y = *(const StTensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool no_overlap(StTensor *at, size_t n, const char *path, Mem *mem, Err *err) {
    StTensor **order = MEM_ARRAY(mem, StTensor *, n);
    for (size_t i = 0; i < n; i++) order[i] = &at[i];
    if (n) qsort(order, n, sizeof *order, by_place);
    for (size_t i = 1; i < n; i++)
        if (order[i - 1]->data + order[i - 1]->bytes > order[i]->data)
            return FAIL("tensors %s and %s overlap", path, shown(order[i - 1]->name).s, shown(order[i]->name).s);
    return true;
}

typedef struct {
    StTensor *at;
    size_t n;
} Header;

static bool read_header(Header *out, const char *data, size_t n, int file, const char *path, Mem *mem, Err *err) {
    if (n >= 4 && !memcmp(data, "GGUF", 4)) /* (a header of safetensors would have 10^9 bytes) */
        return gguf_tensors(&out->at, &out->n, data, n, file, path, mem, err);
    if (n < 8) return FAIL("%zu bytes are not a safetensors file: it is empty or cut off", path, n);
    uint64_t len = 0;
    for (int i = 7; i >= 0; i--) len = len << 8 | (unsigned char)data[i];
    if (len > n - 8)
        return FAIL("the header claims %lu bytes, the file has %zu: it is cut off or not safetensors", path,
                    (unsigned long)len, n);
    if (len > MAX_HEADER) return FAIL("the header has %lu bytes, more than 100 MiB", path, (unsigned long)len);
    Json h;
    if (!json_parse(&h, data + 8, (size_t)len, mem, err)) return err_wrap(err, "%s: header", path);
    if (h.kind != JSON_OBJECT) return FAIL("the header is %s, not an object", path, json_kind_name(h.kind));
    *out = (Header){ .at = MEM_ARRAY(mem, StTensor, h.n) };
    for (size_t i = 0; i < h.n; i++) {
        const JsonMember *m = &h.members[i];
        for (size_t k = 0; k < m->key_n; k++)
            if ((unsigned char)m->key[k] < 32) return FAIL("the name of tensor %zu holds a control character", path, i);
        if (!strcmp(m->key, "__metadata__")) continue;
        StTensor *t = &out->at[out->n++];
        *t = (StTensor){ .name = m->key, .file = file };
        if (m->value.kind != JSON_OBJECT)
            return FAIL("tensor %s is %s, not an object", path, shown(m->key).s, json_kind_name(m->value.kind));
        TRY(read_dtype(t, json_get(&m->value, "dtype"), path, err));
        TRY(read_shape(t, json_get(&m->value, "shape"), path, err));
        TRY(read_place(t, json_get(&m->value, "data_offsets"), data + 8 + len, n - 8 - (size_t)len, path, err));
    }
    return no_overlap(out->at, out->n, path, mem, err);
}

/* ---- names over all files */
static uint32_t hash(const char *s) {
    uint32_t h = 2166136261u;
    for (; *s; s++) h = (h ^ (unsigned char)*s) * 16777619u;
    return h ^ h >> 15;
}

/* The slot of that name, or the empty one where it would go. */
static uint32_t *slot_of(const StFiles *s, const char *name) {
    for (uint32_t i = hash(name);; i++) {
        uint32_t *slot = &s->slot[i & (s->n_slots - 1)];
        if (!*slot || !strcmp(s->at[*slot - 1].name, name)) return slot;
    }
}

const StTensor *st_find(const StFiles *s, const char *name) {
    uint32_t i = s->n ? *slot_of(s, name) : 0;
    return i ? &s->at[i - 1] : NULL;
}

static bool join(StFiles *s, const Header *h, Mem *mem, Err *err) {
    for (int f = 0; f < s->n_files; f++) s->n += h[f].n;
    if (s->n > UINT32_MAX / 4) return err_set(err, "%s: %zu tensors are too many", s->path[0], s->n);
    for (s->n_slots = 16; s->n_slots < 2 * s->n;) s->n_slots *= 2;
    s->slot = MEM_ARRAY(mem, uint32_t, s->n_slots);
    s->at = MEM_ARRAY(mem, StTensor, s->n);
    size_t n = 0;
    for (int f = 0; f < s->n_files; f++)
        for (size_t i = 0; i < h[f].n; i++, n++) {
            s->at[n] = h[f].at[i];
            uint32_t *slot = slot_of(s, s->at[n].name);
            if (*slot)
                return err_set(err, "%s: tensor %s is in %s too", s->path[f], shown(s->at[n].name).s,
                               s->path[s->at[*slot - 1].file]);
            *slot = (uint32_t)n + 1;
        }
    return true;
}

bool st_parse(StFiles *out, const char *data, size_t n, const char *label, Mem *mem, Err *err) {
    *out = (StFiles){ .n_files = 1, .map = MEM_NEW(mem, FileMap), .path = MEM_ARRAY(mem, const char *, 1) };
    out->path[0] = label;
    Header h;
    return read_header(&h, data, n, 0, label, mem, err) && join(out, &h, mem, err);
}

static bool open_files(StFiles *out, Mem *mem, Err *err) {
    Header *h = MEM_ARRAY(mem, Header, (size_t)out->n_files);
    out->fd = MEM_ARRAY(mem, int, (size_t)out->n_files);
    for (int f = 0; f < out->n_files; f++) out->fd[f] = -1;
    for (int f = 0; f < out->n_files; f++) {
        TRY(file_map(&out->map[f], out->path[f], err));
        out->fd[f] = open(out->path[f], O_RDONLY | O_CLOEXEC);
        TRY(read_header(&h[f], out->map[f].data, out->map[f].n, f, out->path[f], mem, err));
    }
    return join(out, h, mem, err);
}

/* ---- shards */
static bool shard_name_ok(const Json *v) {
    return v->kind == JSON_STRING && v->n && strlen(v->str) == v->n && !strchr(v->str, '/') && v->str[0] != '.';
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* The files that the index names, each once, in the order of their names. */
static bool shard_list(StFiles *out, const Json *map, const char *dir, const char *path, Mem *mem, Err *err) {
    const char **names = MEM_ARRAY(mem, const char *, map->n);
    for (size_t i = 0; i < map->n; i++) {
        if (!shard_name_ok(&map->members[i].value))
            return FAIL("weight_map: %s does not name a file of this folder", path, shown(map->members[i].key).s);
        names[i] = map->members[i].value.str;
    }
    qsort(names, map->n, sizeof *names, by_text);
    size_t n = 0;
    for (size_t i = 0; i < map->n; i++)
        if (!n || strcmp(names[n - 1], names[i])) names[n++] = names[i];
    if (n > 100000) return FAIL("weight_map names %zu files", path, n);
    out->n_files = (int)n;
    out->path = MEM_ARRAY(mem, const char *, n);
    out->map = MEM_ARRAY(mem, FileMap, n);
    for (size_t i = 0; i < n; i++) {
        out->path[i] = mem_printf(mem, "%s/%s", dir, names[i]);
        if (!file_exists(out->path[i]))
            return err_set(err, "%s: this shard is missing, %s names it", out->path[i], path);
    }
    return true;
}

static bool read_index(StFiles *out, Json *map, size_t *bytes, const char *dir, const char *path, Mem *mem, Err *err) {
    Buf text = { 0 };
    Json j;
    bool ok = file_read(&text, path, err);
    if (ok && !json_parse(&j, text.data, text.n, mem, err)) ok = err_wrap(err, "%s", path);
    *bytes = text.n;
    buf_free(&text);
    if (!ok) return false;
    const Json *m = json_get(&j, "weight_map");
    if (!m || m->kind != JSON_OBJECT || !m->n) return FAIL("there is no weight_map in this index", path);
    *map = *m;
    return shard_list(out, m, dir, path, mem, err);
}

static bool open_index(StFiles *out, const Json *map, const char *path, Mem *mem, Err *err) {
    TRY(open_files(out, mem, err));
    for (size_t i = 0; i < map->n; i++) {
        const StTensor *t = st_find(out, map->members[i].key);
        const char *file = map->members[i].value.str;
        if (!t) return FAIL("tensor %s is not in %s", path, shown(map->members[i].key).s, file);
        const char *in = strrchr(out->path[t->file], '/') + 1;
        if (strcmp(in, file)) return FAIL("tensor %s is in %s, not in %s", path, shown(t->name).s, in, file);
    }
    return true;
}

/* The files of 'path'; of a folder with an index its name (else NULL), map and bytes. */
static bool find_files(StFiles *out, const char *path, const char **index, Json *map, size_t *bytes, Mem *mem,
                       Err *err) {
    const char *single = path;
    *index = NULL, *bytes = 0;
    if (dir_exists(path)) {
        single = mem_printf(mem, "%s/model.safetensors", path);
        *index = mem_printf(mem, "%s/model.safetensors.index.json", path);
        if (!file_exists(single) && file_exists(*index)) return read_index(out, map, bytes, path, *index, mem, err);
        if (!file_exists(single))
            return FAIL("there is no model.safetensors and no model.safetensors.index.json in this folder", path);
        *index = NULL;
    } else if (!file_exists(path)) {
        const char *beside = mem_printf(mem, "%s.index.json", path), *slash = strrchr(path, '/');
        if (file_exists(beside)) {
            const char *dir = slash ? mem_str(mem, path, (size_t)(slash - path)) : ".";
            return read_index(out, map, bytes, dir, *index = beside, mem, err);
        }
    }
    *out = (StFiles){ .n_files = 1, .map = MEM_NEW(mem, FileMap), .path = MEM_ARRAY(mem, const char *, 1) };
    out->path[0] = mem_str(mem, single, strlen(single));
    return true;
}

static bool open_any(StFiles *out, const char *path, Mem *mem, Err *err) {
    const char *index;
    size_t bytes;
    Json map;
    TRY(find_files(out, path, &index, &map, &bytes, mem, err));
    return index ? open_index(out, &map, index, mem, err) : open_files(out, mem, err);
}

bool st_names(const char ***path, int *n, size_t *index_bytes, const char *from, Mem *mem, Err *err) {
    StFiles f = { 0 };
    const char *index;
    Json map;
    TRY(find_files(&f, from, &index, &map, index_bytes, mem, err));
    *path = f.path, *n = f.n_files;
    return true;
}

bool st_open(StFiles *out, const char *path, Mem *mem, Err *err) {
    *out = (StFiles){ 0 };
    if (open_any(out, path, mem, err)) return true;
    st_close(out);
    return false;
}

void st_close(StFiles *s) {
    for (int f = 0; s->map && f < s->n_files; f++) file_unmap(&s->map[f]);
    for (int f = 0; s->fd && f < s->n_files; f++)
        if (s->fd[f] >= 0) close(s->fd[f]);
    *s = (StFiles){ 0 };
}

/* Reading makes no page of the mapping present, which many threads at once wait for each other over; what cannot be
 * read is looked at there. */
void st_copy(const StFiles *s, const StTensor *t, void *to, const char *from, size_t bytes) {
    const FileMap *m = &s->map[t->file];
    while (bytes) {
        ssize_t n = s->fd[t->file] < 0 ? -1 : pread(s->fd[t->file], to, bytes, from - m->data);
        if (n <= 0) break;
        to = (char *)to + n, from += n, bytes -= (size_t)n;
    }
    memcpy(to, from, bytes);
}

bool st_read(const StFiles *s, const StTensor *t, int64_t at, void *to, size_t n, Err *err) {
    CHECK(at >= 0 && at + (int64_t)n <= (int64_t)t->bytes, "bytes %lld to %lld of %s, which has %zu", (long long)at,
          (long long)at + (long long)n, t->name, t->bytes);
    int64_t from = t->data - s->map[t->file].data + at;
    while (n) {
        ssize_t got = pread(s->fd[t->file], to, n, (off_t)from);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0)
            return err_set(err, "%s: cannot read tensor %s: %s", s->path[t->file], t->name,
                           got ? strerror(errno) : "the file was cut");
        to = (char *)to + got, from += got, n -= (size_t)got;
    }
    return true;
}

/* In steps: the kernel reads no more at a time than its own window, and forgets the rest of what it was asked for.
 * Nothing is asked for what is in memory at both ends. */
void st_will_need(const void *data, size_t bytes) {
    enum { STEP = 128 << 10 };
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)data & ~(page - 1),
              to = (uintptr_t)data + bytes;
    unsigned char first = 0, last = 0;
    if (!mincore((void *)from, 1, &first) && !mincore((void *)((to - 1) & ~(page - 1)), 1, &last) && (first & last & 1))
        return;
    for (uintptr_t at = from; at < to; at += STEP) madvise((void *)at, to - at < STEP ? to - at : STEP, MADV_WILLNEED);
}

void st_done_with(const StFiles *s, const StTensor *t) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = ((uintptr_t)t->data + page - 1) & ~(page - 1);
    uintptr_t to = ((uintptr_t)t->data + t->bytes) & ~(page - 1);
    if (s->map[t->file].data && to > from) madvise((void *)from, to - from, MADV_DONTNEED);
}
