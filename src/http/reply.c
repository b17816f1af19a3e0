/* reply.c - what a request asks, and how it is answered: at once, or in pieces. */
#include "http/http.h"
#include "base/json.h"

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* ---- the question */
const char *web_path(struct evhttp_request *req) {
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(req);
    const char *path = uri ? evhttp_uri_get_path(uri) : NULL;
    return path ? path : "";
}

const char *web_header(struct evhttp_request *req, const char *name) {
    return evhttp_find_header(evhttp_request_get_input_headers(req), name);
}

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c = (char)(c | 32);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

const char *web_query(struct evhttp_request *req, const char *name, Mem *mem) {
    const struct evhttp_uri *uri = evhttp_request_get_evhttp_uri(req);
    const char *q = uri ? evhttp_uri_get_query(uri) : NULL;
    size_t len = strlen(name);
    for (; q && *q; q += strcspn(q, "&"), q += *q == '&') {
        if (strncmp(q, name, len) || q[len] != '=') continue;
        const char *v = q + len + 1;
        size_t n = strcspn(v, "&"), to = 0;
        char *out = mem_str(mem, v, n);
        for (size_t i = 0; i < n; i++) {
            bool coded = v[i] == '%' && i + 2 < n && hex(v[i + 1]) >= 0 && hex(v[i + 2]) >= 0;
            char c = v[i] == '+' ? ' ' : v[i];
            if (coded) c = (char)(hex(v[i + 1]) * 16 + hex(v[i + 2])), i += 2;
            if (c) out[to++] = c; /* a zero byte would end what follows */
        }
        out[to] = 0;
        return out;
    }
    return NULL;
}

/* ---- the answer */
void web_set(struct evhttp_request *req, const char *name, const char *value) {
    struct evkeyvalq *h = evhttp_request_get_output_headers(req);
    evhttp_remove_header(h, name);
    evhttp_add_header(h, name, value);
}

static void usual(struct evhttp_request *req, const char *type) {
    web_set(req, "Content-Type", type);
    web_set(req, "X-Content-Type-Options", "nosniff");
    web_set(req, "Cache-Control", "no-store");
    web_set(req, "Referrer-Policy", "no-referrer");
    web_set(req, "Cross-Origin-Resource-Policy", "same-origin");
}

static bool takes_gzip(struct evhttp_request *req) {
    const char *h = web_header(req, "Accept-Encoding");
    return h && strstr(h, "gzip") && !strstr(h, "gzip;q=0");
}

static bool zip(Buf *out, const void *body, size_t n) {
    enum { GZIP = 16, QUICK = 1 };
    z_stream z = { 0 };
    if (n > UINT_MAX / 2 || deflateInit2(&z, QUICK, Z_DEFLATED, MAX_WBITS + GZIP, 8, Z_DEFAULT_STRATEGY) != Z_OK)
        return false;
    size_t most = deflateBound(&z, (uLong)n);
    buf_reserve(out, most);
    z.next_in = (Bytef *)(uintptr_t)body, z.avail_in = (uInt)n;
    z.next_out = (Bytef *)out->data, z.avail_out = (uInt)most;
    bool ok = deflate(&z, Z_FINISH) == Z_STREAM_END;
    out->n = z.total_out;
    deflateEnd(&z);
    return ok;
}

void web_reply(struct evhttp_request *req, int code, const char *type, const void *body, size_t n) {
    enum { WORTH = 4096 };
    Buf zipped = { 0 };
    struct evbuffer *out = evbuffer_new();
    if (!out) die_memory(0);
    usual(req, type);
    bool small = n >= WORTH && takes_gzip(req) && zip(&zipped, body, n);
    if (small) web_set(req, "Content-Encoding", "gzip");
    if (evbuffer_add(out, small ? zipped.data : body, small ? zipped.n : n)) die_memory(n);
    evhttp_send_reply(req, code, NULL, out);
    evbuffer_free(out);
    buf_free(&zipped);
}

void web_error(struct evhttp_request *req, int code, const char *what) {
    Buf b = { 0 };
    buf_puts(&b, "{\"error\":{\"message\":");
    json_put_str(&b, what, strlen(what));
    buf_printf(&b, ",\"code\":%d}}\n", code);
    web_reply(req, code, "application/json", b.data, b.n);
    buf_free(&b);
}

/* ---- in pieces */
struct HttpStream {
    Mem mem;
    struct evhttp_request *req;
    HttpGone *gone;
    void *user;
};

static void stream_free(HttpStream *t) {
    Mem mem = t->mem;
    mem_free(&mem);
}

static void on_close(struct evhttp_connection *c, void *arg) {
    (void)c;
    HttpStream *t = arg;
    t->gone(t->user);
    stream_free(t);
}

HttpStream *web_stream(struct evhttp_request *req, int code, const char *type, HttpGone *gone, void *user) {
    Mem mem = { 0 };
    HttpStream *t = MEM_NEW(&mem, HttpStream);
    *t = (HttpStream){ mem, req, gone, user };
    usual(req, type);
    evhttp_connection_set_closecb(evhttp_request_get_connection(req), on_close, t);
    evhttp_send_reply_start(req, code, NULL);
    return t;
}

void web_stream_put(HttpStream *t, const void *bytes, size_t n) {
    struct evbuffer *b = evbuffer_new();
    if (!b || evbuffer_add(b, bytes, n)) die_memory(n);
    evhttp_send_reply_chunk(t->req, b);
    evbuffer_free(b);
}

size_t web_stream_waits(const HttpStream *t) {
    struct evhttp_connection *c = evhttp_request_get_connection(t->req);
    return evbuffer_get_length(bufferevent_get_output(evhttp_connection_get_bufferevent(c)));
}

void web_stream_end(HttpStream *t) {
    evhttp_connection_set_closecb(evhttp_request_get_connection(t->req), NULL, NULL);
    evhttp_send_reply_end(t->req);
    stream_free(t);
}
