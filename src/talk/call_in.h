/* call_in.h - what the formats' readers share: see call.h. */
#ifndef TALK_CALL_IN_H
#define TALK_CALL_IN_H

#include "talk/call.h"

/* Reads on inside a section: bytes that were taken, or CALL_MORE: they cannot be told yet. */
#define CALL_MORE SIZE_MAX
typedef size_t CallStep(CallReader *r, Span rest);

typedef enum { UNKNOWN_TEXT, UNKNOWN_JSON } Untyped;        /* a value that the schema does not know */

struct ToolFormat {
    const char *name;
    CallStep *step;
    const char *open[2];        /* a section begins so */
    const char *close;          /* and ends so; NULL: the step knows */
    const char *call, *name_end, *call_end;       /* one call, its name's end, its own end */
    const char *key, *key_end, *value_end;        /* of XML: a parameter; of Gemma: the quote */
    Untyped untyped;
    bool line_values;           /* a value stands on lines of its own: a newline at either end is not its own */
    bool at_start;              /* a reply may begin with a call that no tag opens: then the step is asked first, with
                                 * r->section false, and returns 0 where none does */
    bool open_is_text;          /* a section that never ends is text */
    bool rest_is_text;          /* so is what follows a call */
    const char *marks[3];       /* a template with all of them writes calls so */
};

CallStep step_tagged_json, step_llama, step_mistral;                    /* call_json.c */
CallStep step_deepseek, step_kimi, step_harmony;                        /* call_tokens.c */
CallStep step_xml, step_glm;                                            /* call_xml.c */
CallStep step_gemma, step_pythonic;                                     /* call_code.c */

void call_add(CallReader *r, Span name, Json arguments, const char *id);
void call_broken(CallReader *r, Span name, const char *fmt, ...) PRINTF_LIKE(3, 4);
size_t call_enter(CallReader *r, size_t from, size_t used); /* a section begins at 'from' of what came */
size_t call_leave(CallReader *r, size_t used);              /* the section ends behind so many bytes */
void call_text(CallReader *r, Span s);                      /* it was text after all */

/* Where 'what' begins in rest, looked for once only as the text grows; CALL_MORE: not there yet. */
size_t call_find(CallReader *r, Span rest, const char *what);
/* The next call of a section, up to its end: bytes taken, CALL_MORE, or, with a body, one whole call.  A section that
 * ends gives no body. */
size_t call_next(CallReader *r, Span rest, Span *body);
size_t call_find_unquoted(CallReader *r, Span rest, const char *what);      /* outside of "strings" */
size_t call_balance(CallReader *r, Span rest);      /* where the {...} or [...] that rest begins with ends */

/* The whole of s as JSON; what is wrong with it is in r's Mem. */
bool call_json(CallReader *r, Span s, Json *out, const char **why);
void call_arguments(CallReader *r, Span name, Span s, const char *id);      /* s is the arguments, blank: none */
void call_object(CallReader *r, const Json *o);             /* {"name", "arguments"} or a list of them */

Json call_typed(CallReader *r, Span tool, Span key, Span text);             /* by the schema, else by r's format */
static inline Json json_text(CallReader *r, Span s) {
    return (Json){ .kind = JSON_STRING, .n = s.n, .str = mem_str(r->mem, s.at, s.n) };
}
void call_set(CallReader *r, Json *object, Span key, Json value);           /* of equal keys the last counts */

#endif
