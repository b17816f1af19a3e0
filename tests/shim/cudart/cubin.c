/* cubin.c - reads the ELF images in a fatbin: for each kernel NAME a section .text.NAME, its static shared memory's
 * size as .nv.shared.NAME, and attributes in .nv.info.NAME and .nv.info. */
#include "shim/cudart/cubin.h"

#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RESERVED = 1024 }; /* of a block's shared memory, by the system, which is no part of what a block may have */
/* of .nv.info: a word for each that has a payload (format 4), two bytes in place of its length for the others */
enum { PAYLOAD = 4, MAX_THREADS = 0x05, PARAM = 0x17, REGISTERS = 0x2f, CLUSTER = 0x3d };
typedef struct {
    uint8_t format, what;
    uint16_t value;
} Attribute;
typedef struct {
    uint32_t index;
    uint16_t ordinal, offset;
    uint32_t size; /* from bit 18 on */
} ParamInfo;

typedef struct {
    const char *base;
    const Elf64_Shdr *section;
    int sections;
    const char *names;
    const Elf64_Sym *symbol;
    const char *symbol_names;
} Image;
static const char *name_of(const Image *x, const Elf64_Shdr *s) { return x->names + s->sh_name; }
static const Elf64_Shdr *section(const Image *x, const char *prefix, const char *name) {
    size_t n = strlen(prefix);
    for (int i = 0; i < x->sections; i++) {
        const char *its = name_of(x, &x->section[i]);
        if (!strncmp(its, prefix, n) && !strcmp(its + n, name)) return &x->section[i];
    }
    return NULL;
}

typedef void Told(Kernel *k, const Image *x, const Attribute *a, const void *payload);
static void attributes(Kernel *k, const Image *x, const Elf64_Shdr *info, Told *told) {
    const char *at = info ? x->base + info->sh_offset : NULL, *end = info ? at + info->sh_size : NULL;
    while (at < end) {
        const Attribute *a = (const void *)at;
        at += sizeof *a;
        told(k, x, a, at);
        if (a->format == PAYLOAD) at += a->value;
    }
}
static void of_kernel(Kernel *k, const Image *x, const Attribute *a, const void *payload) {
    const ParamInfo *p = payload;
    (void)x;
    if (a->what == MAX_THREADS) {
        const uint32_t *n = payload;
        k->threads_most = n[0] * n[1] * n[2];
    }
    if (a->what == CLUSTER) memcpy(k->cluster, payload, sizeof k->cluster);
    if (a->what != PARAM) return;
    if (p->ordinal >= PARAMS_MOST) fprintf(stderr, "cudart shim: %s has too many parameters\n", k->name), abort();
    k->param[p->ordinal].at = p->offset, k->param[p->ordinal].bytes = p->size >> 18;
    if (p->ordinal >= k->params) k->params = p->ordinal + 1;
}
static void of_image(Kernel *k, const Image *x, const Attribute *a, const void *payload) {
    const uint32_t *n = payload; /* a symbol, registers */
    if (a->what != REGISTERS) return;
    if (!strcmp(x->symbol_names + x->symbol[n[0]].st_name, k->name)) k->registers = n[1];
}

static void image(const char *base, void (*found)(const Kernel *k)) {
    const Elf64_Ehdr *h = (const void *)base;
    Image x = { .base = base, .section = (const void *)(base + h->e_shoff), .sections = h->e_shnum };
    x.names = base + x.section[h->e_shstrndx].sh_offset;
    const Elf64_Shdr *symbols = section(&x, ".symtab", "");
    x.symbol = (const void *)(base + symbols->sh_offset);
    x.symbol_names = base + x.section[symbols->sh_link].sh_offset;
    for (int i = 0; i < x.sections; i++) {
        const char *name = name_of(&x, &x.section[i]);
        if (strncmp(name, ".text.", 6)) continue;
        Kernel k = { .name = name + 6 };
        const Elf64_Shdr *shared = section(&x, ".nv.shared.", k.name);
        if (shared && shared->sh_size > RESERVED) k.shared = (uint32_t)shared->sh_size - RESERVED;
        attributes(&k, &x, section(&x, ".nv.info.", k.name), of_kernel);
        attributes(&k, &x, section(&x, ".nv.info", ""), of_image);
        found(&k);
    }
}

typedef struct {
    uint32_t magic;
    uint16_t version, header;
    uint64_t bytes;
} Fatbin;
typedef struct {
    uint16_t kind, version;
    uint32_t header;
    uint64_t bytes;
} Entry;
void cubin_kernels(const void *fatbin, void (*found)(const Kernel *k)) {
    enum { MAGIC = (int)0xBA55ED50, CUBIN = 2 };
    const Fatbin *f = fatbin;
    const char *at = (const char *)fatbin + f->header, *end = at + f->bytes;
    if (f->magic != (uint32_t)MAGIC) fprintf(stderr, "cudart shim: no fatbin\n"), abort();
    while (at < end) {
        const Entry *e = (const void *)at;
        at += e->header;
        if (e->kind == CUBIN) {
            if (memcmp(at, ELFMAG, SELFMAG)) fprintf(stderr, "cudart shim: a cubin is packed\n"), abort();
            image(at, found);
        }
        at += e->bytes;
    }
}
