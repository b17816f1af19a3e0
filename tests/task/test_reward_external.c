/* test_reward_external.c - scorers that are not ours, and behave badly: the batch ends in time, every bad sample is
 * marked, every good one has its score, and neither processes nor file descriptors are left. */
#include "base/clock.h"
#include "task/reward.h"
#include "test.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct {
    const char *answer, *reason; /* reason NULL: it is judged */
    double score;
    const char *extra;
} Case;

/* clang-format off */
static const Case cases[] = {
    { "fine",           NULL, 0.5 },
    { "DO_SLEEP",       "did not answer within 0.6 s" },
    { "fine",           NULL, 0.5 },
    { "DO_CRASH",       "died of signal 11" },
    { "DO_EXIT",        "exited with code 3" },
    { "fine",           NULL, 0.5 },
    { "DO_RUBBISH",     "is not JSON: Loading weights... done" },
    { "DO_EMPTY",       "is not JSON" },
    { "DO_BINARY",      "is not JSON: ??" },
    { "DO_MEGABYTE",    "bytes without a newline" },
    { "fine",           NULL, 0.5 },
    { "DO_HALF",        "exited with code 0" },
    { "DO_CLOSE_OUT",   "closed its input or output" },
    { "DO_CLOSE_IN",    NULL, 1 },
    { "fine",           NULL, 0.5 },          /* not the sample's fault: a fresh process judges it */
    { "DO_IGNORE_TERM", "did not answer" },
    { "DO_FORK",        "did not answer" },
    { "DO_ORPHAN",      "did not answer" },   /* its child still holds the pipe */
    { "DO_STOP",        "did not answer" },
    { "DO_NAN",         "is not JSON" },
    { "DO_HUGE",        "" },
    { "DO_ABSURD",      "gave -1e+308 as score" },
    { "DO_NO_SCORE",    "no \"score\"" },
    { "DO_ANOTHER",     "another sample" },
    { "DO_REFUSE",      "I would rather not" },
    { "DO_TWICE",       NULL, 1 },
    { "fine",           NULL, 0.5 },          /* and not the second line of the one before: the id tells */
    { "DO_ONCE",        NULL, 1 },
    { "fine",           NULL, 0.5 },
    { "DO_DICT",        NULL, 0.75, "\"acc\":true,\"why\":[\"a\",{\"b\":1}]" },
    { "DO_SHARE",       NULL, 0.75, "\"acc\":0.25,\"pred\":12345678901234567890123" },
    { "DO_TRUE",        NULL, 1 },
    { "fine",           NULL, 0.5 },
};
/* clang-format on */

/* How long the children of this process's scorers sleep: nobody else's do. */
static const char *nap(void) {
    static char text[16];
    snprintf(text, sizeof text, "9%d", (int)getpid());
    return text;
}

static const char *command(const char *format) {
    static char text[200];
    snprintf(text, sizeof text, format, nap());
    return text;
}

static const char *moody(void) { return command("exec sh tests/data/scorers/moody.sh %s"); }

static RewardSample sample(const char *source, const char *answer, const char *truth) {
    return (RewardSample){ .data_source = source,
                           .solution = answer,
                           .solution_n = strlen(answer), //
                           .ground_truth = truth,
                           .ground_truth_n = strlen(truth) };
}

static int open_files(void) {
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) n++;
    if (d) closedir(d);
    return n;
}

/* Processes on this machine that one of moody.sh's children would be. */
static int survivors(void) {
    int n = 0;
    DIR *d = opendir("/proc");
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!isdigit((unsigned char)e->d_name[0])) continue;
        char path[300], text[64] = { 0 };
        snprintf(path, sizeof path, "/proc/%s/cmdline", e->d_name);
        FILE *f = fopen(path, "r");
        if (!f) continue;
        size_t got = fread(text, 1, sizeof text - 1, f);
        fclose(f);
        n += got > 6 && !memcmp(text, "sleep", 6) && !strcmp(text + 6, nap());
    }
    if (d) closedir(d);
    return n;
}

static void expect_clean(int files) {
    EXPECT(open_files() == files, "%d files open, %d before", open_files(), files);
    errno = 0;
    EXPECT(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD, "a child is left");
    for (int i = 0; i < 100 && survivors(); i++) usleep(10000);
    EXPECT(!survivors(), "%d grandchildren are left", survivors());
}

