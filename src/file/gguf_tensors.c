/* gguf_tensors.c - see gguf_tensors.h.  Experts lie in one tensor each for gate, up and down; here each is a tensor of
 * its own in that place, as everywhere in hone. */
#include "file/gguf_tensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum { ALWAYS, OF_MIXTRAL, OF_OTHERS, OF_UNTURNED } For;

/* clang-format off */
static const struct {
    const char *gguf, *hub;         /* with the layer's number in front, and the hub's expert where the %d is */
    bool layer, all, turned, whole;
    For only;
} names[] = {
    { "token_embd.weight",    "model.embed_tokens.weight" },
    { "output_norm.weight",   "model.norm.weight" },
    { "output.weight",        "lm_head.weight" },
    { "attn_norm.weight",     "input_layernorm.weight",               .layer = true },
    { "ffn_norm.weight",      "post_attention_layernorm.weight",      .layer = true },
    { "attn_q.weight",        "self_attn.q_proj.weight",              .layer = true, .turned = true },
    { "attn_k.weight",        "self_attn.k_proj.weight",              .layer = true, .turned = true },
    { "attn_v.weight",        "self_attn.v_proj.weight",              .layer = true },
    { "attn_output.weight",   "self_attn.o_proj.weight",              .layer = true },
    { "attn_q.bias",          "self_attn.q_proj.bias",                .layer = true, .only = OF_UNTURNED },
    { "attn_k.bias",          "self_attn.k_proj.bias",                .layer = true, .only = OF_UNTURNED },
    { "attn_v.bias",          "self_attn.v_proj.bias",                .layer = true, .only = OF_UNTURNED },
    { "attn_q_norm.weight",   "self_attn.q_norm.weight",              .layer = true },
    { "attn_k_norm.weight",   "self_attn.k_norm.weight",              .layer = true },
    { "ffn_gate.weight",      "mlp.gate_proj.weight",                 .layer = true },
    { "ffn_up.weight",        "mlp.up_proj.weight",                   .layer = true },
    { "ffn_down.weight",      "mlp.down_proj.weight",                 .layer = true },
    { "ffn_gate_inp.weight",  "mlp.gate.weight",                      .layer = true, .whole = true, .only = OF_OTHERS },
    { "ffn_gate_exps.weight", "mlp.experts.%d.gate_proj.weight",      .layer = true, .all = true, .only = OF_OTHERS },
    { "ffn_up_exps.weight",   "mlp.experts.%d.up_proj.weight",        .layer = true, .all = true, .only = OF_OTHERS },
    { "ffn_down_exps.weight", "mlp.experts.%d.down_proj.weight",      .layer = true, .all = true, .only = OF_OTHERS },
    { "ffn_gate_inp.weight",  "block_sparse_moe.gate.weight",   .layer = true, .whole = true, .only = OF_MIXTRAL },
    { "ffn_gate_exps.weight", "block_sparse_moe.experts.%d.w1.weight", .layer = true, .all = true, .only = OF_MIXTRAL },
    { "ffn_up_exps.weight",   "block_sparse_moe.experts.%d.w3.weight", .layer = true, .all = true, .only = OF_MIXTRAL },
    { "ffn_down_exps.weight", "block_sparse_moe.experts.%d.w2.weight", .layer = true, .all = true, .only = OF_MIXTRAL },
};
/* clang-format on */

static bool for_family(For only, const GgufFamily *f) {
    if (only == OF_UNTURNED) return !f->turned;
    return only == ALWAYS || (only == OF_MIXTRAL) == (f->turned && f->experts);
}

/* A number without leading zeros, and what is behind it; NULL: there is none. */
static const char *count(const char *s, int *out) {
    char *end;
    long v = *s >= '0' && *s <= '9' && (*s != '0' || s[1] < '0' || s[1] > '9') ? strtol(s, &end, 10) : -1;
    if (v < 0 || v > 1 << 20) return NULL;
    return *out = (int)v, end;
}

static DType dtype_of(const GgufType *t) {
    for (DType d = DT_F32; d < DTYPES; d++)
        if (!strcmp(dtype_name(d), t->name)) return d;
    die("no dtype is %s", t->name);
}

static int row_of(const char *rest, bool layer, const GgufFamily *f) {
    for (size_t i = 0; i < COUNT(names); i++)
        if (names[i].layer == layer && for_family(names[i].only, f) && !strcmp(names[i].gguf, rest)) return (int)i;
    return -1;
}

