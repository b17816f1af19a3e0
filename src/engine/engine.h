/* engine.h - generation: paged KV cache, continuous batching, sampling; prompts in, answers with their log-probs out.
 *
 * The forward is the trainer's (model_extend runs the same blocks over pages), and a random number is named
 * by (seed, step, prompt key, how often it came before, sample, position), so an answer depends on its
 * prompt, the weights and those names alone: not on the batch, the order of arrival, threads, page size,
 * preemption or prefix hits (E1, E3, E5).
 *
 * Where the model is cut over ranks of tp, each runs an engine on the same requests: they step together.
 * So do engines whose experts are spread over all of them, each with requests of its own: one that has none
 * steps along, to serve its experts (Feed.join). */
#ifndef ENGINE_ENGINE_H
#define ENGINE_ENGINE_H

#include "engine/cache.h"

/* A stop token or string; max_tokens; the step's token budget; no room for another kept set; the model's numbers were
 * not finite, so that there was nothing to draw the next token from; nobody wants it any more (engine_drop). */
typedef enum { FINISH_STOP, FINISH_LENGTH, FINISH_BUDGET, FINISH_ROOM, FINISH_BROKEN, FINISH_DROPPED } Finish;
const char *finish_name(Finish f);                                /* "stop", "length", "budget", ... */
void        finish_broken(Err *err, int tokens);                  /* what to say of a broken answer of so many tokens */

typedef struct {
    Drawing        draw;
    bool           greedy, ignore_eos;
    int            max_tokens, min_tokens;       /* stop tokens are not drawn before min_tokens */
    const int32_t *stop_ids;                     /* beside the model's end-of-sequence ids */
    int            n_stop_ids;
    bool           has_seed;                     /* its own seed, instead of the run's */
    uint64_t       seed;
    int            top;                          /* with each token so many of the likeliest in its place are told, at
                                                  * most TOP_MOST; 0: nothing is told */
    bool           prompt;                       /* the prompt's own tokens are told too (of the second on) */
} SampleOpts;
enum { TOP_MOST = 20 };

/* A token and its log-prob under the distribution that the place was, or would have been, drawn from. */
typedef struct { int32_t id; float lp; } Likely;

typedef struct {
    const int32_t    *tokens;                /* the prompt; lives until its last answer is out */
    int               n, samples;
    uint64_t          key;                   /* names its random numbers: request_key() */
    const SampleOpts *opts;                  /* likewise */
    void             *user;
    uint32_t          again;                 /* how often the prompt came before in this step: its answers are others */
    Spans             spans;                 /* of the prompt, with keys; they live as long as it does */
    int               first;                 /* the number that its first answer has in the names of random numbers */
} Request;
uint64_t request_key(const int32_t *tokens, int n);                      /* for requests without a name of their own */

typedef struct {
    const Request *request;
    int            sample, n;
    const int32_t *tokens;                       /* the answer, stop token included */
    const float   *lp, *ent;                     /* of each, under the distribution it was drawn from */
    Finish         finish;
} Answer;

/* What is done next by engines that step together: nothing more; nothing now, but ask for
 * requests again; a step, which may have no rows here; cut everything. */
typedef enum { JOIN_END, JOIN_AGAIN, JOIN_STEP, JOIN_CUT } Join;

typedef struct {
    bool (*next)  (void *user, Request *out);                            /* another request; false: there are no
                                                                          * more, or none now */
    /* after each token, or NULL; true: stop here */
    bool (*token) (void *user, const Request *r, int sample, int32_t id, float lp);
    void (*answer)(void *user, const Answer *a);                         /* as answers finish */
    bool (*tick)  (void *user, int64_t tokens, int running);             /* after each step, or NULL; false: cut
                                                                          * everything now */
    void     *user;
    uint64_t  seed;
    uint32_t  step;
    int64_t   token_budget;                                              /* answer tokens in all; 0: no limit */
    /* before each token, or NULL: the set it is drawn from, n bytes (model/kept_set.h); true:
     * there is no room for another, the answer ends here */
    bool    (*kept)(void *user, const Request *r, int sample, const uint8_t *set, size_t n);
    /* before each step, or NULL: alone.  busy: has this engine anything to compute? */
    Join    (*join)(void *user, bool busy);
    /* before token, where the request asks for it (opts->top, opts->prompt), or NULL: the token that stands, or will
     * stand, at that place of the sequence, and the likeliest, best first.  A prompt's place may be told twice, with
     * the same numbers. */
    void    (*told)(void *user, const Request *r, int sample, int at, Likely token, const Likely *top, int n);
} Feed;

typedef struct Engine Engine;
/* of one run; ahead: steps that began before the last one's tokens were known */
typedef struct {
    int64_t tokens, prompt_tokens, answers, broken, ahead;
    double seconds;
    SchedStats sched;
} EngineStats;

/* The cache (cache_bytes) and every buffer are taken here; dev->tmp must hold engine_tmp_bytes.  Nothing is allocated
 * afterwards. */
size_t  engine_tmp_bytes(const ModelDesc *m, const EngineConf *c, DevKind like);
/* What it takes beside them, found by opening it where nothing is taken: lists of a step and pictures on the device,
 * and of mem. */
typedef struct { size_t lists, pictures, host; } EngineSizes;
EngineSizes engine_sizes(const ModelDesc *m, const EngineConf *c, DevKind like);
Engine *engine_open(Model *m, const EngineConf *c, Mem *mem);
/* Rows and patches that one request needs of EngineConf.feats and .patches; the engine must
 * have been opened with at least as many. */
void    engine_images(const ModelDesc *m, Spans pics, int64_t *feats, int64_t *patches);
/* The same with its cache in somebody else's memory, which others may use between runs: engine_flush after they did. */
Engine *engine_open_over(Model *m, const EngineConf *c, Arena cache, Mem *mem);
void    engine_close(Engine *e);

/* Until there is nothing more: requests by f->next, and what else f says. */
EngineStats engine_run(Engine *e, const Feed *f);

/* The same in pieces, where requests come and go as they please; engine_run is these in a loop.  Of the feed they call
 * token, answer, kept and told: the caller asks itself what comes next, and when to stop.
 *   begin   before the first of them: counts from 0
 *   add     another request; false: there is no room for it now
 *   step    every running sequence goes on by a token; returns how many were drawn (0: nothing is there to do)
 *   drop    the requests of that user end here and now, with FINISH_DROPPED for each of their answers */
void engine_begin(Engine *e);
bool engine_add  (Engine *e, const Request *r);
int  engine_step (Engine *e, const Feed *f);
void engine_drop (Engine *e, const Feed *f, const void *user);
bool engine_idle (const Engine *e);                     /* no request is under way */
const EngineStats *engine_stats(Engine *e);             /* since begin */
/* Where nobody else must follow (one rank, no sets to tell of), a step of decoding begins before the host has seen what
 * the last one drew; an answer that ended with it has one row computed in vain.  By default so on devices whose calls
 * return before they are done. */
void        engine_ahead(Engine *e, bool on);
void        engine_flush(Engine *e);                    /* after every change of the weights or of the cache's memory */

#endif
