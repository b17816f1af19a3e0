/* serve.h - a model asked over HTTP, as OpenAI's interface has it.
 *
 * Two threads: this one has all connections, reads requests and writes answers (libevent); the engine has its own
 * (ask/ask.h).  What is served is fixed when it opens, and so is how many may wait: a client that finds the line full
 * is told when to come again. */
#ifndef SERVE_SERVE_H
#define SERVE_SERVE_H

#include "serve/http.h"

typedef struct {
    Offer    offer;
    HttpConf http;                   /* call and user are serve's own */
    AskConf  ask;
    int64_t  held;                   /* bytes of requests under way, all together */
} ServeConf;

/* Until SIGINT or SIGTERM.  ready is called once it listens. */
bool serve_run(Engine *e, const ServeConf *c, void (*ready)(void *user, int port), void *user, Err *err);

#endif
