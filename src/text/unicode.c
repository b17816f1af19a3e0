/* unicode.c - sets of characters as sorted ranges, and the tables behind their names: see unicode.h. */
#include "text/unicode.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* clang-format off */
typedef enum {
    UC_LU, UC_LL, UC_LT, UC_LM, UC_LO, UC_MN, UC_MC, UC_ME, UC_ND, UC_NL, UC_NO, UC_PC, UC_PD, UC_PS, UC_PE, UC_PI,
    UC_PF, UC_PO, UC_SM, UC_SC, UC_SK, UC_SO, UC_ZS, UC_ZL, UC_ZP, UC_CC, UC_CF, UC_CO, UC_COUNT
} Category;
static const char category_names[UC_COUNT][3] = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",
    "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Co",
};
/* clang-format on */

typedef struct {
    uint32_t lo, hi;
    int32_t tag;
} UnicodeTagged;

#include "text/unicode_data.inc"

static const UnicodeRange spaces[] = {
    { 0x9, 0xD },       { 0x20, 0x20 },     { 0x85, 0x85 },     { 0xA0, 0xA0 },     { 0x1680, 0x1680 },
    { 0x2000, 0x200A }, { 0x2028, 0x2029 }, { 0x202F, 0x202F }, { 0x205F, 0x205F }, { 0x3000, 0x3000 },
};

static const struct {
    const char *name;
    const UnicodeRange *at;
    size_t n;
} named[] = {
    { "Han", han, COUNT(han) },
    { USET_SPACE, spaces, COUNT(spaces) },
    { USET_WORD, onig_word, COUNT(onig_word) },
    { USET_RUST_W, rust_word, COUNT(rust_word) },
    { USET_NUMERIC, rust_numeric, COUNT(rust_numeric) },
    { USET_PUNCT, punctuation, COUNT(punctuation) },
    { USET_ACCENT, accents, COUNT(accents) },
    { USET_NEWER, since_14, COUNT(since_14) },
    { USET_KEPT, never_decomposed, COUNT(never_decomposed) },
};

void uset_add(UnicodeSet *s, uint32_t lo, uint32_t hi) { VEC_PUSH(*s, (UnicodeRange){ lo, hi }); }

static int by_start(const void *a, const void *b) {
    uint32_t x = ((const UnicodeRange *)a)->lo, y = ((const UnicodeRange *)b)->lo;
    return x < y ? -1 : x > y;
}

void uset_tidy(UnicodeSet *s) {
    if (s->n == 0) return;
    qsort(s->at, s->n, sizeof *s->at, by_start);
    size_t n = 0;
    for (size_t i = 1; i < s->n; i++) {
        if (s->at[i].lo > s->at[n].hi + 1) s->at[++n] = s->at[i];
        else if (s->at[i].hi > s->at[n].hi) s->at[n].hi = s->at[i].hi;
    }
    s->n = n + 1;
}

void uset_join(UnicodeSet *s, const UnicodeSet *other) {
    for (size_t i = 0; i < other->n; i++) uset_add(s, other->at[i].lo, other->at[i].hi);
    uset_tidy(s);
}

void uset_invert(UnicodeSet *s) {
    UnicodeSet out = { 0 };
    uint32_t next = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->at[i].lo > next) uset_add(&out, next, s->at[i].lo - 1);
        next = s->at[i].hi + 1;
    }
    if (next < UNICODE_END) uset_add(&out, next, UNICODE_END - 1);
    vec_free(s->at);
    *s = out;
}

void uset_meet(UnicodeSet *s, const UnicodeSet *other) {
    UnicodeSet out = { 0 };
    for (size_t i = 0, j = 0; i < s->n && j < other->n;) {
        UnicodeRange a = s->at[i], b = other->at[j];
        uint32_t lo = a.lo > b.lo ? a.lo : b.lo, hi = a.hi < b.hi ? a.hi : b.hi;
        if (lo <= hi) uset_add(&out, lo, hi);
        if (a.hi < b.hi) i++;
        else j++;
    }
    vec_free(s->at);
    *s = out;
}

static bool ranges_have(const UnicodeRange *at, size_t n, uint32_t c) {
    size_t lo = 0, hi = n;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (c < at[mid].lo) hi = mid;
        else if (c > at[mid].hi) lo = mid + 1;
        else return true;
    }
    return false;
}

bool uset_named(UnicodeSet *s, const char *name, size_t n) {
    bool known = false;
    if (n == 1 || n == 2)
        for (int k = 0; k < UC_COUNT; k++) known |= !memcmp(category_names[k], name, n);
    if (known) {
        for (size_t i = 0; i < COUNT(categories); i++)
            if (!memcmp(category_names[categories[i].tag], name, n)) uset_add(s, categories[i].lo, categories[i].hi);
        if (n == 1 && *name == 'C')
            return false; /* "other" holds the unassigned ones too, which are not in the table */
        uset_tidy(s);
        return true;
    }
    for (size_t k = 0; k < COUNT(named); k++) {
        if (strlen(named[k].name) != n || memcmp(named[k].name, name, n)) continue;
        for (size_t i = 0; i < named[k].n; i++) uset_add(s, named[k].at[i].lo, named[k].at[i].hi);
        uset_tidy(s);
        return true;
    }
    return false;
}

int unicode_lower(uint32_t c, uint32_t out[2]) {
    if (c == 0x130) return out[0] = 'i', out[1] = 0x307, 2; /* the one letter that becomes two */
    for (size_t i = 0; i < COUNT(lower_beyond); i++)
        if (c >= lower_beyond[i].lo && c <= lower_beyond[i].hi) {
            out[0] = (uint32_t)((int32_t)c + lower_beyond[i].tag);
            return 1;
        }
    out[0] = (uint32_t)utf8proc_tolower((utf8proc_int32_t)c);
    return 1;
}

bool unicode_space(uint32_t c) { return ranges_have(spaces, COUNT(spaces), c); }

/* Pages of 256 characters; most are empty or full and are kept once. */
const UnicodeBits *ubits_make(const UnicodeSet *s, Mem *mem) {
    Mem tmp = { 0 };
    uint64_t(*all)[4] = mem_array(&tmp, UNICODE_END >> 8, sizeof *all);
    for (size_t i = 0; i < s->n; i++)
        for (uint32_t c = s->at[i].lo; c <= s->at[i].hi; c++) all[c >> 8][c >> 6 & 3] |= (uint64_t)1 << (c & 63);
    UnicodeBits *b = MEM_NEW(mem, UnicodeBits);
    uint16_t *first = MEM_ARRAY(&tmp, uint16_t, UNICODE_END >> 8);
    for (size_t p = 0; p < UNICODE_END >> 8; p++) {
        size_t k = 0;
        while (k < b->pages && memcmp(all[first[k]], all[p], sizeof *all)) k++;
        if (k == b->pages) first[b->pages++] = (uint16_t)p;
        b->page[p] = (uint16_t)k;
    }
    b->bits = mem_array(mem, b->pages, sizeof *b->bits);
    for (size_t k = 0; k < b->pages; k++) memcpy(b->bits[k], all[first[k]], sizeof *all);
    mem_free(&tmp);
    return b;
}

const UnicodeBits *ubits_named(const char *name, Mem *mem) {
    UnicodeSet s = { 0 };
    CHECK(uset_named(&s, name, strlen(name)), "no set of characters is called %s", name);
    const UnicodeBits *b = ubits_make(&s, mem);
    vec_free(s.at);
    return b;
}
