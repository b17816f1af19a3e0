/* verify_algos.h - computes the cases of a reference file of algorithms and compares.
 *
 * The file holds, as verl's own code produced them: inputs (padded [n, L] arrays, groups, loss_config), and under
 * advantage, loss, kl, agg and value the expected results by case name.  Names say what to compute:
 * "gae(gamma=0.99,lam=0.95)", "vanilla/token-mean/is".  A case whose name is not known is an error, not a pass. */
#ifndef CMD_VERIFY_VERIFY_ALGOS_H
#define CMD_VERIFY_VERIFY_ALGOS_H

#include "base/json.h"

#include <stdio.h>

typedef struct {
    int    cases, failed;
    double worst;              /* largest |got - want| / max(1, |want|) */
    char   worst_case[80];
} VerifyAlgos;

/* Our values, in the structure of the file, go to out (JSON text).  tolerance: on that difference.  Failed cases are
 * named on say (NULL: nowhere). */
bool verify_algos_json(VerifyAlgos *result, Buf *out, const Json *file, double tolerance, Mem *mem, FILE *say,
                       Err *err);

/* The same from file to file (out NULL: only compare), printing a line per failed case and a summary.  Exit code. */
int verify_algos(const char *file, const char *out, double tolerance);

#endif
