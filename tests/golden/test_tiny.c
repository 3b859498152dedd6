/* The small models of every architecture against their float64 references: on every backend that computes in float32, and on
 * simd, which does where weights are floats and rounds activations to 16 bits where they are quantised. */
#include "tests/golden/reference.h"

static const tolerance exact_path = {
    .logit = 1e-4, .logprob = 1e-4, .attention = 1e-5, .intervention = 1e-4, .sure_gap = 1e-3};

static void check_model(const char *name, const char *backend, uint32_t n_threads, atn_dtype kv_type,
                        const tolerance *tol)
{
    char path[256];
    snprintf(path, sizeof path, "tests/golden/data/%s.json", name);
    json_t *doc = reference_load(path);
    snprintf(path, sizeof path, "tests/golden/data/%s.gguf", name);
    runner r;
    runner_open(&r, backend, n_threads, path,
                &(runner_params){.max_rows = 128, .max_out = 128, .n_seqs = 6, .kv_type = kv_type});
    assert_string_equal(r.info.architecture, json_string_value(reference_get(doc, "architecture")));

    measured got = {0};
    json_t *prompts[8];
    kv_seq *seqs[8];
    uint32_t n = 0;
    const char *key;
    json_t *prompt;
    json_object_foreach(reference_get(doc, "prompts"), key, prompt)
    {
        assert_true(n < 8);
        prompts[n] = prompt;
        seqs[n] = runner_seq(&r);
        check_prompt(&r, prompt, tol, &got, seqs[n]);
        n++;
    }
    check_greedy(&r, prompts, seqs, n, tol, &got);
    char what[128];
    snprintf(what, sizeof what, "%s, %s, %s KV", name, backend, atn_dtype_name(kv_type));
    print_measured(what, &got);
    assert_true(got.n_choices > 0 && got.n_weights > 0 && got.intervention > 0);
    for (uint32_t i = 0; i < n; i++) {
        kv_seq_free(seqs[i]);
    }
    runner_close(&r);
    json_decref(doc);
}

static const char *const models[] = {"tiny-llama-q8_0",  "tiny-gpt2-f16",   "tiny-qwen2-f16",  "tiny-qwen3-q8_0",
                                     "tiny-gemma3-q8_0", "tiny-llama3-f16", "tiny-mistral-f16"};

static void on_naive(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        check_model(models[i], "naive", 2, ATN_DTYPE_F32, &exact_path);
    }
}

static void on_openblas(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        check_model(models[i], "openblas", 2, ATN_DTYPE_F32, &exact_path);
    }
}

static void on_simd(void **state)
{
    (void)state;
    const tolerance bits_16 = {
        .logit = 4e-3, .logprob = 3e-3, .attention = 2e-4, .intervention = 2e-3, .sure_gap = 5e-3};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        bool floats = strstr(models[i], "f16") != NULL;
        check_model(models[i], "simd", 2, ATN_DTYPE_F32, floats ? &exact_path : &bits_16);
    }
}

static void with_half_kv(void **state)
{
    (void)state;
    const tolerance half = {.logit = 0.05, .logprob = 0.05, .attention = 2e-3, .intervention = 0.05, .sure_gap = 0.1};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        check_model(models[i], "naive", 2, ATN_DTYPE_F16, &half);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(on_naive), cmocka_unit_test(on_openblas),
                                       cmocka_unit_test(on_simd), cmocka_unit_test(with_half_kv)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
