/* Monotonic time as a type of its own, so that seconds and microseconds do not mix. Thread: any. */
#ifndef ATN_CLOCK_H
#define ATN_CLOCK_H

#include <stdint.h>

typedef struct mono_time {
    uint64_t us;
} mono_time;

mono_time mono_now(void);
static inline uint64_t mono_since_us(mono_time from, mono_time to)
{
    return to.us > from.us ? to.us - from.us : 0;
}

#endif
