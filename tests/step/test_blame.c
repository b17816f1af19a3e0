/* test_blame.c - a micro-batch run again both ways: on a program that is well both agree, for every kind of model; an
 * op that goes wrong in one layer while the engine decodes is found by name, with its layer and its row. */
#include "model/fixture.h"
#include "op/planted.h"
#include "op/watch.h"
#include "step/blame.h"

enum { QUESTIONS = 3, SAMPLES = 3, SEQS = 5, ANSWER = 9, PROMPT = 21 };

typedef struct {
    Fixture f;
    BlameConf c;
    BlameSeq seq[QUESTIONS * SAMPLES];
    int32_t tokens[QUESTIONS * SAMPLES][PROMPT + ANSWER];
    float lp[QUESTIONS * SAMPLES][ANSWER];
    SampleOpts opts;
    int next;
} Case;

static bool next(void *user, Request *out) {
    Case *x = user;
    if (x->next == QUESTIONS) return false;
    int q = x->next++;
    *out = (Request){ .tokens = x->tokens[q * SAMPLES],
                      .n = PROMPT - q,
                      .samples = SAMPLES,
                      .key = 40 + (uint64_t)q,
                      .opts = &x->opts,
                      .user = (void *)(intptr_t)q };
    return true;
}
static void answer(void *user, const Answer *a) {
    Case *x = user;
    int i = (int)(intptr_t)a->request->user * SAMPLES + a->sample, prompt = a->request->n;
    memmove(x->tokens[i], a->request->tokens, (size_t)prompt * 4);
    memcpy(x->tokens[i] + prompt, a->tokens, (size_t)a->n * 4);
    memcpy(x->lp[i], a->lp, (size_t)a->n * 4);
    x->seq[i] = (BlameSeq){ .tokens = x->tokens[i],
                            .n = prompt + a->n,
                            .prompt = prompt,
                            .sample = a->sample,
                            .row = 40 + (int)(intptr_t)a->request->user,
                            .sampler = x->lp[i],
                            .trainer = x->lp[i] };
}

static void room(Fixture *f, size_t bytes) {
    if (bytes <= f->dev.tmp.size) return;
    dev_free(&f->dev, f->dev.tmp.base);
    f->dev.tmp = dev_arena(&f->dev, "tmp", bytes);
}

/* Answers that a run has drawn; of the first question its first one is not asked about. */
static void case_open(Case *x, const char *model, Drawing draw, bool update) {
    memset(x, 0, sizeof *x);
    fixture_load(&x->f, model, 0, 2, PROMPT, true, RECOMPUTE_NONE);
    for (int q = 0; q < QUESTIONS; q++)
        memcpy(x->tokens[q * SAMPLES], random_tokens(&x->f, PROMPT, (uint32_t)q), PROMPT * 4);
    x->opts = (SampleOpts){ .draw = draw, .ignore_eos = true, .max_tokens = ANSWER };
    EngineConf e = engine_conf(QUESTIONS * SAMPLES, PROMPT + ANSWER, 64, 16);
    x->c = (BlameConf){ .seq = x->seq + 1,
                        .n = SEQS,
                        .draw = draw,
                        .seed = 11,
                        .step = 3,
                        .page = 16,
                        .rows = 30,
                        .update = update,
                        .keep_logits = true };
    x->f.dev.ops->enter(&x->f.dev, false); /* checking mode would be most of the time */
    room(&x->f, engine_tmp_bytes(&x->f.desc, &e, dev_kind(&x->f.dev)));
    Mem mem = { 0 };
    Engine *engine = engine_open(&x->f.model, &e, &mem);
    Feed feed = { .next = next, .answer = answer, .user = x, .seed = 11, .step = 3 };
    engine_run(engine, &feed);
    engine_close(engine);
    mem_free(&mem);
    room(&x->f, blame_tmp_bytes(&x->f.desc, &x->c, dev_kind(&x->f.dev)));
}
static void case_close(Case *x) { fixture_close(&x->f); }

