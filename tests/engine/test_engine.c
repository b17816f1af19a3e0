/* test_engine.c - E1 and E3: an answer is the same whatever the batch, the order, the pages, the chunks and
 * the threads, and its log-probs and entropies are the trainer's, bit for bit; faults planted in the
 * kernels are noticed. */
#include "model/kept_set.h"
#include "op/planted.h"
#include "engine/engine_fixture.h"

#include <math.h>

enum { TOKENS = 1100 };

static const Shape shapes[] = {
    { "all at once", 1, 16, 120, 32, 32, 256, TOGETHER },
    { "one by one", 2, 16, 40, 8, 8, 64, ALONE },
    { "in reverse", 3, 64, 40, 32, 32, 256, REVERSED },
    { "chunks of 7 rows", 2, 16, 120, 16, 7, 7, TOGETHER },
    { "room for one and a half", 1, 16, 6, 16, 8, 64, TOGETHER },
    { "the same in reverse", 3, 16, 6, 12, 4, 40, REVERSED },
    { "two at once", 2, 48, 20, 4, 2, 30, TOGETHER },
};

static int answers_wanted(void) {
    int n = 0;
    for (int i = 0; i < REQUESTS; i++) n += asked[i].samples;
    return n;
}

static void same_answers(const char *name, int which) {
    const char *title = name ? name : awkward[which].name;
    Result *want = malloc(sizeof *want), *got = malloc(sizeof *got);
    for (size_t k = 0; k < COUNT(shapes); k++) {
        const Shape *s = &shapes[k];
        EngineConf c = shape_conf(s);
        Fixture f;
        fixture_load(&f, name, which, s->threads, TOKENS, false, RECOMPUTE_NONE);
        if (k) unguarded(&f);
        engine_room(&f, s);
        Asking a = { 0 };
        engine_prompts(&a, &f);
        Engine *e = engine_open(&f.model, &c, &f.mem);
        ask(&a, e, s, k ? got : want);
        const Result *r = k ? got : want;
        bool hits = !f.desc.d.dn_keys; /* a state knows no prefix but its own */
        EXPECT(r->answers == answers_wanted(), "%s, %s: %d answers", title, s->name, r->answers);
        EXPECT(!k || !memcmp(want->at, got->at, sizeof want->at), "%s: answers differ when asked %s", title, s->name);
        int bad = k < 3 ? not_scored(&a, r, k == 0) : 0; /* the answers are equal: no need to score them again */
        EXPECT(!bad, "%s, %s: %d answers whose log-probs or entropies are not the trainer's", title, s->name, bad);
        EXPECT(s->pages > 6 || r->stats.sched.preempted > 0, "%s, %s: nothing was preempted", title, s->name);
        EXPECT(s->pages <= 6 || r->stats.sched.forks > 0, "%s, %s: nothing was forked", title, s->name);
        EXPECT(s->how != ALONE || (r->stats.sched.prefix_tokens > 0) == hits, "%s, %s: no page was found again", title,
               s->name);
        if (k == 0) { /* warm: the prompts are in the cache now */
            Result *again = malloc(sizeof *again);
            ask(&a, e, s, again);
            EXPECT(!memcmp(want->at, again->at, sizeof want->at) && (again->stats.sched.prefix_tokens > 0) == hits,
                   "%s: a warm cache changes the answers", title);
            free(again);
        }
        engine_close(e);
        fixture_close(&f);
    }
    free(want);
    free(got);
}

/* ---- planted faults: the CPU's operations with one of them slightly wrong while the engine runs */
static void wrong_position(Dev *d, Tensor cossin, Tensor pos, Tensor freq, float amp) { /* the last row one too far */
    int32_t *p = pos.data;
    p[pos.rows - 1]++;
    ops_cpu.rope_table(d, cossin, pos, freq, amp);
    p[pos.rows - 1]--;
}

typedef struct {
    const char *what, *model, *fault; /* op/planted.h's name of it; NULL: none */
    Spoil *how;                       /* NULL: a wrong position */
} Fault;

