/* shell_var.c - the state of a shell: variables, values that are not known, notes, and the limits of what it may
 * spend. */
#include "import/shell_int.h"

#include <stdarg.h>
#include <stdio.h>

static const char *formatted(Sh *sh, const char *fmt, va_list ap) {
    char b[400];
    vsnprintf(b, sizeof b, fmt, ap);
    return mem_str(sh->mem, b, strlen(b));
}

void sh_fail(Sh *sh, int line, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    err_set(sh->err, "%s:%d: %s", sh->in->path, line, formatted(sh, fmt, ap));
    va_end(ap);
    longjmp(sh->escape->at, JUMP_FAIL);
}

void sh_note(Sh *sh, ShellNoteKind kind, int line, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    const char *text = formatted(sh, fmt, ap);
    va_end(ap);
    for (const char *s; (s = strchr(text, SH_MARK));) { /* notes are read by people */
        int at;
        const char *what = sh_unknown_what(sh, s, &at), *end = strchr(s, SH_MARK_END);
        text = mem_printf(sh->mem, "%.*s%s%s", (int)(s - text), text, what, end ? end + 1 : "");
    }
    for (size_t i = 0; i < sh->out->notes.n; i++)
        if (sh->out->notes.at[i].kind == kind && !strcmp(sh->out->notes.at[i].text, text)) return;
    if (sh->out->notes.n < 500) VEC_PUSH(sh->out->notes, (ShellNote){ kind, line, text });
}

void sh_stop(Sh *sh, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    sh_note(sh, SHELL_STOPPED, sh->line, "%s", formatted(sh, fmt, ap));
    va_end(ap);
    sh->status = 1;
    longjmp(sh->escape->at, JUMP_EXIT);
}

void sh_spend(Sh *sh, int64_t work) {
    sh->work += work;
    if (sh->work > SH_MAX_WORK || sh->mem->total > SH_MAX_MEM)
        sh_fail(sh, sh->line, "this takes too long, or too much memory, to evaluate");
}

/* ---- what grows */
void sh_grow(Sh *sh, void *at, size_t *cap, size_t n, size_t each) {
    if (n <= *cap) return;
    if (n > SH_MAX_VALUE) sh_fail(sh, sh->line, "this makes a value that is too long");
    size_t want = n < 8 ? 8 : 2 * n;
    void *old, *grown = mem_array(sh->mem, want, each);
    memcpy(&old, at, sizeof old);
    if (*cap) memcpy(grown, old, *cap * each);
    memcpy(at, &grown, sizeof grown);
    *cap = want;
    sh_spend(sh, (int64_t)n);
}

void sh_put(Sh *sh, Text *t, const char *s, size_t n) {
    sh_grow(sh, &t->at, &t->cap, t->n + n + 1, 1);
    memcpy(t->at + t->n, s, n);
    t->n += n;
    t->at[t->n] = 0;
}

const char *sh_raw(Sh *sh, Raw r) { return mem_str(sh->mem, r.at, (size_t)(r.end - r.at)); }

/* ---- unknown values */
const char *sh_unknown(Sh *sh, const char *what) {
    sh_grow(sh, &sh->unknowns.at, &sh->unknowns.cap, sh->unknowns.n + 1, sizeof *sh->unknowns.at);
    sh->unknowns.at[sh->unknowns.n].what = what;
    sh->unknowns.at[sh->unknowns.n].line = sh->line;
    return mem_printf(sh->mem, "%c%zu%c", SH_MARK, sh->unknowns.n++, SH_MARK_END);
}

const char *sh_unknown_what(const Sh *sh, const char *s, int *line) {
    size_t i = 0;
    s = strchr(s, SH_MARK);
    for (s += s != NULL; s && *s >= '0' && *s <= '9' && i < SH_MAX_VALUE; s++) i = 10 * i + (size_t)(*s - '0');
    if (!s || i >= sh->unknowns.n) return *line = sh->line, "something unknown"; /* a mark that was cut */
    *line = sh->unknowns.at[i].line;
    return sh->unknowns.at[i].what;
}

