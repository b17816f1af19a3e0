/* parquet_write.c - rows of Json to a Parquet file: version 1 pages, PLAIN values, every field optional, lists in
 * three levels.  The schema is what the rows turn out to hold; it is found in a first pass, so that a type that
 * appears in the last row only is known in the first. */
#include "base/file.h"
#include "file/parquet.h"
#include "file/thrift.h"

#include <math.h>
#include <snappy-c.h>
#include <string.h>
#include <zstd.h>

typedef enum { W_NULL, W_BOOL, W_INT, W_REAL, W_TEXT, W_BYTES, W_LIST, W_STRUCT } Kind;
enum { MAX_NEST = 60, PAGE_BYTES = 1 << 20, GROUP_ROWS = 1 << 16 };
static const int64_t GROUP_BYTES = 128 << 20;

typedef struct Node Node;
struct Node {
    const char *name;
    size_t name_n;
    Kind kind;
    int def, rep; /* def when the node is there; rep of a LIST's further items */
    VEC(Node *)
    child;
    /* a leaf's column in the row group being made */
    Buf defs, reps, values, chunk;
    int64_t entries, page_entries, unpacked, at;
};

typedef struct {
    Mem mem;
    Buf *out;
    Node root;
    VEC(Node *)
    leaf;
    PqCodec codec;
    Buf page, packed, footer_groups;
    int64_t n_groups;
    Err *err;
} Writer;

/* ---- the schema that rows have */
static bool clash(Writer *w, const Node *v, Kind now, int64_t row) {
    static const char *const name[] = { "null", "true or false", "a whole number", "a number",
                                        "text", "bytes",         "a list",         "an object" };
    return err_set(w->err, "row %lld: column %s is %s, but %s in rows before: a Parquet column has one type",
                   (long long)row, v->name, name[now], name[v->kind]);
}

static Node *child_named(Writer *w, Node *v, const char *name, size_t n) {
    for (size_t i = 0; i < v->child.n; i++)
        if (v->child.at[i]->name_n == n && !memcmp(v->child.at[i]->name, name, n)) return v->child.at[i];
    Node *c = MEM_NEW(&w->mem, Node);
    c->name = mem_str(&w->mem, name, n);
    c->name_n = n;
    VEC_PUSH(v->child, c);
    return c;
}

/* A column of numbers holds doubles: what is whole is not rounded to one, what is beyond them not made infinite. */
static bool fits(Writer *w, const Node *v, const Json *j, int64_t row) {
    bool whole = j->flag ? j->real >= 0x1p64 || (uint64_t)j->real != j->n : json_big(j) != NULL;
    bool beyond = !j->flag && j->digits && !isfinite(j->real);
    if (!whole && !beyond) return true;
    Buf digits = { 0 };
    json_put_number_own(&digits, j);
    err_set(w->err, "row %lld: column %s is %.60s, which no number of a Parquet file holds: write it as text",
            (long long)row, v->name, digits.data);
    buf_free(&digits);
    return false;
}

static bool learn(Writer *w, Node *v, const Json *j, int64_t row, int depth) {
    static const Kind of[] = { W_NULL, W_BOOL, W_INT, W_REAL, W_TEXT, W_LIST, W_STRUCT };
    if (depth > MAX_NEST) return err_set(w->err, "row %lld: nested more than %d deep", (long long)row, MAX_NEST);
    Kind now = of[j->kind];
    if (now == W_TEXT && j->flag) now = W_BYTES;
    if (now == W_NULL) return true;
    if (now == W_REAL) TRY(fits(w, v, j, row));
    bool number = (v->kind == W_INT || v->kind == W_REAL) && (now == W_INT || now == W_REAL);
    bool text = (v->kind == W_TEXT || v->kind == W_BYTES) && (now == W_TEXT || now == W_BYTES);
    if (v->kind == W_NULL) v->kind = now;
    else if (number || text) v->kind = v->kind > now ? v->kind : now;
    else if (v->kind != now) return clash(w, v, now, row);
    if (now == W_LIST) {
        Node *item = child_named(w, v, "element", 7);
        for (size_t i = 0; i < j->n; i++) TRY(learn(w, item, &j->items[i], row, depth + 1));
    }
    if (now == W_STRUCT)
        for (size_t i = 0; i < j->n; i++)
            TRY(learn(w, child_named(w, v, j->members[i].key, j->members[i].key_n), &j->members[i].value, row,
                      depth + 1));
    return true;
}

