/* test_identity.c - what a run is, in lines: which files are looked at and how much of them is read (by the kernel's
 * count), that a change is seen, and that what cannot be one (another seed's sample aside) is none. */
#include "base/file.h"
#include "base/clock.h"
#include "run/identity.h"
#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64] = "/tmp/hone-identity-XXXXXX";
static Mem mem;
static Err err;

static const char *at(const char *name) { return mem_printf(&mem, "%s/%s", dir, name); }
static void put(const char *name, const char *text) {
    EXPECT(file_write(at(name), text, strlen(text), &err), "%s", err.msg);
}
static bool says(const Identity *id, const char *key) {
    return id->lines.n && strstr(id->lines.data, mem_printf(&mem, "%s\t", key));
}
static int64_t count_lines(const Identity *id) {
    int64_t n = 0;
    for (size_t i = 0; i < id->lines.n; i++) n += id->lines.data[i] == '\n';
    return n;
}
static bool equal(const Identity *a, const Identity *b) {
    return a->lines.n == b->lines.n && !memcmp(a->lines.data, b->lines.data, a->lines.n);
}

/* Bytes that this process has read by calls so far. */
static int64_t bytes_read(void) {
    char text[512] = "";
    long long n = -1;
    int fd = open("/proc/self/io", O_RDONLY);
    if (fd < 0 || read(fd, text, sizeof text - 1) <= 0 || sscanf(text, "rchar: %lld", &n) != 1) n = -1;
    if (fd >= 0) close(fd);
    return n;
}

static void lines(void) {
    Identity id = { 0 }, other = { 0 };
    identity_say(&id, "a\tb", "one\ntwo\t%d", 3);
    EXPECT_STR(id.lines.data, "a\\x09b\tone\\x0atwo\\x093\n");
    char *much = mem_push(&mem, 6001), *more = mem_push(&mem, 6001);
    memset(much, 'x', 6000), memset(more, 'x', 6000);
    more[5999] = 'y';
    identity_free(&id);
    identity_say(&id, "list", "%s", much), identity_say(&other, "list", "%s", more);
    EXPECT(id.lines.n < 4200 && !equal(&id, &other), "long values that end otherwise are not equal");
    identity_free(&id), identity_free(&other);
}

/* ---- a model of 671e9 parameters in float8, as it is published: 163 files of 4.3 GB, 91,991 tensors; here full of
 * holes */
