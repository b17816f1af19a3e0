/* file.h - whole files in, whole files out, so that a kill or a full disk leaves the old one. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "base/base.h"

bool file_read(Buf *out, const char *path, Err *err);    /* "-" is standard input; of pipes and devices 1 GiB at most */
bool file_write(const char *path, const void *data, size_t n, Err *err);   /* beside, fsync, rename, fsync the folder */
bool file_exists(const char *path);
bool dir_exists(const char *path);
bool dir_make(const char *path, Err *err);                             /* and its parents; no error if it is there */
bool dir_sync(const char *path, Err *err);                             /* fsync of a folder: makes renames in it last */

/* What will take the place of 'path', written beside it first: a new path.tmp-PID, or the next number that is free, its
 * name in 'name', held by a lock until it is closed, which comes after the rename.  Those of the same path that nobody
 * holds, which a kill left, are removed.  Links are not followed.  A descriptor, or -1 with errno. */
int file_beside(Buf *name, const char *path);
int dir_beside(Buf *name, const char *path);
void dir_remove(const char *path);                            /* the folder and the files in it, but no folders in it */
void tree_remove(const char *path);                           /* the folder and everything in it; of a link the link */

/* The folder tmp becomes path, in one step.  One that is there already is moved out of its way, to tmp
 * where the two can change names at once, else to aside; the caller removes it from there.  A kill in
 * between leaves it whole, under one name or the other. */
bool dir_take_place(const char *tmp, const char *path, const char *aside, Err *err);

/* A read-only mapping of a file; data is NULL for an empty one. */
typedef struct { const char *data; size_t n; } FileMap;
bool file_map(FileMap *out, const char *path, Err *err);
void file_unmap(FileMap *m);
void file_map_guard(void);  /* from now on a mapped file that becomes shorter ends the program: one line, exit code 1 */

/* Text a line at a time, also from a pipe.  The line has no newline and a 0 behind it.  One
 * longer than LINE_MOST is an error: a device without newlines has no end. */
enum { LINE_MOST = 256 << 20 };
typedef struct LineReader LineReader;
LineReader *lines_open(const char *path, Err *err);                    /* "-" is standard input; NULL on error */
bool        lines_next(LineReader *r, const char **line, size_t *n);   /* false at the end or on an error */
bool        lines_close(LineReader *r, Err *err);                      /* false if reading had failed */

#endif
