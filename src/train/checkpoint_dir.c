/* checkpoint_dir.c - names and manifests: what makes a folder a checkpoint, and what is done about one that is none. */
#include "train/checkpoint_dir.h"
#include "base/file.h"
#include "param/convert.h"
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static bool begins(const char *s, const char *with) { return !strncmp(s, with, strlen(with)); }
static bool ends(const char *s, const char *with) {
    size_t n = strlen(s), m = strlen(with);
    return n >= m && !strcmp(s + n - m, with);
}

/* A further member is a row here, and a Member of whoever saves. */
static const struct {
    const char *folder, *weights, *averages;
} members[MEMBERS] = {
    [MEMBER_MODEL] = { "model", "model", "optimizer.safetensors" },
    [MEMBER_ADAPTER] = { "adapter", "adapter/adapter_model.safetensors", "adapter_optimizer.safetensors" },
};
const char *member_folder(MemberKind k) { return members[k].folder; }
const char *member_weights(MemberKind k) { return members[k].weights; }
const char *member_averages(MemberKind k) { return members[k].averages; }

static const char *const prefix[] = { "", ".writing-", ".old-" };

void checkpoint_path(Buf *out, const char *run_dir, int64_t step, Place at) {
    buf_clear(out);
    buf_printf(out, "%s/checkpoints/%sstep-%06" PRId64, run_dir, prefix[at], step);
}

static void folder_path(Buf *out, const char *run_dir) {
    buf_clear(out);
    buf_printf(out, "%s/checkpoints", run_dir);
}

/* ---- manifests */
/* Weights that are no numbers: a run that diverged wrote them down.  Called with a file's bytes from the first one on,
 * in pieces of whole words; *skip: bytes of the header that are not passed yet. */
static bool all_finite(const char *piece, size_t n, int64_t *skip) {
    size_t from = *skip < (int64_t)n ? (size_t)*skip : n;
    *skip -= (int64_t)from;
    return convert_not_finite(piece + from, DT_F32, (int64_t)((n - from) / 4)) < 0;
}

bool checkpoint_diverged(const char *name, const char *what, Err *err) {
    return err_set(err, "%s has %s that are no finite numbers: the run had diverged", name, what);
}

/* Bytes before the weights of a safetensors file; all of it where they do not lie on whole words, as ours do. */
static int64_t header_bytes(const char *piece, size_t n) {
    uint64_t x;
    if (n < 8) return INT64_MAX;
    memcpy(&x, piece, 8);
    return x > INT64_MAX / 2 || x % 4 ? INT64_MAX : (int64_t)x + 8;
}

/* By reading, not by mapping: the pages of a mapped file count as this process's memory.  most: so many bytes, all of
 * it at most.  finite: NULL, or whether the weights in it are. */
static bool checksum(const char *path, int64_t most, uint32_t *crc, int64_t *bytes, bool *finite, Err *err) {
    _Alignas(8) char piece[1 << 16];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return err_set(err, "%s: cannot open: %s", path, strerror(errno));
    uLong c = crc32(0, NULL, 0);
    ssize_t got = 1;
    int64_t skip = 0;
    *bytes = 0;
    if (finite) *finite = true;
    while (got > 0) {
        size_t n = 0; /* whole pieces, so that no word lies in two */
        size_t room = most - *bytes < (int64_t)sizeof piece ? (size_t)(most - *bytes) : sizeof piece;
        if (!room) got = 0;
        while (n < room && got > 0) {
            got = read(fd, piece + n, room - n);
            if (got < 0 && errno == EINTR) got = 1;
            else if (got > 0) n += (size_t)got;
        }
        c = crc32(c, (const Bytef *)piece, (uInt)n);
        if (finite && !*bytes) skip = header_bytes(piece, n);
        if (finite && *finite) *finite = all_finite(piece, n, &skip);
        *bytes += (int64_t)n;
    }
    bool ok = got == 0 || err_set(err, "%s: cannot read: %s", path, strerror(errno));
    *crc = (uint32_t)c;
    close(fd);
    return ok;
}

