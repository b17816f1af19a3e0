/* bench_plan.c - predicted against measured time of one step on this machine, for 12 small configurations:
 * rollout, update with the optimizer, and both.  Prediction: a few micro-batches and decode steps
 * (cmd/here.c).  Measurement: the engine and the trainer on the whole model, random weights, answers of one
 * length.  Prints a table; the last line counts steps within 25 %. */
#include "cmd/local.h"

#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One thread and its own processor's clock: what else the machine does is not measured. */
static double processor_seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef enum { DENSE3, DENSE2, MOE, LATENT } Family;

/* clang-format off */
static const struct {
    const char *name; Family family;
    int h, layers, vocab, heads, kv, dim, ffn, experts, topk, expert_ffn, first_dense;
    int prompts, answers, prompt, answer; int64_t micro; Recompute recompute;
} CASES[] = {
    /*                               h   L  vocab  N  K  D   ffn  E  k  fe 1st   q  n    P    A  micro */
    { "qwen3 h256 L4",      DENSE3, 256,  4, 2048, 8, 2, 32,  768, 0, 0,   0, 0, 8, 4,  32,  64, 1024, RECOMPUTE_NONE },
    { "qwen3 h256 L8",      DENSE3, 256,  8, 2048, 8, 2, 32,  768, 0, 0,   0, 0, 8, 4,  32,  64, 1024, RECOMPUTE_FULL },
    { "qwen3 h512 L6",      DENSE3, 512,  6, 4096, 8, 4, 64, 1536, 0, 0,   0, 0, 4, 4,  48,  96, 1024, RECOMPUTE_NONE },
    { "qwen3 h384 L12",     DENSE3, 384, 12, 1024, 6, 2, 64, 1024, 0, 0,   0, 0, 4, 8,  16,  48,  512,
      RECOMPUTE_SELECTIVE },
    { "qwen2 h320 L5",      DENSE2, 320,  5, 3000, 5, 1, 64,  900, 0, 0,   0, 0, 8, 2,  64, 128, 1024, RECOMPUTE_NONE },
    { "qwen2 h256 L6 long", DENSE2, 256,  6, 2000, 4, 2, 64,  700, 0, 0,   0, 0, 4, 2, 128, 256, 1024, RECOMPUTE_FULL },
    { "moe h256 L4 E16",    MOE,    256,  4, 2048, 8, 2, 32,  768, 16, 4, 128, 0, 8, 4, 32,  64, 1024, RECOMPUTE_NONE },
    { "moe h256 L8 E32",    MOE,    256,  8, 1024, 8, 2, 32,  768, 32, 4,  96, 0, 8, 4, 24,  48, 1024, RECOMPUTE_FULL },
    { "moe h384 L6 E8",     MOE,    384,  6, 4096, 6, 2, 64,  768, 8, 2,  256, 0, 4, 4, 32,  96, 1024,
      RECOMPUTE_SELECTIVE },
    { "v3 h256 L4 E16",     LATENT, 256,  4, 2048, 8, 8, 32,  768, 16, 4, 128, 1, 8, 4, 32,  64, 1024, RECOMPUTE_NONE },
    { "v3 h320 L6 E8",      LATENT, 320,  6, 1500, 4, 4, 32,  900, 8, 2,  160, 2, 4, 8, 16,  64,  512, RECOMPUTE_FULL },
    { "qwen3 h256, 1 answer", DENSE3, 256, 4, 2048, 8, 2, 32, 768, 0, 0,    0, 0, 1, 1, 64, 192,  512, RECOMPUTE_NONE },
};
/* clang-format on */

