/* shell_int.h - what the files of the shell reader share: the tree of a script, the state of evaluating it.
 *
 * As in the Jinja interpreter failure is a jump, and all values live in one Mem.  Values are C strings.  One that is
 * not known holds a mark: byte 1, a number, byte 2 (a script that has such bytes of its own is refused). */
#ifndef IMPORT_SHELL_INT_H
#define IMPORT_SHELL_INT_H

#include "import/shell.h"

#include <setjmp.h>
#include <string.h>

enum { SH_MARK = 1, SH_MARK_END = 2 };
enum {
    SH_MAX_DEPTH = 200, SH_MAX_STEPS = 100000, SH_MAX_WORDS = 50000, SH_MAX_VALUE = 1 << 20, SH_MAX_MEM = 64 << 20,
    SH_MAX_WORK = 50000000,
};

/* ---- the tree: words stay as they are written, quotes and all; expansion reads them */
typedef struct { const char *at, *end; int line; } Raw;
typedef struct { Raw *at; size_t n, cap; } Raws;

/* late: behind declare, local, export */
typedef struct { Raw name, value; Raws items; bool append, list, late; } ShAssign;
/* op: '<' '>' file, 'h' here-document, 's' here-string; plain: not expanded */
typedef struct { char op; int fd; Raw to; bool plain; } ShRedir;

typedef enum {
    SH_SIMPLE, SH_PIPE, SH_AND, SH_OR, SH_LIST, SH_IF, SH_FOR, SH_FOR_SUM, SH_WHILE, SH_CASE, SH_ARM, SH_GROUP,
    SH_SUBSHELL, SH_FUNCTION, SH_COND, SH_SUM,
} ShKind;

typedef struct ShNode ShNode;
struct ShNode {
    ShKind  kind;
    int     line;
    /* PIPE: "!"; FOR: has "in"; WHILE: until; LIST item: "&" behind it (on the item) */
    bool    flag;
    bool    behind;                  /* "&" */
    /* IF: condition, then, else; loops: condition, body; LIST, PIPE, CASE: a is the first of a chain */
    ShNode *a, *b, *c, *next;
    Raws    words;
    struct { ShAssign *at; size_t n, cap; } assigns;
    struct { ShRedir **at; size_t n, cap; } redirs;
};

/* ---- state */
typedef struct { const char **at; size_t n, cap; } Strs;
typedef struct { int *at; size_t n, cap; } Ints;
/* grows inside a Mem; always followed by a 0 */
typedef struct { char *at; size_t n, cap; } Text;

typedef struct { const char *key; int64_t index; const char *value; } ShElem;
/* elements are never changed in place */
typedef struct { const char *name; ShElem *at; size_t n; bool list, keyed, given; } ShVar;
typedef struct { const char *name; ShNode *body; } ShFunc;
typedef enum { FLOW_NONE, FLOW_BREAK, FLOW_CONTINUE, FLOW_RETURN, FLOW_EXIT } ShFlow;
/* give up; this shell ends; this line is dropped */
enum { JUMP_FAIL = 1, JUMP_EXIT, JUMP_LINE };
typedef struct ShEscape { jmp_buf at; struct ShEscape *outer; } ShEscape;

typedef struct { const char *name; bool was; ShVar old; } ShSaved;
typedef struct { struct { const char *name, *how; int line; bool read; } *at; size_t n, cap; } ShUses;

typedef struct Sh {
    Mem           *mem;
    const ShellIn *in;
    ShellOut      *out;
    Err           *err;
    ShEscape      *escape;
    /* what a subshell has its own copy of */
    struct { ShVar *at; size_t n, cap; } vars;
    struct { ShFunc *at; size_t n, cap; } funcs;
    struct { ShSaved *at; size_t n, cap; } saved;       /* values that `local` hides */
    size_t         locals;                              /* where this function's begin */
    Strs           params;
    const char    *cwd, *old_cwd;
    bool           errexit, nounset;
    /* ---- */
    int            status;                              /* -1: not known */
    ShFlow         flow;
    int            flow_n, line, depth, functions;
    int            asking;                              /* > 0 where a status is a question, not an end */
    int            inside;                              /* subshells around this one */
    int64_t        captures;                            /* $( ) so far */
    Text          *stdout_;                             /* NULL: nobody reads it */
    const char    *stdin_;                              /* what is left of it; NULL: not known */
    ShUses        *uses;                                /* of every variable that was set; one table for all shells */
    const char    *said;                                /* the last line that went to the terminal */
    int64_t        steps, work, assumed;                /* assumed: answers that were not known */
    struct { struct { const char *what; int line; } *at; size_t n, cap; } unknowns;
} Sh;

