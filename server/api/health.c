/* The probes and the scrape. /livez says whether a restart would help: 200 unless the engine has work and makes no step.
 * /readyz and /health say whether to send requests: 503 while the model loads or the server drains. None of them waits for
 * the engine. */
#include "server/api/handlers.h"
#include "server/api/metrics_render.h"
#include "server/api/state.h"

#include <string.h>

enum { METRICS_MAX = 1 << 20 };

void health_tick(api *a, mono_time now)
{
    bool busy = false;
    uint64_t steps = a->engine != NULL ? atn_engine_steps(a->engine, &busy) : 0;
    health_watch_feed(&a->watch, steps, busy, now);
}

static void reply_ok(exchange *x)
{
    buf body;
    buf_init(&body, 64);
    buf_puts(&body, "{\"status\":\"ok\"}");
    api_reply_json(x, 200, 0, &body);
    buf_free(&body);
}

void handle_livez(api *a, exchange *x)
{
    bool busy = false;
    uint64_t steps = a->engine != NULL ? atn_engine_steps(a->engine, &busy) : 0;
    if (health_stalled(&a->watch, steps, busy, mono_now())) {
        atn_err err;
        (void)atn_fail(&err, ATN_UNAVAILABLE, NULL, "the engine has work and made no step for %d seconds",
                       HEALTH_STALL_S);
        api_fail(x, &err);
        return;
    }
    reply_ok(x);
}

/* Does the query hold exactly this parameter? */
static bool query_has(const char *query, const char *pair)
{
    size_t n = strlen(pair);
    for (const char *p = query; p != NULL && *p != '\0'; p = strchr(p, '&') != NULL ? strchr(p, '&') + 1 : NULL) {
        if (strncmp(p, pair, n) == 0 && (p[n] == '\0' || p[n] == '&')) {
            return true;
        }
    }
    return false;
}

void handle_readyz(api *a, exchange *x)
{
    atn_err err;
    if (a->draining) {
        /* HAProxy tells 404 from a failure with http-check disable-on-404: no new sessions, the old ones stay. */
        bool gone = strcmp(x->path, "/readyz") == 0 && query_has(x->query, "drain=404");
        (void)atn_fail(&err, gone ? ATN_NOT_FOUND : ATN_UNAVAILABLE, NULL, "the server is shutting down");
        api_fail(x, &err);
    } else if (api_loaded(a, &err) != ATN_OK) {
        api_fail(x, &err);
    } else {
        reply_ok(x);
    }
}

static void emit_sample(void *out, const char *name, const char *help, const char *type, double value)
{
    metrics_render_sample(out, name, help, type, value);
}

void handle_metrics(api *a, exchange *x)
{
    atn_metrics m = {0};
    if (a->engine != NULL) {
        atn_engine_get_metrics(a->engine, &m);
    }
    metrics_view v = {.engine = &m,
                      .process = process_usage_now(),
                      .sessions = sessions_count(a->sessions),
                      .parsing_bytes = a->aside_bytes,
                      .version = a->set.version};
    buf body;
    buf_init(&body, METRICS_MAX);
    metrics_render(&body, &v);
    if (a->metrics_source != NULL) {
        a->metrics_source(a->metrics_arg, emit_sample, &body);
    }
    if (body.failed) {
        atn_err err;
        (void)atn_fail(&err, ATN_NOMEM, NULL, "no memory for the metrics");
        api_fail(x, &err);
    } else {
        x->ops->reply(x, 200, "text/plain; version=0.0.4; charset=utf-8", NULL, 0, &body);
    }
    buf_free(&body);
}
