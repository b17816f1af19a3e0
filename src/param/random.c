/* random.c - a fresh model: every element is a function of (seed, the weight's name on disk, its place in it), so that
 * threads, cuts, devices and the order of the table do not matter (op_normals). */
#include "param/param.h"
#include "base/hash.h"
#include "param/convert.h"

#include <string.h>

static uint64_t name_key(const char *name) { return hash_bytes(HASH_START, name, strlen(name)); }

bool params_init_range(double *out, const ModelDesc *m, Err *err) {
    const Json *text =
        json_get(&m->config, "text_config"); /* where transformers 5 keeps a text model's keys inside a larger one */
    *out = 0.02;
    double std = *out;
    TRY(json_real(text ? text : &m->config, "initializer_range", &std, err));
    if (!(std >= 0 && std <= 1e6)) return err_set(err, "initializer_range is %g: it must lie between 0 and 1e6", std);
    *out = std;
    return true;
}

/* A vector, whole or a part, which is all ones or all zeros. */
static void put_vector(Dev *d, Tensor t, bool ones) {
    Mem mem = { 0 };
    int64_t n = t.rows * t.cols;
    float *values = MEM_ARRAY(&mem, float, (size_t)n + 1);
    uint16_t *narrow = MEM_ARRAY(&mem, uint16_t, (size_t)n + 1);
    for (int64_t k = 0; ones && k < n; k++) values[k] = 1;
    convert_f32(narrow, DT_BF16, values, DT_F32, n);
    op_put(d, t, t.dtype == DT_F32 ? (void *)values : narrow);
    mem_free(&mem);
}

void params_random(Params *p, Dev *d, uint64_t seed) {
    Err err;
    double std;
    params_init_range(&std, p->model, &err);
    Buf name = { 0 };
    for (int i = 0; i < p->n; i++) {
        const Param *q = &p->at[i];
        const Slice *s = &q->slice;
        int64_t cols = param_cols(&p->model->d, q->desc, q->layer);
        for (int64_t e = 0; e < s->experts; e++) {
            buf_clear(&name);
            arch_param_name(&name, q->desc, q->layer, (int)(s->e0 + e));
            Tensor t = tensor_rows(q->t, e * s->rows, s->rows);
            Normals n = {
                .seed = seed, .name = name_key(name.data), .first = s->r0 * cols + s->c0, .ld = cols, .std = std
            };
            bool one = q->desc->norm && !(p->model->d.centred && q->desc->id != P_DN_NORM);
            if (q->desc->vector) put_vector(d, t, one);
            else op_normals(d, t, n);
        }
    }
    buf_free(&name);
}
