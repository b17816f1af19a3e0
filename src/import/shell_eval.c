/* shell_eval.c - walks the tree as bash would run it.  Commands of the shell itself do what they do; a function is
 * called; a command that starts Python is written down; anything else is not run, and its status is not known. */
#include "import/shell_int.h"

#include "base/file.h"

#include <stdlib.h>

static void escape_to(Sh *sh, ShEscape *e) {
    e->outer = sh->escape;
    sh->escape = e;
}

/* A jump leaves these wherever they stood. */
typedef struct {
    int depth, asking, functions;
    Text *out;
    const char *in;
    size_t locals;
    Strs params;
} Kept;
static Kept keep(const Sh *sh) {
    return (Kept){ sh->depth, sh->asking, sh->functions, sh->stdout_, sh->stdin_, sh->locals, sh->params };
}
static void restore(Sh *sh, const Kept *k) {
    sh->depth = k->depth, sh->asking = k->asking, sh->functions = k->functions;
    sh->stdout_ = k->out, sh->stdin_ = k->in, sh->locals = k->locals, sh->params = k->params;
}

/* ---- shells inside the shell: they see everything and change nothing */
typedef struct {
    const ShNode *node;
    const char *text;
    size_t n;
    int line;
} Job; /* a tree, or a text */

static void subshell(Sh *sh, const Job *job, bool lenient) {
    const Sh before = *sh;
    ShEscape e;
    if (sh->depth + 4 > SH_MAX_DEPTH) sh_fail(sh, sh->line, "nested too deeply");
    sh->depth += 4; /* a shell takes more of the stack than a word */
    sh->inside++;
    sh->vars.cap = sh->vars.n, sh->funcs.cap = sh->funcs.n, sh->saved.cap = sh->saved.n; /* pushes make copies ... */
    if (sh->vars.n)
        sh->vars.at = mem_copy(sh->mem, sh->vars.at, sh->vars.n * sizeof *sh->vars.at); /* ... and so do changes */
    if (sh->funcs.n) sh->funcs.at = mem_copy(sh->mem, sh->funcs.at, sh->funcs.n * sizeof *sh->funcs.at);
    sh_spend(sh, (int64_t)sh->vars.n);
    if (lenient) sh->errexit = false;
    escape_to(sh, &e);
    int how = setjmp(e.at);
    if (!how && job->node) sh_eval(sh, job->node);
    else if (!how) sh_run_text(sh, job->text, job->n, job->line);
    Sh after = *sh;
    *sh = before;
    sh->escape = e.outer;
    sh->status = after.status, sh->steps = after.steps, sh->work = after.work, sh->unknowns = after.unknowns,
    sh->said = after.said, sh->assumed = after.assumed;
    if (how == JUMP_FAIL) longjmp(sh->escape->at, JUMP_FAIL);
}

/* An answer that holds what a program would have said is unknown as a whole. */
const char *sh_capture(Sh *sh, const char *text, size_t n, int line) {
    Text out = { 0 }, *outer = sh->stdout_;
    size_t known = sh->unknowns.n;
    int asking = sh->asking;
    sh->stdout_ = &out;
    sh->asking = 0;
    subshell(sh, &(Job){ .text = text, .n = n, .line = line }, true);
    sh->stdout_ = outer;
    sh->asking = asking;
    sh->line = line;
    sh->captures++;
    while (out.n && out.at[out.n - 1] == '\n') out.at[--out.n] = 0;
    for (const char *s = text_of(&out); (s = strchr(s, SH_MARK)); s++)
        if ((size_t)atoi(s + 1) >= known)
            return sh_unknown(sh, mem_printf(sh->mem, "$(%.*s)", (int)(n < 200 ? n : 200), text));
    return text_of(&out);
}

