/* tok.c - a tokenizer's life and the way of a text through it: added tokens, normalizer, added tokens again (those
 * that are spelled as the normalizer leaves them), pre-tokenizer, BPE, post-processor. */
#include "text/tok.h"
#include "base/file.h"
#include "gguf/inside.h"
#include "base/utf8.h"
#include "text/tok_parts.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

struct TokScratch {
    Mem mem;
    RegexScratch regex;
    NormalScratch normal;
    PretokScratch pretok;
    BpeScratch *bpe;
    Segments raw, inner;
};

TokScratch *tok_scratch_open(const Tok *t) {
    (void)t;
    Mem mem = { 0 };
    TokScratch *s = MEM_NEW(&mem, TokScratch);
    s->mem = mem;
    s->bpe = bpe_scratch_open();
    s->normal.regex = s->pretok.regex = &s->regex;
    return s;
}

void tok_scratch_close(TokScratch *s) {
    if (!s) return;
    regex_scratch_free(&s->regex);
    normal_scratch_free(&s->normal);
    pretok_scratch_free(&s->pretok);
    bpe_scratch_close(s->bpe);
    vec_free(s->raw.at);
    vec_free(s->inner.at);
    Mem mem = s->mem;
    mem_free(&mem);
}

void tok_close(Tok *t) {
    if (!t) return;
    normal_close(t->normal);
    pretok_close(t->pretok);
    decoder_close(&t->decoder);
    vec_free(t->added.list.at);
    vec_free(t->added.raw.nodes.at);
    vec_free(t->added.normal.nodes.at);
    vec_free(t->front.at);
    vec_free(t->back.at);
    Mem mem = t->mem;
    mem_free(&mem);
}

/* ---- encoding */
static bool words(const Tok *t, TokScratch *s, const char *text, size_t n, bool start, Ids *ids, Err *err) {
    const Pieces *p;
    TRY(pretok_apply(t->pretok, &s->pretok, text, n, start, &p, err));
    for (size_t i = 0; i < p->list.n; i++)
        TRY(bpe_word(&t->bpe, s->bpe, p->text + p->list.at[i].at, p->list.at[i].n, ids, err));
    return true;
}

static bool segment(const Tok *t, TokScratch *s, const char *text, size_t n, bool start, bool special, Ids *ids,
                    Err *err) {
    TRY(normal_apply(t->normal, &s->normal, text, n, &text, &n, &start, err));
    if (!t->added.normal.any) return words(t, s, text, n, start, ids, err);
    s->inner.n = 0;
    trie_split(&t->added, &t->added.normal, text, n, special, &s->inner);
    for (size_t i = 0; i < s->inner.n; i++) {
        Segment g = s->inner.at[i];
        if (g.id >= 0) {
            if (g.at < g.end) VEC_PUSH(*ids, g.id);
        } else {
            s->pretok.goes_on = s->pretok.goes_on && g.at == 0;
            TRY(words(t, s, text + g.at, g.end - g.at, start && g.at == 0, ids, err));
        }
    }
    return true;
}

static bool check_utf8(const char *text, size_t n, Err *err) {
    size_t i = 0;
    while (i < n) {
        uint64_t w;
        while (n - i >= 8 && (memcpy(&w, text + i, 8), !(w & 0x8080808080808080u))) i += 8;
        if (i == n) break;
        uint32_t c;
        int len = utf8_get(text + i, n - i, &c);
        if (!len) return err_set(err, "the text is not UTF-8 at byte %zu", i);
        i += (size_t)len;
    }
    return true;
}

/* A segment that seams lie in is encoded in parts; those up to its beginning have been passed. */
static bool parts(const Tok *t, TokScratch *s, const char *text, Segment g, bool special, const TokSeams *seams,
                  size_t *next, Ids *ids, Err *err) {
    for (size_t at = g.at, end; at < g.end; at = end) {
        end = *next < seams->n && seams->cut[*next] < g.end ? seams->cut[*next] : g.end;
        s->normal.goes_on = s->pretok.goes_on = at > g.at;
        TRY(segment(t, s, text + at, end - at, at == 0, special, ids, err));
        for (; *next < seams->n && seams->cut[*next] <= end; ++*next) seams->at[*next] = ids->n;
    }
    return true;
}

bool tok_encode(const Tok *t, TokScratch *s, const char *text, size_t n, int flags, TokIds *out, Err *err) {
    return tok_encode_seams(t, s, text, n, flags, &(TokSeams){ 0 }, out, err);
}

