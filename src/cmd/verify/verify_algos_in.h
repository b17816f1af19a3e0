/* verify_algos_in.h - what the sections of `hone verify` on a file of methods share: the run over the file, matrices
 * read, values written and compared. */
#ifndef CMD_VERIFY_ALGOS_IN_H
#define CMD_VERIFY_ALGOS_IN_H

#include "algo/algo.h"
#include "cmd/verify/verify_algos.h"

#include <stdio.h>

typedef struct {
    Mem *mem;
    int64_t n, width, T;
    const int64_t *at;
    Answers masked, turns, all; /* of 'mask', of 'mask_turns' (as 'mask' where there is none), of everything */
    bool next;                  /* the second form: each case names its mask, results are 0 where it is */
    const Json *inputs;
    Arena tmp;
    Buf *out;
    VerifyAlgos *r;
    double tolerance, worst; /* worst: of the case at hand */
    const Json *value;       /* the section "value": inputs of value_cases */
    FILE *say;               /* where failed cases are named, or NULL */
} AlgoRun;

bool algo_matrix(float **out, AlgoRun *v, const Json *o, const char *key, Err *err);
bool algo_vector(double **out, AlgoRun *v, const Json *o, const char *key, Err *err);
bool algo_number(double *out, const Json *o, const char *path, Err *err);
const char *algo_text(const Json *j); /* a string's, or NULL */
/* Which of the run's masks a case is about. */
const Answers *algo_mask(const AlgoRun *v, const Json *one);

/* Written to v->out; what differs most is the case's. */
void algo_compare(AlgoRun *v, double got, double want);
bool algo_put_matrix(AlgoRun *v, const char *key, const float *x, const Json *want, Err *err);
bool algo_put_number(AlgoRun *v, const char *key, double x, const Json *want, Err *err);

/* Every case of a section: one of them written and compared.  In the first form a case that cannot be done is an error
 * of the file, in the second it has failed, and is named. */
typedef bool AlgoCase(AlgoRun *v, const char *name, const Json *want, Err *err);
bool algo_cases(AlgoRun *v, const char *section, const Json *cases, AlgoCase *one, Err *err);
/* What is not a case among others: its name may be empty. */
void algo_case_end(AlgoRun *v, const char *section, const char *name);

typedef bool AlgoSection(AlgoRun *v, const Json *cases, Err *err);
AlgoSection verify_advantages, verify_losses;                                    /* verify_methods.c */
AlgoSection verify_kls, verify_aggs, verify_agg_globals, verify_value, verify_value_cases, verify_kl_in_reward,
    verify_kl_control;                                                           /* verify_values.c */

#endif
