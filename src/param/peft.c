/* peft.c - an adapter's folder: see peft.h. */
#include "param/peft.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "param/convert.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define FILE_NAME "adapter_model.safetensors"

bool peft_is(const char *dir) {
    char path[4200];
    snprintf(path, sizeof path, "%.4000s/adapter_config.json", dir);
    return file_exists(path);
}

static bool read_config(Json *out, const char *dir, Mem *mem, Err *err) {
    char *path = mem_printf(mem, "%s/adapter_config.json", dir);
    Buf text = { 0 };
    bool ok = file_read(&text, path, err);
    if (ok && !json_parse(out, text.data, text.n, mem, err)) ok = err_wrap(err, "%s", path);
    if (ok && out->kind != JSON_OBJECT)
        ok = err_set(err, "%s: %s where an object is wanted", path, json_kind_name(out->kind));
    buf_free(&text);
    return ok;
}

bool peft_base(const char **path, const char *dir, Mem *mem, Err *err) {
    Json c;
    const char *name = NULL;
    TRY(read_config(&c, dir, mem, err) && json_str(&c, "base_model_name_or_path", &name, err));
    if (!name || !*name)
        return err_set(err, "%s/adapter_config.json names no base model (base_model_name_or_path): say --model DIR",
                       dir);
    const char *beside = mem_printf(mem, "%s/%s", dir, name);
    if (name[0] != '/' && file_exists(mem_printf(mem, "%s/config.json", beside))) return *path = beside, true;
    if (file_exists(mem_printf(mem, "%s/config.json", name))) return *path = name, true;
    return err_set(err, "%s: its base model %s is neither beside it nor in the working folder: say --model DIR", dir,
                   name);
}

/* ---- names of a row's tensors */
#define FRONT "base_model.model."
static const char *const ends[ADAPTER_PARTS] = {
    [ADAPTER_A] = ".lora_A.weight", [ADAPTER_B] = ".lora_B.weight", [ADAPTER_BIAS] = ".lora_B.bias"
};

/* Mixtral's experts and router have another name in newer files. */
static const StTensor *find_either(const StFiles *f, const char *name) {
    static const char *const old_new[2] = { ".block_sparse_moe.", ".mlp." };
    const StTensor *t = st_find(f, name);
    const char *at = strstr(name, old_new[0]);
    char other[512];
    if (t || !at) return t;
    snprintf(other, sizeof other, "%.*s%s%s", (int)(at - name), name, old_new[1], at + strlen(old_new[0]));
    return st_find(f, other);
}
static const StTensor *find_own(const StFiles *f, const ParamDesc *w, AdapterPart part, int layer, int expert) {
    Buf name = { 0 }, module = { 0 };
    adapter_module(&module, w, layer, expert);
    buf_printf(&name, FRONT "%s%s", module.data, ends[part]);
    const StTensor *t = find_either(f, name.data);
    buf_free(&name);
    buf_free(&module);
    return t;
}

/* The layer's fused parameter: gate_up_proj's, or down_proj's.  Where one alone is wrapped both have the same name, and
 * the shapes tell. */
static const StTensor *find_fused(const StFiles *f, const Dims *d, AdapterPart part, int layer, bool down) {
    char name[200];
    const StTensor *t;
    for (int mlp = 0; mlp < 2; mlp++)
        for (int inner = 0; inner < 2; inner++) {
            snprintf(name, sizeof name, FRONT "model.layers.%d.%s.experts%s%s", layer, mlp ? "block_sparse_moe" : "mlp",
                     inner ? ".base_layer" : "", ends[part]);
            t = st_find(f, name);
            snprintf(name, sizeof name, FRONT "model.layers.%d.%s.experts%s%s", layer, mlp ? "block_sparse_moe" : "mlp",
                     inner ? ".base_layer" : "", ends[ADAPTER_B]);
            const StTensor *b = st_find(f, name);
            if (!t || !b || b->n_dims != 2) continue;
            bool fits_down = b->shape[0] == d->hidden, fits_up = b->shape[0] == 2 * d->expert_ffn;
            if (fits_down && fits_up) fits_down = !inner, fits_up = inner;
            if (down ? fits_down : fits_up) return t;
        }
    return NULL;
}
static bool in_experts(const ParamDesc *w) { return w->where == IN_EXPERT; }
static bool is_down(const ParamDesc *w) { return adapter_of(w->id) == P_E_DOWN; }

