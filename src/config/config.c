/* config.c - setting options: finding the row, reading the value by its type, and filling in
 * what depends on another. */
#include "base/near_name.h"
#include "config/config.h"
#include "base/file.h"
#include "base/yaml.h"
#include "config/table.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Does the blank-separated list hold the name, or (prefix) a name that goes on with a dot after it? */
static bool list_has(const char *list, const char *name, bool prefix) {
    size_t n = strlen(name);
    for (const char *p = list; p && *p;) {
        size_t len = strcspn(p, " ");
        if (!strncmp(p, name, n) && (prefix ? len > n && p[n] == '.' : len == n)) return true;
        p += len;
        p += strspn(p, " ");
    }
    return false;
}

const ConfOption *conf_find(const char *name, int verbs, bool *is_verl) {
    *is_verl = false;
    for (const ConfOption *o = conf_options; o->name; o++)
        if ((o->verbs & verbs) && !strcmp(o->name, name)) return o;
    *is_verl = true;
    for (const ConfOption *o = conf_options; o->name; o++)
        if ((o->verbs & verbs) && list_has(o->verl, name, false)) return o;
    return NULL;
}

/* verl's mappings, whose members join a list of name=value here. */
static const struct {
    const char *prefix, *option;
} JOINS[] = {
    { "data.apply_chat_template_kwargs.", "data.template_args" },
    { "custom_reward_function.reward_kwargs.", "reward.python_args" },
    { "reward.custom_reward_function.reward_kwargs.", "reward.python_args" },
};

bool conf_is_section(const char *name, int verbs) {
    for (const ConfOption *o = conf_options; o->name; o++)
        if ((o->verbs & verbs) && (list_has(o->name, name, true) || list_has(o->verl, name, true))) return true;
    for (size_t i = 0; i < COUNT(JOINS); i++)
        if (list_has(JOINS[i].prefix, name, true)) return true;
    return conf_verl_section(name);
}

