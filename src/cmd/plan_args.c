/* plan_args.c - a cluster, a workload and a layout from the command line and from recipes. */
#include "cmd/plan_args.h"

#include "base/file.h"
#include "base/yaml.h"
#include "config/use.h"
#include "image/pixels.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef enum {
    IS_INT,
    IS_REAL,
    IS_STR,
    IS_TRUE,
    IS_FALSE
} Kind; /* TRUE, FALSE: the flag is what is written, or its opposite */

#define A(field) offsetof(PlanArgs, field)
static const struct {
    const char *key;
    Kind kind;
    size_t at;
} KEYS[] = {
    { "plan.cluster", IS_STR, A(cluster) },
    { "plan.gpus_per_node", IS_INT, A(per_node) },
    { "plan.host_memory", IS_STR, A(host_memory) },
    { "plan.storage", IS_STR, A(storage) },
    { "plan.weights", IS_STR, A(weights) },
    { "plan.grads", IS_STR, A(grads) },
    { "plan.moments", IS_STR, A(moments) },
    { "plan.profile", IS_STR, A(profile) },
    { "plan.prompt_mean", IS_REAL, A(work.prompt_mean) },
    { "plan.response_mean", IS_REAL, A(work.mean) },
    { "plan.spread", IS_REAL, A(work.spread) },
    { "plan.images", IS_REAL, A(work.images) },
    { "plan.image_size", IS_STR, A(work.image_size) },
    { "plan.recompute", IS_STR, A(recompute) },
    { "plan.park_weights", IS_TRUE, A(park_weights) },
    { "plan.park_states", IS_TRUE, A(park_states) },
    { "plan.fused_head", IS_FALSE, A(unfused) },
    { "plan.rollout_memory", IS_REAL, A(gen_use) },
};

static bool take(PlanArgs *a, size_t k, const Json *v, Err *err) {
    void *to = (char *)a + KEYS[k].at;
    bool number = v->kind == JSON_INT || v->kind == JSON_REAL;
    switch (KEYS[k].kind) {
    case IS_INT:
        if (v->kind != JSON_INT) break;
        *(int64_t *)to = v->integer;
        return true;
    case IS_REAL:
        if (!number) break;
        *(double *)to = json_number(v);
        return true;
    case IS_STR:
        if (v->kind != JSON_STRING) break;
        *(const char **)to = v->str;
        return true;
    default:
        if (v->kind != JSON_BOOL) break;
        *(bool *)to = v->flag == (KEYS[k].kind == IS_TRUE);
        return true;
    }
    static const char *const WANTED[] = { "a whole number", "a number", "text", "true or false", "true or false" };
    return err_set(err, "%s must be %s, not %s", KEYS[k].key, WANTED[KEYS[k].kind], json_kind_name(v->kind));
}

/* The option of that name, written nested, dotted, or in part so, as `hone train` reads it. */
static const Json *option(const Json *o, const char *name) {
    const Json *v = json_get(o, name);
    for (const char *dot = strchr(name, '.'); !v && dot; dot = strchr(dot + 1, '.'))
        for (size_t i = 0, n = (size_t)(dot - name); o->kind == JSON_OBJECT && i < o->n && !v; i++)
            if (o->members[i].key_n == n && !memcmp(o->members[i].key, name, n))
                v = option(&o->members[i].value, dot + 1);
    return v;
}

/* The planner's own section: nothing in it may be unknown. */
static bool known_option(const char *name, Err *err) {
    for (size_t k = 0; k < COUNT(KEYS); k++)
        if (!strcmp(KEYS[k].key + strlen("plan."), name)) return true;
    return err_set(err, "there is no option plan.%s", name);
}

static bool read_recipe(Json *j, const char *path, Mem *mem, Err *err) {
    Buf text = { 0 };
    bool ok = file_read(&text, path, err) && yaml_parse(j, text.data ? text.data : "", text.n, mem, err);
    buf_free(&text);
    return ok;
}

