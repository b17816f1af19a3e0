/* plan.h - model + cluster + workload + layout + profile -> bytes per rank and stage, seconds per phase.
 *
 * A profile says how a stack spends memory and time: "verl" reproduces verl + Megatron + vLLM as published, "hone"
 * predicts this program.  Closed formulas; simulate.h plays the same step event by event. */
#ifndef PLAN_PLAN_H
#define PLAN_PLAN_H

#include "cut/grid.h"
#include "plan/machine.h"
#include "plan/sum.h"

enum { MAX_STAGES = 128 };

typedef struct {                      /* one RL step */
    double prompts, answers;          /* questions a step, answers to each */
    double mini;                      /* questions of one optimizer step */
    double prompt_mean, prompt_max;   /* tokens */
    double mean, max;                 /* tokens of an answer: mean, and where it is cut off */
    double spread;                    /* standard deviation / mean of an answer's length, before the cut */
    bool   kl;                        /* a reference model is needed */
    int    epochs;                    /* passes over the step's data */
    struct {                          /* pictures of a question, of one size; their tokens are in prompt_* */
        double n;
        int    h, w, tokens;          /* patches down and across; of one picture */
    } images;
} Workload;

typedef struct {
    GridShape g;                      /* of the trainer; dp: set by layout_check() */
    int    drop;                      /* recomputation: DROP_* of sum.h */
    bool   fused_head;                /* log-probs without ever holding [T,V] */
    double micro_tokens;              /* most tokens of a micro-batch on one dp rank */
    double offload;                   /* share of the optimizer's states kept and stepped on the host */
    bool   park_weights, park_states; /* the trainer's weights, its device-side optimizer states wait on the host */
    int    gen_tp, gen_ep;            /* rollout: cut of attention, of experts; an engine is max of the two GPUs */
    double gen_use;                   /* share of device memory the engine may take */
} Layout;

/* A workload's numbers where 0 stands for the usual; ranks over which experts are cut; the GPUs of one engine. */
static inline double work_mini(const Workload *w) { return w->mini > 0 ? w->mini : w->prompts; }
static inline int    work_epochs(const Workload *w) { return w->epochs > 0 ? w->epochs : 1; }
static inline int    layout_expert_cut(const Layout *l) { return l->g.ep * l->g.etp; }
static inline int    layout_engine(const Layout *l) { return l->gen_ep > l->gen_tp ? l->gen_ep : l->gen_tp; }

typedef struct {                      /* how the run saves */
    double average;                   /* bytes of each of the two averages in a checkpoint: 4, 2, 0 */
    double minutes;                   /* between saves; 0: not by time */
    double signal;                    /* seconds before its end in which a job is told; 0: not said */
    bool   whole;                     /* the buffer holds a copy of everything */
} Saves;

typedef struct {
    const char *name, *about;
    /* memory: bytes per parameter, and what lies outside the tensors */
    double weight, grad, optimizer, kv;
    double runtime, gen_work, host_base;    /* device: context, rings, fragments; engine's activations; per node */
    bool   one_copy;                        /* rollout reads the trainer's bytes where the cuts coincide */
    bool   pinned_pow2;                     /* host blocks rounded to powers of two, two generations (verl, torch) */
    /* time */
    bool   old_pass;                  /* a second log-prob pass before the update */
    bool   absorbed;                  /* MLA in the latent also in training: one form, the same bits, more FLOP */
    bool   balanced;                  /* each mini-batch is balanced over dp, not only the step */
    bool   scattered;                 /* ranks take nodes in no order of place: see plan_domain() */
    double launch;                    /* decoding: seconds per kernel, whatever it computes */
    double running;                   /* decoding: most sequences of an engine at once */
    double block_work, row_work;      /* unfused kernels: SM-seconds per kept byte, per routed row */
    double a2a, ring;                 /* fraction of a link's rate in all-to-alls, in rings */
    double latency;                   /* seconds of a collective across nodes, before its bytes */
    double adam_rate, adam_fixed;     /* host AdamW: parameters a second per rank (0: bandwidth), seconds per step */
    bool   adam_whole;                /* ... of all experts of the rank, not of its share among expert replicas */
    double decode_bw;                 /* fraction of device bandwidth that decoding reaches */
    double decode_layer, decode_row;        /* seconds beside them: of a layer; of a layer and sequence */
    double misc, move_rate;           /* share of the step that is no phase; bytes a second a rank parks at (0: PCIe) */
    double state_rate;                /* ... at which it passes over host-stepped states, there and back (0: never) */
    bool   sync_whole;                /* every rank rebuilds every tensor; else slices go where they are needed */
    double sync_tensor;               /* seconds per tensor */
    double sequence;                  /* host seconds per answer that nothing hides */
} Profile;

