/* test_param.c - parameters in memory are the files' numbers: every family, every format; wrong folders are refused
 * with one line; what is saved is loaded back; a random model is a function of its seed alone. */
#include "param/param.h"
#include "base/file.h"
#include "file/safetensors.h"
#include "param/convert.h"
#include "tensor/half.h"
#include "test.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

static const char *const models[] = { "qwen2",       "qwen3",      "qwen3_moe",       "mixtral",
                                      "deepseek_v3", "moonlight",  "llama",           "deepseek_v3_fp8",
                                      "llama_long",  "qwen2_long", "qwen3_moe_plain", "deepseek_v3_yarn" };

/* A model in memory: what most checks begin with. */
typedef struct {
    Mem mem;
    ModelDesc m;
    Dev dev;
    Params *p;
} Loaded;

static void open_model(Loaded *x, const char *path, DType t, bool trainable) {
    Err err;
    *x = (Loaded){ 0 };
    CHECK(model_desc_load(&x->m, path, &x->mem, &err), "%s", err.msg);
    dev_open(&x->dev, (DevOpts){ .threads = 2, .guard = true });
    x->p = MEM_NEW(&x->mem, Params);
    params_open(x->p, &x->m, NULL, &x->dev, t, trainable, "weights", &x->mem);
}

static void close_model(Loaded *x) {
    params_close(x->p, &x->dev);
    dev_close(&x->dev);
    mem_free(&x->mem);
}

static float *host(Loaded *x, Tensor t) {
    float *out = MEM_ARRAY(&x->mem, float, (size_t)(t.rows * t.cols) + 1);
    uint16_t *h = MEM_ARRAY(&x->mem, uint16_t, (size_t)(t.rows * t.cols) + 1);
    if (t.dtype == DT_F32) op_get(&x->dev, out, t);
    else {
        op_get(&x->dev, h, t);
        for (int64_t i = 0; i < t.rows * t.cols; i++) out[i] = bf16_f32(h[i]);
    }
    return out;
}

static size_t differing(Loaded *a, Loaded *b) {
    CHECK(a->p->n == b->p->n, "%d and %d parameters", a->p->n, b->p->n);
    size_t bad = 0;
    for (int i = 0; i < a->p->n; i++) {
        Tensor t = a->p->at[i].t;
        float *u = host(a, t), *v = host(b, b->p->at[i].t);
        for (int64_t k = 0; k < t.rows * t.cols; k++) bad += f32_bits(u[k]) != f32_bits(v[k]);
    }
    return bad;
}

/* Against the file, element by element, with the dequantisation written out again the slow way. */
static float expected(const StFiles *f, const StTensor *t, int64_t i, Mem *mem) {
    if (t->dtype == DT_F8E4M3) {
        const StTensor *s = st_find(f, mem_printf(mem, "%s_scale_inv", t->name));
        int64_t row = i / t->shape[1], col = i % t->shape[1];
        float scale;
        memcpy(&scale, s->data + 4 * (row / 128 * s->shape[1] + col / 128), 4);
        int c = (unsigned char)t->data[i], e = c >> 3 & 15, m = c & 7;
        double v = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m, -9);
        return (float)(c & 0x80 ? -v : v) * scale;
    }
    if (t->dtype == DT_BF16) {
        uint16_t h;
        memcpy(&h, t->data + 2 * i, 2);
        return bf16_f32(h);
    }
    float v;
    memcpy(&v, t->data + 4 * i, 4);
    return v;
}

typedef struct {
    Loaded *x;
    const StFiles *f;
    size_t bad, seen;
} Compare;

static void compare(void *user, const ParamDesc *p, int layer, int expert, int64_t rows, int64_t cols) {
    Compare *c = user;
    Buf name = { 0 };
    arch_param_name(&name, p, layer, expert);
    const StTensor *t = st_find(c->f, name.data);
    float *v = host(c->x, tensor_rows(param(c->x->p, p->id, layer), expert * rows, rows));
    for (int64_t i = 0; i < rows * cols; i++) c->bad += v[i] != expected(c->f, t, i, &c->x->mem);
    c->seen += (size_t)(rows * cols);
    buf_free(&name);
}

