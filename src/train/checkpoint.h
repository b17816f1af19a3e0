/* checkpoint.h - everything a run is, on disk: the model as anyone loads it (float32, hub names), the optimizer's states
 * by the same names (train/moments.h), and a JSON of the rest (step, cursors, controllers), each file with its checksum.
 *
 *   RUN/checkpoints/step-000040/model/...  optimizer.safetensors  state.json  manifest.json
 *
 * A save copies the weights and states into a staging area that was planned at the start and writes from there in the
 * background; the folder is written beside and becomes visible by one rename, so a kill at any moment leaves the one
 * before it.  A damaged checkpoint is recognised by its manifest and the one before it is used. */
#ifndef TRAIN_CHECKPOINT_H
#define TRAIN_CHECKPOINT_H

#include "base/json.h"
#include "train/policy.h"

typedef struct Checkpoints Checkpoints;
typedef struct {
    const char *run_dir, *from_dir, *tokenizer_dir, *chat_template;     /* the last three: as in SaveOpts; they outlive the saves */
    int         keep;
    int64_t     shard_bytes;
} CheckpointConf;

size_t       checkpoint_staging_bytes(const ModelDesc *m);
Checkpoints *checkpoints_open(const Policy *p, const CheckpointConf *c, Mem *mem);
bool         checkpoints_close(Checkpoints *c, Err *err);               /* waits for the writer; its failure */

/* Starts a save (waiting for the one before, whose failure is returned here). */
bool checkpoint_save(Checkpoints *c, int64_t step, const char *state_json, Err *err);
bool checkpoint_wait(Checkpoints *c, Err *err);

/* The newest whole checkpoint of a run: its folder in *path (NULL: there is none) and its step.  What is damaged is said on
 * standard error and passed over. */
bool checkpoint_find(const char *run_dir, const char **path, int64_t *step, Mem *mem, Err *err);
bool checkpoint_state(const char *path, Json *state, Mem *mem, Err *err);
bool checkpoint_load(const char *path, Policy *p, Err *err);            /* weights and optimizer */

#endif
