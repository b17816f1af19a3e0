/* test_comm.c - what groups of ranks do together, on 1 to 8 ranks: the program starts itself under mpirun
 * for each size (a counted skip where there is none).  Every sum is compared, bit for bit, with the tree
 * computed by one rank; groups of a grid with counting; memory that the others of a machine read; a rank that
 * dies, stalls or waits in vain takes all down, with one line that says who and where. */
#include "base/clock.h"
#include "comm/alike.h"
#include "comm/share.h"
#include "comm/watch.h"
#include "ranks.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static float value(int rank, int64_t i) {
    return (float)((rank * 7919 + i * 104729) % 1000003) * 1e-3f - 300.0f + 1e-4f * (float)rank;
}

#ifdef HONE_GPU_TEST
enum { DEADLINE = 60 }; /* NCCL takes seconds to begin: only who is gone at once is looked for */
#else
enum { DEADLINE = 1 };
#endif
static Dev device; /* one a rank: what moves its tensors knows it */
static void device_begin(void) {
#ifdef HONE_GPU_TEST
    Err err;
    CHECK(dev_open_cuda(&device, (CudaOpts){ .threads = 1, .act = DT_F32 }, NULL, &err), "%s", err.msg);
#else
    dev_open(&device, (DevOpts){ .threads = 1, .guard = true });
#endif
}
typedef struct {
    Dev *d;
    Arena a;
    Mem m;
} Rig;
static void rig_open(Rig *r) {
    *r = (Rig){ .d = &device };
    r->a = dev_arena(r->d, "test", 8 << 20);
    r->d->tmp = dev_arena(r->d, "tmp", 8 << 20);
}
static void rig_close(Rig *r) {
    EXPECT(r->d->tmp.used == 0, "tmp is not empty");
    dev_free(r->d, r->d->tmp.base);
    dev_free(r->d, r->a.base);
    mem_free(&r->m);
}
static Tensor fill(Rig *r, int rank, int64_t rows, int64_t cols, int64_t from) {
    float *x = MEM_ARRAY(&r->m, float, (size_t)(rows * cols) + 1);
    for (int64_t i = 0; i < rows * cols; i++) x[i] = value(rank, from * cols + i);
    Tensor t = tensor_push(&r->a, DT_F32, rows, cols);
    op_put(r->d, t, x);
    return t;
}
static float *fetched(Rig *r, Tensor t) {
    float *x = MEM_ARRAY(&r->m, float, (size_t)(t.rows * t.cols) + 1);
    op_get(r->d, x, t);
    return x;
}
static float tree(const float *x, int n) { return n == 1 ? x[0] : tree(x, n / 2) + tree(x + n / 2, n / 2); }

static void tensors(const Comm *c) {
    static const int64_t totals[] = { 0, 1, 3, 8, 37, 256 };
    for (size_t k = 0; k < COUNT(totals); k++) {
        Rig r;
        rig_open(&r);
        int64_t T = totals[k], C = 24, first = comm_first_row(c, T, c->rank), n = comm_share(c, T);
        Tensor all = comm_all_gather(c, r.d, &r.a, fill(&r, 0, n, C, first), T);
        float *got = fetched(&r, all);
        int bad = 0;
        for (int64_t i = 0; i < T * C; i++) bad += got[i] != value(0, i);
        EXPECT(all.rows == T && !bad, "all-gather of %ld rows over %d: %d wrong", (long)T, c->size, bad);
        if ((c->size & (c->size - 1)) == 0) {
            Tensor part = fill(&r, c->rank, T, C, 0), mine = tensor_push(&r.a, DT_F32, n, C);
            comm_reduce_scatter(c, r.d, mine, part);
            got = fetched(&r, mine), bad = 0;
            for (int64_t i = 0; i < n * C; i++) {
                float each[32];
                for (int p = 0; p < c->size; p++) each[p] = value(p, first * C + i);
                bad += got[i] != tree(each, c->size);
            }
            EXPECT(mine.rows == n && !bad, "reduce-scatter of %ld rows over %d: %d wrong", (long)T, c->size, bad);
        }
        rig_close(&r);
    }
}

