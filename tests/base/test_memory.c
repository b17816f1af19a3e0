/* test_memory.c - arenas, regions, buffers and arrays at their ends: nothing, exactly full, one byte too many, sizes
 * that would overflow, bytes beyond 2^32.  What must die is run in a process of its own. */
#include "test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* A sanitizer's allocator ends the program where the system's says no, unless it is asked not to. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) { return "allocator_may_return_null=1"; }
const char *__tsan_default_options(void);
const char *__tsan_default_options(void) { return "allocator_may_return_null=1"; }

/* The way a process that runs f ends: 0, -signal, or its exit code; what it said in 'said'. */
static int ends(void (*f)(void), char *said, size_t n) {
    int fd[2], status;
    CHECK(!pipe(fd), "no pipe for tests");
    fflush(stdout);
    pid_t child = fork();
    if (!child) {
        dup2(fd[1], 2);
        f();
        _exit(0);
    }
    close(fd[1]);
    size_t have = 0;
    for (ssize_t got; (got = read(fd[0], said + have, n - 1 - have)) > 0;) have += (size_t)got;
    said[have] = 0;
    close(fd[0]);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* ---- arenas */
static _Alignas(ARENA_ALIGN) char block[4 * ARENA_ALIGN];

static void push_too_much(void) {
    Arena a = arena_over("small", block, sizeof block);
    arena_push(&a, sizeof block - ARENA_ALIGN);
    arena_push(&a, ARENA_ALIGN + 1);
}
static void push_overflow(void) {
    Arena a = arena_over("small", block, sizeof block);
    arena_push(&a, SIZE_MAX - 10);
}
static void push_wraps(void) { /* rounded up it is 0 */
    Arena a = arena_over("small", block, sizeof block);
    arena_push(&a, SIZE_MAX - ARENA_ALIGN + 1);
}
static void pop_above(void) {
    Arena a = arena_over("small", block, sizeof block);
    arena_pop(&a, 1);
}
static void on_no_border(void) { arena_over("small", block + 1, 10); }

static void arenas(void) {
    Arena a = arena_over("tmp", block, sizeof block);
    char *p = arena_push(&a, 0), *q = arena_push(&a, 1);
    EXPECT(p == block && q == block && a.used == ARENA_ALIGN, "nothing takes nothing");
    size_t mark = arena_mark(&a);
    char *r = arena_push(&a, sizeof block - ARENA_ALIGN);
    EXPECT(r == block + ARENA_ALIGN && a.used == a.size && a.peak == a.size, "exactly full");
    EXPECT(arena_push(&a, 0) == block + sizeof block, "nothing more fits");
    arena_pop(&a, mark);
    EXPECT(a.used == ARENA_ALIGN && a.peak == a.size && arena_push(&a, 5) == r, "the same place again");
    arena_pop(&a, 0);
    EXPECT(!a.used, "empty");
    EXPECT(arena_round(0) == 0 && arena_round(1) == ARENA_ALIGN && arena_round(ARENA_ALIGN) == ARENA_ALIGN, "rounding");
    static const struct {
        void (*f)(void);
        const char *says;
    } dies[] = {
        { push_too_much, "arena small is full: 768 of 1024 bytes used, 512 more wanted" },
        { push_overflow, "arena small: push of" },
        { push_wraps, "arena small: push of" },
        { pop_above, "arena small: pop to 1, but only 0 used" },
        { on_no_border, "is not on a 256-byte border" },
    };
    for (size_t i = 0; i < COUNT(dies); i++) {
        char said[600];
        int how = ends(dies[i].f, said, sizeof said);
        EXPECT(how == -SIGABRT && strstr(said, dies[i].says), "case %zu: %d, %s", i, how, said);
    }
}

/* ---- regions */
static bool is_zero(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i]) return false;
    return true;
}

static void over_limit(void) {
    Mem m = { .limit = 100000 };
    for (;;) mem_push(&m, 1000);
}
static void array_overflow(void) {
    Mem m = { 0 };
    mem_array(&m, SIZE_MAX / 4, 8);
}
static void no_such_memory(void) {
    Mem m = { 0 };
    mem_push(&m, SIZE_MAX / 4);
}

