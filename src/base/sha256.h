/* sha256.h - SHA-256: a name for bytes that nobody can give to other bytes, where strangers choose them (pictures,
 * files of a hub); and SHA-1, the name that git has for a file. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

void sha256(uint8_t out[32], const void *bytes, size_t n);

/* The same of bytes that come in pieces.  {0} with one of the two begins is ready. */
typedef struct Hash {
    uint32_t s[8];
    uint8_t  part[64];
    uint64_t n;                                     /* bytes so far */
    void   (*block)(uint32_t s[8], const uint8_t *p);
    int      words;                                 /* of the digest */
} Hash;
Hash sha256_begin(void);
Hash sha1_begin(void);
void hash_add(Hash *h, const void *bytes, size_t n);
void hash_end(Hash *h, char hex[65]);               /* 64 digits of SHA-256, 40 of SHA-1 */

#endif
