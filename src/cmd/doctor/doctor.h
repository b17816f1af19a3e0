/* doctor.h - what `hone doctor` looks at: rows of a table, each judged by itself. */
#ifndef CMD_DOCTOR_DOCTOR_H
#define CMD_DOCTOR_DOCTOR_H

#include "comm/ranks.h"
#include "plan/machine.h"

typedef enum { STATE_OK, STATE_SLOW, STATE_MISSING } State;
typedef struct { char name[20], found[120], todo[200]; State state; } Finding;

enum { FINDINGS_MOST = 24 };
typedef struct {
    char    host[64];
    Finding at[FINDINGS_MOST];
    int     n, gpus;
    char    card[64];               /* of the first GPU, or "" */
    Machine m;                      /* its rates; name is not set */
    double  disk_write, disk_read;  /* bytes a second; 0: not measured */
} Patient;

/* name, state, what was found, and what to do ("" where it is ok). */
void find(Patient *p, const char *name, State s, const char *todo, const char *fmt, ...) PRINTF_LIKE(5, 6);

void look_at_machine(Patient *p, const Ranks *r);      /* cores, instruction sets, memory, limits, load */
void look_at_parts(Patient *p);                        /* libraries and programs that are found when they are wanted */
void look_at_gpu(Patient *p);
void look_at_rates(Patient *p, const char *dir);       /* measured: some seconds; others of this machine wait */

#endif
