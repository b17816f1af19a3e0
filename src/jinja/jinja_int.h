/* jinja_int.h - what the files of the Jinja interpreter share: values, nodes, the state of one rendering.
 *
 * Failure inside the interpreter is a jump (j_fail never returns) to jinja_compile or jinja_render, which own all
 * memory: a hundred builtins stay as short as their Python models, and no allocation can be forgotten since values
 * live in one Mem. */
#ifndef JINJA_JINJA_INT_H
#define JINJA_JINJA_INT_H

#include "jinja/jinja.h"

#include <setjmp.h>
#include <string.h>

/* ---- values: Python's, immutable but for namespaces and the positions of generators, loops, cyclers and joiners */
typedef enum {
    V_MISSING, V_UNDEF, V_NONE, V_BOOL, V_INT, V_REAL, V_STR, V_LIST, V_TUPLE, V_DICT, V_RANGE, V_VIEW, V_GEN,
    V_NS, V_MACRO, V_LOOP, V_METHOD, V_FUNC, V_CYCLER, V_JOINER,
} Kind;

typedef struct Run Run;
typedef struct Node Node;
typedef struct Value Value;
struct Value {
    uint8_t kind;
    uint8_t sub;                     /* V_STR: 1 = Markup; V_UNDEF: 1 = SecurityError; V_TUPLE: 1 = of groupby;
                                      * V_VIEW: 'k', 'v', 'i' */
    size_t  n;                       /* bytes, items or pairs */
    union {
        bool                  b;
        int64_t               i;
        double                d;
        const char           *s;     /* V_STR, UTF-8; V_UNDEF: what to say when it is used */
        Value                *at;    /* V_LIST, V_TUPLE */
        struct Pair          *pairs; /* V_DICT, V_VIEW */
        struct Range         *range;
        struct Gen           *gen;   /* also V_CYCLER: at, n, pos */
        struct Ns            *ns;
        struct Macro         *macro;
        struct Loop          *loop;
        struct Bound         *bound; /* V_METHOD */
        const struct Builtin *fn;    /* V_FUNC */
    };
};
typedef struct Pair  { Value key, value; } Pair;
typedef struct Range { int64_t start, stop, step; } Range;
typedef struct Gen   { Value *at; size_t n, pos; const char *type; } Gen;      /* items are made at once, taken once */
typedef struct Ns    { Pair *pairs; size_t n, cap; } Ns;
typedef struct Loop  { Value *at; size_t n, i; Value changed; } Loop;

typedef struct { const char *s; size_t n; Value v; } Kw;
typedef struct { Value *at; size_t n; Kw *kw; size_t nkw; } Args;

/* A filter, test, method or function.  v holds the arguments named in spec ("old new count"), V_MISSING where not
 * given;
 * spec NULL: only a is looked at. */
typedef Value Fn(Run *r, Value self, const Value *v, const Args *a);
typedef struct Builtin { const char *name; Fn *fn; const char *spec; int need; } Builtin;
typedef struct Bound { Value self; const Builtin *fn; } Bound;
enum { MAX_PARAMS = 8 };

/* ---- the tree */
typedef enum {
    N_CONST, N_NAME, N_LIST, N_TUPLE, N_DICT, N_ATTR, N_ITEM, N_SLICE, N_CALL, N_FILTER, N_TEST, N_NOT,
    N_NEG, N_POS, N_BIN, N_CONCAT, N_CMP, N_AND, N_OR, N_COND, N_NSREF,
    S_DATA, S_OUT, S_FOR, S_IF, S_SET, S_SETBLOCK, S_MACRO, S_CALL, S_FILTER, S_WITH, S_GENERATION, S_BREAK, S_CONTINUE,
} NodeKind;

typedef struct { Node *e; const char *name; size_t n; int star; } Arg;          /* star 1: *e, 2: **e */
typedef struct { Node **at; size_t n, cap; } NodeList;

struct Node {
    uint8_t        kind, uses;       /* uses (macros): USES_* */
    int            op, line, id;     /* id: of the interned name */
    Node          *a, *b, *c;
    NodeList       list, body, other;
    Arg           *args;             /* calls: arguments; macros: parameters (e is the default or NULL) */
    size_t         nargs;
    int           *ids;              /* macros: the parameters' ids */
    Value          value;            /* constants, data, attribute names */
    const Builtin *fn;               /* filters, tests: NULL if there is none of that name */
};
enum { USES_CALLER = 1, USES_KWARGS = 2, USES_VARARGS = 4 };

