/* page.c - the server: who may ask, the page itself, what is live.
 *
 * Everything happens on one thread in the loop: reading the runs goes in pieces of a few milliseconds between
 * requests, so that a page answers while a million answers are still being read. */
#include "page/page.h"
#include "base/clock.h"
#include "base/file.h"
#include "http/http.h"
#include "page/api.h"

#include <errno.h>
#include <event2/event.h>
#include <event2/http.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned char page_html[] = {
#include "page_html.inc"
};
static const unsigned char page_css[] = {
#include "page_css.inc"
};
static const unsigned char page_js[] = {
#include "page_js.inc"
};

enum { STREAMS_MOST = 8, CONNECTIONS_MOST = 32, HEAD_MOST = 16 << 10 };

typedef struct Page Page;
typedef struct {
    Page *page;
    HttpStream *to; /* NULL: free */
    double told;
    int64_t version; /* of what was told */
} Live;

struct Page {
    Mem mem;
    const PageConf *conf;
    Views all;
    struct event_base *base;
    HttpServer *http;
    struct event *second, *more;
    Live live[STREAMS_MOST];
    char token[33];
};

/* ---- the page: one file, with a nonce of its own each time */
static const char *text_of(const unsigned char *bytes) { return (const char *)bytes; }

static void put_part(Buf *b, const char **html, const char *mark, const char *with) {
    const char *at = strstr(*html, mark);
    CHECK(at, "the page has no %s", mark);
    buf_put(b, *html, (size_t)(at - *html));
    buf_puts(b, with);
    *html = at + strlen(mark);
}

