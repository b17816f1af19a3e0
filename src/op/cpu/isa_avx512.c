/* isa_avx512.c - the kernels for AVX-512 (F, DQ, BW, VL).  Only this file may use those instructions, so the target is
 * set here for every function in it and the program still runs where they are missing. */
#include "base/mathx.h"
#include "op/cpu/cpu.h"
#include <sched.h>
#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma"))),                   \
                             apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,avx2,fma,prefer-vector-width=512")
#endif
#define LANES     512
#define NV        4 /* a tile of 8 x 48 or 6 x 64: 24 sums, 3 or 4 weights, 1 input of 32 registers */
#define MR        8
#define KERN      kern_avx512
#define KERN_NAME "avx512"
#include "op/cpu/lanes.h"
#include "op/cpu/kern.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#endif
