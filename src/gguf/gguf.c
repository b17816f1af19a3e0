/* gguf.c - see gguf.h.  Every length is compared with what is left of the file before it is used, so a count of 2^64
 * costs no more than the line that refuses it. */
#include "gguf/gguf.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_NAME = 512 };

/* By ggml's numbers; those without a name are not read. */
static const GgufType types[] = {
    [0] = { "F32", 1, 4 },       [1] = { "F16", 1, 2 },       [2] = { "Q4_0", 32, 18 },    [3] = { "Q4_1", 32, 20 },
    [6] = { "Q5_0", 32, 22 },    [7] = { "Q5_1", 32, 24 },    [8] = { "Q8_0", 32, 34 },    [10] = { "Q2_K", 256, 84 },
    [11] = { "Q3_K", 256, 110 }, [12] = { "Q4_K", 256, 144 }, [13] = { "Q5_K", 256, 176 }, [14] = { "Q6_K", 256, 210 },
    [30] = { "BF16", 1, 2 },
};

const GgufType *gguf_type(uint32_t id) { return id < COUNT(types) && types[id].name ? &types[id] : NULL; }

int gguf_type_of(const char *name) {
    for (size_t i = 0; i < COUNT(types); i++)
        if (types[i].name && !strcmp(types[i].name, name)) return (int)i;
    return -1;
}

static const int kind_bytes[GGUF_KINDS] = {
    [GGUF_U8] = 1,  [GGUF_I8] = 1,   [GGUF_U16] = 2, [GGUF_I16] = 2, [GGUF_U32] = 4, [GGUF_I32] = 4,
    [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
};

typedef struct {
    const char *at, *end, *label;
    Mem *mem;
    Err *err;
} In;

#define FAIL(x, ...) err_set((x)->err, "%s: " __VA_ARGS__)
static bool cut(const In *x) {
    return FAIL(x, "the file ends in its header: it is cut off, or no GGUF file", x->label);
}

static uint64_t bits(const char *p, int bytes) {
    uint64_t u = 0;
    for (int i = bytes - 1; i >= 0; i--) u = u << 8 | (unsigned char)p[i];
    return u;
}

static bool number(In *x, int bytes, uint64_t *out) {
    if (x->end - x->at < bytes) return cut(x);
    *out = bits(x->at, bytes);
    x->at += bytes;
    return true;
}

bool gguf_next_text(const char **at, const char *end, const char **s, size_t *n) {
    if (end - *at < 8) return false;
    uint64_t len = bits(*at, 8);
    if (len > (uint64_t)(end - *at - 8)) return false;
    *s = *at + 8, *n = (size_t)len;
    *at += 8 + len;
    return true;
}

/* A key or a tensor's name, as a C string that can be printed. */
static bool name(In *x, const char *what, const char **out) {
    const char *s;
    size_t n;
    if (!gguf_next_text(&x->at, x->end, &s, &n)) return cut(x);
    if (!n || n > MOST_NAME) return FAIL(x, "a %s of %zu bytes: 1 to %d are taken", x->label, what, n, MOST_NAME);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 32 || (unsigned char)s[i] > 126)
            return FAIL(x, "a %s with the byte 0x%02X in it", x->label, what, (unsigned char)s[i]);
    *out = mem_str(x->mem, s, n);
    return true;
}

static bool array(In *x, GgufValue *v) {
    uint64_t of = 0, n = 0;
    TRY(number(x, 4, &of) && number(x, 8, &n));
    if (of >= GGUF_KINDS || of == GGUF_ARRAY)
        return FAIL(x, "%s is an array of kind %" PRIu64 ", which is not read", x->label, v->key, of);
    v->of = (GgufKind)of, v->n = n, v->data = x->at;
    size_t left = (size_t)(x->end - x->at), least = of == GGUF_STRING ? 8 : (size_t)kind_bytes[of];
    if (n > left / least) return cut(x);
    if (of != GGUF_STRING) return x->at += n * least, true;
    const char *s;
    size_t len;
    for (uint64_t i = 0; i < n; i++)
        if (!gguf_next_text(&x->at, x->end, &s, &len)) return cut(x);
    return true;
}

static bool value(In *x, GgufValue *v) {
    uint64_t kind = 0;
    TRY(name(x, "key", &v->key) && number(x, 4, &kind));
    if (kind >= GGUF_KINDS) return FAIL(x, "%s has the kind %" PRIu64 ", which is none", x->label, v->key, kind);
    v->kind = (GgufKind)kind;
    if (kind == GGUF_ARRAY) return array(x, v);
    if (kind == GGUF_STRING) {
        size_t n;
        if (!gguf_next_text(&x->at, x->end, &v->data, &n)) return cut(x);
        return v->n = n, true;
    }
    if (x->end - x->at < kind_bytes[kind]) return cut(x);
    v->data = x->at, v->n = 1;
    x->at += kind_bytes[kind];
    return true;
}

