/* jinja_global.c - the functions a template finds by name: Jinja2's and those that transformers adds. */
#include "jinja/jinja_int.h"

#include <stdio.h>
#include <time.h>

#define GLOBAL(name) static Value name(Run *r, Value self, const Value *v, const Args *a)
#define UNUSED       (void)r, (void)self, (void)v, (void)a

enum { MAX_RANGE = 100000 }; /* the sandbox's */

GLOBAL(g_range) {
    UNUSED;
    Range g = { 0, arg_int(r, &v[0], 0), arg_int(r, &v[2], 1) };
    if (v_given(v[1])) g.start = g.stop, g.stop = arg_int(r, &v[1], 0);
    if (!g.step) j_fail(r, "ValueError", "range() arg 3 must not be zero");
    const int64_t far = INT64_MAX / 4;
    if (g.start > far || g.start < -far || g.stop > far || g.stop < -far || g.step > far || g.step < -far)
        j_fail(r, "OverflowError", "a range beyond 61 bits");
    int64_t span = g.step > 0 ? g.stop - g.start : g.start - g.stop, step = g.step > 0 ? g.step : -g.step;
    if (span > 0 && (span - 1) / step + 1 > MAX_RANGE)
        j_fail(r, "OverflowError", "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", MAX_RANGE);
    Range *out = j_push(r, 1, sizeof *out);
    *out = g;
    return (Value){ .kind = V_RANGE, .range = out };
}

static void take_pairs(Run *r, Value from, Pair *pairs, size_t *n) {
    if (from.kind == V_DICT) {
        for (size_t i = 0; i < from.n; i++) v_put_pair(r, pairs, n, from.pairs[i].key, from.pairs[i].value);
        return;
    }
    for (size_t i = 0; i < from.n; i++) {
        Value two = v_items(r, from.at[i]);
        if (two.n != 2)
            j_fail(r, "ValueError", "dictionary update sequence element #%zu has length %zu; 2 is required", i, two.n);
        v_put_pair(r, pairs, n, two.at[0], two.at[1]);
    }
}

/* dict(...) and namespace(...): a mapping or pairs, then keywords. */
static Value build_dict(Run *r, const Args *a) {
    if (a->n > 1) j_fail(r, "TypeError", "dict expected at most 1 argument, got %zu", a->n);
    Value from = a->n ? a->at[0] : v_list(NULL, 0);
    if (from.kind != V_DICT) from = v_items(r, from);
    Pair *pairs = j_push(r, from.n + a->nkw, sizeof *pairs);
    size_t n = 0;
    take_pairs(r, from, pairs, &n);
    for (size_t i = 0; i < a->nkw; i++) v_put_pair(r, pairs, &n, v_strn(a->kw[i].s, a->kw[i].n), a->kw[i].v);
    return (Value){ .kind = V_DICT, .n = n, .pairs = pairs };
}
GLOBAL(g_dict) { return UNUSED, build_dict(r, a); }

GLOBAL(g_namespace) {
    UNUSED;
    Value d = build_dict(r, a);
    Ns *ns = j_push(r, 1, sizeof *ns);
    *ns = (Ns){ .pairs = d.pairs, .n = d.n, .cap = d.n };
    return (Value){ .kind = V_NS, .ns = ns };
}

GLOBAL(g_cycler) {
    UNUSED;
    if (!a->n) j_fail(r, "RuntimeError", "at least one item has to be provided");
    Gen *g = j_push(r, 1, sizeof *g);
    *g = (Gen){ .at = a->at, .n = a->n, .type = "Cycler" };
    return (Value){ .kind = V_CYCLER, .gen = g };
}

GLOBAL(g_joiner) {
    UNUSED;
    Gen *g = j_push(r, 1, sizeof *g);
    Value *sep = j_push(r, 1, sizeof *sep);
    *sep = v_given(v[0]) ? v[0] : v_cstr(", ");
    *g = (Gen){ .at = sep, .n = 1, .type = "Joiner" };
    return (Value){ .kind = V_JOINER, .gen = g };
}

GLOBAL(g_raise) {
    UNUSED;
    Value s = v_str(r, v[0]);
    j_fail(r, "TemplateError", "%.*s", (int)(s.n < 380 ? s.n : 380), s.s);
}

