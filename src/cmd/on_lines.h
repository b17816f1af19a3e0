/* on_lines.h - a verb that answers the lines of a file by a model, on any number of ranks: what generate and score do
 * alike.  Every rank reads all lines; the first one writes. */
#ifndef CMD_ON_LINES_H
#define CMD_ON_LINES_H

#include "cmd/cmd.h"
#include "ask/prompt_line.h"
#include "cmd/sampling.h"
#include "model/open.h"

typedef struct {
    Ranks        ranks;
    Opened       o;
    PromptReader reader;
    JsonlOut    *out;               /* NULL but on the first rank */
} OnLines;

/* The command line, as far as both have it: -1, or the exit code after a message. */
int  on_lines_args(const Verb *v, int64_t leaves, const SamplingArgs *s);
/* Ranks in their grid (NULL: dp), the model's description, its tokenizer; args: of the verb, what all ranks must
 * have alike (asked.h).  replicas: the grid is for sampling (sampling_grid); NULL: any.  Collective, as all of these
 * are. */
bool on_lines_open(OnLines *x, const Verb *v, const void *args, const char *model, OpenOpts opts, const char *grid,
                   Replicas *replicas, PromptUse use, Err *err);
/* The lines that are not blank, one by one; what they hold lies in x->o.mem. */
typedef void LineRead(void *user, const PromptLine *p);
bool on_lines_read(OnLines *x, const char *in, LineRead *each, void *user, Err *err);
/* The same of one question in the command line: a user's message where the model has a chat template, else text. */
bool on_lines_prompt(OnLines *x, const char *prompt, LineRead *each, void *user, Err *err);
bool on_lines_out(OnLines *x, const char *path, Err *err);
int  on_lines_close(OnLines *x, const Verb *v, bool ok, Err *err);        /* the exit code */

#endif
