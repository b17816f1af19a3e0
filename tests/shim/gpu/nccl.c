/* nccl.c - libnccl.so.2's communicators, sends and receipts: see gpu.h.
 *
 * Ranks of a communicator meet in a folder, and have a pipe from each to each, where a message's length goes before its
 * bytes: who asks for another length than was sent ends with both.  Sends and receipts between ncclGroupStart and
 * ncclGroupEnd are one task of their stream, which is over when all of them are, as NCCL's kernel is. */
#include "shim/gpu/gpu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct Comm {
    char folder[300], name[16];
    struct Comm *next; /* of all that were made */
    atomic_long sent;  /* bytes */
    int rank, size, splits;
    int *in, *out; /* [size] pipes, opened when they are first asked for */
    atomic_bool failed, dead;
} Comm;
typedef struct {
    char *at;
    size_t bytes, had;
    uint64_t said; /* its length, as it was sent */
    int peer;
    bool sends, told; /* told: the length has gone or come */
} Message;
struct Bundle {
    Comm *comm;
    int n;
    Message of[];
};
enum { NCCL_OK, NCCL_SYSTEM = 2, CHUNK = 1 << 16, MOST = 8192 };

/* ---- messages */
static int way(Comm *c, int peer, bool sends) {
    int *fd = sends ? &c->out[peer] : &c->in[peer];
    char path[400];
    if (*fd >= 0) return *fd;
    snprintf(path, sizeof path, "%s/%d-%d", c->folder, sends ? c->rank : peer, sends ? peer : c->rank);
    mkfifo(path, 0600); /* or the peer has */
    *fd = open(path, O_RDWR | O_NONBLOCK | O_CLOEXEC);
    if (*fd < 0) BAD("%s: %s", path, strerror(errno));
    return *fd;
}
/* The length goes ahead. */
static bool tell(Comm *c, Message *m, int fd) {
    if (m->sends) m->said = m->bytes;
    ssize_t k = m->sends ? write(fd, &m->said, sizeof m->said) : read(fd, &m->said, sizeof m->said);
    if (k < 0) return false;
    if (k != sizeof m->said) BAD("half a length");
    m->told = true;
    if (m->said != m->bytes)
        BAD("rank %d of %d wants %zu bytes from rank %d, which sent %lu: calls are not in one order", c->rank, c->size,
            m->bytes, m->peer, (unsigned long)m->said);
    return true;
}
static bool is_over(const Message *m) { return m->told && m->had == m->bytes; }
/* Did anything of it move? */
static bool go_on(Comm *c, Message *m) {
    int fd = way(c, m->peer, m->sends);
    if (!m->told) return tell(c, m, fd);
    size_t most = m->bytes - m->had < CHUNK ? m->bytes - m->had : CHUNK;
    ssize_t k = m->sends ? write(fd, m->at + m->had, most) : read(fd, m->at + m->had, most);
    if (k > 0) m->had += (size_t)k;
    return k > 0;
}
/* Messages of one pair and one way go one behind the other. */
static bool waits_for_earlier(const Bundle *b, int i) {
    for (int k = 0; k < i; k++)
        if (b->of[k].peer == b->of[i].peer && b->of[k].sends == b->of[i].sends && !is_over(&b->of[k])) return true;
    return false;
}
static void stuck(const Bundle *b) {
    for (int i = 0; i < b->n; i++)
        if (!is_over(&b->of[i]))
            gpu_say("rank %d of %d is stuck: %s %zu bytes, rank %d, %zu moved", b->comm->rank, b->comm->size,
                    b->of[i].sends ? "sends" : "wants", b->of[i].bytes, b->of[i].peer, b->of[i].had);
    BAD("%d sends and receipts are not over", b->n);
}
void bundle_run(Bundle *b) {
    double since = gpu_now();
    if (gpu_planted("fail")) b->comm->failed = true;
    for (int left = b->n; left;) {
        bool moved = false;
        left = 0;
        if (b->comm->dead) return;
        for (int i = 0; i < b->n; i++) {
            if (is_over(&b->of[i])) continue;
            left++;
            if (!b->comm->failed && !waits_for_earlier(b, i)) moved |= go_on(b->comm, &b->of[i]);
        }
        if (moved) since = gpu_now();
        double waited = gpu_now() - since;
        if (!moved && left) usleep(waited < 0.002 ? 20 : 200);
        if (left && !b->comm->failed && waited > (double)gpu_env("GPU_STUCK_S", 120)) stuck(b);
    }
}
Bundle *bundle_again(const Bundle *b) {
    size_t bytes = sizeof *b + (size_t)b->n * sizeof b->of[0];
    Bundle *x = malloc(bytes);
    if (!x) BAD("no memory");
    memcpy(x, b, bytes);
    return x;
}
void bundle_free(Bundle *b) { free(b); }
size_t bundle_bytes(const Bundle *b) {
    size_t sum = 0;
    for (int i = 0; i < b->n; i++)
        if (b->of[i].sends) sum += b->of[i].bytes;
    return sum;
}