bool tok_encode_seams(const Tok *t, TokScratch *s, const char *text, size_t n, int flags, const TokSeams *seams,
                      TokIds *out, Err *err) {
    TRY(check_utf8(text, n, err));
    bool special = flags & TOK_SPECIAL;
    Ids ids = { out->at, out->n, out->cap };
    bool ok = true;
    for (size_t i = 0; (flags & TOK_BOS) && i < t->front.n; i++) VEC_PUSH(ids, t->front.at[i]);
    size_t first = out->n, next = 0;
    for (; next < seams->n && !seams->cut[next]; next++) seams->at[next] = ids.n;
    if (!t->added.raw.any) {
        ok = parts(t, s, text, (Segment){ 0, n, -1 }, special, seams, &next, &ids, err);
    } else {
        s->raw.n = 0;
        trie_split(&t->added, &t->added.raw, text, n, special, &s->raw);
        for (size_t i = 0; i < s->raw.n && ok; i++) {
            Segment g = s->raw.at[i];
            if (g.id < 0) ok = parts(t, s, text, g, special, seams, &next, &ids, err);
            else if (g.at < g.end) VEC_PUSH(ids, g.id);
            for (; ok && next < seams->n && seams->cut[next] <= g.end; next++) seams->at[next] = ids.n;
        }
    }
    for (; ok && next < seams->n; next++) seams->at[next] = ids.n;
    for (size_t i = 0; i < seams->n; i++) seams->at[i] -= ok ? first : 0;
    for (size_t i = 0; (flags & TOK_BOS) && i < t->back.n; i++) VEC_PUSH(ids, t->back.at[i]);
    out->at = ids.at;
    out->cap = ids.cap;
    if (ok) out->n = ids.n;
    return ok;
}

/* ---- asking */
size_t tok_vocab_size(const Tok *t) { return t->n_ids; }

int32_t tok_id_of(const Tok *t, const char *token, size_t n) {
    for (size_t i = 0; i < t->added.list.n; i++)
        if (t->added.list.at[i].n == n && !memcmp(t->added.list.at[i].content, token, n)) return t->added.list.at[i].id;
    return vocab_get(&t->bpe.vocab, token, n);
}

const char *tok_token_of(const Tok *t, int32_t id, size_t *n) {
    if (id < 0 || (size_t)id >= t->bpe.n_ids) return NULL;
    *n = t->bpe.token[id].n;
    return t->bpe.token[id].s;
}

bool tok_is_special(const Tok *t, int32_t id) { return id >= 0 && (size_t)id < t->bpe.n_ids && t->special[id]; }

/* ---- finding the files */
static const char *ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && !strcmp(s + n - m, tail) ? s + n - m : NULL;
}

static const char *find_tiktoken(const char *dir, Mem *mem) {
    const char *fixed = mem_printf(mem, "%s/tiktoken.model", dir), *found = NULL;
    if (file_exists(fixed)) return fixed;
    DIR *d = opendir(dir);
    if (!d) return NULL;
    for (const struct dirent *e; (e = readdir(d));)
        if (ends_with(e->d_name, ".tiktoken") && (!found || strcmp(e->d_name, found) < 0))
            found = mem_str(mem, e->d_name, strlen(e->d_name));
    closedir(d);
    return found ? mem_printf(mem, "%s/%s", dir, found) : NULL;
}

static bool open_json(Tok *t, const char *path, Err *err) {
    Buf text = { 0 };
    Mem mem = { 0 };
    Json file;
    bool ok = model_read(&text, path, err);
    if (ok) {
        ok = json_parse(&file, text.data ? text.data : "", text.n, &mem, err) && tok_from_json(t, &file, err);
        if (!ok) err_wrap(err, "%s", path);
    }
    mem_free(&mem);
    buf_free(&text);
    return ok;
}

static TokStatus open_in(Tok *t, const char *path, Mem *mem, Err *err) {
    const char *slash = strrchr(path, '/');
    const char *dir = model_dir(path) ? path : slash ? mem_str(mem, path, (size_t)(slash - path)) : ".";
    const char *config = mem_printf(mem, "%s/tokenizer_config.json", dir);
    if (dir != path) {
        bool vocab = ends_with(path, "vocab.json") != NULL;
        if (!file_exists(path)) return err_set(err, "%s: there is no such file or folder", path), TOK_NONE;
        if (ends_with(path, ".tiktoken") || ends_with(path, "tiktoken.model"))
            return tok_from_tiktoken(t, path, config, err) ? TOK_OK : TOK_BAD;
        if (!vocab) return open_json(t, path, err) ? TOK_OK : TOK_BAD;
    }
    const char *json = mem_printf(mem, "%s/tokenizer.json", dir), *tiktoken = find_tiktoken(dir, mem);
    const char *vocab = mem_printf(mem, "%s/vocab.json", dir), *merges = mem_printf(mem, "%s/merges.txt", dir);
    bool ok;
    if (dir == path && model_has(json)) ok = open_json(t, json, err);
    else if (dir == path && tiktoken) ok = tok_from_tiktoken(t, tiktoken, config, err);
    else if (file_exists(vocab) && file_exists(merges)) ok = tok_from_vocab(t, vocab, merges, config, err);
    else {
        err_set(err, "%s has no tokenizer: neither tokenizer.json, nor tiktoken.model, nor vocab.json with merges.txt",
                dir);
        return TOK_NONE;
    }
    return ok ? TOK_OK : TOK_BAD;
}

TokStatus tok_open(Tok **out, const char *path, Err *err) {
    Mem mem = { 0 }, names = { 0 };
    Tok *t = MEM_NEW(&mem, Tok);
    t->mem = mem;
    TokStatus st = open_in(t, path, &names, err);
    mem_free(&names);
    *out = st == TOK_OK ? t : NULL;
    if (st != TOK_OK) tok_close(t);
    return st;
}
