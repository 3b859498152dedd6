/* SentencePiece BPE: ids equal to the library's, ties, prefix space, byte fallback, U+2581 in the text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/token/token_fixture.h"

static void test_oracle(void **state)
{
    (void)state;
    json_t *j = load_fixture("spm.json");
    const char *name;
    json_t *fixture;
    json_object_foreach(j, name, fixture)
    {
        size_t n;
        gguf_str *pieces = json_strings(json_object_get(fixture, "pieces"), &n);
        float *scores = calloc(n, sizeof *scores);
        int32_t *kinds = calloc(n, sizeof *kinds);
        assert_true(scores != NULL && kinds != NULL);
        for (size_t i = 0; i < n; i++) {
            scores[i] = (float)json_number_value(json_array_get(json_object_get(fixture, "scores"), i));
            kinds[i] = (int32_t)json_integer_value(json_array_get(json_object_get(fixture, "kinds"), i));
        }
        token_source src = source_of("llama", "", pieces, n);
        src.scores = scores;
        src.kinds = kinds;
        src.add_space_prefix = json_is_true(json_object_get(fixture, "add_space_prefix"));
        atn_tokenizer *t = build_ok(&src);
        assert_string_equal(atn_tokenizer_kind(t), "llama");
        assert_string_equal(atn_tokenizer_pre(t), "");
        check_texts(t, fixture, name, strcmp(name, "no_bytes") != 0);
        tokenizer_close(t);
        free(scores);
        free(kinds);
        free(pieces);
    }
    json_decref(j);
}

enum { UNK, BOS, EOS, SPACE, A, B, C, AB, BC, SPACE_A, AA, BYTE_C3, BYTE_A9, TAG, CTL, N_PIECES };

static const gguf_str pieces[N_PIECES] = {
    [UNK] = {"<unk>", 5},
    [BOS] = {"<s>", 3},
    [EOS] = {"</s>", 4},
    [SPACE] = {"\xE2\x96\x81", 3},
    [A] = {"a", 1},
    [B] = {"b", 1},
    [C] = {"c", 1},
    [AB] = {"ab", 2},
    [BC] = {"bc", 2},
    [SPACE_A] = {"\xE2\x96\x81"
                 "a",
                 4},
    [AA] = {"aa", 2},
    [BYTE_C3] = {"<0xC3>", 6},
    [BYTE_A9] = {"<0xa9>", 6},
    [TAG] = {"<b>", 3},
    [CTL] = {"ba", 2},
};

static atn_tokenizer *build(int prefix, float ab, float bc)
{
    float scores[N_PIECES] = {[AB] = ab, [BC] = bc, [SPACE_A] = -5.0f, [AA] = -1.0f, [CTL] = 100.0f};
    int32_t kinds[N_PIECES] = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 6, 6, 4, 3};
    token_source src = source_of("llama", "default", pieces, N_PIECES);
    src.scores = scores;
    src.kinds = kinds;
    src.add_space_prefix = prefix;
    return build_ok(&src);
}

static void test_scores_decide(void **state)
{
    (void)state;
    atn_tokenizer *t = build(0, -2.0f, -3.0f);
    assert_ids(t, "abc", false, IDS(AB, C));
    tokenizer_close(t);
    t = build(0, -3.0f, -2.0f);
    assert_ids(t, "abc", false, IDS(A, BC));
    tokenizer_close(t);
    t = build(0, 3.0f, 2.0f);
    assert_ids(t, "abc", false, IDS(AB, C));
    tokenizer_close(t);
    t = build(0, -0.0f, 0.0f); /* equal: the leftmost */
    assert_ids(t, "abc", false, IDS(AB, C));
    assert_ids(t, "aaaaa", false, IDS(AA, AA, A));
    tokenizer_close(t);
}

static void test_control_tokens_are_never_merged(void **state)
{
    (void)state;
    atn_tokenizer *t = build(0, -2.0f, -3.0f);
    assert_ids(t, "ba", false, IDS(B, A)); /* "ba" is a control token of the best score */
    assert_ids(t, "ba", true, IDS(CTL));
    tokenizer_close(t);
}

static void test_space_prefix(void **state)
{
    (void)state;
    atn_tokenizer *t = build(-1, -2.0f, -3.0f); /* not said: as SentencePiece, yes */
    assert_ids(t, "a", false, IDS(SPACE_A));
    assert_ids(t, "", false, IDS());
    assert_ids(t, " a", false, IDS(SPACE, SPACE_A));
    assert_ids(t, "<b>a<b>", false, IDS(TAG, SPACE_A, TAG)); /* again after every token that was cut out */
    static const int32_t ids[] = {BOS, SPACE_A, TAG, SPACE_A, SPACE_A};
    char *text;
    size_t n;
    atn_err err = {0};
    assert_int_equal(atn_detokenize(t, ids, 5, false, &text, &n, &err), ATN_OK);
    assert_string_equal(text, "a<b>a a");
    free(text);
    tokenizer_close(t);
    t = build(0, -2.0f, -3.0f);
    assert_ids(t, "a", false, IDS(A));
    assert_int_equal(atn_detokenize(t, ids + 1, 1, false, &text, &n, &err), ATN_OK);
    assert_string_equal(text, " a");
    free(text);
    tokenizer_close(t);
}

/* The text's own U+2581 is a space to the model; offsets still point into the text. */
static void test_offsets_of_rewritten_spaces(void **state)
{
    (void)state;
    atn_tokenizer *t = build(1, -2.0f, -3.0f);
    static const char text[] = "a\xE2\x96\x81"
                               "ab\xC3\xA9";
    atn_segment seg = {text, strlen(text), false};
    atn_err err = {0};
    int32_t *ids;
    size_t(*spans)[2];
    size_t n;
    assert_int_equal(atn_tokenize_offsets(t, &seg, 1, ATN_TOKENIZE_BOS, &ids, &spans, &n, &err), ATN_OK);
    static const int32_t want[] = {BOS, SPACE_A, SPACE, AB, BYTE_C3, BYTE_A9};
    static const size_t want_spans[][2] = {{0, 0}, {0, 1}, {1, 4}, {4, 6}, {6, 7}, {7, 8}};
    assert_int_equal(n, 6);
    assert_memory_equal(ids, want, sizeof want);
    assert_memory_equal(spans, want_spans, sizeof want_spans);
    free(ids);
    free(spans);
    tokenizer_close(t);
}

static void test_byte_fallback(void **state)
{
    (void)state;
    atn_tokenizer *t = build(0, -2.0f, -3.0f);
    assert_ids(t, "\xC3\xA9", false, IDS(BYTE_C3, BYTE_A9));
    assert_ids(t, "\xC3\xA8", false, IDS(UNK));                        /* one of its bytes has no token */
    assert_ids(t, "<0xC3>", false, IDS(UNK, UNK, UNK, UNK, UNK, UNK)); /* a byte token written out is text */
    assert_ids(t, "<0xC3>", true, IDS(UNK, UNK, UNK, UNK, UNK, UNK));
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_scores_decide),
        cmocka_unit_test(test_control_tokens_are_never_merged),
        cmocka_unit_test(test_space_prefix),
        cmocka_unit_test(test_offsets_of_rewritten_spaces),
        cmocka_unit_test(test_byte_fallback),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
