/* external.h - scorers that are not hone's: a command in processes of its own, or a function in a shared library. */
#ifndef TASK_EXTERNAL_H
#define TASK_EXTERNAL_H

#include "task/reward.h"

/* ---- A command, run by /bin/sh in 'slots' processes that live on from sample to sample.  A request is one line
 * {"id","data_source","solution_str","ground_truth","extra_info"}, the reply one line: a number, or an object with
 * "score" (or with "failed", a reason), and better with the "id" of its request.  A slot
 * belongs to one thread at a time. */
typedef struct Command Command;
/* ready_s > 0: a process is told 'hello' (may be NULL) and greets, with {"ready": true} or {"failed": why}, and has so
 * long for it: no sample's deadline begins before that.  None of its processes outlives this program
 * (external_guard.h).  NULL: no process can be started. */
Command *command_open(const char *shell_line, int slots, double timeout_s, const Buf *hello, double ready_s, Err *err);
bool     command_ready(Command *c, Err *err);          /* starts the first process: false if it
                                                        * does not greet, with its reason */
void     command_score(Command *c, int slot, const RewardSample *s, RewardResult *out);    /* ends at the deadline */
/* Its greeting had "many": a request may be a list, answered by a line for each in its order.
 * A list has the deadline of one sample. */
bool     command_takes_many(const Command *c);
/* How many of them, from the first, were judged; the others are to be asked alone: one of them broke the call. */
int      command_score_many(Command *c, int slot, const RewardSample *const *s, RewardResult *const *out, int n);
int64_t  command_restarts(Command *c);                 /* processes started beyond the first of each slot */
void     command_give_up(Command *c);                  /* from any thread: what is being judged
                                                        * fails, soon; all that comes after, too */
void     command_close(Command *c);                    /* no process of it is left */

/* The shell line that runs a scorer written in Python: reward_python.py, which is part of this program, on a file, a
 * function of it and further arguments (a JSON object; NULL: none).  The file's text is its hello: all processes are
 * given the text of one moment, whatever becomes of the file. */
const char *python_line(const char *file, const char *function, const char *args, Mem *mem);
bool        python_hello(Buf *out, const RewardOptions *o, Err *err);

/* The programs and scripts that a command's line names, as they are now. */
typedef struct ScorerFiles ScorerFiles;
ScorerFiles *scorer_files(const char *shell_line);
const char  *scorer_files_changed(const ScorerFiles *f);       /* one of them that is another by now; NULL: none */
void         scorer_files_close(ScorerFiles *f);

/* What a reply line means; out is failed if it means nothing.  false: it has the "id" of an earlier sample. */
bool reply_read(RewardResult *out, const char *line, size_t n, int64_t id);

/* ---- A shared library: include/hone_reward.h. */
typedef struct Library Library;
Library *library_open(const char *path, Err *err);
void     library_score(const Library *l, const RewardSample *s, RewardResult *out);    /* may hang: see reward_pool.c */
void     library_close(Library *l);                    /* forgets it; the code stays loaded */

#endif
