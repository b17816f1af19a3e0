/* par.h - parallelism inside a layer is pairs of transposes; a layer between them never names a rank.
 *
 * tp: between layers a rank holds its share of the tokens.  enter gathers them so that a
 * layer sees every token, exit adds
 *     the ranks' partial results and hands each its share.  enter_bwd is exit's sum, exit_bwd is enter's gather.
 * ep: rows sorted by expert go to the rank that has the expert, and come back to the token's own rank before they are
 *     summed, so that experts' placement has no effect on bits.
 * cp: each rank has its own queries and gathers all keys and values.
 * Each hands back its argument in a group of one. */
#ifndef PAR_PAR_H
#define PAR_PAR_H

#include "comm/comm.h"

typedef Groups Par;

/* total: tokens of all ranks of tp together.  A partial sum is written where tp_partial says:
 * there is one in each direction. */
static inline Tensor tp_enter(const Par *p, Dev *d, Arena *a, Tensor x, int64_t total) {
    return comm_all_gather(&p->tp, d, a, x, total);
}
static inline void tp_enter_bwd(const Par *p, Dev *d, Tensor dx, Tensor partial) {
    comm_reduce_scatter(&p->tp, d, dx, partial);
}
static inline void tp_exit(const Par *p, Dev *d, Tensor y, Tensor partial) {
    comm_reduce_scatter(&p->tp, d, y, partial);
}
static inline Tensor tp_exit_bwd(const Par *p, Dev *d, Arena *a, Tensor dy, int64_t total) {
    return comm_all_gather(&p->tp, d, a, dy, total);
}
static inline Tensor tp_partial(const Par *p, Arena *a, Tensor mine, int64_t total) {
    return comm_partial(&p->tp, a, mine, total);
}
/* This rank's rows of a tensor that has the rows of all. */
static inline Tensor tp_mine(const Par *p, Tensor all) {
    return tensor_rows(all, comm_first_row(&p->tp, all.rows, p->tp.rank), comm_share(&p->tp, all.rows));
}

/* ---- Experts --------------------------------------------------------------------------------------------------------
 * The ranks of 'experts' (ep x etp) each have rows sorted by expert.  A round brings each rank the rows of its own
 * experts, sorted, at most 'room' of them: routing that is uneven takes more rounds, never more memory.  Ranks that
 * share an expert (etp) are given the same rows and each returns its part of the sum. */
typedef struct {                /* host memory of one rank, taken once: the counts of all ranks, where rows go */
    int       ranks, all;       /* all: experts */
    int32_t  *count;            /* [ranks,all+1]: rows for each expert, then of all */
    CommRows *give, *get;       /* [ranks] */
    CommCall  coming;           /* the counts */
} EpBook;
EpBook ep_book(const Par *p, int64_t experts, Mem *mem);

typedef struct {
    EpBook *book;            /* NULL: a group of one */
    int     rounds;          /* at least 1 */
    int64_t own, room;       /* rows of this rank; rows a round may bring: what even routing does, and a quarter more */
    int     first, n;        /* its experts */
    /* of the round that ep_round began */
    int64_t rows;
    Seqs    ex;                 /* where each of its experts' rows begin */
    Tensor  sorted;             /* [rows]: which of those that came is the i-th by expert */
} EpPlan;

/* at: where the rows of each of all experts begin among the own n, of which there may be 'most'.  The host reads the
 * counts of all ranks once a layer and direction: ep_count begins it, and what the device is asked for between the two
 * runs meanwhile. */
void   ep_count(const Par *p, Dev *d, EpBook *book, Tensor at);
EpPlan ep_plan(const Par *p, EpBook *book, Tensor at, int experts, int64_t n, int64_t most);
/* Begins round k; lists lie in a. */
void   ep_round(EpPlan *e, const Par *p, Dev *d, Arena *a, int k);
/* This round's rows for the own experts, of everybody's 'own' [n,cols]: a tensor of 'to', or own itself. */
Tensor ep_dispatch(const EpPlan *e, const Par *p, Dev *d, Arena *to, Tensor own);
/* Where the experts' results of this round are written: [rows,cols], F32 if they are parts of
 * sums; 'like' itself in a group of one. */
Tensor ep_partial(const EpPlan *e, const Par *p, Arena *a, Tensor like);
/* Brings them back to where their rows were in 'own'. */
void   ep_combine(const EpPlan *e, const Par *p, Dev *d, Tensor own, Tensor results);

/* The same without counts, for the few tokens of a step of decoding: all ranks get the tokens of all, each of as many
 * ('each'), and return a row for every expert of every token, -0 where it is not theirs.  Sizes are known to all
 * beforehand, so nothing is read on the host.  A number of ranks that is a power of two, up to LEAVES_MOST.  What goes
 * to several ranks of another machine goes there once (Groups.near, across), and what comes back from several is added
 * up there: the tree's lower levels.
 * tokens: [size*each,cols] of a, padded with 0, this rank's at ep_place.  experts: where rows of the own ones begin
 * among n of all.  results: what came back for the first 'rows' of this rank's rows; parts of sums are added by the
 * tree, and -0 changes none; 'all' is used up. */
static inline bool ep_is_even(int ranks) { return ranks > 1 && leaves_fit(ranks); }
Tensor ep_tokens(const Par *p, Dev *d, Arena *a, Tensor x, int64_t each);
int64_t ep_place(const Par *p, int64_t each);
Seqs   ep_experts(const Par *p, Tensor at, int experts, int64_t n);
Tensor ep_results(const Par *p, Dev *d, Arena *a, Tensor all, DType to, int64_t rows);

/* ---- Context --------------------------------------------------------------------------------------------------------
 * A sequence is cut into 2 * cp pieces; rank r has pieces r and 2 * cp - 1 - r, so that all have the same number of
 * pairs under the causal triangle.  Keys and values are gathered for one layer at a time. */
enum { CP_MOST = 64 };
typedef struct {
    int64_t rows[CP_MOST], all; /* tokens of each rank, of all */
    Tensor  order;              /* [all]: token i of the packed sequences is row order[i] of
                                 * all ranks' rows, one rank's after the other's */
} CpRows;
/* Pieces of a sequence: piece k is positions [cp_piece(k), cp_piece(k + 1)) and rank cp_rank(k)'s. */
static inline int     cp_pieces(int ranks)                        { return ranks == 1 ? 1 : 2 * ranks; }
static inline int64_t cp_piece (int64_t len, int k, int ranks)    { return len * k / cp_pieces(ranks); }
static inline int     cp_rank  (int k, int ranks)                 { return k < ranks ? k : 2 * ranks - 1 - k; }
static inline int cp_piece_of(int64_t len, int64_t pos, int ranks) {
    return (int)(((pos + 1) * cp_pieces(ranks) - 1) / len);
}
void cp_attend    (const Par *p, Dev *d, const CpRows *cp, const Attn *a);
void cp_attend_bwd(const Par *p, Dev *d, const CpRows *cp, Tensor dq, Tensor dk, Tensor dv, Tensor dO, const Attn *a);
/* Rows of all ranks in the packed order; rows of this rank's sum over all. */
Tensor cp_gather(const Par *p, Dev *d, Arena *to, const CpRows *cp, Tensor own);

#endif
