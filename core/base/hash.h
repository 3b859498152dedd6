/* Hashes: a keyed 64-bit one for tables and domains (SipHash-2-4, Aumasson & Bernstein 2012), and SHA-256 (FIPS 180-4) for
 * keys at rest. Thread: any. */
#ifndef ATN_HASH_H
#define ATN_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t hash_bytes(uint64_t k0, uint64_t k1, const void *bytes, size_t n);
void hash_sha256(const void *bytes, size_t n, unsigned char out[32]);
/* Equal? in time that depends on n alone. */
bool hash_equal_const_time(const void *a, const void *b, size_t n);

#endif
