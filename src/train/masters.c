/* masters.c - see masters.h.  Elements are converted on all threads into a stage, as many as
 * it holds, and put from there. */
#include "train/masters.h"
#include "param/source.h"

enum { STAGE = 1 << 18, PART = 1 << 14 }; /* elements; of them, what a thread takes at a time */

typedef struct {
    const ModelDesc *m;
    const Param *p;
    const SourceItem *item; /* of its expert 0 */
    int64_t from, n;
    float *stage;
} Piece;

static void convert_some(void *arg, int index, int worker) {
    (void)worker;
    const Piece *x = arg;
    int64_t at = (int64_t)index * PART, end = at + PART < x->n ? at + PART : x->n;
    while (at < end) {
        ParamPlace p = param_place(x->m, x->p, x->from + at);
        int64_t n = p.n < end - at ? p.n : end - at;
        convert_from(x->stage + at, DT_F32, &x->item[p.expert].src, p.at, n);
        at += n;
    }
}

static void load_one(Optim *o, const Params *grads, int i, Dev *d, const SourceItem *item, float *stage) {
    int64_t at;
    Span own = optim_own(o, grads, i, &at);
    for (int64_t e = own.from; e < own.to; e += STAGE) {
        Piece x = { grads->model, &grads->at[i], item, e, own.to - e < STAGE ? own.to - e : STAGE, stage };
        threads_run(d->threads, (int)((x.n + PART - 1) / PART), convert_some, &x);
        optim_put(o, d, STATE_MASTER, at + e - own.from, x.n, stage);
    }
}

bool masters_load(Optim *o, const Params *w, const Params *grads, Dev *d, const char *dir, Err *err) {
    Sources s;
    if (o->type.weights == DT_F32) return true;
    TRY(sources_open(&s, grads->model, dir, err));
    float *stage = MEM_ARRAY(&s.mem, float, STAGE);
    for (size_t j = 0; j < s.n; j++) {
        const SourceItem *it = &s.at[j];
        int i = grads->index[it->layer][it->desc->id];
        bool is_short = i >= 0 && param(w, it->desc->id, it->layer).dtype != DT_F32;
        if (is_short && !it->expert) load_one(o, grads, i, d, it, stage); /* the other experts' items follow it */
        if (j) st_done_with(&s.files, s.at[j - 1].st);
    }
    sources_close(&s);
    return true;
}
