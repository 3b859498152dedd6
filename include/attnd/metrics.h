/* What an engine has done: counters, gauges and histograms, read without disturbing it.
 *
 * Thread: the engine thread writes with relaxed atomics; atn_engine_get_metrics copies from any thread.
 */
#ifndef ATTND_METRICS_H
#define ATTND_METRICS_H

#include <stdint.h>

enum { ATN_HIST_BUCKETS = 24 };

/* Not cumulative: bucket i counts values <= bounds[i] and above the one before; the last one counts the rest. */
typedef struct atn_histogram {
    const double *bounds; /* [n_bounds] seconds or tokens, ascending; static memory */
    uint32_t n_bounds;    /* < ATN_HIST_BUCKETS */
    uint64_t counts[ATN_HIST_BUCKETS];
    uint64_t count;
    double sum;
} atn_histogram;

typedef struct atn_metrics {
    /* gauges */
    uint64_t waiting, running, sequences_kept;
    uint64_t kv_pages_total, kv_pages_free, kv_pages_kept; /* kept: held by idle sessions, given back under pressure */
    uint64_t batch_tokens, batch_sequences;                /* of the last step */
    uint64_t weights_bytes, kv_bytes, scratch_bytes;
    uint64_t page_tokens;
    /* counters */
    uint64_t steps, prompt_tokens, cached_tokens, generated_tokens;
    uint64_t requests_admitted, requests_refused;
    uint64_t ended_stop, ended_length, ended_cancelled, ended_error, ended_deadline;
    uint64_t idle_evictions;
    /* histograms, seconds unless said */
    atn_histogram ttft, itl, queue, prefill, decode, e2e;
    atn_histogram step_tokens; /* tokens a step */
} atn_metrics;

#endif