static const char *last_part(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

/* The closest by the whole name; a right last part in the wrong section counts as close too. */
const char *conf_nearest(const char *name, int verbs) {
    const char *best = NULL, *tail = last_part(name);
    int least = (int)strlen(name) / 3 + 3;
    for (const ConfOption *o = conf_options; o->name; o++) {
        if (!(o->verbs & verbs)) continue;
        int d = near_distance(name, strlen(name), o->name, strlen(o->name), least);
        const char *own = last_part(o->name);
        int t = 2 + 2 * near_distance(tail, strlen(tail), own, strlen(own), least / 2);
        if (strlen(tail) > 3 && !strncmp(own, tail, strlen(tail))) t = 2; /* use_kl: a beginning of use_kl_loss */
        for (const char *p = o->verl; p && *p;) {
            size_t len = strcspn(p, " ");
            int v = near_distance(name, strlen(name), p, len, d);
            if (v < d) d = v;
            p += len;
            p += strspn(p, " ");
        }
        if (t < d) d = t;
        if (d < least) least = d, best = o->name;
    }
    return best;
}

/* ---- values */
static bool wrong(const ConfOption *o, const ConfScalar *s, Err *err) {
    Buf allowed = { 0 };
    conf_allowed(&allowed, o);
    err_set(err, "%s: %s'%.*s'%s is not allowed; it wants %s", o->name, s->quoted ? "the string " : "", (int)s->n,
            s->text, strstr(s->text, "${") ? " (values are not interpolated)" : "", allowed.data);
    buf_free(&allowed);
    return false;
}

static bool in_range(const ConfOption *o, double x) { return isfinite(x) && x >= o->min && x <= o->max; }

static bool set_number(Config *c, const ConfOption *o, double *real, const ConfScalar *s, Err *err) {
    Json j = yaml_scalar(s->text, s->n, &c->mem);
    if (s->quoted || (j.kind != JSON_INT && j.kind != JSON_REAL)) return wrong(o, s, err);
    *real = json_number(&j);
    if (!in_range(o, *real) || (o->kind == CONF_INT && floor(*real) != *real)) return wrong(o, s, err);
    return true;
}

static bool set_scalar(Config *c, const ConfOption *o, const ConfScalar *s, Err *err) {
    void *to = conf_field(c, o);
    Json j = yaml_scalar(s->text, s->n, &c->mem);
    bool null = !s->quoted && j.kind == JSON_NULL;
    double x;
    if (null && !strcmp(o->standard, "null")) {
        if (o->kind == CONF_INT) *(int64_t *)to = CONF_UNSET;
        else if (o->kind == CONF_REAL) *(double *)to = NAN;
        else *(const char **)to = NULL;
        return true;
    }
    switch (o->kind) {
    case CONF_BOOL:
        if (s->quoted || j.kind != JSON_BOOL) return wrong(o, s, err);
        *(bool *)to = j.flag;
        return true;
    case CONF_INT:
        TRY(set_number(c, o, &x, s, err));
        *(int64_t *)to = (int64_t)x;
        return true;
    case CONF_REAL: return set_number(c, o, to, s, err);
    case CONF_STR:
        if (null || !s->n || memchr(s->text, 0, s->n)) return wrong(o, s, err);
        *(const char **)to = mem_str(&c->mem, s->text, s->n);
        return true;
    case CONF_ENUM: {
        const char *word = mem_str(&c->mem, s->text, s->n);
        if (null) word = "off"; /* verl writes null where a method is off */
        return name_find(to, o->names, word) || wrong(o, s, err);
    }
    default: return wrong(o, s, err);
    }
}

bool conf_set(Config *c, const ConfOption *o, const ConfValue *v, Err *err) {
    if (o->kind != CONF_STRS && o->kind != CONF_PAIR) {
        if (!v->is_list) return set_scalar(c, o, &v->one, err);
        return wrong(o, &(ConfScalar){ "[...]", 5, false }, err);
    }
    const ConfScalar *items = v->is_list ? v->items : &v->one;
    size_t n = v->is_list ? v->n : 1;
    if (!v->is_list && !v->one.quoted && yaml_scalar(v->one.text, v->one.n, &c->mem).kind == JSON_NULL) n = 0;
    if (o->kind == CONF_PAIR) {
        if (n != 2) return err_set(err, "%s: wants a list of two numbers, such as %s", o->name, o->standard);
        double *to = conf_field(c, o);
        return set_number(c, o, &to[0], &items[0], err) && set_number(c, o, &to[1], &items[1], err);
    }
    StrList *to = conf_field(c, o);
    to->n = (int64_t)n;
    to->at = MEM_ARRAY(&c->mem, const char *, n);
    for (size_t i = 0; i < n; i++) {
        if (!items[i].n || memchr(items[i].text, 0, items[i].n)) return wrong(o, &items[i], err);
        to->at[i] = mem_str(&c->mem, items[i].text, items[i].n);
    }
    return true;
}

/* ---- keys */
static void note(Config *c, const char *line) { VEC_PUSH(c->notes, line); }

static bool unknown(const Config *c, const char *key, Err *err) {
    bool verl;
    const ConfOption *other = conf_find(key, CONF_TRAIN | CONF_SFT, &verl);
    const char *verb = c->verb == CONF_SFT ? "sft" : "train";
    if (other)
        return err_set(err, "%s is an option of `hone %s`, not of `hone %s`", key,
                       other->verbs & CONF_SFT ? "sft" : "train", verb);
    const char *near = conf_nearest(key, c->verb);
    if (near)
        return err_set(err, "there is no option %s; the nearest is %s (`hone %s --list-options` lists all)", key, near,
                       verb);
    return err_set(err, "there is no option %s; `hone %s --list-options` lists all", key, verb);
}

/* Where somebody reads a list of them, one mistake does not hide the next. */
static bool refused(Config *c, const char *where, Err *err) {
    err_wrap(err, "%s", where);
    if (!c->refused) return false;
    buf_printf(c->refused, "  %s\n", err->msg);
    c->n_refused++;
    return true;
}

const ConfOption *conf_joins(const char *key, int verbs, const char **name) {
    bool verl;
    for (size_t i = 0; i < COUNT(JOINS); i++)
        if (!strncmp(key, JOINS[i].prefix, strlen(JOINS[i].prefix)))
            return *name = key + strlen(JOINS[i].prefix), conf_find(JOINS[i].option, verbs, &verl);
    return NULL;
}

void conf_join(Config *c, const ConfOption *o, const char *name, const char *value) {
    StrList *l = conf_field(c, o);
    const char **all = MEM_ARRAY(&c->mem, const char *, (size_t)l->n + 1);
    if (l->n) memcpy(all, l->at, (size_t)l->n * sizeof *all);
    all[l->n] = mem_printf(&c->mem, "%s=%s", name, value);
    *l = (StrList){ all, l->n + 1 };
}

/* again: an override may set what the file set. */
bool conf_put(Config *c, const char *key, const ConfValue *v, const char *where, bool again, Err *err) {
    bool verl;
    const ConfOption *o = conf_find(key, c->verb, &verl);
    const char *member;
    const ConfOption *joins = conf_joins(key, c->verb, &member);
    if (joins) {
        conf_join(c, joins, member, mem_str(&c->mem, v->one.text ? v->one.text : "", v->one.n));
        c->origin[joins - conf_options] = mem_str(&c->mem, where, strlen(where));
        note(c, mem_printf(&c->mem, "%s: %s (verl's name) is a part of %s here", where, key, joins->name));
        return true;
    }
    if (!o) {
        const char *why, *value = mem_str(&c->mem, v->one.text ? v->one.text : "", v->one.n);
        ConfFate fate = conf_verl(key, value, &why);
        if (fate == CONF_REFUSED) err_set(err, "%s=%s cannot be had: %s", key, value, why);
        else if (fate == CONF_UNKNOWN) unknown(c, key, err);
        else note(c, mem_printf(&c->mem, "%s: %s has no effect: %s", where, key, why));
        return fate == CONF_GONE || refused(c, where, err);
    }
    const char **origin = &c->origin[o - conf_options];
    if (*origin && !again) return err_set(err, "%s: %s is set twice, before that at %s", where, o->name, *origin);
    if (verl) note(c, mem_printf(&c->mem, "%s: %s (verl's name) is %s here", where, key, o->name));
    if (!conf_set(c, o, v, err)) return refused(c, where, err);
    *origin = mem_str(&c->mem, where, strlen(where));
    return true;
}

static void standard_values(Config *c) {
    for (const ConfOption *o = conf_options; o->name; o++) {
        ConfScalar part[2];
        ConfValue v = { .one = { o->standard, strlen(o->standard), false }, .items = part };
        if (o->kind == CONF_STRS) v.is_list = true; /* the only default is [] */
        if (o->kind == CONF_PAIR) {
            const char *a = o->standard + 1, *b = strchr(a, ',');
            part[0] = (ConfScalar){ a, (size_t)(b - a), false };
            part[1] = (ConfScalar){ b + 2, strlen(b + 2) - 1, false };
            v.is_list = true, v.n = 2;
        }
        Err err;
        CHECK(conf_set(c, o, &v, &err), "the default of %s: %s", o->name, err.msg);
    }
}

/* What depends on another option gets its value here, so that nobody else need know. */
static void resolve(Config *c) {
    const char *folder = c->model.path ? model_folder(c->model.path, &c->mem) : NULL;
    if (folder != c->model.path) {
        note(c, mem_printf(&c->mem, "model.path: the model is in %s", folder));
        c->model.path = folder;
    }
    if (!c->model.tokenizer) c->model.tokenizer = c->model.path;
    c->from.path = c->model.path, c->from.tokenizer = c->model.tokenizer;
    c->from.chat_template = c->model.chat_template, c->from.scorer = c->reward.python;
    if (c->data.seed == CONF_UNSET) c->data.seed = c->trainer.seed;
    if (c->rollout.seed == CONF_UNSET) c->rollout.seed = c->trainer.seed;
    if (c->rollout.max_tokens == CONF_UNSET) c->rollout.max_tokens = c->data.max_response_length;
    if (c->rollout.top_k < 0) c->rollout.top_k = 0;
    if (c->rollout.val.top_k < 0) c->rollout.val.top_k = 0;
    if (isnan(c->train.clip_low)) c->train.clip_low = c->train.clip_ratio;
    if (isnan(c->train.clip_high)) c->train.clip_high = c->train.clip_ratio;
    if (c->train.warmup_steps == -1) c->train.warmup_steps = CONF_UNSET;
    if (c->train.mini_batch_size == CONF_UNSET) c->train.mini_batch_size = c->data.train_batch_size;
    if (c->train.loss_norm_length == CONF_UNSET) c->train.loss_norm_length = c->data.max_response_length;
    if (c->trainer.save_every < 0) c->trainer.save_every = 0;
    if (c->trainer.val_every < 0) c->trainer.val_every = 0;
    if (!c->trainer.run_dir)
        c->trainer.run_dir = mem_printf(&c->mem, "runs/%s/%s", c->trainer.project, c->trainer.experiment);
}

static bool load(Config *c, ConfVerb verb, const char *name, const char *text, size_t n_text,
                 const char *const *overrides, int n, Buf *list, Err *err) {
    memset(c, 0, sizeof *c);
    c->verb = verb;
    c->refused = list;
    c->file = name ? mem_str(&c->mem, name, strlen(name)) : NULL;
    standard_values(c);
    bool ok = !text || conf_read_yaml(c, c->file, text, n_text, err);
    for (int i = 0; ok && i < n; i++) ok = conf_read_override(c, overrides[i], err);
    if (ok && c->n_refused > 1) ok = err_set(err, "%d settings cannot be taken", c->n_refused);
    else if (c->n_refused) ok = false; /* err says it */
    if (ok) resolve(c);
    else config_free(c);
    return ok;
}

bool config_load_text(Config *c, ConfVerb verb, const char *name, const char *text, size_t n_text,
                      const char *const *overrides, int n, Err *err) {
    return load(c, verb, name, text, n_text, overrides, n, NULL, err);
}

bool config_load(Config *c, ConfVerb verb, const char *file, const char *const *overrides, int n, Buf *list, Err *err) {
    Buf text = { 0 };
    bool ok = (!file || file_read(&text, file, err))
              && load(c, verb, file, file ? text.data ? text.data : "" : NULL, text.n, overrides, n, list, err);
    buf_free(&text);
    return ok;
}

void config_free(Config *c) {
    vec_free(c->notes.at);
    mem_free(&c->mem);
    memset(c, 0, sizeof *c);
}

const char *config_where(const Config *c, const char *option) {
    for (const ConfOption *o = conf_options; o->name; o++)
        if (!strcmp(o->name, option)) return c->origin[o - conf_options] ? c->origin[o - conf_options] : "the default";
    die("there is no option %s", option);
}

bool config_given(const Config *c, const char *option) {
    if (!strcmp(config_where(c, option), "the default")) return false;
    Config d;
    Err err;
    if (!config_load_text(&d, c->verb, NULL, NULL, 0, NULL, 0, &err)) return true;
    bool same = config_same(c, &d, option);
    config_free(&d);
    return !same;
}
