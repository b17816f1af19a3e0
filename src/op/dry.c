/* dry.c - a device that computes nothing and whose memory is only counted.
 *
 * Running the model on it leaves in each arena's peak what a real run of that shape will take on the device it is like:
 * the plan is made by the code it plans for, so the two cannot disagree. */
#include "op/op.h"

typedef struct {
    const Ops *like; /* the backend it is like */
    size_t handed;   /* bytes */
    Ops table;       /* ops_dry, with what layers ask of a backend */
    Served *served;
    void *served_arg;
} Dry;
static Dry *dry(const Dev *d) { return d->impl; }

/* Blocks are addresses that nobody touches, far from real ones. */
static void *dry_block(Dev *d, size_t bytes) {
    void *at = (void *)(((uintptr_t)1 << 44) + dry(d)->handed);
    dry(d)->handed += arena_round(bytes);
    return at;
}
static void dry_free(Dev *d, void *at, size_t bytes) { (void)d, (void)at, (void)bytes; }
static void dry_touch(Dev *d) { (void)d; }
static void dry_enter(Dev *d, bool join) { (void)d, (void)join; }
static void dry_leave(Dev *d) { (void)d; }
static void dry_chain(Dev *d, bool on) { (void)d, (void)on; }
static void dry_close(Dev *d) { (void)d; }
static void dry_about(const Dev *d, DevAbout *out) { (void)d, (void)out; }
static size_t dry_kv_bytes(const Dev *d, const Kv *kv) { return dry(d)->like->kv_bytes(d, kv); }
static double dry_sumsq(Dev *d, Tensor x) {
    (void)d, (void)x;
    return 0;
}

static void scratch(Dev *d, size_t bytes) {
    size_t mark = arena_mark(&d->tmp);
    arena_push(&d->tmp, bytes);
    arena_pop(&d->tmp, mark);
}
static void served(Dev *d, const char *op) {
    if (dry(d)->served) dry(d)->served(dry(d)->served_arg, op, d->by);
}
#define OP(how, name, params, args, outs)                                                                              \
    static void dry_##name params {                                                                                    \
        d->by = NULL;                                                                                                  \
        if (dry(d)->like->tmp.name) scratch(d, dry(d)->like->tmp.name args);                                           \
        served(d, #name);                                                                                              \
    }
#include "op/op_list.h"
#undef OP

const Ops ops_dry = {
    .name = "dry",
    .close = dry_close,
    .block = dry_block,
    .give = dry_free,
    .touch = dry_touch,
    .enter = dry_enter,
    .leave = dry_leave,
    .chain = dry_chain,
    .about = dry_about,
    .kv_bytes = dry_kv_bytes,
    .sumsq = dry_sumsq,
#define OP(how, name, params, args, outs) .name = dry_##name,
#include "op/op_list.h"
#undef OP
};

void dev_open_dry(Dev *d, DevKind like) {
    *d = (Dev){ .act = like.act };
    Dry *x = d->impl = MEM_NEW(&d->mem, Dry);
    x->like = like.ops;
    x->table = ops_dry;
    x->table.expands = like.ops->expands, x->table.keeps_f32 = like.ops->keeps_f32;
    x->table.queue = like.ops->queue; /* asked for, not called */
    d->ops = &x->table;
}

void dev_dry_served(Dev *d, Served *fn, void *arg) { dry(d)->served = fn, dry(d)->served_arg = arg; }
