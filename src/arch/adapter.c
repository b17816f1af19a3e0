/* adapter.c - an adapter's table, made of the model's: see adapter.h. */
#include "arch/adapter.h"

#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <string.h>

static size_t layers_of(const ModelDesc *m) {
    return (size_t)(m->d.layers > m->d.vis.layers ? m->d.layers : m->d.vis.layers) + 1;
}

AdapterPlan adapter_plan(const ModelDesc *m, Mem *mem) {
    size_t n = layers_of(m);
    return (AdapterPlan){ .layers = (int64_t)n,
                          .rank = mem_array(mem, n, sizeof(int16_t[P_COUNT])),
                          .scale = mem_array(mem, n, sizeof(float[P_COUNT])),
                          .bias = mem_array(mem, n, sizeof(bool[P_COUNT])),
                          .shared = MEM_ARRAY(mem, bool, n) };
}

bool adapter_can(const ParamDesc *p) {
    return !p->vector && !p->patch && !p->filter && !p->joined && /* (one of several in a tensor has no module) */
           p->role != R_EMBED && p->role != R_HEAD && p->role != R_TOWER;
}

static size_t stem(const char *name) {
    size_t n = strlen(name), k = strlen(".weight");
    return n > k && !strcmp(name + n - k, ".weight") ? n - k : n;
}
void adapter_module(Buf *out, const ParamDesc *p, int layer, int expert) {
    buf_clear(out);
    arch_param_name(out, p, layer, expert);
    out->n = stem(out->data), out->data[out->n] = 0;
}

/* ---- the table */
static const struct {
    const char *end;
    bool vector;
} parts[ADAPTER_PARTS] = {
    [ADAPTER_A] = { ".lora_A.weight", false },
    [ADAPTER_B] = { ".lora_B.weight", false },
    [ADAPTER_BIAS] = { ".lora_B.bias", true },
};

/* W's rows are B's, its columns are A's; a bias is one row of as many columns as W has rows. */
static Cut cut_of(Cut w, AdapterPart part) {
    if (part == ADAPTER_A) return w == BY_COLS ? BY_COLS : WHOLE;
    if (w != BY_ROWS) return WHOLE;
    return part == ADAPTER_B ? BY_ROWS : BY_COLS;
}

static ParamDesc part_of(const ParamDesc *w, AdapterPart part, const AdapterPlan *plan, Mem *mem) {
    int16_t *rank = MEM_ARRAY(mem, int16_t, (size_t)plan->layers);
    float *scale = MEM_ARRAY(mem, float, (size_t)plan->layers);
    for (int64_t l = 0; l < plan->layers; l++) {
        bool shares = part == ADAPTER_A && w->id == P_E_UP && plan->shared[l];
        bool there = !shares && (part != ADAPTER_BIAS || plan->bias[l][w->id]);
        rank[l] = there ? plan->rank[l][w->id] : 0, scale[l] = plan->scale[l][w->id];
    }
    return (ParamDesc){ .id = adapter_id(part, w->id),
                        .role = w->role,
                        .name =
                            mem_printf(mem, "base_model.model.%.*s%s", (int)stem(w->name), w->name, parts[part].end),
                        .where = w->where,
                        .rows = parts[part].vector ? N(one) : w->rows,
                        .cols = parts[part].vector ? w->rows : w->cols,
                        .cut = cut_of(w->cut, part),
                        .unit = w->unit,
                        .only_if = w->only_if,
                        .vector = parts[part].vector,
                        .delta = w->delta,
                        .part = part,
                        .rank = rank,
                        .scale = scale };
}

ModelDesc arch_adapter(const ModelDesc *m, const AdapterPlan *plan, Mem *mem) {
    int n = 0;
    while (m->arch->params[n].name) n++;
    ParamDesc *rows = MEM_ARRAY(mem, ParamDesc, (size_t)n * ADAPTER_PARTS + 1), *to = rows;
    for (int i = 0; i < n; i++) {
        const ParamDesc *w = &m->arch->params[i];
        bool any = false, bias = false;
        for (int64_t l = 0; l < plan->layers; l++)
            any = any || plan->rank[l][w->id], bias = bias || plan->bias[l][w->id];
        if (!any || !adapter_can(w)) continue;
        *to++ = part_of(w, ADAPTER_A, plan, mem);
        *to++ = part_of(w, ADAPTER_B, plan, mem);
        if (bias) *to++ = part_of(w, ADAPTER_BIAS, plan, mem);
    }
    Arch *arch = mem_copy(mem, m->arch, sizeof *arch);
    arch->params = rows;
    ModelDesc out = *m;
    out.arch = arch, out.adapter = NULL, out.freeze_tower = false;
    return out;
}

bool adapter_of_experts(const ModelDesc *adapter) {
    for (const ParamDesc *p = adapter->arch->params; p->name; p++)
        if (p->where == IN_EXPERT) return true;
    return false;
}

