/* isa_c.c - the kernels in plain C: the definition of every bit, for any machine.  fmaf is one instruction where the
 * target has it and a (slow, exact) library call where it has not. */
#include "base/mathx.h"
#include "op/cpu/cpu.h"
#include <sched.h>
#define LANES     1
#define NV        1
#define MR        4
#define KERN      kern_c
#define KERN_NAME "portable"
#include "op/cpu/lanes.h"
#include "op/cpu/kern.inc"
