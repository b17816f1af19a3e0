/* name.c - ORG/NAME[@REVISION][:PATH]: names as the hub allows them, which never leave a folder. */
#include "hub/hub_in.h"

#include <string.h>

enum { PART_MOST = 96 };

static bool name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || strchr("-_.", c);
}

/* One of the two parts: letters, digits, - _ . ; neither "--" nor ".." in it, none of - . at its ends. */
static bool part(const char *s, size_t n) {
    if (!n || n > PART_MOST || strchr("-.", s[0]) || strchr("-.", s[n - 1])) return false;
    for (size_t i = 0; i < n; i++) {
        if (!s[i] || !name_char(s[i])) return false;
        if (i && s[i] == s[i - 1] && strchr("-.", s[i])) return false;
    }
    return true;
}

static bool repo_ok(const char *s, size_t n) {
    const char *slash = memchr(s, '/', n);
    return slash && part(s, (size_t)(slash - s)) && part(slash + 1, n - 1 - (size_t)(slash - s));
}

bool hub_like(const char *text) { return text[0] != '/' && text[0] != '.' && repo_ok(text, strcspn(text, "@")); }

static bool revision_ok(const char *s) {
    size_t n = strlen(s);
    if (!n || n > 200 || s[0] == '/' || s[n - 1] == '/' || strstr(s, "..") || strstr(s, "//")) return false;
    for (size_t i = 0; i < n; i++)
        if (!name_char(s[i]) && s[i] != '/') return false;
    return true;
}

bool hub_name(HubName *out, const char *text, HubKind kind, bool path, Mem *mem, Err *err) {
    static const char sets[] = "datasets/";
    const char *s = text;
    *out = (HubName){ .kind = kind, .revision = "main" };
    if (!strncmp(s, sets, sizeof sets - 1)) s += sizeof sets - 1, out->kind = HUB_DATA;
    size_t n = strcspn(s, path ? "@:" : "@");
    if (!repo_ok(s, n))
        return err_set(err, "'%s' names no repository: ORG/NAME, then @REVISION%s where wanted", text,
                       path ? " and :FILES" : "");
    out->repo = mem_str(mem, s, n);
    s += n;
    if (*s == '@') {
        size_t rev = path ? strcspn(s, ":") : strlen(s);
        out->revision = mem_str(mem, s + 1, rev - 1);
        s += rev;
        if (!revision_ok(out->revision)) return err_set(err, "'%s': '%s' is no revision", text, out->revision);
    }
    if (*s == ':') out->path = mem_str(mem, s + 1, strlen(s + 1));
    if (out->path && !*out->path) return err_set(err, "'%s' names no files behind the colon", text);
    return true;
}

bool hub_is_commit(const char *s) { return strlen(s) == 40 && strspn(s, "0123456789abcdef") == 40; }
