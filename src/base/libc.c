/* libc.c - what libraries that are linked in take from a newer libc than a package asks for: glibc has arc4random since
 * 2.36, which libevent and libstdc++ use where they were built with it.  Ours is the same promise: bytes of the
 * kernel's generator. */
#include "base/base.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

void arc4random_buf(void *bytes, size_t n);
uint32_t arc4random(void);

void arc4random_buf(void *bytes, size_t n) {
    for (size_t done = 0; done < n;) {
        ssize_t got = getrandom((char *)bytes + done, n - done, 0);
        CHECK(got > 0 || errno == EINTR, "the system gives no random bytes");
        if (got > 0) done += (size_t)got;
    }
}

uint32_t arc4random(void) {
    uint32_t x;
    arc4random_buf(&x, sizeof x);
    return x;
}
