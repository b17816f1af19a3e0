/* identity.c - what a run is, in lines.
 * Files are read, not mapped: what is read is what was asked for, and no more. */
#include "run/identity.h"
#include "base/file.h"
#include "gguf/inside.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/shell_files.h"
#include "file/safetensors.h"
#include "run/version.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void identity_free(Identity *id) {
    buf_free(&id->lines);
    *id = (Identity){ 0 };
}

/* A line ends where it ends: what separates lines does not stand in one. */
static void put_visible(Buf *b, const char *s) {
    for (; *s; s++)
        if ((unsigned char)*s < 32) buf_printf(b, "\\x%02x", (unsigned char)*s);
        else buf_putc(b, *s);
}

void identity_say(Identity *id, const char *key, const char *fmt, ...) {
    char value[4096];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(value, sizeof value, fmt, ap);
    va_end(ap);
    put_visible(&id->lines, key);
    buf_putc(&id->lines, '\t');
    put_visible(&id->lines, value);
    if (n >= (int)sizeof value) { /* a long list: two that begin alike are not yet equal */
        Buf all = { 0 };
        buf_reserve(&all, (size_t)n + 1);
        va_start(ap, fmt);
        vsnprintf(all.data, (size_t)n + 1, fmt, ap);
        va_end(ap);
        buf_printf(&id->lines, "... %016" PRIx64, hash_bytes(HASH_START, all.data, (size_t)n));
        buf_free(&all);
    }
    buf_putc(&id->lines, '\n');
}

void identity_text(Identity *id, const char *key, const void *bytes, size_t n) {
    identity_say(id, key, "%zu bytes, %016" PRIx64, n, hash_bytes(HASH_START, bytes, n));
}

bool identity_file(Identity *id, const char *key, const char *path, Err *err) {
    Buf text = { 0 };
    bool ok = model_read(&text, path, err);
    if (ok) identity_text(id, key, text.data ? text.data : "", text.n);
    id->read += (int64_t)text.n;
    buf_free(&text);
    return ok;
}

bool identity_files(Identity *id, const char *dir, const char *const *names, int n, Err *err) {
    Mem mem = { 0 };
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        const char *path = mem_printf(&mem, "%s/%s", dir, names[i]);
        if (model_has(path)) ok = identity_file(id, names[i], path, err);
    }
    mem_free(&mem);
    return ok;
}

void identity_program(Identity *id, const char *verb) {
    identity_say(id, "verb", "%s", verb);
    identity_say(id, "version", "%s, commit %s", HONE_VERSION, hone_commit_of());
}

/* ---- samples */
typedef struct {
    int fd;
    int64_t size;
    const char *path;
} Sampled;

