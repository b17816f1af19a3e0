/* parquet_meta.c - the footer: schema, row groups and where each column's bytes lie.  The flat list of the file is
 * turned into the tree of parquet_in.h; the three shapes of lists that writers have used become one. */
#include "file/parquet_in.h"
#include "file/thrift.h"

#include <string.h>

enum { MAX_NODES = 1 << 16, MAX_NEST = 60 };

/* ConvertedType and LogicalType say the same in two tongues; everything is mapped to these. */
typedef enum {
    L_NONE,
    L_STRING,
    L_MAP,
    L_LIST,
    L_DECIMAL,
    L_DATE,
    L_TIME,
    L_STAMP,
    L_INT,
    L_NULL,
    L_UUID,
    L_HALF,
    L_OTHER
} Logical;

typedef struct {
    const char *name;
    size_t name_n;
    int64_t type, width, repeat, children; /* type -1: a group */
    Logical logical;
    int64_t scale, digits;
    bool utc, is_signed;
} Element;

typedef struct {
    PqFile *f;
    Element *e;
    size_t n, next;
    VEC(PqNode *)
    leaf;
    Err *err;
} Builder;

/* clang-format off */
static const struct { Logical logical; int digits; bool utc, is_signed; } converted[] = {
    { L_STRING, 0, 0, 0 },                                             /* UTF8 */
    { L_MAP, 0, 0, 0 }, { L_MAP, 0, 0, 0 }, { L_LIST, 0, 0, 0 },       /* MAP, MAP_KEY_VALUE, LIST */
    { L_STRING, 0, 0, 0 }, { L_DECIMAL, 0, 0, 0 }, { L_DATE, 0, 0, 0 },/* ENUM, DECIMAL, DATE */
    { L_TIME, 3, 1, 0 }, { L_TIME, 6, 1, 0 }, { L_STAMP, 3, 1, 0 }, { L_STAMP, 6, 1, 0 },
    { L_INT, 0, 0, 0 }, { L_INT, 0, 0, 0 }, { L_INT, 0, 0, 0 }, { L_INT, 0, 0, 0 },   /* UINT_8..64 */
    { L_INT, 0, 0, 1 }, { L_INT, 0, 0, 1 }, { L_INT, 0, 0, 1 }, { L_INT, 0, 0, 1 },   /* INT_8..64 */
    { L_STRING, 0, 0, 0 }, { L_OTHER, 0, 0, 0 }, { L_OTHER, 0, 0, 0 },                /* JSON, BSON, INTERVAL */
};
static const Logical logical_of[] = { L_NONE, L_STRING, L_MAP, L_LIST, L_STRING /* ENUM */, L_DECIMAL, L_DATE, L_TIME,
                                      L_STAMP, L_NONE, L_INT, L_NULL, L_STRING /* JSON */, L_OTHER, L_UUID, L_HALF };
/* clang-format on */

static bool fail(const PqFile *f, Err *err, const char *what) {
    return err_set(err, "%s: %s: not a Parquet file, or a damaged one", f->name, what);
}

/* TIME and TIMESTAMP: { 1: isAdjustedToUTC, 2: unit { 1 millis, 2 micros, 3 nanos } }; DECIMAL { 1 scale, 2
 * precision }; INTEGER { 1 bits, 2 signed }: the same numbers mean different things. */
static void logical_parts(ThriftIn *t, Element *e) {
    for (ThriftField f = thrift_begin(t); thrift_field(t, &f);) {
        if (f.id == 1 && e->logical == L_DECIMAL) e->scale = thrift_int(t, &f);
        else if (f.id == 1 && (e->logical == L_TIME || e->logical == L_STAMP)) e->utc = thrift_bool(t, &f);
        else if (f.id == 2 && e->logical == L_INT) e->is_signed = thrift_bool(t, &f);
        else if (f.id == 2 && (e->logical == L_TIME || e->logical == L_STAMP) && thrift_struct(t, &f)) {
            for (ThriftField u = thrift_begin(t); thrift_field(t, &u);) {
                if (u.id >= 1 && u.id <= 3) e->digits = 3 * u.id;
                thrift_skip(t, &u);
            }
        } else thrift_skip(t, &f);
    }
}

