/* test_vision.c - pictures in a model: versions that are wrong by one thing are far from the reference
 * (tests/data/models/qwen2_5_vl_clips), the positions of ten sequences as five programs have them, the same bits alone
 * and among others, gradients with and without recomputation. */
#include "fixture.h"

#include "base/file.h"
#include "file/safetensors.h"

#include <math.h>

enum { SEQS = 4, PICS = 4 };
typedef struct {
    Fixture f;
    StFiles st;
    PackSeq seq[SEQS];
    RowSpan placed[SEQS][PICS];
    Picture pic[SEQS][PICS];
    float *want[SEQS]; /* log-probs */
    Arena act, pixels;
    PicturesShape shape;
} Vl;

static const StTensor *find(Vl *v, int i, const char *name) {
    char key[64];
    snprintf(key, sizeof key, "seq%d.%s", i, name);
    return st_find(&v->st, key);
}

static void read_seq(Vl *v, int i) {
    const Dims *d = &v->f.desc.d;
    const StTensor *ids = find(v, i, "input_ids"), *lp = find(v, i, "logprobs");
    int32_t *tokens = mem_copy(&v->f.mem, ids->data, ids->bytes);
    int n = (int)ids->count, pics = 0, row[2] = { 0 }, at[2] = { 0 };
    for (int t = 0; t < n;) {
        bool clip = tokens[t] == d->vis.video_token;
        if (!clip && tokens[t] != d->vis.image_token) {
            t++;
            continue;
        }
        const StTensor *grid = find(v, i, clip ? "video_grid_thw" : "image_grid_thw"),
                       *px = find(v, i, clip ? "pixel_values_videos" : "pixel_values"),
                       *s = find(v, i, "second_per_grid_ts");
        int32_t g[3];
        float seconds = 1;
        memcpy(g, grid->data + 12 * at[clip], 12);
        if (clip && s) memcpy(&seconds, s->data + 4 * at[clip], 4);
        Picture *p = &v->pic[i][pics];
        *p = (Picture){ .grid = { g[0], g[1], g[2] }, .clip = clip, .seconds = (double)seconds };
        p->values = (float *)mem_copy(&v->f.mem, px->data, px->bytes) + row[clip] * d->vis.pixels;
        v->placed[i][pics++] = (RowSpan){ p, t };
        row[clip] += (int)grid_rows(p->grid), at[clip]++;
        t += picture_tokens(p, d);
    }
    v->seq[i] = (PackSeq){ tokens, n, 1, DRAW_PLAIN, .spans = { v->placed[i], pics } };
    v->want[i] = mem_copy(&v->f.mem, lp->data, lp->bytes);
}

static void vl_open(Vl *v, Recompute recompute, int threads) {
    enum { TOKENS = 128 };
    Err err = { "" };
    *v = (Vl){ 0 };
    const char *path = FIXTURE("models/qwen2_5_vl_clips");
    Fixture *f = &v->f;
    CHECK(model_desc_load(&f->desc, path, &f->mem, &err), "%s", err.msg);
    CHECK(st_open(&v->st, FIXTURE("models/qwen2_5_vl_clips/golden.safetensors"), &f->mem, &err), "%s", err.msg);
    for (int i = 0; i < SEQS; i++) read_seq(v, i);
    dev_open(&f->dev, (DevOpts){ .threads = threads, .guard = true });
    v->shape = batch_pictures(v->seq, SEQS, &f->desc.d);
    ModelShape s = { .tokens = TOKENS,
                     .outputs = TOKENS,
                     .seqs = SEQS,
                     .longest = 64,
                     .backward = true,
                     .trained.recompute = recompute,
                     .like = dev_kind(&f->dev),
                     .pictures = v->shape };
    ModelSizes z = model_sizes(&f->desc, &s);
    f->dev.tmp = dev_arena(&f->dev, "tmp", z.tmp);
    model_open(&f->model, &f->dev, &f->desc, DT_F32, 8, &f->mem);
    f->model.trained.recompute = recompute;
    CHECK(model_load(&f->model, path, &err), "%s", err.msg);
    v->act = dev_arena(&f->dev, "act", z.act);
    f->io =
        dev_arena(&f->dev, "io", 64 * arena_round(TOKENS * 8) + 2 * batch_images_bytes(&v->shape, TOKENS, &f->desc.d));
    f->host = arena_on_host("host", batch_host_bytes(TOKENS, SEQS) + 4096, &f->mem);
}
static void vl_close(Vl *v) {
    st_close(&v->st);
    fixture_close(&v->f);
}

