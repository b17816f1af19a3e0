/* chosen.h - the choice of the kernels of products and of attention, without the kernels: the tables' own files, and
 * launches that are never made. */
#ifndef CHOSEN_H
#define CHOSEN_H

/* clang-format off */
#include "op/cuda/choose.c"
#include "op/cuda/plain/plain_rows.c"
#include "op/cuda/sm90/attn_rows.c"
#include "op/cuda/sm90/prod_rows.c"

#define NEVER(id)                                                                         \
    void run_##id(Dev *d, const Prod *p) { (void)d, (void)p; die("run_" #id); }           \
    int prepare_##id(void) { return 1; }
/* launches that have nothing to prepare */
int prepare_split(void), prepare_padded(void), prepare_one_16(void), prepare_one_40(void);
int prepare_plain_mma(void), prepare_plain_chain_16(void), prepare_plain_chain_64(void);
#define COPIED(name, words) NEVER(name)
#define MID(bn, wg) NEVER(mid_##bn##_##wg)
#define EXPERTS_EARLY(bn, xr, kb, rows) NEVER(experts_early_##bn##_##xr##_##kb)
#define EXPERTS(bn, xr, kb, mean) NEVER(experts_##bn##_##xr##_##kb)
#define ONE(bn) NEVER(one_##bn)
#define FEW_EARLY(bn, xr, kb) NEVER(few_early_##bn##_##xr##_##kb)
#define FEW(bn, xr, kb, over, upto) NEVER(few_##bn##_##xr##_##kb)
#define TILES(kind, bn, fold) NEVER(tiles_##kind##_##bn##_##fold)
#define DW_TALL() NEVER(dw_tall)
#define DW_TILES(bn) NEVER(dw_tiles_##bn)
#include "op/cuda/sm90/prod_list.h"
NEVER(plain_mma)
NEVER(plain_chain_16)
NEVER(plain_chain_64)
/* clang-format on */

#endif
