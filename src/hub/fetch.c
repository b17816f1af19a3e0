/* fetch.c - the files of a revision, several at a time, each into blobs/SUM.incomplete and, when its sum is right, to
 * blobs/SUM.  What was cut goes on where it ended; what the hub cannot give now is asked for again, later. */
#include "base/file.h"
#include "base/meter.h"
#include "base/sha256.h"
#include "http/client.h"
#include "hub/hub_in.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { PARALLEL = 8, TRIES = 6, LONGEST_WAIT = 300, LIST_MOST = 256 << 20 };

typedef struct Fetch Fetch;
typedef struct {
    Fetch *f;
    HubFile *file;
    HttpAsk ask;
    Hash hash;
    int64_t at, began;          /* bytes that are there; ... when this try began */
    int fd, lock, tries, wrong; /* wrong: so often its sum was */
    const char *part, *blob;
} Getting;

struct Fetch {
    const HubConf *c;
    const HubName *name;
    const HubPlace *place;
    HubList *l;
    HttpClient *client;
    Meter *meter;
    Mem *mem;
    const char *secret;
    int next;
    int64_t fetched;
    bool failed;
    Err err;
};

const char *hub_url(const HubConf *c, const HubName *n, const char *commit, const char *path, Mem *mem) {
    Buf b = { 0 };
    buf_puts(&b, hub_endpoint(c));
    while (b.n && b.data[b.n - 1] == '/') b.data[--b.n] = 0;
    if (!path) buf_printf(&b, "/api/%s/%s/revision/", n->kind == HUB_DATA ? "datasets" : "models", n->repo);
    else buf_printf(&b, "/%s%s/resolve/", n->kind == HUB_DATA ? "datasets/" : "", n->repo);
    url_put(&b, commit, "");
    if (path) buf_putc(&b, '/'), url_put(&b, path, "/");
    else buf_puts(&b, "?blobs=true");
    const char *url = mem_str(mem, b.data, b.n);
    buf_free(&b);
    return url;
}

static const char *secret_of(const HubConf *c, Mem *mem) {
    const char *token = hub_token(c, mem);
    if (!token || !url_private(hub_endpoint(c))) return NULL;
    for (const char *p = token; *p; p++)
        if (*p <= ' ' || *p > '~') return NULL; /* would be another header */
    return mem_printf(mem, "Authorization: Bearer %s", token);
}

static bool later(int status) { return status == 429 || status == 408 || (status >= 500 && status < 600); }

static double pause_of(const HttpHead *h, int tries) {
    if (h->wait >= 0) return h->wait < LONGEST_WAIT ? h->wait : LONGEST_WAIT;
    double s = 0.5 * (double)(1 << (tries < 7 ? tries : 7));
    return s < 30 ? s : 30;
}

static bool refuse(Err *err, const HubConf *c, const HubName *n, const HttpHead *h, const char *what, bool secret) {
    const char *at = hub_endpoint(c), *set = n->kind == HUB_DATA ? "datasets/" : "";
    if (h->status == 403 || !strcmp(h->code, "GatedRepo"))
        return err_set(err,
                       "%s: the hub gives it only to who has accepted its terms (%d): do so at %s/%s%s, and give "
                       "that account's token by --token or HF_TOKEN",
                       what, h->status, at, set, n->repo);
    if (h->status == 401)
        return err_set(err, "%s: the hub answers 401: %s", what,
                       secret ? "the token is wrong, or may not read it"
                              : "it is not there, or is private: its owner's token goes into --token or HF_TOKEN");
    if (h->status == 404 && !strcmp(h->code, "RevisionNotFound"))
        return err_set(err, "%s: %s has no revision '%s'", what, n->repo, n->revision);
    if (h->status == 404)
        return err_set(err, "%s: not on %s (404)%s", what, at,
                       n->kind == HUB_MODEL ? "; a data set is datasets/ORG/NAME" : "");
    return err_set(err, "%s: %s answers %d%s%.200s", what, h->host, h->status, *h->why ? ": " : "", h->why);
}

bool hub_ask(const HubConf *c, const HubName *n, HubList *out, bool *unreachable, Mem *mem, Err *err) {
    HttpClient *client = client_open(err);
    if (!client) return *unreachable = true, false;
    Buf text = { 0 };
    HttpHead h = { 0 };
    HttpAsk ask = { .url = hub_url(c, n, n->revision, NULL, mem), .secret = secret_of(c, mem), .proxy = c->proxy };
    bool ok = false;
    for (int k = 0; k < TRIES; k++) {
        ok = client_ask(client, ask, LIST_MOST, &text, &h, err);
        if (ok && !later(h.status)) break;
        if (!ok && k >= 2) break; /* no connection: soon known */
        if (k + 1 < TRIES) usleep((useconds_t)(1e6 * pause_of(&h, k)));
    }
    *unreachable = !ok || later(h.status);
    if (ok && h.status != 200) ok = refuse(err, c, n, &h, n->repo, ask.secret != NULL);
    else if (ok && !hub_list_parse(out, mem_str(mem, text.data ? text.data : "", text.n), text.n, mem, err))
        ok = err_wrap(err, "%s: not a hub's answer", ask.url);
    buf_free(&text);
    client_close(client);
    return ok;
}

