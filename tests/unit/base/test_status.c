/* Status table and error text. */
#include <attnd/status.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

static void test_every_code_has_its_row(void **state)
{
    (void)state;
#define X(name, words, http, type)                            \
    assert_string_equal(atn_status_name(ATN_##name), #name);  \
    assert_string_equal(atn_status_words(ATN_##name), words); \
    assert_int_equal(atn_status_http(ATN_##name), http);      \
    assert_string_equal(atn_status_type(ATN_##name), type);
    ATN_STATUS_LIST(X)
#undef X
    assert_int_equal(ATN_OK, 0);
    assert_string_equal(atn_status_name((atn_status)1000), "INTERNAL");
}

static void test_fail_fills_and_returns(void **state)
{
    (void)state;
    atn_err err;
    memset(&err, 'x', sizeof err);
    assert_int_equal(atn_fail(&err, ATN_TOO_LARGE, "inputs", "%d tokens: at most %d", 9, 8), ATN_TOO_LARGE);
    assert_int_equal(err.code, ATN_TOO_LARGE);
    assert_string_equal(err.param, "inputs");
    assert_string_equal(err.msg, "9 tokens: at most 8");
    assert_int_equal(atn_fail(&err, ATN_IO, NULL, "x"), ATN_IO);
    assert_string_equal(err.param, "");
    assert_int_equal(atn_fail(NULL, ATN_NOMEM, "p", "x"), ATN_NOMEM);
}

static void test_old_text_may_be_an_argument(void **state)
{
    (void)state;
    atn_err err;
    (void)atn_fail(&err, ATN_IO, "key", "inner");
    (void)atn_fail(&err, ATN_IO, err.param, "outer: %s", err.msg);
    assert_string_equal(err.msg, "outer: inner");
    assert_string_equal(err.param, "key");
}

static void test_cut_at_a_whole_character(void **state)
{
    (void)state;
    atn_err err;
    char text[400];
    /* Every position of a 2-, 3- and 4-byte character against the end of msg (255 bytes) and of param (63 bytes). */
    const char *const wide[] = {"\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    for (size_t w = 0; w < 3; w++) {
        size_t len = strlen(wide[w]);
        for (size_t shift = 0; shift < len; shift++) {
            memset(text, 'a', shift);
            size_t at = shift;
            for (; at + len < sizeof text; at += len) {
                memcpy(text + at, wide[w], len);
            }
            text[at] = '\0';
            (void)atn_fail(&err, ATN_INVALID, text, "%s", text);
            assert_int_equal(strlen(err.msg), shift + (255 - shift) / len * len);
            assert_int_equal(strlen(err.param), shift + (63 - shift) / len * len);
            assert_memory_equal(err.msg, text, strlen(err.msg));
            assert_memory_equal(err.param, text, strlen(err.param));
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_has_its_row),
        cmocka_unit_test(test_fail_fills_and_returns),
        cmocka_unit_test(test_old_text_may_be_an_argument),
        cmocka_unit_test(test_cut_at_a_whole_character),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
