/* bench_sched.c - what the scheduler alone costs: microseconds per decode step at batch 256, without any model.
 *   build/bench/bench_sched [BATCH [PROMPT [TOKENS]]] */
#include "base/clock.h"
#include "engine/sched.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int batch = argc > 1 ? atoi(argv[1]) : 256, prompt = argc > 2 ? atoi(argv[2]) : 512,
        tokens = argc > 3 ? atoi(argv[3]) : 512, samples = 16;
    Mem mem = { 0 };
    int page = 16, len = prompt + tokens, groups = (batch + samples - 1) / samples;
    SchedConf c = { .page = page,
                    .pages = batch * (len / page + 2),
                    .max_seqs = 2 * batch,
                    .max_batch = batch,
                    .max_rows = 2048,
                    .max_len = len };
    Sched *s = sched_open(&c, &mem);
    int32_t *text = MEM_ARRAY(&mem, int32_t, (size_t)prompt);
    for (int g = 0; g < 2 * groups; g++) { /* each has another first token; the second half waits for room */
        text = MEM_ARRAY(&mem, int32_t, (size_t)prompt);
        for (int i = 0; i < prompt; i++) text[i] = g + i;
        sched_add(s, text, prompt, samples, tokens);
    }
    double decode = 0, other = 0;
    int64_t steps = 0, others = 0;
    while (!sched_idle(s)) {
        double t0 = clock_now();
        const Step *st = sched_next(s);
        for (int i = 0; i < st->n_draws; i++) sched_token(s, st->draw[i].seq, (int32_t)(steps % 1000), 0, 0);
        sched_done(s);
        for (int i = 0; i < st->n_draws; i++) {
            Seq *q = sched_seq(s, st->draw[i].seq);
            if (q->n == q->limit) sched_finish(s, st->draw[i].seq);
        }
        double t = clock_now() - t0;
        if (st->n_rows == batch && st->n_pieces == batch) decode += t, steps++;
        else other += t, others++;
    }
    printf("batch %d, prompts of %d, answers of %d: %.1f us a decode step (%ld of them), %.1f us a mixed step (%ld)\n",
           batch, prompt, tokens, 1e6 * decode / (double)(steps ? steps : 1), (long)steps,
           1e6 * other / (double)(others ? others : 1), (long)others);
    mem_free(&mem);
    return 0;
}
