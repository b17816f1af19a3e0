/* config.h - how a family file reads its config.json: a table of keys, and the few questions that several families ask.
 * Absent and null are the same.  Every error names the key and, where there is one, the value. */
#ifndef ARCH_CONFIG_H
#define ARCH_CONFIG_H

#include "arch/arch.h"

typedef enum { KEY_INT, KEY_REAL, KEY_BOOL } KeyKind;      /* int64_t, double, bool in Dims */

typedef struct {
    const char *key, *also;          /* also: another spelling, used where the first is absent; NULL: none */
    KeyKind     kind;
    size_t      at;                  /* N(field) */
    double      otherwise;           /* what transformers takes when the key is absent, or MUST */
    double      lo, hi;              /* checked for numbers */
} ConfigKey;
#define MUST (-1e300)

/* Limits that no published model comes near, and that keep every product of sizes below 2^62. */
#define LIM_LAYERS  (double)MAX_LAYERS
#define LIM_HIDDEN  0x1p17
#define LIM_FFN     0x1p20
#define LIM_VOCAB   0x1p24
#define LIM_HEADS   0x1p12
#define LIM_HEADDIM 4096
#define LIM_ATTEND  MAX_ROTARY /* op.h's attention: DeepSeek-V3's latent with its rotary key */
#define LIM_GROUP   192 /* ... query heads of one key head, the latent's too */
#define LIM_EXPERTS 0x1p12

bool config_keys(Dims *d, const Json *c, const ConfigKey *keys, Err *err);           /* ends with {0} */
/* a string key: absent, or this value */
bool config_only(const Json *c, const char *key, const char *value, Err *err);

bool config_text(Dims *d, const Json *c, Err *err);            /* sizes that every text model has, hidden_act */
bool config_heads(Dims *d, const Json *c, int64_t otherwise, Err *err);     /* kv heads, head_dim (0: hidden / heads) */
bool config_rope(Dims *d, const Json *c, double theta, Err *err);           /* both spellings; theta if none is given */
/* The same where a head's columns may turn in part, this much if no key says it. */
bool config_rope_part(Dims *d, const Json *c, double theta, double part, Err *err);
bool config_quant(Dims *d, const Json *c, Err *err);
bool config_tokens(Dims *d, const Json *c, Err *err);          /* bos, eos, pad: a number, a list or null; eos joins */

/* Sliding windows are not computed: an error if one is in use.  from_layer: only layers >=
 * max_window_layers have it. */
bool config_no_window(const Json *c, const Dims *d, bool needs_flag, bool from_layer, Err *err);

/* The first layers dense, the others with experts. */
bool config_dense_first(Dims *d, const Json *c, MixerKind mixer, Err *err);
/* Experts in every decoder_sparse_step-th layer but mlp_only_layers. */
bool config_sparse(Dims *d, const Json *c, Err *err);
/* Which layers are delta nets: layer_types, or all but every full_attention_interval-th; and what must divide. */
bool config_delta(Dims *d, const Json *c, Err *err);
/* A number, or a list of one number again and again (of layers); absent: as it is. */
bool config_alike(int64_t *to, const Json *c, const char *key, double lo, double hi, Err *err);

bool arch_check(const Dims *d, RouteKind route, Err *err);   /* what must divide, be even, be smaller */

#endif
