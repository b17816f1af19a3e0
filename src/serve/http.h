/* http.h - what libevent's evhttp leaves to its user: who may connect and ask (address, Host, key), how many at once
 * and for how long, and answers in JSON. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include "serve/want.h"

#include <event2/event.h>
#include <event2/http.h>

enum {
    HTTP_CONNECTIONS = 1024,     /* at once; more wait to be accepted */
    HTTP_HEADERS = 64 << 10,     /* bytes of a request's first line and headers */
    HTTP_QUIET = 75,             /* seconds to send a whole request in, from connecting or the last answer on */
    HTTP_BEHIND = 8 << 20,       /* bytes that a client may leave unread before it is given up */
};

typedef struct Http Http;
typedef struct {
    const char *host;
    int         port;            /* 0: any that is free */
    const char *const *keys;     /* [n_keys]; none: everybody may ask, on a loopback address */
    int         n_keys;
    int64_t     body;            /* bytes of a request */
    void      (*call)(void *user, struct evhttp_request *req);
    void       *user;
} HttpConf;

bool  http_is_loopback(const char *host);
Http *http_open (struct event_base *base, const HttpConf *c, Err *err);
int   http_port (const Http *h);
void  http_close(Http *h);                       /* connections too */

/* May this request be answered at all? Else why not. */
bool  http_allowed(const Http *h, struct evhttp_request *req, bool open, Refusal *no);    /* open: needs no key */

/* Answers; the request is done with.  http_free: its connection waits for another. */
void  http_json (Http *h, struct evhttp_request *req, int status, const Buf *body);
void  http_error(Http *h, struct evhttp_request *req, const Refusal *no);
void  http_stream_begin(struct evhttp_request *req);
bool  http_stream_put  (struct evhttp_request *req, const Buf *events);      /* false: it reads nothing any more */
void  http_stream_end  (Http *h, struct evhttp_request *req);

#endif
