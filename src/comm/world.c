/* world.c - finds out whether a launcher started this process, loads MPI then, and makes the groups of a grid. */
#include "comm/world.h"
#include "base/last_words.h"
#include "comm/begin.h"
#include "comm/mpi/api.h"
#include "comm/nccl.h"
#include "comm/watch.h"
#include "op/cuda_open.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const MpiApi *api; /* of the loaded library: MPI is one per process, by its own rules */
static bool tried;        /* to open it */
static Watch *watch;      /* likewise: who dies has no arguments */

/* ---- the backend, over the library's calls */
_Static_assert(sizeof(MpiPart) == sizeof(CommPart), "the same two numbers");
static void *w_all_to_all(const Comm *c, void *to, const CommPart *get, const void *from, const CommPart *give) {
    return api->all_to_all(c->impl, to, (const MpiPart *)(const void *)get, from, (const MpiPart *)(const void *)give);
}
static void *w_all_gather(const Comm *c, void *to, const CommPart *get, const void *mine, size_t bytes) {
    return api->all_gather(c->impl, to, (const MpiPart *)(const void *)get, mine, bytes);
}
static void *w_send(const Comm *c, int peer, int tag, const void *from, size_t bytes) {
    return api->send(c->impl, peer, tag, from, bytes);
}
static void *w_recv(const Comm *c, int peer, int tag, void *to, size_t bytes) {
    return api->recv(c->impl, peer, tag, to, bytes);
}
static void *w_gather_host(const Comm *c, void *all, const CommPart *get, const void *mine, size_t bytes) {
    return api->gather(c->impl, all, (const MpiPart *)(const void *)get, bytes, mine);
}
static void *w_broadcast(const Comm *c, int from, void *data, size_t bytes) {
    return api->broadcast(c->impl, from, data, bytes);
}
static void *w_read(const Comm *c, void *all, void *received, const void *mine,
                    size_t bytes) { /* a CPU's: it is there */
    (void)received;
    return w_gather_host(c, all, NULL, mine, bytes);
}
static int w_test(void *call) { return api->test(call); }
static const CommBackend mpi = { "mpi",       w_all_to_all, w_all_gather, w_send, w_recv, w_gather_host,
                                 w_broadcast, w_send,       w_recv,       w_read, w_test };

