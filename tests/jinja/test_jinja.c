/* test_jinja.c - small templates against what Jinja2 rendered for them (tests/oracle/make_templates.py), published
 * templates
 * with --extra DIR, and templates that would run for ever. */
#include "base/file.h"
#include "jinja/jinja.h"
#include "test.h"

#include <dirent.h>
#include <time.h>

/* The kind of error must be Jinja2's: what stands before the first ':'. */
static bool same_kind(const char *got, const char *want) {
    size_t n = strcspn(want, ":");
    return !strncmp(got, want, n) && got[n] == ':';
}

static void check_case(const char *name, const char *text, size_t n, const Json *args, const Json *c) {
    Mem mem = { 0 };
    Buf out = { 0 };
    Err err = { "" };
    int line = 0;
    const Json *want = json_get(c, "text"), *error = json_get(c, "error");
    Jinja *j = jinja_compile(text, n, &mem, &line, &err);
    bool ok = j && jinja_render(j, args, NULL, &out, &line, &err);
    const char *got = out.data ? out.data : "";
    if (want)
        EXPECT(ok && out.n == want->n && !memcmp(got, want->str, want->n), "%s:\n got  %s\n want %s", name,
               ok ? got : err.msg, want->str);
    else
        EXPECT(!ok && line > 0 && same_kind(err.msg, error->str), "%s:\n got  %s\n want %s", name, ok ? got : err.msg,
               error->str);
    buf_free(&out);
    mem_free(&mem);
}

static void cases(void) {
    Mem mem = { 0 };
    Err err;
    Json first = { 0 }, c;
    const char *line;
    size_t n;
    LineReader *r = lines_open(FIXTURE("templates/cases.jsonl"), &err);
    EXPECT(r, "%s", err.msg);
    if (!r) return;
    while (lines_next(r, &line, &n)) {
        if (!json_parse(&c, line, n, &mem, &err)) EXPECT(false, "%s", err.msg);
        else if (json_get(&c, "args")) first = *json_get(&c, "args");
        else
            check_case(json_get(&c, "template")->str, json_get(&c, "template")->str, json_get(&c, "template")->n,
                       &first, &c);
    }
    lines_close(r, &err);
    mem_free(&mem);
}

static void published(const char *dir) {
    Buf path = { 0 }, text = { 0 };
    Err err;
    buf_printf(&path, "%s/templates", dir);
    DIR *d = opendir(path.data);
    EXPECT(d, "%s is missing", path.data);
    for (struct dirent *e; d && (e = readdir(d));) {
        size_t len = strlen(e->d_name);
        if (len < 6 || strcmp(e->d_name + len - 6, ".jinja")) continue;
        buf_clear(&path);
        buf_printf(&path, "%s/templates/%s", dir, e->d_name);
        EXPECT(file_read(&text, path.data, &err), "%s", err.msg);
        memcpy(path.data + path.n - 6, ".jsonl", 6);
        Mem mem = { 0 };
        const char *line;
        size_t n;
        Json c;
        LineReader *r = lines_open(path.data, &err);
        while (r && lines_next(r, &line, &n))
            if (json_parse(&c, line, n, &mem, &err)) check_case(path.data, text.data, text.n, json_get(&c, "args"), &c);
            else EXPECT(false, "%s", err.msg);
        lines_close(r, &err);
        mem_free(&mem);
    }
    if (d) closedir(d);
    buf_free(&path);
    buf_free(&text);
}

