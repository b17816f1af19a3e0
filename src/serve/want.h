/* want.h - what a client wants: the body of a request to /completions or /chat/completions, read and checked, as
 * requests to the engine; or why not, in the form of OpenAI's errors.
 *
 * Fields that nobody knows are ignored, as other servers do; those that are known and not served are refused by name,
 * so that no answer is quietly another than the one that was asked for. */
#ifndef SERVE_WANT_H
#define SERVE_WANT_H

#include "ask/ask.h"

typedef struct {
    int         status;          /* HTTP's */
    const char *code;            /* OpenAI's word for it, or NULL */
    char        param[64];       /* the field, or "" */
    int         retry;           /* seconds after which it may be otherwise; 0: never */
    char        msg[600];
} Refusal;
/* Always false. */
bool refuse(Refusal *r, int status, const char *param, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* What is served; the same for all requests. */
typedef struct {
    PromptReader    *reader;
    const ModelDesc *desc;
    const char      *name, *path;    /* a request's "model" is one of them, or absent */
    int64_t          context;        /* tokens of a prompt and its answer */
    int64_t          feats, patches; /* of one request's pictures, at most */
    int              prompts;        /* of one request, at most */
    bool             has_seed;       /* of requests that name none; else each has another, and is told */
    uint64_t         seed;
} Offer;

typedef enum { WANT_TEXT, WANT_CHAT } WantKind;
typedef struct {
    Mem      mem;
    WantKind kind;
    bool     stream, usage, echo, ids, logprobs;
    int      top;                    /* likeliest tokens beside each */
    int      samples, n;             /* answers a prompt, prompts */
    bool     seed_told;              /* the client named none */
    uint64_t seed;
    Asked  **prompt;                 /* [n] */
} Want;

enum { WANT_SAMPLES = 128, WANT_STOPS = 64 };

bool want_read (Want *w, const Offer *s, WantKind kind, const char *body, size_t n, Refusal *no);
void want_close(Want *w);            /* with the prompts that are still its own: not NULL */

#endif
