/* test_shell.c - launch scripts as bash reads them: twelve with the words that bash 5 made of them
 * (tests/data/verl_import), then what bash cannot say: unknown values, what was assumed, what is lost or unset,
 * limits.  tests/cmd/import_verl.sh asks the bash of this machine about many more. */
#include "base/file.h"
#include "base/json.h"
#include "test.h"
#include "import/shell.h"

#include <unistd.h>

static Mem mem;

typedef struct {
    ShellOut out;
    bool ok;
    Err err;
} Read;

static Read read_text(const char *path, const char *text, const ShellVar *vars, size_t n_vars, const char *const *args,
                      size_t n_args) {
    Read r = { 0 };
    ShellIn in = { .path = path,
                   .text = text,
                   .n = strlen(text),
                   .cwd = "/srv/here",
                   .vars = vars,
                   .n_vars = n_vars,
                   .args = args,
                   .n_args = n_args,
                   .now = 86400,
                   .cores = 6,
                   .look = true };
    r.ok = shell_read(&r.out, &in, &mem, &r.err);
    return r;
}

static void expect_words(const char *name, const ShellLaunch *l, const Json *want) {
    EXPECT(l->n == want->n, "%s: %zu words, bash makes %zu", name, l->n, want->n);
    for (size_t i = 0; i < l->n && i < want->n; i++)
        EXPECT(!strcmp(l->word[i], want->items[i].str), "%s: '%s', bash makes '%s'", name, l->word[i],
               want->items[i].str);
}

/* The notes of a kind are exactly the names that are wanted. */
static void expect_notes(const char *name, const Read *r, ShellNoteKind kind, const Json *want) {
    size_t found = 0, n = want ? want->n : 0;
    for (size_t i = 0; i < r->out.notes.n; i++) {
        if (r->out.notes.at[i].kind != kind) continue;
        EXPECT(found < n && json_is_str(&want->items[found], r->out.notes.at[i].text), "%s: a note '%s'", name,
               r->out.notes.at[i].text);
        found++;
    }
    EXPECT(found == n, "%s: %zu notes of kind %d, %zu are wanted", name, found, (int)kind, n);
}

static void golden_case(const char *name, const char *text, const Json *c) {
    const Json *env = json_get(c, "env"), *args = json_get(c, "args"), *argv = json_get(c, "argv");
    ShellVar vars[16];
    const char *words[16];
    for (size_t i = 0; i < env->n; i++) vars[i] = (ShellVar){ env->members[i].key, env->members[i].value.str };
    for (size_t i = 0; i < args->n; i++) words[i] = args->items[i].str;
    Read r = read_text(name, text, vars, env->n, words, args->n);
    EXPECT(r.ok, "%s: %s", name, r.err.msg);
    EXPECT(r.out.launches.n == argv->n, "%s: %zu launches, bash makes %zu", name, r.out.launches.n, argv->n);
    for (size_t i = 0; i < r.out.launches.n && i < argv->n; i++)
        expect_words(name, &r.out.launches.at[i], &argv->items[i]);
    expect_notes(name, &r, SHELL_LOST, json_get(c, "lost"));
    expect_notes(name, &r, SHELL_UNSET, json_get(c, "unset"));
    shell_out_free(&r.out);
}

static void golden(void) {
    Buf b = { 0 };
    Json all;
    Err err;
    CHECK(file_read(&b, FIXTURE("verl_import/expected.json"), &err) && json_parse(&all, b.data, b.n, &mem, &err), "%s",
          err.msg);
    for (size_t i = 0; i < all.n; i++) {
        Buf text = { 0 };
        CHECK(file_read(&text, mem_printf(&mem, FIXTURE("verl_import/%s"), all.members[i].key), &err), "%s", err.msg);
        for (size_t k = 0; k < all.members[i].value.n; k++)
            golden_case(all.members[i].key, text.data, &all.members[i].value.items[k]);
        buf_free(&text);
    }
    EXPECT(all.n == 12, "%zu scripts", all.n);
    buf_free(&b);
}

/* ---- what is not known: words joined by blanks, a note that must be there, the error where a launch holds
 * something unknown */
