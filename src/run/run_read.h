/* run_read.h - a run directory read back: the curves of metrics.jsonl, and plots of them as text. */
#ifndef RUN_RUN_READ_H
#define RUN_RUN_READ_H

#include "base/base.h"

typedef struct { const char *name; double *value; } Curve;       /* value [n]; NAN where a step does not have it */
typedef struct {
    const char *path;
    int64_t     n;              /* steps */
    int64_t    *step;           /* [n] */
    Curve      *curve;
    int64_t     n_curves;
} RunCurves;

/* path: a run directory, or a metrics.jsonl.  A torn last line is left out. */
bool         run_read(RunCurves *out, const char *path, Mem *mem, Err *err);

/* What verl dumps: a folder of N.jsonl, or one such file; none where path is neither. */
typedef struct { const char **at; size_t n; } DumpFiles;
DumpFiles    dump_files(const char *path, Mem *mem);
bool         dump_read(RunCurves *out, const char *path, const DumpFiles *f, Mem *mem, Err *err);
const Curve *run_curve(const RunCurves *r, const char *name);    /* or NULL */
double       curve_last(const RunCurves *r, const Curve *c);     /* the last value there is */
int64_t      curve_last_step(const RunCurves *r, const Curve *c); /* whose it is; -1: there is none */
double       curve_mean(const RunCurves *r, const Curve *c, int64_t last);      /* of the last so many values */

/* Up to 4 curves in one frame of width x height characters; marks: one letter per curve. */
void plot(Buf *out, const char *title, const RunCurves *const *run, const Curve *const *curve, const char *marks, int n,
          int width, int height);

#endif
