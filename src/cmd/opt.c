/* opt.c - reads a verb's command line by its table of options, and prints its help from the same table. */
#include "base/near_name.h"
#include "base/term.h"
#include "cmd/groups.h"
#include "comm/world.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Who may say why it fails: "" for the first rank.  Another that fails before the ranks know of each other leaves it to
 * the first, which meets the same and is then ended by the launcher together with all; who is still there after some
 * seconds is alone with its reason. */
static const char *alone(void) {
    static char rank[32];
    if (speaks()) return "";
    if (world_tried()) return NULL;
    poll(NULL, 0, 4000);
    snprintf(rank, sizeof rank, "rank %d: ", world_launch().rank);
    return rank;
}

int cmd_fail(const Verb *v, const Err *err) {
    fflush(stdout);
    const char *rank = alone();
    if (rank) fprintf(stderr, "hone %s: %s%s\n", v->name, rank, err->msg);
    return 1;
}

int cmd_usage(const Verb *v, const char *fmt, ...) {
    const char *rank = alone();
    if (!rank) return 2;
    va_list ap;
    va_start(ap, fmt);
    Err why; /* one write: other ranks speak, too */
    vsnprintf(why.msg, sizeof why.msg, fmt, ap);
    fprintf(stderr, "hone %s: %s%s; see `hone %s --help`\n", v->name, rank, why.msg, v->name);
    va_end(ap);
    return 2;
}

enum { WIDEST = 120 }; /* longer lines are not read */

/* Text in lines as wide as the terminal, of which the first 'at' columns are taken; later lines begin at 'indent'. */
static void wrapped(const char *text, int at, int indent) {
    int width = term_width(STDOUT_FILENO);
    if (width > WIDEST) width = WIDEST;
    for (const char *s = text; *s;) {
        int n = (int)strcspn(s, " \n"), blanks = (int)strspn(s + n, " ");
        if (at + n > width && at > indent) printf("\n%*s", indent, ""), at = indent;
        printf("%.*s", n, s);
        at += n;
        s += n + blanks;
        if (*s == '\n') s++, printf(*s ? "\n%*s" : "", indent, ""), at = indent;
        else if (blanks && *s && at + blanks + (int)strcspn(s, " \n") <= width) printf("%*s", blanks, ""), at += blanks;
        else if (blanks && *s) printf("\n%*s", indent, ""), at = indent;
    }
    putchar('\n');
}

/* Newlines of a paragraph's source are blanks; an empty line, or one that is indented, begins anew. */
static void paragraphs(const char *text) {
    Buf b = { 0 };
    for (const char *s = text; *s; s++) {
        bool ends = *s == '\n' && (!s[1] || strchr("\n ", s[1]) || (s > text && s[-1] == '\n'));
        buf_putc(&b, (char)(*s == '\n' && !ends ? ' ' : *s));
    }
    if (b.n) wrapped(b.data, 0, 0);
    buf_free(&b);
}

static void help(const Verb *v) {
    const char *head = term_colour(STDOUT_FILENO, TERM_HEAD), *end = term_colour(STDOUT_FILENO, TERM_END);
    printf("hone %s - %s\n\n", v->name, v->summary);
    int used = printf("usage: hone %s ", v->name);
    wrapped(v->usage, used, used);
    if (v->options && v->options->name) printf("\n%soptions:%s\n", head, end);
    for (const Opt *o = v->options; o && o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, o->kind == OPT_FLAG ? "--%s" : "--%s %s", o->name, o->value);
        used = printf("  %-26s ", left);
        if (used > 29) putchar('\n'), used = printf("%29s", ""); /* a long name has its line for itself */
        wrapped(o->help, used, 29);
    }
    if (v->detail) putchar('\n'), paragraphs(v->detail);
    if (verb_example(v)) printf("\n%sexample:%s hone %s\n", head, end, verb_example(v));
}

