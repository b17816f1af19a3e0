/* model.h - a whole model on one device: weights, forward, backward, and the same forward over a paged cache. */
#ifndef MODEL_MODEL_H
#define MODEL_MODEL_H

#include "model/batch.h"
#include "model/block.h"

/* How a run trains a model: one thing, handed on by value to all that compute or count it. */
typedef struct {
    Recompute recompute;
    bool      keep_logits;               /* logits wait for backward where the device can use them (not a GPU in
                                          * float32; a vocabulary in one piece) */
    bool      tower_frozen;              /* nothing is kept for the vision tower's backward, and none is run */
} Trained;

typedef struct {
    Dev             *dev;
    const ModelDesc *desc;
    Params           w, lora;            /* lora: of desc->adapter, float32; empty where there is none */
    bool             lora_off;           /* the weights alone are asked for: the bits of the model without it */
    Shard            shard;              /* which part of the model this rank has */
    Local            local;
    int              leaves;
    Par              par;
    EpBook           book;               /* experts' rounds */
    Arena            fixed;              /* freq */
    Tensor           freq;               /* [axes,dim/2]: one position a token, or three */
    Tensor           vis_freq;           /* [2,w/2] of the vision tower, or none */
    float            amp, scale;
    Arena            again;              /* where blocks are recomputed in backward; none: on top of what is kept */
    Trained          trained;
} Model;

typedef struct {                         /* of the vision tower */
    VisionKeep *block;                   /* [vis.layers], or NULL: a batch with pictures cannot be trained on */
    Tensor      cossin;
    MergerKeep  merger;
} TowerKeep;

typedef struct {                         /* from forward to backward */
    BlockKeep *block;                    /* [layers]: the model's, or a chunk's */
    Tensor     cossin;
    NormKeep   norm;                     /* over the gathered rows [outputs,H] */
    Tensor     h, stat, logits;          /* logits: or none */
    TowerKeep  tower;
} ModelKeep;
ModelKeep model_keep(const ModelDesc *desc, int64_t layers, Mem *mem);    /* room for so many blocks, and the tower's */

/* Memory of the weights is taken here; the weights themselves come from model_load or params_random(&m->w). */
void model_open (Model *m, Dev *d, const ModelDesc *desc, DType weights, int leaves, Mem *mem);
/* One rank's share of it: par are its groups. */
void model_open_shard(Model *m, Dev *d, const ModelDesc *desc, const Shard *shard, const Par *par, DType weights,
                      int leaves, Mem *mem);
/* The same model in another cut on the same device, for sampling: weights as
 * params_open_beside has them, new ones at the beginning of 'in'. */
void model_open_beside(Model *m, const Model *lender, const Shard *shard, const Par *par, Arena in, Mem *mem);
/* The same with its weights in memory that is there already (params_bytes). */
void model_open_in(Model *m, Dev *d, const ModelDesc *desc, const Shard *shard, const Par *par, Arena in, DType weights,
                   int leaves, Mem *mem);
/* What a run trains, and nothing else of the model moves. */
static inline Params *model_trained(Model *m) { return m->desc->adapter ? &m->lora : &m->w; }
static inline DevKind model_kind(const Model *m) { return (DevKind){ m->dev->ops, m->dev->act, m->leaves }; }
bool model_load (Model *m, const char *dir, Err *err);
void model_close(Model *m);
Tensor model_head(const Model *m);       /* [V,H]: lm_head, or the embedding it is tied to */
bool model_keeps_logits(const Model *m); /* asked for, and the device can use them */

/* batch_put_images on this rank of the model. */
void model_put_images(const Model *m, Batch *b, Arena *a, const PackSeq *seqs, int n, ClipRule rule);

/* Log-prob and entropy [outputs,1] of what the batch wants. */
void model_score(Model *m, const Batch *b, Tensor lp, Tensor ent);

/* The same, keeping in 'act' what backward needs; keep->block has room for every layer. */
void model_forward (Model *m, const Batch *b, Arena *act, ModelKeep *keep, Tensor lp, Tensor ent);
void model_backward(Model *m, const Params *g, const Batch *b, Arena *act, const ModelKeep *keep, Tensor dlp,
                    Tensor dent);

/* The same by chunks: this stage has shard.g.vpp of them.  A chunk takes this rank's rows of what the chunk before
 * returned (x; none where it begins the model, with ids) and returns its own (y; none where it ends it, with
 * log-probs); dx and dy are their gradients.  Each micro-batch in flight has an arena and a keep of its own, whose
 * blocks are the chunk's layers; x and y live as long as they do. */
