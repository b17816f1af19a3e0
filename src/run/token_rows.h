/* token_rows.h - samples_tokens.bin: what is known of each token of an answer that is shown, a row a token, side by
 * side without gaps, little-endian (docs/formats.md).  "at" of a line of samples.jsonl is where its answer's first row
 * lies.  A row of zeros is one that was let go: every other has mask 1 or a version. */
#ifndef RUN_TOKEN_ROWS_H
#define RUN_TOKEN_ROWS_H

#include "base/base.h"

enum { TOKEN_ROW = 21 };                 /* bytes */
typedef struct {
    int32_t id;
    float   logprob, advantage;          /* NAN: there is none */
    uint8_t mask;                        /* 1: the model wrote it */
    int32_t version;                     /* of the weights that drew it: steps done before */
    float   entropy;
} TokenRow;

static inline void token_row_put(unsigned char out[TOKEN_ROW], const TokenRow *r) {
    __builtin_memcpy(out, &r->id, 4);
    __builtin_memcpy(out + 4, &r->logprob, 4);
    __builtin_memcpy(out + 8, &r->advantage, 4);
    out[12] = r->mask;
    __builtin_memcpy(out + 13, &r->version, 4);
    __builtin_memcpy(out + 17, &r->entropy, 4);
}

/* False: let go. */
static inline bool token_row_get(TokenRow *r, const unsigned char in[TOKEN_ROW]) {
    unsigned char any = 0;
    for (int i = 0; i < TOKEN_ROW; i++) any |= in[i];
    __builtin_memcpy(&r->id, in, 4);
    __builtin_memcpy(&r->logprob, in + 4, 4);
    __builtin_memcpy(&r->advantage, in + 8, 4);
    r->mask = in[12];
    __builtin_memcpy(&r->version, in + 13, 4);
    __builtin_memcpy(&r->entropy, in + 17, 4);
    return any != 0;
}

#endif
