/* sum.c - the sums over the parameter table.  The kept bytes are those of a stack that keeps 16-bit activations and
 * float32 router values and softmax sums. */
#include "plan/sum.h"
#include "cut/mixer.h"

#include <math.h>

/* Where a row's elements are counted: of the whole model, or of its layer. */
static double *place_of(ModelSum *s, const ParamDesc *p, int layer) {
    LayerSum *l = &s->at[layer];
    switch (p->role) {
    case R_EMBED: return &s->embed;
    case R_HEAD: return &s->head;
    case R_FINAL: return &s->final_norm;
    case R_TOWER: return &s->vision;
    case R_NORM: return &l->norm;
    case R_DENSE: return &l->dense;
    case R_ROUTER: return &l->router;
    case R_SHARED: return &l->shared;
    case R_EXPERTS: return &l->experts;
    case R_ATTN: return p->cut == WHOLE ? &l->attn_whole : &l->attn_cut;
    case ROLES: break;
    }
    CHECK(false, "a parameter of role %d", (int)p->role);
    return NULL;
}

static void add_param(void *user, const ParamDesc *p, int layer, int expert, int64_t rows, int64_t cols) {
    (void)expert;
    ModelSum *s = user;
    double n = (double)rows * (double)cols;
    s->tensors++;
    s->total += n;
    *place_of(s, p, layer) += n;
}

static void add_layer(LayerSum *to, const LayerSum *a, const LayerSum *b) {
    *to = (LayerSum){ a->attn_cut + b->attn_cut, a->attn_whole + b->attn_whole,
                      a->norm + b->norm,         a->dense + b->dense,
                      a->router + b->router,     a->shared + b->shared,
                      a->experts + b->experts,   a->gemm + b->gemm };
}

void model_sum(ModelSum *s, const ModelDesc *m) {
    const Dims *d = &m->d;
    *s = (ModelSum){ .model = m, .layers = (int)d->layers };
    s->kept = &s->memo;
    arch_each_param(m, add_param, s);
    double idle = 0;
    for (int l = 0; l < s->layers; l++) {
        LayerSum *a = &s->at[l];
        const MixerCost *c = mixer_cost_of(d, l);
        a->score = c->score(d), a->value = c->value(d), a->absorbed = c->absorbed(d);
        s->score += a->score, s->value += a->value, s->absorbed += a->absorbed;
        double chosen = d->experts ? a->experts * (double)d->topk / (double)d->experts : 0;
        a->gemm = a->attn_cut + a->attn_whole + a->dense + a->router + a->shared + chosen;
        idle += a->experts - chosen;
        add_layer(&s->before[l + 1], &s->before[l], a);
    }
    s->active = s->total - idle;
    s->gemm = s->active - s->embed - s->vision + (s->head > 0 ? 0 : s->embed);
}

double sum_kv_bytes(const ModelSum *s, int tp, double element) {
    double elements = 0;
    for (int l = 0; l < s->layers; l++) elements += mixer_cost_of(&s->model->d, l)->cache(&s->model->d, tp);
    return elements * element;
}

double sum_forward(const ModelSum *s, double length) {
    return 2 * s->gemm + length * (double)s->model->d.heads * (s->score + s->value);
}

Kept sum_kept(const ModelSum *s, int layer, int drop, double imbalance) {
    const Dims *d = &s->model->d;
    double h = (double)d->hidden;
    if (drop & DROP_ALL) return (Kept){ .block = 2 * h };
    Kept k = { .block = 4 * h + (drop & DROP_NORM ? 0 : 4 * h) }; /* two residuals, two norm outputs */
    k.block += mixer_cost_of(d, layer)->kept(d, drop & DROP_MLA_UP);
    if (!sum_is_moe(s, layer)) {
        k.block += (drop & DROP_ROWS ? 4 : 6) * (double)d->ffn;
        return k;
    }
    double rows = (double)d->topk, fe = (double)d->expert_ffn;
    k.moe = 8 * (double)d->experts;
    if (!(drop & DROP_MOE))
        k.moe += imbalance * rows * ((drop & DROP_ROWS ? 0 : 2 * h) + 4 * fe + (drop & DROP_ACT ? 0 : 2 * fe));
    k.moe += fe * (double)d->shared * (drop & DROP_ACT ? 4 : 6);
    return k;
}
