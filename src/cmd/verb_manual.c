/* verb_manual.c - `hone manual`: man pages and completion for shells, from the tables that --help is made from.
 *
 * A value like "auto|cpu|cuda" is a list of words to complete; FILE, DIR and the like are paths. */
#include "base/file.h"
#include "cmd/groups.h"
#include "run/version.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* ---- man pages */
static void roff(Buf *b, const char *text) { /* - and \ mean something to it, and . and ' where a line begins */
    bool begins = true;
    for (const char *s = text; *s; s++) {
        if (begins && strchr(".'", *s)) buf_puts(b, "\\&");
        if (*s == '\\') buf_puts(b, "\\e");
        else if (*s == '-') buf_puts(b, "\\-");
        else buf_putc(b, *s);
        begins = *s == '\n';
    }
}

static void title(Buf *b, const char *name, const char *summary) {
    buf_puts(b, ".TH ");
    for (const char *s = name; *s; s++) buf_putc(b, (char)toupper((unsigned char)*s));
    buf_printf(b, " 1 \"\" \"hone " HONE_VERSION "\"\n.SH NAME\n");
    roff(b, name), buf_puts(b, " \\- "), roff(b, summary);
}

static void page_of(Buf *b, const Verb *v) {
    char name[64];
    snprintf(name, sizeof name, "hone-%s", v->name);
    title(b, name, v->summary);
    buf_printf(b, "\n.SH SYNOPSIS\n.B hone %s\n", v->name);
    roff(b, v->usage);
    if (v->options && v->options->name) buf_puts(b, "\n.SH OPTIONS\n");
    for (const Opt *o = v->options; o && o->name; o++) {
        buf_puts(b, ".TP\n.B \\-\\-"), roff(b, o->name);
        if (o->kind != OPT_FLAG) buf_puts(b, " \\fI"), roff(b, o->value), buf_puts(b, "\\fR");
        buf_putc(b, '\n'), roff(b, o->help), buf_putc(b, '\n');
    }
    if (v->detail) buf_puts(b, "\n.SH DESCRIPTION\n"), roff(b, v->detail);
    if (verb_example(v)) buf_puts(b, "\n.SH EXAMPLE\n.EX\nhone "), roff(b, verb_example(v)), buf_puts(b, "\n.EE");
    buf_puts(b, "\n.SH SEE ALSO\n.BR hone (1)\n");
}

static void page_of_all(Buf *b) {
    title(b, "hone", "makes language models better by reinforcement learning");
    buf_puts(b, "\n.SH SYNOPSIS\n.B hone\n.I VERB\n[options]\n.SH VERBS\n");
    const Verb *v;
    for (size_t g = 0; verb_group(g); g++) {
        buf_puts(b, ".SS "), roff(b, verb_group(g)), buf_putc(b, '\n');
        for (size_t i = 0; (v = verb_in_group(g, i)); i++) {
            buf_puts(b, ".TP\n.BR hone\\-"), roff(b, v->name), buf_puts(b, " (1)\n");
            roff(b, v->summary), buf_putc(b, '\n');
        }
    }
    buf_puts(b, ".SH EXIT STATUS\n0: done; 1: something in the input was bad or a check failed; 2: the command line "
                "was wrong; 3: a run's log\\-probs were not the same.\n");
}

static bool write_page(const char *dir, const char *name, Buf *b, Err *err) {
    Mem mem = { 0 };
    bool ok = file_write(mem_printf(&mem, "%s/hone%s%s.1", dir, *name ? "-" : "", name), b->data, b->n, err);
    mem_free(&mem);
    buf_clear(b);
    return ok;
}

static bool man(const char *dir, Err *err) {
    Buf b = { 0 };
    bool ok = dir_make(dir, err);
    page_of_all(&b);
    ok = ok && write_page(dir, "", &b, err);
    const Verb *v;
    for (size_t i = 0; ok && (v = verb_at(i)); i++) {
        page_of(&b, v);
        ok = write_page(dir, v->name, &b, err);
    }
    buf_free(&b);
    return ok;
}

/* ---- completion */
static bool words(const Opt *o) { return o->kind == OPT_STR && strchr(o->value, '|') && !strpbrk(o->value, "[<. "); }

static void quoted(Buf *b, const char *text, const char *special) { /* in '...' */
    for (const char *s = text; *s; s++) {
        if (*s == '\'') buf_puts(b, "'\\''");
        else if (strchr(special, *s)) buf_putc(b, '\\'), buf_putc(b, *s);
        else buf_putc(b, *s == '\n' ? ' ' : *s);
    }
}

static void spaced(Buf *b, const char *list) {
    for (const char *s = list; *s; s++) buf_putc(b, *s == '|' ? ' ' : *s);
}

