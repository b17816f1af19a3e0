/* test_rollouts.c - prompts that leave a step take their pictures along, whatever order they were put into. */
#include "rollout/rollouts.h"
#include "test.h"

int main(void) {
    enum { N = 5, STAY = 2, BYTES = 1000 };
    Mem mem = { 0 };
    Rollouts r;
    rollouts_open(&r, N, 1, 4, 4, &mem);
    for (int batch = 0; batch < 3;
         batch++) { /* as dynamic sampling does: what is of use moves together, the rest goes */
        while (r.n_prompts < N) {
            Prompt *p = rollouts_add(&r, NULL, r.n_prompts, (const int32_t[]){ 1, 2 }, 2);
            EXPECT(!p->pixels.total, "batch %d: prompt %d begins with somebody's pictures", batch, r.n_prompts - 1);
            memset(mem_push(&p->pixels, BYTES), p->index & 255, BYTES);
        }
        Prompt last = r.prompt[N - 1];
        r.prompt[N - 1] = r.prompt[STAY - 1], r.prompt[STAY - 1] = last;
        rollouts_cut(&r, STAY);
        EXPECT(r.n_prompts == STAY && r.prompt[STAY - 1].pixels.total && r.prompt[STAY - 1].index == N - 1,
               "batch %d: %d prompts stay", batch, r.n_prompts);
        for (int i = STAY; i < N; i++)
            EXPECT(!r.prompt[i].pixels.total, "batch %d: the pictures of prompt %d", batch, i);
    }
    rollouts_clear(&r);
    for (int i = 0; i < N; i++) EXPECT(!r.n_prompts && !r.prompt[i].pixels.total, "the pictures of prompt %d", i);
    mem_free(&mem);
    return test_end();
}
