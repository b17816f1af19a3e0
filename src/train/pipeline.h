/* pipeline.h - the micro-batches of a mini-batch through this stage's chunks of layers, forward and backward, in the
 * order of cut/schedule.h.  One stage is a pipeline too: each micro-batch goes forward and back before the next.
 *
 * A turn receives what it reads (activations from the chunk before, gradients from the one after), computes, and sends
 * on; sendings are under way while the next turn computes.  Memory: a flight for each micro-batch of each chunk that
 * has gone forward and not back, as many as the schedule holds at once. */
#ifndef TRAIN_PIPELINE_H
#define TRAIN_PIPELINE_H

#include "model/model.h"
#include "cut/schedule.h"

typedef struct {
    Arena     act;
    ModelKeep keep;
    FlightWay way;
    CommCall  sending;                 /* of y */
    int       micro, chunk;            /* micro -1: free */
} Flight;

typedef struct {
    Flight *flight;                    /* [flights] */
    int    *slot;                      /* [flights] which micro-batch has the slot, -1: none */
    int    *left;                      /* [flights] its turns still to come */
    int     flights;
    struct Out { Arena at; CommCall sending; } *out;       /* [outs] gradients on their way to the
                                                            * stage before: theirs in turn */
    int     outs, next;
    struct Out *way;                   /* [ways] so for log-probs alone: activations on their way to the stage behind */
    int     ways, next_way;
} Pipeline;

/* Flights of this stage, each of ModelSizes.flight bytes; as many slots are enough for all micro-batches that are under
 * way.  Outs, each of ModelSizes.out bytes: as many as a stage can be ahead of the one before it, so that none waits
 * for a sending that nobody takes yet. */
int    pipeline_flights(const Shard *shard);
int    pipeline_outs(const Shard *shard);
/* flights inside act, outs inside out */
void   pipeline_open(Pipeline *p, const Model *m, Arena *act, Arena *out, Mem *mem);
size_t pipeline_list_bytes(const Shard *shard, int64_t most);   /* of host in pipeline_run, for so many micro-batches */

/* Forward alone.  A stage is as many micro-batches ahead of the one behind it as it has ways (each of ModelSizes.way
 * bytes) but one; with several chunks they go in runs of pp. */
int  pipeline_run_of(const Shard *shard);       /* micro-batches that go through a chunk before the next chunk's turn */
int  pipeline_ways(const Shard *shard);
/* behind pipeline_open, if that is called */
void pipeline_open_ways(Pipeline *p, const Model *m, Arena *in, Mem *mem);
/* One micro-batch through chunk v: lp and ent are there where that ends the model.  Turns come in the same order on all
 * stages: runs of micro-batches, in each the chunks, in each the micro-batches. */
void pipeline_forward(Pipeline *p, Model *m, int micro, int v, const Batch *b, Tensor lp, Tensor ent);
void pipeline_sent(Pipeline *p);                            /* behind the last */

/* What the caller does: slots are numbered. */
typedef struct {
    void *user;
    /* on the device; a micro-batch beyond the last is an empty one */
    void (*put)(void *user, int slot, int64_t micro, const Batch **b, Tensor *lp, Tensor *ent);
    void (*judge)(void *user, int slot);   /* this stage ends the model: lp, ent are there and become their gradients */
    void (*done)(void *user, int slot);    /* it will not be asked for again */
    bool (*go_on)(void *user);             /* before each micro-batch, where there is one stage; NULL: always */
} PipelineCalls;

/* entropies: their gradients count.  False: go_on said no. */
bool pipeline_run(Pipeline *p, Model *m, const Params *grads, int64_t micros, bool entropies, const PipelineCalls *c,
                  Arena *host);

#endif