static const Fault faults[] = {
    { "no fault", "qwen3_moe", NULL, NULL },
    { "linear sums in another order", "qwen3_moe", "linear", spoil_ulp },
    { "linear of the router or of MLA", "deepseek_v3", "linear", spoil_ulp },
    { "grouped product", "qwen3_moe", "grouped", spoil_ulp },
    { "product per head", "deepseek_v3", "headwise", spoil_ulp },
    { "a head's columns", "moonlight", "copy_heads", spoil_ulp },
    { "the latent's turning part", "deepseek_v3", "copy", spoil_ulp },
    { "embedding", "llama", "embed", spoil_ulp },
    { "norm", "llama", "rmsnorm", spoil_ulp },
    { "swiglu", "qwen2", "swiglu", spoil_ulp },
    { "residual", "qwen3", "add", spoil_ulp },
    { "turning", "qwen3", "rope", spoil_ulp },
    { "turning, neighbours together", "deepseek_v3", "rope", spoil_ulp },
    { "angles", "llama", "rope_table", spoil_ulp },
    { "attention over pages", "qwen3", "attend_kv", spoil_ulp },
    { "attention over pages of latents", "moonlight", "attend_kv", spoil_ulp },
    { "another expert", "qwen3_moe", "route.pick", spoil_ulp },
    { "weights of experts", "mixtral", "route.weight", spoil_ulp },
    { "rows to experts", "qwen3_moe", "moe_sort.from", spoil_ulp },
    { "experts to rows", "mixtral", "moe_sort.slot", spoil_ulp },
    { "gathering for experts", "mixtral", "permute", spoil_ulp },
    { "combining experts", "mixtral", "combine", spoil_ulp },
    { "log-prob of the sampler", "llama", "sample.lp", spoil_ulp },
    { "entropy of the sampler", "qwen2", "sample.ent", spoil_ulp },
    { "token of the sampler", "qwen3", "sample.id", spoil_ulp },
    { "kept set of the sampler", "qwen3", "sample.kept", spoil_ulp },
    { "a wrong position", "llama", "rope_table", NULL },
    { "a wrong position, yarn", "deepseek_v3_yarn", "rope_table", NULL },
    { "a stale page", "qwen2", "kv_put", spoil_ulp },
    { "a stale page of latents", "deepseek_v3", "kv_put", spoil_ulp },
    { "a page not copied for a fork", "qwen3", "kv_copy", spoil_ulp },
    { "a gate behind attention", "~qwen3_5_text", "gate", spoil_ulp },
    { "a centred gain", "~qwen3_next", "plus_one", spoil_ulp },
    { "filters", "~qwen3_5_text", "conv", spoil_ulp },
    { "unit length", "~qwen3_next", "unit", spoil_ulp },
    { "decays", "~qwen3_next", "decay", spoil_ulp },
    { "the delta rule", "~qwen3_5_text", "delta", spoil_ulp },
    { "a gated norm", "~qwen3_next", "norm_gate", spoil_ulp },
};

static int awkward_of(const char *begins) {
    int i = 0;
    while (strncmp(awkward[i].name, begins, strlen(begins))) i++;
    return i;
}
static void planted(const Fault *p) {
    const Shape *s = &shapes[0];
    EngineConf c = shape_conf(s);
    Fixture f;
    bool drawn = p->model[0] == '~'; /* one of the random ones */
    fixture_load(&f, drawn ? NULL : p->model, drawn ? awkward_of(p->model + 1) : 0, 1, TOKENS, false, RECOMPUTE_NONE);
    unguarded(&f);
    engine_room(&f, s);
    Asking a = { 0 };
    engine_prompts(&a, &f);
    Engine *e = engine_open(&f.model, &c, &f.mem);
    Ops faulty = p->fault && p->how ? planted_ops(p->fault, p->how) : ops_cpu;
    if (p->fault && !p->how) faulty.rope_table = wrong_position;
    Result *r = malloc(sizeof *r);
    f.dev.ops = &faulty;
    ask(&a, e, s, r);
    f.dev.ops = &ops_cpu;
    int bad = not_scored(&a, r, true);
    EXPECT(p->fault ? bad > 0 : bad == 0, "%s (%s): %d answers differ", p->what, p->model, bad);
    free(r);
    engine_close(e);
    fixture_close(&f);
}

