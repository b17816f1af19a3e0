/* verb_inspect.c - what a model is: family, dimensions, parameters by component, bytes and number formats on disk.
 * Works from config.json alone; with weights beside it they are looked at too (headers only). */
#include "arch/arch.h"
#include "gguf/inside.h"
#include "cmd/cmd.h"
#include "op/device.h"
#include "file/safetensors.h"
#include "model/model.h"

#include <stdio.h>
#include <string.h>

typedef struct {
    bool tensors, json;
    const char *device, *compute;
} Args;

static const Opt options[] = {
    { "tensors", OPT_FLAG, offsetof(Args, tensors), "",
      "list every tensor: name, shape, and its format where the files are there" },
    { "json", OPT_FLAG, offsetof(Args, json), "", "one JSON object" },
    { "device", OPT_STR, offsetof(Args, device), "cuda",
      "which of that backend's kernels serve the model; needs no GPU" },
    { "compute", OPT_STR, offsetof(Args, compute), "bf16|f32", "... computing in" },
    { 0 },
};

/* ---- parameters by component */
typedef enum { C_EMBED, C_ATTN, C_DENSE, C_EXPERTS, C_SHARED, C_ROUTER, C_NORMS, C_HEAD, C_VISION, C_COUNT } Component;
static const char *const component_name[C_COUNT] = { "embedding", "attention", "dense mlp", "experts", "shared experts",
                                                     "router",    "norms",     "head",      "vision" };
static const char *const component_key[C_COUNT] = { "embedding", "attention", "dense_mlp", "experts", "shared_experts",
                                                    "router",    "norms",     "head",      "vision" };

static Component component_of(const ParamDesc *p) {
    static const Component of[ROLES] = {
        [R_EMBED] = C_EMBED,     [R_HEAD] = C_HEAD,    [R_FINAL] = C_NORMS,   [R_NORM] = C_NORMS,
        [R_ATTN] = C_ATTN,       [R_DENSE] = C_DENSE,  [R_ROUTER] = C_ROUTER, [R_SHARED] = C_SHARED,
        [R_EXPERTS] = C_EXPERTS, [R_TOWER] = C_VISION,
    };
    return p->norm && !arch_in_tower(p) ? C_NORMS : of[p->role];
}

typedef struct {
    int64_t topk, total[C_COUNT], active[C_COUNT], tensors;
} Tally;

static void tally(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)layer;
    Tally *t = user;
    Component c = component_of(p);
    t->total[c] += experts * rows * cols;
    t->active[c] += (p->where == IN_EXPERT ? t->topk : 1) * rows * cols;
    t->tensors += experts;
}

/* ---- the files */
typedef struct {
    bool there;
    StFiles files;
    size_t bytes;
    int64_t by_dtype[DTYPES]; /* elements */
} Disk;

static bool has_weights(const char *dir, Mem *mem) {
    return gguf_is(dir) || file_exists(mem_printf(mem, "%s/model.safetensors", dir))
           || file_exists(mem_printf(mem, "%s/model.safetensors.index.json", dir));
}

static bool read_disk(Disk *k, const char *dir, Mem *mem, Err *err) {
    *k = (Disk){ .there = has_weights(dir, mem) };
    if (!k->there) return true;
    TRY(st_open(&k->files, dir, mem, err));
    for (size_t i = 0; i < k->files.n; i++) {
        k->bytes += k->files.at[i].bytes;
        k->by_dtype[k->files.at[i].dtype] += k->files.at[i].count;
    }
    return true;
}

/* The format that most elements have on disk; without files, what config.json says. */
static const char *dtype_text(const ModelDesc *m, const Disk *k) {
    const Json *t = json_get(&m->config, "torch_dtype");
    if (!t) t = json_get(&m->config, "dtype");
    DType most = DT_F32;
    for (DType x = DT_F32; x < DTYPES; x++)
        if (k->by_dtype[x] > k->by_dtype[most]) most = x;
    if (k->there) return dtype_name(most);
    if (m->d.fp8) return "F8_E4M3";
    return json_is_str(t, "bfloat16")  ? "BF16"
           : json_is_str(t, "float16") ? "F16"
           : json_is_str(t, "float32") ? "F32"
                                       : "not said";
}

/* ---- numbers as people read them */
typedef struct {
    char s[40];
} Text;

