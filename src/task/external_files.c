/* external_files.c - what outside scorers are read from: the one file in Python or the library, and of a command the
 * programs and scripts that its line names.  Which those are is a guess that must never take a log or a data base,
 * which may change, for one of them: a word that is a file, and that can be run or has the ending of a script. */
#include "task/external.h"

#include "base/file.h"
#include "base/hash.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct {
    const char *path;
    struct stat was;
    uint64_t print;
} Seen;

struct ScorerFiles {
    Mem mem;
    VEC(Seen)
    file;
};

static bool is_script(const char *path) {
    static const char *const endings[] = { ".py", ".sh", ".js", ".mjs", ".ts", ".pl", ".rb", ".lua", ".jl", ".R" };
    const char *dot = strrchr(path, '.');
    for (size_t i = 0; dot && i < COUNT(endings); i++)
        if (!strcmp(dot, endings[i])) return true;
    return false;
}

static bool judges(const char *path, struct stat *st) {
    return !stat(path, st) && S_ISREG(st->st_mode) && (is_script(path) || !access(path, X_OK));
}

static bool print_of(const char *path, uint64_t *print) {
    Buf text = { 0 };
    Err err;
    bool ok = file_read(&text, path, &err);
    if (ok) *print = hash_bytes(HASH_START, text.data, text.n);
    buf_free(&text);
    return ok;
}

ScorerFiles *scorer_files(const char *shell_line) {
    static const char between[] = " \t\n;|&()<>{}'\"=`$";
    Mem mem = { 0 };
    ScorerFiles *f = MEM_NEW(&mem, ScorerFiles);
    for (const char *at = shell_line; *(at += strspn(at, between));) {
        size_t n = strcspn(at, between), blanks = 0;
        while (at - blanks > shell_line && at[-1 - (long)blanks] == ' ') blanks++;
        bool written = at - blanks > shell_line && at[-1 - (long)blanks] == '>';
        Seen s = { .path = mem_str(&mem, at, n) };
        if (!written && judges(s.path, &s.was) && print_of(s.path, &s.print)) VEC_PUSH(f->file, s);
        at += n;
    }
    f->mem = mem;
    return f;
}

const char *scorer_files_changed(const ScorerFiles *f) {
    for (size_t i = 0; i < f->file.n; i++) {
        const Seen *s = &f->file.at[i];
        struct stat now;
        uint64_t print;
        if (stat(s->path, &now)) return s->path;
        bool same = now.st_size == s->was.st_size && now.st_mtim.tv_sec == s->was.st_mtim.tv_sec
                    && now.st_mtim.tv_nsec == s->was.st_mtim.tv_nsec && now.st_ino == s->was.st_ino;
        if (!same && (!print_of(s->path, &print) || print != s->print)) return s->path;
    }
    return NULL;
}

void scorer_files_close(ScorerFiles *f) {
    if (!f) return;
    vec_free(f->file.at);
    Mem mem = f->mem;
    mem_free(&mem);
}

bool scorer_text(const RewardOptions *o, Buf *out, Err *err) {
    if (o->python || o->library) return file_read(out, o->python ? o->python : o->library, err);
    if (!o->command) return true;
    ScorerFiles *f = scorer_files(o->command);
    Buf one = { 0 };
    bool ok = true;
    for (size_t i = 0; ok && i < f->file.n; i++) {
        ok = file_read(&one, f->file.at[i].path, err);
        buf_put(out, one.data ? one.data : "", one.n);
    }
    buf_free(&one);
    scorer_files_close(f);
    return ok;
}
