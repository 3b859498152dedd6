/* Tokenization of every golden prompt: the ids are those of the reference, and the text comes back.
 * The goldens parse control tokens written out, so the prompts are one trusted segment. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "tests/utf8_encode.h"
#include "core/token/tokenizer.h"

#define DATA "tests/golden/data/"

static atn_tokenizer *open_tokenizer(const char *path)
{
    atn_err err = {0};
    gguf *g = NULL;
    atn_tokenizer *t = NULL;
    atn_status status = gguf_open(path, &g, &err);
    if (status == ATN_OK) {
        status = tokenizer_open(g, false, &t, &err);
    }
    if (status != ATN_OK) {
        fail_msg("%s: %s: %s", path, err.param, err.msg);
    }
    gguf_close(g);
    return t;
}

static void check_prompt(const atn_tokenizer *t, const char *name, const json_t *prompt)
{
    const char *text = json_string_value(json_object_get(prompt, "text"));
    const json_t *want = json_object_get(prompt, "ids");
    atn_segment seg = {text, strlen(text), true};
    atn_err err = {0};
    int32_t *ids;
    size_t(*spans)[2];
    size_t n;
    assert_int_equal(atn_tokenize_offsets(t, &seg, 1, ATN_TOKENIZE_BOS, &ids, &spans, &n, &err), ATN_OK);
    for (size_t i = 0; i < n && i < json_array_size(want); i++) {
        if (ids[i] != json_integer_value(json_array_get(want, i))) {
            fail_msg("%s: token %zu is %d, not %lld", name, i, ids[i], json_integer_value(json_array_get(want, i)));
        }
    }
    assert_int_equal(n, json_array_size(want));
    size_t at = 0;
    for (size_t i = 0; i < n; i++) { /* offsets cover the text without a gap */
        assert_int_equal(spans[i][0], at);
        at = spans[i][1];
    }
    assert_int_equal(at, seg.n);
    char *back;
    size_t n_back;
    assert_int_equal(atn_detokenize(t, ids, n, false, &back, &n_back, &err), ATN_OK);
    assert_string_equal(back, text);
    free(back);
    free(ids);
    free(spans);
}

/* greedy_text: what the generated ids say, with the space that they begin with. */
static void check_greedy(const atn_tokenizer *t, const json_t *prompt)
{
    const char *want = json_string_value(json_object_get(prompt, "greedy_text"));
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    size_t i;
    json_t *id;
    json_array_foreach(json_object_get(prompt, "greedy_ids"), i, id)
    {
        size_t n_bytes;
        const char *bytes = atn_token_bytes(t, (int32_t)json_integer_value(id), false, &n_bytes);
        fwrite(bytes, 1, n_bytes, out);
    }
    fclose(out);
    if (want != NULL) {
        assert_string_equal(text, want);
    } else {
        const char *hex = json_string_value(json_object_get(prompt, "greedy_hex"));
        assert_int_equal(2 * n, strlen(hex));
        for (size_t k = 0; k < n; k++) {
            char two[3];
            snprintf(two, sizeof two, "%02x", (unsigned char)text[k]);
            assert_memory_equal(two, hex + 2 * k, 2);
        }
    }
    free(text);
}

