/* pretok_regex.c - regular expressions: our matcher where it can, PCRE2 otherwise.  For PCRE2 the pattern is
 * rewritten where the two languages or their Unicode versions differ: ^ and $ mean lines, \h is a hexadecimal
 * digit, \s has no U+180E, \p{L} gets the letters that PCRE2's tables do not know yet, and nested or
 * intersected classes are written out. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include "base/utf8.h"
#include "text/pretok_regex.h"

#include <pcre2.h>
#include <string.h>

struct Regex {
    Mem mem;
    Matcher *own;
    pcre2_code *code;
    pcre2_match_context *context;
};

static void put_ranges(Buf *b, const UnicodeSet *s) {
    for (size_t i = 0; i < s->n; i++) {
        /* PCRE2 refuses surrogates in a pattern, and the text has none */
        uint32_t lo = s->at[i].lo, hi = s->at[i].hi;
        if (lo >= 0xD800 && lo < 0xE000) lo = 0xE000;
        if (hi >= 0xD800 && hi < 0xE000) hi = 0xD7FF;
        if (lo > hi) continue;
        if (lo < 0xD800 && hi >= 0xE000) {
            buf_printf(b, "\\x{%x}-\\x{d7ff}\\x{e000}-\\x{%x}", lo, hi);
        } else {
            buf_printf(b, "\\x{%x}-\\x{%x}", lo, hi);
        }
    }
}

/* An escape that means a class: as itself plus what PCRE2 lacks, or written out where that cannot be said. */
static void put_escape(Buf *b, const char **at, const char *end, bool inside) {
    const char *from = *at;
    UnicodeSet s = { 0 };
    bool negated = false, is_class = false;
    (*at)++;
    if (!class_escape(&s, at, end, &negated, &is_class)) {
        *at = from + 2 <= end ? from + 2 : end; /* \b, \A, a property of a name we do not have: PCRE2 may know it */
        buf_put(b, from, (size_t)(*at - from));
        vec_free(s.at);
        return;
    }
    uset_tidy(&s);
    if (!is_class) {
        buf_printf(b, "\\x{%x}", s.at[0].lo);
    } else if (inside && negated) {
        uset_invert(&s);
        put_ranges(b, &s);
    } else {
        if (!inside) buf_puts(b, negated ? "[^" : "[");
        const char *name = from + (from + 3 < *at && from[3] == '^' ? 4 : 3);
        bool category =
            (from[1] == 'p' || from[1] == 'P') && *at - name <= 3; /* scripts are written out: PCRE2 adds to them */
        if (category) {
            buf_printf(b, "\\p{%.*s", (int)(*at - name), name);
            UnicodeSet newer = { 0 };
            (void)uset_named(&newer, USET_NEWER, strlen(USET_NEWER));
            uset_meet(&s, &newer);
            vec_free(newer.at);
        }
        put_ranges(b, &s);
        if (!inside) buf_putc(b, ']');
    }
    vec_free(s.at);
}

/* A class without nesting is copied member by member; one with it, or with &&, becomes its ranges. */
static void put_class(Buf *b, const char **at, const char *end) {
    UnicodeSet s = { 0 };
    const char *from = *at, *after = *at;
    bool known = class_parse(&s, &after, end, false), plain = true;
    if (known)
        for (const char *c = from + 1; c + 1 < after; c++) {
            if (*c == '\\') c++;
            else if (*c == '[' || (*c == '&' && c[1] == '&')) plain = false;
        }
    if (known && !plain && s.n > 0) {
        buf_putc(b, '[');
        put_ranges(b, &s);
        buf_putc(b, ']');
        *at = after;
    } else if (known && plain) {
        while (*at < after)
            if (**at == '\\') put_escape(b, at, after, true);
            else buf_putc(b, *(*at)++);
    } else {
        buf_putc(b, *(*at)++); /* a posix class, or an error for PCRE2 to name */
    }
    vec_free(s.at);
}

static bool compile(Regex *re, const char *pattern, size_t n, Err *err) {
    Buf b = { 0 };
    const char *at = pattern, *end = pattern + n;
    while (at < end) {
        if (*at == '\\') put_escape(&b, &at, end, false);
        else if (*at == '[') put_class(&b, &at, end);
        else buf_putc(&b, *at++);
    }
    int code;
    PCRE2_SIZE where;
    pcre2_compile_context *cc = pcre2_compile_context_create(NULL);
    if (!cc) die_memory(0);
    pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    re->code = pcre2_compile((PCRE2_SPTR)(b.data ? b.data : ""), b.n, options, &code, &where, cc);
    pcre2_compile_context_free(cc);
    buf_free(&b);
    if (!re->code) {
        PCRE2_UCHAR msg[128];
        pcre2_get_error_message(code, msg, sizeof msg);
        return err_set(err, "the pattern \"%.100s\" cannot be used: %s", pattern, (const char *)msg);
    }
    (void)pcre2_jit_compile(re->code,
                            PCRE2_JIT_COMPLETE); /* without it, or on a machine that forbids it: only slower */
    re->context = pcre2_match_context_create(NULL);
    if (!re->context) die_memory(0);
    pcre2_set_match_limit(re->context, 10000000);
    return true;
}

Regex *regex_open(const char *pattern, size_t n, RegexHow how, Err *err) {
    Mem mem = { 0 };
    Regex *re = MEM_NEW(&mem, Regex);
    if (how != REGEX_PCRE) re->own = matcher_open(pattern, n, &mem);
    re->mem = mem;
    bool ok =
        re->own || (how != REGEX_OWN ? compile(re, pattern, n, err) : err_set(err, "not a pattern for our matcher"));
    if (ok) return re;
    regex_close(re);
    return NULL;
}

void regex_close(Regex *re) {
    if (!re) return;
    pcre2_code_free(re->code);
    pcre2_match_context_free(re->context);
    Mem mem = re->mem;
    mem_free(&mem);
}

void regex_scratch_free(RegexScratch *s) {
    pcre2_match_data_free(s->match_data);
    s->match_data = NULL;
}

int regex_find(const Regex *re, RegexScratch *s, const char *text, size_t n, size_t from, size_t *start, size_t *end) {
    if (re->own) return matcher_find(re->own, text, n, from, start, end);
    if (!s->match_data) {
        s->match_data = pcre2_match_data_create(1, NULL);
        if (!s->match_data) die_memory(0);
    }
    int rc = pcre2_match(re->code, (PCRE2_SPTR)text, n, from, PCRE2_NO_UTF_CHECK, s->match_data, re->context);
    if (rc == PCRE2_ERROR_NOMATCH) return 0;
    if (rc < 0) return -1;
    const PCRE2_SIZE *o = pcre2_get_ovector_pointer(s->match_data);
    if (o[0] > o[1]) return -1; /* \K in a look-ahead */
    *start = o[0];
    *end = o[1];
    return 1;
}
