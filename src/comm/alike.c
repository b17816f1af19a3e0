/* alike.c - ranks compare what they are going to do.  The first rank's lines go to all, some kilobytes; each looks for
 * the first of its own that is another. */
#include "comm/alike.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    const char *at;
    int key, value; /* bytes: of both, with a tab between them */
} Line;

static Line line_at(const char *at) {
    Line l = { .at = at };
    if (!at || !*at) return l;
    l.key = (int)strcspn(at, "\t\n");
    if (at[l.key]) l.value = (int)strcspn(at + l.key + 1, "\n");
    return l;
}
static const char *behind(const Line *l) {
    return l->at + l->key + 1 + l->value + (l->at[l->key + 1 + l->value] == '\n');
}
static bool same_key(const Line *a, const Line *b) { return a->key == b->key && !memcmp(a->at, b->at, (size_t)a->key); }
static bool same(const Line *a, const Line *b) {
    return same_key(a, b) && a->value == b->value && !memcmp(a->at, b->at, (size_t)(a->key + 1 + a->value));
}

/* The line of that key, or one without a key. */
static Line find(const char *lines, const Line *key) {
    Line l = line_at(lines);
    while (l.key && !same_key(&l, key)) l = line_at(behind(&l));
    return l;
}

/* A value as far as a message has room for it, from shortly before where it becomes another. */
typedef struct {
    char s[120];
} Shown;
static Shown shown(const Line *l, const Line *other) {
    enum { ROOM = 90, BEFORE = 20 };
    Shown out;
    if (!l->key) return snprintf(out.s, sizeof out.s, "none"), out;
    const char *v = l->at + l->key + 1, *w = other->key ? other->at + other->key + 1 : "";
    int at = 0;
    while (at < l->value && other->key && at < other->value && v[at] == w[at]) at++;
    int from = l->value <= ROOM || at <= BEFORE ? 0 : at - BEFORE;
    snprintf(out.s, sizeof out.s, "%s%.*s%s", from ? "..." : "", l->value - from > ROOM ? ROOM : l->value - from,
             v + from, l->value - from > ROOM ? "..." : "");
    return out;
}

static bool differs(const Ranks *r, const Line *mine, const Line *first, Err *err) {
    const Line *key = mine->key ? mine : first;
    char host[65] = "";
    gethostname(host, sizeof host - 1);
    return err_set(
        err,
        "rank %d has %.*s %s, rank 0 %s: all ranks must be given the same program, configuration, data and model "
        "(rank %d is on %s)",
        r->world.all.rank, key->key > 100 ? 100 : key->key, key->at, shown(mine, first).s, shown(first, mine).s,
        r->world.all.rank, host);
}

static bool is_first(const Ranks *r, const char *lines, const char *first, Err *err) {
    Line a = line_at(lines), b = line_at(first);
    while (a.key && b.key && same(&a, &b)) a = line_at(behind(&a)), b = line_at(behind(&b));
    if (!a.key && !b.key) return true;
    Line none = { 0 }, theirs = a.key ? find(first, &a) : none, own = b.key ? find(lines, &b) : none;
    if (b.key && !own.key && (theirs.key || !a.key))
        return differs(r, &own, &b, err); /* a key that this rank has not */
    return differs(r, &a, &theirs, err);
}

bool ranks_alike(const Ranks *r, const char *lines, Err *err) {
    if (ranks_count(r) == 1) return true;
    Buf first = { 0 };
    buf_puts(&first, lines);
    ranks_same(r, &first);
    bool ok = is_first(r, lines, first.n ? first.data : "", err);
    buf_free(&first);
    return ranks_agree(r, ok, err);
}
