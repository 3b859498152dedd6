/* JSON at the edge: bounds before parsing, typed getters, writing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "server/api/json.h"

static atn_status parse(const char *text, json_t **root, atn_err *err)
{
    *err = (atn_err){0};
    return body_parse_bytes(text, strlen(text), root, err);
}

static void refused(const char *text, const char *words)
{
    json_t *root;
    atn_err err;
    assert_int_equal(parse(text, &root, &err), ATN_INVALID);
    assert_null(root);
    if (strstr(err.msg, words) == NULL) {
        fail_msg("%s: \"%s\" lacks \"%s\"", text, err.msg, words);
    }
}

static void test_refused(void **state)
{
    (void)state;
    refused("", "empty");
    refused("null", "invalid JSON");
    refused("[]", "object");
    refused("\"x\"", "invalid JSON");
    refused("{\"a\":1", "too early");
    refused("{} x", "follows");
    refused("\xef\xbb\xbf{}", "invalid JSON");
    refused("{\"n\":1,\"n\":99}", "duplicate");
    refused("{\"n\":1e999}", "out of range");
    refused("{\"n\":9223372036854775808}", "out of range");
    refused("{\"n\":NaN}", "invalid JSON");
    refused("{\"n\":01}", "JSON");
    refused("{\"a\":\"\xff\"}", "UTF-8");
    refused("{\"a\":\"\\ud800\"}", "JSON");
    refused("{\"a\":\"\\u0000\"}", "NUL");
    refused("{\"secret-word\":tru}", "line 1");
}

static void test_no_echo(void **state)
{
    (void)state;
    json_t *root;
    atn_err err;
    assert_int_equal(parse("{\"a\": secretword}", &root, &err), ATN_INVALID);
    assert_null(strstr(err.msg, "secret"));
}

static char *repeated(const char *open, const char *item, size_t n, const char *close)
{
    char *text = malloc(strlen(open) + n * strlen(item) + strlen(close) + 1);
    char *p = stpcpy(text, open);
    for (size_t i = 0; i < n; i++) {
        p = stpcpy(p, item);
    }
    stpcpy(p, close);
    return text;
}

static void bounded(const char *open, const char *item, size_t n, const char *close, const char *words)
{
    char *text = repeated(open, item, n, close);
    refused(text, words);
    free(text);
}

static void test_bounds(void **state)
{
    (void)state;
    bounded("{\"a\":", "[", JSON_MAX_DEPTH, "", "deeper than 64");
    bounded("", "[", 1000000, "", "deeper");
    bounded("{\"a\":[", "{},", JSON_MAX_CONTAINERS, "{}]}", "objects and arrays");
    bounded("{\"a\":[", "1,", JSON_MAX_VALUES, "1]}", "values");
    bounded("{", "\"a\":1,", JSON_MAX_MEMBERS, "\"b\":1}", "members");
    /* Brackets inside of strings do not count; an escaped quote does not end one. */
    char *text = repeated("{\"a\":\"\\\"", "[{,:", 100000, "\"}");
    json_t *root;
    atn_err err;
    assert_int_equal(parse(text, &root, &err), ATN_OK);
    json_decref(root);
    free(text);
}

