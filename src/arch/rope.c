/* rope.c - rotary frequencies and the softmax scale: reads them from config.json, computes them.
 *
 * transformers computes frequencies in float32, so the same roundings are done here; powers and logarithms are our own
 * (base/mathx.h), rounded once, so the bits are the same on every machine. */
#include "arch/config.h"
#include "base/mathx.h"

#include <string.h>

static bool rope_num(double *to, const Json *o, const char *key, double lo, double hi, Err *err) {
    if (!json_real(o, key, to, err)) return err_wrap(err, "rope_scaling");
    const Json *v = json_get(o, key);
    if (v && v->kind != JSON_NULL && !(*to >= lo && *to <= hi))
        return err_set(err, "rope_scaling.%s is %.10g: it must lie between %g and %g", key, *to, lo, hi);
    return true;
}

static bool rope_must(double value, const char *type, const char *key, Err *err) {
    return value > 0 || err_set(err, "rope_scaling.%s is missing: type \"%s\" needs it", key, type);
}

static bool rope_sections(RopeConf *r, const Json *o, int64_t half, Err *err) {
    const Json *s = json_get(o, "mrope_section");
    bool ok = s && s->kind == JSON_ARRAY && s->n == 3;
    int64_t sum = 0;
    for (size_t i = 0; ok && i < 3; i++) {
        ok = s->items[i].kind == JSON_INT && s->items[i].integer >= 0 && s->items[i].integer <= half;
        if (ok) sum += r->sections[i] = s->items[i].integer;
    }
    return (ok && sum == half)
           || err_set(err, "rope_scaling.mrope_section must be three numbers whose sum is half of what turns, %ld",
                      (long)half);
}

/* Another theta, and nothing dynamic about it.  Without alpha it would follow the longest position seen so far. */
static bool rope_alpha(Dims *d, const Json *o, Err *err) {
    double alpha = 0, wide = (double)d->head_dim;
    TRY(rope_num(&alpha, o, "alpha", 1e-6, 1e9, err));
    if (!(alpha > 0)) return err_set(err, "rope_scaling.rope_type is \"dynamic\" without alpha: it is not supported");
    if (wide <= 2) return err_set(err, "rope_scaling.alpha wants heads wider than 2 columns");
    d->rope.theta *= mx_pow(alpha, wide / (wide - 2));
    return true;
}

/* Of the two lists the one for sequences within the original context, which then is the context: which list is used
 * must not depend on how long an answer has become. */
static bool rope_long(Dims *d, const Json *c, const Json *o, Err *err) {
    RopeConf *r = &d->rope;
    TRY(rope_num(&r->original, c, "original_max_position_embeddings", 1, 0x1p31, err)); /* (Phi-3 has it beside) */
    const Json *list = json_get(o, "short_factor");
    int64_t n = (int64_t)((double)d->head_dim * r->part) / 2;
    bool ok = list && list->kind == JSON_ARRAY && (int64_t)list->n == n && n <= MAX_ROTARY / 2;
    for (int64_t i = 0; ok && i < n; i++) {
        const Json *x = &list->items[i];
        ok = x->kind == JSON_INT || x->kind == JSON_REAL;
        if (ok) r->ext[i] = json_number(x), ok = r->ext[i] >= 1e-6 && r->ext[i] <= 1e6;
    }
    if (!ok) return err_set(err, "rope_scaling.short_factor must be %ld numbers, half of what turns", (long)n);
    TRY(rope_must(r->original, "longrope", "original_max_position_embeddings", err));
    r->longest = (double)d->context;
    if (r->original < r->longest) d->context = (int64_t)r->original;
    return true;
}

