/* shell_sum.c - $(( ... )): whole numbers of 64 bits that wrap, C's operators and **, names that hold numbers or
 * expressions.
 *
 * One table of binary operators, by how tightly they bind; assignment and ?: are read where they stand. */
#include "import/shell_int.h"

#include <ctype.h>
#include <stdio.h>

typedef struct {
    Sh *sh;
    const char *text, *at;
    bool unknown;
    int depth, idle;
} Sum; /* idle: behind && || ?: and not to be counted */

/* As in bash the line is dropped, and the script goes on with the next. */
static _Noreturn void wrong(Sum *s, const char *what) {
    sh_note(s->sh, SHELL_STOPPED, s->sh->line, "$((%.120s)): %s: bash drops this line and goes on with the next",
            s->text, what);
    s->sh->status = 1;
    longjmp(s->sh->escape->at, JUMP_LINE);
}

static void blanks(Sum *s) {
    while (*s->at && isspace((unsigned char)*s->at)) s->at++;
}

static bool take(Sum *s, const char *op) {
    blanks(s);
    size_t n = strlen(op);
    if (strncmp(s->at, op, n)) return false;
    s->at += n;
    return true;
}

static int64_t expression(Sum *s, int least);
static int64_t all_of(Sum *s);

/* ---- names */
typedef struct {
    const char *name, *key;
} Place;

static bool place(Sum *s, Place *out) {
    blanks(s);
    const char *end = s->at;
    while (*end && sh_is_name(s->at, (size_t)(end + 1 - s->at))) end++;
    if (end == s->at) return false;
    *out = (Place){ mem_str(s->sh->mem, s->at, (size_t)(end - s->at)), NULL };
    s->at = end;
    if (*end != '[') return true;
    const char *close = strchr(end, ']');
    if (!close) wrong(s, "a [ is never closed");
    out->key = mem_str(s->sh->mem, end + 1, (size_t)(close - end - 1));
    s->at = close + 1;
    return true;
}

static int64_t value_of(Sum *s, const Place *p) {
    sh_uses(s->sh, p->name, NULL, true);
    const ShVar *v = sh_find(s->sh, p->name);
    const char *text = p->key ? NULL : sh_get(s->sh, p->name);
    int64_t x = 0, index = 0;
    if (p->key && v) {
        if (!v->keyed && !sh_sum(s->sh, p->key, &index)) s->unknown = true;
        for (size_t i = 0; i < v->n && !text; i++)
            if (v->keyed ? !strcmp(v->at[i].key, p->key) : v->at[i].index == index) text = v->at[i].value;
    }
    if (!text) {
        sh_note(s->sh, SHELL_UNSET, s->sh->line, "%s", p->name);
        if (s->sh->nounset)
            sh_stop(s->sh, "%s is not set, and `set -u` ends the script; give %s=VALUE", p->name, p->name);
        return 0;
    }
    if (++s->sh->depth > SH_MAX_DEPTH) wrong(s, "names that name each other");
    if (!sh_sum(s->sh, text, &x)) s->unknown = true;
    s->sh->depth--;
    return x;
}

static void set(Sum *s, const Place *p, int64_t x) {
    if (s->idle) return;
    const char *text = s->unknown ? sh_unknown(s->sh, mem_printf(s->sh->mem, "$((%s))", s->text))
                                  : mem_printf(s->sh->mem, "%lld", (long long)x);
    sh_set_at(s->sh, sh_var(s->sh, p->name), p->key, text, false);
}

/* ---- numbers: 10, 0x1f, 017, 2#101 */
static int digit(char c) {
    return isdigit((unsigned char)c)   ? c - '0'
           : islower((unsigned char)c) ? c - 'a' + 10
           : isupper((unsigned char)c) ? c - 'A' + 10
                                       : 99;
}

static int64_t number(Sum *s) {
    uint64_t x = 0, base = 10;
    if (*s->at == '0' && (s->at[1] | 32) == 'x') base = 16, s->at += 2;
    else if (*s->at == '0' && isdigit((unsigned char)s->at[1])) base = 8, s->at++;
    for (; isalnum((unsigned char)*s->at) || *s->at == '#'; s->at++) {
        if (*s->at == '#' && base == 10 && x >= 2 && x <= 36) base = x, x = 0;
        else if (*s->at == '#' || digit(*s->at) >= (int)base) wrong(s, "this is no whole number");
        else x = x * base + (uint64_t)digit(*s->at);
    }
    if (*s->at == '.') wrong(s, "bash counts in whole numbers only");
    return (int64_t)x;
}

/* ---- operators */
typedef enum { OR, AND, BIT_OR, BIT_XOR, BIT_AND, EQ, NE, LE, GE, LT, GT, SHL, SHR, ADD, SUB, MUL, DIV, MOD, POW } Op;
static const struct {
    const char *text;
    int tight;
} OPS[] = {
    [OR] = { "||", 1 },  [AND] = { "&&", 2 }, [BIT_OR] = { "|", 3 }, [BIT_XOR] = { "^", 4 }, [BIT_AND] = { "&", 5 },
    [EQ] = { "==", 6 },  [NE] = { "!=", 6 },  [LE] = { "<=", 7 },    [GE] = { ">=", 7 },     [LT] = { "<", 7 },
    [GT] = { ">", 7 },   [SHL] = { "<<", 8 }, [SHR] = { ">>", 8 },   [ADD] = { "+", 9 },     [SUB] = { "-", 9 },
    [MUL] = { "*", 10 }, [DIV] = { "/", 10 }, [MOD] = { "%", 10 },   [POW] = { "**", 11 },
};
enum { TERNARY = 0, UNARY = 12 };

