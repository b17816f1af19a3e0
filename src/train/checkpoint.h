/* checkpoint.h - everything a run is, on disk: the model as anyone loads it (float32, hub names), the
 * optimizer's states by the same names (train/moments.h), and a JSON of the rest (step, cursors,
 * controllers), with checksums by pieces (train/sums.h).
 *
 *   RUN/checkpoints/step-000040/model/...  optimizer.safetensors  state.json  manifest.json
 *
 * A save copies the weights and states through a buffer that was planned at the start, and a thread writes from there.
 * A buffer that holds everything is filled at once; a smaller one is filled on while the weights are only read (the
 * next rollout), and the next update waits until the last byte is copied: what is saved is one moment of the run.  The
 * folder is written beside and becomes visible by one rename, so a kill at any moment leaves the one before it.  A
 * damaged checkpoint is recognised by its manifest and the one before it is used.
 *
 * Over ranks each writes what it answers for (train/runs.h) into its places in the same files, which are then as one
 * rank would have written them: any grid goes on from them, and each rank reads what it holds and no more.  Nothing is
 * read to be checked alone: what a rank writes, and what it reads, it counts on the way.  save, wait, close and load
 * are collective and end alike on all ranks. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "base/json.h"
#include "train/policy.h"

/* What a checkpoint has beside state.json: a row of 'members' (checkpoint_dir.c) for each, with the name of its folder
 * and of its averages. */
typedef enum { MEMBER_MODEL, MEMBER_ADAPTER, MEMBERS } MemberKind;
typedef struct { MemberKind kind; Policy *p; } Member;
static inline MemberKind member_of(const Policy *p) { return p->m->desc->adapter ? MEMBER_ADAPTER : MEMBER_MODEL; }

/* How averages are written.  Those that are rounded, or not there, make other bytes after a resume. */
typedef enum { SAVED_F32, SAVED_BF16, SAVED_NONE } SavedMoments;

typedef struct Checkpoints Checkpoints;
typedef struct {
    const char *run_dir;
    Carried     carried;                                                /* the model's small files, of the start;
                                                                         * rank 0's; they outlive the saves */
    int         keep;
    int64_t     shard_bytes, buffer;                                    /* buffer: bytes; 0: everything */
    int64_t     piece;                                                  /* bytes of a checksum's; 0: SUMS_PIECE */
    SavedMoments moments;
} CheckpointConf;

enum { CHECKPOINT_BUFFER = 256 << 20 };                                 /* the default of trainer.save_buffer */
/* Of the host, by a save; wanted: as CheckpointConf.buffer */
size_t       checkpoint_bytes(const ModelDesc *m, const Shard *shard, int64_t wanted, SavedMoments moments);
Checkpoints *checkpoints_open(const Member *m, int n, const CheckpointConf *c, Mem *mem);      /* collective */
bool         checkpoints_close(Checkpoints *c, Err *err);               /* waits for the writer; its failure */

/* Starts a save (waiting for the one before, whose failure is returned here) and copies what
 * there is room for; then p->block.saving holds until all is copied. */
bool checkpoint_save(Checkpoints *c, int64_t step, const char *state_json, Err *err);
void checkpoint_copy_on(Checkpoints *c);         /* some milliseconds' worth of it, if there is room; for odd moments */
void checkpoint_copied(Checkpoints *c);          /* waits for the copy: weights and states may move */
bool checkpoint_wait(Checkpoints *c, Err *err);  /* and for the disk */

/* The weights as they are now, as a model's folder DIR/model, through a small buffer of its own; DIR is there.
 * Collective, and at once: no save of the policy's may be under way (checkpoint_copied). */
bool checkpoint_weights(Policy *p, const CheckpointConf *c, const char *dir, Err *err);

/* How much of a checkpoint is looked at: sizes, small files and headers; and all of model/; and all.  (Who loads it
 * looks at the rest on the way.) */
typedef enum { LOOK_SIZES, LOOK_MODEL, LOOK_ALL } Look;
/* The newest checkpoint of a run of a step below 'below' that looks whole: its folder in *path (NULL: there is none)
 * and its step.  What is damaged, or has weights that are no numbers, is said on standard error, passed over, and
 * counted in *bad. */
void checkpoint_newest(const char *run_dir, Look look, int64_t below, const char **path, int64_t *step, int *bad,
                       Mem *mem);
/* Of all; false: there are some, and all are damaged. */
bool checkpoint_find(const char *run_dir, Look look, const char **path, int64_t *step, Mem *mem, Err *err);
bool checkpoint_all_bad(const char *run_dir, int bad, Err *err);        /* says so; false */
void checkpoint_pass_over(const char *path, const Err *why);           /* says it */
/* says of a file: its weights, or averages, are no numbers */
bool checkpoint_diverged(const char *name, const char *what, Err *err);
/* The model's folder in the newest one, whole or not: for its small files.  NULL: there is none. */
const char  *checkpoint_model(const char *run_dir, Mem *mem);
/* That of one step; false if there is none (the message lists what there is) or it is damaged. */
bool checkpoint_at(const char *run_dir, int64_t step, Look look, const char **path, Mem *mem, Err *err);
/* Members that this version does not know: adds their names; false: there are none.  Such a checkpoint is never
 * pruned. */
bool checkpoint_unknown(const char *path, Buf *names);
bool checkpoint_state(const char *path, Json *state, Mem *mem, Err *err);
/* Weights and optimizer; collective.  DAMAGED: it is to be passed over, and the weights are no good meanwhile. */
typedef enum { LOAD_OK, LOAD_DAMAGED, LOAD_FAILED } LoadEnd;
LoadEnd checkpoint_load(const char *path, const Member *m, int n, Err *err);
/* The gravest number, and whoever's err that is, on all. */
int checkpoint_agree(const Groups *g, int bad, Err *err);
#define UPDATES_MOST ((int64_t)1e15)                            /* that a state.json may claim; so no count overflows */

#endif
