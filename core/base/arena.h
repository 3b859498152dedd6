/* An arena: allocations that die together, with clean-up handlers for what is not memory.
 * For one request or one load. Thread: one owner. */
#ifndef ATN_ARENA_H
#define ATN_ARENA_H

#include <stddef.h>

typedef struct arena arena;

arena *arena_new(size_t max_bytes);    /* NULL: no memory. max_bytes bounds the sum of all, each rounded up to 16 */
void arena_free(arena *a);             /* handlers run last-in first-out; NULL is fine */
void *arena_alloc(arena *a, size_t n); /* 16-byte aligned, zeroed; NULL: maximum or no memory */
void *arena_array(arena *a, size_t n, size_t size);         /* like calloc: the product is checked */
char *arena_strdup(arena *a, const char *s, size_t n);      /* NUL-terminated copy */
int arena_on_free(arena *a, void (*fn)(void *), void *arg); /* 0 ok, -1 no memory (fn is not kept) */

#endif
