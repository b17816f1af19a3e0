/* mathx.h - inside math_exact: answers as mathematics, compared by exact arithmetic.  Text -> tokens
 * (mathx_lex) -> tree (mathx_parse) -> fraction of polynomials with rational coefficients (mathx_poly,
 * mathx_root, mathx_eval) -> the same or not (mathx_same).
 *
 * The letters of a polynomial are atoms: symbols, pi, e, i, roots of primes, functions of something.  A monomial's
 * exponents are rational; of a prime they are kept in [0,1), the rest goes into the coefficient.  Such products of
 * roots are independent over the rationals, so a polynomial is zero only if it has no terms.
 *
 * Everything is bounded: bytes, tokens, depth, terms, digits, and a count of multiplications.  What goes beyond sets
 * `beyond` and has no value; answers without a value are compared as text. */
#ifndef MATHS_MATHX_H
#define MATHS_MATHX_H

#include "base/span.h"

#include <gmp.h>

enum {
    MX_BYTES = 4000, MX_TOKENS = 1500, MX_DEPTH = 40,    /* of an answer */
    MX_TERMS = 400, MX_BITS = 20000, MX_WORK = 40000,    /* of a polynomial, a coefficient, a comparison */
    MX_EXPONENT = 100000,                                /* of an atom, numerator and denominator */
};

/* ---- Trees */
typedef enum {
    N_NUM, N_SYM, N_NEG, N_ADD, N_SUB, N_MUL, N_DIV, N_POW, N_PM, N_MP, N_FUNC, N_PERCENT, N_BASE,     /* expressions */
    N_SIGNED,                                            /* its kid with every +- read as op */
    N_LIST, N_TUPLE, N_SET, N_UNION, N_SETOP, N_MATRIX, N_REL, N_TEXT
} NodeKind;

typedef struct Node Node;
struct Node {
    NodeKind kind;
    Span     name;          /* N_SYM, N_FUNC, N_TEXT, N_SETOP */
    mpq_ptr  num;           /* N_NUM */
    int      n, rows, op;   /* kids; N_MATRIX; N_SIGNED */
    Node   **kid;
    char     open, close;   /* N_TUPLE: ( [ ) ] */
    const char *ops;        /* N_REL [n-1]: '=', '<', '>', 'l' (<=), 'g' (>=), '!' (not equal), 'e' (element of), '~' */
};

typedef enum { T_END, T_NUM, T_SYM, T_FUNC, T_CMD, T_TEXT, T_UNIT, T_CHAR } TokenKind;
typedef struct {
    TokenKind kind;
    Span      name;               /* without the backslash */
    mpq_ptr   num;
    char      c;                  /* T_CHAR: + - * / ^ _ ( ) [ ] { } | , : = < > l g ! ~ e % U (cup) P (+-) M (-+) & n
                                     (\\) < and > also as brackets; 'L' 'R' are \{ \} */
    bool      spaced, integer;    /* white space before it; T_NUM: written without point */
} Token;

/* ---- Polynomials */
typedef struct { int32_t atom, num, den; } Factor;
typedef struct { mpq_ptr c; int n; Factor *f; } Term;
typedef struct { int n; Term *t; } Poly;                 /* ordered, no term twice, none zero */
typedef struct { Poly num, den; } Frac;

typedef enum { A_SYM, A_PRIME, A_I, A_BASE, A_FN } AtomKind;
typedef struct {
    AtomKind kind;
    Span     name;                /* A_SYM; A_FN: of the function, "^" for a power with symbols in the exponent */
    mpq_ptr  prime;               /* A_PRIME */
    Poly     base;                /* A_BASE: what it is the root of */
    Frac     arg[2];              /* A_FN */
    int      n_args, partner;     /* sin: its cos */
} Atom;

/* One comparison: it owns everything that comes up in it. */
typedef struct Mx {
    Mem  mem;
    VEC(mpq_ptr) nums;
    VEC(Atom) atoms;
    int  work, depth, sign;       /* sign: how +- is read now */
    bool beyond;
} Mx;

void    mx_free(Mx *m);
mpq_ptr mx_num(Mx *m);                                   /* 0 */
mpq_ptr mx_int(Mx *m, long x);
bool    mx_spend(Mx *m, int work);                       /* false, and beyond, when there is none left */

bool    mx_lex(Mx *m, Span text, Token **out, int *n);
Node   *mx_parse(Mx *m, Span text, Span *unit);          /* NULL: not mathematics that is known here */
Node   *mx_node(Mx *m, NodeKind kind, int n);
bool    mx_is_unit(Span word, Span *canonical);

Poly    poly_const(Mx *m, mpq_srcptr c);
Poly    poly_atom(Mx *m, int atom, int32_t num, int32_t den);
Poly    poly_add(Mx *m, Poly a, Poly b);
Poly    poly_scale(Mx *m, Poly a, mpq_srcptr c);
Poly    poly_mul(Mx *m, Poly a, Poly b);
Poly    poly_pow(Mx *m, Poly a, unsigned long e);
bool    poly_same(Poly a, Poly b);
bool    poly_is_const(Poly a, mpq_ptr *c);               /* *c is NULL for 0 */
int     term_order(const Term *a, const Term *b);

Frac    frac_of(Mx *m, Poly p);
Frac    frac_add(Mx *m, Frac a, Frac b);
Frac    frac_mul(Mx *m, Frac a, Frac b);
Frac    frac_div(Mx *m, Frac a, Frac b);                 /* beyond when b is 0 */
Frac    frac_neg(Mx *m, Frac a);
bool    frac_same(Mx *m, Frac a, Frac b);
bool    frac_const(Mx *m, Frac a, mpq_ptr out);          /* it is a rational number */
Frac    frac_root(Mx *m, Frac a, int32_t num, int32_t den);   /* a^(num/den) */
Frac    frac_log(Mx *m, Frac a);
int     atom_sym(Mx *m, Span name);
int     atom_fn(Mx *m, Span name, const Frac *arg, int n);
void    mx_factor(Mx *m, mpz_srcptr x, void (*each)(void *ctx, mpz_srcptr prime, long power), void *ctx);

Frac    mx_eval(Mx *m, const Node *n);                   /* of an expression; look at beyond */
bool    mx_is_expr(const Node *n);
bool    mx_has_pm(const Node *n);

/* Are two answers the same?  Symmetric in all but: the first is the model's, the second the truth. */
bool    math_exact_same(Span answer, Span truth);
/* The final answer in a solution; false if it marks none.  last_number: take the last number then. */
bool    math_exact_find(Span solution, bool last_number, Span *answer);

#endif
