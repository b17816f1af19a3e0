/* nccl_int.h - what nccl.c (calls) and nccl_open.c (communicators) share. */
#ifndef COMM_NCCL_INT_H
#define COMM_NCCL_INT_H

#include "comm/nccl.h"
#include "comm/nccl_lib.h"

/* ---- Calls under way --------------------------------------------------------------------------------------------- */
typedef enum {
    FREE,
    ON_DEVICE,
    BY_MPI,
    TO_DEVICE,
    TO_MPI,
    TO_HOST,
    OVER
} Stage;                        /* where it is now; TO_...: and where it goes then */
typedef struct { char *at; size_t room; bool used; } Pinned;
typedef struct Call Call;
struct Call {
    Nccl       *n;
    Stage       stage;
    void       *ready, *done;   /* events: the queue had come so far; the call is over */
    void       *idle;           /* an event: the queue had come so far when it, or the host, began to wait ... */
    bool        awaited;        /* ... which it did */
    void       *comm;           /* ON_DEVICE: NCCL's, or NULL */
    void       *mpi;            /* MPI's call */
    const Comm *by;             /* its group */
    int         peer, tag;
    Pinned     *host;           /* what goes by the host's memory */
    char       *device;
    void       *all;            /* TO_HOST: whose memory it is for */
    size_t      bytes;
    Call       *next;           /* among those that are free, or TO_MPI, which go as they were begun */
};
/* From one stage of a pipeline to the next, or back: a communicator and a stream of its own, so that what waits there
 * for its receipt holds up nothing else.  from, to: numbers among all. */
typedef struct { int from, to, lane; void *comm, *stream; } Link;
typedef struct {
    const char *name;
    void       *from, *to;      /* events with times */
    size_t      bytes;
} Note;
/* A call that the device waits for, in the place of the host.  In the order in which the device comes to them. */
typedef struct {
    Comm        c;
    CommCall    w;
    CommAbout   about;
} Behind;
enum { CALLS = 1024, LINKS = 64, SHAPES = 16, NOTES = 1 << 13, BEHIND = 32 };
struct Nccl {
    NcclLib lib;
    Dev    *dev;
    void   *queue, *stream, *copies;    /* the device's; bundles'; messages' through the host */
    void   *comm, *near;                /* of all ranks; of this machine's, or NULL */
    int     version, rank, size;
    int    *node, *inside;              /* [size]: each rank's machine, and its number there */
    int     nodes, largest;             /* machines; the most ranks of one */
    Call    call[CALLS], over, *free, *to_mpi, *to_mpi_last;
    int     under_way;
    Pinned  pinned[CALLS];
    int     n_pinned;
    Behind  behind[BEHIND];             /* a ring: n_behind from first_behind on */
    int     first_behind, n_behind;
    CommPause pause;
    Link    link[LINKS];
    int     links;
    struct { int stages, each; bool ring; } linked[SHAPES];
    int     shapes;
    Call   *together[COMM_TOGETHER];    /* messages of the bundle that is being made */
    int     n_together;
    bool    is_together;
    Watch  *watch;                      /* of all ranks */
    Note   *note;                       /* [NOTES] for a profile, or NULL */
    int     notes;
    void   *zero;                       /* an event, and when that was */
    double  zero_at;
    Mem     mem;
};
typedef struct {
    Nccl *n;
    Comm  mpi;
    void *comm;                         /* of all, or of this machine where all of the group are there */
    int  *world, *at;                   /* [size]: everybody's number among all; in that communicator */
    bool  staged;                       /* a pipeline's: neighbours have links */
} Group;

#define CUDA(n, what)                                                                                                  \
    do {                                                                                                               \
        int e_ = (n)->lib.what;                                                                                        \
        CHECK(e_ == 0, "comm/nccl: %s: CUDA's error %d", #what, e_);                                                   \
    } while (0)
#define NCCL(n, what)                                                                                                  \
    do {                                                                                                               \
        int e_ = (n)->lib.what;                                                                                        \
        if (e_) nccl_failed(&(n)->lib, #what, e_, NULL);                                                               \
    } while (0)
NORETURN void nccl_failed(const NcclLib *lib, const char *what, int e, void *comm);

extern const CommBackend nccl_backend;
bool nccl_look(void *n);                /* Dev.beside's */
void nccl_settle(Nccl *n);              /* what is behind the device now: over, or given up */
Pinned *nccl_pinned(Nccl *n, size_t bytes);

#endif
