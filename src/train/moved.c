/* moved.c - see moved.h.  A master is read as it is saved: a weight in F32, or a state, or a
 * state beside the weight it was taken from. */
#include "train/moved.h"

#include <stdio.h>
#include <string.h>

enum { LOOKED_AT = 32 };

struct Moved {
    int64_t n;
    float *was; /* [n][LOOKED_AT] */
};

typedef void Look(void *arg, const Policy *p, int i, int64_t expert, const float *now, int count);

static void each(const Policy *p, Look *look, void *arg) {
    const Params *g = &p->grads, *w = p->w;
    for (int i = 0; i < g->n; i++) {
        int64_t at;
        const Param *x = &g->at[i];
        Span own = optim_own(&p->opt, g, i, &at);
        Tensor t = w->at[w->index[x->layer][x->desc->id]].t;
        Tensor all = tensor_shape(t, 1, t.rows * t.cols);
        for (int64_t e = own.from, n; e < own.to; e += n) {
            ParamPlace place = param_place(g->model, x, e);
            n = place.n < own.to - e ? place.n : own.to - e;
            int64_t k = n < LOOKED_AT ? n : LOOKED_AT, from = e + (n - k) / 2;
            float now[LOOKED_AT] = { 0 };
            Tensor some = tensor_cols(all, from, k);
            if (t.dtype == DT_F32) weights_get(p->m->dev, some, now);
            else optim_get(&p->opt, p->m->dev, STATE_MASTER, at + from - own.from, k, some, now);
            look(arg, p, i, place.expert, now, (int)k);
        }
    }
}

static void count(void *arg, const Policy *p, int i, int64_t expert, const float *now, int n) {
    (void)p, (void)i, (void)expert, (void)now, (void)n;
    ((Moved *)arg)->n++;
}
static void note(void *arg, const Policy *p, int i, int64_t expert, const float *now, int n) {
    Moved *m = arg;
    (void)p, (void)i, (void)expert;
    memcpy(m->was + m->n++ * LOOKED_AT, now, (size_t)n * 4);
}
Moved *moved_note(const Policy *p, Mem *mem) {
    Moved *m = MEM_NEW(mem, Moved);
    each(p, count, m);
    m->was = MEM_ARRAY(mem, float, (size_t)(m->n * LOOKED_AT));
    m->n = 0;
    each(p, note, m);
    return m;
}

typedef struct {
    const Moved *m;
    MovedSum *sum;
} Since;
static void compare(void *arg, const Policy *p, int i, int64_t expert, const float *now, int n) {
    Since *s = arg;
    const Param *x = &p->grads.at[i];
    const float *was = s->m->was + s->sum->tensors++ * LOOKED_AT;
    if (memcmp(was, now, (size_t)n * 4) || s->sum->still++) return;
    snprintf(s->sum->first, sizeof s->sum->first, "%s of layer %d, expert %d", x->desc->name, x->layer, (int)expert);
}
MovedSum moved_since(const Moved *m, const Policy *p) {
    MovedSum sum = { 0 };
    each(p, compare, &(Since){ m, &sum });
    return sum;
}
