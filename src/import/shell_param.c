/* shell_param.c - $NAME and ${...}: what a parameter holds, and the operators that change it on the way. */
#include "import/shell_int.h"

#include <ctype.h>

typedef struct {
    Strs v;
    bool set, many, star;
    const ShVar *list;
} Values; /* many: of @ or *, any number */

/* What bash itself sets, and only a running one knows. */
static bool is_dynamic(const char *name) {
    static const char *const names[] = {
        "RANDOM",  "SRANDOM",       "SECONDS", "HOSTNAME",      "UID",  "EUID",  "PPID",
        "BASHPID", "HOSTTYPE",      "OSTYPE",  "MACHTYPE",      "PATH", "SHELL", "EPOCHSECONDS",
        "BASH",    "BASH_VERSION",  "SHLVL",   "EPOCHREALTIME", "$",    "!",     "FUNCNAME",
        "_",       "BASH_VERSINFO", "-"
    };
    for (size_t i = 0; i < COUNT(names); i++)
        if (!strcmp(names[i], name)) return true;
    return false;
}

static const char *number(Sh *sh, long long x) { return mem_printf(sh->mem, "%lld", x); }

static void one(Sh *sh, Values *out, const char *value) {
    if (value) SH_PUSH(sh, out->v, value);
    out->set = value != NULL;
}

static void all(Sh *sh, Values *out, const ShVar *v, bool star, bool keys) {
    out->many = true, out->star = star, out->set = v && v->n, out->list = v;
    for (size_t i = 0; v && i < v->n; i++)
        SH_PUSH(sh, out->v, !keys ? v->at[i].value : v->keyed ? v->at[i].key : number(sh, v->at[i].index));
}

static const char *element(Sh *sh, const ShVar *v, const char *key) {
    int64_t index = 0;
    if (!v) return NULL;
    if (!v->keyed && !sh_sum(sh, key, &index)) return sh_unknown(sh, mem_printf(sh->mem, "${%s[...]}", v->name));
    if (index < 0 && v->n) index += v->at[v->n - 1].index + 1;
    for (size_t i = 0; i < v->n; i++)
        if (v->keyed ? !strcmp(v->at[i].key, key) : v->at[i].index == index) return v->at[i].value;
    return NULL;
}

/* sub: what stands in [ ], or NULL. */
static void fetch(Sh *sh, Values *out, const char *name, const char *sub, bool keys) {
    char c = *name;
    bool list = sub && (!strcmp(sub, "@") || !strcmp(sub, "*"));
    sh_uses(sh, name, NULL, true);
    if (c == '@' || c == '*') {
        out->many = true, out->star = c == '*', out->v = sh->params, out->set = sh->params.n > 0;
        out->v.cap = out->v.n; /* a push makes a copy */
    } else if (c == '#') one(sh, out, number(sh, (long long)sh->params.n));
    else if (c == '?') one(sh, out, sh->status < 0 ? sh_unknown(sh, "$?") : number(sh, sh->status));
    else if (isdigit((unsigned char)c)) {
        size_t i = 0;
        for (const char *s = name; *s && i < SH_MAX_VALUE; s++) i = 10 * i + (size_t)(*s - '0');
        one(sh, out, !i ? sh->in->path : i <= sh->params.n ? sh->params.at[i - 1] : NULL);
    } else if (!strcmp(name, "LINENO")) one(sh, out, number(sh, sh->line));
    else if (list) all(sh, out, sh_find(sh, name), *sub == '*', keys);
    else one(sh, out, sub ? element(sh, sh_find(sh, name), sub) : sh_get(sh, name));
    if (!out->set && is_dynamic(name)) one(sh, out, sh_unknown(sh, mem_printf(sh->mem, "$%s", name)));
}

static void not_set(Sh *sh, const char *name) {
    sh_note(sh, SHELL_UNSET, sh->line, "%s", name);
    if (sh->nounset) sh_stop(sh, "%s is not set, and `set -u` ends the script; give %s=VALUE", name, name);
}

/* ---- operators on one value */
static const char *strip(Sh *sh, const char *value, const char *pattern, bool front, bool longest) {
    size_t n = strlen(value);
    for (size_t i = 0; i <= n; i++) {
        size_t cut = longest ? n - i : i; /* how much goes */
        if (front ? sh_match(sh, pattern, value, cut) : sh_match(sh, pattern, value + n - cut, cut))
            return front ? value + cut : mem_str(sh->mem, value, n - cut);
    }
    return value;
}

/* The longest match that begins at s; false: none. */
static bool match_at(Sh *sh, const char *pattern, const char *s, size_t n, size_t *len) {
    for (size_t k = n + 1; k-- > 0;)
        if (sh_match(sh, pattern, s, k)) return *len = k, true;
    return false;
}