typedef struct {
    VEC(StTensor)
    all;
    const GgufFamily *f;
    int64_t head;
    int file;
    const char *path;
    Mem *mem;
    Err *err;
} Naming;

static bool add(Naming *x, const GgufTensor *t) {
    int layer = 0;
    bool in_layer = !strncmp(t->name, "blk.", 4);
    const char *rest = in_layer ? count(t->name + 4, &layer) : t->name;
    int i = rest && (!in_layer || *rest == '.') ? row_of(rest + in_layer, in_layer, x->f) : -1;
    if (i < 0)
        return err_set(x->err, "%s: the tensor %s is not part of a %s model as hone knows it", x->path, t->name,
                       x->f->type);
    int experts = 1;
    if (names[i].all) {
        if (t->n_dims != 3 || t->dim[0] > 1 << 20)
            return err_set(x->err, "%s: the tensor %s has %d dimensions: experts, rows and columns are wanted", x->path,
                           t->name, t->n_dims);
        experts = (int)t->dim[0];
    }
    StTensor s = { .dtype = dtype_of(t->type), .n_dims = t->n_dims - names[i].all, .count = 1, .file = x->file };
    memcpy(s.shape, t->dim + names[i].all, (size_t)s.n_dims * sizeof *s.shape);
    for (int k = 0; k < s.n_dims; k++) s.count *= s.shape[k];
    s.bytes = experts ? t->bytes / (size_t)experts : 0;
    if (names[i].turned && x->f->turned) {
        if (s.n_dims != 2 || s.shape[0] % x->head)
            return err_set(x->err, "%s: the tensor %s has rows that are no whole heads of %" PRId64, x->path, t->name,
                           x->head);
        s.turn = (int)x->head;
    }
    for (int e = 0; e < experts; e++) {
        s.data = t->data + (size_t)e * s.bytes;
        const char *hub = names[i].hub, *number = strstr(hub, "%d");
        char *name = in_layer ? mem_printf(x->mem, "model.layers.%d.%s", layer, hub) : mem_printf(x->mem, "%s", hub);
        if (number)
            name = mem_printf(x->mem, "model.layers.%d.%.*s%d%s", layer, (int)(number - hub), hub, e, number + 2);
        s.name = name;
        VEC_PUSH(x->all, s);
    }
    return true;
}

bool gguf_tensors(StTensor **at, size_t *n, const char *data, size_t bytes, int file, const char *path, Mem *mem,
                  Err *err) {
    Gguf g;
    TRY(gguf_parse(&g, data, bytes, path, mem, err));
    Naming x = { .f = gguf_family(&g, err), .file = file, .path = path, .mem = mem, .err = err };
    if (!x.f || !gguf_head(&g, x.f, &x.head, err)) return false;
    if (x.head < 2 || x.head % 2 || x.head > 1 << 16)
        return err_set(err, "%s: heads of %" PRId64 " columns: an even number is wanted", path, x.head);
    bool ok = true;
    for (size_t i = 0; ok && i < g.n_tensors; i++)
        if (strcmp(g.tensor[i].name, "rope_freqs.weight")) ok = add(&x, &g.tensor[i]);
    *n = x.all.n;
    *at = mem_copy(mem, x.all.at, x.all.n * sizeof **at);
    vec_free(x.all.at);
    return ok;
}

bool gguf_name(GgufName *out, const GgufFamily *f, const char *hub) {
    const char *head = "model.layers.", *rest = hub;
    int layer = 0;
    bool in_layer = !strncmp(hub, head, strlen(head));
    if (in_layer && (!(rest = count(hub + strlen(head), &layer)) || *rest++ != '.')) return false;
    for (size_t i = 0; i < COUNT(names); i++) {
        if (names[i].layer != in_layer || !for_family(names[i].only, f)) continue;
        const char *number = strstr(names[i].hub, "%d"), *end = NULL;
        *out = (GgufName){ .all = names[i].all, .turned = names[i].turned && f->turned, .whole = names[i].whole };
        if (number) {
            size_t n = (size_t)(number - names[i].hub);
            if (!strncmp(rest, names[i].hub, n)) end = count(rest + n, &out->expert);
            if (!end || strcmp(end, number + 2)) continue;
        } else if (strcmp(rest, names[i].hub)) continue;
        if (in_layer) snprintf(out->name, sizeof out->name, "blk.%d.%s", layer, names[i].gguf);
        else snprintf(out->name, sizeof out->name, "%s", names[i].gguf);
        return true;
    }
    return false;
}
