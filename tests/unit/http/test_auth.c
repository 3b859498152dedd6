/* Keys: what a key file may hold, and who a request is. */
#include "server/http/auth.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static atn_status open_with(const char *text, auth **out, atn_err *err)
{
    char path[] = "/tmp/attnd-keys-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    assert_int_equal(close(fd), 0);
    atn_status s = auth_open(path, out, err);
    assert_int_equal(unlink(path), 0);
    return s;
}

static void without_keys(void **state)
{
    auth *a;
    atn_err err;
    identity who;
    (void)state;
    assert_int_equal(auth_open(NULL, &a, &err), ATN_OK);
    assert_int_equal(auth_check(a, NULL, NULL, &who, &err), ATN_OK);
    assert_string_equal(who.name, "anonymous");
    assert_int_equal(who.rights, RIGHT_INFER | RIGHT_ADMIN | RIGHT_ATTENTION_FULL);
    auth_close(a);
}

static void with_keys(void **state)
{
    auth *a;
    atn_err err;
    identity ann, bob, again;
    (void)state;
    assert_int_equal(
        open_with("# keys\n\nk-ann  ann infer\n\tk-bob bob infer,admin,attention\r\nk-eve eve all", &a, &err), ATN_OK);
    assert_int_equal(auth_check(a, "Bearer k-ann", NULL, &ann, &err), ATN_OK);
    assert_string_equal(ann.name, "ann");
    assert_int_equal(ann.rights, RIGHT_INFER);
    assert_int_equal(auth_check(a, NULL, "k-bob", &bob, &err), ATN_OK);
    assert_string_equal(bob.name, "bob");
    assert_int_equal(bob.rights, RIGHT_INFER | RIGHT_ADMIN | RIGHT_ATTENTION_FULL);
    assert_int_not_equal(ann.key_hash, bob.key_hash);
    assert_int_equal(auth_check(a, "bearer  k-ann", "k-bob", &again, &err), ATN_OK);
    assert_true(again.key_hash == ann.key_hash);
    assert_int_equal(auth_check(a, NULL, "k-eve", &again, &err), ATN_OK);
    auth_close(a);
}

static void wrong_keys(void **state)
{
    static const char *const values[] = {
        NULL, "", "Bearer ", "Bearer k-an", "Bearer k-ann2", "Bearer K-ANN", "Bearer k-ann ", "Basic k-ann", "k-ann"};
    auth *a;
    atn_err err;
    identity who;
    (void)state;
    assert_int_equal(open_with("k-ann ann infer\n", &a, &err), ATN_OK);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        assert_int_equal(auth_check(a, values[i], NULL, &who, &err), ATN_UNAUTHENTICATED);
        assert_int_equal(who.rights, 0);
    }
    /* A scheme that is not Bearer does not fall back to the other header. */
    assert_int_equal(auth_check(a, "Basic k-ann", "k-ann", &who, &err), ATN_UNAUTHENTICATED);
    assert_int_equal(auth_check(a, NULL, "", &who, &err), ATN_UNAUTHENTICATED);
    auth_close(a);
}

static void bad_files(void **state)
{
    static const struct {
        const char *text, *says;
    } CASES[] = {
        {"", "holds no key"},
        {"# only words\n", "holds no key"},
        {"k ann infer\nk\n", "line 2"},
        {"k ann\n", "line 1"},
        {"k ann infer more\n", "line 1"},
        {"k ann fly\n", "rights are"},
        {"k ann infer,\n", "rights are"},
        {"k ann infer\nk bob infer\n", "line 2: this key is there already"},
    };
    auth *a;
    atn_err err;
    (void)state;
    for (size_t i = 0; i < sizeof CASES / sizeof CASES[0]; i++) {
        assert_int_equal(open_with(CASES[i].text, &a, &err), ATN_INVALID);
        assert_null(a);
        assert_string_equal(err.param, "api-key-file");
        assert_non_null(strstr(err.msg, CASES[i].says));
    }
    assert_int_equal(auth_open("/nonexistent/keys", &a, &err), ATN_IO);
    assert_int_equal(auth_open("/dev/zero", &a, &err), ATN_IO);
}

static void long_lines(void **state)
{
    char text[3000];
    auth *a;
    atn_err err;
    (void)state;
    memset(text, 'k', 1100);
    strcpy(text + 1100, " ann infer\n");
    assert_int_equal(open_with(text, &a, &err), ATN_INVALID);
    assert_non_null(strstr(err.msg, "line 1"));
    memset(text, 'k', 600);
    strcpy(text + 600, " ann infer\n");
    assert_int_equal(open_with(text, &a, &err), ATN_INVALID);
    assert_non_null(strstr(err.msg, "at most 512"));
    strcpy(text + 512, " ann infer\n");
    assert_int_equal(open_with(text, &a, &err), ATN_OK);
    auth_close(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_keys), cmocka_unit_test(with_keys),  cmocka_unit_test(wrong_keys),
        cmocka_unit_test(bad_files),    cmocka_unit_test(long_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
