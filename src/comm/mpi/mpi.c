/* mpi.c - libhone_mpi.so, a group's calls by MPI (api.h).
 * Messages go as bytes, in pieces that MPI's int counts can say.  Exchanges are pairs of
 * sends and receipts: nothing is reduced by MPI, whose order of sums is its own. */
#include "comm/mpi/api.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 30, EXCHANGE = 7, VALUES = 8, GATHERING = 6 };

typedef struct Gather Gather;
typedef struct {
    int n, cap;
    MPI_Request *at;
    Gather *gather; /* it goes on by rounds; NULL: by one */
} Call;

static char library_text[MPI_MAX_LIBRARY_VERSION_STRING];
static MPI_Comm groups[4096]; /* a grid has nine; a test tries many grids */
static int n_groups;

static const char *mpi_open(int *rank, int *size, int *local_rank, int *local_size, int *node) {
    int have, n;
    if (MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &have) != MPI_SUCCESS) return "MPI_Init failed";
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, size);
    MPI_Comm local;
    if (MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, *rank, MPI_INFO_NULL, &local) != MPI_SUCCESS)
        return "MPI_Comm_split_type failed";
    MPI_Comm_rank(local, local_rank);
    MPI_Comm_size(local, local_size);
    *node = *rank;
    MPI_Bcast(node, 1, MPI_INT, 0, local);
    MPI_Comm_free(&local);
    MPI_Get_library_version(library_text, &n);
    groups[n_groups++] = MPI_COMM_WORLD;
    return NULL;
}

static void mpi_close(void) { MPI_Finalize(); }
static void mpi_take_down(void) { MPI_Abort(MPI_COMM_WORLD, 1); }
static void *mpi_all(void) { return &groups[0]; }

static void *mpi_split(void *group, int color, int key) {
    if (n_groups == (int)(sizeof groups / sizeof *groups)) return NULL;
    MPI_Comm *to = &groups[n_groups++];
    return MPI_Comm_split(*(MPI_Comm *)group, color, key, to) == MPI_SUCCESS ? to : NULL;
}

static MPI_Request *more(Call *c) {
    if (c->n == c->cap) {
        c->cap = c->cap ? 2 * c->cap : 8;
        c->at = realloc(c->at, (size_t)c->cap * sizeof *c->at);
        if (!c->at) abort();
    }
    c->at[c->n] = MPI_REQUEST_NULL;
    return &c->at[c->n++];
}
static Call *call_new(void) {
    Call *c = calloc(1, sizeof *c);
    if (!c) abort();
    return c;
}
static void *call_free(Call *c) {
    free(c->gather);
    free(c->at);
    free(c);
    return NULL;
}

static int add_send(Call *c, MPI_Comm g, int peer, int tag, const char *from, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PIECE) {
        int n = (int)(bytes - at < PIECE ? bytes - at : PIECE);
        if (MPI_Isend(from + at, n, MPI_BYTE, peer, tag, g, more(c)) != MPI_SUCCESS) return 0;
    }
    return 1;
}
static int add_recv(Call *c, MPI_Comm g, int peer, int tag, char *to, size_t bytes) {
    for (size_t at = 0; at < bytes; at += PIECE) {
        int n = (int)(bytes - at < PIECE ? bytes - at : PIECE);
        if (MPI_Irecv(to + at, n, MPI_BYTE, peer, tag, g, more(c)) != MPI_SUCCESS) return 0;
    }
    return 1;
}

/* Rank r begins with its neighbours r-k and r+k, so that not everybody sends to rank 0 first. */
static void *mpi_all_to_all(void *group, void *to, const MpiPart *get, const void *from, const MpiPart *give) {
    MPI_Comm g = *(MPI_Comm *)group;
    int rank, size, ok = 1;
    MPI_Comm_rank(g, &rank);
    MPI_Comm_size(g, &size);
    Call *c = call_new();
    for (int k = 1; k < size && ok; k++) {
        int p = (rank - k + size) % size;
        ok = add_recv(c, g, p, EXCHANGE, (char *)to + get[p].at, get[p].bytes);
    }
    for (int k = 1; k < size && ok; k++) {
        int p = (rank + k) % size;
        ok = add_send(c, g, p, EXCHANGE, (const char *)from + give[p].at, give[p].bytes);
    }
    if (give[rank].bytes) memcpy((char *)to + get[rank].at, (const char *)from + give[rank].at, give[rank].bytes);
    return ok ? c : call_free(c);
}

static void *mpi_all_gather(void *group, void *to, const MpiPart *get, const void *mine, size_t bytes) {
    MPI_Comm g = *(MPI_Comm *)group;
    int rank, size, ok = 1;
    MPI_Comm_rank(g, &rank);
    MPI_Comm_size(g, &size);
    Call *c = call_new();
    for (int k = 1; k < size && ok; k++) {
        int p = (rank - k + size) % size;
        ok = add_recv(c, g, p, EXCHANGE, (char *)to + get[p].at, get[p].bytes);
    }
    for (int k = 1; k < size && ok; k++) ok = add_send(c, g, (rank + k) % size, EXCHANGE, mine, bytes);
    if (bytes) memcpy((char *)to + get[rank].at, mine, bytes);
    return ok ? c : call_free(c);
}

