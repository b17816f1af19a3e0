/* host_device.h - HOST_DEVICE marks an inline function that kernels of a GPU call as the host does, with the same
 * bits. */
#ifndef BASE_HOST_DEVICE_H
#define BASE_HOST_DEVICE_H

#ifdef __CUDACC__
#define HOST_DEVICE static inline __host__ __device__
#else
#define HOST_DEVICE static inline
#endif

#endif
