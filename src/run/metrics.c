/* metrics.c - a step's numbers by name. */
#include "run/metrics.h"

#include <string.h>

void metric(Metrics *m, const char *name, double value) {
    int i = 0;
    while (i < m->n && strcmp(m->at[i].name, name)) i++;
    CHECK(i < METRICS_MAX, "more than %d metrics", METRICS_MAX);
    m->at[i].name = name;
    m->at[i].value = value;
    if (i == m->n) m->n++;
}

double metric_of(const Metrics *m, const char *name, double otherwise) {
    for (int i = 0; i < m->n; i++)
        if (!strcmp(m->at[i].name, name)) return m->at[i].value;
    return otherwise;
}

void spread_add(Spread *s, double x) {
    s->max = s->n && s->max > x ? s->max : x;
    s->min = s->n && s->min < x ? s->min : x;
    s->sum += x;
    s->n++;
}

void metric_spread(Metrics *m, const Spread *s, const char *mean, const char *max, const char *min) {
    if (!s->n) return;
    metric(m, mean, s->sum / (double)s->n);
    metric(m, max, s->max);
    metric(m, min, s->min);
}

bool far_above(Usual *u, double x) {
    bool far = u->n >= 5 && x > 100 * u->mean && x > 0;
    if (x >= 0 && x < 1e300) u->n++, u->mean += (x - u->mean) / (double)u->n;
    return far;
}