const Profile *profile_find(const char *name);
void           profile_list(Buf *out);

typedef enum {
    MEM_WEIGHTS,
    MEM_GRADS,
    MEM_OPTIM,
    MEM_ACT,
    MEM_WORK,
    MEM_HEAD,
    MEM_ENGINE,
    MEM_KV,
    MEM_BUFFERS,
    MEM_RUNTIME,
    MEM_COUNT
} MemKind;
typedef enum {
    HOST_OPTIM, HOST_OFFLOADED, HOST_GRADS, HOST_WEIGHTS, HOST_REF, HOST_SAVE, HOST_BASE, HOST_COUNT
} HostKind;
typedef enum { PH_ROLLOUT, PH_SYNC, PH_OLD, PH_REF, PH_UPDATE, PH_OPTIMIZER, PH_MISC, PH_COUNT } Phase;
typedef enum {
    BY_COMPUTE, BY_MEMORY, BY_NETWORK, BY_LAUNCH, BY_OPTIMIZER, BY_BUBBLE, BY_IMBALANCE, BY_TAIL, BY_HOST, BOUND_COUNT
} Bound;
extern const char *const MEM_NAMES[MEM_COUNT], *const HOST_NAMES[HOST_COUNT];
extern const char *const PHASE_NAMES[PH_COUNT], *const BOUND_NAMES[BOUND_COUNT];
/* Phases in which a rank holds something different; the others are like the update. */
static inline bool phase_has_memory(int p) { return p == PH_ROLLOUT || p == PH_SYNC || p == PH_UPDATE; }

typedef struct {
    int    layers;
    double dense, expert;                            /* parameters on one rank */
    double in_flight;                                /* micro-batches whose activations are alive at once */
    double bytes[PH_COUNT][MEM_COUNT], total[PH_COUNT];
    double load;                                     /* products, forward to backward, in layers' worth */
    double forward[BOUND_COUNT], backward[BOUND_COUNT];      /* seconds of one micro-batch by cause */
    double t_forward, t_backward;                    /* their sums */
} StagePlan;

typedef struct {
    double seconds;
    Bound  bound;                                    /* what takes most of it */
    double part[BOUND_COUNT];                        /* seconds by cause; they add up to 'seconds' */
} PhasePlan;

/* E[s^2]/E[s], deviation/mean; the longest answer */
typedef struct { double square, variation, longest; } Moments;

typedef struct {
    const ModelSum *sum;
    Cluster   cluster;
    Workload  work;
    Layout    layout;
    const Profile *profile;
    Saves     saves;
    /* memory */
    int       stages, worst[PH_COUNT];               /* stage that holds most in that phase */
    StagePlan stage[MAX_STAGES];
    double    host[HOST_COUNT], host_worst, host_typical, host_mean;      /* the worst node by kind; per node */
    double    engine_weights, kv_pool, kv_per_token, kv_tokens;           /* per rank, per rank, per rank, per engine */
    double    engines;
    /* time */
    double    micro_batches, mini_batches, tokens;   /* per mini-batch and dp rank; per step; in the whole step */
    PhasePlan phase[PH_COUNT];
    double    step, tokens_per_gpu, mfu, mfu_old, mfu_exact, mfu_hardware;
    double    imbalance_stage, imbalance_data, bubble;
    double    decode_batch, decode_step;             /* mean over the rollout; seconds */
    struct { double fixed, row; } measured;          /* a decode step: fixed + row * batch seconds; 0: by roofline */
    int       follow;                                /* answers of an engine that are followed one by one; 0: 2048 */
    Moments   lengths;                               /* of sequences */
    double    sync_bytes;                            /* received by a rank */
    double    arenas;                                /* of hone train here, counted to the byte;
                                                      * 0: the table above stands */
    /* verdict */
    bool      fits;
    char      verdict[512];                          /* what is short, by how much; empty when it fits */
} Plan;

