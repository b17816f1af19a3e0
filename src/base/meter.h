/* meter.h - how far something that lasts has come, on standard error: on a terminal a bar with the rate and the time
 * left, else a line a minute.  Nothing of it is a result, and nothing of it stays on a terminal.
 *
 * Its functions may be called from any thread, as often as wanted: the clock is looked at, little more.  Where several
 * ranks run, the first shows. */
#ifndef BASE_METER_H
#define BASE_METER_H

#include "base/base.h"

typedef struct Meter Meter;
/* what: "hone pull: model.safetensors"; unit: of what is counted ("questions"), or "B" for bytes.  total 0: it is not
 * known. */
Meter *meter_open(const char *what, const char *unit, double total);
void   meter_total(Meter *m, double total);
void   meter_set(Meter *m, double done);
void   meter_add(Meter *m, double more);
void   meter_note(Meter *m, const char *what);         /* another thing is under way: shown in the place of what */
/* Beside the rate of what is counted, that of something else: "312 tokens/s". */
void   meter_beside(Meter *m, const char *unit, double done);
void   meter_close(Meter *m);                          /* NULL too; the terminal's line is free again */

#endif
