/* test_text_verbs.c - `hone tokenize` and `hone template` as a user runs them: the reference's ids, texts and
 * renderings, from tests/data and, with --extra DIR, of published vocabularies and templates. */
#include "base/file.h"
#include "base/json.h"
#include "test.h"

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

static char hone[512], tmp[] = "/tmp/hone-text-XXXXXX";

static const char *path_in_tmp(const char *name) {
    static char path[4][600];
    static int k;
    k = (k + 1) % 4;
    snprintf(path[k], sizeof path[k], "%s/%s", tmp, name);
    return path[k];
}
static void write_text(const char *name, const char *text, size_t n) {
    FILE *f = fopen(path_in_tmp(name), "wb");
    CHECK(f && fwrite(text, 1, n, f) == n && !fclose(f), "cannot write %s", name);
}

/* hone VERB MODEL OPTIONS over these lines; its lines are parsed into out, which has room for n. */
static size_t run(const char *verb, const char *model, const char *options, const Buf *lines, Json *out, size_t n,
                  Mem *mem) {
    char command[2400];
    Err err;
    Buf got = { 0 };
    write_text("in", lines->data, lines->n);
    snprintf(command, sizeof command, "'%s' %s '%s' %s --in '%s' --out '%s' 2>/dev/null", hone, verb, model, options,
             path_in_tmp("in"), path_in_tmp("out"));
    unlink(path_in_tmp("out"));
    int rc = system(command);
    CHECK(WIFEXITED(rc) && WEXITSTATUS(rc) < 2, "%s: exit code %d", command, rc);
    if (!file_exists(path_in_tmp("out"))) return 0; /* it ended before the first line */
    CHECK(file_read(&got, path_in_tmp("out"), &err), "%s", err.msg);
    size_t k = 0;
    for (char *a = got.data, *end; a && (end = strchr(a, '\n')) && k < n; a = end + 1, k++)
        CHECK(json_parse(&out[k], a, (size_t)(end - a), mem, &err), "%s: %s", command, err.msg);
    buf_free(&got);
    return k;
}

static size_t read_lines(const char *path, Json **out, Mem *mem) {
    Buf all = { 0 };
    Err err;
    CHECK(file_read(&all, path, &err), "%s", err.msg);
    size_t n = 0;
    for (size_t i = 0; i < all.n; i++) n += all.data[i] == '\n';
    *out = MEM_ARRAY(mem, Json, n);
    char *a = all.data;
    for (size_t k = 0; k < n; k++) {
        char *end = strchr(a, '\n');
        CHECK(json_parse(&(*out)[k], a, (size_t)(end - a), mem, &err), "%s line %zu: %s", path, k + 1, err.msg);
        a = end + 1;
    }
    buf_free(&all);
    return n;
}

static bool same(const Json *a, const Json *b) { /* as text */
    Buf x = { 0 }, y = { 0 };
    json_put_value(&x, a);
    json_put_value(&y, b);
    bool equal = x.n == y.n && !memcmp(x.data, y.data, x.n);
    buf_free(&x);
    buf_free(&y);
    return equal;
}
static bool on(const Json *c, const char *key, bool absent) {
    Err err;
    CHECK(json_bool(c, key, &absent, &err), "%s", err.msg);
    return absent;
}
static void put(Buf *b, const char *key, const Json *value) {
    buf_printf(b, "{\"%s\":", key);
    json_put_value(b, value);
    buf_puts(b, "}\n");
}

/* Cases by their two flags, then decoding. */
static void tokenizer(const char *root, const char *name) {
    static const char *const options[] = { "", "--special", "--bos", "--special --bos", "--decode" };
    char path[900];
    Mem mem = { 0 };
    Json *c;
    snprintf(path, sizeof path, "%s/%s/cases.jsonl", root, name);
    size_t n = read_lines(path, &c, &mem), asked = 0, bad = 0;
    snprintf(path, sizeof path, "%s/%s", root, name);
    for (int way = 0; way < 5; way++) {
        Buf in = { 0 };
        const Json **want = MEM_ARRAY(&mem, const Json *, n);
        size_t k = 0;
        for (size_t i = 0; i < n; i++) {
            const Json *text = json_get(&c[i], "text"), *ids = json_get(&c[i], "ids"),
                       *decoded = json_get(&c[i], "decoded");
            if (way < 4 && text && on(&c[i], "special", true) + 2 * on(&c[i], "bos", false) == way)
                put(&in, "text", text), want[k++] = ids;
            else if (way == 4 && decoded) put(&in, "ids", ids), want[k++] = decoded;
        }
        Json *got = MEM_ARRAY(&mem, Json, k);
        if (k) {
            EXPECT(run("tokenize", path, options[way], &in, got, k, &mem) == k, "%s %s: lines are missing", path,
                   options[way]);
            for (size_t i = 0; i < k; i++) {
                const Json *v = json_get(&got[i], way < 4 ? "ids" : "text");
                bad += !v || !same(v, want[i]);
            }
        }
        asked += k;
        buf_free(&in);
    }
    EXPECT(asked > 20 && !bad, "hone tokenize %s: %zu of %zu answers differ", path, bad, asked);
    test_passed += (int)(asked - bad);
    mem_free(&mem);
}

