/* sums.h - CRC-32 of files by pieces, put together from runs of bytes in any order and by any rank.
 *
 * A CRC is linear: that of a piece is the sum (by xor) of what each run of it counts, which is the run's own CRC moved
 * over the bytes behind it.  So nobody needs to see a whole piece: writers count what they write, readers what they
 * read, and the ranks' numbers are put together.  The first piece of a file is its header; the others are of one
 * size. */
#ifndef TRAIN_SUMS_H
#define TRAIN_SUMS_H

#include "comm/comm.h"

typedef struct {
    int64_t  at, bytes;
    int64_t  have;                      /* bytes that were counted */
    uint32_t crc, want;                 /* of those; want: of a piece that was written before */
} SumPiece;
typedef struct {
    const char *name;                   /* below the checkpoint: "model/model.safetensors" */
    int64_t bytes;
    size_t  first, n;                   /* pieces */
} SumFile;
typedef struct {
    VEC(SumFile) file;
    VEC(SumPiece) piece;
} Sums;

enum { SUMS_PIECE = 256 << 20 };
/* A file that is to be written; its number. */
size_t sums_file(Sums *s, const char *name, int64_t header, int64_t bytes, int64_t piece);
void   sums_free(Sums *s);
void   sums_add (Sums *s, size_t file, int64_t at, const void *bytes, size_t n);
/* What this rank has counted, and that of another rank added to it; false: the text is none of those. */
void   sums_put (const Sums *s, Buf *out);
bool   sums_take(Sums *s, const char *text);
bool   sums_whole(const Sums *s, size_t file, uint32_t *crc);      /* false: bytes were not counted, or twice */
/* All ranks' counts, on all of them: ranks = tp x dense x pp. */
void   sums_share(Sums *s, const Groups *g);
/* The first piece that is not what was wanted, headers aside; NULL: there is none. */
const SumPiece *sums_wrong(const Sums *s, const SumFile **file);

#endif
