/* open.c - a model's description, device and weights, opened in that order, if there is memory for them. */
#include "model/open.h"
#include "base/file.h"
#include "base/threads.h"
#include "op/device.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

/* A line "NAME:   123 kB" of a file of the kernel's, in bytes; 0 where there is none. */
static size_t kernel_says(const char *path, const char *name) {
    Buf b = { 0 };
    Err err;
    size_t kib = 0;
    const char *line = file_read(&b, path, &err) ? strstr(b.data, name) : NULL;
    if (line) sscanf(line + strlen(name), " %zu", &kib);
    buf_free(&b);
    return kib * 1024;
}

size_t memory_here(void) { return kernel_says("/proc/meminfo", "MemAvailable:"); }

MemoryUsed memory_used(void) {
    MemoryUsed m = { (double)kernel_says("/proc/self/status", "VmRSS:"),
                     (double)kernel_says("/proc/self/status", "VmHWM:") };
    struct rusage u;
    if (!m.peak && !getrusage(RUSAGE_SELF, &u)) m.peak = (double)u.ru_maxrss * 1024;
    return m;
}

size_t memory_free(const Dev *d) {
    DevAbout a = dev_about(d);
    return a.total ? a.free : memory_here();
}

bool needs_fit(const Need *need, int n, int host, double have, const char *where, Err *err) {
    double sum = 0; /* in double: the sum of parts that nobody has may not wrap */
    int largest = -1;
    for (int i = 0; i < n; i++) {
        if (host >= 0 && need[i].host != host) continue;
        sum += (double)need[i].bytes;
        if (largest < 0 || need[i].bytes > need[largest].bytes) largest = i;
    }
    if (have == 0 || sum <= have) return true;
    return err_set(
        err, "%.2f GB of %smemory are needed, %.2f GB are free: short by %.2f GB; the largest part is %s with %.2f GB",
        sum / 1e9, where, have / 1e9, (sum - have) / 1e9, need[largest].name, (double)need[largest].bytes / 1e9);
}

bool memory_fits(const Opened *o, const Need *need, int n, Err *err) {
    DevAbout a = dev_about(&o->dev);
    int sharers = o->ranks ? o->ranks->world.local_size : 1;
    double here = (double)memory_here() / sharers;
    const char *where = sharers > 1 ? "this rank's share of the machine's " : "";
    if (!a.total) return needs_fit(need, n, -1, here, where, err);
    return needs_fit(need, n, false, (double)a.free, "GPU ", err) && needs_fit(need, n, true, here, where, err);
}

/* What no GPU ran yet is not run on one unasked, and not where it is asked for either. */
static bool untried_on_cpu(const char **device, const char *family, Err *err) {
    if (device_is_gpu(*device)) return err_set(err, "%s models were not tried on a GPU yet: --device cpu", family);
    TRY(device_check(*device, NULL, err));
    if ((!*device || !strcmp(*device, "auto")) && speaks())
        fprintf(stderr, "hone: computing on the CPU: %s models were not tried on a GPU yet\n", family);
    *device = "cpu";
    return true;
}

static bool open_here(Opened *o, const char *path, const OpenOpts *opts, Err *err) {
    TRY(model_desc_load(&o->desc, path, &o->mem, err));
    if (!o->desc.arch->runs)
        return err_set(err, "%s: the family %s can be inspected and planned for, but not run by this build", path,
                       o->desc.arch->name);
    const char *device = opts->device;
    if (o->desc.arch->untried) TRY(untried_on_cpu(&device, o->desc.arch->name, err) || err_wrap(err, "%s", path));
    if (opts->adapter) {
        TRY(peft_open(&o->peft, &o->desc, opts->adapter, &o->mem, err));
        o->desc.adapter = &o->peft.desc;
    }
    int threads = opts->ranks ? ranks_threads(opts->ranks, opts->threads) : (int)opts->threads;
    DeviceArgs da = { .device = device,
                      .compute = opts->compute,
                      .threads = threads,
                      .guard = opts->guard,
                      .own_threads = opts->threads > 0,
                      .near = &o->near };
    if (opts->ranks) {
        const World *w = &opts->ranks->world;
        da.local = w->local_rank, da.ranks = w->local_size, da.share = opts->ranks->share_gpu;
        o->may = threads_default(), o->share = (int)sysconf(_SC_NPROCESSORS_ONLN) / w->local_size;
    }
    if (opts->sizes && device_is_gpu(device)) {
        DType act = opts->compute && !strcmp(opts->compute, "f32") ? DT_F32 : DT_BF16;
        TRY(dev_kind_cuda(&o->as, act, err));
        dev_open(&o->dev, (DevOpts){ .threads = threads });
        return o->dev.act = act, true;
    }
    return device_open(&o->dev, &da, err);
}

