/* shell_parse.c - a script's text as trees, one line of commands at a time, as bash reads it: what stands after a
 * mistake is looked at only when it is reached.  Words stay slices of the text; finding where one ends means walking
 * over everything that may be nested in it, and $( ... ) is walked by the parser itself. */
#include "import/shell_int.h"

static ShNode *parse_list(ShParse *p, bool one_line);

ShParse sh_parse(Sh *sh, const char *text, size_t n, int line) {
    return (ShParse){ .sh = sh, .at = text, .end = text + n, .counted = text, .line = line };
}

static int line_of(ShParse *p) {
    for (; p->counted < p->at; p->counted++) p->line += *p->counted == '\n';
    return p->line;
}

static _Noreturn void wrong(ShParse *p, const char *what) { sh_fail(p->sh, line_of(p), "%s", what); }

static void deeper(ShParse *p) {
    if (++p->depth > SH_MAX_DEPTH) wrong(p, "nested too deeply");
}

static char peek(const ShParse *p, size_t i) { return (size_t)(p->end - p->at) > i ? p->at[i] : 0; }
static bool starts(const ShParse *p, const char *s) {
    size_t n = strlen(s);
    return (size_t)(p->end - p->at) >= n && !memcmp(p->at, s, n);
}
static bool is_meta(char c) { return strchr(" \t\n;&|()<>", c) != NULL; /* 0, the end, too */ }

/* ---- what may stand inside a word */
static void skip_to(ShParse *p, char quote, bool escapes) {
    for (; p->at < p->end && *p->at != quote; p->at++)
        if (escapes && *p->at == '\\' && p->at + 1 < p->end) p->at++;
    if (p->at >= p->end)
        wrong(p, quote == '\'' ? "a ' is never closed" : quote == '"' ? "a \" is never closed" : "a ` is never closed");
    p->at++;
}

static void skip_double(ShParse *p) {
    p->at++;
    while (p->at < p->end && *p->at != '"') sh_skip_part(p, true);
    if (p->at >= p->end) wrong(p, "a \" is never closed");
    p->at++;
}

static void skip_brace(ShParse *p) { /* behind "${" */
    while (p->at < p->end && *p->at != '}') sh_skip_part(p, false);
    if (p->at >= p->end) wrong(p, "a ${ is never closed");
    p->at++;
}

/* Behind "$((": to behind "))".  False, nothing moved: it is a subshell in a substitution after all. */
static bool skip_sum(ShParse *p) {
    const char *from = p->at;
    for (int open = 0; p->at < p->end;) {
        if (*p->at == '(') open++;
        if (*p->at == ')' && !open--) {
            if (peek(p, 1) == ')') return p->at += 2, true;
            break;
        }
        if (*p->at == '"' || *p->at == '\'' || *p->at == '`' || *p->at == '$' || *p->at == '\\') sh_skip_part(p, false);
        else p->at++;
    }
    p->at = from;
    return false;
}

static void skip_command(ShParse *p) { /* behind "$(" */
    ShParse inner = *p;
    inner.waiting.at = NULL, inner.waiting.n = inner.waiting.cap = 0;
    parse_list(&inner, false);
    if (peek(&inner, 0) != ')') wrong(&inner, "a $( is never closed");
    p->at = inner.at + 1;
}

void sh_skip_part(ShParse *p, bool quoted) {
    deeper(p);
    char c = *p->at, next = peek(p, 1);
    if (c == '\\') p->at += next || p->at + 1 < p->end ? 2 : 1;
    else if (c == '\'' && !quoted) p->at++, skip_to(p, '\'', false);
    else if (c == '"' && !quoted) skip_double(p);
    else if (c == '`') p->at++, skip_to(p, '`', true);
    else if (c == '$' && next == '{') p->at += 2, skip_brace(p);
    else if (c == '$' && next == '\'' && !quoted) p->at += 2, skip_to(p, '\'', true);
    else if (c == '$' && next == '(') {
        p->at += 2;
        if (peek(p, 0) == '(') {
            p->at++;
            if (!skip_sum(p)) p->at--, skip_command(p);
        } else skip_command(p);
    } else if ((c == '<' || c == '>') && next == '(' && !quoted) p->at += 2, skip_command(p);
    else p->at++;
    p->depth--;
}

