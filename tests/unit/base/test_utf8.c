/* UTF-8: every code point, every prefix, and the tables of The Unicode Standard 15.0, section 3.9. */
#include "core/base/utf8.h"
#include "tests/utf8_encode.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void test_every_code_point(void **state)
{
    (void)state;
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF) {
            continue;
        }
        char s[4];
        uint32_t back = 0;
        size_t n = utf8_encode(cp, s);
        size_t wanted = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
        if (n != wanted || utf8_decode(s, n, &back) != (int)n || back != cp || utf8_valid_prefix(s, n) != n) {
            fail_msg("U+%04X", (unsigned)cp);
        }
        for (size_t part = 0; part < n; part++) {
            if (utf8_decode(s, part, &back) != 0 || utf8_valid_prefix(s, part) != 0) {
                fail_msg("the first %zu bytes of U+%04X need more", part, (unsigned)cp);
            }
        }
    }
}

static void test_surrogates_and_beyond_are_invalid(void **state)
{
    (void)state;
    uint32_t cp;
    for (uint32_t bad = 0xD800; bad <= 0xDFFF; bad++) {
        const char s[3] = {(char)(0xE0 | bad >> 12), (char)(0x80 | (bad >> 6 & 63)), (char)(0x80 | (bad & 63))};
        assert_int_equal(utf8_decode(s, 3, &cp), -1);
    }
    assert_int_equal(utf8_decode("\xF4\x90\x80\x80", 4, &cp), -1);
    for (int lead = 0xF5; lead <= 0xFF; lead++) {
        assert_int_equal(utf8_decode((const char[]){(char)lead, (char)0x80}, 2, &cp), -1);
    }
}

/* The two-byte sequences, all of them: how many begin a character, want more, or are invalid is known by counting. */
static void test_all_pairs(void **state)
{
    (void)state;
    int count[5] = {0}; /* 1, 2, more, -1, other */
    for (int a = 0; a < 256; a++) {
        for (int b = 0; b < 256; b++) {
            uint32_t cp;
            int len = utf8_decode((const char[]){(char)a, (char)b}, 2, &cp);
            count[len == 1 ? 0 : len == 2 ? 1 : len == 0 ? 2 : len == -1 ? 3 : 4]++;
        }
    }
    assert_int_equal(count[0], 128 * 256);
    assert_int_equal(count[1], 30 * 64);
    /* E0: A0..BF; E1..EC, EE, EF: 80..BF; ED: 80..9F; F0: 90..BF; F1..F3: 80..BF; F4: 80..8F */
    assert_int_equal(count[2], 32 + 14 * 64 + 32 + 48 + 3 * 64 + 16);
    assert_int_equal(count[4], 0);
}

/* Decodes all of s, an invalid part as one U+FFFD each, to text like "61 FFFD". A sequence cut by the end is invalid too. */
static void check(const char *s, const char *wanted)
{
    char out[200] = "";
    size_t n = strlen(s);
    for (size_t at = 0; at < n;) {
        uint32_t cp = 0xFFFD;
        int len = utf8_decode(s + at, n - at, &cp);
        cp = len > 0 ? cp : 0xFFFD;
        snprintf(out + strlen(out), sizeof out - strlen(out), "%s%02X", at > 0 ? " " : "", (unsigned)cp);
        at += (size_t)(len > 0 ? len : len < 0 ? -len : (int)(n - at));
    }
    assert_string_equal(out, wanted);
}

static void test_maximal_subparts(void **state)
{
    (void)state;
    /* table 3-8: non-shortest forms */
    check("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD 41");
    /* table 3-9: surrogates */
    check("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "FFFD FFFD FFFD FFFD FFFD FFFD FFFD FFFD 41");
    /* table 3-10: other ill-formed sequences */
    check("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "FFFD FFFD FFFD FFFD FFFD 41 FFFD FFFD 42");
    /* table 3-11: truncated sequences */
    check("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "FFFD FFFD FFFD FFFD 41");
    /* the older table 3-8 */
    check("\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "61 FFFD FFFD FFFD 62 FFFD 63 FFFD FFFD 64");
    check("\xF0\x9F\x98", "FFFD");
}

static void test_valid_prefix(void **state)
{
    (void)state;
    assert_int_equal(utf8_valid_prefix("", 0), 0);
    assert_int_equal(utf8_valid_prefix("ab\xC3\xA9\x80z", 6), 4);
    assert_int_equal(utf8_valid_prefix("ab\xC3", 3), 2);
    assert_int_equal(utf8_valid_prefix("a\0b", 3), 3); /* NUL is a character */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_code_point), cmocka_unit_test(test_surrogates_and_beyond_are_invalid),
        cmocka_unit_test(test_all_pairs),        cmocka_unit_test(test_maximal_subparts),
        cmocka_unit_test(test_valid_prefix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