/* ---- a script, a sourced file, eval: line after line */
void sh_run_text(Sh *sh, const char *text, size_t n, int line) {
    ShParse first = sh_parse(sh, text, n, line),
            *p = mem_copy(sh->mem, &first, sizeof first); /* a jump must find where it is */
    const Kept kept = keep(sh);
    sh_spend(sh, (int64_t)n);
    ShEscape e;
    escape_to(sh, &e);
    int how = setjmp(e.at); /* a line that is dropped comes back here */
    if (how) restore(sh, &kept);
    if (how == JUMP_FAIL || how == JUMP_EXIT) {
        sh->escape = e.outer;
        longjmp(sh->escape->at, how);
    }
    p->depth = sh->depth;
    for (ShNode *line_; sh->flow == FLOW_NONE && (line_ = sh_parse_line(p));) sh_eval(sh, line_);
    sh->escape = e.outer;
}

/* ---- answers */
bool sh_true(Sh *sh, const char *what) {
    sh->assumed += sh->status < 0;
    if (sh->status < 0) sh_note(sh, SHELL_ASSUMED, sh->line, "%s is not run: it counts as failed", what);
    return sh->status == 0;
}

/* A few words of a command, for notes. */
static const char *words_of(Sh *sh, const ShNode *n) {
    while (n && n->kind != SH_SIMPLE && n->kind != SH_COND) n = n->a ? n->a : n->b;
    if (!n || !n->words.n) return "this";
    Text t = { 0 };
    for (size_t i = 0; i < n->words.n && t.n < 80; i++) {
        if (i) sh_put(sh, &t, " ", 1);
        sh_puts(sh, &t, sh_raw(sh, n->words.at[i]));
    }
    return mem_printf(sh->mem, n->kind == SH_COND ? "[[ %s ]]" : "`%s`", text_of(&t));
}

static void ask(Sh *sh, const ShNode *n) {
    sh->asking++;
    sh_eval(sh, n);
    sh->asking--;
}

static bool answer(Sh *sh, const ShNode *n) {
    ask(sh, n);
    return sh->flow == FLOW_NONE && sh_true(sh, words_of(sh, n));
}

/* `CMD || exit 1` of a CMD that is not run: the script is read as it would go on. */
static bool ends_it(const ShNode *n) {
    while (n && (n->kind == SH_GROUP || n->kind == SH_LIST || n->kind == SH_AND || n->kind == SH_OR)) {
        const ShNode *last = n->kind == SH_GROUP || n->kind == SH_AND || n->kind == SH_OR ? n->b : n->a;
        while (n->kind == SH_LIST && last && last->next) last = last->next;
        n = last;
    }
    return n && n->kind == SH_SIMPLE && n->words.n
           && (raw_is(n->words.at[0], "exit") || raw_is(n->words.at[0], "return"));
}

static void either(Sh *sh, const ShNode *n) {
    ask(sh, n->a);
    if (sh->flow != FLOW_NONE) return;
    if (sh->status < 0 && n->kind == SH_OR && ends_it(n->b)) {
        sh_note(sh, SHELL_ASSUMED, n->line, "%s is not run: it counts as done", words_of(sh, n->a));
        sh->status = 0;
    }
    bool yes = sh_true(sh, words_of(sh, n->a));
    if (sh->status < 0) sh->status = 1;
    if (yes == (n->kind == SH_AND)) sh_eval(sh, n->b);
}

/* ---- commands */
static bool is_program(const char *word, const char *name) {
    const char *slash = strrchr(word, '/');
    return !strcmp(slash ? slash + 1 : word, name);
}

static bool is_launcher(const Strs *w, size_t i) {
    const char *slash = strrchr(w->at[i], '/'), *name = slash ? slash + 1 : w->at[i];
    if (!strncmp(name, "python", 6) && strspn(name + 6, "0123456789.") == strlen(name + 6)) return true;
    return !strcmp(name, "torchrun") || (!strcmp(name, "uv") && i + 1 < w->n && !strcmp(w->at[i + 1], "run"));
}

/* `python3 -c 'import x' && echo A || echo B`: what this machine has, asked of Python; nothing is launched by it. */
static bool is_question(const char *option) { return !strcmp(option, "-c") || !strcmp(option, "-"); }

