/* batch.h - packed sequences on the device, and which of their tokens want a log-prob.  Nothing is padded. */
#ifndef MODEL_BATCH_H
#define MODEL_BATCH_H

#include "model/picture.h"
#include "par/par.h"

typedef struct { float temperature, top_p, min_p; int32_t top_k; } Drawing;     /* {1,1,0,0}: as the model says */
static const Drawing DRAW_PLAIN = { 1, 1, 0, 0 };
/* Whoever takes a temperature takes these: below, logits times 1/t leave float32 for ordinary
 * models; above, all tokens are alike. */
#define TEMPERATURE_LEAST 1e-4
#define TEMPERATURE_MOST  1e4

/* Log-probs are wanted of tokens[from .. n): each is predicted from the one before it, so 1 <= from <= n. */
typedef struct {
    const int32_t *tokens;
    int            n, from;
    Drawing        draw;
    const uint8_t *kept;         /* of a cut distribution: the sets its tokens from..n-1 were
                                  * drawn from (kept_set.h); or NULL */
    Spans          spans;
} PackSeq;

typedef struct {
    int64_t tokens, outputs;     /* T of this rank; outputs of all ranks of cp, in the order
                                  * of sequences, then of positions */
    int64_t own;                 /* outputs whose predicting row is this rank's: what the next five are of */
    Seqs    seqs;                /* with cp, its pieces of sequences: first pieces, then last ones */
    Tensor  from, start;         /* as in Attn; none without cp */
    Tensor  ids, pos;            /* [T,1] DT_I32; pos [T,3] where tokens have three */
    Tensor  rows, targets;       /* [own,1] DT_I32: the predicting row, the token predicted */
    Dist    dist;                /* of each own output; no tensors when every sequence is DRAW_PLAIN */
    Tensor  banned, ban;         /* as in op.h's Head; none unless batch_ban was called */
    Tensor  kept;                /* likewise; none unless batch_keep was called */
    CpRows  cp;                  /* where the tokens of all ranks are */
    CpRows  outs;                /* ... and their outputs */
    Tensor  own_at;              /* [own,1]: which of all outputs; none without cp */
    int     rank, ranks;         /* of cp */
    Pictures images;               /* of this rank; ids at all pictures' places are the vocabulary's end */
} Batch;

/* Host staging comes from 'host' and is free again at return; the batch lives in 'a'.  _part:
 * this rank's part of it, of several of cp. */
void   batch_put(Batch *b, Dev *d, Arena *a, Arena *host, const PackSeq *seqs, int n);
void   batch_put_part(Batch *b, Dev *d, Arena *a, Arena *host, const PackSeq *seqs, int n, const Comm *cp);
size_t batch_part_bytes(int64_t tokens, int seqs);       /* of a, on top of a whole batch's, with cp */
/* How many tokens one of 'ranks' has at most, of a batch of so many. */
static inline int64_t batch_part_tokens(int64_t tokens, int seqs, int ranks) {
    int64_t most = tokens / ranks + 2 * (int64_t)seqs;
    return ranks == 1 || most > tokens ? tokens : most;
}
/* Then, of a model that takes pictures: three positions a token by 'rule', and the pictures of this rank's tokens,
 * which are dealt out over the ranks of tp; tp NULL: the tower is another stage's.  Nothing for another model. */
void batch_put_images(Batch *b, Dev *d, Arena *a, const PackSeq *seqs, int n, const Dims *dims, ClipRule rule,
                      const Comm *tp);
PicturesShape batch_pictures(const PackSeq *seqs, int n, const Dims *d);     /* of the distinct ones */
size_t batch_images_bytes(const PicturesShape *s, int64_t tokens, const Dims *d);       /* of a, on top of a batch's */
/* Outputs i with ban[i] 1 were drawn from a distribution without these ids (min-tokens keeps stop tokens away). */
void   batch_ban(Batch *b, Dev *d, Arena *a, Arena *host, const int32_t *ban, const int32_t *ids, int n);
/* The sequences' kept sets, in place of those that the weights would keep.  A cut sequence
 * among them has them, or none has. */
void   batch_keep(Batch *b, Dev *d, Arena *a, Arena *host, const PackSeq *seqs, int n, int64_t vocab);
size_t batch_keep_host_bytes(int64_t vocab);             /* of host, on top of: */
size_t batch_host_bytes(int64_t tokens, int seqs);       /* enough for any batch of that size */
int64_t pack_outputs(const PackSeq *seqs, int n);

#endif
