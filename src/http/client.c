/* client.c - transfers of a curl_multi, and those that wait for their time. */
#include "http/client.h"
#include "base/clock.h"
#include "http/curl_load.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HOPS_MOST = 10, CONNECT_SECONDS = 30, STALLED_SECONDS = 60 };

typedef struct {
    HttpClient *client;
    HttpAsk ask;
    HttpHead head;
    Mem mem;
    const char *url;
    CURL *easy;
    struct curl_slist *headers;
    double when;
    int hops;
    bool used, enough;
} Transfer;

struct HttpClient {
    CurlApi api;
    CURLM *multi;
    Mem mem;
    VEC(Transfer *) all;
};

HttpClient *client_open(Err *err) {
    CurlApi api;
    if (!curl_load(&api, err)) return NULL;
    Mem mem = { 0 };
    HttpClient *c = MEM_NEW(&mem, HttpClient);
    *c = (HttpClient){ .api = api, .multi = api.curl_multi_init(), .mem = mem };
    return c;
}

static void let_go(Transfer *t) {
    const CurlApi *f = &t->client->api;
    if (t->easy) {
        f->curl_multi_remove_handle(t->client->multi, t->easy);
        f->curl_easy_cleanup(t->easy);
    }
    f->curl_slist_free_all(t->headers);
    t->easy = NULL, t->headers = NULL;
}

void client_close(HttpClient *c) {
    if (!c) return;
    for (size_t i = 0; i < c->all.n; i++) {
        let_go(c->all.at[i]);
        mem_free(&c->all.at[i]->mem);
    }
    c->api.curl_multi_cleanup(c->multi);
    vec_free(c->all.at);
    Mem mem = c->mem;
    mem_free(&mem);
}

static Transfer *a_free_one(HttpClient *c) {
    for (size_t i = 0; i < c->all.n; i++)
        if (!c->all.at[i]->used) return c->all.at[i];
    Transfer *t = MEM_NEW(&c->mem, Transfer);
    VEC_PUSH(c->all, t);
    return t;
}

void client_add(HttpClient *c, const HttpAsk *ask, double delay) {
    Transfer *t = a_free_one(c);
    mem_free(&t->mem);
    *t = (Transfer){ .client = c, .ask = *ask, .url = ask->url, .when = clock_now() + delay, .used = true };
}

/* ---- the head */
static bool header_is(const char *line, size_t n, const char *name, char *value, size_t room) {
    size_t len = strlen(name);
    if (n <= len || strncasecmp(line, name, len) || line[len] != ':') return false;
    const char *v = line + len + 1, *end = line + n;
    while (v < end && strchr(" \t", *v)) v++;
    while (end > v && strchr("\r\n \t", end[-1])) end--;
    size_t take = (size_t)(end - v) < room - 1 ? (size_t)(end - v) : room - 1;
    for (size_t i = 0; i < take; i++) value[i] = (unsigned char)v[i] < 32 ? '?' : v[i];
    value[take] = 0;
    return true;
}

static size_t on_header(char *line, size_t size, size_t n, void *user) {
    Transfer *t = user;
    HttpHead *h = &t->head;
    char v[256];
    n *= size;
    if (n > 5 && !strncmp(line, "HTTP/", 5)) /* another answer begins (100 Continue was before) */
        *h = (HttpHead){ .from = -1, .total = -1, .wait = -1 };
    else if (header_is(line, n, "Content-Range", v, sizeof v)) {
        long long from, to, total;
        int got = sscanf(v, "bytes %lld-%lld/%lld", &from, &to, &total);
        if (got >= 2) h->from = from;
        if (got == 3) h->total = total;
    } else if (header_is(line, n, "Content-Length", v, sizeof v)) {
        if (h->total < 0) h->total = strtoll(v, NULL, 10);
    } else if (header_is(line, n, "Retry-After", v, sizeof v)) {
        char *end;
        double s = strtod(v, &end);
        if (end != v && s >= 0) h->wait = s; /* (a date is not read: the usual wait is taken) */
    } else if (header_is(line, n, "X-Error-Code", v, sizeof v)) snprintf(h->code, sizeof h->code, "%.63s", v);
    else if (header_is(line, n, "X-Error-Message", v, sizeof v)) snprintf(h->why, sizeof h->why, "%s", v);
    return n;
}

