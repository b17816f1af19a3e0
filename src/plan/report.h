/* report.h - a plan as text, as JSON, as a picture, and as a configuration. */
#ifndef PLAN_REPORT_H
#define PLAN_REPORT_H

#include "plan/plan.h"

typedef struct { const char *name; double bytes; } ReportUnit;

/* memory: told instead of the table; or NULL */
void report_text(const Plan *p, const char *memory, bool explain, Buf *out);
void report_verdict(const Plan *p, Buf *out);                 /* one line: fits, or what is short and what would help */
/* One line after 'before' where the CUDA backend does not compute on the cluster's GPUs. */
void report_refused(const Cluster *c, const char *before, Buf *out);
void report_count(double n, Buf *out);                        /* 671.03 B, 12.3 M, 57 k */
ReportUnit report_unit(const Plan *p);                        /* GB, or MB where all but the cache is below one GB */
void report_json(const Plan *p, Buf *out);                    /* one object */
void report_svg(const Plan *p, Buf *out);                     /* memory per stage and the step's timeline */
void report_layout(const Plan *p, Buf *out);                  /* one line: "tp 8, pp 12, ep 8, layers 6,5x11, ..." */

#endif
