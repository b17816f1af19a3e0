/* columns.h - metrics.jsonl as columns of float32, and pieces of them in so many buckets (smallest, largest, mean):
 * a spike of one step in a hundred thousand is seen in any picture of them. */
#ifndef PAGE_COLUMNS_H
#define PAGE_COLUMNS_H

#include "base/scan.h"

enum { COLUMNS_MOST = 4096, BUCKETS_MOST = 2000 };
typedef struct { const char *name; float *value; size_t cap; int64_t n; } Column;      /* beyond n, and NAN: not
                                                                                        * there; infinity: null */
typedef struct {
    Mem      mem;                   /* the names */
    int64_t  rows, damaged;         /* lines; those that were none, or went back in time */
    struct { int64_t *at; size_t n, cap; } step;        /* [rows], rising */
    struct { double *at; size_t n, cap; } seconds, tokens;      /* [rows] what timing_s/step, perf/total_num_tokens
                                                                 * come to so far */
    struct { Column *at; size_t n, cap; } column;
} Columns;

void columns_free(Columns *c);                          /* and empty again */
void columns_line(Columns *c, const char *line, size_t n);
const Column *columns_find(const Columns *c, const char *name, size_t n);       /* or NULL */
static inline float column_at(const Column *c, int64_t row) { return row < c->n ? c->value[row] : __builtin_nanf(""); }
/* The last row that has a value; -1: none. */
int64_t column_last(const Column *c);

typedef enum { X_STEP, X_TIME, X_TOKENS } ColumnsX;
double columns_x(const Columns *c, ColumnsX x, int64_t row);
typedef struct { double x; float lo, hi, mean; } Bucket;
/* Rows with from <= x <= to.  zeros: a step that does not say counts as 0 (a phase that it did not have). */
typedef struct { ColumnsX x; double from, to; bool zeros; } Range;
/* At most px buckets of equal width over them, those that have values; how many. */
int columns_buckets(Bucket *out, const Columns *c, const Column *col, const Range *r, int px);

#endif