/* o: rope_scaling, or rope_parameters where transformers 5 wrote the file.  rope_type wins over the older type. */
static bool rope_scaling(Dims *d, const Json *c, const Json *o, Err *err) {
    RopeConf *r = &d->rope;
    const char *type = NULL, *old = NULL;
    TRY(json_str(o, "rope_type", &type, err) && json_str(o, "type", &old, err));
    if (!type) type = old;
    if (!type) return err_set(err, "rope_scaling has no rope_type");
    static const struct {
        const char *name;
        RopeKind kind;
    } types[] = {
        { "default", ROPE_DEFAULT }, { "linear", ROPE_LINEAR },   { "llama3", ROPE_LLAMA3 }, { "yarn", ROPE_YARN },
        { "mrope", ROPE_SECTIONS },  { "dynamic", ROPE_DEFAULT }, { "longrope", ROPE_LONG }, { "su", ROPE_LONG },
    };
    size_t i = 0;
    while (i < COUNT(types) && strcmp(type, types[i].name)) i++;
    if (i == COUNT(types))
        return err_set(
            err, "rope_scaling.rope_type is \"%.40s\": known are default, linear, llama3, yarn, mrope, longrope", type);
    r->kind = types[i].kind;
    if (!strcmp(type, "dynamic")) return rope_alpha(d, o, err);
    if (r->kind == ROPE_DEFAULT && json_get(o, "mrope_section")) r->kind = ROPE_SECTIONS;
    TRY(rope_num(&r->factor, o, "factor", 1e-6, 1e6, err));
    TRY(rope_num(&r->low_freq, o, "low_freq_factor", 1e-6, 1e6, err));
    TRY(rope_num(&r->high_freq, o, "high_freq_factor", 1e-6, 1e6, err));
    TRY(rope_num(&r->original, o, "original_max_position_embeddings", 1, 0x1p31, err));
    TRY(rope_num(&r->beta_fast, o, "beta_fast", 1e-6, 1e6, err));
    TRY(rope_num(&r->beta_slow, o, "beta_slow", 1e-6, 1e6, err));
    TRY(rope_num(&r->mscale, o, "mscale", 0, 1e3, err));
    TRY(rope_num(&r->mscale_all, o, "mscale_all_dim", 0, 1e3, err));
    TRY(rope_num(&r->attention_factor, o, "attention_factor", 1e-6, 1e3, err));
    TRY(json_bool(o, "truncate", &r->truncate, err));
    if (r->kind == ROPE_LINEAR) return rope_must(r->factor, type, "factor", err);
    if (r->kind == ROPE_LONG) return rope_long(d, c, o, err);
    if (r->kind == ROPE_SECTIONS) return rope_sections(r, o, (int64_t)((double)d->head_dim * r->part) / 2, err);
    if (r->kind == ROPE_YARN) {
        if (!(r->original > 0)) r->original = (double)d->context;
        if (!(r->factor > 0)) r->factor = (double)d->context / r->original;
        if (!(r->factor >= 1e-6))
            return err_set(err, "rope_scaling.factor is missing, and max_position_embeddings gives none");
        if (r->beta_slow > r->beta_fast)
            return err_set(err, "rope_scaling.beta_slow %g is above beta_fast %g", r->beta_slow, r->beta_fast);
    }
    if (r->kind == ROPE_LLAMA3) {
        TRY(rope_must(r->factor, type, "factor", err) && rope_must(r->low_freq, type, "low_freq_factor", err));
        TRY(rope_must(r->high_freq, type, "high_freq_factor", err));
        TRY(rope_must(r->original, type, "original_max_position_embeddings", err));
        if (!(r->high_freq > r->low_freq))
            return err_set(err, "rope_scaling.high_freq_factor %g must be above low_freq_factor %g", r->high_freq,
                           r->low_freq);
    }
    return true;
}

bool config_rope(Dims *d, const Json *c, double theta, Err *err) {
    TRY(config_rope_part(d, c, theta, 1, err));
    return d->rope.part == 1 || err_set(err, "partial_rotary_factor is %g: only 1 is supported", d->rope.part);
}

bool config_rope_part(Dims *d, const Json *c, double theta, double part, Err *err) {
    d->rope = (RopeConf){ .theta = theta, .beta_fast = 32, .beta_slow = 1, .truncate = true, .part = part };
    const Json *old = json_get(c, "rope_scaling"), *v5 = json_get(c, "rope_parameters");
    for (int i = 0; i < 2; i++) {
        const Json *o = i ? v5 : old;
        if (o && o->kind != JSON_NULL && o->kind != JSON_OBJECT)
            return err_set(err, "%s is %s: an object is wanted", i ? "rope_parameters" : "rope_scaling",
                           json_kind_name(o->kind));
    }
    TRY(json_real(c, "rope_theta", &d->rope.theta, err) && json_real(v5, "rope_theta", &d->rope.theta, err));
    TRY(json_real(old, "rope_theta", &d->rope.theta, err));
    TRY(json_real(c, "partial_rotary_factor", &d->rope.part, err));
    TRY(json_real(v5, "partial_rotary_factor", &d->rope.part, err));
    if (!(d->rope.part > 0 && d->rope.part <= 1))
        return err_set(err, "partial_rotary_factor is %g: it must lie above 0 and not above 1", d->rope.part);
    if (!(d->rope.theta > 1 && d->rope.theta <= 1e15))
        return err_set(err, "rope_theta is %g: it must lie above 1 and below 1e15", d->rope.theta);
    const Json *o = old && old->kind == JSON_OBJECT && old->n ? old : v5 && v5->kind == JSON_OBJECT ? v5 : NULL;
    return !o || rope_scaling(d, c, o, err);
}

