/* differs.c - a hone whose sampler computes something else than its trainer (build/shims/hone_differs):
 * PLANT=OP:ROWS:FROM spoils one number in the first output of that op (op_list.h), of calls with at most ROWS rows,
 * from its FROM-th call on; with :RANK behind it on that rank alone. */
#include "op/planted.h"

#include <stdlib.h>

static long rows, from, calls;
static void spoil_some(Tensor x) {
    if (x.rows <= rows && ++calls >= from) spoil_largest(x);
}

static bool here(const char *plant, char op[64]) {
    int rank = -1;
    const char *mine = getenv("OMPI_COMM_WORLD_RANK");
    CHECK(sscanf(plant, "%63[a-z0-9_]:%ld:%ld:%d", op, &rows, &from, &rank) >= 3, "PLANT=%s", plant);
    return rank < 0 || (mine && atoi(mine) == rank);
}

void __real_dev_open(Dev *d, DevOpts o);
void __wrap_dev_open(Dev *d, DevOpts o);
void __wrap_dev_open(Dev *d, DevOpts o) {
    static Ops faulty;
    const char *plant = getenv("PLANT");
    char op[64];
    __real_dev_open(d, o);
    if (!plant || !here(plant, op)) return;
    faulty = planted_ops(op, spoil_some);
    d->ops = &faulty;
}
