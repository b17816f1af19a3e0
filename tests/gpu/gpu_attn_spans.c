/* gpu_attn_spans.c - attention's order on a GPU: the constants of the order of sums are what the bits say, and bits do
 * not depend on how the work is listed: spans of rows in turn or apart, one sequence or many. */
#include "gpu/attn_shapes.h"

#include "op/cuda/common/attn_order.h"

static void together_alone(const Shape *s) {
    Made m = make(s, 8);
    Tensor tdo = put(m.T, m.wo, 8, noise(m.T * m.wo, 1)),
           d[3] = { put(m.T, m.wq, 0, NULL), put(m.T, m.wk, 0, NULL), put(m.T, m.wv, 0, NULL) };
    attend(s, &m.a);
    attend_bwd(s, d[0], d[1], d[2], tdo, &m.a);
    last_alone(s, &m, tdo, d);
    clear(s->name);
}

/* ---- the constants of the order, from the bits ------------------------------------------------------------------- */
/* Output column 0 of the last row of one sequence, one head, scale 1. */
static float last_row(const Shape *s, int len, const float *q, const float *k, const float *v) {
    int32_t at[2] = { 0, len };
    float *qs = MEM_ARRAY(&rig.m, float, (size_t)(len * s->dk));
    rows_in(qs, len - 1, q, 0, 1, s->dk);
    Tensor tk = put(len, s->dk, 0, k);
    Attn a = { .q = put(len, s->dk, 0, qs),
               .k = tk,
               .v = s->latent ? tensor_cols(tk, 0, s->dv) : put(len, s->dv, 0, v),
               .o = put(len, s->dv, 0, NULL),
               .seqs = { 1, len, put_i32(1, 2, at) },
               .heads = 1,
               .kv_heads = 1,
               .dk = s->dk,
               .dv = s->dv,
               .scale = 1 };
    op_attend(&rig.d, &a);
    float x = floats(tensor_rows(a.o, len - 1, 1))[0];
    rig.n = 0, rig.a.used = 0;
    return x;
}
/* With q = 0 every weight is 1.  v is 2^30 at key 0, -2^30 at the last key, which stands alone in its span, and 1
 * between: ones added to 2^30 are lost in float32, so what remains are the ones of all spans but the first and the
 * last: keys - span. */
static void spans(const Shape *s, int span) {
    int keys = 4 * span, wv = s->latent ? s->dk : s->dv;
    float *q = MEM_ARRAY(&rig.m, float, (size_t)s->dk), *k = MEM_ARRAY(&rig.m, float, (size_t)((keys + 1) * s->dk)),
          *v = s->latent ? k : MEM_ARRAY(&rig.m, float, (size_t)((keys + 1) * s->dv));
    for (int j = 0; j <= keys; j++) v[(int64_t)j * wv] = j == 0 ? 0x1p30f : j == keys ? -0x1p30f : 1;
    double found = keys - (double)last_row(s, keys + 1, q, k, v) * (keys + 1);
    EXPECT(fabs(found - span) < span / 16., "%s: the bits say spans of %.0f keys, not %d", s->name, found,
           span); /* bf16 rounds o to 1 in 256 */
    mem_free(&rig.m);
}
/* A weight is rounded to bf16 after it was taken relative to the largest score so far, its own block's included.  So
 * +1 at key x - 1 and -1 at key y, both of score 0, before a larger score at x, leave nothing if y is in x's block;
 * a little if only x - 1 is; nothing again if neither is. */
static void blocks(const Shape *s, int block) {
    int wv = s->latent ? s->dk : s->dv, wrong = 0;
    for (int x = block + 1; x < 4 * block; x += block / 4 + 1)
        for (int y = x - 2; y > x - 2 * block && y >= 0; y -= y % 16 ? y % 16 : 1) {
            float *q = MEM_ARRAY(&rig.m, float, (size_t)s->dk),
                  *k = MEM_ARRAY(&rig.m, float, (size_t)((x + 1) * s->dk)),
                  *v = s->latent ? k : MEM_ARRAY(&rig.m, float, (size_t)((x + 1) * s->dv));
            q[s->dk - 1] = 1, k[x * s->dk + s->dk - 1] = .2f;
            v[(x - 1) * wv] = 1, v[y * wv] = -1;
            bool nothing = y / block == x / block || (x - 1) / block != x / block;
            wrong += (last_row(s, x + 1, q, k, v) == 0) != nothing;
            mem_free(&rig.m);
        }
    EXPECT(wrong == 0, "%s: %d pairs of keys say that blocks are not of %d keys", s->name, wrong, block);
}

/* Of few tiles spans of rows are items; here there are many, and alone the last sequence has few.  The last shape has
 * many alone too, and more keys than one section. */
static const Shape together[] = {
    { "64, spans", 1536, 24, 64, 64, false, 64, 12, { 140, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 290 }, 1 },
    { "64, longer spans", 1024, 16, 64, 64, false, 64, 12, { 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 900 }, 1 },
    { "128, spans", 1536, 24, 128, 128, false, 64, 12, { 140, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 150 }, 1 },
    { "128, sections", 48, 8, 128, 128, false, 64, 2, { 1, 6200 }, 1 },
};
static const Shape order[] = { { "128", 1, 1, 128, 128, false },
                               { "64", 1, 1, 64, 64, false },
                               { "mla", 1, 1, 576, 512, true } };
static void order_of(const Shape *s) {
    spans(s, s->latent ? MLA_SPAN : ATTN_SPAN);
    blocks(s, s->latent ? MLA_BLOCK : ATTN_BLOCK);
}

int gpu_attn_spans(int argc, char **argv) {
    if (argc > 1) asked_for = argv[1];
    open_gpu(DT_BF16);
    each(order, order_of);
    each(together, together_alone);
    dev_close(&rig.d);
    return test_end();
}