static Text grouped(int64_t n) { /* 671,026,419,200 */
    Text t;
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%ld", (long)n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i && (len - i) % 3 == 0 && digits[i - 1] != '-') t.s[at++] = ',';
        t.s[at++] = digits[i];
    }
    t.s[at] = 0;
    return t;
}

static Text rounded(double n, const char *const *units, double step) { /* 671.03 B */
    Text t;
    int u = 0;
    while (n >= step && units[u + 1]) n /= step, u++;
    snprintf(t.s, sizeof t.s, u ? "%.2f %s" : "%.0f %s", n, units[u]);
    return t;
}

static Text short_count(int64_t n) {
    static const char *const units[] = { "", "K", "M", "B", "T", NULL };
    return rounded((double)n, units, 1000);
}

static Text short_bytes(double n) {
    static const char *const units[] = { "bytes", "kB", "MB", "GB", "TB", NULL };
    return rounded(n, units, 1000);
}

/* ---- dimensions: a row is shown where it says something */
typedef struct {
    const char *label, *key;
    size_t at;
} Row;
static const Row rows[] = {
    { "layers", "layers", N(layers) },
    { "hidden size", "hidden_size", N(hidden) },
    { "vocabulary", "vocab_size", N(vocab) },
    { "context", "context", N(context) },
    { "heads", "heads", N(heads) },
    { "key/value heads", "kv_heads", N(kv_heads) },
    { "head width", "head_dim", N(head_dim) },
    { "query latent", "q_lora_rank", N(q_lora) },
    { "key/value latent", "kv_lora_rank", N(kv_lora) },
    { "unrotated width", "qk_nope_head_dim", N(nope_dim) },
    { "rotated width", "qk_rope_head_dim", N(rope_dim) },
    { "value width", "v_head_dim", N(v_dim) },
    { "dense mlp width", "intermediate_size", N(ffn) },
    { "experts", "experts", N(experts) },
    { "experts per token", "experts_per_token", N(topk) },
    { "expert width", "expert_intermediate_size", N(expert_ffn) },
    { "shared experts", "shared_experts", N(shared) },
    { "expert groups", "expert_groups", N(groups) },
    { "groups per token", "groups_per_token", N(group_topk) },
    { "prediction layers", "mtp_layers", N(mtp_layers) },
    { "vision layers", "vision_layers", N(vis.layers) },
    { "vision hidden size", "vision_hidden_size", N(vis.hidden) },
};

static bool shows(const Dims *d, const Row *r) {
    bool group = r->at == N(groups) || r->at == N(group_topk);
    return dim_at(d, r->at) > 0 && !(group && d->groups < 2);
}

static int moe_layers(const Dims *d) {
    int n = 0;
    for (int l = 0; l < d->layers; l++) n += dims_moe(d, l);
    return n;
}

static const char *rope_name(RopeKind k) {
    static const char *const names[] = { "default", "linear", "llama3", "yarn", "three positions" };
    return names[k];
}

static int64_t sum(const int64_t *x) {
    int64_t s = 0;
    for (int i = 0; i < C_COUNT; i++) s += x[i];
    return s;
}

static void print_text(const ModelDesc *m, const Tally *t, const Disk *k) {
    const Dims *d = &m->d;
    printf("%s%s\n\n", m->arch->name, m->arch->runs ? "" : " (counted only: hone does not compute this family yet)");
    for (size_t i = 0; i < COUNT(rows); i++)
        if (shows(d, &rows[i])) printf("  %-20s %12s\n", rows[i].label, grouped(dim_at(d, rows[i].at)).s);
    if (d->experts) printf("  %-20s %12d of %ld\n", "layers with experts", moe_layers(d), (long)d->layers);
    printf("  %-20s %12s  theta %g\n", "rope", rope_name(d->rope.kind), d->rope.theta);
    printf("  %-20s %12s\n", "dtype", dtype_text(m, k));
    if (d->tied) printf("  %-20s %12s\n", "head", "tied");
    printf("\n  %-20s %18s %7s %18s\n", "parameters", "total", "", "active");
    int64_t total = sum(t->total);
    for (int i = 0; i < C_COUNT; i++)
        if (t->total[i])
            printf("  %-20s %18s %5.1f %% %18s\n", component_name[i], grouped(t->total[i]).s,
                   100.0 * (double)t->total[i] / (double)total, grouped(t->active[i]).s);
    printf("  %-20s %18s %7s %18s\n", "all", grouped(total).s, "", grouped(sum(t->active)).s);
    printf("  %-20s %18s %7s %18s\n", "", short_count(total).s, "", short_count(sum(t->active)).s);
    printf("\n  %-20s %18s as bf16, %s as f32\n", "bytes", short_bytes(2.0 * (double)total).s,
           short_bytes(4.0 * (double)total).s);
    if (!k->there) return;
    printf("  %-20s %18s in %d file%s, %s tensors:", "on disk", short_bytes((double)k->bytes).s, k->files.n_files,
           k->files.n_files > 1 ? "s" : "", grouped((int64_t)k->files.n).s);
    for (DType x = DT_F32; x < DTYPES; x++)
        if (k->by_dtype[x]) printf(" %s %s", dtype_name(x), grouped(k->by_dtype[x]).s);
    printf("\n");
}

