/* sched.h - which rows run next: continuous batching, chunked prefill, forking, preemption.  Knows sequences and pages,
 * never tensors (the runner, engine.c, knows tensors and never policy).
 *
 * A step is a list of pieces: rows [start, start+rows) of a sequence.  When a piece reaches the sequence's
 * last known token, one token is drawn from it.  The first answer of a prompt prefills; when it is done the
 * others fork from it: they share its full pages, copy the last one, and draw their first token from the
 * same row, so that a prompt is computed once.
 *
 * Pages cannot run out: when one is missing, the youngest sequence gives its pages back and returns later
 * by computing its tokens again, with the same bits (E1); the oldest always goes on, and a single sequence
 * of full length fits (checked at the start). */
#ifndef ENGINE_SCHED_H
#define ENGINE_SCHED_H

#include "arch/kinds.h"
#include "engine/pages.h"

typedef struct {
    int page, pages;              /* positions a page, pages in all */
    int max_seqs;                 /* sequences that run or wait half done */
    int max_batch;                /* sequences in one step */
    int max_rows;                 /* rows in one step: decode rows and prefill chunks together */
    int max_len;                  /* tokens of prompt and answer */
    bool states;                  /* layers keep a state: prefixes are not taken up, and copied when answers fork */
} SchedConf;

typedef enum { SEQ_IDLE, SEQ_WAITING, SEQ_RUNNING } SeqState;

typedef struct {
    SeqState state;
    int      group, sample;
    int64_t  order;               /* age: smaller is older */
    int32_t *tokens;              /* [max_len]: prompt, then answer */
    float   *lp, *ent;            /* [max_len]: of answer tokens, at their own place */
    int      n, prompt, limit;    /* tokens known; of the prompt; most there may be */
    int      done;                /* positions whose keys are in pages */
    int     *pages;               /* [max_len/page + 1] */
    int      n_pages, entered;    /* entered: full pages that are in the prefix table */
} Seq;

typedef struct { int seq, start, rows; bool draws; } Piece;
typedef struct { int seq, piece; } Draw;                              /* a token for seq from piece's last row */
/* When the step's rows are in the cache: what 'from' holds goes to 'to', in the layers of that group (cache.h). */
typedef struct { StoreKind group; int to, from; } Copy;

typedef struct {
    Piece *piece;                 /* [max_batch] */
    Draw  *draw;                  /* [max_seqs] */
    Copy  *copy;                  /* [2 max_seqs] */
    int    n_pieces, n_draws, n_copies, n_rows;
} Step;

typedef struct Sched Sched;

Sched *sched_open(const SchedConf *c, Mem *mem);
void   sched_flush(Sched *s);                                  /* nothing running; forget the prefixes */

/* A prompt and how many answers it wants; returns the group, or -1 when there is no room for another now. */
int  sched_next_group(const Sched *s);                     /* the group that sched_add will give, while there is room */
bool sched_over(const Sched *s, int group);                /* all its answers are finished or given up */
int  sched_add(Sched *s, const int32_t *prompt, int n, int samples, int max_tokens);
/* All rows of its prompt are wanted: its first answer computes them, whatever the prefix table has. */
void sched_whole(Sched *s, int group);
bool sched_room(const Sched *s);                           /* sched_add would take another */
bool sched_cancel(Sched *s, int *group, int *sample);      /* an answer that has not begun is given up, of *group, or of
                                                            * any where that is -1; false: there is none */
bool sched_idle(const Sched *s);                           /* nothing runs and nothing waits */

/* The next step; after it has been computed, sched_token for each draw (the token is known now), then sched_done. */
const Step *sched_next(Sched *s);
const Step *sched_step(const Sched *s);         /* the one that is being computed */
Seq        *sched_seq(Sched *s, int seq);
void        sched_token(Sched *s, int seq, int32_t id, float lp, float ent);
void        sched_done(Sched *s);               /* the step's rows are in the cache now */
bool        sched_finish(Sched *s, int seq);    /* the answer is complete: gives everything back; true: the group too */

typedef struct { int64_t steps, rows, preempted, prefix_tokens, forks; int peak_seqs; } SchedStats;
/* If no answer ends with the step that is being computed: will the next one have the same sequences, a row each?
 * (Whoever waits finds no place, and there are pages enough.) */
bool       sched_goes_on(const Sched *s);
SchedStats sched_stats(const Sched *s);
int        sched_pages_free(const Sched *s);                   /* pages that nobody holds */

#endif