static void bad_command(int workers) {
    Err err;
    int files = open_files(), expect_failed = 0, slow = 0;
    RewardOptions o = { .command = moody(), .timeout_s = 0.6 };
    double start = clock_now();
    Rewards *p = rewards_open(&o, workers, &err);
    for (size_t i = 0; i < COUNT(cases); i++) {
        RewardSample s = sample("mine", cases[i].answer, "1");
        EXPECT(rewards_submit(p, (int64_t)i, &s, &err), "%s", err.msg);
        expect_failed += cases[i].reason != NULL;
        slow += cases[i].reason && !strcmp(cases[i].reason, "did not answer");
    }
    int64_t ticket;
    RewardResult r = { 0 };
    size_t seen = 0;
    for (; rewards_collect(p, &ticket, &r); seen++) {
        const Case *c = &cases[ticket];
        if (c->reason)
            EXPECT(r.failed && r.score == 0 && strstr(r.reason, c->reason), "%s: %g, %s", c->answer, r.score, r.reason);
        else EXPECT(!r.failed && r.score == c->score, "%s: %g, not %g; %s", c->answer, r.score, c->score, r.reason);
        if (!strcmp(c->answer, "DO_SHARE")) EXPECT(r.acc == 0.25, "acc %g", r.acc);
        if (c->extra) EXPECT(r.extra.data && !strcmp(r.extra.data, c->extra), "%s: %s", c->answer, r.extra.data);
    }
    EXPECT(seen == COUNT(cases), "%zu verdicts", seen);
    RewardCounts n = rewards_counts(p);
    EXPECT(n.failed == expect_failed && n.done == (int64_t)COUNT(cases) && n.restarts > 0,
           "%d failed of %d, %d restarts", (int)n.failed, (int)n.done, (int)n.restarts);
    reward_result_free(&r);
    rewards_close(p);
    double took = clock_now() - start;
    EXPECT(took < 0.6 * (slow + 2) + 6, "it took %g s", took); /* the slack: thirty shells on a busy machine */
    expect_clean(files);
}

/* Scorers that never get as far as reading: each sample fails by itself, and soon. */
static void hopeless_commands(void) {
    static const char *const rows[][2] = {
        { "exit 7", "exited with code 7" },
        { "no-such-program-here 2>/dev/null", "exited with code 127" },
        { "exec 0<&-; sleep %s", "" },
        { "sleep %s", "did not answer" },
        { "yes | tr -d '\\n'", "without a newline" },
        { "cat >/dev/null", "did not answer" },
    };
    int files = open_files();
    for (size_t i = 0; i < COUNT(rows); i++) {
        Err err;
        RewardOptions o = { .command = command(rows[i][0]), .timeout_s = 0.2 };
        Rewards *p = rewards_open(&o, 2, &err);
        double start = clock_now();
        char *big = malloc(300001); /* more than a pipe holds */
        memset(big, 'x', 300000);
        big[300000] = 0;
        for (int k = 0; k < 4; k++) {
            RewardSample s = sample("mine", big, "1");
            EXPECT(rewards_submit(p, k, &s, &err), "%s", err.msg);
        }
        int64_t ticket;
        RewardResult r = { 0 };
        int bad = 0;
        while (rewards_collect(p, &ticket, &r)) bad += r.failed && strstr(r.reason, rows[i][1]) != NULL;
        EXPECT(bad == 4, "'%s': %d of 4 are marked; %s", rows[i][0], bad, r.reason);
        reward_result_free(&r);
        rewards_close(p);
        EXPECT(clock_now() - start < 5, "'%s' took %g s", rows[i][0], clock_now() - start);
        free(big);
    }
    expect_clean(files);
}

/* Each reply reaches its own sample, also with big ones and several processes. */
static void good_command(void) {
    Err err;
    RewardOptions o = { .command = "sh tests/data/scorers/echo_truth.sh", .timeout_s = 20 };
    Rewards *p = rewards_open(&o, 3, &err);
    for (int i = 0; i < 60; i++) {
        char truth[16];
        snprintf(truth, sizeof truth, "%d.5", i);
        RewardSample s = sample("mine", "line\nand \"quotes\"", truth);
        s.extra_info = "{\n\"a\": 1}";
        s.extra_info_n = strlen(s.extra_info);
        EXPECT(rewards_submit(p, i, &s, &err), "%s", err.msg);
    }
    int64_t ticket;
    RewardResult r = { 0 };
    int seen = 0;
    for (; rewards_collect(p, &ticket, &r); seen++)
        EXPECT(r.score == (double)ticket + 0.5 && !r.failed, "%d: %g %s", (int)ticket, r.score, r.reason);
    EXPECT(seen == 60, "%d verdicts", seen);
    EXPECT(rewards_counts(p).restarts == 0, "a good scorer lives on");
    reward_result_free(&r);
    rewards_close(p);
}

