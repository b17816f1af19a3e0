/* ranges.c - stands where NVTX's library would: counts ranges begun and ended, and tells it at the end in the file
 * $RANGES. */
#include <stdio.h>
#include <stdlib.h>

static long begun, ended;

int nvtxRangePushA(const char *name);
int nvtxRangePop(void);

static void tell(void) {
    const char *to = getenv("RANGES");
    FILE *f = to ? fopen(to, "w") : NULL;
    if (!f) return;
    fprintf(f, "%ld %ld\n", begun, ended);
    fclose(f);
}
int nvtxRangePushA(const char *name) {
    if (begun++ == 0) atexit(tell);
    return name[0] ? 0 : -1;
}
int nvtxRangePop(void) { return (int)(begun - ++ended); }