static Raw read_word(ShParse *p) {
    Raw w = { p->at, NULL, line_of(p) };
    while (p->at < p->end && (!is_meta(*p->at) || ((*p->at == '<' || *p->at == '>') && peek(p, 1) == '(')))
        sh_skip_part(p, false);
    w.end = p->at;
    return w;
}

size_t sh_assign_ends(Raw w, bool *append) {
    const char *s = w.at;
    while (s < w.end && sh_is_name(w.at, (size_t)(s + 1 - w.at))) s++;
    if (s == w.at) return 0;
    if (s < w.end && *s == '[') {
        for (int open = 0; s < w.end; s++) {
            open += (*s == '[') - (*s == ']');
            if (!open) break;
        }
        s += s < w.end;
    }
    *append = s < w.end && *s == '+';
    s += *append;
    return s < w.end && *s == '=' ? (size_t)(s + 1 - w.at) : 0;
}

/* ---- between words */
static void skip_blanks(ShParse *p) {
    for (;; p->at++) {
        if (p->at < p->end && (*p->at == ' ' || *p->at == '\t')) continue;
        if (starts(p, "\\\n") || (starts(p, "\\") && p->at + 1 == p->end)) {
            p->at += p->at + 1 < p->end;
            continue;
        }
        if (peek(p, 0) != '#') return;
        while (p->at < p->end && *p->at != '\n') p->at++;
        if (p->at >= p->end) return;
        p->at--;
    }
}

/* The bodies of here-documents begin behind the line that asks for them. */
static void read_bodies(ShParse *p) {
    for (size_t i = 0; i < p->waiting.n; i++) {
        ShRedir *r = p->waiting.at[i];
        bool tabs = *r->to.at == '-';
        Text want = { 0 };
        for (const char *s = r->to.at + tabs; s < r->to.end; s++) {
            if (*s == '\'' || *s == '"' || *s == '\\') r->plain = true;
            else sh_put(p->sh, &want, s, 1);
        }
        r->to = (Raw){ p->at, p->at, line_of(p) };
        Text stripped = { 0 };
        while (p->at < p->end) {
            const char *from = p->at, *nl = memchr(from, '\n', (size_t)(p->end - from)), *to = nl ? nl : p->end;
            p->at = nl ? nl + 1 : p->end;
            while (tabs && from < to && *from == '\t') from++;
            if ((size_t)(to - from) == want.n && !memcmp(from, text_of(&want), want.n)) break;
            if (tabs) sh_put(p->sh, &stripped, from, (size_t)(p->at - from));
            else r->to.end = p->at;
        }
        if (tabs) r->to.at = text_of(&stripped), r->to.end = r->to.at + stripped.n;
    }
    p->waiting.n = 0;
}

static void skip_newlines(ShParse *p) {
    for (skip_blanks(p); peek(p, 0) == '\n'; skip_blanks(p)) {
        p->at++;
        read_bodies(p);
    }
}

static bool at_word(const ShParse *p, const char *word) { return starts(p, word) && is_meta(peek(p, strlen(word))); }

static bool take_word(ShParse *p, const char *word) {
    if (!at_word(p, word)) return false;
    p->at += strlen(word);
    return true;
}

static void want_word(ShParse *p, const char *word, const char *what) {
    skip_newlines(p);
    if (!take_word(p, word)) wrong(p, what);
}

/* ---- commands */
static ShNode *new_node(ShParse *p, ShKind kind) {
    ShNode *n = MEM_NEW(p->sh->mem, ShNode);
    n->kind = kind;
    n->line = line_of(p);
    return n;
}