/* ---- variables */
bool sh_is_name(const char *s, size_t n) {
    if (!n || (*s >= '0' && *s <= '9')) return false;
    for (size_t i = 0; i < n; i++)
        if (s[i] != '_' && !(s[i] >= '0' && s[i] <= '9') && !((s[i] | 32) >= 'a' && (s[i] | 32) <= 'z')) return false;
    return true;
}

ShVar *sh_find(Sh *sh, const char *name) {
    sh_spend(sh, 1 + (int64_t)sh->vars.n / 16);
    for (size_t i = 0; i < sh->vars.n; i++)
        if (!strcmp(sh->vars.at[i].name, name)) return &sh->vars.at[i];
    return NULL;
}

const char *sh_get(Sh *sh, const char *name) {
    const ShVar *v = sh_find(sh, name);
    for (size_t i = 0; v && i < v->n; i++)
        if (v->keyed ? !strcmp(v->at[i].key, "0") : !v->at[i].index) return v->at[i].value;
    return NULL;
}

ShVar *sh_var(Sh *sh, const char *name) {
    ShVar *v = sh_find(sh, name);
    if (v) return v;
    SH_PUSH(sh, sh->vars, (ShVar){ .name = name });
    return &sh->vars.at[sh->vars.n - 1];
}

/* Elements by rising index; keyed ones in the order they came. */
void sh_set_at(Sh *sh, ShVar *v, const char *key, const char *value, bool append) {
    ShElem e = { .key = key, .value = value };
    if (key && !v->keyed) {
        if (!sh_sum(sh, key, &e.index)) e.index = 0;
        if (e.index < 0 && v->n) e.index += v->at[v->n - 1].index + 1;
    }
    if (!key && v->keyed) e.key = "0";
    size_t at = 0;
    while (at < v->n && (v->keyed ? strcmp(v->at[at].key, e.key) : v->at[at].index < e.index)) at++;
    bool there = at < v->n && (v->keyed || v->at[at].index == e.index);
    if (append && there) e.value = mem_printf(sh->mem, "%s%s", v->at[at].value, value);
    if (strlen(e.value) > SH_MAX_VALUE) sh_fail(sh, sh->line, "%s becomes too long", v->name);
    ShElem *all = MEM_ARRAY(sh->mem, ShElem, v->n + 1);
    if (v->n) memcpy(all, v->at, at * sizeof *all);
    if (v->n > at + there) memcpy(all + at + 1, v->at + at + there, (v->n - at - there) * sizeof *all);
    all[at] = e;
    sh_spend(sh, (int64_t)v->n);
    v->at = all;
    v->n += !there;
    v->list |= key != NULL;
}

void sh_set(Sh *sh, const char *name, const char *value) { sh_set_at(sh, sh_var(sh, name), NULL, value, false); }

void sh_set_list(Sh *sh, const char *name, const Strs *values) {
    ShVar *v = sh_var(sh, name);
    v->list = true, v->keyed = false, v->n = values->n;
    v->at = MEM_ARRAY(sh->mem, ShElem, values->n);
    for (size_t i = 0; i < values->n; i++) v->at[i] = (ShElem){ .index = (int64_t)i, .value = values->at[i] };
}

void sh_unset(Sh *sh, const char *name) {
    ShVar *v = sh_find(sh, name);
    if (v) *v = sh->vars.at[--sh->vars.n];
}

void sh_unset_at(Sh *sh, ShVar *v, const char *key) {
    int64_t index = 0;
    if (!v->keyed && !sh_sum(sh, key, &index)) return;
    ShElem *left = MEM_ARRAY(sh->mem, ShElem, v->n);
    size_t n = 0;
    for (size_t i = 0; i < v->n; i++)
        if (v->keyed ? strcmp(v->at[i].key, key) : v->at[i].index != index) left[n++] = v->at[i];
    v->at = left, v->n = n;
}

