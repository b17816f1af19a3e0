/* paths.h - file names and patterns (data/train-?.parquet) to the list of files they mean. */
#ifndef FILE_PATHS_H
#define FILE_PATHS_H

#include "base/base.h"

/* A name is taken as it is, a pattern gives its files in the order of their names; one that gives none, a name that
 * is not there and a file that would be read twice are errors.  The list lives in mem. */
bool paths_expand(Mem *mem, const char *const *given, int n, const char *const **out, int *n_out, Err *err);

#endif
