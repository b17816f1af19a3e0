/* arch.c - finds a family and walks its table.  arch_list.h is made from the names of the files in family/, so nothing
 * changes here when one is added. */
#include "arch/config.h"
#include "base/file.h"
#include "gguf/inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ARCH(name) extern const Arch arch_##name;
#include "arch_list.h"
#undef ARCH

static const Arch *const archs[] = {
#define ARCH(name) &arch_##name,
#include "arch_list.h"
#undef ARCH
};

void arch_derive(Dims *d) {
    d->one = 1;
    d->qk_dim = d->kv_lora ? d->nope_dim + d->rope_dim : d->head_dim;
    if (d->kv_lora) d->head_dim = d->qk_dim;
    d->turned = d->kv_lora ? d->rope_dim : (int64_t)((double)d->head_dim * d->rope.part);
    d->q_out = d->heads * d->qk_dim;
    d->kv_out = d->kv_heads * d->head_dim;
    d->q_rows = d->q_out * (d->out_gate ? 2 : 1), d->q_unit = d->qk_dim * (d->out_gate ? 2 : 1);
    d->o_in = d->heads * (d->kv_lora ? d->v_dim : d->head_dim);
    d->kv_a_out = d->kv_lora + d->rope_dim;
    d->kv_b_unit = d->nope_dim + d->v_dim;
    d->kv_b_out = d->heads * d->kv_b_unit;
    d->shared_ffn = d->shared_width ? d->shared_width : d->shared * d->expert_ffn;
    d->dn_k = d->dn_keys * d->dn_dk, d->dn_v = d->dn_heads * d->dn_dv;
    d->dn_each = d->dn_keys ? d->dn_heads / d->dn_keys : 0, d->dn_wide = d->dn_each * d->dn_dv;
    d->dn_all = 2 * d->dn_k + d->dn_v, d->dn_v_first = 2 * d->dn_k;
    d->dn_qkvz = 2 * d->dn_k + 2 * d->dn_v, d->dn_qkvz_unit = 2 * d->dn_dk + 2 * d->dn_wide;
    d->dn_ba = 2 * d->dn_heads, d->dn_ba_unit = 2 * d->dn_each;
    d->dn_apart = d->dn_keys && !d->dn_grouped;
    d->zero = 0;
    d->qkv_all = d->q_out + 2 * d->kv_out, d->k_first = d->q_out, d->v_first = d->q_out + d->kv_out;
    d->gate_up_all = 2 * d->ffn;
    d->vis.pixels = d->vis.in * d->vis.frames * d->vis.patch * d->vis.patch;
    d->vis.qkv = 3 * d->vis.hidden;
    d->vis.merged = d->vis.hidden * d->vis.merge * d->vis.merge;
    d->own_head = !d->tied;
    d->q_latent = d->q_lora > 0;
    d->q_direct = d->q_lora == 0;
    d->q_a_bias = d->q_latent && d->qkv_bias;
    d->has_shared = d->shared > 0;
}

/* ---- The table, walked: what comes first, vision, the layers, what comes last */
static bool here(const Dims *d, const ParamDesc *p, int layer) {
    if (p->rank && !p->rank[layer]) return false;
    switch (p->where) {
    case IN_DENSE: return !dims_moe(d, layer);
    case IN_MOE:
    case IN_EXPERT: return dims_moe(d, layer);
    default: return true;
    }
}

typedef enum { PASS_FIRST, PASS_VISION, PASS_LAYERS, PASS_LAST, PASSES } Pass;

static Pass pass_of(Where w) {
    switch (w) {
    case IN_FIRST:
    case IN_VIS: return PASS_FIRST;
    case IN_VIS_LAYER: return PASS_VISION;
    case IN_LAST: return PASS_LAST;
    default: return PASS_LAYERS;
    }
}

void arch_each_row(const ModelDesc *m, RowVisit *visit, void *user) {
    const Dims *d = &m->d;
    for (Pass pass = PASS_FIRST; pass < PASSES; pass++) {
        int64_t n = pass == PASS_LAYERS ? d->layers : pass == PASS_VISION ? d->vis.layers : 1;
        for (int l = 0; l < n; l++)
            for (const ParamDesc *p = m->arch->params; p->name; p++) {
                if (pass_of(p->where) != pass || !here(d, p, l)) continue;
                if (p->role == R_ATTN && p->delta != (d->layer[l].mixer == MIXER_DELTA)) continue;
                if (p->only_if && !*((const bool *)d + p->only_if)) continue;
                visit(user, p, l, p->where == IN_EXPERT ? d->experts : 1, param_rows(d, p, l), param_cols(d, p, l));
            }
    }
}