static void put_json(Buf *b, const ModelDesc *m, const Tally *t, const Disk *k) {
    const Dims *d = &m->d;
    buf_printf(b,
               "{\"family\":\"%s\",\"runs\":%s,\"parameters\":%ld,\"active_parameters\":%ld,"
               "\"tensors\":%ld,\"components\":{",
               m->arch->name, m->arch->runs ? "true" : "false", (long)sum(t->total), (long)sum(t->active),
               (long)t->tensors);
    const char *comma = "";
    for (int i = 0; i < C_COUNT; i++)
        if (t->total[i]) {
            buf_printf(b, "%s\"%s\":{\"parameters\":%ld,\"active_parameters\":%ld}", comma, component_key[i],
                       (long)t->total[i], (long)t->active[i]);
            comma = ",";
        }
    buf_puts(b, "},\"dimensions\":{");
    comma = "";
    for (size_t i = 0; i < COUNT(rows); i++)
        if (shows(d, &rows[i])) {
            buf_printf(b, "%s\"%s\":%ld", comma, rows[i].key, (long)dim_at(d, rows[i].at));
            comma = ",";
        }
    buf_printf(b, "},\"moe_layers\":%d,\"tied\":%s,\"rope\":\"%s\",\"rope_theta\":", moe_layers(d),
               d->tied ? "true" : "false", rope_name(d->rope.kind));
    json_put_f64(b, d->rope.theta);
    buf_printf(b, ",\"dtype\":\"%s\"", dtype_text(m, k));
    buf_printf(b, ",\"bytes_bf16\":%ld,\"bytes_f32\":%ld", (long)(2 * sum(t->total)), (long)(4 * sum(t->total)));
    if (!k->there) return;
    buf_printf(b, ",\"disk\":{\"bytes\":%zu,\"files\":%d,\"tensors\":%zu,\"elements\":{", k->bytes, k->files.n_files,
               k->files.n);
    comma = "";
    for (DType x = DT_F32; x < DTYPES; x++)
        if (k->by_dtype[x]) {
            buf_printf(b, "%s\"%s\":%ld", comma, dtype_name(x), (long)k->by_dtype[x]);
            comma = ",";
        }
    buf_puts(b, "}}");
}

/* ---- every tensor */
typedef struct {
    const ModelDesc *m;
    const Disk *disk;
    Buf name, *json; /* json NULL: text */
    bool first;
} Listing;

static void list(void *user, const ParamDesc *p, int layer, int expert, int64_t n_rows, int64_t cols) {
    Listing *x = user;
    buf_clear(&x->name);
    arch_param_name(&x->name, p, layer, expert);
    const StTensor *t = x->disk->there ? st_find(&x->disk->files, x->name.data) : NULL;
    if (!t && p->in && x->disk->there) {
        Buf in = { 0 };
        arch_param_in(&in, x->m, p, layer, expert);
        t = st_find(&x->disk->files, in.data);
        buf_free(&in);
    }
    const char *dtype = t ? dtype_name(t->dtype) : x->disk->there ? "missing" : "";
    int64_t shape[2] = { n_rows, cols };
    char text[96];
    st_shape_text(text, p->vector ? 1 : 2, p->vector ? shape + 1 : shape);
    if (!x->json) printf("  %-64s %-18s %s\n", x->name.data, text, dtype);
    else
        buf_printf(x->json, "%s{\"name\":\"%s\",\"shape\":%s,\"dtype\":%s%s%s}", x->first ? "" : ",", x->name.data,
                   text, *dtype ? "\"" : "null", dtype, *dtype ? "\"" : "");
    x->first = false;
}

