/* pretok.c - the pre-tokenizers of tokenizer.json: see pretok.h.  A Sequence is flattened into a list of steps; a
 * step turns the list of pieces into a longer one, and only Metaspace and ByteLevel change the text itself. */
#include "text/pretok.h"
#include "base/utf8.h"

#include <string.h>

#define GPT2_PATTERN "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"

typedef enum { CUT_REMOVED, CUT_ISOLATED, CUT_PREVIOUS, CUT_NEXT, CUT_CONTIGUOUS } Behavior;
typedef enum { STEP_SPLIT, STEP_SET, STEP_WHITESPACE, STEP_BYTES, STEP_METASPACE } StepKind;
typedef enum { PREPEND_ALWAYS, PREPEND_NEVER, PREPEND_FIRST } Prepend;

typedef struct {
    StepKind kind;
    Behavior behavior;
    bool invert;
    Regex *regex;            /* STEP_SPLIT; STEP_BYTES, or NULL */
    const UnicodeBits *bits; /* STEP_SET: each character is a match of its own; STEP_WHITESPACE: \w */
    bool prefix_space, map;  /* STEP_BYTES: map: into printable characters, now */
    char mark[4];            /* STEP_METASPACE */
    int mark_n;
    Prepend prepend;
    bool split;
} Step;

struct Pretok {
    Mem mem;
    VEC(Step)
    steps;
};

/* ---- bytes as characters: the 188 printable ones of Latin-1 stand for themselves, the others follow from U+0100 on */
static bool stands_for_itself(unsigned b) { return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE; }

uint32_t byte_char(unsigned char byte) {
    unsigned b = byte;
    if (stands_for_itself(b)) return b;
    return b <= 0x20 ? 0x100 + b : b <= 0xA0 ? 0x100 + 33 + (b - 0x7F) : 0x143;
}

int char_byte(uint32_t c) {
    if (c < 0x100) return stands_for_itself(c) ? (int)c : -1;
    if (c <= 0x120) return (int)(c - 0x100);
    if (c <= 0x142) return (int)(c - 0x121 + 0x7F);
    return c == 0x143 ? 0xAD : -1;
}

void put_byte_char(Buf *b, unsigned char byte) {
    char utf[4];
    buf_put(b, utf, (size_t)utf8_put(utf, byte_char(byte)));
}

/* ---- cutting */
static inline void emit(Pieces *out, const Piece *from, size_t at, size_t end) {
    if (at < end) VEC_PUSH(out->list, (Piece){ from->at + at, end - at, from->start && at == 0 });
}

/* What becomes of matches and of what lies between them, for the behaviours that look at neighbours. */
static void emit_cuts(const Step *step, PretokScratch *s, const Piece *from, Pieces *out) {
    size_t n = s->cuts.n, first = out->list.n;
    bool hit_before = false;
    for (size_t k = 0; k < n; k++) {
        size_t i = step->behavior == CUT_NEXT ? n - 1 - k : k;
        size_t at = s->cuts.at[i].at, end = s->cuts.at[i].end;
        bool hit = s->cuts.at[i].hit != step->invert, any = out->list.n > first;
        Piece *last = any ? &out->list.at[out->list.n - 1] : NULL;
        bool joins = step->behavior == CUT_CONTIGUOUS ? hit == hit_before : hit && !hit_before;
        if (step->behavior == CUT_REMOVED || step->behavior == CUT_ISOLATED) joins = false;
        if (joins && last && step->behavior == CUT_NEXT) {
            last->n += last->at - (from->at + at);
            last->at = from->at + at;
            last->start = from->start && at == 0;
        } else if (joins && last) {
            last->n = from->at + end - last->at;
        } else if (!(hit && step->behavior == CUT_REMOVED)) {
            VEC_PUSH(out->list, (Piece){ from->at + at, end - at, from->start && at == 0 });
        }
        hit_before = hit;
    }
    if (step->behavior == CUT_NEXT)
        for (size_t i = first, j = out->list.n; i + 1 < j; i++) {
            Piece t = out->list.at[i];
            out->list.at[i] = out->list.at[--j];
            out->list.at[j] = t;
        }
    size_t keep = first;
    for (size_t i = first; i < out->list.n; i++)
        if (out->list.at[i].n) out->list.at[keep++] = out->list.at[i];
    out->list.n = keep;
}