static const char *replace(Sh *sh, const char *value, const char *pattern, const char *with, char how) {
    size_t n = strlen(value), len;
    Text t = { 0 };
    for (size_t i = 0; i <= n;) {
        bool here =
            how == '%' ? sh_match(sh, pattern, value + i, len = n - i) : match_at(sh, pattern, value + i, n - i, &len);
        if (here && (len || how == '#' || how == '%')) {
            sh_puts(sh, &t, with);
            i += len;
            if (how != '/') {
                sh_puts(sh, &t, value + i);
                return text_of(&t);
            }
        } else {
            if (how == '#') return value;
            if (i < n) sh_put(sh, &t, value + i, 1);
            i++;
        }
    }
    return text_of(&t);
}

static const char *change_case(Sh *sh, const char *value, bool up, bool whole) {
    char *s = mem_str(sh->mem, value, strlen(value));
    for (size_t i = 0; s[i] && (whole || !i); i++)
        s[i] = (char)(up ? toupper((unsigned char)s[i]) : tolower((unsigned char)s[i]));
    return s;
}

static const char *slice(Sh *sh, const char *value, int64_t from, int64_t len, bool has_len) {
    int64_t n = (int64_t)strlen(value);
    if (from < 0) from += n;
    if (from < 0 || from > n) return "";
    int64_t to = !has_len || len > n - from ? n : len < 0 ? n + len : from + len;
    return to <= from ? "" : mem_str(sh->mem, value + from, (size_t)(to - from));
}

static void slice_list(Sh *sh, Values *v, int64_t from, int64_t len, bool has_len, bool params) {
    Strs old = v->v;
    int64_t n = (int64_t)old.n;
    v->v = (Strs){ 0 };
    if (params && !from) SH_PUSH(sh, v->v, sh->in->path), len--; /* ${@:0} begins with $0 */
    if (params && from > 0) from--;
    else if (v->list && n && !v->list->keyed) { /* by index, and there may be gaps */
        if (from < 0) from += v->list->at[n - 1].index + 1;
        int64_t i = 0;
        while (i < n && v->list->at[i].index < from) i++;
        from = from < 0 ? from : i;
    } else if (from < 0) from += n;
    for (int64_t i = from < 0 ? n : from; i < n && (!has_len || i < from + len); i++) SH_PUSH(sh, v->v, old.at[i]);
}

/* The place of the first 'what' outside of quotes and brackets; end if there is none. */
static const char *find(Sh *sh, const char *s, const char *end, char what) {
    ShParse p = sh_parse(sh, s, (size_t)(end - s), sh->line);
    while (p.at < p.end && *p.at != what) sh_skip_part(&p, false);
    return p.at;
}

static Raw piece(Sh *sh, const char *s, const char *end) { return (Raw){ s, end, sh->line }; }

static int64_t amount(Sh *sh, const char *s, const char *end) {
    int64_t x = 0;
    sh_sum(sh, sh_here(sh, piece(sh, s, end), true), &x);
    return x;
}

/* op begins with one of : # % / ^ , @  Returns false where it is not one of the operators that change a value. */
static void change(Sh *sh, Values *v, const char *op, const char *end, bool params) {
    char c = *op;
    bool twice = op + 1 < end && op[1] == c;
    const char *arg = op + 1 + (twice && strchr("#%/^,", c));
    if (c == ':') {
        const char *colon = find(sh, op + 1, end, ':');
        int64_t from = amount(sh, op + 1, colon), len = colon < end ? amount(sh, colon + 1, end) : 0;
        if (v->many) slice_list(sh, v, from, len, colon < end, params);
        for (size_t i = 0; !v->many && i < v->v.n; i++) v->v.at[i] = slice(sh, v->v.at[i], from, len, colon < end);
        return;
    }
    char how = c == '/' ? twice ? '/' : arg < end && (*arg == '#' || *arg == '%') ? *arg : '1' : 0;
    if (how == '#' || how == '%') arg++;
    const char *slash = c == '/' ? find(sh, arg, end, '/') : end;
    const char *pattern = sh_text(sh, piece(sh, arg, slash), EX_PATTERN);
    const char *with = c == '/' && slash < end ? sh_text(sh, piece(sh, slash + 1, end), EX_TEXT) : "";
    Strs old = v->v;
    v->v = (Strs){ 0 };
    for (size_t i = 0; i < old.n; i++) {
        const char *x = old.at[i];
        if (sh_is_unknown(x) || sh_is_unknown(pattern) || sh_is_unknown(with))
            x = sh_is_unknown(x) ? x : sh_unknown(sh, "a part of a value");
        else if (c == '#' || c == '%') x = strip(sh, x, pattern, c == '#', twice);
        else if (c == '/' && *pattern) x = replace(sh, x, pattern, with, how);
        else if (c == '^' || c == ',') x = change_case(sh, x, c == '^', twice);
        else if (c == '@' && (*arg == 'U' || *arg == 'L' || *arg == 'u'))
            x = change_case(sh, x, *arg != 'L', *arg != 'u');
        else if (c == '@') x = sh_unknown(sh, "${...@...}");
        SH_PUSH(sh, v->v, x);
    }
}

