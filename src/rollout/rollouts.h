/* rollouts.h - what a step knows about its answers: one row per answer, columns filled from left to right as the step
 * goes on.  Room for a whole step is taken once.  rollout/ fills tokens to finish, the scorers the rest. */
#ifndef ROLLOUT_ROLLOUTS_H
#define ROLLOUT_ROLLOUTS_H

#include "rollout/replicas.h"
#include "task/dataset.h"
#include "task/prompt.h"
#include "task/reward.h"
#include "text/tok.h"

typedef struct {
    const DataRow *row;
    int64_t        index;             /* of the row in its data set: the prompt's key */
    int32_t       *tokens;
    int            n;
    uint32_t       again;             /* how often it came before in this step */
    Spans          spans;             /* in pixels, which goes when the prompt does */
    Mem            pixels;
} Prompt;

typedef struct {
    int      prompt, sample;
    int32_t *tokens;          /* prompt, then answer */
    int      n_prompt, n;     /* n: all */
    float   *lp, *ent;        /* [n - n_prompt] as the sampler saw them, each in its place of Rollouts' columns */
    uint8_t *kept;            /* the sets they were drawn from (model/kept_set.h); NULL: not wanted */
    size_t   kept_n;          /* bytes */
    Finish   finish;
    int64_t  text_n;          /* bytes of its text before a stop text; -1: all of it */
    double   score;
    double   acc;             /* as in RewardResult: NAN where the scorer does not say */
    bool     failed;          /* the scorer gave no verdict, or the answer is FINISH_BROKEN */
    char     reason[120];     /* why it failed, as the scorer or its pool says it; "" if it did not */
    uint8_t *mask;            /* [n - n_prompt] 1: sampled, 0: put there; NULL: all were sampled */
    int      said;            /* the last turn begins so many tokens behind the prompt; 0 where there is one */
    int      turns, calls, bad_calls, given; /* the model's turns; calls, those that failed; tokens put there */
    uint64_t pred;            /* hash of what the scorer read out of the text, for majority votes; 0: it does not say */
} Rollout;

typedef struct {
    Prompt  *prompt;                  /* [max_prompts] */
    Rollout *at;                      /* [max_prompts*samples]: answers p*samples .. belong to prompt p */
    float   *lp, *ent;                /* [max_prompts*samples*max_answer]: where the answers' columns lie */
    int      n_prompts, max_prompts, samples, max_prompt, max_answer;
    uint8_t *mask;                    /* [max_prompts*samples*max_answer] or NULL */
    size_t   kept_room, kept_most;    /* bytes of an answer's kept sets, of the largest set; 0: not wanted */
} Rollouts;

void   rollouts_open(Rollouts *r, int prompts, int samples, int max_prompt, int max_answer, Mem *mem);
/* From now on the kept sets of answers are written down, in 'room' bytes each (at least 'most', the largest set's): an
 * answer with no room for another set of that size ends there, whatever the other answers do. */
void   rollouts_keep(Rollouts *r, size_t room, size_t most, Mem *mem);
void   rollouts_mask(Rollouts *r, Mem *mem);                 /* from now on answers say which tokens were sampled */
void   rollouts_cut(Rollouts *r, int n);                     /* the first n prompts stay, with their answers */
static inline void rollouts_clear(Rollouts *r) { rollouts_cut(r, 0); }
/* copies the tokens */
Prompt *rollouts_add(Rollouts *r, const DataRow *row, int64_t index, const int32_t *tokens, int n);
static inline int rollouts_n(const Rollouts *r) { return r->n_prompts * r->samples; }
static inline int answer_n(const Rollout *a) { return a->n - a->n_prompt; }

typedef struct TurnConf TurnConf;     /* rollout/turns.h */
typedef struct {
    Engine           *engine;
    const Tok        *tok;
    Rewards          *rewards;
    const SampleOpts *opts;
    const char *const *stop;          /* stop texts */
    int               n_stop;
    uint64_t          seed;
    uint32_t          step;
    int64_t           question_tokens;/* of the answers to one question: all are cut at the
                                       * largest length that keeps to it; 0: no limit */
    double            max_failed;     /* a larger share of answers that the scorer could not
                                       * judge is an error; 0: none is */
    bool              refuse_broken;  /* a FINISH_BROKEN answer ends the run as an error; else
                                       * it is one more failed answer */
    void            (*progress)(void *user, int answers, int of, int64_t tokens);  /* or NULL */
    bool            (*go_on)(void *user);                                          /* or NULL; false: cut the answers */
    void             *user;
    const TurnConf   *turns;          /* or NULL: an answer is one turn */
    const Replicas   *replicas;       /* or NULL: one rank; calls are else collective over all of them */
    int               at_once;        /* answers that a replica runs together: its engine's max_batch; 0: all of them */
} RolloutRun;

/* Answers to prompts from .. n_prompts-1; each is scored on host threads as soon as it is finished.  *score_wait:
 * seconds that were spent waiting for scores after the last token.  Replicas share the questions and all ranks the
 * judging; all end with all answers and the same result. */
bool rollouts_run(Rollouts *r, int from, const RolloutRun *run, EngineStats *stats, double *score_wait, Err *err);

bool rollouts_wanted(const RolloutRun *run);                 /* does nobody want to stop: run->go_on of all ranks */
/* Answers to questions from .. n_prompts-1, of which this rank has those marked in own [answers]: now all have all. */
void rollouts_share(Rollouts *r, const bool *own, const Comm *ranks);

/* What a data set's pictures need: rows that have some, how many; the most tokens of one
 * prompt's, patches of the largest, their largest share of a prompt. */
typedef struct { int64_t rows, pictures, feats, patches; double share; } ImageStats;
bool image_stats_add(ImageStats *s, const ModelDesc *m, Prompter *p, const Dataset *d, Err *err);    /* d: or NULL */
PicturesShape image_stats_micro(const ImageStats *s, int64_t micro_tokens, const Dims *d);   /* the most of one */
size_t image_stats_pixels(const ImageStats *s, const Dims *d);                 /* bytes of the pictures of one prompt */

/* The answer as text, as the scorer sees it: its last turn, without special tokens, to the first stop text. */
void rollout_text(const Rollout *a, const Tok *tok, Buf *out);

/* Of the k answers to one question, the first among those that the most others agree with.  Without a verdict, or where
 * the scorer does not say what it read, an answer has no vote; the first one of all where none has. */
int rollout_majority(const Rollout *a, int k);

#endif
