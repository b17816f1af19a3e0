/* test_token_file.c - rows stay where their lines say they are: steps that are let go, runs that go on, files that
 * somebody removed. */
#include "step/token_file.h"
#include "base/file.h"
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ROWS = 3000 }; /* of an answer: some pages of a disk */
static char dir[64] = "/tmp/hone-tokens-XXXXXX", bin[100], lines[100];
static unsigned char *rows;

static void step(TokenFile *f, int64_t s) {
    Err err = { "" };
    int64_t at;
    for (int i = 0; i < ROWS; i++)
        token_row_put(rows + (size_t)i * TOKEN_ROW,
                      &(TokenRow){ .id = (int32_t)s, .logprob = -1, .mask = 1, .version = (int32_t)s - 1 });
    EXPECT(token_file_put(f, s, rows, (size_t)ROWS * TOKEN_ROW, &at, &err) && at >= 0, "step %d: %s", (int)s, err.msg);
    FILE *out = fopen(lines, "a");
    if (!out) return;
    fprintf(out, "{\"step\":%d,\"tokens\":%d,\"output\":\"\\\"at\\\":5\",\"at\":%lld}\n", (int)s, ROWS, (long long)at);
    fclose(out);
}

/* What is there of a step: its rows, zeros, or something else (-1). */
static int there(int64_t s, int64_t at) {
    int fd = open(bin, O_RDONLY), n = 0;
    TokenRow r;
    bool got = pread(fd, rows, (size_t)ROWS * TOKEN_ROW, at) == ROWS * TOKEN_ROW;
    close(fd);
    for (int i = 0; i < ROWS && got && n >= 0; i++)
        n = token_row_get(&r, rows + (size_t)i * TOKEN_ROW) ? r.id == s ? n + 1 : -1 : n;
    return got ? n : -2;
}

static TokenFile open_file(int64_t newest, Mem *mem) {
    TokenFile f;
    Err err = { "" };
    EXPECT(token_file_open(&f, bin, lines, newest, 4, mem, &err), "%s", err.msg);
    return f;
}

int main(void) {
    if (!mkdtemp(dir)) return 1;
    Mem mem = { 0 };
    snprintf(bin, sizeof bin, "%s/samples_tokens.bin", dir), snprintf(lines, sizeof lines, "%s/samples.jsonl", dir);
    rows = mem_push(&mem, (size_t)ROWS * TOKEN_ROW);
    const int64_t each = (int64_t)ROWS * TOKEN_ROW;
    TokenFile f = open_file(3, &mem);
    for (int s = 1; s <= 10; s++) step(&f, s);
    bool holes = !f.no_holes;
    for (int s = 1; s <= 10; s++) {
        int want = s >= 8 || s % 4 == 0 ? ROWS : 0, got = there(s, (s - 1) * each);
        if (holes) EXPECT(got == want, "step %d: %d rows, not %d", s, got, want);
    }
    struct stat st;
    EXPECT(stat(bin, &st) == 0 && st.st_size == 10 * each, "%lld bytes", (long long)st.st_size);
    if (holes) EXPECT(st.st_blocks * 512 < 7 * each, "%lld bytes on the disk", (long long)st.st_blocks * 512);
    else SKIP("this file system has no holes");
    token_file_close(&f);
    EXPECT(truncate(lines, 0) == 0, "cannot cut"); /* it goes on from step 5 */
    FILE *out = fopen(lines, "a");
    for (int s = 1; s <= 5 && out; s++)
        fprintf(out, "{\"step\":%d,\"tokens\":%d,\"at\":%lld}\n", s, ROWS, (long long)((s - 1) * each));
    if (out) fclose(out);
    f = open_file(3, &mem);
    EXPECT(f.end == 5 * each && stat(bin, &st) == 0 && st.st_size == f.end, "cut to %lld", (long long)f.end);
    for (int s = 6; s <= 9; s++) step(&f, s);
    EXPECT(there(9, 8 * each) == ROWS && there(7, 6 * each) == ROWS, "after it went on");
    if (holes) EXPECT(there(6, 5 * each) == 0, "step 6 was let go");
    token_file_close(&f);
    unlink(bin); /* somebody did: no rows of others may come where lines speak of theirs */
    f = open_file(3, &mem);
    step(&f, 10);
    EXPECT(there(5, 4 * each) == 0 && there(10, 9 * each) == ROWS, "after the file was removed");
    token_file_close(&f);
    f = open_file(0, &mem);
    int64_t at = 5;
    Err err;
    EXPECT(token_file_put(&f, 11, rows, TOKEN_ROW, &at, &err) && at == -1, "none is wanted, and one was written");
    token_file_close(&f);
    f = open_file(3, &mem);
    f.no_holes = true; /* as where the file system has none: every k-th step alone */
    EXPECT(token_file_put(&f, 13, rows, TOKEN_ROW, &at, &err) && at == -1, "step 13 was written");
    EXPECT(token_file_put(&f, 16, rows, TOKEN_ROW, &at, &err) && at == 10 * each, "step 16 was not written");
    token_file_close(&f);
    tree_remove(dir);
    mem_free(&mem);
    return test_end();
}
