/* sha256.h - SHA-256: a name for bytes that nobody can give to other bytes, where strangers choose them (pictures). */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

void sha256(uint8_t out[32], const void *bytes, size_t n);

#endif