static bool launch(Sh *sh, Strs *words, const int *lines) {
    static const char *const before[] = { "nohup",   "env",    "nice",   "timeout",  "srun",   "ray",  "nsys",
                                          "numactl", "stdbuf", "mpirun", "unbuffer", "setsid", "sudo", "taskset" };
    size_t i = 0;
    bool wrapped = false;
    for (size_t k = 0; k < COUNT(before); k++) wrapped |= is_program(words->at[0], before[k]);
    while (i < words->n && !is_launcher(words, i) && wrapped) i++;
    if (i >= words->n || !is_launcher(words, i)) return false;
    bool asked = sh->asking || sh->stdout_;
    if (asked && i + 1 < words->n && is_question(words->at[i + 1])) return false;
    ShellLaunch l = { .word = words->at + i, .line = lines + i, .n = words->n - i };
    for (size_t k = 0; k < l.n && !l.unknown; k++) {
        int at;
        if (!sh_is_unknown(l.word[k])) continue;
        const char *what = sh_unknown_what(sh, l.word[k], &at);
        Text t = { 0 };
        for (const char *s = l.word[k]; *s; s++) {
            const char *end = *s == SH_MARK ? strchr(s, SH_MARK_END) : NULL;
            sh_puts(sh, &t, end ? "?" : mem_str(sh->mem, s, 1));
            if (end) s = end;
        }
        l.unknown = mem_printf(sh->mem,
                               "%s:%d: %s: the ? is %s (line %d), and nothing is run here: give the variable that "
                               "holds it as NAME=VALUE, or write the value into the script",
                               sh->in->path, l.line[k], text_of(&t), what, at);
    }
    VEC_PUSH(sh->out->launches, l);
    if (sh->stdout_ && !sh->asking) sh_puts(sh, sh->stdout_, sh_unknown(sh, l.word[0]));
    sh->status = 0;
    return true;
}

/* "trainer.nnodes=2" as a command: a continued line that ended too early. */
static bool looks_lost(const char *word) {
    const char *s = word + strspn(word, "+~"), *eq = strchr(s, '='), *dot = strchr(s, '.');
    return eq && dot && dot < eq && sh_is_name(s, (size_t)(dot - s));
}

static void call(Sh *sh, const ShFunc *f, Strs *words) {
    Strs outer = sh->params;
    size_t locals = sh->locals;
    if (++sh->functions > 30) sh_fail(sh, sh->line, "%s calls itself too often", f->name);
    sh->params = (Strs){ words->at + 1, words->n - 1, words->n - 1 };
    sh->locals = sh->saved.n;
    sh_eval(sh, f->body);
    while (sh->saved.n > sh->locals) {
        ShSaved s = sh->saved.at[--sh->saved.n];
        if (s.was) *sh_var(sh, s.name) = s.old;
        else sh_unset(sh, s.name);
    }
    if (sh->flow == FLOW_RETURN) sh->flow = FLOW_NONE;
    sh->locals = locals;
    sh->params = outer;
    sh->functions--;
}

static const char *joined(Sh *sh, const Strs *words) {
    Text t = { 0 };
    for (size_t i = 0; i < words->n; i++) {
        if (i) sh_put(sh, &t, " ", 1);
        sh_puts(sh, &t, words->at[i]);
    }
    return text_of(&t);
}

void sh_command(Sh *sh, Strs *words, const int *lines, const ShNode *n) {
    const char *name = words->at[0];
    bool silent = false;
    for (size_t i = 0; i < sh->funcs.n; i++)
        if (!strcmp(sh->funcs.at[i].name, name)) {
            call(sh, &(ShFunc){ name, sh->funcs.at[i].body }, words);
            return;
        }
    ShBuiltin *b = sh_builtin(name);
    if (b) {
        sh->status = b(sh, words, n);
        return;
    }
    if (launch(sh, words, lines)) return;
    if (looks_lost(name)) {
        for (size_t i = 0; i < words->n; i++) sh_note(sh, SHELL_LOST, lines[i], "%s", words->at[i]);
        sh->status = 127;
        return;
    }
    bool done = sh_does_nothing(name, &silent);
    if (!silent && !sh->asking && !sh->stdout_) sh_note(sh, SHELL_SKIPPED, sh->line, "%.150s", joined(sh, words));
    if (sh->stdout_ && !sh->asking && !done) sh_puts(sh, sh->stdout_, sh_unknown(sh, name));
    sh->status = done ? 0 : -1;
}

