/* Open addressing with linear probing, at most half full. */
#include "core/load/name_table.h"
#include "core/base/hash.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

static gguf_str name_at(const name_table *t, size_t i)
{
    gguf_str name;
    memcpy(&name, t->items + i * t->stride, sizeof name);
    return name;
}

/* The slot that holds the name, or the free one where it belongs. */
static size_t slot_of(const name_table *t, const char *name, size_t n)
{
    size_t at = (size_t)hash_bytes(t->key[0], t->key[1], name, n) & t->mask;
    while (t->slots[at] != 0) {
        gguf_str have = name_at(t, t->slots[at] - 1);
        if (have.n == n && memcmp(have.s, name, n) == 0) {
            break;
        }
        at = (at + 1) & t->mask;
    }
    return at;
}

atn_status name_table_build(name_table *t, const void *items, size_t stride, size_t n, int64_t *duplicate)
{
    size_t n_slots = 4;
    while (n_slots < 2 * n) {
        n_slots *= 2;
    }
    *t = (name_table){.items = items, .stride = stride, .mask = n_slots - 1};
    *duplicate = NAME_NONE;
    t->slots = calloc(n_slots, sizeof *t->slots);
    if (t->slots == NULL) {
        return ATN_NOMEM;
    }
    /* Without random bits (early boot) the table still works; only its worst case is open. */
    ssize_t got = getrandom(t->key, sizeof t->key, GRND_NONBLOCK);
    (void)got;
    for (size_t i = 0; i < n; i++) {
        gguf_str name = name_at(t, i);
        size_t at = slot_of(t, name.s, name.n);
        if (t->slots[at] != 0) {
            *duplicate = (int64_t)i;
            return ATN_OK;
        }
        t->slots[at] = (uint32_t)(i + 1);
    }
    return ATN_OK;
}

void name_table_free(name_table *t)
{
    free(t->slots);
    t->slots = NULL;
}

int64_t name_table_find(const name_table *t, const char *name, size_t n)
{
    if (t->slots == NULL) {
        return NAME_NONE;
    }
    return (int64_t)t->slots[slot_of(t, name, n)] - 1;
}
