/* blame.h - one micro-batch run again both ways, by the engine (prefill and decoding over pages) and as the trainer
 * runs it, and the first op whose rows differ: `hone verify --blame`.
 *
 * The engine draws the same tokens again, from the same random numbers; an answer in which it draws another is followed
 * up to there. */
#ifndef STEP_BLAME_H
#define STEP_BLAME_H

#include "engine/engine.h"
#include "train/policy.h"

typedef struct {
    const int32_t *tokens;
    int            n, prompt, sample;
    int64_t        row;                     /* of the data: names its random numbers, with: */
    uint32_t       again;
    const float   *sampler, *trainer;       /* [n - prompt] as the run had them */
    const uint8_t *mask;                    /* or NULL */
    Spans          spans;                   /* of the prompt, with keys; the same for every answer to a question */
} BlameSeq;

typedef struct {
    const BlameSeq *seq;
    int        n;
    Drawing    draw;
    uint64_t   seed;                        /* of sampling */
    uint32_t   step;
    int        page;
    int64_t    rows;                        /* of the engine, at once */
    Recompute  recompute;
    bool       keep_logits, update;         /* update: as an update's forward, which keeps what backward reads; else
                                             * as a comparison's */
} BlameConf;

typedef enum { BLAME_NONE, BLAME_OP, BLAME_TOGETHER } BlameKind;
typedef struct {
    BlameKind kind;                         /* both ways agree now; an op; they differ, but not op by op */
    char      text[900];                    /* what was found, in a sentence or two */
} Blame;

size_t blame_tmp_bytes(const ModelDesc *m, const BlameConf *c, DevKind like);   /* of dev.tmp */
bool   blame_find(Blame *out, Model *m, const BlameConf *c, Err *err);

#endif