static void element(ThriftIn *t, Element *e) {
    *e = (Element){ .type = -1, .is_signed = true, .name = "" };
    bool logical = false;
    int64_t c;
    for (ThriftField f = thrift_begin(t); thrift_field(t, &f);) switch (f.id) {
        case 1: e->type = thrift_int(t, &f); break;
        case 2: e->width = thrift_int(t, &f); break;
        case 3: e->repeat = thrift_int(t, &f); break;
        case 4: e->name = thrift_bytes(t, &f, &e->name_n); break;
        case 5: e->children = thrift_int(t, &f); break;
        case 6:
            c = thrift_int(t, &f);
            if (c < 0 || c >= (int64_t)COUNT(converted) || logical) break;
            e->logical = converted[c].logical;
            e->digits = converted[c].digits;
            e->utc = converted[c].utc;
            e->is_signed = e->logical != L_INT || converted[c].is_signed;
            break;
        case 7: e->scale = thrift_int(t, &f); break;
        case 10:
            if (!thrift_struct(t, &f)) break;
            for (ThriftField u = thrift_begin(t); thrift_field(t, &u);) {
                logical = true;
                e->logical = u.id > 0 && u.id < (int)COUNT(logical_of) ? logical_of[u.id] : L_OTHER;
                if (thrift_struct(t, &u)) logical_parts(t, e);
            }
            break;
        default: thrift_skip(t, &f);
        }
}

/* ---- the tree */
static bool leaf_meaning(Builder *b, PqNode *v, const Element *e) {
    static const int width[PQ_TYPES] = { 0, 4, 8, 12, 4, 8, 0, 0 };
    v->type = (PqType)e->type;
    v->width = v->type == PQ_FIXED ? (int)e->width : width[v->type];
    v->scale = (int)e->scale;
    v->digits = (int)e->digits;
    v->utc = e->utc;
    bool whole = v->type == PQ_INT32 || v->type == PQ_INT64, bytes = v->type == PQ_BYTE_ARRAY || v->type == PQ_FIXED;
    static const PqMeaning plain[PQ_TYPES] = { PQ_AS_BOOL, PQ_AS_INT,  PQ_AS_INT,   PQ_AS_STAMP,
                                               PQ_AS_REAL, PQ_AS_REAL, PQ_AS_BYTES, PQ_AS_BYTES };
    v->as = plain[v->type];
    switch (e->logical) {
    case L_STRING:
        if (bytes) v->as = PQ_AS_TEXT;
        break;
    case L_INT:
        if (whole && !e->is_signed) v->as = PQ_AS_UINT;
        break;
    case L_DECIMAL:
        if (whole || bytes) v->as = PQ_AS_DECIMAL;
        if (v->scale < 0 || v->scale > 1000)
            return err_set(b->err, "%s: column %s: a decimal with scale %d", b->f->name, v->name, v->scale);
        break;
    case L_DATE:
        if (v->type == PQ_INT32) v->as = PQ_AS_DATE;
        break;
    case L_TIME:
        if (whole && v->digits) v->as = PQ_AS_TIME;
        break;
    case L_STAMP:
        if (v->type == PQ_INT64 && v->digits) v->as = PQ_AS_STAMP;
        break;
    case L_UUID:
        if (v->type == PQ_FIXED && v->width == 16) v->as = PQ_AS_UUID;
        break;
    case L_HALF:
        if (v->type == PQ_FIXED && v->width == 2) v->as = PQ_AS_HALF;
        break;
    case L_NULL: v->as = PQ_AS_NULL; break;
    default: break;
    }
    if (v->type == PQ_INT96) v->digits = 9;
    return true;
}

static bool build(Builder *b, PqNode *v, int def, int rep, int depth, bool inside_repeated);

/* A repeated field is a list whose items are what it holds. */
static bool build_repeated(Builder *b, PqNode *v, const Element *e, int def, int rep, int depth) {
    const char *name = mem_str(&b->f->mem, e->name, e->name_n);
    *v = (PqNode){
        .kind = PQ_LIST, .name = name, .name_n = e->name_n, .def = (uint8_t)def, .rep = (uint8_t)(rep + 1), .n = 1
    };
    v->child = MEM_NEW(&b->f->mem, PqNode);
    v->leaf = (int)b->leaf.n;
    TRY(build(b, v->child, def + 1, rep + 1, depth + 1, true));
    v->n_leaves = (int)b->leaf.n - v->leaf;
    return true;
}

/* LIST and MAP: a group with one repeated child.  Its item is the repeated thing itself (two-level, as older writers
 * made) or that thing's only member (three-level), told apart by the rules of the format's LogicalTypes page. */
