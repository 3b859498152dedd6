/* Histograms and the copy for readers, see engine_metrics.h. */
#include "core/sched/engine_metrics.h"

#include <stddef.h>

#define COUNT(array) ((uint32_t)(sizeof(array) / sizeof((array)[0])))

static const double first_token[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                     1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
static const double inter_token[] = {.01, .025, .05, .075, .1,  .15, .2, .3, .4, .5,
                                     .75, 1,    2.5, 5,    7.5, 10,  20, 40, 80};
static const double request[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double rows[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

enum { SECOND = 1000000 };
static const double unit_first_token = SECOND, unit_inter_token = SECOND, unit_request = SECOND, unit_rows = 1;

static void observe(engine_hist *h, const double *bounds, uint32_t n_bounds, double unit, uint64_t value)
{
    uint32_t i = 0;

    while (i < n_bounds && (double)value > bounds[i] * unit) {
        i++;
    }
    metric_add(&h->counts[i], 1);
    metric_add(&h->sum, value);
}

#define X(name, bounds)                                                 \
    void metric_##name(engine_metrics *m, uint64_t value)               \
    {                                                                   \
        observe(&m->name, bounds, COUNT(bounds), unit_##bounds, value); \
    }
ENGINE_HISTOGRAMS(X)
#undef X

static void copy_hist(const engine_hist *h, const double *bounds, uint32_t n_bounds, double unit, atn_histogram *out)
{
    *out = (atn_histogram){.bounds = bounds, .n_bounds = n_bounds};
    for (uint32_t i = 0; i <= n_bounds; i++) {
        out->counts[i] = atomic_load_explicit(&h->counts[i], memory_order_relaxed);
        out->count += out->counts[i];
    }
    out->sum = (double)atomic_load_explicit(&h->sum, memory_order_relaxed) / unit;
}

void engine_metrics_copy(const engine_metrics *m, atn_metrics *out)
{
#define X(name) out->name = atomic_load_explicit(&m->name, memory_order_relaxed);
    ENGINE_NUMBERS(X)
#undef X
#define X(name, bounds) copy_hist(&m->name, bounds, COUNT(bounds), unit_##bounds, &out->name);
    ENGINE_HISTOGRAMS(X)
#undef X
}
