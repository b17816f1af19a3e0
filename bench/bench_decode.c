/* bench_decode.c MODEL [THREADS BATCH CONTEXT] - the engine's rates.  BATCH and CONTEXT: most sequences and
 * tokens there will be.  A line on standard input asks for one measurement and is answered by one line of
 * JSON (bench/peers/decode.py):
 *   decode B P N   B prompts of P tokens, N tokens each; the time of the steps in which all B draw
 *   again B P N    the same prompts once more: their whole pages are found in the prefix table
 *   answers B P S N   B prompts of P tokens, S answers of N tokens to each; the time of everything
 *   prefill P      a prompt of P tokens and its first token; share_of_peak is of a bare loop of
 *                  multiply-adds on the same threads, share_of_product of what the same rows times one
 *                  layer's up-projection reach, by the clock, medians of turns
 *   share P N      N first tokens to one prompt of P tokens, beside one: rows computed, and time
 *   over B N       what is left of a step at batch B when the device computes nothing: scheduling and index lists */
#include "bench.h"

#include "cut/flops.h"
#include "engine/engine.h"

#include <inttypes.h>

typedef struct {
    int32_t *tokens; /* [batch*context] */
    int prompts, given, length, samples, max_tokens;
    SampleOpts opts;
    double first, last; /* clock after the first and the last step in which all drew */
    int64_t steps;
    uint32_t salt, last_salt; /* other prompts every time: nothing may be found in the prefix table */
    int32_t vocab;
} Work;

static bool next(void *user, Request *r) {
    Work *w = user;
    if (w->given == w->prompts) return false;
    int32_t *t = w->tokens + (size_t)w->given++ * (size_t)w->length;
    for (int i = 0; i < w->length; i++)
        w->salt = w->salt * 1664525u + 1013904223u, t[i] = (int32_t)((w->salt >> 8) % (uint32_t)w->vocab);
    *r = (Request){ .tokens = t, .n = w->length, .samples = w->samples, .key = w->salt, .opts = &w->opts };
    return true;
}
static void answer(void *user, const Answer *a) { (void)user, (void)a; }
static bool tick(void *user, int64_t tokens, int running) {
    Work *w = user;
    (void)tokens;
    if (running < w->prompts * w->samples) return true;
    if (!w->steps++) w->first = clock_now();
    w->last = clock_now();
    return true;
}

static EngineStats again(Engine *e, Work *w, int prompts, int length, int samples, int max_tokens) {
    w->prompts = prompts, w->length = length, w->samples = samples, w->given = 0, w->steps = 0;
    w->opts = (SampleOpts){ .draw = DRAW_PLAIN, .ignore_eos = true, .max_tokens = max_tokens };
    Feed f = { .next = next, .answer = answer, .tick = tick, .user = w, .seed = 1 };
    w->last_salt = w->salt;
    return engine_run(e, &f);
}

static EngineStats work(Engine *e, Work *w, int prompts, int length, int samples, int max_tokens) {
    engine_flush(e);
    return again(e, w, prompts, length, samples, max_tokens);
}

typedef struct {
    Mem mem;
    Dev dev;
    Model model;
    Engine *engine;
} Side; /* an engine on a device, real or dry */

static void side_open(Side *s, const ModelDesc *desc, const EngineConf *c, int threads, bool dry, const char *dir) {
    Err err;
    *s = (Side){ 0 };
    if (dry) dev_open_dry(&s->dev, dev_kind_cpu());
    else dev_open(&s->dev, (DevOpts){ .threads = threads });
    s->dev.tmp = dev_arena(&s->dev, "tmp", engine_tmp_bytes(desc, c, dev_kind_cpu()));
    model_open(&s->model, &s->dev, desc, DT_F32, 8, &s->mem);
    if (!dry) CHECK(params_load(&s->model.w, &s->dev, dir, &err), "%s", err.msg);
    s->engine = engine_open(&s->model, c, &s->mem);
}

static void side_close(Side *s) {
    engine_close(s->engine);
    model_close(&s->model);
    dev_close(&s->dev);
    mem_free(&s->mem);
}