/* ---- the plan */
typedef struct {
    Peft *out;
    const ModelDesc *m;
    const StFiles *f;
    AdapterPlan plan;
    double r, alpha;
    bool rslora;
    AdapterPattern *ranks, *alphas;
    int n_ranks, n_alphas;
    Buf name;
    bool *used;
    bool any, ok;
    Err *err;
} Reading;

static bool bad_shape(Reading *x, const StTensor *t, const char *wanted) {
    char has[96];
    st_shape_text(has, t->n_dims, t->shape);
    return err_set(x->err, "%s: tensor %s has shape %s, %s is wanted", x->f->path[t->file], t->name, has, wanted);
}
/* rows 0: of one dimension. */
static bool take(Reading *x, const StTensor *t, int64_t rows, int64_t cols) {
    char wanted[96];
    const int64_t want[2] = { rows, cols };
    int dims = rows ? 2 : 1;
    st_shape_text(wanted, dims, want + 2 - dims);
    if (!st_is_shape(t, dims, want + 2 - dims)) return bad_shape(x, t, wanted);
    if (t->dtype != DT_F32 && t->dtype != DT_BF16 && t->dtype != DT_F16)
        return err_set(x->err, "%s: tensor %s is %s: an adapter is F32, BF16 or F16", x->f->path[t->file], t->name,
                       dtype_name(t->dtype));
    x->used[t - x->f->at] = true;
    return true;
}

/* rank: of the tensors; what the configuration says of that module must be it. */
static bool set_row(Reading *x, const ParamDesc *w, int layer, int64_t rank, const char *key) {
    double r = (double)rank, alpha;
    if (rank < 1 || rank > ADAPTER_RANK_MOST)
        return err_set(x->err, "%s: rank %ld: 1 to %d are possible", key, (long)rank, ADAPTER_RANK_MOST);
    TRY(adapter_pattern(&r, x->ranks, x->n_ranks, key, x->r, x->err)
        && adapter_pattern(&alpha, x->alphas, x->n_alphas, key, x->alpha, x->err));
    if (r != (double)rank)
        return err_set(x->err, "%s: adapter_config.json says rank %g of %s, its tensors have %ld", x->out->dir, r, key,
                       (long)rank);
    x->plan.rank[layer][w->id] = (int16_t)rank;
    x->plan.scale[layer][w->id] = (float)adapter_scale(alpha, r, x->rslora);
    return x->any = true;
}

static bool read_fused(Reading *x, const ParamDesc *w, int layer, int64_t experts, int64_t rows, int64_t cols) {
    const Dims *d = &x->m->d;
    const StTensor *a = find_fused(x->f, d, ADAPTER_A, layer, is_down(w)),
                   *b = find_fused(x->f, d, ADAPTER_B, layer, is_down(w));
    if (!a || !b) return true;
    int64_t r = a->shape[0] / experts;
    TRY(take(x, a, r * experts, cols) && take(x, b, is_down(w) ? rows : 2 * rows, r * experts));
    if (w->id == P_E_UP) x->plan.shared[layer] = true;
    buf_clear(&x->name);
    buf_printf(&x->name, "model.layers.%d.mlp.experts.%s", layer, is_down(w) ? "down_proj" : "gate_up_proj");
    return set_row(x, w, layer, r, x->name.data);
}

