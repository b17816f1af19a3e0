/* sampling.h - one request's sampling settings: what it says itself, over what whoever asks says for all. */
#ifndef ASK_SAMPLING_H
#define ASK_SAMPLING_H

#include "base/json.h"
#include "engine/engine.h"

typedef struct {
    double      temperature, top_p, min_p;
    int64_t     top_k, max_tokens, min_tokens, seed;
    bool        greedy, ignore_eos;
    const char *stop;
} SamplingArgs;
static const SamplingArgs SAMPLING_DEFAULT = { .temperature = 1, .top_p = 1, .max_tokens = 256 };

typedef struct {
    SampleOpts   opts;
    const char **stop;           /* [n_stop] texts */
    int          n_stop, samples;
} Sampling;
/* "temperature", "top_p", "n", ... of a line; its stop texts lie where the line does. */
bool sampling_read(Sampling *out, const SamplingArgs *args, int64_t samples, const Json *line, const Dims *d, Mem *mem,
                   Err *err);

#endif