/* "2>&1", "> file", "<<EOF", "<<< word": true if one stands here. */
static bool redirection(ShParse *p, ShNode *n) {
    const char *s = p->at;
    int fd = -1;
    while (s < p->end && *s >= '0' && *s <= '9' && s - p->at < 3) fd = (fd < 0 ? 0 : fd) * 10 + *s++ - '0';
    if (s < p->end && *s == '&' && s + 1 < p->end && s[1] == '>' && fd < 0) s++, fd = 1;
    if (s >= p->end || (*s != '<' && *s != '>') || (s + 1 < p->end && s[1] == '(')) return false;
    ShRedir r = { .op = *s, .fd = fd >= 0 ? fd : *s == '>' };
    p->at = s;
    if (starts(p, "<<<")) p->at += 3, r.op = 's';
    else if (starts(p, "<<")) p->at += 2, r.op = 'h';
    else p->at += 1 + (peek(p, 1) == '>' || peek(p, 1) == '&' || peek(p, 1) == '|');
    if (r.op != 'h' || peek(p, 0) != '-') skip_blanks(p);
    r.to = read_word(p);
    if (r.to.at == r.to.end) wrong(p, "a redirection without a file");
    ShRedir *kept = mem_copy(p->sh->mem, &r, sizeof r);
    SH_PUSH(p->sh, n->redirs, kept);
    if (r.op == 'h') SH_PUSH(p->sh, p->waiting, kept);
    return true;
}

static void redirections(ShParse *p, ShNode *n) {
    for (skip_blanks(p); redirection(p, n); skip_blanks(p)) {}
}

static void list_items(ShParse *p, Raws *out) { /* behind "(" of NAME=( ... ) */
    for (skip_newlines(p); p->at < p->end && *p->at != ')'; skip_newlines(p)) {
        Raw w = read_word(p);
        if (w.at == w.end) wrong(p, "a list holds only words");
        SH_PUSH(p->sh, *out, w);
    }
    if (p->at >= p->end) wrong(p, "a list ( is never closed");
    p->at++;
}

static bool declares(Raw w) {
    static const char *const names[] = { "declare", "local", "export", "readonly", "typeset" };
    for (size_t i = 0; i < COUNT(names); i++)
        if (raw_is(w, names[i])) return true;
    return false;
}

static bool assignment(ShParse *p, ShNode *n, Raw w) {
    ShAssign a = { .late = n->words.n > 0 };
    size_t len = sh_assign_ends(w, &a.append);
    if (!len || (a.late && !declares(n->words.at[0]))) return false;
    a.name = (Raw){ w.at, w.at + len - 1 - a.append, w.line };
    a.value = (Raw){ w.at + len, w.end, w.line };
    if (a.value.at == a.value.end && peek(p, 0) == '(') p->at++, a.list = true, list_items(p, &a.items);
    SH_PUSH(p->sh, n->assigns, a);
    return true;
}

static ShNode *function(ShParse *p, Raw name);

static ShNode *simple(ShParse *p) {
    ShNode *n = new_node(p, SH_SIMPLE);
    for (;; skip_blanks(p)) {
        skip_blanks(p);
        if (redirection(p, n)) continue;
        bool inside = (peek(p, 0) == '<' || peek(p, 0) == '>') && peek(p, 1) == '(';
        if (is_meta(peek(p, 0)) && !inside) break;
        Raw w = read_word(p);
        if (assignment(p, n, w)) continue;
        SH_PUSH(p->sh, n->words, w);
        if (n->words.n > 1 || n->assigns.n) continue;
        skip_blanks(p);
        if (peek(p, 0) == '(') return function(p, w);
    }
    if (!n->words.n && !n->assigns.n && !n->redirs.n)
        wrong(p, p->at < p->end ? "a command is missing here" : "the script ends in the middle of a command");
    return n;
}

static ShNode *body(ShParse *p, const char *from, const char *to) {
    want_word(p, from, "a loop without do");
    ShNode *n = parse_list(p, false);
    want_word(p, to, "a loop without done");
    return n;
}

static ShNode *parse_if(ShParse *p) {
    ShNode *n = new_node(p, SH_IF);
    n->a = parse_list(p, false);
    want_word(p, "then", "an if without then");
    n->b = parse_list(p, false);
    skip_newlines(p);
    if (take_word(p, "elif")) return n->c = parse_if(p), n;
    if (take_word(p, "else")) n->c = parse_list(p, false);
    want_word(p, "fi", "an if without fi");
    return n;
}

static ShNode *parse_while(ShParse *p) {
    ShNode *n = new_node(p, SH_WHILE);
    n->a = parse_list(p, false);
    n->b = body(p, "do", "done");
    return n;
}