static bool read_row(Reading *x, const ParamDesc *w, int layer, int64_t experts, int64_t rows, int64_t cols) {
    if (!adapter_can(w)) return true;
    const StTensor *first = find_own(x->f, w, ADAPTER_A, layer, 0);
    if (!first) return !in_experts(w) || read_fused(x, w, layer, experts, rows, cols);
    for (int e = 0; e < experts; e++) {
        const StTensor *a = find_own(x->f, w, ADAPTER_A, layer, e), *b = find_own(x->f, w, ADAPTER_B, layer, e),
                       *bias = find_own(x->f, w, ADAPTER_BIAS, layer, e);
        adapter_module(&x->name, w, layer, e);
        if (!a || !b)
            return err_set(x->err, "%s: %s has no %s", x->out->dir, x->name.data,
                           a ? "lora_B.weight" : "lora_A.weight");
        TRY(take(x, a, first->shape[0], cols) && take(x, b, rows, first->shape[0]));
        if (bias) TRY(take(x, bias, 0, rows));
        x->plan.bias[layer][w->id] = bias != NULL;
    }
    if (x->plan.bias[layer][w->id] && in_experts(w)) return err_set(x->err, "%s: a bias of experts", x->out->dir);
    adapter_module(&x->name, w, layer, 0);
    if (w->role == R_ROUTER) buf_puts(&x->name, ".weight"); /* a parameter to peft, not a module */
    return set_row(x, w, layer, first->shape[0], x->name.data);
}
static void read_visit(void *user, const ParamDesc *w, int layer, int64_t experts, int64_t rows, int64_t cols) {
    Reading *x = user;
    x->ok = x->ok && read_row(x, w, layer, experts, rows, cols);
}

static bool all_used(Reading *x) {
    for (size_t i = 0; i < x->f->n; i++) {
        const StTensor *t = &x->f->at[i];
        if (x->used[i] || strstr(t->name, ".base_layer.weight")) continue;
        if (strstr(t->name, "lora_magnitude")) return err_set(x->err, "%s: DoRA is not there yet", x->out->dir);
        if (strstr(t->name, "lora_embedding") || strstr(t->name, "lm_head"))
            return err_set(x->err, "%s: %.200s: an adapter of the embedding or the head is not there yet", x->out->dir,
                           t->name);
        if (!strstr(t->name, ".lora_"))
            return err_set(x->err, "%s: %.200s: whole weights beside the adapter (modules_to_save) are not there yet",
                           x->out->dir, t->name);
        return err_set(x->err, "%s: tensor %.200s belongs to no linear map of a %s model", x->out->dir, t->name,
                       x->m->arch->name);
    }
    return x->any || err_set(x->err, "%s: " FILE_NAME " has no adapter", x->out->dir);
}

/* ---- the configuration */
static bool read_patterns(AdapterPattern **out, int *n, const Json *config, const char *key, Mem *mem, Err *err) {
    const Json *p = json_get(config, key);
    if (!p || p->kind == JSON_NULL) return true;
    if (p->kind != JSON_OBJECT) return err_set(err, "%s must be an object, not %s", key, json_kind_name(p->kind));
    *out = MEM_ARRAY(mem, AdapterPattern, p->n + 1);
    for (size_t i = 0; i < p->n; i++) {
        const Json *v = &p->members[i].value;
        if (v->kind != JSON_INT && v->kind != JSON_REAL)
            return err_set(err, "%s: \"%.60s\" must be a number, not %s", key, p->members[i].key,
                           json_kind_name(v->kind));
        (*out)[(*n)++] = (AdapterPattern){ p->members[i].key, json_number(v) };
    }
    return true;
}
static bool must_be_off(const Json *c, const char *key, const char *why, Err *err) {
    const Json *v = json_get(c, key);
    bool off = !v || v->kind == JSON_NULL || (v->kind == JSON_BOOL && !v->flag)
               || ((v->kind == JSON_ARRAY || v->kind == JSON_OBJECT) && !v->n);
    return off || err_set(err, "%s: %s", key, why);
}
static bool init_is_known(const Json *c, Err *err) {
    const Json *v = json_get(c, "init_lora_weights");
    if (!v || v->kind != JSON_STRING || json_is_str(v, "gaussian") || json_is_str(v, "eva")
        || json_is_str(v, "orthogonal"))
        return true;
    return err_set(err, "init_lora_weights is \"%.40s\", which changes the base model: save it converted", v->str);
}
static bool read_settings(Reading *x, const Json *c, Mem *mem, Err *err) {
    const char *type = NULL, *bias = "none";
    x->r = 8, x->alpha = 8;
    TRY(json_str(c, "peft_type", &type, err) && json_str(c, "bias", &bias, err));
    if (!type || strcmp(type, "LORA")) return err_set(err, "peft_type is \"%.40s\", LORA is wanted", type ? type : "");
    if (strcmp(bias, "none")) return err_set(err, "bias is \"%.40s\": the base's biases are not trained here", bias);
    return json_real_within(c, "r", 1, ADAPTER_RANK_MOST, &x->r, err) && json_real(c, "lora_alpha", &x->alpha, err)
           && json_bool(c, "use_rslora", &x->rslora, err) && init_is_known(c, err)
           && must_be_off(c, "use_dora", "DoRA is not there yet", err)
           && must_be_off(c, "fan_in_fan_out", "weights [in,out] are no model's here", err)
           && must_be_off(c, "layer_replication", "layers that are used twice are not there", err)
           && must_be_off(c, "alora_invocation_tokens", "an adapter from a token on is not there", err)
           && read_patterns(&x->ranks, &x->n_ranks, c, "rank_pattern", mem, err)
           && read_patterns(&x->alphas, &x->n_alphas, c, "alpha_pattern", mem, err);
}