static int64_t power(Sum *s, int64_t a, int64_t b) {
    if (b < 0) wrong(s, "an exponent below 0");
    uint64_t x = 1, base = (uint64_t)a;
    for (; b; b >>= 1, base *= base)
        if (b & 1) x *= base;
    return (int64_t)x;
}

static int64_t apply(Sum *s, Op op, int64_t a, int64_t b) {
    uint64_t x = (uint64_t)a, y = (uint64_t)b;
    if ((op == DIV || op == MOD) && !b && (s->idle || s->unknown)) return 0;
    if ((op == DIV || op == MOD) && !b) wrong(s, "division by 0");
    if ((op == DIV || op == MOD) && b == -1)
        return op == DIV ? (int64_t)(0 - x) : 0; /* the one quotient that does not fit */
    switch (op) {
    case OR: return a || b;
    case AND: return a && b;
    case BIT_OR: return a | b;
    case BIT_XOR: return a ^ b;
    case BIT_AND: return a & b;
    case EQ: return a == b;
    case NE: return a != b;
    case LE: return a <= b;
    case GE: return a >= b;
    case LT: return a < b;
    case GT: return a > b;
    case SHL: return (int64_t)(x << (y & 63));
    case SHR: return a >> (y & 63);
    case ADD: return (int64_t)(x + y);
    case SUB: return (int64_t)(x - y);
    case MUL: return (int64_t)(x * y);
    case DIV: return a / b;
    case MOD: return a % b;
    case POW: return power(s, a, b);
    }
    return 0;
}

static bool operator_here(Sum *s, Op *op, bool *assigns) {
    size_t longest = 0;
    blanks(s);
    for (size_t i = 0; i < COUNT(OPS); i++) {
        size_t n = strlen(OPS[i].text);
        if (n > longest && !strncmp(s->at, OPS[i].text, n)) *op = (Op)i, longest = n;
    }
    *assigns = longest && s->at[longest] == '=' && s->at[longest + 1] != '=' && !(*op >= EQ && *op <= GT) && *op > AND;
    return longest > 0;
}

static int64_t primary(Sum *s) {
    blanks(s);
    Place p;
    Op op;
    bool assigns;
    if (*s->at == SH_MARK) {
        const char *end = strchr(s->at, SH_MARK_END);
        s->unknown = true;
        s->at = end ? end + 1 : s->at + strlen(s->at);
        return 0;
    }
    if (isdigit((unsigned char)*s->at)) return number(s);
    if (take(s, "(")) {
        int64_t x = all_of(s);
        if (!take(s, ")")) wrong(s, "a ( is never closed");
        return x;
    }
    int by = take(s, "++") ? 1 : take(s, "--") ? -1 : 0;
    blanks(s);
    if (!by && *s->at && strchr("!~-+", *s->at)) {
        char c = *s->at++;
        int64_t x = expression(s, UNARY);
        return c == '!' ? !x : c == '~' ? ~x : c == '-' ? (int64_t)(0 - (uint64_t)x) : x;
    }
    if (!place(s, &p)) wrong(s, "a number or a name is missing");
    if (by) {
        int64_t x = (int64_t)((uint64_t)value_of(s, &p) + (uint64_t)by);
        return set(s, &p, x), x;
    }
    by = take(s, "++") ? 1 : take(s, "--") ? -1 : 0;
    if (by) {
        int64_t x = value_of(s, &p);
        return set(s, &p, (int64_t)((uint64_t)x + (uint64_t)by)), x;
    }
    blanks(s);
    if (*s->at == '=' && s->at[1] != '=') {
        s->at++;
        int64_t x = expression(s, TERNARY);
        return set(s, &p, x), x;
    }
    const char *before = s->at;
    if (operator_here(s, &op, &assigns) && assigns) {
        s->at += strlen(OPS[op].text) + 1;
        int64_t old = value_of(s, &p), x = apply(s, op, old, expression(s, TERNARY));
        return set(s, &p, x), x;
    }
    s->at = before;
    return value_of(s, &p);
}

static int64_t ternary(Sum *s, int64_t x) {
    s->idle += !x;
    int64_t a = all_of(s);
    s->idle -= !x;
    if (!take(s, ":")) wrong(s, "a ? without its :");
    s->idle += !!x;
    int64_t b = expression(s, TERNARY);
    s->idle -= !!x;
    return x ? a : b;
}

/* Operators that bind at least so tightly. */
static int64_t expression(Sum *s, int least) {
    if (++s->depth > SH_MAX_DEPTH) wrong(s, "nested too deeply");
    int64_t x = primary(s);
    for (Op op; least < UNARY;) {
        bool assigns, there = operator_here(s, &op, &assigns);
        if (least == TERNARY && !there && take(s, "?")) {
            x = ternary(s, x);
            continue;
        }
        if (!there || assigns || OPS[op].tight < least) break;
        s->at += strlen(OPS[op].text);
        bool idle = (op == AND && !x) || (op == OR && x);
        s->idle += idle;
        int64_t y = expression(s, OPS[op].tight + (op != POW)); /* ** alone groups from the right */
        s->idle -= idle;
        x = apply(s, op, x, y);
    }
    s->depth--;
    return x;
}

static int64_t all_of(Sum *s) {
    int64_t x = expression(s, TERNARY);
    while (take(s, ",")) x = expression(s, TERNARY);
    return x;
}

bool sh_sum(Sh *sh, const char *text, int64_t *out) {
    Sum s = { .sh = sh, .text = text, .at = text };
    sh_spend(sh, 1 + (int64_t)strlen(text));
    blanks(&s);
    *out = *s.at ? all_of(&s) : 0;
    blanks(&s);
    if (*s.at) wrong(&s, *s.at == '.' ? "bash counts in whole numbers only" : "this is no sum of whole numbers");
    return !s.unknown;
}
