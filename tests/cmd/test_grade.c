/* test_grade.c - `hone grade` as a user meets it: verl's verdicts, bad lines in their place,
 * own scorers, exit codes. */
#include "base/file.h"
#include "base/json.h"
#include "test.h"

#include <sys/wait.h>
#include <unistd.h>

/* build/tests/cmd/this -> build/ */
static const char *build_dir(void) {
    static char path[500];
    if (path[0] || readlink("/proc/self/exe", path, sizeof path - 1) < 0) return path;
    for (int i = 0; i < 3; i++) *strrchr(path, '/') = 0;
    return path;
}

/* Runs hone grade with these arguments and this input; what it wrote, and its exit code. */
static int grade(const char *args, const char *input, Buf *out) {
    char in[] = "/tmp/hone-grade-XXXXXX", command[2000];
    int fd = mkstemp(in);
    CHECK(fd >= 0 && write(fd, input, strlen(input)) == (ssize_t)strlen(input), "cannot write %s", in);
    close(fd);
    snprintf(command, sizeof command, "%s/hone grade --in %s --out %s.out %s >/dev/null 2>%s.err", build_dir(), in, in,
             args, in);
    int rc = system(command);
    char path[64];
    Err err;
    buf_clear(out);
    snprintf(path, sizeof path, "%s.out", in);
    if (file_exists(path)) file_read(out, path, &err);
    unlink(path);
    snprintf(path, sizeof path, "%s.err", in);
    Buf said = { 0 };
    if (file_read(&said, path, &err)) buf_put(out, said.data ? said.data : "", said.n); /* behind the output */
    buf_free(&said);
    unlink(path);
    unlink(in);
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}

static void verdicts(const char *path) {
    Buf all = { 0 }, out = { 0 };
    Err err;
    EXPECT(file_read(&all, path, &err), "%s", err.msg);
    EXPECT(grade("--threads 3", all.data, &out) == 0, "exit code");
    Mem mem = { 0 };
    int n = 0, bad = 0;
    char *a = all.data, *b = out.data;
    for (char *end_a, *end_b; (end_a = strchr(a, '\n')) && (end_b = strchr(b, '\n'));
         a = end_a + 1, b = end_b + 1, n++) {
        Json want, got;
        bool ok = json_parse(&want, a, (size_t)(end_a - a), &mem, &err)
                  && json_parse(&got, b, (size_t)(end_b - b), &mem, &err);
        ok = ok && json_get(&got, "score")
             && json_number(json_get(&got, "score")) == json_number(json_get(&want, "score"));
        bad += !ok;
    }
    EXPECT(n >= 700 && !strchr(a, '\n') && !bad, "%s: %d lines, %d differ", path, n, bad);
    mem_free(&mem);
    buf_free(&all);
    buf_free(&out);
}

static void lines(void) {
    static const char input[] =
        "{\"data_source\":\"openai/gsm8k\",\"solution_str\":\"#### 5\",\"ground_truth\":\"5\"}\n"
        "not json\n"
        "{\"data_source\":\"who/knows\",\"solution_str\":\"5\",\"ground_truth\":\"5\"}\n"
        "{\"data_source\":\"math\",\"solution_str\":\"Answer: 5\",\"ground_truth\":\"6\",\"more\":[1]}\n"
        "{\"data_source\":\"math\",\"ground_truth\":\"6\"}\n"
        "{\"data_source\":\"math\",\"solution_str\":\"5\",\"ground_truth\":6}\n";
    Buf out = { 0 };
    EXPECT(grade("", input, &out) == 1, "a bad line makes the exit code 1");
    EXPECT(!strncmp(out.data, "{\"score\":1}\n{\"error\":", 21), "%s", out.data);
    EXPECT(strstr(out.data, "who/knows") && strstr(out.data, "lighteval/MATH"), "the known sources are listed: %s",
           out.data);
    EXPECT(strstr(out.data, "{\"score\":-1,\"acc\":false,\"pred\":\"5\"}\n"), "%s", out.data);
    EXPECT(strstr(out.data, "no \\\"solution_str\\\""), "%s", out.data);
    EXPECT(strstr(out.data, "\"score\":-1,\"failed\":"), "a number as truth: %s", out.data);
    EXPECT(grade("--scorer nobody", input, &out) == 1 && strstr(out.data, "nobody"), "%s", out.data);
    EXPECT(grade("--workers 2", input, &out) == 2, "%s", out.data);
    EXPECT(grade("--list", "", &out) == 0, "%s", out.data);
    buf_free(&out);
}

static void own_scorers(void) {
    static const char input[] = "{\"solution_str\":\"fine\",\"ground_truth\":[1]}\n"
                                "{\"solution_str\":\"DO_SLEEP\",\"ground_truth\":\"1\"}\n"
                                "{\"solution_str\":\"DO_DICT\",\"ground_truth\":\"1\",\"extra_info\":{\"a\":1}}\n";
    Buf out = { 0 };
    int rc = grade("--command 'exec sh tests/data/scorers/moody.sh 1000' --workers 2 --timeout 0.8", input, &out);
    EXPECT(rc == 0 && !strncmp(out.data, "{\"score\":0.5}\n{\"score\":0,\"failed\":\"the scorer did not answer", 57),
           "%s", out.data);
    EXPECT(strstr(out.data, "{\"score\":0.75,\"acc\":true,\"why\":[\"a\",{\"b\":1}]}\n"), "%s", out.data);
    EXPECT(strstr(out.data, "1 of 3 samples could not be judged"), "%s", out.data);
    char args[600];
    snprintf(args, sizeof args, "--library %s/scorers/reward_length.so", build_dir());
    rc = grade(args, "{\"solution_str\":\"it is 42\",\"ground_truth\":\"42\"}\n", &out);
    EXPECT(rc == 0 && !strncmp(out.data, "{\"score\":1,\"acc\":true}\n", 23), "%s", out.data);
    buf_free(&out);
}

int main(void) {
    verdicts(FIXTURE("verl/rewards.jsonl"));
    verdicts(FIXTURE("verl/odd.jsonl"));
    lines();
    own_scorers();
    return test_end();
}