static bool settle(Writer *w, Node *v, int def, int rep) {
    if (v->kind == W_NULL)
        v->kind = W_TEXT; /* nothing but nulls: any type holds them, and this one every reader knows */
    v->def = def;
    v->rep = rep;
    if (v->kind == W_STRUCT && !v->child.n)
        return err_set(w->err, "column %s holds objects without members, which Parquet cannot hold", v->name);
    if (v->kind == W_LIST) return v->rep = rep + 1, settle(w, v->child.at[0], def + 2, rep + 1);
    for (size_t i = 0; i < v->child.n; i++) TRY(settle(w, v->child.at[i], def + 1, rep));
    if (v->kind != W_STRUCT) VEC_PUSH(w->leaf, v);
    return true;
}

/* ---- levels: runs of eight and more by count, the rest in packed groups of eight */
static size_t run_at(const char *p, size_t n, size_t i) {
    size_t r = 1;
    while (i + r < n && p[i + r] == p[i]) r++;
    return r;
}

static void put_varint(Buf *b, uint64_t v) {
    for (; v >= 128; v >>= 7) buf_putc(b, (char)(v | 128));
    buf_putc(b, (char)v);
}

static void put_levels(Buf *out, const Buf *levels, int max) {
    if (max == 0) return;
    int width = 0;
    while (max >> width) width++;
    size_t length_at = out->n, n = levels->n;
    buf_put(out, "\0\0\0", 4);
    for (size_t i = 0; i < n;) {
        size_t r = run_at(levels->data, n, i);
        if (r >= 8) {
            put_varint(out, (uint64_t)r << 1);
            buf_putc(out, levels->data[i]);
            i += r;
            continue;
        }
        size_t groups = 1;
        while (i + 8 * groups < n && run_at(levels->data, n, i + 8 * groups) < 8) groups++;
        put_varint(out, (uint64_t)groups << 1 | 1);
        for (size_t g = 0; g < groups; g++, i += 8) {
            uint64_t bits = 0;
            for (size_t k = 0; k < 8 && i + k < n; k++)
                bits |= (uint64_t)(unsigned char)levels->data[i + k] << k * (size_t)width;
            buf_put(out, &bits, (size_t)width); /* little-endian */
        }
    }
    uint32_t len = (uint32_t)(out->n - length_at - 4);
    memcpy(out->data + length_at, &len, 4);
}

/* ---- pages and chunks */
/* Snappy is C++, which ends a program that has no memory by a signal unless somebody says
 * otherwise: std::set_new_handler. */
typedef void NewHandler(void);
extern NewHandler *cxx_on_no_memory(NewHandler *f) __asm__("_ZSt15set_new_handlerPFvvE");
static void no_memory(void) { die_memory(0); }

static void pack(Writer *w) {
    buf_clear(&w->packed);
    size_t n = w->page.n, got;
    if (w->codec == PQ_ZSTD) {
        buf_reserve(&w->packed, ZSTD_compressBound(n));
        got = ZSTD_compress(w->packed.data, w->packed.cap, w->page.data, n, 3);
        if (ZSTD_isError(got)) die_memory(n); /* there is room for the worst: only its tables can be missing */
    } else if (w->codec == PQ_SNAPPY) {
        cxx_on_no_memory(no_memory);
        got = snappy_max_compressed_length(n);
        buf_reserve(&w->packed, got);
        CHECK(snappy_compress(w->page.data, n, w->packed.data, &got) == SNAPPY_OK, "snappy refuses %zu bytes", n);
    } else {
        buf_put(&w->packed, w->page.data, n);
        got = n;
    }
    w->packed.n = got;
}

static void put_bits(Buf *out, const Buf *bytes) {
    for (size_t i = 0; i < bytes->n; i += 8) {
        int bits = 0;
        for (size_t k = 0; k < 8 && i + k < bytes->n; k++) bits |= bytes->data[i + k] << k;
        buf_putc(out, (char)bits);
    }
}

