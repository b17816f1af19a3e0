/* avx2.c - linked with --wrap=cpu_isa_best: the best instruction set of the program is AVX2, whatever the
 * machine has. */
#include "op/cpu/cpu.h"

int __wrap_cpu_isa_best(void);
int __wrap_cpu_isa_best(void) { return ISA_AVX2; }