/* ---- calls: bundled by communicator and stream */
static __thread struct {
    int depth, n;
    struct {
        Comm *comm;
        void *stream;
        Message m;
    } at[MOST];
} asked;
static void flush(void) {
    for (int i = 0; i < asked.n; i++) {
        Comm *c = asked.at[i].comm;
        void *stream = asked.at[i].stream;
        if (!c) continue;
        Bundle *b = calloc(1, sizeof *b + (size_t)asked.n * sizeof b->of[0]);
        if (!b) BAD("no memory");
        b->comm = c;
        for (int k = i; k < asked.n; k++)
            if (asked.at[k].comm == c && asked.at[k].stream == stream)
                b->of[b->n++] = asked.at[k].m, asked.at[k].comm = NULL;
        gpu_push(stream, (Task){ .kind = BUNDLE, .bundle = b });
    }
    asked.n = 0;
}
int ncclGroupStart(void) {
    asked.depth++;
    return NCCL_OK;
}
int ncclGroupEnd(void) {
    if (asked.depth-- < 1) BAD("a group ends that never began");
    if (!asked.depth) flush();
    return NCCL_OK;
}
static int ask(Message m, Comm *c, void *stream) {
    if (c->dead) BAD("a message by a communicator that was destroyed");
    if (m.peer < 0 || m.peer >= c->size || m.peer == c->rank) BAD("rank %d of %d: peer %d", c->rank, c->size, m.peer);
    if (asked.n == MOST) BAD("more than %d messages at once", MOST);
    if (!m.sends && m.bytes > 4 && gpu_planted("length")) m.bytes -= 4;
    if (m.sends) atomic_fetch_add(&c->sent, (long)m.bytes);
    asked.at[asked.n].comm = c, asked.at[asked.n].stream = stream, asked.at[asked.n++].m = m;
    if (!asked.depth) flush();
    return NCCL_OK;
}
int ncclSend(const void *at, size_t n, int type, int peer, void *comm, void *stream) {
    (void)type;
    return ask((Message){ .at = (char *)(uintptr_t)at, .bytes = n, .peer = peer, .sends = true }, comm, stream);
}
int ncclRecv(void *at, size_t n, int type, int peer, void *comm, void *stream) {
    (void)type;
    return ask((Message){ .at = at, .bytes = n, .peer = peer }, comm, stream);
}

/* ---- communicators */
typedef struct {
    char bytes[128];
} Id;
int ncclGetVersion(int *version) {
    *version = 99999;
    return NCCL_OK;
}
const char *ncclGetErrorString(int e) { return e ? "unhandled system error" : "no error"; }
const char *ncclGetLastError(void *comm) {
    (void)comm;
    return "a bundle failed that was planted to";
}
int ncclGetUniqueId(Id *id) {
    uint64_t r;
    const char *dir = getenv("GPU_DIR");
    if (getrandom(&r, sizeof r, 0) != sizeof r) return NCCL_SYSTEM;
    snprintf(id->bytes, sizeof id->bytes, "%.90s/nccl-%016lx", dir ? dir : "/tmp", (unsigned long)r);
    return mkdir(id->bytes, 0700) ? NCCL_SYSTEM : NCCL_OK;
}
/* ncclConfig_t of 2.28, which comm/nccl_lib.h says too. */
typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cga, least, most;
    const char *net;
    int share, traffic;
    const char *name;
    int collnet, policy, shrink, nvls, net_channels, centric;
} Config;
static void check_config(const Config *c) {
    enum { NOT_SAID = -2147483647 - 1, CHANNELS = 64 };
    if (!c) BAD("a communicator without a configuration");
    if (c->size != sizeof *c || c->magic != 0xcafebeef || c->version != 22800) BAD("a configuration of another NCCL");
    const int channels[] = { c->most, c->net_channels },
              rest[] = { c->blocking, c->cga,    c->least,  c->share, c->traffic,
                         c->collnet,  c->policy, c->shrink, c->nvls,  c->centric };
    for (size_t i = 0; i < sizeof channels / sizeof *channels; i++)
        if (channels[i] != NOT_SAID && (channels[i] < 1 || channels[i] > CHANNELS)) BAD("%d channels", channels[i]);
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
        if (rest[i] != NOT_SAID) BAD("a setting of %d that nobody knows of", rest[i]);
    if (c->net || !c->name) BAD("a communicator without a name");
}

