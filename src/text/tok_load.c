/* tok_load.c - tokenizer.json into a Tok.  Every piece of the file is either understood or named in an error:
 * a piece passed over in silence would give other ids than the model was trained on.  "truncation" and
 * "padding" are the exception: they say how batches are cut, not how text is read, and the callers of the
 * reference switch them off as well. */
#include "text/tok_parts.h"

#include <string.h>

/* ---- added tokens */
static bool read_added(AddedToken *a, const Json *j, Mem *mem, Err *err) {
    const Json *content = json_get(j, "content");
    if (!content || content->kind != JSON_STRING) return err_set(err, "an added token has no \"content\"");
    *a = (AddedToken){ .content = mem_str(mem, content->str, content->n), .n = content->n, .id = -1 };
    TRY(json_bool(j, "special", &a->special, err) && json_bool(j, "single_word", &a->single_word, err));
    TRY(json_bool(j, "lstrip", &a->lstrip, err) && json_bool(j, "rstrip", &a->rstrip, err));
    a->normalized = !a->special;
    return json_bool(j, "normalized", &a->normalized, err);
}

/* The reference numbers tokens that are not in the vocabulary itself, one after the other behind it,
 * whatever the file says: its ids are what a model was trained with.  tokenizer_config.json, in contrast,
 * names ids that hold (own_ids). */
static int32_t number(const Tok *t, const Json *j, const AddedToken *a, bool own_ids, int32_t next) {
    int32_t have = vocab_get(&t->bpe.vocab, a->content, a->n);
    if (!own_ids) return have >= 0 ? have : next;
    int64_t id = -1;
    Err ignore;
    (void)json_int(j, "id", &id, &ignore);
    return id >= 0 && id < BPE_MAX_ID ? (int32_t)id : -1;
}

bool tok_add_tokens(Tok *t, const Json *list, bool own_ids, Err *err) {
    if (!list || list->kind == JSON_NULL) return true;
    if (list->kind != JSON_ARRAY) return err_set(err, "\"added_tokens\" must be an array");
    Added *all = &t->added;
    Mem tmp = { 0 };
    Vocab seen;
    vocab_init(&seen, list->n, &tmp);
    int32_t next = (int32_t)t->bpe.vocab.n;
    bool ok = true;
    for (size_t i = 0; i < list->n && ok; i++) {
        AddedToken a;
        ok = read_added(&a, &list->items[i], &t->mem, err);
        if (!ok || a.n == 0) continue;
        int32_t again = vocab_get(&seen, a.content, a.n);
        if (again >= 0) { /* named twice: the later flags hold */
            a.id = all->list.at[again].id;
            all->list.at[again] = a;
            continue;
        }
        a.id = number(t, &list->items[i], &a, own_ids, next);
        if (a.id < 0 || a.id >= BPE_MAX_ID) {
            ok = err_set(err, "the added token \"%.60s\" has no usable id", a.content);
            break;
        }
        if (a.id >= next) next = a.id + 1;
        vocab_put(&seen, a.content, a.n, (int32_t)all->list.n);
        VEC_PUSH(all->list, a);
        bpe_add_token(&t->bpe, a.content, a.n, a.id, &t->mem);
    }
    mem_free(&tmp);
    return ok;
}

/* Special ones first: of two that look alike, the first is found. */
static bool index_added(Tok *t, Err *err) {
    Added *all = &t->added;
    RegexScratch regex = { 0 };
    NormalScratch ns = { .regex = &regex };
    bool ok = true;
    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < all->list.n && ok; i++) {
            const AddedToken *a = &all->list.at[i];
            if (a->special != (pass == 0)) continue;
            if (a->single_word && !all->word) all->word = ubits_named(USET_RUST_W, &t->mem);
            const char *s = a->content;
            size_t n = a->n;
            bool start = true;
            if (a->normalized) ok = normal_apply(t->normal, &ns, s, n, &s, &n, &start, err);
            if (ok && n == 0)
                ok = err_set(err, "the added token \"%.60s\" is nothing once it is normalized", a->content);
            if (ok) trie_put(a->normalized ? &all->normal : &all->raw, s, n, (int32_t)i);
        }
    normal_scratch_free(&ns);
    regex_scratch_free(&regex);
    return ok;
}

