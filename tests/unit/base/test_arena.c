/* Arena: alignment, zeroes, the maximum, handlers. */
#include "core/base/arena.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void test_blocks_are_aligned_zeroed_and_apart(void **state)
{
    (void)state;
    arena *a = arena_new(1 << 20);
    unsigned char *p[300];
    assert_non_null(a);
    for (size_t i = 0; i < 300; i++) {
        size_t n = i * 7 % 900;
        p[i] = arena_alloc(a, n);
        assert_non_null(p[i]);
        assert_int_equal((uintptr_t)p[i] % 16, 0);
        for (size_t k = 0; k < n; k++) {
            assert_int_equal(p[i][k], 0);
        }
        memset(p[i], (int)i & 255, n);
    }
    unsigned char *big = arena_alloc(a, 100000);
    assert_non_null(big);
    memset(big, 0xEE, 100000);
    for (size_t i = 0; i < 300; i++) {
        for (size_t k = 0; k < i * 7 % 900; k++) {
            assert_int_equal(p[i][k], i & 255);
        }
    }
    arena_free(a);
}

static void test_maximum(void **state)
{
    (void)state;
    arena *a = arena_new(1000);
    assert_null(arena_alloc(a, 1001));
    assert_non_null(arena_alloc(a, 900)); /* 912 with its rounding */
    assert_null(arena_alloc(a, 89));
    assert_non_null(arena_alloc(a, 80));
    assert_null(arena_alloc(a, 1));
    assert_null(arena_alloc(a, SIZE_MAX));
    assert_null(arena_alloc(a, SIZE_MAX - 20));
    arena_free(a);
    a = arena_new(1024); /* all of it in one piece */
    assert_non_null(arena_alloc(a, 1024));
    assert_null(arena_alloc(a, 0));
    arena_free(a);
    a = arena_new(SIZE_MAX);
    assert_null(arena_array(a, SIZE_MAX / 2, 3));
    assert_null(arena_alloc(a, SIZE_MAX - 40)); /* the block's own header does not wrap it */
    assert_non_null(arena_array(a, 10, 3));
    arena_free(a);
}

static void test_strdup(void **state)
{
    (void)state;
    arena *a = arena_new(4096);
    char *s = arena_strdup(a, "abcdef", 3);
    assert_string_equal(s, "abc");
    assert_string_equal(arena_strdup(a, NULL, 0), "");
    assert_null(arena_strdup(a, "x", SIZE_MAX));
    arena_free(a);
}

static char order[8];

static void note(void *arg)
{
    size_t n = strlen(order);
    order[n] = *(const char *)arg;
}

static void test_handlers_run_last_in_first_out(void **state)
{
    (void)state;
    arena *a = arena_new(4096);
    char *args = arena_strdup(a, "123", 3);
    memset(order, 0, sizeof order);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(arena_on_free(a, note, args + i), 0);
    }
    arena_free(a);
    assert_string_equal(order, "321");
    a = arena_new(8); /* no room for a handler: it is not kept, the caller is told */
    memset(order, 0, sizeof order);
    assert_int_equal(arena_on_free(a, note, (char[]){"x"}), -1);
    arena_free(a);
    assert_string_equal(order, "");
    arena_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_aligned_zeroed_and_apart),
        cmocka_unit_test(test_maximum),
        cmocka_unit_test(test_strdup),
        cmocka_unit_test(test_handlers_run_last_in_first_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
