/* dataset_in.h - what the dataset's two files share. */
#ifndef TASK_DATASET_IN_H
#define TASK_DATASET_IN_H

#include "task/dataset.h"

typedef struct { const char *name; int64_t rows; } Name;
typedef VEC(Name) Names;

struct Dataset {
    Mem mem;                         /* every string of every row */
    const char *const *file;
    int n_files;
    VEC(DataRow) rows;
    Names sources, abilities;
};

#endif