/* Rank p gives rank q (p + 2 q) % 5 rows; some give none. */
static void exchange(const Comm *c) {
    Rig r;
    rig_open(&r);
    CommRows get[64], give[64];
    int64_t in = 0, out = 0, C = 5;
    for (int q = 0; q < c->size; q++) {
        get[q] = (CommRows){ in, (q + 2 * c->rank) % 5 }, in += get[q].n;
        give[q] = (CommRows){ out, (c->rank + 2 * q) % 5 }, out += give[q].n;
    }
    Tensor from = fill(&r, c->rank, out, C, 0), to = tensor_push(&r.a, DT_F32, in, C);
    comm_exchange(c, r.d, to, get, from, give);
    float *got = fetched(&r, to);
    int bad = 0;
    for (int q = 0; q < c->size; q++) {
        int64_t at = 0;
        for (int p = 0; p < c->rank; p++) at += (q + 2 * p) % 5;
        for (int64_t i = 0; i < get[q].n * C; i++) bad += got[get[q].at * C + i] != value(q, at * C + i);
    }
    EXPECT(!bad, "exchange over %d: %d wrong", c->size, bad);
    int right = (c->rank + 1) % c->size,
        left = (c->rank + c->size - 1) % c->size; /* a ring, several messages under way */
    Tensor a = fill(&r, c->rank, 4, 3, 0), b = fill(&r, c->rank + 50, 4, 3, 0), x = fill(&r, 99, 4, 3, 0),
           y = fill(&r, 99, 4, 3, 0);
    if (c->size > 1) {
        CommCall w[] = { comm_recv(c, r.d, left, 1, y), comm_recv(c, r.d, left, 0, x), comm_send(c, r.d, right, 0, a),
                         comm_send(c, r.d, right, 1, b) };
        for (size_t i = 0; i < COUNT(w); i++) comm_wait(&w[i]);
        EXPECT(fetched(&r, x)[7] == value(left, 7) && fetched(&r, y)[11] == value(left + 50, 11), "a ring of sends");
    }
    rig_close(&r);
}

/* Many messages of one tag come in the order they were sent: each is as long as its number
 * says.  Then messages together: rank 0's to each, rank 1's to each, ... */
static void in_order(const Comm *c) {
    enum { MANY = 24 };
    int right = (c->rank + 1) % c->size, left = (c->rank + c->size - 1) % c->size, bad = 0;
    CommCall sent[MANY], had[MANY];
    Tensor out[MANY], in[MANY];
    Rig r;
    rig_open(&r);
    for (int i = 0; i < MANY; i++) {
        out[i] = fill(&r, c->rank + i, 1 + i * 7 % 5, 3, 0), in[i] = fill(&r, 99, 1 + i * 7 % 5, 3, 0);
        had[i] = comm_recv(c, r.d, left, 6, in[i]);
    }
    for (int i = 0; i < MANY; i++) sent[i] = comm_send(c, r.d, right, 6, out[i]);
    for (int i = MANY - 1; i >= 0; i--) comm_wait(&sent[i]), comm_wait(&had[i]);
    for (int i = 0; i < MANY; i++) bad += fetched(&r, in[i])[2] != value(left + i, 2);
    EXPECT(!bad, "many messages of one tag: %d are others", bad);
    bad = 0;
    for (int from = 0; from < c->size; from++) {
        CommCall call[COMM_TOGETHER];
        Tensor gift = fill(&r, from, 5, 3, 0), room = fill(&r, 99, 5, 3, 0);
        int n = 0;
        comm_together(c, true);
        for (int to = 0; to < c->size && c->rank == from; to++)
            if (to != from) call[n++] = comm_send(c, r.d, to, 8, gift);
        if (c->rank != from) call[n++] = comm_recv(c, r.d, from, 8, room);
        comm_together(c, false);
        for (int i = 0; i < n; i++) comm_wait(&call[i]);
        bad += fetched(&r, c->rank == from ? gift : room)[14] != value(from, 14);
    }
    EXPECT(!bad, "messages together: %d are others", bad);
    rig_close(&r);
}

