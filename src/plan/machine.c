/* machine.c - the table of machines, and the reading of "H20-96x96", sizes and cluster files. */
#include "plan/machine.h"

#include "base/file.h"
#include "base/yaml.h"
#include "op/cuda_open.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define T 1e12
#define G 1e9

/* The fractions: 0.92 on H20 is what dense 7B-14B training shows there (MFU 0.83 in all); 0.78 on the H200 is measured
 * with random data (769-798 of 989); the others are set beside them.  nic is one 400 Gb/s (A100: 200) port per GPU. */
/* clang-format off */
static const Machine TABLE[] = {
    /* name       flops    memory   bandw.   sms  gemm  attn  nvlink  nic   pcie  domain node host mem  host bw
       cpu, capability */
    { "H20-96",   148 * T,  96 * G, 4.0 * T,  78, 0.92, 0.75, 450 * G, 50 * G,  50 * G,  8, 8, 2.0 * T, 430 * G,
      false, 90 },
    { "H20-141",  148 * T, 141 * G, 4.8 * T,  78, 0.92, 0.75, 450 * G, 50 * G,  50 * G,  8, 8, 2.0 * T, 430 * G,
      false, 90 },
    { "H100",     989 * T,  80 * G, 3.35 * T, 132, 0.70, 0.58, 450 * G, 50 * G,  50 * G,  8, 8, 2.0 * T, 430 * G,
      false, 90 },
    { "H200",     989 * T, 141 * G, 4.8 * T, 132, 0.78, 0.58, 450 * G, 50 * G,  50 * G,  8, 8, 2.0 * T, 430 * G,
      false, 90 },
    { "H800",     989 * T,  80 * G, 3.35 * T, 132, 0.70, 0.56, 200 * G, 50 * G,  50 * G,  8, 8, 2.0 * T, 430 * G,
      false, 90 },
    { "A100-80",  312 * T,  80 * G, 2.04 * T, 108, 0.80, 0.60, 300 * G, 25 * G,  25 * G,  8, 8, 1.0 * T, 286 * G,
      false, 80 },
    { "A100-40",  312 * T,  40 * G, 1.55 * T, 108, 0.80, 0.60, 300 * G, 25 * G,  25 * G,  8, 8, 1.0 * T, 286 * G,
      false, 80 },
    { "B200",    2250 * T, 180 * G, 7.7 * T, 148, 0.72, 0.50, 900 * G, 50 * G,  50 * G,  8, 8, 2.0 * T, 430 * G,
      false, 100 },
    { "GB200",   2500 * T, 186 * G, 8.0 * T, 152, 0.72, 0.50, 900 * G, 50 * G, 400 * G, 72, 4, 0.96 * T, 720 * G,
      false, 100 },
};
/* clang-format on */

static const struct {
    const char *alias, *name;
} ALIASES[] = {
    { "H20", "H20-96" },   { "A100", "A100-80" }, { "H20-3e", "H20-141" },
    { "H100-80", "H100" }, { "H800-80", "H800" }, { "H200-141", "H200" },
};

const Machine *machine_find(const char *name) {
    for (size_t i = 0; i < COUNT(ALIASES); i++)
        if (!strcasecmp(name, ALIASES[i].alias)) name = ALIASES[i].name;
    for (size_t i = 0; i < COUNT(TABLE); i++)
        if (!strcasecmp(name, TABLE[i].name)) return &TABLE[i];
    return NULL;
}

/* Words of a driver's name: "NVIDIA H100 80GB HBM3".  PCIe and NVL cards of a name are slower ones, which the table has
 * not. */
const Machine *machine_card(const char *card) {
    const Machine *found = NULL;
    char word[64];
    for (const char *s = card; *s;) {
        size_t n = strcspn(s, " -");
        snprintf(word, sizeof word, "%.*s", (int)n, s);
        if (!strcasecmp(word, "PCIe") || !strcasecmp(word, "NVL")) return NULL;
        if (n && !found) found = machine_find(word);
        s += n + (s[n] != 0);
    }
    return found;
}

void machine_list(Buf *out) {
    for (size_t i = 0; i < COUNT(TABLE); i++) buf_printf(out, "%s, ", TABLE[i].name);
    buf_puts(out, "this");
}

bool machine_refused(const Machine *m, Buf *why) {
    if (m->is_cpu || m->card == CUDA_CARD) return false;
    buf_printf(why, "its CUDA backend takes cards of capability %d.%d alone (", CUDA_CARD / 10, CUDA_CARD % 10);
    for (size_t i = 0, n = 0; i < COUNT(TABLE); i++)
        if (TABLE[i].card == CUDA_CARD) buf_printf(why, "%s%s", n++ ? ", " : "", TABLE[i].name);
    if (m->card) buf_printf(why, "); %s has %d.%d", m->name, m->card / 10, m->card % 10);
    else buf_printf(why, "); of %s none is known", m->name);
    return true;
}

