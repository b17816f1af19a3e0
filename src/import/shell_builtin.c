/* shell_builtin.c - the commands of the shell itself.  One table at the end. */
#include "import/shell_int.h"

#include "base/file.h"

#include <stdlib.h>

static int nothing(Sh *sh, Strs *w, const ShNode *n) { return (void)sh, (void)w, (void)n, 0; }
static int fails(Sh *sh, Strs *w, const ShNode *n) { return (void)sh, (void)w, (void)n, 1; }

static int read_line(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    const char *list = NULL;
    bool all = false;
    size_t i = 1;
    for (; i < w->n && w->at[i][0] == '-'; i++) {
        char last = w->at[i][strlen(w->at[i]) - 1];
        if (last == 'a' && i + 1 < w->n) list = w->at[++i];
        else if (last == 'd' && i + 1 < w->n) all = !*w->at[++i];
        else if ((last == 'p' || last == 't' || last == 'n') && i + 1 < w->n) i++;
    }
    bool there = sh->stdin_ && *sh->stdin_;
    const char *from = sh->stdin_ ? sh->stdin_ : sh_unknown(sh, "what `read` reads"),
               *nl = all || !sh->stdin_ ? NULL : strchr(from, '\n');
    size_t len = nl ? (size_t)(nl - from) : strlen(from);
    if (sh->stdin_) sh->stdin_ = nl ? nl + 1 : from + len;
    while (all && len && from[len - 1] == '\n') len--;
    const char *ifs = sh_get(sh, "IFS");
    if (!ifs) ifs = " \t\n";
    Strs parts = { 0 };
    size_t names = list ? SIZE_MAX : w->n - i;
    for (const char *s = from, *end = from + len; s < end;) {
        while (s < end && strchr(" \t\n", *s) && strchr(ifs, *s)) s++;
        const char *to = s;
        while (to < end && (parts.n + 1 == names || !strchr(ifs, *to))) to++;
        const char *cut = to;
        while (parts.n + 1 == names && cut > s && strchr(" \t\n", cut[-1]) && strchr(ifs, cut[-1])) cut--;
        if (s < end) SH_PUSH(sh, parts, mem_str(sh->mem, s, (size_t)(cut - s)));
        s = to + (to < end);
    }
    if (list) sh_set_list(sh, list, &parts);
    for (size_t k = 0; !list && i + k < w->n; k++) sh_set(sh, w->at[i + k], k < parts.n ? parts.at[k] : "");
    if (!list && i >= w->n) sh_set(sh, "REPLY", mem_str(sh->mem, from, len));
    return !there;
}

/* ---- where it is */
/* ---- folders and files */
static int pwd(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    return sh_answer(sh, &(Strs){ w->at, 1, 1 }, sh->cwd);
}

static int cd(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    const char *to = w->n > 1 ? w->at[w->n - 1] : sh_get(sh, "HOME");
    if (to && !strcmp(to, "-") && w->n == 2) to = sh->old_cwd;
    if (!to || !strcmp(to, "--")) to = "/";
    sh->old_cwd = sh->cwd;
    if (*to) sh->cwd = sh_path(sh, to);
    sh_set(sh, "PWD", sh->cwd);
    return 0;
}

/* ---- variables */
static int declare(Sh *sh, Strs *w, const ShNode *n) {
    bool keyed = false, list = false,
         local = sh->functions && strcmp(w->at[0], "export") && strcmp(w->at[0], "readonly");
    for (size_t i = 1; i < w->n; i++) {
        const char *s = w->at[i], *eq = strchr(s, '=');
        if (*s == '-') keyed |= strchr(s, 'A') != NULL, list |= strchr(s, 'a') != NULL, local &= !strchr(s, 'g');
        if (*s == '-' || *s == '+') continue;
        if (eq && sh_is_name(s, (size_t)(eq - s))) { /* export $PAIR */
            sh_set(sh, mem_str(sh->mem, s, (size_t)(eq - s)), eq + 1);
            continue;
        }
        sh_uses(sh, s, NULL, true); /* it is somebody else's now */
        if (!sh_is_name(s, strlen(s)) || !strcmp(w->at[0], "export")) continue;
        if (local) sh_local(sh, s);
        if (keyed || list) sh_var(sh, s)->keyed = keyed;
    }
    for (size_t i = 0; i < n->assigns.n; i++) {
        if (!n->assigns.at[i].late) continue;
        if (keyed) sh_var(sh, sh_raw(sh, n->assigns.at[i].name))->keyed = true;
        sh_assign(sh, &n->assigns.at[i], local && !keyed);
    }
    return 0;
}

