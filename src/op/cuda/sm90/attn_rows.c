/* attn_rows.c - the kernels of attention, as rows: each is for one width.  Its blocks and spans are its own, so another
 * kernel would be other bits, and what a row does not name the plain kernels serve. */
#include "op/cuda/sm90/attn_rows.h"

#include <limits.h>
#include <stddef.h>

enum { BOTH = ATTN_FORWARD | ATTN_BACKWARD };
/* clang-format off */
static const AttnKernel attns[] = {
    /* name         words                by      card  pass           all    latent  dk   dv  group */
    { "attn_mla",   "tensor cores, MLA", BY_MLA, 90,   ATTN_FORWARD,  false, true,   576, 512, INT_MAX },
    { "expanded",   "tensor cores, MLA", BY_MLA, 90,   ATTN_BACKWARD, false, false,  192, 128, 32 },
    { "attn_128",   "tensor cores",      BY_128, 90,   BOTH,          false, false,  128, 128, 64 },
    { "attn_64",    "tensor cores",      BY_64,  90,   BOTH,          false, false,  64,  64,  64 },
    { "attn_all",   "tensor cores",      BY_ALL, 90,   BOTH,          true,  false,  80,  80,  64 },
};
/* clang-format on */
static const AttnKernel attn_plain = { "attn_plain", "plain", BY_PLAIN, 0, BOTH, false, false, 0, 0, 0 };

const AttnKernel *attn_choose(const AttnCall *c) {
    for (size_t i = 0; i < sizeof attns / sizeof *attns; i++) {
        const AttnKernel *k = attns + i;
        if (!c->half || c->card != k->card || !(c->pass & k->pass) || c->all != k->all || c->latent != k->latent)
            continue;
        if (k->latent && c->kv_heads != 1) continue;
        if (c->dk == k->dk && c->dv == k->dv && c->heads / c->kv_heads <= k->group) return k;
    }
    return &attn_plain;
}
