/* replicas.c - replicas of the rollout: who draws which answers, and bringing them together.
 * The first rank keeps the queue and looks at it between two steps of its own; the
 * first rank of each other replica asks it for more while it still computes, so that the answer is there when it is
 * needed. */
#include "rollout/replicas.h"

Replicas replicas_of(const World *w, const GridShape *g, const Groups *groups) {
    int experts = g->ep * g->etp, unit = g->tp;
    while (unit % experts && experts > 1) unit += g->tp; /* whole replicas, and whole copies of the experts */
    return (Replicas){
        .all = w->all,
        .tp = groups->tp,
        .unit = unit == g->tp ? groups->tp : world_blocks(w, "replicas that share experts", unit),
        .n = w->all.size / g->tp,
        .at = w->all.rank / g->tp,
    };
}

typedef struct {
    int32_t first, n;
} Range;

struct Queue {
    Replicas r;
    int n, room;
    int32_t *own; /* [n] this replica's requests */
    int n_own, given;
    bool ended; /* there are no more for it */
    /* the first rank of a replica: what it asked for */
    bool asked;
    CommCall ask, got;
    CommPause pause;
    int32_t want;
    Range range;
    /* the first of all: whom it may still hear from */
    int next, left;
    int32_t *wanted;
    Range *range_for;
    CommCall *hears, *says;
    bool *said;
};

enum { TAG_ASK = 1 << 20, TAG_GIVE };

static int leader_of(const Queue *q, int replica) { return replica * (q->r.all.size / q->r.n); }
static bool leads(const Queue *q) { return q->r.tp.rank == 0; }
static bool keeps(const Queue *q) { return q->r.all.rank == 0 && q->r.n > 1; }

static void hear(Queue *q, int i) {
    q->hears[i] = comm_recv_host(&q->r.all, leader_of(q, i), TAG_ASK, &q->wanted[i], sizeof q->wanted[i]);
}

Queue *queue_open(const Replicas *r, int n, int room, Mem *mem) {
    Queue *q = MEM_NEW(mem, Queue);
    *q = (Queue){ .r = *r, .n = n, .room = room < 1 ? 1 : room, .own = MEM_ARRAY(mem, int32_t, (size_t)n + 1) };
    int share = n / r->n, each = r->n == 1 || share < q->room ? share : q->room; /* dealt at the start */
    for (int i = 0; i < each; i++) q->own[q->n_own++] = r->at * each + i;
    q->next = r->n * each;
    q->ended = r->n == 1;
    if (!keeps(q)) return q;
    size_t others = (size_t)r->n;
    q->wanted = MEM_ARRAY(mem, int32_t, others);
    q->range_for = MEM_ARRAY(mem, Range, others);
    q->hears = MEM_ARRAY(mem, CommCall, others), q->says = MEM_ARRAY(mem, CommCall, others);
    q->said = MEM_ARRAY(mem, bool, others);
    for (int i = 1; i < r->n; i++) hear(q, i), q->left++;
    return q;
}

int queue_next(Queue *q) { return q->given < q->n_own ? q->own[q->given++] : -1; }

/* As many as were asked for, but for the last ones, of which each replica gets its part. */
static Range take(Queue *q, int want) {
    int left = q->n - q->next, part = (left + q->r.n - 1) / q->r.n;
    Range x = { q->next, want < part ? want : part };
    q->next += x.n;
    return x;
}

/* The keeper: answers those who asked. */
static void serve(Queue *q) {
    for (int i = 1; keeps(q) && q->left && i < q->r.n; i++) {
        if (q->said[i] && comm_done(&q->says[i])) {
            q->said[i] = false;
            if (q->range_for[i].n) hear(q, i);
            else q->left--;
        }
        if (q->said[i] || !q->hears[i].c || !comm_done(&q->hears[i])) continue;
        q->hears[i].c = NULL;
        q->range_for[i] = q->wanted[i] > 0 ? take(q, q->wanted[i]) : (Range){ 0, 0 };
        q->says[i] = comm_send_host(&q->r.all, leader_of(q, i), TAG_GIVE, &q->range_for[i], sizeof(Range));
        q->said[i] = true;
    }
}