/* ---- wrong versions */
typedef enum { RIGHT, NO_WINDOWS, CLIP_WHOLE, IMAGES_TOGETHER, TEXT_EPS, SWAPPED, VLLM_RULE, TANH_GELU, WRONGS } Wrong;
static const char *const wrong_name[] = { "right",
                                          "no windows",
                                          "frames of a clip see each other",
                                          "images see each other",
                                          "the text's epsilon",
                                          "row and column swapped",
                                          "vLLM's positions",
                                          "tanh GELU" };

static void eps_of_text(Dev *d, Tensor y, Tensor rstd, Tensor x, Tensor g, float eps) {
    ops_cpu.rmsnorm(d, y, rstd, x, g, eps == 1e-6f ? 1e-3f : eps);
}
static void tanh_gelu(Dev *d, Tensor y, Tensor x) {
    dev_chain(d, false);
    for (int64_t r = 0; r < x.rows; r++)
        for (int64_t c = 0; c < x.cols; c++) {
            double z = (double)((float *)x.data)[r * x.ld + c];
            ((float *)y.data)[r * y.ld + c] = (float)(z / 2 * (1 + tanh(sqrt(2 / M_PI) * (z + 0.044715 * z * z * z))));
        }
}

static Seqs segments(Vl *v, const Batch *b, int n, const int32_t *at) {
    int longest = 0;
    for (int i = 0; i < n; i++) longest = at[i + 1] - at[i] > longest ? at[i + 1] - at[i] : longest;
    Tensor t = tensor_push(&v->f.io, DT_I32, n + 1, 1);
    op_put(&v->f.dev, t, at);
    (void)b;
    return (Seqs){ n, longest, t };
}

static double error_of(Vl *v, Wrong wrong) {
    Fixture *f = &v->f;
    static Ops planted;
    ClipRule rule;
    CHECK(clip_rule_named(&rule, wrong == VLLM_RULE ? "vllm" : "transformers 5.17.0"), "no such program");
    planted = ops_cpu;
    if (wrong == TEXT_EPS) planted.rmsnorm = eps_of_text;
    if (wrong == TANH_GELU) planted.gelu = tanh_gelu;
    size_t io = arena_mark(&f->io);
    Batch b;
    batch_put(&b, &f->dev, &f->io, &f->host, v->seq, SEQS);
    model_put_images(&f->model, &b, &f->io, v->seq, SEQS, rule);
    if (wrong == NO_WINDOWS) b.images.windows = b.images.frames;
    if (wrong == IMAGES_TOGETHER) b.images.frames = segments(v, &b, 1, (int32_t[]){ 0, (int32_t)b.images.patches });
    if (wrong == CLIP_WHOLE) {
        int32_t at[SEQS * PICS + 1] = { 0 }, n = 0;
        for (int i = 0; i < SEQS; i++)
            for (int k = 0; k < v->seq[i].spans.n; k++, n++) at[n + 1] = at[n] + (int32_t)grid_rows(v->pic[i][k].grid);
        b.images.frames = segments(v, &b, n, at);
    }
    if (wrong == SWAPPED) {
        int32_t(*pos)[3] = mem_array(&f->mem, (size_t)b.tokens, sizeof *pos);
        op_get(&f->dev, pos, b.pos);
        for (int64_t t = 0; t < b.tokens; t++) {
            int32_t row = pos[t][1];
            pos[t][1] = pos[t][2], pos[t][2] = row;
        }
        op_put(&f->dev, b.pos, pos);
    }
    f->dev.ops = &planted;
    Tensor lp = tensor_push(&f->io, DT_F32, b.outputs, 1);
    model_score(&f->model, &b, lp, TENSOR_NONE);
    f->dev.ops = &ops_cpu;
    float *got = MEM_ARRAY(&f->mem, float, (size_t)b.outputs);
    op_get(&f->dev, got, lp);
    double worst = 0;
    for (int i = 0, at = 0; i < SEQS; at += v->seq[i++].n - 1)
        for (int t = 0; t + 1 < v->seq[i].n; t++)
            worst = fmax(worst, fabs((double)got[at + t] - (double)v->want[i][t]));
    arena_pop(&f->io, io);
    return worst;
}

static void wrong_versions(void) {
    Vl v;
    vl_open(&v, RECOMPUTE_NONE, 2);
    for (Wrong w = RIGHT; w < WRONGS; w++) {
        double e = error_of(&v, w);
        EXPECT(w == RIGHT ? e < 2e-5 : e > 4e-5, "%s: log-probs are off by %.1e", wrong_name[w], e);
    }
    vl_close(&v);
}

