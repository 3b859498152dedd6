/* A bounded single-producer single-consumer ring of fixed-size items, lock-free.
 * Full means the push is refused; the producer may ask how many slots are free. Thread: one producer, one consumer. */
#ifndef ATN_RING_H
#define ATN_RING_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ring ring;

ring *ring_new(size_t n_slots, size_t item_bytes); /* n_slots is rounded up to a power of two; NULL: no memory */
void ring_free(ring *r);
bool ring_push(ring *r, const void *item);
bool ring_pop(ring *r, void *item);
size_t ring_free_slots(const ring *r); /* the producer has at least as many; for others a guess */

#endif
