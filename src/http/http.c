/* http.c - connections: counted, timed, named.
 *
 * evhttp does not say when a connection ends, and has no bound on how many there are.  So every bufferevent is made
 * here and held once more than evhttp holds it: one whose callbacks are gone is one that evhttp has given up. */
#include "http/http.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/http.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

typedef struct {
    struct bufferevent *bev;
    double since; /* when it began to be idle */
    bool busy;    /* a request of it is being answered */
    bool ended;   /* shut down: evhttp will see */
} Conn;

struct HttpServer {
    Mem mem;
    struct event_base *base;
    struct evhttp *http;
    struct event *tick;
    HttpLimits limits;
    HttpHandle *handle;
    void *user;
    VEC(Conn) conn;
    VEC(const char *) names;
};

static bool given_up(const Conn *c) {
    bufferevent_data_cb r, w;
    bufferevent_event_cb e;
    void *arg;
    bufferevent_getcb(c->bev, &r, &w, &e, &arg);
    return !arg; /* evhttp's own is the connection */
}

/* evhttp reads the end of it, and closes it as if the client had gone. */
static void end(Conn *c) {
    if (!c->ended) shutdown(bufferevent_getfd(c->bev), SHUT_RDWR);
    c->ended = true;
}

static void sweep(HttpServer *s) {
    double now = clock_now();
    size_t n = 0;
    for (size_t i = 0; i < s->conn.n; i++) {
        Conn *c = &s->conn.at[i];
        if (given_up(c)) {
            bufferevent_decref(c->bev);
            continue;
        }
        if (!c->busy && now - c->since > s->limits.seconds) end(c);
        s->conn.at[n++] = *c;
    }
    s->conn.n = n;
}

static void on_tick(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    sweep(arg);
}

static Conn *conn_of(HttpServer *s, const struct bufferevent *bev) {
    for (size_t i = 0; i < s->conn.n; i++)
        if (s->conn.at[i].bev == bev) return &s->conn.at[i];
    return NULL;
}

/* One too many: the longest idle one makes room. */
static struct bufferevent *on_connection(struct event_base *base, void *arg) {
    HttpServer *s = arg;
    sweep(s);
    Conn *oldest = NULL;
    int living = 0;
    for (size_t i = 0; i < s->conn.n; i++) {
        Conn *c = &s->conn.at[i];
        living += !c->ended;
        if (!c->busy && !c->ended && (!oldest || c->since < oldest->since)) oldest = c;
    }
    if (living >= s->limits.connections && oldest) end(oldest);
    struct bufferevent *bev = bufferevent_socket_new(base, -1, 0);
    if (!bev) die_memory(0);
    bufferevent_incref(bev);
    VEC_PUSH(s->conn, (Conn){ .bev = bev, .since = clock_now() });
    return bev;
}

static void on_complete(struct evhttp_request *req, void *arg) {
    struct evhttp_connection *c = evhttp_request_get_connection(req);
    Conn *conn = c ? conn_of(arg, evhttp_connection_get_bufferevent(c)) : NULL;
    if (conn) conn->busy = false, conn->since = clock_now();
}

/* All connections may be busy: then a new one's first request is refused. */
static bool too_many(const HttpServer *s) {
    int busy = 0;
    for (size_t i = 0; i < s->conn.n; i++) busy += s->conn.at[i].busy && !s->conn.at[i].ended;
    return busy > s->limits.connections;
}

static void on_request(struct evhttp_request *req, void *arg) {
    HttpServer *s = arg;
    struct evhttp_connection *c = evhttp_request_get_connection(req);
    Conn *conn = conn_of(s, evhttp_connection_get_bufferevent(c));
    if (conn) conn->busy = true;
    evhttp_request_set_on_complete_cb(req, on_complete, s);
    if (too_many(s)) web_error(req, 503, "too many connections");
    else s->handle(s->user, req);
}

