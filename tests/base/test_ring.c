/* test_ring.c - bytes go through a ring whole and in order, whatever its size and the sizes of the pieces; one side
 * waits for the other, and is let go when the other leaves. */
#include "base/ring.h"
#include "base/rng.h"
#include "test.h"

#include <pthread.h>
#include <sched.h>

typedef struct {
    Ring *r;
    uint32_t seed;
    size_t total, stop; /* stop: leaves after so many bytes */
    size_t got, wrong;
} Side;

static char byte_at(size_t i) { return (char)(i * 31 + (i >> 8) * 7 + (i >> 16)); }
static size_t some(uint32_t seed, uint32_t k, size_t most) {
    return 1 + (size_t)(rng_u64(1, RNG_PLAN, seed, 0, 0, k) % most);
}

static void *empty(void *arg) {
    Side *s = arg;
    for (uint32_t k = 0; s->got < s->total; k++) {
        if (s->got >= s->stop) {
            ring_leave(s->r);
            return NULL;
        }
        const void *at;
        size_t have = ring_bytes(s->r, &at), n = some(s->seed, k, have);
        for (size_t i = 0; i < n; i++) s->wrong += ((const char *)at)[i] != byte_at(s->got + i);
        ring_take(s->r, n);
        s->got += n;
        if (k % 7 == 0) sched_yield();
    }
    return NULL;
}

static size_t fill(Ring *r, size_t total, uint32_t seed, bool wait) {
    size_t put = 0;
    for (uint32_t k = 0; put < total; k++) {
        void *at;
        size_t room = ring_room(r, &at, wait);
        if (!room && (wait || ring_left(r))) break;
        if (!room) {
            sched_yield();
            continue;
        }
        size_t n = some(seed, k, room);
        if (n > total - put) n = total - put;
        for (size_t i = 0; i < n; i++) ((char *)at)[i] = byte_at(put + i);
        ring_put(r, n);
        put += n;
    }
    return put;
}

static void through(size_t size, size_t total, bool wait, Ring *again, Mem *mem) {
    Ring *r = again ? again : ring_open(size, mem);
    if (again) ring_clear(r);
    Side s = { .r = r, .seed = (uint32_t)size, .total = total, .stop = SIZE_MAX };
    pthread_t t;
    CHECK(!pthread_create(&t, NULL, empty, &s), "no thread");
    size_t put = fill(r, total, (uint32_t)total, wait);
    pthread_join(t, NULL);
    EXPECT(put == total && s.got == total && !s.wrong, "ring of %zu: %zu of %zu in, %zu out, %zu wrong", size, put,
           total, s.got, s.wrong);
    if (!again) {
        through(size, total / 2, !wait, r, mem); /* the same once more, from another place */
        ring_close(r);
    }
}

/* All that passes fits: nobody waits, not even for a reader that does not come. */
static void as_large_as_all(void) {
    Mem mem = { 0 };
    Ring *r = ring_open(10000, &mem);
    EXPECT(fill(r, 10000, 3, true) == 10000, "not all went in");
    void *at;
    EXPECT(ring_room(r, &at, false) == 0, "a full ring has room");
    Side s = { .r = r, .total = 10000, .stop = SIZE_MAX };
    empty(&s);
    EXPECT(s.got == 10000 && !s.wrong, "%zu out, %zu wrong", s.got, s.wrong);
    EXPECT(ring_room(r, &at, false) > 0, "an empty ring has none");
    ring_close(r);
    mem_free(&mem);
}

static void the_reader_leaves(void) {
    Mem mem = { 0 };
    Ring *r = ring_open(64, &mem);
    Side s = { .r = r, .total = 100000, .stop = 5000 };
    pthread_t t;
    CHECK(!pthread_create(&t, NULL, empty, &s), "no thread");
    size_t put = fill(r, 100000, 1, true);
    pthread_join(t, NULL);
    EXPECT(put < 100000 && ring_left(r) && !s.wrong, "%zu went in after the reader had left", put);
    ring_clear(r);
    void *at;
    EXPECT(!ring_left(r) && ring_room(r, &at, true) == 64, "cleared, it is not as new");
    ring_close(r);
    mem_free(&mem);
}

int main(void) {
    static const size_t sizes[] = { 1, 2, 3, 64, 1000, 4096, 300000 };
    Mem mem = { 0 };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        size_t total = sizes[i] < 4 ? 2000 : 200000;
        through(sizes[i], total, true, NULL, &mem);
        through(sizes[i], total, false, NULL, &mem);
    }
    mem_free(&mem);
    as_large_as_all();
    the_reader_leaves();
    return test_end();
}