static bool take_keys(PlanArgs *a, const Json *j, Err *err) {
    const Json *own = json_get(j, "plan");
    for (size_t k = 0; k < COUNT(KEYS); k++) {
        const Json *v = option(j, KEYS[k].key);
        if (v && v->kind != JSON_NULL) TRY(take(a, k, v, err));
    }
    for (size_t i = 0; own && own->kind == JSON_OBJECT && i < own->n; i++) TRY(known_option(own->members[i].key, err));
    for (size_t i = 0; j->kind == JSON_OBJECT && i < j->n; i++)
        if (!strncmp(j->members[i].key, "plan.", 5)) TRY(known_option(j->members[i].key + 5, err));
    return true;
}

/* Everything else as `hone train` reads it, its defaults too: it is that run that is planned. */
static void take_run(PlanArgs *a, const Config *c, Mem *mem) {
    const char *split = config_split(c, mem);
    if (c->model.path) a->model = mem_str(mem, c->model.path, strlen(c->model.path));
    a->work.prompt_max = (double)c->data.max_prompt_length, a->work.max = (double)c->data.max_response_length;
    a->work.prompts = (double)c->data.train_batch_size, a->work.answers = (double)c->rollout.n;
    a->work.mini = (double)c->train.mini_batch_size, a->work.epochs = c->train.epochs,
    a->micro = (double)c->train.micro_tokens;
    a->kl = config_needs_ref(c);
    a->recompute = name_of(recompute_names, c->train.recompute), a->offload = c->train.offload_fraction;
    if (config_given(c, "train.weights")) a->weights = name_of(weights_names, c->train.weights);
    if (config_given(c, "train.master")) a->master = name_of(master_names, c->train.master);
    if (config_given(c, "train.moments")) a->moments = name_of(moments_names, c->train.moments);
    a->park_states = c->train.park_states, a->park_weights = c->train.park_weights;
    a->tp = c->grid.tp, a->pp = c->grid.pp, a->vpp = c->grid.vpp, a->ep = c->grid.ep, a->etp = c->grid.etp;
    a->cp = c->grid.cp, a->gen_tp = c->rollout.grid.tp, a->gen_ep = c->rollout.grid.ep;
    if (split) a->split = mem_str(mem, split, strlen(split));
    a->save_buffer = c->trainer.save_buffer, a->save_minutes = c->trainer.save_minutes;
    a->checkpoint_moments = c->trainer.checkpoint_moments;
    int64_t gpus =
        c->grid.nodes * c->grid.gpus_per_node; /* a configuration that was not planned names no kind of GPU */
    if (gpus > 1) a->cluster = mem_printf(mem, "H100x%lld", (long long)gpus);
}

bool plan_args_recipe(PlanArgs *a, const char *path, Mem *mem, Err *err) {
    Json j;
    Config c;
    TRY(config_load(&c, CONF_TRAIN, path, NULL, 0, NULL, err));
    take_run(a, &c, mem);
    config_free(&c);
    TRY((read_recipe(&j, path, mem, err) && take_keys(a, &j, err)) || err_wrap(err, "%s", path));
    if (a->work.mean > a->work.max) a->work.mean = a->work.max / 2; /* how long answers are is not said either */
    if (a->work.prompt_mean > a->work.prompt_max) a->work.prompt_mean = a->work.prompt_max / 2;
    return true;
}

static bool read_cluster(Cluster *c, const PlanArgs *a, Mem *mem, Err *err) {
    TRY(cluster_parse(c, a->cluster, mem, err));
    if (a->per_node) {
        if (c->gpu.domain == c->gpu.per_node) c->gpu.domain = (int)a->per_node;
        c->gpu.per_node = (int)a->per_node;
    }
    if (a->host_memory && !size_parse(&c->gpu.host_memory, a->host_memory, err)) return err_wrap(err, "--host-memory");
    if (a->storage && !size_parse(&c->storage, a->storage, err)) return err_wrap(err, "--storage");
    if (a->signal > 0 && !(c->storage > 0))
        return err_set(err, "--signal %.0f: how much does the nodes' file system write in a second? --storage 10GB/s",
                       a->signal);
    return true;
}