static void every_model(void) {
    for (size_t i = 0; i < COUNT(models); i++) {
        Loaded x;
        Err err = { "" };
        Mem mem = { 0 };
        char *path = mem_printf(&mem, FIXTURE("models/%s"), models[i]);
        open_model(&x, path, DT_F32, false);
        bool ok = params_load(x.p, &x.dev, path, &err);
        EXPECT(ok, "%s", err.msg);
        StFiles f;
        CHECK(st_open(&f, path, &mem, &err), "%s", err.msg);
        Compare c = { &x, &f, 0, 0 };
        if (ok) arch_each_param(&x.m, compare, &c);
        EXPECT(!c.bad && c.seen == (size_t)arch_param_count(&x.m), "%s: %zu of %zu elements differ", models[i], c.bad,
               c.seen);
        EXPECT(params_bytes(&x.m, NULL, DT_F32, false) == x.p->arena.used
                   && (size_t)x.p->flat.cols * 4 == x.p->arena.used,
               "%s: bytes", models[i]);
        EXPECT(params_disk_dtype(path) == DT_F32, "%s: dtype on disk", models[i]);
        st_close(&f);
        close_model(&x);
        mem_free(&mem);
    }
}

static void trainable_only(void) {
    Loaded x;
    Err err;
    open_model(&x, FIXTURE("models/deepseek_v3"), DT_F32, true);
    EXPECT(!param(x.p, P_ROUTER_BIAS, 1).data && param(x.p, P_ROUTER, 1).data, "frozen rows are left out");
    EXPECT(!param(x.p, P_ROUTER, 0).data && param(x.p, P_GATE, 0).data && !param(x.p, P_Q, 0).data, "layer 0 is dense");
    EXPECT(params_load(x.p, &x.dev, FIXTURE("models/deepseek_v3"), &err), "%s", err.msg);
    close_model(&x);
    open_model(&x, FIXTURE("models/qwen2"), DT_F32, false);
    EXPECT(!param(x.p, P_HEAD, 0).data && !param(x.p, P_OB, 0).data && param(x.p, P_QB, 0).rows == 1,
           "tied head, no o bias");
    close_model(&x);
}

/* On a grid rows stand by whom their gradients are summed with; on one rank, and where only
 * tokens are dealt out, as in the table. */
static void regions(void) {
    static const struct {
        const char *model, *grid;
        int ranks, rows[REGIONS]; /* of one layer that has experts */
    } cases[] = {
        { "deepseek_v3", "tp=1", 1, { 16, 0, 0 } },     { "deepseek_v3", "dp=8", 8, { 16, 0, 0 } },
        { "deepseek_v3", "tp=2,dp=2", 4, { 7, 6, 3 } }, { "deepseek_v3", "ep=4", 4, { 13, 0, 3 } },
        { "deepseek_v3", "tp=2,ep=2", 4, { 7, 6, 3 } }, { "qwen3_moe_plain", "tp=2", 2, { 5, 4, 3 } },
        { "qwen3_moe_plain", "cp=2", 2, { 12, 0, 0 } },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        Mem mem = { 0 };
        Err err = { "" };
        ModelDesc m;
        Dev dev;
        GridShape g;
        CHECK(model_desc_load(&m, mem_printf(&mem, FIXTURE("models/%s"), cases[i].model), &mem, &err)
                  && grid_parse(&g, cases[i].grid, &err) && grid_fill(&g, &m, cases[i].ranks, NULL, 8, &err),
              "%s", err.msg);
        dev_open(&dev, (DevOpts){ .threads = 1 });
        for (int r = 0; r < cases[i].ranks; r++) {
            Shard shard = { g, grid_at(&g, r) };
            Params p;
            params_open(&p, &m, &shard, &dev, DT_F32, true, "gradients", &mem);
            int rows[REGIONS] = { 0 }, bad = 0;
            for (int k = 0; k < REGIONS; k++)
                for (int j = p.first[k]; j < p.first[k + 1]; j++) {
                    bad += param_region(p.at[j].desc, &g) != (Region)k || p.index[p.at[j].layer][p.at[j].desc->id] != j;
                    if (j > p.first[k]) bad += p.at[j].layer < p.at[j - 1].layer && p.at[j].desc->where != IN_LAST;
                    bad += params_from(&p, j) >= params_from(&p, j + 1) && p.at[j].t.rows > 0;
                    rows[k] += p.at[j].layer == 1;
                }
            EXPECT(!bad && p.first[0] == 0 && p.first[REGIONS] == p.n && params_from(&p, p.n) == p.flat.cols,
                   "%s on %s, rank %d: %d of %d rows stand elsewhere", cases[i].model, cases[i].grid, r, bad, p.n);
            EXPECT(!memcmp(rows, cases[i].rows, sizeof rows), "%s on %s: %d, %d, %d rows a layer", cases[i].model,
                   cases[i].grid, rows[0], rows[1], rows[2]);
            EXPECT(params_bytes(&m, &shard, DT_F32, true) == p.arena.used, "bytes");
            params_close(&p, &dev);
        }
        dev_close(&dev);
        mem_free(&mem);
    }
}

