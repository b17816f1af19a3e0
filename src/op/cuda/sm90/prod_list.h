/* prod_list.h - products by Hopper's tensor cores: a row a kernel, asked from above; the first that takes a product
 * computes it.  Who includes this says what becomes of the rows it wants: prod_rows.c the table of the choice, and the
 * .cu that a kernel stands in its launch.  All of them give the same bits (common/prod.h), so rows may decide. */
#ifndef COPIED          /* prod.cu: operands are copied to where the copy engine takes them; then another row's */
#define COPIED(name, words)
#endif
#ifndef MID             /* mid.cu: rows of the weight a tile, warpgroups of 64 tokens */
#define MID(bn, wg)
#endif
#ifndef EXPERTS_EARLY   /* few.cuh: rows of the weight, tokens a pass, boxes a stage.  Experts, up to so many rows in
                           all, before the kernel before ends */
#define EXPERTS_EARLY(bn, xr, kb, rows)
#endif
#ifndef EXPERTS         /* ... after; means of so many rows an expert */
#define EXPERTS(bn, xr, kb, mean)
#endif
#ifndef ONE             /* one.cu: rows of the weight */
#define ONE(bn)
#endif
#ifndef FEW_EARLY       /* few.cuh: all blocks at once */
#define FEW_EARLY(bn, xr, kb)
#endif
#ifndef FEW             /* few.cuh; of weights with more rows than 'over' and at most 'upto' for each of its blocks */
#define FEW(bn, xr, kb, over, upto)
#endif
#ifndef TILES           /* gemm.cuh: columns of a tile; FOLD: sums in pieces */
#define TILES(kind, bn, fold)
#endif
#ifndef DW_TALL         /* prod_dw.cu: of 256 x 160 */
#define DW_TALL()
#endif
#ifndef DW_TILES        /* ... and of gemm.cuh: columns of a tile */
#define DW_TILES(bn)
#endif

COPIED(split, "three parts")            /* a float32 operand beside a bf16 one, as three */
COPIED(padded, "padded")                /* widths that are no multiples of 8 */

/* Dense, 9 to 256 tokens, all tiles one wave: the smallest that are. */
MID(16, 1)
MID(32, 1)
MID(40, 1)
MID(56, 1)
MID(64, 1)
MID(80, 1)
MID(96, 1)
MID(112, 1)
MID(64, 2)
MID(128, 1)
MID(80, 2)
MID(96, 2)
MID(160, 1)
MID(112, 2)
MID(128, 2)

EXPERTS_EARLY(64, 8, 2, 8)
EXPERTS_EARLY(64, 16, 2, FEW_ALL)
EXPERTS(64, 16, 2, 8)
EXPERTS(64, 32, 2, 16)

ONE(16)
ONE(40)
FEW_EARLY(16, 8, 8)
FEW_EARLY(40, 8, 4)
FEW_EARLY(48, 8, 4)
FEW_EARLY(56, 8, 4)
/* As narrow as makes all blocks busy; but with more tokens wide ones, which read those less often.  Long stages are
 * waited for less often: 2048 x 4096 by one row takes 8.8 us, with tiles of 32 and short stages 11.4.  Boxes that reach
 * past the last row are slow: the smallest that holds all.  More rows, shorter stages: there must be several. */
FEW(16, 8, 8, 0, 8)
FEW(16, 8, 4, 8, 16)
FEW(16, 16, 4, 8, 16)
FEW(16, 32, 4, 8, 16)
FEW(16, 48, 2, 8, 16)
FEW(16, 64, 2, 8, 16)
FEW(32, 8, 4, 0, 32)
FEW(32, 16, 2, 0, 32)
FEW(32, 32, 2, 0, 32)
FEW(32, 48, 2, 0, 32)
FEW(32, 64, 2, 0, 32)
FEW(64, 8, 2, 0, FEW_ALL)
FEW(64, 16, 2, 0, FEW_ALL)
FEW(64, 32, 2, 0, FEW_ALL)
FEW(64, 48, 2, 0, FEW_ALL)
FEW(64, 64, 2, 0, FEW_ALL)

TILES(FWD, 32, false)
TILES(FWD, 64, false)
TILES(FWD, 128, false)
TILES(FWD, 256, false)
TILES(FWD, 128, true)
TILES(FWD, 256, true)
TILES(DX, 128, false)
TILES(DX, 256, false)
TILES(DX, 128, true)
TILES(DX, 256, true)
DW_TALL()
DW_TILES(128)
DW_TILES(256)

#undef COPIED
#undef MID
#undef EXPERTS_EARLY
#undef EXPERTS
#undef ONE
#undef FEW_EARLY
#undef FEW
#undef TILES
#undef DW_TALL
#undef DW_TILES
