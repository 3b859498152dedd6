/* Ring: bounds and order alone, then two threads. */
#include "core/base/ring.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

static void test_full_and_empty(void **state)
{
    (void)state;
    ring *r = ring_new(5, sizeof(int)); /* 8 slots */
    int v = 0;
    assert_non_null(r);
    assert_int_equal(ring_free_slots(r), 8);
    assert_false(ring_pop(r, &v));
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 8; i++) {
            assert_int_equal(ring_free_slots(r), 8 - i);
            assert_true(ring_push(r, &(int){100 * round + i}));
        }
        assert_int_equal(ring_free_slots(r), 0);
        assert_false(ring_push(r, &v));
        for (int i = 0; i < 8; i++) {
            assert_true(ring_pop(r, &v));
            assert_int_equal(v, 100 * round + i);
        }
        assert_int_equal(ring_free_slots(r), 8);
        assert_true(ring_push(r, &v) && ring_pop(r, &v)); /* shift the start */
    }
    ring_free(r);
    ring_free(NULL);
}

static void test_sizes(void **state)
{
    (void)state;
    assert_null(ring_new(SIZE_MAX, 8));
    assert_null(ring_new((size_t)1 << 61, 16));
    ring *r = ring_new(1, 3);
    assert_non_null(r);
    assert_int_equal(ring_free_slots(r), 1);
    ring_free(r);
}

enum { N_ITEMS = 100000 };
typedef struct item {
    uint64_t a, b, c;
} item;

static void *produce(void *arg)
{
    ring *r = arg;
    for (uint64_t i = 0; i < N_ITEMS;) {
        item it = {i, i * 3, ~i};
        if (ring_free_slots(r) > 0) {
            /* What the producer was told is free is free. */
            if (!ring_push(r, &it)) {
                return (void *)1;
            }
            i++;
        } else {
            sched_yield();
        }
    }
    return NULL;
}

static void test_two_threads(void **state)
{
    (void)state;
    ring *r = ring_new(16, sizeof(item));
    pthread_t t;
    void *failed;
    assert_int_equal(pthread_create(&t, NULL, produce, r), 0);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < N_ITEMS;) {
        item it;
        if (ring_pop(r, &it)) {
            wrong += it.a != i || it.b != i * 3 || it.c != ~i;
            i++;
        } else {
            sched_yield();
        }
    }
    pthread_join(t, &failed);
    assert_true(wrong == 0);
    assert_null(failed);
    assert_int_equal(ring_free_slots(r), 16);
    ring_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_and_empty),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_two_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
