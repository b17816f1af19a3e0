/* base.c - failure messages, arenas, growing regions and buffers: see base.h. */
#include "base/base.h"
#include "base/last_words.h"
#include "base/utf8.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* A message may quote what a file says: it stays one line, and moves no cursor.  (Bytes that
 * are not UTF-8 stay: a path may have them.) */
static void one_line(char *msg) {
    for (size_t i = 0, n = strlen(msg); i < n;) {
        uint32_t code = 0;
        int len = utf8_get(msg + i, n - i, &code);
        if (!len) code = (unsigned char)msg[i], len = 1; /* a lone C1 byte steers some terminals too */
        if (utf8_steers(code) || code == '\n' || code == '\t') memset(msg + i, ' ', (size_t)len);
        i += (size_t)len;
    }
}

bool err_set(Err *err, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    one_line(err->msg);
    return false;
}

bool err_wrap(Err *err, const char *fmt, ...) {
    Err was = *err;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n < sizeof err->msg) snprintf(err->msg + n, sizeof err->msg - (size_t)n, ": %s", was.msg);
    one_line(err->msg);
    return false;
}

static struct {
    int rank;
    char who[32]; /* "rank 3: " */
    void (*take_down)(void);
    int log; /* a file, 0: none */
    bool logged;
    char said[1200]; /* not on a stack that may be as full as the heap */
} among;

void die_among(int rank, void (*take_down)(void)) {
    among.rank = rank;
    if (rank > 0) snprintf(among.who, sizeof among.who, "rank %d: ", rank);
    else among.who[0] = 0;
    among.take_down = take_down;
}

bool speaks(void) { return among.rank == 0; }

void last_words_into(const char *path) {
    if (among.log > 0) close(among.log);
    among.log = path ? open(path, O_WRONLY | O_APPEND | O_CLOEXEC) : 0;
}

const char *last_words(void) { return among.said; }

/* One write each, by hand: the file may be full, memory gone, and another thread in the middle of a printf. */
static bool put_line(int fd, const char *before, const char *who, const char *text) {
    char line[1300];
    int n = snprintf(line, sizeof line, "%s%s%s\n", before, who, text);
    if (n >= (int)sizeof line) n = sizeof line - 1, line[n - 1] = '\n';
    return write(fd, line, (size_t)n) == n;
}
static bool log_line(const char *who, const char *text) {
    char when[40];
    time_t now = time(NULL);
    struct tm tm;
    strftime(when, sizeof when, "%F %T  ", localtime_r(&now, &tm));
    return among.log > 0 && put_line(among.log, when, who, text);
}
static void say(const char *text) {
    put_line(STDERR_FILENO, "hone: ", among.who, text);
    among.logged = log_line(among.who, text);
}
bool last_words_logged(void) { return among.logged; }
void last_words_log(const char *line) { log_line("", line); }

void last_words_in_signal(const char *a, const char *b) {
    const char *part[] = { "hone: ", among.who, a, b, "\n" };
    const int to[] = { STDERR_FILENO, among.log };
    for (size_t k = 0; k < COUNT(to) && (k == 0 || to[k] > 0); k++)
        for (size_t i = 0; i < COUNT(part); i++) {
            ssize_t ignore = write(to[k], part[i], strlen(part[i]));
            (void)ignore;
        }
}

static void take_down(void) {
    void (*fn)(void) = among.take_down;
    among.take_down = NULL; /* once */
    if (fn) fn();
}

void die_at(const char *file, int line, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    int n = snprintf(among.said, sizeof among.said, "%s:%d: ", file, line);
    vsnprintf(among.said + n, sizeof among.said - (size_t)n, fmt, ap);
    va_end(ap);
    fflush(stdout);
    say(among.said);
    take_down();
    abort();
}

void die_outside(const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(among.said, sizeof among.said, fmt, ap);
    va_end(ap);
    say(among.said);
    take_down();
    _exit(1); /* other threads are in the middle of things */
}

