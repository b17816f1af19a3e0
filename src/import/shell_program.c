/* shell_program.c - harmless programs that scripts use inside $( ), evaluated here: echo, printf, cat, basename,
 * dirname, realpath, date, nproc, seq. */
#include "import/shell_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

void sh_say(Sh *sh, const char *s, size_t n) {
    if (sh->stdout_) sh_put(sh, sh->stdout_, s, n);
    else if (n > 1) sh->said = mem_str(sh->mem, s, n - (s[n - 1] == '\n'));
}

/* A line of an answer; unknown where one of the words is. */
int sh_answer(Sh *sh, const Strs *w, const char *text) {
    Text t = { 0 };
    for (size_t i = 1; i < w->n; i++)
        if (sh_is_unknown(w->at[i])) text = w->at[i];
    sh_puts(sh, &t, text);
    sh_put(sh, &t, "\n", 1);
    sh_say(sh, t.at, t.n);
    return 0;
}

int sh_not_known(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    if (sh->stdout_ && !sh->asking) sh_puts(sh, sh->stdout_, sh_unknown(sh, w->at[0]));
    return -1;
}

/* ---- text */
/* \n and its like; returns behind it. */
static const char *escaped(Sh *sh, Text *t, const char *s) {
    static const char from[] = "abefnrtv\\\"'", to[] = "\a\b\033\f\n\r\t\v\\\"'";
    const char *k = s[1] ? strchr(from, s[1]) : NULL;
    sh_put(sh, t, k ? &to[k - from] : s, 1);
    return s + (k ? 2 : 1);
}

static int echo(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    size_t i = 1;
    bool newline = true, escapes = false;
    for (; i < w->n && w->at[i][0] == '-' && w->at[i][1] && strspn(w->at[i] + 1, "neE") == strlen(w->at[i] + 1); i++) {
        newline &= !strchr(w->at[i], 'n');
        if (strpbrk(w->at[i], "eE")) escapes = strchr(w->at[i], 'e') != NULL;
    }
    Text t = { 0 };
    for (bool first = true; i < w->n; i++, first = false) {
        if (!first) sh_put(sh, &t, " ", 1);
        for (const char *s = w->at[i]; *s;)
            if (escapes && *s == '\\') s = escaped(sh, &t, s);
            else sh_put(sh, &t, s++, 1);
    }
    if (newline) sh_put(sh, &t, "\n", 1);
    sh_say(sh, text_of(&t), t.n);
    return 0;
}

/* One %... of printf with its argument; returns behind it. */
static const char *conversion(Sh *sh, Text *t, const char *s, const char *arg) {
    char spec[24], b[400];
    size_t n = 1 + strspn(s + 1, "-+ #0"), digits;
    n += digits = strspn(s + n, "0123456789");
    if (s[n] == '.') n += 1 + strspn(s + n + 1, "0123456789");
    char c = s[n];
    if (!c || n > 12 || digits > 3) sh_fail(sh, sh->line, "printf %.20s is not read", s);
    memcpy(spec, s, n);
    if (c == 's' || c == 'b') {
        Text field = { 0 };
        for (const char *a = arg; *a;)
            if (c == 'b' && *a == '\\') a = escaped(sh, &field, a);
            else sh_put(sh, &field, a++, 1);
        memcpy(spec + n, "s", 2);
        sh_puts(sh, t, n > 1 ? mem_printf(sh->mem, (const char *)spec, text_of(&field)) : text_of(&field));
        return s + n + 1;
    }
    if (c == 'd' || c == 'i' || c == 'x' || c == 'X' || c == 'u' || c == 'o')
        snprintf(spec + n, sizeof spec - n, "ll%c", c), snprintf(b, sizeof b, spec, strtoll(arg, NULL, 0));
    else if (strchr("feEgG", c))
        snprintf(spec + n, sizeof spec - n, "%c", c), snprintf(b, sizeof b, spec, strtod(arg, NULL));
    else sh_fail(sh, sh->line, "printf %%%c is not read", c);
    sh_puts(sh, t, sh_is_unknown(arg) ? arg : b);
    return s + n + 1;
}

static int print_formatted(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    const char *into = NULL;
    size_t i = 1;
    if (i + 1 < w->n && !strcmp(w->at[i], "-v")) into = w->at[2], i = 3;
    if (i < w->n && !strcmp(w->at[i], "--")) i++;
    if (i >= w->n) return 1;
    const char *format = w->at[i++];
    Text t = { 0 };
    for (bool more = true; more;) {
        size_t before = i;
        for (const char *s = format; *s;) {
            if (*s == '\\') s = escaped(sh, &t, s);
            else if (*s == '%' && s[1] == '%') sh_put(sh, &t, "%", 1), s += 2;
            else if (*s == '%') {
                s = conversion(sh, &t, s, i < w->n ? w->at[i] : "");
                i += i < w->n;
            } else sh_put(sh, &t, s++, 1);
        }
        more = i < w->n && i > before;
    }
    if (into) sh_set(sh, into, text_of(&t));
    else sh_say(sh, text_of(&t), t.n);
    return 0;
}