/* ---- a sequence's log-probs and a tower's rows do not know the batch */
static float *scores(Vl *v, const PackSeq *seqs, int n) {
    Fixture *f = &v->f;
    size_t io = arena_mark(&f->io);
    Batch b;
    batch_put(&b, &f->dev, &f->io, &f->host, seqs, n);
    model_put_images(&f->model, &b, &f->io, seqs, n, CLIP_RULE);
    Tensor lp = tensor_push(&f->io, DT_F32, b.outputs, 1);
    model_score(&f->model, &b, lp, TENSOR_NONE);
    float *got = MEM_ARRAY(&f->mem, float, (size_t)b.outputs);
    op_get(&f->dev, got, lp);
    arena_pop(&f->io, io);
    return got;
}
static void alone_and_together(void) {
    Vl v;
    vl_open(&v, RECOMPUTE_NONE, 3);
    float *all = scores(&v, v.seq, SEQS);
    for (int i = 0, at = 0; i < SEQS; at += v.seq[i++].n - 1)
        EXPECT(!memcmp(scores(&v, &v.seq[i], 1), all + at, (size_t)(v.seq[i].n - 1) * 4), "sequence %d alone differs",
               i);
    PackSeq twice[] = { v.seq[0], v.seq[0] }; /* its pictures are there once */
    PicturesShape one = batch_pictures(twice, 1, &v.f.desc.d), both = batch_pictures(twice, 2, &v.f.desc.d);
    EXPECT(one.patches == both.patches && one.patches == 88, "%ld and %ld patches", (long)one.patches,
           (long)both.patches);
    float *got = scores(&v, twice, 2);
    size_t n = (size_t)(v.seq[0].n - 1);
    EXPECT(!memcmp(got, got + n, n * 4) && !memcmp(got, all, n * 4), "shared pictures give other log-probs");
    Picture copy[PICS]; /* read once more, from a file that shows the same: a name, and another address */
    RowSpan placed[PICS];
    for (int k = 0; k < twice[1].spans.n; k++) {
        v.pic[0][k].key[0] = (uint64_t)k + 1, copy[k] = v.pic[0][k];
        placed[k] = (RowSpan){ &copy[k], v.placed[0][k].at };
    }
    twice[1].spans = (Spans){ placed, twice[1].spans.n };
    both = batch_pictures(twice, 2, &v.f.desc.d);
    EXPECT(one.patches == both.patches, "pictures of one name are there %g times",
           (double)both.patches / (double)one.patches);
    got = scores(&v, twice, 2);
    EXPECT(!memcmp(got, got + n, n * 4) && !memcmp(got, all, n * 4), "pictures of one name give other log-probs");
    v.placed[0][0].picture = &v.pic[0][1],
    v.placed[0][1].picture = &v.pic[0][0]; /* others in their places: of one size? */
    if (picture_tokens(&v.pic[0][0], &v.f.desc.d) == picture_tokens(&v.pic[0][1], &v.f.desc.d))
        EXPECT(memcmp(scores(&v, v.seq, 1), all, n * 4), "other pictures, the same log-probs");
    vl_close(&v);
}

/* ---- gradients: the same bits with any recomputation; a frozen tower gets none and changes no other */
static float *gradient(Recompute r, int threads, bool frozen, size_t *n, int64_t *visual0, int64_t *visual1) {
    Vl v;
    vl_open(&v, r, threads);
    Fixture *f = &v.f;
    Params g;
    params_open(&g, &f->desc, NULL, &f->dev, DT_F32, true, "grads", &f->mem);
    PackSeq seqs[] = { v.seq[0], v.seq[1], v.seq[2], v.seq[3] };
    Batch b;
    f->model.trained.tower_frozen = frozen;
    batch_put(&b, &f->dev, &f->io, &f->host, seqs, SEQS);
    model_put_images(&f->model, &b, &f->io, seqs, SEQS, CLIP_RULE);
    Tensor lp = tensor_push(&f->io, DT_F32, b.outputs, 1), ent = tensor_push(&f->io, DT_F32, b.outputs, 1);
    ModelKeep keep = model_keep(&f->desc, f->desc.d.layers, &f->mem);
    op_zero(&f->dev, g.flat);
    model_forward(&f->model, &b, &v.act, &keep, lp, ent);
    float *d = MEM_ARRAY(&f->mem, float, (size_t)b.outputs);
    for (int64_t i = 0; i < b.outputs; i++) d[i] = 0.1f * (float)(i % 7 - 3);
    op_put(&f->dev, lp, d);
    model_backward(&f->model, &g, &b, &v.act, &keep, lp, TENSOR_NONE);
    EXPECT(v.act.peak <= v.act.size && (frozen || v.act.peak * 10 > v.act.size * 8), "activations: %zu of %zu planned",
           v.act.peak, v.act.size);
    *n = (size_t)g.flat.cols;
    float *out = malloc(*n * 4);
    op_get(&f->dev, out, g.flat);
    *visual0 = *visual1 = -1;
    for (int i = 0; i < g.n; i++)
        if (!strncmp(g.at[i].desc->name, "visual.", 7)) {
            if (*visual0 < 0) *visual0 = params_from(&g, i);
            *visual1 = params_from(&g, i + 1);
        }
    vl_close(&v);
    return out;
}
static void same_gradient(void) {
    static const struct {
        int threads;
        Recompute r;
    } other[] = { { 1, RECOMPUTE_SELECTIVE }, { 3, RECOMPUTE_FULL }, { 2, RECOMPUTE_NONE } };
    size_t n, m;
    int64_t a, z;
    float *want = gradient(RECOMPUTE_NONE, 1, false, &n, &a, &z);
    for (size_t i = 0; i < COUNT(other); i++) {
        float *got = gradient(other[i].r, other[i].threads, false, &m, &a, &z);
        EXPECT(n == m && !memcmp(want, got, n * 4), "gradient differs on %d threads, recompute %d", other[i].threads,
               other[i].r);
        free(got);
    }
    float *cold = gradient(RECOMPUTE_NONE, 2, true, &m, &a, &z);
    int64_t inside = 0, outside = 0;
    for (int64_t i = 0; i < (int64_t)n; i++) {
        if (i >= a && i < z) inside += cold[i] != 0;
        else outside += cold[i] != want[i];
    }
    EXPECT(a >= 0 && z > a && !inside && !outside, "a frozen tower: %ld gradients of it, %ld others differ",
           (long)inside, (long)outside);
    free(cold), free(want);
}