enum { SHARDS = 163, TENSORS = 564 };
static int64_t shard_make(int k, const char *name, Buf *index) {
    Buf h = { 0 };
    const int64_t each = 7600000;
    buf_puts(&h, "{");
    for (int i = 0; i < TENSORS; i++) {
        const char *t = mem_printf(&mem, "model.layers.%d.mlp.experts.%d.gate_proj.weight", k, i);
        buf_printf(&h, "%s\"%s\":{\"dtype\":\"F8_E4M3\",\"shape\":[7600000],\"data_offsets\":[%lld,%lld]}",
                   i ? "," : "", t, (long long)(i * each), (long long)((i + 1) * each));
        buf_printf(index, "%s\"%s\":\"%s\"", index->n > 20 ? "," : "", t, name);
    }
    buf_puts(&h, "}");
    uint64_t n = h.n;
    int fd = open(at(name), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    bool ok = fd >= 0 && write(fd, &n, 8) == 8 && write(fd, h.data, h.n) == (ssize_t)h.n
              && !ftruncate(fd, (off_t)(8 + h.n + TENSORS * (size_t)each));
    EXPECT(ok, "%s cannot be made", name);
    if (fd >= 0) close(fd);
    buf_free(&h);
    return 8 + (int64_t)n;
}

static void large_model(void) {
    Buf index = { 0 };
    int64_t headers = 0;
    buf_puts(&index, "{\"weight_map\":{");
    for (int k = 0; k < SHARDS; k++)
        headers += shard_make(k, mem_printf(&mem, "model-%05d-of-%05d.safetensors", k + 1, SHARDS), &index);
    buf_puts(&index, "}}");
    put("model.safetensors.index.json", index.data);
    Identity a = { 0 }, b = { 0 };
    int64_t before = bytes_read();
    double t0 = clock_now();
    EXPECT(identity_weights(&a, dir, 1, &err), "%s", err.msg);
    printf("looked at in %.3f s\n", clock_now() - t0);
    int64_t took = bytes_read() - before, most = headers + (int64_t)index.n + SHARDS * (int64_t)IDENTITY_SAMPLE;
    EXPECT(before < 0 || (took >= most && took < most + 16384), "%lld bytes were read, %lld wanted", (long long)took,
           (long long)most);
    EXPECT(a.read == most && most < 64 << 20, "%lld bytes are said, %lld wanted", (long long)a.read, (long long)most);
    EXPECT(count_lines(&a) == SHARDS, "%lld files", (long long)count_lines(&a));
    EXPECT(identity_weights(&b, dir, 1, &err) && equal(&a, &b), "the same files are the same lines");
    const char *last = at("model-00163-of-00163.safetensors");
    struct stat st;
    EXPECT(!stat(last, &st) && !truncate(last, st.st_size - 1), "it becomes shorter");
    identity_free(&b);
    EXPECT(identity_weights(&b, dir, 1, &err) && !equal(&a, &b), "a size that changed is seen");
    identity_free(&a), identity_free(&b);
    for (int k = 0; k < SHARDS; k++) unlink(at(mem_printf(&mem, "model-%05d-of-%05d.safetensors", k + 1, SHARDS)));
    unlink(at("model.safetensors.index.json"));
    buf_free(&index);
}

/* One byte of a file that has room for sixteen samples: some seeds see it, some do not. */
static void places(void) {
    size_t n = 16 * (size_t)IDENTITY_SAMPLE;
    char *text = mem_push(&mem, n);
    memcpy(text, "\2\0\0\0\0\0\0\0{}", 10);
    Identity was[64] = { 0 }, now;
    int seen = 0, seeds = 0;
    EXPECT(file_write(at("model.safetensors"), text, n, &err), "%s", err.msg);
    for (uint64_t s = 0; s < 64; s++) EXPECT(identity_weights(&was[s], dir, s, &err), "%s", err.msg);
    text[n / 2] = 1;
    EXPECT(file_write(at("model.safetensors"), text, n, &err), "%s", err.msg);
    for (uint64_t s = 0; s < 64; s++) {
        now = (Identity){ 0 };
        EXPECT(identity_weights(&now, dir, s, &err), "%s", err.msg);
        seen += !equal(&now, &was[s]);
        identity_free(&now);
    }
    EXPECT(seen > 0 && seen < 32, "%d of 64 seeds look there", seen);
    text[n / 2] = 0, text[9] = ' ';
    EXPECT(file_write(at("model.safetensors"), text, n, &err), "%s", err.msg);
    for (uint64_t s = 0; s < 64; s++) {
        now = (Identity){ 0 };
        EXPECT(identity_weights(&now, dir, s, &err), "%s", err.msg);
        seeds += !equal(&now, &was[s]);
        identity_free(&now), identity_free(&was[s]);
    }
    EXPECT(seeds == 64, "a header that changed is seen by %d of 64 seeds", seeds);
    static const char *const bad[] = { "", "\1", "\377\377\377\377\377\377\377\377{}", "\5\0\0\0\0\0\0\0{}" };
    for (size_t i = 0; i < COUNT(bad); i++) {
        now = (Identity){ 0 };
        size_t len = i == 0 ? 0 : i == 1 ? 1 : 10;
        EXPECT(file_write(at("model.safetensors"), bad[i], len, &err) && identity_weights(&now, dir, 1, &err),
               "what is no safetensors file is the loader's to refuse: %s", err.msg);
        identity_free(&now);
    }
    unlink(at("model.safetensors"));
    now = (Identity){ 0 };
    EXPECT(!identity_weights(&now, dir, 1, &err) && strstr(err.msg, dir), "no model: %s", err.msg);
    identity_free(&now);
}

static void tokenizers(void) {
    static const char *const names[] = { "vocab.json", "merges.txt", "x.tiktoken", "tiktoken.model", "tokenizer.json" };
    static const char *const want[] = { "vocab.json", "merges.txt", "x.tiktoken", "tiktoken.model", "tokenizer.json" };
    put("tokenizer_config.json", "{}"), put("chat_template.jinja", "x"), put("own.jinja", "y");
    for (size_t i = 0; i < COUNT(names); i++) {
        Identity id = { 0 };
        put(names[i], "{}");
        EXPECT(identity_tokenizer(&id, dir, NULL, &err), "%s", err.msg);
        EXPECT(says(&id, want[i]) && says(&id, "tokenizer_config.json") && says(&id, "chat_template.jinja"), "%s",
               id.lines.data);
        EXPECT(count_lines(&id) == (i == 1 ? 4 : 3), "%s: what is passed over does not count:\n%s", names[i],
               id.lines.data);
        identity_free(&id);
    }
    Identity id = { 0 };
    EXPECT(identity_tokenizer(&id, at("tokenizer.json"), at("own.jinja"), &err), "%s", err.msg);
    EXPECT(says(&id, "tokenizer") && says(&id, "chat_template.jinja") && strstr(id.lines.data, "jinja\t1 bytes, "),
           "%s", id.lines.data);
    identity_free(&id);
    EXPECT(!identity_tokenizer(&id, at("nowhere"), NULL, &err) && strstr(err.msg, "nowhere"), "%s", err.msg);
    identity_free(&id);
}

static void scorers(void) {
    Identity id = { 0 };
    put("s.py", "print(1)");
    EXPECT(identity_scorer(&id, NULL, NULL, mem_printf(&mem, "/bin/sh -c 'python3 %s/s.py; cat'", dir), &err), "%s",
           err.msg);
    EXPECT(count_lines(&id) == 1 && says(&id, "the scorer's s.py"), "the script and no program:\n%s", id.lines.data);
    identity_free(&id);
    CHECK(!mkdir(at("b"), 0700), "%s", dir);
    put("b/s.py", "print(2)"), put("judge", "echo 1"), put("log", "so far");
    EXPECT(identity_scorer(&id, NULL, NULL,
                           mem_printf(&mem, "cd %s; sh -e %s/judge 2>> %s/log | (. %s/s.py %s/b/s.py %s/log)", dir, dir,
                                      dir, dir, dir, dir),
                           &err),
           "%s", err.msg);
    EXPECT(count_lines(&id) == 3 && says(&id, "the scorer's judge") && says(&id, "the scorer's s.py")
               && says(&id, "the scorer's s.py (2)"),
           "what judges, and no log:\n%s", id.lines.data);
    identity_free(&id);
    EXPECT(identity_scorer(&id, at("s.py"), NULL, NULL, &err) && says(&id, "the scorer"), "%s", err.msg);
    identity_free(&id);
    EXPECT(identity_scorer(&id, NULL, NULL, NULL, &err) && !id.lines.n, "none");
    EXPECT(!identity_scorer(&id, NULL, at("no.so"), NULL, &err) && strstr(err.msg, "no.so"), "%s", err.msg);
    identity_free(&id);
}

static void tell(void *user, const char *key, const char *was, const char *is) {
    buf_printf(user, "%s %s %s;", key, was ? was : "-", is ? is : "-");
}
static void changes(void) {
    Identity id = { 0 };
    Buf text = { 0 }, said = { 0 };
    Json kept;
    identity_say(&id, "a \"b\"", "1"), identity_say(&id, "c", "2"), identity_say(&id, "d", "3");
    identity_put(&text, &id);
    EXPECT(json_parse(&kept, text.data, text.n, &mem, &err), "%s: %s", text.data, err.msg);
    identity_changes(&id, &kept, tell, &said);
    EXPECT(!said.n, "nothing changed: %s", said.n ? said.data : "");
    identity_free(&id);
    identity_say(&id, "a \"b\"", "1"), identity_say(&id, "c", "4"), identity_say(&id, "e", "5");
    identity_changes(&id, &kept, tell, &said);
    EXPECT_STR(said.data, "c 2 4;e - 5;d 3 -;");
    buf_clear(&said);
    identity_changes(&id, NULL, tell, &said);
    identity_changes(&id, &(Json){ .kind = JSON_INT }, tell, &said);
    EXPECT(!said.n, "beside nothing, nothing changed");
    identity_free(&id);
    buf_clear(&text);
    identity_put(&text, &id);
    EXPECT_STR(text.data, "{}");
    buf_free(&text), buf_free(&said);
}

int main(void) {
    EXPECT(mkdtemp(dir), "no folder");
    lines();
    large_model();
    places();
    tokenizers();
    scorers();
    changes();
    Identity id = { 0 };
    identity_program(&id, "train");
    EXPECT_STR(id.lines.data, "verb\ttrain\nversion\t0.1, commit not known\n");
    identity_free(&id);
    tree_remove(dir);
    mem_free(&mem);
    return test_end();
}