/* Every operation that the engine calls for any family has a fault in the table above: with
 * all others dead, it runs. */
static void dead(void) { CHECK(false, "the engine calls an operation in which no fault is planted"); }
static void all_planted(void) {
    const Shape *s = &shapes[0];
    EngineConf c = shape_conf(s);
    Ops only = ops_cpu;
    void (*stop)(void) = dead;
    for (size_t k = 0; k < COUNT(planted_list); k++) {
        bool covered = planted_list[k].at == offsetof(Ops, put) || planted_list[k].at == offsetof(Ops, get);
        for (size_t i = 0; i < COUNT(faults); i++)
            covered |= faults[i].fault && planted_find(faults[i].fault)->at == planted_list[k].at;
        if (!covered) memcpy((char *)&only + planted_list[k].at, &stop, sizeof stop);
    }
    for (size_t m = 0; m < COUNT(reference_models); m++) {
        Fixture f;
        fixture_load(&f, reference_models[m], 0, 1, TOKENS, false, RECOMPUTE_NONE);
        unguarded(&f);
        engine_room(&f, s);
        Asking a = { 0 };
        Result *r = malloc(sizeof *r);
        engine_prompts(&a, &f);
        Engine *e = engine_open(&f.model, &c, &f.mem);
        f.dev.ops = &only;
        ask(&a, e, s, r);
        EXPECT(r->answers == answers_wanted(), "%s: %d answers", reference_models[m], r->answers);
        f.dev.ops = &ops_cpu;
        free(r);
        engine_close(e);
        fixture_close(&f);
    }
}

/* The weights move under a warm cache: noticed without a flush, right with one. */
static void moved_weights(const char *model) {
    Shape s = shapes[0];
    s.how = ALONE;
    EngineConf c = shape_conf(&s);
    Fixture f;
    fixture_load(&f, model, 0, 1, TOKENS, false, RECOMPUTE_NONE);
    unguarded(&f);
    engine_room(&f, &s);
    Asking a = { 0 };
    engine_prompts(&a, &f);
    Engine *e = engine_open(&f.model, &c, &f.mem);
    Result *r = malloc(sizeof *r);
    ask(&a, e, &s, r);
    int64_t n;
    float *w = test_weights(&f.model, &n);
    for (int64_t i = 0; i < n; i++) w[i] *= f.dev.act == DT_F32 ? 1.001f : 1.02f;
    test_put_weights(&f.model, w);
    ask(&a, e, &s, r);
    EXPECT(not_scored(&a, r, false) > 0, "%s: weights moved under a warm cache, and nobody noticed", model);
    engine_flush(e);
    ask(&a, e, &s, r);
    EXPECT(not_scored(&a, r, false) == 0, "%s: after a flush the answers are not the new weights'", model);
    free(w);
    free(r);
    engine_close(e);
    fixture_close(&f);
}

static void scale_weights(Fixture *f, float by) {
    int64_t n;
    float *w = test_weights(&f->model, &n);
    for (int64_t i = 0; i < n; i++) w[i] *= by * (1 + 0.2f * (float)(i % 7 - 3));
    test_put_weights(&f->model, w);
    free(w);
}

/* The kept sets travel: under other weights a token's log-prob is that of the new logits over the old set, in double
 * from model_logits; and it is another than over the set that the new weights would keep. */
