/* normal.c - the normalizers of tokenizer.json: see normal.h.  A Sequence is flattened into one list of steps, each
 * of which reads one buffer and writes another. */
#include "text/normal.h"
#include "base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

typedef enum { STEP_FORM, STEP_LOWER, STEP_STRIP, STEP_ACCENTS, STEP_REPLACE, STEP_PREPEND } StepKind;

typedef struct {
    StepKind kind;
    bool compat, compose;     /* STEP_FORM */
    bool left, right;         /* STEP_STRIP */
    const UnicodeBits *bits;  /* STEP_FORM: characters that stay as they are and start something new; STEP_ACCENTS */
    const UnicodeBits *kept;  /* STEP_FORM: not decomposed */
    const UnicodeBits *marks; /* STEP_FORM: the combining characters that the reference knows */
    Replace replace;          /* STEP_PREPEND uses its content */
} Step;

struct Normal {
    Mem mem;
    VEC(Step)
    steps;
};

bool piece_type(const Json *piece, const char *what, const char **type, Err *err) {
    if (!piece || piece->kind != JSON_OBJECT) return err_set(err, "a %s must be an object with a \"type\"", what);
    *type = NULL;
    TRY(json_str(piece, "type", type, err));
    return *type || err_set(err, "a %s has no \"type\"", what);
}

Regex *pattern_open(const Json *piece, Err *err) {
    const Json *p = json_get(piece, "pattern"), *re = json_get(p, "Regex"), *str = json_get(p, "String");
    if (re && re->kind == JSON_STRING) return regex_open(re->str, re->n, REGEX_BEST, err);
    if (!str || str->kind != JSON_STRING) {
        err_set(err, "\"pattern\" must be {\"String\": ...} or {\"Regex\": ...}");
        return NULL;
    }
    Buf quoted = { 0 };
    buf_puts(&quoted, "");
    for (size_t i = 0; i < str->n; i++) {
        unsigned char c = (unsigned char)str->str[i];
        if (c < 0x80 && (c < 0x20 || !((c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'z')))) {
            buf_printf(&quoted, "\\x{%x}", c);
        } else {
            buf_putc(&quoted, (char)c);
        }
    }
    Regex *r = regex_open(quoted.data, quoted.n, REGEX_BEST, err);
    buf_free(&quoted);
    return r;
}

/* ---- Replace */
bool replace_open(Replace *r, const Json *piece, Mem *mem, Err *err) {
    const Json *content = json_get(piece, "content"), *str = json_get(json_get(piece, "pattern"), "String");
    if (!content || content->kind != JSON_STRING) return err_set(err, "Replace has no \"content\"");
    r->content = mem_str(mem, content->str, content->n);
    r->content_n = content->n;
    if (str && str->kind == JSON_STRING && str->n > 0) {
        r->literal = mem_str(mem, str->str, str->n);
        r->literal_n = str->n;
        return true;
    }
    r->regex = pattern_open(piece, err);
    return r->regex != NULL;
}

static const char *find_literal(const Replace *r, const char *text, size_t n) {
    const char *end = text + n;
    while ((size_t)(end - text) >= r->literal_n) {
        const char *hit = memchr(text, r->literal[0], (size_t)(end - text) - r->literal_n + 1);
        if (!hit || !memcmp(hit, r->literal, r->literal_n)) return hit;
        text = hit + 1;
    }
    return NULL;
}