/* What the device has in a tensor, on the hosts of all. */
static void readings(const Comm *c) {
    for (int k = 0; k < 6; k++) {
        Rig r;
        rig_open(&r);
        float all[8 * 3], own[3];
        int bad = 0;
        comm_read_room(c, sizeof own);
        CommCall call = comm_read_begin(c, r.d, all, tensor_push(&r.a, DT_F32, c->size, 3), fill(&r, c->rank, 1, 3, k));
        comm_wait(&call);
        for (int p = 0; p < c->size; p++)
            for (int i = 0; i < 3; i++) bad += all[p * 3 + i] != value(p, k * 3 + i);
        EXPECT(!bad, "a reading over %d: %d wrong", c->size, bad);
        rig_close(&r);
    }
}

/* Many calls one behind the other, and the host reads once: each takes what the one before has brought.  x of all ranks
 * is gathered, its rows go round by one rank, and are added to x. */
static void chained(const Comm *c) {
    enum { TURNS = 80, C = 24 };
    Rig r;
    rig_open(&r);
    int n = c->size, left = (c->rank + n - 1) % n, right = (c->rank + 1) % n, bad = 0;
    CommRows get[64] = { { 0 } }, give[64] = { { 0 } };
    Tensor x = fill(&r, c->rank, 2, C, 0), came = tensor_push(&r.a, DT_F32, 2, C);
    float *want = MEM_ARRAY(&r.m, float, 64 * C);
    for (int p = 0; p < n; p++)
        for (int64_t i = 0; i < C; i++) want[p * C + i] = value(p, i);
    get[left] = give[right] = (CommRows){ 0, 1 };
    for (int t = 0; t < TURNS; t++) {
        size_t mark = arena_mark(&r.a);
        Tensor all = comm_all_gather(c, r.d, &r.a, tensor_rows(x, 0, 1), n), mine = tensor_rows(all, c->rank, 1);
        CommCall call = comm_exchange_begin(c, r.d, came, get, mine, give);
        op_copy(r.d, tensor_rows(x, 1, 1), tensor_rows(all, left, 1)); /* beside it */
        comm_wait(&call);
        op_add(r.d, tensor_rows(x, 0, 1), tensor_rows(came, 0, 1), tensor_rows(x, 1, 1));
        arena_pop(&r.a, mark);
        float *next = MEM_ARRAY(&r.m, float, 64 * C);
        for (int p = 0; p < n; p++)
            for (int64_t i = 0; i < C; i++)
                next[p * C + i] = want[(p + n - 1) % n * C + i] + want[(p + n - 1) % n * C + i];
        want = next;
    }
    float *got = fetched(&r, x);
    for (int64_t i = 0; i < C; i++) bad += got[i] != want[c->rank * C + i];
    EXPECT(!bad, "%d calls in a chain over %d: %d wrong", TURNS, n, bad);
    rig_close(&r);
}

static void values(const Comm *c) {
    double sum = comm_sum(c, 1.0 / (1 + c->rank)), want = 0, most = comm_max(c, c->rank % 3);
    for (int r = 0; r < c->size; r++) want += 1.0 / (1 + r);
    EXPECT(sum == want && most == (c->size > 2 ? 2 : c->size - 1), "sum %.17g, most %g", sum, most);
    EXPECT(comm_sum_i64(c, (int64_t)1 << 40) == (int64_t)c->size << 40, "sum of whole numbers");
    char text[100] = "not yet";
    if (c->rank == c->size - 1) strcpy(text, "from the last");
    comm_broadcast(c, c->size - 1, text, sizeof text);
    EXPECT(!strcmp(text, "from the last"), "broadcast: %s", text);
    comm_barrier(c);
    char all[64 * 8], mine[64]; /* r % 3 * 9 bytes of rank r, and none of some; then all again where they lie apart */
    CommPart part[64];
    for (int apart = 0; apart < 2; apart++) {
        size_t at = 0;
        int bad = 0;
        for (int r = 0; r < c->size; r++) {
            size_t n = (size_t)(r % 3) * 9;
            part[r] = (CommPart){ at, n }, at += n + (size_t)apart * 5;
        }
        memset(all, 'x', sizeof all), memset(mine, 'a' + c->rank, sizeof mine);
        comm_gather_parts(c, all, part, mine);
        for (int r = 0; r < c->size; r++)
            for (size_t i = 0; i < part[r].bytes; i++) bad += all[part[r].at + i] != 'a' + r;
        for (int r = 0; r < c->size && apart; r++) bad += all[part[r].at + part[r].bytes] != 'x';
        EXPECT(!bad, "a gathering of unequal parts: %d are others", bad);
    }
}

