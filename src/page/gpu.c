/* gpu.c - NVML's few functions that a strip of numbers needs; opened once, in the process that serves pages alone. */
#include "page/gpu.h"
#include "base/json.h"

#include <dlfcn.h>
#include <string.h>

typedef struct {
    unsigned gpu, memory;
} Use; /* percent */
typedef struct {
    unsigned long long total, free, used;
} Memory; /* bytes */
typedef struct {
    bool tried, there;
    int (*count)(unsigned *);
    int (*at)(unsigned, void **);
    int (*name)(void *, char *, unsigned);
    int (*use)(void *, Use *);
    int (*memory)(void *, Memory *);
    int (*celsius)(void *, int, unsigned *);
    int (*milliwatts)(void *, unsigned *);
} Nvml;

static bool find(void *lib, const char *name, void *to) {
    void *f = dlsym(lib, name);
    memcpy(to, &f, sizeof f);
    return f != NULL;
}

static void open_library(Nvml *n) {
    n->tried = true;
    int (*init)(void);
    void *lib = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    n->there = lib && find(lib, "nvmlInit_v2", &init) && find(lib, "nvmlDeviceGetCount_v2", &n->count)
               && find(lib, "nvmlDeviceGetHandleByIndex_v2", &n->at) && find(lib, "nvmlDeviceGetName", &n->name)
               && find(lib, "nvmlDeviceGetUtilizationRates", &n->use)
               && find(lib, "nvmlDeviceGetMemoryInfo", &n->memory) && find(lib, "nvmlDeviceGetTemperature", &n->celsius)
               && find(lib, "nvmlDeviceGetPowerUsage", &n->milliwatts) && init() == 0;
}

void gpu_put(Buf *out) {
    static Nvml n; /* a driver's handle */
    enum { MOST = 64 };
    unsigned gpus = 0;
    if (!n.tried) open_library(&n);
    if (n.there && n.count(&gpus)) gpus = 0;
    buf_putc(out, '[');
    for (unsigned i = 0, told = 0; i < gpus && i < MOST; i++) {
        void *gpu;
        char name[96] = "";
        Use use = { 0 };
        Memory m = { 0 };
        unsigned celsius = 0, milliwatts = 0;
        if (n.at(i, &gpu)) continue;
        n.name(gpu, name, sizeof name - 1), n.use(gpu, &use), n.memory(gpu, &m);
        n.celsius(gpu, 0, &celsius), n.milliwatts(gpu, &milliwatts);
        buf_puts(out, told++ ? ",{\"name\":" : "{\"name\":");
        json_put_str(out, name, strlen(name));
        buf_printf(out, ",\"use\":%.2f,\"memory\":%.4f,\"memory_bytes\":%llu,\"celsius\":%u,\"watts\":%.0f}",
                   use.gpu / 100.0, m.total ? (double)m.used / (double)m.total : 0, m.total, celsius,
                   milliwatts / 1000.0);
    }
    buf_putc(out, ']');
}
