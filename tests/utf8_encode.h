/* Writing UTF-8, which the server never does code point by code point. */
#ifndef UTF8_ENCODE_H
#define UTF8_ENCODE_H

#include <stddef.h>
#include <stdint.h>

/* Writes cp; returns its length. */
static inline size_t utf8_encode(uint32_t cp, char out[4])
{
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    size_t len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    for (size_t i = len - 1; i > 0; i--) {
        out[i] = (char)(0x80u | (cp & 0x3Fu));
        cp >>= 6;
    }
    out[0] = (char)((0xF00u >> len & 0xFFu) | cp);
    return len;
}

#endif
