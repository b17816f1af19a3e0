/* test_finite.c - a weight that is NaN or infinite is refused when it is loaded and when it is converted, in every
 * format of the files, by the name of its tensor and its place. */
#include "base/file.h"
#include "file/safetensors.h"
#include "param/convert.h"
#include "param/param.h"
#include "test.h"

#include <math.h>
#include <unistd.h>

/* ---- the scan: every length and place */
static void scan(void) {
    static const uint32_t bad[] = { 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFFFFFFF, 0x7F800001 };
    static const uint32_t good[] = { 0x7F7FFFFF, 0xFF7FFFFF, 0, 0x80000000, 1, 0x3F800000 };
    enum { MOST = 200 };
    uint32_t wide[MOST];
    uint16_t half[MOST];
    int wrong = 0;
    for (int n = 0; n < MOST; n++) {
        for (int i = 0; i < n; i++) wide[i] = good[i % (int)COUNT(good)], half[i] = (uint16_t)(wide[i] >> 16);
        wrong += convert_not_finite(wide, DT_F32, n) != -1;
        half[0] &= 0x7F7F; /* (the largest float, cut short, is the largest bfloat16) */
        wrong += convert_not_finite(half, DT_BF16, n) != -1;
        for (int at = 0; at < n; at++) {
            uint32_t was = wide[at], x = bad[(n + at) % (int)COUNT(bad)];
            uint16_t was16 = half[at];
            wide[at] = x, half[at] = (uint16_t)(x >> 16);
            wrong += convert_not_finite(wide, DT_F32, n) != at;
            wrong += convert_not_finite(half, DT_BF16, n) != at;
            wide[at] = was, half[at] = was16;
        }
    }
    EXPECT(!wrong, "%d places were told wrong", wrong);
}

/* ---- folders */
static char dir[] = "/tmp/hone-finite-XXXXXX";

/* A copy of the model whose tensor holds these bytes at this byte. */
static char *spoilt(Mem *mem, const char *from, const char *tensor, size_t at, const void *bytes, size_t n) {
    Err err;
    StFiles st;
    Buf file = { 0 };
    char *to = mem_printf(mem, "%s/spoilt", dir);
    CHECK(!system(mem_printf(mem, "rm -rf '%s' && cp -r '%s' '%s' && chmod -R u+w '%s'", to, from, to, to)), "no copy");
    CHECK(st_open(&st, to, mem, &err), "%s", err.msg);
    const StTensor *t = st_find(&st, tensor);
    CHECK(t && at + n <= t->bytes, "%s of %s", tensor, from);
    const char *path = mem_str(mem, st.path[t->file], strlen(st.path[t->file]));
    at += (size_t)(t->data - st.map[t->file].data);
    st_close(&st);
    CHECK(file_read(&file, path, &err), "%s", err.msg);
    memcpy(file.data + at, bytes, n);
    CHECK(file_write(path, file.data, file.n, &err), "%s", err.msg);
    buf_free(&file);
    return to;
}

static void refused(const char *path, DType t, const char *tensor, const char *place, const char *value) {
    Mem mem = { 0 };
    Err err = { "" };
    ModelDesc m;
    Dev d;
    Params *p = MEM_NEW(&mem, Params);
    CHECK(model_desc_load(&m, path, &mem, &err), "%s", err.msg);
    dev_open(&d, (DevOpts){ .threads = 2, .guard = true });
    params_open(p, &m, NULL, &d, t, false, "weights", &mem);
    char *want = mem_printf(&mem, "tensor %s: element %s is %s", tensor, place, value);
    bool ok = params_load(p, &d, path, &err);
    EXPECT(!ok && strstr(err.msg, want), "loaded, or not by %s: %s", want, err.msg);
    char *out = mem_printf(&mem, "%s/out", dir);
    SaveOpts o = { .dtype = t, .shard_bytes = 1 << 30, .from_dir = m.dir };
    err.msg[0] = 0;
    ok = params_convert(&m, d.threads, out, o, &err);
    EXPECT(!ok && strstr(err.msg, want), "converted, or not by %s: %s", want, err.msg);
    EXPECT(!file_exists(out) && !dir_exists(out), "half a model was left behind");
    params_close(p, &d);
    dev_close(&d);
    mem_free(&mem);
}

typedef struct {
    VEC(StSpec)
    specs;
    DType t;
    Mem *mem;
    int64_t bytes;
} Specs;

