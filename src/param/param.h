/* param.h - an arch's table made memory: weights (or gradients) of this rank's part of the model in one arena, so that
 * the flat arena is what the optimizer walks and each parameter is a view into it.
 *
 * In memory stand first the rows that every rank of tp has whole, then those that tp cuts, then the experts; inside
 * each, in table order.  Each of the three is summed over a group of ranks of its own, in one piece.  Rows whose groups
 * are the same stand together: where nothing is cut there is one region, the table. */
#ifndef PARAM_PARAM_H
#define PARAM_PARAM_H

#include "comm/comm.h"
#include "cut/grid.h"
#include "file/safetensors.h"
#include "op/op.h"

/* One kind of weight in one layer, this rank's slice of it; for expert rows all experts
 * stacked: rows = E * rows of one. */
typedef struct {
    const ParamDesc *desc;
    int              layer;
    Tensor           t;
    Slice            slice;
    uint64_t         sum;               /* of the bytes that params_load took for it, where there are other ranks */
} Param;

typedef enum { REGION_WHOLE, REGION_CUT, REGION_EXPERT, REGIONS } Region;
Region param_region(const ParamDesc *p, const GridShape *g);

typedef struct {
    const ModelDesc *model;
    Shard            shard;                 /* which part of the model this is */
    Arena            arena;                 /* device memory */
    Tensor           flat;                  /* [1,n]: everything, gaps of alignment included
                                             * (they stay 0); none for BF16 */
    Param           *at;                    /* [n], in memory order */
    int              n, first[REGIONS + 1]; /* parameters of region k: first[k] .. first[k+1]-1 */
    int64_t          read;                  /* bytes that params_load took from the files */
    int            (*index)[P_SLOTS];       /* [layers] into at, -1: not there; layer 0 for parameters outside layers */
    bool             borrowed;                  /* the arena lies in memory that somebody else owns, and */
    char            *offloaded;                /* room for it in the host's memory: there the
                                             * weights are while is_offloaded; or NULL */
    bool             is_offloaded;
    bool             fresh;                 /* gradients: of rows that are one_product nothing
                                             * is there yet; layers write, not add */
} Params;

/* Where a parameter begins in flat; i = n: where it ends.  Elements of region k:
 * [params_from(p, first[k]), params_from(p, first[k+1])). */
static inline int64_t params_from(const Params *p, int i) {
    return i < p->n ? (const float *)p->at[i].t.data - (const float *)p->flat.data : p->flat.cols;
}

/* of matrices; of what has its own arena */
static inline DType params_dtype(const Params *p) { return p->flat.data ? DT_F32 : DT_BF16; }

/* Element e of a rank's parameter, among the tensors on disk: which expert's, where in it,
 * and how many that follow e follow there too. */
typedef struct { int64_t expert, at, n; } ParamPlace;
ParamPlace param_place(const ModelDesc *m, const Param *p, int64_t e);

/* dtype DT_F32, or DT_BF16 for weights that are only read (matrices then; what has one dimension stays F32, as ops want
 * it).  Bytes: what params_open will take. */
/* shard NULL: the whole model. */
size_t params_bytes(const ModelDesc *m, const Shard *shard, DType t, bool trainable_only);
size_t params_region_bytes(const ModelDesc *m, const Shard *shard, Region k, DType t, bool trainable_only);
void params_open(Params *p, const ModelDesc *m, const Shard *shard, Dev *d, DType t, bool trainable_only,
                 const char *arena_name, Mem *mem);
/* The same in memory that is there already: 'in' has room for them. */
void params_open_in(Params *p, const ModelDesc *m, const Shard *shard, Arena in, DType t, bool trainable_only,
                    Mem *mem);
void   params_close(Params *p, Dev *d);
void   params_offload(Params *p, Dev *d);    /* nothing where they are offloaded, or there is no room for it */
void   params_reload(Params *p, Dev *d);
const char *params_offloaded_at(const Params *p, Tensor x);  /* where a part of them is meanwhile, or NULL: in place */
/* The same weights in another cut, beside the lender's: where both slices of a row are equal it is the lender's memory,
 * elsewhere new memory, which somebody has to fill (src/sync).  Bytes: of the new.  t: of the lender's matrices. */
