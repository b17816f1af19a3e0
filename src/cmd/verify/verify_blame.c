/* verify_blame.c - reads what a run left of a difference (step/difference.h), and nothing else. */
#include "cmd/verify/verify_blame.h"
#include "base/file.h"
#include "base/json.h"
#include "config/config.h"
#include "file/safetensors.h"
#include "op/device.h"
#include "step/blame.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    const char *dir;
    Json json;
    StFiles files;
    BlameConf c;
    int64_t leaves, tokens, rank, step, sequence, token;
    double sampler, trainer;
    bool cpu;
    const char *act, *weights;
    Picture *picture;
    int64_t pictures;
    Mem mem;
} Left;

static bool find_dir(Left *l, const char *dir, Err *err) {
    l->dir = mem_printf(&l->mem, "%s/difference", dir);
    if (!file_exists(mem_printf(&l->mem, "%s/difference.json", l->dir))) l->dir = dir;
    const char *path = mem_printf(&l->mem, "%s/difference.json", l->dir);
    if (!file_exists(path))
        return err_set(err, "%s has no difference/difference.json: no log-probs differed in this run", dir);
    Buf text = { 0 };
    bool ok = file_read(&text, path, err);
    const char *kept = ok ? mem_str(&l->mem, text.data ? text.data : "", text.n) : NULL;
    ok = ok && json_parse(&l->json, kept, text.n, &l->mem, err);
    buf_free(&text);
    return ok || err_wrap(err, "%s", path);
}

static bool named(const char *name, const Name *in, int *out, Err *err) {
    for (; in->name; in++)
        if (!strcmp(in->name, name)) return *out = in->value, true;
    return err_set(err, "\"%s\" is not known", name);
}

/* Columns of one tensor, in the order of the sequences: sequence i's begins at at[i]. */
static bool columns(Left *l, const char *name, DType t, int64_t count, void *to, Err *err) {
    const StTensor *x = st_find(&l->files, name);
    if (!x || x->dtype != t || x->count != count)
        return err_set(err, "%s/micro.safetensors has no '%s' of %" PRId64 " numbers of %s", l->dir, name, count,
                       dtype_name(t));
    memcpy(to, x->data, x->bytes);
    return true;
}

/* What does not hang on the model. */
static bool read_picture(const Json *j, Picture *p, Err *err) {
    int64_t t, h, w;
    TRY(json_int_within(j, "t", 1, 1 << 14, &t, err) && json_int_within(j, "h", 1, 1 << 14, &h, err)
        && json_int_within(j, "w", 1, 1 << 14, &w, err) && json_bool_must(j, "clip", &p->clip, err)
        && json_real_within(j, "seconds", 0, 1e9, &p->seconds, err));
    return p->grid = (PixelsGrid){ (int)t, (int)h, (int)w }, true;
}
static bool read_pictures(Left *l, Err *err) {
    const Json *list = json_get(&l->json, "pictures");
    if (!list || list->kind != JSON_ARRAY) return err_set(err, "\"pictures\" is no list");
    l->picture = MEM_ARRAY(&l->mem, Picture, list->n), l->pictures = (int64_t)list->n;
    for (size_t i = 0; i < list->n; i++) TRY(read_picture(&list->items[i], &l->picture[i], err));
    return true;
}
static bool read_places(Left *l, const Json *j, BlameSeq *s, Err *err) {
    const Json *list = json_get(j, "pictures");
    if (!list || list->kind != JSON_ARRAY) return err_set(err, "a sequence's \"pictures\" is no list");
    RowSpan *p = MEM_ARRAY(&l->mem, RowSpan, list->n);
    s->spans = (Spans){ p, (int)list->n };
    for (size_t i = 0; i < list->n; i++) {
        int64_t which, at;
        TRY(json_int_within(&list->items[i], "picture", 0, l->pictures - 1, &which, err)
            && json_int_within(&list->items[i], "at", 0, s->prompt - 1, &at, err));
        p[i] = (RowSpan){ &l->picture[which], (int)at };
    }
    return true;
}