/* "2026-11-15T10:20:30.000000", also with a blank for the T and without the time. */
static void read_now(Run *r, const Json *now, struct tm *tm, long *micro) {
    char frac[8] = "";
    int n = now->kind == JSON_STRING ? sscanf(now->str, "%4d-%2d-%2d%*1[T ]%2d:%2d:%2d.%6[0-9]", &tm->tm_year,
                                              &tm->tm_mon, &tm->tm_mday, &tm->tm_hour, &tm->tm_min, &tm->tm_sec, frac)
                                     : 0;
    bool ok = n >= 3 && tm->tm_mon >= 1 && tm->tm_mon <= 12 && tm->tm_mday >= 1 && tm->tm_mday <= 31 && tm->tm_hour >= 0
              && tm->tm_hour < 24 && tm->tm_min >= 0 && tm->tm_min < 60 && tm->tm_sec >= 0 && tm->tm_sec < 60
              && tm->tm_year >= 1;
    if (!ok) j_fail(r, "ValueError", "the variable \"now\" must be a time like \"2026-11-15T00:00:00\"");
    for (int i = 0; i < 6; i++) *micro = *micro * 10 + (i < (int)strlen(frac) ? frac[i] - '0' : 0);
    tm->tm_year -= 1900;
    tm->tm_mon -= 1;
    time_t t = timegm(tm); /* fills in the day of the week and of the year */
    gmtime_r(&t, tm);
}

void jinja_clock(Buf *out) {
    char text[64];
    time_t t = time(NULL);
    struct tm tm;
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", localtime_r(&t, &tm));
    buf_puts(out, text);
}

Value j_strftime(Run *r, Value fmt) {
    struct tm tm = { 0 };
    long micro = 0;
    const Json *now = json_get(r->vars, "now");
    bool given = now && now->kind != JSON_NULL;
    if (given) read_now(r, now, &tm, &micro);
    else {
        struct timespec t;
        clock_gettime(CLOCK_REALTIME, &t);
        localtime_r(&t.tv_sec, &tm);
        micro = t.tv_nsec / 1000;
    }
    struct tm same = tm; /* timegm writes there */
    long long seconds = timegm(&same);
    Sb b = { .r = r };
    if (memchr(fmt.s, 0, fmt.n)) j_fail(r, "ValueError", "embedded null character");
    for (size_t i = 0; i < fmt.n; i++) {
        char one[8] = "%", out[128];
        size_t k = 1;
        if (fmt.s[i] != '%' || i + 1 >= fmt.n) {
            sb_put(&b, fmt.s + i, 1);
            continue;
        }
        i++;
        if (fmt.s[i] && strchr("-_0^#EO", fmt.s[i]) && i + 1 < fmt.n) one[k++] = fmt.s[i++];
        one[k] = fmt.s[i];
        if (k == 1 && fmt.s[i] == 'f') snprintf(out, sizeof out, "%06ld", micro);
        else if (fmt.s[i] == 'Z' || fmt.s[i] == 'z' || fmt.s[i] == '+') continue; /* a clock without a zone */
        else if (given && fmt.s[i] == 's') /* else of this machine's zone */ snprintf(out, sizeof out, "%lld", seconds);
        else if (k == 1 && fmt.s[i] == 'Y') snprintf(out, sizeof out, "%d", tm.tm_year + 1900);
        else {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            if (!strftime(out, sizeof out, one, &tm)) out[0] = 0;
#pragma GCC diagnostic pop
        }
        sb_puts(&b, out);
    }
    return sb_done(&b);
}
GLOBAL(g_strftime_now) { return UNUSED, j_strftime(r, arg_str(r, &v[0])); }

/* clang-format off */
static const Builtin globals[] = {
    { "range",           g_range,        "start stop step", 1 },
    { "dict",            g_dict,         NULL,              0 },
    { "namespace",       g_namespace,    NULL,              0 },
    { "cycler",          g_cycler,       NULL,              0 },
    { "joiner",          g_joiner,       "sep",             0 },
    { "raise_exception", g_raise,        "message",         1 },
    { "strftime_now",    g_strftime_now, "format",          1 },
};
/* clang-format on */

const Builtin *jinja_global(const char *s, size_t n) { return find_builtin(globals, COUNT(globals), s, n); }