/* ---- positions.json */
static void positions(void) {
    Mem mem = { 0 };
    Err err = { "" };
    Buf text = { 0 };
    Json all;
    Dims d = { .vis.merge = 2, .vis.per_second = 2 };
    CHECK(file_read(&text, FIXTURE("vision/positions.json"), &err) && json_parse(&all, text.data, text.n, &mem, &err),
          "%s", err.msg);
    int answers = 0;
    for (size_t c = 0; c < all.n; c++) {
        const Json *x = &all.items[c], *ids = json_get(x, "ids"),
                   *sets[2] = { json_get(x, "image_grid_thw"), json_get(x, "video_grid_thw") };
        const Json *seconds = json_get(x, "second_per_grid_ts"), *list = json_get(x, "answers");
        RowSpan placed[32];
        Picture pic[32];
        int n = 0;
        size_t at[2] = { 0 };
        for (size_t t = 0; t < ids->n;) {
            int64_t id = ids->items[t].integer;
            if (id != 151655 && id != 151656) {
                t++;
                continue;
            }
            bool clip = id == 151656;
            const Json *g = &sets[clip]->items[at[clip]];
            pic[n] =
                (Picture){ .grid = { (int)g->items[0].integer, (int)g->items[1].integer, (int)g->items[2].integer },
                           .clip = clip };
            if (clip) pic[n].seconds = json_number(&seconds->items[at[1]]);
            at[clip]++;
            placed[n] = (RowSpan){ &pic[n], (int)t };
            t += (size_t)picture_tokens(&pic[n++], &d);
        }
        for (size_t k = 0; k < list->n; k++) {
            const Json *by = json_get(&list->items[k], "by"), *want = json_get(&list->items[k], "position_ids");
            static const char *const programs[] = { "transformers 4.57", "transformers 5.17", "transformers 5.22",
                                                    "vllm", "verl megatron" };
            bool agree = !strcmp(by->items[0].str, "all");
            for (size_t b = 0; b < (agree ? COUNT(programs) : by->n); b++, answers++) {
                ClipRule rule = CLIP_RULE;
                const char *program = agree ? programs[b] : by->items[b].str;
                EXPECT(clip_rule_named(&rule, program), "%s is not known", program);
                int32_t(*pos)[3] = mem_array(&mem, ids->n, sizeof *pos);
                int delta = picture_positions(pos, (int)ids->n, (Spans){ placed, n }, &d, rule), bad = 0;
                for (size_t t = 0; t < ids->n; t++)
                    for (int a = 0; a < 3; a++) bad += pos[t][a] != want->items[a].items[t].integer;
                EXPECT(!bad && delta == json_get(&list->items[k], "delta")->integer,
                       "case %zu, %s: %d positions differ, delta %d", c, program, bad, delta);
            }
        }
    }
    EXPECT(all.n == 10 && answers >= 40, "%zu sequences, %d answers", all.n, answers);
    ClipRule vllm;
    EXPECT(clip_rule_named(&vllm, "vllm") && !memcmp(&vllm, &CLIP_RULE, sizeof vllm), "the rule of runs is vLLM's");
    buf_free(&text);
    mem_free(&mem);
}

int main(void) {
    positions();
    wrong_versions();
    alone_and_together();
    same_gradient();
    return test_end();
}
