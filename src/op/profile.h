/* profile.h - when each op ran, on the device and as it was asked for on the host: a table by op and shape, and a
 * timeline that Perfetto and chrome://tracing open.
 *
 * While a device is profiled its ops are not chained (dev_chain), so that each has a time of its own; what they give is
 * the same. */
#ifndef OP_PROFILE_H
#define OP_PROFILE_H

#include "op/op.h"

typedef struct Profile Profile;
enum { PROFILE_SPANS = 1 << 18 };                        /* enough for some steps, 20 MB */
Profile *profile_open (Dev *d, int64_t most, Mem *mem);  /* from now on; spans after 'most' are counted, not kept */
void     profile_close(Dev *d);                          /* no more; what was noted stays */
void     profile_clear(Dev *d);                          /* what was noted so far is forgotten */

/* Phases, one inside the other: begins one of that name (a literal), or ends the last begun (NULL).  Nothing where d is
 * not profiled. */
void     profile_phase(Dev *d, const char *name);

/* Called by the doors of the ops (op_doors.c), around each. */
void     profile_begin(Dev *d, const char *op, Tensor out);
void     profile_end  (Dev *d);

/* What another than the device's queue did meanwhile, of so many bytes: a track of its own.  Seconds of the clock
 * (base/clock.h). */
void     profile_beside(Dev *d, const char *name, int64_t bytes, double from, double to);

typedef struct { const char *op; int64_t rows, cols, calls; double seconds; } ProfileLine;
/* By op and shape of what it writes, longest first; how many. */
int      profile_lines(Dev *d, ProfileLine *out, int most);
int64_t  profile_lost (const Profile *p);
bool     profile_write(Dev *d, const char *path, Err *err);      /* trace events as JSON */

#endif
