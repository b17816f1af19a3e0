/* balance.h - splits items into k parts of nearly equal sum: Karmarkar and Karp's largest
 * differencing, as verl runs it.  Deterministic in the costs and their order. */
#ifndef TRAIN_BALANCE_H
#define TRAIN_BALANCE_H

#include "base/base.h"

/* part[i] in 0..k-1.  equal_size: every part gets n/k items (n % k must be 0).  Parts are
 * numbered by their smallest item; with n >= k none is empty unless costs are 0. */
size_t balance_scratch(int64_t n, int64_t k);
void   balance(int32_t *part, const double *cost, int64_t n, int64_t k, bool equal_size, Arena *tmp);

/* What verl takes a sequence to cost, whatever the model: 24576 s + s^2. */
static inline double verl_workload(int64_t len) { return 24576.0 * (double)len + (double)len * (double)len; }

#endif
