/* test_tensorboard.c - the checksum's published value, and that every record of a file checks. */
#include "base/file.h"
#include "run/tensorboard.h"
#include "test.h"

#include <dirent.h>
#include <unistd.h>

static uint64_t le(const char *p, int n) {
    uint64_t x = 0;
    for (int i = 0; i < n; i++) x |= (uint64_t)(uint8_t)p[i] << 8 * i;
    return x;
}

static uint32_t unmask(uint32_t x) {
    x -= 0xA282EAD8u;
    return x >> 17 | x << 15;
}

static void check_file(const char *path, int want) {
    Buf b = { 0 };
    Err err = { { 0 } };
    EXPECT(file_read(&b, path, &err), "%s", err.msg);
    int records = 0, wrong = 0;
    size_t at = 0;
    while (at + 12 <= b.n) {
        uint64_t n = le(b.data + at, 8);
        wrong += unmask((uint32_t)le(b.data + at + 8, 4)) != crc32c(b.data + at, 8);
        if (n > b.n - at - 16) break;
        wrong += unmask((uint32_t)le(b.data + at + 12 + n, 4)) != crc32c(b.data + at + 12, n);
        if (records == 0) EXPECT(memmem(b.data + at, 12 + n, "brain.Event:2", 13), "the first record is the version");
        at += 16 + n, records++;
    }
    EXPECT(at == b.n && records == want && !wrong, "%d records, %d checksums wrong, %zu of %zu bytes", records, wrong,
           at, b.n);
    EXPECT(memmem(b.data, b.n, "actor/lr", 8), "a tag is there");
    buf_free(&b);
}

/* The newest file is the last by its name, also when the clock of the one before was ahead, and in the same second. */
static void in_order(void) {
    char dir[] = "/tmp/hone-tb-XXXXXX", path[512], newest[256] = "events.out.tfevents.4000000000.a.1";
    EXPECT(mkdtemp(dir), "mkdtemp");
    snprintf(path, sizeof path, "%s/%s", dir, newest);
    fclose(fopen(path, "w"));
    snprintf(path, sizeof path, "%s/events.out.tfevents.77777777777.a.1", dir); /* nobody's: it has a digit more */
    fclose(fopen(path, "w"));
    for (int i = 0; i < 3; i++) {
        Err err = { { 0 } };
        TbWriter *w = tb_open(dir, 1, &err);
        EXPECT(w && tb_close(w, &err), "%s", err.msg);
        char found[256] = "", want[32];
        DIR *d = opendir(dir);
        for (struct dirent *e; d && (e = readdir(d));)
            if (!strncmp(e->d_name, "events.", 7) && e->d_name[20] != '7' && strcmp(e->d_name, found) > 0)
                snprintf(found, sizeof found, "%s", e->d_name);
        if (d) closedir(d);
        snprintf(want, sizeof want, "tfevents.400000000%d.", i + 1);
        EXPECT(strcmp(found, newest) > 0 && strstr(found, want), "%s behind %s", found, newest);
        snprintf(newest, sizeof newest, "%s", found);
    }
    snprintf(path, sizeof path, "rm -rf '%s'", dir);
    if (system(path)) test_failed++;
}

int main(int argc, char **argv) {
    in_order();
    EXPECT(crc32c("123456789", 9) == 0xE3069283u, "%08x", crc32c("123456789", 9)); /* the check value of CRC-32C */
    EXPECT(crc32c("", 0) == 0, "empty");
    char zeros[32] = { 0 };
    EXPECT(crc32c(zeros, 32) == 0x8A9136AAu, "32 zeros (RFC 3720)");
    char dir[] = "/tmp/hone-tb-XXXXXX", path[512] = "";
    EXPECT(mkdtemp(dir), "mkdtemp");
    const char *to =
        argc > 1 && argv[1][0] != '-' ? argv[1] : dir; /* a folder to keep, for reading it with TensorBoard itself */
    Err err = { { 0 } };
    TbWriter *w = tb_open(to, 1, &err);
    EXPECT(w, "%s", err.msg);
    for (int64_t step = 1; w && step <= 300; step++) {
        tb_begin(w, step);
        tb_scalar(w, "actor/lr", 1e-6f * (float)step);
        tb_scalar(w, "critic/score/mean", 1 - 1 / (float)step);
        EXPECT(tb_end(w, &err), "%s", err.msg);
    }
    if (w) EXPECT(tb_close(w, &err), "%s", err.msg);
    EXPECT(!tb_open("/no/such/folder", 1, &err) && strstr(err.msg, "cannot create"), "%s", err.msg);
    DIR *d = opendir(to);
    for (struct dirent *e; d && (e = readdir(d));)
        if (!strncmp(e->d_name, "events.out.tfevents.", 20)) snprintf(path, sizeof path, "%s/%s", to, e->d_name);
    if (d) closedir(d);
    check_file(path, 302);
    if (to == dir) unlink(path);
    rmdir(dir);
    return test_end();
}