/* Lines of the first rank, of the last, and what all are told; NULL: nothing is the matter. */
static void alike(const World *w) {
    static char xs[300], ys[300], far[300];
    memset(xs, 'x', 290), memset(ys, 'x', 290), ys[280] = 'y';
    snprintf(far, sizeof far, "a ...%.20sy%.9s, rank 0 ...%.30s: all ranks", xs, xs, xs);
    static const struct {
        const char *first, *last, *said;
    } cases[] = {
        { "a\t1\nb\t2\n", "a\t1\nb\t2\n", NULL },
        { "", "", NULL },
        { "a\t1\nb\t2\n", "a\t1\nb\t22\n", "b 22, rank 0 2: all ranks" },
        { "a\t1\nb\t2\n", "a\t3\nb\t4\n", "a 3, rank 0 1: all ranks" },
        { "a\t1\nb\t2\n", "a\t1\n", "b none, rank 0 2: all ranks" },
        { "a\t1\n", "a\t1\nb\t2\n", "b 2, rank 0 none: all ranks" },
        { "a\t1\nc\t3\n", "a\t1\nb\t2\nc\t3\n", "b 2, rank 0 none: all ranks" },
        { "a\t1\nb\t2\nc\t3\n", "a\t1\nc\t3\n", "b none, rank 0 2: all ranks" },
        { "a\t\n", "a\t1\n", "a 1, rank 0 : all ranks" },
        { "a\t1\n", "", "a none, rank 0 1: all ranks" },
        { "", "a\t1\n", "a 1, rank 0 none: all ranks" },
    };
    Ranks r = { .world = *w };
    int last = w->all.size - 1;
    Err err;
    for (size_t i = 0; i < COUNT(cases); i++) {
        char want[200];
        snprintf(want, sizeof want, "rank %d has %s", last, cases[i].said ? cases[i].said : "");
        err.msg[0] = 0;
        bool ok = ranks_alike(&r, w->all.rank == last ? cases[i].last : cases[i].first, &err);
        EXPECT(ok == !cases[i].said && (ok || !strncmp(err.msg, want, strlen(want))), "case %zu: %s, not %s", i,
               err.msg, want);
    }
    char one[400], two[400];
    snprintf(one, sizeof one, "a\t%s\n", xs), snprintf(two, sizeof two, "a\t%s\n", ys);
    EXPECT(!ranks_alike(&r, w->all.rank == last ? two : one, &err) && strstr(err.msg, far), "%s, not %s", err.msg, far);
    EXPECT(!ranks_alike(&r, w->all.rank ? "a\t2\n" : "a\t1\n", &err) && !strncmp(err.msg, "rank 1 has a 2", 14),
           "the first of several: %s", err.msg);
    bool ok = ranks_agree(&r, w->all.rank != last || err_set(&err, "rank 9 is no such beginning"), &err);
    snprintf(one, sizeof one, "rank %d: rank 9 is no such beginning", last);
    EXPECT(!ok && !strcmp(err.msg, one), "%s", err.msg);
}

static const char *const grids[] = { "",         "tp2",     "pp2",         "cp2",          "tp2,pp2", "ep2",
                                     "ep2,etp2", "tp2,ep4", "cp2,tp2,ep8", "pp2,ep2,etp2", "pp4,tp2" };

