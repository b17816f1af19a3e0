/* share.c - answers that ranks sampled apart, on all of them: each rank's rows one behind the other, handed round. */
#include "rollout/rollouts.h"

#include <string.h>

typedef struct {
    int32_t slot, n, finish; /* n: tokens of the answer */
    int64_t kept_n;
    double score, acc;
    int64_t text_n;
    uint64_t pred;
    bool failed;
    char reason[sizeof((Rollout *)0)->reason];
} Row;

static void pack(Buf *b, const Rollout *a, int slot) {
    Row row = { .slot = slot,
                .n = answer_n(a),
                .finish = (int32_t)a->finish,
                .kept_n = (int64_t)a->kept_n,
                .score = a->score,
                .pred = a->pred };
    row.acc = a->acc, row.text_n = a->text_n, row.failed = a->failed;
    memcpy(row.reason, a->reason, sizeof row.reason);
    size_t bytes = (size_t)row.n * 4;
    buf_put(b, &row, sizeof row);
    buf_put(b, a->tokens + a->n_prompt, bytes);
    buf_put(b, a->lp, bytes);
    buf_put(b, a->ent, bytes);
    if (a->kept) buf_put(b, a->kept, a->kept_n);
}

static const char *take(void *to, const char *from, size_t n) {
    if (n) memcpy(to, from, n);
    return from + n;
}

static const char *unpack(const char *at, const Rollouts *r) {
    Row row;
    at = take(&row, at, sizeof row);
    CHECK(row.slot >= 0 && row.slot < rollouts_n(r) && row.n >= 0 && row.n <= r->max_answer
              && (size_t)row.kept_n <= r->kept_room,
          "answer %d of %d tokens came", row.slot, row.n);
    int prompt = row.slot / r->samples, sample = row.slot % r->samples;
    const Prompt *p = &r->prompt[prompt];
    Rollout *a = &r->at[row.slot];
    a->prompt = prompt, a->sample = sample, a->n_prompt = p->n, a->n = p->n + row.n;
    a->finish = (Finish)row.finish, a->score = row.score, a->pred = row.pred, a->acc = row.acc, a->failed = row.failed;
    a->text_n = row.text_n;
    memcpy(a->reason, row.reason, sizeof a->reason);
    memcpy(a->tokens, p->tokens, (size_t)p->n * sizeof *a->tokens);
    size_t bytes = (size_t)row.n * 4;
    at = take(a->tokens + p->n, at, bytes);
    at = take(a->lp, at, bytes);
    at = take(a->ent, at, bytes);
    a->kept_n = (size_t)row.kept_n;
    return a->kept ? take(a->kept, at, a->kept_n) : at;
}

void rollouts_share(Rollouts *r, const bool *own, const Comm *ranks) {
    Mem mem = { 0 };
    Buf mine = { 0 }, theirs = { 0 };
    int64_t *bytes = MEM_ARRAY(&mem, int64_t, (size_t)ranks->size);
    for (int i = 0; i < rollouts_n(r); i++)
        if (own[i]) pack(&mine, &r->at[i], i);
    int64_t have = (int64_t)mine.n;
    comm_about(ranks, "answers", -1);
    comm_gather_host(ranks, bytes, &have, sizeof have);
    for (int rank = 0; rank < ranks->size; rank++) {
        Buf *b = rank == ranks->rank ? &mine : &theirs;
        if (b == &theirs) buf_clear(b), buf_reserve(b, (size_t)bytes[rank] + 1);
        if (bytes[rank]) comm_broadcast(ranks, rank, b->data, (size_t)bytes[rank]);
        if (b == &mine) continue;
        const char *at = b->data, *end = b->data + bytes[rank];
        while (at < end) at = unpack(at, r);
        CHECK(at == end, "%ld bytes of answers came, %ld were read", (long)bytes[rank], (long)(at - b->data));
    }
    buf_free(&mine);
    buf_free(&theirs);
    mem_free(&mem);
}