static const struct {
    const char *text, *words, *note, *unknown;
} CASES[] = {
    { "python3 $(date +%Y-%m-%d) $(nproc) $(pwd)", "python3 1970-01-02 6 /srv/here", NULL, NULL },
    { "X=$(nvidia-smi -L | wc -l); python3 a", "python3 a", NULL, NULL },
    { "X=$(nvidia-smi -L | wc -l)\npython3 a n=$X", "python3 a n=?", NULL,
      "run.sh:2: n=?: the ? is $(nvidia-smi -L | wc -l) (line 1)" },
    { "python3 $(which nvcc && echo A || echo B)", "python3 B", "`which nvcc` is not run: it counts as failed", NULL },
    { "python3 $(nvcc --version >/dev/null 2>&1 && echo A || echo B)", "python3 B", "`nvcc --version` is not run",
      NULL },
    { "if nvidia-smi; then python3 a; else python3 b; fi", "python3 b", "`nvidia-smi` is not run: it counts as failed",
      NULL },
    { "nvidia-smi || exit 1\npython3 a", "python3 a", "`nvidia-smi` is not run: it counts as done", NULL },
    /* Python asked about the machine launches nothing; Python that is to do something does, asked or not */
    { "X=$(python3 -c 'import torch_npu' 2>/dev/null && echo npu || echo gpu)\npython3 a $X", "python3 a gpu",
      "`python3 -c 'import torch_npu'` is not run: it counts as failed", NULL },
    { "if python -c 'import vllm'; then python3 a; else python3 b; fi", "python3 b",
      "`python -c 'import vllm'` is not run: it counts as failed", NULL },
    { "X=$(python3 -c 'print(8)')\npython3 a n=$X", "python3 a n=?", NULL,
      "run.sh:2: n=?: the ? is $(python3 -c 'print(8)') (line 1)" },
    { "X=$(python3 - <<'E'\nprint(8)\nE\n)\npython3 a", "python3 a", NULL, NULL },
    { "python3 -c 'print(8)'", "python3 -c print(8)", NULL, NULL },
    { "if python3 a; then echo done; fi", "python3 a", NULL, NULL },
    { "python3 a && echo done || exit 1", "python3 a", NULL, NULL },
    { "X=$(python3 a.py)", "python3 a.py", NULL, NULL },
    { "until nvidia-smi; do sleep 1; done; python3 a", "python3 a", NULL, NULL },
    { "while true; do R=`telnet h 1 | wc -l`; if [ $R -eq 1 ]; then break; else sleep 1; fi; done; python3 a",
      "python3 a", "a loop that waits is left", NULL },
    { "set -e\nfrobnicate x\npython3 a", "python3 a", "frobnicate x", NULL },
    { "X=$(hostname); Y=pre-$X; Z=${Y%-*}; python3 ${#X} $((X+1))", "python3 ? ?", NULL, "the ? is ${#X}" },
    { "X=$RANDOM; python3 port=$X", "python3 port=?", NULL, "the ? is $RANDOM" },
    { "for v in $(env | awk x); do unset $v; done; python3 a", "python3 a", "a loop over $(env | awk x) is left out",
      NULL },
    { "eval \"$(conda shell.bash hook)\"; conda activate x; python3 a", "python3 a", NULL, NULL },
    { "case $(uname) in Linux) python3 l;; *) python3 o;; esac", "python3 o", "a case of $(uname)", NULL },
    { "source /etc/profile; python3 a", "python3 a", "only files beside the script are read", NULL },
    { "bash other.sh; python3 a", "python3 a", "another script", NULL },
    { "if [ $# -lt 2 ]; then echo \"usage: run.sh GPUS PATH\"; exit 1; fi; python3 a", "",
      "`exit 1`, having said: usage: run.sh GPUS PATH", NULL },
    { "set -u; python3 $GIVEN; python3 $NOPE", "python3 yes",
      "NOPE is not set, and `set -u` ends the script; give NOPE=VALUE", NULL },
    { "GIVEN=$(hostname); python3 $GIVEN", "python3 yes", "GIVEN stays as given, instead of $(hostname)", NULL },
    { "python3 $(echo $(echo $(echo $(echo $(echo $(echo $(echo $(echo $(echo $(echo a))))))))))", "python3 a", NULL,
      NULL },
    { "ray job submit --address=x -- python3 -m m a.b=1", "python3 -m m a.b=1", NULL, NULL },
    { "torchrun --nproc 8 -m m x=1; uv run python -m n; /opt/bin/python3.11 z; srun --nodes=2 python y",
      "torchrun --nproc 8 -m m x=1;uv run python -m n;/opt/bin/python3.11 z;python y", NULL, NULL },
    { "python3 $(touch /tmp/hone-planted) `touch /tmp/hone-planted`; touch /tmp/hone-planted; $(touch "
      "/tmp/hone-planted)",
      "python3", "touch /tmp/hone-planted", NULL },
};

static const char *words_of(const Read *r) {
    Buf b = { 0 };
    for (size_t i = 0; i < r->out.launches.n; i++)
        for (size_t k = 0; k < r->out.launches.at[i].n; k++) {
            if (k || i) buf_puts(&b, k ? " " : ";");
            for (const char *s = r->out.launches.at[i].word[k]; *s; s++) {
                if (*s == 1) buf_putc(&b, '?'), s = strchr(s, 2);
                else buf_putc(&b, *s);
            }
        }
    const char *words = mem_printf(&mem, "%s", b.data ? b.data : "");
    buf_free(&b);
    return words;
}

