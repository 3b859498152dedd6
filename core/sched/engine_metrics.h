/* Counters, gauges and histograms of an engine: relaxed atomics, written mostly by the engine thread, read by any. */
#ifndef ATN_ENGINE_METRICS_H
#define ATN_ENGINE_METRICS_H

#include <attnd/metrics.h>
#include <stdatomic.h>

/* The fields of atn_metrics that are plain numbers, but `waiting`, which the door counts. */
#define ENGINE_NUMBERS(X) \
    X(running)            \
    X(sequences_kept)     \
    X(kv_pages_total)     \
    X(kv_pages_free)      \
    X(kv_pages_kept)      \
    X(batch_tokens)       \
    X(batch_sequences)    \
    X(weights_bytes)      \
    X(kv_bytes)           \
    X(scratch_bytes)      \
    X(page_tokens)        \
    X(steps)              \
    X(prompt_tokens)      \
    X(cached_tokens)      \
    X(generated_tokens)   \
    X(requests_admitted)  \
    X(requests_refused)   \
    X(ended_stop)         \
    X(ended_length)       \
    X(ended_cancelled)    \
    X(ended_error)        \
    X(ended_deadline)     \
    X(idle_evictions)

/* X(name, bounds): bounds are those of vLLM, so that dashboards carry over; times are counted in microseconds. */
#define ENGINE_HISTOGRAMS(X) \
    X(ttft, first_token)     \
    X(itl, inter_token)      \
    X(queue, request)        \
    X(prefill, request)      \
    X(decode, request)       \
    X(e2e, request)          \
    X(step_tokens, rows)

typedef struct engine_hist {
    _Atomic uint64_t counts[ATN_HIST_BUCKETS];
    _Atomic uint64_t sum; /* microseconds or tokens */
} engine_hist;

typedef struct engine_metrics {
#define X(name) _Atomic uint64_t name;
    ENGINE_NUMBERS(X)
#undef X
#define X(name, bounds) engine_hist name;
    ENGINE_HISTOGRAMS(X)
#undef X
} engine_metrics;

static inline void metric_set(_Atomic uint64_t *m, uint64_t value)
{
    atomic_store_explicit(m, value, memory_order_relaxed);
}

static inline void metric_add(_Atomic uint64_t *m, uint64_t n)
{
    atomic_fetch_add_explicit(m, n, memory_order_relaxed);
}

#define X(name, bounds) void metric_##name(engine_metrics *m, uint64_t value); /* observes microseconds or tokens */
ENGINE_HISTOGRAMS(X)
#undef X

void engine_metrics_copy(const engine_metrics *m, atn_metrics *out);

#endif
