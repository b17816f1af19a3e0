/* comm.h - groups of ranks and what they do together.
 *
 * A group of one is a real group whose calls change nothing, so callers never ask "if (tp > 1)": they call, and get
 * their own tensor back.  Larger groups move bytes by a backend: MPI, or the dry one, which has no peers and moves
 * nothing, so that any rank of any grid can be sized by running the code on the dry device.
 *
 * Nothing is ever added in order of arrival: what is summed is exchanged first and added by the tree of
 * docs/exactness.md.  Rows of T tokens are dealt out in order: rank r of n has rows [T*r/n, T*(r+1)/n).
 * Every wait has a deadline; when it passes and nobody computes who might be waited for (watch.h), all
 * ranks end with a line that says who waited for whom, in which phase and operation, and for what.  Whoever
 * waits leaves its core to others. */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include "op/op.h"

/* Ranks of a run, and of a group: the most.  Lists with an entry for each of them lie on the stack, some 256 KB. */
enum { COMM_MOST = 1 << 14 };

typedef struct CommBackend CommBackend;
typedef struct CommCall CommCall;
typedef struct Watch Watch;
typedef struct {
    const CommBackend *via;     /* NULL: a group of one */
    void       *impl;           /* the backend's group */
    const char *name;           /* "tp": for messages */
    int         rank, size;
    int         world;          /* this rank's number among all, for messages */
    double      wait;           /* seconds; 0: for ever */
    Watch      *watch;          /* of all ranks (watch.h); NULL: each for itself */
} Comm;

static inline Comm comm_self(void) { return (Comm){ .name = "self", .size = 1 }; }
Comm comm_dry(const char *name, int rank, int size);                    /* for the dry device */

/* The groups a rank is in, one an axis of the grid (cut/grid.h); dense: dp x cp, who hold the same dense weights;
 * experts: ep x etp, etp fastest, who hold one copy of the experts together.  Where each of several machines has as
 * many of these, one behind the other: near: those of this machine; across: those with this one's place on every
 * machine.  Else both are of one. */
typedef struct { Comm tp, cp, dp, pp, ep, etp, edp, dense, experts, near, across; } Groups;
static inline Groups groups_self(void) {
    Comm one = comm_self();
    return (Groups){ one, one, one, one, one, one, one, one, one, one, one };
}
static inline bool comm_is_dry(const Comm *c) { return c->via && !c->impl; }

/* ---- Bytes of device memory: what a backend does.  Calls begin; test says 1 when done, 0 not yet, -1 failed. ----- */
typedef struct { size_t at, bytes; } CommPart;                          /* of a buffer, one a rank */
struct CommBackend {
    const char *name;
    void *(*all_to_all)(const Comm *c, void *to, const CommPart *get, const void *from, const CommPart *give);
    void *(*all_gather)(const Comm *c, void *to, const CommPart *get, const void *mine, size_t bytes);
    void *(*send)(const Comm *c, int peer, int tag, const void *from, size_t bytes);
    void *(*recv)(const Comm *c, int peer, int tag, void *to, size_t bytes);
    /* the host's memory */
    void *(*gather_host)(const Comm *c, void *all, const CommPart *get, const void *mine, size_t bytes);
        /* get NULL: as many of all, one behind the other */
    void *(*broadcast_host)(const Comm *c, int from, void *data, size_t bytes);
    void *(*send_host)(const Comm *c, int peer, int tag, const void *from, size_t bytes);
    void *(*recv_host)(const Comm *c, int peer, int tag, void *to, size_t bytes);
    void *(*read)(const Comm *c, void *all, void *received, const void *mine, size_t bytes);   /* comm_read_begin */
    int   (*test)(void *call);
    void  (*together)(const Comm *c, bool begins);      /* comm_together, or NULL: it changes nothing */
    /* The device waits for the call, if it can, and whoever waited need not; NULL: nobody can */
    bool  (*follow)(const CommCall *w);
    void  (*read_room)(const Comm *c, size_t bytes);    /* comm_read_room, or NULL: none is needed */
    /* A call is waited for from now on.  True: the device moves it, and what its queue stands still for that is added
     * to the watch's seconds by the backend.  NULL: those are the host's. */
    bool  (*awaits)(void *call);
};

