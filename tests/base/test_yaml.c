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
    EXPECT(!ok && strstr(err.msg, why), "%s: %s, want '%s'", yaml, ok ? "accepted" : err.msg, why);
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
    refused("a: &x 1\nb: *x\n", "anchors");
    refused("a: !!python/object 1\n", "tags");
    refused("a: [1, 2\n", "line");
    refused("--- \na: 1\n--- \nb: 2\n", "second document");
    refused("? [a]\n: 1\n", "key must be a word");
    char deep[400];
    memset(deep, '[', 200), memset(deep + 200, ']', 200), deep[399] = 0;
    refused(deep, "deep");
    return test_end();
}