/* Closing in the middle of a batch ends it. */
static void close_early(void) {
    Err err;
    int files = open_files();
    RewardOptions o = { .command = moody(), .timeout_s = 0.6 };
    Rewards *p = rewards_open(&o, 2, &err);
    for (int i = 0; i < 100; i++) {
        RewardSample s = sample("mine", "DO_SLEEP", "1");
        rewards_submit(p, i, &s, &err);
    }
    double start = clock_now();
    rewards_close(p);
    EXPECT(clock_now() - start < 4, "close took %g s", clock_now() - start);
    expect_clean(files);
}

/* ---- Libraries lie beside the tests: build/tests/task/this -> build/scorers/NAME.so */
static const char *scorer_path(char buf[600], const char *name) {
    char self[500] = { 0 };
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) self[0] = 0;
    for (int i = 0; i < 3; i++) {
        char *slash = strrchr(self, '/');
        if (slash) *slash = 0;
    }
    snprintf(buf, 600, "%s/scorers/%s.so", self, name);
    return buf;
}

static void library(void) {
    Err err;
    char path[600];
    RewardOptions o = { .library = scorer_path(path, "reward_length") };
    Rewards *p = rewards_open(&o, 2, &err);
    EXPECT(p, "%s", err.msg);
    if (!p) return;
    RewardSample s[3] = { sample("mine", "it is 42", "42"), sample("mine", "it is 43", "42"),
                          sample("mine", "it is 42", "42") };
    s[2].extra_info = "{\"limit\":3}";
    s[2].extra_info_n = strlen(s[2].extra_info);
    const double want[3] = { 1, 0, 0.5 };
    for (int i = 0; i < 3; i++) EXPECT(rewards_submit(p, i, &s[i], &err), "%s", err.msg);
    int64_t ticket;
    RewardResult r = { 0 };
    while (rewards_collect(p, &ticket, &r))
        EXPECT(r.score == want[ticket] && !r.failed, "%d: %g %s", (int)ticket, r.score, r.reason);
    reward_result_free(&r);
    rewards_close(p);
    o.library = scorer_path(path, "other_version");
    EXPECT(!rewards_open(&o, 1, &err) && strstr(err.msg, "hone_reward_v1"), "%s", err.msg);
    o.library = "tests/data/scorers/moody.sh";
    EXPECT(!rewards_open(&o, 1, &err) && strstr(err.msg, "cannot be loaded"), "%s", err.msg);
    o.library = "no_such_file.so";
    EXPECT(!rewards_open(&o, 1, &err) && strstr(err.msg, "no_such_file.so"), "%s", err.msg);
}

/* A library that hangs: its samples fail at their deadline, the others are judged, also those behind them. */
static void stuck_library(void) {
    static const Case rows[] = {
        { "abc", NULL, 3 },
        { "DO_HANG", "did not return within 0.2 s" },
        { "DO_LATE", "did not return within 0.2 s" },
        { "DO_NAN", "as score" },
        { "DO_ABSURD", "gave 1e+308 as score" },
        { "DO_REFUSE", "rrrrr" },
        { "DO_HANG", "did not return within 0.2 s" },
        { "abcd", NULL, 4 },
    };
    Err err;
    char path[600];
    RewardOptions o = { .library = scorer_path(path, "stuck"), .timeout_s = 0.2 };
    Rewards *p = rewards_open(&o, 1, &err);
    EXPECT(p, "%s", err.msg);
    if (!p) return;
    double start = clock_now();
    for (size_t i = 0; i < COUNT(rows); i++) {
        RewardSample s = sample("mine", rows[i].answer, "1");
        EXPECT(rewards_submit(p, (int64_t)i, &s, &err), "%s", err.msg);
    }
    int64_t ticket;
    RewardResult r = { 0 };
    size_t seen = 0;
    for (; rewards_collect(p, &ticket, &r); seen++) {
        const Case *c = &rows[ticket];
        if (c->reason) EXPECT(r.failed && strstr(r.reason, c->reason), "%s: %s", c->answer, r.reason);
        else EXPECT(!r.failed && r.score == c->score, "%s: %g %s", c->answer, r.score, r.reason);
    }
    EXPECT(seen == COUNT(rows), "%zu verdicts", seen);
    EXPECT(clock_now() - start < 4, "it took %g s", clock_now() - start);
    usleep(500000); /* DO_LATE's thread is back by now, and must not have counted twice */
    EXPECT(rewards_counts(p).done == (int64_t)COUNT(rows), "%d done", (int)rewards_counts(p).done);
    EXPECT(rewards_counts(p).stuck == 2, "%d stuck", (int)rewards_counts(p).stuck);
    reward_result_free(&r);
    rewards_close(p);
}