bool size_parse(double *out, const char *text, Err *err) {
    static const struct {
        const char *unit;
        double times;
    } UNITS[] = {
        { "", 1 },         { "B", 1 },        { "kB", 1e3 },      { "KB", 1e3 },     { "MB", 1e6 },
        { "GB", 1e9 },     { "TB", 1e12 },    { "KiB", 0x1p10 },  { "MiB", 0x1p20 }, { "GiB", 0x1p30 },
        { "TiB", 0x1p40 }, { "Gb", 1e9 / 8 }, { "Tb", 1e12 / 8 }, { "GFLOP", 1e9 },  { "TFLOP", 1e12 },
        { "PFLOP", 1e15 }, { "k", 1e3 },      { "M", 1e6 },       { "G", 1e9 },      { "T", 1e12 },
    };
    char *end;
    double x = strtod(text, &end);
    if (end != text && isfinite(x) && x >= 0) {
        while (*end == ' ') end++;
        size_t n = strlen(end);
        if (n > 2 && !strcmp(end + n - 2, "/s")) n -= 2;
        for (size_t i = 0; i < COUNT(UNITS); i++)
            if (strlen(UNITS[i].unit) == n && !strncmp(end, UNITS[i].unit, n)) {
                *out = x * UNITS[i].times;
                return true;
            }
    }
    return err_set(err, "'%s' is not a size: write 1500GB, 1.5TB, 96GiB or a number of bytes", text);
}

static bool unknown_machine(const char *name, Err *err) {
    Buf b = { 0 };
    machine_list(&b);
    err_set(err, "no machine is called '%s'; known: %s; or give a file that describes the cluster (docs/plan.md)", name,
            b.data);
    buf_free(&b);
    return false;
}

/* One number of a cluster file: 96GB as text, or bytes as a number. */
static bool get_size(const Json *j, const char *key, double *to, Err *err) {
    const Json *v = json_get(j, key);
    if (!v || v->kind == JSON_NULL) return true;
    if (v->kind == JSON_STRING) {
        if (!size_parse(to, v->str, err)) return err_wrap(err, "%s", key);
    } else if (v->kind == JSON_INT || v->kind == JSON_REAL) {
        *to = json_number(v);
    } else {
        return err_set(err, "%s must be a size, not %s", key, json_kind_name(v->kind));
    }
    if (!(*to > 0)) return err_set(err, "%s must be more than 0", key);
    return true;
}

static const char *const INTS[] = { "gpus", "gpus_per_node", "domain" };
static const struct {
    const char *key;
    size_t at;
} SIZES[] = {
    { "flops", offsetof(Machine, flops) },
    { "memory", offsetof(Machine, memory) },
    { "bandwidth", offsetof(Machine, bandwidth) },
    { "sms", offsetof(Machine, sms) },
    { "gemm_fraction", offsetof(Machine, gemm) },
    { "attention_fraction", offsetof(Machine, attn) },
    { "nvlink", offsetof(Machine, nvlink) },
    { "nic", offsetof(Machine, nic) },
    { "pcie", offsetof(Machine, pcie) },
    { "host_memory", offsetof(Machine, host_memory) },
    { "host_bandwidth", offsetof(Machine, host_bandwidth) },
};

static bool known_keys(const Json *j, Err *err) {
    for (size_t i = 0; i < j->n; i++) {
        const char *k = j->members[i].key;
        bool ok = !strcmp(k, "type") || !strcmp(k, "name") || !strcmp(k, "storage") || !strcmp(k, "found");
        for (size_t n = 0; n < COUNT(INTS); n++) ok |= !strcmp(k, INTS[n]);
        for (size_t n = 0; n < COUNT(SIZES); n++) ok |= !strcmp(k, SIZES[n].key);
        if (!ok) return err_set(err, "a cluster file has no key '%s' (docs/plan.md lists them)", k);
    }
    return true;
}