static bool read_at(Identity *id, const Sampled *f, char *to, int64_t n, int64_t at, Err *err) {
    while (n > 0) {
        ssize_t got = pread(f->fd, to, (size_t)n, at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return err_set(err, "%s: cannot read: %s", f->path, strerror(errno));
        if (!got) return err_set(err, "%s: has become shorter while it was read", f->path);
        to += got, at += got, n -= got, id->read += got;
    }
    return true;
}

static bool sampled_open(Sampled *f, const char *path, Err *err) {
    struct stat st;
    *f = (Sampled){ .fd = open(path, O_RDONLY | O_CLOEXEC), .path = path };
    if (f->fd < 0) return err_set(err, "%s: cannot open: %s", path, strerror(errno));
    if (fstat(f->fd, &st)) return close(f->fd), err_set(err, "%s: cannot read: %s", path, strerror(errno));
    return f->size = st.st_size, true;
}

/* Where: by the seed and the key, so that other runs look at other places. */
static bool sample_hash(Identity *id, const Sampled *f, const char *key, int64_t from, uint64_t seed, uint64_t *h,
                        Err *err) {
    int64_t room = f->size - from, n = room < IDENTITY_SAMPLE ? room : IDENTITY_SAMPLE;
    uint64_t h_key = hash_bytes(HASH_START, key, strlen(key));
    uint64_t u = rng_u64(seed, RNG_LOOK, (uint32_t)h_key, (uint32_t)(h_key >> 32), 0, 0);
    int64_t at = from + (int64_t)(u % (uint64_t)(room - n + 1));
    Buf b = { 0 };
    buf_reserve(&b, (size_t)n + 1);
    bool ok = read_at(id, f, b.data, n, at, err);
    if (ok) *h = hash_bytes(*h, b.data, (size_t)n);
    buf_free(&b);
    return ok;
}

bool identity_sample(Identity *id, const char *key, const char *path, uint64_t seed, Err *err) {
    Sampled f;
    uint64_t h = HASH_START;
    TRY(sampled_open(&f, path, err));
    bool ok = sample_hash(id, &f, key, 0, seed, &h, err);
    close(f.fd);
    if (ok) identity_say(id, key, "%" PRId64 " bytes, sample %016" PRIx64, f.size, h);
    return ok;
}

/* ---- a model */
/* The header alone; one that is none is the loader's to refuse. */
static bool header_hash(Identity *id, const Sampled *f, int64_t *end, uint64_t *h, Err *err) {
    enum { MOST = 100 << 20 };
    unsigned char length[8];
    *end = 0;
    if (f->size < 8) return true;
    TRY(read_at(id, f, (char *)length, 8, 0, err));
    uint64_t n = 0;
    for (int i = 7; i >= 0; i--) n = n << 8 | length[i];
    if (n > MOST || n > (uint64_t)f->size - 8) return true;
    Buf text = { 0 };
    buf_reserve(&text, (size_t)n + 1);
    bool ok = read_at(id, f, text.data, (int64_t)n, 8, err);
    if (ok) *h = hash_bytes(*h, text.data, (size_t)n), *end = 8 + (int64_t)n;
    buf_free(&text);
    return ok;
}

static bool weights_file(Identity *id, const char *path, uint64_t seed, Err *err) {
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    Sampled f;
    int64_t from;
    uint64_t header = HASH_START, sample = HASH_START;
    TRY(sampled_open(&f, path, err));
    bool ok = header_hash(id, &f, &from, &header, err) && sample_hash(id, &f, name, from, seed, &sample, err);
    close(f.fd);
    if (ok)
        identity_say(id, name, "%" PRId64 " bytes, header %016" PRIx64 ", sample %016" PRIx64, f.size, header, sample);
    return ok;
}

bool identity_weights(Identity *id, const char *dir, uint64_t seed, Err *err) {
    Mem mem = { 0 };
    const char **path;
    int n;
    size_t index;
    bool ok = st_names(&path, &n, &index, dir, &mem, err);
    if (ok) id->read += (int64_t)index;
    for (int i = 0; ok && i < n; i++) ok = weights_file(id, path[i], seed, err);
    mem_free(&mem);
    return ok;
}

bool identity_config(Identity *id, const char *dir, Err *err) {
    static const char *const names[] = { "config.json", "generation_config.json" };
    return identity_files(id, dir, names, COUNT(names), err);
}

/* The first by name, as tok_open takes it; "" where there is none. */
static const char *any_tiktoken(const char *dir, Mem *mem) {
    DIR *d = opendir(dir);
    const char *found = "";
    for (const struct dirent *e; d && (e = readdir(d));) {
        size_t n = strlen(e->d_name);
        bool is = n > 9 && !strcmp(e->d_name + n - 9, ".tiktoken");
        if (is && (!*found || strcmp(e->d_name, found) < 0)) found = mem_str(mem, e->d_name, n);
    }
    if (d) closedir(d);
    return found;
}

static bool in_folder(Identity *id, const char *dir, bool own_template, Mem *mem, Err *err) {
    const char *any = any_tiktoken(dir, mem);
    const char *const json[] = { "tokenizer.json" }, *const tiktoken[] = { "tiktoken.model" }, *const other[] = { any },
                      *const vocab[] = { "vocab.json", "merges.txt" }, *const chat[] = { "chat_template.jinja" },
                      *const beside[] = { "tokenizer_config.json", "special_tokens_map.json",
                                          "preprocessor_config.json" };
    if (model_has(mem_printf(mem, "%s/%s", dir, json[0]))) TRY(identity_files(id, dir, json, 1, err));
    else if (file_exists(mem_printf(mem, "%s/%s", dir, tiktoken[0]))) TRY(identity_files(id, dir, tiktoken, 1, err));
    else if (*any) TRY(identity_files(id, dir, other, 1, err));
    else TRY(identity_files(id, dir, vocab, 2, err));
    return identity_files(id, dir, beside, COUNT(beside), err)
           && (own_template || identity_files(id, dir, chat, 1, err));
}

static bool beside_file(Identity *id, const char *path, Mem *mem, Err *err) {
    static const char *const names[] = { "tokenizer_config.json", "merges.txt" };
    const char *slash = strrchr(path, '/'), *dir = slash ? mem_str(mem, path, (size_t)(slash - path)) : ".";
    bool vocab = !strcmp(slash ? slash + 1 : path, "vocab.json");
    return identity_file(id, "tokenizer", path, err) && identity_files(id, dir, names, vocab ? 2 : 1, err);
}

/* As tok_open and chat_open choose: files that they pass over may be there on one machine and not on another. */
bool identity_tokenizer(Identity *id, const char *path, const char *chat_template, Err *err) {
    Mem mem = { 0 };
    bool ok =
        model_dir(path) ? in_folder(id, path, chat_template != NULL, &mem, err) : beside_file(id, path, &mem, err);
    mem_free(&mem);
    return ok && (!chat_template || identity_file(id, "chat_template.jinja", chat_template, err));
}

/* ---- lines */
typedef struct {
    const char *key, *value, *next;
    size_t key_n, value_n;
} Line;

static bool next_line(Line *l) {
    const char *at = l->next, *tab = at ? strchr(at, '\t') : NULL, *end = tab ? strchr(tab, '\n') : NULL;
    if (!end) return false;
    *l = (Line){ at, tab + 1, end + 1, (size_t)(tab - at), (size_t)(end - tab - 1) };
    return true;
}

static bool has_key(const Identity *id, const char *key) {
    Line l = { .next = id->lines.data };
    while (next_line(&l))
        if (strlen(key) == l.key_n && !memcmp(l.key, key, l.key_n)) return true;
    return false;
}

/* ---- who judges */
/* Also what may be run but not read. */
static bool is_machine_code(const char *path) {
    char head[4] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool code = fd < 0 || (read(fd, head, 4) == 4 && !memcmp(head, "\177ELF", 4));
    if (fd >= 0) close(fd);
    return code;
}

bool identity_scorer(Identity *id, const char *python, const char *library, const char *command, Err *err) {
    Mem mem = { 0 };
    const char *const *file;
    int n = shell_files(&file, command ? command : "", &mem);
    bool ok = (!python || identity_file(id, "the scorer", python, err))
              && (!library || identity_file(id, "the scorer", library, err));
    for (int i = 0; ok && i < n; i++) {
        const char *slash = strrchr(file[i], '/'), *name = slash ? slash + 1 : file[i];
        const char *key = mem_printf(&mem, "the scorer's %s", name);
        for (int k = 2; has_key(id, key); k++) key = mem_printf(&mem, "the scorer's %s (%d)", name, k);
        if (!is_machine_code(file[i])) ok = identity_file(id, key, file[i], err);
    }
    mem_free(&mem);
    return ok;
}

/* ---- kept, and compared */
void identity_put(Buf *out, const Identity *id) {
    Line l = { .next = id->lines.data };
    for (char before = '{'; next_line(&l); before = ',') {
        buf_putc(out, before);
        json_put_str(out, l.key, l.key_n);
        buf_putc(out, ':');
        json_put_str(out, l.value, l.value_n);
    }
    buf_puts(out, id->lines.n ? "}" : "{}");
}

void identity_changes(const Identity *now, const Json *was, IdentityChange *each, void *user) {
    if (!was || was->kind != JSON_OBJECT) return;
    Mem mem = { 0 };
    Line l = { .next = now->lines.data };
    while (next_line(&l)) {
        const char *key = mem_str(&mem, l.key, l.key_n), *is = mem_str(&mem, l.value, l.value_n);
        const Json *old = json_get(was, key);
        const char *before = old && old->kind == JSON_STRING ? old->str : NULL;
        if (!before || strcmp(before, is)) each(user, key, before, is);
    }
    for (size_t i = 0; i < was->n; i++) {
        const JsonMember *m = &was->members[i];
        if (m->value.kind == JSON_STRING && !has_key(now, m->key)) each(user, m->key, m->value.str, NULL);
    }
    mem_free(&mem);
}
