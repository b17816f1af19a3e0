/* test_tok_match.c - the quick matcher against PCRE2: the published splitting patterns on random text of all of Unicode
 * must give the same matches; and single patterns with the matches they must have. */
#include "base/rng.h"
#include "base/utf8.h"
#include "test.h"
#include "text/pretok_regex.h"

/* clang-format off */
#define CONTRACTED "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST   " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|" REST
#define UPPER  "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"
#define LOWER  "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]"

static const char *const published[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",            /* GPT-2 */
    LLAMA3,
    CONTRACTED "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|" REST,                                         /* Qwen2 */
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",                                     /* DeepSeek-V3 */
    "\\p{N}{1,3}",
    "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
    "[\\r\\n]",                                                                                       /* DeepSeek LLM */
    "\\s?[A-Za-z\xC2\xB5\xC3\x80-\xC3\x96]+",
    "\\s?[!-/:-~\xEF\xBC\x81-\xEF\xBC\x8F]+",
    "\\s+$",
    "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" CONTRACTED "?"
    "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" CONTRACTED "?|\\p{N}{1,3}|" REST,                   /* Kimi */
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+"
    "|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s",                                                           /* cl100k */
    " ?[^(\\s|[.,!?\xE2\x80\xA6])]+",                                                                 /* BLOOM */
    "\\w+|[^\\w\\s]+",
    "\\s*\\S{2,4}\\s?[a-z]*e",
    "a*ab?[\\d\\h]{2,}(?!x)",
};
/* clang-format on */

static uint64_t draw(uint32_t pattern, uint32_t text, uint32_t i) {
    return rng_u64(7, RNG_SHUFFLE, pattern, text, 0, i);
}

static size_t random_text(char *out, uint32_t pattern, uint32_t text) {
    static const char common[] = "  \n\r\tabsdteELMVR'''..,!-<|>019_e\xC2\xA0";
    size_t n = 0, chars = 1 + draw(pattern, text, 0) % 40;
    for (uint32_t i = 1; i <= chars; i++) {
        uint64_t u = draw(pattern, text, i);
        uint32_t c, kind = (uint32_t)(u >> 60);
        u &= 0xFFFFFFFFu;
        if (kind < 8) c = (unsigned char)common[u % (sizeof common - 3)];
        else if (kind < 10) c = (uint32_t)(u % 0x80);
        else if (kind < 13) c = (uint32_t)(u % 0x3400);
        else if (kind < 14) c = 0x4E00 + (uint32_t)(u % 0x5200);
        else c = (uint32_t)(u % 0x110000);
        if (c >= 0xD800 && c < 0xE000) c = 0x17F;
        n += (size_t)utf8_put(out + n, c);
    }
    return n;
}

/* Both engines from every match to the next; where they differ, a message with the place. */
static void compare(const Regex *own, const Regex *pcre, RegexScratch *s, const char *text, size_t n,
                    const char *pattern, uint32_t k) {
    for (size_t from = 0; from < n;) {
        size_t a = 0, b = 0, c = 0, d = 0;
        int x = regex_find(own, s, text, n, from, &a, &b), y = regex_find(pcre, s, text, n, from, &c, &d);
        if (x != y || a != c || b != d) {
            EXPECT(false, "%.40s, text %u from %zu: own %d %zu-%zu, PCRE2 %d %zu-%zu", pattern, k, from, x, a, b, y, c,
                   d);
            return;
        }
        if (x <= 0 || b == from) break;
        from = b;
    }
    test_passed++;
}

static void check_published(void) {
    for (uint32_t p = 0; p < COUNT(published); p++) {
        Err err = { "" };
        Regex *own = regex_open(published[p], strlen(published[p]), REGEX_OWN, &err);
        EXPECT(own, "%.60s is not read by the quick matcher", published[p]);
        Regex *pcre = regex_open(published[p], strlen(published[p]), REGEX_PCRE, &err);
        EXPECT(pcre, "%s", err.msg);
        RegexScratch s = { 0 };
        char text[256];
        for (uint32_t k = 0; own && pcre && k < 2000; k++) {
            size_t n = random_text(text, p, k);
            compare(own, pcre, &s, text, n, published[p], k);
        }
        regex_scratch_free(&s);
        regex_close(own);
        regex_close(pcre);
    }
}

