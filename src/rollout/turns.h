/* turns.h - an answer of several turns: where a turn calls tools, their answers are put behind it as the template
 * writes them, and the model goes on.  What was sampled keeps its ids; what was put there is masked. */
#ifndef ROLLOUT_TURNS_H
#define ROLLOUT_TURNS_H

#include "engine/engine.h"
#include "rollout/rollouts.h"

typedef struct {
    const char *const *tools;       /* [n_tools] names of those that are built in */
    int         n_tools;
    const char *format;             /* how calls are written: a name, or "auto": by the template */
    int64_t     max_reply;          /* characters of a tool's answer */
    int         max_turns, max_calls;   /* the model's, of one answer */
} TurnOptions;

/* How a run's conversations go on; made once, read by all (TurnConf: rollouts.h).  Opened in two parts, as the prompts'
 * template is told of the tools: turns_bind checks on ids that what a rule puts behind a turn is what encoding the
 * whole gives. */
TurnConf   *turns_open(const TurnOptions *o, Err *err);
const Json *turns_tools(const TurnConf *c);
bool        turns_bind(TurnConf *c, const Prompter *p, int64_t vocab, Err *err);
const char *turns_format(const TurnConf *c);            /* the name of how calls are written */
int         turns_most(const TurnConf *c);              /* of one answer */
void        turns_conf_close(TurnConf *c);

/* One answer under way. */
typedef struct {
    Mem mem;
    Json messages;          /* all so far; NULL before the first turn is over */
    Request request;        /* its next turn */
    SampleOpts opts;
} Turns;

/* A turn of a has ended by itself, a->said.. are its tokens: true if tools were called and the next one can be sampled
 * (then t->request asks for it), false: the answer is over. */
bool turns_next(const TurnConf *c, Turns *t, Rollout *a, const Prompt *p, const SampleOpts *opts, int max_answer);
void turns_close(Turns *t);

#endif
