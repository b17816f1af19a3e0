/* merge.h - an adapter added into the weights it is for: W + s B A, summed in double and rounded once. */
#ifndef PARAM_MERGE_H
#define PARAM_MERGE_H

#include "param/peft.h"
#include "param/source.h"

typedef struct Merge {
    Peft    peft;
    StFiles file;
    Mem     mem, one;               /* one: of the matrix that is at hand */
    const SourceItem *item;
    float  *a, *b;                  /* [r,in] [out,r]; NULL: it has none */
    int64_t rank;
    float   scale;
} Merge;

bool merge_open (Merge *g, const ModelDesc *m, const char *adapter, Err *err);
void merge_close(Merge *g);
bool merge_has  (Merge *g, const SourceItem *item);                         /* and makes it the one at hand */
/* Elements from .. from+n of the matrix at hand, row-major, added to x. */
void merge_add  (const Merge *g, float *x, int64_t from, int64_t n);

#endif
