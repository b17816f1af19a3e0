/* test_gguf.c - what is written is read back; a file that is cut off anywhere, and every other way in which one can be
 * wrong, gives one line that names the file; numbers at both ends of their ranges. */
#include "gguf/put.h"
#include "param/blocks.h"
#include "tensor/half.h"
#include "test.h"

#include <math.h>

/* A small whole file: header, then 'data' bytes of 0. */
static void small(Buf *out, size_t data) {
    GgufOut o = { 0 };
    gguf_put_text(&o, "general.architecture", "llama", 5);
    gguf_put_int(&o, "llama.block_count", 2);
    gguf_put_real(&o, "llama.rope.freq_base", 5e5f);
    gguf_put_flag(&o, "a.flag", true);
    gguf_put_tensor(&o, "a", "F32", 2, (int64_t[]){ 2, 3 });
    gguf_put_tensor(&o, "b", "Q8_0", 1, (int64_t[]){ 64 });
    gguf_put_all(out, &o);
    for (size_t i = 0; i < data; i++) buf_putc(out, 0);
}
enum { DATA = 32 + 96 };

static bool parse(Gguf *g, const Buf *b, size_t n, Mem *mem, Err *err) {
    char *copy = malloc(n ? n : 1); /* of its own, so that what is behind it is told by ASan */
    memcpy(copy, b->data, n);
    bool ok = gguf_parse(g, copy, n, "x.gguf", mem, err);
    free(copy);
    return ok;
}

static void good(void) {
    Mem mem = { 0 };
    Buf b = { 0 };
    Err err = { "" };
    Gguf g;
    int64_t blocks = 0;
    double base = 0;
    bool flag = false;
    small(&b, DATA);
    bool ok = gguf_parse(&g, b.data, b.n, "x.gguf", &mem, &err);
    EXPECT(ok && g.n_tensors == 2 && g.n_values == 4, "%s", err.msg);
    EXPECT(ok && gguf_int(&g, "llama.block_count", &blocks, &err) && blocks == 2, "%ld", (long)blocks);
    EXPECT(ok && gguf_real(&g, "llama.rope.freq_base", &base, &err) && base == 5e5, "%g", base);
    EXPECT(ok && gguf_flag(&g, "a.flag", &flag, &err) && flag, "a flag");
    EXPECT(ok && !gguf_int(&g, "general.architecture", &blocks, &err) && strstr(err.msg, "not one whole number"), "%s",
           err.msg);
    EXPECT(ok && g.tensor[0].dim[0] == 2 && g.tensor[0].dim[1] == 3 && g.tensor[0].bytes == 24, "rows first");
    EXPECT(ok && g.tensor[1].bytes == 68 && g.tensor[1].data == g.tensor[0].data + 32, "places");
    for (size_t n = 0, bad = 0; n <= b.n; n++) {
        Gguf cut;
        bool whole = n >= b.n - 28; /* what pads the last tensor is not needed */
        err.msg[0] = 0;
        bad += parse(&cut, &b, n, &mem, &err) != whole
               || (!whole && (!strstr(err.msg, "x.gguf") || strchr(err.msg, '\n')));
        if (n == b.n) EXPECT(!bad, "%zu of %zu lengths", bad, b.n);
    }
    b.n = 0;
    GgufOut none = { 0 };
    gguf_put_all(&b, &none);
    EXPECT(gguf_parse(&g, b.data, b.n, "x.gguf", &mem, &err) && !g.n_tensors && !g.n_values, "an empty one: %s",
           err.msg);
    buf_free(&b);
    mem_free(&mem);
}

/* Bytes of a good file that are overwritten, found by what stands before them. */
static const struct {
    const char *what, *behind; /* NULL: from the beginning */
    size_t skip, n;
    uint64_t with;
    const char *says;
} cases[] = {
    { "magic", NULL, 0, 4, 0x47474746, "no GGUF file" },
    { "version", NULL, 4, 4, 1, "version 1" },
    { "2^64 tensors", NULL, 8, 8, UINT64_MAX, "ends in its header" },
    { "2^63 tensors", NULL, 8, 8, 1ull << 63, "ends in its header" },
    { "2^64 keys", NULL, 16, 8, UINT64_MAX, "ends in its header" },
    { "a key too many", NULL, 16, 8, 5, "x.gguf" },
    { "a kind", "llama.block_count", 0, 4, 13, "the kind 13" },
    { "an array", "llama.block_count", 0, 4, GGUF_ARRAY, "x.gguf" },
    { "a long text", "general.architecture", 4, 8, 1ull << 62, "ends in its header" },
    { "a key twice", "a.fla", 0, 1, 0, "byte 0x00" },
    { "no dimensions", "\1\0\0\0\0\0\0\0a", 0, 4, 0, "0 dimensions" },
    { "five", "\1\0\0\0\0\0\0\0a", 0, 4, 5, "5 dimensions" },
    { "2^63 columns", "\1\0\0\0\0\0\0\0a", 4, 8, 1ull << 62, "too large" },
    { "2^32 x 2^32", "\1\0\0\0\0\0\0\0a", 4, 8, 1ull << 61, "too large" },
    { "a type", "\1\0\0\0\0\0\0\0a", 20, 4, 99, "type 99" },
    { "an old type", "\1\0\0\0\0\0\0\0a", 20, 4, 4, "type 4" },
    { "no whole block", "\1\0\0\0\0\0\0\0b", 4, 8, 33, "no whole blocks of Q8_0" },
    { "misaligned", "\1\0\0\0\0\0\0\0b", 16, 8, 33, "no multiple of 32" },
    { "overlap", "\1\0\0\0\0\0\0\0b", 16, 8, 0, "overlap" },
    { "outside", "\1\0\0\0\0\0\0\0b", 16, 8, 64, "ends beyond" },
    { "far outside", "\1\0\0\0\0\0\0\0b", 16, 8, UINT64_MAX - 31, "ends beyond" },
};

