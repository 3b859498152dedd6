/* Byte-level BPE: ids equal to Hugging Face `tokenizers`, whole words, merges of the file that are wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/token/token_fixture.h"

static void test_oracle(void **state)
{
    (void)state;
    json_t *j = load_fixture("bpe.json");
    const char *name;
    json_t *fixture;
    json_object_foreach(j, name, fixture)
    {
        size_t n;
        gguf_str *pieces = json_strings(json_object_get(fixture, "pieces"), &n);
        token_source src = source_of("gpt2", name, pieces, n);
        gguf_str *merges = json_strings(json_object_get(fixture, "merges"), &src.n_merges);
        src.merges = merges;
        atn_tokenizer *t = build_ok(&src);
        assert_string_equal(atn_tokenizer_kind(t), "gpt2");
        assert_string_equal(atn_tokenizer_pre(t), name);
        check_texts(t, fixture, name, true);
        tokenizer_close(t);
        free(merges);
        free(pieces);
    }
    json_decref(j);
}

static void test_byte_alphabet(void **state)
{
    (void)state;
    unsigned seen = 0;
    for (uint32_t cp = 0; cp < 0x200; cp++) {
        int b = bpe_byte_of(cp);
        seen += b >= 0;
        assert_true(b < 256);
    }
    assert_int_equal(seen, 256);
    assert_int_equal(bpe_byte_of(0x120), ' ');  /* Ġ */
    assert_int_equal(bpe_byte_of(0x10A), '\n'); /* Ċ */
    assert_int_equal(bpe_byte_of(0x121), 0x7F); /* ġ */
    assert_int_equal(bpe_byte_of(0x142), 0xA0); /* ł */
    assert_int_equal(bpe_byte_of(0x143), 0xAD); /* Ń */
    assert_int_equal(bpe_byte_of(0x144), -1);
    assert_int_equal(bpe_byte_of(' '), -1);
    assert_int_equal(bpe_byte_of(0xAD), -1);
}

/* Letters, two merges and a control token; the ids are positions here. */
static const gguf_str abc[] = {{"a", 1},   {"b", 1},   {"c", 1}, {"ab", 2}, {"bc", 2},
                               {"abc", 3}, {"<x>", 3}, {"<", 1}, {"x>", 2}, {"aa", 2}};

static atn_tokenizer *build_abc(const char *pre, const char *const *merges, size_t n_merges, int32_t kind_of_aa)
{
    int32_t kinds[] = {1, 1, 1, 1, 1, 1, 3, 1, 1, kind_of_aa};
    gguf_str rules[8];
    for (size_t i = 0; i < n_merges; i++) {
        rules[i] = str(merges[i]);
    }
    token_source src = source_of("gpt2", pre, abc, sizeof abc / sizeof abc[0]);
    src.kinds = kinds;
    src.merges = rules;
    src.n_merges = n_merges;
    return build_ok(&src);
}

static void test_rank_decides(void **state)
{
    (void)state;
    atn_tokenizer *t = build_abc("gpt-2", (const char *[]){"b c", "a b"}, 2, 1);
    assert_ids(t, "abc", false, IDS(0, 4));
    tokenizer_close(t);
    t = build_abc("gpt-2", (const char *[]){"a b", "b c"}, 2, 1);
    assert_ids(t, "abc", false, IDS(3, 2));
    tokenizer_close(t);
    /* leftmost among equals */
    t = build_abc("gpt-2", (const char *[]){"a a"}, 1, 1);
    assert_ids(t, "aaaaa", false, IDS(9, 9, 0));
    tokenizer_close(t);
}

static void test_whole_words(void **state)
{
    (void)state;
    atn_tokenizer *t = build_abc("llama-bpe", (const char *[]){"a b"}, 1, 1);
    assert_ids(t, "abc", false, IDS(5)); /* no merge makes it */
    tokenizer_close(t);
    t = build_abc("qwen2", (const char *[]){"a b"}, 1, 1);
    assert_ids(t, "abc", false, IDS(3, 2));
    tokenizer_close(t);
}

static void test_merges_make_no_control_token(void **state)
{
    (void)state;
    atn_tokenizer *t = build_abc("gpt-2", (const char *[]){"a a", "< x>"}, 2, ATN_TOKEN_CONTROL);
    assert_int_equal(t->n_rules, 0);
    assert_ids(t, "aa", false, IDS(0, 0));
    assert_ids(t, "aa", true, IDS(9));
    tokenizer_close(t);
}

static void assert_bad_merge(const char *merge, size_t n)
{
    gguf_str rules[] = {{"a b", 3}, {merge, n}};
    token_source src = source_of("gpt2", "gpt-2", abc, sizeof abc / sizeof abc[0]);
    src.merges = rules;
    src.n_merges = 2;
    atn_tokenizer *t;
    atn_err err = {0};
    assert_int_equal(vocab_build(&src, false, &t, &err), ATN_FORMAT);
    assert_string_equal(err.param, "tokenizer.ggml.merges");
    assert_non_null(strstr(err.msg, "merge 1"));
    assert_null(t);
}

static void test_bad_merges(void **state)
{
    (void)state;
    static const char *const bad[] = {"", " ", "  ", "ab", "a ", " b", "a z", "z a", "c a", "a b c", "\xFF a"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_bad_merge(bad[i], strlen(bad[i]));
    }
    assert_bad_merge("a\0b", 3);
}

static void test_missing_bytes(void **state)
{
    (void)state;
    atn_tokenizer *t = build_abc("gpt-2", NULL, 0, 1);
    atn_segment seg = {"ab\x03", 3, false};
    atn_err err = {0};
    int32_t *ids = NULL;
    size_t n;
    assert_int_equal(atn_tokenize(t, &seg, 1, 0, &ids, &n, &err), ATN_INVALID);
    assert_non_null(strstr(err.msg, "byte 2"));
    tokenizer_close(t);

    token_source src = source_of("gpt2", "gpt-2", abc, sizeof abc / sizeof abc[0]);
    src.unknown = 6;
    t = build_ok(&src);
    assert_ids(t, "ab\x03", false, IDS(0, 1, 6));
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_byte_alphabet),
        cmocka_unit_test(test_rank_decides),
        cmocka_unit_test(test_whole_words),
        cmocka_unit_test(test_merges_make_no_control_token),
        cmocka_unit_test(test_bad_merges),
        cmocka_unit_test(test_missing_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
