/* adapter.h - low-rank adapters: a second table made of a model's.
 *
 * Of every matrix W [out,in] that is a target it has rows A [r,in] and B [out,r] (and, where asked for, a bias of B
 * [out]): the model computes x W' + s ((x A') B' + bias).  Rows are cut as W is: what W has by rows B and its bias have
 * too and A is whole, what W has by columns A has and B is whole.  So loading, saving, cutting, optimizer, checkpoints,
 * sync and the planner's bytes are the loops over a table that they are for a model, and names on disk are peft's. */
#ifndef ARCH_ADAPTER_H
#define ARCH_ADAPTER_H

#include "arch/arch.h"

enum { ADAPTER_RANK_MOST = 4096 };

/* What is where: [layers][P_COUNT], layer 0 for rows outside layers. */
typedef struct {
    int64_t layers;
    int16_t (*rank)[P_COUNT];       /* 0: no target */
    float   (*scale)[P_COUNT];
    bool    (*bias)[P_COUNT];
    bool    *shared;                /* [layers]: experts' up reads what their gate's A makes (peft's gate_up_proj) */
} AdapterPlan;
AdapterPlan adapter_plan(const ModelDesc *m, Mem *mem);         /* no targets */

/* Matrices that can be one: those that layer/linear.c multiplies. */
bool adapter_can(const ParamDesc *p);
/* The module's name as peft has it below base_model.model: "model.layers.3.self_attn.q_proj". */
void adapter_module(Buf *out, const ParamDesc *p, int layer, int expert);

/* The table of that plan, of the same Dims; lives in mem. */
ModelDesc arch_adapter(const ModelDesc *m, const AdapterPlan *plan, Mem *mem);

/* ---- A plan from settings: peft's keys, and what they mean there.
 * A target is the end of a module's name at a dot; one string is a regular expression of the whole name, "all-linear"
 * every linear map but the router, embedding, head and tower.  A pattern's key is an expression that the name ends in,
 * from a dot on; the first that does counts. */
typedef struct { const char *key; double value; } AdapterPattern;
typedef struct {
    int64_t rank;
    double  alpha;
    bool    rslora, bias, divided;              /* divided: an expert's rank is one of the active experts' share */
    const char *regex;                          /* or NULL: */
    const char *const *targets, *const *exclude;
    int n_targets, n_exclude;
    const AdapterPattern *ranks, *alphas;
    int n_ranks, n_alphas;
    const int64_t *at;                          /* layers, or NULL: all */
    int n_at;
} AdapterSpec;
bool adapter_plan_of(AdapterPlan *out, const ModelDesc *m, const AdapterSpec *spec, Mem *mem, Err *err);
double adapter_scale(double alpha, double rank, bool rslora);
/* The value of the first pattern that a module's name has, or 'otherwise'. */
bool adapter_pattern(double *out, const AdapterPattern *p, int n, const char *module, double otherwise, Err *err);

bool    adapter_of_experts(const ModelDesc *adapter);           /* has it any? */
int64_t adapter_count(const ModelDesc *adapter);                /* parameters */

#endif
