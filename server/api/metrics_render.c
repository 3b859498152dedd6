/* Renders /metrics. One table row a family whose sample is a field of atn_metrics; the few that are computed follow.
 *
 * A scrape may come every 50 ms (the Gateway API's endpoint picker), so nothing here waits for the engine or takes a lock of
 * ours, and what is allocated is the output and what reading /proc/self needs. Histograms arrive as relaxed copies that may be a request apart from each other: `_count` is therefore the sum
 * of the buckets, so that the exposition is always consistent in itself. */
#include "server/api/metrics_render.h"

#include <dirent.h>
#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct family {
    const char *name, *help;
    size_t offset; /* of the field in atn_metrics */
} family;

#define FIELD(f) offsetof(atn_metrics, f)

static const family gauges[] = {
    {"attnd_requests_waiting", "Requests admitted and not yet running.", FIELD(waiting)},
    {"attnd_requests_running", "Requests being computed.", FIELD(running)},
    {"attnd_sessions_resident", "Sequences whose KV is kept for their session's next turn.", FIELD(sequences_kept)},
    {"attnd_kv_pages", "Pages of the KV cache.", FIELD(kv_pages_total)},
    {"attnd_kv_pages_free", "KV pages that nobody holds.", FIELD(kv_pages_free)},
    {"attnd_kv_pages_kept", "KV pages of idle sessions, given back when others need them.", FIELD(kv_pages_kept)},
    {"attnd_batch_tokens", "Tokens of the last step.", FIELD(batch_tokens)},
    {"attnd_batch_sequences", "Sequences in the last step.", FIELD(batch_sequences)},
    {"attnd_weights_bytes", "Memory of the model's weights.", FIELD(weights_bytes)},
    {"attnd_kv_bytes", "Memory of the KV cache.", FIELD(kv_bytes)},
    {"attnd_scratch_bytes", "Memory of the work space of a step.", FIELD(scratch_bytes)},
};

static const family counters[] = {
    {"attnd_steps_total", "Steps of the engine.", FIELD(steps)},
    {"attnd_prompt_tokens_total", "Prompt tokens of admitted requests.", FIELD(prompt_tokens)},
    {"attnd_prompt_tokens_cached_total", "Prompt tokens whose KV was reused.", FIELD(cached_tokens)},
    {"attnd_generation_tokens_total", "Tokens generated.", FIELD(generated_tokens)},
    {"attnd_requests_admitted_total", "Requests that the engine took.", FIELD(requests_admitted)},
    {"attnd_requests_refused_total", "Requests refused at the engine's door.", FIELD(requests_refused)},
    {"attnd_sessions_evicted_total", "Kept sequences given back because others needed their pages.",
     FIELD(idle_evictions)},
};

static const family histograms[] = {
    {"attnd_time_to_first_token_seconds", "From admission to the first token.", FIELD(ttft)},
    {"attnd_inter_token_latency_seconds", "From one token of a sequence to its next.", FIELD(itl)},
    {"attnd_e2e_request_latency_seconds", "From admission to the last token.", FIELD(e2e)},
    {"attnd_request_queue_time_seconds", "From admission to the first computed token of the prompt.", FIELD(queue)},
    {"attnd_request_prefill_time_seconds", "Time of a request in prefill.", FIELD(prefill)},
    {"attnd_request_decode_time_seconds", "Time of a request in decode.", FIELD(decode)},
    {"attnd_step_tokens", "Tokens in a step, prefill and decode together.", FIELD(step_tokens)},
};

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

process_usage process_usage_now(void)
{
    process_usage u = {0};
    FILE *f = fopen("/proc/self/statm", "re");
    if (f != NULL) {
        uint64_t pages = 0;
        if (fscanf(f, "%*s %" SCNu64, &pages) == 1) {
            u.resident_bytes = pages * (uint64_t)sysconf(_SC_PAGESIZE);
        }
        fclose(f);
    }
    struct rusage r;
    if (getrusage(RUSAGE_SELF, &r) == 0) {
        u.cpu_seconds =
            (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
    }
    /* Since Linux 6.2 the size of the folder is the number of open descriptors; before, they have to be counted. */
    struct stat st;
    if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0) {
        u.open_fds = (uint64_t)st.st_size;
        return u;
    }
    DIR *d = opendir("/proc/self/fd");
    if (d != NULL) {
        for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
            u.open_fds += e->d_name[0] != '.';
        }
        u.open_fds -= u.open_fds > 0; /* the folder's own */
        closedir(d);
    }
    return u;
}

