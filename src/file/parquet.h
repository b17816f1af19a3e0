/* parquet.h - Parquet files as rows of Json, and rows of Json as Parquet files.
 *
 * Reading: every encoding and codec that pyarrow, pandas, polars and DuckDB write, nested to any sensible depth.  The
 * file is mapped and read a row group at a time, only the chosen columns.  Nothing in it is trusted: sizes, counts,
 * offsets and levels are checked before they are used, and what a row group may unpack to is bounded by what it
 * occupies.
 *
 * What becomes of the types:
 *   strings, JSON, enum, UUID       JSON_STRING
 *   binary                          JSON_STRING with flag set: bytes, perhaps not text (so is text that is not UTF-8)
 *   booleans, integers              JSON_BOOL, JSON_INT (an unsigned one beyond int64: json_uint)
 *   float16, float, double          JSON_REAL
 *   decimal, date, time, timestamp  JSON_STRING: "-12.50", "2024-02-29", "23:59:59.000001", "2024-02-29T23:59:59.5Z"
 *   list, struct, map               JSON_ARRAY; JSON_OBJECT; map with string keys one too, else [{"key","value"}] */
#ifndef FILE_PARQUET_H
#define FILE_PARQUET_H

#include "base/json.h"
#include "base/threads.h"

typedef struct PqFile PqFile;

PqFile *pq_open(const char *path, Err *err);                          /* NULL on error; messages name the file */
PqFile *pq_open_bytes(const char *name, const void *data, size_t n, Err *err);   /* data stays the caller's */
void    pq_close(PqFile *f);

int64_t pq_rows(const PqFile *f);
int     pq_groups(const PqFile *f);
int     pq_columns(const PqFile *f);                                  /* at the top */
const char *pq_column(const PqFile *f, int i);
void    pq_describe(const PqFile *f, int column, Buf *out);  /* "list<struct<role: string, content: string>>" */
bool    pq_has(const PqFile *f, const char *dotted);         /* "reward_model.ground_truth" */

/* Only these columns (dotted for a part of a struct) from now on; before it, all.  One that
 * is not there is an error. */
bool    pq_select(PqFile *f, const char *const *columns, int n, Err *err);
/* Most values one column of one group may have, and most bytes one page may unpack to (2^28, 2^31 unless set). */
void    pq_limit(PqFile *f, int64_t values, int64_t page_bytes);

/* A row group's rows: [n] objects, in memory of their own.  Columns are decoded in parallel
 * when threads is not NULL. */
typedef struct { Json *rows; int64_t n; Mem *mem; int n_mem; } PqRows;
bool    pq_read(const PqFile *f, int group, Threads *threads, PqRows *out, Err *err);
void    pq_rows_free(PqRows *r);

void    pq_put_value(Buf *b, const Json *v);      /* as json_put_value, but bytes are written as {"base64":"..."},
                                                * numbers in the digits that they were read in */

/* Writing: rows are JSON_OBJECTs; the schema is found from them (a missing member is a null; whole and real numbers
 * together are doubles; what cannot be one type is an error that names column and row).  All or nothing, by rename. */
typedef enum { PQ_PLAIN, PQ_SNAPPY, PQ_ZSTD } PqCodec;
bool    pq_write(const char *path, const Json *rows, int64_t n, PqCodec codec, Err *err);
bool    pq_write_bytes(Buf *out, const Json *rows, int64_t n, PqCodec codec, int64_t group_rows, Err *err);

#endif