static size_t on_piece(char *bytes, size_t size, size_t n, void *user) {
    Transfer *t = user;
    long status = 0;
    t->client->api.curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    t->head.status = (int)status;
    n *= size;
    if (status >= 300 && status < 400) return n; /* where it leads to answers */
    if (t->ask.piece && !t->ask.piece(t->ask.user, &t->head, bytes, n)) return t->enough = true, n + 1;
    return n;
}

/* ---- one transfer */
static void begin(Transfer *t) {
    const CurlApi *f = &t->client->api;
    const HttpAsk *a = &t->ask;
    CURL *e = t->easy = f->curl_easy_init();
    CHECK(e, "libcurl gives no handle");
    t->head = (HttpHead){ .from = -1, .total = -1, .wait = -1 };
    for (int i = 0; a->headers && a->headers[i]; i++) t->headers = f->curl_slist_append(t->headers, a->headers[i]);
    if (a->secret && url_same_server(a->url, t->url)) t->headers = f->curl_slist_append(t->headers, a->secret);
    char range[48]; /* (as libcurl's resume it would have to be a range's answer, also of a redirect) */
    snprintf(range, sizeof range, "Range: bytes=%lld-", (long long)a->from);
    if (a->from > 0) t->headers = f->curl_slist_append(t->headers, range);
    t->headers = f->curl_slist_append(t->headers, "Expect:"); /* no asking before a body is sent */
    const struct {
        CURLoption option;
        long value;
    } number[] = {
        { CURLOPT_NOSIGNAL, 1 },
        { CURLOPT_CONNECTTIMEOUT, CONNECT_SECONDS },
        { CURLOPT_LOW_SPEED_LIMIT, 1 },
        { CURLOPT_LOW_SPEED_TIME, STALLED_SECONDS },
        { CURLOPT_FOLLOWLOCATION, 0 },
        { CURLOPT_PROTOCOLS, CURLPROTO_HTTP | CURLPROTO_HTTPS },
        { CURLOPT_BUFFERSIZE, 256 * 1024 },
    };
    const struct {
        CURLoption option;
        const void *value;
    } text[] = {
        { CURLOPT_URL, t->url },
        { CURLOPT_PROXY, a->proxy ? a->proxy : "" }, /* "" keeps it from looking into the environment */
        { CURLOPT_USERAGENT, "hone" },
        { CURLOPT_HTTPHEADER, t->headers },
        { CURLOPT_HEADERDATA, t },
        { CURLOPT_WRITEDATA, t },
        { CURLOPT_PRIVATE, t },
    };
    for (size_t i = 0; i < COUNT(number); i++) f->curl_easy_setopt(e, number[i].option, number[i].value);
    for (size_t i = 0; i < COUNT(text); i++) f->curl_easy_setopt(e, text[i].option, text[i].value);
    f->curl_easy_setopt(e, CURLOPT_HEADERFUNCTION, on_header);
    f->curl_easy_setopt(e, CURLOPT_WRITEFUNCTION, on_piece);
    if (a->body) {
        f->curl_easy_setopt(e, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)a->body_n);
        f->curl_easy_setopt(e, CURLOPT_POSTFIELDS, a->body);
    }
    if (a->method) f->curl_easy_setopt(e, CURLOPT_CUSTOMREQUEST, a->method);
    f->curl_multi_add_handle(t->client->multi, e);
}

