/* conf.h - how large an engine is: what the scheduler deals in, and what it need not know. */
#ifndef ENGINE_CONF_H
#define ENGINE_CONF_H

#include "cut/grid.h"
#include "engine/sched.h"
#include "par/par.h"

typedef struct {
    SchedConf sched;
    int       max_ban;            /* stop tokens that a request with min_tokens may have beside the model's own */
    int       feats;              /* rows of pictures' results that it keeps; 0: requests have none */
    int64_t   patches;            /* ... and patches of the largest picture */
    const Shard *shard;           /* its rank's part of the model; NULL: all of it */
    bool      tells;              /* requests may want to be told of tokens: SampleOpts.top and .prompt */
} EngineConf;

/* For so many answers at once, of sequences of at most 'longest' tokens: pages for all of them, as many sequences again
 * that wait half done, and steps of at least 'rows' rows. */
EngineConf engine_conf(int64_t answers, int64_t longest, int64_t rows, int64_t page);

/* Replicas that share experts decode as many rows as the one that has most (graph.c): behind its sequences a step then
 * has rows that are nobody's, over a page of their own, the last of the cache. */
static inline bool engine_pads(const EngineConf *c) {
    const GridShape *g = c->shard ? &c->shard->g : NULL;
    return g && ep_is_even(g->ep * g->etp) && g->tp % (g->ep * g->etp);
}

#endif
