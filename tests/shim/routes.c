/* routes.c - a hone that notes what its routers chose (build/shims/hone_routes): ROUTES=FILE, and each process appends
 * to FILE.PID a line a row and router: a hash of the router's numbers of that row, and one of the experts it went to.
 * Rows that are the same to the bit have one name, on whatever rank and beside whichever others they stood.  A step of
 * decoding over ranks fills up with rows of zeros (par.h: ep_tokens), which are no tokens: they are not noted. */
#include "op/op_fused.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void __real_op_route_sort(Dev *d, const Route *r, Tensor at, Tensor from, Tensor slot);
void __wrap_op_route_sort(Dev *d, const Route *r, Tensor at, Tensor from, Tensor slot);
void __real_op_route_swiglu(Dev *d, const Route *r, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x, Tensor from,
                            Tensor slot, Tensor wg, Tensor wu, Seqs ex, Leaves sum, Tensor next);
void __wrap_op_route_swiglu(Dev *d, const Route *r, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x, Tensor from,
                            Tensor slot, Tensor wg, Tensor wu, Seqs ex, Leaves sum, Tensor next);

static uint64_t hash_of(const void *x, size_t n) {
    uint64_t h = 0xCBF29CE484222325u;
    for (size_t i = 0; i < n; i++) h = (h ^ ((const uint8_t *)x)[i]) * 0x100000001B3u;
    return h;
}

static bool is_token(const float *logits, size_t experts) {
    for (size_t e = 0; e < experts; e++)
        if (logits[e] != 0) return true;
    return false;
}

static void note(Dev *d, const Route *r, const char *name) {
    char path[4096];
    Mem mem = { 0 };
    snprintf(path, sizeof path, "%s.%d", name, (int)getpid());
    FILE *f = fopen(path, "a");
    CHECK(f, "%s cannot be written", path);
    size_t experts = (size_t)r->logits.cols, k = (size_t)r->pick.cols;
    float *logits = MEM_ARRAY(&mem, float, (size_t)(r->logits.rows * r->logits.cols));
    int32_t *pick = MEM_ARRAY(&mem, int32_t, (size_t)(r->pick.rows * r->pick.cols));
    op_get(d, logits, r->logits);
    op_get(d, pick, r->pick);
    for (int64_t t = 0; t < r->pick.rows; t++) {
        const float *row = logits + (size_t)t * experts;
        if (is_token(row, experts))
            fprintf(f, "%016" PRIx64 " %016" PRIx64 "\n", hash_of(row, experts * sizeof *row),
                    hash_of(pick + (size_t)t * k, k * sizeof *pick));
    }
    CHECK(!fclose(f), "%s cannot be written", path);
    mem_free(&mem);
}

void __wrap_op_route_sort(Dev *d, const Route *r, Tensor at, Tensor from, Tensor slot) {
    const char *name = getenv("ROUTES");
    __real_op_route_sort(d, r, at, from, slot);
    if (name && d->ops != &ops_dry) note(d, r, name);
}
void __wrap_op_route_swiglu(Dev *d, const Route *r, Tensor h, Tensor gate, Tensor up, Tensor own, Tensor x, Tensor from,
                            Tensor slot, Tensor wg, Tensor wu, Seqs ex, Leaves sum, Tensor next) {
    const char *name = getenv("ROUTES");
    __real_op_route_swiglu(d, r, h, gate, up, own, x, from, slot, wg, wu, ex, sum, next);
    if (name && d->ops != &ops_dry) note(d, r, name);
}
