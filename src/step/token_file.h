/* token_file.h - samples_tokens.bin (run/token_rows.h) as a run writes it: rows behind rows, so that what a line of
 * samples.jsonl says stays true; bounded by letting steps go where they lie: of those before the newest ones every k-th
 * stays, the others become holes, which take no room on the disk. */
#ifndef STEP_TOKEN_FILE_H
#define STEP_TOKEN_FILE_H

#include "run/token_rows.h"

typedef struct {
    const char *path;
    int      fd;                        /* -1: nothing is written */
    int64_t  end;                       /* bytes */
    int64_t  newest, every;
    struct TokenStep { int64_t step, from; } *ring;     /* [newest] the steps that are all there, oldest at 'first' */
    int64_t  first, n;
    bool     no_holes;                  /* this file system has none: only every k-th step is written */
} TokenFile;

/* Cut to what the lines of samples.jsonl (already cut) speak of.  newest 0: none is written. */
bool token_file_open (TokenFile *f, const char *path, const char *samples, int64_t newest, int64_t every, Mem *mem,
                      Err *err);
void token_file_close(TokenFile *f);
/* Rows of an answer of that step (steps rise); *at: where they lie, or -1: of this step nothing is kept. */
bool token_file_put(TokenFile *f, int64_t step, const void *rows, size_t bytes, int64_t *at, Err *err);

#endif
