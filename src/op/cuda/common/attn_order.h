/* attn_order.h - constants that are part of attention's order of sums on a GPU: a change changes bits
 * (docs/exactness.md).  C, so that tests can ask whether the bits agree. */
#ifndef OP_CUDA_ATTN_ORDER_H
#define OP_CUDA_ATTN_ORDER_H

enum {
    PLAIN_BLOCK = 64,                        /* keys a block of the plain kernels */
    ATTN_BLOCK = 128, ATTN_SPAN = 512,       /* keys a block, keys a span: heads of 128 and of 64 columns */
    MLA_BLOCK = 64, MLA_SPAN = 2048,         /* ... of absorbed MLA */
    BACK_SPAN = 128, BACK_WORK = 256,        /* dk and dv: blocks of rows a span, at least; see back_span */
};

#endif
