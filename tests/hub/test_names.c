/* test_names.c - names of repositories, and the hub's lists: what is taken, and what is refused; which servers a secret
 * may go to. */
#include "http/client.h"
#include "hub/hub_in.h"
#include "test.h"

static void names(void) {
    static const struct {
        const char *text, *repo, *revision, *path;
    } good[] = {
        { "org/name", "org/name", "main", NULL },
        { "a/b@v1", "a/b", "v1", NULL },
        { "Org-1/n.a_me@refs/pr/3", "Org-1/n.a_me", "refs/pr/3", NULL },
        { "o/n:data/*.parquet", "o/n", "main", "data/*.parquet" },
        { "datasets/o/n@x:f", "o/n", "x", "f" },
    };
    static const char *const bad[] = {
        "",      "name",   "/abs/x", "a/b/c", "../b", "a/..",   "a/.b",     "a/b@",
        "a b/c", "a/b@..", "a/b@/x", "a/b:",  "a//b", "a--b/c", "a/b@x\ny", "a/b@x/../y"
    };
    Mem mem = { 0 };
    Err err;
    HubName n;
    for (size_t i = 0; i < COUNT(good); i++) {
        bool ok = hub_name(&n, good[i].text, HUB_MODEL, true, &mem, &err);
        EXPECT(ok, "%s: %s", good[i].text, err.msg);
        if (!ok) continue;
        EXPECT_STR(n.repo, good[i].repo);
        EXPECT_STR(n.revision, good[i].revision);
        EXPECT_STR(n.path ? n.path : "", good[i].path ? good[i].path : "");
        EXPECT((n.kind == HUB_DATA) == !strncmp(good[i].text, "datasets/", 9), "%s: kind", good[i].text);
    }
    for (size_t i = 0; i < COUNT(bad); i++)
        EXPECT(!hub_name(&n, bad[i], HUB_MODEL, true, &mem, &err), "'%s' is taken as %s", bad[i], n.repo);
    mem_free(&mem);
}

#define SHA "60e0fd44b34d799a313cfbd636fa3e954a0217a9"
static bool lists(HubList *l, const char *file, Mem *mem) {
    Err err;
    char *text = mem_printf(mem, "{\"sha\":\"" SHA "\",\"siblings\":[%s]}", file);
    return hub_list_parse(l, text, strlen(text), mem, &err);
}

static void lists_of_files(void) {
    static const char *const bad[] = { "../x", "/x",     "a//b",      "a/./b", "a/..", "x/",
                                       ".",    "a\\\\b", "a\\u0000b", "a\\nb", "" };
    Mem mem = { 0 };
    HubList l;
    EXPECT(lists(&l, "{\"rfilename\":\"a/b.json\",\"size\":3,\"blobId\":\"" SHA "\"}", &mem) && l.n == 1, "a file");
    EXPECT_STR(l.files[0].path, "a/b.json");
    for (size_t i = 0; i < COUNT(bad); i++)
        EXPECT(!lists(&l, mem_printf(&mem, "{\"rfilename\":\"%s\",\"size\":3,\"blobId\":\"" SHA "\"}", bad[i]), &mem),
               "the path '%s' is taken", bad[i]);
    EXPECT(!lists(&l, "{\"rfilename\":\"a\",\"blobId\":\"" SHA "\"}", &mem), "no size");
    EXPECT(!lists(&l, "{\"rfilename\":\"a\",\"size\":-1,\"blobId\":\"" SHA "\"}", &mem), "a size below 0");
    EXPECT(!lists(&l, "{\"rfilename\":\"a\",\"size\":1,\"blobId\":\"../../etc\"}", &mem), "a sum that is a path");
    EXPECT(!lists(&l, "{\"rfilename\":\"a\",\"size\":1,\"lfs\":{\"size\":1,\"sha256\":\"" SHA "\"}}", &mem),
           "a short sum");
    mem_free(&mem);
}

static void servers(void) {
    static const struct {
        const char *a, *b;
        bool same;
    } pair[] = {
        { "https://h.co/a", "https://h.co/b?c", true },
        { "https://h.co", "HTTPS://H.CO:443/x", true },
        { "https://h.co", "http://h.co", false },
        { "https://h.co", "https://h.co:444", false },
        { "https://h.co", "https://h.co.evil.com", false },
        { "https://h.co", "https://h.co@evil.com/", false },
        { "https://h.co", "https://evil.com/https://h.co", false },
        { "https://h.co", "https://cdn.h.co", false },
        { "http://[::1]:80/", "http://[::1]/", true },
        { "https://h.co", "https://h.co\\\\@evil.com", false },
        { "", "", false },
    };
    for (size_t i = 0; i < COUNT(pair); i++)
        EXPECT(url_same_server(pair[i].a, pair[i].b) == pair[i].same, "%s and %s", pair[i].a, pair[i].b);
    EXPECT(url_private("https://x") && url_private("http://127.0.0.1:80") && url_private("http://[::1]:9/")
               && !url_private("http://x") && !url_private("http://127.0.0.1.evil.com/") && !url_private("x"),
           "where a secret may go");
    Buf b = { 0 };
    url_put(&b, "a b/c?\xC3\xA9#%", "/");
    EXPECT_STR(b.data, "a%20b/c%3F%C3%A9%23%25");
    buf_free(&b);
}

int main(void) {
    names();
    lists_of_files();
    servers();
    return test_end();
}
