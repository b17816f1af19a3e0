/* tok_decoder.c - reads the "decoder" of a tokenizer.json into the chain that tok_decode.c runs. */
#include "base/utf8.h"
#include "text/tok_parts.h"

#include <string.h>

static bool one_character(DecodeStep *d, const Json *c, const char *what, Err *err) {
    uint32_t code;
    if (!c || c->kind != JSON_STRING || c->n == 0 || c->n > 4 || utf8_get(c->str, c->n, &code) != (int)c->n)
        return err_set(err, "the decoder's %s must be one character", what);
    memcpy(d->mark, c->str, c->n);
    d->mark_n = (int)c->n;
    return true;
}

static bool open_strip(DecodeStep *d, const Json *piece, Err *err) {
    int64_t start = 0, stop = 0;
    TRY(json_int(piece, "start", &start, err) && json_int(piece, "stop", &stop, err));
    if (start < 0 || stop < 0 || start > INT32_MAX || stop > INT32_MAX)
        return err_set(err, "the decoder Strip cuts 0 or more characters");
    d->start = (size_t)start;
    d->stop = (size_t)stop;
    return one_character(d, json_get(piece, "content"), "\"content\" (Strip)", err);
}

static bool open_metaspace(DecodeStep *d, const Json *piece, Err *err) {
    const char *scheme = "always";
    bool old = true;
    TRY(json_str(piece, "prepend_scheme", &scheme, err) && json_bool(piece, "add_prefix_space", &old, err));
    if (strcmp(scheme, "always") && strcmp(scheme, "first") && strcmp(scheme, "never"))
        return err_set(err, "\"prepend_scheme\" cannot be \"%.40s\"", scheme);
    d->prepended = old && strcmp(scheme, "never");
    return one_character(d, json_get(piece, "replacement"), "\"replacement\" (Metaspace)", err);
}

static bool add_step(Decoder *dec, const Json *piece, int depth, Mem *mem, Err *err) {
    static const struct {
        const char *type;
        DecodeKind kind;
    } known[] = {
        { "ByteLevel", DECODE_BYTES }, { "ByteFallback", DECODE_FALLBACK }, { "Fuse", DECODE_FUSE },
        { "Strip", DECODE_STRIP },     { "Replace", DECODE_REPLACE },       { "Metaspace", DECODE_METASPACE },
    };
    const char *type;
    TRY(piece_type(piece, "decoder", &type, err));
    if (!strcmp(type, "Sequence")) {
        const Json *list = json_get(piece, "decoders");
        if (!list || list->kind != JSON_ARRAY || depth >= TEXT_DEPTH)
            return err_set(err, "the decoder Sequence wants \"decoders\", an array, at most %d deep", TEXT_DEPTH);
        for (size_t i = 0; i < list->n; i++) TRY(add_step(dec, &list->items[i], depth + 1, mem, err));
        return true;
    }
    size_t k = 0;
    while (k < COUNT(known) && strcmp(known[k].type, type)) k++;
    if (k == COUNT(known)) return err_set(err, "the decoder %.60s is not supported", type);
    if (dec->n == DECODE_MAX) return err_set(err, "a chain of more than %d decoders is not supported", DECODE_MAX);
    DecodeStep *d = &dec->step[dec->n++];
    *d = (DecodeStep){ .kind = known[k].kind };
    if (dec->n > 1) d->joined = d[-1].joined || d[-1].kind == DECODE_FUSE || d[-1].kind == DECODE_BYTES;
    switch (d->kind) {
    case DECODE_STRIP: return open_strip(d, piece, err);
    case DECODE_METASPACE: return open_metaspace(d, piece, err);
    case DECODE_REPLACE: return replace_open(&d->replace, piece, mem, err);
    default: return true;
    }
}

bool decoder_open(Decoder *d, const Json *piece, Mem *mem, Err *err) {
    if (piece && piece->kind != JSON_NULL) return add_step(d, piece, 0, mem, err);
    d->step[0] = (DecodeStep){ .kind = DECODE_SPACES }; /* tokens with spaces between them */
    d->n = 1;
    return true;
}

void decoder_close(Decoder *d) {
    for (int i = 0; i < d->n; i++) regex_close(d->step[i].replace.regex);
}