static ShNode *parse_until(ShParse *p) {
    ShNode *n = parse_while(p);
    n->flag = true;
    return n;
}

static ShNode *parse_for(ShParse *p) {
    ShNode *n = new_node(p, SH_FOR);
    skip_blanks(p);
    if (starts(p, "((")) {
        n->kind = SH_FOR_SUM;
        const char *from = p->at += 2;
        if (!skip_sum(p)) wrong(p, "a for (( is never closed");
        const char *to = p->at - 2;
        for (int i = 0; i < 3; i++) {
            const char *semi = i < 2 ? memchr(from, ';', (size_t)(to - from)) : to;
            if (!semi) wrong(p, "a for (( wants three expressions");
            SH_PUSH(p->sh, n->words, (Raw){ from, semi, n->line });
            from = semi + 1;
        }
    } else {
        Raw name = read_word(p);
        if (!sh_is_name(name.at, (size_t)(name.end - name.at))) wrong(p, "a for wants the name of a variable");
        SH_PUSH(p->sh, n->words, name);
        skip_newlines(p);
        n->flag = take_word(p, "in");
        for (skip_blanks(p); n->flag && !is_meta(peek(p, 0)); skip_blanks(p)) SH_PUSH(p->sh, n->words, read_word(p));
    }
    skip_blanks(p);
    if (peek(p, 0) == ';') p->at++;
    n->b = body(p, "do", "done");
    return n;
}

static ShNode *parse_case(ShParse *p) {
    ShNode *n = new_node(p, SH_CASE), **to = &n->a;
    skip_blanks(p);
    SH_PUSH(p->sh, n->words, read_word(p));
    want_word(p, "in", "a case without in");
    for (skip_newlines(p); !take_word(p, "esac"); skip_newlines(p)) {
        ShNode *arm = *to = new_node(p, SH_ARM);
        to = &arm->next;
        if (peek(p, 0) == '(') p->at++;
        for (;; p->at++) {
            skip_blanks(p);
            SH_PUSH(p->sh, arm->words, read_word(p));
            skip_blanks(p);
            if (peek(p, 0) != '|') break;
        }
        if (peek(p, 0) != ')') wrong(p, "a case's pattern wants a )");
        p->at++;
        arm->b = parse_list(p, false);
        skip_newlines(p);
        if (starts(p, ";;")) p->at += 2;
        else if (!at_word(p, "esac")) wrong(p, "a case's commands want ;; or esac");
    }
    return n;
}

static ShNode *parse_group(ShParse *p) {
    ShNode *n = new_node(p, SH_GROUP);
    n->b = parse_list(p, false);
    want_word(p, "}", "a { is never closed");
    return n;
}

static ShNode *parse_function(ShParse *p) {
    skip_blanks(p);
    return function(p, read_word(p));
}

static ShNode *parse_cond(ShParse *p) {
    ShNode *n = new_node(p, SH_COND);
    for (;;) {
        skip_newlines(p);
        if (p->at >= p->end) wrong(p, "a [[ is never closed");
        if (take_word(p, "]]")) return n;
        bool regex = n->words.n && raw_is(n->words.at[n->words.n - 1], "=~");
        Raw w = { p->at, p->at, line_of(p) };
        if (regex) { /* brackets and bars belong to the expression */
            for (int open = 0; p->at < p->end && (open > 0 || !strchr(" \t\n", *p->at));) {
                open += (*p->at == '(') - (*p->at == ')');
                sh_skip_part(p, false);
            }
        } else if (starts(p, "&&") || starts(p, "||")) p->at += 2;
        else if (strchr("()<>", *p->at)) p->at++;
        else if (is_meta(*p->at)) wrong(p, "this does not belong into [[ ]]");
        else read_word(p);
        w.end = p->at;
        SH_PUSH(p->sh, n->words, w);
    }
}

static ShNode *subshell(ShParse *p) {
    ShNode *n = new_node(p, SH_SUBSHELL);
    if (peek(p, 1) == '(') {
        const char *from = p->at += 2;
        if (skip_sum(p)) {
            n->kind = SH_SUM;
            SH_PUSH(p->sh, n->words, (Raw){ from, p->at - 2, n->line });
            return n;
        }
        p->at -= 2;
    }
    p->at++;
    n->b = parse_list(p, false);
    if (peek(p, 0) != ')') wrong(p, "a ( is never closed");
    p->at++;
    return n;
}

