/* Batch invariance of naive and simd on Gemma 3 270M: a short prompt and two tokens more; every chunk size on 2 threads, one each
 * of alone and among others on 1 and 5. */
#include "tests/golden/gemma_file.h"
#include "tests/golden/invariance.h"

static char model_path[4096];

static void check_short_prompt(const char *backend)
{
    /* "The capital of France is the capital" */
    const request q = {.ids = {2, 818, 5279, 529, 7001, 563, 506, 5279}, .n = 6, .n_decode = 2};
    const uint32_t n_threads[] = {1, 2, 5};
    comparison c = {0};
    for (size_t t = 0; t < 3; t++) {
        runner r;
        runner_params p = {
            .context = 256, .max_rows = MAX_ROWS, .max_out = 1, .n_seqs = N_OTHERS + 1, .kv_type = ATN_DTYPE_F16};
        runner_open(&r, backend, n_threads[t], model_path, &p);
        if (n_threads[t] == 2) {
            compare_all(&c, &r, &q, 1);
        } else {
            compare(&c, &r, &q, 64, 0, 1);
            compare(&c, &r, &q, 7, N_OTHERS, 1);
        }
        runner_close(&r);
    }
    assert_int_equal(c.n_runs, 6 + 2 * 2);
    assert_int_equal(c.n_differ, 0);
    comparison_free(&c);
}

static void short_prompt(void **state)
{
    (void)state;
    check_short_prompt("naive");
}

static void short_prompt_on_simd(void **state)
{
    (void)state;
    check_short_prompt("simd");
}

int main(void)
{
    int rc = gemma_file_find(model_path, sizeof model_path);
    if (rc != 0) {
        return rc;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(short_prompt), cmocka_unit_test(short_prompt_on_simd)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