/* ---- formats */
static void formats(void) {
    static const struct {
        uint8_t h;
        float want;
    } f8[] = { { 0x01, 0x1p-9f }, { 0x08, 0x1p-6f }, { 0x38, 1 }, { 0x7e, 448 }, { 0xb8, -1 }, { 0x00, 0 } };
    for (size_t i = 0; i < COUNT(f8); i++)
        EXPECT(f8e4m3_f32(f8[i].h) == f8[i].want, "f8 %02x: %g", f8[i].h, f8e4m3_f32(f8[i].h));
    EXPECT(isnan(f8e4m3_f32(0x7f)) && isnan(f8e4m3_f32(0xff)), "f8 NaN");
    static const struct {
        uint16_t h;
        float want;
    } f16[] = { { 0x3C00, 1 },     { 0xC000, -2 },   { 0x0001, 0x1p-24f }, { 0x03FF, 0x1.ff8p-15f },
                { 0x7BFF, 65504 }, { 0x8000, -0.0f } };
    for (size_t i = 0; i < COUNT(f16); i++)
        EXPECT(f32_bits(f16_f32(f16[i].h)) == f32_bits(f16[i].want), "f16 %04x", f16[i].h);
    EXPECT(isinf(f16_f32(0x7C00)) && isnan(f16_f32(0x7C01)), "f16 infinity and NaN");
    static const struct {
        float f;
        uint16_t want;
    } bf[] = { { 1, 0x3F80 },       { 0x1.01p0f, 0x3F80 }, { 0x1.03p0f, 0x3F82 }, { 0x1.010002p0f, 0x3F81 },
               { 3.4e38f, 0x7F80 }, { -0.0f, 0x8000 } };
    for (size_t i = 0; i < COUNT(bf); i++)
        EXPECT(f32_bf16(bf[i].f) == bf[i].want, "bf16 of %a: %04x", bf[i].f, f32_bf16(bf[i].f));
    EXPECT(isnan(bf16_f32(f32_bf16(NAN))), "bf16 NaN");
    for (uint32_t h = 0; h < 65536; h++) {
        float f = bf16_f32((uint16_t)h);
        if (f == f && f32_bf16(f) != h) EXPECT(false, "bf16 %04x does not come back", h);
    }
}

/* ---- saving */
static void remove_dir(const char *dir) {
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..")) unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
    rmdir(dir);
}

static int entries(const char *dir) {
    int n = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) n += strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (d) closedir(d);
    return n;
}