/* ---- the host's values, of all: few bytes of many ranks, so it is the messages that count.  Bruck's way: in round k a
 * rank has the values of the 2^k ranks from its own on, gives them to the one 2^k before it and gets those of the next
 * 2^k: log2(n) messages instead of n - 1.  (MPI_Iallgather is the n - 1 in Open MPI 4, whose faster one only takes
 * powers of two.)  Ranks that are slow or idle hold a round up, and nothing but their own group. */
struct Gather {
    MPI_Comm group;
    int rank, size, have; /* of so many ranks from this one on */
    int parts;            /* ranks have the bytes of 'part', not 'each' of them (which may be none) */
    size_t each;
    char *all;
    MpiPart part[]; /* [size] */
};
static MpiPart part_of(const Gather *g, int rank) {
    return g->parts ? g->part[rank] : (MpiPart){ (size_t)rank * g->each, g->each };
}
/* The values of 'n' ranks from 'first' on, of which all lie where they belong. */
static int gather_part(Call *c, const Gather *g, int first, int n, int peer, int sends) {
    for (int i = 0, run; i < n; i += run) {
        MpiPart p = part_of(g, (first + i) % g->size);
        for (run = 1; i + run < n; run++) { /* neighbours in memory are one message */
            MpiPart next = part_of(g, (first + i + run) % g->size);
            if (next.at != p.at + p.bytes) break;
            p.bytes += next.bytes;
        }
        if (!(sends ? add_send(c, g->group, peer, GATHERING, g->all + p.at, p.bytes)
                    : add_recv(c, g->group, peer, GATHERING, g->all + p.at, p.bytes)))
            return 0;
    }
    return 1;
}
static int gather_round(Call *c) {
    Gather *g = c->gather;
    int n = g->have < g->size - g->have ? g->have : g->size - g->have, by = g->have;
    c->n = 0;
    g->have += n;
    return gather_part(c, g, g->rank + by, n, (g->rank + by) % g->size, 0)
           && gather_part(c, g, g->rank, n, (g->rank - by + g->size) % g->size, 1);
}
static void *mpi_gather(void *group, void *all, const MpiPart *get, size_t each, const void *mine) {
    MPI_Comm g = *(MPI_Comm *)group;
    int size;
    MPI_Comm_size(g, &size);
    Call *c = call_new();
    c->gather = calloc(1, sizeof *c->gather + (get ? (size_t)size * sizeof *get : 0));
    if (!c->gather) abort();
    c->gather->group = g, c->gather->size = size, c->gather->have = 1;
    c->gather->parts = get != NULL, c->gather->each = each;
    c->gather->all = all;
    MPI_Comm_rank(g, &c->gather->rank);
    if (get) memcpy(c->gather->part, get, (size_t)size * sizeof *get);
    MpiPart own = part_of(c->gather, c->gather->rank);
    if (own.bytes) memcpy(c->gather->all + own.at, mine, own.bytes);
    return size == 1 || gather_round(c) ? c : call_free(c);
}

static void *mpi_broadcast(void *group, int from, void *data, size_t bytes) {
    MPI_Comm g = *(MPI_Comm *)group;
    Call *c = call_new();
    for (size_t at = 0; at < bytes; at += PIECE) {
        int n = (int)(bytes - at < PIECE ? bytes - at : PIECE);
        if (MPI_Ibcast((char *)data + at, n, MPI_BYTE, from, g, more(c)) != MPI_SUCCESS) return call_free(c);
    }
    return c;
}

static void *mpi_send(void *group, int peer, int tag, const void *from, size_t bytes) {
    Call *c = call_new();
    return add_send(c, *(MPI_Comm *)group, peer, VALUES + 1 + tag, from, bytes) ? c : call_free(c);
}
static void *mpi_recv(void *group, int peer, int tag, void *to, size_t bytes) {
    Call *c = call_new();
    return add_recv(c, *(MPI_Comm *)group, peer, VALUES + 1 + tag, to, bytes) ? c : call_free(c);
}

static int mpi_test(void *call) {
    Call *c = call;
    int done = 1;
    if (c->n && MPI_Testall(c->n, c->at, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) return -1;
    if (done && c->gather && c->gather->have < c->gather->size) return gather_round(c) ? 0 : -1;
    if (done) call_free(c);
    return done;
}

static const char *mpi_library(void) { return library_text; }

const MpiApi *hone_mpi(void) {
    static const MpiApi api = { MPI_API_VERSION, mpi_open,       mpi_close,      mpi_take_down, mpi_all,
                                mpi_split,       mpi_all_to_all, mpi_all_gather, mpi_gather,    mpi_broadcast,
                                mpi_send,        mpi_recv,       mpi_test,       mpi_library };
    return &api;
}
