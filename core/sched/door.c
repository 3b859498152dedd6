/* Mutex, condition variable and a list, see door.h. The condition waits on the monotonic clock. */
#include "core/sched/door.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct door {
    atomic_uint uses;
    pthread_mutex_t lock;
    pthread_cond_t bell;
    /* under lock */
    door_item *first, **end;
    bool rung, closed;
};

door *door_new(void)
{
    pthread_condattr_t attr;
    door *d = calloc(1, sizeof *d);

    if (!d) {
        return NULL;
    }
    atomic_init(&d->uses, 1);
    d->end = &d->first;
    pthread_mutex_init(&d->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&d->bell, &attr);
    pthread_condattr_destroy(&attr);
    return d;
}

door *door_use(door *d)
{
    atomic_fetch_add_explicit(&d->uses, 1, memory_order_relaxed);
    return d;
}

void door_leave(door *d)
{
    if (d && atomic_fetch_sub_explicit(&d->uses, 1, memory_order_acq_rel) == 1) {
        pthread_cond_destroy(&d->bell);
        pthread_mutex_destroy(&d->lock);
        free(d);
    }
}

bool door_put(door *d, door_item *item)
{
    item->next = NULL;
    pthread_mutex_lock(&d->lock);
    const bool open = !d->closed;
    if (open) {
        *d->end = item;
        d->end = &item->next;
        pthread_cond_signal(&d->bell);
    }
    pthread_mutex_unlock(&d->lock);
    return open;
}

void door_ring(door *d)
{
    pthread_mutex_lock(&d->lock);
    d->rung = true;
    pthread_cond_signal(&d->bell);
    pthread_mutex_unlock(&d->lock);
}

void door_close(door *d)
{
    pthread_mutex_lock(&d->lock);
    d->closed = true;
    pthread_cond_signal(&d->bell);
    pthread_mutex_unlock(&d->lock);
}

/* False when the time has come. */
static bool wait_locked(door *d, mono_time until)
{
    if (until.us == 0) {
        pthread_cond_wait(&d->bell, &d->lock);
        return true;
    }
    const struct timespec ts = {.tv_sec = (time_t)(until.us / 1000000), .tv_nsec = (long)(until.us % 1000000) * 1000};
    return pthread_cond_timedwait(&d->bell, &d->lock, &ts) == 0;
}

door_item *door_take(door *d, bool may_sleep, mono_time until, bool *closed)
{
    pthread_mutex_lock(&d->lock);
    while (may_sleep && !d->first && !d->rung && !d->closed) {
        may_sleep = wait_locked(d, until);
    }
    door_item *items = d->first;
    d->first = NULL;
    d->end = &d->first;
    d->rung = false;
    *closed = d->closed;
    pthread_mutex_unlock(&d->lock);
    return items;
}