bool replace_apply(const Replace *r, RegexScratch *s, Buf *out, const char *text, size_t n, Err *err) {
    size_t done = 0;
    if (r->literal) {
        for (const char *hit; (hit = find_literal(r, text + done, n - done));) {
            buf_put(out, text + done, (size_t)(hit - text) - done);
            buf_put(out, r->content, r->content_n);
            done = (size_t)(hit - text) + r->literal_n;
        }
    } else {
        size_t from = 0, a, b, last = SIZE_MAX;
        int found = 0;
        while (from <= n && n > 0 && (found = regex_find(r->regex, s, text, n, from, &a, &b)) > 0) {
            if (a == b && b == last) { /* nothing, right behind the last match: look one character on */
                from++;
                while (from < n && (text[from] & 0xC0) == 0x80) from++;
                continue;
            }
            buf_put(out, text + done, a - done);
            buf_put(out, r->content, r->content_n);
            done = from = last = b;
        }
        if (found < 0) return err_set(err, "the pattern of Replace takes too long on this text");
    }
    buf_put(out, text + done, n - done);
    return true;
}

/* ---- NFC, NFD, NFKC, NFKD */
static utf8proc_option_t form_options(const Step *s) {
    return s->compat ? UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT : UTF8PROC_DECOMPOSE;
}

/* A character is quiet in a form if that form keeps it, and it neither joins nor passes the character before it: marks
 * and Hangul vowels and finals are not.  Text may be cut before a quiet character without changing the result. */
static const UnicodeBits *quiet_characters(const Step *s, Mem *mem) {
    static const UnicodeRange has_some[] = {
        /* outside of these nothing decomposes, but for Hangul */
        { 0x80, 0x33FF },
        { 0xA000, 0xABFF },
        { 0xF900, 0x1FFFF },
        { 0x2F800, 0x2FA1F },
    };
    UnicodeSet loud = { 0 };
    (void)uset_named(&loud, "M", 1);
    uset_add(&loud, 0x1100, 0x11FF);
    if (!s->compose) uset_add(&loud, 0xAC00, 0xD7A3);
    for (size_t i = 0; i < COUNT(has_some); i++)
        for (uint32_t c = has_some[i].lo; c <= has_some[i].hi; c++) {
            int32_t out[32];
            int bound = 0;
            utf8proc_ssize_t n = utf8proc_decompose_char((utf8proc_int32_t)c, out, COUNT(out), form_options(s), &bound);
            if (n != 1 || out[0] != (int32_t)c) uset_add(&loud, c, c);
        }
    uset_tidy(&loud);
    uset_invert(&loud);
    const UnicodeBits *b = ubits_make(&loud, mem);
    vec_free(loud.at);
    return b;
}

/* The reference's tables are of an older Unicode: a mark that they do not have neither moves nor joins anything. */
static bool newer_mark(const Step *s, int32_t c) {
    utf8proc_category_t k = utf8proc_category(c);
    bool mark = k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC || k == UTF8PROC_CATEGORY_ME;
    return mark && !ubits_has(s->marks, (uint32_t)c);
}

static int combining(const Step *s, int32_t c) {
    int class = utf8proc_get_property(c)->combining_class;
    return class && newer_mark(s, c) ? 0 : class;
}

static size_t compose(const Step *s, int32_t *codes, size_t n) {
    size_t made = 0;
    for (size_t i = 0, end; i < n; i = end) {
        end = i + 1;
        while (end < n && !newer_mark(s, codes[end])) end++;
        utf8proc_ssize_t m =
            utf8proc_normalize_utf32(codes + i, (utf8proc_ssize_t)(end - i), UTF8PROC_STABLE | UTF8PROC_COMPOSE);
        memmove(codes + made, codes + i, (size_t)m * sizeof *codes);
        made += (size_t)m;
    }
    return made;
}

