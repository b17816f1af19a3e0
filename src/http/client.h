/* client.h - HTTP requests to others, several at a time, over libcurl, which is loaded when the first is made: who
 * fetches nothing needs no libcurl.
 *
 * One thread.  Redirects are followed here: a secret goes to the server that was named (scheme, host and port) and to
 * no other.  Of the environment nothing is read: no proxy but the one that is given, no .netrc. */
#ifndef HTTP_CLIENT_H
#define HTTP_CLIENT_H

#include "base/base.h"

typedef struct HttpClient HttpClient;

typedef struct {
    int     status;              /* 200, ... of the last answer */
    int64_t from, total;         /* Content-Range's first byte, -1: none; and the whole's length, -1: not said */
    bool    hopeless;            /* broken, and would be again: where it is redirected to cannot be asked */
    double  wait;                /* Retry-After in seconds; -1: not said */
    char    code[64], why[256];  /* X-Error-Code, X-Error-Message */
    char    host[128];           /* who answered */
} HttpHead;

typedef struct {
    const char        *url;
    const char        *method;          /* NULL: GET, or POST where there is a body */
    const char *const *headers;         /* "Name: value", ends with NULL; or NULL */
    const char        *secret;          /* a header for the url's own server; or NULL */
    const char        *proxy;           /* or NULL */
    const void        *body;
    size_t             body_n;
    int64_t            from;            /* above 0: the bytes from there on */
    /* Called from client_run.  The first piece comes after the head is known; false: enough. */
    bool (*piece)(void *user, const HttpHead *head, const void *bytes, size_t n);
    /* Once, at the end.  broken: NULL, or why there was no whole answer. */
    void (*done)(void *user, const HttpHead *head, const char *broken);
    void              *user;
} HttpAsk;

HttpClient *client_open(Err *err);                                 /* NULL: there is no libcurl */
void        client_close(HttpClient *c);
void        client_add(HttpClient *c, const HttpAsk *ask, double delay);   /* begins so many seconds from now; what ask
                                                                            * points to lives until done */
void        client_run(HttpClient *c);         /* returns when none is left; done may add others */

/* One request and its whole answer, at most 'most' bytes. */
bool client_ask(HttpClient *c, HttpAsk ask, size_t most, Buf *answer, HttpHead *head, Err *err);

bool url_same_server(const char *a, const char *b);                /* scheme, host and port */
bool url_private(const char *url);             /* https, or this machine: a secret may go there */
void url_put(Buf *b, const char *text, const char *keep);          /* %XX for all but letters, digits, -._~ and keep */

#endif
