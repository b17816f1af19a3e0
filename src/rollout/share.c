/* share.c - answers that ranks sampled apart, on all of them: each rank's rows one behind the other, handed round. */
#include "rollout/rollouts.h"

#include <string.h>

typedef struct {
    int32_t slot, n, finish; /* n: tokens of the answer */
    int32_t said, turns, calls, bad_calls, given;
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
    row.said = a->said, row.turns = a->turns, row.calls = a->calls, row.bad_calls = a->bad_calls, row.given = a->given;
    row.acc = a->acc, row.text_n = a->text_n, row.failed = a->failed;
    memcpy(row.reason, a->reason, sizeof row.reason);
    size_t bytes = (size_t)row.n * 4;
    buf_put(b, &row, sizeof row);
    buf_put(b, a->tokens + a->n_prompt, bytes);
    buf_put(b, a->lp, bytes);
    buf_put(b, a->ent, bytes);
    if (a->kept) buf_put(b, a->kept, a->kept_n);
    if (a->mask) buf_put(b, a->mask, (size_t)row.n);
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
    a->said = row.said, a->turns = row.turns, a->calls = row.calls, a->bad_calls = row.bad_calls, a->given = row.given;
    memcpy(a->reason, row.reason, sizeof a->reason);
    memcpy(a->tokens, p->tokens, (size_t)p->n * sizeof *a->tokens);
    size_t bytes = (size_t)row.n * 4;
    at = take(a->tokens + p->n, at, bytes);
    at = take(a->lp, at, bytes);
    at = take(a->ent, at, bytes);
    a->kept_n = (size_t)row.kept_n;
    if (a->kept) at = take(a->kept, at, a->kept_n);
    return a->mask ? take(a->mask, at, (size_t)row.n) : at;
}

/* Of each rank, what it gives in a round: rows until they are as many bytes as its part of ROUND. */
enum { ROUND = 64 << 20 };
typedef struct {
    const Comm *ranks;
    CommPart *part; /* [size] */
    int64_t *bytes; /* [size] of a round; 0: it has no more */
    Buf mine, all;
} Sharing;

static void take_all(Sharing *s, const Rollouts *r) {
    size_t sum = 0;
    for (int rank = 0; rank < s->ranks->size; rank++) {
        s->part[rank] = (CommPart){ sum, (size_t)s->bytes[rank] };
        sum += s->part[rank].bytes;
    }
    buf_clear(&s->all);
    buf_reserve(&s->all, sum + 1);
    comm_gather_parts(s->ranks, s->all.data, s->part, s->mine.data);
    for (int rank = 0; rank < s->ranks->size; rank++) {
        const char *at = s->all.data + s->part[rank].at, *end = at + s->part[rank].bytes;
        if (rank == s->ranks->rank) continue;
        while (at < end) at = unpack(at, r);
        CHECK(at == end, "answers came in %zu bytes, %ld more were read", s->part[rank].bytes, (long)(at - end));
    }
}

void rollouts_share(Rollouts *r, const bool *own, const Comm *ranks) {
    Mem mem = { 0 };
    Sharing s = { ranks, MEM_ARRAY(&mem, CommPart, (size_t)ranks->size),
                  MEM_ARRAY(&mem, int64_t, (size_t)ranks->size) };
    size_t most = ROUND / (size_t)ranks->size;
    comm_about(ranks, "answers", -1);
    for (int i = 0, n = rollouts_n(r);;) {
        buf_clear(&s.mine);
        for (; i < n && s.mine.n <= most; i++)
            if (own[i]) pack(&s.mine, &r->at[i], i);
        int64_t have = (int64_t)s.mine.n, sum = 0;
        comm_gather_host(ranks, s.bytes, &have, sizeof have);
        for (int rank = 0; rank < ranks->size; rank++) sum += s.bytes[rank];
        if (!sum) break;
        take_all(&s, r);
    }
    buf_free(&s.mine);
    buf_free(&s.all);
    mem_free(&mem);
}
