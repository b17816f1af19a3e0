/* parquet_page.c - a column chunk: a dictionary page perhaps, then data pages of version 1 or 2, until the number of
 * entries that the footer announced has been read. */
#include "file/parquet_in.h"
#include "file/thrift.h"

#include <string.h>
#include <zlib.h>

enum { DATA_PAGE, INDEX_PAGE, DICTIONARY_PAGE, DATA_PAGE_V2 };

typedef struct {
    int64_t type, size, packed, values, encoding, def_encoding, rep_encoding, def_bytes, rep_bytes;
    bool compressed, checked;
    uint32_t crc;
} Page;

/* The header's three bodies, by the number that each gives to what we need (0: it has none). */
typedef struct {
    int values, encoding, def_encoding, rep_encoding, def_bytes, rep_bytes, compressed;
} Body;

static void page_body(ThriftIn *t, Page *p, const Body *b) {
    for (ThriftField f = thrift_begin(t); thrift_field(t, &f);) {
        if (f.id == b->values) p->values = thrift_int(t, &f);
        else if (f.id == b->encoding) p->encoding = thrift_int(t, &f);
        else if (f.id == b->def_encoding) p->def_encoding = thrift_int(t, &f);
        else if (f.id == b->rep_encoding) p->rep_encoding = thrift_int(t, &f);
        else if (f.id == b->def_bytes) p->def_bytes = thrift_int(t, &f);
        else if (f.id == b->rep_bytes) p->rep_bytes = thrift_int(t, &f);
        else if (f.id == b->compressed) p->compressed = thrift_bool(t, &f);
        else thrift_skip(t, &f);
    }
}

static bool page_header(ThriftIn *t, Page *p) {
    static const Body v1 = { .values = 1, .encoding = 2, .def_encoding = 3, .rep_encoding = 4 };
    static const Body dict = { .values = 1, .encoding = 2 };
    static const Body v2 = { .values = 1, .encoding = 4, .def_bytes = 5, .rep_bytes = 6, .compressed = 7 };
    *p = (Page){ .type = -1, .size = -1, .packed = -1, .compressed = true, .def_encoding = 3, .rep_encoding = 3 };
    for (ThriftField f = thrift_begin(t); thrift_field(t, &f);) switch (f.id) {
        case 1: p->type = thrift_int(t, &f); break;
        case 2: p->size = thrift_int(t, &f); break;
        case 3: p->packed = thrift_int(t, &f); break;
        case 4:
            p->checked = true;
            p->crc = (uint32_t)thrift_int(t, &f);
            break;
        case 5:
            if (thrift_struct(t, &f)) page_body(t, p, &v1);
            break;
        case 7:
            if (thrift_struct(t, &f)) page_body(t, p, &dict);
            break;
        case 8:
            if (thrift_struct(t, &f)) page_body(t, p, &v2);
            break;
        default: thrift_skip(t, &f);
        }
    return !t->bad && p->size >= 0 && p->packed >= 0 && p->packed <= t->end - t->at && p->values >= 0;
}

typedef struct {
    const PqFile *f;
    const PqChunk *chunk;
    const PqNode *leaf;
    Mem *mem;
    PqData *out;
    Json *dict;
    int64_t n_dict;
    Err *err;
} Reader;

/* The page's bytes from 'skip' on, unpacked into memory of ours with one byte to spare. */
static bool unpack(Reader *r, const Page *p, const uint8_t *from, int64_t skip, uint8_t **at, uint8_t **end) {
    size_t n = (size_t)(p->packed - skip), size = (size_t)(p->size - skip);
    int codec = p->compressed ? r->chunk->codec : 0;
    if (size && !n && codec) return err_set(r->err, "a page of nothing that claims to hold %zu bytes", size);
    if (p->size > r->f->max_page || !pq_may_unpack(codec, n, size))
        return err_set(r->err, "a page of %zu bytes of %s claims to unpack to %zu", n, pq_codec_name(codec), size);
    *at = mem_push(r->mem, size + 1);
    *end = *at + size;
    if (size == 0) return true;
    return pq_unpack(codec, from + skip, n, *at, size, r->err);
}

static bool read_dictionary(Reader *r, const Page *p, const uint8_t *from) {
    if (r->dict) return err_set(r->err, "a second dictionary");
    if (p->encoding != 0 && p->encoding != 2) return err_set(r->err, "a dictionary that is not in PLAIN encoding");
    uint8_t *at, *end;
    TRY(unpack(r, p, from, 0, &at, &end));
    int64_t least = r->leaf->type == PQ_BYTE_ARRAY ? 4 : r->leaf->width ? r->leaf->width : 1; /* bytes an item takes */
    if (r->leaf->type == PQ_BOOLEAN || p->values > (end - at) / least)
        return err_set(r->err, "a dictionary of %lld items in %lld bytes", (long long)p->values, (long long)(end - at));
    r->dict = MEM_ARRAY(r->mem, Json, (size_t)p->values);
    r->n_dict = p->values;
    return pq_decode(r->leaf, 0, at, end, p->values, NULL, 0, r->mem, r->dict, r->err);
}

/* Version 1 puts a length in front of each kind of levels. */
static bool take_levels(uint8_t **at, const uint8_t *end, int max, int64_t n, uint8_t *out) {
    if (!max) return true;
    uint32_t len;
    if (end - *at < 4) return false;
    memcpy(&len, *at, 4);
    *at += 4;
    if (len > (size_t)(end - *at) || !pq_levels(*at, *at + len, max, n, out)) return false;
    *at += len;
    return true;
}