/* Tensors go to those that the host's values go to. */
static void same_members(const Comm *c, int me, const char *grid) {
    Rig r;
    rig_open(&r);
    int who[64], bad = 0;
    comm_gather_host(c, who, &me, sizeof me);
    comm_gather_host(c, who, &me, 0); /* of nothing: nobody's word changes */
    float *got = fetched(&r, comm_all_gather(c, r.d, &r.a, fill(&r, me, 1, 7, 0), c->size));
    for (int p = 0; p < c->size; p++)
        for (int i = 0; i < 7; i++) bad += got[p * 7 + i] != value(who[p], i);
    EXPECT(!bad, "%s: group %s: %d entries are another rank's", grid, c->name, bad);
    rig_close(&r);
}

/* Experts by machines, where machines are so many ranks each (the NCCL of tests/shim/gpu): rank a * n + b of a group is
 * the b-th on the a-th, or each machine has its own share of them. */
static void by_machines(const World *w, const Groups *s, const char *grid) {
    const char *ranks = getenv("GPU_NODE");
    int machine = w->nccl && ranks ? atoi(ranks) : w->all.size, n = s->experts.size;
    bool regular = w->all.size % machine == 0 && n > machine && n % machine == 0 && machine > 1;
    EXPECT(s->near.size == (regular ? machine : 1) && s->across.size == (regular ? n / machine : 1),
           "%s: %d experts' ranks, %d a machine: %d near, %d across", grid, n, machine, s->near.size, s->across.size);
    if (!regular) return;
    EXPECT(s->near.rank == s->experts.rank % machine && s->across.rank == s->experts.rank / machine,
           "%s: rank %d of the experts is %d near, %d across", grid, s->experts.rank, s->near.rank, s->across.rank);
    same_members(&s->near, w->all.rank, grid);
    same_members(&s->across, w->all.rank, grid);
}

static void groups(const World *w, const ModelDesc *m) {
    for (size_t k = 0; k < COUNT(grids); k++) {
        GridShape g;
        Err err;
        if (!grid_parse(&g, grids[k], &err) || !grid_fill(&g, m, w->all.size, NULL, 32, &err)) continue;
        Groups s;
        world_groups(w, &g, &s);
        GridAt at = grid_at(&g, w->all.rank);
        const struct {
            const Comm *c;
            int rank, size;
        } all[] = { { &s.tp, at.tp, g.tp },
                    { &s.cp, at.cp, g.cp },
                    { &s.dp, at.dp, g.dp },
                    { &s.pp, at.pp, g.pp },
                    { &s.ep, at.ep, g.ep },
                    { &s.etp, at.etp, g.etp },
                    { &s.edp, at.edp, grid_stage_ranks(&g) / (g.ep * g.etp) },
                    { &s.dense, at.dp * g.cp + at.cp, g.dp * g.cp } };
        for (size_t i = 0; i < COUNT(all); i++) {
            EXPECT(all[i].c->rank == (all[i].size > 1 ? all[i].rank : 0) && all[i].c->size == all[i].size,
                   "%s: group %s", grids[k], all[i].c->name);
            double ranks = comm_sum(all[i].c, all[i].rank); /* everybody else is there, once */
            EXPECT(ranks == all[i].size * (all[i].size - 1) / 2.0, "%s: group %s holds others", grids[k],
                   all[i].c->name);
            same_members(all[i].c, w->all.rank, grids[k]);
        }
        by_machines(w, &s, grids[k]);
        comm_barrier(&w->all);
    }
}

