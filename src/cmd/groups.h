/* groups.h - the list of all verbs, for main.c's choice and help, and for what is made from their tables. */
#ifndef CMD_GROUPS_H
#define CMD_GROUPS_H

#include "cmd/cmd.h"

const Verb *verb_at(size_t i);                 /* by their names' order; NULL behind the last */
const Verb *verb_find(const char *name);
const char *verb_nearest(const char *name);    /* or NULL */
const char *verb_example(const Verb *v);       /* a command line without "hone ", or NULL */

/* Headings, and which verbs stand below each; a verb of none stands below the last. */
const char *verb_group(size_t i);              /* or NULL */
const Verb *verb_in_group(size_t group, size_t i);

void verbs_help(void);                         /* all of them, on standard output */

#endif