static void form_part(const Step *step, NormalScratch *s, const char *text, size_t n, Buf *out) {
    s->codes.n = 0;
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        i += (size_t)utf8_get(text + i, n - i, &c);
        int32_t parts[32];
        int bound = 0;
        utf8proc_ssize_t k = utf8proc_decompose_char((int32_t)c, parts, COUNT(parts), form_options(step), &bound);
        if (k < 1 || k > (utf8proc_ssize_t)COUNT(parts) || ubits_has(step->kept, c)) parts[0] = (int32_t)c, k = 1;
        for (utf8proc_ssize_t j = 0; j < k; j++) {
            VEC_PUSH(s->codes, parts[j]);
            int mine = combining(step, parts[j]);
            size_t at = s->codes.n - 1; /* marks are sorted by class, stably */
            for (; mine && at > 0 && combining(step, s->codes.at[at - 1]) > mine; at--)
                s->codes.at[at] = s->codes.at[at - 1];
            s->codes.at[at] = parts[j];
        }
    }
    size_t m = step->compose ? compose(step, s->codes.at, s->codes.n) : s->codes.n;
    for (size_t i = 0; i < m; i++) {
        char utf[4];
        buf_put(out, utf, (size_t)utf8_put(utf, (uint32_t)s->codes.at[i]));
    }
}

/* Whether anything was written: text that is quiet throughout needs no copy. */
static bool form_apply(const Step *step, NormalScratch *s, const char *text, size_t n, Buf *out) {
    size_t done = 0, before = 0; /* copied so far; start of the character before i */
    bool wrote = false;
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        int len = (unsigned char)text[i] < 0x80 ? 1 : utf8_get(text + i, n - i, &c);
        if (len == 1 || ubits_has(step->bits, c)) {
            before = i;
            i += (size_t)len;
            continue;
        }
        size_t from = before < done ? done : before, to = i;
        while (to < n && (unsigned char)text[to] >= 0x80) {
            len = utf8_get(text + to, n - to, &c);
            if (ubits_has(step->bits, c)) break;
            to += (size_t)len;
        }
        buf_put(out, text + done, from - done);
        form_part(step, s, text + from, to - from, out);
        wrote = true;
        done = i = before = to;
    }
    if (wrote) buf_put(out, text + done, n - done);
    return wrote;
}

/* ---- the character by character ones */
static void lower(const char *text, size_t n, Buf *out) {
    for (size_t i = 0; i < n;) {
        uint32_t c = 0, to[2];
        i += (size_t)utf8_get(text + i, n - i, &c);
        if (c < 0x80) {
            buf_putc(out, (char)(c >= 'A' && c <= 'Z' ? c + 32 : c));
            continue;
        }
        int k = unicode_lower(c, to);
        char utf[4];
        for (int j = 0; j < k; j++) buf_put(out, utf, (size_t)utf8_put(utf, to[j]));
    }
}

static void without(const UnicodeBits *bits, const char *text, size_t n, Buf *out) {
    for (size_t i = 0; i < n;) {
        uint32_t c = 0;
        size_t len = (size_t)utf8_get(text + i, n - i, &c);
        if (!ubits_has(bits, c)) buf_put(out, text + i, len);
        i += len;
    }
}

static void strip(const Step *step, const char **text, size_t *n, bool *start) {
    uint32_t c;
    int len;
    while (step->left && *n > 0 && (len = utf8_get(*text, *n, &c)) && unicode_space(c)) {
        *text += len;
        *n -= (size_t)len;
        *start = false;
    }
    while (step->right && *n > 0) {
        size_t at = *n - 1;
        while (at > 0 && ((*text)[at] & 0xC0) == 0x80) at--;
        if (!utf8_get(*text + at, *n - at, &c) || !unicode_space(c)) break;
        *n = at;
    }
}