bool plan_args_cluster(Cluster *out, const char *path, Mem *mem, Err *err) {
    PlanArgs a = PLAN_STANDARD;
    Json j;
    *out = (Cluster){ 0 };
    TRY((read_recipe(&j, path, mem, err) && take_keys(&a, &j, err)) || err_wrap(err, "%s", path));
    if (!strcmp(a.cluster, "this") || !strncmp(a.cluster, "thisx", 5)) return true;
    return read_cluster(out, &a, mem, err) || err_wrap(err, "%s: plan.cluster", path);
}

static bool bytes_of(double *out, const char *name, const char *value, double standard, Err *err) {
    *out = standard;
    if (!value || !strcmp(value, "auto")) return true;
    if (strcmp(value, "f32") && strcmp(value, "bf16"))
        return err_set(err, "--%s is f32 or bf16, not '%s'", name, value);
    *out = strcmp(value, "f32") ? 2 : 4;
    return true;
}

/* The profile with the precision asked for.  Weights in float32 are their own master copy. */
static bool read_profile(Plan *p, const PlanArgs *a, Mem *mem, Err *err) {
    const Profile *known = profile_find(a->profile);
    if (!known) {
        Buf names = { 0 };
        profile_list(&names);
        err_set(err, "there is no profile '%s'; there are %s", a->profile, names.data);
        buf_free(&names);
        return false;
    }
    Profile *f = MEM_NEW(mem, Profile);
    double moment;
    *f = *known;
    TRY(bytes_of(&f->weight, "weights", a->weights, p->cluster.gpu.is_cpu ? 4 : f->weight, err));
    TRY(bytes_of(&f->grad, "grads", a->grads, f->grad, err) && bytes_of(&moment, "moments", a->moments, 4, err));
    bool rest = a->master && !strcmp(a->master, "remainder");
    if (a->master && !rest && strcmp(a->master, "f32"))
        return err_set(err, "--master is f32 or remainder, not '%s'", a->master);
    if (rest && f->weight > 2) return err_set(err, "--master remainder is what rounding takes from bf16 weights");
    f->optimizer = 2 * moment + (f->weight > 2 ? 0 : rest ? 2 : 4);
    f->kv = f->weight;
    if (p->cluster.gpu.is_cpu) f->runtime = f->gen_work = 50e6;
    p->profile = f;
    return true;
}

/* The grid of one picture by the model's rules: of its preprocessor_config.json, or the published ones. */
static bool read_pictures(Plan *p, const PlanArgs *a, Err *err) {
    Workload *w = &p->work;
    const ModelDesc *m = p->sum->model;
    int high = 480, wide = 640, n = 0;
    if (!(a->work.images > 0)) return true;
    if (!m->d.vis.layers) return err_set(err, "--images: %s models take no pictures", m->arch->name);
    if (a->work.image_size
        && (sscanf(a->work.image_size, "%dx%d%n", &wide, &high, &n) != 2 || a->work.image_size[n] || wide < 1
            || high < 1))
        return err_set(err, "--image-size is WIDTHxHEIGHT, not '%s'", a->work.image_size);
    PixelsRules r;
    Err none;
    if (!m->dir || !pixels_rules(&r, m->dir, PIXELS_VERL, &none))
        r = (PixelsRules){ .processor = PIXELS_VERL,
                           .min_pixels = 3136,
                           .max_pixels = 12845056,
                           .patch = (int)m->d.vis.patch,
                           .merge = (int)m->d.vis.merge,
                           .frames = (int)m->d.vis.frames };
    TRY(pixels_size(&high, &wide, high, wide, &r, err));
    w->images.n = a->work.images, w->images.h = high / r.patch, w->images.w = wide / r.patch;
    w->images.tokens = w->images.h * w->images.w / (r.merge * r.merge);
    /* lengths count them, as data.max_prompt_length does */
    double mean = a->work.images * w->images.tokens, most = ceil(a->work.images) * w->images.tokens;
    if (w->prompt_mean == PLAN_STANDARD.work.prompt_mean) w->prompt_mean += mean;
    if (w->prompt_max == PLAN_STANDARD.work.prompt_max) w->prompt_max += most;
    return (w->prompt_mean > mean && w->prompt_max > most)
           || err_set(err, "prompts of %.0f (at most %.0f) tokens, and %g pictures of %d tokens are in them",
                      w->prompt_mean, w->prompt_max, a->work.images, w->images.tokens);
}

