/* ptx.cuh - names for the Hopper instructions that products use: barriers, the copy engine, tensor cores. */
#ifndef OP_CUDA_PTX_CUH
#define OP_CUDA_PTX_CUH

#include "op/cuda/common/mma.cuh"

#include <cuda.h>

DEV uint32_t smem_of(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
DEV uint32_t cluster_rank() {
    uint32_t r;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}
DEV void cluster_sync() {
    asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

/* ---- what all lanes agree on ----------------------------------------------------------------------------------- */
/* Short steps of the tensor core wait for the instructions between them, unless operands' descriptors and counters are
 * in uniform registers.  The compiler puts them there if it sees that all lanes agree: branches and counts by what
 * lane 0 says, base addresses that are not made anew (pin). */
DEV uint32_t lane0(uint32_t x) { return __shfl_sync(~0u, x, 0); }
DEV void pin(uint32_t &x) { asm volatile("" : "+r"(x)); }
DEV bool elected() {                                            /* one lane of a warp whose branches are such */
    uint32_t yes;
    asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}" : "=r"(yes));
    return yes;
}

/* ---- mbarriers ------------------------------------------------------------------------------------------------- */
/* The unqualified forms: with .acquire and .release.cluster the main loop loses a quarter of its speed. */
DEV void bar_init(uint32_t b, int n) { asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(b), "r"(n)); }
DEV void bar_fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEV void bar_expect(uint32_t b, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(b), "r"(bytes) : "memory");
}
DEV void bar_arrive(uint32_t b) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(b) : "memory"); }
DEV void bar_arrive_at(uint32_t b, uint32_t cta) {              /* the same barrier in another block of the cluster */
    asm volatile("{\n.reg .b32 r;\nmapa.shared::cluster.u32 r, %0, %1;\nmbarrier.arrive.shared::cluster.b64 _, [r];\n}"
                 :: "r"(b), "r"(cta) : "memory");
}
DEV bool bar_try(uint32_t b, uint32_t phase) {
    uint32_t ok;
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
                 : "=r"(ok) : "r"(b), "r"(phase) : "memory");
    return ok;
}
/* A word to another block of the cluster, and that it is there. */
DEV void send_to(uint32_t at, uint32_t b, uint32_t cta, int word) {
    asm volatile("{\n.reg .b32 r, q;\nmapa.shared::cluster.u32 r, %0, %2;\nmapa.shared::cluster.u32 q, %1, %2;\n"
                 "st.shared::cluster.b32 [r], %3;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [q];\n}"
                 :: "r"(at), "r"(b), "r"(cta), "r"(word) : "memory");
}
DEV void put_word(uint32_t at, int x) { asm volatile("st.shared.b32 [%0], %1;" :: "r"(at), "r"(x) : "memory"); }
DEV int word_at(uint32_t at) {
    int x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(at) : "memory");
    return x;
}
DEV int word_of(uint32_t at, uint32_t cta) {                    /* another block's, from before a cluster_sync */
    int x;
    asm volatile("{\n.reg .b32 r;\nmapa.shared::cluster.u32 r, %1, %2;\nld.shared::cluster.b32 %0, [r];\n}"
                 : "=r"(x) : "r"(at), "r"(cta) : "memory");
    return x;
}
DEV void bar_wait_cluster(uint32_t b, uint32_t phase) {
    for (uint32_t ok = 0; !ok;)
        asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                     "selp.u32 %0, 1, 0, p;\n}"
                     : "=r"(ok) : "r"(b), "r"(phase) : "memory");
}
/* Seconds of waiting are a bug: trap, do not hang. */
DEV void bar_wait(uint32_t b, uint32_t phase) {
    if (bar_try(b, phase)) return;
    long long t0 = clock64();
    while (!bar_try(b, phase)) if (clock64() - t0 > 8000000000ll) __trap();
}
/* The same in one register, for who has no more (bar_wait's loop may make the compiler spill hundreds).  The clock's
 * upper half counts in some two seconds. */
DEV void bar_await(uint32_t b, uint32_t phase) {
    asm volatile("{\n.reg .pred p, q;\n.reg .u32 from, now;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\n"
                 "mov.u32 from, %%clock_hi;\nAGAIN:\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra DONE;\n"
                 "mov.u32 now, %%clock_hi;\nsub.u32 now, now, from;\nsetp.lt.u32 q, now, 3;\n@q bra AGAIN;\ntrap;\n"
                 "DONE:\n}"
                 :: "r"(b), "r"(phase) : "memory");
}

/* ---- tensor copies: coordinates are elements, innermost first -------------------------------------------------- */
DEV void tma_load(uint32_t to, const CUtensorMap *m, int c0, int c1, int c2, uint32_t bar) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4}], [%5];"
                 :: "r"(to), "l"(m), "r"(c0), "r"(c1), "r"(c2), "r"(bar) : "memory");
}
DEV void tma_load_all(uint32_t to, const CUtensorMap *m, int c0, int c1, int c2, uint32_t bar, uint16_t mask) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%2, %3, %4}], [%5], %6;"         /* to every block in mask */
                 :: "r"(to), "l"(m), "r"(c0), "r"(c1), "r"(c2), "r"(bar), "h"(mask) : "memory");
}
DEV void tma_store(const CUtensorMap *m, uint32_t from, int c0, int c1, int c2) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
                 :: "l"(m), "r"(from), "r"(c0), "r"(c1), "r"(c2) : "memory");
}
DEV void tma_prefetch(const CUtensorMap *m) { asm volatile("prefetch.tensormap [%0];" :: "l"(m) : "memory"); }
DEV void bulk_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template<int N> DEV void bulk_wait_read() { asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(N) : "memory"); }
template<int N> DEV void bulk_wait() { asm volatile("cp.async.bulk.wait_group %0;" :: "n"(N) : "memory"); }
/* before tensor cores or the copy engine read what was stored */
DEV void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ---- tensor cores ---------------------------------------------------------------------------------------------- */
DEV void wg_fence()  { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEV void wg_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template<int N> DEV void wg_wait() { asm volatile("wgmma.wait_group.sync.aligned %0;" :: "n"(N) : "memory"); }
template<int N> DEV void regs_up()   { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" :: "n"(N)); }
template<int N> DEV void regs_down() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" :: "n"(N)); }

/* An operand in shared memory, rows of 64 bf16 with the 128-byte swizzle.  K-major: rows are m (or n), groups of 8
 * rows 1024 bytes apart.  MN-major: rows are k, groups of 8 likewise, chunks of 64 columns 'chunk' bytes apart. */
DEV uint64_t operand(uint32_t addr, uint32_t chunk = 16) {
    return (uint64_t)((addr & 0x3ffff) >> 4) | (uint64_t)(chunk >> 4) << 16 | (uint64_t)(1024 >> 4) << 32
           | (uint64_t)1 << 62;
}
/* The same from its lower half: addresses count sixteens. */
DEV uint32_t low_operand(uint32_t addr) { return lane0((uint32_t)operand(addr)); }
DEV uint64_t operand_of(uint32_t low) { return (uint64_t)(1u << 30 | 1024 >> 4) << 32 | low; }
DEV void stmatrix4(uint32_t at, uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};"
                 :: "r"(at), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}
/* two floats in shared memory += a, b; first: they count as 0 */
DEV void add2(uint32_t at, float a, float b, bool first) {
    float x = 0, y = 0;
    if (!first) asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(x), "=f"(y) : "r"(at) : "memory");
    asm volatile("st.shared.v2.f32 [%0], {%1,%2};" :: "r"(at), "f"(x + a), "f"(y + b) : "memory");
}

#endif
