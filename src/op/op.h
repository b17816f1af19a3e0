/* op.h - every number in the system is made by one of the functions of op_list.h.
 *
 * op/op*.c checks shapes and calls the backend; a backend (op/cpu, op/cuda) only computes.  docs/exactness.md states
 * the order of every sum of op/cpu, which every instruction set keeps.  Each backend keeps E1, E3, E4, E5 and E6 with
 * itself, by memcmp, and E2 while tp <= leaves; between backends results agree within a bound per op and dtype.
 *
 * Calls are ordered on the device's queue and may return before they are done.  put has copied when it returns; get
 * waits.  What only a kernel can see (an id outside the vocabulary, a page outside the pool) it leaves in an error
 * word, which is read at every get (and sumsq): the process dies there, not where the call was made
 * (op/cuda/common/dev.cu).
 *
 * Conventions.  Outputs first, then inputs, then scalars.  T tokens, I/O in and out width, H hidden, N heads, K kv
 * heads, D head width, E experts, V vocabulary, S sequences.  Activations are written (=); weight gradients are added
 * to (+=), so micro-batches accumulate by being run.  x_bwd is the backward of x and stands under it.  All tensors are
 * device memory: nothing outside op/ may touch their bytes, op_put and op_get are the only doors.  Numbers that shape
 * the work (rows, longest) are known on the host; index lists are device tensors of DT_I32. */
#ifndef OP_OP_H
#define OP_OP_H

#include "arch/kinds.h"
#include "base/threads.h"
#include "tensor/tensor.h"

typedef struct Ops Ops;

/* ---- The device: a backend, its memory --------------------------------------------------------------------------- */
typedef struct Dev {
    const Ops *ops;             /* the backend's table */
    void      *impl;            /* what the backend keeps for itself, in mem */
    Mem        mem;
    Arena      tmp;             /* scratch of layers and ops: take a mark, pop it before returning */
    DType      act;             /* of activations, keys and values: F32, or BF16 on a backend that computes in it */
    Threads   *threads;         /* of the host */
    bool       guard;           /* checking mode: device memory is readable only inside an op */
    int        depth;           /* ops that are running, one inside the other */
    struct Profile *profile;    /* who notes when ops run, or NULL: op/profile.h */
    struct Watch *watch;        /* who sees what they wrote, or NULL: op/watch.h */
    const char *by;             /* which kernel serves: said by an op that is asked what it takes (Ops.tmp), where
        there are several */
    struct { void *at; size_t bytes; bool inside; } block[32];      /* as asked for; inside: of whole */
    int        n_blocks;
    Arena      whole;           /* dev_reserve's block, where blocks are cut from; or none */
    int64_t    taken;           /* blocks asked of the backend so far */
    struct Dev *host;           /* the CPU, which keeps and steps what dev_host_arena gave; or NULL */
    struct { bool (*look)(void *of); void *of; } beside;            /* dev_look's, or NULL */
} Dev;

typedef struct { int threads; bool guard; int isa; } DevOpts;    /* 0 threads: all cores; isa 0: the best there is */
void  dev_open(Dev *d, DevOpts o);                          /* the CPU */
/* What sizes depend on: a backend, what it computes in, and the pieces of sums that tensor parallelism may cut
 * (0: 8). */
typedef struct { const Ops *ops; DType act; int leaves; } DevKind;
static inline DevKind dev_kind(const Dev *d) { return (DevKind){ d->ops, d->act }; }
DevKind dev_kind_cpu(void);
/* A GPU, through libhone_cuda.so beside the program.  False: why, in one line; *absent says that there is none to use
 * (no backend, no GPU, another capability than 9.0) rather than one that fails.  absent may be NULL.
 * act: BF16, or F32 to check; raw: blocks are not zeroed, for a sanitizer. */
