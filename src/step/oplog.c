/* oplog.c - rows of ops and their names: which token's a row is, also among heads, experts and draws. */
#include "step/oplog.h"
#include "base/hash.h"
#include "tensor/half.h"

#include <string.h>

enum { MOST_OPS = 1 << 16 };

static bool is(const char *a, const char *b) { return !strcmp(a, b); }

/* What moves bytes is seen in what reads them. */
static bool passed_over(const char *op) {
    static const char *const names[] = { "put",   "get",    "copy",    "zero",    "normals",
                                         "widen", "kv_put", "kv_copy", "tree_add" };
    for (size_t i = 0; i < COUNT(names); i++)
        if (is(op, names[i])) return true;
    return false;
}
/* Two names of one thing: packed and over pages, scored and drawn. */
static const char *plain_name(const char *op) {
    return is(op, "attend_kv") ? "attend" : is(op, "sample") ? "logprob" : op;
}

/* The entry of the op that is called now, or NULL. */
static OpRows *entry_of(OpLog *l, const char *op) {
    const char *plain = plain_name(op);
    bool again = is(op, "sample") && l->next && is(l->at[l->next - 1].op, "logprob"); /* rows are drawn in pieces */
    if (again) return &l->at[l->next - 1];
    if (l->next == l->room) return l->lost = true, NULL;
    OpRows *e = &l->at[l->next++];
    if (l->next > l->n) *e = (OpRows){ .op = plain, .part = l->watch.part, .layer = l->watch.layer }, l->n = l->next;
    if (!is(e->op, plain)) return l->lost = true, NULL;
    if (plain != op) e->other = op;
    return e;
}

/* moe_sort has said in which row each token's choices lie. */
static void learn_experts(OpLog *l, Dev *d, Tensor slot) {
    int64_t n = slot.rows * slot.cols;
    int32_t *at = MEM_ARRAY(&l->pass, int32_t, (size_t)n);
    op_get(d, at, slot);
    l->expert_row = MEM_ARRAY(&l->pass, int32_t, (size_t)n);
    for (int64_t i = 0; i < n; i++)
        if (at[i] >= 0 && at[i] < n) l->expert_row[at[i]] = (int32_t)i;
    l->n_expert_rows = n;
}

/* Which token, and which of its 'width' rows, row i of an output is. */
static int64_t slot_of(const OpLog *l, bool head, int64_t i, int width, int *sub) {
    if (l->by_expert) i = l->expert_row[i];
    *sub = (int)(i % width);
    return head ? l->draw[l->drawn + i / width] : l->row[i / width];
}

static float value_of(const char *x, DType t, int64_t i) {
    switch (t) {
    case DT_F32: return ((const float *)(const void *)x)[i];
    case DT_BF16: return bf16_f32(((const uint16_t *)(const void *)x)[i]);
    case DT_I32: return (float)((const int32_t *)(const void *)x)[i];
    default: return (float)((const uint8_t *)x)[i];
    }
}
static void keep_values(OpLog *l, const char *x, Tensor of) {
    if (l->value) return;
    l->n_values = of.cols;
    l->value = MEM_ARRAY(l->mem, float, (size_t)of.cols);
    for (int64_t c = 0; c < of.cols; c++) l->value[c] = value_of(x, of.dtype, c);
}

/* Rows are of whole numbers of 32 bits, but for odd widths of fewer. */
static uint64_t hash_row(const char *row, size_t n) {
    return (n % 4 ? hash_bytes(HASH_START, row, n) : hash_ids(HASH_START, (const int32_t *)(const void *)row, n / 4))
           | 1;
}
static bool is_wanted(const OpLog *l, int op, int out, int64_t slot, int sub) {
    return l->wants && l->want.op == op && l->want.out == out && l->want.slot == slot && l->want.sub == sub;
}

