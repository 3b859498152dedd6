/* The bounded reader: every read goes through take(), which alone moves `at`. */
#include "core/base/cursor.h"

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "attnd reads little-endian files by copying: it needs a little-endian machine"
#endif

cursor cursor_of(const void *bytes, size_t n)
{
    return (cursor){.base = bytes, .size = n};
}

size_t cursor_left(const cursor *c)
{
    return c->failed ? 0 : c->size - c->at;
}

static const unsigned char *take(cursor *c, uint64_t n)
{
    if (c->failed || n > c->size - c->at) {
        c->failed = true;
        return NULL;
    }
    const unsigned char *p = c->base + c->at;
    c->at += (size_t)n;
    return p;
}

static void read_into(cursor *c, void *out, size_t n)
{
    const unsigned char *p = take(c, n);
    if (p != NULL) {
        memcpy(out, p, n);
    }
}

uint32_t cursor_u32(cursor *c)
{
    uint32_t v = 0;
    read_into(c, &v, sizeof v);
    return v;
}

uint64_t cursor_u64(cursor *c)
{
    uint64_t v = 0;
    read_into(c, &v, sizeof v);
    return v;
}

const void *cursor_bytes(cursor *c, uint64_t n)
{
    return take(c, n);
}

bool cursor_skip(cursor *c, uint64_t n)
{
    return take(c, n) != NULL;
}

bool size_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

bool size_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool size_align(size_t n, size_t align, size_t *out)
{
    size_t top;
    if (!size_add(n, align - 1, &top)) {
        return false;
    }
    *out = top & ~(align - 1);
    return true;
}
