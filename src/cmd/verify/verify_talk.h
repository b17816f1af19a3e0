/* verify_talk.h - files of cases about conversations: calls of tools, reasoning, what goes behind a sampled turn. */
#ifndef CMD_VERIFY_VERIFY_TALK_H
#define CMD_VERIFY_VERIFY_TALK_H

#include "base/base.h"

/* Is it such a file, or a folder with one?  Told by what is in it, not by its name. */
bool verify_talk_is(const char *path);
/* Checks it, and prints what failed, what is open, and "N passed, N failed".  The exit code. */
int verify_talk(const char *path);

#endif