typedef struct {
    ParamVisit *visit;
    void *user;
} EachExpert;

static void each_expert(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    const EachExpert *x = user;
    for (int e = 0; e < experts; e++) x->visit(x->user, p, layer, e, rows, cols);
}

void arch_each_param(const ModelDesc *m, ParamVisit *visit, void *user) {
    EachExpert x = { visit, user };
    arch_each_row(m, each_expert, &x);
}

static void put_name(Buf *out, const char *name, int layer, int expert) {
    int number[2] = { layer, expert }, n = 0;
    for (const char *c = name; *c; c++) {
        if (c[0] == '%' && c[1] == 'd' && n < 2) buf_printf(out, "%d", number[n++]), c++;
        else buf_putc(out, *c);
    }
}
void arch_param_name(Buf *out, const ParamDesc *p, int layer, int expert) { put_name(out, p->name, layer, expert); }

int64_t arch_param_in(Buf *out, const ModelDesc *m, const ParamDesc *p, int layer, int expert) {
    put_name(out, p->in, layer, expert);
    return (p->where == IN_EXPERT ? expert * dim_at(&m->d, p->all) : 0) + dim_at(&m->d, p->first);
}

int arch_param_shape(int64_t shape[PARAM_DIMS], const ModelDesc *m, const ParamDesc *p, int64_t rows, int64_t cols) {
    const Dims *d = &m->d;
    const int64_t five[PARAM_DIMS] = { rows, d->vis.in, d->vis.frames, d->vis.patch, d->vis.patch };
    if (p->patch) memcpy(shape, five, sizeof five);
    else if (p->filter) shape[0] = rows, shape[1] = 1, shape[2] = cols;
    else if (p->vector && !p->one_row) shape[0] = cols;
    else shape[0] = rows, shape[1] = cols;
    return p->patch ? PARAM_DIMS : p->filter ? 3 : p->vector && !p->one_row ? 1 : 2;
}

bool arch_param_other_name(Buf *out, const ModelDesc *m, const char *name) {
    bool text = !strncmp(name, "model.", 6), visual = !strncmp(name, "visual.", 7);
    if (!m->d.vis.layers || (!text && !visual)) return false;
    buf_clear(out);
    buf_printf(out, text ? "model.language_model.%s" : "model.%s", text ? name + 6 : name);
    return true;
}

typedef struct {
    int64_t topk, total, active;
} Counts;

static void count(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)layer;
    Counts *c = user;
    c->total += experts * rows * cols;
    c->active += (p->where == IN_EXPERT ? c->topk : 1) * rows * cols;
}

int64_t arch_param_count(const ModelDesc *m) {
    Counts c = { m->d.topk, 0, 0 };
    arch_each_row(m, count, &c);
    return c.total;
}

int64_t arch_active_count(const ModelDesc *m) {
    Counts c = { m->d.topk, 0, 0 };
    arch_each_row(m, count, &c);
    return c.active;
}

/* ---- Which family */
static bool has(const char *const *list, const char *name) {
    for (int i = 0; i < 4 && list[i]; i++)
        if (!strcmp(list[i], name)) return true;
    return false;
}

bool arch_runs_type(const char *type) {
    for (size_t i = 0; i < COUNT(archs); i++)
        if (archs[i]->runs && has(archs[i]->types, type)) return true;
    return false;
}

static bool unknown(const char *key, const char *value, Err *err) {
    Buf known = { 0 };
    for (size_t i = 0; i < COUNT(archs); i++) buf_printf(&known, "%s%s", i ? ", " : "", archs[i]->name);
    err_set(err, "%s is \"%.60s\": not a family that hone knows (%s)", key, value, known.data);
    buf_free(&known);
    return false;
}

static const Arch *find(const Json *config, Err *err) {
    const Json *list = json_get(config, "architectures");
    const char *type = NULL, *name = NULL;
    if (!json_str(config, "model_type", &type, err)) return NULL;
    if (list && list->kind == JSON_ARRAY && list->n && list->items[0].kind == JSON_STRING) name = list->items[0].str;
    if (!name && !type)
        return err_set(err, "neither architectures nor model_type is there: is this a model's config.json?"), NULL;
    for (size_t i = 0; i < COUNT(archs); i++) {
        if (!(name ? has(archs[i]->names, name) : has(archs[i]->types, type))) continue;
        if (!type || has(archs[i]->types, type)) return archs[i];
        return err_set(err, "architectures says \"%.60s\", model_type says \"%.60s\": they do not belong together",
                       name, type),
               NULL;
    }
    unknown(name ? "architectures" : "model_type", name ? name : type, err);
    return NULL;
}

