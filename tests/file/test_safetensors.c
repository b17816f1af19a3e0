/* test_safetensors.c - what is written is read back, in one file and in shards; and every way in which a file can be
 * wrong gives one line that names the file, and the tensor where there is one. */
#include "file/safetensors.h"
#include "test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- malformed files: header text and how many bytes of data follow */
typedef struct {
    const char *what, *header; /* header with ' for " */
    size_t data;
    const char *says; /* NULL: it is read */
} Case;

static const Case cases[] = {
    { "good", "{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]}}", 24, NULL },
    { "scalar", "{'a':{'dtype':'F32','shape':[],'data_offsets':[0,4]}}", 4, NULL },
    { "no bytes", "{'a':{'dtype':'F32','shape':[0,3],'data_offsets':[0,0]}}", 0, NULL },
    { "metadata only", "{'__metadata__':{'format':'pt'}}", 0, NULL },
    { "a gap", "{'a':{'dtype':'U8','shape':[1],'data_offsets':[5,6]}}", 9, NULL },
    { "two",
      "{'b':{'dtype':'BF16','shape':[2],'data_offsets':[4,8]},"
      "'a':{'dtype':'F16','shape':[2],'data_offsets':[0,4]}}",
      8, NULL },
    { "padding", "{'a':{'dtype':'I64','shape':[1],'data_offsets':[0,8]}}     ", 8, NULL },
    { "cut off", "{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,24]}}", 23, "tensor a ends at byte 24 of 23" },
    { "wrong size", "{'a':{'dtype':'F32','shape':[2,3],'data_offsets':[0,20]}}", 24,
      "[2,3] takes 24 bytes, its data_offsets span 20" },
    { "backwards", "{'a':{'dtype':'F32','shape':[1],'data_offsets':[8,4]}}", 24, "not a range" },
    { "negative offset", "{'a':{'dtype':'F32','shape':[1],'data_offsets':[-4,0]}}", 24, "not a range" },
    { "overlap",
      "{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8]},"
      "'b':{'dtype':'F32','shape':[2],'data_offsets':[4,12]}}",
      12, "a and b overlap" },
    { "same place",
      "{'a':{'dtype':'F32','shape':[2],'data_offsets':[0,8]},"
      "'b':{'dtype':'F32','shape':[2],'data_offsets':[0,8]}}",
      8, "overlap" },
    { "duplicate",
      "{'a':{'dtype':'U8','shape':[1],'data_offsets':[0,1]},"
      "'a':{'dtype':'U8','shape':[1],'data_offsets':[1,2]}}",
      2, "\"a\"" },
    { "2^63 elements", "{'a':{'dtype':'F32','shape':[9223372036854775807],'data_offsets':[0,8]}}", 8, "too large" },
    { "2^64 by product", "{'a':{'dtype':'U8','shape':[4294967296,4294967296],'data_offsets':[0,0]}}", 8, "too large" },
    { "2^63 offset", "{'a':{'dtype':'U8','shape':[1],'data_offsets':[9223372036854775806,9223372036854775807]}}", 8,
      "ends at byte" },
    { "beyond 2^63", "{'a':{'dtype':'U8','shape':[1],'data_offsets':[0,9223372036854775808]}}", 8, "data_offsets" },
    { "negative size", "{'a':{'dtype':'F32','shape':[-1],'data_offsets':[0,4]}}", 4, "not a size" },
    { "size in text", "{'a':{'dtype':'F32','shape':['1'],'data_offsets':[0,4]}}", 4, "not a size" },
    { "unknown dtype", "{'a':{'dtype':'F7','shape':[1],'data_offsets':[0,4]}}", 4, "dtype F7" },
    { "no dtype", "{'a':{'shape':[1],'data_offsets':[0,4]}}", 4, "no dtype" },
    { "no shape", "{'a':{'dtype':'F32','data_offsets':[0,4]}}", 4, "no shape" },
    { "no offsets", "{'a':{'dtype':'F32','shape':[1]}}", 4, "no data_offsets" },
    { "three offsets", "{'a':{'dtype':'F32','shape':[1],'data_offsets':[0,4,8]}}", 4, "no data_offsets" },
    { "nine dimensions", "{'a':{'dtype':'F32','shape':[1,1,1,1,1,1,1,1,1],'data_offsets':[0,4]}}", 4, "9 dimensions" },
    { "not an object", "{'a':7}", 4, "not an object" },
    { "a list", "[1,2]", 4, "not an object" },
    { "not JSON", "{'a':{'dtype'", 4, "JSON line 1" },
    { "empty", "", 4, "JSON" },
    { "line break in a name", "{'a\\nb':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}", 4, "control character" },
};

