/* serve.c - routes, and requests under way. */
#include "serve/serve.h"
#include "serve/reply.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/keyvalq_struct.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { RETRY_SECONDS = 2 };

typedef struct Serve Serve;

/* A request whose answer is being drawn. */
typedef struct Call {
    Mem mem;
    Serve *s;
    struct evhttp_request *req;
    struct event *gone; /* its client's end of the connection closed */
    Want want;
    Reply reply;
    bool streams; /* the first event was sent */
    size_t held;
    struct Call *next, **self;
} Call;

typedef struct {
    Call *call;
    int prompt;
} Place; /* of a request to the engine in its call */

struct Serve {
    const ServeConf *c;
    struct event_base *base;
    Http *http;
    Ask *ask;
    Call *calls;
    Pieces pieces;
    Buf out;
    int64_t created;
    size_t held;
};

/* ---- a call's end */
static void call_free(Call *c) {
    if ((*c->self = c->next)) c->next->self = c->self;
    c->s->held -= c->held;
    if (c->gone) event_free(c->gone);
    reply_close(&c->reply);
    want_close(&c->want);
    Mem mem = c->mem;
    mem_free(&mem);
}

/* Nobody wants the rest: the engine ends it before its next step. */
static void call_drop(Call *c) {
    for (int i = 0; i < c->want.n; i++) {
        ask_drop(c->s->ask, c->want.prompt[i]);
        c->want.prompt[i] = NULL;
    }
}

static void forget_connection(Call *c) {
    struct evhttp_connection *link = evhttp_request_get_connection(c->req);
    if (link) evhttp_connection_set_closecb(link, NULL, NULL);
    event_free(c->gone);
    c->gone = NULL;
}

/* evhttp gives the connection up.  Where it has taken the request off it already, the request is ours to free. */
static void on_closed(struct evhttp_connection *link, void *user) {
    (void)link;
    Call *c = user;
    event_free(c->gone), c->gone = NULL;
    if (!evhttp_request_get_connection(c->req)) evhttp_request_free(c->req);
    call_drop(c);
    call_free(c);
}

static void hang_up(Call *c) { evhttp_connection_free(evhttp_request_get_connection(c->req)); } /* on_closed follows */

static void on_gone(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    hang_up(user);
}

/* ---- answers come */
static void call_over(Call *c) {
    Refusal why;
    Serve *s = c->s;
    forget_connection(c);
    if (c->want.stream) http_stream_end(s->http, c->req);
    else if (reply_broken(&c->reply, &why)) http_error(s->http, c->req, &why);
    else {
        buf_clear(&s->out);
        reply_whole(&c->reply, &s->out);
        http_json(s->http, c->req, 200, &s->out);
    }
    call_free(c);
}

/* Whoever was told "[DONE]" is told nothing more, though others of its answers may still be drawn. */
static void call_came(Call *c) {
    Serve *s = c->s;
    Refusal why;
    bool over = true, broken = reply_broken(&c->reply, &why);
    for (int i = 0; i < c->want.n; i++) over &= asked_over(c->want.prompt[i]);
    if (c->want.stream) {
        buf_clear(&s->out);
        reply_events(&c->reply, &s->out);
        if (s->out.n && !c->streams) c->streams = true, http_stream_begin(c->req);
        if (s->out.n && !http_stream_put(c->req, &s->out)) {
            hang_up(c);
            return;
        }
    }
    if (broken && !over) {
        for (int i = 0; i < c->want.n; i++)
            if (!asked_over(c->want.prompt[i])) ask_drop(s->ask, c->want.prompt[i]), c->want.prompt[i] = NULL;
    }
    if (over || broken) call_over(c);
}

static void on_came(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    Serve *s = user;
    for (Asked *q; (q = ask_came(s->ask));) {
        Place *p = asked_wish(q)->user;
        Call *c = p->call;
        ask_take(s->ask, q, &s->pieces);
        reply_take(&c->reply, p->prompt, &s->pieces);
        call_came(c);
    }
}