static void bash(Buf *b) {
    const Verb *v;
    buf_puts(b, "# bash completion for hone, made by `hone manual bash`\n_hone() {\n"
                "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} verb=${COMP_WORDS[1]}\n"
                "    local words=\"\"\n    COMPREPLY=()\n    if [ \"$COMP_CWORD\" = 1 ]; then\n        words=\"");
    for (size_t i = 0; (v = verb_at(i)); i++) buf_printf(b, "%s%s", i ? " " : "", v->name);
    buf_puts(b, "\"\n    else\n        case \"$verb $prev\" in\n");
    for (size_t i = 0; (v = verb_at(i)); i++)
        for (const Opt *o = v->options; o && o->name; o++) {
            if (!words(o)) continue;
            buf_printf(b, "        \"%s --%s\") words=\"", v->name, o->name);
            spaced(b, o->value), buf_puts(b, "\" ;;\n");
        }
    buf_puts(b, "        *) [[ $cur == -* ]] && case $verb in\n");
    for (size_t i = 0; (v = verb_at(i)); i++) {
        buf_printf(b, "            %s) words=\"--help", v->name);
        for (const Opt *o = v->options; o && o->name; o++) buf_printf(b, " --%s", o->name);
        buf_puts(b, "\" ;;\n");
    }
    buf_puts(b, "            esac ;;\n        esac\n    fi\n"
                "    [ -n \"$words\" ] && COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\n"
                "complete -o bashdefault -o default -F _hone hone\n");
}

static void zsh(Buf *b) {
    const Verb *v;
    buf_puts(b, "#compdef hone\n# made by `hone manual zsh`\nlocal -a verbs\nverbs=(\n");
    for (size_t i = 0; (v = verb_at(i)); i++) {
        buf_printf(b, "    '%s:", v->name);
        quoted(b, v->summary, ""), buf_puts(b, "'\n");
    }
    buf_puts(b,
             ")\nif (( CURRENT == 2 )); then\n    _describe verb verbs\n    return\nfi\nshift words\n(( CURRENT-- ))\n"
             "case $words[1] in\n");
    for (size_t i = 0; (v = verb_at(i)); i++) {
        buf_printf(b, "%s)\n    _arguments '--help[help]'", v->name);
        for (const Opt *o = v->options; o && o->name; o++) {
            buf_printf(b, " \\\n        '--%s[", o->name);
            quoted(b, o->help, "[]:"), buf_putc(b, ']');
            if (o->kind != OPT_FLAG) {
                buf_putc(b, ':'), quoted(b, o->value, ":"), buf_putc(b, ':');
                if (words(o)) buf_putc(b, '('), spaced(b, o->value), buf_putc(b, ')');
                else buf_puts(b, "_files");
            }
            buf_putc(b, '\'');
        }
        buf_puts(b, " \\\n        '*:file:_files' ;;\n");
    }
    buf_puts(b, "esac\n");
}

static void fish(Buf *b) {
    const Verb *v;
    buf_puts(b, "# made by `hone manual fish`\n");
    for (size_t i = 0; (v = verb_at(i)); i++) {
        buf_printf(b, "complete -c hone -n __fish_use_subcommand -f -a %s -d '", v->name);
        quoted(b, v->summary, "\\"), buf_puts(b, "'\n");
        for (const Opt *o = v->options; o && o->name; o++) {
            buf_printf(b, "complete -c hone -n '__fish_seen_subcommand_from %s' -l %s", v->name, o->name);
            if (words(o)) buf_puts(b, " -x -a '"), spaced(b, o->value), buf_putc(b, '\'');
            else if (o->kind != OPT_FLAG) buf_puts(b, " -r");
            buf_puts(b, " -d '");
            for (const char *s = o->help; *s; s++) {
                if (strchr("'\\", *s)) buf_putc(b, '\\');
                buf_putc(b, *s == '\n' ? ' ' : *s);
            }
            buf_puts(b, "'\n");
        }
    }
}

static const struct {
    const char *name;
    void (*put)(Buf *b);
} shells[] = { { "bash", bash }, { "zsh", zsh }, { "fish", fish } };

static int run(const Verb *v, int argc, char **argv) {
    const char *word[2];
    int n, rc = opt_parse(v, NULL, word, 1, 2, &n, argc, argv);
    if (rc >= 0) return rc;
    Err err;
    if (!strcmp(word[0], "man")) {
        if (n < 2) return cmd_usage(v, "man wants a folder for its pages");
        return man(word[1], &err) ? 0 : cmd_fail(v, &err);
    }
    for (size_t i = 0; i < COUNT(shells); i++) {
        if (strcmp(word[0], shells[i].name)) continue;
        Buf b = { 0 };
        shells[i].put(&b);
        fputs(b.data, stdout);
        return buf_free(&b), 0;
    }
    return cmd_usage(v, "'%s' is none of man, bash, zsh, fish", word[0]);
}

const Verb verb_manual = {
    .name = "manual",
    .usage = "man DIR | bash | zsh | fish",
    .summary = "man pages, and completion for shells",
    .detail =
        "man writes hone.1 and a page for each verb; the shells' go to standard output: source <(hone manual bash).\n"
        "Both are made from the tables that --help shows; packages have them.\n",
    .run = run,
};
