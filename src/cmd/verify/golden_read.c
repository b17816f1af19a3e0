/* golden_read.c - the reference's side of `hone verify`: sequences of golden.safetensors with their numbers
 * and pictures. */
#include "cmd/verify/golden_in.h"
#include "base/file.h"

#include <stdio.h>
#include <string.h>

static const StTensor *column(Golden *g, int i, const char *name, DType t, int64_t n, Err *err) {
    char key[64];
    snprintf(key, sizeof key, "seq%d.%s", i, name);
    const StTensor *x = st_find(&g->ref, key);
    if (!x) return NULL;
    if (x->dtype != t || (n >= 0 && x->count != n)) {
        err_set(err, "golden.safetensors: %s has another type or size than expected", key);
        return NULL;
    }
    return x;
}

static const float *floats(Golden *g, int i, const char *name, int64_t n, Err *err) {
    const StTensor *x = column(g, i, name, DT_F32, n, err);
    return x ? mem_copy(&g->o.mem, x->data, x->bytes) : NULL;
}

/* ---- pictures of a sequence: pixel values, grids, and places, which are runs of their kind's token */
typedef struct {
    const StTensor *grids, *values, *seconds;
    int64_t token, row;
    int n, at;
} Shown;
static bool read_shown(Golden *g, int i, Shown *x, const char *grids, const char *values, int64_t token, Err *err) {
    *x = (Shown){ .token = token };
    if (!(x->grids = column(g, i, grids, DT_I32, -1, err))) return true;
    x->n = (int)(x->grids->count / 3);
    x->values = column(g, i, values, DT_F32, -1, err);
    return x->values || err_set(err, "golden.safetensors: seq%d has %s and no %s", i, grids, values);
}
static bool next_shown(Golden *g, int i, Shown *x, bool clip, int at, Picture *out, Err *err) {
    const Dims *d = &g->o.desc.d;
    int32_t grid[3];
    if (x->at == x->n) return err_set(err, "golden.safetensors: seq%d has more places than pictures", i);
    memcpy(grid, x->grids->data + 12 * x->at, 12);
    *out = (Picture){ .grid = { grid[0], grid[1], grid[2] }, .clip = clip };
    int64_t rows = grid_rows(out->grid), merge = d->vis.merge;
    if (grid[0] < 1 || grid[1] < 1 || grid[2] < 1 || grid[1] % merge || grid[2] % merge
        || (x->row + rows) * d->vis.pixels > x->values->count || at + picture_tokens(out, d) > g->seq[i].n)
        return err_set(err, "golden.safetensors: seq%d: a grid of %d x %d x %d does not fit its pixel values or tokens",
                       i, grid[0], grid[1], grid[2]);
    out->values = (const float *)mem_copy(&g->o.mem, x->values->data, x->values->bytes) + x->row * d->vis.pixels;
    out->key[0] = (uint64_t)i + 1, out->key[1] = (uint64_t)at; /* all different */
    if (x->seconds) {
        float s;
        memcpy(&s, x->seconds->data + 4 * x->at, 4);
        out->seconds = (double)s;
    } else out->seconds = 1;
    x->row += rows, x->at++;
    return true;
}
static bool read_pictures(Golden *g, int i, Err *err) {
    const Dims *d = &g->o.desc.d;
    GoldenSeq *s = &g->seq[i];
    Shown image, video;
    VEC(RowSpan) all = { 0 };
    if (!d->vis.layers) return true;
    TRY(read_shown(g, i, &image, "image_grid_thw", "pixel_values", d->vis.image_token, err));
    TRY(read_shown(g, i, &video, "video_grid_thw", "pixel_values_videos", d->vis.video_token, err));
    video.seconds = column(g, i, "second_per_grid_ts", DT_F32, video.n, err);
    bool ok = true;
    for (int t = 0; ok && t < s->n;) {
        bool clip = s->ids[t] == d->vis.video_token && video.n;
        if (!clip && !(s->ids[t] == d->vis.image_token && image.n)) {
            t++;
            continue;
        }
        Picture *p = MEM_NEW(&g->o.mem, Picture);
        ok = next_shown(g, i, clip ? &video : &image, clip, t, p, err);
        if (ok) VEC_PUSH(all, (RowSpan){ p, t });
        t += ok ? picture_tokens(p, d) : 1;
    }
    s->spans = (Spans){ mem_copy(&g->o.mem, all.at, all.n * sizeof *all.at), (int)all.n };
    vec_free(all.at);
    s->image_embeds = floats(g, i, "image_embeds", -1, err), s->video_embeds = floats(g, i, "video_embeds", -1, err);
    const StTensor *pos = column(g, i, "position_ids", DT_I32, 3 * (int64_t)s->n, err),
                   *delta = column(g, i, "delta", DT_I32, 1, err);
    if (pos) s->position_ids = mem_copy(&g->o.mem, pos->data, pos->bytes);
    if (delta) s->delta = mem_copy(&g->o.mem, delta->data, delta->bytes);
    return ok;
}

bool golden_read(Golden *g, Err *err) {
    char path[4096];
    snprintf(path, sizeof path, "%s/golden.safetensors", g->opts->golden);
    TRY(st_open(&g->ref, path, &g->o.mem, err));
    const StTensor *ids;
    while (g->n_seqs < MAX_SEQS && (ids = column(g, g->n_seqs, "input_ids", DT_I32, -1, err))) {
        int i = g->n_seqs++, n = (int)ids->count;
        int32_t *copy = MEM_ARRAY(&g->o.mem, int32_t, (size_t)n + 1);
        memcpy(copy, ids->data, (size_t)n * 4);
        for (int k = 0; k < n; k++)
            if (copy[k] < 0 || copy[k] >= g->o.desc.d.vocab)
                return err_set(err, "%s: seq%d.input_ids holds %d, beyond the vocabulary", path, i, copy[k]);
        g->seq[i] = (GoldenSeq){ copy, n };
        g->seq[i].logits = floats(g, i, "logits", n * g->o.desc.d.vocab, err);
        g->seq[i].logprobs = floats(g, i, "logprobs", n - 1, err);
        g->seq[i].base_logprobs = floats(g, i, "base_logprobs", n - 1, err);
        g->seq[i].entropy = floats(g, i, "entropy", n - 1, err);
        g->seq[i].weights = floats(g, i, "weights", n - 1, err);
        if (!g->seq[i].logprobs)
            return err_set(err, "%s: seq%d.logprobs is missing or has another size than input_ids - 1", path, i);
        TRY(read_pictures(g, i, err));
        g->tokens += n;
        g->outputs += n - 1;
    }
    if (!g->n_seqs) return err_set(err, "%s: holds no seq0.input_ids (32-bit integers)", path);
    return true;
}

bool golden_read_json(Golden *g, const char *name, Json *out) {
    char path[4096];
    Err err;
    Buf text = { 0 };
    snprintf(path, sizeof path, "%s/%s", g->opts->golden, name);
    bool ok = file_exists(path) && file_read(&text, path, &err) && json_parse(out, text.data, text.n, &g->o.mem, &err);
    buf_free(&text);
    return ok;
}
