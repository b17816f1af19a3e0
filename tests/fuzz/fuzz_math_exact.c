/* fuzz_math_exact.c - two texts, split at the first newline, compared as answers: no crash, no leak, no long wait, the
 * same verdict both ways round, and every text is itself. */
#include "maths/mathx.h"

#include <string.h>
#include <time.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const char *s = (const char *)data, *nl = size ? memchr(s, '\n', size) : NULL;
    Span a = { s, nl ? (size_t)(nl - s) : size }, b = { nl ? nl + 1 : s + size, nl ? size - a.n - 1 : 0 }, found;
    clock_t start = clock(); /* processor time: the machine may be busy */
    bool same = math_exact_same(a, b);
    CHECK(math_exact_same(b, a) == same, "the verdict depends on the order");
    CHECK(!same || math_exact_same(a, a), "an answer is not itself");
    math_exact_find((Span){ s, size }, true, &found);
    double took = (double)(clock() - start) / CLOCKS_PER_SEC;
    CHECK(took < 3, "it took %g s", took);
    return 0;
}
