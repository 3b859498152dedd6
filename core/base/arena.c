/* Arena: a list of zeroed blocks, each filled from its start; what does not fit in the current block opens a new one of
 * its own size or the standard size. Handlers live in the arena too, so that they die with it. */
#include "core/base/arena.h"
#include "core/base/cursor.h"

#include <stdalign.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 16, BLOCK_BYTES = 4096 };

typedef struct block {
    struct block *next;
    size_t size, used;
    alignas(ALIGN) unsigned char bytes[];
} block;

typedef struct handler {
    struct handler *next;
    void (*fn)(void *);
    void *arg;
} handler;

struct arena {
    block *blocks;     /* the first is being filled */
    handler *handlers; /* last in, first out */
    size_t max, given;
};

arena *arena_new(size_t max_bytes)
{
    arena *a = calloc(1, sizeof *a);
    if (a != NULL) {
        a->max = max_bytes;
    }
    return a;
}

void arena_free(arena *a)
{
    if (a == NULL) {
        return;
    }
    for (handler *h = a->handlers; h != NULL; h = h->next) {
        h->fn(h->arg);
    }
    while (a->blocks != NULL) {
        block *b = a->blocks;
        a->blocks = b->next;
        free(b);
    }
    free(a);
}

void *arena_alloc(arena *a, size_t n)
{
    size_t size;
    if (!size_align(n > 0 ? n : 1, ALIGN, &size) || size > a->max - a->given) {
        return NULL;
    }
    block *b = a->blocks;
    if (b == NULL || b->size - b->used < size) {
        size_t room = size > BLOCK_BYTES ? size : BLOCK_BYTES;
        size_t total;
        if (!size_add(sizeof *b, room, &total) || (b = calloc(1, total)) == NULL) {
            return NULL;
        }
        b->size = room;
        /* A block that is full at once goes behind the one that still has room. */
        if (size == room && a->blocks != NULL) {
            b->next = a->blocks->next;
            a->blocks->next = b;
        } else {
            b->next = a->blocks;
            a->blocks = b;
        }
    }
    void *p = b->bytes + b->used;
    b->used += size;
    a->given += size;
    return p;
}

void *arena_array(arena *a, size_t n, size_t size)
{
    size_t bytes;
    return size_mul(n, size, &bytes) ? arena_alloc(a, bytes) : NULL;
}

char *arena_strdup(arena *a, const char *s, size_t n)
{
    size_t bytes;
    char *copy = size_add(n, 1, &bytes) ? arena_alloc(a, bytes) : NULL;
    if (copy != NULL && n > 0) {
        memcpy(copy, s, n);
    }
    return copy;
}

int arena_on_free(arena *a, void (*fn)(void *), void *arg)
{
    handler *h = arena_alloc(a, sizeof *h);
    if (h == NULL) {
        return -1;
    }
    *h = (handler){.next = a->handlers, .fn = fn, .arg = arg};
    a->handlers = h;
    return 0;
}
