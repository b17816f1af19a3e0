/* parquet_rows.c - from columns with levels back to nested rows.  Each leaf has a cursor; a node looks at its first
 * chosen leaf to know whether it is null, empty, or how many items it has, and checks that its other leaves say the
 * same, for nothing but good manners makes the columns of a damaged file agree. */
#include "file/parquet_in.h"

#include <string.h>

typedef struct {
    const PqFile *f;
    const PqData *data;
    int64_t *at, *value; /* [n_leaves]: entry, and value, that comes next */
    Mem *mem;
    Err *err;
} Rows;

static bool disagree(Rows *r, const PqNode *v) {
    return err_set(r->err,
                   "%s: column %s: its parts do not agree on where values are missing or repeated: the file is damaged",
                   r->f->name, v->name);
}

static inline int def_of(const PqData *d, int64_t i) { return d->def ? d->def[i] : 0; }

/* The node, or something above it, is null or empty: one entry of each of its leaves says so.  'again':
 * entries of that level or deeper that say it once more are passed too (DuckDB repeats a null fixed-size
 * array as often as it has items). */
static bool pass(Rows *r, const PqNode *v, int below, int again) {
    if (v->kind == PQ_LEAF) {
        const PqData *d = &r->data[v->leaf];
        int64_t i = r->at[v->leaf];
        if (i >= d->n || def_of(d, i) >= below) return disagree(r, v);
        for (i++; again && i < d->n && d->rep[i] >= again && def_of(d, i) < below;) i++;
        r->at[v->leaf] = i;
        return true;
    }
    for (int i = 0; i < v->n; i++)
        if (v->child[i].chosen) TRY(pass(r, &v->child[i], below, again));
    return true;
}

static bool read_node(Rows *r, const PqNode *v, Json *out);

static inline bool read_leaf(Rows *r, const PqNode *v, Json *out) {
    const PqData *d = &r->data[v->leaf];
    int64_t i = r->at[v->leaf]++;
    if (i >= d->n) return disagree(r, v);
    if (def_of(d, i) == v->def) *out = d->value[r->value[v->leaf]++];
    else *out = (Json){ .kind = JSON_NULL };
    return true;
}

static bool read_struct(Rows *r, const PqNode *v, Json *out) {
    size_t n = (size_t)v->n_chosen;
    *out = (Json){ .kind = JSON_OBJECT, .n = n, .members = MEM_ARRAY(r->mem, JsonMember, n) };
    JsonMember *m = out->members;
    for (int i = 0; i < v->n; i++) {
        const PqNode *c = &v->child[i];
        if (!c->chosen) continue;
        m->key = c->name;
        m->key_n = c->name_n;
        TRY(c->kind == PQ_LEAF ? read_leaf(r, c, &m->value) : read_node(r, c, &m->value));
        m++;
    }
    return true;
}

/* Items: the entries of the first leaf up to the next one that starts something further out. */
static size_t count_items(const PqData *d, int64_t i, int rep) {
    size_t n = 1;
    for (i++; i < d->n && d->rep[i] >= rep; i++) n += d->rep[i] == rep;
    return n;
}

static bool same_place(Rows *r, const PqNode *v, int rep, bool more) {
    if (v->kind == PQ_LEAF) {
        const PqData *d = &r->data[v->leaf];
        int64_t i = r->at[v->leaf];
        return (more ? i < d->n && d->rep[i] == rep : i >= d->n || d->rep[i] < rep) || disagree(r, v);
    }
    for (int i = 0; i < v->n; i++)
        if (v->child[i].chosen) TRY(same_place(r, &v->child[i], rep, more));
    return true;
}

static bool read_map_item(Rows *r, const PqNode *v, Json *out, JsonMember *member) {
    Json key;
    if (member) {
        TRY(read_node(r, &v->child[0], &key));
        if (key.kind != JSON_STRING) return err_set(r->err, "%s: column %s: a map without a key", r->f->name, v->name);
        member->key = key.str;
        member->key_n = key.n;
        return read_node(r, &v->child[1], &member->value);
    }
    return read_struct(r, v, out);
}