static void well(const char *model, Drawing draw, bool update) {
    static Case x;
    Blame b = { 0 };
    Err err;
    case_open(&x, model, draw, update);
    CHECK(blame_find(&b, &x.f.model, &x.c, &err), "%s: %s", model, err.msg);
    EXPECT(b.kind == BLAME_NONE && strstr(b.text, "run again both ways agree"), "%s: %s", model, b.text);
    x.lp[2][4] = nextafterf(x.lp[2][4], 0); /* once, on both sides: sampler and trainer are one column here */
    CHECK(blame_find(&b, &x.f.model, &x.c, &err), "%s: %s", model, err.msg);
    EXPECT(b.kind == BLAME_NONE && strstr(b.text, "wrong on both sides"), "%s: %s", model, b.text);
    case_close(&x);
}

/* Wrong in that layer, where so few rows are computed: while the engine decodes. */
static const Dev *watched;
static int wrong_layer;
static void spoil_layer(Tensor x) {
    const Watch *w = watched->watch;
    if (w && w->layer == wrong_layer && x.rows <= SEQS * 16) spoil_largest(x);
}

/* The same in the last head. */
static void spoil_last(Tensor x) {
    Tensor last = tensor_cols(x, 0, 1);
    last.data = (float *)x.data + x.ld - 1;
    spoil_layer(last);
}

static const struct {
    const char *model, *fault;
    int layer;
    const char *found;
    Spoil *how; /* NULL: spoil_layer */
} faults[] = {
    { "llama", "embed", -1, "embedding: op_embed is" },
    { "llama", "rope_table", -1, "positions: op_rope_table is" },
    { "llama", "linear", 1, "layer 1, attention: op_linear is" },
    { "llama", "rope", 0, "layer 0, attention: op_rope is" },
    { "llama", "rope", 1, "layer 1, attention: a later head of what makes the queries (", spoil_last },
    { "deepseek_v3", "headwise", 1, "layer 1, attention: a later head of what makes the values (", spoil_last },
    { "deepseek_v3", "copy_heads", 1, "layer 1, attention: op_copy_heads is" },
    { "llama", "attend_kv", 1, "layer 1, attention: op_attend (" },
    { "qwen3", "kv_put", 1, "layer 0, attention: op_attend (" },
    { "qwen3", "rmsnorm", 1, "layer 1, " },
    { "qwen3", "swiglu", 1, "layer 1, feed-forward: op_swiglu is" },
    { "qwen3", "add", 0, "layer 0, " },
    { "qwen3", "sample.lp", -1, "head: op_logprob (drawing: sample) is" },
    { "qwen3", "permute", -1, "head: op_permute is" },
    { "deepseek_v3", "headwise", 1, "layer 1, attention: op_headwise is" },
    { "deepseek_v3", "attend_kv", 0, "layer 0, attention: op_attend (" },
    { "deepseek_v3", "route.weight", 1, "layer 1, experts: op_route is" },
    { "deepseek_v3", "combine", 1, "layer 1, experts: op_combine is" },
    { "qwen3_moe", "grouped", 1, "layer 1, experts: op_grouped is" },
    { "qwen3_moe", "route.pick", 0, "layer 0, experts: op_route is" },
    { "mixtral", "permute", 0, "layer 0, experts: op_permute is" },
};

static void planted(size_t k, bool update) {
    static Case x;
    Blame b = { 0 };
    Err err;
    case_open(&x, faults[k].model, DRAW_PLAIN, update);
    watched = &x.f.dev, wrong_layer = faults[k].layer;
    Ops faulty = planted_ops(faults[k].fault, faults[k].how ? faults[k].how : spoil_layer);
    x.f.dev.ops = &faulty;
    CHECK(blame_find(&b, &x.f.model, &x.c, &err), "%s, %s: %s", faults[k].model, faults[k].fault, err.msg);
    x.f.dev.ops = &ops_cpu;
    EXPECT(b.kind == BLAME_OP && !strncmp(b.text, faults[k].found, strlen(faults[k].found)), "%s, %s in layer %d: %s",
           faults[k].model, faults[k].fault, faults[k].layer, b.text);
    case_close(&x);
}

int main(void) {
    for (size_t i = 0; i < COUNT(reference_models); i++) well(reference_models[i], DRAW_PLAIN, i % 2);
    well("qwen3", (Drawing){ 0.9f, 0.8f, 0.01f, 20 }, true);
    for (size_t k = 0; k < COUNT(faults); k++)
        for (int update = 0; update < 2; update++) planted(k, update);
    return test_end();
}