static void malformed(void) {
    for (size_t i = 0; i < COUNT(cases); i++) {
        const Case *c = &cases[i];
        Mem mem = { 0 };
        Err err = { "" };
        Buf b = { 0 };
        size_t n = strlen(c->header);
        for (int k = 0; k < 8; k++) buf_putc(&b, (char)(n >> 8 * k));
        for (size_t k = 0; k < n; k++) buf_putc(&b, c->header[k] == '\'' ? '"' : c->header[k]);
        for (size_t k = 0; k < c->data; k++) buf_putc(&b, (char)k);
        char *tight = mem_copy(&mem, b.data, b.n);
        StFiles f;
        bool ok = st_parse(&f, tight, b.n, "x.safetensors", &mem, &err);
        if (!c->says) EXPECT(ok, "%s: %s", c->what, err.msg);
        else {
            EXPECT(!ok && strstr(err.msg, c->says), "%s: %s", c->what, ok ? "was read" : err.msg);
            EXPECT(!strncmp(err.msg, "x.safetensors: ", 15) && !strchr(err.msg, '\n'), "%s: %s", c->what, err.msg);
        }
        st_close(&f);
        buf_free(&b);
        mem_free(&mem);
    }
}

/* A real file cut after every length, and with every byte of its header flipped: read, or refused with one line. */
static void cut_and_flipped(void) {
    Buf b = { 0 };
    Err err;
    CHECK(file_read(&b, FIXTURE("models/qwen2/model.safetensors"), &err), "%s", err.msg);
    size_t head = 8 + (size_t)(unsigned char)b.data[0] + ((size_t)(unsigned char)b.data[1] << 8), refused = 0, bad = 0;
    for (size_t n = 0; n < b.n; n += n < head ? 7 : 1009) {
        Mem mem = { 0 };
        StFiles f;
        err = (Err){ "" };
        bad += st_parse(&f, b.data, n, "x", &mem, &err) || !err.msg[0] || strchr(err.msg, '\n');
        mem_free(&mem);
    }
    EXPECT(!bad, "%zu cut files were read", bad);
    for (size_t i = 0; i < head; i++) {
        Mem mem = { 0 };
        StFiles f;
        err = (Err){ "" };
        b.data[i] ^= (char)(1 << i % 8);
        if (!st_parse(&f, b.data, b.n, "x", &mem, &err)) {
            refused++;
            bad += !err.msg[0] || strchr(err.msg, '\n') != NULL;
        }
        b.data[i] ^= (char)(1 << i % 8);
        mem_free(&mem);
    }
    EXPECT(!bad && refused > head / 3, "%zu of %zu flips refused, %zu without a line", refused, head, bad);
    for (int i = 0; i < 8; i++) b.data[i] = (char)0xFF; /* 2^64 - 1 bytes of header */
    Mem mem = { 0 };
    StFiles f;
    EXPECT(!st_parse(&f, b.data, b.n, "x", &mem, &err) && strstr(err.msg, "header claims"), "%s", err.msg);
    mem_free(&mem);
    buf_free(&b);
}

/* ---- on disk */
static void empty_dir(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (e->d_name[0] != '.') unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
}

static int files_in(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) n += e->d_name[0] != '.';
    if (d) closedir(d);
    return n;
}