/* ---- one file */
static void give_up(Fetch *f, const Err *err) {
    if (!f->failed) f->err = *err;
    f->failed = true;
}

static void begin_hash(Getting *g) {
    bool git = strlen(g->file->sum) == 40;
    g->hash = git ? sha1_begin() : sha256_begin();
    if (!git) return;
    char head[40]; /* what git puts before a file, its 0 too */
    int n = snprintf(head, sizeof head, "blob %lld", (long long)g->file->bytes);
    hash_add(&g->hash, head, (size_t)n + 1);
}

static bool from_zero(Getting *g) {
    Err err;
    begin_hash(g);
    if (g->at) meter_add(g->f->meter, -(double)g->at), g->f->fetched -= g->at > g->began ? g->at - g->began : 0;
    g->at = g->began = 0;
    if (!ftruncate(g->fd, 0) && !lseek(g->fd, 0, SEEK_SET)) return true;
    err_set(&err, "%s: cannot be emptied: %s", g->part, strerror(errno));
    return give_up(g->f, &err), false;
}

static bool piece(void *user, const HttpHead *h, const void *bytes, size_t n) {
    Getting *g = user;
    Err err;
    if (g->f->failed) return false;
    if (h->status != 200 && h->status != 206) return true; /* what is wrong is said by the number */
    if (h->status == 200 && g->ask.from > 0 && g->at == g->ask.from && !from_zero(g)) return false;
    if (h->status == 200) g->ask.from = 0;
    if (h->status == 206 && g->at == g->ask.from && h->from != g->ask.from) return false;
    if (g->at + (int64_t)n > g->file->bytes) return g->wrong++, from_zero(g), false;
    for (size_t done = 0; done < n;) {
        ssize_t k = write(g->fd, (const char *)bytes + done, n - done);
        if (k < 0 && errno == EINTR) continue;
        if (k < 0) {
            err_set(&err, "%s: cannot write: %s", g->part, strerror(errno));
            return give_up(g->f, &err), false;
        }
        done += (size_t)k;
    }
    hash_add(&g->hash, bytes, n);
    g->at += (int64_t)n;
    g->f->fetched += (int64_t)n;
    meter_add(g->f->meter, (double)n);
    return true;
}

static void next_file(Fetch *f);

static void put_away(Getting *g, bool whole) {
    Err err;
    if (whole && (fsync(g->fd) || rename(g->part, g->blob))) {
        err_set(&err, "%s: cannot be put in its place: %s", g->blob, strerror(errno));
        give_up(g->f, &err);
    } else if (whole && !hub_link(g->f->place, g->f->l->commit, g->file, &err)) give_up(g->f, &err);
    close(g->fd);
    close(g->lock);
    next_file(g->f);
}

static void again(Getting *g, double delay) {
    g->ask.from = g->began = g->at;
    client_add(g->f->client, &g->ask, delay);
}

/* All its bytes are there: are they the right ones? */
static void judge(Getting *g) {
    char sum[65];
    Err err;
    hash_end(&g->hash, sum);
    bool right = !strcmp(sum, g->file->sum);
    if (!right && from_zero(g) && ++g->wrong < 2) {
        again(g, 0);
        return;
    }
    if (!right) {
        err_set(&err, "%s of %s: its bytes are not those that the hub tells the sum of (%.12s..., not %.12s...)",
                g->file->path, g->f->name->repo, sum, g->file->sum);
        give_up(g->f, &err);
    }
    put_away(g, right);
}

/* Will it be tried again?  If not, why. */
static bool retries(Getting *g, const HttpHead *h, const char *broken, Err *err) {
    bool good = h->status == 200 || h->status == 206, moved = g->at > g->began;
    const char *path = g->file->path, *repo = g->f->name->repo;
    if (h->status == 416 && g->at && !from_zero(g)) return *err = g->f->err, false;
    if (!broken && !good && !later(h->status) && h->status != 416)
        return refuse(err, g->f->c, g->f->name, h, path, g->f->secret != NULL);
    if (h->hopeless) return err_set(err, "%s: %s", path, broken);
    if (g->wrong >= 2) return err_set(err, "%s of %s: longer than the hub tells", path, repo);
    g->tries = moved ? 0 : g->tries + 1;
    if (g->tries < TRIES) {
        again(g, moved ? 0 : pause_of(h, g->tries - 1));
        return true;
    }
    if (broken) return err_set(err, "%s: %s; what has come is kept: the same command goes on", path, broken);
    if (good) return err_set(err, "%s: the connection ends again and again; the same command goes on", path);
    return refuse(err, g->f->c, g->f->name, h, path, true);
}