/* Where standard input and output of a command go: what is redirected to a file is read by nobody here. */
static void redirect(Sh *sh, const ShNode *n) {
    for (size_t i = 0; i < n->redirs.n; i++) {
        const ShRedir *r = n->redirs.at[i];
        if (r->op == '>' && r->fd == 1) sh->stdout_ = NULL;
        if (r->op == '<') sh->stdin_ = NULL;
        if (r->op == 's') sh->stdin_ = mem_printf(sh->mem, "%s\n", sh_text(sh, r->to, EX_TEXT));
        if (r->op == 'h') sh->stdin_ = r->plain ? sh_raw(sh, r->to) : sh_here(sh, r->to, false);
    }
}

static void simple(Sh *sh, const ShNode *n) {
    Strs words = { 0 };
    Ints lines = { 0 };
    size_t early = 0;
    int64_t captures = sh->captures;
    sh->line = n->line;
    sh_words(sh, &words, n->words.at, n->words.n, &lines);
    for (size_t i = 0; i < n->assigns.n; i++) early += !n->assigns.at[i].late;
    if (!words.n) {
        for (size_t i = 0; i < n->assigns.n; i++) sh_assign(sh, &n->assigns.at[i], false);
        if (sh->captures == captures) sh->status = 0; /* else the last $( )'s */
        return;
    }
    struct {
        const char *name;
        bool was;
        ShVar old;
    } before[16];
    size_t n_before = 0;
    for (size_t i = 0; early && i < n->assigns.n && n_before < COUNT(before);
         i++) { /* A=1 command: for its time only */
        const ShAssign *a = &n->assigns.at[i];
        if (a->late) continue;
        const char *name = sh_raw(sh, a->name);
        const ShVar *v = sh_find(sh, name);
        before[n_before].name = name, before[n_before].was = v != NULL;
        if (v) before[n_before].old = *v;
        n_before++;
        sh_assign(sh, a, false);
    }
    sh->line = n->line;
    sh_command(sh, &words, lines.at, n);
    while (n_before-- > 0) {
        if (before[n_before].was) *sh_var(sh, before[n_before].name) = before[n_before].old;
        else sh_unset(sh, before[n_before].name);
    }
}

/* ---- the other kinds */
static void pipeline(Sh *sh, const ShNode *n) {
    Text *outer = sh->stdout_;
    const char *in = sh->stdin_;
    sh->asking += n->flag;
    if (!n->a->next) sh_eval(sh, n->a);
    for (const ShNode *c = n->a; n->a->next && c; c = c->next) {
        Text out = { 0 };
        sh->stdout_ = c->next ? &out : outer;
        subshell(sh, &(Job){ .node = c }, false);
        sh->stdin_ = text_of(&out);
    }
    sh->asking -= n->flag;
    sh->stdout_ = outer, sh->stdin_ = in;
    if (n->flag && sh->status >= 0) sh->status = !sh->status;
}

static void loop_end(Sh *sh) {
    if (sh->flow != FLOW_BREAK && sh->flow != FLOW_CONTINUE) return;
    if (--sh->flow_n <= 0) sh->flow = FLOW_NONE;
}

/* The body once more; false: the loop is over. */
static bool once(Sh *sh, const ShNode *n) {
    sh_eval(sh, n->b);
    bool go_on = sh->flow == FLOW_NONE || (sh->flow == FLOW_CONTINUE && sh->flow_n <= 1);
    loop_end(sh);
    return go_on;
}