static int unset(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    for (size_t i = 1; i < w->n; i++) {
        const char *open = strchr(w->at[i], '[');
        ShVar *v = open ? sh_find(sh, mem_str(sh->mem, w->at[i], (size_t)(open - w->at[i]))) : NULL;
        if (v) sh_unset_at(sh, v, mem_str(sh->mem, open + 1, strcspn(open + 1, "]")));
        else sh_unset(sh, w->at[i]);
    }
    return 0;
}

static int let(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    int64_t x = 0;
    bool known = true;
    for (size_t i = 1; i < w->n; i++) known = sh_sum(sh, w->at[i], &x);
    return known ? !x : -1;
}

static int shift(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    int64_t by = 1;
    if (w->n > 1 && !sh_sum(sh, w->at[1], &by)) by = 1;
    bool ok = by >= 0 && (size_t)by <= sh->params.n;
    if (ok) sh->params = (Strs){ sh->params.at + by, sh->params.n - (size_t)by, sh->params.n - (size_t)by };
    return !ok;
}

static int set(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    for (size_t i = 1; i < w->n; i++) {
        const char *s = w->at[i];
        bool on = *s == '-';
        if ((*s != '-' && *s != '+') || !strcmp(s, "--")) {
            i += !strcmp(s, "--");
            sh->params = (Strs){ w->at + i, w->n - i, w->n - i };
            return 0;
        }
        if (strchr(s, 'e')) sh->errexit = on;
        if (strchr(s, 'u')) sh->nounset = on;
        if (!strchr(s, 'o') || i + 1 >= w->n) continue;
        i++;
        if (!strcmp(w->at[i], "errexit")) sh->errexit = on;
        if (!strcmp(w->at[i], "nounset")) sh->nounset = on;
    }
    return 0;
}

/* ---- the course of things */
static int leave(Sh *sh, Strs *w, ShFlow flow) {
    int64_t code = sh->status < 0 ? 0 : sh->status;
    if (w->n > 1 && !sh_sum(sh, w->at[1], &code)) code = 1;
    sh->flow = flow;
    return (int)(code & 255);
}

static int exit_here(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    int code = leave(sh, w, FLOW_EXIT);
    if (code && !sh->inside)
        sh_note(sh, SHELL_STOPPED, sh->line, "the script ends here with `exit %d`%s%.150s", code,
                sh->said ? ", having said: " : "", sh->said ? sh->said : "");
    return code;
}

static int return_here(Sh *sh, Strs *w, const ShNode *n) { return (void)n, leave(sh, w, FLOW_RETURN); }

static int out_of_loop(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    int64_t levels = 1;
    if (w->n > 1 && !sh_sum(sh, w->at[1], &levels)) levels = 1;
    sh->flow = *w->at[0] == 'b' ? FLOW_BREAK : FLOW_CONTINUE;
    sh->flow_n = levels < 1 ? 1 : levels > 100 ? 100 : (int)levels;
    return 0;
}

/* Only a file in the script's own folder is read: anything else is the machine's, not the script's. */
static int source(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    Err err;
    Buf text = { 0 };
    const char *path = w->n > 1 ? sh_path(sh, w->at[1]) : "", *script = sh_path(sh, sh->in->path),
               *slash = strrchr(script, '/');
    size_t folder = slash ? (size_t)(slash + 1 - script) : 0;
    bool own = folder && !strncmp(path, script, folder) && sh->in->look && !sh_is_unknown(path);
    if (!own || sh->depth > 60 || !file_exists(path) || !file_read(&text, path, &err)) {
        sh_note(sh, SHELL_SKIPPED, sh->line, "source %s (%s)", w->n > 1 ? w->at[1] : "",
                own ? "it is not there" : "only files beside the script are read");
        return own ? 1 : -1;
    }
    size_t size = text.n < SH_MAX_VALUE ? text.n : 0;
    char *copy = mem_str(sh->mem, text.data ? text.data : "", size);
    buf_free(&text);
    for (size_t i = 0; i < size; i++)
        if (!copy[i] || copy[i] == SH_MARK || copy[i] == SH_MARK_END)
            sh_fail(sh, sh->line, "%s is not a shell script", path);
    sh->status = 0;
    sh_run_text(sh, copy, size, 1);
    if (sh->flow == FLOW_RETURN) sh->flow = FLOW_NONE;
    return sh->status;
}