static void finish(Tok *t) {
    t->special = MEM_ARRAY(&t->mem, uint8_t, t->bpe.n_ids);
    for (size_t i = 0; i < t->added.list.n; i++) t->special[t->added.list.at[i].id] = t->added.list.at[i].special;
    for (size_t i = 0; i < t->bpe.n_ids; i++)
        if (t->bpe.token[i].s) t->n_ids = i + 1;
}

/* ---- post-processor */
static bool template_ids(const Json *special, const Json *name, TokIds *to, Err *err) {
    const Json *ids = name && name->kind == JSON_STRING ? json_get(json_get(special, name->str), "ids") : NULL;
    if (!ids || ids->kind != JSON_ARRAY)
        return err_set(err, "TemplateProcessing: a special token of \"single\" has no \"ids\" in \"special_tokens\"");
    for (size_t i = 0; i < ids->n; i++) {
        const Json *id = &ids->items[i];
        if (id->kind != JSON_INT || id->integer < 0 || id->integer >= BPE_MAX_ID)
            return err_set(err, "TemplateProcessing: an id that is none");
        VEC_PUSH(*to, (int32_t)id->integer);
    }
    return true;
}

static bool template(Tok *t, const Json *piece, Err *err) {
    const Json *single = json_get(piece, "single"), *special = json_get(piece, "special_tokens");
    if (!single || single->kind != JSON_ARRAY) return err_set(err, "TemplateProcessing has no \"single\"");
    int texts = 0;
    for (size_t i = 0; i < single->n; i++) {
        const Json *token = json_get(&single->items[i], "SpecialToken"),
                   *text = json_get(&single->items[i], "Sequence");
        if (token) TRY(template_ids(special, json_get(token, "id"), texts ? &t->back : &t->front, err));
        else if (text && json_is_str(json_get(text, "id"), "A")) texts++;
        else return err_set(err, "TemplateProcessing: \"single\" may hold SpecialToken and the Sequence A only");
    }
    return texts == 1 || err_set(err, "TemplateProcessing: \"single\" must hold the Sequence A once");
}

static bool post_processor(Tok *t, const Json *piece, int *templates, int depth, Err *err) {
    if (!piece || piece->kind == JSON_NULL) return true;
    const char *type;
    TRY(piece_type(piece, "post_processor", &type, err));
    if (!strcmp(type, "ByteLevel")) return true; /* it only moves offsets */
    if (!strcmp(type, "TemplateProcessing")) {
        if ((*templates)++) return err_set(err, "two TemplateProcessing in one post_processor are not supported");
        return template(t, piece, err);
    }
    if (strcmp(type, "Sequence")) return err_set(err, "the post_processor %.60s is not supported", type);
    const Json *list = json_get(piece, "processors");
    if (!list || list->kind != JSON_ARRAY || depth >= TEXT_DEPTH)
        return err_set(err, "the post_processor Sequence wants \"processors\", an array, at most %d deep", TEXT_DEPTH);
    for (size_t i = 0; i < list->n; i++) TRY(post_processor(t, &list->items[i], templates, depth + 1, err));
    return true;
}

/* ---- all of it */
bool tok_pipeline(Tok *t, const Json *file, Err *err) {
    t->normal = normal_open(json_get(file, "normalizer"), err);
    if (!t->normal) return false;
    t->pretok = pretok_open(json_get(file, "pre_tokenizer"), err);
    if (!t->pretok) return false;
    int templates = 0;
    TRY(decoder_open(&t->decoder, json_get(file, "decoder"), &t->mem, err));
    TRY(post_processor(t, json_get(file, "post_processor"), &templates, 0, err));
    Bpe *b = &t->bpe;
    if (b->byte_fallback || *b->prefix || *b->suffix) pretok_map_last(t->pretok);
    b->bytes = !b->raw && pretok_bytes(t->pretok);
    bpe_ready(b);
    TRY(index_added(t, err));
    finish(t);
    return true;
}

bool tok_from_json(Tok *t, const Json *file, Err *err) {
    const Json *model = json_get(file, "model");
    if (!model || model->kind != JSON_OBJECT) return err_set(err, "this is no tokenizer.json: it has no \"model\"");
    TRY(bpe_open(&t->bpe, model, &t->mem, err));
    TRY(tok_add_tokens(t, json_get(file, "added_tokens"), false, err));
    return tok_pipeline(t, file, err);
}