static void head(buf *out, const char *name, const char *help, const char *type)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Whole numbers come out as such at any size; others keep every bit that a double has. */
static void value(buf *out, double v)
{
    if (v == rint(v) && fabs(v) < 9007199254740992.0) {
        buf_printf(out, " %.0f\n", v);
    } else {
        buf_printf(out, " %.17g\n", v);
    }
}

void metrics_render_sample(buf *out, const char *name, const char *help, const char *type, double v)
{
    head(out, name, help, type);
    buf_puts(out, name);
    value(out, v);
}

static uint64_t field(const atn_metrics *m, size_t offset)
{
    return *(const uint64_t *)(const void *)((const char *)m + offset);
}

static void render_fields(buf *out, const atn_metrics *m, const family *f, size_t n, const char *type)
{
    for (size_t i = 0; i < n; i++) {
        head(out, f[i].name, f[i].help, type);
        buf_printf(out, "%s %" PRIu64 "\n", f[i].name, field(m, f[i].offset));
    }
}

static void render_histogram(buf *out, const family *f, const atn_histogram *h)
{
    head(out, f->name, f->help, "histogram");
    uint64_t below = 0;
    for (uint32_t i = 0; i < h->n_bounds; i++) {
        below += h->counts[i];
        buf_printf(out, "%s_bucket{le=\"%.15g\"} %" PRIu64 "\n", f->name, h->bounds[i], below);
    }
    below += h->counts[h->n_bounds];
    buf_printf(out, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n%s_sum", f->name, below, f->name);
    value(out, h->sum);
    buf_printf(out, "%s_count %" PRIu64 "\n", f->name, below);
}

static void render_finished(buf *out, const atn_metrics *m)
{
    const char *name = "attnd_requests_finished_total";
    const struct {
        const char *reason;
        uint64_t n;
    } ends[] = {
        {"stop", m->ended_stop},         {"length", m->ended_length}, {"cancelled", m->ended_cancelled},
        {"deadline", m->ended_deadline}, {"error", m->ended_error},
    };
    head(out, name, "Admitted requests that ended, by reason.", "counter");
    for (size_t i = 0; i < COUNT(ends); i++) {
        buf_printf(out, "%s{reason=\"%s\"} %" PRIu64 "\n", name, ends[i].reason, ends[i].n);
    }
}

void metrics_render(buf *out, const metrics_view *v)
{
    const atn_metrics *m = v->engine;
    render_fields(out, m, gauges, COUNT(gauges), "gauge");
    uint64_t idle = m->kv_pages_free + m->kv_pages_kept;
    double used = m->kv_pages_total > idle ? (double)(m->kv_pages_total - idle) / (double)m->kv_pages_total : 0;
    metrics_render_sample(out, "attnd_kv_cache_usage_ratio",
                          "Share of the KV pages that running requests hold, 0 to 1.", "gauge", used);
    metrics_render_sample(out, "attnd_sessions", "Sessions that exist.", "gauge", (double)v->sessions);
    metrics_render_sample(out, "attnd_parsing_bytes", "Bytes of large request bodies that are being parsed.", "gauge",
                          (double)v->parsing_bytes);
    /* Labels by the names that the Gateway API's endpoint picker reads; they are plain integers, the value is always 1. */
    head(out, "attnd_cache_config_info", "Tokens in a KV page, and the number of pages.", "gauge");
    buf_printf(out, "attnd_cache_config_info{block_size=\"%" PRIu64 "\",num_gpu_blocks=\"%" PRIu64 "\"} 1\n",
               m->page_tokens, m->kv_pages_total);
    head(out, "attnd_build_info", "The version that runs.", "gauge");
    buf_printf(out, "attnd_build_info{version=\"%s\"} 1\n", v->version);

    render_fields(out, m, counters, COUNT(counters), "counter");
    render_finished(out, m);
    for (size_t i = 0; i < COUNT(histograms); i++) {
        render_histogram(out, &histograms[i],
                         (const atn_histogram *)(const void *)((const char *)m + histograms[i].offset));
    }

    metrics_render_sample(out, "process_resident_memory_bytes", "Resident memory of the process.", "gauge",
                          (double)v->process.resident_bytes);
    metrics_render_sample(out, "process_open_fds", "Open file descriptors of the process.", "gauge",
                          (double)v->process.open_fds);
    metrics_render_sample(out, "process_cpu_seconds_total", "CPU time of the process, user and system.", "counter",
                          v->process.cpu_seconds);
}
