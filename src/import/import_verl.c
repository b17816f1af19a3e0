/* import_verl.c - verl's settings turned into hone's.
 * A key is looked up in three tables: the rules (import_rules.c), for what is
 * taken with a change; the options with verl's names for them (config/table.c); and verl's keys that have no option
 * (config/verl.c). */
#include "import/import_verl.h"

#include "base/yaml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- what the settings say */
const HydraSet *import_find(const Import *im, const char *keys) {
    for (const char *p = keys; *p;) {
        size_t n = strcspn(p, " ");
        for (size_t i = 0; i < im->sets.n; i++)
            if (strlen(im->sets.at[i].key) == n && !strncmp(im->sets.at[i].key, p, n)) return &im->sets.at[i];
        p += n;
        p += strspn(p, " ");
    }
    return NULL;
}

const char *import_text(const Import *im, const char *key, const char *standard) {
    const HydraSet *s = import_find(im, key);
    return !s || s->removed || s->value.is_list || !strcasecmp(s->value.one.text, "null") ? standard
                                                                                          : s->value.one.text;
}

double import_number(const Import *im, const char *key, double standard) {
    const char *text = import_text(im, key, NULL);
    char *end;
    double x = text ? strtod(text, &end) : standard;
    return text && (end == text || *end) ? standard : x;
}

bool import_yes(const Import *im, const char *key, bool standard) {
    const char *text = import_text(im, key, NULL);
    return text ? !strcasecmp(text, "true") || !strcmp(text, "1") : standard;
}

/* ---- setting hone's options */
const char *import_place(const Import *im, const HydraSet *s) {
    return s->line ? mem_printf(im->mem, "line %d: %s", s->line, s->key) : s->key;
}

static bool set(Import *im, const char *option, const ConfValue *v, const char *where, Err *err) {
    bool verl;
    const ConfOption *o = conf_find(option, im->c.verb, &verl);
    CHECK(o, "there is no option %s", option);
    if (!conf_set(&im->c, o, v, err)) return false;
    im->c.origin[o - conf_options] = where;
    return true;
}

bool import_put_value(Import *im, ImportRow *row, const char *option, const ConfValue *value, const char *why) {
    Err err;
    row->name = option;
    row->why = why;
    row->fate = why ? FATE_CHANGED : FATE_TAKEN;
    if (set(im, option, value, import_place(im, row->set), &err)) return true;
    row->fate = FATE_NOT_SUPPORTED;
    row->why = mem_str(im->mem, err.msg, strlen(err.msg));
    return false;
}

bool import_put(Import *im, ImportRow *row, const char *option, const char *value, const char *why) {
    ConfValue v = row->set->value;
    if (value) v = (ConfValue){ .one = { value, strlen(value), false } };
    return import_put_value(im, row, option, &v, why);
}

void import_derive(Import *im, const char *option, const char *value, const char *why) {
    Err err;
    CHECK(set(im, option, &(ConfValue){ .one = { value, strlen(value), false } }, why, &err), "%s", err.msg);
}

/* ---- one key */
/* Of a whole configuration. */
static bool is_off(const char *text) {
    static const char *const off[] = { "null", "false", "0", "0.0", "", "[]", "{}", "-1", "none", "disabled" };
    for (size_t i = 0; i < COUNT(off); i++)
        if (!strcasecmp(text, off[i])) return true;
    return false;
}

static void look_up(Import *im, ImportRow *row) {
    const HydraSet *s = row->set;
    const char *why;
    bool verl;
    if (s->whole && strstr(s->text, "${")) {
        row->fate = FATE_NOT_NEEDED, row->why = "follows another key";
        return;
    }
    if (import_rule(im, row)) return;
    const ConfOption *o = conf_find(s->key, im->c.verb, &verl);
    if (o) {
        bool null = !s->value.is_list && !s->value.one.quoted && !strcasecmp(s->value.one.text, "null");
        bool takes = !strcmp(o->standard, "null") || o->kind == CONF_STRS || (o->kind == CONF_ENUM && null);
        if ((null && !takes) || s->removed)
            row->fate = FATE_NOT_NEEDED, row->name = o->name, row->why = "null: hone's default stands";
        else import_put(im, row, o->name, NULL, NULL);
        return;
    }
    switch (conf_verl(s->key, s->value.is_list ? s->text : s->value.one.text, &why)) {
    case CONF_GONE: row->fate = FATE_NOT_NEEDED, row->why = why; return;
    case CONF_REFUSED: row->fate = FATE_NOT_SUPPORTED, row->why = why; return;
    case CONF_UNKNOWN: break;
    }
    bool off = s->whole && is_off(s->text);
    row->fate = off ? FATE_NOT_NEEDED : FATE_NOT_SUPPORTED;
    row->why = off ? "it is off" : "hone does not know this key";
}

/* ---- the whole */
/* Later settings win; what they replace is said where the value is another. */
static void drop_earlier(Import *im) {
    size_t kept = 0;
    for (size_t i = 0; i < im->sets.n; i++) {
        const HydraSet *s = &im->sets.at[i], *later = NULL;
        for (size_t k = i + 1; k < im->sets.n; k++)
            if (!strcmp(im->sets.at[k].key, s->key)) later = &im->sets.at[k];
        if (!later) im->sets.at[kept++] = *s;
        else if (strcmp(later->text, s->text))
            VEC_PUSH(im->notes, mem_printf(im->mem, "%s is given twice: %s (line %d) wins over %s (line %d)", s->key,
                                           later->text, later->line, s->text, s->line));
    }
    im->sets.n = kept;
}

/* Which of verl's trainers: said by the configuration's name or by a key; bare settings of
 * Megatron's are none of FSDP's. */
static bool is_megatron(const Import *im) {
    static const char prefix[] = "actor_rollout_ref.actor.megatron.";
    const char *engine = import_text(im, "model_engine actor_rollout_ref.actor.strategy engine", "");
    if (im->in.config_name || *engine)
        return (im->in.config_name && strstr(im->in.config_name, "megatron")) || !strcmp(engine, "megatron");
    for (size_t i = 0; i < im->sets.n; i++)
        if (!strncmp(im->sets.at[i].key, prefix, strlen(prefix))) return true;
    return false;
}

void import_verl(Import *im, const ImportIn *in, HydraSets sets, Mem *mem) {
    *im = (Import){ .mem = mem, .in = *in, .sets = sets };
    Err err;
    im->sft = in->module && strstr(in->module, "sft");
    im->dapo = in->module && strstr(in->module, "dapo");
    CHECK(config_load_text(&im->c, im->sft ? CONF_SFT : CONF_TRAIN, NULL, NULL, 0, NULL, 0, &err), "%s", err.msg);
    drop_earlier(im);
    im->megatron = is_megatron(im);
    import_know_model(im);
    import_know_trainer(im);
    for (size_t i = 0; i < im->sets.n; i++) {
        ImportRow row = { .set = &im->sets.at[i] };
        look_up(im, &row);
        VEC_PUSH(im->rows, row);
    }
    import_finish(im);
}

void import_free(Import *im) {
    config_free(&im->c);
    vec_free(im->sets.at);
    vec_free(im->rows.at);
    vec_free(im->notes.at);
}