/* Random valid UTF-8 comes back as it was; trusted or not, whole or in segments, the bytes are the same. */
static void check_random_text(const atn_tokenizer *t)
{
    static const uint32_t ranges[][2] = {{0x20, 0x7E},     {0x00, 0x7F},        {0x20, 0x20},
                                         {0x80, 0x7FF},    {0x0A, 0x0A},        {0x800, 0xD7FF},
                                         {0xE000, 0xFFFF}, {0x10000, 0x10FFFF}, {0x1F300, 0x1F6FF}};
    enum { N_RANGES = sizeof ranges / sizeof ranges[0] };
    uint64_t rng = 1;
    for (int round = 0; round < 500; round++) {
        char text[200];
        size_t n = 0;
        while (n < sizeof text - 4) {
            rng = rng * 6364136223846793005u + 1442695040888963407u;
            const uint32_t *r = ranges[(rng >> 33) % N_RANGES];
            uint32_t cp = r[0] + (uint32_t)(rng >> 40) % (r[1] - r[0] + 1);
            if (cp != 0x2581) { /* a space to SentencePiece */
                n += utf8_encode(cp, text + n);
            }
        }
        size_t cut = (size_t)(rng >> 50) % n;
        atn_segment segs[] = {{text, cut, true}, {text + cut, n - cut, false}};
        atn_err err = {0};
        int32_t *ids;
        size_t n_ids;
        char *back;
        size_t n_back;
        assert_int_equal(atn_tokenize(t, segs, 2, ATN_TOKENIZE_BOS, &ids, &n_ids, &err), ATN_OK);
        assert_int_equal(atn_detokenize(t, ids, n_ids, false, &back, &n_back, &err), ATN_OK);
        assert_int_equal(n_back, n);
        assert_memory_equal(back, text, n);
        free(back);
        free(ids);
    }
}

static void check_golden(const char *json_path, const char *model_path)
{
    json_error_t why;
    json_t *golden = json_load_file(json_path, 0, &why);
    assert_non_null(golden);
    atn_tokenizer *t = open_tokenizer(model_path);
    const char *name;
    json_t *prompt;
    json_object_foreach(json_object_get(golden, "prompts"), name, prompt)
    {
        check_prompt(t, name, prompt);
        check_greedy(t, prompt);
    }
    json_t *long_prompt = json_object_get(golden, "long_prompt");
    if (long_prompt != NULL) {
        check_prompt(t, "long_prompt", long_prompt);
        check_greedy(t, long_prompt);
    }
    check_random_text(t);
    tokenizer_close(t);
    json_decref(golden);
}

static void test_tiny_llama(void **state)
{
    (void)state;
    check_golden(DATA "tiny-llama-q8_0.json", DATA "tiny-llama-q8_0.gguf");
}

static void test_tiny_gpt2(void **state)
{
    (void)state;
    check_golden(DATA "tiny-gpt2-f16.json", DATA "tiny-gpt2-f16.gguf");
}

static char *gemma_path(void)
{
    const char *models = getenv("ATTND_MODELS");
    const char *cache = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    char *path = NULL;
    int n = models != NULL ? asprintf(&path, "%s/gemma-3-270m-q4_k_m.gguf", models)
            : cache != NULL
                ? asprintf(&path, "%s/attnd/models/gemma-3-270m-q4_k_m.gguf", cache)
                : asprintf(&path, "%s/.cache/attnd/models/gemma-3-270m-q4_k_m.gguf", home == NULL ? "" : home);
    assert_true(n > 0);
    return path;
}

static void test_gemma(void **state)
{
    (void)state;
    char *path = gemma_path();
    if (access(path, R_OK) != 0) {
        fail_msg("%s is missing: ./dev model gemma3-270m", path);
    }
    check_golden(DATA "gemma3_270m.json", path);
    atn_tokenizer *t = open_tokenizer(path);
    for (int32_t id = 0; id < (int32_t)atn_vocab_size(t); id++) { /* "</s>" (212) is HTML here, no end */
        assert_int_equal(atn_token_ends(t, id), id == 1 || id == 106);
    }
    assert_string_equal(atn_chat_family(t), "plain");
    tokenizer_close(t);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tiny_llama),
        cmocka_unit_test(test_tiny_gpt2),
    };
    const struct CMUnitTest with_model[] = {
        cmocka_unit_test(test_gemma),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    char *path = gemma_path();
    const char *ci = getenv("CI");
    bool there = access(path, R_OK) == 0 || (ci != NULL && strcmp(ci, "true") == 0);
    if (there) {
        failed += cmocka_run_group_tests(with_model, NULL, NULL);
    } else {
        fprintf(stderr, "skipped in part: %s is missing: ./dev model gemma3-270m\n", path);
    }
    free(path);
    return failed > 0 ? failed : there ? 0 : 77;
}