static const struct {
    const char *word;
    ShNode *(*parse)(ShParse *p);
} COMPOUND[] = {
    { "if", parse_if },     { "for", parse_for }, { "while", parse_while },       { "until", parse_until },
    { "case", parse_case }, { "{", parse_group }, { "function", parse_function }, { "[[", parse_cond },
};

static ShNode *command(ShParse *p) {
    deeper(p);
    skip_blanks(p);
    ShNode *n = NULL;
    if (peek(p, 0) == '(') n = subshell(p);
    for (size_t i = 0; !n && i < COUNT(COMPOUND); i++)
        if (take_word(p, COMPOUND[i].word)) n = COMPOUND[i].parse(p);
    if (!n) {
        if (at_word(p, "select") || at_word(p, "coproc")) wrong(p, "select and coproc are not read");
        n = simple(p);
    } else redirections(p, n);
    p->depth--;
    return n;
}

static ShNode *function(ShParse *p, Raw name) {
    ShNode *n = new_node(p, SH_FUNCTION);
    SH_PUSH(p->sh, n->words, name);
    skip_blanks(p);
    if (peek(p, 0) == '(') {
        p->at++;
        skip_blanks(p);
        if (peek(p, 0) != ')') wrong(p, "a function's name wants ()");
        p->at++;
    }
    skip_newlines(p);
    n->b = command(p);
    return n;
}

static ShNode *pipeline(ShParse *p) {
    ShNode *n = new_node(p, SH_PIPE), **to = &n->a;
    skip_blanks(p);
    for (;;) {
        if (take_word(p, "!")) n->flag = !n->flag;
        else if (take_word(p, "time")) {
            skip_blanks(p);
            take_word(p, "-p");
        } else break;
        skip_blanks(p);
    }
    for (;;) {
        *to = command(p);
        to = &(*to)->next;
        skip_blanks(p);
        if (peek(p, 0) != '|' || peek(p, 1) == '|') break;
        p->at += 1 + (peek(p, 1) == '&');
        skip_newlines(p);
    }
    return n->flag || n->a->next ? n : n->a;
}

static ShNode *and_or(ShParse *p) {
    ShNode *left = pipeline(p);
    for (;;) {
        skip_blanks(p);
        bool and = starts(p, "&&");
        if (!and&&!starts(p, "||")) return left;
        p->at += 2;
        ShNode *n = new_node(p, and? SH_AND : SH_OR);
        skip_newlines(p);
        n->a = left;
        n->b = pipeline(p);
        left = n;
    }
}

static bool list_ends(const ShParse *p) {
    static const char *const words[] = { "then", "elif", "else", "fi", "do", "done", "esac", "}" };
    if (p->at >= p->end || *p->at == ')' || starts(p, ";;")) return true;
    for (size_t i = 0; i < COUNT(words); i++)
        if (at_word(p, words[i])) return true;
    return false;
}

static ShNode *parse_list(ShParse *p, bool one_line) {
    deeper(p);
    skip_newlines(p);
    ShNode *list = new_node(p, SH_LIST), **to = &list->a;
    while (!list_ends(p)) {
        sh_spend(p->sh, 1);
        ShNode *n = *to = and_or(p);
        to = &n->next;
        skip_blanks(p);
        bool line = peek(p, 0) == '\n';
        n->behind = peek(p, 0) == '&';
        if (n->behind || (peek(p, 0) == ';' && peek(p, 1) != ';')) p->at++, skip_blanks(p), line = peek(p, 0) == '\n';
        else if (!line) break;
        if (line && one_line) {
            p->at++;
            read_bodies(p);
            break;
        }
        skip_newlines(p);
    }
    p->depth--;
    return list;
}

ShNode *sh_parse_line(ShParse *p) {
    skip_newlines(p);
    if (p->at >= p->end) return NULL;
    const char *from = p->at;
    ShNode *n = parse_list(p, true);
    if (p->at == from || (p->at < p->end && p->at[-1] != '\n')) wrong(p, "this does not belong here");
    return n;
}
