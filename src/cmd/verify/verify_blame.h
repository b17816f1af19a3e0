/* verify_blame.h - `hone verify --blame RUN`: the op that made RUN/difference. */
#ifndef CMD_VERIFY_BLAME_H
#define CMD_VERIFY_BLAME_H

#include "model/open.h"

/* dir: a run's folder, or its difference/ itself.  device, compute, threads, leaves: as said, or as the run had them.
 * *found: sampling and training differ now, too. */
bool verify_blame(const char *dir, const OpenOpts *asked, bool *found, Err *err);

#endif
