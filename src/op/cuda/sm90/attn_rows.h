/* attn_rows.h - which kernel serves attention: a question of widths, dtype and heads alone, so that training, prefill
 * and decoding get the same answer.  C, and no device. */
#ifndef OP_CUDA_ATTN_ROWS_H
#define OP_CUDA_ATTN_ROWS_H

#include <stdbool.h>

enum AttnBy { BY_PLAIN, BY_128, BY_64, BY_MLA, BY_ALL };                /* BY_ALL: without a mask */
enum { ATTN_FORWARD = 1, ATTN_BACKWARD = 2 };

/* What is asked: one pass over heads of so many columns. */
typedef struct {
    bool half;                          /* the device computes in bf16, and all tensors are */
    int  card;                          /* its capability */
    int  pass;                          /* ATTN_FORWARD or ATTN_BACKWARD */
    bool all, latent;                   /* without a mask; one key that is the value too (forward) */
    int  heads, kv_heads, dk, dv;
} AttnCall;

/* A kernel, or the one that serves what no other does. */
typedef struct {
    const char *name, *words;           /* its own; for people */
    enum AttnBy by;
    int         card, pass;
    bool        all, latent;
    int         dk, dv, group;          /* columns; heads that may share a kv head, at most */
} AttnKernel;

#ifdef __cplusplus
extern "C"
#endif
const AttnKernel *attn_choose(const AttnCall *c);

#endif