/* A replica's first rank: what it asked for, or more if it has room; want 0: no more. */
static Range fetch(Queue *q, int want) {
    Range none = { 0, -1 }; /* not yet */
    if (q->ended) return none;
    if (q->r.all.rank == 0) return want > 0 ? take(q, want) : none;
    if (q->asked) {
        if (!comm_done(&q->got)) return none;
        comm_wait(&q->ask);
        q->asked = false;
        return q->range;
    }
    if (want <= 0) return none;
    q->want = want;
    q->got = comm_recv_host(&q->r.all, 0, TAG_GIVE, &q->range, sizeof q->range);
    q->ask = comm_send_host(&q->r.all, 0, TAG_ASK, &q->want, sizeof q->want);
    q->asked = true;
    return none;
}

static void add(Queue *q, Range x) {
    if (x.n < 0) return;
    q->ended = q->ended || x.n == 0;
    for (int i = 0; i < x.n; i++) q->own[q->n_own++] = x.first + i;
}

Join queue_join(Queue *q, bool busy, int under_way, bool stop) {
    struct Word {
        Range range;
        bool busy, more, stop;
    } mine = { { 0, -1 }, busy, true, stop }, alone, *all = &alone;
    Mem mem = { 0 };
    const Comm *unit = &q->r.unit;
    serve(q);
    if (leads(q)) mine.range = fetch(q, q->room - under_way);
    mine.more = !q->ended && mine.range.n != 0;
    alone = mine;
    if (unit->size > 1) {
        all = MEM_ARRAY(&mem, struct Word, (size_t)unit->size);
        comm_gather_host(unit, all, &mine, sizeof mine);
    }
    Join how = JOIN_END;
    bool any = false, later = false, fresh = false, cut = false;
    for (int i = 0; i < unit->size; i += q->r.tp.size) { /* a replica's first rank speaks for it */
        any = any || all[i].busy, later = later || all[i].more, fresh = fresh || all[i].range.n > 0;
    }
    for (int i = 0; i < unit->size; i++) cut = cut || all[i].stop;
    add(q, all[unit->rank / q->r.tp.size * q->r.tp.size].range);
    mem_free(&mem);
    if (cut) return q->next = q->n, JOIN_CUT; /* the keeper's: nobody is given more */
    if (fresh) how = JOIN_AGAIN;
    else if (any) how = JOIN_STEP;
    else if (later) how = JOIN_AGAIN;
    if (how == JOIN_AGAIN && !fresh && q->asked)
        comm_pause(&q->got, &q->pause); /* nothing to do but to wait for the keeper */
    else comm_went_on(&q->r.all, &q->pause);
    return how;
}

/* One that the keeper waits for: an asking, or that what it said is heard. */
static const CommCall *pending(const Queue *q) {
    int i = 1;
    while (!q->said[i] && !q->hears[i].c) i++;
    return q->said[i] ? &q->says[i] : &q->hears[i];
}

void queue_close(Queue *q) {
    if (q->r.n == 1) return;
    comm_went_on(&q->r.all, &q->pause);
    if (leads(q) && q->r.all.rank && !q->ended) { /* cut: nothing more is wanted */
        if (q->asked) comm_wait(&q->got), comm_wait(&q->ask), q->ended = q->range.n == 0;
        if (!q->ended) {
            q->want = 0;
            q->got = comm_recv_host(&q->r.all, 0, TAG_GIVE, &q->range, sizeof q->range);
            q->ask = comm_send_host(&q->r.all, 0, TAG_ASK, &q->want, sizeof q->want);
            comm_wait(&q->ask), comm_wait(&q->got);
        }
    }
    while (keeps(q) && q->left) {
        int before = q->left;
        serve(q);
        if (q->left < before) comm_went_on(&q->r.all, &q->pause);
        else if (q->left) comm_pause(pending(q), &q->pause);
    }
    comm_went_on(&q->r.all, &q->pause);
}
