/* cpu.h - inside the CPU backend: the kernels of one instruction set as a table, a worker's scratch, and how work is
 * handed to threads.  isa_*.c fill the table (the same .inc text three times); the other files cut work and call it. */
#ifndef OP_CPU_CPU_H
#define OP_CPU_CPU_H

#include "op/adam.h"
#include "op/op.h"

#include <stdatomic.h>

/* ---- Products: c[M,N] = a[M,K] b[K,N] (docs/exactness.md, rules 1 and 2) */
enum { PROD_KC = 512, PROD_AST = PROD_KC + 16, PROD_MC = 256, PROD_NC = 768, PROD_SEG = LEAVES_MOST, PROD_WAIT = 5,
       PROD_PANELS = 128 * PROD_NC,
       PROD_STEP = 48, /* weights at a time: whole tiles of 6 and of 8, whole squares to turn */
       PROD_FEW = 8 /* rows for which weights are only streamed */ };
/* What a worker's scratch holds of a, turned: pieces of one product share it (prod_turned). */
typedef struct { int64_t call; const float *a; int64_t m0; int mn; } Turned;
typedef struct {
    float       *c;  int64_t ldc;
    const float *a;  int64_t lda;
    const void  *b;  int64_t ldb;
    const float *bias;                  /* [N], added last; or NULL */
    int64_t      M, N, K;
    bool         a_turned;              /* a is stored [K,M]; then b is not turned */
    bool         b_turned;              /* b is stored [N,K], as weights are; only then there may be a bias */
    bool         b_bf16;
    bool         more;                  /* chains go on from what c holds (one piece only) */
    int          nseg;                  /* a power of two; 1: one chain */
    int64_t      cut[PROD_SEG + 1];     /* piece s is k in [cut[s], cut[s+1]); may be empty */
    const void  *next;                  /* b of the product that comes after this one, or NULL */
    Turned      *kept;                  /* of this worker, during the call of this number; or NULL */
    int64_t      call;
} Prod;
/* k at a time when so many rows of a are turned: few rows in long blocks, since every tile
 * loads and stores its sums once a block */
static inline int prod_turned_kc(int64_t rows, bool bf16) {
    /* bf16 weights are widened beside them */
    int64_t kc = PROD_MC * PROD_AST / ((rows + 15) & ~15), widened = PROD_PANELS / PROD_STEP;
    return (int)((bf16 && kc > widened ? widened : kc) & ~31);
}
/* Turn a, or the weights?  Turning weights costs their size for every PROD_MC rows; turning a
 * and c costs theirs, c twice. */
static inline bool prod_turns(const Prod *g, int64_t rows, int64_t cols) {
    return g->b_turned && cols * g->K >= (rows < PROD_MC ? rows : PROD_MC) * (g->K + 2 * cols);
}
/* ... a whole, once for all pieces of the product */
static inline bool prod_keeps(const Prod *g, int64_t rows) {
    return g->K <= prod_turned_kc(rows, g->b_bf16) && prod_turns(g, rows, g->N);
}

/* ---- Attention: a tile of query rows of one sequence that share a kv head (rule 4) ------------------------------- */
enum { ATT_BLOCK = 64, ATT_SPAN = 2048, ATT_TILE = 192, ATT_FEW = 15, ATT_DMAX = 576, ATT_BWD = 192 };
typedef struct AttKeys AttKeys;
struct AttKeys {                        /* where keys and values of one kv head come from */
    const float *k, *v;                 /* packed: rows of the sequence */
    int64_t      ldk, ldv;
    const char  *pool;                  /* paged, when pool is set */
    size_t       page_bytes, v_off;     /* byte offset of this head's values inside a page; keys start at k_off */
    size_t       k_off;
    const int32_t *table;
    const float *after;                 /* keys this thread will want next, those of a page's first position; or NULL */
    int          page, dk, dv;
};
typedef struct {                        /* row r: q + qoff[r] -> o + ooff[r], at position last[r] */
    const float *q;
    float       *o, *lse;               /* lse may be NULL */
    int64_t      qoff[ATT_TILE], ooff[ATT_TILE], loff[ATT_TILE];
    int          last[ATT_TILE], n;
    float        scale;
    float       *part;                  /* NULL: all keys at once.  Else one span of keys, span 0.., into its part of
                                         * att_part() floats, */
    int          span;                  /* and when all have come: ATT_JOIN */
} AttRows;
enum { ATT_JOIN = -1 };
static inline int64_t att_part(int n, int dv) {
    return (int64_t)(n > ATT_FEW ? ATT_TILE : ATT_FEW + 1) * (((dv + 15) & ~15) + 2);
}
typedef struct {                        /* backward of one kv head of one sequence: the rows of positions t0..t1 */
    const float *q, *k, *v, *o, *lse, *dO;
    float       *dq, *dk, *dv;
    int64_t      ldq, ldk, ldv, ldo, ldl, lddo, lddq, lddk, lddv;
    int          len, group, wk, wv;    /* positions, query heads per kv head, widths; head
                                         * columns are already in the pointers */
    float        scale;
    int          t0, t1;
    const atomic_int *before;           /* blocks of keys the tile before this one has done; NULL for the first tile */
    atomic_int  *mine;                  /* ... this one */
    bool         sum;                   /* dk and dv are added to, whichever tile is the first to come */
    bool         all;                   /* no mask: every row sees every key */
} AttBack;