/* [ and ] around what generation blocks wrote; the text is that of the template without them. */
static void blocks(void) {
    static const struct {
        const char *text, *want;
    } row[] = {
        { "a{% generation %}b{% endgeneration %}c", "a[b]c" },
        { "{% for m in [1, 2] %}u{{ m }}{% generation %}{{ m }}!{% endgeneration %} {% endfor %}", "u1[1!] u2[2!] " },
        { "{% generation %}{% endgeneration %}x", "[]x" },
        { "{% generation %}a{% generation %}b{% endgeneration %}{% endgeneration %}", "[a[b]]" },
        { "x {%- generation -%} b {%- endgeneration -%} y", "x[b]y" },
        { "{% set v = 1 %}{% generation %}{% set v = 2 %}{{ v }}{% endgeneration %}{{ v }}", "[2]1" },
        { "{% macro m(x) %}<{{ x }}>{% endmacro %}{% generation %}{{ m('é') }}{% endgeneration %}z", "[<é>]z" },
        { "{% macro m(x) %}{% generation %}{{ x }}{% endgeneration %}{% endmacro %}{{ m(1) }}", NULL },
        { "{% set v %}{% generation %}a{% endgeneration %}{% endset %}{{ v }}", NULL },
        { "{% filter upper %}{% generation %}a{% endgeneration %}{% endfilter %}", NULL },
        { "{% generation %}a{% endgeneration %}{% set v %}b{% endset %}{{ v }}{% generation %}c{% endgeneration %}",
          "[a]b[c]" },
    };
    JinjaSpans spans = { 0 };
    for (size_t i = 0; i < COUNT(row); i++) {
        Mem mem = { 0 };
        Buf out = { 0 }, plain = { 0 }, got = { 0 };
        Err err = { "" };
        Jinja *j = jinja_compile(row[i].text, strlen(row[i].text), &mem, NULL, &err);
        EXPECT(j && jinja_marks(j), "%s: %s", row[i].text, err.msg);
        bool ok = jinja_render_spans(j, NULL, NULL, &out, &spans, NULL, &err);
        EXPECT(jinja_render(j, NULL, NULL, &plain, NULL, &err), "%s: %s", row[i].text, err.msg);
        for (size_t at = 0; ok && at <= out.n; at++) {
            for (size_t k = 0; k < spans.n; k++)
                if (spans.at[k].to == at && spans.at[k].from < at) buf_putc(&got, ']');
            for (size_t k = 0; k < spans.n; k++)
                if (spans.at[k].from == at) buf_puts(&got, spans.at[k].to == at ? "[]" : "[");
            if (at < out.n) buf_putc(&got, out.data[at]);
        }
        EXPECT(ok == !!row[i].want && (!ok || (!strcmp(got.data, row[i].want) && out.n == plain.n)),
               "%s: got %s, want %s", row[i].text, ok ? got.data : err.msg, row[i].want ? row[i].want : "an error");
        EXPECT(ok || strstr(err.msg, "cannot be located (template line 1)"), "%s", err.msg);
        buf_free(&out);
        buf_free(&plain);
        buf_free(&got);
        mem_free(&mem);
    }
    Mem mem = { 0 };
    Err err;
    EXPECT(!jinja_marks(jinja_compile("generation", 10, &mem, NULL, &err)), "no block");
    mem_free(&mem);
    vec_free(spans.at);
}

/* What never ends, grows without bound or nests without bound is stopped within seconds, with the bound in the
 * message. */
