/* checkpoint_dir.h - the checkpoints of a run as folders: their names, which there are,
 * whether one is whole.  Only checkpoint.c and checkpoint_load.c include it.
 *
 *   RUN/checkpoints/step-000040              whole, or damaged later
 *                  /.writing-step-000040     not yet
 *                  /.old-step-000040         moved out of the way of its successor, for a moment */
#ifndef TRAIN_CHECKPOINT_DIR_H
#define TRAIN_CHECKPOINT_DIR_H

#include "base/json.h"
#include "train/checkpoint.h"
#include "train/sums.h"

typedef enum { PLACE_WHOLE, PLACE_WRITING, PLACE_OLD } Place;
void checkpoint_path(Buf *out, const char *run_dir, int64_t step, Place at);

/* A member's folder, and the name of its averages; below the checkpoint. */
const char *member_folder(MemberKind k);
const char *member_weights(MemberKind k);                    /* the folder, or the file in it */
const char *member_averages(MemberKind k);

/* dir/manifest.json: step, size and CRC-32 of every file below dir, of those in 'sums' by pieces.  The others, which
 * are small, are read for it.  Written last. */
bool manifest_write(const char *dir, int64_t step, const Sums *sums, Err *err);
bool manifest_holds(const char *dir, Look look, Err *err);
/* The files that have pieces, with what these must be. */
bool manifest_sums (const char *dir, Sums *out, Mem *mem, Err *err);

bool checkpoint_into_place(const char *run_dir, int64_t step, Err *err);     /* from PLACE_WRITING; synced */
/* what a killed process left; before a save */
void checkpoint_tidy(const char *run_dir);
/* The last 'keep' up to 'step' stay. */
void checkpoint_prune(const char *run_dir, int64_t step, int keep);

#endif
