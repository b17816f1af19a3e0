/* asked.h - ranks of a verb that takes its settings from the command line: what they were asked to do, and what they
 * found behind the paths that they were given, is the same on all before anything loads.  (Of train and sft:
 * step/found.h.) */
#ifndef CMD_ASKED_H
#define CMD_ASKED_H

#include "cmd/cmd.h"
#include "comm/ranks.h"

/* ranks_open, with the verb, the program and the options; all verbs that run over ranks begin with it. */
bool asked_ranks(Ranks *r, const Verb *v, const void *args, Err *err);

/* The model: its files; random: no weights are read.  Collective; one rank looks at nothing. */
typedef struct {
    const char *model, *chat_template; /* the latter: in the place of the folder's, or NULL */
    bool        random;
    uint64_t    seed;                  /* of the places in weights that are looked at */
} AskedModel;
bool asked_model(const Ranks *r, const AskedModel *m, Err *err);
/* Ranks that may each have failed to make their lines (ok) end together; else these are compared. */
bool asked_alike(const Ranks *r, const Identity *id, bool ok, Err *err);

#endif
