/* test.h - what every test file uses: CASE names a check, EXPECT counts, test_end prints the line that ./check reads.
 * A test program exits non-zero when something failed, and prints "N passed, N failed, N skipped" last. */
#ifndef TEST_H
#define TEST_H

#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int test_passed, test_failed, test_skipped;

#define EXPECT(ok, ...)                                      \
    do {                                                     \
        if (ok) test_passed++;                               \
        else {                                               \
            test_failed++;                                   \
            printf("FAILED %s:%d: ", __FILE__, __LINE__);    \
            printf(__VA_ARGS__);                             \
            printf("\n");                                    \
        }                                                    \
    } while (0)

#define EXPECT_STR(got, want) EXPECT(!strcmp(got, want), "got \"%s\", want \"%s\"", got, want)
#define SKIP(...) (test_skipped++, printf("skipped: "), printf(__VA_ARGS__), printf("\n"))

static inline int test_end(void) {
    printf("%d passed, %d failed, %d skipped\n", test_passed, test_failed, test_skipped);
    return test_failed != 0;
}

/* Fixtures: tests run with the repository root as working directory. */
#define FIXTURE(path) "tests/data/" path

#endif
