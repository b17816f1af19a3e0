/* device.c - the words for a device, and opening it. */
#include "op/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    bool cpu, gpu; /* allowed */
    int which;
    DType act;
} Wish;

static bool wish_of(Wish *w, const char *device, const char *compute, Err *err) {
    *w = (Wish){ .act = DT_BF16 };
    if (!device) device = "auto";
    if (!strcmp(device, "auto")) w->cpu = w->gpu = true;
    else if (!strcmp(device, "cpu")) w->cpu = true;
    else if (!strcmp(device, "cuda")) w->gpu = true;
    else if (!strncmp(device, "cuda:", 5) && device[5] >= '0' && device[5] <= '9') {
        char *end;
        long n = strtol(device + 5, &end, 10);
        if (*end || n > 1023) return err_set(err, "device '%s': GPUs are cuda:0, cuda:1, ...", device);
        w->gpu = true, w->which = (int)n;
    } else return err_set(err, "device '%s': auto, cpu, cuda or cuda:N wanted", device);
    if (compute && !strcmp(compute, "f32")) w->act = DT_F32;
    else if (compute && strcmp(compute, "bf16")) return err_set(err, "compute '%s': bf16 or f32 wanted", compute);
    if (!w->gpu && compute && w->act != DT_F32) return err_set(err, "compute 'bf16': the CPU computes in f32");
    return true;
}

bool device_check(const char *device, const char *compute, Err *err) {
    Wish w;
    return wish_of(&w, device, compute, err);
}

bool device_is_gpu(const char *device) {
    Wish w;
    Err err;
    return wish_of(&w, device, NULL, &err) && w.gpu && !w.cpu;
}

/* Ranks that share a machine, each with a GPU of its own: on its side of it.  Threads are the device's, so before it is
 * opened; as before where there is none. */
static bool open_near(Dev *d, CudaOpts *o, const DeviceArgs *a, int first, bool *absent, Err *err) {
    Mem mem = { 0 };
    NumaWas *was = a->near && a->ranks > 1 && !a->share ? numa_was(&mem) : NULL;
    int threads = o->threads;
    if (was) near_bind(a->near, "/sys", o->gpu, first, a->ranks);
    if (was && a->near->done && !a->own_threads) o->threads = a->near->threads;
    bool ok = dev_open_cuda(d, *o, absent, err);
    if (!ok && was && a->near->done) numa_back(was), *a->near = (Near){ 0 }, o->threads = threads;
    mem_free(&mem);
    return ok;
}

bool device_open(Dev *d, const DeviceArgs *a, Err *err) {
    Wish w;
    bool absent = true;
    TRY(wish_of(&w, a->device, a->compute, err));
    CudaOpts o = { .gpu = w.which + a->local, .threads = a->threads, .act = w.act };
    if (w.gpu && open_near(d, &o, a, w.which, &absent, err)) return true;
    if (w.gpu && absent && a->share && a->local) {
        o.gpu = w.which;
        if (dev_open_cuda(d, o, &absent, err)) return true;
    }
    if (!w.cpu || !absent) return err_wrap(err, "device %s", a->device ? a->device : "auto");
    bool card = !access("/dev/nvidiactl", F_OK); /* who has none misses nothing */
    if (w.gpu && card && speaks()) fprintf(stderr, "hone: computing on the CPU: %s\n", err->msg);
    dev_open(d, (DevOpts){ .threads = a->threads, .guard = a->guard });
    return true;
}