static int set(const Verb *v, const Opt *o, void *args, const char *text) {
    void *to = (char *)args + o->at;
    char *end = NULL;
    errno = 0;
    if (o->kind == OPT_STR) {
        *(const char **)to = text;
        return -1;
    }
    double x;
    if (o->kind == OPT_INT) {
        int64_t i = strtoll(text, &end, 10);
        x = (double)i;
        if (!errno && *text && !*end) *(int64_t *)to = i;
    } else {
        x = strtod(text, &end);
        if (!errno && *text && !*end) *(double *)to = x;
    }
    if (errno || !*text || *end || x != x)
        return cmd_usage(v, "--%s wants %s, not '%s'", o->name, o->kind == OPT_INT ? "a whole number" : "a number",
                         text);
    if (o->min < o->max && (x < o->min || x > o->max))
        return cmd_usage(v, "--%s must lie between %g and %g, not %s", o->name, o->min, o->max, text);
    return -1;
}

static const char *option_at(const void *user, size_t i) { return ((const Opt *)user)[i].name; }

static int unknown(const Verb *v, const char *word) {
    size_t n = 0, len = strcspn(word + strspn(word, "-"), "=");
    char name[64];
    while (v->options && v->options[n].name) n++;
    snprintf(name, sizeof name, "%.*s", (int)len, word + strspn(word, "-"));
    const char *near = word[1] == '-' ? near_name(name, n, option_at, v->options) : NULL;
    return near ? cmd_usage(v, "there is no option %s; the nearest is --%s", word, near)
                : cmd_usage(v, "there is no option %s", word);
}

static const Opt *find(const Verb *v, const char *name, size_t n) {
    for (const Opt *o = v->options; o && o->name; o++)
        if (strlen(o->name) == n && !strncmp(o->name, name, n)) return o;
    return NULL;
}

void opt_identity(const Verb *v, const void *args, Identity *id) {
    static const char *const own[] = { "threads", "in",     "out",     "python",        "library", "workers",
                                       "device",  "golden", "profile", "chat-template", "write" };
    Buf value = { 0 };
    for (const Opt *o = v->options; o && o->name; o++) {
        const void *at = (const char *)args + o->at;
        char key[64];
        bool skip = false;
        for (size_t i = 0; i < COUNT(own); i++) skip |= !strcmp(o->name, own[i]);
        if (skip) continue;
        snprintf(key, sizeof key, "--%s", o->name);
        buf_clear(&value);
        switch (o->kind) {
        case OPT_FLAG: buf_puts(&value, *(const bool *)at ? "true" : "false"); break;
        case OPT_INT: buf_printf(&value, "%lld", (long long)*(const int64_t *)at); break;
        case OPT_REAL: json_put_f64(&value, *(const double *)at); break;
        case OPT_STR: buf_puts(&value, *(const char *const *)at ? *(const char *const *)at : "not given");
        }
        identity_say(id, key, "%s", value.data);
    }
    buf_free(&value);
}

int opt_parse(const Verb *v, void *args, const char **words, int least, int most, int *n_words, int argc, char **argv) {
    int n = 0;
    bool only_words = false;
    for (int i = 0; i < argc; i++) {
        const char *a = argv[i];
        if (only_words || a[0] != '-' || !a[1]) {
            if (n >= most) return cmd_usage(v, "'%s' is one argument too many", a);
            words[n++] = a;
            continue;
        }
        if (!strcmp(a, "--")) {
            only_words = true;
            continue;
        }
        if (!strcmp(a, "--help") || !strcmp(a, "-h")) return help(v), 0;
        const char *eq = strchr(a, '=');
        size_t len = a[1] != '-' ? 0 : eq ? (size_t)(eq - a - 2) : strlen(a + 2);
        const Opt *o = len ? find(v, a + 2, len) : NULL;
        if (!o) return unknown(v, a);
        if (o->kind == OPT_FLAG) {
            if (eq) return cmd_usage(v, "--%s takes no value", o->name);
            *(bool *)((char *)args + o->at) = true;
            continue;
        }
        if (!eq && i + 1 >= argc) return cmd_usage(v, "--%s wants a value", o->name);
        int rc = set(v, o, args, eq ? eq + 1 : argv[++i]);
        if (rc >= 0) return rc;
    }
    if (n < least) return cmd_usage(v, "an argument is missing: hone %s %s", v->name, v->usage);
    if (n_words) *n_words = n;
    return -1;
}
