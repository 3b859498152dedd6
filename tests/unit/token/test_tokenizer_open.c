/* The tokenizer's keys of a GGUF file: read, defaulted, refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "core/token/tokenizer.h"
#include "tests/unit/load/gguf_builder.h"

static const char *const tokens[] = {"<unk>", "<s>", "</s>", "a", "b", "ab", "<t>"};
enum { N = sizeof tokens / sizeof tokens[0] };

static void put_tokens(buf *b, size_t n)
{
    put_kv_array(b, "tokenizer.ggml.tokens", GGUF_STRING, n);
    for (size_t i = 0; i < n; i++) {
        put_text(b, tokens[i]);
    }
}

static void put_bool(buf *b, const char *key, bool v)
{
    put_kv(b, key, GGUF_BOOL, &(unsigned char){v}, 1);
}

/* Opens what was built, and frees it: the tokenizer must need nothing of it. */
static atn_status open_built(buf *b, bool allow_unknown_pre, atn_tokenizer **t, atn_err *err)
{
    gguf *g = NULL;
    *err = (atn_err){0};
    if (gguf_open_memory(b->data, b->len, &g, err) != ATN_OK) {
        fail_msg("gguf: %s: %s", err->param, err->msg);
    }
    atn_status status = tokenizer_open(g, allow_unknown_pre, t, err);
    gguf_close(g);
    memset(b->data, 0xEE, b->len);
    buf_free(b);
    return status;
}

static void test_everything_said(void **state)
{
    (void)state;
    static const int32_t kinds[N] = {2, 3, 3, 1, 1, 1, 4};
    static const float scores[N] = {0, 0, 0, 0, 0, -1, 0};
    buf b = gguf_begin(3, 0, 10);
    put_kv_text(&b, "tokenizer.ggml.model", "llama");
    put_tokens(&b, N);
    put_kv_array(&b, "tokenizer.ggml.token_type", GGUF_I32, N);
    put(&b, kinds, sizeof kinds);
    put_kv_array(&b, "tokenizer.ggml.scores", GGUF_F32, N);
    put(&b, scores, sizeof scores);
    put_kv_u32(&b, "tokenizer.ggml.bos_token_id", 2);
    put_kv_u32(&b, "tokenizer.ggml.eos_token_id", 1);
    put_kv_u32(&b, "tokenizer.ggml.eot_token_id", 6);
    put_bool(&b, "tokenizer.ggml.add_bos_token", true);
    put_bool(&b, "tokenizer.ggml.add_space_prefix", false);
    put_kv_text(&b, "tokenizer.chat_template", "{{ '<start_of_turn>' + role + '\n' }}<end_of_turn>");
    atn_tokenizer *t;
    atn_err err;
    assert_int_equal(open_built(&b, false, &t, &err), ATN_OK);
    assert_int_equal(atn_vocab_size(t), N);
    assert_int_equal(atn_token_bos(t), 2);
    assert_int_equal(atn_token_eos(t), 1);
    assert_true(atn_token_ends(t, 6) && atn_token_ends(t, 1) && atn_token_ends(t, 2));
    assert_int_equal(atn_token_get_kind(t, 6), ATN_TOKEN_USER_DEFINED);
    assert_string_equal(atn_chat_family(t), "gemma");
    atn_segment seg = {"ab<t>", 5, false};
    int32_t *ids;
    size_t n;
    assert_int_equal(atn_tokenize(t, &seg, 1, ATN_TOKENIZE_BOS, &ids, &n, &err), ATN_OK);
    assert_int_equal(n, 3);
    assert_memory_equal(ids, ((int32_t[]){2, 5, 6}), 12);
    free(ids);
    tokenizer_close(t);
}

static void test_little_said(void **state)
{
    (void)state;
    buf b = gguf_begin(3, 0, 2);
    put_kv_text(&b, "tokenizer.ggml.model", "gpt2"); /* no pre: read as default */
    put_tokens(&b, N);
    atn_tokenizer *t;
    atn_err err;
    assert_int_equal(open_built(&b, false, &t, &err), ATN_OK);
    assert_string_equal(atn_tokenizer_pre(t), "default");
    assert_int_equal(atn_token_bos(t), -1);
    assert_string_equal(atn_chat_family(t), "plain");
    tokenizer_close(t);
}

