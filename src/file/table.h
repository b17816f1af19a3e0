/* table.h - a data file as rows of Json, whatever it is: Parquet, JSON lines (also .gz and .zst), or one JSON array
 * of objects.  What it is is told by its first bytes, never by its name. */
#ifndef FILE_TABLE_H
#define FILE_TABLE_H

#include "base/json.h"
#include "base/threads.h"

typedef struct Table Table;

Table  *table_open(const char *path, Err *err);              /* "-" is standard input; pipes too; NULL on error */
Table  *table_open_bytes(const char *name, const void *data, size_t n, Err *err);   /* data stays the caller's */
void    table_close(Table *t);

/* Only what these columns hold (top-level names); a Parquet file then reads only them, JSON is parsed whole anyway.
 * Names that the file does not have are ignored. */
void    table_select(Table *t, const char *const *columns, int n);
int64_t table_rows(const Table *t);                          /* -1: not known before the end */
const char *table_kind(const Table *t);                      /* "parquet", "json lines", "json array" */
/* What the file itself says about its columns, one "name: type" a line; nothing for JSON. */
void    table_describe(const Table *t, Buf *out);

/* The next rows, in file order: objects rows[0..n), the first of them number 'first' (from 0) of the file; they live
 * until the next call.  n == 0 at the end.  Errors name file and row (JSON lines: the line). */
typedef struct { const Json *rows; int64_t n, first; const int64_t *line; } TableRows;  /* line: [n] from 1, or NULL */
bool    table_next(Table *t, Threads *threads, TableRows *out, Err *err);

#endif
