/* prepare.h - published raw questions to the schema of dataset.h: one row of a table per data set. */
#ifndef TASK_PREPARE_H
#define TASK_PREPARE_H

#include "base/json.h"

typedef struct Prepare {
    const char *name, *about;        /* "gsm8k"; what the raw file is */
    const char *source, *ability;    /* data_source that it gets */
    const char *instruction;         /* with {question} where the question goes; without: put behind it */
    const char *question, *answer;   /* raw columns, the first of several by | that a row has;
                                      * NULL: rows stay as they are */
    /* The truth from the raw answer: a copy in mem, or NULL after an error.  NULL: the row is
     * for training on answers. */
    const char *(*truth)(const char *answer, size_t n, Mem *mem, Err *err);
    const char *extra;    /* raw columns that go into extra_info too, by |; "question=problem": under another name */
    const char *images;   /* raw column with the pictures, one for each <image> in the question; NULL: there are none */
} Prepare;

const Prepare *prepare_find(const char *name);                       /* NULL: there is none */
const Prepare *prepare_at(int i);                                    /* NULL behind the last */

typedef struct {
    const char *source, *instruction, *system, *question, *answer;   /* in the place of the table's; NULL: as it is */
    const char *split;
} PrepareWith;

/* One row; strings are copied into mem. */
bool prepare_row(const Prepare *p, const PrepareWith *w, const Json *raw, int64_t index, Mem *mem, Json *out, Err *err);

#endif
