/* random.c - a fresh model: every element is a function of (seed, the weight's name on disk, its place in it), so that
 * threads, cuts and the order of the table do not matter.  Two normals come from one 128-bit draw (Box and Muller). */
#include "param/param.h"
#include "base/hash.h"
#include "base/mathx.h"
#include "base/rng.h"
#include "param/convert.h"

#include <string.h>

enum { PIECE = 1 << 18 };

static uint64_t name_key(const char *name) { return hash_bytes(HASH_START, name, strlen(name)); }

static void two_normals(double out[2], uint64_t seed, uint64_t name, uint64_t pair) {
    Philox c = { { (uint32_t)name, (uint32_t)(name >> 32), (uint32_t)pair, (uint32_t)(pair >> 32) } };
    Philox r = philox(seed ^ (uint64_t)RNG_INIT << 56, c);
    double u = rng_unit((uint64_t)r.v[1] << 32 | r.v[0]), v = rng_unit((uint64_t)r.v[3] << 32 | r.v[2]);
    double radius = sqrt(-2 * mx_log(1 - u)), sn, cs; /* 1 - u lies in (0, 1] */
    mx_sincos(6.283185307179586477 * v, &sn, &cs);
    out[0] = radius * cs;
    out[1] = radius * sn;
}

typedef struct {
    float *to;
    uint64_t seed, name;
    int64_t from, n; /* elements of the whole weight */
    double std;
} Fill;

enum { SLICE = 1 << 14 };

static void fill_slice(void *arg, int index, int worker) {
    (void)worker;
    const Fill *f = arg;
    int64_t a = (int64_t)index * SLICE, b = a + SLICE < f->n ? a + SLICE : f->n;
    for (int64_t i = a; i < b;) {
        int64_t e = f->from + i;
        double z[2];
        two_normals(z, f->seed, f->name, (uint64_t)e / 2);
        if (e % 2 == 0) f->to[i++] = (float)(f->std * z[0]);
        if (i < b) f->to[i++] = (float)(f->std * z[1]);
    }
}

/* The value of an element where it is not drawn: norms are 1, biases 0. */
static bool is_norm(ParamId id) {
    switch (id) {
    case P_NORM_OUT:
    case P_NORM1:
    case P_NORM2:
    case P_QNORM:
    case P_KNORM:
    case P_Q_A_NORM:
    case P_KV_A_NORM:
    case P_VIS_NORM1:
    case P_VIS_NORM2:
    case P_VIS_NORM_OUT: return true;
    default: return false;
    }
}

static void put(Dev *d, Tensor t, int64_t from, int64_t n, float *values, uint16_t *narrow) {
    Tensor part = tensor_cols(tensor_shape(t, 1, t.rows * t.cols), from, n);
    if (t.dtype == DT_F32) op_put(d, part, values);
    else {
        convert_f32(narrow, DT_BF16, values, DT_F32, n);
        op_put(d, part, narrow);
    }
}

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

typedef struct {
    Dev *d;
    float *values;
    uint16_t *narrow;
    uint64_t seed;
    double std;
} Filler;

/* Elements [whole, whole+n) of the named weight, which lie at 'at' of its slice t. */
static void fill_run(const Filler *x, const ParamDesc *desc, const char *name, Tensor t, int64_t at, int64_t whole,
                     int64_t n) {
    for (int64_t from = 0; from < n; from += PIECE) {
        Fill f = { x->values, x->seed, name_key(name), whole + from, n - from < PIECE ? n - from : PIECE, x->std };
        if (desc->vector)
            for (int64_t k = 0; k < f.n; k++) x->values[k] = is_norm(desc->id) ? 1 : 0;
        else threads_run(x->d->threads, (int)((f.n + SLICE - 1) / SLICE), fill_slice, &f);
        put(x->d, t, at + from, f.n, x->values, x->narrow);
    }
}

void params_random(Params *p, Dev *d, uint64_t seed) {
    Mem mem = { 0 };
    Filler x = {
        .d = d, .values = MEM_ARRAY(&mem, float, PIECE), .narrow = MEM_ARRAY(&mem, uint16_t, PIECE), .seed = seed
    };
    Err err;
    params_init_range(&x.std, p->model, &err);
    Buf name = { 0 };
    for (int i = 0; i < p->n; i++) {
        const Param *q = &p->at[i];
        const Slice *s = &q->slice;
        int64_t cols = dim_at(&p->model->d, q->desc->cols);
        for (int64_t e = 0; e < s->experts; e++) {
            buf_clear(&name);
            arch_param_name(&name, q->desc, q->layer, (int)(s->e0 + e));
            Tensor t = tensor_rows(q->t, e * s->rows, s->rows);
            if (s->cols == cols) fill_run(&x, q->desc, name.data, t, 0, s->r0 * cols, s->rows * cols);
            else
                for (int64_t r = 0; r < s->rows; r++)
                    fill_run(&x, q->desc, name.data, t, r * s->cols, (s->r0 + r) * cols + s->c0, s->cols);
        }
    }
    buf_free(&name);
    mem_free(&mem);
}
