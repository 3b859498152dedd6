/* The text of /metrics: Prometheus exposition format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/).
 * Pure: numbers in, text out. Thread: any. */
#ifndef ATTND_METRICS_RENDER_H
#define ATTND_METRICS_RENDER_H

#include <attnd/metrics.h>
#include "core/base/buf.h"

/* What the kernel says about this process. */
typedef struct process_usage {
    uint64_t resident_bytes, open_fds;
    double cpu_seconds;
} process_usage;

/* Reads /proc/self and getrusage: some microseconds. What cannot be read is 0. */
process_usage process_usage_now(void);

typedef struct metrics_view {
    const atn_metrics *engine; /* all zero while there is none */
    process_usage process;
    uint64_t sessions;      /* sessions that exist */
    uint64_t parsing_bytes; /* of large bodies that are being parsed */
    const char *version;
} metrics_view;

/* Every family is there whatever the numbers are, since a scraper counts a missing one as an error. */
void metrics_render(buf *out, const metrics_view *v);
/* One family of one sample. type: "gauge" or "counter". */
void metrics_render_sample(buf *out, const char *name, const char *help, const char *type, double value);

#endif