static bool split_regex(const Step *step, PretokScratch *s, const char *text, const Piece *from, Pieces *out,
                        Err *err) {
    bool simple = step->behavior == CUT_ISOLATED || step->kind == STEP_BYTES;
    size_t at = 0, done = 0, a, b, last = SIZE_MAX, n = from->n;
    int found;
    s->cuts.n = 0;
    while (at <= n && (found = regex_find(step->regex, s->regex, text + from->at, n, at, &a, &b)) != 0) {
        if (found < 0) return err_set(err, "a pattern of the pre-tokenizer takes too long on this text");
        if (a == b && b == last) { /* nothing, right behind the last match: look one character on */
            at++;
            while (at < n && (text[from->at + at] & 0xC0) == 0x80) at++;
            continue;
        }
        if (simple) {
            emit(out, from, done, a);
            emit(out, from, a, b);
        } else {
            if (done < a) VEC_PUSH(s->cuts, (Cut){ done, a, false });
            VEC_PUSH(s->cuts, (Cut){ a, b, true });
        }
        done = at = last = b;
    }
    if (simple) {
        emit(out, from, done, n);
    } else {
        if (done < n) VEC_PUSH(s->cuts, (Cut){ done, n, false });
        emit_cuts(step, s, from, out);
    }
    return true;
}

/* Every character of the set is a match. */
static void split_set(const Step *step, PretokScratch *s, const char *text, const Piece *from, Pieces *out) {
    const char *t = text + from->at;
    size_t done = 0;
    bool simple = step->behavior == CUT_ISOLATED;
    s->cuts.n = 0;
    for (size_t i = 0; i < from->n;) {
        uint32_t c = 0;
        size_t len = (size_t)utf8_get(t + i, from->n - i, &c);
        if (ubits_has(step->bits, c)) {
            if (simple) {
                emit(out, from, done, i);
                emit(out, from, i, i + len);
            } else {
                if (done < i) VEC_PUSH(s->cuts, (Cut){ done, i, false });
                VEC_PUSH(s->cuts, (Cut){ i, i + len, true });
            }
            done = i + len;
        }
        i += len;
    }
    if (simple) {
        emit(out, from, done, from->n);
    } else {
        if (done < from->n) VEC_PUSH(s->cuts, (Cut){ done, from->n, false });
        emit_cuts(step, s, from, out);
    }
}

/* Runs of \w, and runs of what is neither \w nor space. */
static void split_words(const Step *step, const char *text, const Piece *from, Pieces *out) {
    const char *t = text + from->at;
    size_t done = 0;
    int run = 0; /* 0 space, 1 word, 2 other */
    for (size_t i = 0; i < from->n;) {
        uint32_t c = 0;
        size_t len = (size_t)utf8_get(t + i, from->n - i, &c);
        int kind = ubits_has(step->bits, c) ? 1 : unicode_space(c) ? 0 : 2;
        if (kind != run) {
            if (run) emit(out, from, done, i);
            done = i;
            run = kind;
        }
        i += len;
    }
    if (run) emit(out, from, done, from->n);
}

/* Spaces become the mark; a piece gets one in front unless it has it; then every mark begins a new piece. */
static void metaspace(const Step *step, const char *text, const Piece *from, bool goes_on, Pieces *out) {
    Buf *b = &out->own;
    size_t at = b->n, m = (size_t)step->mark_n;
    const char *t = text + from->at, *end = t + from->n;
    bool has = *t == ' ' || (from->n >= m && !memcmp(t, step->mark, m));
    bool want = step->prepend == PREPEND_ALWAYS || (step->prepend == PREPEND_FIRST && from->start);
    if (want && !has && !goes_on) buf_put(b, step->mark, m);
    while (t < end) {
        const char *space = memchr(t, ' ', (size_t)(end - t)), *to = space ? space : end;
        buf_put(b, t, (size_t)(to - t));
        if (space) buf_put(b, step->mark, m);
        t = space ? space + 1 : end;
    }
    size_t n = b->n - at, done = 0;
    Piece whole = { at, n, from->start };
    for (size_t i = 1; step->split && i + m <= n; i++)
        if (!memcmp(b->data + at + i, step->mark, m)) {
            emit(out, &whole, done, i);
            done = i;
        }
    emit(out, &whole, done, n);
}

static bool bytes(const Step *step, PretokScratch *s, const char *text, const Piece *from, bool goes_on, Pieces *out,
                  bool changes, Err *err) {
    Piece whole = *from;
    if (changes) {
        whole.at = out->own.n;
        if (step->prefix_space && !goes_on && text[from->at] != ' ') buf_putc(&out->own, ' ');
        buf_put(&out->own, text + from->at, from->n);
        whole.n = out->own.n - whole.at;
        text = out->own.data;
    }
    if (step->regex) return split_regex(step, s, text, &whole, out, err);
    VEC_PUSH(out->list, whole);
    return true;
}