static void flush_page(Writer *w, Node *v) {
    if (!v->page_entries) return;
    buf_clear(&w->page);
    put_levels(&w->page, &v->reps, v->rep);
    put_levels(&w->page, &v->defs, v->def);
    if (v->kind == W_BOOL) put_bits(&w->page, &v->values);
    else buf_put(&w->page, v->values.data, v->values.n);
    pack(w);
    size_t head = v->chunk.n;
    ThriftField h, d;
    thrift_put_begin(&v->chunk, &h);
    thrift_put_int(&v->chunk, &h, 1, THRIFT_I32, 0);
    thrift_put_int(&v->chunk, &h, 2, THRIFT_I32, (int64_t)w->page.n);
    thrift_put_int(&v->chunk, &h, 3, THRIFT_I32, (int64_t)w->packed.n);
    thrift_put_struct(&v->chunk, &h, 5);
    thrift_put_begin(&v->chunk, &d);
    thrift_put_int(&v->chunk, &d, 1, THRIFT_I32, v->page_entries);
    thrift_put_int(&v->chunk, &d, 2, THRIFT_I32, 0);
    thrift_put_int(&v->chunk, &d, 3, THRIFT_I32, 3);
    thrift_put_int(&v->chunk, &d, 4, THRIFT_I32, 3);
    thrift_put_end(&v->chunk);
    thrift_put_end(&v->chunk);
    v->unpacked += (int64_t)(v->chunk.n - head + w->page.n);
    buf_put(&v->chunk, w->packed.data, w->packed.n);
    v->entries += v->page_entries;
    v->page_entries = 0;
    buf_clear(&v->reps);
    buf_clear(&v->defs);
    buf_clear(&v->values);
}

static void put_value(Node *v, const Json *j) {
    double real = j->kind == JSON_INT ? (double)j->integer : j->real;
    uint32_t n = (uint32_t)j->n;
    switch (v->kind) {
    case W_BOOL: buf_putc(&v->values, (char)j->flag); break;
    case W_INT: buf_put(&v->values, &j->integer, 8); break;
    case W_REAL: buf_put(&v->values, &real, 8); break;
    default: buf_put(&v->values, &n, 4); buf_put(&v->values, j->str, n);
    }
}

/* The value j of node v (NULL: not there) into its leaves; def is the level reached above it. */
static void shred(Node *v, const Json *j, int def, int rep) {
    bool there = j && j->kind != JSON_NULL;
    if (v->kind == W_STRUCT)
        for (size_t i = 0; i < v->child.n; i++) {
            Node *c = v->child.at[i];
            const Json *m = NULL;
            /* members mostly come in the order of the schema */
            if (there && i < j->n && j->members[i].key_n == c->name_n && !memcmp(j->members[i].key, c->name, c->name_n))
                m = &j->members[i].value;
            else
                for (size_t k = 0; there && !m && k < j->n; k++)
                    if (j->members[k].key_n == c->name_n && !memcmp(j->members[k].key, c->name, c->name_n))
                        m = &j->members[k].value;
            shred(c, m, there ? v->def : def, rep);
        }
    else if (v->kind == W_LIST) {
        if (!there || !j->n) shred(v->child.at[0], NULL, there ? v->def : def, rep);
        for (size_t i = 0; there && i < j->n; i++) shred(v->child.at[0], &j->items[i], v->def + 1, i ? v->rep : rep);
    } else {
        buf_putc(&v->defs, (char)(there ? v->def : def));
        buf_putc(&v->reps, (char)rep);
        v->page_entries++;
        if (there) put_value(v, j);
    }
}

/* ---- the footer */
static const int physical[] = { 0, 0, 2, 5, 6, 6 }; /* by Kind: BOOLEAN, INT64, DOUBLE, BYTE_ARRAY */

static int count_elements(const Node *v) {
    int n = v->kind == W_LIST ? 2 : 1;
    for (size_t i = 0; i < v->child.n; i++) n += count_elements(v->child.at[i]);
    return n;
}

