/* tool.h - what a conversation may call.  A tool answers any call with a text, also one that it cannot do: then the
 * text says why, for the model to read. */
#ifndef TOOL_TOOL_H
#define TOOL_TOOL_H

#include "talk/call.h"

typedef struct {
    const char *name;
    const char *schema;         /* {"name", "description", "parameters"} as JSON: what a template is told */
    /* appends the answer; false: it could not be done, and the answer says why */
    bool (*call)(const Json *arguments, Buf *answer);
} Tool;

typedef struct Tools Tools;
Tools      *tools_open(const char *const *names, int n, Err *err);  /* those that are built in; an error lists them */
void        tools_close(Tools *t);
const Json *tools_schemas(const Tools *t);          /* [{"type": "function", "function": schema}] */

/* Answers a call: broken ones, tools that are not there and arguments that do not fit are answered with the reason.
 * An answer of more than 'most' characters loses its middle.  false: the call failed. */
bool tools_call(const Tools *t, const ToolCall *c, int64_t most, Buf *answer);

/* The value of an expression of numbers, + - * / ^ and brackets, exactly: 3/8 is 0.375, 1/3 is 1/3. */
bool calculate(Span expression, Buf *answer);
extern const Tool tool_calculator;

#endif
