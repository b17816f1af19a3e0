/* policy_sizes.c - what a policy takes, by arena, before it is taken. */
#include "train/policy_int.h"

/* Of one micro-batch on the device: where sequences begin, ids and positions; rows, targets, log-prob and entropy of
 * each output, and the distribution it was drawn from (its temperature, or all four settings, and the kept set). */
size_t policy_io_bytes(const PolicyConf *c, const ModelDesc *m, const Shard *shard) {
    PicturesShape none = { 0 };
    int64_t vocab = m->d.vocab;
    size_t tokens = arena_round((size_t)c->micro_tokens * 4), outputs = arena_round((size_t)(c->micro_tokens - 1) * 4);
    size_t sets = c->kept ? arena_round((size_t)(c->micro_tokens - 1) * (size_t)kept_words(vocab) * 4) : 0;
    size_t part = shard->g.cp > 1 ? batch_part_bytes(c->micro_tokens, c->max_seqs) : 0;
    return arena_round((size_t)(c->max_seqs + 1) * 4) + 2 * tokens + (c->truncated ? 8 : 5) * outputs + sets + part
           + batch_images_bytes(shard->at.pp ? &none : &c->pictures, c->micro_tokens, &m->d);
}

/* Of a micro-batch that is under way: where each sequence's outputs begin. */
size_t policy_slot_bytes(const PolicyConf *c) { return arena_round((size_t)(c->max_seqs + 1) * 8); }

static size_t host_size(const PolicyConf *c, int64_t vocab, const Shard *shard) {
    size_t n = (size_t)c->max_seqs;
    size_t micro = batch_host_bytes(c->micro_tokens, c->max_seqs) + 10 * arena_round((size_t)c->micro_tokens * 4)
                   + arena_round(n * sizeof(PackSeq)) + policy_slot_bytes(c);
    if (c->trains)
        micro += pipeline_list_bytes(shard, c->max_seqs) + (size_t)pipeline_flights(shard) * policy_slot_bytes(c);
    size_t packs = 2 * (arena_round(n * 8) + pack_keep((int64_t)n)); /* what teaches and what is silent lie apart */
    return micro + packs + arena_round(n * sizeof(TrainSeq)) + (c->kept ? batch_keep_host_bytes(vocab) : 0);
}

static ModelShape shape_of(const PolicyConf *c, const Shard *shard, DevKind like) {
    int longest = (int)c->micro_tokens, seqs = c->max_seqs < longest ? c->max_seqs : longest;
    return (ModelShape){ .tokens = c->micro_tokens,
                         .outputs = c->micro_tokens - 1,
                         .seqs = seqs,
                         .longest = longest,
                         .backward = c->trains,
                         .truncated = c->truncated,
                         .trained = c->trained,
                         .like = like,
                         .shard = shard,
                         .pictures = c->pictures };
}

PolicySizes policy_sizes(const ModelDesc *m, const Shard *shard, const PolicyConf *c, DevKind like) {
    ModelShape shape = shape_of(c, shard, like);
    ModelSizes s = model_sizes(m, &shape);
    Shard one = shard_whole(m);
    const Shard *at = shard ? shard : &one;
    int flights = c->trains ? pipeline_flights(at) : 1;
    size_t ways = (size_t)pipeline_ways(at) * s.way;
    PolicySizes out = { .ways = ways,
                        .act = flights == 1 ? s.flight : (size_t)flights * s.kept,
                        .again = flights == 1 ? 0 : s.again,
                        .tmp = s.tmp,
                        .io = (size_t)flights * policy_io_bytes(c, m, at)
                              + (c->trains ? (size_t)pipeline_outs(at) * s.out : 0) + ways,
                        .host = host_size(c, m->d.vocab, at),
                        .sort = pack_scratch(c->max_seqs, shard ? shard->g.dp : 1) };
    if (c->trains) {
        const ModelDesc *t = arch_trained(m);
        int64_t own = reduce_own_count(t, shard);
        out.grads = params_bytes(t, shard, DT_F32, true);
        out.optim_dev = c->no_steps ? 0 : optim_bytes(own, c->states, c->offload, false);
        out.optim_host = c->no_steps ? 0 : optim_bytes(own, c->states, c->offload, true);
        size_t reduce = reduce_tmp(t, shard, like);
        if (reduce > out.tmp) out.tmp = reduce;
        out.shares = c->room > 0;
        out.offloaded = out.shares && c->park_states ? out.optim_dev : 0;
        out.weights = out.shares && c->park_weights ? params_bytes(m, shard, c->states.weights, false) : 0;
        out.block = arena_round(out.act) + out.again + (out.shares ? out.grads : 0) + out.offloaded + out.weights;
        if (out.block < c->room) out.block = c->room;
    }
    return out;
}
