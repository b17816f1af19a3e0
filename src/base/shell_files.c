/* shell_files.c - the words of a shell line that are programs or scripts, by their endings, their rights and what
 * stands before them.  Nothing of a shell is known here but what parts words, and >. */
#include "base/shell_files.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_script(const char *word) {
    static const char *const endings[] = { ".py", ".sh", ".bash", ".zsh", ".js",  ".mjs", ".cjs", ".ts",
                                           ".pl", ".rb", ".lua",  ".jl",  ".awk", ".jq",  ".php", ".R" };
    const char *dot = strrchr(word, '.');
    for (size_t i = 0; dot && i < COUNT(endings); i++)
        if (!strcmp(dot, endings[i])) return true;
    return false;
}

/* python3.11 is one by its beginning. */
static bool is_interpreter(const char *word) {
    static const char *const names[] = { "sh",   "bash", "dash", "zsh", "ksh",   "busybox", ".",   "source", "perl",
                                         "ruby", "node", "deno", "bun", "julia", "Rscript", "php", "pypy3" };
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
    for (size_t i = 0; i < COUNT(names); i++)
        if (!strcmp(name, names[i])) return true;
    size_t n = strncmp(name, "python", 6) && strncmp(name, "lua", 3) ? 0 : name[0] == 'p' ? 6 : 3;
    return n && !name[n + strspn(name + n, "0123456789.")];
}

static bool is_file(const char *path) {
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

static bool is_among(const char *word, const char *const *list, int n) {
    for (int i = 0; i < n; i++)
        if (!strcmp(word, list[i])) return true;
    return false;
}

int shell_files(const char *const **out, const char *line, Mem *mem) {
    static const char between[] = " \t\n;|&()<>{}'\"=`$";
    const char **found = MEM_ARRAY(mem, const char *, strlen(line) / 2 + 1);
    bool run = false; /* an interpreter and its options came last */
    int n_found = 0;
    for (const char *at = line, *was = line; *(at += strspn(at, between)); was = at) {
        const char *gap = at;
        while (gap > was && strchr(" \t", gap[-1])) gap--;
        bool written = gap > was && gap[-1] == '>';
        for (const char *c = was; c < at; c++) run = run && !strchr("\n;|&()", *c);
        size_t n = strcspn(at, between);
        const char *word = mem_str(mem, at, n);
        bool named = is_script(word) || run || !access(word, X_OK);
        if (!written && named && is_file(word) && !is_among(word, found, n_found)) found[n_found++] = word;
        run = is_interpreter(word) || (run && *word == '-');
        at += n;
    }
    *out = found;
    return n_found;
}
