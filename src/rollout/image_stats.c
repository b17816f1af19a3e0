/* image_stats.c - what a data set's pictures need, found by reading all of them once. */
#include "rollout/rollouts.h"

bool image_stats_add(ImageStats *s, const ModelDesc *m, Prompter *p, const Dataset *d, Err *err) {
    TokIds ids = { 0 };
    bool ok = true;
    for (int64_t i = 0; ok && d && i < dataset_n(d); i++) {
        const DataRow *row = dataset_row(d, i);
        Mem mem = { 0 };
        Spans pics = { 0 };
        if (row_has_images(row)) {
            ids.n = 0;
            ok = prompter_sizes(p, row, &ids, &pics, &mem, err)
                 || err_wrap(err, "%s, row %lld", dataset_file(d, row->file), (long long)row->row);
        }
        if (ok && pics.n) {
            int64_t feats, patches;
            engine_images(m, pics, &feats, &patches);
            double share = (double)feats / (double)ids.n;
            s->rows++, s->pictures += pics.n;
            s->feats = feats > s->feats ? feats : s->feats, s->patches = patches > s->patches ? patches : s->patches;
            s->share = share > s->share ? share : s->share;
        }
        mem_free(&mem);
    }
    vec_free(ids.at);
    return ok;
}

PicturesShape image_stats_micro(const ImageStats *s, int64_t micro_tokens, const Dims *d) {
    int64_t unit = d->vis.merge * d->vis.merge, tokens = (int64_t)(s->share * (double)micro_tokens) + s->feats;
    if (tokens > micro_tokens) tokens = micro_tokens;
    if (!s->feats) return (PicturesShape){ 0 };
    return (PicturesShape){ tokens * unit, tokens, (int)tokens, (int)tokens, (int)s->patches };
}

size_t image_stats_pixels(const ImageStats *s, const Dims *d) {
    return (size_t)(s->feats * d->vis.merge * d->vis.merge * d->vis.pixels);
}
