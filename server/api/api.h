/* The API layer: one route table, one file an endpoint family; parses JSON into native, range-checked requests and renders
 * answers. Knows exchanges, sessions and the engine; knows no sockets.
 * Thread: the loop thread only. */
#ifndef ATTND_API_H
#define ATTND_API_H

#include "core/base/clock.h"
#include "server/api/exchange.h"

typedef struct api api;

typedef struct api_settings {
    const char *model_id; /* name shown to clients: --model-id, or the file's name without .gguf */
    const char *version;  /* "0.1.0" */
    bool strict_model;    /* a request naming another model gets 404 */
    size_t max_body;      /* bytes of a request body; routes may set less */
    uint32_t max_sessions, session_ttl_s, max_session_tokens, max_turns_waiting;
    uint32_t max_batch_prompts; /* prompts in one /v1/completions */
    uint32_t ping_s;            /* SSE comment after this long without a write; 0: never */
    uint32_t queue_s;           /* a turn that has waited so long for its session ends with 504 */
    /* Runs work(job) on another thread and then done(job) on this one: large bodies are parsed so. NULL: they are parsed on
     * this thread. */
    atn_status (*run_aside)(void *arg, void (*work)(void *job), void (*done)(void *job), void *job, atn_err *err);
    void *run_arg;
} api_settings;

struct request_head;
struct fields;
struct parsed;
/* See door.h. */
typedef atn_status door_fn(const api *a, const struct request_head *head, struct fields *top, struct parsed *out,
                           atn_err *err);

typedef struct api_route {
    const char *method, *path;           /* "{id}" matches one segment, "{id...}" the rest */
    unsigned rights;                     /* all needed; 0: public */
    bool tgi;                            /* errors in TGI's shape, validation as 422 */
    size_t max_body;                     /* 0: the setting */
    void (*handle)(api *a, exchange *x); /* answers, now or later; or */
    door_fn *parse;                      /* what reads a body that holds text, see door.h */
} api_route;

/* Looks a request up before its body is read. NULL: no such path (allow is "") or no such method (allow: the methods that
 * exist, for the Allow header, static memory). HEAD finds the GET route. */
const api_route *api_find_route(const char *method, const char *path, const char **allow);

atn_status api_open(const api_settings *s, api **out, atn_err *err) ATN_MUST_CHECK;
/* Once, when the model is loaded; until then readiness is 503, and so are routes that need it. Both outlive the api. */
void api_set_engine(api *a, atn_model *m, atn_engine *e);
void api_close(api *a); /* after every exchange is closed and all that was run aside is done */
void api_handle(api *a, const api_route *r, exchange *x);
/* Seconds for Retry-After; 0: none. */
unsigned api_retry_after_s(atn_status code);
/* Answers with an error in the shape of route r (NULL: OpenAI's). retry_after_s 0: no header. */
void api_reply_error(exchange *x, const api_route *r, const atn_err *err, unsigned retry_after_s);
/* The same as bytes, for http to answer where no exchange exists yet. Returns the length, 0 when out is too small. */
size_t api_error_json(const api_route *r, const atn_err *err, char *out, size_t cap);

void api_on_engine_wake(api *a);         /* some stream has news */
void api_on_tick(api *a, mono_time now); /* about four times a second: pings, TTLs */
void api_set_draining(api *a);           /* readiness goes 503, new work is refused with 503 */
void api_cut(api *a);                    /* every turn that still runs ends with an error: the drain took too long */
size_t api_active(const api *a);         /* generations not yet ended, and bodies being parsed aside */
/* One sample of a metric. type: "gauge" or "counter". */
typedef void api_emit_fn(void *out, const char *name, const char *help, const char *type, double value);
typedef void api_metrics_fn(void *arg, api_emit_fn *emit, void *out);
/* Lets http add its own gauges and counters to /metrics: called when a scrape is rendered. */
void api_set_metrics_source(api *a, api_metrics_fn *fn, void *arg);

#endif