bool peft_open(Peft *out, const ModelDesc *m, const char *dir, Mem *mem, Err *err) {
    *out = (Peft){ .dir = dir };
    StFiles f;
    Reading x = { .out = out, .m = m, .f = &f, .plan = adapter_plan(m, mem), .ok = true, .err = err };
    TRY(read_config(&out->config, dir, mem, err) && json_str(&out->config, "base_model_name_or_path", &out->base, err));
    if (!read_settings(&x, &out->config, mem, err)) return err_wrap(err, "%s/adapter_config.json", dir);
    TRY(st_open(&f, mem_printf(mem, "%s/" FILE_NAME, dir), mem, err));
    x.used = MEM_ARRAY(mem, bool, f.n + 1);
    arch_each_row(m, read_visit, &x);
    bool ok = x.ok && all_used(&x);
    if (ok) out->desc = arch_adapter(m, &x.plan, mem);
    st_close(&f);
    buf_free(&x.name);
    return ok;
}

/* ---- the numbers */
static void convert(float *out, const StTensor *t, int64_t rows, int64_t cols) {
    Source s = { .data = t->data, .dtype = t->dtype, .rows = rows, .cols = cols };
    convert_from(out, DT_F32, &s, 0, rows * cols);
}

bool peft_value(float *out, const StFiles *f, const ModelDesc *adapter, const ParamDesc *p, int layer, int expert) {
    const Dims *d = &adapter->d;
    int64_t rows = param_rows(d, p, layer), cols = param_cols(d, p, layer), E = d->experts;
    Buf name = { 0 };
    arch_param_name(&name, p, layer, expert);
    const StTensor *t = find_either(f, name.data);
    buf_free(&name);
    if (t) return t->count == rows * cols && (convert(out, t, rows, cols), true);
    if (!in_experts(p) || !(t = find_fused(f, d, p->part, layer, is_down(p)))) return false;
    bool a = p->part == ADAPTER_A, down = is_down(p);
    int64_t all = a ? E * rows : down ? rows : 2 * rows, wide = a ? cols : E * cols;
    if (t->count != all * wide) return false;
    Mem mem = { 0 };
    float *whole = MEM_ARRAY(&mem, float, (size_t)t->count + 1);
    convert(whole, t, all, wide);
    int64_t from = adapter_of(p->id) == P_E_UP ? rows : 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t k = 0; k < cols; k++)
            out[r * cols + k] = a ? whole[(expert * rows + r) * wide + k] : whole[(from + r) * wide + k * E + expert];
    mem_free(&mem);
    return true;
}