static void save_and_load(const char *tmp) {
    static const struct {
        DType t;
        int64_t shard;
        bool stream;
    } ways[] = {
        { DT_F32, 1 << 30, false }, { DT_F32, 50000, true }, { DT_BF16, 20000, false }, { DT_BF16, 1 << 30, true }
    };
    for (size_t i = 0; i < COUNT(models); i++)
        for (size_t k = 0; k < COUNT(ways); k++) {
            Loaded x, y;
            Err err = { "" };
            Mem mem = { 0 };
            char *from = mem_printf(&mem, FIXTURE("models/%s"), models[i]),
                 *out = mem_printf(&mem, "%s/%s", tmp, models[i]);
            open_model(&x, from, DT_F32, false);
            CHECK(params_load(x.p, &x.dev, from, &err), "%s", err.msg);
            Buf text = { 0 };
            params_config_text(&text, &x.m, ways[k].t);
            SaveOpts o = {
                .dtype = ways[k].t, .shard_bytes = ways[k].shard, .from_dir = from, .config_text = text.data
            };
            bool ok = ways[k].stream ? params_convert(&x.m, x.dev.threads, out, o, &err)
                                     : params_save(x.p, &x.dev, out, o, &err);
            EXPECT(ok, "%s", err.msg);
            open_model(&y, out, DT_F32, false);
            EXPECT(!y.m.d.fp8 && json_get(&y.m.config, "torch_dtype"), "%s: the config written", models[i]);
            ok = params_load(y.p, &y.dev, out, &err);
            EXPECT(ok, "%s", err.msg);
            if (ways[k].t == DT_BF16) /* what is expected: each weight rounded once, the frozen bias kept */
                for (int q = 0; q < x.p->n; q++) {
                    Tensor t = x.p->at[q].t;
                    float *v = host(&x, t);
                    for (int64_t e = 0; !x.p->at[q].desc->frozen && e < t.rows * t.cols; e++)
                        v[e] = bf16_f32(f32_bf16(v[e]));
                    op_put(&x.dev, t, v);
                }
            EXPECT(differing(&x, &y) == 0, "%s: %zu elements differ after saving", models[i], differing(&x, &y));
            EXPECT(params_disk_dtype(out) == ways[k].t, "%s: dtype on disk", models[i]);
            if (ways[k].t == DT_BF16) { /* kept as BF16 in memory: the same numbers */
                Loaded z;
                open_model(&z, out, DT_BF16, false);
                EXPECT(params_load(z.p, &z.dev, out, &err) && !differing(&y, &z), "%s: in BF16", models[i]);
                EXPECT(params_bytes(&z.m, NULL, DT_BF16, false) == z.p->arena.used, "%s: bytes in BF16", models[i]);
                close_model(&z);
            }
            EXPECT(entries(tmp) == 1, "nothing is left beside %s", out);
            if (k + 1 == COUNT(ways)) remove_dir(out); /* before that, the next one replaces it */
            buf_free(&text);
            close_model(&x);
            close_model(&y);
            mem_free(&mem);
        }
}

/* A family whose q, k, v and gate, up lie in one tensor each: so they are written, in whatever files, and read. */
static void shared_tensors(const char *tmp) {
    static const char config[] =
        "{\"model_type\":\"phi3\",\"hidden_size\":24,\"num_hidden_layers\":3,\"vocab_size\":37,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":20,"
        "\"max_position_embeddings\":64,\"tie_word_embeddings\":false}";
    static const int64_t shard[] = { 1 << 30, 5000, 1 };
    for (size_t k = 0; k < COUNT(shard); k++) {
        Loaded x = { 0 }, y;
        Err err = { "" };
        CHECK(model_desc_parse(&x.m, config, strlen(config), &x.mem, &err), "%s", err.msg);
        dev_open(&x.dev, (DevOpts){ .threads = 2, .guard = true });
        x.p = MEM_NEW(&x.mem, Params);
        params_open(x.p, &x.m, NULL, &x.dev, DT_F32, false, "weights", &x.mem);
        params_random(x.p, &x.dev, 3 + k);
        const char *out = mem_printf(&x.mem, "%s/phi3", tmp);
        SaveOpts o = { .dtype = DT_F32, .shard_bytes = shard[k], .config_text = config };
        EXPECT(params_save(x.p, &x.dev, out, o, &err), "%s", err.msg);
        open_model(&y, out, DT_F32, false);
        EXPECT(params_load(y.p, &y.dev, out, &err) && !differing(&x, &y), "%s", err.msg);
        StFiles f;
        CHECK(st_open(&f, out, &y.mem, &err), "%s", err.msg);
        const StTensor *qkv = st_find(&f, "model.layers.1.self_attn.qkv_proj.weight");
        EXPECT(qkv && st_is_shape(qkv, 2, (int64_t[]){ 48, 24 }), "q, k and v are one tensor");
        EXPECT(!st_find(&f, "model.layers.1.self_attn.q_proj.weight") && f.n == 3 + 3 * 6, "%zu tensors", f.n);
        st_close(&f);
        close_model(&x);
        close_model(&y);
    }
    Mem mem = { 0 };
    remove_dir(mem_printf(&mem, "%s/phi3", tmp));
    mem_free(&mem);
}

