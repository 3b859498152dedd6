/* Does the engine still move? Fed on every tick, so that a probe that comes rarely learns what happened in between.
 * Thread: the loop thread. */
#ifndef ATTND_HEALTH_WATCH_H
#define ATTND_HEALTH_WATCH_H

#include "core/base/clock.h"
#include <stdbool.h>

enum { HEALTH_STALL_S = 30 };

typedef struct health_watch {
    uint64_t steps;  /* of the engine, when it last moved */
    mono_time moved; /* when it last made a step or had nothing to do */
} health_watch;

void health_watch_feed(health_watch *w, uint64_t steps, bool busy, mono_time now);
/* Work is there, and no step was made for HEALTH_STALL_S seconds. */
bool health_stalled(const health_watch *w, uint64_t steps, bool busy, mono_time now);

#endif
