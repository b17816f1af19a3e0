/* verb_import_verl.c - `hone import-verl`: a launch script of verl's, or its settings, as a configuration of hone's. */
#include "base/file.h"
#include "cmd/cmd.h"
#include "import/import_verl.h"
#include "import/shell.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    const char *out, *model;
    int64_t launch;
    bool args, strict;
} Args;

/* clang-format off */
static const Opt options[] = {
    { "out",    OPT_STR,  offsetof(Args, out),    "FILE", "write the configuration here; standard output" },
    { "strict", OPT_FLAG, offsetof(Args, strict), "",     "a setting that is not supported is an error" },
    { "args",   OPT_FLAG, offsetof(Args, args),   "",     "print the words of every launch as JSON arrays, and stop" },
    { "launch", OPT_INT,  offsetof(Args, launch), "N",    "which of several launches to take; the first is 1", 1, 1e6 },
    { "model",  OPT_STR,  offsetof(Args, model),  "PATH",
      "what the model is, if it is not at its path: folder, config.json" },
    { 0 },
};
/* clang-format on */

/* What stands on the command line: the words before "--", those behind it, hone's own options wherever they are. */
typedef struct {
    const char *words[512], *script_args[512];
    int n_words, n_args;
} Line;

static bool is_own(const Opt **own, const char *word) {
    for (const Opt *o = options; o->name; o++)
        if (!strncmp(word, "--", 2) && !strncmp(word + 2, o->name, strlen(o->name))
            && (!word[2 + strlen(o->name)] || word[2 + strlen(o->name)] == '='))
            return *own = o, true;
    return false;
}

static int read_line(const Verb *v, Args *a, Line *l, int argc, char **argv) {
    char *own[1024];
    int n = 0, split = 0;
    while (split < argc && strcmp(argv[split], "--")) split++;
    if (argc > 500) return cmd_usage(v, "%d words are too many", argc);
    for (int i = 0; i < split; i++) own[n++] = argv[i];
    for (int i = split + 1; i < argc; i++) {
        const Opt *o;
        if (!is_own(&o, argv[i])) {
            l->script_args[l->n_args++] = argv[i];
            continue;
        }
        own[n++] = argv[i];
        if (o->kind != OPT_FLAG && !strchr(argv[i], '=') && i + 1 < argc) own[n++] = argv[++i];
    }
    return opt_parse(v, a, l->words, 1, COUNT(l->words), &l->n_words, n, own);
}

/* ---- the script */
static const char *const SAYS[] = {
    [SHELL_LOST] = "is lost: a continued line ended before it, and bash takes it for a command",
    [SHELL_UNSET] = "is not set: it is empty",
    [SHELL_ASSUMED] = "",
    [SHELL_SKIPPED] = "is not run",
    [SHELL_STOPPED] = "",
    [SHELL_UNUSED] = "is never used by the script",
};

static void say_notes(const ShellOut *o, const char *path) {
    for (size_t i = 0; i < o->notes.n; i++) {
        const ShellNote *n = &o->notes.at[i];
        fprintf(stderr, "%s:%d: %s%s%s\n", path, n->line, n->text, *SAYS[n->kind] ? " " : "", SAYS[n->kind]);
    }
}

static void say_knobs(const ShellOut *o) {
    if (o->knobs.n) fputs("\nvariables the script reads, with their defaults; give NAME=VALUE for others:\n ", stderr);
    for (size_t i = 0; i < o->knobs.n; i++)
        fprintf(stderr, " %s=%s%s", o->knobs.at[i].name, o->knobs.at[i].value, o->knobs.at[i].given ? " (given)" : "");
    if (o->knobs.n) fputc('\n', stderr);
}

static bool read_script(ShellOut *out, const Line *l, const char *text, size_t n, Mem *mem, Err *err) {
    ShellVar vars[513];
    size_t n_vars = 0;
    char cwd[4096];
    if (!getcwd(cwd, sizeof cwd)) return err_set(err, "the working directory is not to be had");
    const char *home = getenv("HOME");
    if (home) vars[n_vars++] = (ShellVar){ "HOME", home };
    for (int i = 1; i < l->n_words; i++) {
        const char *eq = strchr(l->words[i], '=');
        if (!eq || memchr(l->words[i], '.', (size_t)(eq - l->words[i]))) continue; /* a setting */
        vars[n_vars++] = (ShellVar){ mem_str(mem, l->words[i], (size_t)(eq - l->words[i])), eq + 1 };
    }
    ShellIn in = {
        .path = l->words[0],
        .text = text,
        .n = n,
        .cwd = mem_str(mem, cwd, strlen(cwd)),
        .vars = vars,
        .n_vars = n_vars,
        .args = l->script_args,
        .n_args = (size_t)l->n_args,
        .now = time(NULL),
        .cores = (int)sysconf(_SC_NPROCESSORS_ONLN),
        .look = true,
    };
    return shell_read(out, &in, mem, err);
}