struct Jinja {
    NodeList     body;
    const Value *names;              /* [n_names] strings by id */
    int          n_names, id_loop, id_caller, id_kwargs, id_varargs;
    bool         marks;              /* has a generation block */
};

enum { OP_POW = 256, OP_FLOORDIV, OP_EQ, OP_NE, OP_LE, OP_GE, OP_IN, OP_NOTIN };   /* others are their character */

/* ---- reading: text -> tokens -> tree */
typedef enum { T_EOF, T_DATA, T_BLOCK, T_BLOCK_END, T_VAR, T_VAR_END, T_NAME, T_STR, T_INT, T_REAL, T_OP } TokKind;
typedef struct { uint8_t kind; int op, line; const char *s; size_t n; int64_t i; double d; } Tok;
typedef struct {
    Mem    *mem;
    Err    *err;
    jmp_buf jump;
    int     line, depth, loops;
    bool    marks;
    uint8_t uses;
    VEC(Tok) tok;
    VEC(Value) names;
    Buf     brackets;                /* those that are open in the tag being read */
    size_t  at;
} Comp;

NORETURN void comp_fail(Comp *c, const char *fmt, ...) PRINTF_LIKE(2, 3);
void  jinja_lex(Comp *c, const char *text, size_t n);
void  comp_list(Comp *c, NodeList *l, Node *n);
Node *comp_node(Comp *c, int kind);
int   comp_name(Comp *c, const char *s, size_t n);
void  comp_nest(Comp *c, int by);
static inline Tok *comp_tok(Comp *c) { return &c->tok.at[c->at]; }
bool  tok_is(const Tok *t, int op);
bool  tok_named(const Tok *t, const char *name);
bool  comp_skip(Comp *c, int op);
bool  comp_skip_name(Comp *c, const char *name);
void  comp_expect(Comp *c, int op);
Tok  *comp_expect_name(Comp *c);
Node *parse_expr(Comp *c, bool cond);
Node *parse_tuple(Comp *c, bool cond, bool parens, const char *end);
Node *parse_target(Comp *c, bool namespaces, const char *end);
void  parse_call_args(Comp *c, Node *n);
Node *parse_filters(Comp *c, Node *n, bool first_is_bare);
Node *parse_primary(Comp *c);
Node *parse_postfix(Comp *c, Node *n);
void  parse_template(Comp *c, NodeList *out);

/* ---- one rendering */
typedef struct { int id; Value v; } Var;
typedef struct Scope { struct Scope *up; Var *at; size_t n, cap; bool kept; } Scope;
typedef struct Macro { const Node *node; Scope *scope; const char *name; size_t n; bool is_caller; } Macro;

struct Run {
    const Jinja *j;
    const Json  *vars;
    Mem          mem;
    size_t       used, max_bytes;
    uint64_t     steps, max_steps;
    int          depth, max_depth, line;
    Buf          out;                /* macros and set blocks take what they wrote off its end */
    JinjaSpans  *spans;              /* of generation blocks in it; or NULL */
    Scope       *scope;
    Value       *context;            /* [n_names] variables given from outside, converted when first used */
    jmp_buf      jump;
    Err         *err;
};

NORETURN void j_fail(Run *r, const char *type, const char *fmt, ...) PRINTF_LIKE(3, 4);
void  j_steps(Run *r, size_t cost);
void  j_enter(Run *r);               /* one level deeper, or fail */
static inline void j_leave(Run *r) { r->depth--; }
void *j_push(Run *r, size_t n, size_t each);
void  j_emit(Run *r, const char *s, size_t n);

/* strings under construction, in the rendering's memory */
typedef struct { Run *r; char *s; size_t n, cap; } Sb;
void  sb_put(Sb *b, const char *s, size_t n);
void  sb_puts(Sb *b, const char *s);
void  sb_char(Sb *b, uint32_t c);
void  sb_fill(Sb *b, uint32_t c, int64_t times);
void  sb_value(Sb *b, Value v);      /* str(v) */
void  sb_repr(Sb *b, Value v);
Value sb_done(Sb *b);

