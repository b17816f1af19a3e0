/* counted.c - plans counted by the CUDA backend itself, over a runtime without a GPU (cudart.c), where the dry device
 * would count them: `--memory` then launches every kernel of a rank, and its counts must be the dry device's. */
#include "model/model.h"

#include <stdlib.h>

void __real_dev_open_dry(Dev *d, DevKind like);
void __wrap_dev_open_dry(Dev *d, DevKind like);
Arena __real_arena_over(const char *name, void *base, size_t size);
Arena __wrap_arena_over(const char *name, void *base, size_t size);
void __real_model_extend(Model *m, const Kv *kv, const Paged *paged, Tensor ids, Tensor pos, const Pictures *seen,
                         int64_t each, Tensor rows, Tensor h);
void __wrap_model_extend(Model *m, const Kv *kv, const Paged *paged, Tensor ids, Tensor pos, const Pictures *seen,
                         int64_t each, Tensor rows, Tensor h);

void __real_model_backward(Model *m, const Params *g, const Batch *b, Arena *act, const ModelKeep *keep, Tensor dlp,
                           Tensor dent);
void __wrap_model_backward(Model *m, const Params *g, const Batch *b, Arena *act, const ModelKeep *keep, Tensor dlp,
                           Tensor dent);

static Dev *now; /* the one that counts */
void __wrap_dev_open_dry(Dev *d, DevKind like) {
    Err err;
    now = NULL;
    if (like.ops == &ops_cpu) {
        __real_dev_open_dry(d, like);
        return;
    }
    CHECK(dev_open_cuda(d, (CudaOpts){ .threads = 1, .act = like.act, .raw = true }, NULL, &err), "%s", err.msg);
    now = d;
}
/* Arenas that are only counted lie at addresses of their own: here they are blocks of that device. */
Arena __wrap_arena_over(const char *name, void *base, size_t size) {
    const size_t most = (size_t)1 << 38;
    if (now && (uintptr_t)base >> 60) base = now->ops->block(now, most), size = most;
    return __real_arena_over(name, base, size);
}

/* A step of decoding is captured too, as graph.c does, and replayed; and done with fewer sequences. */
static void captured(Model *m, const Kv *kv, const Paged *paged, Tensor ids, Tensor pos, const Pictures *seen,
                     int64_t each, Tensor rows, Tensor h) {
    Dev *d = m->dev;
    d->ops->record(d);
    __real_model_extend(m, kv, paged, ids, pos, seen, each, rows, h);
    void *noted = d->ops->recorded(d);
    d->ops->replay(d, noted);
    d->ops->forget(d, noted);
}
void __wrap_model_extend(Model *m, const Kv *kv, const Paged *paged, Tensor ids, Tensor pos, const Pictures *seen,
                         int64_t each, Tensor rows, Tensor h) {
    static const int fewer[] = { 1, 2, 3, 4, 7, 8, 12, 16, 17, 24, 32, 48, 64, 96, 128, 256 };
    const int tp = m->shard.g.tp;
    bool decodes = m->dev == now && paged->rows.longest == 1 && (m->par.experts.size == 1 || each);
    for (size_t i = 0; decodes && i < COUNT(fewer) && fewer[i] <= paged->rows.n; i++) {
        const int n = fewer[i];
        Paged p = { .rows = { n, 1, tensor_rows(paged->rows.at, 0, n + 1) },
                    .start = tensor_rows(paged->start, 0, n),
                    .table = tensor_rows(paged->table, 0, n) };
        captured(m, kv, &p, tensor_rows(ids, 0, n), tensor_rows(pos, 0, n), seen, each ? (n + tp - 1) / tp : 0,
                 tensor_rows(rows, 0, n), tensor_rows(h, 0, n));
    }
    __real_model_extend(m, kv, paged, ids, pos, seen, each, rows, h);
}

/* What an update does with gradients: their norm, and AdamW of the largest tensor in every format of its states. */
static void step(Dev *d, const Params *g) {
    static const struct {
        DType master, moments;
    } format[] = { { DT_F32, DT_F32 }, { DT_I16, DT_F32 }, { DT_F32, DT_BF16 }, { DT_I16, DT_BF16 } };
    Tensor most = { 0 };
    for (int i = 0; i < g->n; i++)
        if (g->at[i].t.rows * g->at[i].t.cols > most.rows * most.cols) most = g->at[i].t;
    const int64_t n = most.rows * most.cols;
    most = tensor_shape(most, 1, n);
    op_sumsq(d, most);
    for (size_t i = 0; i < COUNT(format); i++) {
        Tensor part[4]; /* w, master, m, v */
        const DType t[4] = { DT_BF16, format[i].master, format[i].moments, format[i].moments };
        for (int k = 0; k < 4; k++) part[k] = tensor_over(d->ops->block(d, tensor_bytes(t[k], 1, n)), t[k], 1, n);
        op_adamw(d, part[0], part[1], part[2], part[3], most, (Adam){ .lr = 1e-3F, .clip_scale = 1, .step = 1 });
    }
}
void __wrap_model_backward(Model *m, const Params *g, const Batch *b, Arena *act, const ModelKeep *keep, Tensor dlp,
                           Tensor dent) {
    __real_model_backward(m, g, b, act, keep, dlp, dent);
    if (m->dev == now) step(now, g);
}
