/* tok_added.c - finds added tokens in text: of those that begin at the leftmost place the longest, each then held
 * against its flags.  A match that is refused (a special token nobody asked for, a word that is part of a longer
 * one) still uses up its characters, as in the reference. */
#include "base/utf8.h"
#include "text/tok_parts.h"

#include <string.h>

static int32_t *child_of(Trie *t, int32_t *link, unsigned char byte) {
    while (*link && t->nodes.at[*link].byte != byte) link = &t->nodes.at[*link].next;
    return link;
}

void trie_put(Trie *t, const char *s, size_t n, int32_t token) {
    if (t->nodes.n == 0) VEC_PUSH(t->nodes, (TrieNode){ 0 }); /* number 0 means none */
    int32_t node = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char byte = (unsigned char)s[i];
        int32_t have = i ? *child_of(t, &t->nodes.at[node].child, byte) : t->root[byte];
        if (!have) {
            have = (int32_t)t->nodes.n;
            VEC_PUSH(t->nodes, (TrieNode){ .byte = byte });
            if (i == 0) t->root[byte] = have;
            else *child_of(t, &t->nodes.at[node].child, byte) = have;
        }
        node = have;
    }
    if (!t->nodes.at[node].token) t->nodes.at[node].token = token + 1;
    t->any = true;
}

static int32_t longest(const Trie *t, const char *s, size_t n, size_t *len) {
    int32_t found = 0;
    int32_t node = t->root[(unsigned char)s[0]];
    for (size_t i = 1; node; i++) {
        if (t->nodes.at[node].token) {
            found = t->nodes.at[node].token;
            *len = i;
        }
        if (i == n) break;
        node = t->nodes.at[node].child;
        while (node && t->nodes.at[node].byte != (unsigned char)s[i]) node = t->nodes.at[node].next;
    }
    return found - 1;
}

static size_t char_before(const char *text, size_t at, uint32_t *c) {
    size_t from = at - 1;
    while (from > 0 && (text[from] & 0xC0) == 0x80) from--;
    (void)utf8_get(text + from, at - from, c);
    return from;
}

static bool alone(const Added *a, const char *text, size_t n, size_t at, size_t end) {
    uint32_t c = 0;
    if (at > 0 && (char_before(text, at, &c), ubits_has(a->word, c))) return false;
    return !(end < n && utf8_get(text + end, n - end, &c) && ubits_has(a->word, c));
}

void trie_split(const Added *a, const Trie *t, const char *text, size_t n, bool special, Segments *out) {
    size_t done = 0;
    for (size_t i = 0; t->any && i < n;) {
        size_t len = 0;
        if (!t->root[(unsigned char)text[i]]) {
            i++;
            continue;
        }
        int32_t k = longest(t, text + i, n - i, &len);
        if (k < 0) {
            i++;
            continue;
        }
        const AddedToken *tok = &a->list.at[k];
        size_t at = i, end = i + len;
        i = end;
        if (tok->special && !special) continue;
        if (tok->single_word && !alone(a, text, n, at, end)) continue;
        uint32_t c = 0;
        if (tok->lstrip)
            for (size_t b; at > done && (b = char_before(text, at, &c), unicode_space(c)); at = b) {}
        if (tok->rstrip)
            for (int m; end < n && (m = utf8_get(text + end, n - end, &c)) && unicode_space(c); end += (size_t)m) {}
        if (done < at) VEC_PUSH(*out, (Segment){ done, at, -1 });
        VEC_PUSH(*out, (Segment){ at, end, tok->id });
        done = end;
    }
    if (done < n) VEC_PUSH(*out, (Segment){ done, n, -1 });
}
