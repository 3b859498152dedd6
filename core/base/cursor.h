/* A bounded reader over untrusted bytes: every file format goes through it.
 *
 * After the first failure every read gives zero and `failed` stays set, so that a parser checks where it
 * must and once at the end. Integers are little-endian. Thread: one owner. */
#ifndef ATN_CURSOR_H
#define ATN_CURSOR_H

#include <attnd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct cursor {
    const unsigned char *base;
    size_t size, at;
    bool failed;
} cursor;

cursor cursor_of(const void *bytes, size_t n);
size_t cursor_left(const cursor *c);
uint32_t cursor_u32(cursor *c);
uint64_t cursor_u64(cursor *c);
const void *cursor_bytes(cursor *c, uint64_t n); /* NULL when fewer are left */
bool cursor_skip(cursor *c, uint64_t n);

/* Checked arithmetic for sizes: false on overflow. */
bool size_add(size_t a, size_t b, size_t *out);
bool size_mul(size_t a, size_t b, size_t *out);
bool size_align(size_t n, size_t align, size_t *out); /* align: a power of two */

#endif