static void map_bytes(const Pieces *in, Pieces *out) {
    for (size_t i = 0; i < in->list.n; i++) {
        Piece p = in->list.at[i];
        size_t at = out->own.n;
        for (size_t k = 0; k < p.n; k++) put_byte_char(&out->own, (unsigned char)in->text[p.at + k]);
        VEC_PUSH(out->list, (Piece){ at, out->own.n - at, p.start });
    }
    out->text = out->own.data ? out->own.data : "";
}

static void clear(Pieces *p, const char *text) {
    p->list.n = 0;
    buf_clear(&p->own);
    p->text = text;
}

bool pretok_apply(const Pretok *p, PretokScratch *s, const char *text, size_t n, bool start, const Pieces **result,
                  Err *err) {
    Pieces *in = &s->a, *out = &s->b;
    clear(in, text);
    if (n) VEC_PUSH(in->list, (Piece){ 0, n, start });
    for (size_t i = 0; i < p->steps.n; i++) {
        const Step *step = &p->steps.at[i];
        if (step->kind == STEP_BYTES && !step->regex && !step->prefix_space && !step->map) continue;
        bool changes = step->kind == STEP_METASPACE || (step->kind == STEP_BYTES && step->prefix_space);
        clear(out, in->text);
        for (size_t k = 0; k < in->list.n; k++) {
            const Piece *from = &in->list.at[k];
            bool goes_on = s->goes_on && k == 0;
            switch (step->kind) {
            case STEP_SPLIT: TRY(split_regex(step, s, in->text, from, out, err)); break;
            case STEP_SET: split_set(step, s, in->text, from, out); break;
            case STEP_WHITESPACE: split_words(step, in->text, from, out); break;
            case STEP_BYTES: TRY(bytes(step, s, in->text, from, goes_on, out, changes, err)); break;
            case STEP_METASPACE: metaspace(step, in->text, from, goes_on, out); break;
            }
        }
        if (changes) out->text = out->own.data ? out->own.data : "";
        Pieces *t = in;
        in = out;
        out = t;
        if (step->kind == STEP_BYTES && step->map) {
            clear(out, NULL);
            map_bytes(in, out);
            t = in;
            in = out;
            out = t;
        }
    }
    *result = in;
    return true;
}

/* ---- building */
static bool read_behavior(const Json *piece, Behavior *b, Err *err) {
    static const char *const name[][2] = {
        { "Removed", "removed" },
        { "Isolated", "isolated" },
        { "MergedWithPrevious", "merged_with_previous" },
        { "MergedWithNext", "merged_with_next" },
        { "Contiguous", "contiguous" },
    };
    const char *s = NULL;
    TRY(json_str(piece, "behavior", &s, err));
    for (int i = 0; s && i < (int)COUNT(name); i++)
        if (!strcmp(s, name[i][0]) || !strcmp(s, name[i][1])) return *b = (Behavior)i, true;
    return !s || err_set(err, "\"behavior\" cannot be \"%.40s\"", s);
}

static bool open_split(Step *s, const Json *piece, Mem *mem, Err *err) {
    (void)mem;
    s->kind = STEP_SPLIT;
    if (!json_get(piece, "behavior")) return err_set(err, "Split has no \"behavior\"");
    TRY(read_behavior(piece, &s->behavior, err) && json_bool(piece, "invert", &s->invert, err));
    s->regex = pattern_open(piece, err);
    return s->regex != NULL;
}

static bool open_digits(Step *s, const Json *piece, Mem *mem, Err *err) {
    bool each = false;
    TRY(json_bool(piece, "individual_digits", &each, err));
    s->kind = STEP_SET;
    s->behavior = each ? CUT_ISOLATED : CUT_CONTIGUOUS;
    s->bits = ubits_named(USET_NUMERIC, mem);
    return true;
}

static bool open_punctuation(Step *s, const Json *piece, Mem *mem, Err *err) {
    s->kind = STEP_SET;
    s->behavior = CUT_ISOLATED;
    s->bits = ubits_named(USET_PUNCT, mem);
    return read_behavior(piece, &s->behavior, err);
}

static bool open_whitespace_split(Step *s, const Json *piece, Mem *mem, Err *err) {
    (void)piece, (void)err;
    s->kind = STEP_SET;
    s->behavior = CUT_REMOVED;
    s->bits = ubits_named(USET_SPACE, mem);
    return true;
}

static bool open_whitespace(Step *s, const Json *piece, Mem *mem, Err *err) {
    (void)piece, (void)err;
    s->kind = STEP_WHITESPACE;
    s->bits = ubits_named(USET_RUST_W, mem);
    return true;
}