typedef struct { int gpu, threads; DType act; bool raw; } CudaOpts;
bool  dev_open_cuda(Dev *d, CudaOpts o, bool *absent, Err *err);
bool  dev_kind_cuda(DevKind *k, DType act, Err *err);       /* for a dry device: needs the backend, not the GPU */
void  dev_open_dry(Dev *d, DevKind like);                   /* computes nothing, counts memory: see dry.c */
typedef void Served(void *arg, const char *op, const char *by);  /* by NULL: there is one kernel */
void  dev_dry_served(Dev *dry, Served *served, void *arg);    /* of every call from now on */
void *dev_block(Dev *d, size_t bytes);                      /* zeroed device memory; dies if there is none */
void  dev_free(Dev *d, void *block);
void  dev_reserve(Dev *d, size_t bytes);                    /* one block; the next are cut from it while it lasts */
Arena dev_arena(Dev *d, const char *name, size_t bytes);    /* an arena over a new block */
/* Host memory of the device's own, at most DEV_ROOM bytes, to be filled and put from: such a put copies nothing on the
 * host.  From the put on, and when the next room is asked for, it is the device's again.  NULL: the device has none,
 * put from where the bytes are. */
enum { DEV_ROOM = 16 << 20, DEV_ASK = 256 << 10 };
void *dev_room(Dev *d, size_t bytes);
/* The same in the machine's own memory, where a device has another.  put, get, copy and zero take its tensors, and
 * adamw takes its states: those are stepped by the host's cores while gradients and weights cross over; the bits are
 * the device's. */
Arena dev_host_arena(Dev *d, const char *name, size_t bytes);
void  dev_touch(Dev *d);                                    /* takes every page of every block now, not at first use */
/* On: a call may be done later than it returns, together with others; what it gives is the same.  Off: all are done. */
void  dev_chain(Dev *d, bool on);
void  dev_close(Dev *d);                                    /* frees every block */
/* Where the queue waits for bytes that others move (comm/nccl.c), a backend that would wait for the queue on the host
 * asks this instead, again and again: it makes a pause and looks after those bytes, so that no wait is silent.  False:
 * the queue waits for nobody but the device. */
static inline bool dev_look(Dev *d) { return d->beside.look && d->beside.look(d->beside.of); }
/* What it is, which libraries it computes with, and its memory; total 0: the machine's own.  base: what was in use when
 * it was opened, its context and the backend's own buffers included. */
typedef struct { char name[64], libraries[192]; size_t total, free, base; } DevAbout;
DevAbout dev_about(const Dev *d);
size_t dev_taken(const Dev *d);                            /* bytes of its blocks, as they were asked for */

/* ---- What several ops take --------------------------------------------------------------------------------------- */
/* Rows at[i]..at[i+1] belong together: a packed sequence, or an expert's tokens.  at [n+1] DT_I32. */
typedef struct { int n, longest; Tensor at; } Seqs;

/* How a summed dimension is cut (E2): 'units' things of 'unit' columns each are cut into 'of' pieces, piece s being
 * units [units*s/of, units*(s+1)/of); each piece is one fma chain, the pieces are added by the balanced tree.  This
 * call holds pieces first .. first+n-1, a whole subtree, and its columns start with piece first's. */
typedef struct { int first, n, of; int64_t units, unit; } Leaves;
enum { LEAVES_MOST = 32 };      /* 'of' is a power of two up to this: for ops, runs and command lines */
static inline bool leaves_fit(int64_t of) { return of >= 1 && of <= LEAVES_MOST && !(of & (of - 1)); }
static inline Leaves leaves_one(int64_t cols) { return (Leaves){ 0, 1, 1, cols, 1 }; }
static inline Leaves leaves_all(int of, int64_t units, int64_t unit) { return (Leaves){ 0, of, of, units, unit }; }
static inline int64_t leaves_cut(const Leaves *l, int s) { return l->units * s / l->of * l->unit; } /* global column */
static inline int64_t leaves_cols(const Leaves *l) { return leaves_cut(l, l->first + l->n) - leaves_cut(l, l->first); }

/* Which part of a whole dimension a tensor's rows are: rows first.. of 'of'. */
typedef struct { int64_t first, of; } Part;
static inline Part part_whole(int64_t of) { return (Part){ 0, of }; }

/* What an op's backward reads back, kept by the layer as one struct. */
typedef struct {
    Tensor q, k, v, o, lse;     /* q [T,N*dk] k [T,K*dk] v [T,K*dv] o [T,N*dv] lse [T,N] (may be none in forward) */
    Seqs   seqs;                /* of q, o and lse; and of k and v, unless: */
    Tensor from, start;         /* [S,1] DT_I32, or none.  Rows of sequence i are its positions start[i].., its keys are
        rows from[i].. of k and v, which may then be more than T; sequences of one 'from' stand in the order of their
        starts, others between them */
    int    heads, kv_heads, dk, dv;
    float  scale;               /* v may be columns of k (MLA's latent is both) */
} Attn;

