/* hydra.h - settings as Hydra's command line writes them: [+|++|~]key=value. */
#ifndef IMPORT_HYDRA_H
#define IMPORT_HYDRA_H

#include "config/table.h"

typedef struct {
    const char *key, *text;       /* text: the value as it was written */
    ConfValue   value;
    int         line;             /* of the script or the YAML file; 0: none */
    bool        removed;          /* "~key" */
    bool        whole;            /* from a whole configuration: what is off in it is no request */
} HydraSet;
/* freed with vec_free(at); strings live in mem */
typedef struct { HydraSet *at; size_t n, cap; } HydraSets;

/* One word; a value {a: 1, b: 2} gives a setting for each.  False: it is no setting. */
bool hydra_word(HydraSets *out, const char *word, int line, Mem *mem);
/* A YAML document: a mapping (every leaf is a setting) or a list of words. */
bool hydra_yaml(HydraSets *out, const char *text, size_t n, Mem *mem, Err *err);

#endif