/* ---- the whole */
static void knob(Sh *sh, const char *name, const char *value, bool given) {
    if (!sh_is_name(name, strlen(name))) return;
    for (size_t i = 0; i < sh->out->knobs.n; i++)
        if (!strcmp(sh->out->knobs.at[i].name, name)) return;
    if (sh->out->knobs.n < 1000) VEC_PUSH(sh->out->knobs, (ShellKnob){ name, value, sh->line, given });
}

static void put_all(Ex *ex, const Values *v, bool quoted) {
    Sh *sh = ex_shell(ex);
    const char *ifs = sh_get(sh, "IFS");
    char between = ifs ? *ifs : ' ';
    if (v->many && !v->v.n && quoted && !v->star) ex_nothing(ex);
    for (size_t i = 0; i < v->v.n; i++) {
        if (i && v->many && quoted && v->star) ex_put(ex, &between, between != 0, PUT_QUOTED);
        else if (i) ex_break(ex);
        ex_put(ex, v->v.at[i], strlen(v->v.at[i]), quoted ? PUT_QUOTED : PUT_SPLIT);
    }
}

/* -, =, +, ? with or without a colon.  True: this has put what there is to put. */
static bool or_else(Ex *ex, Values *v, const char *name, const char *op, const char *end, bool quoted) {
    Sh *sh = ex_shell(ex);
    bool colon = *op == ':', null = !v->set;
    if (colon && v->set && v->v.n <= 1) null = !v->v.n || !*v->v.at[0];
    char c = op[colon];
    const char *word = op + colon + 1;
    const ShVar *var = sh_find(sh, name);
    if (c == '+') {
        if (!null && !quoted) word = ex_tilde(ex, word, end);
        if (!null) ex_walk(ex, word, end, sh->line, quoted, true);
        return true;
    }
    if (!null) {
        if (var && var->given && c != '?') knob(sh, name, v->v.n ? v->v.at[0] : "", true);
        return false;
    }
    if (c == '?')
        sh_stop(sh, "%s is not set: %s; give %s=VALUE", name, sh_text(sh, piece(sh, word, end), EX_TEXT), name);
    if (c == '=') {
        const char *value = sh_text(sh, piece(sh, word, end), EX_TEXT);
        if (!v->set) knob(sh, name, value, false);
        sh_set(sh, name, value);
        ex_put(ex, value, strlen(value), quoted ? PUT_QUOTED : PUT_SPLIT);
    } else {
        size_t from = ex_mark(ex);
        if (!quoted) word = ex_tilde(ex, word, end);
        ex_walk(ex, word, end, sh->line, quoted, true);
        if (!v->set) knob(sh, name, ex_since(ex, from), false);
    }
    return true;
}

void sh_param(Ex *ex, const char *s, const char *end, bool quoted) {
    Sh *sh = ex_shell(ex);
    bool length = end - s > 1 && *s == '#' && !strchr(":-+=?%/#", s[1]), indirect = end - s > 1 && *s == '!';
    s += length || indirect;
    const char *to = s, *sub = NULL;
    while (to < end
           && (sh_is_name(s, (size_t)(to + 1 - s)) || (isdigit((unsigned char)*s) && isdigit((unsigned char)*to))))
        to++;
    if (to == s && to < end) to++;
    const char *name = mem_str(sh->mem, s, (size_t)(to - s));
    if (!*name) sh_fail(sh, sh->line, "${} names no variable");
    if (to < end && *to == '[') {
        const char *close = find(sh, to + 1, end, ']');
        sub = sh_text(sh, piece(sh, to + 1, close), EX_TEXT);
        to = close < end ? close + 1 : end;
    }
    Values v = { 0 };
    bool keys = indirect && sub && (*sub == '@' || *sub == '*');
    if (indirect && !keys) {
        const char *other = sh_get(sh, name);
        if (!other || !sh_is_name(other, strlen(other))) sh_fail(sh, sh->line, "${!%s} is not read", name);
        sh_uses(sh, name, NULL, true);
        name = other;
    }
    fetch(sh, &v, name, sub, keys);
    const char *op = to;
    bool colon = op < end && *op == ':';
    if (op + colon < end && strchr("-=+?", op[colon])) {
        if (or_else(ex, &v, name, op, end, quoted)) return;
    } else {
        if (!v.set && !v.many && !(sub && sh_find(sh, name))) not_set(sh, name);
        if (!v.set && v.many && sh_is_name(name, strlen(name)) && !sh_find(sh, name))
            sh_note(sh, SHELL_UNSET, sh->line, "%s", name);
        if (op < end && !strchr(":#%/^,@", *op)) sh_fail(sh, sh->line, "${%.*s} is not read", (int)(end - s), s);
        if (op < end) change(sh, &v, op, end, *name == '@' || *name == '*');
    }
    if (length) {
        bool unknown = !v.many && v.v.n && sh_is_unknown(v.v.at[0]);
        const char *n = unknown ? sh_unknown(sh, mem_printf(sh->mem, "${#%s}", name))
                                : number(sh, (long long)(v.many  ? v.v.n
                                                         : v.v.n ? strlen(v.v.at[0])
                                                                 : 0));
        v = (Values){ 0 };
        one(sh, &v, n);
    }
    put_all(ex, &v, quoted);
}