/* clang-format off */
static const struct { const char *pattern, *text; int start, end; } single[] = {
    { "a$",              "ba\nc",            1, 2 },      /* $ is the end of a line */
    { "^c",              "ba\nc",            3, 4 },
    { "\\h+",            "xyz 0fG",          4, 6 },      /* hexadecimal, as in Ruby */
    { "\\s",             "\xE1\xA0\x8E ",    3, 4 },      /* U+180E is no space */
    { "(?i:'s)",         "x'\xC5\xBF",       1, 4 },      /* long s */
    { "[a-z&&[^b]]+",    "bcab",             1, 3 },
    { "[^a-c[x-z]]",     "axd",              2, 3 },
    { "\\p{^L}",         "ab1",              2, 3 },
    { "[\\P{L}]",        "ab1",              2, 3 },
    { "\\p{L}",          "\xF0\xB1\x8D\x90", 0, 4 },      /* U+31350, a letter since Unicode 15 */
    { "[^\\p{L}]",       "\xF0\xB1\x8D\x90.", 4, 5 },
    { "\\x{61}\\u0062",  "xab",              1, 3 },
    { "(?<=a)b|c{0,1}d", "bab",              2, 3 },      /* look-behind: PCRE2 only */
    { "x+?",             "axx",              1, 2 },
    { "(?!a)",           "ab",               1, 1 },      /* matches nothing, somewhere */
};
/* clang-format on */

static void check_single(void) {
    for (size_t i = 0; i < COUNT(single); i++)
        for (int how = REGEX_BEST; how <= REGEX_PCRE; how++) {
            Err err;
            Regex *re = regex_open(single[i].pattern, strlen(single[i].pattern), (RegexHow)how, &err);
            RegexScratch s = { 0 };
            size_t a = 0, b = 0;
            int found = re ? regex_find(re, &s, single[i].text, strlen(single[i].text), 0, &a, &b) : -1;
            bool ok = found == 1 && (int)a == single[i].start && (int)b == single[i].end;
            EXPECT(ok, "%s way %d: %d, %zu-%zu", single[i].pattern, how, found, a, b);
            regex_scratch_free(&s);
            regex_close(re);
        }
}

static void check_bad(void) {
    static const char *const bad[] = { "(", "[a", "a{2,1}", "\\p{Nonsense}", "*a", "(?<n>a" };
    for (size_t i = 0; i < COUNT(bad); i++) {
        Err err = { "" };
        Regex *re = regex_open(bad[i], strlen(bad[i]), REGEX_BEST, &err);
        EXPECT(!re && strstr(err.msg, bad[i]), "%s is refused by name: %s", bad[i], err.msg);
        regex_close(re);
    }
}

/* A long run of blanks must not cost its square. */
static void check_long(void) {
    Err err;
    Buf text = { 0 };
    for (int i = 0; i < 1000000; i++) buf_putc(&text, ' ');
    buf_putc(&text, 'x');
    static const char *const patterns[] = { "\\s+$", LLAMA3 };
    for (size_t i = 0; i < COUNT(patterns); i++) {
        Regex *re = regex_open(patterns[i], strlen(patterns[i]), REGEX_OWN, &err);
        RegexScratch s = { 0 };
        size_t a, b;
        int found = regex_find(re, &s, text.data, text.n, 0, &a, &b);
        EXPECT(found == (int)i, "a million blanks: %d", found);
        regex_close(re);
    }
    Regex *slow = regex_open("a*a*a*a*a*b", 11, REGEX_OWN, &err);
    RegexScratch s = { 0 };
    size_t a, b;
    memset(text.data, 'a', 2000);
    EXPECT(regex_find(slow, &s, text.data, 2000, 0, &a, &b) == -1, "a pattern that takes too long is given up");
    regex_close(slow);
    buf_free(&text);
}

int main(void) {
    check_published();
    check_single();
    check_bad();
    check_long();
    return test_end();
}
