/* images.c - see images.h.  Rows of results lie in one tensor; a picture takes the first gap
 * between those that are in use, and whatever nobody uses there is forgotten. */
#include "engine/images.h"

#include <string.h>

typedef struct {
    uint64_t key[4];
    int32_t name, tokens; /* its tokens are named -1 - name - k */
    int64_t row;          /* of its first result, or -1: not there any more */
    int users;
} Shown;

typedef struct {
    int32_t *tokens; /* [max_len] */
    const Request *request;
    Request copy;
    int *known; /* [spans.n] */
    int n_known, cap, delta;
} Group;

struct Images {
    Model *m;
    EngineConf c;
    Arena at, io; /* results; what the tower is given */
    Tensor feats;
    Group *group;
    int32_t (*pos)[3]; /* [max_len] */
    VEC(Shown) known;
    int32_t names;
};

static PicturesShape largest(const ModelDesc *m, const EngineConf *c) {
    const Dims *d = &m->d;
    int unit = (int)(d->vis.merge * d->vis.merge);
    if (!c->feats) return (PicturesShape){ 0 };
    return (PicturesShape){ .patches = c->patches,
                            .tokens = c->patches / unit,
                            .windows = (int)(c->patches / unit), /* a window has a block at least */
                            .frames = (int)(c->patches / unit),
                            .longest = (int)c->patches };
}
size_t images_tmp_bytes(const ModelDesc *m, const EngineConf *c, DevKind like) {
    PicturesShape s = largest(m, c);
    return model_tower_tmp(m, &s, like);
}
static size_t results_bytes(const ModelDesc *m, const EngineConf *c, DType act) {
    return arena_round((size_t)c->feats * (size_t)m->d.hidden * dtype_size(act));
}
static size_t given_bytes(const ModelDesc *m, const EngineConf *c) {
    PicturesShape most = largest(m, c);
    return pictures_bytes(&most, most.tokens, &m->d);
}
Images *images_open(Model *m, const EngineConf *c, Mem *mem) {
    Images *s = MEM_NEW(mem, Images);
    *s = (Images){ .m = m, .c = *c, .group = MEM_ARRAY(mem, Group, (size_t)c->sched.max_seqs) };
    for (int i = 0; i < c->sched.max_seqs; i++) s->group[i].tokens = MEM_ARRAY(mem, int32_t, (size_t)c->sched.max_len);
    s->pos = mem_array(mem, (size_t)c->sched.max_len, sizeof *s->pos);
    s->at = dev_arena(m->dev, "pictures", results_bytes(m->desc, c, m->dev->act));
    s->feats = tensor_push(&s->at, m->dev->act, c->feats, m->desc->d.hidden);
    s->io = dev_arena(m->dev, "pixels", given_bytes(m->desc, c));
    return s;
}

void images_close(Images *s) {
    for (int i = 0; i < s->c.sched.max_seqs; i++) vec_free(s->group[i].known);
    vec_free(s->known.at);
    dev_free(s->m->dev, s->at.base);
    dev_free(s->m->dev, s->io.base);
}

void images_flush(Images *s) { s->known.n = 0, s->names = 0; }

/* ---- rows */

static Shown *in_use_behind(Images *s, int64_t row) { /* the first that ends behind it */
    Shown *first = NULL;
    for (size_t i = 0; i < s->known.n; i++) {
        Shown *k = &s->known.at[i];
        if (k->users && k->row >= 0 && k->row + k->tokens > row && (!first || k->row < first->row)) first = k;
    }
    return first;
}
static int64_t gap_for(Images *s, int tokens) {
    int64_t row = 0;
    for (Shown *k; (k = in_use_behind(s, row)) && k->row < row + tokens;) row = k->row + k->tokens;
    if (row + tokens > s->feats.rows) return -1;
    for (size_t i = 0; i < s->known.n; i++) {
        Shown *k = &s->known.at[i];
        if (k->row >= 0 && k->row < row + tokens && k->row + k->tokens > row) k->row = -1;
    }
    return row;
}

static void compute(Images *s, const Picture *p, int64_t row) {
    Dev *d = s->m->dev;
    const Dims *dims = &s->m->desc->d;
    size_t tmp = arena_mark(&d->tmp), io = arena_mark(&s->io);
    Mem mem = { 0 };
    Pictures one;
    int tokens = picture_tokens(p, dims);
    int32_t *order = MEM_ARRAY(&mem, int32_t, (size_t)tokens);
    pictures_put(&one, d, &s->io, &p, 1, dims);
    picture_order(order, p, dims);
    one.from = tensor_push(&s->io, DT_I32, tokens, 1);
    op_put(d, one.from, order);
    Tensor feats = tower_forward(s->m, &one, &d->tmp, NULL, NULL);
    op_permute(d, tensor_rows(s->feats, row, tokens), feats, one.from); /* from windows to reading order */
    mem_free(&mem);
    arena_pop(&s->io, io);
    arena_pop(&d->tmp, tmp);
}

