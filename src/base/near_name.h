/* near_name.h - which of the names that there are somebody meant. */
#ifndef BASE_NEAR_NAME_H
#define BASE_NEAR_NAME_H

#include "base/base.h"

/* Edit distance with swaps of neighbours, or anything from 'most' on where it is no less than that (lengths alone tell
 * it of most names); beyond 95 characters only the beginnings are compared. */
int near_distance(const char *a, size_t na, const char *b, size_t nb, int most);

/* Of the name(i), i in [0, n), the nearest, or NULL where none is near; one that begins like it is near. */
const char *near_name(const char *name, size_t n, const char *(*at)(const void *user, size_t i), const void *user);

#endif
