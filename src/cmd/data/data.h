/* data.h - the parts of `hone data`: its arguments and one function per thing it does. */
#ifndef CMD_DATA_DATA_H
#define CMD_DATA_DATA_H

#include "cmd/cmd.h"
#include "task/prepare.h"

typedef struct {
    const char *in, *out, *model, *split, *source, *instruction, *system, *question, *answer, *columns, *codec,
        *prompt_key;
    int64_t row, n, threads, seed;
    bool json, skip;
} DataArgs;

int data_show(const Verb *v, const DataArgs *a, const char *const *files, int n);
int data_shapes(const Verb *v, const DataArgs *a);
int data_stats(const Verb *v, const DataArgs *a, const char *const *files, int n);
int data_prepare(const Verb *v, const DataArgs *a, const Prepare *p, const char *const *files, int n);

#endif