/* Its ops are those of the model, but nobody has seen them there. */
static bool adapter_here(Opened *o, Err *err) {
    if (!o->desc.adapter || !open_on_gpu(o)) return true;
    dev_close(&o->dev);
    return err_set(err, "an adapter was not tried on a GPU yet: --device cpu, or merge it (hone convert --merge)");
}

bool open_desc(Opened *o, const char *path, const OpenOpts *opts, Err *err) {
    *o = (Opened){ .ranks = opts->ranks };
    bool ok = open_here(o, path, opts, err) && adapter_here(o, err), here = ok;
    if (opts->ranks && ranks_count(opts->ranks) > 1)
        ok = ranks_agree(opts->ranks, ok, err) && ranks_device(opts->ranks, &o->dev, err);
    if (ok) return true;
    if (here) dev_close(&o->dev);
    mem_free(&o->mem);
    *o = (Opened){ 0 };
    return false;
}

Shard open_shard(const Opened *o) { return o->ranks ? o->ranks->shard : shard_whole(&o->desc); }

bool open_on_gpu(const Opened *o) { return o->as.ops || on_gpu(&o->dev); }

DevKind open_kind(const Opened *o, int64_t leaves) {
    DevKind k = o->as.ops ? o->as : dev_kind(&o->dev);
    Shard s = open_shard(o);
    int cut = s.g.tp > s.g.etp ? s.g.tp : s.g.etp;
    k.leaves = leaves ? (int)leaves : leaves_default(open_on_gpu(o), cut);
    return k;
}

bool open_weights(Opened *o, const OpenOpts *opts, size_t tmp_bytes, Err *err) {
    DType t = opts->trained ? opts->weights : o->dev.act == DT_BF16 ? DT_BF16 : open_disk_dtype(o, opts->random);
    Shard shard = open_shard(o);
    TRY(!o->desc.adapter || adapter_fits(o->desc.adapter, &shard.g, err));
    Par par = o->ranks ? o->ranks->groups : groups_self();
    size_t weights = params_bytes(&o->desc, &shard, t, false);
    if (o->desc.adapter) weights += params_bytes(o->desc.adapter, &shard, DT_F32, false);
    Need need[] = { { "weights", weights }, { "scratch", tmp_bytes }, { "the cache", opts->more } };
    TRY(opts->counted || memory_fits(o, need, COUNT(need), err));
    o->dev.tmp = dev_arena(&o->dev, "tmp", tmp_bytes);
    int leaves = open_kind(o, opts->leaves).leaves;
    if (opts->in.base) model_open_in(&o->model, &o->dev, &o->desc, &shard, &par, opts->in, t, leaves, &o->mem);
    else model_open_shard(&o->model, &o->dev, &o->desc, &shard, &par, t, leaves, &o->mem);
    o->has_model = true;
    return (opts->unfilled || open_fill(&o->model, opts->random, err))
           && (!o->peft.dir || peft_load(&o->model.lora, &o->dev, o->peft.dir, err));
}

DType open_disk_dtype(const Opened *o, RandomFill random) {
    return random.on ? params_config_dtype(&o->desc) : params_disk_dtype(o->desc.dir);
}

bool open_same(const Ranks *ranks, const Model *m, RandomFill random, Err *err) {
    if (ranks_count(ranks) == 1 || random.on) return true;
    return ranks_agree(ranks, params_same(&m->w, &ranks->groups, m->desc->dir, err), err);
}

bool open_fill(Model *m, RandomFill random, Err *err) {
    double std;
    if (!random.on) return model_load(m, m->desc->dir, err);
    if (!params_init_range(&std, m->desc, err)) return err_wrap(err, "%s", m->desc->dir);
    params_random(&m->w, m->dev, random.seed);
    return true;
}

void open_close(Opened *o) {
    if (o->has_model) model_close(&o->model);
    if (o->dev.threads) dev_close(&o->dev);
    mem_free(&o->mem);
}
