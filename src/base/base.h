/* base.h - what every file may use: failure and the two kinds of memory.  Needs only libc. */
#ifndef BASE_BASE_H
#define BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus            /* .cu files read this header too */
#define NORETURN [[noreturn]]
extern "C" {
#else
#define NORETURN _Noreturn
#endif

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))

/* ---- Failure -------------------------------------------------------------
 * A reason outside the program (a file, a socket, a user's config, a model's
 * answer) is returned:  bool f(..., Err *err).  The message is one line: what
 * is wrong, where, and what to do about it.
 * A reason inside it (a bug, a full arena, a dead device or rank) is not: die()
 * prints "hone: layer/moe.c:88: ..." once and ends the process. */
typedef struct { char msg[512]; } Err;

bool err_set(Err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);      /* always returns false */
bool err_wrap(Err *err, const char *fmt, ...) PRINTF_LIKE(2, 3);     /* puts "<fmt>: " before the message; false */
#define TRY(call) do { if (!(call)) return false; } while (0)

NORETURN void die_memory(size_t bytes);      /* 0: not known; the machine has no more: not a
                                              * fault of the program, exit code 1 */
NORETURN void die_at(const char *file, int line, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Among several ranks: messages of a rank other than 0 carry its number, and what takes the
 * other ranks down is called last. */
void die_among(int rank, void (*take_down)(void));
bool speaks(void);        /* this is the rank that says what all of them would: the first, or the only one */
#define die(...)       die_at(__FILE__, __LINE__, __VA_ARGS__)
#define CHECK(ok, ...) do { if (!(ok)) die(__VA_ARGS__); } while (0)

/* ---- Arena: planned memory -------------------------------------------------
 * A bump allocator over one block that somebody else owns.  Nothing is freed one by one: take a mark, push, pop back
 * to the mark.  Its size is the plan: it dies when full, naming itself. */
typedef struct {
    char       *base;
    size_t      size, used, peak;
    const char *name;         /* "weights", "act", "tmp": for die() and for reports */
} Arena;

/* p moved by so many bytes, in whole numbers: defined also where nothing lies, as for a
 * plan's arenas (model/sizes.c). */
static inline void *mem_past(void *p, size_t bytes) { return (void *)((uintptr_t)p + bytes); }

enum { ARENA_ALIGN = 256 };
Arena arena_over(const char *name, void *base, size_t size);
void *arena_push(Arena *a, size_t bytes);            /* 256-byte aligned, not zeroed; dies when full */
static inline size_t arena_mark(const Arena *a) { return a->used; }
void  arena_pop(Arena *a, size_t mark);
static inline size_t arena_round(size_t bytes) { return (bytes + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1); }

/* ---- Mem: unplanned host memory ---------------------------------------------
 * A region that grows, for what is read from files: configs, vocabularies, tables.  Everything in it dies together.
 * {0} is an empty one.
 * One that is 'counted' says what others would take: its pages are there only where somebody writes, so a thing of any
 * size can be opened in it, and 'asked' is what was pushed. */
typedef struct MemChunk MemChunk;
typedef struct { MemChunk *head; size_t total, limit, asked; bool counted; } Mem;  /* limit 0: none; past it, die() */

void *mem_push(Mem *m, size_t bytes);                /* zeroed, 16-byte aligned; bytes 0 gives a valid pointer */
size_t mem_lent_bytes(size_t bytes);
void mem_lend(Mem *m, void *at,
              size_t bytes); /* m's next pushes, up to so much, come from there: mem_lent_bytes(bytes) of
    somebody else's memory, 16-byte aligned, that outlives m; they are as zero as it is */
void *mem_copy(Mem *m, const void *from, size_t bytes);
char *mem_str(Mem *m, const char *s, size_t n);      /* copy of n bytes, with a 0 behind them */
char *mem_printf(Mem *m, const char *fmt, ...) PRINTF_LIKE(2, 3);
void  mem_touch(Mem *m);                             /* takes the pages of everything pushed so
                                                      * far now, not when they are first used */
void  mem_free(Mem *m);                              /* everything; m is empty again */

Arena arena_in(Mem *m, const char *name, size_t size);                /* an arena over a block of m */

Arena arena_on_host(const char *name, size_t size, Mem *m);          /* an arena in such a region */

/* n objects; dies on overflow of the product. */
void *mem_array(Mem *m, size_t n, size_t each);
#define MEM_NEW(m, Type)       ((Type *)mem_push((m), sizeof(Type)))
#define MEM_ARRAY(m, Type, n)  ((Type *)mem_array((m), (n), sizeof(Type)))

/* ---- Buf: bytes that grow ------------------------------------------------------
 * {0} is an empty one; data is always followed by a 0 once anything was put. */
typedef struct { char *data; size_t n, cap; } Buf;
void buf_put(Buf *b, const void *bytes, size_t n);
void buf_puts(Buf *b, const char *s);
void buf_putc(Buf *b, char c);
void buf_printf(Buf *b, const char *fmt, ...) PRINTF_LIKE(2, 3);
void buf_reserve(Buf *b, size_t more);               /* room for 'more' bytes behind n */
static inline void buf_clear(Buf *b) { b->n = 0; if (b->data) b->data[0] = 0; }
void buf_free(Buf *b);

/* A growing array of anything: VEC_PUSH(v, x) where v is struct { T *at; size_t n, cap; }.
 * Freed with vec_free(v.at). */
void *vec_grow(void *at, size_t *cap, size_t n, size_t each);
void  vec_free(void *at);
#define VEC(T) struct { T *at; size_t n, cap; }
#define VEC_PUSH(v, ...) \
    ((v).at = vec_grow((v).at, &(v).cap, (v).n + 1, sizeof *(v).at), (v).at[(v).n++] = (__VA_ARGS__))

#ifdef __cplusplus
}
#endif
#endif
