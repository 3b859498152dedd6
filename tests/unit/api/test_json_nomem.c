/* Every allocation of parsing a body fails once: ATN_NOMEM or the whole value, nothing leaked, and never a shortened string. */
#include "tests/unit/failing_malloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "server/api/json.h"

static const char body[] =
    "{\"a long key of more than sixteen bytes\":\"a string long enough to grow the lexer's buffer twice: "
    "\\u00e9\\n\\\"quoted\\\" and so on\",\"list\":[1,2.5,-3,true,null,\"x\",[],{},[[\"deep\"]],5,6,7,8,9],"
    "\"number\":123456789012345678,\"o\":{\"1\":1,\"2\":2,\"3\":3,\"4\":4,\"5\":5,\"6\":6,\"7\":7,\"8\":8,"
    "\"9\":9,\"10\":10}}";

static atn_status parse_once(json_t *expected, atn_err *err)
{
    json_t *root = NULL;
    atn_status s = body_parse_bytes(body, sizeof body - 1, &root, err);
    fail_at = 0;
    if (s == ATN_OK) {
        assert_true(expected == NULL || json_equal(expected, root));
        json_decref(root);
    } else {
        assert_null(root);
    }
    return s;
}

static void test_every_allocation(void **state)
{
    (void)state;
    atn_err err;
    json_t *expected;
    assert_int_equal(body_parse_bytes(body, sizeof body - 1, &expected, &err), ATN_OK);
    assert_int_equal(parse_once(expected, &err), ATN_OK);
    if (!SANITIZED) {
        int n_failed = 0;
        for (long k = 1; k < 10000; k++) {
            long before = n_live;
            fail_at = k;
            atn_status s = parse_once(expected, &err);
            assert_int_equal(n_live, before);
            if (s == ATN_OK) {
                break;
            }
            assert_int_equal(s, ATN_NOMEM);
            n_failed++;
        }
        assert_in_range(n_failed, 50, 9000);
    }
    json_decref(expected);
}

/* A value parsed before a failure is whole after it, and goes at its own time. */
static void test_values_outlive_a_failure(void **state)
{
    (void)state;
    atn_err err;
    json_t *first, *second = NULL;
    assert_int_equal(body_parse_bytes("{\"a\":[1,2]}", 11, &first, &err), ATN_OK);
    if (!SANITIZED) {
        fail_at = 20;
        assert_int_equal(body_parse_bytes(body, sizeof body - 1, &second, &err), ATN_NOMEM);
        fail_at = 0;
    }
    assert_int_equal(json_array_size(json_object_get(first, "a")), 2);
    json_object_set_new(first, "b", json_string("made outside of a parse"));
    json_decref(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_allocation),
        cmocka_unit_test(test_values_outlive_a_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
