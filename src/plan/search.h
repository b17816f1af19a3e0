/* search.h - layouts of a model on a cluster, the quickest first.
 *
 * Cuts (tp, pp, ep, cp), uneven splits of the layers (split.c), interleaved chunks, recomputation, micro-batch, offload
 * and parking for the trainer; tp and ep for the engine.  Closed formulas, and rollouts remembered by what they depend
 * on: tens of thousands of layouts a second. */
#ifndef PLAN_SEARCH_H
#define PLAN_SEARCH_H

#include "plan/plan.h"

enum { SEARCH_KEEP = 16 };
typedef struct { Layout layout; double step, seconds[PH_COUNT]; } Found;

typedef struct {
    Found  at[SEARCH_KEEP];           /* different in tp, pp, ep, cp or the engine's cut; quickest first */
    int    n;
    long   tried, fitting;            /* trainer's layouts looked at, those that fit */
    char   nearest[512];              /* nothing fits: what the one that comes closest is short of */
} Search;

/* base: sum, cluster, work and profile; its layout gives gen_use.  offload false: all states on the device. */
void search_run(const Plan *base, bool offload, Search *out);

/* Is there any layout at all?  *layout is one. */
bool search_fits(const Plan *base, bool offload, Layout *layout);

/* The fewest GPUs of base's kind, in whole nodes beyond one, up to 'most'; 0: none. */
int search_min_gpus(const Plan *base, bool offload, int most, Layout *layout);

/* The split whose slowest stage is quickest; base's layout gives everything else. */
void search_split(Plan *p);

/* Why b is slower than a, in words: "rollout +12.3 s (network)". */
void search_reason(const Plan *a, const Plan *b, Buf *out);

#endif
