/* both.h - BOTH marks an inline function that kernels of a GPU call as the host does, with the same bits. */
#ifndef BASE_BOTH_H
#define BASE_BOTH_H

#ifdef __CUDACC__
#define BOTH static inline __host__ __device__
#else
#define BOTH static inline
#endif

#endif