bool plan_args_setting(Plan *p, const PlanArgs *a, const char *path, Mem *mem, Err *err) {
    ModelDesc *model = MEM_NEW(mem, ModelDesc);
    ModelSum *sum = MEM_NEW(mem, ModelSum);
    TRY(model_desc_load(model, path, mem, err));
    model_sum(sum, model);
    p->sum = sum;
    p->work = (Workload){ a->work.prompts,     a->work.answers,    a->work.mini,
                          a->work.prompt_mean, a->work.prompt_max, a->work.mean,
                          a->work.max,         a->work.spread,     a->kl,
                          (int)a->work.epochs };
    TRY(read_pictures(p, a, err));
    if (a->work.mean > a->work.max)
        return err_set(err, "answers of %.0f tokens on average cannot all end by %.0f", a->work.mean, a->work.max);
    if (p->work.prompt_mean > p->work.prompt_max)
        return err_set(err, "prompts of %.0f tokens on average cannot all end by %.0f", p->work.prompt_mean,
                       p->work.prompt_max);
    double longest = p->work.prompt_max + a->work.max, context = (double)model->d.context;
    if (context > 0 && longest > context)
        return err_set(
            err, "prompt %.0f + answer %.0f = %.0f tokens exceed the model's context of %.0f (max_position_embeddings)",
            p->work.prompt_max, a->work.max, longest, context);
    p->layout.gen_use = a->gen_use;
    static const double average[] = { [SAVED_F32] = 4, [SAVED_BF16] = 2, [SAVED_NONE] = 0 };
    p->saves = (Saves){ average[a->checkpoint_moments], a->save_minutes, a->signal, a->save_buffer == 0 };
    TRY(read_cluster(&p->cluster, a, mem, err));
    return read_profile(p, a, mem, err);
}

bool plan_args_layout(Plan *p, const PlanArgs *a, Err *err) {
    Layout *l = &p->layout;
#define OR_ONE(x) ((x) ? (int)(x) : 1)
    *l = (Layout){ .g.tp = OR_ONE(a->tp),
                   .g.pp = OR_ONE(a->pp),
                   .g.ep = OR_ONE(a->ep),
                   .g.etp = OR_ONE(a->etp),
                   .g.cp = OR_ONE(a->cp),
                   .g.vpp = OR_ONE(a->vpp),
                   .fused_head = !a->unfused,
                   .micro_tokens = a->micro,
                   .offload = a->offload,
                   .park_weights = a->park || a->park_weights,
                   .park_states = a->park || a->park_states,
                   .gen_tp = OR_ONE(a->gen_tp),
                   .gen_ep = OR_ONE(a->gen_ep),
                   .gen_use = a->gen_use };
    if (!l->micro_tokens) l->micro_tokens = p->work.prompt_max + p->work.max;
    TRY(recompute_parse(&l->drop, a->recompute, err));
    TRY(grid_split(&l->g, a->split, p->sum->layers, err));
    return layout_check(l, p->sum, &p->cluster, &p->work, err);
}

bool plan_args_layout_given(const PlanArgs *a) {
    return a->recipe || a->tp || a->pp || a->ep || a->etp || a->cp || a->vpp || a->gen_tp || a->gen_ep;
}
