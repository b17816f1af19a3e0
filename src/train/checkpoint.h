/* checkpoint.h - everything a run is, on disk: the model as anyone loads it (float32, hub names), the
 * optimizer's states by the same names (train/moments.h), and a JSON of the rest (step, cursors,
 * controllers), each file with its checksum.
 *
 *   RUN/checkpoints/step-000040/model/...  optimizer.safetensors  state.json  manifest.json
 *
 * A save copies the weights and states through a buffer that was planned at the start, and a thread writes from there.
 * A buffer that holds everything is filled at once; a smaller one is filled on while the weights are only read (the
 * next rollout), and the next update waits until the last byte is copied: what is saved is one moment of the run.  The
 * folder is written beside and becomes visible by one rename, so a kill at any moment leaves the one before it.  A
 * damaged checkpoint is recognised by its manifest and the one before it is used.
 *
 * Over ranks each writes what it answers for (train/reduce.h) into its places in the same files, which are
 * then as one rank would have written them: any grid goes on from them.  save, wait and close are
 * collective and end alike on all ranks. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "base/json.h"
#include "train/policy.h"

typedef struct Checkpoints Checkpoints;
typedef struct {
    const char *run_dir;
    Carried     carried;                                                /* the model's small files, of the start;
                                                                         * rank 0's; they outlive the saves */
    int         keep;
    int64_t     shard_bytes, buffer;                                    /* buffer: bytes; 0: everything */
} CheckpointConf;

enum { CHECKPOINT_BUFFER = 256 << 20 };                                 /* the default of trainer.save_buffer */
/* wanted: as CheckpointConf.buffer */
size_t       checkpoint_buffer_bytes(const ModelDesc *m, const Shard *shard, int64_t wanted);
Checkpoints *checkpoints_open(Policy *p, const CheckpointConf *c, Mem *mem);
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

/* The newest whole checkpoint of a run: its folder in *path (NULL: there is none) and its
 * step.  What is damaged, or has weights that are no numbers, is said on standard error and passed over. */
bool checkpoint_find(const char *run_dir, const char **path, int64_t *step, Mem *mem, Err *err);
/* The model's folder in the newest one, whole or not: for its small files.  NULL: there is none. */
const char  *checkpoint_model(const char *run_dir, Mem *mem);
/* That of one step; false if there is none (the message lists what there is) or it is damaged. */
bool checkpoint_at(const char *run_dir, int64_t step, const char **path, Mem *mem, Err *err);
bool checkpoint_state(const char *path, Json *state, Mem *mem, Err *err);
bool checkpoint_load(const char *path, Policy *p, Err *err);    /* weights and optimizer */
#define UPDATES_MOST ((int64_t)1e15)                            /* that a state.json may claim; so no count overflows */

#endif