void die_memory(size_t bytes) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    static _Thread_local bool mine;
    if (atomic_flag_test_and_set(&told)) { /* several threads run out of it together: the first one's line is enough */
        if (mine) _exit(1);                /* or it ran out again while ending */
        for (;;) pause();
    }
    mine = true;
    fflush(stdout);
    char wanted[64] = "";
    if (bytes) snprintf(wanted, sizeof wanted, ": %zu bytes more were wanted", bytes);
    snprintf(among.said, sizeof among.said, "the machine gave no memory%s; a smaller batch, cache or model is needed",
             wanted);
    say(among.said);
    take_down();
    exit(1);
}

Arena arena_over(const char *name, void *base, size_t size) {
    CHECK((uintptr_t)base % ARENA_ALIGN == 0, "arena %s: block at %p is not on a %d-byte border", name, base,
          ARENA_ALIGN);
    return (Arena){ .base = base, .size = size, .name = name };
}

void *arena_push(Arena *a, size_t bytes) {
    CHECK(bytes <= SIZE_MAX - ARENA_ALIGN, "arena %s: push of %zu bytes", a->name, bytes);
    size_t need = arena_round(bytes);
    CHECK(need <= a->size - a->used, "arena %s is full: %zu of %zu bytes used, %zu more wanted", a->name, a->used,
          a->size, need);
    void *p = mem_past(a->base, a->used);
    a->used += need;
    if (a->used > a->peak) a->peak = a->used;
    return p;
}

void arena_pop(Arena *a, size_t mark) {
    CHECK(mark <= a->used, "arena %s: pop to %zu, but only %zu used", a->name, mark, a->used);
    a->used = mark;
}

/* ---- Mem: chunks of at least 64 KiB, newest first; a large push gets a chunk of its own behind the newest,
 * so that the newest one's free space is not lost. */
struct MemChunk {
    MemChunk *next;
    size_t size, used;
    bool lent;
};
enum { MEM_CHUNK = 1 << 16, MEM_HEADER = (sizeof(MemChunk) + 15) & ~15 };