static void regions(void) {
    Mem m = { 0 };
    EXPECT(mem_push(&m, 0) && mem_str(&m, "", 0)[0] == 0, "nothing is something");
    uint64_t x = 1;
    bool zero = true, apart = true, aligned = true;
    char *before = NULL;
    size_t before_n = 0;
    for (int i = 0; i < 3000; i++) { /* every size there is around a chunk's */
        x = x * 6364136223846793005u + 1442695040888963407u;
        size_t n = i % 100 == 7 ? (size_t)(x >> 44) : (size_t)(x >> 52);
        char *p = mem_push(&m, n);
        zero &= is_zero(p, n);
        aligned &= (uintptr_t)p % 16 == 0;
        apart &= !before || p + n <= before || before + before_n <= p;
        memset(p, 0xAB, n);
        before = p, before_n = n;
    }
    EXPECT(zero && apart && aligned, "zeroed %d, apart %d, aligned %d", zero, apart, aligned);
    mem_free(&m);
    EXPECT(!m.head && !m.total, "freed");
    mem_free(&m);

    char *lent = aligned_alloc(16, 1024 + mem_lent_bytes(0));
    memset(lent, 0, 1024 + mem_lent_bytes(0));
    mem_lend(&m, lent, 1000);
    char *p = mem_push(&m, 1000), *q = mem_push(&m, 100000);
    EXPECT(p > lent && p + 1000 <= lent + 1024 + mem_lent_bytes(0)
               && (q < lent || q >= lent + 1024 + mem_lent_bytes(0)),
           "lent, then its own");
    mem_free(&m);
    free(lent);

    p = mem_push(&m, (size_t)5 << 30); /* address space, not memory: only its ends are touched */
    p[0] = 1, p[((size_t)5 << 30) - 1] = 2;
    EXPECT(p[(size_t)1 << 32] == 0 && m.total >= (size_t)5 << 30, "beyond 2^32");
    mem_free(&m);
    char *text = mem_printf(&m, "%0*d", 100000, 7);
    EXPECT(strlen(text) == 100000 && text[99999] == '7', "a long text");
    EXPECT_STR(mem_str(&m, "abcdef", 3), "abc");
    Arena a = arena_in(&m, "in", 1000);
    EXPECT((uintptr_t)a.base % ARENA_ALIGN == 0 && a.size == 1000, "an arena in a region");
    mem_free(&m);

    char said[600];
    int how = ends(over_limit, said, sizeof said);
    EXPECT(how == -SIGABRT && strstr(said, "region of at most 100000 bytes is full"), "%d, %s", how, said);
    how = ends(array_overflow, said, sizeof said);
    EXPECT(how == -SIGABRT && strstr(said, "array of"), "%d, %s", how, said);
    how = ends(no_such_memory, said, sizeof said);
    EXPECT(how == 1 && strstr(said, "the machine gave no memory"), "%d, %s", how, said);
}

/* ---- buffers and arrays */
static void reserve_overflow(void) {
    Buf b = { 0 };
    buf_puts(&b, "x");
    buf_reserve(&b, SIZE_MAX / 2);
}
static void grow_overflow(void) {
    size_t cap = 0;
    vec_grow(NULL, &cap, SIZE_MAX / 4, 8);
}

static void buffers(void) {
    Buf b = { 0 };
    buf_clear(&b);
    buf_put(&b, NULL, 0);
    EXPECT(b.data && !b.n && !b.data[0], "nothing, with a 0 behind it");
    for (int i = 0; i < 100000; i++) buf_putc(&b, (char)('a' + i % 26));
    bool right = b.n == 100000 && !b.data[b.n] && b.cap > b.n;
    for (int i = 0; i < 100000; i++) right &= b.data[i] == 'a' + i % 26;
    EXPECT(right, "letter by letter");
    buf_clear(&b);
    buf_printf(&b, "%s", "");
    buf_printf(&b, "%d %s", 7, "x");
    EXPECT_STR(b.data, "7 x");
    size_t cap = b.cap, room = b.cap - b.n - 1;
    buf_reserve(&b, room);
    EXPECT(b.cap == cap, "room that is there is not made");
    buf_reserve(&b, room + 1);
    EXPECT(b.cap > cap, "room that is not there is made");
    buf_free(&b);
    EXPECT(!b.data && !b.n && !b.cap, "freed");
    buf_free(&b);
    VEC(int)
    v = { 0 };
    for (int i = 0; i < 10000; i++) VEC_PUSH(v, i);
    EXPECT(v.n == 10000 && v.at[0] == 0 && v.at[9999] == 9999 && v.cap >= v.n, "an array");
    vec_free(v.at);
    char said[600];
    int how = ends(reserve_overflow, said, sizeof said);
    EXPECT(how == -SIGABRT && strstr(said, "buffer of 1 bytes"), "%d, %s", how, said);
    how = ends(grow_overflow, said, sizeof said);
    EXPECT(how == -SIGABRT && strstr(said, "array of"), "%d, %s", how, said);
}

static void messages(void) {
    Err err;
    char longer[2000];
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = 0;
    EXPECT(!err_set(&err, "%s", longer) && strlen(err.msg) == sizeof err.msg - 1, "a message is cut to its room");
    EXPECT(!err_wrap(&err, "where") && !strncmp(err.msg, "where: xxx", 10) && strlen(err.msg) == sizeof err.msg - 1,
           "and wrapped");
    err_set(&err, "what");
    EXPECT(!err_wrap(&err, "%s", longer) && strlen(err.msg) == sizeof err.msg - 1, "wrapped in more than fits");
}

/* What is counted takes no memory but where it is written, however large it is. */
static void counted(void) {
    Mem m = { .counted = true };
    EXPECT(!m.asked, "asked for %zu bytes before a push", m.asked);
    size_t n = (size_t)1 << 40;
    char *a = MEM_ARRAY(&m, char, n), *b = MEM_ARRAY(&m, char, 3);
    a[0] = 1, a[n - 1] = 2, b[2] = 3;
    EXPECT(m.asked == n + 16, "asked for %zu bytes, a TiB and 16 were pushed", m.asked);
    EXPECT(a[0] == 1 && a[n / 2] == 0 && a[n - 1] == 2 && b[2] == 3, "what was written is not there");
    mem_free(&m);
    EXPECT(!m.asked && !m.head, "something is left");
    Mem real = { 0 };
    mem_push(&real, 5), mem_push(&real, 100);
    EXPECT(real.asked == 16 + 112, "asked for %zu bytes, 128 were pushed", real.asked);
    mem_free(&real);
}

int main(void) {
    counted();
    arenas();
    regions();
    buffers();
    messages();
    return test_end();
}
