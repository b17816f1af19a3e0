/* test_yaml.c - what a document means as JSON, and what is refused. */
#include "base/yaml.h"
#include "test.h"

static void means(const char *yaml, const char *json) {
    Mem mem = { 0 };
    Err err = { 0 };
    Json j;
    Buf b = { 0 };
    bool ok = yaml_parse(&j, yaml, strlen(yaml), &mem, &err);
    if (ok) json_put_value(&b, &j);
    EXPECT(ok, "%s: %s", yaml, err.msg);
    if (ok) EXPECT_STR(b.data, json);
    buf_free(&b);
    mem_free(&mem);
}

static void refused(const char *yaml, const char *why) {
    Mem mem = { 0 };
    Err err = { 0 };
    Json j;
    bool ok = yaml_parse(&j, yaml, strlen(yaml), &mem, &err);
    EXPECT(!ok && strstr(err.msg, why), "%.60s: %s, want '%s'", yaml, ok ? "accepted" : err.msg, why);
    mem_free(&mem);
}

/* Files that nobody writes by hand: read in time that grows as their length, or refused at
 * the limits that yaml.h states. */
static void absurd(void) {
    Buf b = { 0 };
    Mem mem = { 0 };
    Err err = { 0 };
    for (int i = 0; i < 40000; i++) buf_printf(&b, "key%d: &anchor%d %d\n", i, i, i);
    const Yaml *y = yaml_read(NULL, b.data, b.n, &mem, &err);
    EXPECT(y && y->n == 40000 && y->values == 40001 && y->deep == 2, "40000 keys and anchors: %s", err.msg);
    EXPECT(y && y->pairs[39999].value->line == 40000 && !strcmp(y->pairs[39999].value->text, "39999"),
           "the last of them");
    buf_puts(&b, "key0: again\n");
    refused(b.data, "line 40001: key0 stands twice");
    buf_clear(&b);
    for (int i = 0; i < 120000; i++) buf_printf(&b, "key%d: %d\n", i, i);
    refused(b.data, "line 50000: too many values: at most 100000");

    buf_clear(&b); /* each is twice the one before: as text 2^40 values */
    buf_puts(&b, "a0: &a0 [1, 1]\n");
    for (int i = 1; i < 40; i++) buf_printf(&b, "a%d: &a%d [*a%d, *a%d]\n", i, i, i - 1, i - 1);
    refused(b.data, "too many values");
    buf_clear(&b); /* each merges the one before */
    buf_puts(&b, "a0: &a0 {k0: 1}\n");
    for (int i = 1; i < 5000; i++) buf_printf(&b, "a%d: &a%d {<<: *a%d, k%d: 1}\n", i, i, i - 1, i);
    refused(b.data, "too many values");
    buf_clear(&b); /* each holds the one before: no line is deep */
    buf_puts(&b, "a0: &a0 [1]\n");
    for (int i = 1; i < 100; i++) buf_printf(&b, "a%d: &a%d [*a%d]\n", i, i, i - 1);
    refused(b.data, "nested too deeply");
    buf_clear(&b);
    for (int i = 0; i < 17 << 10; i++) buf_printf(&b, "#%1023s", "\n");
    refused(b.data, "16 MiB");
    buf_free(&b);
    mem_free(&mem);
}

int main(void) {
    means("", "{}");
    means("# only a comment\n", "{}");
    means("a: 1\nb: 1.5\nc: 1e-6\nd: yes\ne: true\nf: ~\n",
          "{\"a\":1,\"b\":1.5,\"c\":1e-06,\"d\":\"yes\",\"e\":true,\"f\":null}");
    means("a: '1'\nb: \"x y\"\nc: -.5\nd: -7\ne: 1.2.3\nf: 0x10\n",
          "{\"a\":\"1\",\"b\":\"x y\",\"c\":-0.5,\"d\":-7,\"e\":\"1.2.3\",\"f\":\"0x10\"}");
    means("a:\n  b: [1, two, [3]]\n  c:\n  - x\n  - y: 1\n", "{\"a\":{\"b\":[1,\"two\",[3]],\"c\":[\"x\",{\"y\":1}]}}");
    means("{\"a\": [1, null, \"\\u00e9\"]}", "{\"a\":[1,null,\"\xc3\xa9\"]}");
    means("a: >\n  one\n  two\nb: |\n  x\n", "{\"a\":\"one two\\n\",\"b\":\"x\\n\"}");
    refused("a: 1\na: 2\n", "twice");
    means("a: &x 1\nb: *x\nc: [*x, &y {k: *x}]\nd: *y\n", "{\"a\":1,\"b\":1,\"c\":[1,{\"k\":1}],\"d\":{\"k\":1}}");
    means("a: &m {x: 1, y: 2}\nb:\n  <<: *m\n  y: 3\nc: {<<: [{x: 4}, *m], '<<': 5}\nd: {<<: {}}\n",
          "{\"a\":{\"x\":1,\"y\":2},\"b\":{\"y\":3,\"x\":1},\"c\":{\"<<\":5,\"x\":4,\"y\":2},\"d\":{}}");
    refused("a: *x\nb: &x 1\n", "line 1: there is no anchor &x");
    refused("a: &x 1\nb: &x 2\n", "line 2: the anchor &x is there twice");
    refused("a: &x [1, *x]\n", "inside what it names");
    refused("a: &x\n  b: 1\n  c: *x\n", "inside what it names");
    refused("a: {<<: [1]}\n", "<< wants a mapping");
    refused("a: !!python/object 1\n", "tags");
    refused("a: ! [1]\n", "tags");
    refused("'': 1\n", "plain name");
    refused("a: [1, 2\n", "line");
    refused("--- \na: 1\n--- \nb: 2\n", "second document");
    refused("? [a]\n: 1\n", "key must be a plain name");
    char deep[400];
    memset(deep, '[', 200), memset(deep + 200, ']', 200), deep[399] = 0;
    refused(deep, "deep");
    absurd();
    return test_end();
}