/* How often the wave turns n times within the original context: the index it has, as a real number. */
static double yarn_index(const RopeConf *r, double dim, double n) {
    return dim * mx_log(r->original / (n * 2 * 3.14159265358979323846)) / (2 * mx_log(r->theta));
}

static double yarn_m(const RopeConf *r, double m) { return r->factor > 1 ? 0.1 * m * mx_log(r->factor) + 1 : 1; }

static void yarn(const RopeConf *r, float *freq, const float *power, int dim) {
    double lo = yarn_index(r, dim, r->beta_fast), hi = yarn_index(r, dim, r->beta_slow);
    if (r->truncate) lo = floor(lo), hi = ceil(hi);
    if (lo < 0) lo = 0;
    if (hi > dim - 1) hi = dim - 1;
    if (lo == hi) hi += 0.001;
    for (int i = 0; i < dim / 2; i++) {
        float ramp = ((float)i - (float)lo) / (float)(hi - lo);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        float keep = 1 - ramp; /* two roundings, as transformers has them */
        freq[i] = 1 / ((float)r->factor * power[i]) * (1 - keep) + freq[i] * keep;
    }
}

static void llama3(const RopeConf *r, float *freq, int dim) {
    float low = (float)(r->original / r->low_freq), high = (float)(r->original / r->high_freq);
    for (int i = 0; i < dim / 2; i++) {
        float wave = (float)(2 * 3.14159265358979323846) / freq[i], f = freq[i];
        float s = ((float)r->original / wave - (float)r->low_freq) / (float)(r->high_freq - r->low_freq);
        if (wave > low) freq[i] = f / (float)r->factor;
        else if (!(wave < high)) freq[i] = (1 - s) * f / (float)r->factor + s * f;
    }
}

void arch_rope(const ModelDesc *m, float *freq, float *amp) {
    const RopeConf *r = &m->d.rope;
    int dim = (int)arch_rope_dim(m);
    float power[LIM_HEADDIM / 2];
    CHECK(dim <= LIM_HEADDIM, "rope over %d columns", dim);
    for (int i = 0; i < dim / 2; i++) {
        power[i] = (float)mx_pow(r->theta, (double)((float)(2 * i) / (float)dim));
        freq[i] = 1 / power[i];
    }
    *amp = 1;
    if (r->kind == ROPE_LINEAR)
        for (int i = 0; i < dim / 2; i++) freq[i] /= (float)r->factor;
    if (r->kind == ROPE_LLAMA3) llama3(r, freq, dim);
    if (r->kind == ROPE_LONG) {
        double s = r->factor > 0 ? r->factor : r->longest / r->original;
        for (int i = 0; i < dim / 2; i++) freq[i] = 1 / ((float)r->ext[i] * power[i]);
        if (s > 1) *amp = (float)sqrt(1 + mx_log(s) / mx_log(r->original));
        if (r->attention_factor > 0) *amp = (float)r->attention_factor;
    }
    if (r->kind != ROPE_YARN) return;
    yarn(r, freq, power, dim);
    *amp = (float)(r->attention_factor > 0              ? r->attention_factor
                   : r->mscale > 0 && r->mscale_all > 0 ? yarn_m(r, r->mscale) / yarn_m(r, r->mscale_all)
                                                        : yarn_m(r, 1));
}

float arch_attn_scale(const ModelDesc *m) {
    double scale = 1 / sqrt((double)m->d.qk_dim);
    const RopeConf *r = &m->d.rope;
    if (dims_latent(&m->d) && r->kind != ROPE_DEFAULT && r->mscale_all > 0) {
        double s = yarn_m(r, r->mscale_all);
        scale *= s * s;
    }
    return (float)scale;
}