static Comm *comms;
__attribute__((destructor)) static void tell_bytes(void) {
    const char *to = getenv("GPU_BYTES"), *rank = getenv("OMPI_COMM_WORLD_RANK");
    char path[4096];
    if (!to) return;
    snprintf(path, sizeof path, "%s.%s", to, rank ? rank : "0");
    FILE *f = fopen(path, "w");
    if (!f) BAD("%s cannot be written", path);
    for (const Comm *c = comms; c; c = c->next) fprintf(f, "%s %d %ld\n", c->name, c->size, atomic_load(&c->sent));
    fclose(f);
}
static Comm *comm_new(const char *folder, int rank, int size, const Config *config) {
    check_config(config);
    Comm *c = calloc(1, sizeof *c);
    if (c) c->in = malloc((size_t)size * 2 * sizeof(int));
    if (!c || !c->in) BAD("no memory");
    snprintf(c->folder, sizeof c->folder, "%s", folder);
    snprintf(c->name, sizeof c->name, "%s", config->name);
    c->next = comms, comms = c;
    c->rank = rank, c->size = size, c->out = c->in + size;
    for (int i = 0; i < 2 * size; i++) c->in[i] = -1;
    return c;
}
int ncclCommInitRankConfig(void **comm, int size, Id id, int rank, const Config *config) {
    *comm = comm_new(id.bytes, rank, size, config);
    return NCCL_OK;
}
static void wait_for_file(const Comm *c, const char *path, int rank) {
    for (double since = gpu_now(); access(path, F_OK); usleep(200))
        if (gpu_now() - since > (double)gpu_env("GPU_STUCK_S", 120))
            BAD("rank %d of %d waits in a split for rank %d", c->rank, c->size, rank);
}
/* Each rank writes what it asks for, and reads what all others do. */
int ncclCommSplit(void *comm, int color, int key, void **part, const Config *config) {
    Comm *c = comm;
    char path[400], tmp[440];
    int n = c->splits++, size = 0, rank = 0;
    check_config(config);
    snprintf(path, sizeof path, "%s/split-%d-%d", c->folder, n, c->rank);
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    FILE *f = fopen(tmp, "w");
    if (!f || fprintf(f, "%d %d", color, key) < 0 || fclose(f) || rename(tmp, path)) BAD("%s cannot be written", path);
    for (int r = 0; r < c->size; r++) {
        int its_color, its_key;
        snprintf(path, sizeof path, "%s/split-%d-%d", c->folder, n, r);
        wait_for_file(c, path, r);
        f = fopen(path, "r");
        if (!f || fscanf(f, "%d %d", &its_color, &its_key) != 2 || fclose(f)) BAD("%s cannot be read", path);
        if (its_color != color || color < 0) continue;
        size++, rank += its_key < key || (its_key == key && r < c->rank);
    }
    *part = NULL;
    if (color < 0) return NCCL_OK;
    snprintf(path, sizeof path, "%s/part-%d-%d", c->folder, n, color);
    mkdir(path, 0700); /* or a peer has */
    *part = comm_new(path, rank, size, config);
    return NCCL_OK;
}
int ncclCommDestroy(void *comm) {
    Comm *c = comm;
    if (c->dead) BAD("a communicator is destroyed twice");
    c->dead = true;
    return NCCL_OK;
}
int ncclCommAbort(void *comm) {
    ((Comm *)comm)->dead = true;
    return NCCL_OK;
}
int ncclCommGetAsyncError(void *comm, int *error) {
    *error = ((Comm *)comm)->failed ? NCCL_SYSTEM : NCCL_OK;
    return NCCL_OK;
}
