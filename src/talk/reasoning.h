/* reasoning.h - what a model thought, apart from what it said: <think>..</think> and its kin, as the text comes. */
#ifndef TALK_REASONING_H
#define TALK_REASONING_H

#include "base/span.h"

typedef struct ReasoningFormat ReasoningFormat;
const ReasoningFormat *reasoning_named(const char *name);           /* NULL: there is none */
void                   reasoning_list(Buf *out);                    /* "qwen3, deepseek_r1, ..." */

/* By what the template prints.  prompt_end: the last bytes of a prompt: one that opened the thinking leaves it to the
 * model to close it.  NULL: it thinks in no way that is known here, and all is text. */
const ReasoningFormat *reasoning_of_template(Span text, Span prompt_end);

typedef struct {
    const ReasoningFormat *format;      /* NULL: all is text */
    Buf in, thinking, text;
    size_t at;
    int state;
    bool finished;
} ReasoningReader;

ReasoningReader reasoning_reader(const ReasoningFormat *f);
void reasoning_put(ReasoningReader *r, const char *text, size_t n);
void reasoning_end(ReasoningReader *r);     /* nothing comes any more: thinking and text are final */
void reasoning_free(ReasoningReader *r);

#endif
