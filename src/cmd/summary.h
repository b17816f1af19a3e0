/* summary.h - the last words of `hone train`: memory and time as planned and as they were, and how exact it was. */
#ifndef CMD_SUMMARY_H
#define CMD_SUMMARY_H

#include "step/run.h"

void run_summary(Run *r);          /* gives the model back */

#endif