/* ---- launchers: the variables in which each says how many it started, and which of them this is */
static const struct {
    const char *size, *rank, *launcher;
} launchers[] = {
    { "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "Open MPI's mpirun" },
    { "PMI_SIZE", "PMI_RANK", "a launcher that speaks PMI" },
    { "SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "srun" },
};
Launch world_launch(void) {
    for (size_t i = 0; i < COUNT(launchers); i++) {
        const char *n = getenv(launchers[i].size), *rank = getenv(launchers[i].rank);
        if (n && atoi(n) > 0) return (Launch){ launchers[i].launcher, rank ? atoi(rank) : 0, atoi(n) };
    }
    return (Launch){ 0 };
}

bool world_tried(void) { return tried; }

/* Beside the program, or above it: a test lies deeper in the build folder than hone does. */
static void *load_beside(Err *err) {
    char path[4096 + 32], why[256] = "";
    ssize_t n = readlink("/proc/self/exe", path, 4096);
    path[n > 0 ? n : 0] = 0;
    for (int up = 0; up < 3; up++) {
        char *slash = strrchr(path, '/');
        if (!slash) break;
        strcpy(slash, "/libhone_mpi.so");
        void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (lib) return lib;
        if (!up || !access(path, F_OK)) snprintf(why, sizeof why, "%s", dlerror());
        *slash = 0;
    }
    err_set(err, "MPI cannot be loaded: %s (is libopenmpi installed, and was hone built where libopenmpi-dev is?)",
            why);
    return NULL;
}

static bool load(Err *err) {
    void *lib = load_beside(err);
    if (!lib) return false;
    const MpiApi *(*get)(void);
    void *symbol = dlsym(lib, "hone_mpi");
    memcpy(&get, &symbol, sizeof get);
    api = symbol ? get() : NULL;
    if (!api || api->version != MPI_API_VERSION)
        return err_set(err, "libhone_mpi.so does not belong to this program: build both again");
    return true;
}

static void take_down(void) {
    watch_end(watch, last_words());
    api->take_down();
}

/* Streams that share one of the driver's queues wait for each other, and a sending that waits for its receipt is in one
 * of them: as many queues as there can be, 32.  Ranks whose kernels one server runs (MPS) have some 96 together: with
 * 32 each three began, and the fourth found no memory.  Read when the GPU is opened, which comes later. */
static void ask_for_queues(int local_size) {
    enum { MOST = 32, SERVED = 80, LEAST = 4 };
    bool served = getenv("CUDA_MPS_PIPE_DIRECTORY") || !access("/tmp/nvidia-mps/control", F_OK);
    int n = served ? SERVED / local_size : MOST;
    char text[16];
    snprintf(text, sizeof text, "%d", n > MOST ? MOST : n < LEAST ? LEAST : n);
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", text, 0);
}

bool world_open(World *w, double wait_seconds, Err *err) {
    Launch l = world_launch();
    int expected = l.size;
    *w = (World){ .all = comm_self(), .local_size = 1 };
    if (expected <= 1) return true;
    tried = true;
    if (expected > COMM_MOST)
        return err_set(err, "%s started %d processes; %d are the most that one run can have", l.by, expected,
                       COMM_MOST);
    if (!getenv("OMPI_COMM_WORLD_SIZE") && !getenv("PMIX_RANK")) /* Open MPI would be alone, or say it in forty lines */
        return err_set(err,
                       "%s started %d processes, which do not find each other without PMIx: use Open MPI's mpirun, or "
                       "srun --mpi=pmix",
                       l.by, expected);
    TRY(load(err));
    cuda_load_eagerly(); /* an MPI that knows GPUs opens the driver in its start */
    /* The watch speaks IPv4 alone; Open MPI 5, where a card has an IPv6 address, complains that no two ranks reach each
     * other by it, although they do by memory. */
    setenv("OMPI_MCA_btl_tcp_disable_family", "6", 0);
    Comm all = { .via = &mpi, .name = "world", .wait = wait_seconds };
    Begin *begin = begin_watch(wait_seconds, expected);
    const char *why = api->open(&all.rank, &all.size, &w->local_rank, &w->local_size, &w->node);
    begin_done(begin);
    if (why) return err_set(err, "MPI does not start: %s", why);
    if (all.size != expected) {
        api->close();
        return err_set(
            err, "%s started %d processes, but MPI (%.40s) sees %d: use the launcher of that MPI, or srun --mpi=pmix",
            l.by, expected, api->library(), all.size);
    }
    ask_for_queues(w->local_size);
    all.impl = api->all();
    all.world = all.rank;
    w->all = all;
    w->open = true;
    die_among(all.rank, take_down);
    w->all.watch = watch = watch_open(&all);
    w->mpi = w->all;
    return true;
}

bool world_device(World *w, Dev *d, bool shared, Err *err) {
    if (!w->open || !d->ops->queue) return true;
    TRY(w->nccl = nccl_open(&w->mpi, d, w->node, shared, err));
    w->all = nccl_group(w->nccl, &w->mpi);
    return true;
}

void world_note(const World *w) {
    if (w->nccl) nccl_note(w->nccl);
}
void world_notes(const World *w, Dev *d) {
    if (w->nccl) nccl_notes(w->nccl, d);
}

void world_phase(const World *w, const char *name) { watch_phase(w->all.watch, name); }

void world_close(World *w) {
    if (w->open) {
        nccl_close(w->nccl);
        watch_phase(watch, "ending");
        watch_waits(watch, "the end of the others");
        api->close();
        die_among(w->all.rank, NULL); /* who spoke goes on speaking */
        watch_close(watch);
        watch = NULL;
    }
    *w = (World){ .all = comm_self(), .local_size = 1 };
}

World world_dry(int rank, int size) { return (World){ .all = comm_dry("world", rank, size), .local_size = 1 }; }

/* Ranks that agree in 'color' form a group, numbered by 'key'. */
static Comm split(const World *w, const char *name, int color, int key, int size) {
    const Comm *all = &w->mpi;
    if (!w->open) return comm_dry(name, key, size);
    char what[64];
    snprintf(what, sizeof what, "the others of group %s", name);
    watch_waits(all->watch, what);
    void *group = api->split(all->impl, color, key); /* collective: also where the group is this rank alone */
    watch_waits(all->watch, NULL);
    CHECK(group, "the group %s cannot be made", name);
    Comm c = comm_self();
    c.watch = all->watch;
    if (size == 1) return c;
    c = *all;
    c.impl = group, c.name = name, c.rank = key, c.size = size;
    return w->nccl ? nccl_group(w->nccl, &c) : c;
}

/* How many of a group's ranks each machine has, one behind the other; 0: they do not lie so, or are one machine's. */
static int each_machine(const Comm *c, const int *machine) {
    int n = 1;
    while (n < c->size && machine[n] == machine[0]) n++;
    if (c->size % n || n == 1 || n == c->size) return 0;
    for (int r = 0; r < c->size; r++) /* the first ranks of machines ascend: an earlier one does not come again */
        if (machine[r] != machine[r / n * n] || (r >= n && r % n == 0 && machine[r] <= machine[r - n])) return 0;
    return n;
}
/* The experts' group by machines, where every group of the grid lies alike. */
static void split_experts(const World *w, int color, Groups *out) {
    const Comm *e = &out->experts;
    out->near = out->across = comm_self();
    if (!w->open || e->size == 1) return;
    int machine[COMM_MOST], mine = w->nccl ? nccl_machine(w->nccl) : w->node;
    comm_gather_host(e, machine, &mine, sizeof mine);
    int n = each_machine(e, machine), most = (int)comm_max(&w->mpi, n), least = -(int)comm_max(&w->mpi, -n);
    if (!least || most != least) return;
    out->near = split(w, "ep of a machine", color * e->size + e->rank / n, e->rank % n, n);
    out->across = split(w, "ep over machines", color * e->size + e->rank % n, e->rank / n, e->size / n);
}

void world_groups(const World *w, const GridShape *g, Groups *out) {
    int r = w->all.rank, stage = grid_stage_ranks(g);
    CHECK(w->all.size == grid_ranks(g), "%d ranks for a grid of %d", w->all.size, grid_ranks(g));
    if (w->nccl && stage > 1) nccl_near(w->nccl, &w->mpi);
    GridAt at = grid_at(g, r);
    int in = r % stage, experts = g->etp * g->ep;
    out->tp = split(w, "tp", r / g->tp, at.tp, g->tp);
    out->cp = split(w, "cp", (r / (g->tp * g->cp)) * g->tp + at.tp, at.cp, g->cp);
    out->dp = split(w, "dp", at.pp * g->tp * g->cp + at.cp * g->tp + at.tp, at.dp, g->dp);
    out->dense = split(w, "dp x cp", at.pp * g->tp + at.tp, at.dp * g->cp + at.cp, g->dp * g->cp);
    out->pp = split(w, "pp", in, at.pp, g->pp);
    if (w->nccl) nccl_stages(w->nccl, &out->pp, r, g->pp, stage, g->vpp > 1);
    out->etp = split(w, "etp", r / g->etp, at.etp, g->etp);
    out->ep = split(w, "ep", at.pp * (stage / g->ep) + at.edp * g->etp + at.etp, at.ep, g->ep);
    out->experts = split(w, "ep x etp", at.pp * (stage / experts) + at.edp, at.ep * g->etp + at.etp, experts);
    split_experts(w, at.pp * (stage / experts) + at.edp, out);
    out->edp = split(w, "edp", at.pp * experts + in % experts, at.edp, stage / experts);
}

Comm world_blocks(const World *w, const char *name, int size) {
    CHECK(w->all.size % size == 0, "blocks of %d of %d ranks", size, w->all.size);
    return split(w, name, w->all.rank / size, w->all.rank % size, size);
}