/* Builds model and tokens, then one more key by hand; must be refused for that key. */
static void assert_refused(buf *b, atn_status code, const char *param)
{
    atn_tokenizer *t = (atn_tokenizer *)&code;
    atn_err err;
    atn_status status = open_built(b, false, &t, &err);
    if (status != code || strcmp(err.param, param) != 0) {
        fail_msg("%s: status %d, param %s: %s", param, status, err.param, err.msg);
    }
    assert_null(t);
}

static buf begin(const char *model)
{
    buf b = gguf_begin(3, 0, 3);
    put_kv_text(&b, "tokenizer.ggml.model", model);
    put_tokens(&b, N);
    return b;
}

static void test_arrays_of_other_lengths_or_types(void **state)
{
    (void)state;
    static const int32_t kinds[N + 1] = {2, 3, 3, 1, 1, 1, 4, 1};
    static const float scores[N + 1] = {0};
    for (size_t n = N - 1; n <= N + 1; n += 2) {
        buf b = begin("llama");
        put_kv_array(&b, "tokenizer.ggml.token_type", GGUF_I32, n);
        put(&b, kinds, n * 4);
        assert_refused(&b, ATN_FORMAT, "tokenizer.ggml.token_type");
        b = begin("llama");
        put_kv_array(&b, "tokenizer.ggml.scores", GGUF_F32, n);
        put(&b, scores, n * 4);
        assert_refused(&b, ATN_FORMAT, "tokenizer.ggml.scores");
    }
    buf b = begin("llama");
    put_kv_array(&b, "tokenizer.ggml.token_type", GGUF_F32, N);
    put(&b, scores, N * 4);
    assert_refused(&b, ATN_FORMAT, "tokenizer.ggml.token_type");
    b = begin("llama");
    put_kv_array(&b, "tokenizer.ggml.scores", GGUF_U8, N);
    put(&b, scores, N);
    assert_refused(&b, ATN_FORMAT, "tokenizer.ggml.scores");
    b = begin("gpt2");
    put_kv_array(&b, "tokenizer.ggml.merges", GGUF_I32, N);
    put(&b, kinds, N * 4);
    assert_refused(&b, ATN_FORMAT, "tokenizer.ggml.merges");
}

static void test_special_ids_out_of_range(void **state)
{
    (void)state;
    static const char *const keys[] = {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id",
                                       "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id",
                                       "tokenizer.ggml.unknown_token_id"};
    static const uint32_t ids[] = {N, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        for (size_t k = 0; k < sizeof ids / sizeof ids[0]; k++) {
            buf b = begin("llama");
            put_kv_u32(&b, keys[i], ids[k]);
            assert_refused(&b, ATN_FORMAT, keys[i]);
        }
    }
}

static void test_missing_or_unknown(void **state)
{
    (void)state;
    buf b = gguf_begin(3, 0, 1);
    put_kv_text(&b, "tokenizer.ggml.model", "llama");
    assert_refused(&b, ATN_FORMAT, "tokenizer.ggml.tokens");
    b = gguf_begin(3, 0, 2);
    put_kv_text(&b, "tokenizer.ggml.model", "llama");
    put_tokens(&b, 0);
    assert_refused(&b, ATN_FORMAT, "tokenizer.ggml.tokens");
    b = gguf_begin(3, 0, 1);
    put_tokens(&b, N);
    assert_refused(&b, ATN_FORMAT, "tokenizer.ggml.model");
    b = begin("t5");
    put_kv_u32(&b, "x", 1);
    assert_refused(&b, ATN_UNSUPPORTED, "tokenizer.ggml.model");
    b = begin("gpt2");
    put_kv_text(&b, "tokenizer.ggml.pre", "superbpe");
    assert_refused(&b, ATN_UNSUPPORTED, "tokenizer.ggml.pre");
    b = begin("gpt2");
    put_kv_text(&b, "tokenizer.ggml.pre", "superbpe");
    atn_tokenizer *t;
    atn_err err;
    assert_int_equal(open_built(&b, true, &t, &err), ATN_OK);
    assert_string_equal(atn_tokenizer_pre(t), "default");
    tokenizer_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_said),
        cmocka_unit_test(test_little_said),
        cmocka_unit_test(test_arrays_of_other_lengths_or_types),
        cmocka_unit_test(test_special_ids_out_of_range),
        cmocka_unit_test(test_missing_or_unknown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