static const char *config_of(size_t i, Mem *mem) {
    static const char *const NAMES[][2] = { { "Qwen3ForCausalLM", "qwen3" },
                                            { "Qwen2ForCausalLM", "qwen2" },
                                            { "Qwen3MoeForCausalLM", "qwen3_moe" },
                                            { "DeepseekV3ForCausalLM", "deepseek_v3" } };
    Family f = CASES[i].family;
    char *dim = f == DENSE2 || f == LATENT ? "" : mem_printf(mem, "\"head_dim\":%d,", CASES[i].dim), *more = "";
    if (f == MOE)
        more = mem_printf(
            mem, "\"num_experts\":%d,\"num_experts_per_tok\":%d,\"moe_intermediate_size\":%d,\"norm_topk_prob\":true,",
            CASES[i].experts, CASES[i].topk, CASES[i].expert_ffn);
    if (f == LATENT)
        more = mem_printf(
            mem,
            "\"n_routed_experts\":%d,\"num_experts_per_tok\":%d,\"moe_intermediate_size\":%d,\"first_k_dense_replace\":"
            "%d,"
            "\"n_shared_experts\":1,\"n_group\":1,\"topk_group\":1,\"routed_scaling_factor\":1.0,\"norm_topk_prob\":"
            "true,"
            "\"scoring_func\":\"sigmoid\",\"topk_method\":\"noaux_tc\",\"q_lora_rank\":null,\"kv_lora_rank\":64,"
            "\"qk_nope_head_dim\":32,\"qk_rope_head_dim\":16,\"v_head_dim\":32,",
            CASES[i].experts, CASES[i].topk, CASES[i].expert_ffn, CASES[i].first_dense);
    return mem_printf(
        mem,
        "{\"architectures\":[\"%s\"],\"model_type\":\"%s\",\"hidden_size\":%d,\"num_hidden_layers\":%d,\"vocab_size\":%"
        "d,"
        "\"num_attention_heads\":%d,\"num_key_value_heads\":%d,%s\"intermediate_size\":%d,%s\"rms_norm_eps\":1e-6,"
        "\"rope_theta\":10000,\"max_position_embeddings\":4096,\"hidden_act\":\"silu\",\"tie_word_embeddings\":false}",
        NAMES[f][0], NAMES[f][1], CASES[i].h, CASES[i].layers, CASES[i].vocab, CASES[i].heads, CASES[i].kv, dim,
        CASES[i].ffn, more);
}

typedef struct {
    Request *at;
    int n, next;
} Feeding;
static bool next(void *user, Request *out) {
    Feeding *f = user;
    return f->next < f->n ? (*out = f->at[f->next++], true) : false;
}
static void answered(void *user, const Answer *a) { (void)user, (void)a; }

static bool measure(size_t i, const ModelDesc *m, const LocalWork *w, double *rollout, double *update, Err *err) {
    Mem mem = { 0 };
    Dev dev;
    Model model;
    Policy p;
    int P = CASES[i].prompt, A = CASES[i].answer, n = CASES[i].prompts * CASES[i].answers;
    size_t a = engine_tmp_bytes(m, &w->engine, dev_kind_cpu()),
           b = policy_sizes(m, NULL, &w->policy, dev_kind_cpu()).tmp;
    dev_open(&dev, (DevOpts){ .threads = w->threads });
    dev.tmp = dev_arena(&dev, "scratch", a > b ? a : b);
    model_open(&model, &dev, m, DT_F32, 8, &mem);
    params_random(&model.w, &dev, 1);
    policy_open(&p, &model, &w->policy, &mem);
    Engine *e = engine_open(&model, &w->engine, &mem);
    SampleOpts o = { .draw = DRAW_PLAIN, .ignore_eos = true, .max_tokens = A };
    Request *q = MEM_ARRAY(&mem, Request, (size_t)CASES[i].prompts);
    TrainSeq *s = MEM_ARRAY(&mem, TrainSeq, (size_t)n);
    float *zeros = MEM_ARRAY(&mem, float, (size_t)(P + A)), *ones = MEM_ARRAY(&mem, float, (size_t)(P + A));
    for (int k = 0; k < P + A; k++) ones[k] = 1; /* advantages of 0 would cost no backward */
    for (int k = 0; k < n; k++) {
        int32_t *t = MEM_ARRAY(&mem, int32_t, (size_t)(P + A));
        for (int j = 0; j < P + A; j++)
            t[j] = (int32_t)((k / CASES[i].answers * 7919 + j * 31 + (j >= P) * k) % m->d.vocab);
        s[k] = (TrainSeq){ .tokens = t, .n = P + A, .prompt = P, .draw = DRAW_PLAIN, .old = zeros, .adv = ones };
        if (k % CASES[i].answers == 0)
            q[k / CASES[i].answers] =
                (Request){ .tokens = t, .n = P, .samples = CASES[i].answers, .key = (uint64_t)k, .opts = &o };
    }
    LossConf loss = { .agg = AGG_TOKEN_MEAN, .clip_low = 0.2, .clip_high = 0.2, .clip_c = 3 };
    AdamConf adam = { .lr = 1e-9, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .clip = 1 };
    UpdateStats stats;
    bool ok = true;
    *rollout = *update = 1e30;
    for (int round = 0; ok && round < 3; round++) {
        Feeding f = { q, CASES[i].prompts, 0 };
        double t0 = processor_seconds();
        engine_flush(e);
        engine_run(e, &(Feed){ .next = next, .answer = answered, .user = &f, .seed = 1, .step = (uint32_t)round });
        double t1 = processor_seconds();
        ok = policy_update(&p, s, n, &loss, &adam, false, &stats, err);
        double t2 = processor_seconds();
        *rollout = fmin(*rollout, t1 - t0), *update = fmin(*update, t2 - t1);
    }
    engine_close(e);
    policy_close(&p);
    model_close(&model);
    dev_close(&dev);
    mem_free(&mem);
    return ok;
}