static const SumFile *counted(const Sums *s, const char *name) {
    for (size_t i = 0; i < s->file.n; i++)
        if (!strcmp(s->file.at[i].name, name)) return &s->file.at[i];
    return NULL;
}

static bool put_pieces(Buf *out, const Sums *s, const SumFile *f, Err *err) {
    uint32_t crc;
    if (!sums_whole(s, (size_t)(f - s->file.at), &crc))
        return err_set(err, "%s: the ranks have not written all of it", f->name);
    buf_printf(out, ":{\"bytes\":%" PRId64 ",\"crc32\":%" PRIu32 ",\"pieces\":[", f->bytes, crc);
    for (size_t i = 0; i < f->n; i++) {
        const SumPiece *p = &s->piece.at[f->first + i];
        buf_printf(out, "%s{\"offset\":%" PRId64 ",\"bytes\":%" PRId64 ",\"crc32\":%" PRIu32 "}", i ? "," : "", p->at,
                   p->bytes, p->crc);
    }
    buf_puts(out, "]}");
    return true;
}

/* Files below dir by their paths relative to the checkpoint.  A name that begins with a dot is none of the
 * checkpoint's. */
static bool list_files(Buf *out, const char *root, const char *sub, const Sums *sums, Err *err) {
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
        const SumFile *f = counted(sums, rel.data);
        if (ok && name[0] != '.') {
            uint32_t crc;
            int64_t bytes;
            if (!f && dir_exists(full.data)) ok = list_files(out, root, rel.data, sums, err);
            else if (f || (ok = checksum(full.data, INT64_MAX, &crc, &bytes, NULL, err))) {
                if (out->data[out->n - 1] != '{') buf_putc(out, ',');
                json_put_str(out, rel.data, rel.n);
                if (f) ok = put_pieces(out, sums, f, err);
                else buf_printf(out, ":{\"bytes\":%" PRId64 ",\"crc32\":%" PRIu32 "}", bytes, crc);
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

bool manifest_write(const char *dir, int64_t step, const Sums *sums, Err *err) {
    Buf text = { 0 }, path = { 0 };
    buf_printf(&path, "%s/manifest.json", dir);
    buf_printf(&text, "{\"step\":%" PRId64 ",\"files\":{", step);
    bool ok = list_files(&text, dir, "", sums, err);
    buf_puts(&text, "}}\n");
    ok = ok && file_write(path.data, text.data, text.n, err);
    buf_free(&text);
    buf_free(&path);
    return ok;
}

static bool read_json(Json *out, const char *dir, const char *name, Mem *mem, Err *err) {
    Buf path = { 0 }, text = { 0 };
    buf_printf(&path, "%s/%s", dir, name);
    bool ok = file_read(&text, path.data, err);
    if (ok && !json_parse(out, text.data, text.n, mem, err)) ok = err_wrap(err, "%s", path.data);
    buf_free(&path);
    buf_free(&text);
    return ok;
}

/* The files of a manifest; whoever edited it. */
static bool read_manifest(const Json **files, const char *dir, Json *manifest, Mem *mem, Err *err) {
    TRY(read_json(manifest, dir, "manifest.json", mem, err));
    *files = json_get(manifest, "files");
    return (*files && (*files)->kind == JSON_OBJECT && (*files)->n) || err_set(err, "manifest.json lists no files");
}

/* One behind the other, from the file's first byte to its last. */
static bool read_pieces(Sums *out, const char *name, const Json *file, Err *err) {
    const Json *all = json_get(file, "pieces");
    SumFile f = { .name = name, .first = out->piece.n };
    bool ok = all->kind == JSON_ARRAY && json_int_within(file, "bytes", 0, INT64_MAX, &f.bytes, err);
    int64_t at = 0;
    for (size_t i = 0; ok && i < all->n; i++) {
        SumPiece p = { 0 };
        int64_t crc;
        ok = all->items[i].kind == JSON_OBJECT && json_int_within(&all->items[i], "offset", at, at, &p.at, err)
             && json_int_within(&all->items[i], "bytes", 0, f.bytes - at, &p.bytes, err)
             && json_int_within(&all->items[i], "crc32", 0, UINT32_MAX, &crc, err);
        if (!ok) break;
        p.want = (uint32_t)crc, at += p.bytes;
        VEC_PUSH(out->piece, p);
        f.n++;
    }
    if (!ok || at != f.bytes || !f.n)
        return err_set(err, "manifest.json: the pieces of %s are not the whole file, one behind the other", name);
    VEC_PUSH(out->file, f);
    return true;
}

/* Is it of this version's form?  Files that begin a member's averages count as its own. */
static bool known(const char *name) {
    if (!strcmp(name, "state.json")) return true;
    for (int k = 0; k < MEMBERS; k++) {
        size_t folder = strlen(members[k].folder), stem = strlen(members[k].averages) - strlen(".safetensors");
        if (!strncmp(name, members[k].folder, folder) && name[folder] == '/') return true;
        if (!strncmp(name, members[k].averages, stem) && (name[stem] == '.' || name[stem] == '-')) return true;
    }
    return false;
}

bool checkpoint_unknown(const char *path, Buf *names) {
    Mem mem = { 0 };
    Json manifest;
    const Json *files;
    Err none;
    bool any = false, read = read_manifest(&files, path, &manifest, &mem, &none);
    for (size_t i = 0; read && i < files->n; i++) {
        const char *name = files->members[i].key, *slash = strchr(name, '/');
        int n = slash ? (int)(slash - name) + 1 : (int)strlen(name);
        char one[256];
        snprintf(one, sizeof one, "%s%.*s", any ? ", " : "", n > 200 ? 200 : n, name);
        if (known(name) || (names->data && strstr(names->data, one + (any ? 2 : 0)))) continue;
        buf_puts(names, one);
        any = true;
    }
    mem_free(&mem);
    return any;
}

bool manifest_sums(const char *dir, Sums *out, Mem *mem, Err *err) {
    Json manifest;
    const Json *files;
    bool ok = read_manifest(&files, dir, &manifest, mem, err);
    *out = (Sums){ 0 };
    for (size_t i = 0; ok && i < files->n; i++)
        if (json_get(&files->members[i].value, "pieces"))
            ok = read_pieces(out, files->members[i].key, &files->members[i].value, err);
    if (!ok) sums_free(out);
    return ok;
}

static bool size_is(const char *path, const char *name, int64_t want, Err *err) {
    struct stat st;
    if (stat(path, &st)) return err_set(err, "%s: cannot open: %s", path, strerror(errno));
    return st.st_size == want
           || err_set(err, "%s is damaged (it has %lld bytes, not %lld)", name, (long long)st.st_size, (long long)want);
}

static bool in_folder(const char *name) {
    for (int k = 0; k < MEMBERS; k++)
        if (begins(name, members[k].folder) && name[strlen(members[k].folder)] == '/') return true;
    return false;
}

/* Files that have pieces are large: of these the header, and the rest where it is asked for. */
static bool file_holds(const char *dir, const char *name, const Json *file, Look look, Err *err) {
    int64_t bytes = -1, crc = -1, most = INT64_MAX, got;
    uint32_t sum;
    bool in_model = in_folder(name), weights = ends(name, ".safetensors") && in_model, finite = true;
    TRY(json_int(file, "bytes", &bytes, err) && json_int(file, "crc32", &crc, err));
    Sums s = { 0 };
    bool pieces = json_get(file, "pieces") != NULL, ok = !pieces || read_pieces(&s, name, file, err);
    if (ok && pieces && (look == LOOK_SIZES || (look == LOOK_MODEL && !in_model)))
        most = s.piece.at[0].bytes, crc = s.piece.at[0].want;
    sums_free(&s);
    Buf path = { 0 };
    buf_printf(&path, "%s/%s", dir, name);
    ok = ok && size_is(path.data, name, bytes, err)
         && checksum(path.data, most, &sum, &got, weights && most == INT64_MAX ? &finite : NULL, err);
    if (ok && (int64_t)sum != crc) ok = err_set(err, "%s is damaged (its checksum is another)", name);
    else if (ok && !finite) ok = checkpoint_diverged(name, "weights", err);
    buf_free(&path);
    return ok;
}

bool manifest_holds(const char *dir, Look look, Err *err) {
    Mem mem = { 0 };
    Json manifest;
    const Json *files;
    bool ok = read_manifest(&files, dir, &manifest, &mem, err);
    for (size_t i = 0; ok && i < files->n; i++)
        ok = file_holds(dir, files->members[i].key, &files->members[i].value, look, err);
    mem_free(&mem);
    return ok;
}

bool checkpoint_state(const char *path, Json *state, Mem *mem, Err *err) {
    return read_json(state, path, "state.json", mem, err);
}

/* ---- which there are */
typedef VEC(int64_t) Steps;

/* The step that a folder's name says, exactly as checkpoint_path writes it; -1: it is none of
 * ours ("step--3", "step-7"). */
static int64_t step_named(const char *name) {
    char same[40];
    int64_t step;
    if (sscanf(name, "step-%18" SCNd64, &step) != 1 || step < 0) return -1;
    snprintf(same, sizeof same, "step-%06" PRId64, step);
    return strcmp(name, same) ? -1 : step;
}

/* Rising; those too that a kill left moved out of the way. */
static Steps steps_of(const char *run_dir) {
    Steps s = { 0 };
    Buf dir = { 0 };
    folder_path(&dir, run_dir);
    DIR *d = opendir(dir.data);
    buf_free(&dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t skip = begins(e->d_name, prefix[PLACE_OLD]) ? strlen(prefix[PLACE_OLD]) : 0;
        int64_t step = step_named(e->d_name + skip);
        if (step < 0) continue;
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

/* What has members that nobody here knows stays: later ones do not have them.
 * One of a later step was passed over as damaged when this run went on: it does not count, or
 * a good one would go for it. */
void checkpoint_prune(const char *run_dir, int64_t step, int keep) {
    Buf path = { 0 };
    Steps s = steps_of(run_dir);
    while (s.n && s.at[s.n - 1] > step) s.n--;
    for (size_t i = 0; i + (size_t)keep < s.n; i++) {
        Buf names = { 0 };
        checkpoint_path(&path, run_dir, s.at[i], PLACE_WHOLE);
        if (!checkpoint_unknown(path.data, &names)) tree_remove(path.data);
        buf_free(&names);
    }
    vec_free(s.at);
    buf_free(&path);
}

/* One of the same step may be there (damaged and passed over, or of a run that is continued at its end): there is no
 * moment with neither, since checkpoint_find knows the name that it has meanwhile. */
bool checkpoint_into_place(const char *run_dir, int64_t step, Err *err) {
    Buf tmp = { 0 }, path = { 0 }, aside = { 0 }, dir = { 0 };
    checkpoint_path(&tmp, run_dir, step, PLACE_WRITING);
    checkpoint_path(&path, run_dir, step, PLACE_WHOLE);
    checkpoint_path(&aside, run_dir, step, PLACE_OLD);
    folder_path(&dir, run_dir);
    bool ok = dir_take_place(tmp.data, path.data, aside.data, err);
    if (ok) tree_remove(tmp.data), tree_remove(aside.data);
    ok = ok && dir_sync(dir.data, err);
    buf_free(&tmp);
    buf_free(&path);
    buf_free(&aside);
    buf_free(&dir);
    return ok;
}

/* A half written one goes; one that was moved out of the way comes back unless its place is taken. */
void checkpoint_tidy(const char *run_dir) {
    Buf path = { 0 }, place = { 0 };
    folder_path(&path, run_dir);
    DIR *d = opendir(path.data);
    for (struct dirent *e; d && (e = readdir(d));) {
        bool half = begins(e->d_name, prefix[PLACE_WRITING]), old = begins(e->d_name, prefix[PLACE_OLD]);
        size_t skip = strlen(prefix[half ? PLACE_WRITING : PLACE_OLD]);
        if ((!half && !old) || step_named(e->d_name + skip) < 0) continue;
        folder_path(&path, run_dir), folder_path(&place, run_dir);
        buf_printf(&path, "/%s", e->d_name);
        buf_printf(&place, "/%s", e->d_name + skip);
        if (half || dir_exists(place.data)) tree_remove(path.data);
        else rename(path.data, place.data); /* where that fails it stays, and checkpoint_find knows it */
    }
    if (d) closedir(d);
    buf_free(&path);
    buf_free(&place);
}

void checkpoint_newest(const char *run_dir, Look look, int64_t below, const char **path, int64_t *step, int *bad,
                       Mem *mem) {
    Buf b = { 0 };
    *path = NULL;
    Steps s = steps_of(run_dir);
    for (size_t i = s.n; i-- > 0 && !*path;) {
        if (s.at[i] >= below) continue;
        checkpoint_path(&b, run_dir, s.at[i], PLACE_WHOLE);
        if (!dir_exists(b.data)) checkpoint_path(&b, run_dir, s.at[i], PLACE_OLD);
        Err why;
        if (manifest_holds(b.data, look, &why)) *path = mem_str(mem, b.data, b.n), *step = s.at[i];
        else checkpoint_pass_over(b.data, &why), ++*bad;
    }
    vec_free(s.at);
    buf_free(&b);
}

void checkpoint_pass_over(const char *path, const Err *why) {
    fprintf(stderr, "hone: %s is passed over: %s\n", path, why->msg);
}

bool checkpoint_all_bad(const char *run_dir, int bad, Err *err) {
    return err_set(err, "%s: all %d checkpoints are damaged; start again in another folder, or restore one", run_dir,
                   bad);
}

bool checkpoint_find(const char *run_dir, Look look, const char **path, int64_t *step, Mem *mem, Err *err) {
    int bad = 0;
    checkpoint_newest(run_dir, look, INT64_MAX, path, step, &bad, mem);
    return *path || !bad || checkpoint_all_bad(run_dir, bad, err);
}

const char *checkpoint_model(const char *run_dir, Mem *mem) {
    Buf b = { 0 };
    Steps s = steps_of(run_dir);
    const char *found = NULL;
    for (size_t i = s.n; i-- > 0 && !found;)
        for (Place at = PLACE_WHOLE; at <= PLACE_OLD && !found; at++) {
            if (at == PLACE_WRITING) continue;
            checkpoint_path(&b, run_dir, s.at[i], at);
            const char *model = mem_printf(mem, "%s/model", b.data);
            if (file_exists(mem_printf(mem, "%s/config.json", model))) found = model;
        }
    vec_free(s.at);
    buf_free(&b);
    return found;
}

bool checkpoint_at(const char *run_dir, int64_t step, Look look, const char **path, Mem *mem, Err *err) {
    Buf b = { 0 }, there = { 0 };
    Steps s = steps_of(run_dir);
    bool ok = false, found = false;
    for (size_t i = 0; i < s.n; i++) {
        buf_printf(&there, "%s%lld", i ? ", " : "", (long long)s.at[i]);
        found |= s.at[i] == step;
    }
    if (found) {
        checkpoint_path(&b, run_dir, step, PLACE_WHOLE);
        if (!dir_exists(b.data)) checkpoint_path(&b, run_dir, step, PLACE_OLD);
        ok = manifest_holds(b.data, look, err) || err_wrap(err, "%s is damaged", b.data);
        if (ok) *path = mem_str(mem, b.data, b.n);
    } else
        err_set(err, "%s holds no checkpoint of step %lld; there are %s (trainer.keep says how many stay)", run_dir,
                (long long)step, there.n ? there.data : "none");
    vec_free(s.at);
    buf_free(&b);
    buf_free(&there);
    return ok;
}