/* What becomes of three ranks of which one fails; the deadline is a second. */
static void burn(double seconds) {
    for (double start = clock_thread(); clock_thread() - start < seconds;) {}
}
static int fails(const World *w, const char *how) {
    int me = w->all.rank;
    bool first = strstr(how, "first") != NULL;
    world_phase(w, "update");
    comm_about(&w->all, "layer", 3);
    if (!strcmp(how, "computes")) { /* longer than the deadline: no stall */
        if (me == 1) burn(2.5);
        double before = clock_thread();
        comm_barrier(&w->all);
        double spent = clock_thread() - before;
        EXPECT(me == 1 || spent < 0.5, "rank %d spent %g s of the processor's waiting for 2.5 s", me, spent);
        return 0;
    }
    if (!strcmp(how, "each_other")) { /* a message that nobody sends */
        char x[8];
        CommCall call = { &w->all,     NULL,         w->all.via->recv(&w->all, (me + 1) % 3, 5, x, 8),
                          "a receipt", (me + 1) % 3, tensor_over(x, DT_U8, 1, 8) };
        comm_wait(&call);
    }
    if (!strcmp(how, "gathers")) { /* the device waits, and the host for the device */
        Rig r;
        rig_open(&r);
        if (me == 1) sleep(20);
        fetched(&r, comm_all_gather(&w->all, r.d, &r.a, fill(&r, me, 1, 7, 0), 3));
    }
    int pids[3] = { 0 }, mine = getpid();
    comm_gather_host(&w->all, pids, &mine, sizeof mine);
    if (me == (first ? 0 : 1)) {
        for (int i = 0; i < 3 && strstr(how, "ended"); i++) /* a launcher that is quicker than any rank */
            if (i != me) kill(pids[i], SIGTERM);
        if (strstr(how, "dies")) raise(SIGKILL);
        if (strstr(how, "stops")) raise(SIGSTOP);
        if (!strcmp(how, "sleeps")) sleep(20);
        if (!strcmp(how, "gives_up")) die("a bug of %d", 7);
    }
    comm_barrier(&w->all);
    return 0;
}

static const struct {
    const char *how, *said[2];
} failures[] = {
    { "dies", { "hone: rank 1 is gone without a word", "it was in update" } },
    { "first_dies", { "hone: rank 1: rank 0 is gone without a word", "it was in " } },
    { "dies_others_ended", { "hone: rank 1 is gone without a word", "it was in update" } },
    { "first_dies_others_ended", { "hone: rank 1: rank 0 is gone without a word", "it was in " } },
    { "stops", { "hone: rank 1 has given no sign of life for 1 s (trainer.wait_seconds)", "it was in update" } },
    { "first_stops", { "hone: rank 1: rank 0 has given no sign of life for 1 s", "it was in " } },
    { "sleeps",
      { "hone: rank 1 has done nothing for 1 s (trainer.wait_seconds), in update",
        "is in update, waiting for a gathering of values of group world, U8 [3,8], layer 3" } },
    { "gathers",
      { "hone: rank 1 has done nothing for 1 s (trainer.wait_seconds), in update",
        "is in update, waiting for an all-gather of group world, F32 [3,7], layer 3" } },
    { "each_other",
      { "hone: all ranks have waited for more than 1 s", /* which two are named depends on who waited first */
        "of group world, U8 [1,8], layer 3, rank " } },
    { "gives_up", { "hone: rank 1: ", "a bug of 7" } },
};

static void failing(const char *self) {
    static char said[1 << 16];
    for (size_t i = 0; i < COUNT(failures); i++) {
        if (DEADLINE > 1 && strstr(failures[i].said[0], "1 s")) continue;
        int rc = run_ranks(self, 3, failures[i].how, said, sizeof said), lines = 0;
        for (const char *at = said; (at = strstr(at, "hone: ")); at++) lines++;
        EXPECT(rc != 0 && strstr(said, failures[i].said[0]) && strstr(said, failures[i].said[1]) && lines == 1,
               "%s: exit code %d\n%s", failures[i].how, rc, said);
    }
}

/* The system's, which refuses where it is told to.  (Taking all descriptors away would fail the polls of MPI's and the
 * driver's own threads too, which then fail elsewhere.) */
static bool no_file;
int memfd_create(const char *name, unsigned flags) {
    if (no_file) return errno = EMFILE, -1;
    return (int)syscall(SYS_memfd_create, name, flags);
}

