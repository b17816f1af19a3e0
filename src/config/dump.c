/* dump.c - the table and a resolved configuration as text.  What is dumped loads again and gives the same. */
#include "base/yaml.h"
#include "config/table.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The fewest digits that restore x, as people write them: 10000.0, 0.001, 1e-6. */
static const char *digits(char *b, size_t n, double x) {
    int p = 0;
    for (double back = NAN; p < 17 && back != x;) {
        snprintf(b, n, "%.*e", p++, x);
        sscanf(b, "%lf", &back);
    }
    char *e = strchr(b, 'e');
    int power = e ? atoi(e + 1) : 0;
    if (e && power >= -4 && power < 16) snprintf(b, n, "%.*f", p - 1 - power > 1 ? p - 1 - power : 1, x);
    else if (e) snprintf(e, n - (size_t)(e - b), "e%d", power);
    return b;
}

static void put_names(Buf *out, const Name *names) {
    bool first = true;
    for (const Name *a = names; a->name; a++) {
        if (strcmp(name_of(names, a->value), a->name)) continue; /* only the first spelling */
        buf_printf(out, "%s%s", first ? "" : "|", a->name);
        first = false;
    }
}

void conf_allowed(Buf *out, const ConfOption *o) {
    static const char *const kind[] = { "true or false", "a whole number",    "a number",   "a string",
                                        "one of ",       "a list of strings", "two numbers" };
    char a[32], b[32];
    buf_puts(out, kind[o->kind]);
    if (o->kind == CONF_ENUM) put_names(out, o->names);
    if (o->kind == CONF_INT || o->kind == CONF_REAL || o->kind == CONF_PAIR) {
        bool whole = o->kind == CONF_INT;
        snprintf(a, sizeof a, whole ? "%.0f" : "%g", o->min);
        snprintf(b, sizeof b, whole ? "%.0f" : "%g", o->max);
        if (o->min == ABOVE_0 && o->max == NO_MAX) buf_puts(out, " above 0");
        else if (o->min == ABOVE_0) buf_printf(out, " above 0, at most %s", b);
        else if (o->max == NO_MAX) buf_printf(out, " of at least %s", a);
        else buf_printf(out, " from %s to %s", a, b);
    }
    if (!strcmp(o->standard, "null")) buf_puts(out, ", or null");
}

void config_list_options(Buf *out, ConfVerb verb) {
    for (const ConfOption *o = conf_options; o->name; o++) {
        if (!(o->verbs & (int)verb)) continue;
        Buf allowed = { 0 };
        conf_allowed(&allowed, o);
        buf_printf(out, "%s = %s\n    %s\n    %s\n", o->name, o->standard, o->help, allowed.data);
        if (o->verl) buf_printf(out, "    verl: %s\n", o->verl);
        buf_free(&allowed);
    }
}

static void put_string(Buf *out, const char *s) {
    Mem mem = { 0 };
    size_t n = strlen(s);
    bool plain = n && strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./+-") == n
                 && s[0] != '-' && yaml_scalar(s, n, &mem).kind == JSON_STRING;
    if (plain) buf_puts(out, s);
    else yaml_put_str(out, s, n);
    mem_free(&mem);
}

/* In one line, whatever the file is called. */
static void put_comment(Buf *out, const char *s) {
    Buf quoted = { 0 };
    yaml_put_str(&quoted, s, strlen(s));
    buf_put(out, quoted.data + 1, quoted.n - 2);
    buf_free(&quoted);
}

static void put_value(Buf *out, const Config *c, const ConfOption *o) {
    const void *at = conf_field(c, o);
    char b[40];
    switch (o->kind) {
    case CONF_BOOL: buf_puts(out, *(const bool *)at ? "true" : "false"); break;
    case CONF_INT:
        if (*(const int64_t *)at == CONF_UNSET) buf_puts(out, "null");
        else buf_printf(out, "%lld", (long long)*(const int64_t *)at);
        break;
    case CONF_REAL:
        buf_puts(out, isnan(*(const double *)at) ? "null" : digits(b, sizeof b, *(const double *)at));
        break;
    case CONF_STR:
        if (*(const char *const *)at) put_string(out, *(const char *const *)at);
        else buf_puts(out, "null");
        break;
    case CONF_ENUM: put_string(out, name_of(o->names, *(const int *)at)); break;
    case CONF_PAIR:
        buf_printf(out, "[%s, ", digits(b, sizeof b, ((const double *)at)[0]));
        buf_printf(out, "%s]", digits(b, sizeof b, ((const double *)at)[1]));
        break;
    case CONF_STRS: {
        const StrList *l = at;
        buf_putc(out, '[');
        for (int64_t i = 0; i < l->n; i++) {
            if (i) buf_puts(out, ", ");
            put_string(out, l->at[i]);
        }
        buf_putc(out, ']');
        break;
    }
    }
}

