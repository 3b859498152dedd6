/* The bounded reader and checked sizes. */
#include "core/base/cursor.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_reads_little_endian(void **state)
{
    (void)state;
    const unsigned char bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 'a', 'b', 'c'};
    cursor c = cursor_of(bytes, sizeof bytes);
    assert_int_equal(cursor_u32(&c), 0x04030201);
    assert_true(cursor_u64(&c) == 0x0C0B0A0908070605u);
    assert_ptr_equal(cursor_bytes(&c, 2), bytes + 12);
    assert_int_equal(cursor_left(&c), 1);
    assert_true(cursor_skip(&c, 1));
    assert_int_equal(cursor_left(&c), 0);
    assert_non_null(cursor_bytes(&c, 0));
    assert_false(c.failed);
}

/* Bytes are in a block of their exact size, so that a sanitizer sees a read past them. */
static void test_short_reads_give_zero_and_stay_failed(void **state)
{
    (void)state;
    for (size_t n = 0; n < 8; n++) {
        unsigned char *bytes = malloc(n + 1);
        memset(bytes, 0xFF, n + 1);
        cursor c = cursor_of(bytes, n);
        assert_true(cursor_u64(&c) == 0);
        assert_true(c.failed);
        assert_int_equal(cursor_left(&c), 0);
        assert_int_equal(cursor_u32(&c), 0); /* even where it would fit */
        assert_null(cursor_bytes(&c, 0));
        assert_false(cursor_skip(&c, 0));
        free(bytes);
    }
    cursor c = cursor_of("ab", 2);
    assert_false(cursor_skip(&c, UINT64_MAX));
    assert_true(c.failed);
    c = cursor_of("ab", 2);
    assert_true(cursor_skip(&c, 1));
    assert_null(cursor_bytes(&c, UINT64_MAX)); /* at + n would wrap */
}

static void test_sizes(void **state)
{
    (void)state;
    size_t out = 7;
    assert_true(size_add(SIZE_MAX - 1, 1, &out) && out == SIZE_MAX);
    assert_false(size_add(SIZE_MAX, 1, &out));
    assert_true(size_mul(SIZE_MAX / 2, 2, &out) && out == SIZE_MAX - 1);
    assert_false(size_mul(SIZE_MAX / 2 + 1, 2, &out));
    assert_true(size_mul(0, SIZE_MAX, &out) && out == 0);
    assert_true(size_align(33, 32, &out) && out == 64);
    assert_true(size_align(32, 32, &out) && out == 32);
    assert_true(size_align(0, 32, &out) && out == 0);
    assert_true(size_align(SIZE_MAX - 31, 32, &out) && out == SIZE_MAX - 31);
    assert_false(size_align(SIZE_MAX - 30, 32, &out));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_little_endian),
        cmocka_unit_test(test_short_reads_give_zero_and_stay_failed),
        cmocka_unit_test(test_sizes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