/* So many calls hang that no more threads are started, until none is left to judge; then they
 * all come back: the next sample is judged, and nobody waits for ever. */
static void stuck_and_back(void) {
    enum { ALL = 64 };
    Err err;
    char path[600], gate[] = "/tmp/hone-gate-XXXXXX", answer[64];
    RewardOptions o = { .library = scorer_path(path, "stuck"), .timeout_s = 0.2 };
    Rewards *p = rewards_open(&o, ALL, &err);
    int fd = mkstemp(gate);
    EXPECT(p && fd >= 0, "%s", err.msg);
    if (!p || fd < 0) return;
    close(fd);
    unlink(gate);
    snprintf(answer, sizeof answer, "DO_GATE %s", gate);
    int64_t ticket;
    RewardResult r = { 0 };
    for (int round = 0; round < 2; round++) { /* the first threads are replaced, the second are not */
        for (int i = 0; i < ALL; i++) {
            RewardSample s = sample("mine", answer, "1");
            EXPECT(rewards_submit(p, i, &s, &err), "%s", err.msg);
        }
        int failed = 0;
        while (rewards_collect(p, &ticket, &r)) failed += r.failed;
        EXPECT(failed == ALL, "%d of %d failed", failed, ALL);
    }
    RewardSample s = sample("mine", "abc", "1");
    EXPECT(rewards_submit(p, 0, &s, &err) && rewards_collect(p, &ticket, &r) && r.failed,
           "with all threads hanging: %s", r.reason);
    EXPECT(rewards_counts(p).stuck == 2 * ALL, "%d stuck", (int)rewards_counts(p).stuck);
    fd = open(gate, O_CREAT | O_WRONLY, 0600);
    close(fd);
    for (int i = 0; i < 1000 && rewards_counts(p).stuck; i++) usleep(10000);
    EXPECT(rewards_counts(p).stuck == 0, "%d are still stuck", (int)rewards_counts(p).stuck);
    EXPECT(rewards_submit(p, 7, &s, &err), "%s", err.msg);
    int got = rewards_poll(p, &ticket, &r, 10);
    EXPECT(got == 1 && ticket == 7 && !r.failed && r.score == 3, "after they came back: %d, score %g, %s", got, r.score,
           r.reason);
    unlink(gate);
    reward_result_free(&r);
    if (got == 1) rewards_close(p); /* else it would wait for ever, too */
}

/* No memory for so many threads' stacks: an error that says it, and nothing is left running. */
static void no_threads(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they need the address space themselves */
    pid_t child = fork();
    if (!child) {
        Err err = { { 0 } };
        struct rlimit most = { (rlim_t)256 << 20, (rlim_t)256 << 20 };
        if (setrlimit(RLIMIT_AS, &most)) _exit(3);
        Rewards *p = rewards_open(&(RewardOptions){ 0 }, 1000, &err);
        _exit(p ? 1 : strstr(err.msg, "of 1000 could not be started") ? 0 : 2);
    }
    int status = -1;
    EXPECT(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status),
           "threads that cannot be started: %x", status);
#endif
}

static void built_in(void) {
    Err err;
    Rewards *p = rewards_open(&(RewardOptions){ 0 }, 3, &err);
    RewardSample s = sample("nobody/knows", "x", "1");
    EXPECT(!rewards_submit(p, 0, &s, &err) && strstr(err.msg, "nobody/knows"), "an unknown source is refused: %s",
           err.msg);
    int64_t ticket;
    RewardResult r = { 0 };
    EXPECT(!rewards_collect(p, &ticket, &r), "nothing is in flight");
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 500; i++) {
            char answer[32];
            snprintf(answer, sizeof answer, "#### %d", i);
            s = sample("openai/gsm8k", answer, "250");
            EXPECT(rewards_submit(p, i, &s, &err), "%s", err.msg);
        }
        int right = 0;
        while (rewards_collect(p, &ticket, &r)) right += r.score == 1 && ticket == 250;
        EXPECT(right == 1, "%d right", right);
    }
    EXPECT(rewards_counts(p).done == 1500, "counted");
    reward_result_free(&r);
    rewards_close(p);
    EXPECT(!rewards_open(&(RewardOptions){ .scorer = "x" }, 1, &err) && strstr(err.msg, "'x'"), "%s", err.msg);
    EXPECT(!rewards_open(&(RewardOptions){ .command = "x", .library = "y" }, 1, &err), "one scorer only");
}

int main(void) {
    built_in();
    good_command();
    bad_command(1);
    bad_command(3);
    hopeless_commands();
    close_early();
    library();
    stuck_library();
    stuck_and_back();
    no_threads();
    return test_end();
}
