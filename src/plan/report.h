/* report.h - a plan as text, as JSON, as a picture, and as a configuration. */
#ifndef PLAN_REPORT_H
#define PLAN_REPORT_H

#include "plan/plan.h"

void report_text(const Plan *p, bool explain, Buf *out);
void report_json(const Plan *p, Buf *out);                     /* one object */
void report_svg(const Plan *p, Buf *out);                      /* memory per stage and the step's timeline */
void report_layout(const Plan *p, Buf *out);                   /* one line: "tp 8 pp 12 ep 8, split 6,5x11, ..." */

#endif
