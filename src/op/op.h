/* op.h - every number in the system is made by one of these functions.
 *
 * op/op*.c checks shapes and calls the backend; a backend (op/cpu, later op/cuda) only computes.  op/cpu is the truth:
 * docs/exactness.md states the order of every sum, and another backend or instruction set must give the same bits.
 *
 * Conventions.  Outputs first, then inputs, then scalars.  T tokens, I/O in and out width, H hidden, N heads, K kv
 * heads, D head width, E experts, V vocabulary, S sequences.  Activations are written (=); weight gradients are added to
 * (+=), so micro-batches accumulate by being run.  x_bwd is the backward of x and stands under it.  All tensors are
 * device memory: nothing outside op/ may touch their bytes, op_put and op_get are the only doors.  Numbers that shape
 * the work (rows, longest) are known on the host; index lists are device tensors of DT_I32. */
#ifndef OP_OP_H
#define OP_OP_H

#include "arch/kinds.h"
#include "base/threads.h"
#include "tensor/tensor.h"

typedef struct Ops Ops;

/* ---- The device: a backend, its scratch, its threads ---------------------------------------------------------------- */
typedef struct {
    const Ops *ops;
    Arena      tmp;             /* scratch of layers and ops: take a mark, pop it before returning */
    Threads   *threads;
    bool       guard;           /* checking mode: device memory is readable only inside an op */
    int        isa;             /* op/cpu: IsaKind; tests lower it to compare paths */
    struct { void *at; size_t bytes, asked; } block[32];     /* mapped; as asked for */
    int        n_blocks, depth;
    size_t     dry;             /* bytes the dry device has handed out */
    void      *scratch;         /* the backend's own, one piece per worker, made by dev_open: ops allocate nothing */
    bool       chains;          /* calls that work row by row may wait for each other: dev_chain */
    int        queued;          /* of them, waiting in */
    void      *chain;
} Dev;

typedef struct { int threads; bool guard; int isa; } DevOpts;            /* 0 threads: all cores; isa 0: the best there is */
void  dev_open(Dev *d, DevOpts o);                                       /* the CPU */
void  dev_open_dry(Dev *d, int threads);                                 /* computes nothing, counts memory: see dry.c */
void *dev_block(Dev *d, size_t bytes);                                   /* zeroed device memory; dies if there is none */
void  dev_free(Dev *d, void *block);
Arena dev_arena(Dev *d, const char *name, size_t bytes);                 /* an arena over a new block */
void  dev_touch(Dev *d);                                                 /* takes every page of every block now, not when it is first used */
/* On: a call may be done later than it returns, together with others; what it gives is the same.  Off: all are done. */
void  dev_chain(Dev *d, bool on);
void  dev_close(Dev *d);                                                 /* frees every block */

/* ---- What several ops take ------------------------------------------------------------------------------------------- */
/* Rows at[i]..at[i+1] belong together: a packed sequence, or an expert's tokens.  at [n+1] DT_I32. */
typedef struct { int n, longest; Tensor at; } Seqs;

/* How a summed dimension is cut (E2): 'units' things of 'unit' columns each are cut into 'of' pieces, piece s being
 * units [units*s/of, units*(s+1)/of); each piece is one fma chain, the pieces are added by the balanced tree.  This call
 * holds pieces first .. first+n-1, a whole subtree, and its columns start with piece first's. */
typedef struct { int first, n, of; int64_t units, unit; } Leaves;
static inline Leaves leaves_one(int64_t cols) { return (Leaves){ 0, 1, 1, cols, 1 }; }
static inline Leaves leaves_all(int of, int64_t units, int64_t unit) { return (Leaves){ 0, of, of, units, unit }; }
static inline int64_t leaves_cut(const Leaves *l, int s) { return l->units * s / l->of * l->unit; }      /* global column */
static inline int64_t leaves_cols(const Leaves *l) { return leaves_cut(l, l->first + l->n) - leaves_cut(l, l->first); }

/* What an op's backward reads back, kept by the layer as one struct. */
typedef struct {
    Tensor q, k, v, o, lse;     /* q [T,N*dk] k [T,K*dk] v [T,K*dv] o [T,N*dv] lse [T,N] (may be none in forward) */
    Seqs   seqs;
    int    heads, kv_heads, dk, dv;
    float  scale;               /* v may be columns of k (MLA's latent is both) */
} Attn;

