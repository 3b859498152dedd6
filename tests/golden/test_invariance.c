/* Batch invariance of naive and simd on the tiny models: the same request gives the same logits bytes at every step, alone or among 16
 * others, in chunks of 1, 7 or 64, on 1, 2 or 5 threads. A matmul whose sum depends on the number of rows is planted to show
 * that the test sees it. Forks and truncations give the same bytes too. */
#include "tests/golden/invariance.h"

#include "core/backend/backend_impl.h"

static const uint32_t thread_counts[] = {1, 2, 5};
static const runner_params tiny_params = {
    .max_rows = MAX_ROWS, .max_out = 1, .n_seqs = N_OTHERS + 1, .kv_type = ATN_DTYPE_F16};

static void check_tiny_models(const char *backend)
{
    const char *models[] = {"tiny-llama-q8_0",  "tiny-gpt2-f16",   "tiny-qwen2-f16",  "tiny-qwen3-q8_0",
                            "tiny-gemma3-q8_0", "tiny-llama3-f16", "tiny-mistral-f16"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        char path[256];
        snprintf(path, sizeof path, "tests/golden/data/%s.gguf", models[i]);
        comparison c = {0};
        for (size_t t = 0; t < 3; t++) {
            runner r;
            runner_open(&r, backend, thread_counts[t], path, &tiny_params);
            request q = draw(7, 70, 8, r.info.n_vocab);
            compare_all(&c, &r, &q, 3);
            runner_close(&r);
        }
        assert_int_equal(c.n_runs, 18);
        assert_int_equal(c.n_differ, 0);
        comparison_free(&c);
    }
}

static void tiny_models(void **state)
{
    (void)state;
    check_tiny_models("naive");
}

static void tiny_models_on_simd(void **state)
{
    (void)state;
    check_tiny_models("simd");
}

/* Appends n ids to seq one by one; out [n, n_vocab]. */
static void feed(runner *r, kv_seq *seq, const int32_t *ids, uint32_t n, float *out)
{
    for (uint32_t i = 0; i < n; i++) {
        const float *row = runner_rows(r, seq, ids + i, 1, false, NULL);
        memcpy(out + (size_t)i * r->info.n_vocab, row, r->info.n_vocab * sizeof *row);
    }
}

/* What a sequence answers after ids[n] is the same when its prefix was computed by it, shared by a fork that then went another
 * way, or kept by a truncation. */
static void forks_and_truncations(void **state)
{
    (void)state;
    const char *models[] = {"tiny-llama-q8_0", "tiny-gemma3-q8_0"};
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        enum { PROMPT = 45, MORE = 6, MAX_VOCAB = 512 };
        char path[256];
        snprintf(path, sizeof path, "tests/golden/data/%s.gguf", models[i]);
        runner r;
        runner_open(&r, "naive", 2, path, &tiny_params);
        assert_true(r.info.n_vocab <= MAX_VOCAB);
        static float alone[MORE * MAX_VOCAB], forked[MORE * MAX_VOCAB], other[MORE * MAX_VOCAB],
            again[MORE * MAX_VOCAB];
        size_t bytes = sizeof(float) * MORE * r.info.n_vocab;
        request q = draw(11, PROMPT, MORE, r.info.n_vocab), p = draw(12, PROMPT, MORE, r.info.n_vocab);

        kv_seq *a = runner_seq(&r), *b = runner_seq(&r), *c = runner_seq(&r);
        runner_prompt(&r, a, q.ids, PROMPT, 64, NULL);
        feed(&r, a, q.ids + PROMPT, MORE, alone);
        runner_prompt(&r, b, q.ids, PROMPT, 64, NULL);
        kv_seq_fork(b, c);
        feed(&r, c, p.ids + PROMPT, MORE, other);
        feed(&r, b, q.ids + PROMPT, MORE, forked);
        assert_memory_equal(alone, forked, bytes);
        assert_memory_not_equal(alone, other, bytes);
        /* Back to the prompt, and on the other way; then what a group with a window has lost is computed anew. */
        uint32_t kept = kv_seq_reusable(b, PROMPT);
        assert_int_equal(kept, PROMPT);
        kv_seq_truncate(b, kept);
        feed(&r, b, p.ids + PROMPT, MORE, again);
        assert_memory_equal(other, again, bytes);
        runner_prompt(&r, a, p.ids, MORE + 20, 64, NULL);
        kept = kv_seq_reusable(a, PROMPT);
        assert_int_equal(kept, r.info.window > 0 ? 0 : PROMPT);
        kv_seq_truncate(a, kept);
        runner_prompt(&r, a, q.ids + kept, PROMPT - kept, 64, NULL);
        feed(&r, a, q.ids + PROMPT, MORE, again);
        assert_memory_equal(alone, again, bytes);
        kv_seq_free(a);
        kv_seq_free(b);
        kv_seq_free(c);
        runner_close(&r);
    }
}

/* ---- the planted fault: more rows, more partial sums ---- */

static void row_count_dependent_matmul(atn_backend *be, const atn_matmul_args *a)
{
    (void)be;
    const atn_weight *w = a->w;
    uint32_t n_parts = a->n > 4 ? 4 : 1;
    float *row = calloc(w->n_in, sizeof *row);
    assert_non_null(row);
    for (uint32_t o = 0; o < w->n_out; o++) {
        atn_dequantize(w->dtype, (const char *)w->mem.base + o * w->row_bytes, row, w->n_in);
        for (uint32_t r = 0; r < a->n; r++) {
            const float *x = mat_row(a->x, r);
            float part[4] = {0};
            for (uint32_t i = 0; i < w->n_in; i++) {
                part[i % n_parts] += x[i] * row[i];
            }
            float bias = a->bias != NULL ? mat_row(*a->bias, 0)[o] : 0.0f;
            mat_row(a->dst, r)[o] = part[0] + part[1] + (part[2] + part[3]) + bias;
        }
    }
    free(row);
}

static void planted_fault_is_seen(void **state)
{
    (void)state;
    backend_ops ops = naive_ops;
    ops.matmul = row_count_dependent_matmul;
    atn_backend *be;
    RUN_OK(backend_open_ops(&ops, &(atn_backend_params){.n_threads = 2}, &be, &err));
    runner r;
    runner_open_on(&r, be, "tests/golden/data/tiny-llama-q8_0.gguf", &tiny_params);
    request q = draw(7, 70, 8, r.info.n_vocab);
    comparison c = {0};
    compare_all(&c, &r, &q, 3);
    /* Only the run that repeats the first one's row counts may agree. */
    assert_true(c.n_differ >= 4);
    comparison_free(&c);
    runner_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(tiny_models), cmocka_unit_test(tiny_models_on_simd),
                                       cmocka_unit_test(forks_and_truncations),
                                       cmocka_unit_test(planted_fault_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
