/* mixer.c - which mixer a layer has. */
#include "layer/layer.h"

static const Mixer *const mixers[MIXERS] = {
    [MIXER_GQA] = &mixer_gqa,
    [MIXER_MLA] = &mixer_mla,
    [MIXER_DELTA] = &mixer_delta,
};

const Mixer *mixer_of(const ModelDesc *m, int layer) { return mixers[m->d.layer[layer].mixer]; }