/* Keys and values in pages.  Their layout inside a page belongs to the backend; kv_bytes says how much a page takes. */
typedef struct {
    Tensor pool;                /* DT_U8 [pages, kv_bytes] */
    int    page;                /* positions a page, a multiple of 16 */
    int    kv_heads, dk, dv;
    bool   latent;              /* MLA: the value is the first dv of the key, kept once */
    int64_t floats;             /* a sequence's state instead of all this: so many in each row of */
    Tensor state;               /* [slots, floats] */
} Kv;
/* New rows of S sequences: rows.at[i]..at[i+1] are positions start[i].. of sequence i. */
typedef struct {
    Seqs   rows;
    Tensor start;               /* [S] */
    Tensor table;               /* [S,max_pages]: page numbers in the order of positions */
    Tensor slot;                /* [S]: rows of the states (Remembered), or none */
} Paged;

/* What layers with a state work over.  Without 'state' each sequence begins with none.  With it sequence i goes on from
 * its positions before start[i], which row slot[i] holds (start 0: nothing, whatever is there), and leaves there what
 * the next call goes on from.  An op's part of a row begins at float 'from'. */
typedef struct {
    Seqs    seqs;
    Tensor  start, slot, state; /* [S,1] DT_I32 both; F32 [slots, floats], or none */
    int64_t from;
} Remembered;
typedef struct { Tensor a, b, log_a, dt; } Decay;   /* [T,heads] both; [1,heads] both */
typedef struct {
    Tensor     q, k, v, g, beta;    /* q, k [T,keys*dk], of unit length; v [T,heads*dv]; g <= 0 and beta [T,heads] */
    Remembered r;                   /* S [dk,dv] for each head */
    int        keys, heads, dk, dv; /* head h has the key of h / (heads / keys) */
} Delta;
typedef struct { Tensor q, k, v, g, beta; } DeltaGrad;
enum { DELTA_MOST = 128 * 128 };    /* dk * dv */

typedef struct {                /* which part of each head turns, and how */
    int  heads, width, from, dim;   /* x [T,heads*width]; columns from..from+dim of each head */
    bool pairs;                     /* neighbours (2i,2i+1) turn together; else halves (i,i+dim/2) */
} RopeShape;

/* y_h [T,out] = x_h [T,in] w_h for each head h, by rule 1.  x_h is columns h*x_width + x_from .. of x, y_h likewise of
 * y; w_h is rows h*w_rows + w_from .. of w: [out,in] as a linear's weight, or [in,out] when 'turned'. */
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
typedef struct { Tensor inv_temp, top_k, top_p, min_p; } Dist; /* top_k DT_I32 (0 off), top_p 1 off, min_p 0 off */

/* A set of ids per row: DT_I32 [T,kept_words(V)], bit v % 32 of word v / 32 is id v's. */
static inline int64_t kept_words(int64_t vocab) { return (vocab + 31) / 32; }

typedef struct {
    Tensor h, w;                /* [T,H], [V,H] */
    Part   vocab;               /* w's rows of the whole vocabulary; {0}: all of it */
    Tensor ids;                 /* [T,1] DT_I32: whose log-prob; -1: none wanted (lp 0, no gradient through lp) */
    Dist   dist;
    Tensor lp, ent;             /* out [T,1]; lp is -inf for an id outside the kept set.  A row whose logits are not all
        numbers, or have no largest finite one, has no distribution: both are NaN, and the host decides what that
        means */
    Tensor stat;                /* out, DT_U8 [T, HEAD_STAT]: what backward needs */
    Tensor banned, ban;         /* as in Sample: the distribution scored is the one drawn from */
    Tensor kept;                /* or none.  A row that dist cuts keeps these ids, whatever the weights would keep
        now: Sample's */
    Tensor logits;              /* or none.  Room [T,V] F32 where logprob may leave them, so that logprob_bwd need
        not make them again; the same bits */
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
        the ban included.  A row without a distribution (see Head) draws id -1, lp and ent are NaN, nothing is kept */
    Tensor next;                /* out [B,1] DT_I32, or none: id, but 0 where none was drawn: what a next step may read
        before the host has looked at it */
    Tensor kept;                /* out, or none: the ids that were kept; all where nothing is cut */
} Sample;                       /* a greedy row: lp and ent of the whole distribution (ban, temperature; not cut) */