static int eval_words(Sh *sh, Strs *w, const ShNode *n) {
    Text t = { 0 };
    for (size_t i = 1; i < w->n; i++) {
        sh_puts(sh, &t, w->at[i]);
        sh_put(sh, &t, " ", 1);
    }
    if (t.n && sh_is_unknown(t.at)) return sh_not_known(sh, w, n);
    sh->depth += 2;
    sh_run_text(sh, text_of(&t), t.n, sh->line);
    sh->depth -= 2;
    return sh->status;
}

/* bash -c 'commands' */
static int another_shell(Sh *sh, Strs *w, const ShNode *n) {
    if (w->n > 2 && !strcmp(w->at[1], "-c") && !sh_is_unknown(w->at[2])) {
        const char *said = sh_capture(sh, w->at[2], strlen(w->at[2]), sh->line);
        if (*said) sh_answer(sh, &(Strs){ 0 }, said);
        return sh->status;
    }
    sh_note(sh, SHELL_SKIPPED, sh->line, "%s %s (another script: import that one)", w->at[0], w->n > 1 ? w->at[1] : "");
    return sh_not_known(sh, w, n);
}

/* exec, command, builtin: the rest is the command. */
static int the_rest(Sh *sh, Strs *w, const ShNode *n) {
    bool exec = !strcmp(w->at[0], "exec");
    if (w->n < 2) return 0;
    if (!strcmp(w->at[1], "-v") || !strcmp(w->at[1], "-V")) return sh_not_known(sh, w, n);
    int *lines = MEM_ARRAY(sh->mem, int, w->n);
    for (size_t i = 0; i < w->n; i++) lines[i] = sh->line;
    Strs rest = { w->at + 1, w->n - 1, w->n - 1 };
    sh_command(sh, &rest, lines, n);
    if (exec) sh->flow = FLOW_EXIT;
    return sh->status;
}

static int test(Sh *sh, Strs *w, const ShNode *n) {
    (void)n;
    Strs words = { w->at + 1, w->n - 1, w->n - 1 };
    if (!strcmp(w->at[0], "[")) {
        if (!words.n || strcmp(words.at[words.n - 1], "]")) sh_fail(sh, sh->line, "a [ is never closed");
        words.n--;
    }
    return sh_test(sh, &words);
}

/* clang-format off */
static const struct { const char *name; ShBuiltin *fn; } BUILTINS[] = {
    { "true", nothing },          { ":", nothing },             { "false", fails },           { "read", read_line },
    { "pwd", pwd },               { "cd", cd },                 { "pushd", cd },              { "popd", nothing },
    { "declare", declare },       { "typeset", declare },       { "local", declare },         { "export", declare },
    { "readonly", declare },      { "unset", unset },           { "let", let },               { "shift", shift },
    { "set", set },               { "exit", exit_here },        { "return", return_here },    { "break", out_of_loop },
    { "continue", out_of_loop },  { "source", source },         { ".", source },              { "eval", eval_words },
    { "bash", another_shell },    { "sh", another_shell },      { "exec", the_rest },         { "command", the_rest },
    { "builtin", the_rest },      { "test", test },             { "[", test },                { "type", sh_not_known },
    { "which", sh_not_known },    { "hash", sh_not_known },     { "getopts", fails },
};
/* clang-format on */

ShBuiltin *sh_builtin(const char *name) {
    for (size_t i = 0; i < COUNT(BUILTINS); i++)
        if (!strcmp(BUILTINS[i].name, name)) return BUILTINS[i].fn;
    return sh_program(name);
}

/* Commands that do something to the machine: their success is what the script counts on. */
bool sh_does_nothing(const char *name, bool *silent) {
    static const char *const quiet[] = { "mkdir", "sleep", "ulimit", "trap",  "wait",
                                         "umask", "shopt", "tee",    "clear", "alias" };
    static const char *const done[] = { "touch", "rm",     "cp",    "mv",    "ln",   "chmod",   "ray",
                                        "pip",   "pip3",   "wandb", "git",   "wget", "curl",    "conda",
                                        "hf",    "module", "kill",  "pkill", "apt",  "apt-get", "huggingface-cli",
                                        "ls" };
    *silent = false;
    for (size_t i = 0; i < COUNT(quiet); i++)
        if (!strcmp(name, quiet[i])) return *silent = true;
    for (size_t i = 0; i < COUNT(done); i++)
        if (!strcmp(name, done[i])) return true;
    return false;
}
