/* The watch over the engine's steps: pure, so that a test needs no clock and no engine. */
#include "server/api/health_watch.h"

void health_watch_feed(health_watch *w, uint64_t steps, bool busy, mono_time now)
{
    if (!busy || steps != w->steps) {
        w->moved = now;
    }
    w->steps = steps;
}

bool health_stalled(const health_watch *w, uint64_t steps, bool busy, mono_time now)
{
    return busy && steps == w->steps && mono_since_us(w->moved, now) > (uint64_t)HEALTH_STALL_S * 1000000;
}