/* Keys and values in pages.  Their layout inside a page belongs to the backend; kv_bytes says how much a page takes. */
typedef struct {
    Tensor pool;                /* DT_U8 [pages, kv_bytes] */
    int    page;                /* positions a page, a multiple of 16 */
    int    kv_heads, dk, dv;
    bool   latent;              /* MLA: the value is the first dv of the key, kept once */
} Kv;
typedef struct {                /* new rows of S sequences: rows.at[i]..at[i+1] are positions start[i].. of sequence i */
    Seqs   rows;
    Tensor start;               /* [S] */
    Tensor table;               /* [S,max_pages]: page numbers in the order of positions */
} Paged;

typedef struct {                /* which part of each head turns, and how */
    int  heads, width, from, dim;   /* x [T,heads*width]; columns from..from+dim of each head */
    bool pairs;                     /* neighbours (2i,2i+1) turn together; else halves (i,i+dim/2) */
} RopeShape;

/* y_h [T,out] = x_h [T,in] w_h for each head h, by rule 1.  x_h is columns h*x_width + x_from .. of x, y_h likewise of y;
 * w_h is rows h*w_rows + w_from .. of w: [out,in] as a linear's weight, or [in,out] when 'turned'. */
typedef struct { int heads, in, out, x_width, x_from, y_width, y_from, w_rows, w_from; bool turned; } HeadMap;

typedef struct {
    RouteKind kind;
    int    topk, groups, group_topk;
    bool   renorm;
    float  factor;              /* routed_scaling_factor; 1 for softmax */
    Tensor logits, bias;        /* [T,E]; [1,E] or none */
    Tensor pick, weight;        /* out: [T,topk] DT_I32 ascending ids; [T,topk] */
} Route;

/* Which distribution a row is drawn from.  Tensors [T,1], or none for "as the model says". */
typedef struct { Tensor inv_temp, top_k, top_p, min_p; } Dist;          /* top_k DT_I32 (0 off), top_p 1 off, min_p 0 off */

/* A set of ids per row: DT_I32 [T,kept_words(V)], bit v % 32 of word v / 32 is id v's. */
static inline int64_t kept_words(int64_t vocab) { return (vocab + 31) / 32; }

typedef struct {
    Tensor h, w;                /* [T,H], [V,H] */
    Tensor ids;                 /* [T,1] DT_I32: whose log-prob; -1: none wanted (lp 0, no gradient through lp) */
    Dist   dist;
    Tensor lp, ent;             /* out [T,1]; lp is -inf for an id outside the kept set */
    Tensor stat;                /* out, DT_U8 [T, HEAD_STAT]: what backward needs */
    Tensor banned, ban;         /* as in Sample: the distribution scored is the one drawn from */
    Tensor kept;                /* or none.  A row that dist cuts keeps these ids, whatever the weights would keep now: Sample's */
} Head;
enum { HEAD_STAT = 64 };

typedef struct {
    Tensor h, w;                /* [B,H], [V,H] */
    Dist   dist;
    Tensor random;              /* [B,1] DT_I64: 64 random bits of the row */
    Tensor greedy;              /* [B,1] DT_I32: 1 takes the largest logit (lowest id on a tie), or none */
    Tensor banned;              /* [n_ban,1] DT_I32 ids that rows with ban set may not take, or none */
    Tensor ban;                 /* [B,1] DT_I32 0/1, or none: min-tokens keeps stop tokens away */
    Tensor id, lp, ent;         /* out [B,1] DT_I32, F32, F32; lp and ent are of the distribution drawn from,
        the ban included */
    Tensor kept;                /* out, or none: the ids that were kept; all where nothing is cut */
} Sample;                       /* a greedy row: lp and ent of the whole distribution (ban, temperature; no truncation) */

typedef struct { float lr, beta1, beta2, eps, decay, clip_scale; int64_t step; } Adam;   /* step counts from 1 */

/* What an op takes from d->tmp while it runs; every other op takes nothing. */
size_t op_tmp_logprob(int64_t rows, int64_t vocab);                     /* logprob and sample */
size_t op_tmp_logprob_bwd(int64_t rows, int64_t vocab);

/* ---- The table --------------------------------------------------------------------------------------------------------- */
struct Ops {
    const char *name;