/* Its place is relative to where the header ends, which is not known yet: t->bytes has it meanwhile. */
static bool tensor(In *x, GgufTensor *t) {
    uint64_t n_dims = 0, dim[GGUF_DIMS] = { 0 }, type = 0, offset = 0;
    TRY(name(x, "tensor's name", &t->name) && number(x, 4, &n_dims));
    if (n_dims < 1 || n_dims > GGUF_DIMS)
        return FAIL(x, "tensor %s has %" PRIu64 " dimensions: 1 to %d are read", x->label, t->name, n_dims, GGUF_DIMS);
    uint64_t count = 1;
    for (uint64_t i = 0; i < n_dims; i++) {
        TRY(number(x, 8, &dim[i]));
        if (dim[i] && count > (uint64_t)INT64_MAX / 1024 / dim[i])
            return FAIL(x, "tensor %s: the product of its dimensions is too large", x->label, t->name);
        count *= dim[i];
    }
    TRY(number(x, 4, &type) && number(x, 8, &offset));
    t->type = type <= UINT32_MAX ? gguf_type((uint32_t)type) : NULL;
    if (!t->type)
        return FAIL(x,
                    "tensor %s is of ggml's type %" PRIu64 ": read are F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 "
                    "and Q2_K to Q6_K",
                    x->label, t->name, type);
    if (dim[0] % (uint64_t)t->type->elements)
        return FAIL(x, "tensor %s: rows of %" PRIu64 " are no whole blocks of %s", x->label, t->name, dim[0],
                    t->type->name);
    t->n_dims = (int)n_dims;
    for (int i = 0; i < t->n_dims; i++) t->dim[i] = (int64_t)dim[t->n_dims - 1 - i];
    t->data = (const char *)(uintptr_t)offset;
    t->bytes = (size_t)(count / (uint64_t)t->type->elements) * (size_t)t->type->bytes;
    return true;
}

static int by_place(const void *a, const void *b) {
    const GgufTensor *x = *(const GgufTensor *const *)a, *y = *(const GgufTensor *const *)b;
    if (x->data != y->data) return x->data < y->data ? -1 : 1;
    return x->bytes < y->bytes ? -1 : x->bytes > y->bytes;
}

static bool places(In *x, Gguf *g, const char *start, uint64_t align) {
    uint64_t header = (uint64_t)(x->at - start), from = (header + align - 1) / align * align,
             all = (uint64_t)(x->end - start);
    GgufTensor **order = MEM_ARRAY(x->mem, GgufTensor *, g->n_tensors);
    for (size_t i = 0; i < g->n_tensors; i++) {
        GgufTensor *t = order[i] = &g->tensor[i];
        uint64_t offset = (uint64_t)(uintptr_t)t->data;
        if (offset % align)
            return FAIL(x, "tensor %s begins at %" PRIu64 ", no multiple of %" PRIu64, x->label, t->name, offset,
                        align);
        if (from > all || offset > all - from || t->bytes > all - from - offset)
            return FAIL(x, "tensor %s ends beyond the file's %" PRIu64 " bytes: it is cut off, or its header is wrong",
                        x->label, t->name, all);
        t->data = start + from + offset;
    }
    if (g->n_tensors) qsort(order, g->n_tensors, sizeof *order, by_place);
    for (size_t i = 1; i < g->n_tensors; i++)
        if (order[i - 1]->data + order[i - 1]->bytes > order[i]->data)
            return FAIL(x, "tensors %s and %s overlap", x->label, order[i - 1]->name, order[i]->name);
    return true;
}

static int by_key(const void *a, const void *b) {
    return strcmp(((const GgufValue *)a)->key, ((const GgufValue *)b)->key);
}

static bool values(In *x, Gguf *g, uint64_t n) {
    if (n > (uint64_t)(x->end - x->at) / 13) return cut(x); /* a key of one byte, a kind, a value of none */
    g->value = MEM_ARRAY(x->mem, GgufValue, n);
    for (; g->n_values < n; g->n_values++) TRY(value(x, &g->value[g->n_values]));
    if (n) qsort(g->value, n, sizeof *g->value, by_key);
    for (size_t i = 1; i < n; i++)
        if (!strcmp(g->value[i - 1].key, g->value[i].key))
            return FAIL(x, "the key %s is there twice", x->label, g->value[i].key);
    return true;
}