/* The machine a file starts from. */
static bool read_type(Machine *out, const Json *j, Mem *mem, Err *err) {
    const char *type = NULL, *name = NULL;
    TRY(json_str(j, "type", &type, err) && json_str(j, "name", &name, err));
    if (!type)
        return err_set(err, "the key type is missing: a machine of the table, or 'custom' with every rate given");
    const Machine *known = machine_find(type);
    if (known) *out = *known;
    else if (!strcmp(type, "this")) machine_measure(out);
    else if (!strcmp(type, "custom"))
        *out = (Machine){ .name = "custom", .gemm = 0.75, .attn = 0.6, .domain = 8, .per_node = 8 };
    else return unknown_machine(type, err);
    if (name) out->name = mem_str(mem, name, strlen(name));
    return true;
}

/* A node of another size is its own NVLink domain too, unless the machine's domains are racks, or the file says so. */
static bool read_counts(Cluster *out, const Json *j, Err *err) {
    int64_t n[COUNT(INTS)] = { 0, out->gpu.per_node, 0 };
    for (size_t i = 0; i < COUNT(INTS); i++) TRY(json_int(j, INTS[i], &n[i], err));
    bool rack = out->gpu.domain > out->gpu.per_node;
    if (n[2] == 0) n[2] = json_get(j, "gpus_per_node") && !rack ? n[1] : out->gpu.domain;
    for (size_t i = 0; i < COUNT(INTS); i++)
        if (n[i] < 1 || n[i] > 1 << 20) return err_set(err, "%s must be a whole number from 1 to 1048576", INTS[i]);
    out->gpus = (int)n[0], out->gpu.per_node = (int)n[1], out->gpu.domain = (int)n[2];
    return true;
}

/* A rank of n on this machine: they share its cores and its memory, and talk through it. */
static void share_this(Machine *m, int n) {
    double *const parts[] = { &m->flops, &m->memory, &m->bandwidth, &m->nvlink };
    m->nvlink = m->bandwidth / 2; /* a message is read and written */
    for (size_t i = 0; i < COUNT(parts); i++) *parts[i] /= n;
    m->sms = m->sms > n ? m->sms / n : 1;
    m->domain = m->per_node = n;
}

bool cluster_from_json(Cluster *out, const Json *j, Mem *mem, Err *err) {
    if (j->kind != JSON_OBJECT) return err_set(err, "a cluster file is a mapping with the keys type and gpus");
    TRY(known_keys(j, err) && read_type(&out->gpu, j, mem, err) && read_counts(out, j, err));
    if (out->gpu.is_cpu) share_this(&out->gpu, out->gpu.per_node);
    for (size_t i = 0; i < COUNT(SIZES); i++) {
        double *at = (double *)(void *)((char *)&out->gpu + SIZES[i].at);
        TRY(get_size(j, SIZES[i].key, at, err));
        if (!(*at > 0)) return err_set(err, "the key %s is missing", SIZES[i].key);
    }
    TRY(get_size(j, "storage", &out->storage, err));
    if (out->gpu.gemm > 1 || out->gpu.attn > 1)
        return err_set(err, "gemm_fraction %g and attention_fraction %g are shares of flops: at most 1", out->gpu.gemm,
                       out->gpu.attn);
    return true;
}

static bool cluster_from_file(Cluster *out, const char *path, Mem *mem, Err *err) {
    Buf text = { 0 };
    Json j;
    bool ok = file_read(&text, path, err) && yaml_parse(&j, text.data ? text.data : "", text.n, mem, err)
              && cluster_from_json(out, &j, mem, err);
    buf_free(&text);
    return ok || err_wrap(err, "%s", path);
}

bool cluster_parse(Cluster *out, const char *spec, Mem *mem, Err *err) {
    out->storage = 0;
    if (!strcmp(spec, "this")) {
        machine_measure(&out->gpu);
        out->gpus = 1;
        return true;
    }
    if (strchr(spec, '/') || strstr(spec, ".yaml") || strstr(spec, ".json") || strstr(spec, ".yml"))
        return cluster_from_file(out, spec, mem, err);
    const char *x = strrchr(spec, 'x');
    char *end = NULL;
    long n = x && isdigit((unsigned char)x[1]) ? strtol(x + 1, &end, 10) : 0;
    if (!end || *end) {
        if (machine_find(spec)) return err_set(err, "how many? write --cluster %sx96", spec);
        return unknown_machine(spec, err);
    }
    if (n < 1 || n > 1 << 20) return err_set(err, "%s: the number of GPUs must lie between 1 and 1048576", spec);
    char *name = mem_str(mem, spec, (size_t)(x - spec));
    const Machine *m = machine_find(name);
    bool here = !strcmp(name, "this");
    if (!m && !here) return unknown_machine(name, err);
    if (here) machine_measure(&out->gpu), share_this(&out->gpu, (int)n);
    else out->gpu = *m;
    out->gpus = (int)n;
    return true;
}
