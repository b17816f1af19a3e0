/* arch.h - what a model is: numbers, kinds, and a table of its parameters.
 *
 * The table is the only place that knows a weight's name, shape and cut.  Allocation, loading, saving, tensor- and
 * expert-parallel slicing, sharded optimizers, resharding, the planner's bytes and the tests' random models are loops
 * over it.  A new family of known parts is one new file in arch/family/. */
#ifndef ARCH_ARCH_H
#define ARCH_ARCH_H

#include "arch/kinds.h"
#include "base/json.h"

enum { MAX_LAYERS = 512, MAX_EOS = 256, MAX_ROTARY = 576 };

typedef struct {
    RopeKind kind;
    double   theta, factor, low_freq, high_freq, original;                  /* original: context before scaling */
    double   beta_fast, beta_slow, mscale, mscale_all, attention_factor;    /* 0: not given */
    bool     truncate, pairs;                                               /* pairs: neighbours turn together
                                                                             * (deepseek) */
    int64_t  sections[3];                                                   /* ROPE_SECTIONS: time, row, column */
    double   longest;                                                       /* ROPE_LONG: max_position_embeddings */
    double   ext[MAX_ROTARY / 2];                                           /* ... what frequencies are divided by */
    double   part;                                                          /* of a head's columns that turn, from the
                                                                             * first on */
} RopeConf;

/* The vision tower's. */
typedef struct {
    int64_t  layers, hidden, heads, ffn, merge, patch, frames, in, window;     /* layers 0: none; window: pixels */
    int64_t  image_token, video_token, vision_start;           /* ids of places that pictures and frames take */
    double   per_second, theta;                                /* positions a second of a clip; of its rope */
    uint8_t  full[MAX_LAYERS];                                 /* 1: this layer sees whole frames, not windows */
    int64_t  pixels, qkv, merged;                              /* derived by arch_derive() */
} VisDims;

typedef struct { int64_t bos, eos[MAX_EOS], n_eos, pad; } SpecialTokens;       /* ids; -1 and 0: none */

/* Every number a config.json gives us, under one spelling. */
typedef struct {
    int64_t  layers, hidden, vocab, heads, kv_heads, head_dim, ffn, context;   /* context: max_position_embeddings */
    int64_t  q_lora, kv_lora, nope_dim, rope_dim, v_dim;                    /* MLA; q_lora 0: none */
    int64_t  experts, topk, expert_ffn, shared, groups, group_topk;         /* MoE; shared: how many shared experts */
    VisDims  vis;
    int64_t  mtp_layers;                                       /* extra layers in the file, not computed */
    bool     tied, qkv_bias, o_bias, mlp_bias, qk_norm, norm_topk;
    bool     norm_turned;                                      /* qk_norm comes behind the rotation */
    bool     centred;                                          /* norms multiply by 1 + their gains */
    bool     out_gate;                                         /* beside each query head a gate of its output */
    bool     shared_gate;                                      /* shared experts have a gate, a number a token */
    int64_t  shared_width;                                     /* of all shared experts; 0: each as wide as an expert */
    int64_t  dn_keys, dn_heads, dn_dk, dn_dv, dn_conv;         /* delta net: heads of keys, of values; widths; taps */
    bool     dn_grouped;                                       /* its projections lie by key head, in two tensors */
    bool     fp8;                                              /* quantization_config: float8 blocks in the files */
    LayerSpec layer[MAX_LAYERS];                               /* filled by the family's read: all 0 are layers of
                                                                * grouped-query attention and a dense feed-forward */
    double   eps, route_factor;                                /* rms_norm_eps; routed_scaling_factor */
    RopeConf rope;
    SpecialTokens special;
    /* derived once by arch_derive(): the widths that are sums or products */
    /* MLA: head_dim is qk_dim too */
    int64_t  one, qk_dim, q_out, kv_out, o_in, kv_a_out, kv_b_unit, kv_b_out, shared_ffn;
    int64_t  turned;                                           /* columns of a head that positions turn */
    int64_t  q_rows, q_unit;                                   /* of q's projection: with out_gate twice the heads' */
    int64_t  dn_k, dn_v, dn_each, dn_wide, dn_all, dn_v_first; /* keys' and values' columns; heads and values a key */
    int64_t  dn_qkvz, dn_qkvz_unit, dn_ba, dn_ba_unit;
    bool     dn_apart;                                         /* there are delta nets, not dn_grouped */
    int64_t  zero, qkv_all, k_first, v_first, gate_up_all;     /* rows of tensors that hold several (ParamDesc.in) */
    bool     own_head, q_latent, q_direct, q_a_bias, has_shared;        /* which optional rows of the table are there */
} Dims;