bool gguf_parse(Gguf *out, const char *data, size_t n, const char *label, Mem *mem, Err *err) {
    In x = { data, data + n, label, mem, err };
    uint64_t version = 0, n_tensors = 0, n_values = 0;
    *out = (Gguf){ .label = label, .end = data + n };
    if (n < 4 || memcmp(data, "GGUF", 4)) return FAIL(&x, "this is no GGUF file", label);
    x.at += 4;
    TRY(number(&x, 4, &version));
    if (version != 2 && version != 3)
        return FAIL(&x, "a GGUF file of version %" PRIu64 ": 2 and 3 are read", label, version);
    TRY(number(&x, 8, &n_tensors) && number(&x, 8, &n_values) && values(&x, out, n_values));
    if (n_tensors > (uint64_t)(x.end - x.at) / 33) return cut(&x);
    out->tensor = MEM_ARRAY(mem, GgufTensor, n_tensors);
    for (; out->n_tensors < n_tensors; out->n_tensors++) TRY(tensor(&x, &out->tensor[out->n_tensors]));
    int64_t align = 32, parts = 1;
    TRY(gguf_int(out, "general.alignment", &align, err) && gguf_int(out, "split.count", &parts, err));
    if (align < 8 || align > 1 << 20 || align & (align - 1))
        return FAIL(&x, "general.alignment is %" PRId64 ": a power of two from 8 on is wanted", label, align);
    if (parts > 1)
        return FAIL(&x, "one of %" PRId64 " parts of a model: join them first (llama-gguf-split --merge)", label,
                    parts);
    return places(&x, out, data, (uint64_t)align);
}

bool gguf_is(const char *path) {
    struct stat st;
    char head[4];
    if (stat(path, &st) || !S_ISREG(st.st_mode)) return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool is = fd >= 0 && read(fd, head, 4) == 4 && !memcmp(head, "GGUF", 4);
    if (fd >= 0) close(fd);
    return is;
}

/* ---- looking up */
const GgufValue *gguf_get(const Gguf *g, const char *key) {
    GgufValue want = { .key = key };
    return g->n_values ? bsearch(&want, g->value, g->n_values, sizeof want, by_key) : NULL;
}

static bool wrong(const Gguf *g, const char *key, const char *want, Err *err) {
    return err_set(err, "%s: %s is not %s", g->label, key, want);
}

static int64_t whole(GgufKind k, const char *p) {
    uint64_t u = bits(p, kind_bytes[k]);
    int shift = 64 - 8 * kind_bytes[k];
    bool sign = k == GGUF_I8 || k == GGUF_I16 || k == GGUF_I32;
    return sign ? (int64_t)(u << shift) >> shift : (int64_t)u;
}
static bool is_whole(GgufKind k) { return k != GGUF_F32 && k != GGUF_F64 && k != GGUF_STRING && k != GGUF_ARRAY; }

bool gguf_int(const Gguf *g, const char *key, int64_t *out, Err *err) {
    const GgufValue *v = gguf_get(g, key);
    if (!v) return true;
    if (!is_whole(v->kind) || v->kind == GGUF_BOOL || (v->kind == GGUF_U64 && whole(GGUF_U64, v->data) < 0))
        return wrong(g, key, "one whole number", err);
    return *out = whole(v->kind, v->data), true;
}

bool gguf_real(const Gguf *g, const char *key, double *out, Err *err) {
    const GgufValue *v = gguf_get(g, key);
    if (!v) return true;
    float f;
    double d;
    if (v->kind == GGUF_F32) memcpy(&f, v->data, 4), d = (double)f;
    else if (v->kind == GGUF_F64) memcpy(&d, v->data, 8);
    else return wrong(g, key, "one number", err);
    if (!isfinite(d)) return wrong(g, key, "a finite number", err);
    return *out = d, true;
}

bool gguf_flag(const Gguf *g, const char *key, bool *out, Err *err) {
    const GgufValue *v = gguf_get(g, key);
    if (!v) return true;
    if (v->kind != GGUF_BOOL) return wrong(g, key, "true or false", err);
    return *out = *v->data != 0, true;
}

bool gguf_text(const Gguf *g, const char *key, const char **s, size_t *n, Err *err) {
    const GgufValue *v = gguf_get(g, key);
    if (!v) return true;
    if (v->kind != GGUF_STRING) return wrong(g, key, "a text", err);
    return *s = v->data, *n = (size_t)v->n, true;
}

GgufShown gguf_shown(const char *s, size_t n) {
    GgufShown out = { "" };
    for (size_t i = 0; i < n && i < sizeof out.s - 1; i++) out.s[i] = s[i] < 32 || s[i] > 126 ? '?' : s[i];
    return out;
}

int64_t gguf_item(const GgufValue *v, uint64_t i) {
    CHECK(v->kind == GGUF_ARRAY && is_whole(v->of) && i < v->n, "item %" PRIu64 " of %s", i, v->key);
    return whole(v->of, v->data + i * (uint64_t)kind_bytes[v->of]);
}