static void add_count(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)p, (void)layer;
    *(int64_t *)user += experts * rows * cols;
}
int64_t adapter_count(const ModelDesc *adapter) {
    int64_t n = 0;
    arch_each_row(adapter, add_count, &n);
    return n;
}

/* ---- a plan from settings */
double adapter_scale(double alpha, double rank, bool rslora) { return alpha / (rslora ? sqrt(rank) : rank); }

enum { LONGEST = 1000 };
static bool matches(bool *yes, const char *before, const char *key, const char *name, Err *err) {
    char text[LONGEST + 32];
    regex_t re;
    *yes = false;
    if (strlen(key) > LONGEST) return err_set(err, "\"%.40s...\" is longer than %d characters", key, LONGEST);
    snprintf(text, sizeof text, "^%s(%s)$", before, key);
    if (regcomp(&re, text, REG_EXTENDED | REG_NOSUB))
        return err_set(err, "\"%.200s\" is no regular expression (POSIX extended)", key);
    *yes = !regexec(&re, name, 0, NULL, 0);
    regfree(&re);
    return true;
}

bool adapter_pattern(double *out, const AdapterPattern *p, int n, const char *module, double otherwise, Err *err) {
    *out = otherwise;
    for (int i = 0; i < n; i++) {
        bool yes;
        TRY(matches(&yes, "(.*\\.)?", p[i].key, module, err));
        if (yes) return *out = p[i].value, true;
    }
    return true;
}

static bool ends_at_dot(const char *name, const char *end) {
    size_t n = strlen(name), k = strlen(end);
    return n >= k && !strcmp(name + n - k, end) && (n == k || name[n - k - 1] == '.');
}
static bool listed(const char *const *list, int n, const char *name) {
    for (int i = 0; i < n; i++)
        if (ends_at_dot(name, list[i])) return true;
    return false;
}
static bool is_all(const AdapterSpec *s) {
    return s->n_targets == 1 && (!strcmp(s->targets[0], "all-linear") || !strcmp(s->targets[0], "all"));
}

typedef struct {
    AdapterPlan *plan;
    const ModelDesc *m;
    const AdapterSpec *spec;
    Buf name;
    int n;
    bool ok;
    Err *err;
} Planning;

static bool is_target(bool *yes, const Planning *x, const ParamDesc *p, int layer) {
    const AdapterSpec *s = x->spec;
    bool in = !s->at;
    for (int i = 0; i < s->n_at; i++) in = in || s->at[i] == layer;
    *yes = false;
    if (!in || !adapter_can(p) || listed(s->exclude, s->n_exclude, x->name.data)) return true;
    if (s->regex) return matches(yes, "", s->regex, x->name.data, x->err);
    *yes = is_all(s) ? p->role != R_ROUTER : listed(s->targets, s->n_targets, x->name.data);
    return true;
}

static bool plan_row(Planning *x, const ParamDesc *p, int layer) {
    const AdapterSpec *s = x->spec;
    int64_t topk = x->m->d.topk > 0 ? x->m->d.topk : 1, share = s->rank / topk;
    double rank = (double)s->rank, alpha = s->alpha;
    bool yes;
    adapter_module(&x->name, p, layer, 0);
    TRY(is_target(&yes, x, p, layer));
    if (!yes) return true;
    if (s->divided && p->where == IN_EXPERT) /* the same scale: alpha is divided with it */
        rank = (double)(share ? share : 1), alpha = s->alpha * rank / (double)s->rank;
    TRY(adapter_pattern(&rank, s->ranks, s->n_ranks, x->name.data, rank, x->err)
        && adapter_pattern(&alpha, s->alphas, s->n_alphas, x->name.data, alpha, x->err));
    if (!(rank >= 1 && rank <= ADAPTER_RANK_MOST && rank == floor(rank)))
        return err_set(x->err, "%s: rank %g: 1 to %d are possible", x->name.data, rank, ADAPTER_RANK_MOST);
    x->plan->rank[layer][p->id] = (int16_t)rank;
    x->plan->scale[layer][p->id] = (float)adapter_scale(alpha, rank, s->rslora);
    x->plan->bias[layer][p->id] = s->bias;
    x->n++;
    return true;
}
static void plan_visit(void *user, const ParamDesc *p, int layer, int64_t experts, int64_t rows, int64_t cols) {
    (void)experts, (void)rows, (void)cols;
    Planning *x = user;
    x->ok = x->ok && plan_row(x, p, layer);
}

bool adapter_plan_of(AdapterPlan *out, const ModelDesc *m, const AdapterSpec *spec, Mem *mem, Err *err) {
    *out = adapter_plan(m, mem);
    Planning x = { .plan = out, .m = m, .spec = spec, .ok = true, .err = err };
    arch_each_row(m, plan_visit, &x);
    buf_free(&x.name);
    return x.ok && (x.n || err_set(err, "no linear map of a %s model is a target", m->arch->name));
}
