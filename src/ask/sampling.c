/* sampling.c - a request's line: how it wants to be answered. */
#include "ask/sampling.h"

#include <inttypes.h>

static bool between(const char *what, double x, double least, double most, Err *err) {
    return (x >= least && x <= most) || err_set(err, "\"%s\" must lie between %g and %g, not %g", what, least, most, x);
}

static bool stop_texts(Sampling *out, const char *common, const Json *line, Mem *mem, Err *err) {
    const Json *s = json_get(line, "stop");
    size_t own = !s || s->kind == JSON_NULL ? 0 : s->kind == JSON_ARRAY ? s->n : 1;
    out->stop = MEM_ARRAY(mem, const char *, own + 1);
    if (common && !*common) return err_set(err, "--stop is empty: every answer would end before it begins");
    if (common) out->stop[out->n_stop++] = common;
    for (size_t i = 0; i < own; i++) {
        const Json *t = s->kind == JSON_ARRAY ? &s->items[i] : s;
        if (t->kind != JSON_STRING || !t->n)
            return err_set(err, "\"stop\" must be a text or a list of texts, none of them empty");
        out->stop[out->n_stop++] = t->str;
    }
    return true;
}

static bool stop_ids(Sampling *out, const Json *line, const Dims *d, Mem *mem, Err *err) {
    const Json *s = json_get(line, "stop_token_ids");
    if (!s || s->kind == JSON_NULL) return true;
    if (s->kind != JSON_ARRAY) return err_set(err, "\"stop_token_ids\" must be a list of token ids");
    int32_t *ids = MEM_ARRAY(mem, int32_t, s->n);
    for (size_t i = 0; i < s->n; i++) {
        if (s->items[i].kind != JSON_INT || s->items[i].integer < 0 || s->items[i].integer >= d->vocab)
            return err_set(err, "\"stop_token_ids\" holds something that is no id below %" PRId64, d->vocab);
        ids[i] = (int32_t)s->items[i].integer;
    }
    out->opts.stop_ids = ids;
    out->opts.n_stop_ids = (int)s->n;
    return true;
}

/* min_tokens keeps stop tokens away: some token must be left. */
static bool some_left(const SampleOpts *o, const Dims *d, Err *err) {
    if (!o->min_tokens || o->n_stop_ids + d->special.n_eos < d->vocab) return true;
    Mem mem = { 0 };
    bool *stops = MEM_ARRAY(&mem, bool, (size_t)d->vocab);
    int64_t left = d->vocab;
    for (int64_t i = 0; i < d->special.n_eos; i++) left -= !stops[d->special.eos[i]], stops[d->special.eos[i]] = true;
    for (int i = 0; i < o->n_stop_ids; i++) left -= !stops[o->stop_ids[i]], stops[o->stop_ids[i]] = true;
    mem_free(&mem);
    return left > 0 || err_set(err, "\"stop_token_ids\" holds every token, and \"min_tokens\" forbids them all");
}

bool sampling_read(Sampling *out, const SamplingArgs *args, int64_t samples, const Json *line, const Dims *d, Mem *mem,
                   Err *err) {
    SamplingArgs a = *args;
    *out = (Sampling){ 0 };
    TRY(json_real(line, "temperature", &a.temperature, err) && json_real(line, "top_p", &a.top_p, err)
        && json_real(line, "min_p", &a.min_p, err) && json_int(line, "top_k", &a.top_k, err)
        && json_int(line, "max_tokens", &a.max_tokens, err) && json_int(line, "min_tokens", &a.min_tokens, err)
        && json_bool(line, "greedy", &a.greedy, err) && json_bool(line, "ignore_eos", &a.ignore_eos, err)
        && json_int(line, "seed", &a.seed, err) && json_int(line, "n", &samples, err));
    if (a.temperature == 0) a.greedy = true, a.temperature = 1; /* what other engines mean by it */
    if (a.top_k < 0) a.top_k = 0;
    TRY(between("temperature", a.temperature, TEMPERATURE_LEAST, TEMPERATURE_MOST, err)
        && between("top_p", a.top_p, 1e-9, 1, err) && between("min_p", a.min_p, 0, 1, err)
        && between("top_k", (double)a.top_k, 0, 2e9, err) && between("max_tokens", (double)a.max_tokens, 1, 1e9, err)
        && between("min_tokens", (double)a.min_tokens, 0, 1e9, err) && between("n", (double)samples, 1, 1e6, err));
    out->samples = (int)samples;
    out->opts = (SampleOpts){
        .draw = { (float)a.temperature, (float)a.top_p, (float)a.min_p, (int32_t)a.top_k },
        .greedy = a.greedy,
        .ignore_eos = a.ignore_eos,
        .max_tokens = (int)a.max_tokens,
        .min_tokens = (int)a.min_tokens,
        .has_seed = json_get(line, "seed") != NULL,
        .seed = (uint64_t)a.seed,
    };
    return stop_texts(out, a.stop, line, mem, err) && stop_ids(out, line, d, mem, err) && some_left(&out->opts, d, err);
}