static void sets_travel(const char *model) {
    const Shape *s = &shapes[0];
    EngineConf c = shape_conf(s);
    Fixture f;
    fixture_load(&f, model, 0, 2, TOKENS, false, RECOMPUTE_NONE);
    unguarded(&f);
    engine_room(&f, s);
    Asking a = { 0 };
    engine_prompts(&a, &f);
    Engine *e = engine_open(&f.model, &c, &f.mem);
    Result *r = malloc(sizeof *r);
    ask(&a, e, s, r);
    EXPECT(!not_scored(&a, r, true) && !not_scored(&a, r, false), "%s: at the sampling weights", model);
    scale_weights(&f, 1);
    PackSeq seqs[REQUESTS * MAX_SAMPLES];
    const Got *got[REQUESTS * MAX_SAMPLES];
    int n = as_seqs(&a, r, true, seqs, got), o = 0, lost = 0;
    int64_t V = f.desc.d.vocab, outputs = pack_outputs(seqs, n);
    float *told = score_seqs(&f, seqs, n);
    for (int i = 0; i < n; i++) seqs[i].kept = NULL;
    float *found = score_seqs(&f, seqs, n), *logits = malloc((size_t)(outputs * V) * 4);
    Batch b;
    Arena room = dev_arena(&f.dev, "logits", (size_t)(outputs * V) * 4);
    batch_put(&b, &f.dev, &f.io, &f.host, seqs, n);
    Tensor l = tensor_push(&room, DT_F32, outputs, V);
    model_logits(&f.model, &b, l);
    op_get(&f.dev, logits, l);
    double worst = 0;
    for (int i = 0; i < n; i++) {
        const uint8_t *at = got[i]->kept;
        bool cut = seqs[i].draw.top_k > 0 || seqs[i].draw.top_p < 1 || seqs[i].draw.min_p > 0;
        for (int t = 0; t < got[i]->n; t++, o++) {
            uint32_t bits[8];
            double z = 0, inv = 1.0 / (double)seqs[i].draw.temperature, x = logits[o * V + got[i]->tokens[t]] * inv;
            at += kept_set_get(bits, at, V);
            for (int64_t v = 0; v < V; v++)
                if (!cut || bits[v / 32] >> v % 32 & 1) z += exp((double)logits[o * V + v] * inv - x);
            worst = fmax(worst, fabs((double)told[o] + log(z)));
            lost += found[o] == -INFINITY;
        }
    }
    EXPECT(o == outputs && worst < 1e-5, "%s: log-probs over the sampler's sets are off by %g", model, worst);
    EXPECT(lost > 0, "%s: no token lies outside the set of the moved weights: this test would see little", model);
    free(logits);
    free(r);
    engine_close(e);
    fixture_close(&f);
}

/* An answer that has no room for another set ends there, and says so. */
static bool one_set(void *user, const Request *r, int sample, const uint8_t *set, size_t n) {
    return asking_kept(user, r, sample, set, n), sample == 1;
}
static void no_room(void) {
    const Shape *s = &shapes[0];
    EngineConf c = shape_conf(s);
    Fixture f;
    fixture_load(&f, "llama", 0, 1, TOKENS, false, RECOMPUTE_NONE);
    engine_room(&f, s);
    Asking a = { 0 };
    engine_prompts(&a, &f);
    Engine *e = engine_open(&f.model, &c, &f.mem);
    Result *all = malloc(sizeof *all), *r = calloc(1, sizeof *r);
    ask(&a, e, s, all);
    a.out = r, a.next = 0, a.left = REQUESTS;
    Feed feed = { asking_next, NULL, asking_answer, NULL, &a, 1234, 5, 0, one_set };
    engine_run(e, &feed);
    for (int i = 0; i < REQUESTS; i++)
        for (int k = 0; k < asked[i].samples; k++) {
            const Got *g = &r->at[i][k], *w = &all->at[i][k];
            bool cut = k == 1 && w->n > 1;
            EXPECT(cut ? g->n == 1 && g->tokens[0] == w->tokens[0] && g->finish == FINISH_ROOM
                       : !memcmp(g, w, sizeof *g),
                   "%s, answer %d: %d tokens, %s", asked[i].name, k, g->n, finish_name(g->finish));
        }
    free(all);
    free(r);
    engine_close(e);
    fixture_close(&f);
}