bool config_same(const Config *a, const Config *b, const char *option) {
    Buf x = { 0 }, y = { 0 };
    const ConfOption *o = conf_options;
    while (o->name && strcmp(o->name, option)) o++;
    CHECK(o->name, "there is no option %s", option);
    put_value(&x, a, o);
    put_value(&y, b, o);
    bool same = !strcmp(x.data, y.data);
    buf_free(&x);
    buf_free(&y);
    return same;
}

void config_changes(Buf *out, const Config *was, const Config *now) {
    for (const ConfOption *o = conf_options; o->name; o++) {
        if (!(o->verbs & (int)now->verb) || config_same(was, now, o->name)) continue;
        if (!strcmp(o->name, "trainer.run_dir") || !strcmp(o->name, "trainer.threads"))
            continue; /* no effect on what follows */
        buf_printf(out, "%s%s ", out->n ? ", " : "", o->name);
        put_value(out, was, o);
        buf_puts(out, " -> ");
        put_value(out, now, o);
    }
}

/* What may be another on each machine and is one run all the same.  What lies behind the paths is compared by content;
 * devices that cannot compute together are refused when they are opened. */
static const char *const own[] = { "model.path",      "model.tokenizer", "model.chat_template", "data.train_files",
                                   "data.val_files",  "reward.python",   "reward.library",      "trainer.run_dir",
                                   "trainer.threads", "trainer.device",  "trainer.profile",     "trainer.peak_tflops",
                                   "reward.workers" };

/* What follows from another option where it is not set (resolve): told behind it, so that the one that was set is
 * named. */
static const char *const follow[] = {
    "data.seed",       "rollout.seed",          "rollout.max_tokens",    "train.clip_low",
    "train.clip_high", "train.mini_batch_size", "train.loss_norm_length"
};

static bool among(const char *name, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(name, list[i])) return true;
    return false;
}

void config_identity(const Config *c, Identity *id) {
    Buf value = { 0 };
    for (int follows = 0; follows < 2; follows++)
        for (const ConfOption *o = conf_options; o->name; o++) {
            if (!(o->verbs & (int)c->verb) || among(o->name, own, COUNT(own))) continue;
            if (among(o->name, follow, COUNT(follow)) != follows) continue;
            buf_clear(&value);
            put_value(&value, c, o);
            identity_say(id, o->name, "%s", value.data);
        }
    buf_free(&value);
}

void config_dump(Buf *out, const Config *c, DumpWhat what) {
    const char *before = "";
    for (const ConfOption *o = conf_options; o->name; o++) {
        if (!(o->verbs & (int)c->verb) || (what == DUMP_GIVEN && !c->origin[o - conf_options])) continue;
        size_t same = 0; /* length of the sections shared with the row before, up to and with the dot */
        for (size_t i = 0; o->name[i] && o->name[i] == before[i]; i++)
            if (o->name[i] == '.') same = i + 1;
        int depth = 0;
        const char *part = o->name;
        for (const char *dot; (dot = strchr(part, '.')); part = dot + 1, depth++)
            if ((size_t)(dot - o->name) >= same) buf_printf(out, "%*s%.*s:\n", 2 * depth, "", (int)(dot - part), part);
        size_t line = out->n;
        buf_printf(out, "%*s%s: ", 2 * depth, "", part);
        put_value(out, c, o);
        const char *origin = c->origin[o - conf_options];
        if (origin) buf_printf(out, "%*s# ", (int)(out->n - line < 44 ? 44 - (out->n - line) : 1), "");
        if (origin) put_comment(out, origin);
        buf_putc(out, '\n');
        before = o->name;
    }
}
