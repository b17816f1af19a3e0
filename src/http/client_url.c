/* client_url.c - as much of a URL as decides where a secret may go.  What is not understood is another server. */
#include "http/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct {
    char scheme[8], host[256];
    long port;
} Server;

/* SCHEME://HOST[:PORT]; a user's name before the host is not for us. */
static bool server_of(Server *s, const char *url) {
    const char *sep = strstr(url, "://");
    if (!sep || (size_t)(sep - url) >= sizeof s->scheme) return false;
    snprintf(s->scheme, sizeof s->scheme, "%.*s", (int)(sep - url), url);
    const char *host = sep + 3;
    size_t n = strcspn(host, "/?#");
    if (memchr(host, '@', n) || memchr(host, '\\', n)) return false;
    const char *open = *host == '[' ? memchr(host, ']', n) : host, *colon;
    if (!open) return false;
    colon = memchr(open, ':', n - (size_t)(open - host));
    size_t len = colon ? (size_t)(colon - host) : n;
    if (!len || len >= sizeof s->host) return false;
    snprintf(s->host, sizeof s->host, "%.*s", (int)len, host);
    s->port = colon && colon[1] != '/' ? strtol(colon + 1, NULL, 10) : !strcasecmp(s->scheme, "https") ? 443 : 80;
    return true;
}

bool url_same_server(const char *a, const char *b) {
    Server x, y;
    return server_of(&x, a) && server_of(&y, b) && !strcasecmp(x.scheme, y.scheme) && !strcasecmp(x.host, y.host)
           && x.port == y.port;
}

bool url_private(const char *url) {
    static const char *const here[] = { "127.0.0.1", "localhost", "[::1]" };
    Server s;
    if (!server_of(&s, url)) return false;
    if (!strcasecmp(s.scheme, "https")) return true;
    for (size_t i = 0; i < COUNT(here); i++)
        if (!strcasecmp(s.host, here[i])) return true;
    return false;
}

void url_put(Buf *b, const char *text, const char *keep) {
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') || (*p >= '0' && *p <= '9');
        if (plain || strchr("-._~", *p) || (*keep && strchr(keep, *p))) buf_putc(b, (char)*p);
        else buf_printf(b, "%%%02X", *p);
    }
}