    void (*put) (Dev *d, Tensor to, const void *from);       /* host -> device, from has no gaps */
    void (*get) (Dev *d, void *to, Tensor from);             /* device -> host, to has no gaps */
    void (*copy)(Dev *d, Tensor to, Tensor from);            /* f32 <-> bf16 converts */
    void (*zero)(Dev *d, Tensor x);

    /* dense: y[T,O] = x[T,I] w[O,I]' + b[1,O];  w is F32 or BF16 */
    void (*linear)    (Dev *d, Tensor y, Tensor x, Tensor w, Tensor b, Leaves sum);     /* sum over I */
    void (*linear_dx) (Dev *d, Tensor dx, Tensor dy, Tensor w, Leaves sum);             /* sum over O */
    void (*linear_dw) (Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x);              /* += ; chain over rows from dw */
    /* the same with one weight per expert, w [E*O,I], rows grouped by ex */
    void (*grouped)   (Dev *d, Tensor y, Tensor x, Tensor w, Seqs ex, Leaves sum);
    void (*grouped_dx)(Dev *d, Tensor dx, Tensor dy, Tensor w, Seqs ex, Leaves sum);
    void (*grouped_dw)(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex);                /* += */
    /* one matrix per head (MLA's absorbed projections): see HeadMap */
    void (*headwise)    (Dev *d, Tensor y, Tensor x, Tensor w, HeadMap m);
    void (*headwise_dw) (Dev *d, Tensor dw, Tensor dy, Tensor x, HeadMap m);            /* += */
    void (*copy_heads)  (Dev *d, Tensor y, Tensor x, HeadMap m);                        /* y's part = x's part; in == out */
    void (*tree_add)  (Dev *d, Tensor y, const Tensor *part, int n);                    /* balanced tree, n a power of 2 */

    /* row by row */
    void (*embed)      (Dev *d, Tensor y, Tensor ids, Tensor w);
    void (*embed_bwd)  (Dev *d, Tensor dw, Tensor dy, Tensor ids);                      /* += */
    void (*rmsnorm)    (Dev *d, Tensor y, Tensor rstd, Tensor x, Tensor g, float eps);
    void (*rmsnorm_bwd)(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g);   /* dg += */
    void (*swiglu)     (Dev *d, Tensor y, Tensor gate, Tensor up);
    void (*swiglu_bwd) (Dev *d, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up);
    void (*add)        (Dev *d, Tensor y, Tensor a, Tensor b);                          /* y may be a */
    void (*rope_table) (Dev *d, Tensor cossin, Tensor pos, Tensor freq, float amp);     /* cossin [T,dim]: cos then sin */
    /* in place; -1 is the transpose of +1 */
    void (*rope)       (Dev *d, Tensor x, Tensor cossin, RopeShape s, int turn);

    /* attention within each packed sequence, and the same over pages */
    void   (*attend)    (Dev *d, const Attn *a);
    void   (*attend_bwd)(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a);
    size_t (*kv_bytes)  (const Kv *kv);
    void   (*kv_put)    (Dev *d, Kv kv, Tensor k, Tensor v, Paged rows);
    void   (*kv_copy)   (Dev *d, Kv kv, int to_page, int from_page);
    void   (*attend_kv) (Dev *d, Tensor o, Tensor q, Kv kv, Paged rows, int heads, float scale);

    /* experts: choose, gather rows by expert, put them back weighted */
    void (*route)       (Dev *d, const Route *r);
    void (*route_bwd)   (Dev *d, Tensor dlogits, Tensor dweight, const Route *r);
    /* at [E+1] from [T*k] slot [T,k] */
    void (*moe_sort)    (Dev *d, Tensor at, Tensor from, Tensor slot, Tensor pick, int experts);
    void (*permute)     (Dev *d, Tensor y, Tensor x, Tensor from);                      /* y[i] = x[from[i]] */
    void (*permute_bwd) (Dev *d, Tensor dx, Tensor dy, Tensor slot);                    /* dx[t] = sum_j dy[slot[t,j]] */
    /* y[t] = sum_j w[t,j] rows[slot[t,j]] */
    void (*combine)     (Dev *d, Tensor y, Tensor rows, Tensor slot, Tensor weight);
    void (*combine_bwd) (Dev *d, Tensor drows, Tensor dweight, Tensor dy, Tensor rows, Tensor slot, Tensor weight);
    void (*scatter_rows)(Dev *d, Tensor x, Tensor y, Tensor from);                      /* x = 0, then x[from[i]] = y[i] */

