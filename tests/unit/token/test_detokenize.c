/* Bytes to text: every split of a byte string gives what the whole gives. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/base/utf8.h"
#include "tests/unit/token/token_fixture.h"

/* The whole-text definition: each maximal subpart of an ill-formed sequence becomes one U+FFFD (Unicode 3.9). */
static size_t convert(const char *s, size_t n, char *out)
{
    size_t written = 0;
    for (size_t at = 0; at < n;) {
        uint32_t cp;
        int len = utf8_decode(s + at, n - at, &cp);
        size_t taken = len > 0 ? (size_t)len : len < 0 ? (size_t)-len : n - at;
        memcpy(out + written, len > 0 ? s + at : "\xEF\xBF\xBD", len > 0 ? taken : 3);
        written += len > 0 ? taken : 3;
        at += taken;
    }
    return written;
}

static void check_splits(const char *s, size_t n)
{
    char want[3 * 16];
    size_t n_want = convert(s, n, want);
    for (uint32_t mask = 0; mask < 1u << (n - 1); mask++) { /* bit i: a border behind byte i */
        atn_utf8_stream stream = {0};
        char got[3 * 16 + 64];
        size_t n_got = 0;
        size_t from = 0;
        for (size_t i = 0; i < n; i++) {
            if (i + 1 == n || (mask >> i & 1) != 0) {
                size_t most = 3 * (i + 1 - from + stream.n_held);
                size_t w = atn_utf8_stream_push(&stream, s + from, i + 1 - from, got + n_got);
                assert_true(w <= most && stream.n_held <= 3);
                assert_int_equal(utf8_valid_prefix(got + n_got, w), w); /* whole characters only */
                n_got += w;
                from = i + 1;
            }
        }
        n_got += atn_utf8_stream_flush(&stream, got + n_got);
        assert_int_equal(n_got, n_want);
        assert_memory_equal(got, want, n_want);
    }
}

static void test_every_split(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "abc",
        "\xC3\xA9\xE4\xB8\xAD\xF0\x9F\x8E\x89",
        "\xF0\x9F\x8E",
        "\xF0\x9F\x8E"
        "a",
        "\xE4\xB8\xE4\xB8\xAD",
        "\xC0\xAF\xE0\x80\xBF",
        "\xED\xA0\x80\xF4\x91\x92\x93",
        "\xFF"
        "A\x80\xBF"
        "B",
        "\xF0\x80\x80\x41",
        "\xE1\x80\xE2\xF0\x91\x92\xF1\xBF",
        "\x80",
        "\xF4\x8F\xBF\xBF",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        check_splits(texts[i], strlen(texts[i]));
    }
}

static void test_random_bytes(void **state)
{
    (void)state;
    static const unsigned char likely[] = {0x41, 0x80, 0xBF, 0xC2, 0xE0, 0xA0, 0xED, 0x9F,
                                           0xF0, 0x90, 0xF4, 0x8F, 0xE4, 0xB8, 0xAD, 0xFF};
    uint32_t rng = 7;
    for (int round = 0; round < 2000; round++) {
        char s[8];
        for (size_t i = 0; i < sizeof s; i++) {
            rng = rng * 1664525 + 1013904223;
            s[i] = (char)likely[rng >> 28];
        }
        check_splits(s, sizeof s);
    }
}

static void test_invalid_bytes_come_at_once(void **state)
{
    (void)state;
    atn_utf8_stream stream = {0};
    char out[64];
    assert_int_equal(atn_utf8_stream_push(&stream, "\xE4\xB8", 2, out), 0);
    assert_int_equal(stream.n_held, 2);
    assert_int_equal(atn_utf8_stream_push(&stream, "\xFF", 1, out), 6);
    assert_memory_equal(out, "\xEF\xBF\xBD\xEF\xBF\xBD", 6);
    assert_int_equal(stream.n_held, 0);
    assert_int_equal(atn_utf8_stream_flush(&stream, out), 0);
    assert_int_equal(atn_utf8_stream_push(&stream, "\xF0", 1, out), 0);
    assert_int_equal(atn_utf8_stream_flush(&stream, out), 3);
    assert_int_equal(atn_utf8_stream_push(&stream, "a", 1, out), 1); /* as new */
}

static const gguf_str pieces[] = {{"<unk>", 5},  {"<s>", 3},    {"</s>", 4},   {"<0xF0>", 6},
                                  {"<0x9F>", 6}, {"<0x8E>", 6}, {"<0x89>", 6}, {"\xE2\x96\x81hi", 5},
                                  {"<b>", 3},    {"pad", 3},    {"", 0}};

static void test_tokens(void **state)
{
    (void)state;
    static const int32_t kinds[] = {2, 3, 3, 6, 6, 6, 6, 1, 4, 5, 1};
    token_source src = source_of("llama", "", pieces, sizeof pieces / sizeof pieces[0]);
    src.kinds = kinds;
    atn_tokenizer *t = build_ok(&src);
    size_t n;
    assert_memory_equal(atn_token_piece(t, 7, &n), "\xE2\x96\x81hi", 5);
    assert_int_equal(n, 5);
    assert_memory_equal(atn_token_bytes(t, 7, false, &n), " hi", 3);
    assert_int_equal(n, 3);
    assert_memory_equal(atn_token_bytes(t, 3, false, &n), "\xF0", 1);
    assert_int_equal(n, 1);
    atn_token_bytes(t, 1, false, &n);
    assert_int_equal(n, 0);
    assert_memory_equal(atn_token_bytes(t, 1, true, &n), "<s>", 3);
    assert_int_equal(n, 3);
    atn_token_bytes(t, 10, true, &n);
    assert_int_equal(n, 0);
    assert_non_null(atn_token_bytes(t, 11, true, &n));
    assert_int_equal(n, 0);
    assert_non_null(atn_token_piece(t, -1, &n));
    assert_int_equal(n, 0);
    assert_false(atn_token_ends(t, -1));
    assert_false(atn_token_ends(t, 11));

    char *text;
    atn_err err = {0};
    static const int32_t party[] = {1, 7, 8, 3, 4, 5, 6, 3, 4, 2};
    assert_int_equal(atn_detokenize(t, party, 10, false, &text, &n, &err), ATN_OK);
    assert_string_equal(text, "hi<b>\xF0\x9F\x8E\x89\xEF\xBF\xBD");
    assert_int_equal(n, strlen(text));
    free(text);
    assert_int_equal(atn_detokenize(t, party, 10, true, &text, &n, &err), ATN_OK);
    assert_string_equal(text, "<s>hi<b>\xF0\x9F\x8E\x89\xEF\xBF\xBD</s>");
    free(text);
    assert_int_equal(atn_detokenize(t, NULL, 0, true, &text, &n, &err), ATN_OK);
    assert_string_equal(text, "");
    free(text);
    assert_int_equal(atn_detokenize(t, (int32_t[]){1, 11}, 2, true, &text, &n, &err), ATN_INVALID);
    assert_non_null(strstr(err.msg, "token 1 is 11"));
    assert_int_equal(atn_detokenize(t, (int32_t[]){-1}, 1, true, &text, &n, &err), ATN_INVALID);
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_split),
        cmocka_unit_test(test_random_bytes),
        cmocka_unit_test(test_invalid_bytes_come_at_once),
        cmocka_unit_test(test_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
