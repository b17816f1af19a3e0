/* run_dir.h - the folder of a run: what it was asked to do, what it measured, what it wrote.
 *
 *   config.yaml      the resolved configuration          metrics.jsonl   one line per step
 *   log.txt          what was said, with the time        samples.jsonl   answers to read, with their scores
 *   scorer.py        what reward.python is judged by
 *   checkpoints/     train/checkpoint.h                  lock            held while a process trains here
 *   events.out.*     the metrics for TensorBoard         samples_tokens.bin  what is known of their tokens
 *
 * A run that goes on after a kill first cuts what was written behind its checkpoint, so that no step is told twice. */
#ifndef STEP_RUN_DIR_H
#define STEP_RUN_DIR_H

#include "config/config.h"
#include "run/metrics.h"

typedef struct RunDir RunDir;

/* Makes trainer.run_dir if need be, takes the lock (a second process is refused, with the first one's number). */
RunDir *run_dir_open(const Config *c, Err *err);
/* Of a rank that is not the first: the folder is there, and nothing is written. */
RunDir *run_dir_mute(const Config *c);
/* The first rank leaves a mark, which no other start has; does another rank find it in its own folder?  (It looks for
 * some seconds.) */
bool    run_dir_mark(RunDir *d, Buf *mark, Err *err);
bool    run_dir_has(RunDir *d, const char *mark);
void    run_dir_unmark(RunDir *d);
/* The text of its scorer in Python, if it has one: written when the run begins. */
void    run_dir_scorer(RunDir *d, const Buf *text);
/* The run begins behind that step: config.yaml, scorer.py; lines of later steps go, and with 'untold' the step's own
 * metrics. */
bool    run_dir_resume(RunDir *d, int64_t step, bool untold, Err *err);
void    run_dir_close(RunDir *d);

bool run_dir_metrics(RunDir *d, int64_t step, const Metrics *m, Err *err);
bool run_dir_samples(RunDir *d, const char *lines, size_t n, Err *err);
/* Rows of an answer's tokens (run/token_rows.h); *at: what its line then says, or -1: nothing is kept of this step. */
bool run_dir_tokens(RunDir *d, int64_t step, const void *rows, size_t bytes, int64_t *at, Err *err);
void run_dir_log(RunDir *d, const char *text);              /* to log.txt and, above the progress line, to the screen */
void run_dir_note(RunDir *d, const char *text);             /* to log.txt alone */

#endif
