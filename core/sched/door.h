/* The engine's door: its inbox and its bell. Other threads put jobs and names to forget in and ring; the engine thread takes all
 * of it at once and sleeps here when it has nothing to do. Counted by its users, so that a stream may outlive the engine.
 * Bounds: how many jobs may wait is counted by the engine, before they are made. Names have a fixed table; when that is full
 * everything kept is to be forgotten, which costs time and never the truth.
 * Thread: put, forget, ring, close from any; take from the engine thread. */
#ifndef ATN_DOOR_H
#define ATN_DOOR_H

#include "core/base/clock.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct door door;

enum { DOOR_MAX_NAMES = 1024 };

/* Embedded in a job. */
typedef struct door_item {
    struct door_item *next;
} door_item;

typedef struct door_name {
    uint64_t domain, sequence;
    size_t n_before; /* items of the same mail that were put before it */
} door_name;

/* What was put since the last time. */
typedef struct door_mail {
    door_item *items;       /* oldest first, NULL: none */
    const door_name *names; /* [n_names], valid until the next take */
    uint32_t n_names;
    bool all_names; /* there were too many: all is to be forgotten */
    bool closed;    /* nothing more will come */
} door_mail;

door *door_new(void); /* one use counted; NULL: no memory */
door *door_use(door *d);
void door_leave(door *d); /* NULL is fine; the last one frees it */

/* False when the door is closed; then the item stays the caller's. */
bool door_put(door *d, door_item *item);
/* Allocates nothing and never fails. */
void door_forget(door *d, uint64_t domain, uint64_t sequence);
/* The engine should look again: something changed that is no message. */
void door_ring(door *d);
void door_close(door *d);

/* Returns at once when may_sleep is false; else sleeps until a job, a name, a ring, the close, or `until` (0: no limit). */
void door_take(door *d, bool may_sleep, mono_time until, door_mail *out);

#endif