static void malformed(void) {
    for (size_t i = 0; i < COUNT(cases); i++) {
        Mem mem = { 0 };
        Buf b = { 0 };
        Err err = { "" };
        Gguf g;
        small(&b, DATA);
        const char *key = cases[i].behind;
        size_t n = !key ? 0 : key[0] == 1 ? 9 : strlen(key);
        char *at = key ? memmem(b.data, b.n, key, n) : b.data;
        CHECK(at, "%s is not in the file", cases[i].what);
        at += n + cases[i].skip;
        for (size_t k = 0; k < cases[i].n; k++) at[k] = (char)(cases[i].with >> (8 * k));
        EXPECT(!parse(&g, &b, b.n, &mem, &err) && strstr(err.msg, cases[i].says) && !strchr(err.msg, '\n'),
               "%s: \"%s\"", cases[i].what, err.msg);
        buf_free(&b);
        mem_free(&mem);
    }
    Mem mem = { 0 };
    Buf b = { 0 };
    Err err = { "" };
    Gguf g;
    GgufOut o = { 0 };
    gguf_put_int(&o, "k", 1);
    gguf_put_int(&o, "k", 2);
    gguf_put_all(&b, &o);
    EXPECT(!parse(&g, &b, b.n, &mem, &err) && strstr(err.msg, "k is there twice"), "%s", err.msg);
    buf_clear(&b);
    gguf_put_int(&o, "split.count", 3);
    gguf_put_all(&b, &o);
    EXPECT(!parse(&g, &b, b.n, &mem, &err) && strstr(err.msg, "one of 3 parts"), "%s", err.msg);
    buf_clear(&b);
    gguf_put_int(&o, "general.alignment", 24);
    gguf_put_all(&b, &o);
    EXPECT(!parse(&g, &b, b.n, &mem, &err) && strstr(err.msg, "general.alignment is 24"), "%s", err.msg);
    buf_free(&b);
    mem_free(&mem);
}

/* ---- halves: every one there and back, and the middle between each two */
static void halves(void) {
    int wrong = 0;
    for (uint32_t h = 0; h < 0x7C00; h++) {
        float x = f16_f32((uint16_t)h), next = h < 0x7BFF ? f16_f32((uint16_t)(h + 1)) : 65536.0f, mid = (x + next) / 2;
        uint32_t even = h & 1 ? h + 1 : h;
        wrong += f32_f16(x) != h || f32_f16(-x) != (h | 0x8000);
        wrong += f32_f16(mid) != even || f32_f16(nextafterf(mid, 0)) != h || f32_f16(nextafterf(mid, 1e9f)) != h + 1;
    }
    EXPECT(!wrong, "%d of 31744 halves", wrong);
    EXPECT(f32_f16(INFINITY) == 0x7C00 && f32_f16(1e30f) == 0x7C00 && (f32_f16(NAN) & 0x7FFF) > 0x7C00
               && !f32_f16(1e-30f),
           "beyond them");
}

/* ---- blocks that are written and read: within half a step, and nothing that is too large */
static void blocks(void) {
    static const struct {
        DType t;
        float step; /* of the block's range */
    } kinds[] = { { DT_Q4_0, 1.0f / 8 },
                  { DT_Q4_1, 1.0f / 15 },
                  { DT_Q5_0, 1.0f / 16 },
                  { DT_Q5_1, 1.0f / 31 },
                  { DT_Q8_0, 1.0f / 127 } };
    for (size_t k = 0; k < COUNT(kinds); k++) {
        float x[BLOCK_MOST], y[BLOCK_MOST], most = 0;
        char b[256];
        for (int i = 0; i < 32; i++) x[i] = sinf((float)(7 * i)) * (i == 3 ? -2.0f : 1.0f);
        bool ok = block_write(kinds[k].t, b, x);
        block_read(kinds[k].t, y, b);
        for (int i = 0; i < 32; i++) most = fmaxf(most, fabsf(x[i] - y[i]));
        EXPECT(ok && most > 0 && most < 4 * kinds[k].step, "%s: %g off", dtype_name(kinds[k].t), (double)most);
        memset(x, 0, sizeof x);
        ok = block_write(kinds[k].t, b, x);
        block_read(kinds[k].t, y, b);
        EXPECT(ok && y[0] == 0 && y[31] == 0, "%s: zeros", dtype_name(kinds[k].t));
        x[5] = 3e38f;
        EXPECT(!block_write(kinds[k].t, b, x), "%s: too large", dtype_name(kinds[k].t));
        x[5] = 1e-44f;
        EXPECT(block_write(kinds[k].t, b, x), "%s: the smallest", dtype_name(kinds[k].t));
    }
    EXPECT(!block_writes(DT_Q4_K) && !block_writes(DT_F32), "what is read only");
}

int main(void) {
    good();
    malformed();
    halves();
    blocks();
    return test_end();
}
