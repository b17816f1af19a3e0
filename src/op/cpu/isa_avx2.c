/* isa_avx2.c - the kernels for AVX2 with FMA; see isa_avx512.c. */
#include "base/mathx.h"
#include "op/cpu/cpu.h"
#include <sched.h>
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif
#define LANES     256
#define NV        1 /* a tile of 6 x 16: 12 sums, 2 weights, 1 input of 16 registers */
#define MR        6
#define KERN      kern_avx2
#define KERN_NAME "avx2"
#include "op/cpu/lanes.h"
#include "op/cpu/kern.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
