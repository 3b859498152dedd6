/* Vocabularies that are wrong, special tokens and ends, what a file leaves unsaid. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <math.h>
#include "tests/unit/token/token_fixture.h"

static void assert_refused(const token_source *src, atn_status code, const char *param, const char *says)
{
    atn_err err = {0};
    atn_tokenizer *t = NULL;
    assert_int_equal(vocab_build(src, false, &t, &err), code);
    assert_null(t);
    assert_string_equal(err.param, param);
    if (strstr(err.msg, says) == NULL) {
        fail_msg("\"%s\" does not say \"%s\"", err.msg, says);
    }
}

static void refuse_pieces(const char *model, const gguf_str *pieces, const int32_t *kinds, size_t n, const char *says)
{
    token_source src = source_of(model, "gpt-2", pieces, n);
    src.kinds = kinds;
    assert_refused(&src, ATN_FORMAT, "tokenizer.ggml.tokens", says);
}

static void test_repeated_tokens(void **state)
{
    (void)state;
    static const gguf_str twice[] = {{"a", 1}, {"b", 1}, {"a", 1}};
    refuse_pieces("gpt2", twice, NULL, 3, "token 2 repeats token 0");
    refuse_pieces("llama", twice, NULL, 3, "token 2 repeats token 0");
    refuse_pieces("llama", twice, (int32_t[]){3, 1, 3}, 3, "token 2 repeats token 0");
    static const gguf_str bytes[] = {{"<0xAB>", 6}, {"a", 1}, {"<0xab>", 6}};
    refuse_pieces("llama", bytes, (int32_t[]){6, 1, 6}, 3, "byte token 2 repeats token 0");
    /* not repeated: a user-defined run of real spaces beside the normal one, and empty pieces */
    static const gguf_str spaces[] = {{"\xE2\x96\x81\xE2\x96\x81", 6}, {"  ", 2}, {"", 0}, {"", 0}, {"<unk>", 5}};
    token_source src = source_of("llama", "", spaces, 5);
    src.kinds = (int32_t[]){1, 4, 1, 1, 2};
    src.add_space_prefix = 0;
    atn_tokenizer *t = build_ok(&src);
    assert_ids(t, "  ", false, IDS(1));
    tokenizer_close(t);
}

static void test_byte_tokens(void **state)
{
    (void)state;
    static const char *const bad[] = {"<0x-1>", "<0x+1>", "<0x 1>",  "<0xG0>", "<0x1>",    "<0x100>",
                                      "<0X10>", "0x10",   "<0x0\0>", "",       "<0x0\x80>"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        gguf_str piece = {bad[i], i == 8 ? 6 : strlen(bad[i])};
        refuse_pieces("llama", &piece, (int32_t[]){6}, 1, "byte token 0 is not written <0xNN>");
    }
}

static void test_kinds_scores_ids(void **state)
{
    (void)state;
    static const gguf_str pieces[] = {{"<unk>", 5}, {"a", 1}};
    token_source src = source_of("llama", "", pieces, 2);
    src.kinds = (int32_t[]){2, 7};
    assert_refused(&src, ATN_FORMAT, "tokenizer.ggml.token_type", "element 1 is 7");
    src.kinds = (int32_t[]){-1, 1};
    assert_refused(&src, ATN_FORMAT, "tokenizer.ggml.token_type", "element 0 is -1");
    src.kinds = NULL;
    src.scores = (float[]){0.0f, NAN};
    assert_refused(&src, ATN_FORMAT, "tokenizer.ggml.scores", "element 1 is not finite");
    src.scores = (float[]){-INFINITY, 0.0f};
    assert_refused(&src, ATN_FORMAT, "tokenizer.ggml.scores", "element 0 is not finite");
    src.scores = NULL;
    static const char *const keys[] = {"bos", "eos", "eot", "eom", "unknown"};
    for (size_t i = 0; i < 5; i++) {
        char param[64];
        snprintf(param, sizeof param, "tokenizer.ggml.%s_token_id", keys[i]);
        token_source bad = src;
        int32_t *ids[] = {&bad.bos, &bad.eos, &bad.eot, &bad.eom, &bad.unknown};
        *ids[i] = 2;
        assert_refused(&bad, ATN_FORMAT, param, "2, allowed are 0 to 1");
        *ids[i] = INT32_MAX;
        assert_refused(&bad, ATN_FORMAT, param, "allowed are 0 to 1");
    }
    src.n_tokens = 0;
    assert_refused(&src, ATN_FORMAT, "tokenizer.ggml.tokens", "0 tokens");
}

static void test_unknown_model_and_pre(void **state)
{
    (void)state;
    static const gguf_str pieces[] = {{"a", 1}};
    token_source src = source_of("bert", "", pieces, 1);
    assert_refused(&src, ATN_UNSUPPORTED, "tokenizer.ggml.model", "\"bert\"");
    src.model = (gguf_str){"gp\nt2", 5};
    assert_refused(&src, ATN_UNSUPPORTED, "tokenizer.ggml.model", "\"gp?t2\"");
    src.model = str("gpt2");
    src.pre = str("kimi-k2");
    assert_refused(&src, ATN_UNSUPPORTED, "tokenizer.ggml.pre", "\"kimi-k2\"");
    atn_tokenizer *t;
    atn_err err = {0};
    assert_int_equal(vocab_build(&src, true, &t, &err), ATN_OK);
    assert_string_equal(atn_tokenizer_pre(t), "default");
    tokenizer_close(t);
    src.pre = str("llama3");
    t = build_ok(&src);
    assert_string_equal(atn_tokenizer_pre(t), "llama3");
    tokenizer_close(t);
    src.model = str("llama"); /* SPM has none, whatever the file says */
    t = build_ok(&src);
    assert_string_equal(atn_tokenizer_pre(t), "");
    tokenizer_close(t);
}