static int print_args(const ShellOut *o) {
    int rc = 0;
    for (size_t i = 0; i < o->launches.n; i++) {
        const ShellLaunch *l = &o->launches.at[i];
        if (l->unknown) {
            fprintf(stderr, "%s\n", l->unknown);
            rc = 1;
            continue;
        }
        Buf b = { 0 };
        for (size_t k = 0; k < l->n; k++) {
            buf_puts(&b, k ? ", " : "[");
            json_put_str(&b, l->word[k], strlen(l->word[k]));
        }
        printf("%s]\n", b.data);
        buf_free(&b);
    }
    return rc;
}

/* ---- the launch */
static const char *module_of(const ShellLaunch *l) {
    for (size_t i = 0; i < l->n; i++) {
        if (!strcmp(l->word[i], "-m") && i + 1 < l->n) return l->word[i + 1];
        const char *slash = strrchr(l->word[i], '/'), *name = slash ? slash + 1 : l->word[i];
        if (!strncmp(name, "main_", 5) && strstr(name, ".py")) return l->word[i];
    }
    return NULL;
}

static bool trains(const ShellLaunch *l) {
    const char *m = module_of(l);
    return m && (strstr(m, "main") || strstr(m, "sft_trainer")) && !strstr(m, "main_gen") && !strstr(m, "main_eval");
}

static bool choose(const ShellLaunch **out, const ShellOut *o, int64_t which, Err *err) {
    int64_t found = 0;
    for (size_t i = 0; i < o->launches.n; i++)
        if (trains(&o->launches.at[i]) && ++found == (which ? which : 1)) *out = &o->launches.at[i];
    if (!found)
        return err_set(
            err, "no launch of a verl trainer was found (%zu other launches); `--args` shows what the script starts",
            o->launches.n);
    if (which > found) return err_set(err, "there are %lld launches", (long long)found);
    if (!which && found > 1)
        return err_set(err, "the script launches %lld trainings: choose one with --launch N (`--args` shows them)",
                       (long long)found);
    return !(*out)->unknown || err_set(err, "%s", (*out)->unknown);
}

static const char *flag(const ShellLaunch *l, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < l->n; i++) {
        if (!strncmp(l->word[i], name, n) && l->word[i][n] == '=') return l->word[i] + n + 1;
        if (!strcmp(l->word[i], name) && i + 1 < l->n) return l->word[i + 1];
    }
    return NULL;
}

/* A configuration of the user's own, named by --config-path and --config-name: read where it is, under what the
 * words set. */
static bool own_config(HydraSets *sets, const ShellLaunch *l, const char *script, Mem *mem, Err *err) {
    const char *name = flag(l, "--config-name"), *path = flag(l, "--config-path");
    if (!name || !strncmp(name, "ppo_", 4) || !strncmp(name, "sft_", 4)) return true;
    const char *slash = strrchr(script, '/'), *ext = strstr(name, ".yaml") ? "" : ".yaml";
    const char *tries[] = { mem_printf(mem, "%s/%s%s", path ? path : ".", name, ext),
                            mem_printf(mem, "%.*s/%s/%s%s", slash ? (int)(slash - script) : 1, slash ? script : ".",
                                       path ? path : ".", name, ext) };
    for (size_t i = 0; i < COUNT(tries); i++) {
        Buf text = { 0 };
        if (!file_exists(tries[i])) continue;
        bool ok = file_read(&text, tries[i], err) && hydra_yaml(sets, text.data ? text.data : "", text.n, mem, err);
        for (size_t k = 0; k < sets->n; k++) sets->at[k].line = 0; /* lines in the report are the script's */
        buf_free(&text);
        return ok || err_wrap(err, "%s", tries[i]);
    }
    fprintf(stderr, "note: %s is not here: only what the script sets itself is taken over\n", tries[0]);
    return true;
}

static bool launch_sets(HydraSets *sets, ImportIn *in, const ShellOut *o, const Args *a, Mem *mem, Err *err) {
    const ShellLaunch *l = NULL;
    for (size_t i = 0; !o->launches.n && i < o->notes.n; i++) /* a bare list of settings */
        if (o->notes.at[i].kind == SHELL_LOST) hydra_word(sets, o->notes.at[i].text, o->notes.at[i].line, mem);
    if (sets->n) return true;
    TRY(choose(&l, o, a->launch, err));
    in->module = module_of(l);
    in->config_name = flag(l, "--config-name");
    TRY(own_config(sets, l, in->script, mem, err));
    for (size_t i = 0; i < l->n; i++)
        if (l->word[i][0] != '-' && !hydra_word(sets, l->word[i], l->line[i], mem) && l->word[i] != in->module && i > 2
            && strcmp(l->word[i], "run"))
            fprintf(stderr, "%s:%d: note: '%s' is no setting\n", in->script, l->line[i], l->word[i]);
    return true;
}

