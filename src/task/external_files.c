/* external_files.c - the programs and scripts of a command, and whether one of them has changed. */
#include "task/external.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/shell_files.h"

#include <sys/stat.h>

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

static bool print_of(const char *path, uint64_t *print) {
    Buf text = { 0 };
    Err err;
    bool ok = file_read(&text, path, &err);
    if (ok) *print = hash_bytes(HASH_START, text.data, text.n);
    buf_free(&text);
    return ok;
}

ScorerFiles *scorer_files(const char *shell_line) {
    Mem mem = { 0 };
    ScorerFiles *f = MEM_NEW(&mem, ScorerFiles);
    const char *const *path;
    int n = shell_files(&path, shell_line, &mem);
    for (int i = 0; i < n; i++) {
        Seen s = { .path = path[i] };
        if (!stat(s.path, &s.was) && print_of(s.path, &s.print)) VEC_PUSH(f->file, s);
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
