/* machine.h - what a step runs on: one row per kind of GPU, and a cluster made of so many of them.
 *
 * Bytes, bytes per second and FLOP per second throughout; a rate is per GPU and per direction.  Vendor values, except
 * the two fractions (what products and attention reach of the peak) and `this`, which is measured on the spot. */
#ifndef PLAN_MACHINE_H
#define PLAN_MACHINE_H

#include "base/json.h"

typedef struct {
    const char *name;
    double flops, memory, bandwidth;         /* dense bf16 (this: float32), device memory, its bandwidth */
    double sms;                              /* multiprocessors (cores): what unfused small kernels scale with */
    double gemm, attn;                       /* fraction of flops that large products and attention reach */
    double nvlink, nic, pcie;                /* inside a domain, between domains, to the host */
    int    domain, per_node;                 /* GPUs joined by nvlink; GPUs of one host */
    double host_memory, host_bandwidth;      /* of one node */
    bool   is_cpu;                           /* device and host memory are the same memory */
    int    card;                             /* capability of its GPU, 90 is 9.0; 0: not known, or there is none */
} Machine;

typedef struct {
    Machine gpu;
    int     gpus;
    double  storage;                         /* of the file system that all nodes share, bytes a second in all;
                                              * 0: not known */
} Cluster;

static inline int cluster_nodes(const Cluster *c) { return (c->gpus + c->gpu.per_node - 1) / c->gpu.per_node; }

const Machine *machine_find(const char *name);       /* NULL: not in the table; H20, A100 mean the larger common one */
const Machine *machine_card(const char *card);       /* by the driver's name, "NVIDIA H200"; NULL: not in the table */
void           machine_list(Buf *out);               /* "H20-96, H20-141, ..." */
/* Whether the CUDA backend does not compute on such GPUs, and why: a plan may be asked for all the same. */
bool           machine_refused(const Machine *m, Buf *why);

/* This machine: float32 FMA peak on all cores, copy bandwidth, cores, RAM; takes about 0.3 s. */
void machine_measure(Machine *out);
double machine_flops(void);                          /* the first of them alone: no memory to speak of, 0.1 s */

/* "H20-96x96", "this", "thisx4" (four ranks on this machine), or the name of a file
 * (docs/plan.md, "Cluster files").  The error names what is unknown. */
bool cluster_parse(Cluster *out, const char *spec, Mem *mem, Err *err);
bool cluster_from_json(Cluster *out, const Json *j, Mem *mem, Err *err);

/* "1500GB", "1.5 TB", "96GiB", "400Gb/s" (bits), or plain bytes. */
bool size_parse(double *out, const char *text, Err *err);

#endif
