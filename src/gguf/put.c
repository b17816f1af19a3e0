/* put.c - values and tensors of a GGUF header, in the order in which they are given; tensors' places are counted on. */
#include "gguf/put.h"
#include "gguf/put_raw.h"

#include <string.h>

void gguf_raw(Buf *b, uint64_t v, int bytes) {
    for (int i = 0; i < bytes; i++) buf_putc(b, (char)(v >> (8 * i) & 255));
}
void gguf_raw_text(Buf *b, const char *s, size_t n) {
    gguf_raw(b, n, 8);
    buf_put(b, s, n);
}
Buf *gguf_raw_key(GgufOut *o, const char *key, GgufKind kind) {
    o->n_values++;
    gguf_raw_text(&o->values, key, strlen(key));
    gguf_raw(&o->values, kind, 4);
    return &o->values;
}

void gguf_put_text(GgufOut *o, const char *key, const char *s, size_t n) {
    gguf_raw_text(gguf_raw_key(o, key, GGUF_STRING), s, n);
}
void gguf_put_int(GgufOut *o, const char *key, int64_t v) {
    CHECK(v >= 0 && v <= UINT32_MAX, "%s is %ld", key, (long)v);
    gguf_raw(gguf_raw_key(o, key, GGUF_U32), (uint64_t)v, 4);
}
void gguf_put_real(GgufOut *o, const char *key, float v) {
    uint32_t u;
    memcpy(&u, &v, 4);
    gguf_raw(gguf_raw_key(o, key, GGUF_F32), u, 4);
}
void gguf_put_flag(GgufOut *o, const char *key, bool v) { gguf_raw(gguf_raw_key(o, key, GGUF_BOOL), v, 1); }

void gguf_put_tensor(GgufOut *o, const char *name, const char *type, int n_dims, const int64_t *dim) {
    int id = gguf_type_of(type);
    CHECK(id >= 0 && n_dims >= 1 && n_dims <= GGUF_DIMS, "tensor %s of %s, %d dimensions", name, type, n_dims);
    uint64_t count = 1;
    gguf_raw_text(&o->tensors, name, strlen(name));
    gguf_raw(&o->tensors, (uint64_t)n_dims, 4);
    for (int i = n_dims - 1; i >= 0; i--) gguf_raw(&o->tensors, (uint64_t)dim[i], 8), count *= (uint64_t)dim[i];
    gguf_raw(&o->tensors, (uint64_t)id, 4);
    gguf_raw(&o->tensors, o->bytes, 8);
    const GgufType *t = gguf_type((uint32_t)id);
    uint64_t bytes = count / (uint64_t)t->elements * (uint64_t)t->bytes;
    o->bytes += (bytes + GGUF_ALIGN - 1) / GGUF_ALIGN * GGUF_ALIGN;
    o->n_tensors++;
}

void gguf_put_all(Buf *out, GgufOut *o) {
    size_t from = out->n;
    buf_puts(out, "GGUF");
    gguf_raw(out, 3, 4);
    gguf_raw(out, o->n_tensors, 8);
    gguf_raw(out, o->n_values, 8);
    buf_put(out, o->values.data ? o->values.data : "", o->values.n);
    buf_put(out, o->tensors.data ? o->tensors.data : "", o->tensors.n);
    while ((out->n - from) % GGUF_ALIGN) buf_putc(out, 0);
    buf_free(&o->values);
    buf_free(&o->tensors);
    *o = (GgufOut){ 0 };
}
