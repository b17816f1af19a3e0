/* shell_files.h - which files a shell line is made of: programs and scripts.
 * A guess, which must never take a log or a data base for one of them: a word that is a file, and is not written to,
 * and can be run, or has the ending of a script, or stands behind the name of an interpreter. */
#ifndef BASE_SHELL_FILES_H
#define BASE_SHELL_FILES_H

#include "base/base.h"

/* In the line's order, each once. */
int shell_files(const char *const **out, const char *line, Mem *mem);

#endif