static void send_page(struct evhttp_request *req) {
    char nonce[33], policy[400];
    if (!web_secret(nonce)) {
        web_error(req, 503, "the system gives no random numbers");
        return;
    }
    snprintf(
        policy, sizeof policy,
        "default-src 'none'; script-src 'nonce-%s'; style-src 'nonce-%s'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        nonce, nonce);
    web_set(req, "Content-Security-Policy", policy);
    web_set(req, "X-Frame-Options", "DENY");
    web_set(req, "Cross-Origin-Opener-Policy", "same-origin");
    Buf b = { 0 };
    const char *html = text_of(page_html);
    put_part(&b, &html, "NONCE", nonce);
    put_part(&b, &html, "PAGE_CSS", text_of(page_css));
    put_part(&b, &html, "NONCE", nonce);
    put_part(&b, &html, "PAGE_JS", text_of(page_js));
    buf_puts(&b, html);
    web_reply(req, 200, "text/html; charset=utf-8", b.data, b.n);
    buf_free(&b);
}

/* ---- live: a line when something has changed, a comment now and then */
static int64_t version_of(const Views *all) {
    int64_t v = 0;
    for (int i = 0; i < all->n; i++) v += all->run[i].versions;
    return v;
}

static void live_gone(void *user) { ((Live *)user)->to = NULL; }

static void live_tell(Live *l) {
    static const double SILENT_S = 15;
    enum { FULL = 1 << 20 }; /* a client that does not read is told nothing new */
    int64_t version = version_of(&l->page->all);
    double now = clock_now();
    if (web_stream_waits(l->to) > FULL) return;
    Buf b = { 0 };
    if (version != l->version) {
        buf_printf(&b, "id: %lld\ndata: ", (long long)version);
        api_live(&b, &l->page->all);
        buf_puts(&b, "\n\n");
    } else if (now - l->told > SILENT_S) buf_puts(&b, ":\n\n");
    if (b.n) l->version = version, l->told = now, web_stream_put(l->to, b.data, b.n);
    buf_free(&b);
}

static void live_begin(Page *p, struct evhttp_request *req) {
    for (int i = 0; i < STREAMS_MOST; i++) {
        Live *l = &p->live[i];
        if (l->to) continue;
        *l = (Live){ .page = p, .version = -1 };
        l->to = web_stream(req, 200, "text/event-stream", live_gone, l);
        live_tell(l);
        return;
    }
    web_error(req, 503, "too many pages are open on this run: the others are asked each few seconds instead");
}

/* ---- requests */
static bool may_ask(Page *p, struct evhttp_request *req) {
    if (!web_host_known(p->http, req))
        return web_error(req, 421, "this server goes by another name; name it with --name"), false;
    if (web_cross_site(req)) return web_error(req, 403, "asked by a page of another site"), false;
    return true;
}

static void on_request(void *user, struct evhttp_request *req) {
    Page *p = user;
    const char *path = web_path(req);
    if (!may_ask(p, req)) return;
    if (!strcmp(path, "/")) {
        send_page(req);
        return;
    }
    if (strncmp(path, "/api/", 5)) {
        web_error(req, 404, "there is nothing here");
        return;
    }
    const char *token = web_header(req, "X-Hone-Token");
    if (!token || !web_same_secret(token, p->token)) web_error(req, 401, "the token is not this server's");
    else if (!strcmp(path, "/api/live")) live_begin(p, req);
    else api_answer(&p->all, path + 5, req);
}

/* ---- time */
static void read_on(Page *p) {
    static const double PIECE_S = 0.03;
    bool more = false;
    for (int i = 0; i < p->all.n; i++) more |= view_work(&p->all.run[i], PIECE_S);
    if (more) event_add(p->more, &(struct timeval){ 0, 0 }); /* behind what else waits */
}

static void on_more(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    read_on(arg);
}

static void on_second(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    Page *p = arg;
    for (int i = 0; i < p->all.n; i++) view_look(&p->all.run[i]);
    read_on(p);
    for (int i = 0; i < STREAMS_MOST; i++)
        if (p->live[i].to) live_tell(&p->live[i]);
}

static void on_signal(evutil_socket_t fd, short what, void *arg) {
    (void)fd, (void)what;
    event_base_loopbreak(arg);
}

/* ---- the token: of this run's page of before, so that an open one goes on; a file of nobody else's */
static void token_find(Page *p, Mem *mem) {
    for (int i = 0; i < p->all.n; i++) {
        char text[256] = "";
        struct stat st;
        int fd =
            open(mem_printf(mem, "%s/page.url", p->all.run[i].dir), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        bool mine = fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() && !(st.st_mode & 077);
        if (mine && read(fd, text, sizeof text - 1) < 0) *text = 0;
        if (fd >= 0) close(fd);
        const char *t = strstr(text, "#t=");
        if (!t || strspn(t + 3, "0123456789abcdef") != 32) continue;
        snprintf(p->token, sizeof p->token, "%.32s", t + 3);
        return;
    }
}

/* Where scripts find it; a folder that cannot be written to has none. */
static void url_write(const Page *p, const char *url, Mem *mem) {
    for (int i = 0; i < p->all.n; i++) {
        const char *path = mem_printf(mem, "%s/page.url", p->all.run[i].dir), *tmp = mem_printf(mem, "%s.new", path);
        unlink(tmp);
        int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0) continue;
        bool ok = write(fd, url, strlen(url)) == (ssize_t)strlen(url);
        close(fd);
        if (!ok || rename(tmp, path)) unlink(tmp);
    }
}

static bool bind_all(Page *p, int *port, Err *err) {
    const PageConf *c = p->conf;
    Err ignore;
    *port = web_bind(p->http, c->listen ? c->listen : "127.0.0.1", c->port, err);
    if (*port < 0) return false;
    if (!c->listen) web_bind(p->http, "::1", *port, &ignore); /* many machines have none */
    if (c->name) web_name(p->http, c->name, *port);
    return true;
}

static bool open_page(Page *p, Err *err) {
    const PageConf *c = p->conf;
    HttpLimits limits = { CONNECTIONS_MOST, HEAD_MOST, 0, 10, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD };
    Mem mem = { 0 };
    int port;
    if (!(p->base = event_base_new())) return err_set(err, "no event loop is to be had");
    if (!(p->http = web_open(p->base, &limits, on_request, p, err)) || !bind_all(p, &port, err)) return false;
    p->all.run = MEM_ARRAY(&p->mem, View, (size_t)c->runs);
    for (int i = 0; i < c->runs; i++) {
        view_open(&p->all.run[p->all.n++], c->run[i]);
        p->all.run[i].alert_command = c->alert_command;
    }
    token_find(p, &mem);
    if (!p->token[0] && !web_secret(p->token)) return err_set(err, "the system gives no random numbers");
    const char *v6 = c->listen && strchr(c->listen, ':') ? "[" : "", *end = *v6 ? "]" : "";
    const char *url =
        mem_printf(&mem, "http://%s%s%s:%d/#t=%s\n", v6, c->listen ? c->listen : "127.0.0.1", end, port, p->token);
    url_write(p, url, &mem);
    if (!c->quiet) fputs(url, stdout), fflush(stdout);
    mem_free(&mem);
    return true;
}

static void close_page(Page *p) {
    for (int i = 0; i < STREAMS_MOST; i++)
        if (p->live[i].to) web_stream_end(p->live[i].to), p->live[i].to = NULL;
    web_close(p->http);
    for (int i = 0; i < p->all.n; i++) view_close(&p->all.run[i]);
    if (p->second) event_free(p->second);
    if (p->more) event_free(p->more);
    if (p->base) event_base_free(p->base);
    mem_free(&p->mem);
}

bool page_serve(const PageConf *c, Err *err) {
    static const int ends[] = { SIGINT, SIGTERM, SIGHUP };
    Page p = { .conf = c };
    struct event *end[COUNT(ends)] = { 0 };
    bool ok = open_page(&p, err);
    if (ok) {
        p.second = event_new(p.base, -1, EV_PERSIST, on_second, &p);
        p.more = event_new(p.base, -1, 0, on_more, &p);
        event_add(p.second, &(struct timeval){ 1, 0 });
        for (size_t i = 0; i < COUNT(ends); i++) {
            end[i] = evsignal_new(p.base, ends[i], on_signal, p.base);
            event_add(end[i], NULL);
        }
        read_on(&p);
        event_base_dispatch(p.base);
    }
    for (size_t i = 0; i < COUNT(ends); i++)
        if (end[i]) event_free(end[i]);
    close_page(&p);
    return ok;
}
