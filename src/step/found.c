/* found.c - a run's files and data, as lines. */
#include "step/found.h"
#include "base/hash.h"
#include "comm/alike.h"

#include <inttypes.h>
#include <string.h>

/* ---- data */
enum { PICTURES = 64 };
typedef struct {
    Identity *id;
    uint64_t seed, hash;
    int64_t n, every, first; /* every-th of n is looked at, from the first-th on */
    Err *err;
    bool ok;
} Looked;

static void count_file(void *user, const char *path) {
    (void)path;
    ((Looked *)user)->n++;
}
static void look_at_file(void *user, const char *path) {
    Looked *p = user;
    if (!p->ok || p->n++ % p->every != p->first) return;
    Identity one = { 0 };
    p->ok = identity_sample(&one, "", path, p->seed, p->err);
    if (p->ok) p->hash = hash_bytes(p->hash, one.lines.data, one.lines.n);
    p->id->read += one.read;
    identity_free(&one);
}
static void each_file(const Dataset *d, PictureFile *fn, Looked *p) {
    p->n = 0;
    for (int64_t i = 0; i < dataset_n(d); i++) {
        const DataRow *r = dataset_row(d, i);
        for (int k = 0; k < r->n_images; k++) picture_files(&r->images[k], r->folder, fn, p);
        for (int k = 0; k < r->n_videos; k++) picture_files(&r->videos[k], r->folder, fn, p);
    }
}

static bool found_pictures(Identity *id, const char *key, const Dataset *d, uint64_t seed, Err *err) {
    Mem mem = { 0 };
    Looked p = { .id = id, .seed = seed, .hash = HASH_START, .err = err, .ok = true };
    each_file(d, count_file, &p);
    int64_t n = p.n;
    p.every = (n + PICTURES - 1) / PICTURES, p.first = n ? (int64_t)(seed % (uint64_t)p.every) : 0;
    if (n) each_file(d, look_at_file, &p);
    if (n && p.ok)
        identity_say(id, mem_printf(&mem, "pictures of %s", key), "%" PRId64 " files, %016" PRIx64, n, p.hash);
    mem_free(&mem);
    return p.ok;
}

bool found_data(Identity *id, const char *key, const Dataset *d, uint64_t seed, Err *err) {
    identity_say(id, key, "%" PRId64 " rows, %016" PRIx64, dataset_n(d), dataset_print(d));
    return found_pictures(id, key, d, seed, err);
}

/* ---- a job's */
static bool look_at_files(const Job *j, uint64_t seed, Identity *id, Identity *weights, Err *err) {
    const Config *c = &j->c;
    TRY(identity_config(c->from.gone ? weights : id, j->o.desc.dir, err) /* a checkpoint's own is written anew */
        && identity_tokenizer(id, c->from.tokenizer, c->from.chat_template, err)
        && identity_scorer(id, c->from.scorer, c->reward.library, c->reward.command, err));
    bool wanted = (ranks_count(&j->ranks) > 1 || config_needs_ref(c) || config_adapts(c)) && !config_random(c).on;
    return !wanted || identity_weights(weights, j->o.desc.dir, seed, err);
}

/* In a checkpoint one line stands for all files of the reference, or of the model that an adapter is added to. */
static void keep_reference(const Job *j, Identity *id, const Identity *weights) {
    bool adapts = config_adapts(&j->c);
    if (!(config_needs_ref(&j->c) || adapts) || !weights->lines.n) return;
    identity_say(id, adapts ? "the base model" : "the reference model", "%016" PRIx64,
                 hash_bytes(HASH_START, weights->lines.data, weights->lines.n));
}

static void say_device(const Job *j, Identity *id) {
    const Dev *d = &j->o.dev;
    identity_say(id, "device", "%s", d->ops->name);
    identity_say(id, "compute", "%s", dtype_name(d->act));
    identity_say(id, "trainer.leaves", "%" PRId64, j->c.trainer.leaves);
}

bool found_files(Job *j, Err *err) {
    if (j->counted) return true;
    Identity all = { 0 }, weights = { 0 };
    bool ok = look_at_files(j, (uint64_t)j->c.trainer.seed, &j->found, &weights, err);
    say_device(j, &all);
    buf_put(&all.lines, j->found.lines.data, j->found.lines.n);
    buf_put(&all.lines, weights.lines.data, weights.lines.n);
    ok = job_agree(j, ok, err) && ranks_alike(&j->ranks, all.lines.data, err);
    keep_reference(j, &j->found, &weights);
    identity_free(&all);
    identity_free(&weights);
    return ok;
}

static bool look_at_rows(const Job *j, uint64_t seed, Identity *id, Err *err) {
    return found_data(id, "training data", j->train, seed, err)
           && (!j->val || found_data(id, "validation data", j->val, seed, err));
}

bool found_rows(Job *j, bool ok, Err *err) {
    if (j->counted) return job_agree(j, ok, err);
    Identity rows = { 0 };
    ok = ok && look_at_rows(j, (uint64_t)j->c.trainer.seed, &rows, err);
    const char *lines = rows.lines.n ? rows.lines.data : "";
    ok = job_agree(j, ok, err) && ranks_alike(&j->ranks, lines, err);
    buf_puts(&j->found.lines, lines);
    identity_free(&rows);
    return ok;
}

/* ---- kept with a checkpoint */
void found_put(Buf *out, const Job *j) {
    buf_printf(out, ",\"looked\":%" PRId64 ",\"found\":", j->c.trainer.seed);
    identity_put(out, &j->found);
}

typedef struct {
    const Job *j;
    const char *checkpoint;
    Identity kept; /* went with the model's folder: what it was is kept */
} Telling;
static void tell(void *user, const char *key, const char *was, const char *is) {
    Telling *t = user;
    Mem mem = { 0 };
    if (!is && t->j->c.from.gone) {
        identity_say(&t->kept, key, "%s", was);
        return;
    }
    run_dir_log(t->j->dir, mem_printf(&mem, "%s is another than when %s was saved (%s -> %s): what follows goes by it",
                                      key, t->checkpoint, was ? was : "none", is ? is : "none"));
    mem_free(&mem);
}

/* Samples were taken at places that the seed of then named. */
bool found_changes(Job *j, const char *checkpoint, const Json *state, Err *err) {
    const Json *was = json_get(state, "found");
    int64_t seed = j->c.trainer.seed;
    Telling t = { .j = j, .checkpoint = checkpoint };
    if (!was) return true; /* of before it was kept */
    TRY(json_int_within(state, "looked", 0, INT64_MAX, &seed, err));
    if (was->kind != JSON_OBJECT) return err_set(err, "\"found\" must be an object, not %s", json_kind_name(was->kind));
    Identity again = { 0 }, weights = { 0 };
    const Identity *now = &j->found;
    bool ok = true;
    if (seed != j->c.trainer.seed) {
        ok = look_at_files(j, (uint64_t)seed, &again, &weights, err);
        keep_reference(j, &again, &weights);
        ok = ok && look_at_rows(j, (uint64_t)seed, &again, err);
        now = &again;
    }
    if (ok) identity_changes(now, was, tell, &t);
    buf_put(&t.kept.lines, j->found.lines.data, j->found.lines.n);
    identity_free(&j->found);
    j->found = t.kept;
    identity_free(&again);
    identity_free(&weights);
    return ok;
}
