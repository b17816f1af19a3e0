/* reply.h - what a client is told: answers as they come, put together choice by choice, and written as the objects of
 * OpenAI's interface, whole or in events of a stream. */
#ifndef SERVE_REPLY_H
#define SERVE_REPLY_H

#include "serve/want.h"

/* A token and, beside it, n_top of the list's 'top'. */
typedef struct { int32_t id; float lp; int n_top; } Shown1;
typedef struct { VEC(Shown1) at; VEC(Likely) top; } ShownList;

typedef struct {
    Buf       text;
    ShownList shown;             /* in a stream: since the last event */
    int       tokens;            /* drawn so far */
    bool      began, ended, told_end;
    Finish    finish;
    int       stop;
    size_t    offset;            /* characters of token texts that were told */
} Choice;

typedef struct {
    const Offer *offer;
    const Want  *want;
    char         id[40];
    int64_t      created;
    Choice      *choice;         /* [n*samples], a prompt's answers next to each other */
    ShownList   *prompt;         /* [n]: of the prompts' tokens from the second on, where they are told */
    int          after[3];       /* an ordinary token: what follows it is spelled as inside a text */
    int          n_after;
} Reply;

void reply_open (Reply *r, const Offer *o, const Want *w, Mem *mem);
void reply_close(Reply *r);

void reply_take (Reply *r, int prompt, const Pieces *p);
bool reply_over (const Reply *r);
/* An answer that ended because there was nothing to draw from, in words. */
bool reply_broken(const Reply *r, Refusal *why);

void reply_whole (const Reply *r, Buf *out);             /* all of it, one object */
/* The events for what has come since the last time, each "data: ...\n\n"; the last ones close the stream. */
void reply_events(Reply *r, Buf *out);

void reply_error (Buf *out, const Refusal *no);          /* {"error": {...}} */
void reply_models(Buf *out, const Offer *o, int64_t created, bool list);

#endif
