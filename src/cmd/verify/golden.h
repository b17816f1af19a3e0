/* golden.h - compares a model with reference values computed elsewhere (a folder with golden.safetensors and, where
 * they are there, grad.safetensors, step.safetensors, meta.json). */
#ifndef CMD_VERIFY_GOLDEN_H
#define CMD_VERIFY_GOLDEN_H

#include "model/open.h"

typedef struct {
    const char *model, *golden, *dump;       /* dump: NULL, or a folder for our own grad and step files */
    Recompute   recompute;
    OpenOpts    open;                        /* with its ranks, which are: */
    Ranks      *ranks;
    const char *grid;                        /* NULL: dp */
    Buf        *json;                        /* NULL: lines for people on standard output;
                                              * else the checks as an array of objects */
} GoldenOpts;

typedef struct { int passed, failed, skipped; } GoldenResult;

/* One line (or object) per check with the worst error; an Err only if nothing could be compared. */
bool golden_verify(const GoldenOpts *o, GoldenResult *r, Err *err);

#endif