typedef struct {
    float   lr, beta1, beta2, eps, decay, clip_scale;
    int64_t step;               /* counts from 1 */
    int64_t first;              /* which element of the model's this is the first of: it names the rounding of
        BF16 moments */
} Adam;

/* A weight that is not on disk: its element e is std times a normal number named by (seed, name, e); x[r,c] is element
 * first + r ld + c. */
typedef struct { uint64_t seed, name; int64_t first, ld; double std; } Normals;
enum { F8_BLOCK = 128 };        /* float8 comes in squares of this many with one scale each */

/* ---- The table: op_list.h, and what a backend does beside it ----------------------------------------------------- */
#define OP(how, name, params, args, outs) void (*name) params;
struct Ops {
    const char *name;
    bool     expands;                            /* MLA's backward runs over expanded keys and values: layer/mla.c */
    bool     keeps_f32;                          /* logprob leaves Head.logits of float32 rows, not of bf16 alone */
    void   (*close)(Dev *d);                     /* all blocks are freed */
    void  *(*block)(Dev *d, size_t bytes);       /* takes memory, zeroed; NULL: there is no more */
    void   (*give) (Dev *d, void *at, size_t bytes); /* ... and gives it back */
    void  *(*room) (Dev *d, size_t bytes);       /* dev_room, or NULL */
    void  *(*queue)(Dev *d);                     /* the driver's (a CUstream), for who moves bytes beside it; NULL:
        there is none */
    void   (*touch)(Dev *d);
    void   (*enter)(Dev *d, bool join);          /* before a call, after it; nests.  join: the call may wait itself */
    void   (*leave)(Dev *d);
    void   (*chain)(Dev *d, bool on);
    void   (*about)(const Dev *d, DevAbout *out);
    /* Points of the queue: stamp marks the one with number i (again), stamped waits for it and says how many seconds
     * after stamp 0 it was.  NULL: a call is done when it returns. */
    void   (*stamp)(Dev *d, int i);
    double (*stamped)(Dev *d, int i);
    /* get in two halves, for who has more work for the device meanwhile: ask begins, as number i (0 or 1), asked waits
     * for it.  At most DEV_ASK bytes, without gaps.  NULL: get is all there is. */
    void   (*ask)(Dev *d, int i, Tensor from);
    void   (*asked)(Dev *d, int i, void *to, size_t bytes);
    /* Calls that come again with the same tensors: those between record and recorded are captured (by a CUDA graph) and
     * not run; replay runs what was captured, as often as is wanted, over what the tensors hold then.  No put, get or
     * sumsq among them, and none that writes a weight.  NULL: the backend cannot. */
    void   (*record)(Dev *d);
    void  *(*recorded)(Dev *d);
    void   (*replay)(Dev *d, void *captured);
    void   (*forget)(Dev *d, void *captured);
    void   (*link)(Dev *d);                      /* d->host was opened: takes what crossing over needs.  NULL: its
        memory is the host's */
    const struct Fused *fused;                   /* ops that it does several at a time, or NULL: op_fused.h */
    size_t (*kv_bytes)(const Dev *d, const Kv *kv);  /* of one page */
    double (*sumsq)(Dev *d, Tensor x);           /* same bits for any thread count */
#include "op/op_list.h"
#undef OP
    /* What a call takes from d->tmp while it runs; NULL: nothing. */
    struct {
#define OP(how, name, params, args, outs) size_t (*name) params;
#include "op/op_list.h"
#undef OP
    } tmp;
};

extern const Ops ops_cpu, ops_dry;

/* ---- Checked front doors, one per row of op_list.h; layers call only these. -------------------------------------- */
#define OP(how, name, params, args, outs) void op_##name params;
#include "op/op_list.h"
#undef OP
size_t op_kv_bytes(const Dev *d, const Kv *kv);
double op_sumsq(Dev *d, Tensor x);

#endif
