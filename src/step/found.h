/* found.h - what a run was found with behind its paths (run/identity.h): the model's files, tokenizer and template, the
 * scorer, its data.  All ranks have the same before anything loads, and a checkpoint keeps it, so that a run that goes
 * on says what has changed. */
#ifndef STEP_FOUND_H
#define STEP_FOUND_H

#include "step/job.h"

/* Rows, their print, and of at most 64 pictures that they name by path the size and a sample. */
bool found_data(Identity *id, const char *key, const Dataset *d, uint64_t seed, Err *err);

/* Collective: all but the data, as soon as the run's folder is there; then j->train and j->val, which were read.  ok:
 * of this rank until here; ranks that failed end together. */
bool found_files(Job *j, Err *err);
bool found_rows (Job *j, bool ok, Err *err);

/* Members of state.json, each behind a comma; and what is other than 'state', a checkpoint's, says: a line each. */
void found_put(Buf *out, const Job *j);
bool found_changes(Job *j, const char *checkpoint, const Json *state, Err *err);

#endif
