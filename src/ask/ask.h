/* ask.h - a model that others ask: an engine on a thread of its own, which works while somebody waits for an answer and
 * sleeps when nobody does.
 *
 * Whoever asks has one thread, and puts requests in: they wait in a line of fixed length until the engine has room.
 * What is drawn comes back in pieces, as it is drawn: ids, log-probs, text that stays.  ask_fd becomes readable,
 * ask_came says whose pieces they are, ask_take takes them.  A request that nobody wants any more is dropped by its
 * name (its address): the engine ends it before its next step.
 *
 * An answer is the engine's: a function of the weights, the prompt, the request's settings and its seed, whoever else
 * asks at the same time. */
#ifndef ASK_ASK_H
#define ASK_ASK_H

#include "ask/prompt_line.h"
#include "ask/sampling.h"

typedef struct Ask Ask;
typedef struct Asked Asked;

/* A piece of an answer, or of the prompt. */
typedef struct {
    int      sample;             /* which answer */
    bool     token, ends;        /* id and lp are a token's; this is the answer's last piece, and why: */
    Finish   finish;
    int      stop;               /* the stop text that ended it, or -1 */
    int32_t  id;
    float    lp;
    int      place;              /* of the token: below the prompt's length it is one of the prompt's */
    size_t   text_n;             /* bytes of Pieces.text, which are in the pieces' order */
    int      n_top;              /* of Pieces.top, likewise */
} Came;

typedef struct { VEC(Came) at; Buf text; VEC(Likely) top; } Pieces;
void pieces_clear(Pieces *p);
void pieces_free(Pieces *p);

/* A request.  Filled by whoever asks: mem, which holds all that it points to; line and sampling (its opts with
 * has_seed, so that its answers are its own); whether only the prompt is scored (then no token is drawn); user. */
typedef struct {
    Mem        mem;
    PromptLine line;
    Sampling   s;
    bool       score_only;
    void      *user;
} Wish;
Asked      *asked_open (void);                           /* taken by ask_put, or closed */
void        asked_close(Asked *q);                       /* not, or no longer, Ask's: all of its answers have ended */
Wish       *asked_wish (Asked *q);
bool        asked_over (const Asked *q);                 /* all its answers' last pieces were taken */

typedef struct {
    int      most_waiting;       /* requests in line; the engine has its own beside them */
    uint32_t step;               /* names the random numbers too (Feed.step) */
} AskConf;
typedef struct { int64_t requests, tokens, prompt_tokens, dropped; int waiting, running; } AskStats;

Ask     *ask_open (Engine *e, const Tok *tok, const AskConf *c, Err *err);
void     ask_close(Ask *a);                              /* what is under way is dropped */
int      ask_fd   (const Ask *a);                        /* readable when something has come */
bool     ask_put  (Ask *a, Asked *q);                    /* false: the line is full, and q still the caller's */
void     ask_drop (Ask *a, Asked *q);                    /* q is no longer the caller's */
/* Whose pieces have come since they were last taken; NULL: nobody's more. */
Asked   *ask_came (Ask *a);
void     ask_take (Ask *a, Asked *q, Pieces *out);       /* in the place of what is in out */
AskStats ask_stats(Ask *a);

#endif