static const StSpec specs[] = {
    { "model.a", DT_F32, 2, { 10, 10 } }, { "model.none", DT_F32, 2, { 0, 10 } },
    { "model.b", DT_BF16, 1, { 33 } },    { "model.big", DT_U8, 2, { 3, 1000000 } },
    { "model.c", DT_I64, 0, { 0 } },
};
static const size_t spec_bytes[] = { 400, 0, 66, 3000000, 8 };

static bool write_all(const char *path, int64_t shard, size_t piece, Err *err) {
    StWriter *w = st_write_open(path, specs, COUNT(specs), shard, err);
    if (!w) return false;
    static char bytes[3000474];
    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (char)(i * 31 + (i >> 8));
    for (size_t i = 0; i < sizeof bytes; i += piece)
        TRY(st_write(w, bytes + i, sizeof bytes - i < piece ? sizeof bytes - i : piece, err)
            || (st_write_abort(w), false));
    return st_write_close(w, err);
}

static void check_all(const char *path, int files) {
    Mem mem = { 0 };
    Err err = { "" };
    StFiles f;
    bool ok = st_open(&f, path, &mem, &err);
    EXPECT(ok && f.n == COUNT(specs) && f.n_files == files, "%s: %s, %d files", path, err.msg, f.n_files);
    size_t at = 0, bad = 0;
    for (size_t i = 0; ok && i < COUNT(specs); at += spec_bytes[i++]) {
        const StTensor *t = st_find(&f, specs[i].name);
        EXPECT(t && t->dtype == specs[i].dtype && st_is_shape(t, specs[i].n_dims, specs[i].shape)
                   && t->bytes == spec_bytes[i],
               "%s", specs[i].name);
        for (size_t k = 0; t && k < t->bytes; k++) bad += t->data[k] != (char)((at + k) * 31 + ((at + k) >> 8));
        if (t) st_done_with(&f, t);
    }
    EXPECT(!bad, "%s: %zu bytes differ", path, bad);
    EXPECT(!ok || !st_find(&f, "model.x"), "a tensor that is not there");
    st_close(&f);
    mem_free(&mem);
}

static void round_trip(const char *dir) {
    Err err = { "" };
    Mem mem = { 0 };
    char *file = mem_printf(&mem, "%s/dump.safetensors", dir);
    EXPECT(write_all(file, 100, 977, &err), "%s", err.msg);
    check_all(file, 1);
    empty_dir(dir);
    static const struct {
        int64_t shard;
        size_t piece;
        int files;
    } ways[] = { { 1 << 30, 1 << 20, 1 }, { 1000, 123, 3 }, { 1, 3000474, 4 }, { 470, 7001, 3 } };
    for (size_t i = 0; i < COUNT(ways); i++) {
        EXPECT(write_all(dir, ways[i].shard, ways[i].piece, &err), "%s", err.msg);
        check_all(dir, ways[i].files);
        EXPECT(files_in(dir) == ways[i].files + (ways[i].files > 1), "no other files: %d", files_in(dir));
        empty_dir(dir);
    }
    StWriter *w = st_write_open(dir, specs, COUNT(specs), 100, &err);
    CHECK(w && st_write(w, "abcd", 4, &err), "%s", err.msg);
    st_write_abort(w);
    EXPECT(files_in(dir) == 0, "an aborted write leaves nothing, not %d files", files_in(dir));
    EXPECT(!st_write_open("/nowhere/x.safetensors", specs, 1, 0, &err) && strstr(err.msg, "/nowhere/x.safetensors"),
           "%s", err.msg);
    EXPECT(!st_write_open("/nowhere/x", specs, 1, 0, &err) && strstr(err.msg, "/nowhere/x"), "%s", err.msg);
    mem_free(&mem);
}