static void for_each(Sh *sh, const ShNode *n) {
    Strs values = { 0 };
    const char *name = sh_raw(sh, n->words.at[0]);
    if (n->flag) sh_words(sh, &values, n->words.at + 1, n->words.n - 1, NULL);
    else values = sh->params;
    sh->status = 0;
    for (size_t i = 0; i < values.n; i++) {
        if (sh_is_unknown(values.at[i])) {
            sh_note(sh, SHELL_ASSUMED, n->line, "a loop over %s is left out", values.at[i]);
            continue;
        }
        sh_set(sh, name, values.at[i]);
        if (!once(sh, n)) break;
    }
}

/* ((...)): a mistake in it fails, where one in $((...)) drops the line. */
static bool sum_holds(Sh *sh, Raw w) {
    if (w.at == w.end) return true;
    const Kept kept = keep(sh);
    ShEscape e;
    escape_to(sh, &e);
    int how = setjmp(e.at);
    if (how) restore(sh, &kept);
    sh->escape = e.outer;
    if (how && how != JUMP_LINE) longjmp(sh->escape->at, how);
    if (how) return sh->status = 1, false;
    sh->escape = &e;
    int64_t x;
    sh->line = w.line;
    bool known = sh_sum(sh, sh_here(sh, w, true), &x);
    sh->escape = e.outer;
    sh->status = !known ? -1 : !x;
    return sh_true(sh, mem_printf(sh->mem, "((%s))", sh_raw(sh, w)));
}

static void for_sum(Sh *sh, const ShNode *n) {
    sum_holds(sh, n->words.at[0]);
    while (sum_holds(sh, n->words.at[1]) && once(sh, n)) sum_holds(sh, n->words.at[2]);
    sh->status = 0;
}

static void while_loop(Sh *sh, const ShNode *n) {
    int64_t assumed = sh->assumed;
    for (int turns = 0;; turns++) {
        if (turns > 20 && sh->assumed > assumed) { /* it waits for what no program will tell it here */
            sh_note(sh, SHELL_ASSUMED, n->line, "a loop that waits is left");
            return;
        }
        ask(sh, n->a);
        if (sh->flow != FLOW_NONE) return;
        bool unknown = sh->status < 0, yes = sh_true(sh, words_of(sh, n->a));
        sh->status = 0;
        if (unknown || yes == n->flag || !once(sh, n)) return;
    }
}

static void case_of(Sh *sh, const ShNode *n) {
    const char *text = sh_text(sh, n->words.at[0], EX_TEXT);
    sh->status = 0;
    for (const ShNode *arm = n->a; arm; arm = arm->next)
        for (size_t i = 0; i < arm->words.n; i++) {
            const char *pattern = sh_text(sh, arm->words.at[i], EX_PATTERN);
            bool same = sh_is_unknown(text) ? !strcmp(pattern, "*") : sh_match(sh, pattern, text, strlen(text));
            if (same && sh_is_unknown(text))
                sh_note(sh, SHELL_ASSUMED, n->line, "a case of %s is taken to be its last one", text);
            if (same) {
                sh_eval(sh, arm->b);
                return;
            }
        }
}

static void define(Sh *sh, const ShNode *n) {
    const char *name = sh_raw(sh, n->words.at[0]);
    sh->status = 0;
    for (size_t i = 0; i < sh->funcs.n; i++)
        if (!strcmp(sh->funcs.at[i].name, name)) {
            sh->funcs.at[i].body = n->b;
            return;
        }
    SH_PUSH(sh, sh->funcs, (ShFunc){ name, n->b });
}

static void list(Sh *sh, const ShNode *n) {
    for (const ShNode *c = n->a; c && sh->flow == FLOW_NONE; c = c->next) {
        if (c->behind) {
            subshell(sh, &(Job){ .node = c }, false);
            sh->status = 0;
        } else sh_eval(sh, c);
    }
}

/* set -e: a command that is known to fail ends the script, unless somebody asked how it went. */
static void mind_failure(Sh *sh, const ShNode *n) {
    bool minded = n->kind == SH_SIMPLE || n->kind == SH_COND || n->kind == SH_SUM || n->kind == SH_SUBSHELL
                  || (n->kind == SH_PIPE && !n->flag);
    if (!minded || sh->status <= 0 || !sh->errexit || sh->asking || sh->flow != FLOW_NONE) return;
    sh_stop(sh, "%s fails, and `set -e` ends the script", words_of(sh, n));
}