/* Steps that begin before the host has seen the last one's tokens draw the same ones, whatever ends meanwhile. */
static void ahead(const char *model) {
    Result *want = malloc(sizeof *want), *got = malloc(sizeof *got);
    int64_t early = 0, ended = 0;
    for (size_t k = 0; k < COUNT(shapes); k++) {
        const Shape *s = &shapes[k];
        EngineConf c = shape_conf(s);
        Fixture f;
        fixture_load(&f, model, 0, s->threads, TOKENS, false, RECOMPUTE_NONE);
        unguarded(&f);
        engine_room(&f, s);
        Asking a = { .no_sets = true };
        engine_prompts(&a, &f);
        a.opts[1].n_stop_ids = 1, a.opts[1].stop_ids = MEM_ARRAY(&f.mem, int32_t, 1);
        Engine *e = engine_open(&f.model, &c, &f.mem);
        for (int pass = 0; pass < 2;
             pass++) { /* of the second some answers end with a token that the first has drawn */
            engine_ahead(e, false), ask(&a, e, s, want);
            engine_ahead(e, true), ask(&a, e, s, got);
            EXPECT(!want->stats.ahead && !memcmp(want->at, got->at, sizeof want->at), "%s, %s: answers differ ahead",
                   model, s->name);
            early += got->stats.ahead;
            for (int i = 0; i < asked[1].samples; i++) ended += want->at[1][i].finish == FINISH_STOP;
            *(int32_t *)(uintptr_t)a.opts[1].stop_ids = want->at[1][0].tokens[3];
        }
        engine_close(e);
        fixture_close(&f);
    }
    EXPECT(early > 20 && ended > 0, "%s: %ld steps ahead, %ld answers ended: this test would see nothing", model,
           (long)early, (long)ended);
    free(want);
    free(got);
}

/* A token whose embedding is not a number: an answer ends where it would be read, the others
 * are what they were, also in pages that held such keys before. */
static void broken(const char *model, const Shape *s, bool early) {
    EngineConf c = shape_conf(s);
    Fixture f;
    fixture_load(&f, model, 0, s->threads, TOKENS, false, RECOMPUTE_NONE);
    unguarded(&f);
    engine_room(&f, s);
    Asking a = { .no_sets = early };
    engine_prompts(&a, &f);
    Engine *e = engine_open(&f.model, &c, &f.mem);
    engine_ahead(e, early);
    Result *want = malloc(sizeof *want), *r = malloc(sizeof *r);
    ask(&a, e, s, want);
    engine_flush(e);
    int32_t bad = a.prompt[2][9];
    Tensor embed = param(&f.model.w, P_EMBED, 0);
    float *nan = MEM_ARRAY(&f.mem, float, (size_t)f.desc.d.hidden);
    for (int64_t i = 0; i < f.desc.d.hidden; i++) nan[i] = bits_f32(0x7FC07FC0); /* as two BF16 too */
    op_put(&f.dev, tensor_rows(embed, bad, 1), nan);
    for (int twice = 0; twice < 2; twice++) {
        ask(&a, e, s, r);
        int ended = 0, whole = 0;
        for (int i = 0; i < REQUESTS; i++) {
            bool in_prompt = false;
            for (int t = 0; t < asked[i].prompt; t++) in_prompt = in_prompt || a.prompt[i][t] == bad;
            for (int k = 0; k < asked[i].samples; k++) {
                const Got *g = &r->at[i][k], *w = &want->at[i][k];
                int n = 0; /* tokens up to one that cannot be read; its own number is still good */
                while (!in_prompt && n < w->n && (n == 0 || w->tokens[n - 1] != bad)) n++;
                bool cut = in_prompt || n < w->n;
                ended += cut, whole += !cut;
                EXPECT(cut ? g->n == n && g->finish == FINISH_BROKEN && !memcmp(g->lp, w->lp, (size_t)n * 4)
                           : !memcmp(g, w, sizeof *g),
                       "%s, %s, answer %d: %d of %d tokens, %s", model, asked[i].name, k, g->n, w->n,
                       finish_name(g->finish));
            }
        }
        EXPECT(ended > 0 && whole > 0, "%s: %d answers broken, %d whole: this test would see nothing", model, ended,
               whole);
    }
    free(want);
    free(r);
    engine_close(e);
    fixture_close(&f);
}

/* ---- routes: the experts chosen for each position while decoding and while scoring */
enum { MOST_PICKS = 1 << 16 };
static struct {
    int32_t pick[MOST_PICKS];
    int rows[MOST_PICKS / 8], topk, n, calls;
} seen[2];
static int recording;
static const Ops *recorded;

