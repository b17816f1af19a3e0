/* start.h - what train and sft do alike: from the command line to a configuration, and being told to stop. */
#ifndef CMD_START_H
#define CMD_START_H

#include "cmd/cmd.h"
#include "cmd/config.h"
#include "cmd/ranks.h"
#include "cmd/metrics.h"
#include "base/json.h"

typedef struct { bool list_options, check; } StartArgs;
extern const Opt start_options[];

/* Loads CONFIG.yaml and the key=value words into c and prints it.  Returns -1 to go on, else the exit code, with c freed: after
 * --help, --list-options and --check, and where something is wrong. */
int start(const Verb *v, Config *c, ConfVerb verb, int argc, char **argv);

/* After SIGTERM, SIGINT, SIGUSR1 or SIGHUP (unless it was ignored at the start: nohup), once asked for: finish what cannot be cut, save,
 * end. */
void stop_on_signals(void);
bool stop_asked(void);

/* state.json of the checkpoint at 'path', the one of 'step', with what every run keeps in it: all of it must be there and possible,
 * whoever edited the file.  Errors name the file and the member. */
typedef struct {
    const char *path;                                     /* of state.json */
    Json        json;
    DataCursor  at;
    int64_t     data, data_seed, leaves;
    bool        shuffle;
} RunState;
bool state_read(RunState *s, const char *path, int64_t step, Mem *mem, Err *err);

/* What a checkpoint and the run that goes on from it must have in common: the data ('print', dataset_print) and its order.  What
 * may differ, at the price that the bytes that follow are others: the device, what it computes in and with, leaves, the grid; 'said' is then
 * one line about it, else empty.  Members of state.json, each behind a comma; and whether they agree. */
void same_run_put(Buf *b, const Config *c, const Dev *d, const Ranks *ranks, uint64_t print);       /* ranks NULL: one */
bool same_run(const Config *c, const Dev *d, const Ranks *ranks, uint64_t print, const char *path, const RunState *s, Buf *said, Err *err);

/* A step that is done but not told yet, because its validation was cut: its numbers wait in state.json, as a member behind a
 * comma.  Nothing where m is NULL; *untold: whether there is one. */
void untold_put(Buf *b, const Metrics *m);
bool untold_get(Metrics *m, bool *untold, const RunState *s, Mem *mem, Err *err);

/* The newest checkpoint of a run (checkpoint_find), as the first rank sees it: all go on from that one. */
bool start_find(const Ranks *ranks, const char *run_dir, const char **path, int64_t *done, Mem *mem, Err *err);

/* Is it time to save, behind that step and so long (clock_now) after the last save: trainer.save_every, trainer.save_minutes, by the
 * first rank's clock. */
bool save_due(const Config *c, const Ranks *ranks, int64_t step, double t_saved);

/* The last word of a run: done, or told to stop, and what can be done next. */
void end_line(int64_t step, int64_t steps, const char *run_dir);

#endif
