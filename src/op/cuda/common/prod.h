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

#include "op/cuda/common/cuda.h"

enum ProdKind { FWD, DX, DW };
enum { PROD_PIECES = 32, PROD_EXPERTS = 1024, SPLIT_COLS = 32 };

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
    int64_t ka, kb, wrap_a,
        wrap_b; /* an operand that has another number of k than K (0: K), and is read again after so many (0: never) */
} Prod;

/* What a product takes from d->tmp; d may be a dry device. */
size_t prod_tmp(const Dev *d, const Prod *p);
const char *prod_by(const Dev *d, const Prod *p);           /* who computes it, for people */
void   prod_run(Dev *d, const Prod *p);

/* y = x w' + b; dx = dy w; dw += dy' x */
Prod   prod_nt(Tensor y, Tensor x, Tensor w, Tensor b, Leaves sum);
Prod   prod_nn(Tensor dx, Tensor dy, Tensor w, Leaves sum);
Prod   prod_tn(Tensor dw, Tensor dy, Tensor x);

/* y[i] = x w[i]' + b[i] as one product, where weights and biases lie one behind the other; false: it is none */
bool   prod_joined(Prod *to, const Tensor *y, int n, Tensor x, const Tensor *w, const Tensor *b, Leaves sum);

bool   prod_is_bf16(const Prod *p);                         /* the tensor core's order */
bool   prod_fast(const Prod *p);                            /* gemm.cuh takes it */
void   prod_plain(const Dev *d, const Prod *p);             /* any shape, any alignment */
size_t prod_gemm_tmp(const Prod *p);
void   prod_gemm(Dev *d, const Prod *p);
void   prod_dw(Dev *d, const Prod *p);                      /* ... of DW */
bool   prod_few(Dev *d, const Prod *p);                     /* ... if its rows are few: few.cuh; false: they are not */
bool   prod_one(Dev *d, const Prod *p);                     /* ... one, in a step that is noted: one.cu */
bool   prod_mid(Dev *d, const Prod *p);                     /* ... 9 to 256 rows and one wave of tiles: mid.cu */

/* their own kernels may have their shared memory */
cudaError_t head_allow(void), head_back_allow(void), fused_allow(void), dw_allow(void), mid_allow(void);

#endif
