/* test_file.c - files at their ends: empty, a pipe, a folder in the way, a disk that is full; what a killed writer left
 * is swept away, what a living one holds is not; links that others left; lines of any length. */
#include "base/file.h"
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[] = "/tmp/hone-test-file-XXXXXX";

static const char *in(const char *name) {
    static char path[4][300];
    static int at;
    at = (at + 1) % 4;
    snprintf(path[at], sizeof path[at], "%s/%s", dir, name);
    return path[at];
}

static void put(const char *name, const char *text) {
    int fd = open(in(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    CHECK(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text), "no file for tests");
    close(fd);
}

static bool there(const char *name) { return !access(in(name), F_OK); }

static void written(void) {
    Err err;
    Buf b = { 0 };
    EXPECT(file_write(in("a"), "", 0, &err) && file_read(&b, in("a"), &err) && b.n == 0, "an empty file");
    EXPECT(file_write(in("a"), "x\0y", 3, &err) && file_read(&b, in("a"), &err) && b.n == 3
               && !memcmp(b.data, "x\0y", 4),
           "replaced, with a zero byte in it");
    EXPECT(!mkdir(in("folder"), 0755) && !file_write(in("folder"), "x", 1, &err) && strstr(err.msg, "/folder"), "%s",
           err.msg);
    EXPECT(!file_write(in("no/such"), "x", 1, &err) && strstr(err.msg, "/no/such"), "%s", err.msg);
    EXPECT(!file_read(&b, in("nowhere"), &err) && strstr(err.msg, "nowhere"), "%s", err.msg);
    EXPECT(!file_read(&b, in("folder"), &err), "a folder is not read");
    EXPECT(dir_make(in("x/y/z"), &err) && dir_exists(in("x/y/z")) && dir_make(in("x/y/z/"), &err), "%s", err.msg);
    EXPECT(!dir_make(in("a/b"), &err), "a folder below a file");
    FileMap m;
    put("empty", "");
    EXPECT(file_map(&m, in("empty"), &err) && !m.data && !m.n, "an empty map");
    file_unmap(&m);
    EXPECT(!file_map(&m, in("folder"), &err), "a folder is not mapped");
    buf_free(&b);
}

/* What a kill leaves beside a file or a folder goes when the next writer of the same name comes. */
static void swept(void) {
    Err err;
    Buf name = { 0 };
    put("m.tmp-999999", "left"), put("m.tmp.12", "left"), put("m.tmp-", "not ours"), put("m.tmp-12x", "not ours"),
        put("mm.tmp-12", "another's");
    mkdir(in("m.tmp-7"), 0755), put("m.tmp-7/model.safetensors", "left"), put("m.tmp-7/x.tmp.7", "left");
    mkdir(in("m.tmp-8"), 0755), mkdir(in("m.tmp-8/folder"), 0755);
    int held = open(in("m.tmp-5"), O_RDWR | O_CREAT, 0644);
    CHECK(held >= 0 && !flock(held, LOCK_EX), "no lock for tests");
    EXPECT(file_write(in("m"), "new", 3, &err), "%s", err.msg);
    EXPECT(!there("m.tmp-999999") && !there("m.tmp.12") && !there("m.tmp-7"), "what was left is still there");
    EXPECT(there("m.tmp-") && there("m.tmp-12x") && there("mm.tmp-12"), "what has another name is gone");
    EXPECT(there("m.tmp-5"), "what is held is gone");
    EXPECT(there("m.tmp-8/folder"), "a folder with folders in it was not made here");
    close(held);
    int fd = dir_beside(&name, in("m"));
    EXPECT(fd >= 0 && dir_exists(name.data), "%s", strerror(errno));
    EXPECT(!there("m.tmp-5"), "held no longer, and still there");
    int other =
        file_beside(&name, in("m")); /* the same process, as another container's with the same number would be */
    EXPECT(other >= 0 && file_exists(name.data) && there("m"), "%s", strerror(errno));
    close(fd), close(other);
    fd = dir_beside(&name, in("m"));
    EXPECT(fd >= 0 && !rmdir(name.data), "a stale one with our own number was not emptied");
    close(fd);

    pid_t child = fork(); /* a writer that is killed at work */
    if (!child) {
        fd = dir_beside(&name, in("k"));
        if (fd >= 0) kill(getpid(), SIGKILL);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    char left[64];
    snprintf(left, sizeof left, "k.tmp-%ld", (long)child);
    EXPECT(WIFSIGNALED(status) && there(left), "the writer left nothing");
    EXPECT(file_write(in("k"), "new", 3, &err) && !there(left), "what the kill left is still there");
    buf_free(&name);
}

static bool holds(const char *name, const char *text) {
    Buf b = { 0 };
    Err err;
    bool same = file_read(&b, in(name), &err) && b.n == strlen(text) && !memcmp(b.data, text, b.n);
    buf_free(&b);
    return same;
}

/* Whoever guesses the number leaves links under the names that come next: nothing is written behind them. */
static void links(void) {
    Err err;
    struct stat st;
    char name[64];
    put("theirs", "precious");
    mkdir(in("their folder"), 0755), put("their folder/x", "precious");
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "g.tmp-%ld", (long)getpid() + i);
        EXPECT(!symlink(in("theirs"), in(name)), "no link for tests");
        snprintf(name, sizeof name, "h.tmp-%ld", (long)getpid() + i);
        EXPECT(!symlink(in("their folder"), in(name)), "no link for tests");
    }
    EXPECT(file_write(in("g"), "new", 3, &err) && holds("g", "new"), "beside links: %s", err.msg);
    EXPECT(!lstat(in("g"), &st) && S_ISREG(st.st_mode) && holds("theirs", "precious"), "written through a link");
    Buf beside = { 0 };
    int fd = dir_beside(&beside, in("h"));
    EXPECT(fd >= 0 && !lstat(beside.data, &st) && S_ISDIR(st.st_mode), "%s is a link's folder", beside.data);
    close(fd);
    buf_free(&beside);

    EXPECT(!symlink(in("their folder"), in("moved")), "no link for tests");
    tree_remove(in("moved"));
    EXPECT(lstat(in("moved"), &st) && holds("their folder/x", "precious"), "what a link leads to is removed");
    mkdir(in("tree"), 0755), mkdir(in("tree/sub"), 0755), put("tree/sub/y", "");
    EXPECT(!symlink(in("their folder"), in("tree/sub/away")), "no link for tests");
    tree_remove(in("tree"));
    EXPECT(!there("tree") && holds("their folder/x", "precious"), "a tree with a link in it");
}