/* ---- requests come */
static bool take_line(Serve *s, Call *c, Refusal *no) {
    Want *w = &c->want;
    int n = 0;
    for (; n < w->n; n++) {
        Place *p = MEM_NEW(&c->mem, Place);
        *p = (Place){ c, n };
        asked_wish(w->prompt[n])->user = p;
        if (!ask_put(s->ask, w->prompt[n])) break;
    }
    if (n == w->n) return true;
    refuse(no, 429, NULL, "%d requests wait already: come again", s->c->ask.most_waiting);
    no->retry = RETRY_SECONDS, no->code = "rate_limit_exceeded";
    while (n > 0) ask_drop(s->ask, w->prompt[--n]), w->prompt[n] = NULL;
    return false;
}

static void complete(Serve *s, struct evhttp_request *req, WantKind kind) {
    Refusal no;
    Mem mem = { 0 };
    struct evbuffer *in = evhttp_request_get_input_buffer(req);
    size_t n = evbuffer_get_length(in);
    if (s->held + n > (size_t)s->c->held) {
        refuse(&no, 503, NULL, "the requests under way are %zu bytes already: come again", s->held);
        no.retry = RETRY_SECONDS;
        http_error(s->http, req, &no);
        return;
    }
    Call *c = MEM_NEW(&mem, Call);
    c->mem = mem, c->s = s, c->req = req, c->held = n;
    const char *body = n ? (const char *)evbuffer_pullup(in, -1) : "";
    if (!want_read(&c->want, &s->c->offer, kind, body, n, &no)) {
        mem = c->mem;
        mem_free(&mem);
        http_error(s->http, req, &no);
        return;
    }
    evbuffer_drain(in, n); /* what is needed of it was copied */
    reply_open(&c->reply, &s->c->offer, &c->want, &c->mem);
    if (!take_line(s, c, &no)) {
        reply_close(&c->reply);
        want_close(&c->want);
        mem = c->mem;
        mem_free(&mem);
        http_error(s->http, req, &no);
        return;
    }
    struct evhttp_connection *link = evhttp_request_get_connection(req);
    evutil_socket_t fd = bufferevent_getfd(evhttp_connection_get_bufferevent(link));
    s->held += c->held;
    if ((c->next = s->calls)) c->next->self = &c->next;
    s->calls = c, c->self = &s->calls;
    evhttp_connection_set_closecb(link, on_closed, c);
    CHECK((c->gone = event_new(s->base, fd, EV_CLOSED, on_gone, c)) && !event_add(c->gone, NULL),
          "no watch over a client");
}

static void chat(Serve *s, struct evhttp_request *req, const char *rest) {
    (void)rest;
    complete(s, req, WANT_CHAT);
}
static void text(Serve *s, struct evhttp_request *req, const char *rest) {
    (void)rest;
    complete(s, req, WANT_TEXT);
}

static void health(Serve *s, struct evhttp_request *req, const char *rest) {
    (void)rest;
    AskStats a = ask_stats(s->ask);
    buf_clear(&s->out);
    buf_printf(&s->out, "{\"status\":\"ok\",\"running\":%d,\"waiting\":%d}", a.running, a.waiting);
    http_json(s->http, req, 200, &s->out);
}

static void models(Serve *s, struct evhttp_request *req, const char *rest) {
    Refusal no;
    const Offer *o = &s->c->offer;
    buf_clear(&s->out);
    if (*rest && strcmp(rest, o->name) && strcmp(rest, o->path)) {
        refuse(&no, 404, "model", "The model `%.200s` does not exist here; this server has `%s`", rest, o->name);
        no.code = "model_not_found";
        http_error(s->http, req, &no);
        return;
    }
    reply_models(&s->out, o, s->created, !*rest);
    http_json(s->http, req, 200, &s->out);
}