/* This rank's slice of the whole of one expert. */
static void put_slice(const Param *p, Dev *d, int64_t e, const float *whole, int64_t cols, float *stage) {
    const Slice *s = &p->slice;
    for (int64_t r = 0; r < s->rows; r++)
        memcpy(stage + r * s->cols, whole + (s->r0 + r) * cols + s->c0, (size_t)s->cols * 4);
    if (s->rows && s->cols) op_put(d, tensor_rows(p->t, (e - s->e0) * s->rows, s->rows), stage);
}

bool peft_load(Params *p, Dev *d, const char *dir, Err *err) {
    Mem mem = { 0 };
    StFiles f;
    if (!st_open(&f, mem_printf(&mem, "%s/" FILE_NAME, dir), &mem, err)) return mem_free(&mem), false;
    bool ok = true;
    for (int i = 0; ok && i < p->n; i++) {
        const Param *q = &p->at[i];
        int64_t rows = param_rows(&p->model->d, q->desc, q->layer), cols = param_cols(&p->model->d, q->desc, q->layer);
        Mem one = { 0 };
        float *whole = MEM_ARRAY(&one, float, (size_t)(2 * rows * cols) + 1);
        for (int64_t e = q->slice.e0; ok && e < q->slice.e0 + q->slice.experts; e++) {
            ok = peft_value(whole, &f, p->model, q->desc, q->layer, (int)e)
                 || err_set(err, "%s: %s of layer %d is missing, or of another size", dir, q->desc->name, q->layer);
            int64_t bad = ok ? convert_not_finite(whole, DT_F32, rows * cols) : -1;
            if (bad >= 0)
                ok = err_set(err, "%s: %s of layer %d: element %ld is no finite number", dir, q->desc->name, q->layer,
                             (long)bad);
            if (ok) put_slice(q, d, e, whole, cols, whole + rows * cols);
        }
        mem_free(&one);
    }
    st_close(&f);
    mem_free(&mem);
    return ok;
}

bool adapter_fits(const ModelDesc *adapter, const GridShape *g, Err *err) {
    return !adapter_of_experts(adapter) || g->etp == 1
           || err_set(err, "an adapter of experts is not cut by etp: ep instead");
}

/* ---- a fresh one */
static void fill(float *out, int64_t n, uint64_t seed, const char *name, double bound, bool gaussian) {
    uint64_t key = hash_bytes(HASH_START, name, strlen(name));
    for (int64_t i = 0; i < n; i++) {
        uint32_t at[2] = { (uint32_t)i, (uint32_t)(i >> 32) };
        double u = rng_unit(rng_u64(seed ^ key, RNG_INIT, at[0], at[1], 0, 0));
        double v = gaussian ? rng_unit(rng_u64(seed ^ key, RNG_INIT, at[0], at[1], 1, 0)) : 0;
        out[i] = (float)(bound * (gaussian ? sqrt(-2 * log(1 - u)) * cos(6.283185307179586 * v) : 2 * u - 1));
    }
}
void adapter_init(Params *p, Dev *d, uint64_t seed, bool gaussian) {
    Buf name = { 0 };
    for (int i = 0; i < p->n; i++) {
        const Param *q = &p->at[i];
        int64_t rows = param_rows(&p->model->d, q->desc, q->layer), cols = param_cols(&p->model->d, q->desc, q->layer);
        if (q->desc->part != ADAPTER_A) {
            if (q->t.rows && q->t.cols) op_zero(d, q->t);
            continue;
        }
        Mem one = { 0 };
        float *whole = MEM_ARRAY(&one, float, (size_t)(2 * rows * cols) + 1);
        for (int64_t e = q->slice.e0; e < q->slice.e0 + q->slice.experts; e++) {
            buf_clear(&name);
            arch_param_name(&name, q->desc, q->layer, (int)e);
            fill(whole, rows * cols, seed, name.data, gaussian ? 1 / (double)rows : 1 / sqrt((double)cols), gaussian);
            put_slice(q, d, e, whole, cols, whole + rows * cols);
        }
        mem_free(&one);
    }
    buf_free(&name);
}
