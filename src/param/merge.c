/* merge.c - see merge.h.  A and B of a matrix are small, and read when its first piece comes. */
#include "param/merge.h"

bool merge_open(Merge *g, const ModelDesc *m, const char *adapter, Err *err) {
    *g = (Merge){ 0 };
    bool ok = peft_open(&g->peft, m, adapter, &g->mem, err)
              && st_open(&g->file, mem_printf(&g->mem, "%s/adapter_model.safetensors", adapter), &g->mem, err);
    for (const ParamDesc *p = ok ? g->peft.desc.arch->params : NULL; ok && p->name; p++)
        if (p->part == ADAPTER_BIAS)
            ok = err_set(err, "%s: lora_bias cannot be merged: the model's linear maps may have no bias", adapter);
    if (!ok) merge_close(g);
    return ok;
}

void merge_close(Merge *g) {
    st_close(&g->file);
    mem_free(&g->one);
    mem_free(&g->mem);
    *g = (Merge){ 0 };
}

static const ParamDesc *row_of(const Merge *g, AdapterPart part, ParamId of, int layer) {
    for (const ParamDesc *p = g->peft.desc.arch->params; p->name; p++)
        if (p->id == adapter_id(part, of) && p->rank[layer]) return p;
    return NULL;
}

static float *value(Merge *g, const ParamDesc *p, const SourceItem *it) {
    const Dims *d = &g->peft.desc.d;
    float *x = MEM_ARRAY(&g->one, float, (size_t)(param_rows(d, p, it->layer) * param_cols(d, p, it->layer)) + 1);
    CHECK(peft_value(x, &g->file, &g->peft.desc, p, it->layer, it->expert), "%s was there", p->name);
    return x;
}

bool merge_has(Merge *g, const SourceItem *it) {
    if (g->item == it) return g->b != NULL;
    mem_free(&g->one);
    g->item = it, g->a = g->b = NULL;
    const ParamDesc *b = row_of(g, ADAPTER_B, it->desc->id, it->layer),
                    *a = row_of(g, ADAPTER_A, it->desc->id, it->layer);
    if (!b) return false;
    if (!a) a = row_of(g, ADAPTER_A, P_E_GATE, it->layer); /* gate and up read one */
    g->a = value(g, a, it), g->b = value(g, b, it);
    g->rank = b->rank[it->layer], g->scale = b->scale[it->layer];
    return true;
}

void merge_add(const Merge *g, float *x, int64_t from, int64_t n) {
    int64_t cols = g->item->src.cols;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = (from + i) / cols, col = (from + i) % cols;
        double sum = 0;
        for (int64_t k = 0; k < g->rank; k++) sum += (double)g->b[row * g->rank + k] * (double)g->a[k * cols + col];
        x[i] = (float)((double)x[i] + (double)g->scale * sum);
    }
}
