/* shell_test.c - [ ... ] and [[ ... ]]: one grammar over words, with an answer that may be "not known".
 *
 * [[ ]] reads its words unexpanded: operators are operators only where they are not quoted, the right side of == is a
 * pattern, and what a false && leaves out is not looked at. */
#include "import/shell_int.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

typedef enum { NO, YES, UNKNOWN = -1 } Truth;
typedef struct {
    Sh *sh;
    const Raw *raw;          /* [[ ]] */
    const char *const *word; /* [ ] */
    size_t n, at;
    bool idle; /* the answer does not hang on what is read now */
    bool wrong;
} Cond;

static bool is(const Cond *c, size_t ahead, const char *op) {
    size_t i = c->at + ahead;
    return i < c->n && (c->raw ? raw_is(c->raw[i], op) : !strcmp(c->word[i], op));
}

static bool take(Cond *c, const char *op) {
    if (!is(c, 0, op)) return false;
    c->at++;
    return true;
}

static const char *operand(Cond *c, ExKind kind) {
    if (c->at >= c->n) return c->wrong = true, "";
    size_t i = c->at++;
    if (!c->raw) return c->word[i];
    return c->idle ? "" : sh_text(c->sh, c->raw[i], kind);
}

static Truth any(Cond *c);

static Truth file_test(Sh *sh, char op, const char *path) {
    if (sh_is_unknown(path)) return UNKNOWN;
    struct stat st;
    const char *whole = sh_path(sh, path);
    if (!sh->in->look || !*path || (op == 'L' || op == 'h' ? lstat(whole, &st) : stat(whole, &st))) return NO;
    switch (op) {
    case 'f': return S_ISREG(st.st_mode) ? YES : NO;
    case 'd': return S_ISDIR(st.st_mode) ? YES : NO;
    case 's': return st.st_size > 0 ? YES : NO;
    case 'L':
    case 'h': return S_ISLNK(st.st_mode) ? YES : NO;
    case 'p': return S_ISFIFO(st.st_mode) ? YES : NO;
    case 'r': return access(whole, R_OK) ? NO : YES;
    case 'w': return access(whole, W_OK) ? NO : YES;
    case 'x': return access(whole, X_OK) ? NO : YES;
    default: return YES;
    }
}

static Truth one_of(Cond *c, char op) {
    const char *x = operand(c, EX_TEXT);
    if (op == 'z' || op == 'n') return sh_is_unknown(x) ? UNKNOWN : (*x == 0) == (op == 'z') ? YES : NO;
    if (op == 'v') {
        const ShVar *v = sh_find(c->sh, x);
        return v && v->n ? YES : NO;
    }
    if (op == 't') return NO;
    return c->idle ? NO : file_test(c->sh, op, x);
}

static Truth matches(Sh *sh, const char *text, const char *pattern) {
    if (sh_is_unknown(text) || sh_is_unknown(pattern)) return UNKNOWN;
    int code, n = -1;
    PCRE2_SIZE where;
    pcre2_compile_context *how = pcre2_compile_context_create(NULL);
    pcre2_set_max_pattern_length(how, 1000);
    pcre2_code *re = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED, 0, &code, &where, how);
    pcre2_compile_context_free(how);
    if (!re) return UNKNOWN;
    pcre2_match_context *limits = pcre2_match_context_create(NULL);
    pcre2_set_match_limit(limits, 100000);
    pcre2_match_data *data = pcre2_match_data_create_from_pattern(re, NULL);
    n = pcre2_match(re, (PCRE2_SPTR)text, strlen(text), 0, 0, data, limits);
    Strs groups = { 0 };
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(data);
    const char *found[10];
    int count = n < 10 ? n : 10;
    for (int i = 0; i < count; i++)
        found[i] = at[2 * i] == PCRE2_UNSET ? "" : mem_str(sh->mem, text + at[2 * i], at[2 * i + 1] - at[2 * i]);
    pcre2_match_data_free(data);
    pcre2_match_context_free(limits);
    pcre2_code_free(re);
    sh_spend(sh, 1000);
    for (int i = 0; i < count; i++) SH_PUSH(sh, groups, found[i]);
    sh_set_list(sh, "BASH_REMATCH", &groups);
    return n > 0 ? YES : n == PCRE2_ERROR_NOMATCH ? NO : UNKNOWN;
}

