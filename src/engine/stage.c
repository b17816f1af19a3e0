/* stage.c - a scheduler's step as tensors: which rows, where they stand, whose pages they read. */
#include "engine/engine_int.h"

Tensor stage_put(Engine *e, DType t, const void *from, int64_t rows, int64_t cols) {
    Tensor x = tensor_push(&e->io, t, rows, cols);
    op_put(e->m->dev, x, from);
    return x;
}

int32_t *stage_i32(Engine *e, int64_t n) { return arena_push(&e->host, (size_t)n * 4); }

/* A list on both sides: the next of a run that lies in both arenas in the same way, so that
 * one put takes all of them. */
static int32_t *both(Engine *e, Tensor *t, int64_t rows, int64_t cols) {
    *t = tensor_push(&e->io, DT_I32, rows, cols);
    return stage_i32(e, rows * cols);
}

Rows stage_rows(Engine *e, const Step *st, bool fed, int pad) {
    int n = st->n_pieces + pad, n_rows = st->n_rows + pad, row = 0;
    Rows r = { .paged.rows.n = n };
    size_t io = arena_mark(&e->io), host = arena_mark(&e->host);
    int32_t *ids = both(e, &r.ids, n_rows, 1);
    int32_t *at = both(e, &r.paged.rows.at, n + 1, 1), *start = both(e, &r.paged.start, n, 1);
    int32_t *table = both(e, &r.paged.table, n, e->max_pages), *slot = both(e, &r.paged.slot, n, 1);
    int axes = dims_axes(&e->m->desc->d);
    int told = tell_rows(e, st);
    int32_t *pos = both(e, &r.pos, n_rows, axes), *rows = both(e, &r.rows, st->n_draws + pad + told, 1);
    int32_t *from = e->images ? both(e, &r.images.from, n_rows, 1) : NULL;
    for (int i = 0; i < st->n_pieces; i++) {
        const Piece *p = &st->piece[i];
        const Seq *q = sched_seq(e->s, p->seq);
        at[i] = row, start[i] = p->start, slot[i] = p->seq;
        for (int k = 0; k < p->rows; k++) {
            ids[row + k] = q->tokens[p->start + k];
            for (int a = 0; a < axes; a++) pos[(row + k) * axes + a] = p->start + k;
        }
        if (e->images) images_rows(e->images, q->group, p->start, p->rows, ids + row, pos + 3 * row, from + row);
        row += p->rows;
        if (p->rows > r.paged.rows.longest) r.paged.rows.longest = p->rows;
        for (int k = 0; k < e->max_pages; k++) table[i * e->max_pages + k] = k < q->n_pages ? q->pages[k] : -1;
    }
    for (int i = st->n_pieces; i < n; i++, row++) { /* all alike: what one writes to their page is what all write */
        slot[i] = e->c.sched.max_seqs;
        at[i] = row, start[i] = ids[row] = 0, rows[st->n_draws + i - st->n_pieces] = row, r.paged.rows.longest = 1;
        for (int a = 0; a < axes; a++) pos[row * axes + a] = 0;
        for (int k = 0; k < e->max_pages; k++) table[i * e->max_pages + k] = k ? -1 : e->c.sched.pages;
        if (from) from[row] = (int32_t)images_feats(e->images).rows; /* no picture's */
    }
    at[n] = row;
    for (int i = 0; i < st->n_draws; i++) rows[i] = at[st->draw[i].piece + 1] - 1;
    CHECK(!told || !pad, "%d rows to tell of in a step of decoding", told); /* their requests prefill */
    tell_list(e, st, at, rows + st->n_draws);
    size_t bytes = e->io.used - io;
    CHECK(e->host.used - host == bytes, "lists of %zu bytes on the device, %zu on the host", bytes,
          e->host.used - host);
    char *to = fed ? r.paged.rows.at.data : r.ids.data, *end = (char *)e->io.base + e->io.used;
    op_put(e->m->dev, tensor_over(to, DT_U8, 1, end - to), fed ? at : ids);
    if (e->images) r.images.feats = images_feats(e->images), r.images.tokens = r.images.feats.rows;
    return r;
}