/* rows of y = x rstd g; backward y is dx, or dg [n] */
typedef struct { float *y, *rstd; const float *x, *dy, *g; int64_t ldy, ldr, ldx, lddy, rows, n; float eps; } NormRows;
typedef struct { float max, inv_z, log_z, ent, dlp, dent, inv_temp; } HeadGrad;

typedef struct {
    const char *name;
    int   nr, mr;
    float (*dot)(const float *x, const float *y, int64_t n);
    float (*max)(const float *x, int64_t n);
    void  (*exp)(float *y, const float *x, int64_t n);
    void  (*norm)(const NormRows *p);
    void  (*norm_dx)(const NormRows *p);
    void  (*norm_dg)(const NormRows *p);                                         /* at most 64 columns */
    void  (*silu_mul)(float *y, const float *g, const float *u, int64_t n);
    void  (*silu_bwd)(float *dg, float *du, const float *dy, const float *g, const float *u, int64_t n);
    void  (*add)(float *y, const float *a, const float *b, int64_t n);
    void  (*scale)(float *y, const float *x, int64_t n, float f);
    void  (*axpy)(float *y, float a, const float *x, int64_t n);                 /* y = fma(a, x, y) */
    void  (*rope)(float *x, const float *cs, const float *sn, int64_t half, float sign);     /* pairs (i, i+half) */
    void  (*sincos)(float *cs, float *sn, const float *freq, int64_t n, float pos, float amp);
    void  (*widen)(float *y, const uint16_t *x, int64_t n);
    void  (*leaf)(float st[3], const float *x, int64_t n);                       /* rule 3 */
    bool  (*clean)(const float *x, int64_t n);                                   /* no NaN and no +inf among them */
    void  (*mass)(int64_t *q, const float *x, int64_t n, float m);
    void  (*head_grad)(float *l, int64_t n, const HeadGrad *g);                  /* logits become their gradient */
    void  (*adamw)(float *w, float *m, float *v, const float *g, int64_t n, const AdamNow *a);
    /* adam.h: two moments rounded, elements e..; a master split and joined */
    void  (*moments)(uint16_t *m, uint16_t *v, const float *x, const float *y, int64_t n, uint32_t key, uint32_t e);
    void  (*split)(uint16_t *w, int16_t *rest, const float *x, int64_t n);
    void  (*join)(float *x, const uint16_t *w, const int16_t *rest, int64_t n);
    double (*sumsq)(const float *x, int64_t n);
    void  (*prod)(const Prod *g, int64_t m0, int64_t m1, int64_t n0, int64_t n1, float *work);
    void  (*attend)(const AttRows *rows, const AttKeys *keys, float *work);
    void  (*attend_bwd)(const AttBack *b, float *work);
    /* kt[d*page + i] = k[i*ldk + d] */
    void  (*kv_put)(float *kt, int64_t page, const float *k, int64_t ldk, int n, int dk);
} Kern;
extern const Kern kern_c, kern_avx2, kern_avx512;

typedef enum { ISA_BEST, ISA_C, ISA_AVX2, ISA_AVX512 } IsaKind;
typedef struct Chain Chain;
typedef struct {
    int    isa;                 /* IsaKind; tests lower it to compare paths */
    void  *work;                /* one piece per worker, made by dev_open: ops allocate nothing */
    Chain *chain;
    int    queued;              /* calls that wait in it */
    bool   chains;              /* calls that work row by row may wait for each other: dev_chain */
} CpuDev;
static inline CpuDev *cpu_dev(const Dev *d) { return d->impl; }
int         cpu_isa_best(void);
const Kern *cpu_kern(const Dev *d);