typedef enum { SAME, OTHER, LESS, MORE, MATCH, EQ, NE, LT, LE, GT, GE, NEWER } Two;
static const struct {
    const char *text;
    Two op;
} TWO[] = {
    { "=", SAME },   { "==", SAME }, { "!=", OTHER },  { "<", LESS },    { ">", MORE },
    { "=~", MATCH }, { "-eq", EQ },  { "-ne", NE },    { "-lt", LT },    { "-le", LE },
    { "-gt", GT },   { "-ge", GE },  { "-nt", NEWER }, { "-ot", NEWER }, { "-ef", NEWER },
};

static Truth two_of(Cond *c, Two op) {
    const char *a = operand(c, EX_TEXT);
    c->at++;
    bool pattern = c->raw && (op == SAME || op == OTHER);
    const char *b = operand(c, pattern ? EX_PATTERN : op == MATCH ? EX_REGEX : EX_TEXT);
    if (c->idle) return NO;
    if (op == MATCH) return matches(c->sh, a, b);
    if (sh_is_unknown(a) || sh_is_unknown(b) || op == NEWER) return UNKNOWN;
    if (op == SAME || op == OTHER)
        return (pattern ? sh_match(c->sh, b, a, strlen(a)) : !strcmp(a, b)) == (op == SAME) ? YES : NO;
    if (op == LESS || op == MORE) return (op == LESS ? strcmp(a, b) < 0 : strcmp(a, b) > 0) ? YES : NO;
    int64_t x, y;
    char *end_a, *end_b;
    x = strtoll(a, &end_a, 10), y = strtoll(b, &end_b, 10);
    if (c->raw && (!sh_sum(c->sh, a, &x) || !sh_sum(c->sh, b, &y))) return UNKNOWN;
    if (!c->raw && (!*a || !*b || *end_a || *end_b)) {
        sh_note(c->sh, SHELL_ASSUMED, c->sh->line, "[ %s %s %s ] compares what is no whole number: it counts as failed",
                a, TWO[op + 1].text, b);
        return NO;
    }
    bool yes[] = { [EQ] = x == y, [NE] = x != y, [LT] = x<y, [LE] = x <= y, [GT] = x> y, [GE] = x >= y };
    return yes[op] ? YES : NO;
}

static Truth primary(Cond *c) {
    if (take(c, "!")) {
        Truth t = primary(c);
        return t == UNKNOWN ? t : t == YES ? NO : YES;
    }
    for (size_t i = 0; i < COUNT(TWO) && c->at + 2 < c->n; i++)
        if (is(c, 1, TWO[i].text)) return two_of(c, TWO[i].op);
    if (is(c, 0, "(") && c->at + 1 < c->n) {
        c->at++;
        Truth t = any(c);
        c->wrong |= !take(c, ")");
        return t;
    }
    for (const char *op = "efdrwxsLhpzntv"; *op && c->at + 1 < c->n; op++)
        if (is(c, 0, (char[]){ '-', *op, 0 })) return c->at++, one_of(c, *op);
    const char *x = operand(c, EX_TEXT);
    return sh_is_unknown(x) ? UNKNOWN : *x ? YES : NO;
}

static Truth both(Cond *c) {
    Truth t = primary(c);
    while (take(c, c->raw ? "&&" : "-a")) {
        bool idle = c->idle;
        c->idle |= t == NO;
        Truth u = primary(c);
        c->idle = idle;
        t = t == NO || u == NO ? NO : t == UNKNOWN ? t : u;
    }
    return t;
}

static Truth any(Cond *c) {
    if (++c->sh->depth > SH_MAX_DEPTH) sh_fail(c->sh, c->sh->line, "nested too deeply");
    Truth t = both(c);
    while (take(c, c->raw ? "||" : "-o")) {
        bool idle = c->idle;
        c->idle |= t == YES;
        Truth u = both(c);
        c->idle = idle;
        t = t == YES || u == YES ? YES : t == UNKNOWN ? t : u;
    }
    c->sh->depth--;
    return t;
}

static int whole(Cond *c) {
    Truth t = c->n ? any(c) : NO;
    if (!c->wrong && c->at >= c->n) return t == UNKNOWN ? -1 : t == NO;
    if (c->raw) sh_fail(c->sh, c->sh->line, "this condition is not understood");
    sh_note(c->sh, SHELL_ASSUMED, c->sh->line,
            "a condition in [ ] does not hold together (an empty variable without quotes?): bash counts it as failed");
    return 2;
}

int sh_test(Sh *sh, Strs *words) { return whole(&(Cond){ .sh = sh, .word = words->at, .n = words->n }); }

int sh_cond(Sh *sh, const Raws *words) {
    if (words->n) sh->line = words->at[0].line;
    return whole(&(Cond){ .sh = sh, .raw = words->at, .n = words->n });
}
