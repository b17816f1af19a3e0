/* test_shell_files.c - which files a shell line is made of: what judges, and nothing that may change under it. */
#include "base/file.h"
#include "base/shell_files.h"
#include "test.h"

#include <sys/stat.h>
#include <unistd.h>

static char dir[] = "/tmp/hone-test-shell-files-XXXXXX";

static void put(const char *name, mode_t mode) {
    Err err;
    CHECK(file_write(name, "x\n", 2, &err), "%s", err.msg);
    CHECK(!chmod(name, mode), "%s", name);
}

static void expect(const char *line, const char *want) {
    Mem mem = { 0 };
    Buf got = { 0 };
    const char *const *file;
    int n = shell_files(&file, line, &mem);
    for (int i = 0; i < n; i++) buf_printf(&got, "%s%s", i ? " " : "", file[i]);
    EXPECT(!strcmp(got.n ? got.data : "", want), "%s:\n got  %s\n want %s", line, got.n ? got.data : "", want);
    buf_free(&got);
    mem_free(&mem);
}

int main(void) {
    CHECK(mkdtemp(dir) && !chdir(dir), "%s", dir);
    const char *const plain[] = { "judge", "run.log", "answers.json", "s.py", "t.sh", "u.py" };
    for (size_t i = 0; i < COUNT(plain); i++) put(plain[i], 0600);
    put("tool", 0700);
    CHECK(!mkdir("d.py", 0700) && !mkdir("bin", 0700), "%s", dir);
    put("bin/python3", 0700);

    expect("", "");
    expect("python3 s.py answers.json", "s.py");
    expect("python3 -u s.py --log run.log", "s.py");
    expect("./tool run.log", "./tool");
    expect("exec bin/python3 -u judge run.log", "bin/python3 judge");
    expect("python3.11 judge", "judge");
    expect("pythonic judge", "");
    expect("cat judge | sh t.sh", "t.sh");
    expect("cat | bash ./judge", "./judge");
    expect("bash<judge", "judge");
    expect("(. ./judge; cat run.log)", "./judge");
    expect("sh -c '. ./t.sh && python3 s.py'", "./t.sh s.py");
    expect("X=s.py sh \"$X\"", "s.py");
    expect("sh t.sh && sh t.sh", "t.sh");
    expect("sh t.sh >s.py 2>> u.py", "t.sh");
    expect("sh t.sh > s.py", "t.sh");
    expect("sh; judge", "");
    expect("python3 d.py nowhere.py", "");
    expect(">", "");
    expect("s.py", "s.py");

    const char *const all[] = { "judge", "run.log", "answers.json", "s.py", "t.sh", "u.py", "tool", "bin/python3" };
    for (size_t i = 0; i < COUNT(all); i++) unlink(all[i]);
    rmdir("bin"), rmdir("d.py"), rmdir(dir);
    return test_end();
}
