/* The checks over a request's head, case by case: lengths that two readers could understand differently, targets, hosts. */
#include "server/http/guard.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N(a) (sizeof(a) / sizeof((a)[0]))
#define FIELD(name, value)                             \
    {                                                  \
        name, sizeof name - 1, value, sizeof value - 1 \
    }

typedef struct framing_case {
    const char *what;
    guard_header h[4];
    size_t n;
    atn_status status;
    bool has_body, chunked;
    uint64_t length;
} framing_case;

static const framing_case FRAMING[] = {
    {"nothing", {FIELD("Host", "a")}, 1, ATN_OK, false, false, 0},
    {"length", {FIELD("content-length", "12")}, 1, ATN_OK, true, false, 12},
    {"chunked", {FIELD("Transfer-Encoding", "chunked")}, 1, ATN_OK, true, true, 0},
    {"chunked, any case", {FIELD("transfer-encoding", "ChunKed")}, 1, ATN_OK, true, true, 0},
    {"both", {FIELD("Content-Length", "3"), FIELD("Transfer-Encoding", "chunked")}, 2, ATN_INVALID, true, true, 3},
    {"two lengths", {FIELD("Content-Length", "3"), FIELD("Content-Length", "4")}, 2, ATN_INVALID, true, false, 4},
    {"two equal lengths", {FIELD("Content-Length", "3"), FIELD("CONTENT-LENGTH", "3")}, 2, ATN_INVALID, true, false, 3},
    {"two codings",
     {FIELD("Transfer-Encoding", "chunked"), FIELD("Transfer-Encoding", "chunked")},
     2,
     ATN_INVALID,
     true,
     true,
     0},
    {"other coding", {FIELD("Transfer-Encoding", "xchunked")}, 1, ATN_UNSUPPORTED, true, true, 0},
    {"coding list", {FIELD("Transfer-Encoding", "gzip, chunked")}, 1, ATN_UNSUPPORTED, true, true, 0},
    {"coding twice", {FIELD("Transfer-Encoding", "chunked, chunked")}, 1, ATN_UNSUPPORTED, true, true, 0},
    {"coding with a blank", {FIELD("Transfer-Encoding", "chunked ")}, 1, ATN_UNSUPPORTED, true, true, 0},
    {"no coding", {FIELD("Transfer-Encoding", "")}, 1, ATN_UNSUPPORTED, true, true, 0},
    {"blank before the colon", {FIELD("Content-Length ", "3")}, 1, ATN_INVALID, true, false, 0},
    {"tab in a name", {FIELD("Content\tLength", "3")}, 1, ATN_INVALID, true, false, 0},
    {"NUL in a name", {FIELD("Content-Length\0", "3")}, 1, ATN_INVALID, true, false, 0},
    {"byte over 127 in a name", {FIELD("X\xc3\xa4", "3")}, 1, ATN_INVALID, true, false, 0},
    {"empty name", {FIELD("", "3")}, 1, ATN_INVALID, true, false, 0},
    {"NUL in a value", {FIELD("X", "a\0b")}, 1, ATN_INVALID, false, false, 0},
    {"CR in a value", {FIELD("X", "a\rb")}, 1, ATN_INVALID, false, false, 0},
    {"DEL in a value", {FIELD("X", "a\x7f")}, 1, ATN_INVALID, false, false, 0},
    {"tab and UTF-8 in a value", {FIELD("X", "a\tb \xc3\xa4")}, 1, ATN_OK, false, false, 0},
    {"length with a sign", {FIELD("Content-Length", "+3")}, 1, ATN_INVALID, true, false, 0},
    {"negative length", {FIELD("Content-Length", "-1")}, 1, ATN_INVALID, true, false, 0},
    {"hexadecimal length", {FIELD("Content-Length", "0x3")}, 1, ATN_INVALID, true, false, 0},
    {"length list", {FIELD("Content-Length", "3, 3")}, 1, ATN_INVALID, true, false, 0},
    {"no length", {FIELD("Content-Length", "")}, 1, ATN_INVALID, true, false, 0},
    {"largest length", {FIELD("Content-Length", "18446744073709551615")}, 1, ATN_OK, true, false, UINT64_MAX},
    {"2^64", {FIELD("Content-Length", "18446744073709551616")}, 1, ATN_OK, true, false, UINT64_MAX},
    {"200 digits",
     {FIELD("Content-Length", "99999999999999999999999999999999999999999999999999")},
     1,
     ATN_OK,
     true,
     false,
     UINT64_MAX},
};

static void framing(void **state)
{
    (void)state;
    for (size_t i = 0; i < N(FRAMING); i++) {
        const framing_case *c = &FRAMING[i];
        guard_framing f;
        atn_err err = {0};
        print_message("%s\n", c->what);
        assert_int_equal(guard_framing_check(c->h, c->n, &f, &err), c->status);
        assert_int_equal(err.code, c->status);
        assert_int_equal(f.has_body, c->has_body);
        assert_int_equal(f.chunked, c->chunked);
        if (c->status == ATN_OK) {
            assert_true(f.content_length == c->length);
        }
    }
}