/* ---- Threads and scratch */
/* A worker's scratch: floats, fixed at dev_open.  What grows with the call comes from d->tmp. */
enum { CPU_WORK = PROD_MC * PROD_AST + PROD_PANELS + (PROD_WAIT + 1) * PROD_MC * PROD_NC + 4096,
       HEAD_ROWS = 128, HEAD_COLS = 512, HEAD_AT = CPU_WORK,
       TURNED_AT = HEAD_AT + HEAD_ROWS * HEAD_COLS, CALLS_AT = TURNED_AT + 16, CPU_EACH = TURNED_AT + 32,
       ATT_AT = HEAD_AT, ATT_COUNTS = HEAD_ROWS * HEAD_COLS,          /* worker 0's: counters of attention's backward */
       ATT_WORK = 6 * ATT_BWD * ATT_DMAX + 4 * ATT_BLOCK * ATT_DMAX };  /* what attention takes of a worker's
                                                                         * scratch; parts lie behind */
static inline float *cpu_work(const Dev *d, int worker) {
    return (float *)cpu_dev(d)->work + (size_t)worker * CPU_EACH;
}
static inline Turned *cpu_turned(const Dev *d, int worker) {
    return (Turned *)(void *)(cpu_work(d, worker) + TURNED_AT);
}
/* lists of products so far */
static inline int64_t *cpu_calls(const Dev *d) { return (int64_t *)(void *)(cpu_work(d, 0) + CALLS_AT); }

void chain_end(Dev *d);                                     /* what waits is done now: chain.h */

/* fn for indices 0..n-1; 'cost' in about nanoseconds of one core: little work stays in the caller. */
void cpu_run(Dev *d, int n, double cost, ThreadFn *fn, void *arg);
double cpu_worth(const Dev *d);                             /* from which cost on other threads are asked */

/* Rows 0..rows in pieces; fn(arg, r0, r1, kernels, scratch). */
typedef void RowsFn(const void *arg, int64_t r0, int64_t r1, const Kern *k, float *work);
void cpu_rows(Dev *d, int64_t rows, double cost_per_row, RowsFn *fn, const void *arg);

void cpu_prod(Dev *d, const Prod *g);                       /* one product over all threads */
void cpu_prod_at(const Kern *k, const Prod *g, float *work);/* the whole of it in this thread */
void prod_leaves(Prod *g, Leaves sum);                      /* nseg and cut */

static inline float *f32_row(Tensor x, int64_t r) { return (float *)x.data + r * x.ld; }
static inline int32_t *i32_row(Tensor x, int64_t r) { return (int32_t *)x.data + r * x.ld; }

/* ---- Entries of the table ---------------------------------------------------------------------------------------- */
void   cpu_close(Dev *d);
void  *cpu_block(Dev *d, size_t bytes);
void   cpu_free(Dev *d, void *at, size_t bytes);
void   cpu_touch(Dev *d);
void   cpu_enter(Dev *d, bool join);
void   cpu_leave(Dev *d);
void   cpu_chain(Dev *d, bool on);
void   cpu_about(const Dev *d, DevAbout *out);
size_t cpu_kv_bytes(const Dev *d, const Kv *kv);
double cpu_sumsq(Dev *d, Tensor x);
#define OP(how, name, params, args, outs) void cpu_##name params;
#include "op/op_list.h"
#undef OP
bool   cpu_linear_dw_first(Dev *d, Tensor dw, Tensor db, Tensor dy, Tensor x);
bool   cpu_grouped_dw_first(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs ex);
bool   cpu_linear2(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum);
bool   cpu_linear3(Dev *d, const Tensor *y, Tensor x, const Tensor *w, const Tensor *b, Leaves sum);
bool   cpu_grouped_swiglu(Dev *d, Tensor h, Tensor gate, Tensor up, Tensor x, Tensor wg, Tensor wu, Seqs ex, Leaves sum,
                          bool keep);
size_t cpu_tmp_logprob(Dev *d, const Head *h);
size_t cpu_tmp_logprob_part(Dev *d, Tensor part, const Head *h);
size_t cpu_tmp_logprob_end(Dev *d, const Tensor *part, int n, const Head *h);
size_t cpu_tmp_sample(Dev *d, const Sample *s);
size_t cpu_tmp_delta_bwd(Dev *d, const DeltaGrad *g, Tensor dO, const Delta *x);
size_t cpu_tmp_logprob_bwd(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h);

#endif
