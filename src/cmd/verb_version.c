/* verb_version.c - which hone this is, and what it was built with and can load. */
#include "cmd/cmd.h"
#include "run/version.h"

#include <gnu/libc-version.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    bool json;
} Args;
static const Opt options[] = { { "json", OPT_FLAG, offsetof(Args, json), "", "one JSON object" }, { 0 } };

static int run(const Verb *v, int argc, char **argv) {
    Args a = { 0 };
    int rc = opt_parse(v, &a, NULL, 0, 0, NULL, argc, argv);
    if (rc >= 0) return rc;
    long c = __STDC_VERSION__ / 100 % 100;
    if (!a.json) {
        printf("hone " HONE_VERSION ", commit %s, C%ld, compiler %s\n", hone_commit_of(), c, __VERSION__);
        return 0;
    }
    const struct {
        const char *key, *value;
    } text[] = { { "version", HONE_VERSION },
                 { "commit", hone_commit_of() },
                 { "compiler", __VERSION__ },
                 { "libc", gnu_get_libc_version() } };
    Buf b = { 0 };
    for (size_t i = 0; i < COUNT(text); i++) {
        buf_printf(&b, "%s\"%s\":", i ? "," : "{", text[i].key);
        json_put_str(&b, text[i].value, strlen(text[i].value));
    }
    printf("%s,\"c\":%ld}\n", b.data, c);
    buf_free(&b);
    return 0;
}

const Verb verb_version = {
    .name = "version", .usage = "[--json]", .summary = "which hone this is", .options = options, .run = run
};
