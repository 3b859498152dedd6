/* UTF-8 (RFC 3629): strict, stateless. Thread: any. */
#ifndef ATN_UTF8_H
#define ATN_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Reads one code point at s[0..n). Returns its length 1..4; 0: more bytes are needed; -k: the first k bytes are invalid
 * (a maximal subpart, Unicode 3.9 table 3-8). */
int utf8_decode(const char *s, size_t n, uint32_t *cp);
/* Position of the first invalid byte, n when all is valid. */
size_t utf8_valid_prefix(const char *s, size_t n);

#endif