HttpServer *web_open(struct event_base *base, const HttpLimits *limits, HttpHandle *handle, void *user, Err *err) {
    Mem mem = { 0 };
    HttpServer *s = MEM_NEW(&mem, HttpServer);
    s->mem = mem, s->base = base, s->limits = *limits, s->handle = handle, s->user = user;
    s->http = evhttp_new(base);
    s->tick = event_new(base, -1, EV_PERSIST, on_tick, s);
    if (!s->http || !s->tick) {
        web_close(s);
        err_set(err, "no memory for a server");
        return NULL;
    }
    event_add(s->tick, &(struct timeval){ 1, 0 });
    evhttp_set_bevcb(s->http, on_connection, s);
    evhttp_set_gencb(s->http, on_request, s);
    evhttp_set_max_headers_size(s->http, (ev_ssize_t)limits->head);
    evhttp_set_max_body_size(s->http, (ev_ssize_t)limits->body);
    evhttp_set_allowed_methods(s->http, (ev_uint16_t)limits->methods);
    evhttp_set_default_content_type(s->http, NULL);
    /* of a client that takes nothing of an answer; what it sends is timed here */
    evhttp_set_timeout(s->http, (int)(limits->seconds < 1 ? 1 : limits->seconds) + 30);
    return s;
}

void web_close(HttpServer *s) {
    if (!s) return;
    if (s->http) evhttp_free(s->http);
    if (s->tick) event_free(s->tick);
    for (size_t i = 0; i < s->conn.n; i++) bufferevent_decref(s->conn.at[i].bev);
    vec_free(s->conn.at);
    vec_free(s->names.at);
    Mem mem = s->mem;
    mem_free(&mem);
}

/* ---- addresses and names */
static bool v4(const char *a, struct in_addr *out) { return inet_pton(AF_INET, a, out) == 1; }
static bool v6(const char *a, struct in6_addr *out) { return inet_pton(AF_INET6, a, out) == 1; }

bool web_address(const char *a) {
    struct in_addr four;
    struct in6_addr six;
    return v4(a, &four) || v6(a, &six);
}

bool web_loopback(const char *a) {
    struct in_addr four;
    struct in6_addr six;
    if (v4(a, &four)) return ntohl(four.s_addr) >> 24 == 127;
    return v6(a, &six) && IN6_IS_ADDR_LOOPBACK(&six);
}

void web_name(HttpServer *s, const char *name, int port) {
    const char *colon = strrchr(name, ':'), *bracket = strrchr(name, ']');
    bool has_port = colon && colon > (bracket ? bracket : name);
    VEC_PUSH(s->names, has_port ? mem_str(&s->mem, name, strlen(name)) : mem_printf(&s->mem, "%s:%d", name, port));
    if (!has_port && port == 80) VEC_PUSH(s->names, mem_str(&s->mem, name, strlen(name)));
}

static int bound_port(struct evhttp_bound_socket *b) {
    struct sockaddr_storage at;
    socklen_t n = sizeof at;
    if (getsockname(evhttp_bound_socket_get_fd(b), (struct sockaddr *)&at, &n)) return -1;
    if (at.ss_family == AF_INET6) return ntohs(((struct sockaddr_in6 *)(void *)&at)->sin6_port);
    return ntohs(((struct sockaddr_in *)(void *)&at)->sin_port);
}

int web_bind(HttpServer *s, const char *address, int port, Err *err) {
    struct in6_addr six;
    errno = 0;
    struct evhttp_bound_socket *b = evhttp_bind_socket_with_handle(s->http, address, (ev_uint16_t)port);
    if (!b) {
        const char *why = errno ? strerror(errno) : "not an address of this machine";
        return err_set(err, "%s port %d: cannot listen: %s%s", address, port, why,
                       errno == EADDRINUSE ? "; name another with --port" : ""),
               -1;
    }
    int got = bound_port(b);
    char name[80];
    snprintf(name, sizeof name, v6(address, &six) ? "[%s]" : "%s", address);
    web_name(s, name, got);
    web_name(s, "localhost", got);
    return got;
}

bool web_host_known(const HttpServer *s, struct evhttp_request *req) {
    const char *host = web_header(req, "Host");
    for (size_t i = 0; host && i < s->names.n; i++)
        if (!strcasecmp(host, s->names.at[i])) return true;
    return false;
}

bool web_cross_site(struct evhttp_request *req) {
    const char *site = web_header(req, "Sec-Fetch-Site");
    return site && strcmp(site, "none") && strcmp(site, "same-origin");
}

bool web_same_secret(const char *given, const char *right) {
    size_t n = strlen(right), m = strlen(given);
    unsigned differ = n != m;
    for (size_t i = 0; i < n; i++) differ |= (unsigned char)right[i] ^ (unsigned char)given[i < m ? i : m];
    return !differ;
}

bool web_secret(char out[33]) {
    unsigned char bits[16];
    if (getrandom(bits, sizeof bits, 0) != sizeof bits) return false;
    for (size_t i = 0; i < sizeof bits; i++) snprintf(out + 2 * i, 3, "%02x", bits[i]);
    return true;
}
