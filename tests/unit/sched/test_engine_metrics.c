/* Histograms: which bucket a value falls into, and what a reader gets. */
#include "core/sched/engine_metrics.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

static void test_buckets(void **state)
{
    (void)state;
    engine_metrics *m = calloc(1, sizeof *m);
    atn_metrics out;

    metric_ttft(m, 0);
    metric_ttft(m, 1000); /* a bound belongs to its bucket */
    metric_ttft(m, 1001);
    metric_ttft(m, 2560000000);
    metric_ttft(m, 2560000001);
    metric_step_tokens(m, 1);
    metric_step_tokens(m, 9);
    metric_add(&m->steps, 2);
    metric_set(&m->kv_bytes, 77);
    engine_metrics_copy(m, &out);
    assert_int_equal(out.ttft.n_bounds, 22);
    assert_int_equal(out.ttft.counts[0], 2);
    assert_int_equal(out.ttft.counts[1], 1);
    assert_int_equal(out.ttft.counts[21], 1);
    assert_int_equal(out.ttft.counts[22], 1);
    assert_int_equal(out.ttft.count, 5);
    assert_true(out.ttft.sum > 5120.002 && out.ttft.sum < 5120.0021);
    assert_int_equal(out.step_tokens.counts[0], 1);
    assert_int_equal(out.step_tokens.counts[2], 1);
    assert_true(out.step_tokens.sum == 10);
    assert_int_equal(out.itl.count, 0);
    assert_int_equal(out.steps, 2);
    assert_int_equal(out.kv_bytes, 77);
    free(m);
}

/* Ascending, and room for the rest behind the last. */
static void test_bounds(void **state)
{
    (void)state;
    engine_metrics *m = calloc(1, sizeof *m);
    atn_metrics out;

    engine_metrics_copy(m, &out);
    const atn_histogram *all[] = {&out.ttft,   &out.itl, &out.queue,      &out.prefill,
                                  &out.decode, &out.e2e, &out.step_tokens};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_in_range(all[i]->n_bounds, 1, ATN_HIST_BUCKETS - 1);
        for (uint32_t b = 1; b < all[i]->n_bounds; b++) {
            assert_true(all[i]->bounds[b - 1] < all[i]->bounds[b]);
        }
    }
    free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_bounds),
    };
    return cmocka_run_group_tests_name("engine_metrics", tests, NULL, NULL);
}