/* ---- routes */
typedef void Route1(Serve *s, struct evhttp_request *req, const char *rest);
static const struct {
    const char *path;
    bool longer, posts, open; /* longer: more may follow it; open: without a key */
    Route1 *run;              /* NULL: has a place, and nothing is there yet */
} routes[] = {
    { "/health", false, false, true, health },
    { "/models", false, false, false, models },
    { "/models/", true, false, false, models },
    { "/completions", false, true, false, text },
    { "/chat/completions", false, true, false, chat },
    { "/responses", true, true, false, NULL },
    { "/messages", true, true, false, NULL },
    { "/embeddings", false, true, false, NULL },
    { "/fine_tuning/jobs", true, true, false, NULL },
    { "/load_lora_adapter", false, true, false, NULL },
    { "/unload_lora_adapter", false, true, false, NULL },
};

static int route_of(const char *path) {
    for (size_t i = 0; i < COUNT(routes); i++) {
        size_t n = strlen(routes[i].path);
        if (!strncmp(path, routes[i].path, n) && (routes[i].longer || !path[n] || !strcmp(path + n, "/")))
            return (int)i;
    }
    return -1;
}

static bool on_route(Serve *s, struct evhttp_request *req, const char *path, Refusal *no) {
    bool v1 = !strncmp(path, "/v1/", 4);
    int r = route_of(v1 ? path + 3 : path);
    enum evhttp_cmd_type how = evhttp_request_get_command(req);
    bool posts = how == EVHTTP_REQ_POST, gets = how == EVHTTP_REQ_GET || how == EVHTTP_REQ_HEAD;
    TRY(http_allowed(s->http, req, r >= 0 && routes[r].open, no));
    if (r < 0) return refuse(no, 404, NULL, "there is nothing at %.200s", path);
    if (!routes[r].run) return refuse(no, 501, NULL, "%.200s is not served yet", path);
    if (routes[r].posts ? !posts : !gets) {
        evhttp_add_header(evhttp_request_get_output_headers(req), "Allow", routes[r].posts ? "POST" : "GET, HEAD");
        return refuse(no, 405, NULL, "%.200s is for %s", path, routes[r].posts ? "POST" : "GET");
    }
    routes[r].run(s, req, (v1 ? path + 3 : path) + strlen(routes[r].path));
    return true;
}

static void on_call(void *user, struct evhttp_request *req) {
    Serve *s = user;
    Refusal no;
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(req);
    const char *raw = uri ? evhttp_uri_get_path(uri) : NULL;
    size_t n = 0;
    char *path = raw && *raw ? evhttp_uridecode(raw, 0, &n) : NULL;
    if (!path || strlen(path) != n || path[0] != '/') {
        refuse(&no, 400, NULL, "the request's path cannot be read");
        http_error(s->http, req, &no);
    } else if (!on_route(s, req, path, &no)) http_error(s->http, req, &no);
    vec_free(path); /* libevent's memory is malloc's */
}

static void on_signal(evutil_socket_t fd, short what, void *user) {
    (void)fd, (void)what;
    event_base_loopexit(((Serve *)user)->base, NULL);
}

bool serve_run(Engine *e, const ServeConf *c, void (*ready)(void *user, int port), void *user, Err *err) {
    Serve s = { .c = c, .base = event_base_new(), .created = time(NULL) };
    CHECK(s.base, "no event loop");
    HttpConf h = c->http;
    h.call = on_call, h.user = &s;
    if (!(s.http = http_open(s.base, &h, err)) || !(s.ask = ask_open(e, c->offer.reader->tok, &c->ask, err))) {
        if (s.http) http_close(s.http);
        event_base_free(s.base);
        return false;
    }
    struct event *watch[] = { event_new(s.base, ask_fd(s.ask), EV_READ | EV_PERSIST, on_came, &s),
                              evsignal_new(s.base, SIGINT, on_signal, &s),
                              evsignal_new(s.base, SIGTERM, on_signal, &s) };
    for (size_t i = 0; i < COUNT(watch); i++) CHECK(watch[i] && !event_add(watch[i], NULL), "no event %zu", i);
    ready(user, http_port(s.http));
    event_base_dispatch(s.base);
    while (s.calls) hang_up(s.calls);
    http_close(s.http);
    ask_close(s.ask);
    for (size_t i = 0; i < COUNT(watch); i++) event_free(watch[i]);
    event_base_free(s.base);
    pieces_free(&s.pieces);
    buf_free(&s.out);
    return true;
}