static bool read_data(Reader *r, const Page *p, const uint8_t *from) {
    PqData *d = r->out;
    uint8_t *at, *end, *def = d->def ? d->def + d->n : NULL, *rep = d->rep ? d->rep + d->n : NULL;
    if (p->values > r->chunk->values - d->n) return err_set(r->err, "its pages hold more values than it announces");
    if (p->type == DATA_PAGE) {
        if ((def && p->def_encoding != 3) || (rep && p->rep_encoding != 3))
            return err_set(r->err, "levels in the old BIT_PACKED encoding are not supported");
        TRY(unpack(r, p, from, 0, &at, &end));
        if (!take_levels(&at, end, r->leaf->rep, p->values, rep)
            || !take_levels(&at, end, r->leaf->def, p->values, def))
            return err_set(r->err, "the levels of a page are damaged");
    } else {
        int64_t skip = p->def_bytes + p->rep_bytes;
        if (p->def_bytes < 0 || p->rep_bytes < 0 || p->def_bytes > p->packed || p->rep_bytes > p->packed
            || skip > p->packed || skip > p->size)
            return err_set(r->err, "the levels of a page lie outside it");
        if ((rep && !pq_levels(from, from + p->rep_bytes, r->leaf->rep, p->values, rep))
            || (def && !pq_levels(from + p->rep_bytes, from + skip, r->leaf->def, p->values, def)))
            return err_set(r->err, "the levels of a page are damaged");
        TRY(unpack(r, p, from, skip, &at, &end));
    }
    int64_t present = def ? 0 : p->values;
    for (int64_t i = 0; def && i < p->values; i++) present += def[i] == r->leaf->def;
    TRY(pq_decode(r->leaf, (int)p->encoding, at, end, present, r->dict, r->n_dict, r->mem, d->value + d->n_values,
                  r->err));
    d->n += p->values;
    d->n_values += present;
    return true;
}

static bool read_pages(Reader *r) {
    if (r->chunk->values == 0) return true;
    ThriftIn t = { .at = r->f->data + r->chunk->at };
    /* Old writers forgot the dictionary page's header in the chunk's size; the values are counted, so a little
     * beyond its end may be looked at. */
    size_t behind = r->f->n - (size_t)r->chunk->at - (size_t)r->chunk->bytes;
    t.end = t.at + r->chunk->bytes + (behind < 100 ? behind : 100);
    while (r->out->n < r->chunk->values) {
        Page p;
        t.depth = 0;
        if (t.at >= t.end)
            return err_set(r->err, "it ends after %lld of %lld values", (long long)r->out->n,
                           (long long)r->chunk->values);
        if (!page_header(&t, &p)) return err_set(r->err, "the header of a page is damaged");
        const uint8_t *from = t.at;
        t.at += p.packed;
        if (p.checked && p.packed <= UINT32_MAX && crc32(0, from, (uInt)p.packed) != p.crc)
            return err_set(r->err, "a page does not have the checksum that its header names: the file is damaged");
        if (p.type == DICTIONARY_PAGE) TRY(read_dictionary(r, &p, from));
        else if (p.type == DATA_PAGE || p.type == DATA_PAGE_V2) TRY(read_data(r, &p, from));
        else if (p.type != INDEX_PAGE) return err_set(r->err, "a page of the unknown type %lld", (long long)p.type);
    }
    return true;
}

/* A run of a million equal values may take ten bytes, and a group of millions of rows is real; beyond that writers
 * begin a page every few thousand rows, and 4096 values for a byte is more than any makes. */
static bool believed(const PqFile *f, const PqChunk *c) {
    return c->values <= f->max_values && (c->values <= 1 << 24 || c->values >> 12 <= c->bytes);
}

size_t pq_chunk_room(const PqFile *f, const PqGroup *g, int leaf) {
    const PqChunk *c = &g->chunk[leaf];
    bool known = c->unpacked > 0 && c->unpacked <= f->max_page;
    size_t pages = known && pq_may_unpack(c->codec, (size_t)c->bytes, (size_t)c->unpacked) ? (size_t)c->unpacked : 0;
    return pages + (pages >> 4) + 4096;
}
size_t pq_work_room(const PqFile *f, const PqGroup *g, int leaf) {
    const PqChunk *c = &g->chunk[leaf];
    const PqNode *v = f->leaf[leaf];
    return (size_t)c->values * (sizeof(Json) + (v->def > 0) + (v->rep > 0)) + 64;
}

bool pq_may_read(const PqFile *f, const PqGroup *g, int leaf, Err *err) {
    const PqChunk *c = &g->chunk[leaf];
    const PqNode *v = f->leaf[leaf];
    if (!believed(f, c))
        return err_set(err, "%s: column %s: %lld values in %lld bytes are not believed", f->name, v->name,
                       (long long)c->values, (long long)c->bytes);
    if (v->rep ? c->values < g->rows : c->values != g->rows)
        return err_set(err, "%s: column %s has %lld values for %lld rows", f->name, v->name, (long long)c->values,
                       (long long)g->rows);
    return true;
}

bool pq_read_chunk(const PqFile *f, const PqGroup *g, int leaf, Mem *mem, Mem *work, PqData *out, Err *err) {
    const PqChunk *c = &g->chunk[leaf];
    const PqNode *v = f->leaf[leaf];
    *out = (PqData){ 0 };
    if (v->def) out->def = mem_push(work, (size_t)c->values);
    if (v->rep) out->rep = mem_push(work, (size_t)c->values);
    out->value = MEM_ARRAY(work, Json, (size_t)c->values);
    Reader r = { .f = f, .chunk = c, .leaf = v, .mem = mem, .out = out, .err = err };
    return read_pages(&r) || err_wrap(err, "%s: column %s", f->name, v->name);
}
