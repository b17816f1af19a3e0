/* golden_in.h - between the sources of `hone verify`'s comparison with a reference: what is open, and how a check
 * is told. */
#ifndef CMD_VERIFY_GOLDEN_IN_H
#define CMD_VERIFY_GOLDEN_IN_H

#include "cmd/verify/golden.h"
#include "file/safetensors.h"

enum { MAX_SEQS = 64 };

typedef struct {
    const int32_t *ids;
    int n;
    const float *logits, *logprobs, *base_logprobs, *entropy, *weights;
    Spans spans;
    const float *image_embeds, *video_embeds;
    const int32_t *position_ids; /* [3,n] */
    const int32_t *delta;
} GoldenSeq;

typedef struct {
    const GoldenOpts *opts;
    GoldenResult *r;
    Opened o;
    StFiles ref;
    GoldenSeq seq[MAX_SEQS];
    int n_seqs;
    int own[MAX_SEQS],
        n_own; /* those of this rank of dp; one that has none computes the first, and it does not count */
    bool idle;
    int64_t tokens, outputs;
    Arena io, act, host;
    Params grads;
    Json meta, half; /* half: bf16.json */
    bool has_meta, has_half;
    ClipRule rule; /* of clips' positions: the reference's own */
} Golden;

/* One check: how it ended ("ok", "FAILED", "skip"), what was compared, in words, and where (or NULL). */
void golden_tell(Golden *g, const char *how, const char *what, const char *text, const char *where);
void golden_report(Golden *g, bool ok, const char *what, const char *where, const char *fmt, double a, double b);
void golden_skip(Golden *g, const char *what, const char *why);

/* How far off a value may be: in float32 so much, in bfloat16 as bf16.json says of key; negative: it has no measure. */
double golden_allowed(const Golden *g, const char *key, double f32);
#define NO_MEASURE "computed in bfloat16, and no bf16.json says how far off that may be"

static inline bool is_half(const Golden *g) { return g->o.dev.act == DT_BF16; }
static inline const Comm *all_ranks(const Golden *g) { return &g->opts->open.ranks->world.all; }

/* golden_read.c: the reference's sequences, with their pictures; a file of JSON beside them, where it is there. */
bool golden_read(Golden *g, Err *err);
bool golden_read_json(Golden *g, const char *name, Json *out);

/* golden_files.c: every tensor against a file of the reference, in its own units (step: entry by entry, after optimizer
 * steps); and written to a file of our own for others to compare, where that is asked for. */
void golden_compare(Golden *g, const char *file, const Params *p, const char *what, bool step);
bool golden_dump(Golden *g, const Params *p, const char *file, Err *err);

#endif
