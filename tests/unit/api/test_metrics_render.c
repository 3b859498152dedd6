/* The text of /metrics: exact for known numbers, complete for none. */
#include "server/api/metrics_render.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const double bounds[] = {0.005, 0.01, 2560};

static char *render(const metrics_view *v)
{
    buf b;
    buf_init(&b, 1 << 20);
    metrics_render(&b, v);
    assert_false(b.failed);
    return buf_take(&b, NULL);
}

static void assert_has(const char *text, const char *want)
{
    if (strstr(text, want) == NULL) {
        fail_msg("missing:\n%s\nin:\n%s", want, text);
    }
}

static void numbers_come_out_under_their_names(void **state)
{
    (void)state;
    atn_metrics m = {.waiting = 3,
                     .running = 2,
                     .kv_pages_total = 8,
                     .kv_pages_free = 3,
                     .kv_pages_kept = 1,
                     .page_tokens = 32,
                     .steps = 18446744073709551615u,
                     .prompt_tokens = 11,
                     .cached_tokens = 7,
                     .generated_tokens = 5,
                     .ended_stop = 1,
                     .ended_length = 2,
                     .ended_cancelled = 3,
                     .ended_deadline = 4,
                     .ended_error = 5,
                     .idle_evictions = 6};
    m.ttft = (atn_histogram){.bounds = bounds, .n_bounds = 3, .counts = {1, 0, 2, 4}, .count = 99, .sum = 1.5};
    metrics_view v = {.engine = &m,
                      .process = {.resident_bytes = 4096, .open_fds = 9, .cpu_seconds = 0.25},
                      .sessions = 12,
                      .parsing_bytes = 5000,
                      .version = "0.1.0"};
    char *text = render(&v);
    assert_has(text, "# HELP attnd_requests_waiting Requests admitted and not yet running.\n"
                     "# TYPE attnd_requests_waiting gauge\nattnd_requests_waiting 3\n");
    assert_has(text, "\nattnd_requests_running 2\n");
    assert_has(text, "\nattnd_kv_cache_usage_ratio 0.5\n");
    assert_has(text, "\nattnd_cache_config_info{block_size=\"32\",num_gpu_blocks=\"8\"} 1\n");
    assert_has(text, "# TYPE attnd_steps_total counter\nattnd_steps_total 18446744073709551615\n");
    assert_has(text, "\nattnd_prompt_tokens_total 11\n");
    assert_has(text, "\nattnd_prompt_tokens_cached_total 7\n");
    assert_has(text, "\nattnd_generation_tokens_total 5\n");
    assert_has(text, "# TYPE attnd_requests_finished_total counter\n"
                     "attnd_requests_finished_total{reason=\"stop\"} 1\n"
                     "attnd_requests_finished_total{reason=\"length\"} 2\n"
                     "attnd_requests_finished_total{reason=\"cancelled\"} 3\n"
                     "attnd_requests_finished_total{reason=\"deadline\"} 4\n"
                     "attnd_requests_finished_total{reason=\"error\"} 5\n");
    assert_has(text, "\nattnd_sessions_evicted_total 6\n");
    /* Buckets add up, and the count is theirs, not a copy that may be newer. */
    assert_has(text, "# TYPE attnd_time_to_first_token_seconds histogram\n"
                     "attnd_time_to_first_token_seconds_bucket{le=\"0.005\"} 1\n"
                     "attnd_time_to_first_token_seconds_bucket{le=\"0.01\"} 1\n"
                     "attnd_time_to_first_token_seconds_bucket{le=\"2560\"} 3\n"
                     "attnd_time_to_first_token_seconds_bucket{le=\"+Inf\"} 7\n"
                     "attnd_time_to_first_token_seconds_sum 1.5\n"
                     "attnd_time_to_first_token_seconds_count 7\n");
    assert_has(text, "\nattnd_sessions 12\n");
    assert_has(text, "\nattnd_parsing_bytes 5000\n");
    assert_has(text, "\nattnd_build_info{version=\"0.1.0\"} 1\n");
    assert_has(text, "\nprocess_resident_memory_bytes 4096\n");
    assert_has(text, "\nprocess_open_fds 9\n");
    assert_has(text, "\nprocess_cpu_seconds_total 0.25\n");
    free(text);
}