/* ---- who computes: ops that have more than one kernel, how often each is called */
typedef struct {
    const char *op, *by;
    int64_t calls;
} Kernel;
typedef struct {
    Kernel at[128];
    int n;
} Kernels;
static void count(void *arg, const char *op, const char *by) {
    Kernels *k = arg;
    int i = 0;
    if (!by) return;
    while (i < k->n && (strcmp(k->at[i].op, op) || strcmp(k->at[i].by, by))) i++;
    CHECK(i < (int)COUNT(k->at), "more than %d kernels", (int)COUNT(k->at));
    if (i == k->n) k->at[k->n++] = (Kernel){ op, by, 0 };
    k->at[i].calls++;
}
static bool kernels_of(const Args *a, const ModelDesc *m, Kernels *k, Err *err) {
    DevKind like;
    TRY(device_check(a->device, a->compute, err));
    bool f32 = a->compute && !strcmp(a->compute, "f32");
    if (strncmp(a->device, "cuda", 4))
        return err_set(err, "--device %s: only cuda has several kernels for one op", a->device);
    if (!m->arch->runs) return err_set(err, "%s: hone does not compute this family yet", m->arch->name);
    TRY(dev_kind_cuda(&like, f32 ? DT_F32 : DT_BF16, err));
    like.leaves = 1;
    model_served(m, like, count, k);
    return true;
}
static void put_kernels(Buf *b, const Args *a, const Kernels *k) {
    if (b) buf_puts(b, ",\"kernels\":[");
    else printf("\n  kernels on %s, 8 sequences forward and backward, 64 decoded\n", a->device);
    for (int i = 0; i < k->n; i++)
        if (b)
            buf_printf(b, "%s{\"op\":\"%s\",\"by\":\"%s\",\"calls\":%ld}", i ? "," : "", k->at[i].op, k->at[i].by,
                       (long)k->at[i].calls);
        else printf("  %-20s %-26s %6ld calls\n", k->at[i].op, k->at[i].by, (long)k->at[i].calls);
    if (b) buf_puts(b, "]");
}

static bool inspect(const Args *a, const char *path, Mem *mem, Err *err) {
    ModelDesc m;
    Disk disk;
    TRY(model_desc_load(&m, path, mem, err) && read_disk(&disk, m.dir, mem, err));
    Tally t = { .topk = m.d.topk };
    arch_each_row(&m, tally, &t);
    Buf b = { 0 };
    Listing x = { .m = &m, .disk = &disk, .json = a->json ? &b : NULL, .first = true };
    Kernels k = { 0 };
    TRY(!a->device || kernels_of(a, &m, &k, err));
    if (a->json) put_json(&b, &m, &t, &disk);
    else print_text(&m, &t, &disk);
    if (a->device) put_kernels(a->json ? &b : NULL, a, &k);
    if (a->tensors) {
        if (a->json) buf_puts(&b, ",\"tensor_list\":[");
        else printf("\n");
        arch_each_param(&m, list, &x);
        if (a->json) buf_puts(&b, "]");
    }
    if (a->json) printf("%s}\n", b.data);
    buf_free(&x.name);
    buf_free(&b);
    st_close(&disk.files);
    return true;
}

static int run(const Verb *v, int argc, char **argv) {
    Args a = { 0 };
    const char *words[1];
    int rc = opt_parse(v, &a, words, 1, 1, NULL, argc, argv);
    if (rc >= 0) return rc;
    Mem mem = { 0 };
    Err err;
    bool ok = inspect(&a, words[0], &mem, &err);
    mem_free(&mem);
    return ok ? 0 : cmd_fail(v, &err);
}

const Verb verb_inspect = {
    .name = "inspect",
    .usage = "MODEL|config.json [--tensors] [--device cuda] [--json]",
    .summary = "family, dimensions, parameters and bytes of a model",
    .detail =
        "Active parameters are those that one token meets: of the experts only the chosen ones; the embedding whole.\n",
    .options = options,
    .run = run,
};