static inline Value v_of(Kind k) { return (Value){ .kind = (uint8_t)k }; }
static inline Value v_bool(bool b) { return (Value){ .kind = V_BOOL, .b = b }; }
static inline Value v_int(int64_t i) { return (Value){ .kind = V_INT, .i = i }; }
static inline Value v_real(double d) { return (Value){ .kind = V_REAL, .d = d }; }
static inline Value v_strn(const char *s, size_t n) { return (Value){ .kind = V_STR, .n = n, .s = s }; }
static inline Value v_cstr(const char *s) { return v_strn(s, strlen(s)); }
static inline Value v_list(Value *at, size_t n) { return (Value){ .kind = V_LIST, .n = n, .at = at }; }
static inline Value v_tuple(Value *at, size_t n) { return (Value){ .kind = V_TUPLE, .n = n, .at = at }; }
static inline bool  v_is_str(Value v, const char *s) {
    return v.kind == V_STR && v.n == strlen(s) && !memcmp(v.s, s, v.n);
}
static inline bool  v_whole(Value v) { return v.kind == V_INT || v.kind == V_BOOL; }
static inline bool  v_number(Value v) { return v_whole(v) || v.kind == V_REAL; }
static inline int64_t v_i(Value v) { return v.kind == V_BOOL ? v.b : v.i; }
static inline double  v_d(Value v) { return v.kind == V_REAL ? v.d : (double)v_i(v); }
static inline bool  v_given(Value v) { return v.kind != V_MISSING; }

Value v_undef(Run *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
Value v_gen(Run *r, const char *type, Value *at, size_t n);
const char *v_type(Value v);         /* Python's name of it */
NORETURN void j_undefined(Run *r, Value v);                       /* raises what using this undefined value raises */
bool  v_true(Run *r, Value v);
bool  v_eq(Run *r, Value a, Value b);
int   v_order(Run *r, Value a, Value b, const char *op);          /* -1, 0, 1; 2 when unordered (NaN) */
size_t v_len(Run *r, Value v);
bool  v_iterable(Value v);
Value v_items(Run *r, Value v);      /* a list with what iterating gives; takes a generator's */
Value v_str(Run *r, Value v);        /* str(v) */
Value v_from_json(Run *r, const Json *j);
Value *v_find(Run *r, Value dict, Value key);
void  v_check_hash(Run *r, Value v);
void  v_put_pair(Run *r, Pair *pairs, size_t *n, Value key, Value value);
void  put_real(Sb *b, double d);     /* repr of a float */

/* text by characters */
bool   ch_space(uint32_t c);
bool   ch_word(uint32_t c);
size_t s_len(Value s);
size_t s_offset(Value s, size_t chars);                           /* byte offset of that character, or n */
size_t s_strip_left(Value s, const Value *chars);                 /* bytes to leave out at the left end */
size_t s_strip_right(Value s, const Value *chars);                /* bytes that remain */
Value  s_case(Run *r, Value s, int how);              /* 'u', 'l', 't' (str.title), 'c' (capitalize), 's' (swapcase) */
Value  s_split_lines(Run *r, Value s, bool keep);
const char *s_find(const char *hay, size_t n, const char *needle, size_t m);
Value  s_replace(Run *r, Value s, Value from, Value to, int64_t count);
Value  s_escape(Run *r, Value s);

/* operators */
Value j_binary(Run *r, int op, Value a, Value b);
Value j_unary(Run *r, int op, Value a);
bool  j_compare(Run *r, int op, Value a, Value b);
Value j_attr(Run *r, Value o, Value name);
Value j_item(Run *r, Value o, Value key);
Value j_slice(Run *r, Value o, const Value part[3]);
Value j_call(Run *r, Value f, const Args *a);
Value j_apply(Run *r, const Builtin *fn, const char *what, Value self, const Args *a);
Value s_format(Run *r, Value fmt, const Args *a);                 /* str.format */
Value s_percent(Run *r, Value fmt, Value args);                   /* str % args */
Value j_tojson(Run *r, Value v, bool ascii, Value indent, Value separators, bool sort);
Value j_strftime(Run *r, Value fmt);
void  j_sort(Run *r, Value *keys, Value *items, size_t n, bool reverse);

const Builtin *find_builtin(const Builtin *table, size_t n, const char *s, size_t len);
const Builtin *jinja_filter(const char *s, size_t n);
const Builtin *jinja_list_filter(const char *s, size_t n);
const Builtin *jinja_test(const char *s, size_t n);
const Builtin *jinja_global(const char *s, size_t n);
const Builtin *jinja_method(Value o, const char *s, size_t n);

/* arguments with a type */
int64_t arg_int(Run *r, const Value *v, int64_t otherwise);
bool    arg_bool(Run *r, const Value *v, bool otherwise);
Value   arg_str(Run *r, const Value *v);

#endif
