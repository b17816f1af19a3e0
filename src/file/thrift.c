/* thrift.c - Thrift's compact protocol, read and written, as Parquet uses it. */
#include "file/thrift.h"

#include <string.h>

enum { MAX_DEPTH = 64 };

static uint8_t byte(ThriftIn *t) {
    if (t->bad || t->at >= t->end) return t->bad = true, 0;
    return *t->at++;
}

static uint64_t varint(ThriftIn *t) {
    uint64_t v = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t c = byte(t);
        v |= (uint64_t)(c & 127) << shift;
        if (!(c & 128)) return v;
    }
    return t->bad = true, 0;
}

static int64_t zigzag(ThriftIn *t) {
    uint64_t v = varint(t);
    return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

ThriftField thrift_begin(ThriftIn *t) {
    if (++t->depth > MAX_DEPTH) t->bad = true;
    return (ThriftField){ 0 };
}

bool thrift_field(ThriftIn *t, ThriftField *f) {
    uint8_t c = byte(t);
    f->type = c & 15;
    if (t->bad || f->type == THRIFT_STOP) return t->depth--, false;
    if (f->type > THRIFT_STRUCT) return t->bad = true, t->depth--, false;
    f->id = (int16_t)(c >> 4 ? f->id + (c >> 4) : zigzag(t));
    return !t->bad;
}

int64_t thrift_int(ThriftIn *t, const ThriftField *f) {
    if (f->type == THRIFT_I8) return (int8_t)byte(t);
    if (f->type == THRIFT_I16 || f->type == THRIFT_I32 || f->type == THRIFT_I64) return zigzag(t);
    return t->bad = true, 0;
}

bool thrift_bool(ThriftIn *t, const ThriftField *f) {
    if (f->type != THRIFT_TRUE && f->type != THRIFT_FALSE) t->bad = true;
    return f->type == THRIFT_TRUE;
}

const char *thrift_bytes(ThriftIn *t, const ThriftField *f, size_t *n) {
    *n = 0;
    if (f->type != THRIFT_BINARY) return t->bad = true, "";
    uint64_t len = varint(t);
    if (t->bad || len > (uint64_t)(t->end - t->at)) return t->bad = true, "";
    const char *p = (const char *)t->at;
    t->at += len;
    *n = (size_t)len;
    return p;
}

bool thrift_struct(ThriftIn *t, const ThriftField *f) {
    if (f->type != THRIFT_STRUCT) t->bad = true;
    return !t->bad;
}

size_t thrift_list(ThriftIn *t, const ThriftField *f, ThriftField *item) {
    *item = (ThriftField){ 0 };
    if (f->type != THRIFT_LIST && f->type != THRIFT_SET) return t->bad = true, 0;
    uint8_t c = byte(t);
    uint64_t n = c >> 4 == 15 ? varint(t) : (uint64_t)(c >> 4);
    item->type = c & 15;
    if (t->bad || n > (uint64_t)(t->end - t->at) || item->type > THRIFT_STRUCT || item->type == THRIFT_STOP)
        return t->bad = true, 0;
    return (size_t)n;
}

static void skip_value(ThriftIn *t, uint8_t type, bool in_list) {
    size_t n;
    ThriftField f = { .type = type }, item;
    if (++t->depth > MAX_DEPTH) t->bad = true;
    if (!t->bad) switch (type) {
        case THRIFT_TRUE:
        case THRIFT_FALSE:
            if (in_list) byte(t);
            break;
        case THRIFT_I8:
        case THRIFT_I16:
        case THRIFT_I32:
        case THRIFT_I64: thrift_int(t, &f); break;
        case THRIFT_DOUBLE:
            if (t->end - t->at < 8) t->bad = true;
            else t->at += 8;
            break;
        case THRIFT_BINARY: thrift_bytes(t, &f, &n); break;
        case THRIFT_LIST:
        case THRIFT_SET:
            n = thrift_list(t, &f, &item);
            for (size_t i = 0; i < n && !t->bad; i++) skip_value(t, item.type, true);
            break;
        case THRIFT_MAP: {
            uint64_t count = varint(t);
            uint8_t kinds = count ? byte(t) : 0;
            for (uint64_t i = 0; i < count && !t->bad; i++) {
                skip_value(t, kinds >> 4, true);
                skip_value(t, kinds & 15, true);
            }
            break;
        }
        case THRIFT_STRUCT:
            for (ThriftField g = thrift_begin(t); thrift_field(t, &g);) skip_value(t, g.type, false);
            break;
        default: t->bad = true;
        }
    t->depth--;
}

void thrift_skip(ThriftIn *t, const ThriftField *f) { skip_value(t, f->type, false); }

/* ---- writing */
static void put_varint(Buf *b, uint64_t v) {
    for (; v >= 128; v >>= 7) buf_putc(b, (char)(v | 128));
    buf_putc(b, (char)v);
}

static void put_head(Buf *b, ThriftField *s, int id, ThriftType type) {
    int step = id - s->id;
    CHECK(step > 0 && step < 16, "thrift field %d written after %d", id, s->id);
    buf_putc(b, (char)(step << 4 | (int)type));
    s->id = (int16_t)id;
}

void thrift_put_begin(Buf *b, ThriftField *s) {
    (void)b;
    *s = (ThriftField){ 0 };
}

void thrift_put_zigzag(Buf *b, int64_t v) { put_varint(b, (uint64_t)v << 1 ^ (uint64_t)(v >> 63)); }

void thrift_put_text(Buf *b, const char *bytes, size_t n) {
    put_varint(b, n);
    buf_put(b, bytes, n);
}

void thrift_put_int(Buf *b, ThriftField *s, int id, ThriftType type, int64_t v) {
    put_head(b, s, id, type);
    if (type == THRIFT_I8) buf_putc(b, (char)v);
    else thrift_put_zigzag(b, v);
}

void thrift_put_bytes(Buf *b, ThriftField *s, int id, const char *bytes, size_t n) {
    put_head(b, s, id, THRIFT_BINARY);
    thrift_put_text(b, bytes, n);
}

void thrift_put_struct(Buf *b, ThriftField *s, int id) { put_head(b, s, id, THRIFT_STRUCT); }

void thrift_put_list(Buf *b, ThriftField *s, int id, ThriftType item, size_t n) {
    put_head(b, s, id, THRIFT_LIST);
    if (n < 15) buf_putc(b, (char)(n << 4 | (size_t)item));
    else {
        buf_putc(b, (char)(0xF0 | (int)item));
        put_varint(b, n);
    }
}

void thrift_put_end(Buf *b) { buf_putc(b, THRIFT_STOP); }