/* ---- layout.c */
/* sets dp; axes of 0 are 1 */
bool layout_check(Layout *l, const ModelSum *s, const Cluster *c, const Workload *w, Err *err);
bool recompute_parse(int *drop, const char *text, Err *err);               /* none|selective|moe|full */
const char *recompute_name(int drop);
static inline Recompute recompute_of(int drop) {       /* as this program does it: the ways that
                                                        * others have count as the nearest */
    return drop & DROP_ALL ? RECOMPUTE_FULL : drop ? RECOMPUTE_SELECTIVE : RECOMPUTE_NONE;
}
const int *recompute_ways(const Profile *f);           /* what the stack can recompute, the least first; ends with -1 */

/* GPUs within which a group of consecutive ranks keeps to NVLink.  On a cluster of several domains, a stack that places
 * ranks without looking at them ('scattered') can count on a node only. */
static inline int plan_domain(const Plan *p) {
    const Machine *g = &p->cluster.gpu;
    bool mixed = p->profile->scattered && p->cluster.gpus > g->domain && g->per_node < g->domain;
    return mixed ? g->per_node : g->domain;
}

/* One copy of the weights serves both phases: trainer and engine cut them alike. */
static inline bool plan_shares(const Plan *p) {
    const Layout *l = &p->layout;
    bool experts = p->sum->model->d.experts > 0;
    return p->profile->one_copy && l->g.pp == 1 && l->gen_tp == l->g.tp && l->gen_ep == l->g.ep
           && (!experts || layout_expert_cut(l) == layout_engine(l));
}

static const double LINK_SHARE = 0.8;        /* of a link's rate, what large messages from one GPU to one other reach */

/* ---- lengths.c: n answers' lengths as quantiles of the workload's distribution, shuffled; E[s^2] / E[s] of them */
void   lengths_fill(const Workload *w, double *out, int n);
Moments lengths_moments(const Workload *w, double n);
double normal_quantile(double p);                     /* inverse of the normal distribution function */

/* ---- rollout.c: one decode step of an engine with batch sequences of mean context ctx: seconds by cause */
double decode_step(const Plan *p, double batch, double ctx, double part[BOUND_COUNT]);
void   plan_rollout(Plan *p);

/* Answers of these lengths through one engine, in order of arrival from the end; each stands for 'scale' of them. */
typedef struct { double seconds, steps, batch; double part[BOUND_COUNT]; long events; } Rolled;
void   engine_play(const Plan *p, double *lengths, int n, double scale, Rolled *out);

/* ---- memory.c, time.c */
void plan_memory(Plan *p);                        /* stages, host, kv, verdict */
void plan_time(Plan *p);                          /* phases, step, rates; after plan_memory */
void plan_make(Plan *p);                          /* both; sum, cluster, work, checked layout and profile are set */
void plan_moments(Plan *p);                       /* the lengths' moments; the rest of plan_time, apart from rollout: */
void plan_train(Plan *p);
void plan_layer_seconds(const Plan *p, double *layer, double *head);      /* of one micro-batch, forward and backward */
void plan_total(Plan *p);

/* ---- traffic.c: what ranks of this program send each other, in bytes (tests/cmd/traffic.sh counts them)
 * Of a token in one layer, by all ranks of its groups together: forward, and backward with what is done again. */
typedef struct { double tp, cp, ep; } SentBytes;
SentBytes   sent_forward(const Plan *p, int layer);
SentBytes   sent_backward(const Plan *p, int layer);
/* ... at the model's ends: embedding, and what reads the last block. */
SentBytes   sent_ends(const Plan *p, bool first, bool last, bool back);
/* Of a step of decoding of an engine in one layer, by all of its ranks: rows of each replica of attention. */
SentBytes   sent_decode(const Plan *p, int layer, double rows);
double plan_sent(const Plan *p, Phase ph);           /* of all ranks: rollout, sync, reference; update: the optimizer's
                                                      * too; else 0 */

/* The smallest single change after which everything fits, in words; false: none of those tried helps. */
bool plan_remedy(const Plan *p, Buf *out);

#endif
