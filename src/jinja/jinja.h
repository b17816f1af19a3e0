/* jinja.h - chat templates: the Jinja language as transformers runs it, in C.
 *
 * The environment is transformers' one: immutable sandbox, trim_blocks and lstrip_blocks, break/continue, the
 * {% generation %} tag, its own tojson, raise_exception and strftime_now.  The text that comes out is that of Jinja2
 * byte for byte; where Jinja2 raises, this fails with the same kind and mostly the same words.
 * Known differences: whole numbers end at 64 bits (beyond is an error); what Python would print as a memory address (a
 * generator, a function) is an error; include, import, extends, block and recursive loops are refused; a generator's
 * items are made when it is, so that what they raise is raised there; and a variable that is given from outside, read
 * only inside loops or macros, and set at the top level later on, has its outside
 * value before that (in Jinja2 it has none). */
#ifndef JINJA_JINJA_H
#define JINJA_JINJA_H

#include "base/json.h"

typedef struct Jinja Jinja;

/* A template is untrusted text: it runs inside these.  0 means the default. */
typedef struct {
    uint64_t steps;          /* evaluated nodes, and bytes or items that a builtin walks over; 20 million */
    size_t   bytes;          /* all memory and output of one rendering; 256 MiB */
    int      depth;          /* nested expressions and macro calls; 400 */
} JinjaLimits;

/* The compiled template lives in mem and is read only: any number of threads may render it at once.  NULL on error.
 * The message is "TemplateSyntaxError: ..." with the line behind it; *line, if line is not NULL, gets the line
 * instead. */
Jinja *jinja_compile(const char *text, size_t n, Mem *mem, int *line, Err *err);

/* Appends the rendered text to out (nothing on failure).  vars is an object: the template's variables.  A string
 * "now" in it, like "2026-11-15T00:00:00", is the clock of strftime_now. limits may be NULL. */
bool jinja_render(const Jinja *j, const Json *vars, const JinjaLimits *limits, Buf *out, int *line, Err *err);

bool jinja_names(const Jinja *j, const char *name);     /* does a variable or function of that name stand in it? */
void jinja_clock(Buf *out);     /* appends the machine's clock here and now, to the second, as "now" wants it */
/* The same, with where the text of each {% generation %} block lies in what is appended, in their order.  One inside
 * another is a span of its own.  Fails where a block's text goes through a macro, a filter or a variable, which may
 * change it or leave it out: then nobody can say where it is. */
typedef struct { size_t from, to; } JinjaSpan;
typedef VEC(JinjaSpan) JinjaSpans;
bool jinja_render_spans(const Jinja *j, const Json *vars, const JinjaLimits *limits, Buf *out, JinjaSpans *spans,
                        int *line, Err *err);
bool jinja_marks(const Jinja *j);            /* the template has such a block */

#endif
