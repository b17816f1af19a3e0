/* alerts.h - what of a run wants a person's eyes: rules over the numbers of its steps and its machine.  One text for
 * the run itself (log.txt, trainer.alert_command) and for a page that reads its files.
 *
 * A rule speaks when what it watches begins, and again only after it had ended. */
#ifndef RUN_ALERTS_H
#define RUN_ALERTS_H

#include "base/base.h"

typedef enum { ALERT_WARN, ALERT_ERROR } AlertLevel;
/* The rules, in the order of alert_rules. */
typedef enum {
    RULE_EXACT, RULE_NOT_FINITE, RULE_SCORE, RULE_ENTROPY, RULE_ENTROPY_FALLS, RULE_CLIPPED, RULE_GRADIENT,
    RULE_FAILED, RULE_VALIDATION, RULE_DISK, RULE_MEMORY, RULE_STUCK, RULES
} AlertRule;
extern const char *const alert_rules[RULES];            /* "exact", "not_finite", ... */

typedef struct { int64_t step; AlertRule rule; AlertLevel level; char text[160]; } Alert;
typedef void AlertTell(void *user, const Alert *a);

/* What the rules read of a step.  NAN: the step does not say; infinity: it says that it is no number. */
typedef enum {
    WATCH_EXACT, WATCH_LOSS, WATCH_GRAD, WATCH_SCORE, WATCH_SCORE_MAX, WATCH_ENTROPY, WATCH_CLIPPED, WATCH_FAILED,
    WATCH_VAL, WATCH_VAL_LOW, WATCH_VAL_HIGH, WATCHES
} AlertWatch;
extern const char *const alert_metrics[WATCHES][2];     /* their names; the second where the first is not there */

enum { ALERT_SCORE_STEPS = 20, ALERT_ENTROPY_STEPS = 50, ALERT_USUAL = 101 };
typedef struct {
    bool    on[RULES];
    int64_t silent;                                     /* steps without any score, one after the other */
    float   entropy[ALERT_ENTROPY_STEPS];               /* of the steps before, a ring */
    int64_t entropies;
    float   grad[ALERT_USUAL], grad_sorted[ALERT_USUAL];        /* of the steps before, a ring; the same, rising */
    int64_t grads;
    double  best, best_half;                            /* validation; half its interval */
    bool    validated;
} Alerts;

void alerts_step(Alerts *a, int64_t step, const double watch[WATCHES], AlertTell *tell, void *user);

/* Of the machine; what is not known is NAN. */
typedef struct { double disk_free, checkpoint, memory; } AlertHost;     /* bytes, bytes, share in use */
void alerts_host(Alerts *a, int64_t step, const AlertHost *h, AlertTell *tell, void *user);
/* Only who watches from outside can see it: seconds since the last step, and what a step usually takes. */
void alerts_stuck(Alerts *a, int64_t step, double since, double usual, AlertTell *tell, void *user);

AlertHost alert_host(const char *run_dir, int64_t checkpoint);  /* now; checkpoint: bytes of one, 0: not known */
/* {"run":...,"step":N,"rule":...,"level":"warn"|"error","text":...} and a newline. */
void alert_json(Buf *out, const char *run, const Alert *a);

/* trainer.alert_command: a shell line that gets one such line on its standard input, in a group of its own; nobody
 * waits for it.  At most ALERT_COMMANDS run; what comes meanwhile is not told.  False: it was not started. */
enum { ALERT_COMMANDS = 4 };
typedef struct { int pid[ALERT_COMMANDS]; } AlertCommands;
bool alert_call(AlertCommands *c, const char *line, const char *json, size_t n);
void alert_reap(AlertCommands *c);                      /* those that have ended */

#endif