static void refused_folder(const char *tmp) {
    Loaded x;
    Err err;
    Mem mem = { 0 };
    char *out = mem_printf(&mem, "%s/precious", tmp), *file = mem_printf(&mem, "%s/diary.txt", out);
    CHECK(dir_make(out, &err) && file_write(file, "dear", 4, &err), "%s", err.msg);
    open_model(&x, FIXTURE("models/qwen2"), DT_F32, false);
    SaveOpts o = { .dtype = DT_F32, .shard_bytes = 1 << 30, .config_text = "{}" };
    EXPECT(!params_save(x.p, &x.dev, out, o, &err) && strstr(err.msg, "not a model's folder") && file_exists(file),
           "%s", err.msg);
    EXPECT(!params_save(x.p, &x.dev, file, o, &err) && file_exists(file), "%s", err.msg);
    EXPECT(!params_save(x.p, &x.dev, "/proc/nothing/x", o, &err) && strstr(err.msg, "/proc/nothing"), "%s", err.msg);
    close_model(&x);
    remove_dir(out);
    mem_free(&mem);
}

/* ---- folders whose weights do not fit their config */
static const struct {
    const char *what, *model, *key, *value, *says;
} wrong[] = {
    { "other shape", "qwen3", "hidden_size", "64", "has shape [128,32], config.json wants [128,64]" },
    { "other vocabulary", "qwen2", "vocab_size", "127", "tensor model.embed_tokens.weight has shape [128,32]" },
    { "a layer too many", "qwen3", "num_hidden_layers", "3",
      "tensor model.layers.2.input_layernorm.weight is missing" },
    { "a layer too few", "qwen3", "num_hidden_layers", "1", "tensor model.layers.1." },
    { "no head", "qwen2", "tie_word_embeddings", "false", "tensor lm_head.weight is missing" },
    { "not quantised", "deepseek_v3_fp8", "quantization_config", "null",
      "is F8_E4M3, but config.json has no quantization_config" },
    { "biases", "qwen3", "attention_bias", "true", "q_proj.bias is missing" },
    { "fewer experts", "mixtral", "num_local_experts", "3", "has shape [4,32], config.json wants [3,32]" },
    { "tied though the file has a head", "qwen3", "tie_word_embeddings", "true", NULL },
    { "the second layer is for prediction", "moonlight", "num_hidden_layers", "1,\"num_nextn_predict_layers\":1",
      NULL },
};

static char *changed(Mem *mem, const char *model, const char *key, const char *value) {
    Err err;
    Buf b = { 0 };
    Json j;
    CHECK(file_read(&b, mem_printf(mem, FIXTURE("models/%s/config.json"), model), &err)
              && json_parse(&j, b.data, b.n, mem, &err),
          "%s", err.msg);
    buf_clear(&b);
    buf_printf(&b, "{\"%s\":%s", key, value);
    for (size_t i = 0; i < j.n; i++) {
        if (!strcmp(j.members[i].key, key) || strstr(value, j.members[i].key)) continue;
        buf_printf(&b, ",\"%s\":", j.members[i].key);
        json_put_value(&b, &j.members[i].value);
    }
    buf_putc(&b, '}');
    char *text = mem_str(mem, b.data, b.n);
    buf_free(&b);
    return text;
}

static void wrong_folders(void) {
    for (size_t i = 0; i < COUNT(wrong); i++) {
        Mem mem = { 0 };
        Err err = { "" };
        ModelDesc m;
        char *text = changed(&mem, wrong[i].model, wrong[i].key, wrong[i].value);
        CHECK(model_desc_parse(&m, text, strlen(text), &mem, &err), "%s: %s", wrong[i].what, err.msg);
        Dev d;
        dev_open(&d, (DevOpts){ .threads = 1 });
        Params *p = MEM_NEW(&mem, Params);
        params_open(p, &m, NULL, &d, DT_F32, false, "weights", &mem);
        bool ok = params_load(p, &d, mem_printf(&mem, FIXTURE("models/%s"), wrong[i].model), &err);
        if (!wrong[i].says) EXPECT(ok, "%s: %s", wrong[i].what, err.msg);
        else
            EXPECT(!ok && strstr(err.msg, wrong[i].says) && !strchr(err.msg, '\n'), "%s: %s", wrong[i].what,
                   ok ? "was loaded" : err.msg);
        params_close(p, &d);
        dev_close(&d);
        mem_free(&mem);
    }
}