typedef enum {                        /* the names layer code uses */
    P_EMBED, P_NORM_OUT, P_HEAD,
    P_NORM1, P_NORM2, P_Q, P_K, P_V, P_QB, P_KB, P_VB, P_O, P_OB, P_QNORM, P_KNORM,
    P_Q_A, P_Q_AB, P_Q_A_NORM, P_Q_B, P_KV_A, P_KV_AB, P_KV_A_NORM, P_KV_B,
    P_GATE, P_UP, P_DOWN, P_GATEB, P_UPB, P_DOWNB, P_ROUTER, P_ROUTER_BIAS, P_E_GATE, P_E_UP, P_E_DOWN,
    P_S_GATE, P_S_UP, P_S_DOWN, P_S_MIX,
    P_DN_Q, P_DN_K, P_DN_V, P_DN_Z, P_DN_B, P_DN_A, P_DN_QKVZ, P_DN_BA, P_DN_CONV_Q, P_DN_CONV_K, P_DN_CONV_V,
    P_DN_LOG_A, P_DN_DT, P_DN_NORM, P_DN_OUT,
    P_VIS_PATCH, P_VIS_NORM1, P_VIS_NORM2, P_VIS_QKV, P_VIS_QKVB, P_VIS_O, P_VIS_OB,
    P_VIS_GATE, P_VIS_GATEB, P_VIS_UP, P_VIS_UPB, P_VIS_DOWN, P_VIS_DOWNB,
    P_VIS_NORM_OUT, P_VIS_FC1, P_VIS_FC1B, P_VIS_FC2, P_VIS_FC2B,
    P_COUNT
} ParamId;
/* What an adapter (arch/adapter.h) has for row id is row ADAPTER_x * P_COUNT + id of its table. */
typedef enum { ADAPTER_OF, ADAPTER_A, ADAPTER_B, ADAPTER_BIAS, ADAPTER_PARTS } AdapterPart;
enum { P_SLOTS = (int)ADAPTER_PARTS * (int)P_COUNT };
static inline ParamId adapter_id(AdapterPart part, ParamId of) { return (ParamId)((int)part * (int)P_COUNT + (int)of); }
static inline ParamId adapter_of(ParamId id) { return (ParamId)((int)id % (int)P_COUNT); }

/* Which part of the model it belongs to, for those who count: planner, inspect. */
typedef enum {
    R_EMBED, R_HEAD, R_FINAL, R_NORM, R_ATTN, R_DENSE, R_ROUTER, R_SHARED, R_EXPERTS, R_TOWER, ROLES
} Role;
typedef enum { IN_FIRST, IN_LAST, IN_LAYER, IN_DENSE, IN_MOE, IN_EXPERT, IN_VIS, IN_VIS_LAYER } Where;

/* How tensor parallelism cuts it.  A WHOLE weight's gradient is partial on each tp rank and is summed over tp. */
typedef enum { WHOLE, BY_ROWS, BY_COLS } Cut;

typedef struct {
    ParamId     id;
    Role        role;
    const char *name;                 /* as on disk; first %d layer, second %d expert */
    Where       where;
    size_t      rows, cols;           /* N(field) */
    Cut         cut;
    size_t      unit;                 /* N(field): never cut inside this many rows or columns; 0: anywhere */
    size_t      only_if;              /* B(field): the row exists only if this bool of Dims holds; 0: always */
    int         parts;                /* rows are this many stacked matrices, each cut alone; 0: one */
    bool        vector;               /* one dimension on disk (norms, biases): [cols], never decayed */
    bool        norm;                 /* a norm's gains: 1 in a model of random numbers, where biases are 0 */
    bool        one_product;          /* its gradient is one product over the batch: the first micro-batch writes it,
                                       * the others add (layer/linear.c; model.c: the head, where
                                       * it is no embedding too) */
    bool        frozen;               /* not moved by the gradient: no gradient, no optimizer state */
    bool        patch;                /* five dimensions on disk: [rows, channels, frames, patch, patch] */
    bool        delta;                /* of layers that are delta nets; R_ATTN without it: of the others */
    bool        filter;               /* [rows, 1, cols] on disk */
    bool        one_row;              /* a vector with two dimensions on disk: [1, cols] */
    const char *in;                   /* on disk it is rows first.. of this tensor, which has 'all' rows; NULL: a tensor
                                       * of its own.  An expert's, without a second %d, are [E,all,cols] */
    size_t      first, all;           /* N(field) */
    bool        joined;               /* and so it is written, behind the row above it; else under its own name */
    /* of an adapter's table: */
    AdapterPart part;
    const int16_t *rank;              /* [layers]: rows of A, columns of B; 0: not in this layer */
    const float   *scale;             /* [layers] of B: what the product of the two is multiplied by */
} ParamDesc;

#define N(field) offsetof(Dims, field)
#define B(field) offsetof(Dims, field)
static inline int dims_axes(const Dims *d) { return d->vis.layers ? 3 : 1; }   /* positions of a token */
static inline bool dims_moe(const Dims *d, int layer) { return d->layer[layer].ffn == FFN_EXPERTS; }
/* Latent attention has widths of its own, which every layer then shares. */
static inline bool dims_latent(const Dims *d) { return d->kv_lora > 0; }
static inline int64_t dim_at(const Dims *d, size_t field) {
    return *(const int64_t *)(const void *)((const char *)d + field);
}
/* Of the whole weight in that layer. */
static inline int64_t param_rows(const Dims *d, const ParamDesc *p, int layer) {
    return p->part == ADAPTER_A ? p->rank[layer] : dim_at(d, p->rows);
}
static inline int64_t param_cols(const Dims *d, const ParamDesc *p, int layer) {
    return p->part == ADAPTER_B ? p->rank[layer] : dim_at(d, p->cols);
}

