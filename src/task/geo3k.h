/* geo3k.h - inside geometry3k's scorer: MATH's normal form, which it shares, and its sums. */
#ifndef TASK_GEO3K_H
#define TASK_GEO3K_H

#include "maths/mathx.h"
#include "task/score.h"

/* MATH's normal form of s; percent: a bare % goes too.  False where the reference raises: compare the raw text then. */
bool math_normal(Buf *b, Span s, bool percent);

/* Is the difference of both zero, read as SymPy reads them?  False where it would not try, or fail. */
bool geo3k_same_sum(Span truth, Span given);

#endif
