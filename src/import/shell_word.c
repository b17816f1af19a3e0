/* shell_word.c - a word becomes fields: quotes are taken off, $ is replaced, what was not quoted is split at blanks,
 * and a field that came to nothing without quotes is dropped. */
#include "import/shell_int.h"

#include <stdio.h>

struct Ex {
    Sh *sh;
    ExKind kind;
    bool split, open; /* open: the field that is being made will count, even if it is empty */
    bool nothing;     /* inside quotes that held only an empty "$@" so far */
    bool here;        /* a here-document, where a double quote is a character */
    Text field;
    Strs *out;
};

Sh *ex_shell(Ex *ex) { return ex->sh; }

void ex_break(Ex *ex) {
    if (ex->open) {
        if (ex->out->n >= SH_MAX_WORDS) sh_fail(ex->sh, ex->sh->line, "too many words");
        SH_PUSH(ex->sh, *ex->out, mem_str(ex->sh->mem, text_of(&ex->field), ex->field.n));
    }
    ex->field = (Text){ 0 };
    ex->open = false;
}

size_t ex_mark(const Ex *ex) { return ex->field.n; }

const char *ex_since(const Ex *ex, size_t mark) {
    return mem_str(ex->sh->mem, text_of(&ex->field) + (ex->field.n > mark ? mark : 0),
                   ex->field.n > mark ? ex->field.n - mark : 0);
}

void ex_nothing(Ex *ex) { ex->nothing = true; }

static void put_quoted(Ex *ex, const char *s, size_t n) {
    static const char *const special[] = { [EX_TEXT] = "", [EX_PATTERN] = "*?[]\\", [EX_REGEX] = ".[]{}()\\*+?^$|" };
    for (size_t i = 0; i < n; i++) {
        if (strchr(special[ex->kind], s[i]) && s[i]) sh_put(ex->sh, &ex->field, "\\", 1);
        sh_put(ex->sh, &ex->field, s + i, 1);
    }
    ex->open = true;
    ex->nothing &= !n;
}

/* IFS: blanks in it come in runs, any other byte ends a field alone. */
static void put_split(Ex *ex, const char *s, size_t n) {
    const char *ifs = sh_get(ex->sh, "IFS");
    if (!ifs) ifs = " \t\n";
    for (size_t i = 0; i < n; i++) {
        if (!s[i] || !strchr(ifs, s[i])) {
            sh_put(ex->sh, &ex->field, s + i, 1);
            ex->open = true;
            continue;
        }
        if (!strchr(" \t\n", s[i])) ex->open = true;
        ex_break(ex);
    }
}

void ex_put(Ex *ex, const char *s, size_t n, PutHow how) {
    if (how == PUT_QUOTED || (how == PUT_SPLIT && !ex->split && ex->kind == EX_TEXT)) put_quoted(ex, s, n);
    else if (how == PUT_SPLIT && ex->split) put_split(ex, s, n);
    else {
        sh_put(ex->sh, &ex->field, s, n);
        ex->open |= n > 0;
    }
}

/* $'...' */
static const char *ansi(Ex *ex, const char *s, const char *end) {
    static const char from[] = "abefnrtv\\'\"?", to[] = "\a\b\033\f\n\r\t\v\\'\"?";
    ex->open = true;
    for (; s < end && *s != '\''; s++) {
        const char *k = *s == '\\' && s + 1 < end ? memchr(from, s[1], sizeof from - 1) : NULL;
        if (k) ex_put(ex, &to[k - from], 1, PUT_QUOTED), s++;
        else ex_put(ex, s, 1, PUT_QUOTED);
    }
    return s < end ? s + 1 : end;
}

static void put_value(Ex *ex, const char *value, bool quoted) {
    ex_put(ex, value, strlen(value), quoted ? PUT_QUOTED : PUT_SPLIT);
}

static void put_sum(Ex *ex, const char *s, const char *end, int line, bool quoted) {
    int64_t x;
    char b[32];
    Raw r = { s, end, line };
    if (!sh_sum(ex->sh, sh_here(ex->sh, r, true), &x)) {
        put_value(ex, sh_unknown(ex->sh, mem_printf(ex->sh->mem, "$((%s))", sh_raw(ex->sh, r))), quoted);
        return;
    }
    snprintf(b, sizeof b, "%lld", (long long)x);
    put_value(ex, b, quoted);
}

/* `...`: a backslash before ` \ $ is taken off first. */
static void put_backquoted(Ex *ex, const char *s, const char *end, int line, bool quoted) {
    Text t = { 0 };
    for (; s < end; s++) {
        if (*s == '\\' && s + 1 < end && strchr(quoted ? "`\\$\"" : "`\\$", s[1])) s++;
        sh_put(ex->sh, &t, s, 1);
    }
    put_value(ex, sh_capture(ex->sh, text_of(&t), t.n, line), quoted);
}