static void target(void **state)
{
    static const struct {
        const char *raw, *path, *query;
    } CASES[] = {
        {"/", "/", ""},
        {"/a/b?x=1&y=%00?z", "/a/b", "x=1&y=%00?z"},
        {"/v1/sessions/a%2fb%3F%c3%A4", "/v1/sessions/a/b?\xc3\xa4", ""},
        {"/a?", "/a", ""},
        {"/../x", "/../x", ""},
        {"/a%00b", NULL, NULL},
        {"/a%0ab", NULL, NULL},
        {"/a%7f", NULL, NULL},
        {"/a%", NULL, NULL},
        {"/a%4", NULL, NULL},
        {"/a%4?x", NULL, NULL},
        {"/a%zz", NULL, NULL},
        {"/a%4z", NULL, NULL},
        {"/a b", NULL, NULL},
        {"/a#b", NULL, NULL},
        {"/a\tb", NULL, NULL},
        {"/\xc3\xa4", NULL, NULL},
        {"", NULL, NULL},
        {"*", NULL, NULL},
        {"http://a/b", NULL, NULL},
        {"a:80", NULL, NULL},
    };
    (void)state;
    for (size_t i = 0; i < N(CASES); i++) {
        char *path;
        const char *query;
        atn_err err = {0};
        print_message("%s\n", CASES[i].raw);
        atn_status s = guard_target(CASES[i].raw, &path, &query, &err);
        if (CASES[i].path == NULL) {
            assert_int_equal(s, ATN_INVALID);
            assert_null(path);
        } else {
            assert_int_equal(s, ATN_OK);
            assert_string_equal(path, CASES[i].path);
            assert_string_equal(query, CASES[i].query);
        }
        free(path);
    }
}

static atn_status host_of(const char *value, const char *version)
{
    static const char *const names[] = {"attnd.example", "0.0.0.0"};
    guard_header h = {"Host", 4, value, strlen(value)};
    atn_err err;
    return guard_host(&h, 1, version, &(guard_hosts){names, 2}, &err);
}

static void host(void **state)
{
    static const char *const allowed[] = {
        "localhost",  "LOCALHOST:8080", "127.0.0.1",     "127.0.0.1:1",       "10.1.2.3:65535", "[::1]",
        "[::1]:8080", "[fe80::1]",      "attnd.example", "Attnd.Example:443", "localhost:"};
    static const char *const foreign[] = {
        "evil.com",       "evil.com:80",        "localhost.evil.com", "attnd.example.evil.com",
        "xattnd.example", "127.0.0.1.evil.com", "attnd.exampl",       "0x7f.1",
        "[evil]"};
    static const char *const malformed[] = {"",   ":80", "[::1", "[::1]x", "a:b", "a:1234567",
                                            "[]", "a b", "a/b",  "a@b",    "a,b", "\xc3\xa4"};
    (void)state;
    for (size_t i = 0; i < N(allowed); i++) {
        print_message("%s\n", allowed[i]);
        assert_int_equal(host_of(allowed[i], "HTTP/1.1"), ATN_OK);
    }
    for (size_t i = 0; i < N(foreign); i++) {
        print_message("%s\n", foreign[i]);
        assert_int_equal(host_of(foreign[i], "HTTP/1.1"), ATN_FORBIDDEN);
        assert_int_equal(host_of(foreign[i], "HTTP/1.0"), ATN_FORBIDDEN);
    }
    for (size_t i = 0; i < N(malformed); i++) {
        print_message("%s\n", malformed[i]);
        assert_int_equal(host_of(malformed[i], "HTTP/1.1"), ATN_INVALID);
    }
}

static void host_count(void **state)
{
    static const char *const any[] = {"*"};
    const guard_header two[] = {FIELD("Host", "localhost"), FIELD("host", "localhost")};
    const guard_header other[] = {FIELD("Host", "evil.com")};
    atn_err err;
    (void)state;
    assert_int_equal(guard_host(two, 2, "HTTP/1.1", &(guard_hosts){0}, &err), ATN_INVALID);
    assert_int_equal(guard_host(two, 2, "HTTP/1.0", &(guard_hosts){0}, &err), ATN_INVALID);
    assert_int_equal(guard_host(two, 0, "HTTP/1.1", &(guard_hosts){0}, &err), ATN_INVALID);
    assert_int_equal(guard_host(two, 0, "HTTP/1.0", &(guard_hosts){0}, &err), ATN_OK);
    assert_int_equal(guard_host(other, 1, "HTTP/1.1", &(guard_hosts){any, 1}, &err), ATN_OK);
}

static void request_id(void **state)
{
    char id[GUARD_MAX_REQUEST_ID + 2];
    (void)state;
    memset(id, 'a', sizeof id);
    id[GUARD_MAX_REQUEST_ID] = '\0';
    assert_true(guard_request_id_ok(id));
    id[GUARD_MAX_REQUEST_ID] = 'a';
    id[GUARD_MAX_REQUEST_ID + 1] = '\0';
    assert_false(guard_request_id_ok(id));
    assert_true(guard_request_id_ok("aZ09._-"));
    assert_false(guard_request_id_ok(""));
    assert_false(guard_request_id_ok("a b"));
    assert_false(guard_request_id_ok("a\nb"));
    assert_false(guard_request_id_ok("\xc3\xa4"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(framing),    cmocka_unit_test(target),     cmocka_unit_test(host),
        cmocka_unit_test(host_count), cmocka_unit_test(request_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