    /* the head: log-probs of given tokens without ever holding [T,V]; drawing */
    void (*logprob)    (Dev *d, const Head *h);
    void (*logprob_bwd)(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h);    /* dw +=; dent may be none */
    void (*sample)     (Dev *d, const Sample *s);

    /* the optimizer, on flat tensors [1,n] */
    double (*sumsq)(Dev *d, Tensor x);                                                  /* same bits for any thread count */
    void   (*adamw)(Dev *d, Tensor w, Tensor m, Tensor v, Tensor g, Adam a);
};

extern const Ops ops_cpu, ops_dry;

/* ---- Checked front doors, one per entry above; layers call only these. -------------------------------------------------- */
void op_put (Dev *d, Tensor to, const void *from);
void op_get (Dev *d, void *to, Tensor from);
void op_copy(Dev *d, Tensor to, Tensor from);
void op_zero(Dev *d, Tensor x);

void op_linear    (Dev *d, Tensor y, Tensor x, Tensor w, Tensor b, Leaves sum);
void op_linear_dx (Dev *d, Tensor dx, Tensor dy, Tensor w, Leaves sum);
void op_linear_dw (Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x);
void op_grouped   (Dev *d, Tensor y, Tensor x, Tensor w, Seqs ex, Leaves sum);
void op_grouped_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Seqs ex, Leaves sum);
void op_grouped_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex);
void op_headwise   (Dev *d, Tensor y, Tensor x, Tensor w, HeadMap m);
void op_headwise_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, HeadMap m);
void op_copy_heads (Dev *d, Tensor y, Tensor x, HeadMap m);
void op_tree_add  (Dev *d, Tensor y, const Tensor *part, int n);

void op_embed      (Dev *d, Tensor y, Tensor ids, Tensor w);
void op_embed_bwd  (Dev *d, Tensor dw, Tensor dy, Tensor ids);
void op_rmsnorm    (Dev *d, Tensor y, Tensor rstd, Tensor x, Tensor g, float eps);
void op_rmsnorm_bwd(Dev *d, Tensor dx, Tensor dg, Tensor dy, Tensor x, Tensor rstd, Tensor g);
void op_swiglu     (Dev *d, Tensor y, Tensor gate, Tensor up);
void op_swiglu_bwd (Dev *d, Tensor dgate, Tensor dup, Tensor dy, Tensor gate, Tensor up);
void op_add        (Dev *d, Tensor y, Tensor a, Tensor b);
void op_rope_table (Dev *d, Tensor cossin, Tensor pos, Tensor freq, float amp);
void op_rope       (Dev *d, Tensor x, Tensor cossin, RopeShape s, int turn);

void   op_attend    (Dev *d, const Attn *a);
void   op_attend_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a);
size_t op_kv_bytes  (const Dev *d, const Kv *kv);
void   op_kv_put    (Dev *d, Kv kv, Tensor k, Tensor v, Paged rows);
void   op_kv_copy   (Dev *d, Kv kv, int to_page, int from_page);
void   op_attend_kv (Dev *d, Tensor o, Tensor q, Kv kv, Paged rows, int heads, float scale);

void op_route       (Dev *d, const Route *r);
void op_route_bwd   (Dev *d, Tensor dlogits, Tensor dweight, const Route *r);
void op_moe_sort    (Dev *d, Tensor at, Tensor from, Tensor slot, Tensor pick, int experts);
void op_permute     (Dev *d, Tensor y, Tensor x, Tensor from);
void op_permute_bwd (Dev *d, Tensor dx, Tensor dy, Tensor slot);
void op_combine     (Dev *d, Tensor y, Tensor rows, Tensor slot, Tensor weight);
void op_combine_bwd (Dev *d, Tensor drows, Tensor dweight, Tensor dy, Tensor rows, Tensor slot, Tensor weight);
void op_scatter_rows(Dev *d, Tensor x, Tensor y, Tensor from);

void op_logprob    (Dev *d, const Head *h);
void op_logprob_bwd(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h);
void op_sample     (Dev *d, const Sample *s);

double op_sumsq(Dev *d, Tensor x);
void   op_adamw(Dev *d, Tensor w, Tensor m, Tensor v, Tensor g, Adam a);

#endif
