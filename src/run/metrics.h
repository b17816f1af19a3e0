/* metrics.h - the numbers of one step under verl's names, in the order they were set. */
#ifndef RUN_METRICS_H
#define RUN_METRICS_H

#include "base/base.h"

enum { METRICS_MAX = 3072 };
typedef struct { struct { const char *name; double value; } at[METRICS_MAX]; int n; } Metrics;

static inline void metrics_clear(Metrics *m) { m->n = 0; }
void   metric(Metrics *m, const char *name, double value);            /* name outlives m; a name set twice keeps
                                                                       * the later value */
double metric_of(const Metrics *m, const char *name, double otherwise);

/* Mean, largest and smallest of some values. */
typedef struct { double sum, max, min; int64_t n; } Spread;
void spread_add(Spread *s, double x);
void metric_spread(Metrics *m, const Spread *s, const char *mean, const char *max, const char *min);

/* Is x more than a hundred times the mean of the values before it?  Asked of the sixth on;
 * each then counts to the mean. */
typedef struct { double mean; int64_t n; } Usual;
bool far_above(Usual *u, double x);

#endif