/* ---- building */
static bool add_step(Normal *n, const Json *piece, int depth, Err *err) {
    static const struct {
        const char *type;
        StepKind kind;
        bool compat, compose;
    } known[] = {
        { "NFC", STEP_FORM, false, true },         { "NFD", STEP_FORM, false, false },
        { "NFKC", STEP_FORM, true, true },         { "NFKD", STEP_FORM, true, false },
        { "Lowercase", STEP_LOWER, false, false }, { "StripAccents", STEP_ACCENTS, false, false },
        { "Strip", STEP_STRIP, false, false },     { "Replace", STEP_REPLACE, false, false },
        { "Prepend", STEP_PREPEND, false, false },
    };
    const char *type;
    TRY(piece_type(piece, "normalizer", &type, err));
    if (!strcmp(type, "Sequence")) {
        const Json *list = json_get(piece, "normalizers");
        if (!list || list->kind != JSON_ARRAY || depth >= TEXT_DEPTH)
            return err_set(err, "the normalizer Sequence wants \"normalizers\", an array, at most %d deep", TEXT_DEPTH);
        for (size_t i = 0; i < list->n; i++) TRY(add_step(n, &list->items[i], depth + 1, err));
        return true;
    }
    size_t k = 0;
    while (k < COUNT(known) && strcmp(known[k].type, type)) k++;
    if (k == COUNT(known)) return err_set(err, "the normalizer %.60s is not supported", type);
    Step s = { .kind = known[k].kind, .compat = known[k].compat, .compose = known[k].compose };
    if (s.kind == STEP_FORM)
        s.bits = quiet_characters(&s, &n->mem), s.kept = ubits_named(USET_KEPT, &n->mem),
        s.marks = ubits_named(USET_ACCENT, &n->mem);
    if (s.kind == STEP_ACCENTS) s.bits = ubits_named(USET_ACCENT, &n->mem);
    if (s.kind == STEP_STRIP) {
        s.left = s.right = true;
        TRY(json_bool(piece, "strip_left", &s.left, err) && json_bool(piece, "strip_right", &s.right, err));
    }
    if (s.kind == STEP_REPLACE) TRY(replace_open(&s.replace, piece, &n->mem, err));
    if (s.kind == STEP_PREPEND) {
        const Json *p = json_get(piece, "prepend");
        if (!p || p->kind != JSON_STRING) return err_set(err, "the normalizer Prepend has no \"prepend\"");
        s.replace.content = mem_str(&n->mem, p->str, p->n);
        s.replace.content_n = p->n;
    }
    VEC_PUSH(n->steps, s);
    return true;
}

Normal *normal_open(const Json *piece, Err *err) {
    Mem mem = { 0 };
    Normal *n = MEM_NEW(&mem, Normal);
    n->mem = mem;
    if (!piece || piece->kind == JSON_NULL || add_step(n, piece, 0, err)) return n;
    normal_close(n);
    return NULL;
}

void normal_close(Normal *n) {
    if (!n) return;
    for (size_t i = 0; i < n->steps.n; i++) regex_close(n->steps.at[i].replace.regex);
    vec_free(n->steps.at);
    Mem mem = n->mem;
    mem_free(&mem);
}

void normal_scratch_free(NormalScratch *s) {
    buf_free(&s->a);
    buf_free(&s->b);
    vec_free(s->codes.at);
}

bool normal_apply(const Normal *n, NormalScratch *s, const char *text, size_t len, const char **out, size_t *out_len,
                  bool *start, Err *err) {
    const Buf *holds = NULL; /* the buffer that text lies in */
    for (size_t i = 0; i < n->steps.n; i++) {
        const Step *step = &n->steps.at[i];
        Buf *to = holds == &s->a ? &s->b : &s->a;
        buf_clear(to);
        bool wrote = true;
        switch (step->kind) {
        case STEP_FORM: wrote = form_apply(step, s, text, len, to); break;
        case STEP_LOWER: lower(text, len, to); break;
        case STEP_ACCENTS: without(step->bits, text, len, to); break;
        case STEP_REPLACE: TRY(replace_apply(&step->replace, s->regex, to, text, len, err)); break;
        case STEP_STRIP:
            strip(step, &text, &len, start);
            wrote = false;
            break;
        case STEP_PREPEND:
            wrote = len > 0 && !s->goes_on;
            if (wrote) {
                buf_put(to, step->replace.content, step->replace.content_n);
                buf_put(to, text, len);
            }
            break;
        }
        if (wrote) holds = to, text = to->data ? to->data : "", len = to->n;
    }
    *out = text;
    *out_len = len;
    return true;
}
