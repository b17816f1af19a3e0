/* shell_pattern.c - * ? [ ] against a whole text, and {a,b} {1..3} as several words. */
#include "import/shell_int.h"

#include <stdio.h>
#include <stdlib.h>

/* A [set] at p against c; *next is behind it.  False, *next NULL: there is no set, the bracket means itself. */
static bool in_set(const char *p, char c, const char **next) {
    bool not = p[1] == '!' || p[1] == '^', in = false;
    const char *s = p + 1 + not, *first = s;
    for (; *s && (*s != ']' || s == first); s++) {
        if (*s == '\\' && s[1]) s++;
        if (s[1] == '-' && s[2] && s[2] != ']') {
            in |= c >= *s && c <= s[2];
            s += 2;
        } else in |= c == *s;
    }
    *next = *s ? s + 1 : NULL;
    return in != not ;
}

bool sh_match(Sh *sh, const char *p, const char *text, size_t n) {
    const char *end = text + n, *star = NULL, *kept = NULL;
    for (int64_t steps = 1;; steps++) {
        if (steps % 64 == 0) sh_spend(sh, 64);
        const char *next = NULL;
        if (*p == '*') {
            star = p++, kept = text;
            continue;
        }
        bool same = false;
        if (text < end && *p == '[') {
            same = in_set(p, *text, &next);
            if (!next) same = *text == '[', next = p + 1;
        } else if (text < end && *p) {
            bool escaped = *p == '\\' && p[1];
            same = (!escaped && *p == '?') || *text == p[escaped];
            next = p + escaped + 1;
        } else if (text == end && !*p) return sh_spend(sh, steps % 64), true;
        if (same) {
            text++, p = next;
            continue;
        }
        if (!star || kept == end) return sh_spend(sh, steps % 64), false;
        p = star + 1, text = ++kept; /* the last * takes one byte more */
    }
}

/* ---- braces: {a,b}, {1..3}, {1..9..2}; not ${...}, not {} or {a} */
static bool sequence(Sh *sh, Strs *out, const char *s, const char *end) {
    long long a, b, by = 1;
    int used = 0, more = 0;
    char *text = mem_str(sh->mem, s, (size_t)(end - s)), x, y;
    if (sscanf(text, "%lld..%lld%n", &a, &b, &used) == 2 && used) {
        if (text[used] && (sscanf(text + used, "..%lld%n", &by, &more) != 1 || text[used + more])) return false;
        const char *two = strstr(text, "..") + 2;
        size_t n1 = strcspn(text, "."), n2 = strcspn(two, ".");
        bool padded = (text[0] == '0' && n1 > 1) || (two[0] == '0' && n2 > 1);
        int width = !padded ? 0 : (int)(n1 > n2 ? n1 : n2);
        by = by < 0 ? -by : by ? by : 1;
        if (a > 1000000 || b > 1000000 || a < -1000000 || b < -1000000 || by > 1000000) return false;
        for (long long i = a; a <= b ? i <= b : i >= b; i += a <= b ? by : -by) {
            if (out->n > 10000) sh_fail(sh, sh->line, "{%s} is too long", text);
            SH_PUSH(sh, *out, mem_printf(sh->mem, "%0*lld", width, i));
        }
        return true;
    }
    if (sscanf(text, "%c..%c%n", &x, &y, &used) == 2 && used == 4 && !text[4] && ((x | 32) >= 'a')
        && ((x | 32) <= 'z')) {
        for (int i = x; x <= y ? i <= y : i >= y; i += x <= y ? 1 : -1) SH_PUSH(sh, *out, mem_printf(sh->mem, "%c", i));
        return true;
    }
    return false;
}

/* The parts of the brace at p (its "{"), and where it ends.  False: it is none. */
static bool parts_of(Sh *sh, Strs *out, const char *s, const char *end, int line, const char **behind) {
    ShParse p = sh_parse(sh, s + 1, (size_t)(end - s - 1), line);
    const char *from = p.at;
    for (int open = 0; p.at < p.end;) {
        if (*p.at == '{') open++;
        if ((*p.at == ',' || *p.at == '}') && !open) {
            if (*p.at == '}' && !out->n) return *behind = p.at + 1, sequence(sh, out, from, p.at);
            SH_PUSH(sh, *out, mem_str(sh->mem, from, (size_t)(p.at - from)));
            if (*p.at == '}') return *behind = p.at + 1, true;
            from = p.at + 1;
        }
        if (*p.at == '}') open--;
        sh_skip_part(&p, false);
    }
    return false;
}

void sh_braces(Sh *sh, Raws *out, Raw w) {
    ShParse p = sh_parse(sh, w.at, (size_t)(w.end - w.at), w.line);
    if (++sh->depth > SH_MAX_DEPTH) sh_fail(sh, w.line, "nested too deeply");
    for (; p.at < p.end; sh_skip_part(&p, false)) {
        Strs parts = { 0 };
        const char *behind;
        if (*p.at != '{' || !parts_of(sh, &parts, p.at, p.end, w.line, &behind)) continue;
        for (size_t i = 0; i < parts.n; i++) {
            const char *s =
                mem_printf(sh->mem, "%.*s%s%.*s", (int)(p.at - w.at), w.at, parts.at[i], (int)(w.end - behind), behind);
            if (out->n > 10000) sh_fail(sh, w.line, "too many words from braces");
            sh_braces(sh, out, (Raw){ s, s + strlen(s), w.line });
        }
        sh->depth--;
        return;
    }
    sh->depth--;
    SH_PUSH(sh, *out, w);
}