/* Over ranks of tp each computes some of them; the others' rows are there and nobody reads them. */
static bool is_own(const Images *s, int known) { return known % s->m->par.tp.size == s->m->par.tp.rank; }

static int find(const Images *s, const Picture *p) {
    for (size_t i = 0; i < s->known.n; i++)
        if (!memcmp(s->known.at[i].key, p->key, sizeof p->key)) return (int)i;
    return -1;
}

static bool take_one(Images *s, const Picture *p, int *known) {
    int tokens = picture_tokens(p, &s->m->desc->d), i = find(s, p);
    bool there = i >= 0 && s->known.at[i].row >= 0;
    if (i < 0) {
        i = (int)s->known.n;
        VEC_PUSH(s->known, (Shown){ .name = s->names, .tokens = tokens, .row = -1 });
        memcpy(s->known.at[i].key, p->key, sizeof p->key);
        CHECK(s->names <= INT32_MAX - tokens - 1, "2^31 tokens of pictures between two changes of the weights");
        s->names += tokens;
    }
    if (!there) {
        int64_t row = gap_for(s, tokens);
        if (row < 0) return false;
        if (is_own(s, i)) compute(s, p, row);
        s->known.at[i].row = row;
    }
    s->known.at[i].users++;
    *known = i;
    return true;
}

bool images_take(Images *s, int group, const Request *r) {
    Group *g = &s->group[group];
    const Dims *d = &s->m->desc->d;
    memcpy(g->tokens, r->tokens, (size_t)r->n * 4);
    size_t cap = (size_t)g->cap;
    g->known = vec_grow(g->known, &cap, (size_t)r->spans.n + 1, sizeof *g->known);
    g->cap = (int)cap, g->n_known = 0;
    for (int i = 0; i < r->spans.n; i++) {
        const RowSpan *p = &r->spans.at[i];
        int tokens = picture_tokens(p->picture, d);
        CHECK(p->at >= 0 && p->at + tokens <= r->n && grid_rows(p->picture->grid) <= s->c.patches
                  && tokens <= s->c.feats,
              "a picture of %d tokens at %d of %d; the engine was opened for %d", tokens, p->at, r->n, s->c.feats);
        if (!take_one(s, p->picture, &g->known[g->n_known])) {
            images_drop(s, group);
            return false;
        }
        int32_t name = s->known.at[g->known[g->n_known++]].name;
        for (int k = 0; k < tokens; k++) g->tokens[p->at + k] = -1 - name - k;
    }
    g->copy = *r, g->request = &g->copy;
    g->delta = picture_positions(s->pos, r->n, r->spans, d, CLIP_RULE);
    return true;
}

void images_drop(Images *s, int group) {
    Group *g = &s->group[group];
    while (g->n_known) s->known.at[g->known[--g->n_known]].users--;
    g->request = NULL;
}

const int32_t *images_tokens(const Images *s, int group) { return s->group[group].tokens; }
Tensor images_feats(const Images *s) { return s->feats; }

void images_rows(Images *s, int group, int start, int n, int32_t *ids, int32_t *pos, int32_t *from) {
    const Group *g = &s->group[group];
    const Request *r = g->request;
    const Dims *d = &s->m->desc->d;
    bool prompt = start < r->n;
    if (prompt) picture_positions(s->pos, r->n, r->spans, d, CLIP_RULE);
    for (int k = 0; k < n; k++) {
        from[k] = (int32_t)s->feats.rows;
        for (int a = 0; a < 3; a++) pos[3 * k + a] = start + k < r->n ? s->pos[start + k][a] : start + k + g->delta;
    }
    for (int i = 0; prompt && i < r->spans.n; i++) {
        const RowSpan *p = &r->spans.at[i];
        for (int t = 0; t < picture_tokens(p->picture, d); t++) {
            int k = p->at + t - start;
            if (k < 0 || k >= n) continue;
            ids[k] = (int32_t)d->vocab;
            if (is_own(s, g->known[i])) from[k] = (int32_t)s->known.at[g->known[i]].row + t;
        }
    }
}

void engine_images(const ModelDesc *m, Spans pics, int64_t *feats, int64_t *patches) {
    *feats = *patches = 0;
    for (int i = 0; i < pics.n; i++) {
        int64_t rows = grid_rows(pics.at[i].picture->grid);
        *feats += picture_tokens(pics.at[i].picture, &m->d);
        *patches = rows > *patches ? rows : *patches;
    }
}