typedef struct {
    const char      *name;            /* "qwen3_moe": the family */
    const char      *names[4];        /* config.json "architectures" */
    const char      *types[4];        /* config.json "model_type" */
    RouteKind        route;
    bool             runs;            /* false: counted by inspect and plan, refused by everything that computes */
    bool             untried;         /* has parts that no GPU ran yet: refused there */
    bool           (*read)(Dims *d, const Json *config, Err *err);   /* the family's keys; unsupported values
                                                                      * are errors */
    const ParamDesc *params;          /* ends with {0} name */
} Arch;

typedef struct ModelDesc {
    const Arch *arch;
    Dims        d;
    Json        config;               /* the whole file, for what is carried along when saving */
    const char *dir;                  /* folder of config.json */
    bool        freeze_tower;         /* the run does not train the vision tower: as if its rows were frozen */
    const struct ModelDesc *adapter;  /* what is added to these weights (arch/adapter.h), or NULL.  It alone is then
                                       * trained: of these rows all are frozen */
} ModelDesc;
static inline bool arch_in_tower(const ParamDesc *p) { return p->where == IN_VIS || p->where == IN_VIS_LAYER; }
static inline bool arch_frozen(const ModelDesc *m, const ParamDesc *p) {
    return p->frozen || m->adapter || (m->freeze_tower && arch_in_tower(p));
}
/* The table of what a run trains. */
static inline const ModelDesc *arch_trained(const ModelDesc *m) { return m->adapter ? m->adapter : m; }

/* From a folder that holds config.json, or from the file itself.  The error names the file, the key and the value.
 * generation_config.json beside it adds its end-of-text tokens. */
bool model_desc_load(ModelDesc *out, const char *path, Mem *mem, Err *err);
/* The folder with config.json that a path stands for: itself, or the huggingface/ folder in a checkpoint that verl
 * wrote (path is global_step_N, its actor, or the folder of all steps). */
const char *model_folder(const char *path, Mem *mem);
bool model_desc_parse(ModelDesc *out, const char *json, size_t n, Mem *mem, Err *err);
bool arch_runs_type(const char *type);                /* is a model of that model_type computed here? */
bool model_desc_runs(const ModelDesc *m, Err *err);   /* false, with a message, for a family that is only counted */
/* Tokens that one forward can take: rows, also those that experts get (topk of each token), are numbered in 32 bits. */
static inline int64_t model_desc_most_tokens(const ModelDesc *m) {
    return (INT32_MAX - 1) / (m->d.topk > 1 ? m->d.topk : 1);
}

/* Visit every parameter of the model in the order of memory: for each layer the rows of the table, a row's experts next
 * to each other (so the experts of one kind are one stacked matrix). */
typedef void ParamVisit(void *user, const ParamDesc *p, int layer, int expert, int64_t rows, int64_t cols);
void    arch_each_param(const ModelDesc *m, ParamVisit *visit, void *user);
/* The same with all experts of a row at once: 'experts' matrices of rows x cols each, 1 for a
 * row outside the experts. */
typedef void RowVisit(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols);
void    arch_each_row(const ModelDesc *m, RowVisit *visit, void *user);
enum { PARAM_DIMS = 5 };
/* on disk: dimensions */
int     arch_param_shape(int64_t shape[PARAM_DIMS], const ModelDesc *m, const ParamDesc *p, int64_t rows, int64_t cols);
/* The name of the tensor that it is a range of, and the range's first row. */
int64_t arch_param_in(Buf *out, const ModelDesc *m, const ParamDesc *p, int layer, int expert);
/* The same name as newer files spell it (model.visual, model.language_model), or false: it has no other. */
bool    arch_param_other_name(Buf *out, const ModelDesc *m, const char *name);
void    arch_param_name(Buf *out, const ParamDesc *p, int layer, int expert);      /* the name on disk */
int64_t arch_param_count(const ModelDesc *m);
int64_t arch_active_count(const ModelDesc *m);        /* parameters that one token meets; the
                                                       * embedding row lookup included whole */

/* The rotary frequencies: freq [dim/2], dim = head_dim or rope_dim; *amp multiplies cos and sin; the softmax scale
 * of attention, with YaRN's factor where the family has it. */
void  arch_rope(const ModelDesc *m, float *freq, float *amp);
float arch_attn_scale(const ModelDesc *m);
static inline int64_t arch_rope_dim(const ModelDesc *m) { return m->d.turned; }

void arch_derive(Dims *d);             /* fills the derived part of Dims from the rest */

/* Which kept activations are thrown away and made again.  SELECTIVE drops what one cheap op restores (norm outputs,
 * silu(gate)*up, permuted rows, rotated copies); FULL keeps a block's input and its routing. */
typedef enum { RECOMPUTE_NONE, RECOMPUTE_SELECTIVE, RECOMPUTE_FULL } Recompute;

#endif
