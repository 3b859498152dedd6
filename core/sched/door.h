/* The engine's door: its inbox and its bell. Other threads put messages in and ring; the engine thread takes all messages at
 * once and sleeps here when it has nothing to do. Counted by its users, so that a stream may outlive the engine.
 * Order: messages are taken in the order they were put. How many jobs may wait is counted by the engine, before they are made.
 * Thread: put, ring, close from any; take from the engine thread. */
#ifndef ATN_DOOR_H
#define ATN_DOOR_H

#include "core/base/clock.h"
#include <stdbool.h>

typedef struct door door;

/* Embedded in what is sent. */
typedef struct door_item {
    struct door_item *next;
    enum { DOOR_JOB, DOOR_DROP } kind;
} door_item;

door *door_new(void); /* one use counted; NULL: no memory */
door *door_use(door *d);
void door_leave(door *d); /* NULL is fine; the last one frees it */

/* False when the door is closed; then the item stays the caller's. */
bool door_put(door *d, door_item *item);
/* The engine should look again: something changed that is no message. */
void door_ring(door *d);
void door_close(door *d);

/* All messages, oldest first, NULL when there are none. Returns at once when may_sleep is false; else sleeps until a message,
 * a ring, the close, or `until` (0: no limit). *closed: nothing more will come. */
door_item *door_take(door *d, bool may_sleep, mono_time until, bool *closed);

#endif
