/* call.h - calls of tools in what a model wrote: every published way of writing them, read as the text comes.
 *
 * The text is a turn without its end token, special tokens as they are spelled.  What is read does not depend on where
 * the pieces were cut: a decision is taken only where no later byte can change it, and else at the end.  A call without
 * its end is none.  A call that is broken is one with 'error': what is wrong, in words for the model.  Names of tools
 * that do not exist are handed on: who runs them knows. */
#ifndef TALK_CALL_H
#define TALK_CALL_H

#include "base/json.h"
#include "base/span.h"

/* A call: strings and values live in the reader's Mem. */
typedef struct {
    Span name;          /* "" where it cannot be read */
    Json arguments;     /* what stands there, typed by the tool's schema where the format has no types of its own;
                         * an object in a good call, which call_problem checks */
    const char *id;     /* where the format has ids (Kimi: functions.NAME:0); NULL */
    const char *error;  /* NULL: it could be read */
} ToolCall;

typedef struct ToolFormat ToolFormat;
const ToolFormat *tool_format_named(const char *name);          /* NULL: there is none */
const ToolFormat *tool_format_of_template(Span text);           /* by what the template prints; NULL: none is known */
const char       *tool_format_name(const ToolFormat *f);
void              tool_format_list(Buf *out);                   /* "hermes, qwen3_coder, ..." */

/* tools: [{"type": "function", "function": {"name", "parameters"}}] or NULL; both outlive the reader. */
typedef struct {
    const ToolFormat *format;
    const Json *tools;
    Mem *mem;
    Buf in, text;               /* all that came; what stood before the first call (gpt-oss: all that is no call) */
    VEC(ToolCall) calls;
    size_t at, from;            /* in 'in': read so far; where the section that is open began */
    size_t scan, depth;         /* of a value that is being looked through: how far, how many brackets are open */
    bool quoted, escaped;
    bool section, inside;       /* inside a section; inside one call of it */
    bool finished, closed;      /* the text is over; nothing counts any more */
    size_t calls_before;        /* of the section that is open */
} CallReader;

CallReader call_reader(const ToolFormat *f, const Json *tools, Mem *mem);
void call_put(CallReader *r, const char *text, size_t n);
void call_end(CallReader *r);                       /* nothing comes any more: then calls and text are final */
void call_free(CallReader *r);                      /* the buffers; calls live in mem */

/* Why this call cannot be made: what could not be read, a tool that is not there, arguments that are no object, one
 * that is required and missing.  NULL: it can. */
const char *call_problem(const ToolCall *c, const Json *tools, Mem *mem);
const Json *tool_schema(const Json *tools, Span name);          /* its "function" (or the object itself); NULL */

#endif
