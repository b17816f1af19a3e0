/* http.c - connections and the form of answers.
 *
 * evhttp frees a connection without a word where no request of it is being answered.  So that slow or silent ones can
 * be counted and ended, each one's buffer is held here too (a reference), and looked through four times a second:
 * evhttp has let go of it where its callbacks are gone. */
#include "serve/http.h"
#include "base/clock.h"
#include "serve/reply.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http_struct.h>
#include <event2/keyvalq_struct.h>
#include <event2/listener.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/socket.h>

typedef struct {
    struct bufferevent *bev;
    double since; /* it waits for a request */
    bool busy;    /* a request of it is being answered */
} Link;

struct Http {
    Mem mem;
    HttpConf c;
    struct event_base *base;
    struct evhttp *http;
    struct evhttp_bound_socket *socket;
    struct event *tick;
    VEC(Link) link;
    bool loopback, full;
    int port;
};

/* ---- connections */
static bool let_go(struct bufferevent *bev) {
    bufferevent_event_cb event = NULL;
    bufferevent_getcb(bev, NULL, NULL, &event, NULL);
    return !event;
}

static void look_through(Http *h) {
    double now = clock_now();
    size_t n = 0;
    for (size_t i = 0; i < h->link.n; i++) {
        Link l = h->link.at[i];
        if (let_go(l.bev)) {
            bufferevent_decref(l.bev);
            continue;
        }
        if (!l.busy && now - l.since > HTTP_QUIET)
            shutdown(bufferevent_getfd(l.bev), SHUT_RDWR); /* evhttp sees its end */
        h->link.at[n++] = l;
    }
    h->link.n = n;
    bool full = n >= HTTP_CONNECTIONS;
    if (full == h->full) return;
    h->full = full;
    (full ? evconnlistener_disable : evconnlistener_enable)(evhttp_bound_socket_get_listener(h->socket));
}
static void on_tick(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    look_through(user);
}

/* A connection's buffer.  Its socket is closed with the last reference, so that no other gets its number before. */
static struct bufferevent *on_connection(struct event_base *base, void *user) {
    Http *h = user;
    struct bufferevent *bev = bufferevent_socket_new(base, -1, BEV_OPT_CLOSE_ON_FREE);
    if (!bev) return NULL;
    bufferevent_incref(bev);
    VEC_PUSH(h->link, (Link){ bev, clock_now(), true }); /* evhttp sets its callbacks later: not looked at before */
    if (h->link.n >= HTTP_CONNECTIONS && !h->full) {
        h->full = true;
        evconnlistener_disable(evhttp_bound_socket_get_listener(h->socket));
    }
    h->link.at[h->link.n - 1].busy = false;
    return bev;
}

static Link *link_of(Http *h, struct evhttp_request *req) {
    struct evhttp_connection *c = evhttp_request_get_connection(req);
    struct bufferevent *bev = c ? evhttp_connection_get_bufferevent(c) : NULL;
    for (size_t i = 0; i < h->link.n; i++)
        if (h->link.at[i].bev == bev) return &h->link.at[i];
    return NULL;
}
static void busy(Http *h, struct evhttp_request *req, bool is) {
    Link *l = link_of(h, req);
    if (l) l->busy = is, l->since = clock_now();
}

static void on_request(struct evhttp_request *req, void *user) {
    Http *h = user;
    busy(h, req, true);
    h->c.call(h->c.user, req);
}

bool http_is_loopback(const char *host) {
    struct in_addr a;
    return !strcmp(host, "localhost") || !strcmp(host, "::1")
           || (inet_pton(AF_INET, host, &a) == 1 && ntohl(a.s_addr) >> 24 == 127);
}

/* Files that may be open: a socket each, and the rest of the program's. */
static void more_files(void) {
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) || l.rlim_cur >= HTTP_CONNECTIONS + 256) return;
    l.rlim_cur = l.rlim_max < HTTP_CONNECTIONS + 256 ? l.rlim_max : HTTP_CONNECTIONS + 256;
    setrlimit(RLIMIT_NOFILE, &l);
}

static bool bind_to(Http *h, Err *err) {
    const char *host = !strcmp(h->c.host, "localhost") ? "127.0.0.1" : h->c.host;
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    h->socket = evhttp_bind_socket_with_handle(h->http, host, (uint16_t)h->c.port);
    if (!h->socket)
        return err_set(err, "cannot listen on %s, port %d: %s", host, h->c.port,
                       errno ? strerror(errno) : "no such address");
    CHECK(!getsockname(evhttp_bound_socket_get_fd(h->socket), (struct sockaddr *)&at, &n), "getsockname: %s",
          strerror(errno));
    h->port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)(void *)&at)->sin6_port
                                             : ((struct sockaddr_in *)(void *)&at)->sin_port);
    return true;
}

Http *http_open(struct event_base *base, const HttpConf *c, Err *err) {
    Mem mem = { 0 };
    Http *h = MEM_NEW(&mem, Http);
    *h = (Http){ .mem = mem, .c = *c, .base = base, .loopback = http_is_loopback(c->host) };
    more_files();
    CHECK(h->http = evhttp_new(base), "no HTTP server");
    evhttp_set_allowed_methods(h->http, EVHTTP_REQ_GET | EVHTTP_REQ_POST | EVHTTP_REQ_HEAD | EVHTTP_REQ_PUT
                                            | EVHTTP_REQ_DELETE | EVHTTP_REQ_OPTIONS | EVHTTP_REQ_TRACE
                                            | EVHTTP_REQ_CONNECT | EVHTTP_REQ_PATCH);
    evhttp_set_max_headers_size(h->http, HTTP_HEADERS);
    evhttp_set_max_body_size(h->http, (ev_ssize_t)c->body);
    evhttp_set_timeout(h->http, 2 * HTTP_QUIET); /* also of a client that does not read; look_through() is sooner */
    evhttp_set_bevcb(h->http, on_connection, h);
    evhttp_set_gencb(h->http, on_request, h);
    errno = 0;
    if (!bind_to(h, err)) return evhttp_free(h->http), mem_free(&mem), NULL;
    CHECK((h->tick = event_new(base, -1, EV_PERSIST, on_tick, h)), "no timer");
    event_add(h->tick, &(struct timeval){ .tv_usec = 250000 });
    return h;
}

