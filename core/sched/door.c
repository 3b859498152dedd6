/* Mutex, condition variable, a list of jobs and two tables of names, one being read while the other fills; see door.h. The condition waits on the monotonic clock. */
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
    size_t n_items;
    door_name names[2][DOOR_MAX_NAMES];
    uint32_t filling, n_names; /* which table, and how far */
    bool all_names, rung, closed;
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
        d->n_items++;
        pthread_cond_signal(&d->bell);
    }
    pthread_mutex_unlock(&d->lock);
    return open;
}

void door_forget(door *d, uint64_t domain, uint64_t sequence)
{
    pthread_mutex_lock(&d->lock);
    if (d->n_names < DOOR_MAX_NAMES) {
        d->names[d->filling][d->n_names++] = (door_name){domain, sequence, d->n_items};
    } else {
        d->all_names = true;
    }
    d->rung = true;
    pthread_cond_signal(&d->bell);
    pthread_mutex_unlock(&d->lock);
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

void door_take(door *d, bool may_sleep, mono_time until, door_mail *out)
{
    pthread_mutex_lock(&d->lock);
    while (may_sleep && !d->first && !d->rung && !d->closed) {
        may_sleep = wait_locked(d, until);
    }
    *out = (door_mail){.items = d->first,
                       .names = d->names[d->filling],
                       .n_names = d->n_names,
                       .all_names = d->all_names,
                       .closed = d->closed};
    d->first = NULL;
    d->end = &d->first;
    d->filling = 1 - d->filling;
    d->n_items = d->n_names = 0;
    d->all_names = d->rung = false;
    pthread_mutex_unlock(&d->lock);
}