/* With the model they are for: their pixels, their names, and that they lie in their prompts one behind the other. */
static bool see(Left *l, const ModelDesc *m, Err *err) {
    int64_t bytes = 0, row = m->d.vis.pixels, merge = m->d.vis.merge;
    if (!l->pictures) return true;
    if (!m->d.vis.layers) return err_set(err, "%s has pictures, and its model takes none", l->dir);
    for (int64_t i = 0; i < l->pictures; i++) {
        const PixelsGrid *g = &l->picture[i].grid;
        if (g->h % merge || g->w % merge) return err_set(err, "%s: a picture of %d x %d patches", l->dir, g->h, g->w);
        bytes += grid_rows(*g) * row;
    }
    uint8_t *pixels = MEM_ARRAY(&l->mem, uint8_t, (size_t)bytes);
    float(*table)[256] = mem_push(&l->mem, 3 * sizeof *table);
    TRY(columns(l, "pixels", DT_U8, bytes, pixels, err) && columns(l, "pixel_table", DT_F32, 3 * 256, table, err));
    for (int64_t i = 0; i < l->pictures; i++) {
        Picture *p = &l->picture[i];
        p->bytes = pixels, p->table = (const float(*)[256])table;
        pixels += grid_rows(p->grid) * row;
        picture_name(p, (size_t)row);
    }
    for (int i = 0; i < l->c.n; i++) {
        const BlameSeq *s = &l->c.seq[i];
        int64_t end = 0;
        for (int k = 0; k < s->spans.n; end = s->spans.at[k].at + picture_tokens(s->spans.at[k].picture, &m->d), k++)
            if (s->spans.at[k].at < end) return err_set(err, "%s: pictures of sequence %d overlap", l->dir, i);
        if (end > s->prompt) return err_set(err, "%s: a picture of sequence %d goes beyond its prompt", l->dir, i);
    }
    return true;
}

static bool read_sequence(Left *l, const Json *j, BlameSeq *s, Err *err) {
    int64_t row, again, sample, prompt, tokens;
    TRY(json_int_within(j, "row", 0, INT64_MAX, &row, err) && json_int_within(j, "again", 0, 65535, &again, err)
        && json_int_within(j, "sample", 0, 65535, &sample, err)
        && json_int_within(j, "tokens", 2, INT32_MAX, &tokens, err)
        && json_int_within(j, "prompt", 1, tokens - 1, &prompt, err));
    *s = (BlameSeq){
        .row = row, .again = (uint32_t)again, .sample = (int)sample, .prompt = (int)prompt, .n = (int)tokens
    };
    return read_places(l, j, s, err);
}

static bool read_micro(Left *l, Err *err) {
    const Json *list = json_get(&l->json, "sequences");
    if (!list || list->kind != JSON_ARRAY || !list->n) return err_set(err, "\"sequences\" is no list");
    TRY(read_pictures(l, err));
    BlameSeq *s = MEM_ARRAY(&l->mem, BlameSeq, list->n);
    int64_t all = 0, answers = 0;
    for (size_t i = 0; i < list->n; i++) {
        TRY(read_sequence(l, &list->items[i], &s[i], err));
        all += s[i].n, answers += s[i].n - s[i].prompt;
    }
    TRY(st_open(&l->files, mem_printf(&l->mem, "%s/micro.safetensors", l->dir), &l->mem, err));
    int32_t *tokens = MEM_ARRAY(&l->mem, int32_t, (size_t)all);
    float *sampler = MEM_ARRAY(&l->mem, float, (size_t)answers), *trainer = MEM_ARRAY(&l->mem, float, (size_t)answers);
    uint8_t *mask = MEM_ARRAY(&l->mem, uint8_t, (size_t)answers);
    TRY(columns(l, "tokens", DT_I32, all, tokens, err) && columns(l, "sampler", DT_F32, answers, sampler, err)
        && columns(l, "trainer", DT_F32, answers, trainer, err) && columns(l, "mask", DT_U8, answers, mask, err));
    int64_t at = 0, from = 0;
    for (size_t i = 0; i < list->n; at += s[i].n, from += s[i].n - s[i].prompt, i++)
        s[i].tokens = tokens + at, s[i].sampler = sampler + from, s[i].trainer = trainer + from,
        s[i].mask = mask + from;
    l->c.seq = s, l->c.n = (int)list->n, l->tokens = all;
    return true;
}

/* null where it was no number */
static bool log_prob(const Json *j, const char *key, double *out, Err *err) {
    const Json *x = json_get(j, key);
    return x && x->kind == JSON_NULL ? (*out = NAN, true) : json_real(j, key, out, err);
}