static void add_spec(void *user, const ParamDesc *p, int layer, int expert, int64_t rows, int64_t cols) {
    Specs *s = user;
    Buf name = { 0 };
    arch_param_name(&name, p, layer, expert);
    StSpec x = { .name = mem_str(s->mem, name.data, name.n), .dtype = s->t };
    if (!p->vector) x.shape[x.n_dims++] = rows;
    x.shape[x.n_dims++] = cols;
    VEC_PUSH(s->specs, x);
    s->bytes += rows * cols * (int64_t)dtype_size(s->t);
    buf_free(&name);
}

/* llama's tensors in a format that is never written, all zero. */
static char *zeros(Mem *mem, DType t) {
    Err err;
    ModelDesc m;
    char *to = mem_printf(mem, "%s/zeros", dir);
    CHECK(!system(mem_printf(mem, "mkdir '%s' && cp " FIXTURE("models/llama/config.json") " '%s'", to, to)),
          "no folder");
    CHECK(model_desc_load(&m, to, mem, &err), "%s", err.msg);
    Specs s = { .t = t, .mem = mem };
    arch_each_param(&m, add_spec, &s);
    StWriter *w = st_write_open(to, s.specs.at, s.specs.n, 1 << 30, &err);
    CHECK(w && st_write(w, mem_push(mem, (size_t)s.bytes), (size_t)s.bytes, &err) && st_write_close(w, &err), "%s",
          err.msg);
    vec_free(s.specs.at);
    return to;
}

int main(void) {
    Mem mem = { 0 };
    Err err;
    scan();
    CHECK(mkdtemp(dir), "no folder under /tmp");
    const char *llama = FIXTURE("models/llama"), *fp8 = FIXTURE("models/deepseek_v3_fp8"),
               *norm = "model.layers.1.input_layernorm.weight", *down = "model.layers.1.mlp.down_proj.weight";
    const float nan = NAN, inf = INFINITY, most = 3.4e38f;
    ModelDesc m;
    CHECK(model_desc_load(&m, llama, &mem, &err), "%s", err.msg);
    int64_t cols = m.d.ffn;
    size_t at = (size_t)(3 * cols + 5);
    for (int t = 0; t < 2; t++)
        refused(spoilt(&mem, llama, down, at * 4, &nan, 4), t ? DT_BF16 : DT_F32, down, "[3,5]", "nan");
    refused(spoilt(&mem, llama, down, at * 4, &inf, 4), DT_F32, down, "[3,5]", "inf");
    refused(spoilt(&mem, llama, norm, 4 * 7, &inf, 4), DT_F32, norm, "[7]", "inf");
    refused(spoilt(&mem, llama, down, at * 4, &most, 4), DT_BF16, down, "[3,5]", "3.4e+38, too large for BF16");

    char *bf16 = mem_printf(&mem, "%s/bf16", dir);
    Threads *threads = threads_open(2);
    SaveOpts o = { .dtype = DT_BF16, .shard_bytes = 1 << 30, .from_dir = m.dir };
    Buf text = { 0 };
    params_config_text(&text, &m, DT_BF16);
    o.config_text = text.data;
    CHECK(params_convert(&m, threads, bf16, o, &err), "%s", err.msg);
    threads_close(threads);
    buf_free(&text);
    const uint16_t low = 0xFF80, none = 0x7FC1;
    for (int t = 0; t < 2; t++)
        refused(spoilt(&mem, bf16, down, at * 2, &low, 2), t ? DT_BF16 : DT_F32, down, "[3,5]", "-inf");
    refused(spoilt(&mem, bf16, down, at * 2, &none, 2), DT_BF16, down, "[3,5]", "nan");

    char *f16 = zeros(&mem, DT_F16);
    const uint16_t inf16 = 0x7C00, nan16 = 0x7E00;
    refused(spoilt(&mem, f16, down, at * 2, &inf16, 2), DT_F32, down, "[3,5]", "inf");
    refused(spoilt(&mem, f16, norm, 2 * 2, &nan16, 2), DT_BF16, norm, "[2]", "nan");

    const char *expert = "model.layers.1.mlp.experts.7.down_proj.weight";
    const unsigned char nan8 = 0x7F;
    refused(spoilt(&mem, fp8, expert, 0, &nan8, 1), DT_F32, expert, "[0,0]", "nan");
    refused(spoilt(&mem, fp8, mem_printf(&mem, "%s_scale_inv", expert), 0, &inf, 4), DT_F32, expert, "[0,0]", "-inf");
    refused(spoilt(&mem, fp8, mem_printf(&mem, "%s_scale_inv", expert), 0, &most, 4), DT_F32, expert, "[0,0]", "-inf");
    EXPECT(!system(mem_printf(&mem, "rm -rf '%s'", dir)), "%s is still there", dir);
    mem_free(&mem);
    return test_end();
}