/* One template over its cases' variables (args, where all share them): the text, or an error
 * of the reference's kind, which is what stands before the first colon. */
static void template(const char *file, const Json *args, const Json *c, size_t n, const char *what, Mem *mem) {
    Buf in = { 0 };
    Json *got = MEM_ARRAY(mem, Json, n);
    for (size_t i = 0; i < n; i++) {
        json_put_value(&in, args ? args : json_get(&c[i], "args"));
        buf_putc(&in, '\n');
    }
    size_t lines = run("template", file, "", &in, got, n, mem);
    const Json *first = json_get(&c[0], "error"); /* what is no template is refused before anything is read */
    bool refused_whole = !lines && first && !strncmp(first->str, "TemplateSyntaxError", 19);
    EXPECT(lines == n || refused_whole, "%s: %zu lines of %zu", what, lines, n);
    for (size_t i = 0; i < lines; i++) {
        const Json *want = json_get(&c[i], "text"), *text = json_get(&got[i], "text"),
                   *refused = json_get(&c[i], "error"), *error = json_get(&got[i], "error");
        bool ok = want ? text && same(text, want)
                       : error && !strncmp(error->str, refused->str, strcspn(refused->str, ":") + 1);
        EXPECT(ok, "hone template %s, case %zu", what, i + 1);
    }
    buf_free(&in);
}

static void own_templates(void) { /* the first line has the variables, each other one a template: every fifth */
    Mem mem = { 0 };
    Json *c;
    size_t n = read_lines(FIXTURE("templates/cases.jsonl"), &c, &mem);
    for (size_t i = 1; i < n; i += 5) {
        const Json *t = json_get(&c[i], "template");
        write_text("own.jinja", t->str, t->n);
        template(path_in_tmp("own.jinja"), json_get(&c[0], "args"), &c[i], 1, t->str, &mem);
    }
    mem_free(&mem);
}

static int each(const char *root, const char *end, void (*fn)(const char *root, const char *name)) {
    int n = 0;
    DIR *d = opendir(root);
    for (const struct dirent *e; d && (e = readdir(d));) {
        const char *at = strstr(e->d_name, end);
        if (e->d_name[0] != '.' && at && !strcmp(at, end)) fn(root, e->d_name), n++;
        else if (e->d_name[0] != '.' && !*end) fn(root, e->d_name), n++;
    }
    if (d) closedir(d);
    return n;
}
static void published(const char *root, const char *name) { /* NAME.jinja beside NAME.jsonl */
    char file[900], cases[900];
    Mem mem = { 0 };
    Json *c;
    snprintf(file, sizeof file, "%s/%s", root, name);
    snprintf(cases, sizeof cases, "%s/%.*s.jsonl", root, (int)(strlen(name) - 6), name);
    size_t n = read_lines(cases, &c, &mem);
    template(file, NULL, c, n, name, &mem);
    mem_free(&mem);
}

int main(int argc, char **argv) {
    const char *slash = strrchr(argv[0], '/'); /* build/tests/cmd/test_text_verbs -> build/hone */
    snprintf(hone, sizeof hone, "%.*s/../../hone", slash ? (int)(slash - argv[0]) : 1, slash ? argv[0] : ".");
    CHECK(!access(hone, X_OK) && mkdtemp(tmp), "%s: not there", hone);
    EXPECT(each(FIXTURE("tokenizers"), "", tokenizer) > 30, "the fixtures are missing");
    own_templates();
    if (argc > 2 && !strcmp(argv[1], "--extra")) {
        char root[600];
        snprintf(root, sizeof root, "%s/tokenizers", argv[2]);
        EXPECT(each(root, "", tokenizer) > 0, "%s has none", root);
        snprintf(root, sizeof root, "%s/templates", argv[2]);
        EXPECT(each(root, ".jinja", published) > 0, "%s has none", root);
    } else SKIP("published vocabularies and templates: --extra DIR has them");
    Mem mem = { 0 };
    CHECK(!system(mem_printf(&mem, "rm -r '%s'", tmp)), "rm");
    mem_free(&mem);
    return test_end();
}
