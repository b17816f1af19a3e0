/* prod.h - inside the products of the CUDA backend: one description of any of them, and who computes it.
 *
 *   FWD  c [rows,N] = a [rows,K] b_e[N,K]'         DX  c [rows,N] = a [rows,K] b_e[K,N]
 *   DW   c_e [M,N] += a [rows,M]' b [rows,N]       summed over the rows of e
 *
 * e is an expert, whose rows are at[e]..at[e+1], or, where there is no at, one of E matrices that each go over all
 * rows (heads; dense is E = 1), step_x elements apart.
 *
 * The order of the sum (docs/exactness.md).  bf16 x bf16: a float32 accumulator from +0, the tensor core's own sum
 * of 16 consecutive k a step, k ascending, counted from the start of each piece, zeros past its end.  Every kernel
 * here keeps it, so any may be taken for any number of rows.  Of a float32 and a bf16 operand the first is split
 * into three bf16, and the sum goes over all three; with two float32 operands, on a device that computes in
 * float32, and for widths that only the plain kernels take, it is one fma chain over k, as op/cpu has it.  Pieces
 * are added by the balanced tree, the bias last, and the result is rounded once.  DW: the sum, then one addition
 * to c; or a chain that goes on from c. */
#ifndef OP_CUDA_PROD_H
#define OP_CUDA_PROD_H

#ifdef __cplusplus
#include "op/cuda/common/cuda.h"

extern "C" {
#endif
#include "op/op.h"

typedef enum { FWD, DX, DW } ProdKind;
enum { PROD_PIECES = 32, PROD_EXPERTS = 1024, SPLIT_COLS = 32 };
enum { PROD_BLOCKS = 132 }; /* at most, of kernels that go on over tiles: a constant, as scratch is for any card */

typedef struct {
    ProdKind    kind;
    DType       ta, tb, tc, tbias;
    const void *a, *b, *bias;           /* bias [N] or NULL */
    void       *c;
    int64_t     lda, ldb, ldc, step_a, step_b, step_c;
    const int  *at;                     /* [E+1] on the device, or NULL */
    int         E, E_b;                 /* E_b: matrices that b has, if more */
    int64_t     rows, M, N, K;
    int         n_pieces, cut[PROD_PIECES + 1];         /* of k (FWD, DX), from 0 */
    bool        add;                    /* FWD, DX into float32: c += */
    bool        first;                  /* DW: c = ; gemm.cuh alone, and experts without rows are left as they are */
    void       *c1, *c2;                /* FWD, dense: columns from n1 on and from n2 on, multiples of SPLIT_COLS, are
        these; n1 0: they are c's */
    int64_t     ldc1, ldc2, n1, n2;
    int64_t     ka, kb;                 /* an operand that has another number of k than K, or 0, ... */
    int64_t     wrap_a, wrap_b;         /* ... and is read again after so many, or 0: never */
} Prod;

bool prod_fast(const Prod *p);                          /* the copy engine takes its operands as they lie */
static inline bool prod_is_bf16(const Prod *p) { return p->ta == DT_BF16 && p->tb == DT_BF16; }

/* ---- who computes it --------------------------------------------------------------------------------------------- */
/* A product, and all that the choice may depend on: it is a function of this alone. */
typedef struct {
    const Prod *p;
    DType       act;                    /* what the device computes in */
    int         card;                   /* its capability: 90; 0: only kernels that any card takes */
    int         sms;                    /* multiprocessors; 0: not known, sizes are planned without a GPU */
    size_t      smem;                   /* shared memory that a block may have */
    bool        captured;                  /* in a step that is recorded: no weight is written there */
    bool        known;                  /* where experts' rows begin is there before the kernel before is done */
    bool        laid;                   /* what does not lie well was copied: the copy engine takes it */
    bool        fast;                   /* made by prod_choose: the copy engine takes its operands, copied or not */
} ProdCall;

/* A kernel that computes products: a row of a kind of card's table (sm90/prod_list.h, plain/plain_rows.c).  Rows are
 * asked in their order, and the first that takes a product computes it. */
typedef struct ProdKernel ProdKernel;
struct ProdKernel {
    const char *name, *by;                                              /* its own; and for people */
    bool      (*takes)(const ProdCall *c, const ProdKernel *k);
    size_t    (*scratch)(const ProdCall *c, const ProdKernel *k);       /* of d->tmp; NULL: none */
    void      (*run)(Dev *d, const Prod *p);
    int       (*prepare)(void);         /* once a device: a cudaError_t; or NULL */
    int         n[5];                   /* what takes and scratch know of it: tiles, rows */
};
extern const ProdKernel prods_sm90[], prods_plain[];    /* each ends with one that has no name */

const ProdKernel *prod_choose(const ProdCall *c);       /* op/cuda/choose.c */
size_t prod_scratch(const ProdCall *c);                 /* ... and what it takes; sms 0: the most of any card */

#ifdef __cplusplus
}
/* What a product takes from d->tmp, and who computes it, for people; d may be a dry device. */
size_t prod_tmp(const Dev *d, const Prod *p);
const char *prod_by(const Dev *d, const Prod *p);
void   prod_run(Dev *d, const Prod *p);
void   prod_run_laid(Dev *d, const Prod *p);            /* ... of which what did not lie well was copied */
void   prod_run_plain(Dev *d, const Prod *p);           /* ... by what any card has */

/* y = x w' + b; dx = dy w; dw += dy' x */
Prod   prod_nt(Tensor y, Tensor x, Tensor w, Tensor b, Leaves sum);
Prod   prod_nn(Tensor dx, Tensor dy, Tensor w, Leaves sum);
Prod   prod_tn(Tensor dw, Tensor dy, Tensor x);
#endif

#endif
