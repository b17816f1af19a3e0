/* gpu_mla.c - MLA's backward on a GPU: attention runs forward over the latent and backward over expanded keys and
 * values, with the forward's lse and its output behind W_uv.  How far its gradients are from float32's, beside those of
 * a pair that is expanded both ways (and could not decode).  flat: scores have deviation 1; peaked: 3. */
#include "gpu/duo.h"

enum { NOPE = 128, ROPE = 64, V = 128, R = 512, DK = NOPE + ROPE, MOST_T = 900 };
static int N, T, first; /* heads, tokens, those of the first of two sequences */

typedef struct {
    Tensor q, c, w, dO, at;         /* q [T,N*DK], c [T,R+ROPE] latent and rope key, w [N*(NOPE+V),R] */
    Tensor k, v, o, lse;            /* expanded */
    Tensor dq, dk, dv, dlat, drope; /* dlat [T,R], drope [T,ROPE]: what the latent and the rope key get of all heads */
} Mla;

/* clang-format off */
static HeadMap key_of(void) {
    return (HeadMap){ .heads = N, .in = R, .out = NOPE, .y_width = DK, .w_rows = NOPE + V };
}
static HeadMap rope_of(void) {
    return (HeadMap){ .heads = N, .in = ROPE, .out = ROPE, .x_from = R, .y_width = DK, .y_from = NOPE };
}
static HeadMap value_of(void) {
    return (HeadMap){ .heads = N, .in = R, .out = V, .y_width = V, .w_rows = NOPE + V, .w_from = NOPE };
}
static HeadMap absorb(void) {
    return (HeadMap){ .heads = N, .in = NOPE, .out = R, .x_width = DK, .y_width = R + ROPE, .w_rows = NOPE + V,
                      .turned = true };
}
static HeadMap turned(void) {
    return (HeadMap){ .heads = N, .in = ROPE, .out = ROPE, .x_width = DK, .x_from = NOPE, .y_width = R + ROPE,
                      .y_from = R };
}
static HeadMap to_kv(int wide, int n, int from) {
    return (HeadMap){ .heads = N, .in = n, .out = n, .x_width = wide, .y_width = NOPE + V, .y_from = from };
}
static HeadMap of_rope(void) {
    return (HeadMap){ .heads = N, .in = ROPE, .out = ROPE, .x_width = DK, .x_from = NOPE };
}
static HeadMap behind(void) {
    return (HeadMap){ .heads = N, .in = R, .out = V, .x_width = R, .y_width = V, .w_rows = NOPE + V, .w_from = NOPE };
}
/* clang-format on */

