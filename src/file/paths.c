/* paths.c - names of files from patterns and folders. */
#include "file/paths.h"
#include "base/file.h"

#include <glob.h>
#include <string.h>
#include <unistd.h>

typedef VEC(const char *) Names;

static bool add(Names *names, Mem *mem, const char *path, Err *err) {
    if (strcmp(path, "-") && (dir_exists(path) || access(path, F_OK))) /* pipes and devices are files too */
        return err_set(err, "%s: %s", path,
                       dir_exists(path) ? "is a folder; name its files, e.g. by a pattern" : "there is no such file");
    for (size_t i = 0; i < names->n; i++)
        if (!strcmp(names->at[i], path)) return err_set(err, "%s: named twice", path);
    VEC_PUSH(*names, mem_str(mem, path, strlen(path)));
    return true;
}

static bool add_pattern(Names *names, Mem *mem, const char *pattern, Err *err) {
    glob_t g = { 0 };
    int rc = glob(pattern, 0, NULL, &g);
    bool ok = rc == 0
              || err_set(err, "%s: %s", pattern,
                         rc == GLOB_NOMATCH ? "no file matches this pattern" : "the folder cannot be read");
    for (size_t i = 0; ok && i < g.gl_pathc; i++) ok = add(names, mem, g.gl_pathv[i], err);
    globfree(&g);
    return ok;
}

bool paths_expand(Mem *mem, const char *const *given, int n, const char *const **out, int *n_out, Err *err) {
    Names names = { 0 };
    bool ok = true;
    for (int i = 0; ok && i < n; i++) {
        bool pattern = strpbrk(given[i], "*?[") && !file_exists(given[i]);
        ok = pattern ? add_pattern(&names, mem, given[i], err) : add(&names, mem, given[i], err);
    }
    if (ok && !names.n) ok = err_set(err, "no data file is given");
    if (ok) {
        *out = mem_copy(mem, names.at, names.n * sizeof *names.at);
        *n_out = (int)names.n;
    }
    vec_free(names.at);
    return ok;
}