static void put_group_element(Buf *b, const char *name, size_t name_n, int repeat, size_t children, bool list) {
    ThriftField s, u, inner;
    thrift_put_begin(b, &s);
    if (repeat >= 0) thrift_put_int(b, &s, 3, THRIFT_I32, repeat);
    thrift_put_bytes(b, &s, 4, name, name_n);
    thrift_put_int(b, &s, 5, THRIFT_I32, (int64_t)children);
    if (list) {
        thrift_put_int(b, &s, 6, THRIFT_I32, 3);
        thrift_put_struct(b, &s, 10);
        thrift_put_begin(b, &u);
        thrift_put_struct(b, &u, 3);
        thrift_put_begin(b, &inner);
        thrift_put_end(b);
        thrift_put_end(b);
    }
    thrift_put_end(b);
}

static void put_element(Buf *b, const Node *v) {
    ThriftField s, u, inner;
    if (v->kind == W_STRUCT) put_group_element(b, v->name, v->name_n, 1, v->child.n, false);
    else if (v->kind == W_LIST) {
        put_group_element(b, v->name, v->name_n, 1, 1, true);
        put_group_element(b, "list", 4, 2, 1, false);
    } else {
        thrift_put_begin(b, &s);
        thrift_put_int(b, &s, 1, THRIFT_I32, physical[v->kind]);
        thrift_put_int(b, &s, 3, THRIFT_I32, 1);
        thrift_put_bytes(b, &s, 4, v->name, v->name_n);
        if (v->kind == W_TEXT) {
            thrift_put_int(b, &s, 6, THRIFT_I32, 0);
            thrift_put_struct(b, &s, 10);
            thrift_put_begin(b, &u);
            thrift_put_struct(b, &u, 1);
            thrift_put_begin(b, &inner);
            thrift_put_end(b);
            thrift_put_end(b);
        }
        thrift_put_end(b);
    }
    for (size_t i = 0; i < v->child.n; i++) put_element(b, v->child.at[i]);
}

static bool put_path(Buf *b, const Node *at, const Node *leaf, size_t *n) {
    if (at == leaf) return true;
    for (size_t i = 0; i < at->child.n; i++) {
        Node *c = at->child.at[i];
        Buf below = { 0 };
        size_t more = 0;
        bool found = put_path(&below, c, leaf, &more);
        if (found) {
            *n += more + 1 + (at->kind == W_LIST);
            if (at->kind == W_LIST) thrift_put_text(b, "list", 4);
            thrift_put_text(b, c->name, c->name_n);
            buf_put(b, below.data, below.n);
        }
        buf_free(&below);
        if (found) return true;
    }
    return false;
}

static void put_column_chunk(Writer *w, const Node *v) {
    static const int codec[] = { 0, 1, 6 };
    Buf *b = &w->footer_groups, path = { 0 };
    size_t n = 0;
    put_path(&path, &w->root, v, &n);
    ThriftField c, m;
    thrift_put_begin(b, &c);
    thrift_put_int(b, &c, 2, THRIFT_I64, v->at);
    thrift_put_struct(b, &c, 3);
    thrift_put_begin(b, &m);
    thrift_put_int(b, &m, 1, THRIFT_I32, physical[v->kind]);
    thrift_put_list(b, &m, 2, THRIFT_I32, 2);
    thrift_put_zigzag(b, 0);
    thrift_put_zigzag(b, 3);
    thrift_put_list(b, &m, 3, THRIFT_BINARY, n);
    buf_put(b, path.data, path.n);
    thrift_put_int(b, &m, 4, THRIFT_I32, codec[w->codec]);
    thrift_put_int(b, &m, 5, THRIFT_I64, v->entries);
    thrift_put_int(b, &m, 6, THRIFT_I64, v->unpacked);
    thrift_put_int(b, &m, 7, THRIFT_I64, (int64_t)v->chunk.n);
    thrift_put_int(b, &m, 9, THRIFT_I64, v->at);
    thrift_put_end(b);
    thrift_put_end(b);
    buf_free(&path);
}