static void test_ends(void **state)
{
    (void)state;
    static const gguf_str pieces[] = {{"<eos>", 5},   {"</s>", 4},        {"<end_of_turn>", 13}, {"<|im_end|>", 10},
                                      {"a", 1},       {"<|eot_id|>", 10}, {"<|eom_id|>", 10},    {"custom", 6},
                                      {"<|end|>", 7}, {"<unk>", 5}};
    token_source src = source_of("llama", "", pieces, 10);
    src.kinds = (int32_t[]){3, 4, 3, 4, 1, 3, 3, 1, 5, 2};
    src.eos = 0;
    src.eot = 7;
    atn_tokenizer *t = build_ok(&src);
    static const bool want[] = {true, false, true, false, false, true, true, true, false, false};
    for (int32_t i = 0; i < 10; i++) {
        assert_int_equal(atn_token_ends(t, i), want[i]);
    }
    tokenizer_close(t);
}

static size_t count(const atn_tokenizer *t, unsigned flags, int32_t *first, int32_t *last)
{
    size_t n;
    int32_t *ids = ids_of(t, str("a"), false, flags, &n);
    *first = ids[0];
    *last = ids[n - 1];
    free(ids);
    return n;
}

static void test_bos_and_eos(void **state)
{
    (void)state;
    static const gguf_str pieces[] = {{"<unk>", 5}, {"<s>", 3}, {"</s>", 4}, {"a", 1}};
    int32_t first;
    int32_t last;
    token_source src = source_of("llama", "", pieces, 4);
    src.kinds = (int32_t[]){2, 3, 3, 1};
    src.add_space_prefix = 0;
    atn_tokenizer *t = build_ok(&src); /* SentencePiece: ids 0, 1, 2 unless said, BOS yes, EOS no */
    assert_int_equal(atn_token_bos(t), 1);
    assert_int_equal(atn_token_eos(t), 2);
    assert_true(atn_token_adds_bos(t));
    assert_int_equal(count(t, ATN_TOKENIZE_BOS, &first, &last), 2);
    assert_int_equal(first, 1);
    assert_int_equal(count(t, 0, &first, &last), 1);
    tokenizer_close(t);
    src.add_bos = 0;
    src.add_eos = 1;
    t = build_ok(&src);
    assert_false(atn_token_adds_bos(t));
    assert_int_equal(count(t, ATN_TOKENIZE_BOS, &first, &last), 2);
    assert_int_equal(last, 2);
    tokenizer_close(t);
    src.kinds = (int32_t[]){1, 1, 1, 1}; /* the usual ids are ordinary tokens here */
    src.add_bos = 1;
    t = build_ok(&src);
    assert_int_equal(atn_token_bos(t), -1);
    assert_int_equal(atn_token_eos(t), -1);
    assert_false(atn_token_adds_bos(t));
    tokenizer_close(t);

    src = source_of("gpt2", "gpt-2", pieces, 4);
    src.kinds = (int32_t[]){2, 3, 3, 1};
    t = build_ok(&src); /* byte-level: nothing unless said */
    assert_int_equal(atn_token_bos(t), -1);
    tokenizer_close(t);
    src.bos = 1;
    t = build_ok(&src);
    assert_false(atn_token_adds_bos(t));
    tokenizer_close(t);
    src.pre = str("llama-bpe");
    t = build_ok(&src);
    assert_true(atn_token_adds_bos(t));
    tokenizer_close(t);
    src.add_bos = 0;
    t = build_ok(&src);
    assert_false(atn_token_adds_bos(t));
    tokenizer_close(t);
}

/* Many tokens, some of one hash tag: each is found, and nothing else. */
static void test_lookup(void **state)
{
    (void)state;
    enum { N = 20000 };
    gguf_str *pieces = calloc(N, sizeof *pieces);
    char *text = malloc((size_t)N * 8);
    assert_true(pieces != NULL && text != NULL);
    for (int i = 0; i < N; i++) {
        pieces[i] = (gguf_str){text + 8 * i, (size_t)snprintf(text + 8 * i, 8, "t%d", i)};
    }
    token_source src = source_of("llama", "", pieces, N);
    atn_tokenizer *t = build_ok(&src);
    for (int32_t i = 0; i < N; i++) {
        assert_int_equal(vocab_find_bytes(t, pieces[i].s, pieces[i].n), i);
        assert_int_equal(vocab_find_special(t, pieces[i].s, pieces[i].n), -1);
    }
    assert_int_equal(vocab_find_bytes(t, "t20000", 6), -1);
    assert_int_equal(vocab_find_bytes(t, "t", 1), -1);
    assert_int_equal(vocab_find_bytes(t, "t1000000000000000", 17), -1);
    tokenizer_close(t);
    free(pieces);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeated_tokens),
        cmocka_unit_test(test_byte_tokens),
        cmocka_unit_test(test_kinds_scores_ids),
        cmocka_unit_test(test_unknown_model_and_pre),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_bos_and_eos),
        cmocka_unit_test(test_lookup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
