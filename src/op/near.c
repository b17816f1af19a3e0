/* near.c - where GPUs hang, as the driver names them to the system. */
#include "op/near.h"
#include "op/cuda_open.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The driver's library, found at run time; its numbers of GPUs are the runtime's. */
typedef struct {
    int (*init)(unsigned flags);
    int (*get)(int *device, int ordinal);
    int (*pci)(char *out, int room, int device);
} Driver;
static bool driver_open(Driver *d) {
    cuda_load_eagerly();
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!lib) return false;
    void *at[3] = { dlsym(lib, "cuInit"), dlsym(lib, "cuDeviceGet"), dlsym(lib, "cuDeviceGetPCIBusId") };
    memcpy(&d->init, &at[0], sizeof at[0]);
    memcpy(&d->get, &at[1], sizeof at[1]);
    memcpy(&d->pci, &at[2], sizeof at[2]);
    return d->init && d->get && d->pci && !d->init(0);
}

void near_bind_nodes(Near *out, const char *sysfs, const int *node, int which, int n) {
    Err err = { 0 };
    *out = (Near){ .known = node[which] >= 0 };
    if (!out->known) return;
    int socket = numa_socket(sysfs, node[which]), sharers = 0;
    for (int i = 0; i < n; i++)
        sharers += node[i] == node[which] || (node[i] >= 0 && socket >= 0 && numa_socket(sysfs, node[i]) == socket);
    out->done = numa_bind(&out->bound, sysfs, node[which], &err);
    if (!out->done) snprintf(out->why, sizeof out->why, "%.190s", err.msg);
    else out->threads = out->bound.cores / sharers > 1 ? out->bound.cores / sharers : 1;
}

void near_bind(Near *out, const char *sysfs, int gpu, int first, int n) {
    Driver d;
    Mem mem = { 0 };
    *out = (Near){ 0 };
    if (!driver_open(&d)) return;
    int *node = MEM_ARRAY(&mem, int, (size_t)n);
    for (int i = 0; i < n; i++) {
        char pci[32] = "";
        int device;
        bool named = !d.get(&device, first + i) && !d.pci(pci, sizeof pci, device);
        node[i] = named ? numa_of(sysfs, pci) : -1;
    }
    if (gpu >= first && gpu < first + n) near_bind_nodes(out, sysfs, node, gpu - first, n);
    mem_free(&mem);
}