/* ---- random models */
static void random_models(void) {
    Loaded a, b;
    open_model(&a, FIXTURE("models/deepseek_v3"), DT_F32, false);
    open_model(&b, FIXTURE("models/deepseek_v3"), DT_F32, false);
    params_random(a.p, &a.dev, 7);
    params_random(b.p, &b.dev, 7);
    EXPECT(!differing(&a, &b), "the same seed gives the same model");
    params_random(b.p, &b.dev, 8);
    EXPECT(differing(&a, &b) > 50000, "another seed another one");
    double n = 0, s = 0, s2 = 0;
    for (int i = 0; i < a.p->n; i++) {
        const Param *q = &a.p->at[i];
        float *v = host(&a, q->t);
        if (q->desc->vector) {
            EXPECT(v[0] == (q->desc->id == P_ROUTER_BIAS ? 0 : 1) && v[q->t.cols - 1] == v[0], "%s", q->desc->name);
            continue;
        }
        for (int64_t k = 0; k < q->t.rows * q->t.cols; k++) n++, s += v[k], s2 += (double)v[k] * v[k];
    }
    double std = sqrt(s2 / n); /* 0.08 in this config; four standard errors */
    EXPECT(fabs(s / n) < 4 * 0.08 / sqrt(n) && fabs(std / 0.08 - 1) < 4 / sqrt(2 * n), "mean %g, standard deviation %g",
           s / n, std);
    float *u = host(&a, param(a.p, P_E_GATE, 1));
    int64_t one = a.m.d.expert_ffn * a.m.d.hidden, same = 0;
    for (int64_t i = 0; i < one; i++) same += u[i] == u[one + i];
    EXPECT(same == 0, "experts differ from each other");
    close_model(&a);
    close_model(&b);
}

/* initializer_range as a config may have it: any size that is one, and nothing else. */
static void init_ranges(void) {
    static const struct {
        const char *json;
        double want; /* -1: refused */
    } cases[] = { { "\"initializer_range\":0.006", 0.006 },
                  { "\"initializer_range\":0", 0 },
                  { "\"initializer_range\":12", 12 },
                  { "\"initializer_range\":null", 0.02 },
                  { "\"x\":1", 0.02 },
                  { "\"initializer_range\":-0.1", -1 },
                  { "\"initializer_range\":\"0.1\"", -1 },
                  { "\"initializer_range\":1e9", -1 },
                  { "\"text_config\":{\"initializer_range\":0.3}", 0.3 } };
    for (size_t i = 0; i < COUNT(cases); i++) {
        Mem mem = { 0 };
        Err err = { "" };
        ModelDesc m = { 0 };
        char *text = mem_printf(&mem, "{%s}", cases[i].json);
        CHECK(json_parse(&m.config, text, strlen(text), &mem, &err), "%s", err.msg);
        double std = -2;
        bool ok = params_init_range(&std, &m, &err);
        EXPECT(ok == (cases[i].want >= 0) && std == (ok ? cases[i].want : 0.02), "%s gives %g %s", text, std, err.msg);
        mem_free(&mem);
    }
    Loaded a;
    open_model(&a, FIXTURE("models/llama"), DT_F32, false);
    Err err;
    const char *text = "{\"initializer_range\":0}";
    CHECK(json_parse(&a.m.config, text, strlen(text), &a.mem, &err), "%s", err.msg);
    params_random(a.p, &a.dev, 7);
    float *v = host(&a, param(a.p, P_Q, 0));
    EXPECT(v[0] == 0 && v[5] == 0, "initializer_range 0 gives %g", (double)v[0]);
    close_model(&a);
}

int main(void) {
    char tmp[] = "/tmp/hone-test-XXXXXX";
    CHECK(mkdtemp(tmp), "no temporary folder");
    formats();
    every_model();
    trainable_only();
    regions();
    save_and_load(tmp);
    shared_tensors(tmp);
    refused_folder(tmp);
    wrong_folders();
    random_models();
    init_ranges();
    rmdir(tmp);
    return test_end();
}