static const char *redirected(Transfer *t) {
    const CurlApi *f = &t->client->api;
    const char *to = NULL;
    if (t->head.status < 300 || t->head.status >= 400) return NULL;
    f->curl_easy_getinfo(t->easy, CURLINFO_REDIRECT_URL, &to);
    if (!to || !*to) return NULL;
    return mem_str(&t->mem, to, strlen(to));
}

static void host_of(const char *url, char *out, size_t n) {
    const char *host = strstr(url, "://");
    host = host ? host + 3 : url;
    snprintf(out, n, "%.*s", (int)strcspn(host, "/?#"), host);
}

static void end(Transfer *t, CURLcode rc) {
    const CurlApi *f = &t->client->api;
    long status = 0;
    f->curl_easy_getinfo(t->easy, CURLINFO_RESPONSE_CODE, &status);
    t->head.status = (int)status;
    host_of(t->url, t->head.host, sizeof t->head.host);
    const char *to = rc == CURLE_OK ? redirected(t) : NULL, *broken = NULL;
    let_go(t);
    if (to && ++t->hops > HOPS_MOST) broken = "it is redirected again and again";
    else if (to && !strncasecmp(t->url, "https:", 6) && strncasecmp(to, "https:", 6))
        broken = "it is redirected from https to a server without";
    else if (to) {
        t->url = to;
        begin(t);
        return;
    }
    t->head.hopeless = broken != NULL;
    if (rc != CURLE_OK && !t->enough) broken = f->curl_easy_strerror(rc);
    HttpAsk a = t->ask;
    HttpHead head = t->head;
    t->used = false;
    a.done(a.user, &head, broken);
}

void client_run(HttpClient *c) {
    for (;;) {
        int running = 0, waiting = 0, left;
        double now = clock_now(), first = now + 1;
        for (size_t i = 0; i < c->all.n; i++) {
            Transfer *t = c->all.at[i];
            if (t->used && !t->easy && t->when <= now) begin(t);
            if (!t->used || t->easy) continue;
            waiting++;
            if (t->when < first) first = t->when;
        }
        CHECK(c->api.curl_multi_perform(c->multi, &running) == CURLM_OK, "libcurl's loop");
        for (CURLMsg *m; (m = c->api.curl_multi_info_read(c->multi, &left));) {
            char *of = NULL;
            if (m->msg != CURLMSG_DONE) continue;
            CURLcode rc = m->data.result;
            c->api.curl_easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &of);
            end((Transfer *)(void *)of, rc);
        }
        bool any = false;
        for (size_t i = 0; i < c->all.n; i++) any |= c->all.at[i]->used;
        if (!any) return;
        int ms = waiting ? (int)(1000 * (first - clock_now())) : 1000;
        c->api.curl_multi_poll(c->multi, NULL, 0, ms < 1 ? 1 : ms, &left);
    }
}

/* ---- one question */
typedef struct {
    Buf *answer;
    size_t most;
    HttpHead head;
    bool over;
    char broken[200];
} One;

static bool one_piece(void *user, const HttpHead *head, const void *bytes, size_t n) {
    One *o = user;
    (void)head;
    if (o->answer->n + n > o->most) return o->over = true, false;
    buf_put(o->answer, bytes, n);
    return true;
}

static void one_done(void *user, const HttpHead *head, const char *broken) {
    One *o = user;
    o->head = *head;
    if (broken) snprintf(o->broken, sizeof o->broken, "%s", broken);
}

bool client_ask(HttpClient *c, HttpAsk ask, size_t most, Buf *answer, HttpHead *head, Err *err) {
    One o = { .answer = answer, .most = most };
    ask.piece = one_piece, ask.done = one_done, ask.user = &o;
    buf_clear(answer);
    client_add(c, &ask, 0);
    client_run(c);
    *head = o.head;
    if (o.over) return err_set(err, "%s: an answer longer than %zu bytes", ask.url, most);
    return !*o.broken || err_set(err, "%s: %s", ask.url, o.broken);
}