/* GFLOP/s of rows [P, hidden] times a weight [intermediate, hidden], the median of several */
static double product_rate(Dev *d, int64_t rows, int64_t in, int64_t out) {
    enum { TURNS = 15 };
    Arena a = dev_arena(d, "product", (size_t)(rows * in + out * in + rows * out) * 4 + 4096);
    Tensor x = bench_fill(&a, rows, in, 1), w = bench_fill(&a, out, in, 0.1f), y = bench_fill(&a, rows, out, 0);
    double t[TURNS];
    for (int i = 0; i < TURNS; i++) {
        double t0 = clock_now();
        op_linear(d, y, x, w, TENSOR_NONE, leaves_one(in));
        t[i] = clock_now() - t0;
    }
    for (int i = 1; i < TURNS; i++)
        for (int j = i; j > 0 && t[j] < t[j - 1]; j--) {
            double swap = t[j];
            t[j] = t[j - 1], t[j - 1] = swap;
        }
    dev_free(d, a.base);
    return 2e-9 * (double)(rows * in * out) / t[TURNS / 2];
}

int main(int argc, char **argv) {
    CHECK(argc > 1, "bench_decode MODEL [THREADS BATCH CONTEXT]");
    int threads = argc > 2 ? atoi(argv[2]) : 2, batch = argc > 3 ? atoi(argv[3]) : 64,
        context = argc > 4 ? atoi(argv[4]) : 1152;
    Mem mem = { 0 };
    Err err;
    ModelDesc desc;
    CHECK(model_desc_load(&desc, argv[1], &mem, &err), "%s", err.msg);
    EngineConf c = engine_conf(batch, context, 1024, 64);
    Side s;
    side_open(&s, &desc, &c, threads, false, argv[1]);
    TokenFlops f = token_flops(&desc.d);
    double peak = bench_peak(&s.dev);
    Work w = { .tokens = MEM_ARRAY(&mem, int32_t, (size_t)batch * (size_t)context),
               .salt = 1,
               .vocab = (int32_t)desc.d.vocab };
    char line[128];
    while (fgets(line, sizeof line, stdin)) {
        int a, b, m, n;
        bool known = !strncmp(line, "again", 5);
        if (sscanf(line, known ? "again %d %d %d" : "decode %d %d %d", &a, &b, &n) == 3) {
            if (known) w.salt = w.last_salt;
            EngineStats st = (known ? again : work)(s.engine, &w, a, b, 1, n);
            double sec = w.last - w.first;
            printf("{\"seconds\":%.6f,\"tokens_s\":%.2f,\"steps\":%" PRId64 ",\"whole\":%.6f}\n", sec,
                   (double)a * (double)(w.steps - 1) / sec, w.steps - 1, st.seconds);
        } else if (sscanf(line, "answers %d %d %d %d", &a, &b, &m, &n) == 4) {
            double cpu = bench_cpu();
            EngineStats st = work(s.engine, &w, a, b, m, n);
            printf("{\"seconds\":%.6f,\"cpu\":%.6f,\"rows\":%" PRId64 "}\n", st.seconds, bench_cpu() - cpu,
                   st.sched.rows);
        } else if (sscanf(line, "prefill %d", &a) == 1) {
            peak = bench_peak(&s.dev);
            double product = product_rate(&s.dev, a, desc.d.hidden, desc.d.ffn);
            EngineStats st = work(s.engine, &w, 1, a, 1, 1);
            int64_t len = a;
            double rate = flops_forward(&f, &len, 1, 1) / st.seconds * 1e-9;
            printf("{\"seconds\":%.6f,\"tokens_s\":%.1f,\"gflops\":%.1f,\"peak\":%.1f,\"share_of_peak\":%.4f,"
                   "\"product\":%.1f,\"share_of_product\":%.4f}\n",
                   st.seconds, a / st.seconds, rate, peak, rate / peak, product, rate / product);
        } else if (sscanf(line, "share %d %d", &a, &n) == 2) {
            EngineStats one = work(s.engine, &w, 1, a, 1, 1), many = work(s.engine, &w, 1, a, n, 1);
            printf("{\"rows_one\":%" PRId64 ",\"rows_many\":%" PRId64 ",\"one\":%.6f,\"many\":%.6f}\n", one.sched.rows,
                   many.sched.rows, one.seconds, many.seconds);
        } else if (sscanf(line, "over %d %d", &a, &n) == 2) {
            Side dry;
            side_open(&dry, &desc, &c, threads, true, NULL);
            work(dry.engine, &w, a, 16, 1, n);
            double none = (w.last - w.first) / (double)(w.steps - 1);
            work(s.engine, &w, a, 16, 1, n);
            double real = (w.last - w.first) / (double)(w.steps - 1);
            printf("{\"dry_step\":%.7f,\"step\":%.7f,\"share\":%.5f}\n", none, real, none / real);
            side_close(&dry);
        } else {
            die("decode or again B P N, answers B P S N, prefill P, share P N or over B N, not '%s'", line);
        }
        fflush(stdout);
    }
    side_close(&s);
    mem_free(&mem);
    return 0;
}