static void done(void *user, const HttpHead *h, const char *broken) {
    Getting *g = user;
    Err err;
    bool good = h->status == 200 || h->status == 206;
    if (g->f->failed) put_away(g, false);
    else if (good && g->at == g->file->bytes && g->wrong < 2) judge(g);
    else if (!retries(g, h, broken, &err)) {
        give_up(g->f, &err);
        put_away(g, false);
    }
}

static bool there(const char *blob, int64_t bytes) {
    struct stat st;
    return !stat(blob, &st) && S_ISREG(st.st_mode) && st.st_size == bytes;
}

/* What an earlier try left is believed as far as it goes: the sum is of all. */
static bool take_up(Getting *g) {
    static char room[1 << 18];
    struct stat st;
    begin_hash(g);
    if (fstat(g->fd, &st)) return false;
    if (st.st_size > g->file->bytes) return !ftruncate(g->fd, 0);
    for (ssize_t n; (n = read(g->fd, room, sizeof room)) != 0;) {
        if (n < 0) return false;
        hash_add(&g->hash, room, (size_t)n);
        g->at += n;
    }
    g->began = g->at;
    meter_add(g->f->meter, (double)g->at);
    return true;
}

static void start(Fetch *f, HubFile *file) {
    Err err;
    Getting *g = MEM_NEW(f->mem, Getting);
    *g = (Getting){ .f = f, .file = file, .fd = -1 };
    g->blob = mem_printf(f->mem, "%s/blobs/%s", f->place->repo, file->sum);
    g->part = mem_printf(f->mem, "%s.incomplete", g->blob);
    g->lock = hub_lock(mem_printf(f->mem, "%s/%s.lock", f->place->locks, file->sum), f->c->says, f->mem, &err);
    if (g->lock < 0) {
        give_up(f, &err);
        return;
    }
    g->fd = open(g->part, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (g->fd < 0 || !take_up(g)) {
        err_set(&err, "%s: cannot be opened: %s", g->part, strerror(errno));
        if (g->fd >= 0) close(g->fd);
        close(g->lock);
        give_up(f, &err);
        return;
    }
    g->ask = (HttpAsk){ .url = hub_url(f->c, f->name, f->l->commit, file->path, f->mem),
                        .secret = f->secret,
                        .proxy = f->c->proxy,
                        .from = g->at,
                        .piece = piece,
                        .done = done,
                        .user = g };
    if (there(g->blob, file->bytes)) unlink(g->part), hub_link(f->place, f->l->commit, file, &err), put_away(g, false);
    else if (g->at == file->bytes && g->at) judge(g);
    else client_add(f->client, &g->ask, 0);
}

static void next_file(Fetch *f) {
    while (f->next < f->l->n && !f->failed) {
        HubFile *file = &f->l->files[f->next++];
        Err err;
        if (!file->wanted) continue;
        if (!there(mem_printf(f->mem, "%s/blobs/%s", f->place->repo, file->sum), file->bytes)) {
            start(f, file);
            return;
        }
        if (!hub_link(f->place, f->l->commit, file, &err)) give_up(f, &err);
    }
}

static bool room_for(const HubPlace *p, int64_t bytes, Err *err) {
    struct statvfs v;
    if (statvfs(p->repo, &v)) return true;
    double room = (double)v.f_bavail * (double)v.f_frsize;
    return room >= (double)bytes
           || err_set(err, "%s: %.1f GB are to come, and the disk has room for %.1f GB (--cache DIR, HF_HOME)", p->repo,
                      (double)bytes / 1e9, room / 1e9);
}

bool hub_fetch(const HubConf *c, const HubName *n, const HubPlace *p, HubList *l, int64_t *fetched, Mem *mem,
               Err *err) {
    int64_t missing = 0;
    bool none = true;
    Fetch f = { .c = c, .name = n, .place = p, .l = l, .mem = mem, .secret = secret_of(c, mem) };
    for (int i = 0; i < l->n; i++) {
        const HubFile *file = &l->files[i];
        if (!file->wanted || there(mem_printf(mem, "%s/blobs/%s", p->repo, file->sum), file->bytes)) continue;
        missing += file->bytes, none = false;
    }
    TRY(dir_make(mem_printf(mem, "%s/blobs", p->repo), err) && room_for(p, missing, err));
    if (!none && !(f.client = client_open(err))) return false;
    f.meter = none
                  ? NULL
                  : meter_open(mem_printf(mem, "%s %s", c->says ? c->says : "fetching", n->repo), "B", (double)missing);
    int lanes = none ? 1 : c->parallel ? c->parallel : PARALLEL;
    for (int i = 0; i < lanes; i++) next_file(&f);
    if (f.client) client_run(f.client);
    client_close(f.client);
    meter_close(f.meter);
    *fetched += f.fetched;
    if (f.failed) *err = f.err;
    return !f.failed;
}