size_t params_bytes_beside(const ModelDesc *m, const Shard *shard, const Shard *lender, DType t);
void params_open_beside(Params *p, const Params *lender, const Shard *shard, Dev *d, DType t, const char *arena_name,
                        Mem *mem);
void params_open_beside_in(Params *p, const Params *lender, const Shard *shard, Arena in, DType t,
                           Mem *mem); /* new memory is 'in' */

/* The tensor, or one without data if this model has none (a bias, a head that is tied). */
static inline Tensor param(const Params *p, ParamId id, int layer) {
    int i = p->index[layer][id];
    return i < 0 ? TENSOR_NONE : p->at[i].t;
}

/* What the table says of it; it must be there. */
static inline const ParamDesc *param_desc(const Params *p, ParamId id, int layer) {
    return p->at[p->index[layer][id]].desc;
}

/* Disk: of every tensor the slice that is held here is read, and nothing else of it.  Every tensor of the table must be
 * there with its shape, whoever holds it; extra ones are errors except those that are known to be skipped (MTP layers,
 * rotary buffers), which are said once.  BF16, F16, F8 blocks and F32 widen or are kept. */
bool params_load(Params *p, Dev *d, const char *dir, Err *err);
/* What several ranks hold was read by each: the sums of what they read are equal, else the rank that has another than
 * the first of its group is false, and err names the weight.  Collective over the groups, of weights that all have
 * loaded. */
bool params_same(const Params *p, const Groups *g, const char *dir, Err *err);
void params_sum(Params *p, Dev *d);                     /* the same sums, of the weights as they are in memory now */
size_t params_load_bytes(int threads);                  /* of the host, while it loads */
DType params_config_dtype(const ModelDesc *m);           /* what config.json says; DT_F32 unless bfloat16 */
DType params_disk_dtype(const char *dir);               /* DT_BF16 if every matrix in the folder is BF16, else DT_F32 */

/* The small files of a model's folder, config.json aside, in memory: tokenizer and what belongs to it from 'tokenizer'
 * (a folder, or a tokenizer's file), the rest from 'from_dir'; 'chat_template' is a file in the place of theirs (NULL:
 * theirs stays).  All lives in mem. */
typedef struct { const char *name, *data; size_t n; } CarriedFile;
typedef struct { CarriedFile *at; int n; size_t bytes; } Carried;
bool params_carry(Carried *c, const char *from_dir, const char *tokenizer, const char *chat_template, Mem *mem,
                  Err *err);

/* Writes hub names, index, config.json (given text) into a folder beside 'dir' and renames it; the small files are
 * carried from 'from_dir' (NULL: none).  dtype DT_F32 or DT_BF16; frozen rows stay F32.  A folder that is there already
 * is replaced if it is empty or holds a model (config.json, no folders); anything else is an error. */
typedef struct {
    DType dtype;
    int64_t shard_bytes;
    const char *from_dir, *config_text;
    struct Merge *merge;                /* of params_convert: an adapter that is added (merge.h), or NULL */
} SaveOpts;
bool params_save(const Params *p, Dev *d, const char *dir, SaveOpts o, Err *err);
/* The same straight from the files in o.from_dir, piece by piece: no memory is taken for the weights. */
bool params_convert(const ModelDesc *m, Threads *threads, const char *dir, SaveOpts o, Err *err);
/* ... into one GGUF file, which takes the place of a file that is there; t: F32, F16, BF16 or what block_writes
 * (param/blocks.h). */
bool params_convert_gguf(const ModelDesc *m, Threads *threads, const char *path, DType t, Err *err);
/* All of such a folder but the weights, into one that is there (config_text NULL: no config.json); and the weights'
 * tensors, in the order of arch_each_param. */
bool params_save_rest(const char *dir, const char *config_text, const Carried *c, Err *err);
StSpec *params_specs(const ModelDesc *m, DType t, size_t *n, Mem *mem);
void params_config_text(Buf *out, const ModelDesc *m, DType t);    /* the model's config.json for such a folder */

/* Seeded initialisation: normal(0, params_init_range), norms 1, biases 0, as a function of
 * (seed, name, element) alone. */
void params_random(Params *p, Dev *d, uint64_t seed);
/* The config's initializer_range, 0.02 if it has none; one that is no number from 0 to 1e6 is
 * an error (then *out is 0.02). */
bool params_init_range(double *out, const ModelDesc *m, Err *err);

#endif