static void note(OpLog *l, Dev *d, OpRows *e, int out, Tensor x, bool head) {
    int64_t count = head ? l->n_draws - l->drawn : l->n_rows;
    if (head && is(e->op, "logprob") && x.rows < count) count = x.rows;
    if (!x.data || !x.rows || !count || x.rows % count) return;
    int width = (int)(x.rows / count), sub;
    size_t each = (size_t)x.cols * dtype_size(x.dtype);
    if (!e->width) e->width = width;
    if (e->width != width) return; /* another number of heads: not this op's */
    if (!e->hash[out]) e->hash[out] = MEM_ARRAY(l->mem, uint64_t, (size_t)(l->slots * width));
    Mem mem = { 0 };
    char *bytes = mem_push(&mem, (size_t)x.rows * each + 1);
    op_get(d, bytes, x);
    for (int64_t i = 0; i < x.rows; i++) {
        int64_t slot = slot_of(l, head, i, width, &sub);
        if (slot < 0) continue;
        const char *row = bytes + (size_t)i * each;
        e->hash[out][slot * width + sub] = hash_row(row, each);
        if (is_wanted(l, (int)(e - l->at), out, slot, sub)) keep_values(l, row, x);
    }
    mem_free(&mem);
}

/* Rows are in the experts' order from the moment they are gathered for them to where they are combined. */
static bool by_expert(const OpLog *l, const char *op, Tensor out, bool head) {
    if (head || !l->expert_row || out.rows != l->n_expert_rows) return false;
    return is(op, "permute") || is(op, "grouped") || (is(op, "swiglu") && l->by_expert);
}

static void on_op(Watch *w, Dev *d, const char *op, const Tensor *out, int n) {
    OpLog *l = (OpLog *)(void *)w;
    if (passed_over(op) || is(w->part, WATCH_TOWER) || !l->row) return;
    if (is(op, "moe_sort")) {
        learn_experts(l, d, out[1]);
        return;
    }
    OpRows *e = entry_of(l, op);
    bool head = is(w->part, WATCH_HEAD), drawn = is(op, "sample");
    if (!e) return;
    l->by_expert = by_expert(l, op, out[0], head);
    for (int i = drawn; i < n && i - drawn < OPLOG_OUTS; i++) note(l, d, e, i - drawn, out[i], head);
    if (drawn) l->drawn += out[0].rows;
}

void oplog_open(OpLog *l, int64_t slots, int64_t topk, Mem *mem) {
    *l = (OpLog){ .slots = slots, .topk = topk, .room = MOST_OPS, .mem = mem };
    l->watch = (Watch){ .op = on_op, .layer = -1, .part = "" };
    l->at = MEM_ARRAY(mem, OpRows, MOST_OPS);
}

void oplog_pass(OpLog *l, const int64_t *row, int64_t n, const int64_t *draw, int64_t n_draws) {
    mem_free(&l->pass);
    l->row = mem_copy(&l->pass, row, (size_t)n * sizeof *row);
    l->draw = mem_copy(&l->pass, draw, (size_t)n_draws * sizeof *draw);
    l->n_rows = n, l->n_draws = n_draws, l->drawn = 0, l->next = 0;
    l->expert_row = NULL, l->n_expert_rows = 0, l->by_expert = false;
}

void oplog_close(OpLog *l) { mem_free(&l->pass); }

void oplog_forget(OpLog *l, const char *op, int out, int64_t slot) {
    for (int k = 0; k < l->n; k++)
        for (int w = 0; is(l->at[k].op, op) && l->at[k].hash[out] && w < l->at[k].width; w++)
            l->at[k].hash[out][slot * l->at[k].width + w] = 0;
}

bool oplog_in_step(const OpLog *a, const OpLog *b, int *at) {
    for (*at = 0; *at < a->n && *at < b->n; ++*at)
        if (!is(a->at[*at].op, b->at[*at].op)) return false;
    return a->n == b->n && !a->lost && !b->lost;
}

bool oplog_differ(const OpLog *a, const OpLog *b, OpPlace *out) {
    for (int k = 0; k < a->n && k < b->n; k++) {
        const OpRows *x = &a->at[k], *y = &b->at[k];
        for (int64_t i = 0; x->width == y->width && i < a->slots * x->width; i++)
            for (int o = 0; o < OPLOG_OUTS; o++)
                if (x->hash[o] && y->hash[o] && x->hash[o][i] && y->hash[o][i] && x->hash[o][i] != y->hash[o][i])
                    return *out = (OpPlace){ k, o, i / x->width, (int)(i % x->width) }, true;
    }
    return false;
}