static void bounds(void) {
    static const struct {
        const char *text, *says;
    } bad[] = {
        { "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
          "LimitError: the template" },
        { "{% set l = range(9999) | list %}{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}",
          "ran for more than 20000000 steps" },
        { "{% break %}", "'break' outside loop" },
        { "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
          "LimitError: the template" },
        { "{% set ns = namespace(s='ab') %}{% for a in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
          "bytes of memory" },
        { "{% set ns = namespace(s=[1]) %}{% for a in range(99999) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
          "LimitError: the template" },
        { "{{ 'ab' * 99999999999 }}", "bytes of memory" },
        { "{{ [0] * 99999999999 }}", "LimitError: the template" },
        { "{{ '%999999999d' % 1 }}", "too big" },
        { "{{ 'a' | center(9999999999) }}", "bytes of memory" },
        { "{{ 'a'.ljust(999999999999) }}", "bytes of memory" },
        { "{{ [1] | batch(9999999999, 0) | list }}", "bytes of memory" },
        { "{{ [1] | slice(9999999999) | list }}", "LimitError" },
        { "{{ [[[1]]] | tojson(indent=9999999999) }}", "bytes of memory" },
        { "{{ ('x' * 1000000).replace('', 'x' * 1000000) }}", "bytes of memory" },
        { "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "levels deep" },
        { "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}x{{ a() }}{% endmacro %}{{ a() }}", "levels deep" },
        { "{% macro m() %}{{ caller() }}{% endmacro %}{% macro w() %}{% call m() %}{{ w() }}{% endcall %}{% endmacro "
          "%}{{ w() }}",
          "levels deep" },
        { "{% set ns = namespace() %}{% set ns.x = ns %}{{ ns }}", "levels deep" },
        { "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}",
          "levels deep" },
        { "{% set ns = namespace(x=[]) %}{% for i in range(9999) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x | tojson "
          "}}",
          "levels deep" },
        { "{% set a = namespace(x=[], y=[]) %}{% for i in range(9999) %}{% set a.x = [a.x] %}{% set a.y = [a.y] %}{% "
          "endfor %}{{ a.x == a.y }}",
          "levels deep" },
        { "{{ 9223372036854775807 + 1 }}", "does not fit 64 bits" },
        { "{{ 3 ** 99999999999 }}", "does not fit 64 bits" },
        { "{% for x in [[1]] recursive %}{% endfor %}", "recursive loops are not supported" },
        { "{% include 'x' %}", "not supported" },
    };
    Mem mem = { 0 };
    for (size_t i = 0; i < COUNT(bad); i++) {
        Buf out = { 0 };
        Err err = { "" };
        clock_t from = clock(); /* processor time: the machine may be busy */
        Jinja *j = jinja_compile(bad[i].text, strlen(bad[i].text), &mem, NULL, &err);
        bool ok = j && jinja_render(j, NULL, NULL, &out, NULL, &err);
        EXPECT(!ok && strstr(err.msg, bad[i].says) && strstr(err.msg, "(template line 1)"), "%s: %s", bad[i].text,
               err.msg);
        double took = (double)(clock() - from) / CLOCKS_PER_SEC;
        EXPECT(out.n == 0 && took < 20, "%s: %zu bytes, %.1f s", bad[i].text, out.n, took);
        buf_free(&out);
    }
    mem_free(&mem);
}

/* Brackets, blocks and operators nested by the thousand: refused or rendered, never a full stack. */
static void deep(void) {
    static const struct {
        const char *open, *middle, *close;
    } nest[] = { { "{{ ", "(", " 1 }}" },
                 { "{{ ", "[", " }}" },
                 { "{{ ", "{1:", " }}" },
                 { "{{ ", "-", "1 }}" },
                 { "{{ ", "not ", "1 }}" },
                 { "{{ 1", " + 1", " }}" },
                 { "{{ x", ".a", " }}" },
                 { "{{ x", "[0]", " }}" },
                 { "{{ x", "|list", " }}" },
                 { "{{ 1", " if 1 else 1", " }}" },
                 { "{{ x", "(", " }}" },
                 { "", "{% if 1 %}", "" },
                 { "{% if 1 %}", "{% elif 1 %}", "{% endif %}" },
                 { "", "{% for x in y %}", "" },
                 { "{{ ", "x[", " }}" },
                 { "{{ ", "'a' ", " }}" },
                 { "{{ 1", " ~ 1", " }}" },
                 { "{{ 1", " < 1", " }}" },
                 { "{{ x is", " not", " }}" },
                 { "{% set ", "(", " %}" } };
    for (size_t i = 0; i < COUNT(nest); i++) {
        Mem mem = { 0 };
        Buf text = { 0 }, out = { 0 };
        Err err = { "" };
        buf_puts(&text, nest[i].open);
        for (int k = 0; k < 20000; k++) buf_puts(&text, nest[i].middle);
        buf_puts(&text, nest[i].close);
        Jinja *j = jinja_compile(text.data, text.n, &mem, NULL, &err);
        bool ok = j && jinja_render(j, NULL, NULL, &out, NULL, &err);
        EXPECT(ok || err.msg[0], "%s", nest[i].middle);
        buf_free(&text);
        buf_free(&out);
        mem_free(&mem);
    }
}

int main(int argc, char **argv) {
    const char *extra = argc > 2 && !strcmp(argv[1], "--extra") ? argv[2] : NULL;
    cases();
    blocks();
    bounds();
    deep();
    if (extra) published(extra);
    else SKIP("published templates: --extra DIR has them");
    return test_end();
}
