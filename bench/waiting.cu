/* waiting.cu - what a kernel of NCCL's is to others while it waits for another rank: blocks that do nothing and leave
 * no room on their multiprocessors, until they are told to go or have waited for twenty seconds.  Loaded by
 * waiting.h. */
extern "C" __global__ void __launch_bounds__(640) waiting(volatile int *go, volatile int *where) {
    if (threadIdx.x == 0) {
        unsigned long long t0, t = 0;
        int sm;
        asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
        where[blockIdx.x] = sm; /* it is here */
        __threadfence_system();
        asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t0));
        while (!*go && t < 20000000000ull) {
            __nanosleep(200);
            asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
            t -= t0;
        }
    }
    __syncthreads();
}