_Noreturn void sh_fail(Sh *sh, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
_Noreturn void sh_stop(Sh *sh, const char *fmt, ...) PRINTF_LIKE(2, 3);    /* this shell ends here, with a note */
void sh_note(Sh *sh, ShellNoteKind kind, int line, const char *fmt, ...) PRINTF_LIKE(4, 5);
void sh_spend(Sh *sh, int64_t work);                                       /* fails when a script wants too much */

void  sh_grow(Sh *sh, void *at, size_t *cap, size_t n, size_t each);        /* at: the address of the pointer */
#define SH_PUSH(sh, v, ...) \
    (sh_grow((sh), &(v).at, &(v).cap, (v).n + 1, sizeof *(v).at), (v).at[(v).n++] = (__VA_ARGS__))
void  sh_put(Sh *sh, Text *t, const char *s, size_t n);
static inline void sh_puts(Sh *sh, Text *t, const char *s) { sh_put(sh, t, s, strlen(s)); }
static inline const char *text_of(const Text *t) { return t->at ? t->at : ""; }
static inline bool raw_is(Raw r, const char *s) {
    return (size_t)(r.end - r.at) == strlen(s) && !memcmp(r.at, s, strlen(s));
}
const char *sh_raw(Sh *sh, Raw r);                                          /* a copy, for messages */

/* ---- unknown values */
const char *sh_unknown(Sh *sh, const char *what);                           /* a new mark */
static inline bool sh_is_unknown(const char *s) { return strchr(s, SH_MARK) != NULL; }
const char *sh_unknown_what(const Sh *sh, const char *s, int *line);        /* of the first mark in s */

/* ---- variables (shell_var.c) */
ShVar      *sh_find(Sh *sh, const char *name);                              /* NULL: not set */
const char *sh_get(Sh *sh, const char *name);                               /* NULL: not set; element 0 of an array */
ShVar      *sh_var(Sh *sh, const char *name);                               /* made if it is not there */
void        sh_set(Sh *sh, const char *name, const char *value);
/* key as evaluated; NULL: the scalar */
void        sh_set_at(Sh *sh, ShVar *v, const char *key, const char *value, bool append);
void        sh_set_list(Sh *sh, const char *name, const Strs *values);
void        sh_unset(Sh *sh, const char *name);
void        sh_unset_at(Sh *sh, ShVar *v, const char *key);
void        sh_local(Sh *sh, const char *name);                             /* hidden until the function returns */
void        sh_uses(Sh *sh, const char *name, const char *how, bool read);     /* how: NULL, or what it was set to */
void        sh_assign(Sh *sh, const ShAssign *a, bool local);
bool        sh_is_name(const char *s, size_t n);
const char *sh_path(Sh *sh, const char *path);                              /* absolute, "." and ".." taken out */

/* ---- shell_parse.c */
typedef struct {
    Sh         *sh;
    const char *at, *end, *counted;
    int         line, depth;
    struct { ShRedir **at; size_t n, cap; } waiting;                        /* here-documents whose bodies come later */
} ShParse;
ShParse sh_parse(Sh *sh, const char *text, size_t n, int line);
ShNode *sh_parse_line(ShParse *p);                                          /* NULL at the end */
/* Moves behind what begins at p->at: a quoted string, $..., `...`; anything else is one byte. */
void    sh_skip_part(ShParse *p, bool quoted);
/* length of "NAME=", "NAME+=" or "NAME[i]="; 0: is none */
size_t  sh_assign_ends(Raw word, bool *append);

/* ---- shell_word.c, shell_param.c */
typedef enum { EX_TEXT, EX_PATTERN, EX_REGEX } ExKind;
const char *sh_text(Sh *sh, Raw word, ExKind kind);                         /* one string, not split */
void        sh_words(Sh *sh, Strs *out, const Raw *words, size_t n, Ints *lines);   /* braces, expansion, splitting */
/* as between double quotes; quotes: more of them are taken off */
const char *sh_here(Sh *sh, Raw body, bool quotes);
typedef struct Ex Ex;
typedef enum { PUT_PLAIN, PUT_QUOTED, PUT_SPLIT } PutHow;
void ex_put(Ex *ex, const char *s, size_t n, PutHow how);
void ex_break(Ex *ex);                                                      /* the next field begins */
/* "$@" of nothing: these quotes make no field */
void ex_nothing(Ex *ex);
size_t ex_mark(const Ex *ex);
const char *ex_since(const Ex *ex, size_t mark);                            /* what was put into the field since */
void ex_walk(Ex *ex, const char *s, const char *end, int line, bool quoted, bool split);
const char *ex_tilde(Ex *ex, const char *s, const char *end);               /* puts HOME for a "~"; returns behind it */
Sh  *ex_shell(Ex *ex);
void sh_param(Ex *ex, const char *s, const char *end, bool quoted);         /* what stands in ${...} */
bool sh_match(Sh *sh, const char *pattern, const char *text, size_t n);     /* the whole text */
void sh_braces(Sh *sh, Raws *out, Raw word);

/* ---- shell_sum.c */
bool sh_sum(Sh *sh, const char *text, int64_t *out);                        /* false: it is not known */

/* ---- shell_eval.c */
void sh_eval(Sh *sh, const ShNode *n);
void sh_run_text(Sh *sh, const char *text, size_t n, int line);
const char *sh_capture(Sh *sh, const char *text, size_t n, int line);       /* $(text), by a shell of its own */
/* the status as an answer; an unknown one is no, and said */
bool sh_true(Sh *sh, const char *what);
void sh_command(Sh *sh, Strs *words, const int *lines, const ShNode *n);

/* ---- shell_builtin.c, shell_program.c, shell_test.c */
typedef int ShBuiltin(Sh *sh, Strs *words, const ShNode *n);                /* its status; -1: not known */
ShBuiltin *sh_builtin(const char *name);
ShBuiltin *sh_program(const char *name);
void       sh_say(Sh *sh, const char *s, size_t n);                          /* to standard output */
/* a line of it; unknown where one of the words is */
int        sh_answer(Sh *sh, const Strs *words, const char *text);
ShBuiltin  sh_not_known;
bool       sh_does_nothing(const char *name, bool *silent);                 /* taken to succeed without being run */
/* [ ... ] without the brackets: the status */
int        sh_test(Sh *sh, Strs *words);
int        sh_cond(Sh *sh, const Raws *words);                              /* [[ ... ]] */

#endif