void sh_local(Sh *sh, const char *name) {
    for (size_t i = sh->locals; i < sh->saved.n; i++)
        if (!strcmp(sh->saved.at[i].name, name)) return;
    ShVar *v = sh_find(sh, name);
    SH_PUSH(sh, sh->saved, (ShSaved){ name, v != NULL, v ? *v : (ShVar){ 0 } });
    sh_unset(sh, name);
}

static void assign_list(Sh *sh, ShVar *v, const ShAssign *a) {
    const char *name = v->name;
    if (!a->append) v->at = NULL, v->n = 0;
    v->list = true;
    for (size_t i = 0; i < a->items.n; i++) {
        Raw w = a->items.at[i];
        const char *close = *w.at == '[' ? memchr(w.at, ']', (size_t)(w.end - w.at)) : NULL;
        if (close && close + 1 < w.end && close[1] == '=') {
            const char *key = sh_text(sh, (Raw){ w.at + 1, close, w.line }, EX_TEXT);
            const char *value = sh_text(sh, (Raw){ close + 2, w.end, w.line }, EX_TEXT);
            sh_set_at(sh, sh_var(sh, name), key, value, false);
            continue;
        }
        Strs words = { 0 };
        sh_words(sh, &words, &w, 1, NULL);
        for (size_t k = 0; k < words.n; k++) {
            v = sh_var(sh, name);
            const char *next = mem_printf(sh->mem, "%lld", v->n ? (long long)v->at[v->n - 1].index + 1 : 0);
            sh_set_at(sh, v, next, words.at[k], false);
        }
    }
}

void sh_uses(Sh *sh, const char *name, const char *how, bool read) {
    ShUses *u = sh->uses;
    sh_spend(sh, 1 + (int64_t)u->n / 16);
    for (size_t i = 0; i < u->n; i++)
        if (!strcmp(u->at[i].name, name)) {
            u->at[i].read |= read;
            return;
        }
    if (!how) return;
    sh_grow(sh, &u->at, &u->cap, u->n + 1, sizeof *u->at);
    u->at[u->n].name = name, u->at[u->n].how = how, u->at[u->n].line = sh->line, u->at[u->n++].read = read;
}

/* A value that only a program could tell does not take the place of one that the user gave. */
void sh_assign(Sh *sh, const ShAssign *a, bool local) {
    const char *open = memchr(a->name.at, '[', (size_t)(a->name.end - a->name.at)), *key = NULL;
    const char *name = sh_raw(sh, (Raw){ a->name.at, open ? open : a->name.end, a->name.line });
    sh_uses(sh, name, a->list ? "(...)" : sh_raw(sh, a->value), a->late);
    if (a->list) {
        if (local) sh_local(sh, name);
        assign_list(sh, sh_var(sh, name), a);
        return;
    }
    const char *value = sh_text(sh, a->value, EX_TEXT);
    if (open) key = sh_text(sh, (Raw){ open + 1, a->name.end - 1, a->name.line }, EX_TEXT);
    if (local) sh_local(sh, name); /* behind the value, which may read the outer one */
    ShVar *v = sh_var(sh, name);
    if (v->given && sh_is_unknown(value) && !key) {
        sh_note(sh, SHELL_ASSUMED, a->name.line, "%s stays as given, instead of %s", name, value);
        return;
    }
    sh_set_at(sh, v, key, value, a->append);
}

const char *sh_path(Sh *sh, const char *path) {
    Text t = { 0 };
    if (*path != '/') sh_puts(sh, &t, sh->cwd);
    for (const char *s = path; *s;) {
        while (*s == '/') s++;
        size_t n = strcspn(s, "/");
        if (n == 2 && !memcmp(s, "..", 2)) {
            while (t.n && t.at[--t.n] != '/') {}
        } else if (n && !(n == 1 && *s == '.')) {
            if (!t.n || t.at[t.n - 1] != '/') sh_put(sh, &t, "/", 1);
            sh_put(sh, &t, s, n);
        }
        s += n;
    }
    if (!t.n) sh_put(sh, &t, "/", 1);
    t.at[t.n] = 0;
    return t.at;
}
