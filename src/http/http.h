/* http.h - what hone's HTTP servers share over libevent's evhttp: binding, bounds on connections and on the time that a
 * request may take to arrive, who may ask (Host, Sec-Fetch-Site, a token), and how answers look.
 *
 * One thread, one event_base.  evhttp itself bounds the head and the body of a request; how many connections there are,
 * and how long one may dribble, it does not: a connection that has no request under way is closed after
 * HttpLimits.seconds, and the longest idle one where there are too many. */
#ifndef HTTP_HTTP_H
#define HTTP_HTTP_H

#include "base/base.h"

struct event_base;
struct evhttp;
struct evhttp_request;

typedef struct {
    int    connections;
    size_t head, body;       /* bytes; body 0: none */
    double seconds;          /* until a request is there as a whole, from the answer before or the connection on */
    unsigned methods;        /* EVHTTP_REQ_GET | ... */
} HttpLimits;

typedef struct HttpServer HttpServer;
typedef void HttpHandle(void *user, struct evhttp_request *req);

/* Every request that arrives whole goes to handle, which sends its answer now or later. */
HttpServer *web_open(struct event_base *base, const HttpLimits *limits, HttpHandle *handle, void *user, Err *err);
void        web_close(HttpServer *s);                  /* its connections too */
/* A numeric address, v4 or v6.  port 0: the system chooses; which it is, is returned; -1: err. */
int  web_bind(HttpServer *s, const char *address, int port, Err *err);
bool web_address(const char *address);                 /* is it numeric? */
bool web_loopback(const char *address);                /* does it stay on this machine? */

/* Names that a request's Host may have: a page of somewhere else whose name leads here (DNS rebinding) has another.
 * NAME alone stands for NAME:PORT.  Those of the loopback are added by web_bind. */
void web_name(HttpServer *s, const char *name, int port);
bool web_host_known(const HttpServer *s, struct evhttp_request *req);
/* Did a page of another site make the browser ask? */
bool web_cross_site(struct evhttp_request *req);
/* In a time that does not tell how much of it is right. */
bool web_same_secret(const char *given, const char *right);
bool web_secret(char out[33]);                         /* 128 random bits as hex; false: the system gives none */

/* ---- the question */
const char *web_path(struct evhttp_request *req);      /* as it was sent, without the query: never a file's name */
const char *web_header(struct evhttp_request *req, const char *name);      /* or NULL */
/* A value of the query, its %XX read; NULL where it is not there. */
const char *web_query(struct evhttp_request *req, const char *name, Mem *mem);

/* ---- the answer.  Beside what is said here every one of them has nosniff, no-store, no-referrer and
 * Cross-Origin-Resource-Policy: same-origin. */
void web_set(struct evhttp_request *req, const char *name, const char *value);
void web_reply(struct evhttp_request *req, int code, const char *type, const void *body, size_t n);   /* gzip where the
                                                                          * client takes it and it is worth it */
void web_error(struct evhttp_request *req, int code, const char *what);    /* {"error":{"message":what,...}} */

/* An answer in pieces (text/event-stream, ...).  gone: the client went away, or the server closes: nothing may be
 * sent any more.  Not called after web_stream_end. */
typedef struct HttpStream HttpStream;
typedef void HttpGone(void *user);
HttpStream *web_stream(struct evhttp_request *req, int code, const char *type, HttpGone *gone, void *user);
void   web_stream_put(HttpStream *t, const void *bytes, size_t n);
size_t web_stream_waits(const HttpStream *t);          /* bytes that the client has not taken yet */
void   web_stream_end(HttpStream *t);

#endif