/* A good sharded model, and one thing made wrong each time. */
static const struct {
    const char *what, *index; /* NULL: the index stays; "" : removed */
    const char *remove, *empty, *copy_to;
    const char *says;
} broken[] = {
    { "missing shard", NULL, "model-00002-of-00003.safetensors", NULL, NULL,
      "model-00002-of-00003.safetensors: this shard is missing" },
    { "zero-length shard", NULL, NULL, "model-00002-of-00003.safetensors", NULL, "0 bytes are not a safetensors file" },
    { "no index", "", NULL, NULL, NULL, "there is no model.safetensors and no model.safetensors.index.json" },
    { "no weight_map", "{}", NULL, NULL, NULL, "no weight_map" },
    { "broken index", "{\"weight_map\":", NULL, NULL, NULL, "model.safetensors.index.json: JSON line 1" },
    { "a tensor too many", "{\"weight_map\":{\"zz\":\"model-00001-of-00003.safetensors\"}}", NULL, NULL, NULL,
      "tensor zz is not in model-00001" },
    { "wrong shard",
      "{\"weight_map\":{\"model.big\":\"model-00001-of-00003.safetensors\","
      "\"model.a\":\"model-00002-of-00003.safetensors\"}}",
      NULL, NULL, NULL, "is in model-0000" },
    { "out of the folder", "{\"weight_map\":{\"a\":\"../x.safetensors\"}}", NULL, NULL, NULL,
      "does not name a file of this folder" },
    { "a number", "{\"weight_map\":{\"a\":7}}", NULL, NULL, NULL, "does not name a file of this folder" },
    { "duplicate over shards",
      "{\"weight_map\":{\"model.a\":\"model-00001-of-00003.safetensors\",\"x\":\"copy.safetensors\"}}", NULL, NULL,
      "copy.safetensors", "tensor model.a is in" },
};

static void broken_shards(const char *dir) {
    for (size_t i = 0; i < COUNT(broken); i++) {
        Err err = { "" };
        Mem mem = { 0 };
        CHECK(write_all(dir, 1000, 4096, &err), "%s", err.msg);
        char *index = mem_printf(&mem, "%s/model.safetensors.index.json", dir);
        if (broken[i].index && !broken[i].index[0]) unlink(index);
        else if (broken[i].index)
            CHECK(file_write(index, broken[i].index, strlen(broken[i].index), &err), "%s", err.msg);
        if (broken[i].remove) unlink(mem_printf(&mem, "%s/%s", dir, broken[i].remove));
        if (broken[i].empty)
            CHECK(file_write(mem_printf(&mem, "%s/%s", dir, broken[i].empty), "", 0, &err), "%s", err.msg);
        if (broken[i].copy_to) {
            Buf b = { 0 };
            CHECK(file_read(&b, mem_printf(&mem, "%s/model-00001-of-00003.safetensors", dir), &err), "%s", err.msg);
            CHECK(file_write(mem_printf(&mem, "%s/%s", dir, broken[i].copy_to), b.data, b.n, &err), "%s", err.msg);
            buf_free(&b);
        }
        StFiles f;
        bool ok = st_open(&f, dir, &mem, &err);
        EXPECT(!ok && strstr(err.msg, broken[i].says) && !strchr(err.msg, '\n'), "%s: %s", broken[i].what,
               ok ? "was read" : err.msg);
        if (ok) st_close(&f);
        empty_dir(dir);
        mem_free(&mem);
    }
}

static void published_layout(void) {
    Mem mem = { 0 };
    Err err = { "" };
    StFiles f;
    EXPECT(st_open(&f, FIXTURE("models/deepseek_v3_fp8"), &mem, &err), "%s", err.msg);
    EXPECT(f.n_files == 2 && f.n == 93, "%d files, %zu tensors", f.n_files, f.n);
    const StTensor *w = st_find(&f, "model.layers.0.mlp.gate_proj.weight"),
                   *s = st_find(&f, "model.layers.0.mlp.gate_proj.weight_scale_inv");
    EXPECT(w && s && w->dtype == DT_F8E4M3 && s->dtype == DT_F32 && st_is_shape(s, 2, (int64_t[]){ 2, 2 }),
           "a weight and its scale");
    st_close(&f);
    mem_free(&mem);
}

int main(void) {
    char dir[] = "/tmp/hone-test-XXXXXX";
    CHECK(mkdtemp(dir), "no temporary folder");
    malformed();
    cut_and_flipped();
    round_trip(dir);
    broken_shards(dir);
    published_layout();
    rmdir(dir);
    return test_end();
}
