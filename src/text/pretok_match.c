/* pretok_match.c - the quick matcher for splitting patterns: alternatives, each a row of
 *     class  class?  class*  class+  class{1,3}  (possessive too)   (?i:'s|'t|...)   (?!class)   $
 * Characters are first mapped to kinds - two characters are of one kind if no class of the pattern tells them apart
 * - so that a class is 256 truth values and the first character says which alternatives are worth trying.  Greedy
 * items give characters back one by one, as backtracking demands; where the next item could not take what is given
 * back, they do not try, which keeps the published patterns linear. */
#include "base/utf8.h"
#include "text/pretok_regex.h"

#include <string.h>

enum { MAX_SETS = 64, MAX_KINDS = 256, MAX_ALTS = 32, MAX_ITEMS = 16, MAX_WORDS = 16, MAX_WORD = 8, MANY = 1 << 30 };

typedef enum { ITEM_CLASS, ITEM_WORDS, ITEM_NOT_AHEAD, ITEM_LINE_END } ItemKind;

typedef struct {
    ItemKind kind;
    int set, min, max;
    bool keeps;                       /* gives nothing back */
    int n_words;                      /* ITEM_WORDS: tried in order; min is 0 or 1 */
    int8_t word[MAX_WORDS][MAX_WORD]; /* sets, -1 behind the last */
} Item;

typedef struct {
    int n;
    Item *item;
} Alt;

struct Matcher {
    int n_alts, n_sets;
    bool whole_runs; /* of the form X+$: what fails at one character of a run fails at all of them */
    Alt alt[MAX_ALTS];
    bool has[MAX_SETS][MAX_KINDS]; /* does the set hold the kind */
    uint32_t starts[MAX_KINDS];    /* which alternatives may begin with the kind */
    uint8_t ascii[128];
    uint16_t page[UNICODE_END >> 8];
    uint8_t (*kinds)[256]; /* kind of a character: kinds[page[c >> 8]][c & 255] */
};

typedef struct {
    const char *at, *end;
    Matcher *m;
    Mem *mem;
    UnicodeSet set[MAX_SETS];
} Reader;

/* ---- reading the pattern */
static int new_set(Reader *r, bool fold) {
    UnicodeSet s = { 0 };
    if (!class_parse(&s, &r->at, r->end, fold) || r->m->n_sets == MAX_SETS) return vec_free(s.at), -1;
    for (int k = 0; k < r->m->n_sets; k++)
        if (r->set[k].n == s.n && !memcmp(r->set[k].at, s.at, s.n * sizeof *s.at)) return vec_free(s.at), k;
    r->set[r->m->n_sets] = s;
    return r->m->n_sets++;
}

static bool next_is(Reader *r, const char *text) {
    size_t n = strlen(text);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, text, n)) return false;
    r->at += n;
    return true;
}

