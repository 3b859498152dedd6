/* The engine alone with one request at a time: greedy text of the goldens, every way to end, prompt log-probabilities. */
#include "engine_rig.h"

#include <jansson.h>
#include <math.h>

static void golden_greedy(const char *gguf, const char *golden, const char *backend)
{
    rig r;
    answer *a = calloc(1, sizeof *a);
    json_error_t jerr;
    json_t *doc = json_load_file(golden, 0, &jerr);
    const char *name;
    json_t *prompt;
    int n = 0;

    assert_non_null(doc);
    rig_open(&r, gguf, backend, 0, rig_params());
    json_object_foreach(json_object_get(doc, "prompts"), name, prompt)
    {
        int32_t ids[512];
        const json_t *j_ids = json_object_get(prompt, "ids"), *want = json_object_get(prompt, "greedy_ids");
        const uint32_t n_ids = (uint32_t)json_array_size(j_ids), n_want = (uint32_t)json_array_size(want);
        if (n_want == 0) {
            continue;
        }
        for (uint32_t i = 0; i < n_ids; i++) {
            ids[i] = (int32_t)json_integer_value(json_array_get(j_ids, i));
        }
        rig_generate(&r, rig_request(ids, n_ids, n_want), a);
        assert_int_equal(a->n, n_want);
        for (uint32_t i = 0; i < n_want; i++) {
            assert_int_equal(a->ids[i], json_integer_value(json_array_get(want, i)));
        }
        n++;
    }
    assert_true(n > 0);
    rig_assert_clean(&r);
    rig_close(&r);
    json_decref(doc);
    free(a);
}

static void test_golden_greedy(void **state)
{
    (void)state;
    golden_greedy(TINY_LLAMA, "tests/golden/data/tiny-llama-q8_0.json", "naive");
    golden_greedy(TINY_GPT2, "tests/golden/data/tiny-gpt2-f16.json", "openblas");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden_greedy),
    };
    return cmocka_run_group_tests_name("engine_generate", tests, NULL, NULL);
}
