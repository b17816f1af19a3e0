/* flops.c - multiply-adds of a token, forward and backward. */
#include "cut/flops.h"
#include "cut/mixer.h"

TokenFlops token_flops(const Dims *d) {
    double h = (double)d->hidden;
    TokenFlops f = { .head = (double)d->vocab * h };
    double dense = 3 * h * (double)d->ffn;
    double shared = (double)(d->shared_width ? d->shared_width : d->shared * d->expert_ffn);
    double moe =
        3 * h * (double)d->expert_ffn * (double)d->topk + 3 * h * shared + h * (double)(d->experts + d->shared_gate);
    for (int l = 0; l < d->layers; l++) {
        const MixerCost *c = mixer_cost_of(d, l);
        f.linear += c->weights(d) + (dims_moe(d, l) ? moe : dense);
        f.pair += (double)d->heads * (c->score(d) + c->value(d));
    }
    return f;
}

double flops_verl(const TokenFlops *f, const int64_t *lens, int64_t n) {
    double tokens = 0, squares = 0;
    for (int64_t i = 0; i < n; i++) tokens += (double)lens[i], squares += (double)lens[i] * (double)lens[i];
    return 6 * (f->linear + 2 * f->head) * tokens + 3 * f->pair * squares;
}

static double layers_forward(const TokenFlops *f, double len) {
    return 2 * f->linear * len + f->pair * len * (len + 1);
}

double flops_forward(const TokenFlops *f, const int64_t *lens, int64_t n, int64_t head_tokens) {
    double sum = 2 * f->head * (double)head_tokens;
    for (int64_t i = 0; i < n; i++) sum += layers_forward(f, (double)lens[i]);
    return sum;
}

double flops_train(const TokenFlops *f, const int64_t *lens, int64_t n, int64_t head_tokens) {
    return 3 * flops_forward(f, lens, n, head_tokens);
}

/* The squares of a side's windows, the rest at the edge too; a window's own is the product of both sides'. */
static double window_squares(int64_t side, int64_t window) {
    int64_t rest = side % window;
    return (double)(side / window) * (double)(window * window) + (double)(rest * rest);
}

double flops_tower(const Dims *d, int64_t h, int64_t w) {
    double n = (double)(h * w), wide = (double)d->vis.hidden, merged = (double)d->vis.merged,
           tokens = n / (double)(d->vis.merge * d->vis.merge);
    int64_t window = d->vis.window / d->vis.patch / d->vis.merge * d->vis.merge;
    double block = 2 * n * (4 * wide * wide + 3 * wide * (double)d->vis.ffn),
           sum = 2 * n * (double)d->vis.pixels * wide;
    double in_windows = window_squares(h, window) * window_squares(w, window);
    for (int64_t l = 0; l < d->vis.layers; l++) sum += block + 4 * wide * (d->vis.full[l] ? n * n : in_windows);
    return sum + 2 * tokens * (merged * merged + merged * (double)d->hidden);
}