static void record_route(Dev *d, const Route *r) {
    recorded->route(d, r);
    int k = (int)r->pick.cols, rows = (int)r->pick.rows;
    CHECK(seen[recording].n + rows * k <= MOST_PICKS, "more routes than this test has room for");
    recorded->get(d, seen[recording].pick + seen[recording].n, r->pick);
    seen[recording].n += rows * k, seen[recording].topk = k;
    seen[recording].rows[seen[recording].calls++] = rows;
}

/* One answer, alone: its rows come in the order of their positions, in chunks of 7, then one by one. */
static void same_routes(const char *name) {
    Shape s = { "alone", 1, 16, 20, 1, 1, 7, ALONE };
    EngineConf c = shape_conf(&s);
    Fixture f;
    fixture_load(&f, name, 0, 1, TOKENS, false, RECOMPUTE_NONE);
    engine_room(&f, &s);
    Asking a = { 0 };
    Result *r = malloc(sizeof *r);
    engine_prompts(&a, &f);
    Engine *e = engine_open(&f.model, &c, &f.mem);
    recorded = f.dev.ops;
    Ops recorder = *recorded;
    recorder.route = record_route;
    recorder.record = NULL,
    recorder.fused = NULL; /* it asks the device in the middle of a step, of each op by itself */
    memset(seen, 0, sizeof seen);
    f.dev.ops = &recorder, recording = 0;
    a.shape = s, a.out = r, a.next = 5, a.left = 1; /* the greedy one */
    Feed feed = { asking_next, NULL, asking_answer, NULL, &a, 1234, 5, 0 };
    engine_run(e, &feed);
    const Got *g = &r->at[5][0];
    int p = asked[5].prompt, n = p + g->n;
    int32_t *t = MEM_ARRAY(&f.mem, int32_t, (size_t)n);
    memcpy(t, a.prompt[5], (size_t)p * 4);
    memcpy(t + p, g->tokens, (size_t)g->n * 4);
    recording = 1;
    score_seqs(&f, &(PackSeq){ t, n, p, DRAW_PLAIN }, 1);
    f.dev.ops = recorded;
    int layers = seen[1].calls, k = seen[1].topk, differ = 0, position = 0;
    const int32_t *pick = seen[0].pick;
    for (int i = 0; layers && i < seen[0].calls; i += layers) /* a step: every layer with experts, the same rows */
        for (int l = 0, rows = seen[0].rows[i]; l < layers; l++, pick += rows * k) {
            differ += memcmp(pick, seen[1].pick + (l * n + position) * k, (size_t)(rows * k) * 4) != 0;
            if (l == layers - 1) position += rows;
        }
    EXPECT(layers > 0 && position == n - 1, "%s: routes of %d layers and %d of %d positions were seen", name, layers,
           position, n - 1);
    EXPECT(!differ, "%s: %d pieces of the decoder's routes are not the trainer's", name, differ);
    free(r);
    engine_close(e);
    fixture_close(&f);
}

int main(void) {
    static const char *const with_experts[] = { "qwen3_moe",   "qwen3_moe_plain", "mixtral",
                                                "deepseek_v3", "moonlight",       "deepseek_v3_yarn" };
    for (size_t k = 0; k < COUNT(with_experts); k++) same_routes(with_experts[k]);
    for (size_t k = 0; k < COUNT(reference_models); k++) same_answers(reference_models[k], 0);
    for (size_t k = 0; k < COUNT(awkward); k++) same_answers(NULL, (int)k);
    for (size_t k = 0; k < COUNT(faults) && on_cpu(); k++) planted(&faults[k]);
    if (on_cpu()) all_planted();
    moved_weights("qwen3");
    moved_weights("moonlight");
    sets_travel("qwen3");
    sets_travel("qwen2");
    no_room();
    ahead("qwen3");
    ahead("deepseek_v3");
    for (int early = 0; early < 2; early++) {
        broken("llama", &shapes[0], early);
        broken("qwen3_moe", &shapes[4], early);
        broken("deepseek_v3", &shapes[6], early);
    }
    return test_end();
}
