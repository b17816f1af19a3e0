/* ring.c - two counts of all bytes that ever went in and out, under one lock; a place in the buffer is a count modulo
 * its size.  Bytes are copied outside the lock: each side owns what lies between the counts that it read. */
#include "base/ring.h"

#include <pthread.h>
#include <string.h>

struct Ring {
    char *data;
    size_t size;
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint64_t in, out;
    bool left;
};

Ring *ring_open(size_t bytes, Mem *mem) {
    Ring *r = MEM_NEW(mem, Ring);
    CHECK(bytes > 0, "a buffer of no bytes");
    r->data = mem_push(mem, bytes);
    r->size = bytes;
    memset(r->data, 0, bytes);
    pthread_mutex_init(&r->lock, NULL);
    pthread_cond_init(&r->moved, NULL);
    return r;
}

void ring_close(Ring *r) {
    pthread_mutex_destroy(&r->lock);
    pthread_cond_destroy(&r->moved);
}

void ring_clear(Ring *r) { r->in = r->out = 0, r->left = false; }

/* Up to the end of the buffer: what lies behind it is the next call's. */
static size_t contiguous(const Ring *r, uint64_t from, size_t n) {
    size_t to_end = r->size - (size_t)(from % r->size);
    return n < to_end ? n : to_end;
}

size_t ring_room(Ring *r, void **at, bool wait) {
    pthread_mutex_lock(&r->lock);
    while (wait && !r->left && r->in - r->out == r->size) pthread_cond_wait(&r->moved, &r->lock);
    size_t n = r->left ? 0 : r->size - (size_t)(r->in - r->out);
    *at = r->data + r->in % r->size;
    n = contiguous(r, r->in, n);
    pthread_mutex_unlock(&r->lock);
    return n;
}

static void move(Ring *r, uint64_t *count, size_t n) {
    pthread_mutex_lock(&r->lock);
    *count += n;
    CHECK(r->in - r->out <= r->size, "ring: %llu bytes in, %llu out of a buffer of %zu", (unsigned long long)r->in,
          (unsigned long long)r->out, r->size);
    pthread_cond_signal(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

void ring_put(Ring *r, size_t n) { move(r, &r->in, n); }

size_t ring_bytes(Ring *r, const void **at) {
    pthread_mutex_lock(&r->lock);
    while (r->in == r->out) pthread_cond_wait(&r->moved, &r->lock);
    *at = r->data + r->out % r->size;
    size_t n = contiguous(r, r->out, (size_t)(r->in - r->out));
    pthread_mutex_unlock(&r->lock);
    return n;
}

void ring_take(Ring *r, size_t n) { move(r, &r->out, n); }

void ring_leave(Ring *r) {
    pthread_mutex_lock(&r->lock);
    r->left = true;
    pthread_cond_signal(&r->moved);
    pthread_mutex_unlock(&r->lock);
}

bool ring_left(Ring *r) {
    pthread_mutex_lock(&r->lock);
    bool left = r->left;
    pthread_mutex_unlock(&r->lock);
    return left;
}
