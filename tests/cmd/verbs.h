/* verbs.h - for tests that meet `hone` as a user does: verbs run in a folder of their own
 * under /tmp, fed by files, and what they wrote to the two outputs is looked at. */
#ifndef TESTS_CMD_VERBS_H
#define TESTS_CMD_VERBS_H

#include "base/file.h"
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

static char verbs_dir[] = "/tmp/hone-verbs-XXXXXX", verbs_root[1024], verbs_build[1024];

static inline void verbs_open(void) {
    CHECK(mkdtemp(verbs_dir), "no folder under /tmp");
    CHECK(getcwd(verbs_root, sizeof verbs_root) && readlink("/proc/self/exe", verbs_build, sizeof verbs_build - 1) > 0,
          "no paths");
    for (int i = 0; i < 3; i++) *strrchr(verbs_build, '/') = 0; /* build/tests/cmd/this -> build */
}
static inline void verbs_close(void) {
    Mem mem = { 0 };
    EXPECT(!system(mem_printf(&mem, "rm -rf '%s'", verbs_dir)), "%s is still there", verbs_dir);
    mem_free(&mem);
}

static inline const char *verb_path(const char *name) {          /* valid until the next call */
    static char path[2048];
    snprintf(path, sizeof path, "%s/%s", verbs_dir, name);
    return path;
}
static inline void verb_put(const char *name, const char *text) {
    Err err;
    CHECK(file_write(verb_path(name), text, strlen(text), &err), "%s", err.msg);
}
static inline void verb_get(const char *name, Buf *out) {
    Err err = { { 0 } };
    buf_clear(out);
    EXPECT(file_read(out, verb_path(name), &err), "%s", err.msg);
    if (!out->data) buf_puts(out, "");
}

/* `hone VERB ARGS`, the file "in" as its input; ROOT in ARGS is the repository.  The exit
 * code, or -1: it was killed by a signal. */
static inline int verb_run(const char *verb, const char *args, Buf *out, Buf *said) {
    Mem mem = { 0 };
    Buf line = { 0 };
    if (!file_exists(verb_path("in"))) verb_put("in", "");
    for (const char *root; (root = strstr(args, "ROOT")); args = root + 4)
        buf_put(&line, args, (size_t)(root - args)), buf_puts(&line, verbs_root);
    buf_puts(&line, args);
    int rc = system(mem_printf(&mem, "cd '%s' && exec '%s/hone' %s %s <in >stdout 2>stderr", verbs_dir, verbs_build,
                               verb, line.data));
    verb_get("stdout", out);
    verb_get("stderr", said);
    buf_free(&line);
    mem_free(&mem);
    return WIFEXITED(rc) && WEXITSTATUS(rc) < 128 ? WEXITSTATUS(rc) : -1;
}

#endif
