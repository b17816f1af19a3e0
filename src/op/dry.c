/* dry.c - a device that computes nothing and whose memory is only counted.
 *
 * Running the model on it leaves in each arena's peak what a real run of that shape will take: the plan is made by the
 * code it plans for, so the two cannot disagree. */
#include "op/op.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"

/* clang-format off */
static void d_put(Dev *d, Tensor to, const void *from) {}
static void d_get(Dev *d, void *to, Tensor from) {}
static void d_1(Dev *d, Tensor a) {}
static void d_2(Dev *d, Tensor a, Tensor b) {}
static void d_3(Dev *d, Tensor a, Tensor b, Tensor c) {}
static void d_4(Dev *d, Tensor a, Tensor b, Tensor c, Tensor e) {}
static void d_5(Dev *d, Tensor a, Tensor b, Tensor c, Tensor e, Tensor f) {}
static void d_6(Dev *d, Tensor a, Tensor b, Tensor c, Tensor e, Tensor f, Tensor g) {}
static void d_linear(Dev *d, Tensor y, Tensor x, Tensor w, Tensor b, Leaves s) {}
static void d_linear_dx(Dev *d, Tensor dx, Tensor dy, Tensor w, Leaves s) {}
static void d_grouped(Dev *d, Tensor y, Tensor x, Tensor w, Seqs e, Leaves s) {}
static void d_grouped_dw(Dev *d, Tensor dw, Tensor dy, Tensor x, Seqs e) {}
static void d_headwise(Dev *d, Tensor y, Tensor x, Tensor w, HeadMap m) {}
static void d_copy_heads(Dev *d, Tensor y, Tensor x, HeadMap m) {}
static void d_tree_add(Dev *d, Tensor y, const Tensor *p, int n) {}
static void d_rmsnorm(Dev *d, Tensor y, Tensor r, Tensor x, Tensor g, float e) {}
static void d_rope_table(Dev *d, Tensor c, Tensor p, Tensor f, float a) {}
static void d_rope(Dev *d, Tensor x, Tensor c, RopeShape s, int t) {}
static void d_attend(Dev *d, const Attn *a) {}
static void d_attend_bwd(Dev *d, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a) {}
static void d_kv_put(Dev *d, Kv kv, Tensor k, Tensor v, Paged r) {}
static void d_kv_copy(Dev *d, Kv kv, int to, int from) {}
static void d_attend_kv(Dev *d, Tensor o, Tensor q, Kv kv, Paged r, int h, float s) {}
static void d_route(Dev *d, const Route *r) {}
static void d_route_bwd(Dev *d, Tensor dl, Tensor dw, const Route *r) {}
static void d_moe_sort(Dev *d, Tensor at, Tensor from, Tensor slot, Tensor pick, int e) {}
static double d_sumsq(Dev *d, Tensor x) { return 0; }
static void d_adamw(Dev *d, Tensor w, Tensor m, Tensor v, Tensor g, Adam a) {}
/* clang-format on */

static void scratch(Dev *d, size_t bytes) {
    size_t mark = arena_mark(&d->tmp);
    arena_push(&d->tmp, bytes);
    arena_pop(&d->tmp, mark);
}

static void d_logprob(Dev *d, const Head *h) { scratch(d, op_tmp_logprob(h->h.rows, h->w.rows)); }
static void d_sample(Dev *d, const Sample *s) { scratch(d, op_tmp_logprob(s->h.rows, s->w.rows)); }
static void d_logprob_bwd(Dev *d, Tensor dh, Tensor dw, Tensor dlp, Tensor dent, const Head *h) {
    scratch(d, op_tmp_logprob_bwd(h->h.rows, h->w.rows));
}
static size_t d_kv_bytes(const Kv *kv) { return ops_cpu.kv_bytes(kv); }

/* clang-format off */
const Ops ops_dry = {
    .name = "dry",
    .put = d_put, .get = d_get, .copy = d_2, .zero = d_1,
    .linear = d_linear, .linear_dx = d_linear_dx, .linear_dw = d_4,
    .grouped = d_grouped, .grouped_dx = d_grouped, .grouped_dw = d_grouped_dw,
    .headwise = d_headwise, .headwise_dw = d_headwise, .copy_heads = d_copy_heads, .tree_add = d_tree_add,
    .embed = d_3, .embed_bwd = d_3, .rmsnorm = d_rmsnorm, .rmsnorm_bwd = d_6,
    .swiglu = d_3, .swiglu_bwd = d_5, .add = d_3, .rope_table = d_rope_table, .rope = d_rope,
    .attend = d_attend, .attend_bwd = d_attend_bwd,
    .kv_bytes = d_kv_bytes, .kv_put = d_kv_put, .kv_copy = d_kv_copy, .attend_kv = d_attend_kv,
    .route = d_route, .route_bwd = d_route_bwd, .moe_sort = d_moe_sort,
    .permute = d_3, .permute_bwd = d_3, .combine = d_4, .combine_bwd = d_6, .scatter_rows = d_3,
    .logprob = d_logprob, .logprob_bwd = d_logprob_bwd, .sample = d_sample,
    .sumsq = d_sumsq, .adamw = d_adamw,
};
/* clang-format on */
