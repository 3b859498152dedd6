/* A byte buffer that grows up to a maximum given at birth.
 *
 * A write that does not fit (maximum reached or no memory) sets `failed`, frees the bytes and makes every later write a
 * no-op, so that a writer checks once at the end. `buf b = {.max = n};` or buf_init; an all-zero buffer is empty and
 * takes nothing. Thread: one owner. */
#ifndef ATN_BUF_H
#define ATN_BUF_H

#include <attnd/status.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct buf {
    char *data; /* [len], then a NUL; NULL while empty */
    size_t len, cap, max;
    bool failed;
} buf;

void buf_init(buf *b, size_t max);
void buf_free(buf *b);  /* back to empty and not failed, same max */
void buf_clear(buf *b); /* len = 0 and not failed, memory kept */
bool buf_add(buf *b, const void *bytes, size_t n);
bool buf_puts(buf *b, const char *text);
bool buf_printf(buf *b, const char *fmt, ...) ATN_PRINTF(2, 3);
/* Hands the bytes (malloc'ed, NUL-terminated) to the caller; b is empty after. NULL when failed. */
char *buf_take(buf *b, size_t *len);

#endif
