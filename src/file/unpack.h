/* unpack.h - a file's bytes a piece at a time, unpacked where gzip or zstd packed them (told by the first bytes):
 * memory does not grow with the file.  Pipes and devices too. */
#ifndef FILE_UNPACK_H
#define FILE_UNPACK_H

#include "base/base.h"

typedef struct Unpack Unpack;
Unpack *unpack_open(const char *path, Err *err);  /* "-" is standard input; NULL on error */
Unpack *unpack_open_bytes(const char *name, const void *data, size_t n);         /* data stays the caller's */
bool    unpack_read(Unpack *u, void *to, size_t room, size_t *got, Err *err);    /* *got 0: the end */
void    unpack_close(Unpack *u);

#endif
