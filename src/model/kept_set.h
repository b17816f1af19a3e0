/* kept_set.h - the ids that a cut distribution kept, as few bytes that travel with the token drawn from it.
 *
 * A sampled token's log-prob is relative to the set that top-k, top-p or min-p kept under the sampling
 * weights.  Under later weights, or a reference's, the same rules keep another set; so the set itself is
 * written down, once, and every later log-prob is taken over it (E3).  op.h has it as bits; here it is the
 * ids, or the ids left out, or the bits, whichever is shortest. */
#ifndef MODEL_KEPT_SET_H
#define MODEL_KEPT_SET_H

#include "op/op.h"

/* bytes of the largest; top_k <= 0: any number of ids */
size_t kept_set_most(int64_t vocab, int64_t top_k);
/* returns its bytes; sets stand one behind the other */
size_t kept_set_put(uint8_t *out, const uint32_t *bits, int64_t vocab);
size_t kept_set_get(uint32_t *bits, const uint8_t *in, int64_t vocab);       /* likewise; bits [kept_words(vocab)] */

#endif
