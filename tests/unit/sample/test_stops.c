/* The stop automaton: exact cases, and random ones against a search by hand. */
#include "core/sample/stops.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static stops *make(const char *const *strings, uint32_t n)
{
    size_t lens[16] = {0};
    stops *s = NULL;
    atn_err err;

    for (uint32_t i = 0; i < n; i++) {
        lens[i] = strlen(strings[i]);
    }
    assert_int_equal(stops_new(strings, lens, n, &s, &err), ATN_OK);
    return s;
}

static void test_match_inside_one_piece(void **state)
{
    (void)state;
    stops *s = make((const char *[]){"\n\n", "END"}, 2);
    uint32_t at = 0, which = 9;
    size_t used = 0;

    assert_true(stops_feed(s, &at, "say END now", 11, &used, &which));
    assert_int_equal(used, 7);
    assert_int_equal(which, 1);
    stops_free(s);
}

static void test_match_across_pieces_and_pending(void **state)
{
    (void)state;
    stops *s = make((const char *[]){"abcd", "bcx"}, 2);
    uint32_t at = 0, which = 9;
    size_t used = 0;

    assert_int_equal(stops_pending(s, at), 0);
    assert_false(stops_feed(s, &at, "zzab", 4, &used, &which));
    assert_int_equal(stops_pending(s, at), 2);
    assert_false(stops_feed(s, &at, "c", 1, &used, &which));
    assert_int_equal(stops_pending(s, at), 3);
    assert_false(stops_feed(s, &at, "", 0, &used, &which));
    assert_int_equal(stops_pending(s, at), 3);
    uint32_t other = at;
    assert_true(stops_feed(s, &at, "x!", 2, &used, &which)); /* "abc" fails over to "bc" */
    assert_int_equal(used, 1);
    assert_int_equal(which, 1);
    assert_false(stops_feed(s, &other, "?", 1, &used, &which));
    assert_int_equal(stops_pending(s, other), 0);
    stops_free(s);
}

/* Ends first; of those that end together, starts first; of equal ones, the first given. */
static void test_which_one(void **state)
{
    (void)state;
    stops *s = make((const char *[]){"he", "she", "hers", "she"}, 4);
    uint32_t at = 0, which = 9;
    size_t used = 0;

    assert_true(stops_feed(s, &at, "ushers", 6, &used, &which));
    assert_int_equal(used, 4);
    assert_int_equal(which, 1);
    stops_free(s);
}

static void test_none_and_bytes(void **state)
{
    (void)state;
    stops *none = make(NULL, 0);
    uint32_t at = 0, which = 9;
    size_t used = 0;

    assert_false(stops_feed(none, &at, "anything\0at all", 15, &used, &which));
    assert_int_equal(stops_pending(none, at), 0);
    stops_free(none);

    const char *strings[] = {"\xff\x00\x80"};
    const size_t lens[] = {3};
    stops *s = NULL;
    atn_err err;
    assert_int_equal(stops_new(strings, lens, 1, &s, &err), ATN_OK);
    at = 0;
    assert_true(stops_feed(s, &at, "\xff\xff\x00\x80", 4, &used, &which));
    assert_int_equal(used, 4);
    stops_free(s);

    const size_t empty[] = {0};
    assert_int_equal(stops_new(strings, empty, 1, &s, &err), ATN_INVALID);
}

/* What the header promises, by comparing everywhere. */
static bool search(const char *text, size_t n, const char *const *strings, uint32_t n_strings, size_t *used,
                   uint32_t *which)
{
    for (size_t end = 1; end <= n; end++) {
        size_t longest = 0;
        for (uint32_t i = 0; i < n_strings; i++) {
            const size_t len = strlen(strings[i]);
            if (len <= end && len > longest && memcmp(text + end - len, strings[i], len) == 0) {
                longest = len;
                *which = i;
            }
        }
        if (longest != 0) {
            *used = end;
            return true;
        }
    }
    return false;
}

static uint32_t longest_pending(const char *text, size_t n, const char *const *strings, uint32_t n_strings)
{
    size_t longest = 0;
    for (uint32_t i = 0; i < n_strings; i++) {
        for (size_t len = 1; len < strlen(strings[i]) && len <= n; len++) {
            if (len > longest && memcmp(text + n - len, strings[i], len) == 0) {
                longest = len;
            }
        }
    }
    return (uint32_t)longest;
}

static void test_against_a_search_by_hand(void **state)
{
    (void)state;
    uint32_t seed = 1;

    for (int round = 0; round < 2000; round++) {
        char bytes[4][8], text[64];
        const char *strings[4];
        for (int i = 0; i < 4; i++) {
            seed = seed * 1664525 + 1013904223;
            const size_t len = 2 + (seed >> 16) % 5;
            for (size_t j = 0; j < len; j++) {
                seed = seed * 1664525 + 1013904223;
                bytes[i][j] = (char)('a' + (seed >> 20) % 2);
            }
            bytes[i][len] = 0;
            strings[i] = bytes[i];
        }
        stops *s = make(strings, 4);
        uint32_t at = 0;
        size_t fed = 0;
        bool found = false;
        while (fed < sizeof text && !found) { /* in pieces of 1 to 3 bytes */
            seed = seed * 1664525 + 1013904223;
            size_t piece = 1 + (seed >> 16) % 3;
            piece = fed + piece > sizeof text ? sizeof text - fed : piece;
            for (size_t j = 0; j < piece; j++) {
                seed = seed * 1664525 + 1013904223;
                text[fed + j] = (char)('a' + (seed >> 20) % 3);
            }
            size_t used = 0, want_used = 0;
            uint32_t which = 99, want_which = 98;
            found = stops_feed(s, &at, text + fed, piece, &used, &which);
            const bool want = search(text, fed + piece, strings, 4, &want_used, &want_which);
            assert_int_equal(found, want);
            if (found) {
                assert_int_equal(fed + used, want_used);
                assert_string_equal(strings[which], strings[want_which]);
            } else {
                assert_int_equal(stops_pending(s, at), longest_pending(text, fed + piece, strings, 4));
            }
            fed += piece;
        }
        stops_free(s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_match_inside_one_piece),
        cmocka_unit_test(test_match_across_pieces_and_pending),
        cmocka_unit_test(test_which_one),
        cmocka_unit_test(test_none_and_bytes),
        cmocka_unit_test(test_against_a_search_by_hand),
    };
    return cmocka_run_group_tests_name("stops", tests, NULL, NULL);
}
