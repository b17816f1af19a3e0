/* ranks.h - a test that starts itself under mpirun: run_ranks() from the one process that
 * ./check starts, --ranks MODE in each of them. */
#ifndef TESTS_RANKS_H
#define TESTS_RANKS_H

#include "test.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static inline bool ranks_possible(void) { return system("command -v mpirun >/dev/null 2>&1") == 0; }

/* Exit code of n ranks of this program in that mode; what they said.  Under a sanitizer, what
 * MPI keeps to its end is not a leak of ours. */
static inline int run_ranks(const char *self, int n, const char *mode, char *said, size_t room) {
    char line[1024];
    snprintf(line, sizeof line,
             "ASAN_OPTIONS=detect_leaks=0 mpirun --allow-run-as-root --oversubscribe -n %d %s --ranks %s 2>&1", n, self,
             mode);
    FILE *f = popen(line, "r");
    size_t used = 0;
    said[0] = 0;
    while (f && used + 1 < room && fgets(said + used, (int)(room - used), f)) used += strlen(said + used);
    int rc = f ? pclose(f) : -1;
    return WIFEXITED(rc) ? WEXITSTATUS(rc) : -1;
}
/* The same, and it must say that nothing failed, and what lies under MPI must not warn; what it checked is counted
 * here. */
static inline void expect_ranks(const char *self, int n, const char *mode) {
    static char said[1 << 16];
    int rc = run_ranks(self, n, mode, said, sizeof said), passed = 0, failed = -1;
    const char *at = strstr(said, " passed, ");
    while (at && at > said && at[-1] >= '0' && at[-1] <= '9') at--;
    if (at) sscanf(at, "%d passed, %d failed", &passed, &failed);
    EXPECT(rc == 0 && failed == 0 && passed > 0 && !strstr(said, "[warn]"),
           "%d ranks, %s: exit code %d\n%s", n, mode, rc, said);
    test_passed += passed;
}

#endif
