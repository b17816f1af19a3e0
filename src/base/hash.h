/* hash.h - FNV-1a, 64 bits: names, rows and token ids to a number that is the same on every machine.  Not for
 * strangers' tables: who chooses the keys can choose keys that collide. */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Where a hash starts.  HASH_RUN is FNV's own start without its last digit; it stays as it is because random numbers
 * are named by it (requests' keys): with another one a seed would give other answers. */
#define HASH_START 14695981039346656037u
#define HASH_RUN   1469598103934665603u

static inline uint64_t hash_step(uint64_t h, uint32_t x) { return (h ^ x) * 1099511628211u; }

static inline uint64_t hash_bytes(uint64_t h, const void *bytes, size_t n) {
    for (const unsigned char *p = bytes; n; n--) h = hash_step(h, *p++);
    return h;
}

static inline uint64_t hash_ids(uint64_t h, const int32_t *ids, size_t n) {      /* an id is one step */
    for (; n; n--) h = hash_step(h, (uint32_t)*ids++);
    return h;
}

#endif
