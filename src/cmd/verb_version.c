/* verb_version.c - which hone this is, and what it was built with. */
#include "cmd/cmd.h"
#include "run/version.h"

#include <stdio.h>

static int run(const Verb *v, int argc, char **argv) {
    int rc = opt_parse(v, NULL, NULL, 0, 0, NULL, argc, argv);
    if (rc >= 0) return rc;
    printf("hone " HONE_VERSION ", commit %s, C%ld, compiler %s\n", hone_commit_of(), __STDC_VERSION__ / 100 % 100,
           __VERSION__);
    return 0;
}

const Verb verb_version = { .name = "version", .usage = "", .summary = "which hone this is", .run = run };