int main(int argc, char **argv) {
    int within = 0, first = argc > 1 ? atoi(argv[1]) : 0; /* begin with this one */
    Mem mem = { 0 };
    Cluster here = { .gpus = 1 };
    machine_measure(&here.gpu);
    printf("%-28s %21s %21s %21s\n", "", "rollout", "update", "step");
    for (size_t i = (size_t)first; i < COUNT(CASES); i++) {
        Err err = { 0 };
        ModelDesc *m = MEM_NEW(&mem, ModelDesc);
        ModelSum *s = MEM_NEW(&mem, ModelSum);
        Plan *p = MEM_NEW(&mem, Plan);
        const char *config = config_of(i, &mem);
        if (!model_desc_parse(m, config, strlen(config), &mem, &err)) {
            printf("%s: %s\n", CASES[i].name, err.msg);
            return 1;
        }
        model_sum(s, m);
        *p = (Plan){ .sum = s, .cluster = here, .profile = profile_find("hone") };
        p->work = (Workload){ CASES[i].prompts, CASES[i].answers, 0, CASES[i].prompt, CASES[i].prompt,
                              CASES[i].answer,  CASES[i].answer,  0, false,           1 };
        p->layout = (Layout){ .g.tp = 1,
                              .g.pp = 1,
                              .g.ep = 1,
                              .g.cp = 1,
                              .g.vpp = 1,
                              .fused_head = true,
                              .micro_tokens = (double)CASES[i].micro,
                              .gen_tp = 1,
                              .gen_ep = 1,
                              .gen_use = 0.9 };
        p->layout.drop = CASES[i].recompute == RECOMPUTE_FULL        ? DROP_ALL
                         : CASES[i].recompute == RECOMPUTE_SELECTIVE ? DROP_NORM
                                                                     : 0;
        grid_split(&p->layout.g, NULL, s->layers, &err);
        LocalRates r;
        double rollout, update;
        if (!layout_check(&p->layout, s, &p->cluster, &p->work, &err))
            return printf("%s: %s\n", CASES[i].name, err.msg), 1;
        plan_make(p);
        LocalWork w = local_work(p, 1);
        w.now = processor_seconds;
        if (!local_measure(m, &w, &r, &err) || !measure(i, m, &w, &rollout, &update, &err))
            return printf("%s: %s\n", CASES[i].name, err.msg), 1;
        local_apply(p, &w, &r);
        double pr = p->phase[PH_ROLLOUT].seconds, pu = p->phase[PH_UPDATE].seconds + p->phase[PH_OPTIMIZER].seconds,
               off = (pr + pu) / (rollout + update) - 1;
        within += fabs(off) <= 0.25;
        printf("%-28s %7.1f / %7.1f %+4.0f%% %7.1f / %7.1f %+4.0f%% %7.1f / %7.1f %+4.0f%%\n", CASES[i].name, 1e3 * pr,
               1e3 * rollout, 100 * (pr / rollout - 1), 1e3 * pu, 1e3 * update, 100 * (pu / update - 1),
               1e3 * (pr + pu), 1e3 * (rollout + update), 100 * off);
        fflush(stdout);
    }
    printf("predicted / measured in ms; %d of %zu steps within 25 %%\n", within, COUNT(CASES) - (size_t)first);
    mem_free(&mem);
    return 0;
}
