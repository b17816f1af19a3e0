/* cache.h - what a model's layers remember of sequences from one step to the next, all in one piece of memory.
 *
 * A layer's mixer says how it remembers (layer.h, StoreKind).  Layers that remember in the same way are a group, and a
 * group has a store: what its memory is made of, and how a piece of it is copied.  The scheduler deals pieces out by
 * their numbers (sched.h), which mean the same in every layer of a group.
 *
 *   pages   keys and values of so many positions each; shared by sequences that begin alike, copied where two go on
 *           from the middle of one
 *
 *   states  what a delta net knows of a sequence: a row for each, by the sequence's number.  It knows no position
 *           but the last, so a prefix is not taken up: an answer of a group gets a copy where its prompt ends, or the
 *           prompt is computed again; so is a sequence that was preempted.
 *
 * A new way to remember is a StoreKind, a row in cache.c, and the list of its pieces in sched.c; a store whose pieces
 * are a sequence's state also says there at which positions a prefix may be taken up. */
#ifndef ENGINE_CACHE_H
#define ENGINE_CACHE_H

#include "engine/conf.h"
#include "model/model.h"

typedef struct {
    Arena memory;
    int   layers;
    StoreKind *kind;      /* [layers] */
    Kv   *kv;             /* [layers]: what attention reads and writes */
} Cache;

size_t cache_page_bytes(const ModelDesc *m, const Shard *shard, int page, DevKind like);  /* one page, all layers */
size_t cache_bytes(const ModelDesc *m, const EngineConf *c, DevKind like);
void   cache_open(Cache *k, Model *m, const EngineConf *c, Arena in, Mem *mem);
void   cache_copy(const Cache *k, Dev *d, const Copy *c);

#endif
