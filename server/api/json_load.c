/* See json_load.h. jansson 2.14's lexer ignores that its buffer could not grow: it then takes shortened strings for whole
 * ones, or searches them beyond their end. So while it parses, no allocation of its returns NULL: the first that fails
 * leaves the parser by longjmp, and what it holds is freed from here. For that every block of jansson's begins with a link;
 * a parse's blocks hang in a ring until it ends, and stay linked to each other after, which only free them one by one.
 *
 * jansson has one pair of allocation functions a process. They are set before main, so that no block outlives a change. */
#include "server/api/json_load.h"

#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct link {
    struct link *prev, *next;
} link;

typedef struct parse {
    link ring; /* first: of what it has allocated */
    jmp_buf out;
} parse;

_Static_assert(sizeof(link) % _Alignof(max_align_t) == 0, "what follows a link is aligned as malloc aligns");

static _Thread_local parse *current; /* of this thread, NULL: none */

static void unlink_block(link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
}

static void *allocate(size_t n)
{
    link *l = n <= SIZE_MAX - sizeof *l ? malloc(sizeof *l + n) : NULL;
    if (l == NULL) {
        if (current != NULL) {
            longjmp(current->out, 1);
        }
        return NULL;
    }
    link *at = current != NULL ? &current->ring : l;
    l->prev = at;
    l->next = current != NULL ? at->next : l;
    l->prev->next = l;
    l->next->prev = l;
    return l + 1;
}

static void release(void *p)
{
    if (p != NULL) {
        link *l = (link *)p - 1;
        unlink_block(l);
        free(l);
    }
}

__attribute__((constructor)) static void set_functions(void)
{
    json_set_alloc_funcs(allocate, release);
}

json_t *json_load_bytes(const char *bytes, size_t n, size_t flags, json_error_t *e, bool *nomem)
{
    parse p;
    p.ring.prev = p.ring.next = &p.ring;
    *nomem = setjmp(p.out) != 0;
    if (*nomem) {
        current = NULL;
        while (p.ring.next != &p.ring) {
            release(p.ring.next + 1);
        }
        return NULL;
    }
    current = &p;
    json_t *v = json_loadb(bytes, n, flags, e);
    current = NULL;
    unlink_block(&p.ring);
    return v;
}