static bool noted(const Read *r, const char *text) {
    for (size_t i = 0; i < r->out.notes.n; i++)
        if (strstr(r->out.notes.at[i].text, text)) return true;
    return false;
}

static void unknown(void) {
    const ShellVar vars[] = { { "HOME", "/home/u" }, { "GIVEN", "yes" } };
    for (size_t i = 0; i < COUNT(CASES); i++) {
        Read r = read_text("run.sh", CASES[i].text, vars, COUNT(vars), NULL, 0);
        EXPECT(r.ok, "%s: %s", CASES[i].text, r.err.msg);
        EXPECT(!strcmp(words_of(&r), CASES[i].words), "%s: '%s'", CASES[i].text, words_of(&r));
        EXPECT(!CASES[i].note || noted(&r, CASES[i].note), "%s: '%s' is not said", CASES[i].text, CASES[i].note);
        const char *said = r.out.launches.n ? r.out.launches.at[0].unknown : NULL;
        EXPECT(!CASES[i].unknown == !said && (!said || strstr(said, CASES[i].unknown)), "%s: unknown: %s",
               CASES[i].text, said ? said : "nothing");
        shell_out_free(&r.out);
    }
    EXPECT(access("/tmp/hone-planted", F_OK), "a command of a script was executed");
}

/* ---- knobs: what a script reads with a default */
static void knobs(void) {
    const ShellVar vars[] = { { "TP", "2" } };
    Read r = read_text("run.sh", "N=${N:-4}\nT=${TP:-8} E=${E:-${N}x}\nN=${N:-9}", vars, 1, NULL, 0);
    EXPECT(r.ok && r.out.knobs.n == 3, "%zu knobs", r.out.knobs.n);
    static const struct {
        const char *name, *value;
        int line;
        bool given;
    } WANT[] = { { "N", "4", 1, false }, { "TP", "2", 2, true }, { "E", "4x", 2, false } };
    for (size_t i = 0; i < r.out.knobs.n && i < 3; i++) {
        const ShellKnob *k = &r.out.knobs.at[i];
        EXPECT(!strcmp(k->name, WANT[i].name) && !strcmp(k->value, WANT[i].value) && k->line == WANT[i].line
                   && k->given == WANT[i].given,
               "%s=%s, line %d", k->name, k->value, k->line);
    }
    shell_out_free(&r.out);
}

/* ---- mistakes and limits: an error with its line, soon */
static const struct {
    const char *text, *error;
} WRONG[] = {
    { "a\nif true; then", "run.sh:2: an if without fi" },
    { "python3 \"a", "a \" is never closed" },
    { "x=$(echo", "a $( is never closed" },
    { "x=${a", "a ${ is never closed" },
    { "fi", "this does not belong here" },
    { "select x in a; do :; done", "select and coproc are not read" },
    { "while true; do :; done", "too many steps" },
    { "f() { f; }; f", "calls itself too often" },
    { "x=ab; while true; do x=$x$x; done", "too long" },
    { "x={1..100000}", NULL },
    { "echo {1..100000}", "too long" },
};

static void wrong(void) {
    for (size_t i = 0; i < COUNT(WRONG); i++) {
        Read r = read_text("run.sh", WRONG[i].text, NULL, 0, NULL, 0);
        EXPECT(WRONG[i].error ? !r.ok && strstr(r.err.msg, WRONG[i].error) : r.ok, "%s: %s", WRONG[i].text,
               r.ok ? "is read" : r.err.msg);
        shell_out_free(&r.out);
    }
    static const char *const DEEP[][2] = { { "$(", ")" },   { "${x:-", "}" }, { "( ", ")" },
                                           { "$((", "))" }, { "{ ", "; }" },  { "if true; then ", "; fi" } };
    for (size_t i = 0; i < COUNT(DEEP); i++) {
        Buf b = { 0 };
        for (int k = 0; k < 5000; k++) buf_puts(&b, DEEP[i][0]);
        buf_puts(&b, "1");
        for (int k = 0; k < 5000; k++) buf_puts(&b, DEEP[i][1]);
        Read deep = read_text("run.sh", b.data, NULL, 0, NULL, 0);
        EXPECT(!deep.ok && strstr(deep.err.msg, "nested too deeply"), "%s: %s", DEEP[i][0],
               deep.ok ? "is read" : deep.err.msg);
        shell_out_free(&deep.out);
        buf_free(&b);
    }
    Read r = read_text("run.sh", "python3 a\nselect x in y; do :; done", NULL, 0, NULL, 0);
    EXPECT(!r.ok && r.out.launches.n == 1, "what stands before a mistake is found");
    shell_out_free(&r.out);
}

int main(void) {
    golden();
    unknown();
    knobs();
    wrong();
    mem_free(&mem);
    return test_end();
}
