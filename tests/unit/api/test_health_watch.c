/* The watch over the engine's steps: when is an engine stalled, and when does it only look like it. */
#include "server/api/health_watch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static mono_time at(unsigned seconds)
{
    return (mono_time){1000000000u + (uint64_t)seconds * 1000000};
}

static void work_without_a_step_is_a_stall(void **state)
{
    (void)state;
    health_watch w = {0};
    health_watch_feed(&w, 5, false, at(0));
    for (unsigned s = 1; s <= HEALTH_STALL_S; s++) {
        health_watch_feed(&w, 5, true, at(s));
        assert_false(health_stalled(&w, 5, true, at(s)));
    }
    assert_true(health_stalled(&w, 5, true, at(HEALTH_STALL_S + 1)));
    /* It moved between the last tick and the probe. */
    assert_false(health_stalled(&w, 6, true, at(HEALTH_STALL_S + 1)));
    health_watch_feed(&w, 6, true, at(HEALTH_STALL_S + 1));
    assert_false(health_stalled(&w, 6, true, at(HEALTH_STALL_S + 2)));
}

static void idle_time_is_no_stall(void **state)
{
    (void)state;
    health_watch w = {0};
    for (unsigned s = 0; s < 3600; s += 100) {
        health_watch_feed(&w, 5, false, at(s));
    }
    assert_false(health_stalled(&w, 5, false, at(3600)));
    health_watch_feed(&w, 5, false, at(3600));
    /* Work came: the clock starts now, not an hour ago. */
    assert_false(health_stalled(&w, 5, true, at(3601)));
    assert_true(health_stalled(&w, 5, true, at(3601 + HEALTH_STALL_S)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_without_a_step_is_a_stall),
        cmocka_unit_test(idle_time_is_no_stall),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