static void *pages_when_written(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static MemChunk *chunk_new(Mem *m, size_t size) {
    CHECK(!m->limit || m->total + size <= m->limit, "region of at most %zu bytes is full", m->limit);
    MemChunk *c = m->counted ? pages_when_written(MEM_HEADER + size) : calloc(1, MEM_HEADER + size);
    if (!c) die_memory(size);
#ifdef MADV_HUGEPAGE
    if (size >= 4 << 20
        && !m->counted) { /* a large calloc is fresh pages: in pieces of 2 MB they come several times as fast */
        uintptr_t from = ((uintptr_t)c + 4095) & ~(uintptr_t)4095, to = ((uintptr_t)c + size) & ~(uintptr_t)4095;
        madvise((void *)from, to - from, MADV_HUGEPAGE);
    }
#endif
    c->size = size;
    m->total += size;
    return c;
}

void *mem_push(Mem *m, size_t bytes) {
    CHECK(bytes <= SIZE_MAX / 2, "push of %zu bytes", bytes);
    size_t need = (bytes + 15) & ~(size_t)15;
    m->asked += need;
    if (!m->head || need > m->head->size - m->head->used) {
        size_t grown = m->head ? m->total / 4 & ~(size_t)15 : 0, size = grown > MEM_CHUNK ? grown : MEM_CHUNK;
        if (size > 1u << 26) size = 1u << 26;
        if (m->head && need > MEM_CHUNK / 4 && need * 4 > size) {
            MemChunk *own = chunk_new(m, need);
            own->used = need;
            own->next = m->head->next;
            m->head->next = own;
            return (char *)own + MEM_HEADER;
        }
        MemChunk *c = chunk_new(m, need > size ? need : size);
        c->next = m->head;
        m->head = c;
    }
    void *p = (char *)m->head + MEM_HEADER + m->head->used;
    m->head->used += need;
    return p;
}

size_t mem_lent_bytes(size_t bytes) { return MEM_HEADER + ((bytes + 15) & ~(size_t)15); }

void mem_lend(Mem *m, void *at, size_t bytes) {
    MemChunk *c = at;
    *c = (MemChunk){ .next = m->head, .size = (bytes + 15) & ~(size_t)15, .lent = true };
    m->head = c;
}

void *mem_copy(Mem *m, const void *from, size_t bytes) {
    void *p = mem_push(m, bytes);
    if (bytes) memcpy(p, from, bytes);
    return p;
}

Arena arena_on_host(const char *name, size_t size, Mem *m) {
    char *p = mem_push(m, size + ARENA_ALIGN);
    return arena_over(name, p + (ARENA_ALIGN - (uintptr_t)p % ARENA_ALIGN) % ARENA_ALIGN, size);
}

char *mem_str(Mem *m, const char *s, size_t n) {
    char *p = mem_push(m, n + 1);
    if (n) memcpy(p, s, n);
    return p;
}

char *mem_printf(Mem *m, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    CHECK(n >= 0, "bad format %s", fmt);
    char *p = mem_push(m, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return p;
}

Arena arena_in(Mem *m, const char *name, size_t size) {
    char *p = mem_push(m, size + ARENA_ALIGN);
    return arena_over(name, p + (ARENA_ALIGN - (uintptr_t)p % ARENA_ALIGN) % ARENA_ALIGN, size);
}

void *mem_array(Mem *m, size_t n, size_t each) {
    CHECK(!each || n <= SIZE_MAX / 2 / each, "array of %zu times %zu bytes", n, each);
    return mem_push(m, n * each);
}

void mem_touch(Mem *m) {
    for (MemChunk *c = m->head; c; c = c->next)
        for (size_t at = 0; at < MEM_HEADER + c->used; at += 4096) {
            volatile char *p = (char *)c + at;
            *p = *p;
        }
}

void mem_free(Mem *m) {
    for (MemChunk *c = m->head; c;) {
        MemChunk *next = c->next;
        if (m->counted) munmap(c, MEM_HEADER + c->size);
        else if (!c->lent) free(c);
        c = next;
    }
    m->head = NULL;
    m->total = m->asked = 0;
}

/* ---- Buf */
void buf_reserve(Buf *b, size_t more) {
    CHECK(more < SIZE_MAX / 2 - b->n, "buffer of %zu bytes, %zu more wanted", b->n, more);
    if (b->n + more + 1 <= b->cap) return;
    size_t cap = b->cap * 2 > b->n + more + 1 ? b->cap * 2 : b->n + more + 1;
    if (cap < 64) cap = 64;
    b->data = realloc(b->data, cap);
    if (!b->data) die_memory(cap);
    b->cap = cap;
}

void buf_put(Buf *b, const void *bytes, size_t n) {
    buf_reserve(b, n);
    if (n) memcpy(b->data + b->n, bytes, n);
    b->n += n;
    b->data[b->n] = 0;
}

void buf_puts(Buf *b, const char *s) { buf_put(b, s, strlen(s)); }

void buf_putc(Buf *b, char c) {
    if (b->n + 2 > b->cap) buf_reserve(b, 1);
    b->data[b->n++] = c;
    b->data[b->n] = 0;
}

void buf_printf(Buf *b, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    CHECK(n >= 0, "bad format %s", fmt);
    buf_reserve(b, (size_t)n);
    vsnprintf(b->data + b->n, (size_t)n + 1, fmt, again);
    b->n += (size_t)n;
    va_end(again);
    va_end(ap);
}

void buf_free(Buf *b) {
    free(b->data);
    *b = (Buf){ 0 };
}

void *vec_grow(void *at, size_t *cap, size_t n, size_t each) {
    if (n <= *cap) return at;
    size_t want = *cap * 2 > n ? *cap * 2 : n;
    if (want < 8) want = 8;
    CHECK(want <= SIZE_MAX / 2 / each, "array of %zu times %zu bytes", want, each);
    at = realloc(at, want * each);
    if (!at) die_memory(want * each);
    *cap = want;
    return at;
}

void vec_free(void *at) { free(at); }
