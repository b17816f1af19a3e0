/* get.c - a repository's revision, whole: from the hub, or from the cache where that says all. */
#include "base/clock.h"
#include "base/file.h"
#include "hub/hub_in.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *in_snapshot(const HubPlace *p, const char *commit, const char *path, Mem *mem) {
    return mem_printf(mem, "%s/snapshots/%s%s%s", p->repo, commit, path ? "/" : "", path ? path : "");
}

/* The shards that the index names, where nobody chose files. */
static bool shards(const HubConf *c, const HubName *n, const HubPlace *p, HubList *l, Mem *mem, Err *err) {
    if (n->kind != HUB_MODEL || n->path || c->includes) return true;
    bool indexed = false;
    for (int i = 0; i < l->n; i++) indexed |= l->files[i].wanted && !strcmp(l->files[i].path, HUB_INDEX);
    if (!indexed) return true;
    Buf text = { 0 };
    bool ok = file_read(&text, in_snapshot(p, l->commit, HUB_INDEX, mem), err)
              && hub_choose_shards(l, text.data ? text.data : "", text.n, err);
    for (int i = 0; ok && i < l->n; i++)
        for (int k = 0; k < c->excludes; k++)
            if (hub_matches(c->exclude[k], l->files[i].path)) l->files[i].wanted = false;
    buf_free(&text);
    return ok;
}

static void tell(HubGot *out, const HubPlace *p, const HubList *l, Mem *mem) {
    out->commit = l->commit;
    out->folder = in_snapshot(p, l->commit, NULL, mem);
    out->files = MEM_ARRAY(mem, HubGotFile, (size_t)l->n);
    for (int i = 0; i < l->n; i++) {
        if (!l->files[i].wanted) continue;
        out->files[out->n++] = (HubGotFile){ l->files[i].path, l->files[i].bytes };
        out->bytes += l->files[i].bytes;
    }
}

/* What the cache has of that revision, if that is all that is needed; age: seconds since somebody fetched it. */
static bool cached(const HubConf *c, const HubName *n, const HubPlace *p, HubGot *out, double *age, Mem *mem) {
    const char *commit;
    HubList l;
    Err none;
    if (!hub_ref(p, n->revision, &commit, age, mem) || !hub_snapshot(p, commit, &l, mem)) return false;
    if (!hub_choose(&l, c, n, &none) || !shards(c, n, p, &l, mem, &none)) return false;
    return tell(out, p, &l, mem), true;
}

static bool fetch(const HubConf *c, const HubName *n, const HubPlace *p, HubGot *out, bool *unreachable, Mem *mem,
                  Err *err) {
    HubList l;
    TRY(hub_ask(c, n, &l, unreachable, mem, err) && hub_choose(&l, c, n, err));
    TRY(hub_fetch(c, n, p, &l, &out->fetched, mem, err) && shards(c, n, p, &l, mem, err));
    TRY(hub_fetch(c, n, p, &l, &out->fetched, mem, err) && hub_ref_set(p, n->revision, l.commit, err));
    return tell(out, p, &l, mem), true;
}

bool hub_get(const HubConf *c, const HubName *name, HubGot *out, Mem *mem, Err *err) {
    HubPlace p;
    double age, began = clock_now();
    bool unreachable = false;
    *out = (HubGot){ 0 };
    TRY(hub_place(&p, c, name, mem, err));
    bool fixed = hub_is_commit(name->revision) && !c->includes && !name->path && name->kind == HUB_MODEL;
    if ((fixed || c->local) && cached(c, name, &p, out, &age, mem)) return true;
    if (c->local) return err_set(err, "%s@%s is not whole in %s", name->repo, name->revision, p.repo);
    *out = (HubGot){ 0 };
    int lock = hub_lock(mem_printf(mem, "%s/hone.lock", p.locks), c->says, mem, err);
    if (lock < 0) return false;
    bool ok = cached(c, name, &p, out, &age, mem) && age < clock_now() - began; /* the one that we waited for did it */
    if (!ok) {
        *out = (HubGot){ 0 };
        ok = fetch(c, name, &p, out, &unreachable, mem, err);
    }
    close(lock);
    if (ok || !unreachable) return ok;
    *out = (HubGot){ 0 };
    if (!cached(c, name, &p, out, &age, mem)) return false;
    out->note = mem_printf(mem, "%s; what was fetched before is taken: %s", err->msg, out->commit);
    return true;
}

/* ---- into a folder of one's own */
static bool copied(const char *from, const char *to, Err *err) {
    char room[1 << 16];
    int in = open(from, O_RDONLY | O_CLOEXEC),
        out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    bool ok = in >= 0 && out >= 0;
    for (ssize_t n; ok && (n = read(in, room, sizeof room)) != 0;) ok = n > 0 && write(out, room, (size_t)n) == n;
    if (!ok) err_set(err, "%s: cannot be copied: %s", to, strerror(errno));
    if (in >= 0) close(in);
    if (out >= 0 && close(out) && ok) ok = err_set(err, "%s: cannot be written: %s", to, strerror(errno));
    return ok;
}

/* A link to weights, which nobody edits in place, costs no room; other files are for their owner to change. */
static bool put(const char *from, const char *to, Err *err) {
    Mem mem = { 0 };
    struct stat a, b;
    if (!stat(from, &a) && !stat(to, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino) return true;
    const char *end = strrchr(from, '.');
    bool weights = end && (!strcmp(end, ".safetensors") || !strcmp(end, ".gguf"));
    char *tmp = mem_printf(&mem, "%s.%d", to, (int)getpid()), *dir = mem_str(&mem, to, (size_t)(strrchr(to, '/') - to));
    bool ok = dir_make(dir, err);
    unlink(tmp);
    ok = ok && ((weights && !linkat(AT_FDCWD, from, AT_FDCWD, tmp, AT_SYMLINK_FOLLOW)) || copied(from, tmp, err));
    if (ok && rename(tmp, to)) ok = err_set(err, "%s: cannot be put there: %s", to, strerror(errno));
    if (!ok) unlink(tmp);
    mem_free(&mem);
    return ok;
}

bool hub_copy(const HubGot *got, const char *dir, Err *err) {
    Mem mem = { 0 };
    bool ok = true;
    for (int i = 0; ok && i < got->n; i++)
        ok = put(mem_printf(&mem, "%s/%s", got->folder, got->files[i].path),
                 mem_printf(&mem, "%s/%s", dir, got->files[i].path), err);
    mem_free(&mem);
    return ok;
}
