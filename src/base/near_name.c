/* near_name.c - the distance of two names, and the nearest of many. */
#include "base/near_name.h"

#include <string.h>

int near_distance(const char *a, size_t na, const char *b, size_t nb, int most) {
    enum { W = 96 };
    if (na >= W) na = W - 1;
    if (nb >= W) nb = W - 1;
    if ((int)(na > nb ? na - nb : nb - na) >= most) return most;
    int row[3][W] = { { 0 } };
    for (size_t j = 0; j <= nb; j++) row[0][j] = (int)j;
    for (size_t i = 1; i <= na; i++) {
        int *now = row[i % 3], *before = row[(i - 1) % 3], *two = row[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= nb; j++) {
            int best = before[j - 1] + (a[i - 1] != b[j - 1]);
            if (before[j] + 1 < best) best = before[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && two[j - 2] + 1 < best)
                best = two[j - 2] + 1;
            now[j] = best;
        }
    }
    return row[na % 3][nb];
}

const char *near_name(const char *name, size_t n, const char *(*at)(const void *user, size_t i), const void *user) {
    const char *best = NULL;
    size_t len = strlen(name);
    int least = (int)len / 3 + 2;
    for (size_t i = 0; i < n; i++) {
        const char *other = at(user, i);
        int d = near_distance(name, len, other, strlen(other), least);
        if (len > 2 && d > 1 && !strncmp(other, name, len)) d = 1;
        if (d < least) least = d, best = other;
    }
    return best;
}