static void every_family_is_there_before_the_engine(void **state)
{
    (void)state;
    static const char *names[] = {
        "attnd_requests_waiting",
        "attnd_requests_running",
        "attnd_kv_cache_usage_ratio",
        "attnd_cache_config_info",
        "attnd_kv_pages",
        "attnd_kv_pages_free",
        "attnd_kv_pages_kept",
        "attnd_sessions_resident",
        "attnd_sessions",
        "attnd_parsing_bytes",
        "attnd_batch_tokens",
        "attnd_batch_sequences",
        "attnd_weights_bytes",
        "attnd_kv_bytes",
        "attnd_scratch_bytes",
        "attnd_steps_total",
        "attnd_prompt_tokens_total",
        "attnd_prompt_tokens_cached_total",
        "attnd_generation_tokens_total",
        "attnd_requests_admitted_total",
        "attnd_requests_refused_total",
        "attnd_requests_finished_total",
        "attnd_sessions_evicted_total",
        "attnd_time_to_first_token_seconds",
        "attnd_inter_token_latency_seconds",
        "attnd_e2e_request_latency_seconds",
        "attnd_request_queue_time_seconds",
        "attnd_request_prefill_time_seconds",
        "attnd_request_decode_time_seconds",
        "attnd_step_tokens",
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_cpu_seconds_total",
    };
    atn_metrics none = {0};
    metrics_view v = {.engine = &none, .version = "0.1.0"};
    char *text = render(&v);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char want[128];
        snprintf(want, sizeof want, "# TYPE %s ", names[i]);
        assert_has(text, want);
    }
    assert_has(text, "\nattnd_kv_cache_usage_ratio 0\n");
    assert_has(text, "\nattnd_step_tokens_bucket{le=\"+Inf\"} 0\nattnd_step_tokens_sum 0\nattnd_step_tokens_count 0\n");
    assert_null(strstr(text, "nan"));
    free(text);
}

static void a_pool_that_counts_kept_pages_twice_is_not_negative(void **state)
{
    (void)state;
    atn_metrics m = {.kv_pages_total = 4, .kv_pages_free = 3, .kv_pages_kept = 2};
    metrics_view v = {.engine = &m, .version = "0.1.0"};
    char *text = render(&v);
    assert_has(text, "\nattnd_kv_cache_usage_ratio 0\n");
    free(text);
}

static void process_usage_is_read(void **state)
{
    (void)state;
    process_usage u = process_usage_now();
    assert_true(u.resident_bytes > 100000);
    FILE *f = fopen("/dev/null", "r");
    assert_non_null(f);
    assert_int_equal(process_usage_now().open_fds, u.open_fds + 1);
    fclose(f);
    assert_int_equal(process_usage_now().open_fds, u.open_fds);
}

static void samples_keep_their_value(void **state)
{
    (void)state;
    buf b;
    buf_init(&b, 4096);
    metrics_render_sample(&b, "x_total", "Help.", "counter", 123456789012.0);
    metrics_render_sample(&b, "y", "Help.", "gauge", 0.1);
    assert_string_equal(b.data, "# HELP x_total Help.\n# TYPE x_total counter\nx_total 123456789012\n"
                                "# HELP y Help.\n# TYPE y gauge\ny 0.10000000000000001\n");
    buf_free(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_come_out_under_their_names),
        cmocka_unit_test(every_family_is_there_before_the_engine),
        cmocka_unit_test(a_pool_that_counts_kept_pages_twice_is_not_negative),
        cmocka_unit_test(process_usage_is_read),
        cmocka_unit_test(samples_keep_their_value),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