static bool build_list(Builder *b, PqNode *v, bool map, int def, int rep, int depth) {
    const Element *r = &b->e[b->next];
    v->kind = map ? PQ_MAP : PQ_LIST;
    v->rep = (uint8_t)(rep + 1);
    bool tuple =
        r->name_n == v->name_n + 6 && !memcmp(r->name, v->name, v->name_n) && !memcmp(r->name + v->name_n, "_tuple", 6);
    bool array = r->name_n == 5 && !memcmp(r->name, "array", 5);
    bool two_level = r->type >= 0 || r->children != 1 || tuple || array || b->e[b->next + 1].repeat == 2;
    if (map || !two_level) b->next++;
    v->n = map ? 2 : 1;
    v->child = MEM_ARRAY(&b->f->mem, PqNode, (size_t)v->n);
    for (int i = 0; i < v->n; i++) TRY(build(b, &v->child[i], def + 1, rep + 1, depth + 1, !map && two_level));
    return true;
}

/* inside_repeated: the element's own repetition was taken care of by the list that it is the item of. */
static bool build(Builder *b, PqNode *v, int def, int rep, int depth, bool inside_repeated) {
    if (b->next >= b->n) return fail(b->f, b->err, "the schema ends early");
    if (depth > MAX_NEST) return err_set(b->err, "%s: the schema is nested more than %d deep", b->f->name, MAX_NEST);
    const Element *e = &b->e[b->next];
    if (e->repeat < 0 || e->repeat > 2) return fail(b->f, b->err, "a field is neither required, optional nor repeated");
    if (e->repeat == 2 && !inside_repeated) return build_repeated(b, v, e, def, rep, depth);
    if (e->repeat == 1 && !inside_repeated) def++;
    b->next++;
    *v = (PqNode){
        .name = mem_str(&b->f->mem, e->name, e->name_n), .name_n = e->name_n, .def = (uint8_t)def, .rep = (uint8_t)rep
    };
    v->leaf = (int)b->leaf.n;
    v->n_leaves = 1;
    if (e->type >= 0) {
        if (e->type >= PQ_TYPES)
            return err_set(b->err, "%s: column %s has the unknown type %d", b->f->name, v->name, (int)e->type);
        if (e->type == PQ_FIXED && (e->width < 0 || e->width > 1 << 20))
            return fail(b->f, b->err, "a fixed-length column has an impossible width");
        v->kind = PQ_LEAF;
        VEC_PUSH(b->leaf, v);
        return leaf_meaning(b, v, e);
    }
    if (e->children < 1 || e->children > (int64_t)(b->n - b->next))
        return err_set(b->err, "%s: column %s is a group of nothing", b->f->name, v->name);
    const Element *r = &b->e[b->next];
    bool one_repeated = e->children == 1 && r->repeat == 2;
    bool map = e->logical == L_MAP && one_repeated && r->type < 0 && r->children == 2;
    if (map && r->children >= (int64_t)(b->n - b->next)) return fail(b->f, b->err, "the schema ends early");
    bool list =
        (e->logical == L_LIST || e->logical == L_MAP) && !map && one_repeated && b->next + 1 < b->n + (r->type >= 0);
    if (map || list) TRY(build_list(b, v, map, def, rep, depth));
    else {
        v->kind = PQ_STRUCT;
        v->n = (int)e->children;
        v->child = MEM_ARRAY(&b->f->mem, PqNode, (size_t)v->n);
        for (int i = 0; i < v->n; i++) TRY(build(b, &v->child[i], def, rep, depth + 1, false));
    }
    v->n_leaves = (int)b->leaf.n - v->leaf;
    return true;
}

static bool build_schema(PqFile *f, Element *e, size_t n, Err *err) {
    if (n == 0) return fail(f, err, "there is no schema");
    if (n > MAX_NODES) return err_set(err, "%s: %zu columns; at most %d can be read", f->name, n, MAX_NODES);
    Builder b = { .f = f, .e = e, .n = n, .next = 1, .err = err };
    f->root = (PqNode){ .kind = PQ_STRUCT, .name = "", .n = (int)e->children };
    if (e->children < 0 || (size_t)e->children >= n + (n == 1))
        return fail(f, err, "the schema's root has an impossible number of columns");
    f->root.child = MEM_ARRAY(&f->mem, PqNode, (size_t)f->root.n);
    bool ok = true;
    for (int i = 0; ok && i < f->root.n; i++) ok = build(&b, &f->root.child[i], 0, 0, 0, false);
    if (ok && b.next != n) ok = fail(f, err, "the schema has columns that belong to nothing");
    f->n_leaves = f->root.n_leaves = (int)b.leaf.n;
    f->leaf = mem_copy(&f->mem, b.leaf.at, b.leaf.n * sizeof *b.leaf.at);
    vec_free(b.leaf.at);
    return ok;
}