/* Memory of each rank, where it was and with what was in it, read by all; and one rank that is given no file. */
static void shares(const World *w) {
    enum { BYTES = (5 << 20) + 4099, LAST = BYTES - 1 };
    int me = w->all.rank, n = w->all.size;
    Share of[8];
    Err err = { "" };
    char *own = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(own != MAP_FAILED && n <= (int)COUNT(of), "%d ranks", n);
    for (int i = 0; i < BYTES; i++) own[i] = (char)(i % 251 + me);
    for (int fails = 1; fails >= 0; fails--) {
        no_file = fails && me == n - 1;
        bool ok = share_open(of, w, own, BYTES, &err);
        no_file = false;
        EXPECT(ok == !fails && (ok || strstr(err.msg, "memfd_create")), "%d: %s", ok, err.msg);
        int bad = 0;
        for (int i = 0; i < BYTES; i++) bad += own[i] != (char)(i % 251 + me);
        for (int r = 0; r < n; r++) {
            EXPECT(of[r].near == (ok && r != me), "rank %d: rank %d is %s", me, r, of[r].near ? "near" : "far");
            for (int i = 0; i < BYTES && of[r].near; i++) bad += of[r].at[i] != (char)(i % 251 + r);
        }
        EXPECT(!bad, "rank %d: %d bytes are others", me, bad);
    }
    comm_barrier(&w->all); /* all have looked */
    own[0] = own[LAST] = (char)(100 + me);
    comm_barrier(&w->all);
    for (int r = 0; r < n; r++)
        EXPECT(!of[r].near || (of[r].at[0] == 100 + r && of[r].at[LAST] == 100 + r), "rank %d sees %d and %d of %d", me,
               of[r].at[0], of[r].at[LAST], r);
    share_close(of, n);
    EXPECT(own[LAST] == 100 + me && !of[0].at, "closed");
    munmap(own, BYTES);
}

static int ranks_main(const char *mode) {
    World w;
    Err err;
    bool all = !strcmp(mode, "all");
    if (!world_open(&w, all ? 60 : DEADLINE, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    EXPECT(w.all.watch, "no watch");
    device_begin();
    CHECK(world_device(&w, &device, true, &err), "%s", err.msg);
    if (!all) {
        fails(&w, mode);
        bool speaks_here = w.all.rank == 0;
        double failed = comm_sum(&w.all, test_failed);
        world_close(&w);
        dev_close(&device);
        return speaks_here ? test_end() || failed > 0 : 0;
    }
    Mem mem = { 0 };
    ModelDesc m;
    CHECK(model_desc_load(&m, "tests/data/configs/Qwen3-30B-A3B.json", &mem, &err), "%s", err.msg);
    readings(&w.all);
    tensors(&w.all);
    exchange(&w.all);
    in_order(&w.all);
    chained(&w.all);
    values(&w.all);
    alike(&w);
    groups(&w, &m);
    shares(&w);
    mem_free(&mem);
    double failed = comm_sum(&w.all, test_failed);
    bool first = w.all.rank == 0;
    world_close(&w);
    dev_close(&device);
    if (first) return test_end() || failed > 0;
    return 0;
}

int main(int argc, char **argv) {
    if (argc == 3 && !strcmp(argv[1], "--ranks")) return ranks_main(argv[2]);
#ifdef HONE_GPU_TEST
    char self[4200] = "";
    if (readlink("/proc/self/exe", self, 4096) > 0) strcat(self, " here test_comm_comm --");
    static const int sizes[] = { 2, 4, 8 }; /* on one GPU, by NCCL over sockets */
#else
    const char *self = argv[0];
    static const int sizes[] = { 2, 3, 4, 8 };
    device_begin();
#endif
    Comm one = comm_self();
#ifndef HONE_GPU_TEST
    tensors(&one);
    exchange(&one);
    dev_close(&device);
#endif
    values(&one);
    Comm dry = comm_dry("dry", 3, 8);
    EXPECT(comm_sum(&dry, 2) == 16 && comm_share(&dry, 37) == 5, "a dry group");
    if (!ranks_possible()) {
        SKIP("there is no mpirun: groups of several ranks were not tried");
        return test_end();
    }
    for (size_t i = 0; i < COUNT(sizes); i++) expect_ranks(self, sizes[i], "all");
    if (DEADLINE == 1) expect_ranks(self, 3, "computes");
    failing(self);
    return test_end();
}
