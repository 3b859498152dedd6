/* UTF-8 by the table of well-formed sequences (Unicode 3-7): the lead byte gives the length and the range of the second
 * byte, which is where overlong forms, surrogates and values above U+10FFFF are told apart. */
#include "core/base/utf8.h"

int utf8_decode(const char *s, size_t n, uint32_t *cp)
{
    if (n == 0) {
        return 0;
    }
    unsigned char lead = (unsigned char)s[0];
    if (lead < 0x80) {
        *cp = lead;
        return 1;
    }
    if (lead < 0xC2 || lead > 0xF4) {
        return -1;
    }
    int len = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    unsigned char lo = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    unsigned char hi = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    uint32_t value = lead & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((size_t)i == n) {
            return 0;
        }
        unsigned char byte = (unsigned char)s[i];
        if (byte < lo || byte > hi) {
            return -i;
        }
        value = value << 6 | (byte & 0x3Fu);
        lo = 0x80;
        hi = 0xBF;
    }
    *cp = value;
    return len;
}

size_t utf8_valid_prefix(const char *s, size_t n)
{
    size_t at = 0;
    while (at < n) {
        uint32_t cp;
        int len = utf8_decode(s + at, n - at, &cp);
        if (len <= 0) {
            break;
        }
        at += (size_t)len;
    }
    return at;
}
