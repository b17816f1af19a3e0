/* peft.h - an adapter's folder as peft writes it: adapter_config.json and adapter_model.safetensors.
 *
 * What has A and B is said by the tensors, their rank by the shapes; the configuration says the scale, and may not
 * contradict them.  Experts come one by one under the hub's names, or as peft keeps the fused parameters of a layer:
 * `experts.base_layer` (gate_up_proj, the first wrapped) and `experts` (down_proj), A [E r, in] expert after expert,
 * B [out, r E] with the expert running fastest; there gate and up read one A.  Base matrices that are stored beside
 * (`.base_layer.weight`) are passed over. */
#ifndef PARAM_PEFT_H
#define PARAM_PEFT_H

#include "arch/adapter.h"
#include "param/param.h"

typedef struct {
    ModelDesc   desc;               /* the adapter's table: of ModelDesc.adapter */
    const char *dir, *base;         /* base: base_model_name_or_path, or NULL */
    Json        config;
} Peft;

/* Does a folder hold one? */
bool peft_is(const char *dir);
/* base_model_name_or_path alone, looked for relative to the folder, then to the working folder: a folder with a
 * config.json. */
bool peft_base(const char **path, const char *dir, Mem *mem, Err *err);
/* All but the numbers, for the model m; lives in mem. */
bool peft_open(Peft *out, const ModelDesc *m, const char *dir, Mem *mem, Err *err);
/* This rank's slices. */
bool peft_load(Params *p, Dev *d, const char *dir, Err *err);

/* The same numbers of any file with the same names and shapes (gradients, the adapter after a step): the whole matrix
 * of one row, layer and expert, [rows,cols] as the table has it; false: it is not there so. */
bool peft_value(float *out, const StFiles *f, const ModelDesc *adapter, const ParamDesc *p, int layer, int expert);

/* adapter_config.json of a table, which peft and other engines read; base: of the model's folder. */
void peft_config_text(Buf *out, const ModelDesc *adapter, const char *base);

/* A grid that it can be cut by: an expert's is not cut (etp). */
bool adapter_fits(const ModelDesc *adapter, const GridShape *g, Err *err);

/* A fresh adapter: A uniform within 1 / sqrt(in) (or normal, by 1 / r), B and biases 0, by (seed, name, element). */
void adapter_init(Params *p, Dev *d, uint64_t seed, bool gaussian);

#endif
