/* utf8.c - is this text UTF-8?  Thirty-two ASCII bytes at a time where it can, then eight. */
#include "base/utf8.h"

#include <string.h>

bool utf8_valid(const char *s, size_t n) {
    for (size_t i = 0; i < n;) {
        uint64_t word, four[4];
        if (n - i >= 32
            && (memcpy(four, s + i, 32), !((four[0] | four[1] | four[2] | four[3]) & 0x8080808080808080u))) {
            i += 32;
            continue;
        }
        if (n - i >= 8 && (memcpy(&word, s + i, 8), !(word & 0x8080808080808080u))) {
            i += 8;
            continue;
        }
        uint32_t code;
        int len = utf8_get(s + i, n - i, &code);
        if (!len) return false;
        i += (size_t)len;
    }
    return true;
}
