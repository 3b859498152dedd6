/* The monotonic clock in microseconds. */
#include "core/base/clock.h"

#include <time.h>

mono_time mono_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (mono_time){.us = (uint64_t)ts.tv_sec * 1000000u + (uint64_t)ts.tv_nsec / 1000u};
}