/* What comes on standard input, where that is known. */
static int cat(Sh *sh, Strs *w, const ShNode *n) {
    if (w->n > 1 || !sh->stdin_) return sh_not_known(sh, w, n);
    sh_say(sh, sh->stdin_, strlen(sh->stdin_));
    return 0;
}

/* ---- paths, time, numbers */
static void without_dashes(Strs *w) { /* "--" says that no options follow */
    if (w->n > 1 && !strcmp(w->at[1], "--")) w->at++, w->n--;
}

static int basename_of(Sh *sh, Strs *w, const ShNode *n) {
    without_dashes(w);
    if (w->n < 2 || w->n > 3) return sh_not_known(sh, w, n);
    const char *s = w->at[1], *end = s + strlen(s);
    while (end > s + 1 && end[-1] == '/') end--;
    const char *from = end;
    while (from > s && from[-1] != '/') from--;
    if (from == end && end > s) from--; /* "/" */
    size_t cut = w->n > 2 ? strlen(w->at[2]) : 0, len = (size_t)(end - from);
    if (cut && cut < len && !memcmp(end - cut, w->at[2], cut)) len -= cut;
    return sh_answer(sh, w, mem_str(sh->mem, from, len));
}

static int dirname_of(Sh *sh, Strs *w, const ShNode *n) {
    without_dashes(w);
    if (w->n != 2) return sh_not_known(sh, w, n);
    const char *s = w->at[1], *end = s + strlen(s);
    while (end > s + 1 && end[-1] == '/') end--;
    while (end > s && end[-1] != '/') end--;
    while (end > s + 1 && end[-1] == '/') end--;
    return sh_answer(sh, w, end == s ? "." : mem_str(sh->mem, s, (size_t)(end - s)));
}

static int real_path(Sh *sh, Strs *w, const ShNode *n) {
    if (w->n < 2 || w->at[w->n - 1][0] == '-') return sh_not_known(sh, w, n);
    const char *path = sh_path(sh, w->at[w->n - 1]);
    char whole[4096];
    return sh_answer(sh, w,
                     sh->in->look && strlen(path) < sizeof whole && realpath(path, whole)
                         ? mem_str(sh->mem, whole, strlen(whole))
                         : path);
}

/* date [-u] [+FORMAT] */
static int date(Sh *sh, Strs *w, const ShNode *n) {
    const char *format = "%a %b %e %H:%M:%S %Z %Y";
    bool utc = false;
    for (size_t i = 1; i < w->n; i++) {
        if (w->at[i][0] == '+') format = w->at[i] + 1;
        else if (!strcmp(w->at[i], "-u")) utc = true;
        else return sh_not_known(sh, w, n);
    }
    time_t now = (time_t)sh->in->now;
    struct tm tm;
    char b[512] = "";
    if (utc) gmtime_r(&now, &tm);
    else localtime_r(&now, &tm);
    if (strlen(format) < 200 && *format) strftime(b, sizeof b, format, &tm);
    return sh_answer(sh, w, b);
}

static int cores(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    return sh_answer(sh, w, mem_printf(sh->mem, "%d", sh->in->cores));
}

static int seq(Sh *sh, Strs *w, const ShNode *n) {
    int64_t x[3] = { 1, 1, 1 };
    if (w->n < 2 || w->n > 4) return sh_not_known(sh, w, n);
    for (size_t i = 1; i < w->n; i++)
        if (!sh_sum(sh, w->at[i], &x[i - 1])) return sh_not_known(sh, w, n);
    int64_t from = w->n > 2 ? x[0] : 1, by = w->n > 3 ? x[1] : 1, to = x[w->n - 2], count = 0;
    Text t = { 0 };
    for (int64_t i = from; by && (by > 0 ? i <= to : i >= to) && count < 10000 && i < INT32_MAX && i > INT32_MIN;
         i += by, count++)
        sh_puts(sh, &t, mem_printf(sh->mem, "%lld\n", (long long)i));
    sh_say(sh, text_of(&t), t.n);
    return 0;
}

/* clang-format off */
static const struct { const char *name; ShBuiltin *fn; } PROGRAMS[] = {
    { "echo", echo },           { "printf", print_formatted }, { "cat", cat },            { "basename", basename_of },
    { "dirname", dirname_of },  { "realpath", real_path },     { "readlink", real_path }, { "date", date },
    { "nproc", cores },         { "seq", seq },
};
/* clang-format on */

ShBuiltin *sh_program(const char *name) {
    for (size_t i = 0; i < COUNT(PROGRAMS); i++)
        if (!strcmp(PROGRAMS[i].name, name)) return PROGRAMS[i].fn;
    return NULL;
}