static void test_getters(void **state)
{
    (void)state;
    json_t *root;
    atn_err err;
    assert_int_equal(
        parse("{\"i\":5,\"f\":1.5,\"b\":true,\"s\":\"hey\",\"n\":null,\"tiny\":1e-320,\"big\":9223372036854775807,"
              "\"x\":1,\"y\":2}",
              &root, &err),
        ATN_OK);
    fields f;
    fields_open(&f, root);
    int64_t i = -7;
    bool given = false, b = false;
    float v = 0;
    const char *s = NULL;
    size_t n = 0;
    assert_int_equal(fields_int(&f, "n", 0, 9, &i, &given, &err), ATN_OK);
    assert_int_equal(i, -7);
    assert_false(given);
    assert_int_equal(fields_int(&f, "i", 5, 5, &i, &given, &err), ATN_OK);
    assert_int_equal(i, 5);
    assert_true(given);
    assert_int_equal(fields_int(&f, "i", 6, 9, &i, NULL, &err), ATN_INVALID);
    assert_string_equal(err.param, "i");
    assert_non_null(strstr(err.msg, "6 .. 9"));
    assert_int_equal(fields_int(&f, "f", 0, 9, &i, NULL, &err), ATN_INVALID);
    assert_int_equal(fields_int(&f, "b", 0, 9, &i, NULL, &err), ATN_INVALID);
    assert_int_equal(fields_int(&f, "s", 0, 9, &i, NULL, &err), ATN_INVALID);
    assert_int_equal(fields_int(&f, "big", 0, INT64_MAX, &i, NULL, &err), ATN_OK);
    assert_true(i == INT64_MAX);
    assert_int_equal(fields_float(&f, "f", 1.5, false, 2, &v, NULL, &err), ATN_OK);
    assert_true(v == 1.5f);
    assert_int_equal(fields_float(&f, "f", 1.5, true, 2, &v, NULL, &err), ATN_INVALID);
    assert_int_equal(fields_float(&f, "f", 0, false, 1, &v, NULL, &err), ATN_INVALID);
    assert_int_equal(fields_float(&f, "i", 0, false, 5, &v, NULL, &err), ATN_OK);
    assert_true(v == 5);
    assert_int_equal(fields_float(&f, "tiny", 0, true, 1, &v, NULL, &err), ATN_OK);
    assert_true(v == FLT_MIN);
    assert_int_equal(fields_bool(&f, "b", &b, &err), ATN_OK);
    assert_true(b);
    assert_int_equal(fields_bool(&f, "i", &b, &err), ATN_INVALID);
    assert_int_equal(fields_string(&f, "s", 3, &s, &n, &err), ATN_OK);
    assert_string_equal(s, "hey");
    assert_int_equal(fields_string(&f, "s", 2, &s, &n, &err), ATN_INVALID);
    assert_int_equal(fields_string(&f, "i", 2, &s, &n, &err), ATN_INVALID);
    assert_int_equal(fields_refuse(&f, "b", &err), ATN_INVALID);
    assert_int_equal(fields_refuse(&f, "n", &err), ATN_OK);
    assert_int_equal(fields_close(&f), 2); /* x and y */
    json_decref(root);
}

static void test_token_ids(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        atn_status st;
    } cases[] = {
        {"{\"t\":[0,9]}", ATN_OK},
        {"{\"t\":[]}", ATN_OK},
        {"{\"t\":[10]}", ATN_INVALID},
        {"{\"t\":[-1]}", ATN_INVALID},
        {"{\"t\":[1.5]}", ATN_INVALID},
        {"{\"t\":[\"1\"]}", ATN_INVALID},
        {"{\"t\":[4294967296]}", ATN_INVALID},
        {"{\"t\":[[1]]}", ATN_INVALID},
        {"{\"t\":[1,2,3,4]}", ATN_INVALID},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root;
        atn_err err;
        int32_t *ids;
        size_t n;
        assert_int_equal(parse(cases[i].text, &root, &err), ATN_OK);
        assert_int_equal(json_token_ids(json_object_get(root, "t"), "t", 10, 3, &ids, &n, &err), cases[i].st);
        assert_true((ids != NULL) == (cases[i].st == ATN_OK));
        free(ids);
        json_decref(root);
    }
}

static void test_writing(void **state)
{
    (void)state;
    buf b;
    buf_init(&b, 4096);
    static const char odd[] = "a\"\\\n\r\t\b\f\x01\x7f\xc3\xa9\xf0\x9f\x98\x80\xff\xed\xa0\x80z";
    put_string(&b, odd, sizeof odd - 1);
    assert_string_equal(b.data, "\"a\\\"\\\\\\n\\r\\t\\b\\f\\u0001\\u007f\xc3\xa9\xf0\x9f\x98\x80\xef\xbf\xbd"
                                "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"");
    buf_clear(&b);
    put_string(&b, "\xe2\x82", 2); /* cut character */
    assert_string_equal(b.data, "\"\xef\xbf\xbd\"");
    static const float values[] = {0, -0.0f, 1, -0.1f, 1e-45f, FLT_MAX, 0.333333343f, -13.8155107f, 16777216};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        buf_clear(&b);
        put_float(&b, values[i]);
        assert_true(strtof(b.data, NULL) == values[i]);
    }
    buf_clear(&b);
    put_float(&b, -0.1f);
    assert_string_equal(b.data, "-0.1");
    buf_clear(&b);
    put_float(&b, NAN);
    put_float(&b, -INFINITY);
    assert_string_equal(b.data, "nullnull");
    buf_clear(&b);
    buf_puts(&b, "[");
    put_comma(&b);
    put_cstring(&b, NULL);
    put_comma(&b);
    put_cstring(&b, "");
    assert_string_equal(b.data, "[null,\"\"");
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refused), cmocka_unit_test(test_no_echo),   cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_getters), cmocka_unit_test(test_token_ids), cmocka_unit_test(test_writing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