static Attn expanded(const Mla *m) {
    return (Attn){ .q = m->q,
                   .k = m->k,
                   .v = m->v,
                   .o = m->o,
                   .lse = m->lse,
                   .seqs = { 2, first, m->at },
                   .heads = N,
                   .kv_heads = N,
                   .dk = DK,
                   .dv = V,
                   .scale = 0.0721687836f };
}
static void forward_latent(Dev *d, const Mla *m) {
    size_t mark = arena_mark(&d->tmp);
    Tensor q = tensor_push(&d->tmp, d->act, T, (int64_t)N * (R + ROPE)),
           o = tensor_push(&d->tmp, d->act, T, (int64_t)N * R);
    Attn a = expanded(m);
    op_headwise(d, q, m->q, m->w, absorb());
    op_copy_heads(d, q, m->q, turned());
    a.q = q, a.k = m->c, a.v = tensor_cols(m->c, 0, R), a.o = o, a.kv_heads = 1, a.dk = R + ROPE, a.dv = R;
    op_attend(d, &a);
    op_headwise(d, m->o, o, m->w, behind());
    arena_pop(&d->tmp, mark);
}
static void pair(Dev *d, const Mla *m, bool latent) {
    Tensor c = tensor_cols(m->c, 0, R);
    op_headwise(d, m->k, c, m->w, key_of());
    op_copy_heads(d, m->k, m->c, rope_of());
    op_headwise(d, m->v, c, m->w, value_of());
    Attn a = expanded(m);
    if (latent) forward_latent(d, m);
    else op_attend(d, &a);
    op_attend_bwd(d, m->dq, m->dk, m->dv, m->dO, &a);
    size_t mark = arena_mark(&d->tmp);
    Tensor dkv = tensor_push(&d->tmp, d->act, T, (int64_t)N * (NOPE + V));
    op_copy_heads(d, dkv, m->dk, to_kv(DK, NOPE, 0));
    op_copy_heads(d, dkv, m->dv, to_kv(V, V, NOPE));
    op_linear_dx(d, m->dlat, dkv, m->w, leaves_one(dkv.cols));
    op_sum_heads(d, m->drope, m->dk, of_rope());
    arena_pop(&d->tmp, mark);
}
/* Of the norm. */
static double off(Duo *q, Tensor want, Tensor got) {
    float *a = floats(&q->r[CPU], want), *b = floats(&q->r[GPU], got);
    double wrong = 0, whole = 0;
    for (int64_t i = 0; i < want.rows * want.cols; i++) {
        double x = (double)a[i], e = (double)b[i] - x;
        wrong += e * e, whole += x * x;
    }
    return sqrt(wrong / whole);
}
static void compare(Duo *q, const char *name, int heads, int tokens, int cut, float peak, double bound) {
    N = heads, T = tokens, first = cut;
    const int32_t at[] = { 0, cut, tokens };
    Two x[] = { two(q, DT_BF16, T, N * DK, 0, 1.7f * peak),
                two(q, DT_BF16, T, R + ROPE, 0, 1.7f),
                two_w(q, DT_BF16, N * (NOPE + V), R, 0, 0.0765f),
                two(q, DT_BF16, T, N * V, 0, 1),
                two_i32(q, 1, 3, 0, at),
                two(q, DT_BF16, T, N * DK, 0, 1),
                two(q, DT_BF16, T, N * V, 0, 1),
                two(q, DT_BF16, T, N * V, 0, 1),
                two(q, DT_F32, T, N, 0, 1),
                two(q, DT_BF16, T, N * DK, 0, 1),
                two(q, DT_BF16, T, N * DK, 0, 1),
                two(q, DT_BF16, T, N * V, 0, 1),
                two(q, DT_F32, T, R, 0, 1),
                two(q, DT_F32, T, ROPE, 0, 1) };
    Mla m[2];
    for (int s = 0; s < 2; s++)
        m[s] = (Mla){ x[0].t[s], x[1].t[s], x[2].t[s], x[3].t[s],  x[4].t[s],  x[5].t[s],  x[6].t[s],
                      x[7].t[s], x[8].t[s], x[9].t[s], x[10].t[s], x[11].t[s], x[12].t[s], x[13].t[s] };
    pair(duo_dev(q, CPU), &m[CPU], false);
    double e[2][3];
    for (int latent = 0; latent < 2; latent++) {
        pair(duo_dev(q, GPU), &m[GPU], latent);
        e[latent][0] = off(q, m[CPU].dq, m[GPU].dq), e[latent][1] = off(q, m[CPU].dlat, m[GPU].dlat),
        e[latent][2] = off(q, m[CPU].drope, m[GPU].drope);
    }
    for (int i = 0; i < 3; i++) {
        static const char *const of[] = { "dq", "d of the latent", "d of the rope key" };
        printf("%s, %s: expanded both ways %.3e, latent forward %.3e, ratio %.3f\n", name, of[i], e[0][i], e[1][i],
               e[1][i] / e[0][i]);
        EXPECT(e[1][i] <= bound * e[0][i], "%s: %s is %.3f times as far off, %.1f allowed", name, of[i],
               e[1][i] / e[0][i], bound);
        EXPECT(e[0][i] < 0.1, "%s: %s of the expanded pair is off by %g of its norm", name, of[i], e[0][i]);
    }
    duo_clear(q, name);
}

int gpu_mla(int argc, char **argv) {
    (void)argc, (void)argv;
    Duo q;
    duo_open(&q, DT_BF16, 900, (size_t)1 << 30);
    compare(&q, "8 heads, flat", 8, 768, 768, 1, 1.1);
    compare(&q, "8 heads, peaked", 8, 768, 768, 3, 1.6);
    compare(&q, "16 heads, flat", 16, MOST_T, 600, 1, 1.1);
    compare(&q, "16 heads, flatter", 16, MOST_T, 600, 0.3f, 1.1);
    compare(&q, "16 heads, peaked", 16, MOST_T, 600, 3, 1.6);
    duo_close(&q);
    return test_end();
}