static bool read_how(Left *l, Err *err) {
    const Json *j = &l->json;
    const char *recompute;
    int64_t page, seed, draw_step, top_k;
    double temperature, top_p, min_p;
    int kind = 0;
    TRY(json_int(j, "step", &l->step, err) && json_int(j, "rank", &l->rank, err)
        && json_int_within(j, "sequence", 0, l->c.n - 1, &l->sequence, err) && json_int(j, "token", &l->token, err)
        && log_prob(j, "sampler", &l->sampler, err) && log_prob(j, "trainer", &l->trainer, err)
        && json_bool_must(j, "cpu", &l->cpu, err) && json_int_within(j, "leaves", 1, LEAVES_MOST, &l->leaves, err)
        && json_str(j, "act", &l->act, err) && json_str(j, "weights", &l->weights, err)
        && json_str(j, "recompute", &recompute, err) && named(recompute, recompute_names, &kind, err)
        && json_bool_must(j, "update", &l->c.update, err) && json_bool_must(j, "keep_logits", &l->c.keep_logits, err)
        && json_int_within(j, "page", 16, 1 << 20, &page, err) && json_int_within(j, "seed", 0, INT64_MAX, &seed, err)
        && json_int_within(j, "draw_step", 0, UINT32_MAX, &draw_step, err)
        && json_real_within(j, "temperature", TEMPERATURE_LEAST, TEMPERATURE_MOST, &temperature, err)
        && json_real_within(j, "top_p", 0, 1, &top_p, err) && json_real_within(j, "min_p", 0, 1, &min_p, err)
        && json_int_within(j, "top_k", 0, INT32_MAX, &top_k, err));
    l->c.draw = (Drawing){ (float)temperature, (float)top_p, (float)min_p, (int32_t)top_k };
    l->c.recompute = (Recompute)kind, l->c.page = (int)page, l->c.seed = (uint64_t)seed,
    l->c.step = (uint32_t)draw_step;
    l->c.rows = l->tokens < 4096 ? l->tokens : 4096;
    return true;
}

static bool read_left(Left *l, const char *dir, Err *err) {
    TRY(find_dir(l, dir, err));
    return (read_micro(l, err) && read_how(l, err)) || err_wrap(err, "%s/difference.json", l->dir);
}

static bool in_vocabulary(const Left *l, const ModelDesc *m, Err *err) {
    for (int i = 0; i < l->c.n; i++)
        for (int t = 0; t < l->c.seq[i].n; t++)
            if (l->c.seq[i].tokens[t] < 0 || l->c.seq[i].tokens[t] >= m->d.vocab)
                return err_set(err, "%s: token %d is not in the model's vocabulary", l->dir, l->c.seq[i].tokens[t]);
    return true;
}

bool verify_blame(const char *dir, const OpenOpts *asked, bool *found, Err *err) {
    Left l = { 0 };
    Opened o = { 0 };
    Blame b = { 0 };
    OpenOpts oo = *asked;
    bool ok = read_left(&l, dir, err);
    if (ok) {
        if (!oo.device) oo.device = l.cpu ? "cpu" : "cuda";
        if (!oo.compute && !l.cpu) oo.compute = strcmp(l.act, "F32") ? "bf16" : "f32";
        if (!oo.leaves) oo.leaves = l.leaves;
        oo.trained = true, oo.weights = strcmp(l.weights, "F32") ? DT_BF16 : DT_F32;
        printf("step %" PRId64 ", rank %" PRId64 ": token %" PRId64 " of sequence %" PRId64
               " had log-prob %.9g when it was drawn and %.9g in the trainer; %d sequences, %" PRId64 " tokens\n",
               l.step, l.rank, l.token, l.sequence, l.sampler, l.trainer, l.c.n, l.tokens);
        fflush(stdout);
        const char *model = mem_printf(&l.mem, "%s/model", l.dir), *adapter = mem_printf(&l.mem, "%s/adapter", l.dir);
        if (peft_is(adapter)) oo.adapter = adapter, oo.trained = false; /* the model is the one that it names */
        ok = (!oo.adapter || peft_base(&model, adapter, &l.mem, err)) && open_desc(&o, model, &oo, err)
             && in_vocabulary(&l, &o.desc, err) && see(&l, &o.desc, err)
             && open_weights(&o, &oo, blame_tmp_bytes(&o.desc, &l.c, open_kind(&o, oo.leaves)), err)
             && blame_find(&b, &o.model, &l.c, err);
    }
    if (ok) printf("%s\n", b.text);
    *found = ok && b.kind != BLAME_NONE;
    open_close(&o);
    st_close(&l.files);
    mem_free(&l.mem);
    return ok;
}
