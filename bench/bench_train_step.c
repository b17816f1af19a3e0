/* bench_train_step.c MODEL [SEQUENCES LENGTH THREADS] - one training step: forward, backward, gradient norm, AdamW.
 * Each line on standard input asks for one step and is answered by one line of JSON, so that a peer can
 * take turns with it on the same cores (bench/peers/train_step.py).  The loss is the mean of -log p over
 * every token but each sequence's first.  "share": of the multiply-add peak, by the products that a step needs. */
#include "bench.h"

#include "cmd/bench/bench.h"
#include "cut/flops.h"
#include "train/policy.h"

#include <inttypes.h>

int main(int argc, char **argv) {
    CHECK(argc > 1, "bench_train_step MODEL [SEQUENCES LENGTH THREADS]");
    int n = argc > 2 ? atoi(argv[2]) : 4, len = argc > 3 ? atoi(argv[3]) : 512, threads = argc > 4 ? atoi(argv[4]) : 2;
    Mem mem = { 0 };
    Err err;
    ModelDesc desc;
    Dev dev;
    Model model;
    Policy policy;
    CHECK(model_desc_load(&desc, argv[1], &mem, &err), "%s", err.msg);
    dev_open(&dev, (DevOpts){ .threads = threads });
    PolicyConf conf = { .micro_tokens = (int64_t)n * len,
                        .max_seqs = n,
                        .trained.recompute = RECOMPUTE_NONE,
                        .trains = true,
                        .trained.keep_logits = true }; /* as torch does */
    dev.tmp = dev_arena(&dev, "tmp", policy_sizes(&desc, NULL, &conf, dev_kind_cpu()).tmp);
    model_open(&model, &dev, &desc, DT_F32, 8, &mem);
    CHECK(params_load(&model.w, &dev, argv[1], &err), "%s", err.msg);
    policy_open(&policy, &model, &conf, &mem);

    TrainSeq *seqs = bench_seqs(n, len, desc.d.vocab, &mem);
    LossConf loss = { .kind = LOSS_GPG, .agg = AGG_TOKEN_MEAN };
    AdamConf adam = { .lr = 1e-4, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .decay = 0.01, .clip = 1 };
    TokenFlops f = token_flops(&desc.d);
    int64_t lens[1] = { len };
    double gflop = 1e-9 * n * flops_train(&f, lens, 1, len - 1);
    char line[64];
    double peak = 0; /* the highest seen: what a neighbour took of it is not ours to count */
    while (fgets(line, sizeof line, stdin)) {
        UpdateStats st;
        peak = fmax(peak, bench_peak_once(&dev));
        double t0 = clock_now(), c0 = bench_cpu();
        CHECK(policy_update(&policy, seqs, n, &loss, &adam, false, &st, &err), "%s", err.msg);
        double t = clock_now() - t0, c = bench_cpu() - c0;
        peak = fmax(peak, bench_peak_once(&dev));
        printf("{\"seconds\":%.6f,\"cpu\":%.6f,\"loss\":%.6f,\"grad_norm\":%.5f,\"micro_batches\":%" PRId64
               ",\"share\":%.4f}\n",
               t, c, st.total, st.grad_norm, st.micros, gflop / t / peak);
        fflush(stdout);
    }
    policy_close(&policy);
    model_close(&model);
    dev_close(&dev);
    mem_free(&mem);
    return 0;
}