static bool open_bytes(Step *s, const Json *piece, Mem *mem, Err *err) {
    (void)mem;
    bool use_regex = true;
    s->kind = STEP_BYTES;
    s->behavior = CUT_ISOLATED;
    s->prefix_space = true;
    TRY(json_bool(piece, "add_prefix_space", &s->prefix_space, err) && json_bool(piece, "use_regex", &use_regex, err));
    if (use_regex) s->regex = regex_open(GPT2_PATTERN, strlen(GPT2_PATTERN), REGEX_BEST, err);
    return !use_regex || s->regex;
}

static bool open_metaspace(Step *s, const Json *piece, Mem *mem, Err *err) {
    (void)mem;
    static const char *const schemes[] = { "always", "never", "first" };
    const Json *mark = json_get(piece, "replacement"), *old = json_get(piece, "add_prefix_space");
    uint32_t c;
    s->kind = STEP_METASPACE;
    s->split = true;
    if (!mark || mark->kind != JSON_STRING || utf8_get(mark->str, mark->n, &c) != (int)mark->n || mark->n == 0)
        return err_set(err, "the \"replacement\" of Metaspace must be one character");
    memcpy(s->mark, mark->str, mark->n);
    s->mark_n = (int)mark->n;
    const char *scheme = NULL;
    TRY(json_str(piece, "prepend_scheme", &scheme, err) && json_bool(piece, "split", &s->split, err));
    int k = 0;
    while (scheme && k < 3 && strcmp(schemes[k], scheme)) k++;
    if (k == 3) return err_set(err, "\"prepend_scheme\" cannot be \"%.40s\"", scheme);
    s->prepend = (Prepend)k;
    if (old && old->kind == JSON_BOOL && !old->flag) {
        if (scheme && s->prepend != PREPEND_NEVER)
            return err_set(err, "Metaspace: add_prefix_space and prepend_scheme disagree");
        s->prepend = PREPEND_NEVER;
    }
    return true;
}

static bool add_step(Pretok *p, const Json *piece, int depth, Err *err) {
    static const struct {
        const char *type;
        bool (*open)(Step *, const Json *, Mem *, Err *);
    } known[] = {
        { "Split", open_split },
        { "Digits", open_digits },
        { "ByteLevel", open_bytes },
        { "Metaspace", open_metaspace },
        { "Whitespace", open_whitespace },
        { "WhitespaceSplit", open_whitespace_split },
        { "Punctuation", open_punctuation },
    };
    const char *type;
    TRY(piece_type(piece, "pre_tokenizer", &type, err));
    if (!strcmp(type, "Sequence")) {
        const Json *list = json_get(piece, "pretokenizers");
        if (!list || list->kind != JSON_ARRAY || depth >= TEXT_DEPTH)
            return err_set(err, "the pre_tokenizer Sequence wants \"pretokenizers\", an array, at most %d deep",
                           TEXT_DEPTH);
        for (size_t i = 0; i < list->n; i++) TRY(add_step(p, &list->items[i], depth + 1, err));
        return true;
    }
    for (size_t k = 0; k < COUNT(known); k++) {
        if (strcmp(known[k].type, type)) continue;
        Step s = { 0 };
        bool ok = known[k].open(&s, piece, &p->mem, err);
        VEC_PUSH(p->steps, s);
        return ok;
    }
    return err_set(err, "the pre_tokenizer %.60s is not supported", type);
}

Pretok *pretok_open(const Json *piece, Err *err) {
    Mem mem = { 0 };
    Pretok *p = MEM_NEW(&mem, Pretok);
    p->mem = mem;
    if (piece && piece->kind != JSON_NULL && !add_step(p, piece, 0, err)) {
        pretok_close(p);
        return NULL;
    }
    for (size_t i = 0; i < p->steps.n; i++)
        p->steps.at[i].map = p->steps.at[i].kind == STEP_BYTES && i + 1 < p->steps.n;
    return p;
}

void pretok_close(Pretok *p) {
    if (!p) return;
    for (size_t i = 0; i < p->steps.n; i++) regex_close(p->steps.at[i].regex);
    vec_free(p->steps.at);
    Mem mem = p->mem;
    mem_free(&mem);
}

bool pretok_bytes(const Pretok *p) {
    const Step *last = p->steps.n ? &p->steps.at[p->steps.n - 1] : NULL;
    return last && last->kind == STEP_BYTES && !last->map;
}

void pretok_map_last(Pretok *p) {
    if (pretok_bytes(p)) p->steps.at[p->steps.n - 1].map = true;
}

void pretok_scratch_free(PretokScratch *s) {
    for (int i = 0; i < 2; i++) {
        Pieces *p = i ? &s->b : &s->a;
        buf_free(&p->own);
        vec_free(p->list.at);
    }
    vec_free(s->cuts.at);
}
