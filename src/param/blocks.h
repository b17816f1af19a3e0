/* blocks.h - blocks of quantised numbers as GGUF files have them, on the host: 32 or 256 neighbours of a row share
 * scales.  The bits are those of the format's own library, both ways. */
#ifndef PARAM_BLOCKS_H
#define PARAM_BLOCKS_H

#include "tensor/tensor.h"

enum { BLOCK_MOST = 256 };
void block_read(DType t, float *to, const char *block);                 /* dtype_block(t).elements of them */
bool block_writes(DType t);                                             /* can block_write? */
/* false: a number is too large for the half-precision scale, or is none */
bool block_write(DType t, char *block, const float *from);

#endif