int http_port(const Http *h) { return h->port; }

void http_close(Http *h) {
    event_free(h->tick);
    evhttp_free(h->http);
    for (size_t i = 0; i < h->link.n; i++) bufferevent_decref(h->link.at[i].bev);
    vec_free(h->link.at);
    Mem mem = h->mem;
    mem_free(&mem);
}

/* ---- who may ask */
static const char *header(struct evhttp_request *req, const char *name) {
    return evhttp_find_header(evhttp_request_get_input_headers(req), name);
}

/* "localhost:8000", "[::1]:8000", "127.0.0.1": without the port. */
static bool names_loopback(const char *at) {
    char host[80];
    const char *end = at[0] == '[' ? strchr(at, ']') : at + strcspn(at, ":/");
    if (at[0] == '[') at++;
    if (!end || end - at >= (long)sizeof host) return false;
    snprintf(host, sizeof host, "%.*s", (int)(end - at), at);
    return http_is_loopback(host) || !strcasecmp(host, "localhost");
}

/* Time that does not tell how much of it was right. */
static bool same_key(const char *a, const char *b) {
    size_t n = strlen(a), m = strlen(b);
    unsigned differs = n != m;
    for (size_t i = 0; i < n; i++) differs |= (unsigned)(unsigned char)a[i] ^ (unsigned)(unsigned char)b[m ? i % m : 0];
    return !differs;
}

static bool has_key(const Http *h, struct evhttp_request *req) {
    const char *said = header(req, "Authorization");
    bool right = false;
    if (!said || strncasecmp(said, "Bearer ", 7)) return false;
    for (said += 7; *said == ' ';) said++;
    for (int i = 0; i < h->c.n_keys; i++) right |= same_key(h->c.keys[i], said);
    return right;
}

bool http_allowed(const Http *h, struct evhttp_request *req, bool open, Refusal *no) {
    const char *host = header(req, "Host"), *origin = header(req, "Origin"),
               *scheme = origin ? strstr(origin, "://") : NULL;
    const char *coding = header(req, "Content-Encoding");
    /* A page of the web that has its own name point here would be let in by a browser. */
    if (h->loopback && host && !names_loopback(host))
        return refuse(no, 403, NULL, "this server answers to localhost and 127.0.0.1, not to the Host that was named");
    if (!h->c.n_keys && origin && (!scheme || !names_loopback(scheme + 3)))
        return refuse(no, 403, NULL, "a page from elsewhere may not ask a server that has no key");
    if (h->c.n_keys && !open && !has_key(h, req)) {
        refuse(no, 401, NULL, "a key is wanted: Authorization: Bearer KEY");
        no->code = "invalid_api_key";
        return false;
    }
    if (coding && strcasecmp(coding, "identity"))
        return refuse(no, 415, NULL, "a body that is compressed is not taken");
    return true;
}

/* ---- answers */
static void common(struct evhttp_request *req, const char *type) {
    struct evkeyvalq *out = evhttp_request_get_output_headers(req);
    evhttp_add_header(out, "Content-Type", type);
    evhttp_add_header(out, "X-Content-Type-Options", "nosniff");
}

void http_json(Http *h, struct evhttp_request *req, int status, const Buf *body) {
    struct evbuffer *b = evbuffer_new();
    CHECK(b && !evbuffer_add(b, body->data ? body->data : "", body->n), "no memory for an answer of %zu bytes",
          body->n);
    common(req, "application/json");
    busy(h, req, false);
    evhttp_send_reply(req, status, NULL, b);
    evbuffer_free(b);
}

void http_error(Http *h, struct evhttp_request *req, const Refusal *no) {
    Buf b = { 0 };
    char seconds[16];
    struct evkeyvalq *out = evhttp_request_get_output_headers(req);
    snprintf(seconds, sizeof seconds, "%d", no->retry);
    if (no->retry) evhttp_add_header(out, "Retry-After", seconds);
    if (no->status == 401) evhttp_add_header(out, "WWW-Authenticate", "Bearer");
    reply_error(&b, no);
    http_json(h, req, no->status, &b);
    buf_free(&b);
}

void http_stream_begin(struct evhttp_request *req) {
    common(req, "text/event-stream; charset=utf-8");
    evhttp_add_header(evhttp_request_get_output_headers(req), "Cache-Control", "no-cache");
    evhttp_send_reply_start(req, HTTP_OK, "OK");
}

bool http_stream_put(struct evhttp_request *req, const Buf *events) {
    struct evbuffer *b = evbuffer_new();
    struct bufferevent *bev = evhttp_connection_get_bufferevent(evhttp_request_get_connection(req));
    CHECK(b && !evbuffer_add(b, events->data, events->n), "no memory for events of %zu bytes", events->n);
    evhttp_send_reply_chunk(req, b);
    evbuffer_free(b);
    return evbuffer_get_length(bufferevent_get_output(bev)) <= HTTP_BEHIND;
}

void http_stream_end(Http *h, struct evhttp_request *req) {
    busy(h, req, false);
    evhttp_send_reply_end(req);
}