/* At a "$": what it stands for is put; returns where the text goes on. */
static const char *dollar(Ex *ex, const char *s, const char *end, int line, bool quoted) {
    ShParse p = sh_parse(ex->sh, s, (size_t)(end - s), line);
    p.depth = ex->sh->depth;
    char c = s + 1 < end ? s[1] : 0;
    if (c == '\'' && !quoted) return ansi(ex, s + 2, end);
    if (c == '"' && !quoted) return s + 1;
    if (c == '[') { /* an old way to write $(( )) */
        const char *to = memchr(s, ']', (size_t)(end - s));
        if (to) return put_sum(ex, s + 2, to, line, quoted), to + 1;
    }
    if (c == '(' || c == '{') {
        sh_skip_part(&p, quoted);
        bool sum = c == '(' && s + 2 < end && s[2] == '(' && p.at - s > 5 && p.at[-2] == ')';
        if (c == '{') sh_param(ex, s + 2, p.at - 1, quoted);
        else if (sum) put_sum(ex, s + 3, p.at - 2, line, quoted);
        else put_value(ex, sh_capture(ex->sh, s + 2, (size_t)(p.at - 1 - (s + 2)), line), quoted);
        return p.at;
    }
    const char *to = s + 1;
    while (to < end && sh_is_name(s + 1, (size_t)(to + 1 - (s + 1)))) to++;
    if (to == s + 1 && c && strchr("@*#?-$!0123456789", c)) to++;
    if (to == s + 1) ex_put(ex, "$", 1, PUT_PLAIN);
    else sh_param(ex, s + 1, to, quoted);
    return to;
}

/* A double-quoted string: "$@" alone makes as many fields as there are, also none. */
static const char *double_quoted(Ex *ex, const char *s, const char *end, int line) {
    ShParse p = sh_parse(ex->sh, s, (size_t)(end - s), line);
    p.depth = ex->sh->depth;
    sh_skip_part(&p, false);
    bool open = ex->open, nothing = ex->nothing;
    ex->nothing = false;
    ex_walk(ex, s + 1, p.at - 1, line, true, false);
    if (!ex->nothing) ex->open = true;
    ex->open |= open;
    ex->nothing = nothing;
    return p.at;
}

void ex_walk(Ex *ex, const char *s, const char *end, int line, bool quoted, bool split) {
    PutHow plain = quoted ? PUT_QUOTED : split ? PUT_SPLIT : PUT_PLAIN;
    if (++ex->sh->depth > SH_MAX_DEPTH) sh_fail(ex->sh, line, "nested too deeply");
    while (s < end) {
        char c = *s, next = s + 1 < end ? s[1] : 0;
        if (c == '\\' && next == '\n') s += 2;
        else if (c == '\\' && (!quoted || (next && strchr(split ? "$`\"\\}" : "$`\"\\", next)))) { /* split: in ${ } */
            ex_put(ex, s + 1, s + 1 < end, PUT_QUOTED);
            s += s + 1 < end ? 2 : 1;
        } else if (c == '\'' && !quoted) {
            const char *to = memchr(s + 1, '\'', (size_t)(end - s - 1));
            if (!to) to = end;
            ex_put(ex, s + 1, (size_t)(to - s - 1), PUT_QUOTED);
            s = to < end ? to + 1 : end;
        } else if (c == '"' && !ex->here) s = double_quoted(ex, s, end, line);
        else if (c == '$') s = dollar(ex, s, end, line, quoted);
        else if (c == '`') {
            const char *to = s + 1;
            while (to < end && *to != '`') to += *to == '\\' && to + 1 < end ? 2 : 1;
            put_backquoted(ex, s + 1, to, line, quoted);
            s = to < end ? to + 1 : end;
        } else if ((c == '<' || c == '>') && next == '(' && !quoted) {
            put_value(ex, sh_unknown(ex->sh, mem_printf(ex->sh->mem, "%.*s", (int)(end - s), s)), false);
            s = end;
        } else ex_put(ex, s++, 1, plain);
    }
    ex->sh->depth--;
}

/* "~" and "~/": at the start of a word, and of each part of a value that is assigned. */
const char *ex_tilde(Ex *ex, const char *s, const char *end) {
    const char *home =
        s < end && *s == '~' && (s + 1 == end || s[1] == '/' || s[1] == ':') ? sh_get(ex->sh, "HOME") : NULL;
    if (!home) return s;
    ex_put(ex, home, strlen(home), PUT_QUOTED);
    return s + 1;
}

const char *sh_text(Sh *sh, Raw w, ExKind kind) {
    Strs none = { 0 };
    Ex ex = { .sh = sh, .kind = kind, .out = &none };
    sh->line = w.line;
    ex_walk(&ex, ex_tilde(&ex, w.at, w.end), w.end, w.line, false, false);
    for (size_t i = none.n; i-- > 0;) /* "$@" where one string is wanted: its parts with blanks between them */
        ex.field = (Text){ .at = mem_printf(sh->mem, "%s %s", none.at[i], text_of(&ex.field)),
                           .n = strlen(none.at[i]) + 1 + ex.field.n };
    return text_of(&ex.field);
}

const char *sh_here(Sh *sh, Raw w, bool quotes) {
    Strs none = { 0 };
    Ex ex = { .sh = sh, .out = &none, .here = !quotes };
    ex_walk(&ex, w.at, w.end, w.line, true, false);
    return text_of(&ex.field);
}

void sh_words(Sh *sh, Strs *out, const Raw *words, size_t n, Ints *lines) {
    for (size_t i = 0; i < n; i++) {
        Raws parts = { 0 };
        sh->line = words[i].line;
        sh_braces(sh, &parts, words[i]);
        for (size_t k = 0; k < parts.n; k++) {
            Ex ex = { .sh = sh, .split = true, .out = out };
            Raw w = parts.at[k];
            bool append;
            size_t name = sh_assign_ends(w, &append); /* "key=~/x" is not one when the key has a dot */
            const char *s = name && !append ? w.at + name : w.at;
            ex_put(&ex, w.at, (size_t)(s - w.at), PUT_PLAIN);
            ex_walk(&ex, ex_tilde(&ex, s, w.end), w.end, w.line, false, false);
            ex_break(&ex);
        }
        while (lines && lines->n < out->n) SH_PUSH(sh, *lines, words[i].line);
    }
}
