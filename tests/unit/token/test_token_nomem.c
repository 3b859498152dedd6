/* Every allocation of opening a tokenizer, tokenizing, detokenizing and rendering a chat fails once: ATN_NOMEM or no harm,
 * nothing leaked. */
#include "tests/unit/failing_malloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include "tests/unit/token/token_fixture.h"

static const gguf_str spm_pieces[] = {{"<unk>", 5}, {"<s>", 3}, {"</s>", 4},        {"a", 1},
                                      {"b", 1},     {"ab", 2},  {"\xE2\x96\x81", 3}};
static const gguf_str bpe_pieces[] = {{"<unk>", 5}, {"<s>", 3}, {"</s>", 4},    {"a", 1},
                                      {"b", 1},     {"ab", 2},  {"\xC4\xA0", 2}};
static const int32_t kinds[] = {2, 3, 3, 1, 1, 1, 1};
static const gguf_str rules[] = {{"a b", 3}};
static const char chatml_text[] = "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>'}} "
                                  "<|im_start|>system\\nBe good.<|im_end|>";
static const gguf_str chatml = {chatml_text, sizeof chatml_text - 1};

static atn_status talk(const atn_tokenizer *t, atn_err *err)
{
    atn_chat_message msgs[] = {{"user", "ab ab", 5}, {"assistant", "ab", 2}};
    atn_segment *segs = NULL;
    size_t n_segs;
    int32_t *ids = NULL;
    size_t(*spans)[2] = NULL;
    size_t n_ids;
    char *text = NULL;
    size_t n_text;
    atn_status s = atn_chat_render(t, msgs, 2, true, &segs, &n_segs, err);
    if (s == ATN_OK) {
        s = atn_tokenize_offsets(t, segs, n_segs, ATN_TOKENIZE_BOS, &ids, &spans, &n_ids, err);
    }
    if (s == ATN_OK) {
        s = atn_detokenize(t, ids, n_ids, true, &text, &n_text, err);
    }
    if (s == ATN_OK && strstr(text, "ab") == NULL) {
        s = ATN_INTERNAL;
    }
    free(segs);
    free(ids);
    free(spans);
    free(text);
    return s;
}

static atn_status use(bool byte_level, atn_err *err)
{
    token_source src =
        source_of(byte_level ? "gpt2" : "llama", "deepseek-llm", byte_level ? bpe_pieces : spm_pieces, 7);
    src.kinds = kinds;
    src.unknown = 0;
    src.merges = rules;
    src.n_merges = byte_level ? 1 : 0;
    src.chat_template = &chatml;
    atn_tokenizer *t = NULL;
    atn_status s = vocab_build(&src, false, &t, err);
    if (s == ATN_OK) {
        s = talk(t, err);
    }
    tokenizer_close(t);
    return s;
}

static void every_allocation(bool byte_level, long at_least)
{
    atn_err err = {0};
    assert_int_equal(use(byte_level, &err), ATN_OK);
    long before = n_live;
    long failures = 0;
    for (long k = 1; k < 2000; k++) {
        err = (atn_err){0};
        fail_at = k;
        atn_status s = use(byte_level, &err);
        bool reached = fail_at == 0;
        fail_at = 0;
        if (!reached) {
            assert_int_equal(s, ATN_OK);
            break;
        }
        failures++;
        if (s != ATN_OK) { /* what PCRE2 allocates for its compiler is not needed */
            assert_int_equal(s, ATN_NOMEM);
            assert_int_equal(err.code, ATN_NOMEM);
            assert_non_null(strstr(err.msg, "no memory"));
        }
        assert_int_equal(n_live, before);
    }
    assert_true(SANITIZED || failures >= at_least);
    assert_true(failures < 1999);
}

static void test_spm(void **state)
{
    (void)state;
    every_allocation(false, 18);
}

static void test_bpe(void **state)
{
    (void)state;
    every_allocation(true, 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_spm), cmocka_unit_test(test_bpe)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
