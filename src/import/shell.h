/* shell.h - what a shell script would launch, found by reading it: nothing is ever executed.
 *
 * Launch scripts are bash: variables with defaults, arrays, conditions, functions, sums.  All of that is evaluated
 * here as bash would.  What only a program could answer is unknown: it may pass through variables, and is named
 * where it reaches the words of a launch.  The text is distrusted: depth, steps, memory and work are bounded. */
#ifndef IMPORT_SHELL_H
#define IMPORT_SHELL_H

#include "base/base.h"

typedef struct { const char *name, *value; } ShellVar;

typedef struct {
    const char        *path, *text;        /* the script: as $0 names it, and what it says */
    size_t             n;
    const char        *cwd;                /* absolute */
    const ShellVar    *vars;               /* the whole environment */
    size_t             n_vars;
    const char *const *args;               /* $1 ... */
    size_t             n_args;
    int64_t            now;                /* what `date` says: seconds since 1970 */
    int                cores;              /* what `nproc` says */
    bool               look;               /* may test files, and read what is sourced from the script's own folder */
} ShellIn;

/* A command that starts Python: python, python3, torchrun, `uv run`; what stands before it (nohup, ray job submit
 * ... --) is left out.  line[i] is where word i was written. */
typedef struct {
    const char **word;
    const int   *line;
    size_t       n;
    const char  *unknown;     /* NULL, or what is not known in it, with the remedy */
} ShellLaunch;

typedef enum {
    SHELL_LOST,         /* words that look like settings and are another command: a continued line ended before them */
    SHELL_UNSET,        /* a variable that was read and never set; text is its name */
    SHELL_ASSUMED,      /* what a command that was not run was taken to have answered */
    SHELL_SKIPPED,      /* a command that was not run, and whose answer nobody asked for */
    SHELL_STOPPED,      /* the script ends here, and why */
    SHELL_UNUSED,       /* a variable that was set, by the script or for it, and never read: NAME=how it was set */
} ShellNoteKind;
typedef struct { ShellNoteKind kind; int line; const char *text; } ShellNote;
/* a variable that has a default: ${NAME:-value} */
typedef struct { const char *name, *value; int line; bool given; } ShellKnob;

typedef struct {
    VEC(ShellLaunch) launches;
    VEC(ShellNote)   notes;
    VEC(ShellKnob)   knobs;
} ShellOut;

/* Strings live in mem.  False: the script cannot be read (the message names the line); what was found before that is
 * in out. */
bool shell_read(ShellOut *out, const ShellIn *in, Mem *mem, Err *err);
void shell_out_free(ShellOut *out);

#endif