static void flush_group(Writer *w, int64_t rows) {
    if (!rows) return;
    Buf *b = &w->footer_groups;
    ThriftField g;
    int64_t bytes = 0;
    thrift_put_begin(b, &g);
    thrift_put_list(b, &g, 1, THRIFT_STRUCT, w->leaf.n);
    for (size_t i = 0; i < w->leaf.n; i++) {
        Node *v = w->leaf.at[i];
        flush_page(w, v);
        v->at = (int64_t)w->out->n;
        buf_put(w->out, v->chunk.data, v->chunk.n);
        put_column_chunk(w, v);
        bytes += v->unpacked;
        v->entries = v->unpacked = 0;
        buf_clear(&v->chunk);
    }
    thrift_put_int(b, &g, 2, THRIFT_I64, bytes);
    thrift_put_int(b, &g, 3, THRIFT_I64, rows);
    thrift_put_end(b);
    w->n_groups++;
}

static void put_footer(Writer *w, int64_t rows) {
    Buf b = { 0 };
    ThriftField f;
    thrift_put_begin(&b, &f);
    thrift_put_int(&b, &f, 1, THRIFT_I32, 2);
    thrift_put_list(&b, &f, 2, THRIFT_STRUCT, (size_t)count_elements(&w->root));
    put_group_element(&b, "schema", 6, -1, w->root.child.n, false);
    for (size_t i = 0; i < w->root.child.n; i++) put_element(&b, w->root.child.at[i]);
    thrift_put_int(&b, &f, 3, THRIFT_I64, rows);
    thrift_put_list(&b, &f, 4, THRIFT_STRUCT, (size_t)w->n_groups);
    buf_put(&b, w->footer_groups.data, w->footer_groups.n);
    thrift_put_bytes(&b, &f, 6, "hone", 4);
    thrift_put_end(&b);
    uint32_t len = (uint32_t)b.n;
    buf_put(w->out, b.data, b.n);
    buf_put(w->out, &len, 4);
    buf_put(w->out, "PAR1", 4);
    buf_free(&b);
}

static void node_free(Node *v) {
    for (size_t i = 0; i < v->child.n; i++) node_free(v->child.at[i]);
    vec_free(v->child.at);
    buf_free(&v->defs);
    buf_free(&v->reps);
    buf_free(&v->values);
    buf_free(&v->chunk);
}

static bool write_rows(Writer *w, const Json *rows, int64_t n, int64_t group_rows) {
    w->root = (Node){ .kind = W_STRUCT, .name = "" };
    for (int64_t i = 0; i < n; i++) {
        if (rows[i].kind != JSON_OBJECT)
            return err_set(w->err, "row %lld is %s, not an object", (long long)i, json_kind_name(rows[i].kind));
        TRY(learn(w, &w->root, &rows[i], i, 0));
    }
    for (size_t i = 0; i < w->root.child.n; i++) TRY(settle(w, w->root.child.at[i], 1, 0));
    buf_put(w->out, "PAR1", 4);
    int64_t in_group = 0;
    for (int64_t i = 0; i < n; i++) {
        shred(&w->root, &rows[i], 0, 0);
        in_group++;
        int64_t bytes = 0;
        for (size_t k = 0; k < w->leaf.n; k++) {
            Node *v = w->leaf.at[k];
            if (v->values.n >= PAGE_BYTES || v->page_entries >= 1 << 20) flush_page(w, v);
            bytes += v->unpacked;
        }
        if (in_group < (group_rows ? group_rows : GROUP_ROWS) && bytes < GROUP_BYTES) continue;
        flush_group(w, in_group);
        in_group = 0;
    }
    flush_group(w, in_group);
    put_footer(w, n);
    return true;
}

bool pq_write_bytes(Buf *out, const Json *rows, int64_t n, PqCodec codec, int64_t group_rows, Err *err) {
    Writer w = { .out = out, .codec = codec, .err = err };
    buf_clear(out);
    bool ok = write_rows(&w, rows, n, group_rows);
    node_free(&w.root);
    vec_free(w.leaf.at);
    buf_free(&w.page);
    buf_free(&w.packed);
    buf_free(&w.footer_groups);
    mem_free(&w.mem);
    return ok;
}

bool pq_write(const char *path, const Json *rows, int64_t n, PqCodec codec, Err *err) {
    Buf b = { 0 };
    bool ok = pq_write_bytes(&b, rows, n, codec, 0, err) || err_wrap(err, "%s", path);
    ok = ok && file_write(path, b.data, b.n, err);
    buf_free(&b);
    return ok;
}