static void read_lines(void) {
    Err err;
    const char *line;
    size_t n, lines = 0, bytes = 0;
    Buf b = { 0 };
    for (int i = 0; i < 300000; i++) buf_putc(&b, i % 100000 == 99999 ? '\n' : 'x');
    buf_puts(&b, "last\r");
    EXPECT(file_write(in("lines"), b.data, b.n, &err), "%s", err.msg);
    LineReader *r = lines_open(in("lines"), &err);
    while (lines_next(r, &line, &n)) lines++, bytes += n;
    EXPECT(lines_close(r, &err) && lines == 4 && bytes == 3 * 99999 + 4, "%zu lines, %zu bytes", lines, bytes);
    r = lines_open(in("empty"), &err);
    EXPECT(r && !lines_next(r, &line, &n) && lines_close(r, &err), "an empty file has no lines");
    r = lines_open(in("folder"), &err);
    EXPECT(r && !lines_next(r, &line, &n) && !lines_close(r, &err) && strstr(err.msg, "folder"), "%s", err.msg);
    buf_free(&b);
}

int main(void) {
    CHECK(mkdtemp(dir), "no folder for tests");
    written();
    swept();
    links();
    read_lines();
    Err err;
    EXPECT(!file_write("/dev/full/x", "x", 1, &err), "below a device");
    char command[400];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (system(command)) test_failed++;
    return test_end();
}