static bool read_list(Rows *r, const PqNode *v, Json *out) {
    int first = v->first;
    const PqData *d = &r->data[first];
    int64_t i = r->at[first];
    bool object = v->kind == PQ_MAP && v->child[0].chosen && v->child[1].chosen && v->child[0].kind == PQ_LEAF
                  && v->child[0].as == PQ_AS_TEXT;
    *out = (Json){ .kind = object ? JSON_OBJECT : JSON_ARRAY };
    if (def_of(d, i) == v->def) return pass(r, v, v->def + 1, 0);
    size_t n = out->n = count_items(d, i, v->rep);
    JsonMember *members = NULL;
    if (object) members = out->members = MEM_ARRAY(r->mem, JsonMember, n);
    else out->items = MEM_ARRAY(r->mem, Json, n);
    Json *items = out->items;
    for (size_t k = 0; k < n; k++) {
        if (k > 0) TRY(same_place(r, v, v->rep, true));
        if (v->kind == PQ_MAP) TRY(read_map_item(r, v, object ? NULL : &items[k], object ? &members[k] : NULL));
        else TRY(read_node(r, v->child, &items[k]));
    }
    return same_place(r, v, v->rep, false);
}

static bool read_node(Rows *r, const PqNode *v, Json *out) {
    if (v->kind == PQ_LEAF) return read_leaf(r, v, out);
    int first = v->first;
    const PqData *d = &r->data[first];
    if (r->at[first] >= d->n) return disagree(r, v);
    if (def_of(d, r->at[first]) < v->def) {
        *out = (Json){ .kind = JSON_NULL };
        return pass(r, v, v->def, v->kind == PQ_STRUCT ? 0 : v->rep);
    }
    return v->kind == PQ_STRUCT ? read_struct(r, v, out) : read_list(r, v, out);
}

static size_t rows_room(const PqGroup *g, const PqNode *v) {
    if (!v->chosen || v->kind == PQ_LEAF) return 0;
    size_t n = (size_t)g->chunk[v->first].values, bytes = 0;
    for (int i = 0; i < v->n; i++) {
        bytes += v->child[i].chosen ? n * (v->kind == PQ_STRUCT ? sizeof(JsonMember) : sizeof(Json) + 8) : 0;
        bytes += rows_room(g, &v->child[i]);
    }
    return bytes;
}
size_t pq_rows_room(const PqFile *f, const PqGroup *g, const PqNode *v) {
    return rows_room(g, v) + (size_t)f->n_leaves * 2 * sizeof(int64_t) + 64;
}

bool pq_assemble(const PqFile *f, const PqNode *column, const PqData *data, int64_t rows, int slot, Json *out, Mem *mem,
                 Err *err) {
    Rows r = { .f = f, .data = data, .mem = mem, .err = err };
    r.at = MEM_ARRAY(mem, int64_t, (size_t)f->n_leaves);
    r.value = MEM_ARRAY(mem, int64_t, (size_t)f->n_leaves);
    int first = column->n_leaves ? column->leaf : 0;
    for (int64_t i = 0; i < rows; i++) {
        for (int k = first; k < first + column->n_leaves; k++)
            if (f->leaf[k]->chosen && f->leaf[k]->rep && (r.at[k] >= data[k].n || data[k].rep[r.at[k]]))
                return disagree(&r, f->leaf[k]);
        TRY(read_node(&r, column, &out[i].members[slot].value) || err_wrap(err, "row %lld of its group", (long long)i));
    }
    for (int k = first; k < first + column->n_leaves; k++)
        if (f->leaf[k]->chosen && r.at[k] != data[k].n) return disagree(&r, f->leaf[k]);
    return true;
}
