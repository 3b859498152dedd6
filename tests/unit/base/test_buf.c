/* Buffer: growth, maximum, the failed state, handing over. */
#include "core/base/buf.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static void test_grows_and_ends_in_nul(void **state)
{
    (void)state;
    buf b = {.max = 1 << 20};
    char wanted[5000];
    for (size_t i = 0; i < sizeof wanted; i++) {
        wanted[i] = (char)('a' + i % 26);
        assert_true(buf_add(&b, &wanted[i], 1));
        assert_int_equal(b.data[b.len], '\0');
    }
    assert_int_equal(b.len, sizeof wanted);
    assert_memory_equal(b.data, wanted, sizeof wanted);
    buf_clear(&b);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
    assert_true(buf_puts(&b, "x"));
    assert_string_equal(b.data, "x");
    buf_free(&b);
    assert_null(b.data);
}

static void test_exact_maximum(void **state)
{
    (void)state;
    for (size_t max = 0; max < 1000; max += 37) {
        buf b;
        char text[1000];
        memset(text, 'q', sizeof text);
        buf_init(&b, max);
        assert_true(buf_add(&b, text, max));
        assert_int_equal(b.len, max);
        assert_false(b.failed);
        assert_false(buf_add(&b, "z", 1));
        assert_true(b.failed);
        assert_null(b.data);
        assert_int_equal(b.len, 0);
        assert_int_equal(b.max, max);
        assert_false(buf_add(&b, "", 0)); /* later writes do nothing */
        assert_false(buf_printf(&b, "%d", 1));
        assert_null(buf_take(&b, NULL));
        buf_clear(&b); /* a new start */
        assert_true(buf_add(&b, text, max));
        buf_free(&b);
    }
}

static void test_sizes_near_the_top_do_not_wrap(void **state)
{
    (void)state;
    buf b;
    buf_init(&b, SIZE_MAX);
    assert_true(buf_puts(&b, "abc"));
    assert_false(buf_add(&b, "x", SIZE_MAX - 2));
    assert_true(b.failed);
    buf_free(&b);
}

static void test_printf(void **state)
{
    (void)state;
    buf b = {.max = 4096};
    assert_true(buf_printf(&b, "%s-%d", "one", 2));
    assert_true(buf_printf(&b, "%0500d", 3)); /* more than the first room */
    assert_int_equal(b.len, 505);
    assert_memory_equal(b.data, "one-2000", 8);
    assert_true(b.data[504] == '3' && b.data[505] == '\0');
    assert_false(buf_printf(&b, "%05000d", 4));
    assert_true(b.failed);
    buf_free(&b);
}

static void test_take(void **state)
{
    (void)state;
    buf b = {.max = 100};
    size_t n = 99;
    char *text = buf_take(&b, &n);
    assert_string_equal(text, "");
    assert_int_equal(n, 0);
    free(text);
    assert_true(buf_puts(&b, "hello"));
    text = buf_take(&b, &n);
    assert_string_equal(text, "hello");
    assert_int_equal(n, 5);
    assert_null(b.data);
    assert_true(buf_puts(&b, "again"));
    assert_string_equal(text, "hello");
    free(text);
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grows_and_ends_in_nul),
        cmocka_unit_test(test_exact_maximum),
        cmocka_unit_test(test_sizes_near_the_top_do_not_wrap),
        cmocka_unit_test(test_printf),
        cmocka_unit_test(test_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
