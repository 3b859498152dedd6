/* Single-producer single-consumer ring (Lamport 1977): two free-running positions, each written by one side only and on
 * a cache line of its own; a slot is published by the release store of the position behind it. */
#include "core/base/ring.h"
#include "core/base/cursor.h"

#include <stdalign.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { LINE = 64 };

struct ring {
    alignas(LINE) atomic_size_t tail; /* next slot to write: the producer's */
    alignas(LINE) atomic_size_t head; /* next slot to read: the consumer's */
    alignas(LINE) size_t n_slots;     /* a power of two */
    size_t item_bytes;
    alignas(LINE) unsigned char slots[];
};

ring *ring_new(size_t n_slots, size_t item_bytes)
{
    size_t n = 1;
    while (n < n_slots) {
        if (n > SIZE_MAX / 4) {
            return NULL;
        }
        n *= 2;
    }
    size_t bytes;
    if (!size_mul(n, item_bytes, &bytes) || !size_add(bytes, sizeof(ring), &bytes) ||
        !size_align(bytes, LINE, &bytes)) {
        return NULL;
    }
    ring *r = aligned_alloc(LINE, bytes);
    if (r != NULL) {
        atomic_init(&r->tail, 0);
        atomic_init(&r->head, 0);
        r->n_slots = n;
        r->item_bytes = item_bytes;
    }
    return r;
}

void ring_free(ring *r)
{
    free(r);
}

static unsigned char *slot_at(ring *r, size_t position)
{
    return r->slots + (position & (r->n_slots - 1)) * r->item_bytes;
}

bool ring_push(ring *r, const void *item)
{
    size_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);
    if (tail - atomic_load_explicit(&r->head, memory_order_acquire) == r->n_slots) {
        return false;
    }
    memcpy(slot_at(r, tail), item, r->item_bytes);
    atomic_store_explicit(&r->tail, tail + 1, memory_order_release);
    return true;
}

bool ring_pop(ring *r, void *item)
{
    size_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
    if (head == atomic_load_explicit(&r->tail, memory_order_acquire)) {
        return false;
    }
    memcpy(item, slot_at(r, head), r->item_bytes);
    atomic_store_explicit(&r->head, head + 1, memory_order_release);
    return true;
}

size_t ring_free_slots(const ring *r)
{
    /* head first: it can only be older than tail then, so that the difference never exceeds n_slots for the producer. */
    size_t head = atomic_load_explicit(&r->head, memory_order_acquire);
    size_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
    size_t used = tail - head;
    return used < r->n_slots ? r->n_slots - used : 0;
}