/* ---- the whole */
static bool is_yaml(const char *path) {
    const char *dot = strrchr(path, '.');
    return dot && (!strcmp(dot, ".yaml") || !strcmp(dot, ".yml"));
}

static bool is_setting(const char *word) { return strchr(word, '=') || *word == '~' || *word == '+'; }

/* Script, YAML or bare settings -> settings.  *done: the answer is given already. */
static bool gather(HydraSets *sets, ImportIn *in, const Line *l, const Args *a, bool *done, int *rc, Mem *mem,
                   Err *err) {
    bool file = !is_setting(l->words[0]);
    Buf text = { 0 };
    if (!file && a->args) return err_set(err, "--args wants a script");
    if (file) TRY(file_read(&text, l->words[0], err));
    const char *copy = mem_str(mem, text.data ? text.data : "", text.n);
    size_t n = text.n;
    buf_free(&text);
    if (file && is_yaml(l->words[0])) {
        if (!hydra_yaml(sets, copy, n, mem, err)) return err_wrap(err, "%s", l->words[0]);
    } else if (file) {
        ShellOut out = { 0 };
        bool ok = read_script(&out, l, copy, n, mem, err);
        say_notes(&out, l->words[0]);
        if (a->args) *rc = print_args(&out), *done = true;
        else if (ok || out.launches.n) ok = launch_sets(sets, in, &out, a, mem, err);
        if (ok && !*done) say_knobs(&out);
        shell_out_free(&out);
        TRY(ok);
    }
    for (int i = file; !*done && i < l->n_words; i++) {
        const char *eq = strchr(l->words[i], '=');
        bool var = file && !is_yaml(l->words[0]) && eq && !memchr(l->words[i], '.', (size_t)(eq - l->words[i]));
        if (!var && !hydra_word(sets, l->words[i], 0, mem))
            return err_set(err, "'%s' is neither NAME=VALUE nor a setting", l->words[i]);
    }
    return true;
}

/* What was made must be what hone takes. */
static void check(Import *im, const Buf *yaml) {
    Config c;
    Err err;
    if (!config_load_text(&c, im->c.verb, "it", yaml->data, yaml->n, NULL, 0, &err)) {
        fprintf(stderr, "note: hone does not take this as it is: %s\n", err.msg);
        return;
    }
    if (!config_check_settings(&c, &err)) fprintf(stderr, "note: hone will refuse this as it is: %s\n", err.msg);
    config_free(&c);
}

static int finish(const Verb *v, Import *im, const Args *a) {
    Buf table = { 0 }, yaml = { 0 };
    Err err;
    int bad = 0;
    for (size_t i = 0; i < im->rows.n; i++) bad += im->rows.at[i].fate == FATE_NOT_SUPPORTED;
    import_table(&table, im);
    import_yaml(&yaml, im);
    fputs(table.data ? table.data : "", a->out ? stdout : stderr);
    for (size_t i = 0; i < im->notes.n; i++) fprintf(a->out ? stdout : stderr, "note: %s\n", im->notes.at[i]);
    check(im, &yaml);
    bool ok = !im->refused || err_set(&err, "%s", im->refused);
    if (ok && bad && a->strict) ok = err_set(&err, "%d settings are not supported (--strict)", bad);
    if (ok && a->out) ok = file_write(a->out, yaml.data, yaml.n, &err);
    else if (ok) fputs(yaml.data, stdout);
    if (ok && a->out) printf("\n%s: %d settings are not supported, and are comments in it\n", a->out, bad);
    buf_free(&table);
    buf_free(&yaml);
    return ok ? 0 : cmd_fail(v, &err);
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { 0 };
    Line *l = &(Line){ 0 };
    Err err;
    int rc = read_line(v, &a, l, argc, argv);
    if (rc >= 0) return rc;
    Mem mem = { 0 };
    HydraSets sets = { 0 };
    bool done = false;
    ImportIn in = { .script = is_setting(l->words[0]) ? "command line" : l->words[0], .model = a.model };
    rc = 0;
    if (!gather(&sets, &in, l, &a, &done, &rc, &mem, &err)) rc = cmd_fail(v, &err), done = true;
    if (!done) {
        Import im;
        import_verl(&im, &in, sets, &mem);
        rc = finish(v, &im, &a);
        import_free(&im);
    } else vec_free(sets.at);
    mem_free(&mem);
    return rc;
}

const Verb verb_import_verl = {
    .name = "import-verl",
    .usage = "SCRIPT.sh|CONFIG.yaml|key=value... [NAME=value ...] [-- script arguments] [--out run.yaml]",
    .summary = "a launch script of verl's as a configuration of hone's",
    .options = options,
    .run = run,
    .detail = "The script is read, never executed: NAME=value sets its environment, key.with.dots=value adds a setting "
              "behind its own.\n"
              "Every setting is taken over, taken over with a change, not needed here (and why), or not supported.\n",
};
