/* Growing byte buffer: doubling up to the maximum, one byte more than `cap` is always kept for the NUL. */
#include "core/base/buf.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 240 };

void buf_init(buf *b, size_t max)
{
    *b = (buf){.max = max < SIZE_MAX ? max : SIZE_MAX - 1};
}

void buf_free(buf *b)
{
    free(b->data);
    buf_init(b, b->max);
}

void buf_clear(buf *b)
{
    b->len = 0;
    b->failed = false;
    if (b->data != NULL) {
        b->data[0] = '\0';
    }
}

static bool fail(buf *b)
{
    buf_free(b);
    b->failed = true;
    return false;
}

/* Makes room for n more bytes and the NUL. */
static bool reserve(buf *b, size_t n)
{
    if (b->failed) {
        return false;
    }
    if (n > b->max - b->len) {
        return fail(b);
    }
    size_t need = b->len + n;
    if (b->data != NULL && need <= b->cap) {
        return true;
    }
    size_t cap = b->cap < b->max / 2 ? b->cap * 2 : b->max;
    cap = cap < FIRST_BYTES && b->max > FIRST_BYTES ? FIRST_BYTES : cap;
    cap = cap < need ? need : cap;
    char *data = realloc(b->data, cap + 1);
    if (data == NULL) {
        return fail(b);
    }
    b->data = data;
    b->cap = cap;
    return true;
}

bool buf_add(buf *b, const void *bytes, size_t n)
{
    if (!reserve(b, n)) {
        return false;
    }
    if (n > 0) {
        memcpy(b->data + b->len, bytes, n);
    }
    b->len += n;
    b->data[b->len] = '\0';
    return true;
}

bool buf_puts(buf *b, const char *text)
{
    return buf_add(b, text, strlen(text));
}

bool buf_printf(buf *b, const char *fmt, ...)
{
    if (!reserve(b, 0)) {
        return false;
    }
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(b->data + b->len, b->cap - b->len + 1, fmt, ap);
    va_end(ap);
    bool fits = n >= 0 && (size_t)n <= b->cap - b->len;
    if (!fits && n >= 0 && reserve(b, (size_t)n)) {
        n = vsnprintf(b->data + b->len, b->cap - b->len + 1, fmt, again);
        fits = n >= 0 && (size_t)n <= b->cap - b->len;
    }
    va_end(again);
    if (!fits) {
        return fail(b);
    }
    b->len += (size_t)n;
    return true;
}

char *buf_take(buf *b, size_t *len)
{
    if (!reserve(b, 0)) {
        return NULL;
    }
    char *data = b->data;
    data[b->len] = '\0';
    if (len != NULL) {
        *len = b->len;
    }
    b->data = NULL;
    buf_free(b);
    return data;
}
