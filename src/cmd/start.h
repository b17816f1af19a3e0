/* start.h - what train and sft do alike: from the command line to a configuration, and the last line. */
#ifndef CMD_START_H
#define CMD_START_H

#include "cmd/cmd.h"
#include "config/config.h"
#include "plan/machine.h"

typedef struct {
    bool        list_options, check, all_ranks;
    int64_t     memory;
    const char *device, *compute;
    Cluster     cluster;                /* plan.cluster, where --memory is asked for; gpus 0: the file names none */
} StartArgs;
extern const Opt start_options[];

/* Loads CONFIG.yaml and the key=value words into c and prints it.  Returns -1 to go on, else the exit code,
 * with c freed: after --help, --list-options and --check (which goes on to --memory), and where something is wrong. */
int start(const Verb *v, Config *c, ConfVerb verb, StartArgs *a, int argc, char **argv);

/* The last word of a run: done, or told to stop, and what can be done next. */
void end_line(int64_t step, int64_t steps, const char *run_dir);

#endif