static void eval(Sh *sh, const ShNode *n) {
    switch (n->kind) {
    case SH_SIMPLE: simple(sh, n); break;
    case SH_PIPE: pipeline(sh, n); break;
    case SH_AND:
    case SH_OR: either(sh, n); break;
    case SH_LIST: list(sh, n); break;
    case SH_IF:
        if (answer(sh, n->a)) sh_eval(sh, n->b);
        else if (sh->flow == FLOW_NONE && (sh->status = 0, n->c)) sh_eval(sh, n->c);
        break;
    case SH_FOR: for_each(sh, n); break;
    case SH_FOR_SUM: for_sum(sh, n); break;
    case SH_WHILE: while_loop(sh, n); break;
    case SH_CASE: case_of(sh, n); break;
    case SH_ARM:
    case SH_GROUP: sh_eval(sh, n->b); break;
    case SH_SUBSHELL: subshell(sh, &(Job){ .node = n->b }, false); break;
    case SH_FUNCTION: define(sh, n); break;
    case SH_COND: sh->status = sh_cond(sh, &n->words); break;
    case SH_SUM: sum_holds(sh, n->words.at[0]); break;
    }
}

void sh_eval(Sh *sh, const ShNode *n) {
    if (!n || sh->flow != FLOW_NONE) return;
    if (++sh->depth > SH_MAX_DEPTH) sh_fail(sh, n->line, "nested too deeply");
    if (++sh->steps > SH_MAX_STEPS) sh_fail(sh, n->line, "this runs for too many steps to be evaluated");
    Text *out = sh->stdout_;
    const char *in = sh->stdin_;
    redirect(sh, n);
    eval(sh, n);
    if (n->redirs.n) sh->stdout_ = out, sh->stdin_ = in;
    if (n->kind == SH_SIMPLE || n->kind == SH_COND || n->kind == SH_SUM) sh->line = n->line;
    mind_failure(sh, n);
    sh->depth--;
}

bool shell_read(ShellOut *out, const ShellIn *in, Mem *mem, Err *err) {
    Sh sh = { .mem = mem, .in = in, .out = out, .err = err, .cwd = in->cwd, .old_cwd = in->cwd, .line = 1 };
    for (size_t i = 0; i < in->n; i++)
        if (!in->text[i] || in->text[i] == SH_MARK || in->text[i] == SH_MARK_END)
            return err_set(err, "%s: this is not a shell script", in->path);
    if (in->n > SH_MAX_VALUE) return err_set(err, "%s: a script of %zu bytes is not read", in->path, in->n);
    ShEscape top = { .outer = NULL };
    sh.escape = &top;
    int how = setjmp(top.at);
    if (how) return how != JUMP_FAIL;
    sh_set(&sh, "PWD", in->cwd);
    sh_set_list(&sh, "BASH_SOURCE", &(Strs){ (const char **)&in->path, 1, 1 });
    sh.uses = MEM_NEW(mem, ShUses);
    for (size_t i = 0; i < in->n_vars; i++) {
        sh_uses(&sh, in->vars[i].name, in->vars[i].value, !strcmp(in->vars[i].name, "HOME"));
        sh_set(&sh, in->vars[i].name, in->vars[i].value);
        sh_var(&sh, in->vars[i].name)->given = true;
    }
    for (size_t i = 0; i < in->n_args; i++) SH_PUSH(&sh, sh.params, in->args[i]);
    sh_run_text(&sh, in->text, in->n, 1);
    for (size_t i = 0; i < sh.uses->n; i++)
        if (!sh.uses->at[i].read)
            sh_note(&sh, SHELL_UNUSED, sh.uses->at[i].line, "%s=%.100s", sh.uses->at[i].name, sh.uses->at[i].how);
    return true;
}

void shell_out_free(ShellOut *out) {
    vec_free(out->launches.at);
    vec_free(out->notes.at);
    vec_free(out->knobs.at);
    *out = (ShellOut){ 0 };
}