bool model_desc_parse(ModelDesc *out, const char *json, size_t n, Mem *mem, Err *err) {
    *out = (ModelDesc){ .d = { .special = { .bos = -1, .pad = -1 }, .groups = 1, .group_topk = 1, .route_factor = 1 } };
    TRY(json_parse(&out->config, json, n, mem, err));
    if (out->config.kind != JSON_OBJECT)
        return err_set(err, "%s where an object is wanted", json_kind_name(out->config.kind));
    out->arch = find(&out->config, err);
    if (!out->arch) return false;
    TRY(out->arch->read(&out->d, &out->config, err));
    if (out->d.rope.kind == ROPE_SECTIONS && !out->d.vis.layers)
        return err_set(err, "rope_scaling.mrope_section is there: %s models have one position per token",
                       out->arch->name);
    TRY(config_quant(&out->d, &out->config, err));
    TRY(arch_check(&out->d, out->arch->route, err));
    arch_derive(&out->d);
    return true;
}

bool model_desc_runs(const ModelDesc *m, Err *err) {
    return m->arch->runs
           || err_set(err, "%s models are counted by inspect and plan, but not computed yet", m->arch->name);
}

/* The model may end a text with more tokens than config.json says: chat models list them in generation_config.json. */
static bool read_generation(ModelDesc *m, Mem *mem, Err *err) {
    char *path = mem_printf(mem, "%s/generation_config.json", m->dir);
    if (!model_has(path)) return true;
    Buf text = { 0 };
    Json j;
    bool ok = model_read(&text, path, err);
    if (ok && !(json_parse(&j, text.data, text.n, mem, err) && config_tokens(&m->d, &j, err)))
        ok = err_wrap(err, "%s", path);
    buf_free(&text);
    return ok;
}

const char *model_folder(const char *path, Mem *mem) {
    static const char *const inside[] = { "", "/huggingface", "/actor/huggingface" };
    if (!dir_exists(path)) return path;
    for (size_t i = 0; i < COUNT(inside); i++)
        if (file_exists(mem_printf(mem, "%s%s/config.json", path, inside[i])))
            return i ? mem_printf(mem, "%s%s", path, inside[i]) : path;
    Buf text = { 0 };
    Err none;
    const char *latest = mem_printf(mem, "%s/latest_checkpointed_iteration.txt", path);
    if (file_exists(latest) && file_read(&text, latest, &none) && text.n) {
        const char *step = mem_printf(mem, "%s/global_step_%lld/actor/huggingface", path, strtoll(text.data, NULL, 10));
        if (file_exists(mem_printf(mem, "%s/config.json", step))) path = step;
    }
    buf_free(&text);
    return path;
}

/* ORG/NAME, and nothing is there: the name that a model has on a hub. */
static bool looks_published(const char *path) {
    const char *slash = strchr(path, '/'), *at = path + strcspn(path, "@");
    struct stat st;
    if (!slash || slash == path || !slash[1] || strchr(slash + 1, '/') || path[0] == '.' || path[0] == '~')
        return false;
    size_t n = (size_t)(at - path);
    return n > 2 && (n < 6 || strncmp(at - 5, ".json", 5)) && stat(path, &st) && errno == ENOENT;
}

bool model_desc_load(ModelDesc *out, const char *path, Mem *mem, Err *err) {
    *out = (ModelDesc){ 0 };
    path = model_folder(path, mem);
    bool folder = model_dir(path);
    char *file = folder ? mem_printf(mem, "%s/config.json", path) : mem_str(mem, path, strlen(path));
    if (folder && !model_has(file) && errno != EACCES)
        return err_set(err, "%s: there is no config.json in this folder", path);
    if (looks_published(path))
        return err_set(
            err, "%s: there is no such folder here; `hone pull %s` fetches it from the hub, and prints the folder",
            path, path);
    Buf text = { 0 };
    bool ok = model_read(&text, file, err);
    if (ok && !model_desc_parse(out, text.data, text.n, mem, err)) ok = err_wrap(err, "%s", file);
    buf_free(&text);
    if (!ok) return false;
    const char *slash = strrchr(path, '/');
    out->dir = folder ? mem_str(mem, path, strlen(path)) : slash ? mem_str(mem, path, (size_t)(slash - path)) : ".";
    if (!out->dir[0]) out->dir = "/";
    return read_generation(out, mem, err);
}