static bool count_number(Reader *r, int *v) {
    const char *from = r->at;
    for (*v = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9' && r->at - from < 5; r->at++)
        *v = *v * 10 + (*r->at - '0');
    return r->at > from;
}

static bool quantifier(Reader *r, Item *it) {
    it->min = it->max = 1;
    if (r->at >= r->end) return true;
    char c = *r->at;
    if (c == '{') {
        r->at++;
        if (!count_number(r, &it->min)) return false;
        it->max = it->min;
        if (next_is(r, ",") && !count_number(r, &it->max)) it->max = MANY;
        if (!next_is(r, "}") || it->max < it->min || it->max == 0) return false;
        return r->at >= r->end || !strchr("+?*", *r->at);
    }
    if (c != '?' && c != '*' && c != '+') return true;
    r->at++;
    it->min = c == '+';
    it->max = c == '?' ? 1 : MANY;
    if (next_is(r, "+")) it->keeps = true;
    return r->at >= r->end || !strchr("+?*", *r->at); /* lazy, or a quantifier on a quantifier */
}

static bool words(Reader *r, Item *it, bool fold) {
    int n = 0;
    for (;;) {
        if (r->at >= r->end || it->n_words == MAX_WORDS) return false;
        if (*r->at == '|' || *r->at == ')') {
            if (n == 0) return false;
            it->word[it->n_words++][n] = -1;
            n = 0;
            if (*r->at++ == ')') break;
            continue;
        }
        int s = new_set(r, fold);
        if (s < 0 || n == MAX_WORD - 1) return false;
        it->word[it->n_words][n++] = (int8_t)s;
    }
    return quantifier(r, it) && it->max == 1 && !it->keeps;
}

static bool read_item(Reader *r, Item *it) {
    if (next_is(r, "(?i:")) return it->kind = ITEM_WORDS, words(r, it, true);
    if (next_is(r, "(?:")) return it->kind = ITEM_WORDS, words(r, it, false);
    if (next_is(r, "(?!")) return it->kind = ITEM_NOT_AHEAD, (it->set = new_set(r, false)) >= 0 && next_is(r, ")");
    if (next_is(r, "$")) return it->kind = ITEM_LINE_END, true;
    it->kind = ITEM_CLASS;
    return (it->set = new_set(r, false)) >= 0 && quantifier(r, it);
}

static bool read_pattern(Reader *r) {
    Matcher *m = r->m;
    do {
        if (m->n_alts == MAX_ALTS) return false;
        Alt *a = &m->alt[m->n_alts++];
        a->item = MEM_ARRAY(r->mem, Item, MAX_ITEMS);
        bool consumes = false;
        while (r->at < r->end && *r->at != '|') {
            if (a->n == MAX_ITEMS || !read_item(r, &a->item[a->n])) return false;
            const Item *it = &a->item[a->n++];
            consumes |= (it->kind == ITEM_CLASS || it->kind == ITEM_WORDS) && it->min > 0;
        }
        if (!consumes) return false; /* may match nothing: left to PCRE2 */
    } while (next_is(r, "|"));
    return r->at == r->end;
}

/* ---- kinds of characters */
static int kind_of(uint64_t *seen, int *n, uint64_t in) {
    for (int k = 0; k < *n; k++)
        if (seen[k] == in) return k;
    if (*n == MAX_KINDS) return -1;
    seen[*n] = in;
    return (*n)++;
}

static bool make_kinds(Reader *r) {
    Matcher *m = r->m;
    Mem tmp = { 0 };
    uint8_t(*all)[256] = mem_array(&tmp, UNICODE_END >> 8, 256);
    size_t at[MAX_SETS] = { 0 };
    uint64_t seen[MAX_KINDS];
    int kinds = 0;
    bool ok = true;
    for (uint32_t c = 0; c < UNICODE_END && ok;) {
        uint64_t in = 0;
        uint32_t until = UNICODE_END;
        for (int s = 0; s < m->n_sets; s++) {
            const UnicodeSet *set = &r->set[s];
            while (at[s] < set->n && set->at[at[s]].hi < c) at[s]++;
            if (at[s] == set->n) continue;
            UnicodeRange x = set->at[at[s]];
            bool inside = x.lo <= c;
            if (inside) in |= (uint64_t)1 << s;
            uint32_t change = inside ? x.hi + 1 : x.lo;
            if (change < until) until = change;
        }
        int k = kind_of(seen, &kinds, in);
        ok = k >= 0;
        if (ok) memset(&all[0][0] + c, k, until - c);
        c = until;
    }
    for (int k = 0; k < kinds; k++)
        for (int s = 0; s < m->n_sets; s++) m->has[s][k] = seen[k] >> s & 1;
    memcpy(m->ascii, all[0], sizeof m->ascii);
    uint16_t *first = MEM_ARRAY(&tmp, uint16_t, UNICODE_END >> 8);
    size_t pages = 0;
    for (size_t p = 0; p < UNICODE_END >> 8; p++) {
        size_t k = p && !memcmp(all[p], all[p - 1], 256) ? m->page[p - 1] : 0;
        while (k < pages && memcmp(all[first[k]], all[p], 256)) k++;
        if (k == pages) first[pages++] = (uint16_t)p;
        m->page[p] = (uint16_t)k;
    }
    m->kinds = mem_array(r->mem, pages, 256);
    for (size_t k = 0; k < pages; k++) memcpy(m->kinds[k], all[first[k]], 256);
    mem_free(&tmp);
    return ok;
}

/* ---- what can be known before matching */
static bool disjoint(const Matcher *m, int a, int b) {
    for (int k = 0; k < MAX_KINDS; k++)
        if (m->has[a][k] && m->has[b][k]) return false;
    return true;
}

static void prepare(Matcher *m) {
    const Item *first = m->alt[0].item;
    bool looks = first[1].kind == ITEM_LINE_END || first[1].kind == ITEM_NOT_AHEAD;
    m->whole_runs = m->n_alts == 1 && m->alt[0].n == 2 && first->kind == ITEM_CLASS && first->max == MANY && looks;
    for (int a = 0; a < m->n_alts; a++) {
        Alt *alt = &m->alt[a];
        for (int i = 0; i < alt->n; i++) {
            Item *it = &alt->item[i];
            const Item *next = i + 1 < alt->n ? it + 1 : NULL;
            if (!next || (next->kind == ITEM_CLASS && next->min > 0 && disjoint(m, it->set, next->set)))
                it->keeps = true;
        }
        bool open = true; /* nothing has been taken for sure yet */
        for (int i = 0; i < alt->n && open; i++) {
            const Item *it = &alt->item[i];
            for (int k = 0; k < MAX_KINDS; k++) {
                bool may = it->kind == ITEM_CLASS && m->has[it->set][k];
                for (int w = 0; w < it->n_words; w++) may |= m->has[it->word[w][0]][k];
                if (may) m->starts[k] |= 1u << a;
            }
            open = it->kind == ITEM_NOT_AHEAD || it->kind == ITEM_LINE_END || it->min == 0;
        }
    }
}

Matcher *matcher_open(const char *pattern, size_t n, Mem *mem) {
    Matcher *m = MEM_NEW(mem, Matcher);
    Reader r = { .at = pattern, .end = pattern + n, .m = m, .mem = mem };
    bool ok = read_pattern(&r) && make_kinds(&r);
    for (int s = 0; s < m->n_sets; s++) vec_free(r.set[s].at);
    if (ok) prepare(m);
    return ok ? m : NULL;
}

/* ---- matching; the text is known to be well-formed UTF-8 */
typedef struct {
    const Matcher *m;
    const char *end;
    long steps; /* left before giving up */
} Run;

static inline int kind_at(const Matcher *m, const char *s, int *len) {
    const unsigned char *p = (const unsigned char *)s;
    if (p[0] < 0x80) return *len = 1, m->ascii[p[0]];
    uint32_t c;
    if (p[0] < 0xE0) *len = 2, c = (p[0] & 31u) << 6 | (p[1] & 63u);
    else if (p[0] < 0xF0) *len = 3, c = (p[0] & 15u) << 12 | (p[1] & 63u) << 6 | (p[2] & 63u);
    else *len = 4, c = (p[0] & 7u) << 18 | (p[1] & 63u) << 12 | (p[2] & 63u) << 6 | (p[3] & 63u);
    return m->kinds[m->page[c >> 8]][c & 255];
}

static const char *word_at(const Run *r, const int8_t *word, const char *at) {
    for (; *word >= 0; word++) {
        int len;
        if (at >= r->end || !r->m->has[*word][kind_at(r->m, at, &len)]) return NULL;
        at += len;
    }
    return at;
}

/* Where the items end when they begin at `at`, or NULL. */
static const char *items_at(Run *r, const Item *it, const Item *last, const char *at) {
    int len;
    for (; it < last; it++) {
        if (it->kind == ITEM_CLASS) {
            const bool *has = r->m->has[it->set];
            const char *from = at;
            int n = 0;
            while (n < it->max && at < r->end && has[kind_at(r->m, at, &len)]) at += len, n++;
            if (n < it->min) return NULL;
            if (it->keeps || n == it->min) continue;
            for (; n >= it->min; n--) {
                const char *e = items_at(r, it + 1, last, at);
                if (e || --r->steps < 0) return e;
                if (at > from) do
                        at--;
                    while ((*at & 0xC0) == 0x80);
            }
            return NULL;
        }
        if (it->kind == ITEM_WORDS) {
            for (int w = 0; w < it->n_words; w++) {
                const char *e = word_at(r, it->word[w], at);
                if (e && it + 1 == last) return e;
                if (e && (e = items_at(r, it + 1, last, e))) return e;
                if (--r->steps < 0) return NULL;
            }
            if (it->min) return NULL;
        } else if (it->kind == ITEM_NOT_AHEAD) {
            if (at < r->end && r->m->has[it->set][kind_at(r->m, at, &len)]) return NULL;
        } else if (at < r->end && *at != '\n') return NULL;
    }
    return at;
}

int matcher_find(const Matcher *m, const char *text, size_t n, size_t from, size_t *start, size_t *end) {
    Run r = { .m = m, .end = text + n, .steps = 10000000 + 64 * (long)n };
    for (const char *at = text + from; at < r.end;) {
        int len, kind = kind_at(m, at, &len);
        for (uint32_t todo = m->starts[kind]; todo; todo &= todo - 1) {
            const Alt *a = &m->alt[__builtin_ctz(todo)];
            const char *e = items_at(&r, a->item, a->item + a->n, at);
            if (r.steps < 0) return -1;
            if (!e) continue;
            *start = (size_t)(at - text);
            *end = (size_t)(e - text);
            return 1;
        }
        at += len;
        if (m->whole_runs && m->has[m->alt[0].item->set][kind])
            while (at < r.end && m->has[m->alt[0].item->set][kind_at(m, at, &len)]) at += len;
    }
    return 0;
}