static inline int model_chunk(const Model *m, int v) { return v * m->shard.g.pp + m->shard.at.pp; } /* of all */
bool model_begins(const Model *m, int v);
bool model_ends  (const Model *m, int v);
int  model_layers(const Model *m, int v, int *from);
void chunk_forward(Model *m, int v, const Batch *b, Tensor y, Tensor x, Arena *act, ModelKeep *keep, Tensor lp,
                   Tensor ent);
void chunk_backward(Model *m, int v, const Params *g, const Batch *b, Tensor dx, Tensor dy, Arena *act,
                    const ModelKeep *keep, Tensor dlp, Tensor dent);

/* What a flight takes and hands on, laid into its arena before forward and before backward;
 * dx into one of its own, since it outlives the flight until it is sent. */
typedef struct { Tensor x, y, dx, dy; } FlightWay;
void flight_out (FlightWay *w, Arena *act, const Model *m, int v, const Batch *b);
void flight_back(FlightWay *w, Arena *act, Arena *out, const Model *m, int v, const Batch *b);

/* The vision tower: its results [p->tokens,H], a new tensor of 'to'.  Kept things go to act. */
Tensor tower_forward (Model *m, const Pictures *p, Arena *to, Arena *act, TowerKeep *keep);
void   tower_backward(Model *m, const Params *g, const Pictures *p, Tensor dout, Arena *act, const TowerKeep *keep);
void   tower_freq(float *freq, const Dims *d);                   /* [2,w/2] */

/* New rows of sequences that live in pages: h [rows.rows,H] is the normed hidden state of the rows named by 'rows'.
 * images: feats and from, or NULL where no row is a picture's.  each: Ctx.each, agreed by all ranks that share
 * experts. */
void model_extend(Model *m, const Kv *kv, const Paged *paged, Tensor ids, Tensor pos, const Pictures *images,
                  int64_t each, Tensor rows, Tensor h);

/* op_logprob and op_sample where the vocabulary is cut over ranks: collective over tp, every
 * rank has all rows of h and gets all results. */
void model_logprob(Model *m, const Head *head);
void model_sample (Model *m, const Sample *s);

/* Whole rows of logits [rows,V], F32, at most LIKELY_ROWS; and the log-probs of rows' ids from them (op_logprob_rows):
 * the bits of the two above.  For one rank, or where the head is in one piece. */
enum { LIKELY_ROWS = 32 };
void model_rows_logits (Model *m, Tensor logits, Tensor h);
void model_rows_logprob(Model *m, Tensor logits, const Head *head);

/* Logits of the batch's wanted rows, [outputs,V]: for checks against references. */
void model_logits(Model *m, const Batch *b, Tensor logits);

/* The model on the device that computes nothing, as the rank that has that shard would have it: its groups have no
 * peers.  What others open over it takes no memory either, in a Mem that is counted. */
typedef struct {
    Mem   mem;
    Dev   dev;
    Model model;
    Arena io;                            /* addresses that nobody touches, for what a model is given */
} ModelDry;
void model_dry_open (ModelDry *x, const ModelDesc *desc, const Shard *shard, DevKind like);
void model_dry_close(ModelDry *x);

/* Peak bytes of the two arenas for a batch of that shape, found by running the same code on a device that computes
 * nothing: 'act' is 0 without backward.  shard NULL: of the whole model; else of the rank that has it. */
/* act: of model_forward; flight: of a micro-batch in one chunk, out: its dx, way: its y; kept, again: of a flight where
 * blocks are recomputed in a place of their own, and that place (Model.again). */
typedef struct { size_t act, flight, out, way, tmp, kept, again; } ModelSizes;
typedef struct {
    int64_t tokens, outputs;
    int seqs, longest;
    bool backward, truncated;
    Trained trained;
    DevKind like;
    const Shard *shard;
    PicturesShape pictures;
} ModelShape;
ModelSizes model_sizes(const ModelDesc *desc, const ModelShape *s);
typedef struct {
    int64_t rows, outputs;
    int seqs, longest, max_pages, page;
    const Shard *shard;                  /* NULL: one rank */
    int64_t feats;                       /* rows of pictures' results that are kept */
    int64_t each;
    bool told;                           /* logits of a few rows side by side (model_likely) */
} ExtendShape;
Kv         model_kv(const ModelDesc *m, const Shard *shard, int layer, int page);      /* a cache without its memory */
size_t     model_extend_tmp(const ModelDesc *desc, const ExtendShape *s, DevKind like);
/* Of tower_forward that keeps nothing, its results included. */
size_t     model_tower_tmp(const ModelDesc *desc, const PicturesShape *s, DevKind like);
/* Every op of a micro-batch's forward and backward (with a picture, where there is a tower)
 * and of a step of decoding, with the kernel that serves it (Dev.by). */
void       model_served(const ModelDesc *desc, DevKind like, Served *served, void *arg);

#endif
