/* policy.h - a model that can be asked for log-probs and be improved: packed micro-batches, loss, backward, AdamW.
 *
 * Gradients of a mini-batch are summed over its micro-batches; the loss is normalised once, by counts over the whole
 * mini-batch, so packing changes nothing but rounding (E7).  Memory is taken at policy_open and never again.
 *
 * Over ranks every one is given all sequences, computes those of its part of dp, and is told
 * what all found: calls are collective, and results the same on all.
 *
 * A sequence is silent when no weight moves for it (loss_is_silent): in GRPO every answer to a question whose answers
 * all scored the same.  It counts in the normalisation and in the metrics, but costs no backward, and no forward either
 * while the sampler's numbers are those of the weights (E3). */
#ifndef TRAIN_POLICY_H
#define TRAIN_POLICY_H

#include "algo/loss.h"
#include "model/model.h"
#include "cut/flops.h"
#include "train/block.h"
#include "train/pack.h"
#include "train/pipeline.h"

/* One answer with its prompt, as the trainer reads it; per-token arrays are [n - prompt], over the answer's tokens. */
typedef struct {
    const int32_t *tokens;
    int            n, prompt;
    Drawing        draw;              /* the distribution the answer was drawn from */
    const uint8_t *kept;              /* or NULL: the sets a cut one kept, one a token (model/kept_set.h) */
    const float   *old, *adv;
    const float   *ref, *weight;      /* or NULL */
    const float   *ent;               /* entropies; or NULL.  Given only if old and ent are what the weights give now */
    const uint8_t *mask;              /* or NULL: tokens that count */
    uint8_t       *pick;              /* kl_cov: room for its choice; or NULL */
    Spans          spans;             /* of the prompt */
} TrainSeq;

/* Log-probs that the weights have just given a micro-batch: of its n sequences, seqs[item[i]]'s are lp[at[i]] ..
 * lp[at[i+1]-1].  kept: by a forward that keeps what backward reads. */
typedef struct {
    const TrainSeq *seqs;
    const int32_t  *item;
    const int64_t  *at;
    const float    *lp;
    int             n;
    bool            kept;
} Given;

typedef struct {
    int64_t   micro_tokens;           /* budget of a micro-batch; no sequence may be longer */
    int       max_seqs;               /* of a mini-batch */
    Trained   trained;
    size_t    room;                   /* bytes that 'block' has at least: others use it
                                       * between updates (block.h); 0: nobody does */
    bool      park_states;            /* the device's share of the states lies in it too, and
                                       * waits in the host's memory meanwhile */
    bool      park_weights;           /* so do the weights, at its end (policy_weights_in),
                                       * until somebody parks them (params_offload) */
    Arena     block;                  /* it, with the weights in it; they come back for whatever the policy is asked */
    OptimTypes states;                /* how weights and optimizer states are kept */
    double    offload;                /* share of the states in the host arena */
    bool      truncated;              /* some answers are drawn with top-k, top-p or min-p */
    bool      kept;                   /* and bring the sets that were kept */
    PicturesShape pictures;           /* the most that a micro-batch has */
    bool      trains;                 /* false: log-probs only (a reference model) */
    bool      no_steps;               /* gradients are wanted and no updates: there is no optimizer */
    bool    (*go_on)(void *user);     /* asked before each micro-batch (of a pipeline, each
                                       * mini-batch), or NULL; false: it is given up */
    void    (*given)(void *user, const Given *g);  /* in an update or a comparison, before anything
                                       * is made of them, on each rank that has them; or NULL */
    void     *user;
} PolicyConf;

typedef struct {
    Model     *m;
    Params    *w;                      /* what it trains: m's weights, or its adapter */
    PolicyConf c;
    Params     grads;
    Optim      opt;
    Block      block;                  /* what others use between updates: activations, and
                                        * where there are others gradients and states */
    Arena      act, io, host, sort;    /* act: in block; sort: what packing needs while it works */
    Pipeline   pipe;                   /* in act */
    struct MicroSlot *slot;            /* [pipe.flights] micro-batches under way: in io */
    PackCost   cost;
    TokenFlops flops;
} Policy;

typedef struct {
    LossSum loss;
    double  total, grad_norm;         /* total: the loss; grad_norm before clipping */
    double  imbalance, spread;        /* worst / mean cost: of micro-batches; of the parts over dp */
    int64_t tokens, micros, max_micro;
    int64_t part_most, part_least;    /* tokens that a part over dp computed: the fullest, the emptiest */
    int     seqs, silent;             /* silent: of them, how many took no backward */
    int64_t compared;                 /* answer tokens whose log-prob was computed: loss.max_diff is over these */
    double  flops, flops_verl;        /* of what was computed (cut/flops.h): the exact count, and verl's */
    bool    finite, stepped;          /* stepped: the weights moved */
    bool    given_up;                 /* half way, because go_on said no: nothing has changed */
} UpdateStats;

/* What policy_open will take on that rank, by arena; m->dev->tmp must hold 'tmp'.  block: all of the device's that lies
 * in p->block, which is act, again (where blocks of all flights are recomputed), of grads and optim_dev those that are
 * in it, and weights, which with park_weights are; offloaded: states, of the host. */
typedef struct {
    size_t grads, optim_dev, optim_host, act, again, io, host, sort, tmp, block, offloaded, weights, ways;
    bool shares;
} PolicySizes;
/* shard NULL: one rank */
PolicySizes policy_sizes(const ModelDesc *m, const Shard *shard, const PolicyConf *c, DevKind like);

void policy_open (Policy *p, Model *m, const PolicyConf *c, Mem *mem);
void policy_close(Policy *p);
/* Where the weights lie in a block of policy_sizes' bytes. */
static inline Arena policy_weights_in(Arena block, const PolicySizes *s) {
    return arena_over("weights", block.base + (block.size - s->weights), s->weights);
}

/* Log-prob and entropy of every answer token; lp[i], ent[i] have room for sequence i's (ent may be NULL).  Where go_on
 * says no they are not complete: whoever gave go_on knows. */
bool policy_logprob(Policy *p, const TrainSeq *seqs, int n, float *const *lp, float *const *ent, Err *err);

/* Do they differ?  Two that are no numbers do not. */
static inline bool logprob_differs(float a, float b) { return a != b && !(a != a && b != b); }

/* How far the log-probs of the weights are from 'old', over every answer token that counts: adds to tokens, raises
 * max_diff (which is NaN where one is).  Where go_on says no it ends early. */
typedef struct { int64_t tokens; double max_diff; } Exact;
bool policy_compare(Policy *p, const TrainSeq *seqs, int n, Exact *sum, Err *err);

/* The gradients of a mini-batch, left in p->grads; st is filled but for their norm and what follows it. */
bool policy_grads(Policy *p, const TrainSeq *seqs, int n, const LossConf *loss, UpdateStats *stats, Err *err);

/* The second half of an update, behind policy_grads: nothing where that was given up. */
void policy_step(Policy *p, const AdamConf *adam, bool only_grads, UpdateStats *stats);

/* One update on a mini-batch: both halves.  Where the loss or the gradient is not finite nothing is changed and
 * stats->finite is false.  With only_grads the gradients are left in p->grads and no step is taken. */
bool policy_update(Policy *p, const TrainSeq *seqs, int n, const LossConf *loss, const AdamConf *adam, bool only_grads,
                   UpdateStats *stats, Err *err);

#endif