/* A call that was begun; done by comm_wait.  What it moves must stay where it is until then. */
/* x: for messages */
struct CommCall { const Comm *c; Dev *d; void *call; const char *what; int peer; Tensor x; };
CommCall comm_send(const Comm *c, Dev *d, int peer, int tag, Tensor x);      /* rows without gaps */
CommCall comm_recv(const Comm *c, Dev *d, int peer, int tag, Tensor x);
/* Between the two words: messages that each rank begins in one order that all have, at most so many, and no two to or
 * from the same rank.  Bundles of them follow each other; GPUs hand them over directly. */
enum { COMM_TOGETHER = 8 };
void     comm_together(const Comm *c, bool begins);
/* Where the device can wait (GPUs do), it does, and the host goes on: what it asks the device for from now on comes
 * behind the call, and so does op_get.  A reading, and what the host moves, the host waits for. */
void     comm_wait(CommCall *call);
bool     comm_done(CommCall *call);                                          /* without waiting */
CommCall comm_send_host(const Comm *c, int peer, int tag, const void *from, size_t bytes);      /* the host's memory */
CommCall comm_recv_host(const Comm *c, int peer, int tag, void *to, size_t bytes);
/* For who asks several calls in turn by comm_done: none is done, w is one of them; makes room for others, and dies at
 * the deadline.  {0} begins, and comm_went_on ends when one is done. */
typedef struct { double start; bool told, device; } CommPause;   /* device: awaits was true */
void     comm_pause(const CommCall *w, CommPause *p);
void     comm_went_on(const Comm *c, CommPause *p);
/* What the calls that follow are about, for messages: "gradients", or "layer" with a number (-1: none). */
void     comm_about(const Comm *c, const char *tensor, int index);
typedef struct { const char *tensor; int index; } CommAbout;
CommAbout comm_about_now(const Comm *c);

/* ---- Tensors ----------------------------------------------------------------------------------------------------- */
/* The rows of all ranks, in rank order, in a new tensor of a; total: how many there are. */
Tensor comm_all_gather(const Comm *c, Dev *d, Arena *a, Tensor mine, int64_t total);
/* Where partial sums are to be written whose whole, this rank's rows of it, will be 'mine': all rows in F32, so that
 * what travels is not rounded before it is whole; 'mine' itself in a group of one. */
Tensor comm_partial(const Comm *c, Arena *a, Tensor mine, int64_t total);
/* mine = this rank's rows of the sum over ranks, by the balanced tree. */
void   comm_reduce_scatter(const Comm *c, Dev *d, Tensor mine, Tensor partial);
/* Rows [at[r], at[r]+n) of 'from' go to rank r, and come from it to rows of 'to': rows without gaps. */
typedef struct { int64_t at, n; } CommRows;
void comm_exchange(const Comm *c, Dev *d, Tensor to, const CommRows *get, Tensor from, const CommRows *give);
/* The same, begun: behind what the device was asked for so far, beside what it is asked for from now on. */
CommCall comm_exchange_begin(const Comm *c, Dev *d, Tensor to, const CommRows *get, Tensor from, const CommRows *give);

/* ---- Small host values ------------------------------------------------------------------------------------------- */
void   comm_gather_host(const Comm *c, void *all, const void *mine, size_t bytes);       /* all [size * bytes] */
/* As many of each as get says, the same on all ranks, to where it says. */
void   comm_gather_parts(const Comm *c, void *all, const CommPart *get, const void *mine);
/* What the device has in 'mine', of all ranks: begun as an exchange is, beside what the device is asked for from now
 * on.  all [size * bytes], the host's, is there when it was waited for; received [size rows]: room on the device. */
CommCall comm_read_begin(const Comm *c, Dev *d, void *all, Tensor received, Tensor mine);
/* At most so many bytes of a rank will be read: what that needs of the host's memory is taken now. */
void     comm_read_room(const Comm *c, size_t bytes);
double comm_sum(const Comm *c, double x);                               /* in rank order */
double comm_max(const Comm *c, double x);
int64_t comm_sum_i64(const Comm *c, int64_t x);
void   comm_broadcast(const Comm *c, int from, void *data, size_t bytes);
/* Is it well on all?  If not, err is the first bad rank's on all of them, with its number
 * where that is not the first and the message does not begin with it. */
bool   comm_agree(const Comm *c, bool ok, Err *err);
void   comm_barrier(const Comm *c);

static inline int64_t comm_first_row(const Comm *c, int64_t total, int rank) { return total * rank / c->size; }
static inline int64_t comm_share(const Comm *c, int64_t total) {
    return comm_first_row(c, total, c->rank + 1) - comm_first_row(c, total, c->rank);
}

#endif