/* ---- row groups */
static void column_meta(ThriftIn *t, PqChunk *c) {
    int64_t data = -1, dict = 0;
    c->bytes = c->values = -1;
    for (ThriftField f = thrift_begin(t); thrift_field(t, &f);) switch (f.id) {
        case 1: c->type = (PqType)thrift_int(t, &f); break;
        case 4: c->codec = (int)thrift_int(t, &f); break;
        case 5: c->values = thrift_int(t, &f); break;
        case 6: c->unpacked = thrift_int(t, &f); break;
        case 7: c->bytes = thrift_int(t, &f); break;
        case 9: data = thrift_int(t, &f); break;
        case 11: dict = thrift_int(t, &f); break;
        default: thrift_skip(t, &f);
        }
    c->at = dict > 0 && dict < data ? dict : data;
}

static bool row_group(PqFile *f, ThriftIn *t, PqGroup *g, Err *err) {
    g->chunk = MEM_ARRAY(&f->mem, PqChunk, (size_t)f->n_leaves);
    g->rows = -1;
    size_t n = 0;
    ThriftField item;
    for (ThriftField h = thrift_begin(t); thrift_field(t, &h);) switch (h.id) {
        case 1:
            n = thrift_list(t, &h, &item);
            if (t->bad || n != (size_t)f->n_leaves)
                return t->bad = true, fail(f, err, "a row group has another number of columns than the schema");
            for (size_t i = 0; i < n && !t->bad; i++)
                for (ThriftField c = thrift_begin(t); thrift_field(t, &c);) {
                    size_t len = 0;
                    if (c.id == 1 || c.id == 8) g->chunk[i].refused = true; /* in another file, or encrypted */
                    if (c.id == 3 && thrift_struct(t, &c)) column_meta(t, &g->chunk[i]);
                    else if (c.id == 1) thrift_bytes(t, &c, &len);
                    else thrift_skip(t, &c);
                    if (c.id == 1 && len == 0) g->chunk[i].refused = false;
                }
            break;
        case 3: g->rows = thrift_int(t, &h); break;
        default: thrift_skip(t, &h);
        }
    if (t->bad || g->rows < 0 || n != (size_t)f->n_leaves) return fail(f, err, "a row group cannot be read");
    for (size_t i = 0; i < n; i++) {
        const PqChunk *c = &g->chunk[i];
        if (c->refused)
            return err_set(err, "%s: column %s is encrypted or lies in another file, which is not supported", f->name,
                           f->leaf[i]->name);
        if (c->values == 0) continue; /* an empty group's columns may lie anywhere */
        if (c->at < 4 || c->bytes < 0 || c->values < 0 || (uint64_t)c->at > f->n
            || (uint64_t)c->bytes > f->n - (uint64_t)c->at)
            return err_set(err, "%s: column %s lies outside the file, which may have been cut short", f->name,
                           f->leaf[i]->name);
        if (c->type != f->leaf[i]->type) return fail(f, err, "a column chunk has another type than its column");
    }
    return true;
}

bool pq_read_footer(PqFile *f, const uint8_t *meta, size_t n, Err *err) {
    ThriftIn t = { .at = meta, .end = meta + n };
    ThriftField item;
    size_t count;
    int64_t sum = 0;
    bool schema = false;
    for (ThriftField h = thrift_begin(&t); thrift_field(&t, &h);) switch (h.id) {
        case 2: {
            if (schema) return fail(f, err, "there are two schemas");
            count = thrift_list(&t, &h, &item);
            Element *e = MEM_ARRAY(&f->mem, Element, count + 1);
            for (size_t i = 0; i < count && !t.bad; i++) element(&t, &e[i]);
            if (t.bad) return fail(f, err, "the schema cannot be read");
            TRY(build_schema(f, e, count, err));
            schema = true;
            break;
        }
        case 4:
            if (!schema) return fail(f, err, "row groups come before the schema");
            count = thrift_list(&t, &h, &item);
            if (count > 1 << 24 || count * (size_t)(f->n_leaves + 1) > n)
                return fail(f, err, "there are more row groups than fit in the footer");
            f->group = MEM_ARRAY(&f->mem, PqGroup, count);
            for (f->n_groups = 0; f->n_groups < (int)count && !t.bad; f->n_groups++) {
                TRY(row_group(f, &t, &f->group[f->n_groups], err));
                if (__builtin_add_overflow(sum, f->group[f->n_groups].rows, &sum))
                    return fail(f, err, "the row counts overflow");
            }
            break;
        case 8: return err_set(err, "%s: encrypted Parquet is not supported", f->name);
        default: thrift_skip(&t, &h);
        }
    if (t.bad || !schema) return fail(f, err, "the footer cannot be read");
    f->rows = sum; /* what can be read; the footer's own total has been seen wrong in files whose rows are all there */
    return true;
}
