/* source.h - a model folder's files, checked against the table: where each parameter's bytes
 * lie and how to read them. */
#ifndef PARAM_SOURCE_H
#define PARAM_SOURCE_H

#include "arch/arch.h"
#include "file/safetensors.h"
#include "param/convert.h"

typedef struct {
    const ParamDesc *desc;
    int              layer, expert;
    Source           src;                   /* rows x cols of this one matrix */
    const StTensor  *st;
} SourceItem;

typedef struct {
    StFiles     files;
    SourceItem *at;                         /* in the order of arch_each_param */
    size_t      n;
    Mem         mem;
} Sources;

/* Every parameter is there with its shape and a format that can be read; nothing else is in the files but what is known
 * to be skipped: MTP layers (said on stderr), rotary buffers, a head that is tied. */
bool sources_open (Sources *s, const ModelDesc *m, const char *dir, Err *err);
void sources_close(Sources *s);
/* Element 'at' of it, as t, is not a finite number: says which it is and why that is refused; false. */
bool sources_not_finite(const Sources *s, const SourceItem *it, int64_t at, DType t, Err *err);

#endif
