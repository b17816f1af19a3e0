/* verb_data.c - `hone data`: looks at data files, and makes them from published raw ones. */
#include "cmd/data.h"

#include <string.h>

static const Opt options[] = {
    { "row", OPT_INT, offsetof(DataArgs, row), "N", "show: the first row to show, from 0", 0, 1e15 },
    { "n", OPT_INT, offsetof(DataArgs, n), "K", "show: how many rows (3; 0: all that follow)", 0, 1e15 },
    { "columns", OPT_STR, offsetof(DataArgs, columns), "A,B", "show: only these columns of a Parquet file", 0, 0 },
    { "json", OPT_FLAG, offsetof(DataArgs, json), "", "one JSON object a line instead of text for people", 0, 0 },
    { "threads", OPT_INT, offsetof(DataArgs, threads), "N", "threads to use (all cores)", 1, 256 },
    { 0 },
};

static int run(const Verb *v, int argc, char **argv) {
    enum { MOST = 4096 };
    DataArgs a = { .n = 3 };
    const char *words[MOST];
    int n = 0, rc = opt_parse(v, &a, words, 1, MOST, &n, argc, argv);
    if (rc >= 0) return rc;
    if (!strcmp(words[0], "show")) return n < 2 ? cmd_usage(v, "name a file to show") : data_show(v, &a, words + 1, n - 1);
    return cmd_usage(v, "'%s' is nothing that can be done with data", words[0]);
}

const Verb verb_data = { .name = "data", .usage = "show FILE...", .summary = "looks at data sets", .options = options, .run = run };
