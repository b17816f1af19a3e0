/* cache.c - the cache as the hub's own programs lay it out:
 *   HF_HOME/hub/models--ORG--NAME/{blobs/SUM, refs/REVISION, snapshots/COMMIT/PATH -> ../../blobs/SUM}
 *   HF_HOME/hub/.locks/models--ORG--NAME/SUM.lock
 * A file that is not whole is blobs/SUM.incomplete, which they take up again as we do theirs. */
#include "base/file.h"
#include "hub/hub_in.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *set(const char *v) { return v && *v ? v : NULL; }

/* HF_HOME, or ~/.cache/huggingface. */
static const char *home(Mem *mem) {
    const char *hf = set(getenv("HF_HOME")), *own = set(getenv("HOME"));
    return hf ? hf : own ? mem_printf(mem, "%s/.cache/huggingface", own) : NULL;
}

const char *hub_endpoint(const HubConf *c) {
    const char *said = c->endpoint ? c->endpoint : set(getenv("HF_ENDPOINT"));
    return said ? said : "https://huggingface.co";
}

static const char *line_of(const char *path, Mem *mem) {
    Buf text = { 0 };
    Err none;
    const char *line = NULL;
    if (file_exists(path) && file_read(&text, path, &none) && text.n) {
        const char *from = text.data + strspn(text.data, " \t\r\n");
        size_t n = strcspn(from, " \t\r\n");
        if (n) line = mem_str(mem, from, n);
    }
    buf_free(&text);
    return line;
}

const char *hub_token(const HubConf *c, Mem *mem) {
    if (c->token) return c->token[0] == '@' ? line_of(c->token + 1, mem) : set(c->token);
    const char *said = set(getenv("HF_TOKEN")), *dir = home(mem);
    return said ? said : dir ? line_of(mem_printf(mem, "%s/token", dir), mem) : NULL;
}

bool hub_place(HubPlace *out, const HubConf *c, const HubName *n, Mem *mem, Err *err) {
    const char *dir = home(mem), *slash = strchr(n->repo, '/');
    const char *cache = c->cache ? c->cache : dir ? mem_printf(mem, "%s/hub", dir) : NULL;
    if (!cache) return err_set(err, "there is no HOME to keep a cache in; --cache DIR or HF_HOME names a folder");
    char *name = mem_printf(mem, "%s--%.*s--%s", n->kind == HUB_DATA ? "datasets" : "models", (int)(slash - n->repo),
                            n->repo, slash + 1);
    *out = (HubPlace){ mem_printf(mem, "%s/%s", cache, name), mem_printf(mem, "%s/.locks/%s", cache, name) };
    return true;
}

int hub_lock(const char *path, const char *says, Mem *mem, Err *err) {
    char *dir = mem_str(mem, path, (size_t)(strrchr(path, '/') - path));
    if (!dir_make(dir, err)) return -1;
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return err_set(err, "%s: cannot open: %s", path, strerror(errno)), -1;
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        if (errno == EWOULDBLOCK && says && speaks())
            fprintf(stderr, "%s: another process fetches this; waiting for it\n", says);
        if (errno == EWOULDBLOCK)
            while (flock(fd, LOCK_EX) && errno == EINTR) {}
    } /* (a disk without locks: two may fetch the same, and the last to end replaces like by like) */
    return fd;
}

bool hub_ref(const HubPlace *p, const char *revision, const char **commit, double *age, Mem *mem) {
    const char *path = mem_printf(mem, "%s/refs/%s", p->repo, revision);
    const char *line = hub_is_commit(revision) ? revision : line_of(path, mem);
    struct stat st;
    struct timespec now;
    if (!line || !hub_is_commit(line)) return false;
    clock_gettime(CLOCK_REALTIME, &now);
    *age = stat(path, &st)
               ? 1e9
               : (double)(now.tv_sec - st.st_mtim.tv_sec) + 1e-9 * (double)(now.tv_nsec - st.st_mtim.tv_nsec);
    return *commit = line, true;
}

static bool parent(const char *path, Err *err) {
    Buf dir = { 0 };
    buf_put(&dir, path, (size_t)(strrchr(path, '/') - path));
    bool ok = dir_make(dir.data, err);
    buf_free(&dir);
    return ok;
}

bool hub_ref_set(const HubPlace *p, const char *revision, const char *commit, Err *err) {
    if (hub_is_commit(revision)) return true;
    Mem mem = { 0 };
    const char *path = mem_printf(&mem, "%s/refs/%s", p->repo, revision);
    bool ok = parent(path, err) && file_write(path, commit, strlen(commit), err);
    mem_free(&mem);
    return ok;
}

bool hub_link(const HubPlace *p, const char *commit, const HubFile *f, Err *err) {
    Mem mem = { 0 };
    char *path = mem_printf(&mem, "%s/snapshots/%s/%s", p->repo, commit, f->path), was[4096];
    Buf to = { 0 };
    buf_puts(&to, "../../");
    for (const char *s = f->path; *s; s++)
        if (*s == '/') buf_puts(&to, "../");
    buf_printf(&to, "blobs/%s", f->sum);
    ssize_t n = readlink(path, was, sizeof was - 1);
    bool ok = n > 0 && (size_t)n == to.n && !memcmp(was, to.data, to.n);
    if (!ok) {
        char *tmp = mem_printf(&mem, "%s.%d", path, (int)getpid());
        ok = parent(path, err);
        unlink(tmp);
        if (ok && (symlink(to.data, tmp) || rename(tmp, path)))
            ok = err_set(err, "%s: cannot be linked: %s", path, strerror(errno)), unlink(tmp);
    }
    buf_free(&to);
    mem_free(&mem);
    return ok;
}

/* ---- a snapshot as it lies there */
typedef VEC(HubFile) Found;

static void walk(Found *found, const char *dir, const char *below, int depth, Mem *mem) {
    DIR *d = depth < 16 ? opendir(dir) : NULL;
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..")) continue;
        char *path = mem_printf(mem, "%s/%s", dir, e->d_name);
        char *name = mem_printf(mem, "%s%s%s", below, *below ? "/" : "", e->d_name);
        if (stat(path, &st)) continue; /* a link to a blob that is not there */
        if (S_ISDIR(st.st_mode)) walk(found, path, name, depth + 1, mem);
        else if (S_ISREG(st.st_mode)) VEC_PUSH(*found, (HubFile){ .path = name, .bytes = st.st_size, .sum = "" });
    }
    if (d) closedir(d);
}

bool hub_snapshot(const HubPlace *p, const char *commit, HubList *out, Mem *mem) {
    Found found = { 0 };
    walk(&found, mem_printf(mem, "%s/snapshots/%s", p->repo, commit), "", 0, mem);
    *out = (HubList){ .commit = commit, .n = (int)found.n };
    if (found.n) out->files = mem_copy(mem, found.at, found.n * sizeof *found.at);
    vec_free(found.at);
    return out->n > 0;
}
